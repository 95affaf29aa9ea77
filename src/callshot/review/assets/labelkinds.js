// Where to listen first: recordings in the order of what they add, and kinds of sounds on a map and as cards.
/* global PointMap */

import { getJson } from "./api.js";
import { announce, byId, make } from "./dom.js";
import { formatCount, formatTime } from "./format.js";
import { lastName } from "./labelboxes.js";
import { loadCards, openCards, playCard } from "./labelsimilar.js";
import { settings } from "./settings.js";
import { emit, on } from "./state.js";

const LIST = 12; // sounds of a list, and around a point
const MAX_PICKED = 60; // cards
const REFRESH_MS = 5000;
const SIGNS = { named: ["■", "yes"], heard: ["○", "quiet"], unknown: ["●", "accent"] };
const WORDS = { named: "named", heard: "listened to", unknown: "not listened to yet" };

// Recordings

const adds = new Map(); // name → {rank, share, before}: what a recording adds, and those before it have
let windows = 0; // of the index, when it was asked for
let asked_ms = -Infinity;

/** Ask for the order again when there are more windows, but not all the time. */
async function refreshOrder({ index }) {
  if (index.windows === windows || performance.now() - asked_ms < REFRESH_MS) return;
  asked_ms = performance.now();
  windows = index.windows;
  const { recordings } = await getJson("/api/order");
  adds.clear();
  let before = 0;
  recordings.forEach(([name, share], rank) => {
    adds.set(name, { rank, share, before });
    before += share;
  });
  emit("order");
}

/** Return recordings in the order that was chosen; those that are not ready come last. */
export function sortRecordings(rows) {
  if (settings.order !== "hear") return rows;
  const rank = ({ name }) => adds.get(name)?.rank ?? adds.size;
  return [...rows].sort((a, b) => rank(a) - rank(b));
}

/** Show how much a recording adds to those that are more worth hearing; null if it is not known. */
export function makeNews(name) {
  const own = adds.get(name);
  if (!own) return null;
  const part = own.share / Math.max(...[...adds.values()].map((one) => one.share));
  const text = `${part > 1 / 3 ? "much" : part > 1 / 10 ? "some" : "little"} new`;
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span"));
  bar.firstChild.style.width = `${100 * part}%`;
  return make("span", { class: "news", title: text }, bar, make("span", { class: "unseen" }, text));
}

/** Say how few recordings have half of what there is to hear. */
export function describeOrder() {
  if (!adds.size) return "";
  const count = [...adds.values()].filter((one) => one.before < 0.5).length;
  return `Bars: what a recording adds. ${count} of ${formatCount(adds.size, "recording")} ${count === 1 ? "has" : "have"} half of the different sounds.`;
}

// Kinds of sounds

let sounds = [];
let picked = null; // numbers of sounds that were chosen on the map
const seen = new Set(); // places of cards that were shown, played, and answered
const played = new Set();
const answered = new Set();
const placeOf = ({ recording, start_s }) => `${start_s} ${recording}`;
const stateOf = (one) => (one.label !== null ? "named" : one.listened || played.has(placeOf(one)) || answered.has(placeOf(one)) ? "heard" : "unknown");

const label = "Map of sounds: arrow keys walk from sound to sound, Enter plays it and shows it and those around it";
let map = null;

function makeMap() {
  const canvas = make("canvas", { id: "map", tabindex: "0", role: "img", "aria-label": label });
  map = Object.assign(new PointMap(canvas), { points: [], choose, select });
  map.isOnTop = (number) => map.selected.has(number) || stateOf(sounds[number]) !== "unknown";
  map.drawPoint = (ctx, point, number) => {
    const [sign, colour] = SIGNS[stateOf(sounds[number])];
    map.drawSign(ctx, point, number, sign, getComputedStyle(canvas).getPropertyValue(`--${colour}`));
  };
  const legend = Object.entries(SIGNS).map(([name, [sign, colour]]) => {
    const mark = make("span", { "aria-hidden": "true" }, `${sign} `);
    mark.style.color = `var(--${colour})`;
    return make("span", {}, mark, WORDS[name]);
  });
  map.element = make("div", { id: "sound-map" }, canvas, make("p", { class: "row legend" }, ...legend));
}

/** Choose a point: it and the points around it become cards, and it is played. */
async function choose(number, isPlayed) {
  map.chosen = number;
  if (!isPlayed) {
    map.selected = new Set([number]);
    map.draw();
    announce(`${sounds[number].recording}, ${formatTime(sounds[number].start_s, 1)}, ${WORDS[stateOf(sounds[number])]}`);
    return;
  }
  const [x, y] = map.points[number];
  const away = (one) => Math.hypot(map.points[one][0] - x, map.points[one][1] - y);
  const others = [...sounds.keys()].filter((one) => one !== number).sort((a, b) => away(a) - away(b));
  await select([number, ...others.slice(0, LIST - 1)]);
  playCard();
}

/** Show points as cards. */
async function select(numbers) {
  map.selected = new Set(numbers);
  map.draw();
  if (!numbers.length) return;
  picked = numbers.slice(0, MAX_PICKED);
  await loadCards();
}

/** Return the next list: what was chosen on the map, or sounds that are different from all before. */
async function load() {
  let numbers = picked;
  if (numbers === null) {
    const found = await getJson("/api/kinds");
    sounds = found.sounds;
    const isNew = (number) => !seen.has(placeOf(sounds[number]));
    if (!found.order.some(isNew)) seen.clear();
    numbers = found.order.filter(isNew).slice(0, LIST);
    Object.assign(map, { points: sounds.map((one) => one.point), chosen: -1, selected: new Set(numbers) });
  }
  picked = null;
  map.draw();
  const cards = numbers.map((number) => ({ ...sounds[number], number, likeness: stateOf(sounds[number]) === "unknown" ? "" : WORDS[stateOf(sounds[number])] }));
  for (const card of cards) seen.add(placeOf(card));
  return { cards, counts: describeSounds(), note: "Every sound has a name or was listened to." };
}

function describeSounds() {
  const count = (name) => sounds.filter((one) => stateOf(one) === name).length;
  return `${formatCount(sounds.length, "sound")}: ${count("named")} named, ${count("heard")} listened to`;
}

/** Show on the map that a sound was played, has a name, or is nothing. */
function note(card, change) {
  ("label" in change ? answered : played).add(placeOf(card));
  Object.assign(sounds[card.number] ?? {}, change);
  showStates();
}

/** Show that an answer was taken back. */
function forget(card) {
  answered.delete(placeOf(card));
  Object.assign(sounds[card.number] ?? {}, { label: null });
  showStates();
}

function showStates() {
  map.draw();
  byId("counts").textContent = describeSounds();
}

/** Show sounds that are different from each other, and the map. */
export function openKinds() {
  if (map === null) makeMap();
  picked = null;
  const hint = "Play each (space), and name it: o types a name, y gives the last one. n: there is no call in it. x: other sounds. m: the map.";
  return openCards({ kinds: true, title: "Kinds of sounds", label: lastName(), hint, element: map.element, load, note, forget });
}

/** Keep the order of recordings up to date. */
export function startKinds() {
  on("tasks", (tasks) => refreshOrder(tasks).catch(() => {}));
}
