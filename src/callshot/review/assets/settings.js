// Settings of sound and picture: the same for all cards, remembered by the browser.

import { emit, state } from "./state.js";

export const SPEEDS = [0.0625, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16]; // below 1: bat calls become audible
export const CONTEXTS = [0, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60];
export const PICTURE_KEYS = ["window_s", "min_hz", "max_hz", "scale", "floor_db", "range_db", "colours"];
const THEME_KEY = "callshot.theme";

export const settings = {
  preset: "audible",
  context_s: 2,
  zoom: false,
  fit: true, // frequencies and contrast of the label
  speed: 1,
  gain_db: 0,
  loop: false,
  autoplay: false,
  only_selection: false,
  band: false,
  low_hz: null,
  high_hz: null,
  theme: "auto",
  panel: true,
};

/** Return the name under which the browser keeps a thing of this review. */
export function storageKey(name) {
  return `callshot.${name}.${state.session.review_id ?? state.session.title}`;
}

/** Read a value that the browser keeps; null when there is none or storage is off. */
export function readStored(storage, key) {
  try {
    return JSON.parse(storage.getItem(key));
  } catch {
    return null;
  }
}

/** Keep a value in the browser, if it lets us; null removes it. */
export function writeStored(storage, key, value) {
  try {
    if (value === null) storage.removeItem(key);
    else storage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

/** Start with the suggested preset, then with what was used last. */
export function loadSettings() {
  usePreset(state.session.preset);
  Object.assign(settings, readStored(localStorage, storageKey("settings")) ?? {});
  settings.theme = readStored(localStorage, THEME_KEY) ?? "auto";
  showTheme();
}

/** Take over the values of a preset without telling anyone. */
function usePreset(name) {
  const preset = state.session.presets[name];
  if (preset) Object.assign(settings, preset, { preset: name });
}

/** Change settings, keep them, and report what has to be drawn again. */
export function changeSettings(changes) {
  Object.assign(settings, changes);
  const { theme, ...rest } = settings;
  writeStored(localStorage, THEME_KEY, theme);
  writeStored(localStorage, storageKey("settings"), rest);
  showTheme();
  emit("settings", Object.keys(changes));
}

/** Use a preset: settings of the spectrogram and the speed. */
export function choosePreset(name) {
  changeSettings({ ...state.session.presets[name], preset: name, fit: false });
}

/** Change a setting of the spectrogram, which is then no preset any more. */
export function changePicture(changes) {
  const fit = settings.fit && ["colours", "scale"].includes(Object.keys(changes)[0]);
  changeSettings({ ...changes, preset: "own", fit });
}

/** Return the settings that the server needs to draw a spectrogram. */
export function pictureSettings() {
  const fit = settings.fit ? { fit: 1 } : {};
  return { ...Object.fromEntries(PICTURE_KEYS.map((key) => [key, settings[key] ?? null])), ...fit };
}

/** Return the settings that the server needs to make a sound. */
export function soundSettings() {
  const band = settings.band ? { low_hz: settings.low_hz, high_hz: settings.high_hz } : {};
  return { speed: settings.speed, gain_db: settings.gain_db, ...band };
}

/** Return the seconds before and after an item that are shown. */
export function contextOf(item) {
  if (settings.zoom) return Math.max(0.05, 0.08 * (item.end_s - item.start_s));
  return Math.min(settings.context_s, state.session.max_context_s);
}

/** Take the next larger or smaller value of a list. */
export function stepValue(values, value, step) {
  const above = values.filter((other) => other > value);
  const below = values.filter((other) => other < value);
  const next = step > 0 ? above[0] : below.at(-1);
  return next ?? value;
}

/** Show light, dark, or what the system prefers. */
function showTheme() {
  document.documentElement.dataset.theme = settings.theme;
}
