// Axes of the spectrogram: where ticks stand and what they say.

import { byId, make } from "./dom.js";
import { formatHertz, formatTime } from "./format.js";

/** Return a round step (1, 2 or 5 times a power of ten) for about `count` ticks. */
export function roundStep(length, count) {
  const rough = length / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999);
}

/** Return multiples of a round step between two values. */
function linearTicks(low, high, count) {
  const step = roundStep(high - low, count);
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

/** Draw the time axis below a picture of `width` pixels. */
export function drawTimeAxis(start, end, width) {
  const count = Math.max(2, Math.round(width / 90));
  const step = roundStep(end - start, count);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const marks = linearTicks(start, end, count).map((tick) => {
    const mark = make("span", { class: "tick" }, formatTime(tick, digits));
    mark.style.left = `${(100 * (tick - start)) / (end - start)}%`;
    return mark;
  });
  byId("time-axis").replaceChildren(...marks);
}
