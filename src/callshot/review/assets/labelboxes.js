// Boxes on the spectrogram: drawn, named, moved, resized and deleted; each change is saved at once.

import { announce, byId, make, makeButton } from "./dom.js";
import { formatCount, formatHertz } from "./format.js";
import { makeUuid, send } from "./outbox.js";
import { settings } from "./settings.js";
import { emit, on, state } from "./state.js";
import { moveCursor, play, playTime } from "./labelsound.js";
import { columnLength, formatMoment, showSpan, toHertz, topHertz, toTime, toX, toY, view, viewEnd } from "./labelview.js";

const CLICK_PX = 4; // a shorter drag is a click
const STEP = 0.01; // of the picture, by which a key moves a limit
const SHORTEST = 2; // columns of the shortest box

export const boxes = new Map(); // id → box of the recording that is open
const pending = new Map(); // id → changes on their way
let draft = null; // a box without a name, which is not saved
let chosen = null; // id
let drag = null; // {box, isDraft, limits, from, moved, result} while the pointer is down

const recent = new Map(); // id → name of boxes that were named on this page, the last one last
let model = null; // id of the box whose name new ones get: the one that was chosen or named last
const isNothing = (box) => box.label === null;

/** Return the name that was given last, of a box that exists; empty if there is none. */
export function lastName() {
  const { names } = state.session;
  const kept = names.includes(settings.last_name) ? settings.last_name : names.at(-1);
  return [...recent.values()].at(-1) ?? kept ?? "";
}

/** Return the name that new boxes get: of the chosen box, or else the last one. */
const sameName = () => boxes.get(model)?.label ?? lastName();

/** Return the chosen box, or the one that waits for a name. */
export const chosenBox = () => draft ?? boxes.get(chosen) ?? null;

/** Take the boxes of a recording that was opened. */
export function openBoxes(list) {
  boxes.clear();
  for (const box of list) boxes.set(box.id, box);
  draft = null;
  choose(null);
}

/** Take what the server says of changed boxes; newer changes that are on their way stay. */
export function takeBoxes(answer) {
  for (const box of answer.boxes) {
    if (!pending.has(box.id) && box.recording === view.recording?.name) boxes.set(box.id, box);
  }
  for (const id of answer.gone) {
    if (pending.has(id)) continue;
    boxes.delete(id);
    recent.delete(id);
  }
  if (chosen !== null && !boxes.has(chosen)) choose(null);
  drawBoxes();
}

/** Save a change; the page shows it at once. */
async function save(action, box) {
  pending.set(box.id, (pending.get(box.id) ?? 0) + 1);
  if (action === "delete") {
    boxes.delete(box.id);
    recent.delete(box.id);
  } else boxes.set(box.id, box);
  drawBoxes();
  const { id, recording, label } = box;
  const times = { start_s: round(box.start_s, 1e4), end_s: round(box.end_s, 1e4) };
  const band = { low_freq_hz: round(box.low_freq_hz, 10), high_freq_hz: round(box.high_freq_hz, 10) };
  const body = { uuid: makeUuid(), action, box: { id, recording, ...times, ...band, label } };
  try {
    const answer = await send("/api/boxes", body);
    settle(box.id);
    emit("answer", answer);
  } catch (error) {
    settle(box.id);
    emit("note", `Not saved: ${error.message}`);
    emit("reopen");
  }
}

function settle(id) {
  const count = pending.get(id) - 1;
  if (count) pending.set(id, count);
  else pending.delete(id);
}

let turn = Promise.resolve(); // an undo waits for the one before it

/** Undo or redo. */
export function changeHistory(path) {
  const word = path === "/api/undo" ? "undo" : "redo";
  turn = turn.then(async () => {
    const answer = await send(path, { uuid: makeUuid() });
    const [other] = answer.recordings.filter((row) => row.name !== view.recording.name);
    if (answer.nothing) emit("note", `There is nothing to ${word}.`);
    else if (other) emit("note", `Done in ${other.name}.`);
    const [back] = answer.boxes.filter((box) => box.recording === view.recording.name);
    emit("answer", answer);
    if (back) choose(back.id);
    announce(answer.nothing ? "" : `Done: ${word}.`);
  }).catch((error) => emit("note", error.message));
}

// Geometry

const round = (value, parts) => (value === null ? null : Math.round(value * parts) / parts);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Return a box with limits inside the recording, at least some pixels long and high. */
function fit(box) {
  if (isNothing(box)) return { ...box, start_s: Math.max(0, box.start_s), end_s: Math.min(view.recording.duration_s, box.end_s) };
  const top = view.recording.rate_hz / 2;
  const shortest = Math.min(SHORTEST * columnLength(), view.recording.duration_s);
  const lowest = (SHORTEST * topHertz()) / view.height;
  const start_s = clamp(box.start_s, 0, view.recording.duration_s - shortest);
  const low_freq_hz = clamp(box.low_freq_hz, 0, top - lowest);
  const end_s = clamp(box.end_s, start_s + shortest, view.recording.duration_s);
  const high_freq_hz = clamp(box.high_freq_hz, low_freq_hz + lowest, top);
  return { ...box, start_s, end_s, low_freq_hz, high_freq_hz };
}

/** Return a box that was moved by seconds and hertz: its limits x and y (−1, 1), or with 0 all. */
function shift(box, x, y, seconds, hertz) {
  const moved = { ...box };
  const whole = x === 0 && y === 0;
  const by_s = whole ? clamp(seconds, -box.start_s, view.recording.duration_s - box.end_s) : seconds;
  const top = view.recording.rate_hz / 2;
  const by_hz = whole ? clamp(hertz, -box.low_freq_hz, top - box.high_freq_hz) : hertz;
  if (whole || x < 0) moved.start_s += by_s;
  if (whole || x > 0) moved.end_s += by_s;
  if (!isNothing(box) && (whole || y < 0)) moved.low_freq_hz += by_hz;
  if (!isNothing(box) && (whole || y > 0)) moved.high_freq_hz += by_hz;
  if (x < 0) moved.start_s = Math.min(moved.start_s, box.end_s - SHORTEST * columnLength());
  if (y < 0) moved.low_freq_hz = Math.min(moved.low_freq_hz, box.high_freq_hz - (SHORTEST * topHertz()) / view.height);
  return fit(moved);
}

/** Move limits of the chosen box by keys: steps of a hundredth of the picture. */
export function nudge(x, y, stepsX, stepsY) {
  const box = chosenBox();
  if (box === null) return;
  const moved = shift(box, x, y, stepsX * STEP * view.width * columnLength(), stepsY * STEP * topHertz());
  if (box === draft) setDraft(moved, false);
  else save("change", moved);
}

// Names

/** Show a box that waits for its name. */
function setDraft(box, focus = true) {
  draft = box;
  chosen = null;
  if (focus && settings.same && sameName()) {
    nameBox(sameName());
    return;
  }
  drawBoxes();
  if (focus) openNamer(sameName());
}

/** Ask for the name of the draft or of the chosen box. */
export function openNamer(name = chosenBox()?.label ?? "") {
  const box = chosenBox();
  if (box === null) return;
  const input = make("input", { id: "name", type: "text", list: "names", maxlength: "200", dir: "auto", value: name, "aria-label": "Name of the call", placeholder: "Name of the call" });
  const cancel = makeButton("Cancel", "Esc", closeNamer);
  const form = byId("namer");
  const field = make("label", { class: "field" }, make("span", {}, "Name"), input);
  form.replaceChildren(field, make("button", {}, make("span", {}, "Save"), make("kbd", { "aria-hidden": "true" }, "Enter")), cancel);
  form.hidden = false;
  input.focus();
  input.select();
  showChosen();
}

/** Leave the name as it was; a draft goes. */
export function closeNamer() {
  byId("namer").hidden = true;
  draft = null;
  byId("main").focus({ preventScroll: true });
  drawBoxes();
}

/** Give the draft or the chosen box a name, and save it. */
function nameBox(name) {
  const box = { ...chosenBox(), label: name };
  if (isNothing(chosenBox()) && draft === null) Object.assign(box, { low_freq_hz: 0, high_freq_hz: topHertz() });
  const action = draft === null ? "change" : "add";
  draft = null;
  byId("namer").hidden = true;
  byId("main").focus({ preventScroll: true });
  emit("named", { id: box.id, name });
  chosen = box.id;
  model = box.id;
  save(action, box);
  announce(`Saved: ${name}.`);
}

function submitName(event) {
  event.preventDefault();
  const name = byId("name").value.trim();
  if (name !== "" && chosenBox() !== null) nameBox(name);
  else emit("note", "Type a name, or press Esc.");
}

/** Give the chosen box the name that was used last. */
export function repeatName() {
  if (lastName() === "") emit("note", "No call has a name yet.");
  else if (chosenBox() === null) emit("note", "Draw a box first, or choose one.");
  else nameBox(lastName());
}

/** Add a box at the cursor, a tenth of the picture long, in the middle of the frequencies. */
export function addBox() {
  const length = 0.1 * view.width * columnLength();
  let start_s = playTime();
  if (start_s < view.start_s || start_s + length > viewEnd()) start_s = (view.start_s + viewEnd() - length) / 2;
  const box = { start_s, end_s: start_s + length, low_freq_hz: 0.25 * topHertz(), high_freq_hz: 0.6 * topHertz() };
  setDraft(fit({ id: makeUuid(), recording: view.recording.name, label: "", ...box }));
}

/** Say that there is no call in what is seen. */
export function markNothing() {
  if (viewEnd() - view.start_s > state.session.max_box_s) {
    emit("note", "Zoom in: so far out, calls cannot be seen.");
    return;
  }
  const place = { recording: view.recording.name, start_s: view.start_s, end_s: viewEnd() };
  const box = fit({ id: makeUuid(), ...place, low_freq_hz: null, high_freq_hz: null, label: null });
  const inside = [...boxes.values()].filter((one) => !isNothing(one) && one.start_s < box.end_s && one.end_s > box.start_s);
  save("add", box);
  emit("note", inside.length ? `Nothing here but ${formatCount(inside.length, "call")}.` : "Nothing here.");
}

/** Delete the chosen box. */
export function deleteBox() {
  if (draft !== null) closeNamer();
  else if (boxes.has(chosen)) {
    save("delete", boxes.get(chosen));
    choose(null);
  }
}

/** Play the chosen box, in its band if the filter is on. */
export function playBox() {
  const box = chosenBox();
  if (box === null) return;
  const band = settings.band && !isNothing(box) ? { low_hz: box.low_freq_hz, high_hz: box.high_freq_hz } : null;
  play(box.start_s, box.end_s, band);
}

// Choice

/** Choose a box; null: none. */
export function choose(id) {
  chosen = id;
  model = id;
  if (draft === null) byId("namer").hidden = true;
  drawBoxes();
}

/** Choose the next box in time, or the one before; without a choice, the first or the last. */
export function chooseNext(step) {
  const ordered = [...boxes.values()].sort((a, b) => a.start_s - b.start_s);
  if (ordered.length === 0) return;
  const index = ordered.findIndex((box) => box.id === chosen);
  const box = ordered[(index + step + (index < 0 && step < 0 ? 1 : 0) + ordered.length) % ordered.length];
  showSpan(box.start_s, box.end_s);
  choose(box.id);
  announce(describe(box));
}

/** Describe a box in words. */
function describe(box) {
  const name = isNothing(box) ? "nothing here" : box.label || "new call";
  const band = isNothing(box) ? "" : `, ${formatHertz(box.low_freq_hz)} – ${formatHertz(box.high_freq_hz)} Hz`;
  return `${name}, ${formatMoment(box.start_s)} – ${formatMoment(box.end_s)}${band}`;
}

// Pictures

/** Draw all boxes that are seen. */
export function drawBoxes() {
  if (view.recording === null) return;
  const every = [...boxes.values(), ...(draft ? [draft] : [])].sort((a, b) => isNothing(b) - isNothing(a)); // behind others
  const shown = every.filter((box) => box.end_s > view.start_s && box.start_s < viewEnd());
  const kept = document.activeElement?.dataset?.id;
  byId("boxes").replaceChildren(...shown.map(makeBox));
  if (kept) byId("boxes").querySelector(`[data-id="${kept}"]`)?.focus();
  showChosen();
}

function makeBox(box) {
  const isChosen = box === draft || box.id === chosen;
  const top = isNothing(box) ? 0 : toY(box.high_freq_hz);
  const bottom = isNothing(box) ? view.height : toY(box.low_freq_hz);
  const names = ["box", isNothing(box) && "nothing", isChosen && "chosen", (pending.has(box.id) || box === draft) && "pending", top < 24 && "high"];
  const element = make("div", { role: "button", tabindex: "0", class: names.filter(Boolean).join(" "), "data-id": box.id, "aria-label": describe(box), "aria-pressed": String(isChosen) });
  element.append(make("bdi", { class: "name" }, isNothing(box) ? "nothing here" : box.label || "?"));
  const left = toX(box.start_s);
  Object.assign(element.style, { left: `${left}px`, width: `${toX(box.end_s) - left}px`, top: `${top}px`, height: `${bottom - top}px` });
  const sides = isNothing(box) ? [[-1, 0], [1, 0]] : [[-1, 0], [1, 0], [0, -1], [0, 1], [-1, -1], [-1, 1], [1, -1], [1, 1]];
  if (isChosen) element.append(...sides.map(([x, y]) => make("span", { class: "handle", "data-x": x, "data-y": y })));
  return element;
}

/** Show what can be done with the chosen box. */
function showChosen() {
  const box = boxes.get(chosen);
  const bar = byId("chosen");
  byId("same").firstChild.textContent = sameName() ? `Same name: ${sameName()}` : "Same name";
  bar.hidden = box === undefined || !byId("namer").hidden;
  byId("hint").textContent = box || draft ? "" : "Drag a box around a call. Click to put the cursor; space plays from there.";
  if (bar.hidden) return;
  const buttons = [
    make("bdi", { class: "what" }, describe(box)),
    makeButton("Name", "Enter", () => openNamer(), { "aria-keyshortcuts": "Enter" }),
    makeButton("Play", "p", playBox, { "aria-keyshortcuts": "p" }),
    isNothing(box) ? null : makeButton("More like this", "m", () => emit("similar"), { id: "more-like", "aria-keyshortcuts": "m" }),
    makeButton("Delete", "Del", deleteBox, { "aria-keyshortcuts": "Delete" }),
  ];
  bar.replaceChildren(...buttons.filter(Boolean));
}

// Mouse and fingers

function place(event) {
  const area = byId("boxes").getBoundingClientRect();
  return { x: clamp(event.clientX - area.left, 0, view.width), y: clamp(event.clientY - area.top, 0, view.height) };
}

function startDrag(event) {
  if (event.button !== 0 || drag !== null || view.recording === null) return;
  const tag = event.target.closest(".name"); // of "nothing here": a click chooses it, a drag draws a box
  const target = event.shiftKey || tag ? null : event.target.closest(".box");
  const handle = event.target.closest(".handle");
  const box = target ? (draft?.id === target.dataset.id ? draft : boxes.get(target.dataset.id)) : null;
  if (box && box !== draft && box.id !== chosen) choose(box.id);
  drag = { box, isDraft: box !== null && box === draft, limits: handle ? [Number(handle.dataset.x), Number(handle.dataset.y)] : [0, 0], from: place(event), moved: false, tag: tag?.parentElement.dataset.id };
  byId("boxes").setPointerCapture(event.pointerId);
  event.preventDefault();
}

function moveDrag(event) {
  if (drag === null) return;
  const to = place(event);
  drag.moved ||= Math.hypot(to.x - drag.from.x, to.y - drag.from.y) >= CLICK_PX;
  if (!drag.moved) return;
  drag.result = drag.box ? changed(to) : drawn(to);
  const { box, isDraft } = drag;
  if (box && !isDraft) boxes.set(box.id, drag.result);
  else {
    draft = drag.result;
    chosen = null;
  }
  drawBoxes();
}

/** Return the box that is dragged, as it is now. */
function changed(to) {
  const seconds = (to.x - drag.from.x) * columnLength();
  const hertz = toHertz(to.y) - toHertz(drag.from.y);
  return shift(drag.box, ...drag.limits, seconds, hertz);
}

/** Return a new box from where the drag began. */
function drawn(to) {
  const times = [toTime(drag.from.x), toTime(to.x)].sort((a, b) => a - b);
  const band = [toHertz(drag.from.y), toHertz(to.y)].sort((a, b) => a - b);
  const id = drag.result?.id ?? makeUuid();
  return fit({ id, recording: view.recording.name, start_s: times[0], end_s: times[1], low_freq_hz: band[0], high_freq_hz: band[1], label: "" });
}

function endDrag(event) {
  if (drag === null) return;
  const { box, isDraft, result, moved, from, tag } = drag;
  drag = null;
  if (event.type === "pointercancel") {
    if (isDraft) draft = box;
    else if (box) boxes.set(box.id, box);
    else draft = null;
    drawBoxes();
  } else if (!moved) {
    if (box) return;
    if (draft !== null) closeNamer();
    choose(tag ?? null);
    if (!tag) moveCursor(toTime(from.x));
  } else if (isDraft) setDraft(result, false);
  else if (box) save("change", result);
  else setDraft(result);
}

/** Connect the layer of boxes and the field of names. */
export function startBoxes() {
  const layer = byId("boxes");
  layer.addEventListener("pointerdown", startDrag);
  layer.addEventListener("pointermove", moveDrag);
  for (const name of ["pointerup", "pointercancel"]) layer.addEventListener(name, endDrag);
  layer.addEventListener("focusin", (event) => {
    const { id } = event.target.dataset;
    if (boxes.has(id) && id !== chosen) choose(id); // by Tab
  });
  layer.addEventListener("dblclick", (event) => { if (event.target.closest(".box")) openNamer(); });
  byId("namer").addEventListener("submit", submitName);
  byId("namer").addEventListener("keydown", (event) => { if (event.key === "Escape") closeNamer(); });
  on("named", ({ id, name }) => {
    recent.delete(id);
    recent.set(id, name);
  });
  on("drawn", drawBoxes);
}
