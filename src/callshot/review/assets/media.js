// Pictures and sounds from the server, kept so that the next card shows at once.

import { getFile, getJson, withQuery } from "./api.js";
import { contextOf, pictureSettings, settings, soundSettings } from "./settings.js";

const LARGEST_PICTURE = 2048;

/** A map that forgets what was not used for longest; `drop` gets what is forgotten. */
export class Recent {
  constructor(size, drop = () => {}) {
    this.size = size;
    this.drop = drop;
    this.entries = new Map();
  }

  /** Return the promise under a key, or make it; a failed one is forgotten. */
  get(key, load) {
    const promise = this.entries.get(key) ?? this.start(key, load);
    this.entries.delete(key);
    this.entries.set(key, promise);
    this.shrink();
    return promise;
  }

  start(key, load) {
    const promise = load();
    promise.catch(() => this.entries.delete(key));
    return promise;
  }

  shrink() {
    while (this.entries.size > this.size) {
      const [key, promise] = this.entries.entries().next().value;
      this.entries.delete(key);
      promise.then(this.drop, () => {});
    }
  }

  clear() {
    for (const promise of this.entries.values()) promise.then(this.drop, () => {});
    this.entries.clear();
  }
}

const release = (file) => URL.revokeObjectURL(file.url);
const pictures = new Recent(160, release);
const sounds = new Recent(40, release);
const waveforms = new Recent(40);
const exampleLists = new Recent(40);

/** Return what names the limits of an item: when they move, pictures and sounds are others. */
function spanKey(item) {
  return `${item.start_s}-${item.end_s}`;
}

/** Return the size of a picture in pixels of the screen, within what the server draws. */
function pixels(width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, LARGEST_PICTURE / Math.max(width, height));
  return { width: Math.max(16, Math.round(width * ratio)), height: Math.max(16, Math.round(height * ratio)) };
}

/** Return the query of an item with its context. */
function viewQuery(item) {
  const context = contextOf(item);
  return { item: item.id, before: context, after: context };
}

/** Load a picture: {url, number(header)}. */
function loadPicture(query, width, height, key) {
  const address = withQuery("/api/spectrogram", { ...query, ...pixels(width, height), ...pictureSettings() });
  return pictures.get(`${address}#${key}`, () => getFile(address));
}

/** Load the spectrogram of an item and its context. */
export function loadSpectrogram(item, width, height) {
  return loadPicture(viewQuery(item), width, height, spanKey(item));
}

/** Load the spectrogram of an example, with a little context. */
export function loadExamplePicture(example, width, height) {
  return loadPicture({ example: example.example, before: 0.1, after: 0.1 }, width, height, "");
}

/** Load the lowest and highest value of the sound in each of `width` columns. */
export function loadWaveform(item, width) {
  const query = { ...viewQuery(item), width: pixels(width, 16).width };
  const key = `${withQuery("", query)}#${spanKey(item)}`;
  return waveforms.get(key, () => getJson("/api/waveform", query));
}

/** Load the sound of an item: with its context, or the selection only. */
export function loadSound(item) {
  const span = { start_s: item.start_s, end_s: item.end_s };
  const query = settings.only_selection ? { item: item.id, before: 0, after: 0, ...span } : viewQuery(item);
  return loadSoundFile(query, spanKey(item));
}

/** Load the sound of an example. */
export function loadExampleSound(example) {
  return loadSoundFile({ example: example.example, before: 0.1, after: 0.1 }, "");
}

function loadSoundFile(query, key) {
  const address = withQuery("/api/sound", { ...query, ...soundSettings() });
  return sounds.get(`${address}#${key}`, () => getFile(address));
}

/** Load the nearest examples of the two best classes. */
export function loadExamples(item, version) {
  const key = `${item.id}#${version}`;
  return exampleLists.get(key, () => getJson(`/api/items/${item.id}/examples`));
}
