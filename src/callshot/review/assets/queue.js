// The order in which items are shown, loaded piece by piece; filters; which one is on the card.

import { getJson } from "./api.js";
import { readStored, storageKey, writeStored } from "./settings.js";
import { emit, keepItems, state } from "./state.js";

const PIECE = 200; // ids per request
const AHEAD = 20; // load more when fewer than these are left
const MOVING_ORDERS = new Set(["best", "uncertain", "novel"]);

let generation = 0; // answers to older questions are ignored
let loading = null;

/** Return the query that the server needs for the present order and filters. */
function queueQuery(offset) {
  return { order: state.order, ...state.filters, offset, limit: PIECE };
}

/** Take up the order, filters and card of this tab as they were before a reload. */
export async function restoreQueue() {
  const kept = readStored(sessionStorage, storageKey("place"));
  const orders = state.session.orders.filter((order) => order.why === null).map((order) => order.name);
  state.order = orders.includes(kept?.order) ? kept.order : orders[0];
  state.filters = kept?.filters ?? { state: "undecided" };
  state.mode = kept?.mode ?? "card";
  await loadQueue(kept?.id ?? null);
}

/** Remember the place in this tab. */
function keepPlace() {
  const { order, filters, mode, ids, position } = state;
  writeStored(sessionStorage, storageKey("place"), { order, filters, mode, id: ids[position] ?? null });
}

/** Load the queue from its beginning; start at an item if it is among the first. */
export async function loadQueue(startId = null) {
  generation += 1;
  const mine = generation;
  const answer = await getJson("/api/queue", queueQuery(0));
  if (mine !== generation) return;
  state.ids = answer.ids;
  state.total = answer.total;
  state.gridStart = 0;
  state.focus = 0;
  state.selected.clear();
  const start = startId === null ? 0 : answer.ids.indexOf(startId);
  emit("queue");
  await goTo(Math.max(0, start));
}

/** Change order or filters and start anew. */
export async function changeQueue(changes) {
  if (changes.order) state.order = changes.order;
  if (changes.filters) state.filters = changes.filters;
  await loadQueue();
}

/** Return whether the server has saved a verdict on an item, or is about to. */
export function isDecided(id) {
  const action = state.pending.get(id)?.action ?? state.items.get(id)?.decision?.action ?? null;
  return action !== null && !["span", "add"].includes(action);
}

/** Return how many items the queue still has for the reviewer. */
export function leftCount() {
  if (state.filters.state !== "undecided") return state.total;
  return Math.max(0, state.total - state.ids.filter(isDecided).length);
}

/** Append the next piece of the queue; items that were decided meanwhile have left it. */
async function loadMore() {
  const mine = generation;
  const left = state.filters.state === "undecided";
  const offset = left ? state.ids.filter((id) => !isDecided(id)).length : state.ids.length;
  const answer = await getJson("/api/queue", queueQuery(offset));
  if (mine === generation) append(answer.ids);
}

/** Look from the start for items that the pieces have missed. */
async function loadMissed() {
  const mine = generation;
  const answer = await getJson("/api/queue", queueQuery(0));
  if (mine !== generation) return;
  if (state.filters.state === "undecided") append(answer.ids.filter((id) => !isDecided(id)));
}

function append(ids) {
  const known = new Set(state.ids);
  const fresh = ids.filter((id) => !known.has(id));
  state.ids.push(...fresh);
  if (fresh.length) emit("queue");
}

/** Have enough of the queue for a position. */
export async function loadUpTo(position) {
  if (state.ids.length - position > AHEAD) return;
  if (loading === null) loading = loadMore().finally(() => { loading = null; });
  if (position < state.ids.length) return;
  await loading;
  if (position >= state.ids.length) await loadMissed();
}

/** Load items that are not known yet. */
export async function loadItems(ids, again = false) {
  const wanted = again ? ids : ids.filter((id) => !state.items.has(id));
  for (let start = 0; start < wanted.length; start += PIECE) {
    const piece = wanted.slice(start, start + PIECE);
    const { items } = await getJson("/api/items", { ids: piece.join(",") });
    keepItems(items);
    const missing = new Set(piece);
    items.forEach((item) => missing.delete(item.id));
    if (missing.size) dropItems([...missing]); // somebody has split them, or taken a split back
  }
}

/** Show the item at a position on the card. */
export async function goTo(position) {
  const known = state.items.has(state.ids[position]);
  state.position = Math.max(0, Math.min(position, state.ids.length));
  if (known) showPlace();
  await loadUpTo(state.position);
  await loadItems(state.ids.slice(state.position, state.position + AHEAD));
  if (!known) showPlace();
}

function showPlace() {
  keepPlace();
  emit("card");
}

/** Show the next item; decided ones are passed over when undecided ones are wanted. */
export function goNext() {
  let next = state.position + 1;
  const pass = state.filters.state === "undecided";
  while (pass && next < state.ids.length && isDecided(state.ids[next])) next += 1;
  return goTo(next);
}

/** Show the item before this one, decided or not. */
export function goBack() {
  return goTo(Math.max(0, state.position - 1));
}

/** Show an item by its id, also one that is not in the queue. */
export function goToItem(id) {
  const index = state.ids.indexOf(id);
  if (index >= 0) return goTo(index);
  state.ids.splice(state.position, 0, id);
  emit("queue");
  return goTo(state.position);
}

/** Put the parts of a split item in its place. */
export function replaceItem(id, parts) {
  const index = state.ids.indexOf(id);
  if (index < 0) return Promise.resolve();
  state.ids.splice(index, 1, ...parts);
  emit("queue");
  return goTo(index);
}

/** Leave out items that an undo has removed. */
export function dropItems(ids) {
  const gone = new Set(ids);
  const current = state.ids[state.position];
  state.ids = state.ids.filter((id) => !gone.has(id));
  for (const id of gone) state.items.delete(id);
  const index = state.ids.indexOf(current);
  state.position = index >= 0 ? index : Math.min(state.position, state.ids.length);
  emit("queue");
}

/** Sort what lies ahead anew after scores have changed; the card and the next one stay. */
export async function resortAhead() {
  if (!MOVING_ORDERS.has(state.order) || state.mode === "grid") return;
  const mine = generation;
  const answer = await getJson("/api/queue", queueQuery(0));
  if (mine !== generation) return;
  const kept = state.ids.slice(0, state.position + 2);
  const known = new Set(kept);
  state.ids = [...kept, ...answer.ids.filter((id) => !known.has(id))];
  emit("queue");
}

/** Switch between one card and the grid. */
export function changeMode(mode) {
  if (mode === "grid") state.gridStart = state.position;
  else state.position = Math.min(state.gridStart + state.focus, state.ids.length);
  state.focus = 0;
  state.mode = mode;
  state.selected.clear();
  keepPlace();
  emit("mode");
  return goTo(state.position);
}
