// Short notes, the saved state in the header, and the banner when the server does not answer.

import { byId, make } from "./dom.js";
import { formatCount } from "./format.js";
import { sendNow, unsavedCount } from "./outbox.js";
import { on, state } from "./state.js";

const NOTE_MS = 4000;

/** Show a sentence for a few seconds. */
function showNote(text) {
  const note = make("p", { class: "note" }, text);
  byId("notes").replaceChildren(note);
  setTimeout(() => note.remove(), NOTE_MS);
}

/** Say whether everything is saved: only what the server has answered counts. */
function showSaved() {
  const count = unsavedCount();
  const element = byId("saved");
  element.dataset.state = count ? "pending" : "saved";
  element.textContent = count ? `${formatCount(count, state.unit)} not saved yet` : "All saved";
}

/** Say that the server does not answer, and that nothing is lost. */
function showBanner() {
  const banner = byId("banner");
  banner.hidden = state.online;
  if (state.online) return;
  const count = unsavedCount();
  const kept = count ? ` ${formatCount(count, state.unit)} not saved yet: kept in this browser, sent when the server is back.` : "";
  const why = state.offlineWhy ?? "The server does not answer.";
  byId("banner").querySelector("p").textContent = `${why}${kept} Start it again with the same command.`;
}

/** Start to listen. */
export function startNotes() {
  on("note", showNote);
  on("outbox", () => { showSaved(); showBanner(); });
  on("online", showBanner);
  byId("retry").addEventListener("click", sendNow);
  showSaved();
}

/** Say why the page did not start, and offer to load it again. */
export function explainStart(error) {
  byId("banner").hidden = false;
  byId("banner").querySelector("p").textContent = error.message;
  byId("retry").addEventListener("click", () => location.reload());
}
