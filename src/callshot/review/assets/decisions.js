// What the reviewer says of an item: shown as saved only after the server has answered.

import { ApiError } from "./api.js";
import { announce, ask } from "./dom.js";
import { describeDecision, formatCount } from "./format.js";
import { makeUuid, send } from "./outbox.js";
import { changeMode, dropItems, goNext, goTo, goToItem, loadItems, replaceItem } from "./queue.js";
import { currentItem, emit, keepItems, PAGE, state } from "./state.js";

export const MIN_LENGTH_S = 0.005;
const MANY = 10;
let undoing = Promise.resolve(); // an undo waits until the one before it is shown

/** Return the items that a key acts on: the card, or the chosen tiles of the grid. */
export function targets() {
  if (state.mode === "card") return [currentItem()].filter((item) => item !== null);
  const focused = state.ids[state.gridStart + state.focus];
  const ids = state.selected.size ? [...state.selected] : [focused];
  return ids.map((id) => state.items.get(id)).filter((item) => item !== undefined);
}

/** Confirm: yes, this is what the label says. */
export const confirmCall = () => decide(() => ({ action: "confirm" }));

/** Reject: no, this is none of the calls. */
export const rejectCall = () => decide(() => ({ action: "reject" }));

/** Skip: no verdict now. */
export const skipCall = () => decide(() => ({ action: "skip" }));

/** Say which call it is. */
export const relabelCall = (label) => decide(() => ({ action: "relabel", label }));

/** Return whether a verdict calls many items right: all of a page of the grid, or MANY. */
function isSweeping(items, verdict) {
  if (state.mode === "card" || !["confirm", "relabel"].includes(verdict.action)) return false;
  const onPage = state.ids.slice(state.gridStart, state.gridStart + PAGE).length;
  return items.length > 1 && items.length >= Math.min(onPage, MANY);
}

/** Ask twice whether many calls are right; the key y answers too. */
async function askTwice(count, verdict) {
  const label = verdict.label ? `“${verdict.label}”` : "yes";
  const calls = formatCount(count, "call");
  const first = `Say ${label} to ${calls} at once?`;
  const second = `${calls} will count as confirmed and become examples. Have you looked at each of them?`;
  return await ask(first, `Yes, ${calls}`) && await ask(second, "Yes, confirm all");
}

/** Send one verdict on all targets and go on. */
async function decide(makeVerdict) {
  const found = targets();
  if (found.length === 0) return;
  const isSkip = makeVerdict().action === "skip";
  const items = isSkip ? found.filter((item) => item.decision?.action !== "split") : found; // their calls are marked
  if (isSweeping(items, makeVerdict()) && !await askTwice(items.length, makeVerdict())) return;
  if (state.filters.state === "conflict") {
    settle(items, makeVerdict());
    return;
  }
  const decisions = items.map((item) => ({ uuid: makeUuid(), item: item.id, ...makeVerdict() }));
  if (decisions.length) post("/api/decisions", { decisions }, decisions);
  moveOn();
}

/** Settle conflicts between reviewers; a skipped one stays a conflict. */
function settle(items, verdict) {
  for (const item of items) {
    if (verdict.action === "skip") continue;
    const label = { confirm: item.label, reject: null, relabel: verdict.label }[verdict.action];
    const body = { uuid: makeUuid(), item: item.id, label };
    post("/api/settle", body, [{ ...verdict, item: item.id }]);
  }
  moveOn();
}

function moveOn() {
  if (state.mode === "card") goNext();
  else clearSelection();
}

function clearSelection() {
  state.selected.clear();
  emit("selection");
}

/** Send decisions, mark their items as unsaved meanwhile, and keep the answer. */
async function post(path, body, decisions) {
  for (const decision of decisions) state.pending.set(decision.item, decision);
  emit("items", decisions.map((decision) => decision.item));
  try {
    const answer = await send(path, body);
    settlePending(decisions);
    take(answer);
    announce(`Saved: ${describeBatch(decisions)}.`);
    emit("saved", decisions);
    return answer;
  } catch (error) {
    settlePending(decisions);
    refuse(decisions, error);
    return null;
  }
}

/** Forget that decisions were pending, unless newer ones have come. */
function settlePending(decisions) {
  for (const decision of decisions) {
    if (state.pending.get(decision.item) === decision) state.pending.delete(decision.item);
  }
  emit("items", decisions.map((decision) => decision.item));
}

function describeBatch(decisions) {
  const what = describeDecision(decisions[0]);
  return decisions.length === 1 ? what : `${what}, ${formatCount(decisions.length, "call")}`;
}

/** Keep what the server answered to a decision. */
function take(answer) {
  keepItems(answer.items ?? []);
  if (answer.progress) state.progress = { ...state.progress, ...answer.progress };
  emit("progress");
  emit("answer", answer);
}

/** Say that the server refused; the items are shown as the server knows them. */
function refuse(decisions, error) {
  if (!(error instanceof ApiError)) throw error;
  emit("note", `Not saved: ${error.message}`);
  loadItems(decisions.map((decision) => decision.item), true).catch(() => {});
}

/** Change the limits of the call on the card. */
export function changeSpan(start_s, end_s) {
  const item = currentItem();
  if (item === null || end_s - start_s < MIN_LENGTH_S) return Promise.resolve();
  const start = Math.max(0, start_s);
  const end = Math.min(item.recording_duration_s ?? end_s, end_s);
  const decision = { uuid: makeUuid(), item: item.id, action: "span", start_s: start, end_s: end };
  return post("/api/decisions", { decisions: [decision] }, [decision]);
}

/** Move one limit of the call on the card. */
export function nudgeSpan(side, seconds) {
  const item = currentItem();
  if (item === null) return;
  const start = item.start_s + (side === "start" ? seconds : 0);
  const end = item.end_s + (side === "end" ? seconds : 0);
  changeSpan(start, end);
}

/** Make two calls of the one on the card. */
export async function splitCall(at_s) {
  const item = currentItem();
  if (item === null) return;
  const decision = { uuid: makeUuid(), item: item.id, action: "split", at_s };
  const answer = await post("/api/decisions", { decisions: [decision] }, [decision]);
  const parts = (answer?.items ?? []).filter((part) => part.parent === item.id);
  if (parts.length) await replaceItem(item.id, parts.map((part) => part.id));
}

/** Save a call that a person marked beside or inside an item; return it. */
export async function addCall(item, box, label) {
  const decision = { uuid: makeUuid(), item: item.id, action: "add", label, ...box };
  const shown = { item: item.id, action: "add" };
  const answer = await post("/api/decisions", { decisions: [decision] }, [shown]);
  return (answer?.items ?? []).findLast((other) => other.added && other.parent === item.id) ?? null;
}

/** Take back the latest decision that stands, also after the last item. */
export const undo = () => takeTurn("/api/undo", "Undone", "There is nothing left to undo.");

/** Make the decision again that was taken back last. */
export const redo = () => takeTurn("/api/redo", "Done again", "There is nothing to redo.");

/** Undo or redo after all earlier ones, so that the card follows the answers in order. */
function takeTurn(path, word, nothing) {
  const turn = undoing.then(() => changeHistory(path, word, nothing));
  undoing = turn.catch(() => {}); // a failed turn does not stop the next one
  return turn;
}

async function changeHistory(path, word, nothing) {
  const answer = await send(path, { uuid: makeUuid(), count: 1 }).catch(noteError);
  if (!answer) return;
  if (answer.nothing) {
    emit("note", nothing);
    return;
  }
  const back = answer.items.map((item) => item.id);
  dropItems(answer.gone ?? []);
  take(answer);
  announce(`${word}: ${formatCount(back.length, "call")}.`);
  if (state.mode === "card" && back.length) await goToItem(back[0]);
  emit("undone", back);
}

function noteError(error) {
  emit("note", error.message);
  return null;
}

/** Open one item of the grid on the card. */
export async function openItem(id) {
  if (state.mode === "grid") await changeMode("card");
  const index = state.ids.indexOf(id);
  await (index >= 0 ? goTo(index) : goToItem(id));
}

/** Add a label; the server answers with all of them. */
export async function addLabel(name) {
  const answer = await send("/api/labels", { name, uuid: makeUuid() }).catch(noteError);
  if (!answer) return false;
  state.session.labels = answer.labels;
  emit("labels");
  return true;
}
