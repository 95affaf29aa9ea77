"use strict";
// A chart over k, drawn by uPlot: lines with bands, horizontal levels, k*, a cursor on shots, and zoom.
//
// A picture is { shots, completeShots, firstShot, lines, levels, log, bounded }. A line is { name, colour, dash, mean, low, high,
// thin }; its lists have a value or null for every shot, and a thin line has no band. A level is { name, value, colour,
// dash }. A colour is a number, null for ink, or the name of a CSS variable. A picture may also have a height, marks (k, value
// and a text each), limits (of k and of values, shared by several pictures), and isNamed: names at the ends of its lines, and no cursor.

const COLOURS = 7;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const BAND_OPACITY = "2b"; // the last two hexadecimal digits of a colour
const TICK_DISTANCE = 36; // px between numbers on the axis of k
const TICK_STEPS = [1, 5, 10, 50, 100, 500, 1000, Infinity];
const ROUND_STEPS = [100, 50, 10, 5, 2, 1];
const HEIGHT = 340;
const DOUBLE_TAP_MS = 350;
const NAME_PX = 7.5; // of the width of a chart for each character of a name at the end of a line
const FONT = "12px system-ui, sans-serif";

/** Return the style of the n-th line; colours and dashes repeat at different numbers. */
function lineStyle(n) {
  return { colour: n % COLOURS, dash: DASHES[n % DASHES.length] };
}

function cssColour(colour) {
  let name = colour;
  if (colour === null) name = "ink";
  if (typeof colour === "number") name = `colour-${colour}`;
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

const PAPER_PX = 560;

class Chart {
  /** `onMove` gets the index of the shot under the cursor, `onZoom` the first and last shot or null. */
  constructor(host, onMove, onZoom) {
    Object.assign(this, { host, onMove, onZoom, plot: null, picture: null, zoom: null, index: 0 });
    host.addEventListener("keydown", (event) => this.handleKey(event));
    new ResizeObserver(() => requestAnimationFrame(() => this.resize())).observe(host);
  }

  /** Draw a picture; the cursor and the zoom stay as long as the shots are the same. */
  show(picture) {
    if (String(picture.shots) !== String(this.picture?.shots)) {
      this.zoom = null;
      this.index = Math.max(0, picture.shots.findLastIndex((k) => k <= picture.firstShot));
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
      width: this.width,
      height: this.height,
      padding: [14, 10, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, distr: this.picture.log ? 3 : 1, range: () => this.rangeOfK() },
        y: { range: (_, low, high) => this.rangeOfValues(low, high) },
      },
      series: [{}, ...this.picture.lines.flatMap((line) => this.series(line))],
      bands: this.picture.lines.flatMap((line, n) => this.bands(line, n)),
      axes: [this.axisOfK(), this.axisOfValues()],
      cursor: {
        show: !this.picture.isNamed,
        y: false,
        drag: { x: true, y: false, setScale: false },
        move: snapToShot,
        points: { size: (_, series) => (series % 3 === 1 ? 9 : 0) },
        bind: { mouseleave: () => null, dblclick: () => () => this.reset() },
      },
      hooks: {
        ready: [() => this.picture.isNamed || this.moveTo(this.index)],
        setCursor: [(plot) => plot.cursor.left >= 0 && this.handleMove(plot.cursor.idx)],
        setSelect: [(plot) => this.handleSelection(plot)],
        drawAxes: [(plot) => drawLevels(plot, this.picture)],
        draw: [(plot) => drawNames(plot, this.picture)],
      },
    };
  }

  /** Return the series of a line: its mean, and the two invisible edges of its band. */
  series({ colour, dash, thin }) {
    const edge = { width: 0, points: { show: false } };
    const mostPoints = thin ? 1 : 60;
    const stroke = cssColour(colour);
    const points = { show: this.picture.shots.length <= mostPoints, size: 5, width: 1, fill: stroke, dash: [] };
    return [{ stroke, dash, width: thin ? 1.4 : 2, points }, edge, edge];
  }

  bands({ colour, thin }, n) {
    return thin ? [] : [{ series: [3 * n + 3, 3 * n + 2], fill: cssColour(colour) + BAND_OPACITY }];
  }

  axisOfK() {
    return {
      stroke: cssColour("quiet"),
      font: FONT,
      label: this.picture.isNamed ? "k, examples per call type" : `k, exemplars per class${this.picture.log ? " (logarithmic)" : ""}`,
      labelFont: FONT,
      labelSize: 22,
      size: 30,
      grid: { show: false },
      ticks: { stroke: cssColour("rule"), size: 4 },
      splits: (plot) => chooseTicks(plot, this.picture.shots),
      filter: (_, shots) => shots,
      values: (_, shots) => shots.map(String),
    };
  }

  axisOfValues() {
    const values = (_, ticks, __, ___, step) => ticks.map((value) => value.toFixed(Math.max(1, decimals(step))));
    const grid = { stroke: cssColour("rule"), width: 1 };
    return { stroke: cssColour("quiet"), font: FONT, size: 46, grid, ticks: { show: false }, values };
  }

  get height() { return this.picture.height ?? HEIGHT; }

  /** The first and last shot that are shown. */
  get shownRange() {
    const { shots, limits } = this.picture;
    return this.zoom ?? limits?.k ?? [shots[0], shots.at(-1)];
  }

  rangeOfK() {
    const [first, last] = this.shownRange;
    if (this.picture.log) {
      const factor = Math.max((last / first) ** 0.03, 1.05);
      return [first / factor, last * factor];
    }
    const margin = Math.max(0.03 * (last - first), 0.3);
    return [first - margin, last + margin];
  }

  rangeOfValues(low, high) {
    if (this.picture.limits) return this.picture.limits.values;
    const ends = this.picture.levels.map((level) => level.value);
    if (low !== null && high !== null) ends.push(low, high);
    if (!ends.length) return [0, 1];
    const least = Math.min(...ends);
    const most = Math.max(...ends);
    const margin = 0.06 * (most - least) || 0.05;
    if (!this.picture.bounded) return [least - margin, most + margin];
    return [Math.max(least - margin, -0.02), Math.min(most + margin, 1.02)];
  }

  /** Move the cursor to a shot, or to the nearest one that is shown. */
  moveTo(index) {
    const { shots } = this.picture;
    const [first, last] = this.shownRange;
    const k = shots[clamp(index, 0, shots.length - 1)];
    this.plot.setCursor({ left: this.plot.valToPos(clamp(k, first, last), "x"), top: 10 });
  }

  handleMove(index) {
    if (index === null || index === undefined) return;
    this.index = index;
    this.onMove(index);
  }

  handleSelection(plot) {
    const { left, width } = plot.select;
    if (width <= 0) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoomTo(plot.posToIdx(left), plot.posToIdx(left + width));
  }

  zoomTo(from, to) {
    const { shots } = this.picture;
    const first = Math.max(from, 0);
    const last = Math.min(to, shots.length - 1);
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
    queueMicrotask(() => this.moveTo(this.index)); // after the microtask in which uPlot moves its scales
  }

  /** Show half as many shots around the cursor, or twice as many. */
  zoomBy(factor) {
    const [first, last] = this.shownRange.map((k) => this.picture.shots.indexOf(k));
    const half = Math.max(1, Math.round(((last - first) * factor) / 2));
    this.zoomTo(this.index - half, this.index + half);
  }

  handleKey(event) {
    const actions = {
      ArrowLeft: () => this.moveTo(this.index - 1),
      ArrowRight: () => this.moveTo(this.index + 1),
      Home: () => this.moveTo(0),
      End: () => this.moveTo(this.picture.shots.length - 1),
      "+": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      Escape: () => this.reset(),
    };
    if (!(event.key in actions) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** A chart for paper is small, and the paper enlarges it: its letters can be read. */
  get width() {
    const width = this.host.clientWidth || 320;
    return document.documentElement.hasAttribute("data-print") ? Math.min(width, PAPER_PX) : width;
  }

  resize() {
    const width = this.width;
    if (!this.plot || !this.host.clientWidth || width === this.plot.width) return;
    this.plot.setSize({ width, height: this.height });
    if (!this.picture.isNamed) queueMicrotask(() => this.moveTo(this.index));
  }
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, low), high);
}

/** Move the cursor to the nearest shot; uPlot hides it where `left` is negative. */
function snapToShot(plot, left, top) {
  if (left < 0) return [left, top];
  const k = plot.data[0][plot.posToIdx(left)];
  return [plot.valToPos(k, "x"), top];
}

/** Return how many decimals numbers need that are a step apart. */
function decimals(step) {
  return Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
}

/** Choose the shots to number: a round step apart, or the roundest on a logarithmic axis; none too close. */
function chooseTicks(plot, shots) {
  const { min, max, distr } = plot.scales.x;
  const shown = shots.filter((k) => k >= min && k <= max);
  const areApart = (a, b) => Math.abs(plot.valToPos(a, "x") - plot.valToPos(b, "x")) >= TICK_DISTANCE;
  const multiples = (step) => shown.filter((k) => k % step === 0);
  const fit = (ticks) => ticks.every((k, n) => n === 0 || areApart(k, ticks[n - 1]));
  const roundness = (k) => ROUND_STEPS.findIndex((step) => k % step === 0);
  const isLogarithmic = distr === 3;
  const candidates = isLogarithmic
    ? [...shown].sort((a, b) => roundness(a) - roundness(b) || a - b)
    : multiples(TICK_STEPS.find((step) => fit(multiples(step))));
  const ticks = shown.slice(0, 1);
  for (const k of candidates) if (ticks.every((other) => areApart(k, other))) ticks.push(k);
  return ticks.sort((a, b) => a - b);
}

/** Draw the horizontal levels, and the line of k* with a shade beyond it. */
function drawLevels(plot, picture) {
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  if (isCompleteShotsShown(plot, picture)) {
    const x = plot.valToPos(picture.completeShots, "x", true);
    ctx.fillStyle = cssColour("beyond");
    ctx.fillRect(x, bbox.top, right - x, bbox.height);
    drawLine(plot, [x, bbox.top, x, bbox.top + bbox.height], cssColour("quiet"), [4, 3]);
  }
  for (const { value, colour, dash } of picture.levels) {
    const y = Math.round(plot.valToPos(value, "y", true)) + 0.5;
    drawLine(plot, [bbox.left, y, right, y], cssColour(colour), dash);
  }
  ctx.restore();
}

/** Return whether the line of k* is visible, with shots beyond it. */
function isCompleteShotsShown(plot, { completeShots, shots }) {
  const { min, max } = plot.scales.x;
  return completeShots >= min && completeShots < Math.min(max, shots.at(-1));
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

/** Write the names of levels at an edge, and k*; a name far from its line is in the readout only. */
function drawNames(plot, picture) {
  const { ctx, bbox } = plot;
  const px = uPlot.pxRatio;
  ctx.save();
  ctx.font = `${11 * px}px system-ui, sans-serif`;
  ctx.textAlign = picture.isNamed ? "left" : "right"; // names of lines are at the right
  ctx.textBaseline = "bottom";
  const edge = picture.isNamed ? bbox.left + 4 * px : bbox.left + bbox.width - 3 * px;
  let previous = Infinity;
  const ascending = [...picture.levels].sort((a, b) => a.value - b.value);
  for (const { name, value, colour } of ascending) {
    const line = plot.valToPos(value, "y", true) - 2 * px;
    const y = Math.min(line, previous - 12 * px);
    if (line - y > 10 * px) continue;
    drawName(plot, name, edge, y, cssColour(colour));
    previous = y;
  }
  if (isCompleteShotsShown(plot, picture)) {
    const x = plot.valToPos(picture.completeShots, "x", true);
    ctx.textAlign = "left";
    drawName(plot, `k* = ${picture.completeShots}`, x, bbox.top - 1 * px, cssColour("quiet"));
  }
  const names = picture.isNamed ? drawLineNames(plot, picture) : [];
  for (const [k, value, text] of picture.marks ?? []) drawMark(plot, k, value, text, names);
  ctx.restore();
}

/** Write the names of lines above their right ends, none over another; return the lower left corner of each. */
function drawLineNames(plot, { shots, lines }) {
  const px = uPlot.pxRatio;
  const ends = lines.flatMap(({ name, colour, mean }) => {
    const last = mean.findLastIndex((value) => value !== null);
    if (last < 0) return [];
    const [x, y] = [plot.valToPos(shots[last], "x", true), plot.valToPos(mean[last], "y", true)];
    return [{ name, colour, x, y: y - 6 * px }];
  });
  plot.ctx.textAlign = "right";
  plot.ctx.font = `600 ${12.5 * px}px system-ui, sans-serif`;
  const longest = Math.floor(plot.bbox.width / (NAME_PX * px));
  const corners = [];
  let lowest = plot.bbox.top + 8 * px;
  for (const { name, colour, x, y } of ends.sort((a, b) => a.y - b.y)) {
    const shown = name.length > longest ? `${name.slice(0, longest - 1)}…` : name;
    const place = Math.max(y, lowest);
    drawName(plot, shown, x, place, cssColour(colour));
    corners.push([x - plot.ctx.measureText(shown).width, place]);
    lowest = place + 15 * px;
  }
  return corners;
}

/** Draw a point that the text is about, with its words: at its left, if there is room, and below where a name is above. */
function drawMark(plot, k, value, text, names) {
  const { ctx, bbox } = plot;
  const px = uPlot.pxRatio;
  const [x, y] = [plot.valToPos(k, "x", true), plot.valToPos(value, "y", true)];
  ctx.lineWidth = 2 * px;
  ctx.setLineDash([]);
  ctx.strokeStyle = cssColour("ink");
  ctx.fillStyle = cssColour("paper");
  ctx.beginPath();
  ctx.arc(x, y, 5 * px, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
  const isNamed = names.some(([left, place]) => left < x && Math.abs(place - y) < 25 * px);
  const hasRoom = x > bbox.left + 0.35 * bbox.width && !isNamed;
  ctx.textAlign = hasRoom ? "right" : "left";
  drawName(plot, text, x + (hasRoom ? -8 : 8) * px, y + (isNamed ? 20 : -5) * px, cssColour("ink"));
}

function drawName({ ctx }, name, x, y, fill) {
  ctx.lineWidth = 3 * uPlot.pxRatio;
  ctx.strokeStyle = cssColour("paper");
  ctx.setLineDash([]);
  ctx.lineJoin = "round";
  ctx.strokeText(name, x, y);
  ctx.fillStyle = fill;
  ctx.fillText(name, x, y);
}

/** Translate touches into mouse events, the only ones that uPlot handles: move, drag sideways, double tap. */
function listenToTouch(plot) {
  const { over } = plot;
  let startX = 0;
  let lastTap = 0;
  const send = (type, { clientX, clientY }, movementX) =>
    over.dispatchEvent(new MouseEvent(type, { bubbles: true, clientX, clientY, movementX }));
  const listen = (type, handle) =>
    over.addEventListener(type, (event) => event.pointerType === "touch" && handle(event));
  listen("pointerdown", (event) => {
    startX = event.clientX;
    send("mousemove", event, 1);
    send("mousedown", event, 0);
  });
  listen("pointermove", (event) => send("mousemove", event, 1));
  listen("pointerup", (event) => {
    send("mouseup", event, 0);
    const isTap = Math.abs(event.clientX - startX) < 10;
    if (isTap && event.timeStamp - lastTap < DOUBLE_TAP_MS) send("dblclick", event, 0);
    lastTap = isTap ? event.timeStamp : 0;
  });
  listen("pointercancel", (event) => {
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false); // the page scrolls, nobody drags
    send("mouseup", event, 0);
  });
}
