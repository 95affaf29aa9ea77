// Cards of sounds, answered with a key each: more like this, and kinds of sounds (labelkinds.js).

import { getJson, withQuery } from "./api.js";
import { announce, byId, make, makeButton } from "./dom.js";
import { baseName, formatClock, formatCount, formatTime } from "./format.js";
import { chosenBox } from "./labelboxes.js";
import { stop } from "./labelsound.js";
import { makeUuid, send, unsavedCount } from "./outbox.js";
import { pictureSettings, settings } from "./settings.js";
import { emit, state } from "./state.js";

const WAIT_MS = 50;
const INNER = { tabindex: "-1" }; // of buttons in cards: keys do the same
const dialog = byId("similar");
const audio = new Audio();
let query = null; // what is asked: {title, label, hint, load}, of kinds of sounds also {kinds, element, note, forget}
let cards = []; // {id, recording, start_s, end_s, clock, likeness, answer}
let current = 0; // number of the card that keys act on
let told = {}; // of the list: {counts}, or {examples, refused} before its answers
let lastOther = "";
let asked = 0; // only the latest list counts
let naming = false;
let playing = 0; // number of the card that was played last

const GROUP = "More like this";
export const SIMILAR_KEYS = [
  [GROUP, ["y"], "yes, it is one (kinds of sounds: it has the last name)", () => answer(true)],
  [GROUP, ["n"], "no, it is not (kinds of sounds: there is no call in it)", () => answer(false)],
  [GROUP, ["o"], "it is another call: type its name", () => openOther()],
  [GROUP, [" "], "play the sound, stop", () => playCard()],
  [GROUP, ["ArrowRight"], "next sound", () => move(1)],
  [GROUP, ["ArrowLeft"], "sound before", () => move(-1)],
  [GROUP, ["ArrowDown"], "sound below", () => move(columns())],
  [GROUP, ["ArrowUp"], "sound above", () => move(-columns())],
  [GROUP, ["x"], "next list", () => loadCards()],
  [GROUP, ["m"], "to the map of kinds of sounds", () => query.element?.querySelector("canvas").focus()],
  [GROUP, ["u", "Ctrl+z"], "undo", () => undo()],
  [GROUP, ["g"], "show it in its recording", () => showPlace()],
  [GROUP, ["?"], "all keys", () => emit("help")],
  [GROUP, ["Escape"], "back to the spectrogram", () => dialog.close()],
];

/** Show sounds that are similar to a call, by default the chosen one. */
export async function openSimilar(box = chosenBox()) {
  if (!box?.label) {
    emit("note", "Choose a call that has a name first.");
    return;
  }
  const title = ["More like ", make("bdi", {}, box.label)];
  const hint = "Is it the same call? y: yes, n: no, o: another call. Space plays.";
  await openCards({ ...box, title, hint, load: () => getJson("/api/similar", { box: box.id }) });
}

/** Open the dialog on the first list of what is asked. */
export async function openCards(asking) {
  stop();
  query = asking;
  cards = [];
  told = {};
  show("Looking for sounds …");
  dialog.classList.toggle("kinds", Boolean(query.kinds));
  dialog.showModal();
  await loadCards();
}

/** Load the next list; answers that are on their way are saved first. */
export async function loadCards() {
  const mine = ++asked;
  audio.pause();
  while (unsavedCount()) await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
  try {
    const found = await query.load();
    if (mine !== asked) return;
    cards = found.cards.map((card) => ({ ...card, id: makeUuid(), answer: card.label ?? null }));
    told = found;
    current = 0;
    show(cards.length ? "" : found.note || "There are no more sounds to show.");
    focusCard();
    if (!query.kinds) dialog.scrollTo(0, 0);
  } catch (error) {
    if (mine === asked) show(error.message);
  }
}

/** Show the list, or a sentence where there is none. */
function show(text) {
  const title = make("h2", { id: "similar-title" }, ...[query.title].flat());
  const list = make("div", { id: "found", role: "group", "aria-label": "Sounds" }, ...cards.map(makeCard));
  const bar = make(
    "div",
    { class: "row", id: "similar-bar" },
    makeButton("Next list", "x", loadCards, { "aria-keyshortcuts": "x" }),
    makeButton("Undo", "u", undo, { "aria-keyshortcuts": "u" }),
    makeButton("Back", "Esc", () => dialog.close()),
  );
  const form = make("form", { id: "other", hidden: true, autocomplete: "off", submit: submitOther });
  const head = make("div", { class: "similar-head" }, title, make("p", { class: "quiet", id: "counts" }), bar);
  const parts = [head, make("p", { id: "similar-text" }, text || query.hint), query.element, list, form];
  dialog.replaceChildren(...parts.filter(Boolean));
  naming = false;
  cards.forEach((card, number) => showCard(number));
  showCounts();
}

/** Show how many calls there are, with the answers of this list. */
function showCounts() {
  const { counts = "", examples, refused } = told;
  const count = (said) => cards.filter((card) => card.answer === said).length;
  const nos = refused + count(false);
  const text = examples === undefined ? counts : `${formatCount(examples + count(true), "call")}${nos ? `, ${nos} answered with no` : ""}`;
  if (!query.kinds || byId("counts").textContent === "") byId("counts").textContent = text;
}

function makeCard(card, number) {
  const { recording, start_s, end_s } = card;
  const size = { width: 360, height: 150 };
  // An octave more than the call on both sides, so that it fills the picture.
  const band = query.kinds ? {} : { min_hz: query.low_freq_hz / 2, max_hz: 2 * query.high_freq_hz };
  const source = withQuery("/api/spectrogram", { recording, start_s, end_s, ...size, ...pictureSettings(), ...band, fit: 1 });
  return make(
    "div",
    { class: "found", role: "group", "data-number": number, click: choose(number, playCard), focus: () => { current = number; mark(); } },
    make("img", { src: source, alt: "", ...size }),
    makeButton("▶", null, choose(number, playCard), { class: "play", "aria-label": "Play", ...INNER }),
    make("bdi", { class: "where" }, baseName(card.recording)),
    make("span", { class: "when" }, formatClock(card.clock) || formatTime(card.start_s, 1)),
    make("span", { class: "likeness" }, card.likeness),
    makeAnswers(number),
    make("bdi", { class: "said" }),
  );
}

/** Let a function act on a card. */
const choose = (number, action) => (event) => { event.stopPropagation(); current = number; action(); };

function makeAnswers(number) {
  const { kinds, label } = query;
  return make(
    "span",
    { class: "answers" },
    kinds && !label ? null : makeButton(kinds ? label : "Yes", null, choose(number, () => answer(true)), INNER),
    makeButton(kinds ? "Nothing" : "No", null, choose(number, () => answer(false)), INNER),
    makeButton(kinds ? "Name" : "Other", null, choose(number, openOther), INNER),
  );
}

/** Say something in the dialog; notes of the page are behind it. */
function tell(text) {
  byId("similar-text").textContent = text;
  announce(text);
}

const element = (number) => dialog.querySelector(`[data-number="${number}"]`);

/** Show what was answered, and say it to screen readers. */
function showCard(number) {
  const card = cards[number];
  const place = formatClock(card.clock) || formatTime(card.start_s, 1);
  const said = card.answer === null ? "" : card.answer === true ? "✓ yes" : card.answer === false ? (query.kinds ? "✗ nothing" : "✗ no") : card.answer;
  const one = element(number);
  one.dataset.answer = card.answer === null ? "" : card.answer === false ? "no" : "yes";
  one.querySelector(".said").textContent = said;
  one.setAttribute("aria-label", [`Sound ${number + 1}`, baseName(card.recording), place, card.likeness, said].filter(Boolean).join(", "));
  showCounts();
  mark();
}

/** Let keys act on the current card, and Tab reach it. */
function mark() {
  for (const one of dialog.querySelectorAll(".found")) {
    const isCurrent = Number(one.dataset.number) === current;
    one.tabIndex = isCurrent ? 0 : -1;
    one.classList.toggle("current", isCurrent);
  }
}

function focusCard() {
  mark();
  element(current)?.focus();
}

/** Return how many cards are beside each other. */
function columns() {
  const tops = [...dialog.querySelectorAll(".found")].map((one) => one.offsetTop);
  return Math.max(1, tops.filter((top) => top === tops[0]).length);
}

function move(step) {
  current = Math.max(0, Math.min(cards.length - 1, current + step));
  audio.pause();
  focusCard();
}

/** Show which sound plays. */
function showPlaying() {
  for (const one of dialog.querySelectorAll(".found")) {
    const isPlaying = !audio.paused && Number(one.dataset.number) === playing;
    one.classList.toggle("playing", isPlaying);
    const button = one.querySelector(".play");
    button.firstChild.textContent = isPlaying ? "■" : "▶";
    button.setAttribute("aria-label", isPlaying ? "Stop" : "Play");
  }
}

/** Play the current sound, or stop it. */
export function playCard() {
  const { recording, start_s, end_s } = cards[current] ?? {};
  focusCard();
  if (recording === undefined) return;
  const address = withQuery("/api/sound", { recording, start_s, end_s, speed: settings.speed, gain_db: settings.gain_db });
  const isSame = audio.dataset.address === address;
  if (isSame && !audio.paused) {
    audio.pause();
    return;
  }
  audio.dataset.address = address;
  audio.src = address;
  playing = current;
  query.note?.(cards[current], {});
  audio.play().catch((error) => { if (error.name !== "AbortError") tell(error.message); });
}

// Answers

/** Save an answer: true (yes), false (no), or another name; then go to the next sound. */
function answer(said) {
  const card = cards[current];
  if (!card) return;
  if (card.answer !== null) {
    tell("This one is answered; u takes the last answer back.");
    return;
  }
  if (query.kinds && said === true && !query.label) {
    openOther();
    return;
  }
  const isNothing = query.kinds && said === false;
  const label = isNothing ? null : typeof said === "boolean" ? query.label : said;
  card.answer = query.kinds ? label ?? false : said;
  showCard(current);
  query.note?.(card, { label });
  // Another call has the frequencies of its name, if there are calls of it.
  const { low_freq_hz = null, high_freq_hz = null } = state.session.names.includes(said) ? {} : query;
  const box = { id: card.id, recording: card.recording, start_s: card.start_s, end_s: card.end_s, low_freq_hz, high_freq_hz, label };
  const body = { uuid: makeUuid(), action: said === false && !isNothing ? "no" : "add", tight: said !== false, box };
  send("/api/boxes", body).then((result) => emit("answer", result), (error) => {
    card.answer = null;
    card.id = makeUuid();
    tell(`Not saved: ${error.message}`);
    if (dialog.open && element(cards.indexOf(card))) showCard(cards.indexOf(card));
  });
  announce(`Saved: ${isNothing ? "nothing" : said === false ? "no" : said === true && !query.kinds ? "yes" : label}.`);
  const next = [...cards.keys()].find((number) => cards[(current + number) % cards.length].answer === null);
  if (next === undefined) loadCards();
  else move(((current + next) % cards.length) - current);
}

/** Ask for the name of another call. */
function openOther() {
  if (!cards[current] || cards[current].answer !== null) return;
  const input = make("input", { id: "other-name", type: "text", list: "names", maxlength: "200", dir: "auto", "aria-label": "Name of the other call", placeholder: "Name of the other call", value: query.kinds ? "" : lastOther });
  const form = byId("other");
  form.replaceChildren(make("label", { class: "field" }, make("span", {}, "Name"), input), make("button", {}, "Save"));
  form.hidden = false;
  naming = true;
  input.focus();
  input.select();
}

function closeOther() {
  byId("other").hidden = true;
  naming = false;
  focusCard();
}

function submitOther(event) {
  event.preventDefault();
  const name = byId("other-name").value.trim();
  if (name === "") return;
  closeOther();
  if (query.kinds) {
    query.label = name;
    for (const one of dialog.querySelectorAll(".found")) one.querySelector(".answers").replaceWith(makeAnswers(Number(one.dataset.number)));
  } else if (name !== query.label) lastOther = name;
  emit("named", { id: cards[current].id, name });
  answer(name === query.label ? true : name);
}

/** Take back the last change of this person; sounds whose answer it was can be answered again. */
async function undo() {
  try {
    const result = await send("/api/undo", { uuid: makeUuid() });
    emit("answer", result);
    if (result.nothing) tell("There is nothing to undo.");
    const back = cards.findIndex((card) => result.gone.includes(card.id));
    if (back < 0) return;
    cards[back].answer = null;
    query.forget?.(cards[back]);
    cards[back].id = makeUuid();
    current = back;
    showCard(back);
    focusCard();
  } catch (error) {
    tell(error.message);
  }
}

/** Show the current sound in its recording. */
function showPlace() {
  const card = cards[current];
  if (!card) return;
  dialog.close();
  emit("place", card);
}

function press(event) {
  if (event.altKey || event.defaultPrevented || document.querySelector("#help[open]")) return;
  if (naming) {
    if (event.key === "Escape") {
      event.preventDefault();
      closeOther();
    }
    return;
  }
  const onButton = event.target.tagName === "BUTTON" && [" ", "Enter"].includes(event.key);
  const name = event.ctrlKey || event.metaKey ? `Ctrl+${event.key.toLowerCase()}` : event.key;
  const row = SIMILAR_KEYS.find(([, keys]) => keys.includes(name));
  if (!row || onButton) return;
  event.preventDefault();
  row[3](event);
}

/** Connect the dialog. */
export function startSimilar() {
  dialog.addEventListener("keydown", press);
  for (const name of ["play", "pause", "ended"]) audio.addEventListener(name, showPlaying);
  dialog.addEventListener("close", () => {
    audio.pause();
    asked += 1;
    byId("main").focus({ preventScroll: true });
  });
}

