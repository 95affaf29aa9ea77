"use strict";
// Functions that build elements for the other scripts. Text of the study is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. Attributes: true is bare, false or null is left out, a function is a listener. */
function makeElement(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key, value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Make a labelled select; `names` are the texts of its options, and `onChange` gets an index. */
function makeSelect(label, testid, names, onChange) {
  const options = names.map((name, index) => makeElement("option", { value: index }, name));
  const change = () => onChange(Number(select.value));
  const select = makeElement("select", { "data-testid": testid, change }, ...options);
  return makeElement("label", { class: "field" }, makeElement("span", {}, label), select);
}

/** Make a labelled checkbox, with an optional swatch between the box and its label. */
function makeCheckbox(label, testid, checked, onChange, swatch = null) {
  const box = makeElement("input", { type: "checkbox", "data-testid": testid, value: label, checked });
  box.addEventListener("change", () => onChange(box.checked));
  return makeElement("label", { class: "tick" }, box, swatch, makeElement("span", {}, label));
}

/** Make a short piece of a line as the chart draws it; `colour` is a number, or null for ink. */
function makeSwatch(colour, dash) {
  const swatch = document.createElementNS(SVG, "svg");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", "M0 5H26");
  line.setAttribute("stroke-dasharray", dash.join(" "));
  swatch.setAttribute("viewBox", "0 0 26 10");
  swatch.setAttribute("class", `swatch ${colour === null ? "ink" : `colour-${colour}`}`);
  swatch.setAttribute("aria-hidden", "true");
  swatch.append(line);
  return swatch;
}

let studyData = null;

/** Return the numbers of the study, parsed once. */
function readData() {
  studyData ??= parseData();
  return studyData;
}

/** Parse the numbers of the study; the sounds of its calls, which are long, are parsed when one is needed. */
function parseData() {
  const data = JSON.parse(document.getElementById("data").textContent);
  let clips = null;
  data.corpora.forEach((corpus, number) => {
    const get = () => (clips ??= JSON.parse(document.getElementById("clips").textContent))[number];
    Object.defineProperty(corpus, "clips", { get });
  });
  return data;
}
