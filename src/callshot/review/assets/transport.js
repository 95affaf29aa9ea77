// Buttons of the sound and the picture: a few, and the others behind “More”.

import { byId, make, makeButton, makeOptions } from "./dom.js";
import { formatSpeed } from "./format.js";
import { markHere } from "./marks.js";
import { player, togglePlay } from "./player.js";
import { changeSettings, choosePreset, CONTEXTS, settings, SPEEDS, stepValue } from "./settings.js";
import { currentItem, emit, on, state } from "./state.js";

const GAINS = [-12, -6, 0, 6, 12, 18, 24, 30, 36];
const toggles = new Map(); // name of a setting → its button
let play = null;
let preset = null;
let speed = null;
let gain = null;
let context = null;

/** Switch a setting that is on or off. */
export function toggleSetting(name) {
  changeSettings({ [name]: !settings[name] });
}

/** Play faster or slower: the pitch moves with the speed. */
export function stepSpeed(step) {
  changeSettings({ speed: stepValue(SPEEDS, settings.speed, step) });
  emit("note", `Speed ${formatSpeed(settings.speed)}`);
}

/** Show more or less of the recording before and after the call. */
export function stepContext(step) {
  const values = CONTEXTS.filter((value) => value <= state.session.max_context_s);
  changeSettings({ context_s: stepValue(values, settings.context_s, step), zoom: false });
}

/** Switch the band filter; without limits it takes those of the spectrogram. */
export function toggleBand() {
  const low = settings.low_hz ?? settings.min_hz;
  const high = settings.high_hz ?? settings.max_hz;
  changeSettings({ band: !settings.band, low_hz: low, high_hz: high });
}

function makeToggle(name, text, key, action, title) {
  const button = makeButton(text, key, action, { "aria-pressed": "false", "aria-keyshortcuts": key, title });
  toggles.set(name, button);
  return button;
}

function makeSelect(id, title, pairs, name) {
  const change = () => changeSettings({ [name]: Number(select.value), ...(name === "context_s" ? { zoom: false } : {}) });
  const select = make("select", { id, title, "aria-label": title, change }, ...makeOptions(pairs, settings[name]));
  return select;
}

/** Make the choice of presets: which pitch is shown and played. */
function makePresets() {
  const pairs = Object.keys(state.session.presets).map((name) => [name, name]);
  const change = () => { if (select.value !== "own") choosePreset(select.value); };
  const title = "Which pitch is shown and played; details in the settings";
  const select = make("select", { id: "preset", title, "aria-label": title, change }, ...makeOptions([...pairs, ["own", "own"]], settings.preset));
  return select;
}

/** Make the buttons once. */
export function startTransport() {
  const max = state.session.max_context_s;
  preset = makePresets();
  play = makeButton("Play", "space", togglePlay, { id: "play", "aria-keyshortcuts": "Space" });
  speed = makeSelect("speed", "Speed of the sound", SPEEDS.map((value) => [value, formatSpeed(value)]), "speed");
  gain = makeSelect("gain", "Gain", GAINS.map((value) => [value, `${value > 0 ? "+" : ""}${value} dB`]), "gain_db");
  context = makeSelect("context", "Context before and after", CONTEXTS.filter((value) => value <= max).map((value) => [value, `± ${value} s`]), "context_s");
  byId("transport").replaceChildren(
    play,
    speed,
    makeToggle("fit", "Fit frequencies", "w", () => toggleSetting("fit"), "Show the frequencies of this label only, with a contrast that suits it"),
    makeButton("Mark a call", "i", markHere, { "aria-keyshortcuts": "i", title: "Or drag a box on the spectrogram" }),
    make("details", { class: "more" }, make("summary", {}, "More"), make("div", { class: "row" }, ...makeOthers())),
  );
  on("settings", showSettings);
  on("player", showPlaying);
  on("card", showPlaying);
  showSettings();
}

/** Make the buttons that few need often; they have keys too. */
function makeOthers() {
  return [
    makeToggle("loop", "Loop", "l", () => toggleSetting("loop"), "Repeat the sound"),
    makeToggle("only_selection", "Call only", "o", () => toggleSetting("only_selection"), "Play only the marked span"),
    makeToggle("autoplay", "Autoplay", "v", () => toggleSetting("autoplay"), "Play each call when it appears"),
    makeToggle("zoom", "Zoom", "z", () => toggleSetting("zoom"), "Show only the call"),
    makeToggle("band", "Band", "b", toggleBand, "Play only the frequencies of the band (limits in the settings)"),
    preset,
    gain,
    context,
  ];
}

function showSettings() {
  for (const [name, button] of toggles) button.setAttribute("aria-pressed", String(Boolean(settings[name])));
  preset.value = settings.preset;
  speed.value = String(settings.speed);
  gain.value = String(settings.gain_db);
  context.value = String(settings.context_s);
}

function showPlaying() {
  const here = player.playing && player.what?.kind === "item" && player.what.id === currentItem()?.id;
  play.firstChild.textContent = here ? "Stop" : "Play";
  play.dataset.playing = String(here);
}
