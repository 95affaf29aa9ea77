// The sound of a recording, piece after piece; what was played counts as listened to.

import { getFile, withQuery } from "./api.js";
import { Recent } from "./media.js";
import { makeUuid, send } from "./outbox.js";
import { settings } from "./settings.js";
import { emit, on } from "./state.js";
import { view } from "./labelview.js";

const PIECE_S = 15; // as it is heard
const SHORTEST_S = 0.05;
const sounds = new Recent(12, (file) => URL.revokeObjectURL(file.url));
const audio = new Audio();
audio.preload = "auto";
let piece = null; // {recording, start_s, end_s, stop_s, band, speed} in the player
let wanted = 0; // only the latest request to play counts

export const sound = { playing: false, cursor_s: 0 };

/** Return the time in the recording that is playing now, or of the cursor. */
export function playTime() {
  if (!sound.playing || piece === null) return sound.cursor_s;
  return Math.min(piece.end_s, piece.start_s + audio.currentTime * piece.speed);
}

/** Put the cursor somewhere; sound goes on from there. */
export function moveCursor(time_s) {
  sound.cursor_s = Math.max(0, Math.min(time_s, view.recording.duration_s));
  if (sound.playing) play(sound.cursor_s);
  emit("playhead");
}

/** Play from a time to another, or to the end; `band` is {low_hz, high_hz} or null. */
export function play(start_s, stop_s = view.recording.duration_s, band = null) {
  stop();
  if (stop_s - start_s < SHORTEST_S) return;
  startPiece({ recording: view.recording.name, start_s, stop_s, band, speed: settings.speed });
}

/** Stop; the cursor stays where the sound was. */
export function stop() {
  wanted += 1;
  if (sound.playing) noteListened(playTime());
  audio.pause();
  sound.playing = false;
  emit("player");
}

/** Return the next piece of a sound, or null at its end. */
function nextPiece({ stop_s, end_s, ...rest }) {
  return stop_s - end_s < SHORTEST_S ? null : { ...rest, stop_s, start_s: end_s };
}

/** Load the sound of a piece. */
function load({ recording, start_s, stop_s, band, speed }) {
  const end_s = Math.min(stop_s, start_s + PIECE_S * speed);
  const query = { recording, start_s, end_s, speed, gain_db: settings.gain_db, ...(band ?? {}) };
  const address = withQuery("/api/sound", query);
  return sounds.get(address, () => getFile(address));
}

async function startPiece(next) {
  const mine = ++wanted;
  try {
    const file = await load(next);
    if (mine !== wanted) return;
    piece = { ...next, start_s: file.number("X-Start-Seconds"), end_s: file.number("X-End-Seconds") };
    audio.src = file.url;
    await audio.play();
    if (mine !== wanted) return;
    sound.playing = true;
    emit("player");
    requestAnimationFrame(follow);
    const later = nextPiece(piece);
    if (later) load(later).catch(() => {});
  } catch (error) {
    if (mine !== wanted || error.name === "AbortError") return;
    sound.playing = false;
    const blocked = error.name === "NotAllowedError";
    emit("note", blocked ? "Press space to play: the browser waits for a key or a click." : error.message);
    emit("player");
  }
}

/** Move the cursor while the sound lasts. */
function follow() {
  if (!sound.playing) return;
  emit("playhead");
  requestAnimationFrame(follow);
}

/** Save what was played of the piece; a filtered sound does not tell what else there is. */
function noteListened(end_s) {
  const { recording, start_s, band } = piece;
  sound.cursor_s = end_s;
  if (band || end_s - start_s < SHORTEST_S) return;
  send("/api/listened", { uuid: makeUuid(), recording, start_s, end_s }).then((answer) => emit("answer", answer), () => {});
}

audio.addEventListener("ended", () => {
  if (!sound.playing) return;
  noteListened(piece.end_s);
  const next = nextPiece(piece);
  if (next) startPiece(next);
  else {
    sound.playing = false;
    emit("player");
  }
});

on("settings", (keys) => {
  if (sound.playing && keys.some((key) => ["speed", "gain_db"].includes(key))) play(playTime(), piece.stop_s, piece.band);
});
