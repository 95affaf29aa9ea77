// One big card: what it is, where it is from, what was said of it, and the buttons.

import { AFTER_FINDING, BASE } from "./api.js";
import { confirmCall, rejectCall, relabelCall, skipCall, undo } from "./decisions.js";
import { openLabelDialog } from "./labels.js";
import { byId, make, makeButton } from "./dom.js";
import { baseName, describeDecision, formatClock, describeScore, formatCount, formatLength, formatScore, formatTime } from "./format.js";
import { currentItem, on, state } from "./state.js";

/** Show the texts of the card; the picture is drawn by soundview.js. */
export function showCard() {
  const item = currentItem();
  byId("card").hidden = state.mode !== "card" || item === null;
  byId("done").hidden = state.mode !== "card" || item !== null || state.session === null;
  if (item === null) showDone();
  else fillCard(item);
}

function fillCard(item) {
  byId("place").textContent = describePlace();
  byId("label").textContent = chosenLabel(item) ?? "no label";
  byId("scores").replaceChildren(...describeScores(item));
  byId("where").replaceChildren(...describeWhere(item));
  showVerdict(item);
  showOthers(item);
  markLabels(item);
}

/** Return the label of an item: the reviewer's, or else the model's. */
function chosenLabel(item) {
  return state.pending.get(item.id)?.label ?? item.decision?.label ?? item.label;
}

/** Say where the card stands in the queue. */
function describePlace() {
  const total = Math.max(state.total, state.ids.length);
  return `Call ${(state.position + 1).toLocaleString("en")} of ${total.toLocaleString("en")}`;
}

function describeScores(item) {
  const { text, title } = describeScore(item);
  const parts = [make("span", { class: "score", title }, text)];
  if (item.runner_up) {
    const why = `The second best label, score ${formatScore(item.runner_up_score)}`;
    parts.push(make("span", { class: "quiet", title: why }, `or ${item.runner_up}`));
  }
  return parts;
}

function describeWhere(item) {
  const span = `${formatTime(item.start_s, 2)} – ${formatTime(item.end_s, 2)} (${formatLength(item.end_s - item.start_s)})`;
  const parts = [
    make("span", { class: "file", title: item.recording }, baseName(item.recording)),
    make("span", {}, span),
  ];
  if (item.clock) parts.push(make("span", { title: "Clock time" }, formatClock(item.clock)));
  const moved = item.original && (item.original.start_s !== item.start_s || item.original.end_s !== item.end_s);
  if (moved) parts.push(make("span", { class: "quiet" }, "limits changed"));
  for (const name of listDoubts(item)) parts.push(make("span", { class: "doubt" }, state.session.doubts[name]));
  if (item.parent !== null && !item.added) parts.push(make("span", { class: "quiet" }, "part of a split call"));
  return parts;
}

/** Return what may be wrong with an annotation. */
function listDoubts(item) {
  const { doubts } = state.session;
  const isWrong = doubts.mislabelled && item.runner_up_score !== null && item.runner_up_score > item.score;
  return [...(isWrong ? ["mislabelled"] : []), ...item.doubt.split(" ").filter((name) => name in doubts)];
}

/** Show the verdict, and whether the server has saved it. */
function showVerdict(item) {
  const pending = state.pending.get(item.id);
  const decision = pending ?? item.decision;
  const element = byId("verdict");
  element.dataset.state = pending ? "pending" : decision ? "saved" : "none";
  element.dataset.action = decision?.action ?? "";
  if (!decision) element.textContent = "not reviewed";
  else element.textContent = `${describeDecision(decision)} · ${pending ? "saving…" : "saved"}`;
}

/** Return whether verdicts on an item differ and nobody has settled it. */
function isConflict(item) {
  const verdicts = [item.decision, ...(item.others ?? [])].filter((one) => one && !["skip", "span"].includes(one.action));
  const names = new Set(verdicts.map((one) => (one.action === "reject" ? "" : one.label ?? item.label)));
  return names.size > 1 && !item.settled;
}

/** Show what other reviewers said, as far as this one may see it. */
function showOthers(item) {
  const others = item.others ?? [];
  const conflict = isConflict(item);
  const element = byId("others");
  element.hidden = others.length === 0;
  element.classList.toggle("conflict", conflict);
  const texts = others.map((decision) => `${decision.reviewer}: ${describeDecision(decision)}`);
  const ending = conflict ? " They disagree: your verdict in “conflicts” settles it." : "";
  element.textContent = `Other reviewers: ${texts.join(", ")}.${ending}`;
}

/** Mark the label that the item has. */
function markLabels(item) {
  const chosen = chosenLabel(item);
  for (const button of byId("labels").querySelectorAll("[data-label]")) {
    button.setAttribute("aria-pressed", String(button.dataset.label === chosen));
  }
}

/** Make a button per label; the first nine have number keys. */
function showLabels() {
  const buttons = state.session.labels.map((label) =>
    makeButton(label.name, label.key, () => relabelCall(label.name), {
      class: "label",
      "data-label": label.name,
      "aria-keyshortcuts": label.key,
      "aria-pressed": "false",
    }));
  const add = makeButton("Other label…", "a", openLabelDialog, { class: "label", "aria-keyshortcuts": "a" });
  byId("labels").replaceChildren(...buttons, add);
  const item = currentItem();
  if (item !== null) markLabels(item);
}

function makeVerdictButtons() {
  const button = (text, key, action, kind, shortcuts) =>
    makeButton(text, key, action, { class: `verdict ${kind}`, "aria-keyshortcuts": shortcuts });
  byId("verdicts").replaceChildren(
    button("Undo", "←", undo, "undo", "ArrowLeft u"),
    button("No", "↓", rejectCall, "no", "ArrowDown n"),
    button("Yes", "↑", confirmCall, "yes", "ArrowUp y"),
    button("Skip", "→", skipCall, "skip", "ArrowRight s"),
  );
}

/** Show the end of the queue: what came of it, and what to do with it. */
function showDone() {
  const filtered = Object.entries(state.filters).some(([name, value]) => name !== "state" && value);
  const text = filtered
    ? "No more calls match these filters. Other calls may be left: change the filters above."
    : "Nothing is left in this queue.";
  const confirmed = (state.progress?.classes ?? []).reduce((sum, row) => sum + row.added, 0);
  const count = `${formatCount(confirmed, "call")} ${confirmed === 1 ? "is" : "are"} confirmed, and saved.`;
  const raven = make("a", { class: "button", href: "/api/export/raven", download: true }, "Raven selection tables");
  byId("done").replaceChildren(
    make("h2", {}, "Done"),
    make("p", {}, text),
    make("p", { id: "confirmed" }, count),
    make("div", { class: "row" }, raven, make("span", { class: "quiet" }, "Other formats are in the panel “Progress”.")),
    make("p", {}, BASE ? AFTER_FINDING : "This command makes a better model of them:"),
    BASE ? make("a", { class: "button", href: "/" }, "Back to labelling") : make("code", { class: "command" }, state.session.learn_command),
    makeButton("Undo the last decision", "←", undo, { "aria-keyshortcuts": "ArrowLeft u" }),
  );
}

/** Prepare what stays the same for all cards. */
export function startCard() {
  makeVerdictButtons();
  showLabels();
  on("card", showCard);
  on("mode", showCard);
  on("labels", showLabels);
  on("progress", () => { if (currentItem() === null) showCard(); });
  on("queue", () => { if (currentItem() !== null) byId("place").textContent = describePlace(); });
  on("items", (ids) => { if (ids.includes(state.ids[state.position])) showCard(); });
}
