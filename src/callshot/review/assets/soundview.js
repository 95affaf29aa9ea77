// The picture of the card: spectrogram and axes, waveform, limits that can be dragged, the playhead.

import WaveSurfer from "./wavesurfer.esm.min.js";
import RegionsPlugin from "./wavesurfer.regions.esm.min.js";
import { drawFrequencyAxis, drawTimeAxis, frequencyShare } from "./axes.js";
import { changeSpan, MIN_LENGTH_S } from "./decisions.js";
import { byId } from "./dom.js";
import { loadSpectrogram, loadWaveform } from "./media.js";
import { playItem, player, playTime } from "./player.js";
import { contextOf, settings } from "./settings.js";
import { currentItem, emit, on } from "./state.js";

const WAVE_HEIGHT = 64; // also in review.css, and the height in the style that wavesurfer makes
const regions = RegionsPlugin.create();
let surfer = null;
let view = null; // {id, start_s, end_s, low_hz, high_hz} of what is drawn
let region = null;
let draws = 0; // only the latest drawing counts
let dragged = 0; // when the span was last dragged

/** Return the size of the spectrogram on the screen. */
export function pictureSize() {
  const box = byId("pane").getBoundingClientRect();
  return { width: Math.round(box.width), height: Math.round(box.height - WAVE_HEIGHT) };
}

/** Draw the item on the card; an older picture stays until the new one is there. */
export async function drawItem() {
  const item = currentItem();
  const mine = ++draws;
  if (item === null) return;
  byId("pane").dataset.drawn = "false";
  const { width, height } = pictureSize();
  if (width <= 0) return;
  const [picture, waveform] = await Promise.all([loadSpectrogram(item, width, height), loadWaveform(item, width)]);
  if (mine !== draws) return;
  await showPicture(picture);
  if (mine !== draws) return;
  view = readView(item, picture);
  drawFrequencyAxis(view.low_hz, view.high_hz, settings.scale, height);
  drawTimeAxis(view.start_s, view.end_s, width);
  await drawWaveform(waveform, height + WAVE_HEIGHT);
  if (mine !== draws) return;
  drawRegion(item);
  drawBand();
  movePlayhead();
  noteDrawn();
}

/** Say in the page what is drawn. */
function noteDrawn() {
  emit("drawn", view);
  Object.assign(byId("pane").dataset, { item: view.id, from: view.start_s, to: view.end_s, drawn: "true" });
}

function readView(item, picture) {
  return {
    id: item.id,
    start_s: picture.number("X-Start-Seconds"),
    end_s: picture.number("X-End-Seconds"),
    low_hz: picture.number("X-Min-Hz"),
    high_hz: picture.number("X-Max-Hz"),
  };
}

/** Put the picture on the page once it is decoded: no flash. */
async function showPicture(picture) {
  const image = byId("spectrogram");
  if (image.getAttribute("src") === picture.url) return;
  image.src = picture.url;
  await image.decode().catch(() => {});
}

/** Show highest and lowest values below the spectrogram; `setOptions` would draw the old ones again. */
async function drawWaveform(waveform, height) {
  const waveColor = getComputedStyle(byId("pane")).getPropertyValue("--wave");
  if (surfer === null) startSurfer();
  surfer.setOptions({ height, waveColor });
  const loading = surfer.load("", [waveform.high, waveform.low], view.end_s - view.start_s);
  await loading.catch(ignoreNewerLoad);
}

/** Go on where a newer drawing took the place of this one. */
function ignoreNewerLoad(error) {
  if (error.name !== "AbortError") throw error;
}

/** Make the waveform; its first height is fixed because the content-security policy names its style. */
function startSurfer() {
  surfer = WaveSurfer.create({
    container: byId("wave"),
    height: WAVE_HEIGHT,
    interact: false,
    cursorWidth: 0,
    hideScrollbar: true,
    progressColor: "transparent",
    plugins: [regions],
    renderFunction: paintWave,
  });
  regions.on("region-update", noteDrag);
  regions.on("region-updated", saveSpan);
}

/** Paint the waveform into the lowest part of the pane; what is quiet stays visible as a line. */
function paintWave([high, low], context) {
  const { width, height } = context.canvas;
  const half = (WAVE_HEIGHT / 2) * (window.devicePixelRatio || 1);
  const largest = Math.max(1e-4, ...high.map(Math.abs), ...low.map(Math.abs));
  const scale = (half - 2) / largest;
  const middle = height - half;
  context.beginPath();
  high.forEach((value, index) => context.lineTo((index / high.length) * width, middle - value * scale - 0.5));
  for (let index = low.length - 1; index >= 0; index -= 1) {
    context.lineTo((index / low.length) * width, middle - low[index] * scale + 0.5);
  }
  context.closePath();
  context.fill();
}

/** Mark the span of the call. */
function drawRegion(item) {
  regions.clearRegions();
  region = regions.addRegion({
    start: item.start_s - view.start_s,
    end: item.end_s - view.start_s,
    color: "transparent",
    minLength: MIN_LENGTH_S,
  });
}

/** Remember that something was dragged: the click that follows means nothing. */
export function noteDrag() {
  dragged = performance.now();
}

/** Save the span after a drag, if it moved by more than a pixel. */
function saveSpan(changed) {
  const item = currentItem();
  if (changed !== region || item === null || item.id !== view.id) return;
  const start = view.start_s + changed.start;
  const end = view.start_s + changed.end;
  const pixel = (view.end_s - view.start_s) / Math.max(1, pictureSize().width);
  const moved = Math.max(Math.abs(start - item.start_s), Math.abs(end - item.end_s));
  if (moved > pixel) changeSpan(start, end);
}

/** Shade what the band filter leaves out. */
function drawBand() {
  const share = (hertz) => 100 * Math.max(0, Math.min(1, frequencyShare(hertz, view.low_hz, view.high_hz, settings.scale)));
  const low = settings.band && settings.low_hz ? share(settings.low_hz) : 0;
  const high = settings.band && settings.high_hz ? share(settings.high_hz) : 100;
  byId("below-band").style.height = `${low}%`;
  byId("above-band").style.height = `${100 - high}%`;
}

/** Put the playhead where the sound is. */
function movePlayhead() {
  const time = player.what?.kind === "item" ? playTime() : null;
  const head = byId("playhead");
  head.hidden = time === null || view === null;
  if (head.hidden) return;
  head.style.left = `${(100 * (time - view.start_s)) / (view.end_s - view.start_s)}%`;
}

/** Play from where the reviewer clicked. */
function playFromClick(event) {
  if (view === null || performance.now() - dragged < 300) return;
  const box = byId("pane").getBoundingClientRect();
  const share = (event.clientX - box.left) / box.width;
  playItem(view.start_s + share * (view.end_s - view.start_s));
}

/** Return where to split: at the playhead inside the call, or in its middle. */
export function splitTime() {
  const item = currentItem();
  const time = playTime();
  const inside = time !== null && time > item.start_s + MIN_LENGTH_S && time < item.end_s - MIN_LENGTH_S;
  return inside && player.what?.kind === "item" ? time : (item.start_s + item.end_s) / 2;
}

/** Return how far a key moves a limit: a fiftieth of what is seen. */
export function nudgeLength() {
  const item = currentItem();
  return (item.end_s - item.start_s + 2 * contextOf(item)) / 50;
}

/** Have the pictures and waveforms of items ready. */
export function prefetchPictures(items) {
  const { width, height } = pictureSize();
  if (width <= 0) return;
  for (const item of items) {
    loadSpectrogram(item, width, height).catch(() => {});
    loadWaveform(item, width).catch(() => {});
  }
}

byId("pane").addEventListener("click", playFromClick);
on("playhead", movePlayhead);
on("player", movePlayhead);
