// Functions that build elements. Labels and file names are set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Return the element that has this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Give an element attributes: true is bare, false or null is left out, a function is a listener. */
function setAttributes(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== null && value !== false) element.setAttribute(key, value);
  }
  return element;
}

/** Make an HTML element with attributes, listeners and children; strings become text. */
export function make(name, attributes = {}, ...children) {
  const element = setAttributes(document.createElement(name), attributes);
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Make an SVG element. */
export function makeSvg(name, attributes = {}, ...children) {
  const element = setAttributes(document.createElementNS(SVG, name), attributes);
  element.append(...children);
  return element;
}

/** Make a button that shows its key; screen readers read the name alone. */
export function makeButton(text, key, onClick, attributes = {}) {
  const hint = key ? make("kbd", { "aria-hidden": "true" }, key) : null;
  return make("button", { type: "button", click: onClick, ...attributes }, make("span", {}, text), hint);
}

/** Make options of a select from [value, text] pairs. */
export function makeOptions(pairs, chosen) {
  return pairs.map(([value, text]) =>
    make("option", { value, selected: String(value) === String(chosen) }, text));
}

/** Make a labelled control. */
export function makeField(text, control) {
  return make("label", { class: "field" }, make("span", {}, text), control);
}

/** Ask a question; return whether the answer was yes. The key y is a yes. */
export async function ask(question, yes) {
  const dialog = byId("question");
  dialog.replaceChildren(
    make("h2", { id: "question-title" }, question),
    make("div", { class: "row" }, makeButton(yes, "y", () => dialog.close("yes")), makeButton("Cancel", "Esc", () => dialog.close())),
  );
  dialog.returnValue = "";
  dialog.onkeydown = (event) => {
    event.stopPropagation(); // it answers the question only
    if (event.key === "y" && !event.repeat) dialog.close("yes");
  };
  dialog.showModal();
  await new Promise((resolve) => dialog.addEventListener("close", resolve, { once: true }));
  return dialog.returnValue === "yes";
}

/** Say a sentence to screen readers. */
export function announce(text) {
  byId("live").textContent = text;
}

/** Call a function once, `ms` after the last of a series of calls. */
export function debounce(action, ms) {
  let timer = null;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(action, ms);
  };
}
