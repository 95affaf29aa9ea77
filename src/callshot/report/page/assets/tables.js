"use strict";
// Tables that sort when a heading is clicked, and pictures that grow when they are clicked.

const NEXT_ORDER = { none: "ascending", ascending: "descending", descending: "none" };

/** Compare two cells: numbers by value, then texts; digits in texts count as numbers. */
function compareCells(one, other) {
  const a = one.dataset.value;
  const b = other.dataset.value;
  if (a !== undefined && b !== undefined) return Number(a) - Number(b);
  if (a !== undefined || b !== undefined) return a !== undefined ? -1 : 1;
  return one.textContent.localeCompare(other.textContent, undefined, { numeric: true });
}

/** Sort the body of a table by a column: ascending, then descending, then in its first order. */
function sortTable(table, heading, rows) {
  const column = Number(heading.dataset.column);
  const order = NEXT_ORDER[heading.getAttribute("aria-sort")];
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", order);
  const sign = order === "descending" ? -1 : 1;
  const isNumeric = heading.classList.contains("n");
  const isMissing = (row) => isNumeric && row.cells[column].dataset.value === undefined;
  const compare = (a, b) =>
    isMissing(a) - isMissing(b) || sign * compareCells(a.cells[column], b.cells[column]);
  table.tBodies[0].append(...(order === "none" ? rows : [...rows].sort(compare)));
}

function makeSortable(table) {
  const rows = [...table.tBodies[0].rows];
  const headings = [...table.querySelectorAll("thead th[scope=col]")];
  if (rows.length < 2 || !headings[0].textContent) return; // rows of different facts are not sorted
  for (const heading of headings) {
    const click = () => sortTable(table, heading, rows);
    const button = makeElement("button", { type: "button", click });
    button.append(...heading.childNodes);
    heading.setAttribute("aria-sort", "none");
    heading.append(button);
  }
}

function makeEnlargeable(figure) {
  const button = makeElement("button", { type: "button", class: "enlarge" }, "Enlarge");
  const toggle = () => {
    const isLarge = figure.classList.toggle("large");
    button.textContent = isLarge ? "Fit to the page" : "Enlarge";
  };
  button.addEventListener("click", toggle);
  figure.querySelector(".scroll").addEventListener("click", toggle);
  figure.querySelector("figcaption").append(" ", button);
}

/** Load all pictures once the page is shown, also those out of sight: a print has them all. */
function loadPictures() {
  for (const image of document.querySelectorAll("img")) image.loading = "eager";
}

document.querySelectorAll("table.sorts").forEach(makeSortable);
document.querySelectorAll("figure.picture").forEach(makeEnlargeable);
addEventListener("load", () => setTimeout(loadPictures));
