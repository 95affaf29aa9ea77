// The spectrogram of a recording of any length: tiles from the server, coloured here, and its axes.

import { getBytes } from "./api.js";
import { drawFrequencyAxis, drawTimeAxis } from "./axes.js";
import { byId, make } from "./dom.js";
import { formatTime } from "./format.js";
import { Recent } from "./media.js";
import { settings } from "./settings.js";
import { emit, on, state } from "./state.js";

const HEIGHT = 256; // pixels of a tile
const FARTHEST = 3; // levels above, from which a tile is drawn until its own is there
const tiles = new Recent(160); // 20 MB: bytes and colours of a tile
const ready = new Map(); // address → tile that is there
let painted = 0; // changes with the colours
let colours = null; // of each byte

export const view = { recording: null, opening: false, start_s: 0, level: 3, width: 600, height: 300 };

/** Return the seconds of a column, which is a pixel wide. */
export const columnLength = (level = view.level) => 2 ** level / 1000;

/** Return the level of the tiles that are drawn: the whole recording may be between two levels. */
const tileLevel = () => Math.max(state.session.tile.levels[0], Math.floor(view.level));

/** Return when the picture ends. */
export const viewEnd = () => view.start_s + view.width * columnLength();

/** Return the highest frequency in the picture. */
export const topHertz = () => Math.min(settings.max_hz, view.recording.rate_hz / 2);

export const toX = (time_s) => (time_s - view.start_s) / columnLength();
export const toTime = (x) => view.start_s + x * columnLength();
export const toY = (hertz) => view.height * (1 - hertz / topHertz());
export const toHertz = (y) => topHertz() * (1 - y / view.height);

/** Go to a time: the left end of the picture, as far as the recording allows it. */
export function scrollTo(start_s) {
  const latest = view.recording.duration_s - view.width * columnLength();
  view.start_s = Math.max(0, Math.min(start_s, latest));
  draw();
}

/** Scroll by a share of what is seen. */
export const scrollBy = (share) => scrollTo(view.start_s + share * view.width * columnLength());

/** Zoom by powers of two around a time; the whole recording fills the picture. */
export function zoomBy(step, around_s = (view.start_s + viewEnd()) / 2) {
  const [lowest, highest] = state.session.tile.levels;
  const share = (around_s - view.start_s) / (view.width * columnLength());
  const level = (step > 0 ? Math.floor(view.level) : Math.ceil(view.level)) + step;
  view.level = Math.min(highest, fitLevel(), Math.max(lowest, level));
  scrollTo(around_s - share * view.width * columnLength());
}

/** Return the level at which the whole recording fills the picture. */
const fitLevel = () => Math.log2((1000 * view.recording.duration_s) / view.width);

/** Show the whole recording. */
export const showAll = () => zoomBy(100);

/** Show a span with some time around it. */
export function showSpan(start_s, end_s) {
  if (start_s < view.start_s || end_s > viewEnd()) scrollTo((start_s + end_s - view.width * columnLength()) / 2);
}

/** Open a recording at its start, so that some seconds are seen. */
export function showRecording(recording) {
  view.recording = recording;
  view.level = Math.min(settings.level ?? 4, fitLevel());
  view.start_s = 0;
  draw();
}

/** Return the address of a tile. */
function address(level, number) {
  const { name } = view.recording;
  const query = { recording: name, level, number, height: HEIGHT, window_s: settings.window_s, max_hz: topHertz() };
  return `/api/tile?${new URLSearchParams(query)}`;
}

/** Load a tile; it is drawn when it comes. */
function load(level, number) {
  const key = address(level, number);
  const isNew = !tiles.entries.has(key);
  const promise = tiles.get(key, async () => ({ bytes: await getBytes(key), painted: -1 }));
  if (!isNew) return promise;
  promise.then((tile) => { ready.set(key, tile); draw(); }, (error) => emit("note", error.message));
  for (const old of ready.keys()) if (!tiles.entries.has(old)) ready.delete(old);
  return promise;
}

/** Return the canvas of a tile in the present colours. */
function paint(tile) {
  if (tile.painted === painted) return tile.canvas;
  const { width } = state.session.tile;
  tile.canvas ??= make("canvas", { width, height: HEIGHT });
  const context = tile.canvas.getContext("2d");
  const image = context.createImageData(width, HEIGHT);
  const pixels = new Uint32Array(image.data.buffer);
  tile.bytes.forEach((value, index) => { pixels[index] = colours[value]; });
  context.putImageData(image, 0, 0);
  tile.painted = painted;
  return tile.canvas;
}

/** Find the colour of each byte: the floor and the range of levels say which are dark and bright. */
function findColours() {
  const digits = state.session.palettes[settings.colours] ?? state.session.palettes.viridis;
  const floor_db = state.session.tile.floor_db;
  colours = Uint32Array.from({ length: 256 }, (_, value) => {
    const level_db = floor_db * (1 - value / 255);
    const share = Math.max(0, Math.min(1, (level_db - settings.floor_db) / settings.range_db));
    const [red, green, blue] = [0, 2, 4].map((at) => parseInt(digits.substr(6 * Math.round(255 * share) + at, 2), 16));
    return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  });
  painted += 1;
}

let waiting = false;

/** Draw before the next frame; until then, and until a recording is open, the picture is an old one. */
export function draw() {
  byId("pane").dataset.drawn = "false";
  if (waiting || view.recording === null) return;
  waiting = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  waiting = false;
  const pane = byId("pane");
  const canvas = byId("picture");
  Object.assign(view, { width: pane.clientWidth, height: pane.clientHeight });
  if (view.width === 0) {
    pane.dataset.drawn = "true";
    return;
  }
  if (colours === null) findColours();
  if (canvas.width !== view.width) canvas.width = view.width;
  if (canvas.height !== HEIGHT) canvas.height = HEIGHT;
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, view.width, HEIGHT);
  const length = state.session.tile.width * columnLength(tileLevel());
  const last = Math.floor(Math.min(viewEnd(), view.recording.duration_s - 1e-6) / length);
  const first = Math.floor(view.start_s / length);
  let missing = 0;
  for (let number = first; number <= last; number += 1) missing += drawTile(context, number, length) ? 0 : 1;
  if (missing === 0) prefetch(first, last, length);
  const end = viewEnd();
  drawFrequencyAxis(0, topHertz(), "linear", view.height);
  drawTimeAxis(view.start_s, end, view.width, clockSeconds());
  Object.assign(pane.dataset, { from: view.start_s, to: end, level: view.level, top: topHertz(), drawn: String(missing === 0 && !view.opening) });
  emit("drawn");
}

/** Draw a tile, or what there is of a coarser one; return whether it is there. */
function drawTile(context, number, length) {
  const level = tileLevel();
  load(level, number).catch(() => {});
  const { width } = state.session.tile;
  const x = Math.round(toX(number * length));
  const drawn = Math.round(toX((number + 1) * length)) - x;
  const tile = ready.get(address(level, number));
  if (tile) {
    context.drawImage(paint(tile), x, 0, drawn, HEIGHT);
    return true;
  }
  for (let above = 1; above <= FARTHEST; above += 1) {
    const share = 2 ** above;
    const coarse = ready.get(address(level + above, Math.floor(number / share)));
    if (!coarse) continue;
    context.drawImage(paint(coarse), ((number % share) * width) / share, 0, width / share, HEIGHT, x, 0, drawn, HEIGHT);
    break;
  }
  return false;
}

/** Have the tiles on both sides ready. */
function prefetch(first, last, length) {
  const end = Math.ceil(view.recording.duration_s / length);
  for (const number of [last + 1, last + 2, first - 1]) if (number >= 0 && number < end) load(tileLevel(), number).catch(() => {});
}

/** Return the seconds of the day at which the recording starts, or null. */
export function clockSeconds() {
  const time = view.recording?.clock?.match(/T(\d+):(\d+):(\d+)/);
  return time ? 3600 * time[1] + 60 * time[2] + Number(time[3]) : null;
}

/** Format a time of the recording: the clock where it is known. */
export function formatMoment(time_s) {
  const clock = clockSeconds();
  return clock === null ? formatTime(time_s, 2) : formatTime((clock + time_s) % 86400, 2, true);
}

on("settings", () => { findColours(); draw(); });
new ResizeObserver(draw).observe(byId("pane"));
