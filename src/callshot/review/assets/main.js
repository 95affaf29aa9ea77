// The start: ask the server what there is to review, build the page, show the first card.

import { BASE, getJson } from "./api.js";
import { startCard } from "./card.js";
import { startChanges } from "./changes.js";
import { byId, debounce, make } from "./dom.js";
import { prefetchExamples, startExamples } from "./examples.js";
import { startFilters } from "./filters.js";
import { startGrid } from "./grid.js";
import { startKeys } from "./keys.js";
import { startMarks } from "./marks.js";
import { loadSound } from "./media.js";
import { explainStart, startNotes } from "./notes.js";
import { resumeUnsaved } from "./outbox.js";
import { changeCard } from "./player.js";
import { loadProgress, startProgress } from "./progress.js";
import { isDecided, restoreQueue } from "./queue.js";
import { loadSettings } from "./settings.js";
import { startSettings } from "./settingsdialog.js";
import { drawItem, prefetchPictures } from "./soundview.js";
import { currentItem, emit, on, state } from "./state.js";
import { startTransport } from "./transport.js";

const AHEAD = 3; // cards that are made ready
let shown = null; // id on the card

/** Draw the card, then make the next ones ready. */
async function showPicture() {
  if (state.mode !== "card") return;
  const id = currentItem()?.id ?? null;
  const isNew = id !== shown;
  shown = id;
  try {
    await drawItem();
  } catch (error) {
    emit("note", error.message);
  }
  changeCard(isNew);
  if (id === shown) prefetch();
}

/** Load picture, sound and examples of this card and the next ones. */
function prefetch() {
  const ids = state.ids.slice(state.position + 1).filter((id) => !isDecided(id)).slice(0, AHEAD);
  const next = ids.map((id) => state.items.get(id)).filter((item) => item !== undefined);
  const item = currentItem();
  if (item !== null) loadSound(item).catch(() => {});
  prefetchPictures(next);
  for (const other of next) {
    loadSound(other).catch(() => {});
    prefetchExamples(other);
  }
}

function redrawForItems(ids) {
  const item = currentItem();
  if (item !== null && state.mode === "card" && ids.includes(item.id)) showPicture();
}

function showMode() {
  byId("mode-card").setAttribute("aria-pressed", String(state.mode === "card"));
  byId("mode-grid").setAttribute("aria-pressed", String(state.mode === "grid"));
  document.documentElement.dataset.mode = state.mode;
}

function showTitle() {
  const { reviewer, blind } = state.session;
  const title = BASE ? "Found calls" : state.session.title;
  byId("title").textContent = title;
  byId("title").title = `${title} · reviewer ${reviewer}${blind ? " · blind" : ""}`;
  document.title = `${title} · callshot review`;
  if (BASE && !byId("back")) byId("title").after(make("a", { id: "back", class: "button", href: "/" }, "Back to labelling"));
}

function listen() {
  const redraw = debounce(showPicture, 60);
  on("card", showPicture);
  on("items", redrawForItems);
  on("mode", showMode);
  on("settings", (keys) => { if (!keys.includes("theme")) redraw(); });
  new ResizeObserver(redraw).observe(byId("pane"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

/** Build the page. */
async function start() {
  state.session = await getJson("/api/session");
  loadSettings();
  showTitle();
  startNotes();
  startCard();
  startTransport();
  startMarks();
  startExamples();
  startGrid();
  startFilters();
  startSettings();
  startProgress();
  startKeys();
  listen();
  const resumed = resumeUnsaved();
  await restoreQueue();
  emit("mode");
  loadProgress();
  startChanges();
  await resumed;
}

start().catch(explainStart);
