// The panel beside the card: what is done, what the labels bought, agreement, export.

import { getJson, withQuery } from "./api.js";
import { drawCurve, drawInterval } from "./charts.js";
import { byId, debounce, make, makeButton } from "./dom.js";
import { formatCount, formatScore, formatShare } from "./format.js";
import { changeQueue } from "./queue.js";
import { emit, on, state } from "./state.js";

const FORMATS = [["raven", "Raven"], ["audacity", "Audacity"], ["csv", "CSV"], ["parquet", "Parquet"]];
let rejected = false; // whether exports contain rejected calls too

/** Fetch the figures anew. */
export async function loadProgress() {
  try {
    state.progress = await getJson("/api/progress");
    emit("progress");
  } catch {
    // the banner says that the server does not answer
  }
}

/** Show the whole panel. */
function showPanel() {
  const progress = state.progress;
  if (progress === null) return;
  byId("panel").replaceChildren(
    makeDone(progress),
    makeClasses(progress.classes ?? []),
    makeCurve(progress.curve),
    makeAgreement(progress),
    makeExport(),
  );
}

function makeSection(title, ...children) {
  return make("section", {}, make("h2", {}, title), ...children);
}

function makeDone(progress) {
  const bar = make("progress", { max: Math.max(1, progress.total), value: progress.done, "aria-label": "Reviewed" });
  const text = `${progress.done.toLocaleString("en")} of ${formatCount(progress.total, "call")} reviewed`;
  const skipped = progress.skipped ? `, ${progress.skipped} skipped` : "";
  return makeSection("Reviewed", bar, make("p", { id: "done-count" }, text + skipped));
}

/** Show the precision of each class with its interval, and how many reviews are missing. */
function makeClasses(classes) {
  const sampled = classes.some((row) => row.precision !== null && row.precision !== undefined);
  const note = make("p", { class: "quiet" }, "Share of right detections with its 95 % interval, from calls that were chosen at random.");
  const offer = makeButton("Review a random sample", null, () => changeQueue({ order: "sample", filters: { state: "undecided" } }));
  const inSample = state.order === "sample";
  return makeSection("Precision", ...classes.map(makeClassRow), sampled ? note : make("p", { class: "quiet" }, "It needs calls that are chosen at random, not the best ones."), inSample ? null : offer);
}

function makeClassRow(row) {
  const known = row.precision !== null && row.precision !== undefined;
  const figure = known ? `${formatShare(row.precision)} (${formatShare(row.low)} – ${formatShare(row.high)})` : "–";
  return make(
    "div",
    { class: "class-row", "data-label": row.label, title: describeThreshold(row) },
    make("div", { class: "class-head" }, make("b", {}, row.label), make("span", {}, figure)),
    known ? drawInterval(row) : null,
    make("p", { class: "quiet" }, describeRow(row)),
  );
}

function describeRow(row) {
  const parts = [`${row.confirmed} of ${row.reviewed} confirmed`];
  if (row.more_for_5_percent > 0) parts.push(`about ${row.more_for_5_percent.toLocaleString("en")} more for ± 5 %`);
  if (row.more_for_5_percent === 0) parts.push("± 5 % reached");
  if (row.added) parts.push(`${formatCount(row.added, "example")} added`);
  return parts.join(" · ");
}

function describeThreshold(row) {
  const found = formatCount(row.detections ?? 0, "detection");
  if (row.threshold === null || row.threshold === undefined) return found;
  return `${found} at the threshold ${formatScore(row.threshold)}`;
}

/** Show how well the labels collected so far do, per number of examples. */
function makeCurve(curve) {
  if (!curve) return make("section", { hidden: true });
  const why = curve.why ? make("p", { class: "quiet" }, curve.why) : null;
  return makeSection("What examples bring", why ?? drawCurve(curve));
}

function makeAgreement(progress) {
  const { pairs, agreed, kappa, conflicts } = progress.agreement ?? { pairs: 0, conflicts: [] };
  const names = (progress.reviewers ?? []).map((row) => `${row.name} ${row.decisions}`).join(", ");
  const who = make("p", { class: "quiet" }, names ? `Decisions: ${names}` : "No decisions yet.");
  if (!pairs && !conflicts.length) return makeSection("Reviewers", who);
  const text = kappa === null ? "" : `, Cohen’s kappa ${kappa.toFixed(2)}`;
  const line = make("p", {}, `${agreed} of ${formatCount(pairs, "call")} judged alike${text}`);
  return makeSection("Reviewers", who, line, conflicts.length ? makeSettle(conflicts) : null);
}

function makeSettle(conflicts) {
  const open = () => changeQueue({ filters: { state: "conflict" } });
  return makeButton(`Settle ${formatCount(conflicts.length, "conflict")}`, null, open, { id: "settle" });
}

function makeExport() {
  const links = FORMATS.map(([name, text]) =>
    make("a", { class: "button", href: exportAddress(name), download: true, "data-format": name }, text));
  const box = make("input", { type: "checkbox", checked: rejected, change: () => changeRejected(box.checked) });
  return makeSection(
    "Export",
    make("div", { class: "row" }, ...links),
    make("label", { class: "check" }, box, "with rejected calls"),
    make("p", { class: "quiet" }, "A better model: callshot learn --add and the folder of this review."),
  );
}

function exportAddress(format) {
  return withQuery(`/api/export/${format}`, { rejected: rejected ? 1 : 0 });
}

function changeRejected(value) {
  rejected = value;
  showPanel();
}

/** Start to follow decisions; figures are fetched when the reviewer pauses for a moment. */
export function startProgress() {
  const later = debounce(loadProgress, 400);
  on("progress", showPanel);
  on("saved", later);
  on("undone", later);
  on("changes", later);
  on("queue", showPanel);
}
