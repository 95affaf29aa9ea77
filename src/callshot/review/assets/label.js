// The page to label recordings: the list of recordings, controls, keys, and what follows.

import { getFile, getJson, withQuery } from "./api.js";
import { byId, debounce, make, makeButton, makeField, makeOptions } from "./dom.js";
import { baseName, FORMATS, formatClock, formatCount, formatShare, formatSpeed, formatTime } from "./format.js";
import { isTyping, listenToKeys, nameKey, toggleHelp } from "./keytable.js";
import { findAll, openReview, showAdvice, showFinding, startTasks } from "./labelfind.js";
import { addBox, boxes, changeHistory, choose, chooseNext, chosenBox, closeNamer, deleteBox, markNothing, nudge, openBoxes, openNamer, playBox, repeatName, startBoxes, takeBoxes } from "./labelboxes.js";
import { describeOrder, makeNews, openKinds, sortRecordings, startKinds } from "./labelkinds.js";
import { openSimilar, SIMILAR_KEYS, startSimilar } from "./labelsimilar.js";
import { moveCursor, play, playTime, sound, stop } from "./labelsound.js";
import { columnLength, draw, formatMoment, scrollBy, scrollTo, showAll, showRecording, toTime, toX, view, viewEnd, zoomBy } from "./labelview.js";
import { explainStart, startNotes } from "./notes.js";
import { resumeUnsaved, sendNow, setOnline } from "./outbox.js";
import { changeSettings, loadSettings, readStored, settings, SPEEDS, stepValue, storageKey, writeStored } from "./settings.js";
import { emit, on, state } from "./state.js";
import { startTheme } from "./theme.js";

const PAUSE_MS = 1500;
const HEADERS_MS = 700; // until recordings whose headers are being read are asked for again
const GAINS = [-12, -6, 0, 6, 12, 18, 24, 30, 36];
const TOPS = [50, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000, 24000, 48000, 96000, 125000, 200000];
const recordings = new Map(); // name → recording
let seq = 0;

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Recordings

/** Load the list; again until the headers of all recordings are read. */
async function loadRecordings() {
  const answer = await getJson("/api/recordings");
  for (const row of answer.recordings) recordings.set(row.name, { ...recordings.get(row.name), ...row });
  showRecordings();
  if (answer.pending) setTimeout(() => loadRecordings().catch(() => {}), HEADERS_MS);
}

/** Return the seconds that were listened to, or marked as nothing. */
const heardLength = (row) => (row.listened ?? []).reduce((sum, [start, end]) => sum + end - start, 0);

/** Describe a recording in a line. */
function describeRecording(row) {
  const parts = [formatClock(row.clock), row.duration_s ? formatTime(row.duration_s, 0) : "…"];
  if (row.boxes) parts.push(formatCount(row.boxes, "call"));
  if (row.duration_s && heardLength(row)) parts.push(`${formatShare(heardLength(row) / row.duration_s)} heard`);
  return parts.filter(Boolean).join(" · ");
}

function makeRecording(row) {
  const isOpen = row.name === view.recording?.name;
  const facts = row.problem ? make("span", { class: "why" }, row.problem) : make("span", { class: "facts" }, describeRecording(row));
  const note = row.note ? make("span", { class: "why" }, row.note) : null;
  const attributes = { type: "button", class: "recording", "data-name": row.name, title: row.name, "aria-current": isOpen ? "true" : null, disabled: Boolean(row.problem), click: () => open(row.name) };
  return make("button", attributes, make("bdi", {}, baseName(row.name)), makeNews(row.name), facts, note);
}

function showRecordings() {
  const focused = document.activeElement?.dataset?.name;
  const text = settings.order === "hear" ? describeOrder() || "Not ready yet: recordings are being prepared." : "";
  byId("order-text").textContent = text;
  byId("list").replaceChildren(...sortRecordings([...recordings.values()]).map(makeRecording));
  if (focused) byId("recordings").querySelector(`[data-name="${CSS.escape(focused)}"]`)?.focus();
  showPanel();
}

const showSoon = debounce(showRecordings, 100);

let asked = null; // the recording that was asked for last; keys may be faster than answers

/** Open a recording; `start_s` is where it was left. */
async function open(name, start_s = 0) {
  asked = name;
  view.opening = true;
  stop();
  draw();
  try {
    let before;
    let answer;
    do {
      before = seq;
      answer = await getJson("/api/recording", { recording: name });
    } while (before !== seq && asked === name); // boxes have changed meanwhile
    recordings.set(name, answer.recording);
    if (asked !== name) return;
    view.opening = false;
    sound.cursor_s = start_s;
    showRecording(answer.recording);
    openBoxes(answer.boxes);
    if (start_s) scrollTo(start_s);
    byId("file").textContent = name;
    byId("recordings").querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
  } catch (error) {
    if (asked === name) {
      asked = view.recording?.name;
      view.opening = false;
      draw();
    }
    emit("note", error.message);
    loadRecordings().catch(() => {});
  }
  showRecordings();
}

/** Show a span of any recording, with the cursor at its start. */
async function showPlace({ recording, start_s, end_s }) {
  if (recording !== asked) await open(recording);
  if (recording !== view.recording?.name) return;
  scrollTo((start_s + end_s - view.width * columnLength()) / 2);
  moveCursor(start_s);
}

/** Open the next recording that can be shown, or the one before. */
function openNext(step) {
  const names = sortRecordings([...recordings.values()]).filter((row) => !row.problem).map((row) => row.name);
  const next = names[names.indexOf(asked) + step];
  if (next) open(next);
}

// Changes, also of other tabs and people

/** Take an answer: boxes, recordings and names that changed. */
function take(answer) {
  Object.assign(state.session, { names: answer.names, counts: answer.counts });
  takeBoxes(answer);
  for (const row of answer.recordings) {
    recordings.set(row.name, { ...recordings.get(row.name), ...row });
    if (row.name === view.recording?.name) view.recording.listened = row.listened;
  }
  showNames();
  showSoon();
  drawOverview();
}

async function follow() {
  for (;;) {
    try {
      const answer = await getJson("/api/changes", { after: seq });
      if (!state.online) {
        setOnline(true);
        sendNow();
      }
      if (answer.seq !== seq) take(answer);
      seq = answer.seq;
    } catch (error) {
      setOnline(false, error);
      await pause(PAUSE_MS);
    }
  }
}

function showNames() {
  byId("names").replaceChildren(...state.session.names.map((name) => make("option", { value: name })));
}

// The bar below the picture

/** Show where the picture is in the recording, what was heard, and where boxes are. */
function drawOverview() {
  if (!view.recording) return;
  const length = view.recording.duration_s;
  const share = (time_s) => `${(100 * time_s) / length}%`;
  const put = (name, start, end) => {
    const part = make("span", { class: name });
    part.style.left = share(start);
    if (end !== undefined) part.style.width = share(end - start);
    return part;
  };
  const heard = (view.recording.listened ?? []).map(([start, end]) => put("heard", start, end));
  const marks = [...boxes.values()].filter((box) => box.label !== null).map((box) => put("call", box.start_s));
  const bar = byId("overview");
  bar.replaceChildren(...heard, ...marks, put("window", view.start_s, Math.min(length, viewEnd())));
  bar.setAttribute("aria-valuemax", length.toFixed(1));
  bar.setAttribute("aria-valuenow", view.start_s.toFixed(1));
  bar.setAttribute("aria-valuetext", `${formatMoment(view.start_s)} – ${formatMoment(Math.min(length, viewEnd()))}`);
  const strips = (view.recording.listened ?? []).filter(([start, end]) => end > view.start_s && start < viewEnd()).map(([start, end]) => {
    const strip = make("span");
    strip.style.left = `${toX(start)}px`;
    strip.style.width = `${toX(end) - toX(start)}px`;
    return strip;
  });
  byId("heard").replaceChildren(...strips);
  movePlayhead();
}

/** Put the cursor where the sound is; the picture follows. */
function movePlayhead() {
  const time = playTime();
  if (sound.playing && (time > viewEnd() || time < view.start_s)) scrollTo(time);
  const head = byId("playhead");
  head.hidden = view.recording === null || time < view.start_s || time > viewEnd();
  if (!head.hidden) head.style.left = `${toX(time)}px`;
}

function jump(event) {
  if (event.buttons !== 1 || !view.recording) return;
  const area = byId("overview").getBoundingClientRect();
  const share = (event.clientX - area.left) / area.width;
  scrollTo(share * view.recording.duration_s - (view.width * columnLength()) / 2);
}

function turnWheel(event) {
  if (!view.recording) return;
  event.preventDefault();
  const x = event.clientX - byId("pane").getBoundingClientRect().left;
  if (event.ctrlKey || event.metaKey) zoomBy(event.deltaY > 0 ? 1 : -1, toTime(x));
  else scrollBy((event.deltaX + event.deltaY) / view.width);
}

// Controls

const togglePlay = () => (sound.playing ? stop() : play(playTime() >= view.recording.duration_s - 0.05 ? 0 : playTime()));
const toggle = (name) => changeSettings({ [name]: !settings[name] });
const stepSpeed = (step) => { changeSettings({ speed: stepValue(SPEEDS, settings.speed, step) }); emit("note", `Speed ${formatSpeed(settings.speed)}`); };
const stepTop = (step) => {
  const half = view.recording.rate_hz / 2;
  changeSettings({ max_hz: Math.min(half, stepValue([...TOPS.filter((top) => top < half), half], Math.min(settings.max_hz, half), step)) });
};
const stepContrast = (name, step) => changeSettings({ [name]: Math.max(name === "range_db" ? 10 : -150, settings[name] + step) });
const changeOrder = () => changeSettings({ order: settings.order === "hear" ? "time" : "hear" });
/** Zoom around the chosen box, or else the cursor, if they are seen. */
function zoom(step) {
  const box = chosenBox();
  const places = [box && (box.start_s + box.end_s) / 2, sound.cursor_s];
  zoomBy(step, places.find((one) => one !== null && one > view.start_s && one < viewEnd()));
  changeSettings({ level: Math.ceil(view.level) });
}


const KEYS = [
  ["Calls", ["a"], "add a box at the cursor (or drag one; with shift inside another)", addBox],
  ["Calls", ["Enter"], "name the chosen call", () => openNamer()],
  ["Calls", ["r"], "give it the last name", repeatName],
  ["Calls", ["s"], "same name: new boxes get the name of the chosen box, or the last one", () => toggle("same")],
  ["Calls", ["m"], "more like the chosen call", () => openSimilar()],
  ["Calls", ["e"], "each kind of sound once: cards and a map", openKinds],
  ["Calls", ["F"], "find all calls, or stop it", findAll],
  ["Calls", ["R"], "review what was found", openReview],
  ["Calls", ["Delete", "Backspace"], "delete it", deleteBox],
  ["Calls", ["n"], "nothing here: no (other) call in what is seen", markNothing],
  ["Calls", ["u", "Ctrl+z"], "undo", () => changeHistory("/api/undo")],
  ["Calls", ["U", "Ctrl+y"], "redo", () => changeHistory("/api/redo")],
  ["Calls", ["j"], "next call", () => chooseNext(1)],
  ["Calls", ["k"], "the call before", () => chooseNext(-1)],
  ["Calls", ["Escape"], "choose none", () => { closeNamer(); choose(null); }],
  ["Limits", ["["], "start earlier", () => nudge(-1, 0, -1, 0)],
  ["Limits", ["{"], "start later", () => nudge(-1, 0, 1, 0)],
  ["Limits", ["]"], "end later", () => nudge(1, 0, 1, 0)],
  ["Limits", ["}"], "end earlier", () => nudge(1, 0, -1, 0)],
  ["Limits", ["ArrowUp"], "top higher (with shift: bottom)", (event) => nudge(0, event.shiftKey ? -1 : 1, 0, 1)],
  ["Limits", ["ArrowDown"], "top lower (with shift: bottom)", (event) => nudge(0, event.shiftKey ? -1 : 1, 0, -1)],
  ["Limits", ["<"], "move earlier", () => nudge(0, 0, -1, 0)],
  ["Limits", [">"], "move later", () => nudge(0, 0, 1, 0)],
  ["Limits", ["h"], "move higher", () => nudge(0, 0, 0, 1)],
  ["Limits", ["l"], "move lower", () => nudge(0, 0, 0, -1)],
  ["Sound", [" "], "play from the cursor, stop", togglePlay],
  ["Sound", ["p"], "play the chosen call", playBox],
  ["Sound", ["f"], "only the frequencies of the call", () => toggle("band")],
  ["Sound", ["+", "="], "faster, with the pitch up", () => stepSpeed(1)],
  ["Sound", ["-"], "slower", () => stepSpeed(-1)],
  ["Sound", [","], "cursor back", () => moveCursor(playTime() - 0.05 * view.width * columnLength())],
  ["Sound", ["."], "cursor on", () => moveCursor(playTime() + 0.05 * view.width * columnLength())],
  ["View", ["ArrowRight"], "on by a quarter", () => scrollBy(0.25)],
  ["View", ["ArrowLeft"], "back by a quarter", () => scrollBy(-0.25)],
  ["View", ["PageDown"], "next page", () => scrollBy(1)],
  ["View", ["PageUp"], "page before", () => scrollBy(-1)],
  ["View", ["Home"], "start of the recording", () => scrollTo(0)],
  ["View", ["End"], "end of the recording", () => scrollTo(Infinity)],
  ["View", ["z"], "zoom in (or Ctrl and wheel)", () => zoom(-1)],
  ["View", ["x"], "zoom out", () => zoom(1)],
  ["View", ["w"], "whole recording", showAll],
  ["View", ["t"], "show higher frequencies", () => stepTop(1)],
  ["View", ["g"], "show fewer frequencies", () => stepTop(-1)],
  ["View", ["b"], "brighter", () => stepContrast("floor_db", -5)],
  ["View", ["d"], "darker", () => stepContrast("floor_db", 5)],
  ["View", ["c"], "more contrast", () => stepContrast("range_db", -5)],
  ["View", ["v"], "less contrast", () => stepContrast("range_db", 5)],
  ["View", ["o"], "order of recordings: by time, or most to hear first", changeOrder],
  ["View", ["J"], "next recording", () => openNext(1)],
  ["View", ["K"], "recording before", () => openNext(-1)],
  ["View", ["?"], "this help", () => showHelp()],
];
const GROUPS = ["Calls", "Sound", "View", "Limits", "More like this"];

function showHelp() {
  toggleHelp(GROUPS, [...KEYS, ...SIMILAR_KEYS]);
}

function press(event) {
  if (event.altKey || event.defaultPrevented || !view.recording || isTyping(event)) return;
  const row = KEYS.find(([, keys]) => keys.includes(nameKey(event)));
  if (!row) return;
  event.preventDefault();
  row[3](event);
}

function makeToggle(name, text, key, title) {
  const button = makeButton(text, key, () => toggle(name), { id: name, title, "aria-keyshortcuts": key });
  const show = () => button.setAttribute("aria-pressed", String(Boolean(settings[name])));
  on("settings", show);
  show();
  return button;
}

/** Make a select that changes a setting. */
function makeSelect(id, title, pairs, name, read = Number) {
  const select = make("select", { id, title, "aria-label": title, change: () => changeSettings({ [name]: read(select.value) }) }, ...makeOptions(pairs, settings[name]));
  on("settings", () => { select.value = String(settings[name]); });
  return select;
}

/** Make a field for a number of the picture. */
function makeNumber(name, text, low) {
  const change = () => { if (input.value.trim() !== "" && Number(input.value) >= low) changeSettings({ [name]: Number(input.value) }); };
  const input = make("input", { id: `setting-${name}`, type: "number", step: "any", min: low, value: settings[name], change });
  on("settings", () => { input.value = settings[name]; });
  return makeField(text, input);
}

function startControls() {
  settings.order ??= "time";
  byId("list-tools").replaceChildren(
    makeSelect("order", "Order of recordings (o)", [["time", "by time"], ["hear", "most to hear first"]], "order", String),
    makeButton("Kinds of sounds", "e", openKinds, { id: "kinds", title: "Meet each kind of sound once", "aria-keyshortcuts": "e" }),
  );
  on("settings", (keys) => { if (keys.includes("order")) showRecordings(); });
  const playing = makeButton("Play", "space", togglePlay, { id: "play", "aria-keyshortcuts": "Space" });
  on("player", () => {
    playing.firstChild.textContent = sound.playing ? "Stop" : "Play";
    playing.dataset.playing = String(sound.playing);
  });
  byId("transport").prepend(
    playing,
    makeSelect("speed", "Speed of the sound", SPEEDS.map((value) => [value, formatSpeed(value)]), "speed"),
    makeButton("Zoom in", "z", () => zoom(-1)),
    makeButton("Zoom out", "x", () => zoom(1)),
    makeButton("Whole", "w", showAll, { title: "Show the whole recording" }),
    makeToggle("same", "Same name", "s", "New boxes get the name of the chosen box, or the last one, at once"),
    makeButton("Nothing here", "n", markNothing, { title: "There is no (other) call in what is seen" }),
    makeButton("Undo", "u", () => changeHistory("/api/undo")),
  );
  byId("transport").querySelector(".fields").replaceChildren(
    makeNumber("max_hz", "Highest frequency (Hz)", 1),
    makeNumber("floor_db", "Darkest level (dB)", -150),
    makeNumber("range_db", "Range of levels (dB)", 1),
    makeNumber("window_s", "Window (s)", 0.0001),
    makeField("Colours", makeSelect("colours", "Colours", Object.keys(state.session.palettes).map((name) => [name, name]), "colours", String)),
    makeField("Gain", makeSelect("gain", "Gain", GAINS.map((value) => [value, `${value > 0 ? "+" : ""}${value} dB`]), "gain_db")),
    makeToggle("band", "Filter", "f", "Play a call with its own frequencies only"),
    makeButton("Add", "a", addBox, { title: "Add a box at the cursor" }),
  );
}

/** Download a file; if it cannot be made, say why. */
async function download(event) {
  const link = event.currentTarget;
  event.preventDefault();
  emit("note", "Writing the file …");
  try {
    const file = await getFile(link.getAttribute("href"));
    make("a", { href: file.url, download: file.name }).click();
    setTimeout(() => URL.revokeObjectURL(file.url), 60_000);
  } catch (error) {
    emit("note", error.message);
  }
}

/** Show how much is done, exports, and what to do next. */
function showPanel() {
  const rows = [...recordings.values()].filter((row) => !row.problem);
  const calls = rows.reduce((sum, row) => sum + (row.boxes ?? 0), 0);
  const heard = rows.reduce((sum, row) => sum + heardLength(row), 0);
  const length = rows.reduce((sum, row) => sum + (row.duration_s ?? 0), 0);
  const [part, whole] = [heard, length].map((seconds) => Math.round(seconds / 60).toLocaleString("en"));
  byId("shown").textContent = `${formatCount(calls, "call")} in ${formatCount(rows.length, "recording")}, ${part} of ${whole} min listened to`;
  const names = state.session.names.map((name, place) => make("span", {}, make("bdi", {}, name), ` ${state.session.counts[place].toLocaleString("en")}`));
  const links = state.session.exports.map((name) => make("a", { class: "button", href: withQuery(`/api/export/${name}`, {}), download: true, "data-format": name, click: download }, FORMATS[name] ?? name));
  const commands = state.session.commands.map((command) => make("code", {}, command));
  byId("panel").replaceChildren(
    make("section", {}, make("h2", {}, "Names"), make("p", { class: "row names" }, ...(names.length ? names : ["No calls yet."])), make("div", { id: "advice", "data-label": "" })),
    make("section", {}, make("h2", {}, "Export"), make("div", { class: "row" }, ...links)),
    make("section", {}, make("h2", {}, "Find all calls"), make("div", { id: "finding" }), make("details", {}, make("summary", {}, "The same by commands"), ...commands)),
  );
  showFinding();
  showAdvice();
}

/** Keep where the page is, for the next visit. */
const keepPlace = debounce(() => {
  if (view.recording) writeStored(localStorage, storageKey("place"), { name: view.recording.name, start_s: view.start_s });
}, 300);

async function start() {
  state.unit = "change";
  state.session = await getJson("/api/session");
  seq = state.session.seq;
  loadSettings();
  document.title = `${state.session.title} · callshot label`;
  byId("title").textContent = state.session.title;
  startNotes();
  startTheme();
  startControls();
  startBoxes();
  startSimilar();
  startKinds();
  on("order", showSoon);
  startTasks();
  showNames();
  listenToKeys(press);
  byId("help-button").addEventListener("click", showHelp);
  for (const name of ["pointerdown", "pointermove"]) byId("overview").addEventListener(name, jump);
  byId("pane").addEventListener("wheel", turnWheel, { passive: false });
  on("drawn", () => { drawOverview(); keepPlace(); });
  on("playhead", movePlayhead);
  on("player", movePlayhead);
  on("answer", take);
  on("named", ({ name }) => changeSettings({ last_name: name }));
  on("similar", () => openSimilar());
  on("help", showHelp);
  on("place", showPlace);
  on("reopen", () => open(view.recording.name, view.start_s));
  const resumed = resumeUnsaved();
  await loadRecordings();
  const place = readStored(localStorage, storageKey("place"));
  const known = recordings.get(place?.name);
  const first = [...recordings.values()].find((row) => !row.problem);
  if (known && !known.problem) await open(known.name, place.start_s);
  else if (first) await open(first.name);
  follow();
  await resumed;
}

start().catch(explainStart);
