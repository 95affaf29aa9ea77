"use strict";
// Folds: what is drawn in a fold is made when it is first opened; a link opens the fold it leads into; a print has all.

const starters = [];

/** Call `start` once the fold around an element is open, or at once if there is none. */
function startWhenOpen(host, start) {
  const fold = host.closest("details");
  let isStarted = false;
  const begin = () => {
    if (isStarted) return;
    isStarted = true;
    start();
  };
  starters.push(begin);
  if (!fold || fold.open) begin();
  else fold.addEventListener("toggle", () => fold.open && begin());
}

/** Open all folds around the element that an address names. */
function openTarget(hash) {
  const target = hash.length > 1 ? document.getElementById(decodeURIComponent(hash.slice(1))) : null;
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  return target;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (link) openTarget(link.getAttribute("href"));
});
addEventListener("hashchange", () => openTarget(location.hash)?.scrollIntoView());
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details.fold:not([open])")) {
    fold.open = true;
    fold.dataset.closed = "";
  }
  starters.forEach((begin) => begin());
});
addEventListener("afterprint", () => {
  for (const fold of document.querySelectorAll("details[data-closed]")) {
    fold.open = false;
    delete fold.dataset.closed;
  }
});
openTarget(location.hash);
