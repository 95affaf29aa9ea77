// The sound of a card or an example. The server makes it faster; the browser plays it as it is.

import { loadExampleSound, loadSound } from "./media.js";
import { settings } from "./settings.js";
import { currentItem, emit, on } from "./state.js";

const audio = new Audio();
audio.preload = "auto";
let source = null; // {key, start_s, speed} of the sound in the player
let wanted = 0; // only the latest request to play counts

export const player = { playing: false, what: null };

/** Return the time in the recording that is playing now, or null. */
export function playTime() {
  return source === null ? null : source.start_s + audio.currentTime * source.speed;
}

/** Play or pause the card; while an example plays, stop it. */
export function togglePlay() {
  if (player.playing) stop();
  else playItem();
}

/** Stop the sound; the next play starts from its beginning. */
export function stop() {
  wanted += 1;
  audio.pause();
  note(); // the browser's own event comes later, maybe after the next key
}

/** Play the card from a time of the recording, or from its start. */
export async function playItem(from_s = null) {
  const item = currentItem();
  if (item !== null) await playFile("item", item.id, () => loadSound(item), from_s);
}

/** Play an example. */
export async function playExample(example) {
  await playFile("example", example.example, () => loadExampleSound(example), null);
}

/** Play an item that is not on the card: a tile of the grid. */
export async function playTile(item) {
  await playFile("tile", item.id, () => loadSound(item), null);
}

async function playFile(kind, id, load, from_s) {
  const mine = ++wanted;
  player.what = { kind, id };
  try {
    const file = await load();
    if (mine === wanted) await start(file, from_s);
  } catch (error) {
    if (mine === wanted && error.name !== "AbortError") refuse(error);
  }
}

/** Say why there is no sound. */
function refuse(error) {
  const blocked = error.name === "NotAllowedError";
  emit("note", blocked ? "Press space to play: the browser waits for a key or a click." : error.message);
  note();
}

async function start(file, from_s) {
  if (audio.src !== file.url) audio.src = file.url;
  source = { start_s: file.number("X-Start-Seconds"), speed: file.number("X-Speed") || 1 };
  audio.loop = settings.loop;
  audio.currentTime = from_s === null ? 0 : Math.max(0, (from_s - source.start_s) / source.speed);
  await audio.play();
}

function note() {
  player.playing = !audio.paused && !audio.ended;
  emit("player");
  if (player.playing) requestAnimationFrame(follow);
}

/** Move the playhead while the sound lasts. */
function follow() {
  emit("playhead");
  if (player.playing) requestAnimationFrame(follow);
}

/** Play again with changed settings, if it was playing. */
function changeSound(keys) {
  audio.loop = settings.loop;
  const audible = ["speed", "gain_db", "band", "low_hz", "high_hz", "only_selection"];
  if (player.playing && player.what.kind === "item" && keys.some((key) => audible.includes(key))) playItem();
}

/** Forget the sound of the last card; play the new one if the reviewer wants that. */
export function changeCard(isNew) {
  if (!isNew) return;
  stop();
  source = null;
  emit("playhead");
  if (settings.autoplay && navigator.userActivation?.hasBeenActive) playItem();
}

for (const event of ["play", "pause", "ended"]) audio.addEventListener(event, note);
on("settings", changeSound);
