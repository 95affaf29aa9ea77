// All keys of the page in one table; the help shows the same table.

import { confirmCall, nudgeSpan, redo, rejectCall, relabelCall, skipCall, splitCall, undo } from "./decisions.js";
import { byId, make, makeButton } from "./dom.js";
import { playNextExample } from "./examples.js";
import { toggleFilters } from "./filters.js";
import { moveFocus, openFocused, playFocused, toggleAll, toggleFocused, turnPage } from "./grid.js";
import { openLabelDialog } from "./labels.js";
import { togglePlay } from "./player.js";
import { changeMode, goBack, goNext } from "./queue.js";
import { openSettings, togglePanel } from "./settingsdialog.js";
import { nudgeLength, splitTime } from "./soundview.js";
import { currentItem, state } from "./state.js";
import { stepContext, stepSpeed, toggleBand, toggleSetting } from "./transport.js";

const help = byId("help");

/** Act only where a call is on the card. */
const withCall = (action) => () => { if (currentItem() !== null) action(); };

const BOTH = [
  ["Verdict", ["y"], "yes: the label is right", confirmCall],
  ["Verdict", ["n"], "no: it is none of the calls", rejectCall],
  ["Verdict", ["s"], "skip", skipCall],
  ["Verdict", ["u", "Ctrl+z"], "undo, as often as you like", undo],
  ["Verdict", ["r", "Ctrl+y"], "redo", redo],
  ["Verdict", ["a"], "another label, or a new one", openLabelDialog],
  ["Sound", ["+", "="], "faster, with the pitch up: × 2, × 4, × 8, × 16", () => stepSpeed(1)],
  ["Sound", ["-"], "slower", () => stepSpeed(-1)],
  ["Sound", ["l"], "loop", () => toggleSetting("loop")],
  ["Sound", ["b"], "band filter", toggleBand],
  ["Sound", ["o"], "only the call, without context", () => toggleSetting("only_selection")],
  ["View", ["z"], "zoom to the call and back", () => toggleSetting("zoom")],
  ["View", ["c"], "more context", () => stepContext(1)],
  ["View", ["x"], "less context", () => stepContext(-1)],
  ["View", ["g"], "grid or card", () => changeMode(state.mode === "card" ? "grid" : "card")],
  ["View", ["f"], "filters", toggleFilters],
  ["View", ["p"], "progress panel", togglePanel],
  ["View", [","], "settings of the spectrogram", openSettings],
  ["View", ["?"], "this help", () => toggleHelp()],
];

const CARD = [
  ["Verdict", ["ArrowUp"], "yes", confirmCall],
  ["Verdict", ["ArrowDown"], "no", rejectCall],
  ["Verdict", ["ArrowRight"], "skip", skipCall],
  ["Verdict", ["ArrowLeft"], "undo", undo],
  ["Sound", [" "], "play, stop", togglePlay],
  ["Sound", ["v"], "play each call when it appears", () => toggleSetting("autoplay")],
  ["Sound", ["e"], "play the next example of the best label", () => playNextExample(0)],
  ["Sound", ["d"], "play the next example of the second label", () => playNextExample(1)],
  ["View", ["PageDown", "j"], "next call without a verdict", goNext],
  ["View", ["PageUp", "k"], "the call before", goBack],
  ["Limits", ["["], "start earlier", withCall(() => nudgeSpan("start", -nudgeLength()))],
  ["Limits", ["{"], "start later", withCall(() => nudgeSpan("start", nudgeLength()))],
  ["Limits", ["]"], "end later", withCall(() => nudgeSpan("end", nudgeLength()))],
  ["Limits", ["}"], "end earlier", withCall(() => nudgeSpan("end", -nudgeLength()))],
  ["Limits", ["t"], "split at the playhead, or in the middle", withCall(() => splitCall(splitTime()))],
];

const MOVE = "move the frame (with shift: choose)";

const GRID = [
  ["Grid", ["ArrowRight"], MOVE, (event) => moveFocus(1, 0, event.shiftKey)],
  ["Grid", ["ArrowLeft"], MOVE, (event) => moveFocus(-1, 0, event.shiftKey)],
  ["Grid", ["ArrowDown"], MOVE, (event) => moveFocus(0, 1, event.shiftKey)],
  ["Grid", ["ArrowUp"], MOVE, (event) => moveFocus(0, -1, event.shiftKey)],
  ["Grid", ["Home"], "first call of the page", (event) => moveFocus(-Infinity, 0, event.shiftKey)],
  ["Grid", ["End"], "last call of the page", (event) => moveFocus(Infinity, 0, event.shiftKey)],
  ["Grid", [" "], "play, stop", playFocused],
  ["Grid", ["m"], "choose the framed call, or leave it out", toggleFocused],
  ["Grid", ["Ctrl+a"], "choose all, or none", toggleAll],
  ["Grid", ["Enter"], "open on the card", openFocused],
  ["Grid", ["PageDown"], "next page", () => turnPage(1)],
  ["Grid", ["PageUp"], "earlier page", () => turnPage(-1)],
];

/** Return the name of a pressed key as the tables write it. */
function nameKey(event) {
  const key = event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key;
  return event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : key;
}

/** Return whether the focus is where keys have another meaning. */
function isTyping(event) {
  const target = event.target;
  if (document.querySelector("dialog[open]")) return true;
  if (["TEXTAREA", "SELECT"].includes(target.tagName)) return true;
  if (target.tagName === "INPUT" && target.type !== "checkbox") return true;
  const presses = event.key === " " || event.key === "Enter";
  return presses && ["BUTTON", "A", "INPUT"].includes(target.tagName);
}

/** Find what a key does in the present mode. */
function findCommand(name) {
  const tables = [...BOTH, ...(state.mode === "card" ? CARD : GRID)];
  const row = tables.find(([, keys]) => keys.includes(name));
  return row?.[3] ?? findLabel(name);
}

function findLabel(name) {
  const label = state.session.labels.find((other) => other.key === name);
  return label ? () => relabelCall(label.name) : null;
}

function press(event) {
  if (event.altKey || event.defaultPrevented || state.session === null) return;
  if (event.key === "Escape" && !byId("filters").hidden) toggleFilters();
  if (isTyping(event)) return;
  const command = findCommand(nameKey(event));
  if (command === null) return;
  event.preventDefault();
  command(event);
}

const SHOWN = { " ": "space", ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", PageUp: "PgUp", PageDown: "PgDn" };

/** Show all keys, or close them. */
function toggleHelp() {
  if (help.open) {
    help.close();
    return;
  }
  const groups = ["Verdict", "Sound", "View", "Limits", "Grid"].map(makeGroup);
  const title = make("h2", { id: "help-title" }, "Keys");
  const close = makeButton("Close", "Esc", () => help.close());
  help.replaceChildren(title, make("div", { class: "groups" }, ...groups), close);
  help.showModal();
}

/** Close the help by the key that opened it. */
function closeHelp(event) {
  if (event.key !== "?") return;
  event.preventDefault();
  help.close();
}

/** Make the list of a group; keys that do the same share a row. */
function makeGroup(group) {
  const rows = [];
  for (const [name, keys, text, action] of [...CARD, ...BOTH, ...GRID]) {
    if (name !== group) continue;
    const known = rows.find((row) => row.action === action || row.text === text);
    const row = known ?? { keys: [], text, action };
    if (!known) rows.push(row);
    row.keys.push(...keys.map(showKey));
    if (text.length > row.text.length) row.text = text;
  }
  if (group === "Verdict") rows.push({ keys: ["1", "…", "9"], text: "this label" });
  return make("section", {}, make("h3", {}, group), make("dl", {}, ...rows.flatMap(makeRow)));
}

/** Write a key as it is printed on keyboards. */
function showKey(key) {
  return SHOWN[key] ?? key.replace("Ctrl+", "Ctrl ");
}

function makeRow(row) {
  const keys = row.keys.map((key) => make("kbd", {}, key));
  return [make("dt", {}, ...keys), make("dd", {}, row.text)];
}

/** Give keys back to the page after a click on a control with the mouse. */
function releaseFocus(event) {
  const control = event.target.closest("button, select, input[type=checkbox], a.button");
  const isMouse = event.detail > 0 && event.type === "click";
  if (control && isMouse && control.tagName !== "SELECT" && !control.closest("dialog")) control.blur();
}

let pointer = false; // whether the last input was by mouse or finger

/** Start listening to keys. */
export function startKeys() {
  document.addEventListener("keydown", (event) => { pointer = false; press(event); });
  document.addEventListener("pointerdown", () => { pointer = true; });
  document.addEventListener("click", releaseFocus);
  document.addEventListener("change", (event) => {
    if (pointer && event.target.tagName === "SELECT" && !event.target.closest("dialog")) event.target.blur();
  });
  byId("help-button").addEventListener("click", toggleHelp);
  byId("mode-card").addEventListener("click", () => { if (state.mode !== "card") changeMode("card"); });
  byId("mode-grid").addEventListener("click", () => { if (state.mode !== "grid") changeMode("grid"); });
  help.addEventListener("keydown", closeHelp);
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
}
