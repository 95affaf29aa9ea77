// Choose any label by typing a part of its name, or add a new one.

import { addLabel, relabelCall } from "./decisions.js";
import { byId, make, makeButton, makeField } from "./dom.js";
import { state } from "./state.js";

const dialog = byId("label-dialog");
let input = null;
let list = null;
let first = null; // the label that is offered first

/** Ask for the label of the targets, and give it to them. */
export async function openLabelDialog() {
  const name = await chooseLabel();
  if (name !== null) relabelCall(name);
}

/** Ask for a label; null if there is no answer. */
export async function chooseLabel(offered = null) {
  first = offered;
  input = make("input", { type: "text", autocomplete: "off", maxlength: "80", input: showMatches, keydown: chooseFirst });
  list = make("div", { class: "choices", role: "group", "aria-label": "Labels that match" });
  const title = make("h2", { id: "label-title" }, "Which call is it?");
  const close = makeButton("Close", "Esc", () => dialog.close(), { class: "quiet-button" });
  dialog.replaceChildren(title, makeField("Type a name", input), list, close);
  dialog.returnValue = "";
  showMatches();
  dialog.showModal();
  input.focus();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  const name = dialog.returnValue;
  const isKnown = state.session.labels.some((label) => label.name === name);
  return name !== "" && (isKnown || await addLabel(name)) ? name : null;
}

/** Show the labels that contain what was typed, and the offer to add it. */
function showMatches() {
  const typed = input.value.trim();
  const names = state.session.labels.map((label) => label.name).sort((a, b) => (b === first) - (a === first));
  const matches = names.filter((name) => name.toLowerCase().includes(typed.toLowerCase()));
  const buttons = matches.map((name) => makeButton(name, null, () => dialog.close(name)));
  if (typed !== "" && !names.includes(typed)) {
    buttons.push(makeButton(`Add “${typed}”`, null, () => dialog.close(typed), { class: "add" }));
  }
  list.replaceChildren(...buttons);
}

/** Enter takes the exact name, or the first of the list. */
function chooseFirst(event) {
  if (event.key !== "Enter") return;
  event.preventDefault();
  const buttons = [...list.querySelectorAll("button")];
  const exact = buttons.find((button) => button.textContent === input.value.trim());
  (exact ?? buttons[0])?.click();
}
