"use strict";
// What the other scripts build the page with. Text from the study is only ever set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: attributes (true: bare, false or null: none, functions: listeners), then children. */
function make(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Make a labelled choice; `names` are the texts of its options, by place. */
function makeChoice(label, testid, names, onChange) {
  const options = names.map((name, at) => make("option", { value: at }, name));
  const select = make("select", { "data-testid": testid, change: () => onChange(Number(select.value)) }, ...options);
  return make("label", { class: "field" }, make("span", {}, label), select);
}

/** Make a labelled box to tick; `before` is what stands between box and label. */
function makeTick(label, testid, checked, onChange, before = null) {
  const box = make("input", { type: "checkbox", "data-testid": testid, value: label, checked });
  box.addEventListener("change", () => onChange(box.checked));
  return make("label", { class: "tick" }, box, before, make("span", {}, label));
}

/** Make a short piece of a line as the chart draws it; `look` is a colour's number or null for ink. */
function makeSwatch(look, dash) {
  const swatch = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M0 5H26");
  line.setAttribute("stroke-dasharray", dash.join(" "));
  swatch.setAttribute("viewBox", "0 0 26 10");
  swatch.setAttribute("class", `swatch ${look === null ? "ink" : `colour-${look}`}`);
  swatch.setAttribute("aria-hidden", "true");
  swatch.append(line);
  return swatch;
}
