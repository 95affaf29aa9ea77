// Settings of the spectrogram and the band filter, with presets.

import { postJson } from "./api.js";
import { byId, make, makeButton, makeField, makeOptions } from "./dom.js";
import { changePicture, changeSettings, choosePreset, settings } from "./settings.js";
import { emit, on, state } from "./state.js";
import { startTheme } from "./theme.js";

const dialog = byId("settings");
const TITLES = { infrasound: "Infrasound", audible: "Audible", ultrasound: "Ultrasound" };

/** Open the dialog. */
export function openSettings() {
  showSettings();
  dialog.showModal();
}

function showSettings() {
  const focused = document.activeElement?.id;
  dialog.replaceChildren(
    make("h2", { id: "settings-title" }, "Picture and sound"),
    make("p", { class: "quiet" }, "The same for all calls; this browser remembers them."),
    makePresets(),
    make("div", { class: "fields" }, ...makePictureFields()),
    make("h3", {}, "Band filter of the sound"),
    make("div", { class: "fields" }, makeNumber("low_hz", "From (Hz)", changeSettings), makeNumber("high_hz", "To (Hz)", changeSettings)),
    make("h3", {}, "Reviewer"),
    make("div", { class: "fields" }, makeReviewer()),
    makeButton("Close", "Esc", () => dialog.close()),
  );
  if (focused) byId(focused)?.focus();
}

function makePresets() {
  const buttons = Object.keys(state.session.presets).map((name) =>
    makeButton(TITLES[name] ?? name, null, () => choosePreset(name), {
      "data-preset": name,
      "aria-pressed": String(settings.preset === name),
    }));
  return make("div", { class: "row", role: "group", "aria-label": "Presets" }, ...buttons);
}

function makePictureFields() {
  return [
    makeNumber("min_hz", "Lowest frequency (Hz)", changePicture),
    makeNumber("max_hz", "Highest frequency (Hz)", changePicture),
    makeChoice("scale", "Frequency axis", [["linear", "linear"], ["log", "logarithmic"]]),
    makeNumber("window_s", "Window (s)", changePicture),
    makeNumber("floor_db", "Darkest level (dB)", changePicture),
    makeNumber("range_db", "Range of levels (dB)", changePicture),
    makeChoice("colours", "Colours", [["viridis", "viridis"], ["magma", "magma"], ["cividis", "cividis"], ["grey", "grey"]]),
  ];
}

function makeNumber(name, text, save) {
  const change = () => save({ [name]: input.value.trim() === "" ? null : Number(input.value) });
  const attributes = { id: `setting-${name}`, type: "number", step: "any", value: settings[name] ?? null, change };
  const input = make("input", { ...attributes, placeholder: "automatic" });
  return makeField(text, input);
}

function makeChoice(name, text, pairs) {
  const change = () => changePicture({ [name]: select.value });
  const select = make("select", { id: `setting-${name}`, change }, ...makeOptions(pairs, settings[name]));
  return makeField(text, select);
}

/** Make the field for the name under which this browser decides. */
function makeReviewer() {
  const change = () => rename(input.value.trim());
  const input = make("input", { id: "reviewer", type: "text", maxlength: "80", value: state.session.reviewer, change });
  return makeField("Your name, as it stands beside your decisions", input);
}

async function rename(name) {
  try {
    await postJson("/api/reviewer", { name });
    location.reload();
  } catch (error) {
    emit("note", error.message);
  }
}

/** Show or hide the panel. */
export function togglePanel() {
  changeSettings({ panel: !settings.panel });
}

function showPanelState() {
  document.documentElement.dataset.panel = settings.panel ? "open" : "closed";
  byId("panel-button").setAttribute("aria-expanded", String(settings.panel));
}

/** Connect the buttons of the header. */
export function startSettings() {
  byId("settings-button").addEventListener("click", openSettings);
  byId("panel-button").addEventListener("click", togglePanel);
  on("settings", () => {
    if (dialog.open) showSettings();
    showPanelState();
  });
  startTheme();
  showPanelState();
}
