// Boxes on the picture of the card: the event, what is around it, and calls that a person drags.

import { getJson } from "./api.js";
import { frequencyShare, shareFrequency } from "./axes.js";
import { addCall, MIN_LENGTH_S } from "./decisions.js";
import { byId, make } from "./dom.js";
import { describeDecision, formatTime } from "./format.js";
import { chooseLabel } from "./labels.js";
import { playTime } from "./player.js";
import { goToItem } from "./queue.js";
import { settings } from "./settings.js";
import { noteDrag } from "./soundview.js";
import { currentItem, on } from "./state.js";

const CLICK_PX = 6; // a shorter drag is a click
const FLAT_PX = 8; // a lower box gives times only

let view = null; // what the picture shows
let nearby = { id: null, items: [] };
let asked = 0; // only the latest answer counts
let draft = null; // a box that waits for its name
let drag = null; // {x, y, area, item} while the pointer is down

/** Ask what is around the item on the card. */
async function loadNearby() {
  const item = currentItem();
  const mine = ++asked;
  if (item === null) return;
  const answer = await getJson(`/api/items/${item.id}/nearby`).catch(() => null);
  if (answer === null || mine !== asked || item.id !== currentItem()?.id) return;
  nearby = { id: item.id, items: answer.items };
  draw();
}

/** Draw the event, its neighbours that are calls or may be, and the box that is dragged. */
function draw() {
  const item = currentItem();
  if (view === null || item === null || view.id !== item.id) return;
  const others = nearby.id === item.id ? nearby.items : [];
  const shown = others.filter((other) => !["reject", "split"].includes(other.decision?.action));
  const marks = shown.map((other) => makeMark(other, other.decision ? "other known" : "other", makeTag(other)));
  if (item.low_freq_hz !== null) marks.push(makeMark(item, "own"));
  if (draft !== null) marks.push(makeMark(draft, "draft"));
  const focused = byId("marks").contains(document.activeElement) ? document.activeElement.dataset.id : null;
  byId("marks").replaceChildren(...marks.filter((mark) => mark !== null));
  if (focused) byId("marks").querySelector(`[data-id="${focused}"]`)?.focus();
}

/** Make the box of a call; null if it is outside the picture. */
function makeMark(call, kind, tag = null) {
  const { start_s, end_s, low_hz, high_hz } = view;
  if (call.end_s <= start_s || call.start_s >= end_s) return null;
  const x = (time) => 100 * Math.max(0, Math.min(1, (time - start_s) / (end_s - start_s)));
  const y = (hertz) => 100 * Math.max(0, Math.min(1, frequencyShare(Math.max(hertz, 1e-3), low_hz, high_hz, settings.scale)));
  const bottom = call.low_freq_hz === null ? 0 : y(call.low_freq_hz);
  const top = call.high_freq_hz === null ? 100 : y(call.high_freq_hz);
  const mark = make("div", { class: `mark ${kind}` }, tag);
  const left = x(call.start_s);
  Object.assign(mark.style, { left: `${left}%`, width: `${x(call.end_s) - left}%`, bottom: `${bottom}%`, height: `${top - bottom}%` });
  return mark;
}

/** Make the name of a neighbour, which opens it. */
function makeTag(call) {
  const name = call.decision?.label ?? call.label ?? "no label";
  const said = call.decision ? describeDecision(call.decision) : "not reviewed";
  const title = `${name} at ${formatTime(call.start_s)}, ${call.added ? "marked by hand" : said}: open it`;
  return make("button", { type: "button", class: "tag", title, "aria-label": title, "data-id": call.id, click: () => goToItem(call.id) }, make("bdi", {}, name));
}

function startDrag(event) {
  const item = currentItem();
  if (event.button !== 0 || view === null || item?.id !== view.id) return;
  const isOther = event.composedPath().some((one) => one.part?.value.includes("handle") || one.className === "tag");
  const area = byId("marks").getBoundingClientRect();
  if (isOther || event.clientY > area.bottom) return; // limits are dragged, or the event in the waveform
  event.stopPropagation();
  drag = { x: event.clientX, y: event.clientY, area, item };
  byId("pane").setPointerCapture(event.pointerId);
}

function moveDrag(event) {
  if (drag === null) return;
  draft = Math.abs(event.clientX - drag.x) < CLICK_PX ? null : readBox(event);
  draw();
}

/** Return the box from where the drag began to the pointer. */
function readBox(event) {
  const { area } = drag;
  const inside = (share) => Math.max(0, Math.min(1, share));
  const order = (a, b) => a - b;
  const [left, right] = [drag.x, event.clientX].map((x) => inside((x - area.left) / area.width)).sort(order);
  const [low, high] = [drag.y, event.clientY].map((y) => inside((area.bottom - y) / area.height)).sort(order);
  const isFlat = (high - low) * area.height < FLAT_PX;
  const time = (share) => Number((view.start_s + share * (view.end_s - view.start_s)).toFixed(4));
  const hertz = (share) => (isFlat ? null : Number(shareFrequency(share, view.low_hz, view.high_hz, settings.scale).toFixed(1)));
  return { start_s: time(left), end_s: time(right), low_freq_hz: hertz(low), high_freq_hz: hertz(high) };
}

function endDrag(event) {
  if (drag === null) return;
  const { item } = drag;
  drag = null;
  if (draft === null) return;
  noteDrag(); // the click that follows plays nothing
  if (event.type === "pointercancel") dropDraft();
  else askName(item);
}

function dropDraft() {
  draft = null;
  draw();
}

/** Ask for the name of the box, and save it as a call; return the call, null without a name. */
async function askName(item) {
  const box = draft;
  const name = await chooseLabel(item.decision?.label ?? item.label);
  const call = name === null ? null : await addCall(item, box, name);
  dropDraft();
  return call;
}

/** Mark a call by keys: at the playhead or in the middle of the event; then its card, for its limits. */
export async function markHere() {
  const item = currentItem();
  if (item === null || view === null) return;
  const length = Math.max(2 * MIN_LENGTH_S, (item.end_s - item.start_s) / 2);
  const time = playTime() ?? (item.start_s + item.end_s) / 2;
  const start_s = Math.max(0, Math.min(time, view.end_s - length));
  draft = { start_s, end_s: Math.min(start_s + length, item.recording_duration_s ?? Infinity), low_freq_hz: null, high_freq_hz: null };
  draw();
  const call = await askName(item);
  if (call) await goToItem(call.id);
}

/** Connect the picture. */
export function startMarks() {
  const pane = byId("pane");
  pane.addEventListener("pointerdown", startDrag, true); // before the waveform moves the event
  pane.addEventListener("pointermove", moveDrag);
  for (const name of ["pointerup", "pointercancel"]) pane.addEventListener(name, endDrag);
  on("drawn", (drawn) => { view = drawn; draw(); });
  for (const topic of ["card", "saved", "undone", "changes"]) on(topic, loadNearby);
}
