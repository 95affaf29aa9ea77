// Numbers, times and names as people read them.

export const FORMATS = { raven: "Raven", audacity: "Audacity", kaleidoscope: "Kaleidoscope", csv: "CSV", parquet: "Parquet", segments: "Segments", study: "Study" };

/** Return a sentence with a capital letter. */
export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Format seconds of a recording as m:ss.s or h:mm:ss.s; with `long`, always the latter. */
export function formatTime(seconds, digits = 1, long = false) {
  const step = 10 ** -digits;
  const whole = Math.max(0, Math.round(seconds / step) * step);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = (whole % 60).toFixed(digits).padStart(digits ? digits + 3 : 2, "0");
  if (hours === 0 && !long) return `${minutes}:${rest}`;
  return `${hours}:${String(minutes).padStart(2, "0")}:${rest}`;
}

/** Format a length in seconds. */
export function formatLength(seconds) {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

/** Format a score with three digits, or a dash where there is none. */
export function formatScore(score) {
  return score === null || score === undefined ? "–" : score.toFixed(Math.abs(score) < 10 ? 3 : 1);
}

const ordinal = new Intl.PluralRules("en", { type: "ordinal" });
const ENDINGS = { one: "st", two: "nd", few: "rd", other: "th" };

/** Say how good a match is: how likely it is right, or its place among those of its label. */
export function describeScore(item) {
  const title = item.score === null ? "" : `Score ${formatScore(item.score)}`;
  if (item.added) return { text: "marked by hand", short: "by hand", title };
  if (item.probability !== null) {
    const interval = `${formatShare(item.probability_low)} – ${formatShare(item.probability_high)}`;
    const share = formatShare(item.probability);
    return { text: `${share} likely right (${interval})`, short: share, title: `By earlier reviews, with a 95 % interval. ${title}` };
  }
  if (item.rank === null) return { text: "no score", short: "", title };
  const of = item.rank_of.toLocaleString("en");
  const place = item.rank === 1 ? "best" : `${item.rank.toLocaleString("en")}${ENDINGS[ordinal.select(item.rank)]} best`;
  return { text: `${place} of ${of}`, short: `${item.rank} of ${of}`, title: `Among the calls with this label. ${title}` };
}

/** Format a share of one as per cent. */
export function formatShare(share) {
  return share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`;
}

/** Format a frequency: below 1 kHz in Hz. */
export function formatHertz(hertz) {
  return hertz < 1000 ? `${Number(hertz.toPrecision(3))}` : `${Number((hertz / 1000).toPrecision(3))}k`;
}

/** Format the clock time of an item, as the recorder wrote it. */
export function formatClock(clock) {
  return clock === null || clock === undefined ? "" : clock.replace("T", " ").slice(0, 19);
}

/** Format a count with the right noun. */
export function formatCount(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return the last part of a path. */
export function baseName(path) {
  return path.split(/[/\\]/).pop();
}

const VERDICTS = { confirm: "yes", reject: "no", skip: "skipped", span: "limits changed", split: "split", add: "call marked" };

/** Describe a decision in a word or two. */
export function describeDecision(decision) {
  if (decision.action === "relabel") return decision.label;
  return VERDICTS[decision.action] ?? decision.action;
}

/** Format a speed: × 4, or ÷ 8 for slower ones. */
export function formatSpeed(speed) {
  return speed < 1 ? `÷ ${1 / speed}` : `× ${speed}`;
}
