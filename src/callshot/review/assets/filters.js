// Order and filters of the queue; what is filtered is always said.

import { byId, make, makeButton, makeField, makeOptions } from "./dom.js";
import { baseName, formatCount } from "./format.js";
import { changeQueue, leftCount } from "./queue.js";
import { emit, on, state } from "./state.js";

const STATES = [
  ["undecided", "not reviewed"],
  ["skipped", "skipped"],
  ["decided", "reviewed"],
  ["conflict", "conflicts"],
  ["all", "all"],
];

/** Build the bar anew: labels or reviewers may have changed. */
function showFilters() {
  const session = state.session;
  const fields = [
    makeSelect("state", "Show", STATES),
    Object.keys(session.doubts).length ? makeSelect("doubt", "Check", [["", "any"], ...Object.entries(session.doubts)]) : null,
    makeSelect("label", "Label", [["", "any"], ...session.labels.map((label) => [label.name, label.name])]),
    makeSelect("recording", "Recording", [["", "any"], ...session.recordings.map((row) => [row.path, `${baseName(row.path)} (${row.count})`])]),
    session.reviewers.length > 1 ? makeSelect("reviewer", "Reviewed by", [["", "anyone"], ...session.reviewers.map((name) => [name, name])]) : null,
    session.score_range ? makeNumber("min_score", "Score from", "any", session.score_range[0]) : null,
    session.score_range ? makeNumber("max_score", "to", "any", session.score_range[1]) : null,
    session.has_clock ? makeNumber("from_hour", "Hour from", 0) : null,
    session.has_clock ? makeNumber("to_hour", "to", "any", 24) : null,
    makeButton("Clear filters", null, clearFilters, { id: "clear-filters" }),
  ];
  byId("filters").replaceChildren(...fields.filter((field) => field !== null));
}

function makeSelect(name, text, pairs) {
  const change = () => setFilter(name, select.value);
  const select = make("select", { id: `filter-${name}`, change }, ...makeOptions(pairs, state.filters[name] ?? ""));
  return makeField(text, select);
}

function makeNumber(name, text, placeholder, hint = placeholder) {
  const shown = typeof hint === "number" ? Number(hint.toFixed(3)) : placeholder;
  const change = () => setFilter(name, input.value.trim());
  const attributes = { id: `filter-${name}`, type: "number", step: "any", placeholder: String(shown), change };
  const input = make("input", { ...attributes, value: state.filters[name] ?? null });
  return makeField(text, input);
}

async function setFilter(name, value) {
  const filters = { ...state.filters, [name]: value };
  if (value === "") delete filters[name];
  await changeQueue({ filters }).catch((error) => emit("note", error.message));
}

async function clearFilters() {
  const loading = changeQueue({ filters: { state: "undecided" } });
  showFilters(); // at once: what is typed while the calls are on their way stays
  await loading.catch((error) => emit("note", error.message));
}

/** Say how many calls are shown, and which filters hide others. */
function showSummary() {
  const stateName = STATES.find(([name]) => name === (state.filters.state ?? "all"))[1];
  const others = Object.entries(state.filters).filter(([name, value]) => name !== "state" && value !== "");
  const texts = [stateName, ...others.map(describeFilter)];
  byId("shown").textContent = `${formatCount(leftCount(), "call")}: ${texts.join(", ")}`;
  byId("filter-button").classList.toggle("active", others.length > 0 || state.filters.state !== "undecided");
  byId("order").value = state.order;
  if (byId("filter-state")) byId("filter-state").value = state.filters.state ?? "all";
}

function describeFilter([name, value]) {
  const words = { min_score: "score ≥", max_score: "score ≤", from_hour: "from", to_hour: "to", reviewer: "by" };
  const text = { recording: baseName(value), doubt: state.session.doubts[value] }[name] ?? value;
  const hour = name.endsWith("_hour") ? " h" : "";
  return `${words[name] ?? ""} ${text}${hour}`.trim();
}

function makeOrders() {
  const options = state.session.orders.map((order) =>
    make("option", { value: order.name, disabled: order.why !== null, title: order.why }, order.why === null ? order.title : `${order.title} (${order.why})`));
  byId("order").replaceChildren(...options);
  byId("order").addEventListener("change", () => {
    changeQueue({ order: byId("order").value }).catch((error) => emit("note", error.message));
  });
}

/** Show or hide the bar. */
export function toggleFilters() {
  const bar = byId("filters");
  bar.hidden = !bar.hidden;
  byId("filter-button").setAttribute("aria-expanded", String(!bar.hidden));
  if (!bar.hidden) bar.querySelector("select").focus();
}

/** Build order and filters. */
export function startFilters() {
  makeOrders();
  showFilters();
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filter-button").addEventListener("click", toggleFilters);
  on("queue", showSummary);
  on("items", showSummary);
  on("labels", showFilters);
}
