// Many small cards at once: choose several, decide them with one key.

import { confirmCall, openItem, rejectCall, relabelCall, skipCall, undo } from "./decisions.js";
import { openLabelDialog } from "./labels.js";
import { byId, make, makeButton, makeOptions } from "./dom.js";
import { baseName, describeDecision, describeScore, formatCount, formatTime } from "./format.js";
import { loadSpectrogram } from "./media.js";
import { player, playTile, stop } from "./player.js";
import { loadItems, loadUpTo } from "./queue.js";
import { emit, on, PAGE, state } from "./state.js";

const TILE_WIDTH = 220;
const TILE_HEIGHT = 110;
let anchor = 0; // where a range of chosen tiles starts
let draws = 0;

/** Return the ids of the page that is shown. */
function pageIds() {
  return state.ids.slice(state.gridStart, state.gridStart + PAGE);
}

/** Show a page of tiles. */
async function showGrid() {
  byId("grid").hidden = state.mode !== "grid";
  if (state.mode !== "grid") return;
  const mine = ++draws;
  await loadUpTo(state.gridStart + PAGE);
  await loadItems(pageIds());
  if (mine !== draws) return;
  state.focus = Math.max(0, Math.min(state.focus, pageIds().length - 1));
  const empty = make("p", {}, "No calls match these filters.");
  const tiles = pageIds().map(makeTile);
  byId("tiles").replaceChildren(...(tiles.length ? tiles : [empty]));
  showPages();
  markTiles();
}

function makeTile(id, index) {
  const item = state.items.get(id);
  const image = make("img", { alt: "", width: TILE_WIDTH, height: TILE_HEIGHT, draggable: "false", loading: "lazy" });
  const frame = make("span", { class: "frame" });
  const tile = make(
    "div",
    { class: "tile", role: "option", id: `tile-${id}`, "data-id": id, click: (event) => chooseByClick(event, index), dblclick: () => openItem(id) },
    make("div", { class: "picture" }, image, frame),
    make("button", { type: "button", class: "play", tabindex: "-1", "aria-label": "Play", click: (event) => playByClick(event, id) }, "▶"),
    make("span", { class: "tile-label" }),
    make("span", { class: "tile-score" }),
    make("span", { class: "tile-verdict" }),
  );
  if (item) {
    fillTile(tile, item);
    loadSpectrogram(item, TILE_WIDTH, TILE_HEIGHT).then((file) => {
      image.src = file.url;
      frameCall(frame, item, file);
    }, () => {});
  }
  return tile;
}

/** Show where the call begins and ends in its picture, which has sound around it. */
function frameCall(frame, item, file) {
  const start_s = file.number("X-Start-Seconds");
  const share = (time_s) => (100 * (time_s - start_s)) / (file.number("X-End-Seconds") - start_s);
  frame.style.left = `${share(item.start_s)}%`;
  frame.style.width = `${share(item.end_s) - share(item.start_s)}%`;
}

/** Fill a tile with what is known of its item. */
function fillTile(tile, item) {
  const pending = state.pending.get(item.id);
  const decision = pending ?? item.decision;
  const verdict = decision ? describeDecision(decision) : "";
  tile.dataset.state = pending ? "pending" : decision ? "saved" : "none";
  tile.dataset.action = decision?.action ?? "";
  tile.querySelector(".tile-label").textContent = item.label ?? "no label";
  tile.querySelector(".tile-score").textContent = describeScore(item).short;
  const time = formatTime(item.start_s);
  const where = `${baseName(item.recording)} at ${time}`;
  tile.querySelector(".tile-verdict").textContent = [verdict + (pending ? " …" : ""), time, baseName(item.recording)].filter(Boolean).join(" · ");
  tile.title = where;
  const said = decision ? `, ${verdict}, ${pending ? "not saved yet" : "saved"}` : "";
  tile.setAttribute("aria-label", `${item.label}, ${describeScore(item).text}, ${where}${said}`);
}

/** Mark chosen and focused tiles, and say how many are chosen. */
function markTiles() {
  const tiles = [...byId("tiles").querySelectorAll(".tile")];
  tiles.forEach((tile, index) => {
    tile.setAttribute("aria-selected", String(state.selected.has(Number(tile.dataset.id))));
    tile.classList.toggle("focused", index === state.focus);
  });
  const focused = tiles[state.focus];
  if (focused) byId("tiles").setAttribute("aria-activedescendant", focused.id);
  const count = state.selected.size;
  byId("chosen").textContent = count ? `${formatCount(count, "call")} chosen` : "None chosen: the framed one counts";
}

function refreshTiles(ids) {
  if (state.mode !== "grid") return;
  for (const id of ids) {
    const tile = byId(`tile-${id}`);
    if (tile && state.items.has(id)) fillTile(tile, state.items.get(id));
  }
}

/** Choose by click: one more, or with shift all up to here. */
function chooseByClick(event, index) {
  state.focus = index;
  if (event.shiftKey) chooseRange(anchor, index);
  else toggleTile(index);
  byId("tiles").focus({ preventScroll: true });
}

function chooseRange(from, to) {
  const ids = pageIds();
  for (let index = Math.min(from, to); index <= Math.max(from, to); index += 1) state.selected.add(ids[index]);
  emit("selection");
}

function toggleTile(index) {
  const id = pageIds()[index];
  anchor = index;
  if (!state.selected.delete(id)) state.selected.add(id);
  emit("selection");
}

/** Choose the focused tile, or leave it out. */
export function toggleFocused() {
  toggleTile(state.focus);
}

/** Choose all tiles of the page, or none when all are chosen. */
export function toggleAll() {
  const ids = pageIds();
  const all = ids.every((id) => state.selected.has(id));
  state.selected.clear();
  if (!all) ids.forEach((id) => state.selected.add(id));
  emit("selection");
}

/** Return how many tiles stand side by side. */
function columnCount() {
  const tiles = [...byId("tiles").querySelectorAll(".tile")];
  const top = tiles[0]?.offsetTop;
  return Math.max(1, tiles.filter((tile) => tile.offsetTop === top).length);
}

/** Move the frame by columns and rows; with `extend` choose what it passes. */
export function moveFocus(columns, rows, extend) {
  const last = pageIds().length - 1;
  const from = state.focus;
  state.focus = Math.max(0, Math.min(last, from + columns + rows * columnCount()));
  if (extend) chooseRange(from, state.focus);
  else anchor = state.focus;
  markTiles();
  byId(`tile-${pageIds()[state.focus]}`)?.scrollIntoView({ block: "nearest" });
}

/** Play or stop the framed tile. */
export function playFocused() {
  const item = state.items.get(pageIds()[state.focus]);
  if (!item) return;
  const here = player.playing && player.what.kind === "tile" && player.what.id === item.id;
  if (here) stop();
  else playTile(item);
}

function playByClick(event, id) {
  event.stopPropagation();
  state.focus = pageIds().indexOf(id);
  markTiles();
  playFocused();
}

/** Open the framed tile on the card. */
export function openFocused() {
  const id = pageIds()[state.focus];
  if (id !== undefined) openItem(id);
}

/** Turn the page. */
export async function turnPage(step) {
  const start = Math.max(0, state.gridStart + step * PAGE);
  await loadUpTo(start + PAGE);
  if (start >= state.ids.length) return;
  state.gridStart = start;
  state.focus = 0;
  state.selected.clear();
  await showGrid();
  window.scrollTo(0, 0);
}

function showPages() {
  const first = Math.min(state.gridStart + 1, state.ids.length);
  const last = Math.min(state.gridStart + PAGE, state.ids.length);
  byId("pages").replaceChildren(
    makeButton("Earlier", "PgUp", () => turnPage(-1), { disabled: state.gridStart === 0 }),
    make("span", {}, `${first.toLocaleString("en")} – ${last.toLocaleString("en")} · ${formatCount(state.total, "call")}`),
    makeButton("Next page", "PgDn", () => turnPage(1), { disabled: last >= state.ids.length }),
  );
}

/** Make the bar of buttons for the chosen tiles. */
function makeBar() {
  const button = (text, key, action, kind) => makeButton(text, key, action, { class: `verdict ${kind}`, "aria-keyshortcuts": key });
  const names = state.session.labels.map((label) => [label.name, label.key ? `${label.key}  ${label.name}` : label.name]);
  const choose = () => {
    if (select.value !== "") relabelCall(select.value);
    select.value = "";
  };
  const select = make("select", { "aria-label": "Label the chosen calls", change: choose }, ...makeOptions([["", "Label…"], ...names], ""));
  byId("grid-bar").replaceChildren(
    make("span", { id: "chosen", class: "quiet" }),
    makeButton("All", "Ctrl A", toggleAll),
    button("Undo", "u", undo, "undo"),
    button("No", "n", rejectCall, "no"),
    button("Yes", "y", confirmCall, "yes"),
    button("Skip", "s", skipCall, "skip"),
    select,
    makeButton("Other…", "a", openLabelDialog),
  );
}

function markPlaying() {
  for (const tile of byId("tiles").querySelectorAll(".tile")) {
    const here = player.playing && player.what?.kind === "tile" && String(player.what.id) === tile.dataset.id;
    tile.dataset.playing = String(here);
    tile.querySelector(".play").textContent = here ? "■" : "▶";
  }
}

/** Start listening for what changes the grid. */
export function startGrid() {
  makeBar();
  on("labels", makeBar);
  on("mode", showGrid);
  on("card", () => { if (state.mode === "grid" && byId("tiles").childElementCount === 0) showGrid(); });
  on("queue", () => { if (state.mode === "grid") showGrid(); });
  on("items", refreshTiles);
  on("selection", markTiles);
  on("player", markPlaying);
  on("settings", (keys) => { if (state.mode === "grid" && !keys.includes("loop")) showGrid(); });
}
