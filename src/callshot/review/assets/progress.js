// The panel beside the card: what is done, precision, agreement, export.

import { AFTER_FINDING, BASE, getJson, withQuery } from "./api.js";
import { drawCurve, drawInterval } from "./charts.js";
import { byId, debounce, make, makeButton } from "./dom.js";
import { capital, FORMATS, formatCount, formatScore, formatShare } from "./format.js";
import { changeQueue } from "./queue.js";
import { emit, on, state } from "./state.js";

let rejected = false; // whether exports contain rejected calls too
let asked = 0; // only the latest answer counts
let every = true; // whether exports of annotations contain those that nobody reviewed

const later = debounce(() => loadProgress(), 2000); // the curve takes the server a moment

/** Fetch the figures anew. */
export async function loadProgress() {
  const mine = ++asked;
  try {
    const answer = await getJson("/api/progress");
    if (mine !== asked) return;
    state.progress = answer;
    emit("progress");
    if (state.progress.curve?.pending) later();
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
  const interval = row.low === row.high ? "all reviewed" : `${formatShare(row.low)} – ${formatShare(row.high)}`;
  const figure = known ? `${formatShare(row.precision)} (${interval})` : "–";
  return make(
    "div",
    { class: "class-row", "data-label": row.label, title: describeThreshold(row) },
    make("div", { class: "class-head" }, make("b", {}, row.label), make("span", {}, figure)),
    known ? drawInterval(row) : null,
    make("p", { class: "quiet" }, describeRow(row)),
  );
}

function describeRow(row) {
  const more = row.more_for_5_percent;
  const known = row.added ? `${row.added.toLocaleString("en")} confirmed, none chosen at random` : "none reviewed";
  const parts = [row.reviewed ? `${row.confirmed} of ${row.reviewed} confirmed` : known];
  if (more > 0) parts.push(`${more.toLocaleString("en")} more for ± 5 %`);
  if (more === 0 && row.low !== row.high) parts.push("± 5 % reached");
  return parts.join(" · ");
}

function describeThreshold(row) {
  const added = row.added ? `; ${formatCount(row.added, "confirmed call")} added to ${row.examples} examples` : "";
  const found = `${formatCount(row.detections ?? 0, "detection")}${added}`;
  if (row.threshold === null || row.threshold === undefined) return found;
  return `${found}; threshold ${formatScore(row.threshold)}`;
}

/** Show how well the labels collected so far do, per number of examples. */
function makeCurve(curve) {
  if (!curve) return make("section", { hidden: true });
  const why = curve.why ? make("p", { class: "quiet" }, `${capital(curve.why)}.`) : null;
  return makeSection("What more examples bring", why ?? drawCurve(curve), makeAdvice(curve.recommended));
}

/** Offer calls of the label that gains most from one more. */
function makeAdvice(label) {
  if (!label) return null;
  const show = () => changeQueue({ filters: { state: "undecided", label } });
  const text = make("p", {}, "One more example of ", make("bdi", {}, label), " improves its scores more than one of any other label.");
  return make("div", {}, text, makeButton(`Review ${label}`, null, show, { id: "review-recommended" }));
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
  const links = state.session.exports.map((name) =>
    make("a", { class: "button", href: exportAddress(name), download: true, "data-format": name }, FORMATS[name] ?? name));
  const { annotations } = state.session;
  if (BASE) return makeSection("Export", make("div", { class: "row" }, ...links), make("p", { class: "quiet" }, AFTER_FINDING));
  const box = make("input", { type: "checkbox", checked: rejected, change: () => { rejected = box.checked; showPanel(); } });
  const other = make("input", { type: "checkbox", checked: every, change: () => { every = other.checked; showPanel(); } });
  const format = annotations ? ` They are in the format ${annotations}.` : "";
  return makeSection(
    annotations === null ? "Export" : "Export corrected annotations",
    make("div", { class: "row" }, ...links),
    annotations === null ? null : make("label", { class: "check" }, other, "also those that nobody reviewed"),
    annotations === null ? null : make("p", { class: "quiet" }, `Your own files stay as they are.${format}`),
    make("label", { class: "check" }, box, "with rejected calls"),
    make("p", { class: "quiet" }, "A model that knows the confirmed calls:"),
    make("code", { id: "learn-command", class: "command" }, state.session.learn_command),
  );
}

/** Return the address of an export; of calls that were found for labels, all labels. */
function exportAddress(format) {
  return withQuery(`/api/export/${format}`, { rejected: rejected ? 1 : 0, all: state.session.annotations !== null && every ? 1 : 0 });
}

/** Start to follow decisions; figures are fetched when the reviewer pauses for a moment. */
export function startProgress() {
  const soon = debounce(loadProgress, 400);
  on("progress", showPanel);
  for (const topic of ["saved", "undone", "changes"]) on(topic, soon);
  on("queue", showPanel);
}
