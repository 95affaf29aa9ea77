"use strict";
// One chart over k, drawn by uPlot: lines with bands, levels across, k*, a cursor that stands on shots, and zoom.
//
// A picture is { shots, lines: [{ name, look, dash, mean, low, high, bare }], levels: [{ name, value, look, dash }], best,
// log, bounded }; `look` is a colour's number, null for ink; a bare line is thin and has no band. Lists of a line have a
// value, or null, for every shot.

const COLOURS = 7;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const BAND = "2b"; // the opacity of a band, as the last two hexadecimal digits of a colour
const CLOSE = 36; // px between numbers on the axis of k
const STEPS = [1, 5, 10, 50, 100, 500, 1000, Infinity];
const ROUND = [100, 50, 10, 5, 2, 1];
const HEIGHT = 340;
const TWICE = 350; // ms between two taps that are one gesture

/** Return the look of the n-th line: colours and dashes come round at different times. */
function lookOf(n) {
  return { look: n % COLOURS, dash: DASHES[n % DASHES.length] };
}

function colour(look) {
  const name = look === null ? "--ink" : typeof look === "number" ? `--colour-${look}` : `--${look}`;
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

class Chart {
  /** `onMove` hears the place of the shot under the cursor, `onZoom` the first and last shot shown, or null. */
  constructor(host, onMove, onZoom) {
    Object.assign(this, { host, onMove, onZoom, plot: null, picture: null, zoom: null, at: 0 });
    host.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(host);
  }

  /** Draw a picture; the cursor and the zoom stay where they are, if the shots do. */
  show(picture) {
    if (String(picture.shots) !== String(this.picture?.shots)) {
      this.zoom = null;
      this.at = Math.max(0, picture.shots.findLastIndex((k) => k <= picture.best));
    }
    this.plot?.destroy();
    this.picture = picture;
    const lists = picture.lines.flatMap((line) => [line.mean, line.low, line.high]);
    this.plot = new uPlot(this.options(), [picture.shots, ...lists], this.host);
    listenToTouch(this.plot);
    this.onZoom(this.zoom);
  }

  options() {
    return {
      width: this.host.clientWidth || 320,
      height: HEIGHT,
      padding: [14, 10, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, distr: this.picture.log ? 3 : 1, range: () => this.rangeOfK() },
        y: { range: (_, low, high) => this.rangeOfValues(low, high) },
      },
      series: [{}, ...this.picture.lines.flatMap((line) => this.series(line))],
      bands: this.picture.lines.flatMap(({ look, bare }, n) =>
        bare ? [] : [{ series: [3 * n + 3, 3 * n + 2], fill: colour(look) + BAND }]),
      axes: [this.axisOfK(), this.axisOfValues()],
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        move: (plot, left, top) => [left < 0 ? left : plot.valToPos(plot.data[0][plot.posToIdx(left)], "x"), top],
        points: { size: (_, series) => (series % 3 === 1 ? 9 : 0) },
        bind: { mouseleave: () => null, dblclick: () => () => this.reset() },
      },
      hooks: {
        ready: [() => this.move(this.at)],
        setCursor: [(plot) => plot.cursor.left >= 0 && this.moved(plot.cursor.idx)],
        setSelect: [(plot) => this.selected(plot)],
        drawAxes: [(plot) => drawLevels(plot, this.picture)],
        draw: [(plot) => drawNames(plot, this.picture)],
      },
    };
  }

  series({ look, dash, bare }) {
    const edge = { width: 0, points: { show: false } };
    const few = this.picture.shots.length <= (bare ? 1 : 60);
    const stroke = colour(look);
    const points = { show: few, size: 5, width: 1, fill: stroke, dash: [] };
    return [{ stroke, dash, width: bare ? 1.4 : 2, points }, edge, edge];
  }

  axisOfK() {
    const ink = colour("quiet");
    const splits = (plot) => chooseTicks(plot, this.picture.shots);
    const values = (_, shots) => shots.map(String);
    const label = `k, exemplars per class${this.picture.log ? " (logarithmic)" : ""}`;
    return { stroke: ink, font: FONT, label, labelFont: FONT, labelSize: 22, size: 30, grid: { show: false },
      ticks: { stroke: colour("rule"), size: 4 }, splits, filter: (_, shots) => shots, values };
  }

  axisOfValues() {
    const values = (_, ticks, __, ___, step) => ticks.map((value) => value.toFixed(Math.max(1, decimals(step))));
    const grid = { stroke: colour("rule"), width: 1 };
    return { stroke: colour("quiet"), font: FONT, size: 46, grid, ticks: { show: false }, values };
  }

  rangeOfK() {
    const shots = this.picture.shots;
    const [first, last] = this.zoom ?? [shots[0], shots.at(-1)];
    if (this.picture.log) {
      const air = Math.max((last / first) ** 0.03, 1.05);
      return [first / air, last * air];
    }
    const air = Math.max(0.03 * (last - first), 0.3);
    return [first - air, last + air];
  }

  rangeOfValues(low, high) {
    const ends = this.picture.levels.map((level) => level.value);
    if (low !== null && high !== null) ends.push(low, high);
    if (!ends.length) return [0, 1];
    const [least, most] = [Math.min(...ends), Math.max(...ends)];
    const air = 0.06 * (most - least) || 0.05;
    return this.picture.bounded ? [Math.max(least - air, -0.02), Math.min(most + air, 1.02)] : [least - air, most + air];
  }

  /** Put the cursor on a shot, the nearest one that is shown. */
  move(at) {
    const { shots } = this.picture;
    const [first, last] = this.zoom ?? [shots[0], shots.at(-1)];
    const k = Math.min(Math.max(shots[Math.min(Math.max(at, 0), shots.length - 1)], first), last);
    this.plot.setCursor({ left: this.plot.valToPos(k, "x"), top: 10 });
  }

  moved(at) {
    if (at === null || at === undefined) return;
    this.at = at;
    this.onMove(at);
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width <= 0) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomTo(plot.posToIdx(left), plot.posToIdx(left + width));
  }

  zoomTo(from, to) {
    const shots = this.picture.shots;
    const [first, last] = [Math.max(from, 0), Math.min(to, shots.length - 1)];
    if (first >= last) return;
    this.zoom = last - first === shots.length - 1 ? null : [shots[first], shots[last]];
    this.rescale();
  }

  reset() {
    this.zoom = null;
    this.rescale();
  }

  rescale() {
    const [min, max] = this.rangeOfK();
    this.plot.setScale("x", { min, max });
    this.onZoom(this.zoom);
    queueMicrotask(() => this.move(this.at)); // after uPlot's own, in which it moves the scales
  }

  /** Show half as many shots around the cursor, or twice as many. */
  zoomBy(factor) {
    const shots = this.picture.shots;
    const [first, last] = (this.zoom ?? [shots[0], shots.at(-1)]).map((k) => shots.indexOf(k));
    const half = Math.max(1, Math.round(((last - first) * factor) / 2));
    this.zoomTo(this.at - half, this.at + half);
  }

  key(event) {
    const acts = {
      ArrowLeft: () => this.move(this.at - 1),
      ArrowRight: () => this.move(this.at + 1),
      Home: () => this.move(0),
      End: () => this.move(this.picture.shots.length - 1),
      "+": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      Escape: () => this.reset(),
    };
    if (!(event.key in acts) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  }

  fit() {
    const width = this.host.clientWidth;
    if (!this.plot || !width || width === this.plot.width) return;
    this.plot.setSize({ width, height: HEIGHT });
    queueMicrotask(() => this.move(this.at));
  }
}

const FONT = "12px system-ui, sans-serif";

/** Return how many decimals the numbers need that stand a step apart. */
function decimals(step) {
  return Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
}

/** Choose the shots to number: those that are a round step apart, or, with logarithms, the roundest; none too close. */
function chooseTicks(plot, shots) {
  const { min, max, distr } = plot.scales.x;
  const shown = shots.filter((k) => k >= min && k <= max);
  const far = (a, b) => Math.abs(plot.valToPos(a, "x") - plot.valToPos(b, "x")) >= CLOSE;
  const apart = (ticks) => ticks.every((k, n) => n === 0 || far(k, ticks[n - 1]));
  const step = STEPS.find((step) => apart(shown.filter((k) => k % step === 0)));
  const even = shown.filter((k) => k % step === 0);
  const roundness = (k) => ROUND.findIndex((step) => k % step === 0);
  const rest = distr === 3 ? [...shown].sort((a, b) => roundness(a) - roundness(b) || a - b) : even;
  const kept = shown.slice(0, 1);
  for (const k of rest) if (kept.every((other) => far(k, other))) kept.push(k);
  return kept.sort((a, b) => a - b);
}

/** Draw the levels across the plot, and the line of k* with what lies beyond it shaded. */
function drawLevels(plot, picture) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const x = plot.valToPos(picture.best, "x", true);
  if (bestIsShown(plot, picture)) {
    ctx.fillStyle = colour("beyond");
    ctx.fillRect(x, bbox.top, bbox.left + bbox.width - x, bbox.height);
    drawLine(plot, [x, bbox.top, x, bbox.top + bbox.height], colour("quiet"), [4, 3]);
  }
  for (const { value, look, dash } of picture.levels) {
    const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
    drawLine(plot, [bbox.left, y, bbox.left + bbox.width, y], colour(look), dash);
  }
  ctx.restore();
}

/** Whether the line of k* is in sight, and something beyond it. */
function bestIsShown(plot, { best, shots }) {
  return best >= plot.scales.x.min && best < Math.min(plot.scales.x.max, shots.at(-1));
}

function drawLine({ ctx }, [x0, y0, x1, y1], stroke, dash) {
  ctx.strokeStyle = stroke;
  ctx.lineWidth = 1.2 * uPlot.pxRatio;
  ctx.setLineDash(dash.map((length) => length * uPlot.pxRatio));
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** Name the levels at the right edge, and k*; a name that would be far from its line is left to the readout. */
function drawNames(plot, picture) {
  const { ctx, bbox } = plot;
  const px = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${11 * px}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  let above = Infinity;
  const lowest = [...picture.levels].sort((a, b) => a.value - b.value);
  for (const { name, value, look } of lowest) {
    const own = plot.valToPos(value, "y", true) - 2 * px;
    const y = Math.min(own, above - 12 * px);
    if (own - y > 10 * px) continue;
    drawName(plot, name, bbox.left + bbox.width - 3 * px, y, colour(look));
    above = y;
  }
  if (bestIsShown(plot, picture)) {
    ctx.textAlign = "left";
    drawName(plot, `k* = ${picture.best}`, plot.valToPos(picture.best, "x", true), bbox.top - 1 * px, colour("quiet"));
  }
  ctx.restore();
}

function drawName({ ctx }, name, x, y, fill) {
  ctx.lineWidth = 3 * uPlot.pxRatio;
  ctx.strokeStyle = colour("paper");
  ctx.setLineDash([]);
  ctx.lineJoin = "round";
  ctx.strokeText(name, x, y);
  ctx.fillStyle = fill;
  ctx.fillText(name, x, y);
}

/** Tell uPlot, which knows a mouse alone, what fingers do: move, drag sideways, and tap twice. */
function listenToTouch(plot) {
  const { over } = plot;
  let [down, tapped] = [0, 0];
  const pass = (kind, { clientX, clientY }, movementX) =>
    over.dispatchEvent(new MouseEvent(kind, { bubbles: true, clientX, clientY, movementX }));
  const listen = (kind, act) => over.addEventListener(kind, (event) => event.pointerType === "touch" && act(event));
  listen("pointerdown", (event) => {
    down = event.clientX;
    pass("mousemove", event, 1);
    pass("mousedown", event, 0);
  });
  listen("pointermove", (event) => pass("mousemove", event, 1));
  listen("pointerup", (event) => {
    pass("mouseup", event, 0);
    const tap = Math.abs(event.clientX - down) < 10;
    if (tap && event.timeStamp - tapped < TWICE) pass("dblclick", event, 0);
    tapped = tap ? event.timeStamp : 0;
  });
  listen("pointercancel", (event) => {
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false); // the page scrolls: that was no drag
    pass("mouseup", event, 0);
  });
}
