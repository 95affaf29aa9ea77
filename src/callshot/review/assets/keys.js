// All keys of the page in one table; the help shows the same table.

import { confirmCall, nudgeSpan, redo, rejectCall, relabelCall, skipCall, splitCall, undo } from "./decisions.js";
import { byId } from "./dom.js";
import { playNextExample } from "./examples.js";
import { toggleFilters } from "./filters.js";
import { moveFocus, openFocused, playFocused, toggleAll, toggleFocused, turnPage } from "./grid.js";
import { isTyping, listenToKeys, nameKey, toggleHelp } from "./keytable.js";
import { openLabelDialog } from "./labels.js";
import { markHere } from "./marks.js";
import { togglePlay } from "./player.js";
import { changeMode, goBack, goNext } from "./queue.js";
import { openSettings, togglePanel } from "./settingsdialog.js";
import { nudgeLength, splitTime } from "./soundview.js";
import { currentItem, state } from "./state.js";
import { stepContext, stepSpeed, toggleBand, toggleSetting } from "./transport.js";

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
  ["View", ["w"], "the frequencies of the label, or all", () => toggleSetting("fit")],
  ["View", ["c"], "more context", () => stepContext(1)],
  ["View", ["x"], "less context", () => stepContext(-1)],
  ["View", ["g"], "grid or card", () => changeMode(state.mode === "card" ? "grid" : "card")],
  ["View", ["f"], "filters", toggleFilters],
  ["View", ["p"], "progress panel", togglePanel],
  ["View", [","], "settings of the spectrogram", openSettings],
  ["View", ["?"], "this help", () => showHelp()],
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
  ["Limits", ["i"], "mark a call at the playhead; or drag a box on the spectrogram", markHere],
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

/** Show all keys, or close them. */
function showHelp() {
  const labels = ["Verdict", { keys: ["1", "…", "9"], text: "this label" }];
  toggleHelp(["Verdict", "Sound", "View", "Limits", "Grid"], [...CARD, ...BOTH, ...GRID], [labels]);
}

/** Start listening to keys. */
export function startKeys() {
  listenToKeys(press);
  byId("help-button").addEventListener("click", showHelp);
  byId("mode-card").addEventListener("click", () => { if (state.mode !== "card") changeMode("card"); });
  byId("mode-grid").addEventListener("click", () => { if (state.mode !== "grid") changeMode("grid"); });
}
