// Decisions on their way to the server. Each stays in the browser's storage until the server has
// answered that it is saved; the same one sent twice is saved once.

import { postJson } from "./api.js";
import { readStored, storageKey, writeStored } from "./settings.js";
import { emit, state } from "./state.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 4000;

const waiting = []; // {uuid, path, body, made, resolve, reject} in the order of the reviewer
let sending = false;
let wait = FIRST_WAIT_MS;
let timer = null;
let count = 0;

/** Return how many decisions the server has not saved yet. */
export function unsavedCount() {
  return waiting.length;
}

/** Send a decision; the promise ends when it is saved, or refused. */
export function send(path, body) {
  const uuid = body.uuid ?? body.decisions?.[0].uuid ?? makeUuid();
  const parcel = { uuid, path, body, made: Date.now() + count++ / 1000 };
  writeStored(localStorage, parcelKey(uuid), parcel);
  return enqueue(parcel);
}

/** Return a random identifier; browsers keep crypto.randomUUID from plain http hosts. */
export function makeUuid() {
  if (crypto.randomUUID) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Send again what an earlier visit left unsaved. */
export function resumeUnsaved() {
  const prefix = parcelKey("");
  const keys = Object.keys(localStorage).filter((key) => key.startsWith(prefix));
  const parcels = keys.map((key) => readStored(localStorage, key)).filter((parcel) => parcel !== null);
  parcels.sort((a, b) => a.made - b.made);
  return Promise.allSettled(parcels.map(enqueue));
}

/** Try at once, for instance because the reviewer asked for it. */
export function sendNow() {
  clearTimeout(timer);
  timer = null;
  wait = FIRST_WAIT_MS;
  sendNext();
}

function parcelKey(uuid) {
  return `${storageKey("unsaved")}.${uuid}`;
}

function enqueue(parcel) {
  return new Promise((resolve, reject) => {
    waiting.push({ ...parcel, resolve, reject });
    emit("outbox");
    if (timer === null) sendNext();
  });
}

async function sendNext() {
  if (sending || waiting.length === 0) return;
  sending = true;
  const parcel = waiting[0];
  try {
    const answer = await postJson(parcel.path, parcel.body);
    setOnline(true);
    finish(parcel, () => parcel.resolve(answer));
  } catch (error) {
    handleFailure(parcel, error);
  }
  sending = false;
  if (timer === null) sendNext();
}

/** Keep a decision that the server may take later; drop one that it refuses. */
function handleFailure(parcel, error) {
  const later = error.status === 0 || error.status === 403 || error.status >= 500;
  if (!later) {
    finish(parcel, () => parcel.reject(error));
    return;
  }
  setOnline(false, error);
  timer = setTimeout(retry, wait);
  wait = Math.min(2 * wait, LONGEST_WAIT_MS);
}

function retry() {
  timer = null;
  sendNext();
}

function finish(parcel, settle) {
  waiting.shift();
  writeStored(localStorage, parcelKey(parcel.uuid), null);
  wait = FIRST_WAIT_MS;
  settle();
  emit("outbox");
}

/** Note whether the server answers; `error` says why not. */
export function setOnline(online, error = null) {
  const changed = state.online !== online;
  state.online = online;
  state.offlineWhy = error?.message ?? null;
  if (changed || !online) emit("online");
}
