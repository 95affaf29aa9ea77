// The nearest examples of the two best classes, to compare with by eye and ear.

import { byId, make } from "./dom.js";
import { baseName, formatLength, formatTime } from "./format.js";
import { loadExamplePicture, loadExamples, loadExampleSound } from "./media.js";
import { playExample, player, stop } from "./player.js";
import { currentItem, emit, on, state } from "./state.js";

const WIDTH = 132;
const HEIGHT = 76;
let classes = []; // of the item on the card
let turns = [0, 0]; // the next example of each class that its key plays
let shows = 0;

/** Show the examples of the item on the card. */
async function showExamples() {
  const item = currentItem();
  const mine = ++shows;
  if (item === null) return;
  const answer = await loadExamples(item, state.session.score_version ?? 0).catch(() => null);
  if (mine !== shows) return;
  classes = answer?.classes ?? [];
  turns = classes.map(() => 0);
  byId("examples").replaceChildren(...classes.map(makeClass));
}

function makeClass(group, index) {
  const key = index < 2 ? make("kbd", { "aria-hidden": "true" }, ["e", "d"][index]) : null;
  const heading = make("h3", {}, "Examples of ", make("b", {}, group.label), " ", key);
  const empty = make("p", { class: "quiet" }, "No example of this call can be played here.");
  const tiles = group.examples.length ? group.examples.map((example) => makeTile(example, group.label)) : [empty];
  return make("div", { class: "class" }, heading, make("div", { class: "row" }, ...tiles));
}

function makeTile(example, label) {
  const image = make("img", { alt: "", width: WIDTH, height: HEIGHT, draggable: "false" });
  const where = `${baseName(example.recording)} at ${formatTime(example.start_s)}`;
  const text = `${formatLength(example.end_s - example.start_s)}${example.confirmed ? " · reviewed" : ""}`;
  const button = make(
    "button",
    {
      type: "button",
      class: "example",
      "data-example": example.example,
      "aria-label": `Play an example of ${label}, ${where}`,
      title: where,
      click: () => toggleExample(example),
    },
    image,
    make("span", { class: "quiet" }, text),
  );
  loadExamplePicture(example, WIDTH, HEIGHT).then((file) => { image.src = file.url; }, () => {});
  return button;
}

function toggleExample(example) {
  const here = player.playing && player.what.kind === "example" && player.what.id === example.example;
  if (here) stop();
  else playExample(example);
}

/** Play the next example of the best (0) or second best (1) class. */
export function playNextExample(index) {
  const examples = classes[index]?.examples ?? [];
  if (examples.length === 0) {
    emit("note", "There is no example to play.");
    return;
  }
  playExample(examples[turns[index] % examples.length]);
  turns[index] += 1;
}

/** Mark the example that is playing. */
function showPlaying() {
  for (const tile of byId("examples").querySelectorAll("[data-example]")) {
    const here = player.playing && player.what?.kind === "example" && String(player.what.id) === tile.dataset.example;
    tile.dataset.playing = String(here);
  }
}

/** Have the examples of items ready. */
export async function prefetchExamples(item) {
  const answer = await loadExamples(item, state.session.score_version ?? 0).catch(() => null);
  for (const group of answer?.classes ?? []) {
    for (const example of group.examples) loadExamplePicture(example, WIDTH, HEIGHT).catch(() => {});
    if (group.examples.length) loadExampleSound(group.examples[0]).catch(() => {});
  }
}

/** Start listening for changes of the card. */
export function startExamples() {
  on("card", () => { if (state.mode === "card") showExamples(); });
  on("settings", (keys) => { if (keys.includes("colours") || keys.includes("fit") || keys.includes("min_hz") || keys.includes("window_s")) showExamples(); });
  on("player", showPlaying);
}
