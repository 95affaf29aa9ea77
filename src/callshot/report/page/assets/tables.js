"use strict";
// Tables that sort by a click on a heading, and pictures that grow by a click.

/** Order two cells: numbers by value, texts as people do, cells without a number after all that have one. */
function compareCells(one, other) {
  const [a, b] = [one.dataset.value, other.dataset.value];
  if (a !== undefined && b !== undefined) return Number(a) - Number(b);
  if (a !== undefined || b !== undefined) return a !== undefined ? -1 : 1;
  return one.textContent.localeCompare(other.textContent, undefined, { numeric: true });
}

/** Sort the body of a table by a column: ascending, then descending, then as it was written. */
function sortTable(table, heading, written) {
  const column = Number(heading.dataset.column);
  const next = { none: "ascending", ascending: "descending", descending: "none" };
  const order = next[heading.getAttribute("aria-sort")];
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", order);
  const sign = order === "descending" ? -1 : 1;
  const missing = (row) => row.cells[column].dataset.value === undefined && heading.classList.contains("n");
  const compare = (a, b) => missing(a) - missing(b) || sign * compareCells(a.cells[column], b.cells[column]);
  table.tBodies[0].append(...(order === "none" ? written : [...written].sort(compare)));
}

function makeSortable(table) {
  const written = [...table.tBodies[0].rows];
  const headings = [...table.querySelectorAll("thead th[scope=col]")];
  if (written.length < 2 || !headings[0].textContent) return; // rows without a heading are facts, each of its own kind
  for (const heading of headings) {
    const button = make("button", { type: "button", click: () => sortTable(table, heading, written) });
    button.append(...heading.childNodes);
    heading.setAttribute("aria-sort", "none");
    heading.append(button);
  }
}

function makeEnlargeable(figure) {
  const box = figure.querySelector(".scroll");
  const tell = () => (figure.classList.contains("large") ? "Fit to the page" : "Enlarge");
  const button = make("button", { type: "button", class: "enlarge" }, tell());
  const toggle = () => {
    figure.classList.toggle("large");
    button.textContent = tell();
  };
  button.addEventListener("click", toggle);
  box.addEventListener("click", toggle);
  figure.querySelector("figcaption").append(" ", button);
}

document.querySelectorAll("table.sorts").forEach(makeSortable);
document.querySelectorAll("figure.picture").forEach(makeEnlargeable);

// Pictures wait until the page stands, but not for a reader to reach them: who prints wants them all.
addEventListener("load", () => setTimeout(() => document.querySelectorAll("img").forEach((one) => (one.loading = "eager"))));
