// What runs beside the server: the index of recordings, and the search for all calls.

import { getJson, postJson } from "./api.js";
import { byId, make, makeButton } from "./dom.js";
import { capital, formatCount, formatShare } from "./format.js";
import { openSimilar } from "./labelsimilar.js";
import { makeUuid } from "./outbox.js";
import { emit } from "./state.js";

const BUSY_MS = 1000;
const IDLE_MS = 10000;
let tasks = null;
let timer = null;
let asked = 0; // only the latest answer counts

const isBusy = () => ["index", "find"].some((name) => tasks?.[name].state === "running");

/** Ask how far everything is, again and again. */
async function follow() {
  const mine = ++asked;
  clearTimeout(timer);
  const answer = await getJson("/api/tasks").catch(() => null); // the banner says why there is none
  if (mine !== asked) return;
  if (answer !== null) take(answer);
  timer = setTimeout(follow, isBusy() ? BUSY_MS : IDLE_MS);
}

function take(answer) {
  const wasRunning = tasks?.find.state === "running";
  tasks = answer;
  emit("tasks", tasks);
  byId("ready").textContent = describeIndex(tasks.index);
  showFinding();
  showAdvice();
  if (wasRunning && tasks.find.state === "done" && tasks.find.found) emit("note", `${describeFound(tasks.find.found)}${tasks.find.found.number ? ": review them (Shift R)" : ""}.`);
}

/** Say how much can be searched. */
function describeIndex({ state, share, left, note, error }) {
  if (state === "none") return note;
  if (state === "failed") return `Similar sounds cannot be searched: ${error}`;
  if (state === "running") return `Ready to search: ${formatShare(share)}${left ? `, ${left} left` : ""}`;
  return "Ready to search";
}

/** Say what was found. */
function describeFound({ calls }) {
  const counts = Object.entries(calls).map(([name, count]) => `${name} ${count}`);
  const total = Object.values(calls).reduce((sum, count) => sum + count, 0);
  return `Found ${formatCount(total, "sound")} (${counts.join(", ")})`;
}

/** Learn from all calls, and look for more of them everywhere; or stop it. */
export const findAll = () => change(tasks?.find.state === "running" ? "/api/find/stop" : "/api/find");

async function change(path) {
  asked += 1;
  try {
    take(await postJson(path, { uuid: makeUuid() }));
  } catch (error) {
    emit("note", error.message);
  }
  follow();
}

/** Open the page to review what was found. */
export function openReview() {
  if (tasks?.find.found?.number) location.assign(`/review/${tasks.find.found.number}/`);
  else emit("note", tasks?.find.found ? "No calls were found: mark more of them, and find all calls again." : "Nothing was found yet: find all calls first.");
}

/** Show the search for all calls in the panel. */
export function showFinding() {
  const place = byId("finding");
  if (place === null) return;
  const { state = "none", text = "", share = 0, left = "", error = "", found = null } = tasks?.find ?? {};
  const isKnown = share > 0 && share < 1; // a step ends after all of its items
  const parts = [];
  if (state === "running") {
    parts.push(
      make("p", {}, `${capital(text)} … ${isKnown ? `${formatShare(share)}${left ? `, ${left} left` : ""}` : ""}`),
      make("progress", { max: 1, value: isKnown ? share : null, "aria-label": text }),
      makeButton("Stop", "F", findAll, { id: "stop-finding", "aria-keyshortcuts": "Shift+F" }),
    );
  } else {
    parts.push(makeButton("Find all calls", "F", findAll, { id: "find-all", class: "primary", "aria-keyshortcuts": "Shift+F" }));
    if (state === "failed") parts.push(make("p", { class: "why" }, `It did not work: ${error}`));
    if (state === "stopped") parts.push(make("p", { class: "quiet" }, "Stopped."));
    if (found === null) parts.push(make("p", { class: "quiet" }, "Learns from your calls, looks for more of them in all recordings, and lets you check what it found."));
  }
  if (found !== null && state !== "running") {
    const label = `${describeFound(found)}.`;
    const unit = make("p", { class: "quiet" }, "Calls without a pause between them, such as a song, count as one sound.");
    const trust = found.trust ? make("p", { class: "quiet" }, `${capital(found.trust)}.`) : null;
    parts.push(make("p", { id: "found-calls" }, make("bdi", {}, label)), found.number ? unit : null, trust);
    if (found.number) parts.push(makeButton("Review them", "R", openReview, { id: "review-found", "aria-keyshortcuts": "Shift+R" }));
  }
  const focused = place.contains(document.activeElement) ? document.activeElement.id : null;
  place.replaceChildren(...parts.filter(Boolean));
  if (focused) byId(focused)?.focus();
}

/** Name the call of which one more helps most, and offer to look for more of it. */
export function showAdvice() {
  const box = tasks?.advice;
  const place = byId("advice");
  if (place === null || place.dataset.label === (box?.label ?? "")) return;
  place.dataset.label = box?.label ?? "";
  const text = make("p", {}, "One more example of ", make("bdi", {}, box?.label), " improves its scores more than one of any other call.");
  const button = makeButton("More of them", null, () => openSimilar(tasks.advice), { id: "more-recommended" });
  place.replaceChildren(...(box ? [text, button] : []));
}

/** Start to follow. */
export function startTasks() {
  follow();
}
