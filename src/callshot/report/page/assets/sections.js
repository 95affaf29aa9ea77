"use strict";
// Sections: what is drawn in a section is made when it is first opened; a link opens the section it leads into; a print has all.

const starters = [];

/** Call `start` once the section around an element is open, or at once if there is none. */
function startWhenOpen(host, start) {
  const section = host.closest("details");
  let isStarted = false;
  const begin = () => {
    if (isStarted) return;
    isStarted = true;
    start();
  };
  starters.push(begin);
  if (!section || section.open) begin();
  else section.addEventListener("toggle", () => section.open && begin());
}

/** Open all sections around the element that an address names. */
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
  for (const section of document.querySelectorAll("details.section:not([open])")) {
    section.open = true;
    section.dataset.closed = "";
  }
  starters.forEach((begin) => begin());
});
addEventListener("afterprint", () => {
  for (const section of document.querySelectorAll("details[data-closed]")) {
    section.open = false;
    delete section.dataset.closed;
  }
});
openTarget(location.hash);
