// Axes of the spectrogram: where ticks stand and what they say.

import { byId, make } from "./dom.js";
import { formatHertz, formatTime } from "./format.js";

const DAY_S = 86400;
const TIME_STEPS = [2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY_S];

/** Return a round step (1, 2 or 5 times a power of ten) for about `count` ticks. */
export function roundStep(length, count) {
  const rough = length / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999);
}

/** Return multiples of a round step between two values. */
function linearTicks(low, high, count) {
  return multiples(low, high, roundStep(high - low, count));
}

/** Return multiples of a step between two values. */
function multiples(low, high, step) {
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => (first + index) * step);
}

/** Return 1, 2 and 5 times the powers of ten between two values. */
function logTicks(low, high) {
  const powers = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) powers.push(10 ** power);
  const ticks = powers.flatMap((power) => [power, 2 * power, 5 * power]);
  return ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
}

/** Return the height of a frequency in the picture, as a share from the bottom. */
export function frequencyShare(hertz, low, high, scale) {
  if (scale === "log") return Math.log(hertz / low) / Math.log(high / low);
  return (hertz - low) / (high - low);
}

/** Return the frequency at a share of the height of the picture, from the bottom. */
export function shareFrequency(share, low, high, scale) {
  if (scale === "log") return low * (high / low) ** share;
  return low + share * (high - low);
}

/** Draw the frequency axis beside a picture of `height` pixels. */
export function drawFrequencyAxis(low, high, scale, height) {
  const count = Math.max(2, Math.round(height / 50));
  const isLog = scale === "log" && low > 0;
  const ticks = isLog ? logTicks(low, high) : linearTicks(low, high, count);
  const marks = ticks.map((tick) => {
    const mark = make("span", { class: "tick" }, formatHertz(tick));
    mark.style.bottom = `${100 * frequencyShare(tick, low, high, isLog ? "log" : "linear")}%`;
    return mark;
  });
  byId("frequency-axis").replaceChildren(make("span", { class: "unit" }, "Hz"), ...marks);
}

/** Return a round step of time for about `count` ticks: of a minute or an hour, if it is long. */
function timeStep(length, count) {
  return TIME_STEPS.find((step) => step >= length / count) ?? roundStep(length, count);
}

/** Draw the time axis below a picture; the clock is at `clock_s`, seconds of the day, at 0 s. */
export function drawTimeAxis(start, end, width, clock_s = null) {
  const count = Math.max(2, Math.round(width / 90));
  const rough = (end - start) / count;
  const step = rough > 1 ? timeStep(end - start, count) : roundStep(end - start, count);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const offset = clock_s ?? 0;
  const marks = multiples(start + offset, end + offset, step).map((time) => {
    const tick = time - offset;
    const day = ((time % DAY_S) + DAY_S) % DAY_S;
    const text = clock_s === null ? formatTime(tick, digits) : formatTime(day, digits, true);
    const mark = make("span", { class: "tick" }, text);
    mark.style.left = `${(100 * (tick - start)) / (end - start)}%`;
    return mark;
  });
  byId("time-axis").replaceChildren(...marks);
}
