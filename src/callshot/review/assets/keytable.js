// What tables of keys have in common: names of keys, the help that shows a table, focus.
// A row of a table is [group, keys, text, action].

import { byId, make, makeButton } from "./dom.js";

const help = byId("help");
const SHOWN = { " ": "space", ArrowUp: "↑", ArrowDown: "↓", ArrowLeft: "←", ArrowRight: "→", PageUp: "PgUp", PageDown: "PgDn" };
let pointer = false; // whether the last input was by mouse or finger

/** Return the name of a pressed key as the tables write it. */
export function nameKey(event) {
  const key = event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key;
  return event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : key;
}

/** Return whether the focus is where keys have another meaning. */
export function isTyping(event) {
  const target = event.target;
  if (document.querySelector("dialog[open]")) return true;
  if (["TEXTAREA", "SELECT"].includes(target.tagName)) return true;
  if (target.tagName === "INPUT" && target.type !== "checkbox") return true;
  const presses = event.key === " " || event.key === "Enter";
  return presses && ["BUTTON", "A", "INPUT"].includes(target.tagName);
}

/** Show the keys of groups, or close them; keys that do the same share a row of the help. */
export function toggleHelp(groups, rows, more = []) {
  if (help.open) {
    help.close();
    return;
  }
  const sections = groups.map((group) => makeGroup(group, rows, more));
  const title = make("h2", { id: "help-title" }, "Keys");
  const close = makeButton("Close", "Esc", () => help.close());
  help.replaceChildren(title, make("div", { class: "groups" }, ...sections), close);
  help.showModal();
  help.scrollTo(0, 0);
}

/** Close the help by the key that opened it. */
function closeHelp(event) {
  if (event.key !== "?") return;
  event.preventDefault();
  help.close();
}

/** Make the list of a group; `more` are rows [group, {keys, text}] without an action. */
function makeGroup(group, table, more) {
  const rows = [];
  for (const [name, keys, text, action] of table) {
    if (name !== group) continue;
    const known = rows.find((row) => row.action === action || row.text === text);
    const row = known ?? { keys: [], text, action };
    if (!known) rows.push(row);
    row.keys.push(...keys.map(showKey));
    if (text.length > row.text.length) row.text = text;
  }
  for (const [name, row] of more) if (name === group) rows.push(row);
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

/** Call `press` for each key, and give focus back to the page after clicks. */
export function listenToKeys(press) {
  document.addEventListener("keydown", (event) => { pointer = false; press(event); });
  document.addEventListener("pointerdown", () => { pointer = true; });
  document.addEventListener("click", releaseFocus);
  document.addEventListener("change", (event) => {
    if (pointer && event.target.tagName === "SELECT" && !event.target.closest("dialog")) event.target.blur();
  });
  help.addEventListener("keydown", closeHelp);
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  }
}
