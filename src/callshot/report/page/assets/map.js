"use strict";
// The map of calls: a point plays, arrow keys walk over points, and a line drawn around points lists them.

const MAP_SIDE = 1000; // of the data
const MARGIN = 24;
const NEAR = 12; // px from a point
const MAX_LISTED = 60;

class CallMap {
  constructor(host, data) {
    Object.assign(this, { host, data, state: { corpus: 0, encoder: 0 }, lasso: null, chosen: -1, selected: new Set() });
    this.controls = makeElement("div", { class: "fields" });
    this.canvas = makeElement("canvas", { class: "map", tabindex: 0, role: "img", "data-testid": "map-canvas",
      "aria-label": "Map of calls: arrow keys walk from call to call, Enter plays" });
    this.legend = makeElement("div", { class: "legend" });
    this.list = makeElement("div", { class: "readout", "aria-live": "polite", "data-testid": "map-list" });
    const drawing = makeElement("div", { class: "drawing" }, this.canvas, this.legend);
    host.append(this.controls, makeElement("div", { class: "side-by-side map-side" }, drawing, this.list));
    this.listen();
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(this.canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    this.update({ corpus: 0 });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }
  get points() { return this.corpus.encoder_calls[this.state.encoder].map; }

  listen() {
    const at = (event) => [event.offsetX, event.offsetY];
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      this.lasso = [at(event)];
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!this.lasso) return;
      this.lasso.push(at(event));
      this.draw();
    });
    this.canvas.addEventListener("pointerup", (event) => this.finish(at(event)));
    this.canvas.addEventListener("pointercancel", () => { this.lasso = null; this.draw(); });
    this.canvas.addEventListener("keydown", (event) => this.handleKey(event));
  }

  handleKey(event) {
    const count = this.points.length;
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) this.choose((this.chosen + steps[event.key] + count) % count, false);
    else if (event.key === "Enter" && this.chosen >= 0) this.choose(this.chosen, true);
    else return;
    event.preventDefault();
  }

  update(change) {
    Object.assign(this.state, change);
    if ("corpus" in change) {
      this.state.encoder = this.corpus.best;
      this.controls.replaceChildren(...makeChoices(this, "map"));
      this.showLegend();
    }
    this.selected = new Set();
    this.chosen = -1;
    this.showHint();
    this.draw();
  }

  showLegend() {
    const items = this.corpus.labels.map((label, number) =>
      makeElement("span", { class: `colour-${number % COLOURS}` }, `${marker(number)} `, makeElement("span", { class: "ink-text" }, label)));
    this.legend.replaceChildren(...items);
  }

  showHint() {
    const text = `Every call in the plane (${this.corpus.map_method}). Click a call to play it; draw a line around calls to list them. ` +
      "Filled points have a sound.";
    this.list.replaceChildren(makeElement("p", { class: "quiet" }, text));
  }

  /** Return where a call is on the canvas, in px. */
  place([x, y]) {
    const side = this.side;
    return [MARGIN + (x / MAP_SIDE) * (side - 2 * MARGIN), side - MARGIN - (y / MAP_SIDE) * (side - 2 * MARGIN)];
  }

  get side() { return this.canvas.clientWidth || 320; }

  finish(end) {
    const line = this.lasso ?? [end];
    this.lasso = null;
    const isClick = line.every(([x, y]) => Math.hypot(x - end[0], y - end[1]) < 6);
    if (isClick) this.chooseNear(end);
    else this.select(this.points.map((_, call) => call).filter((call) => isInside(this.place(this.points[call]), line)));
  }

  chooseNear([x, y]) {
    const distances = this.points.map((point) => {
      const [px, py] = this.place(point);
      return Math.hypot(px - x, py - y);
    });
    const nearest = distances.indexOf(Math.min(...distances));
    if (distances[nearest] <= NEAR) this.choose(nearest, true);
    else this.select([]);
  }

  choose(call, isPlayed) {
    this.chosen = call;
    if (isPlayed && this.corpus.clips[call]) playSound(this.corpus.clips[call][0]);
    this.select([call]);
  }

  select(calls) {
    this.selected = new Set(calls);
    if (!calls.length) this.showHint();
    else this.showCalls(calls);
    this.draw();
  }

  showCalls(calls) {
    const { labels, call_labels } = this.corpus;
    const label = (call) => labels[call_labels[call]] ?? "not evaluated";
    const items = calls.slice(0, MAX_LISTED).map((call) =>
      makeElement("li", {}, makeCall(this.corpus, call), makeElement("span", { class: "quiet" }, ` ${label(call)}`)));
    const rest = calls.length - items.length;
    this.list.replaceChildren(
      makeElement("p", {}, makeElement("strong", {}, `${calls.length}`), calls.length === 1 ? "call" : "calls"),
      makeElement("ol", { class: "calls" }, ...items),
      rest > 0 ? makeElement("p", { class: "quiet" }, `and ${rest} more`) : "");
  }

  draw() {
    const { side, canvas } = this;
    const ratio = devicePixelRatio || 1;
    canvas.width = side * ratio;
    canvas.height = side * ratio;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    this.points.forEach((point, call) => this.drawPoint(ctx, point, call));
    if (this.lasso) drawLasso(ctx, this.lasso);
  }

  drawPoint(ctx, point, call) {
    const label = this.corpus.call_labels[call];
    const [x, y] = this.place(point);
    const isSelected = this.selected.has(call);
    ctx.globalAlpha = this.selected.size && !isSelected ? 0.3 : 0.85;
    ctx.fillStyle = label < 0 ? cssColour("rule") : cssColour(label % COLOURS);
    ctx.font = `${isSelected ? 17 : 12}px system-ui, sans-serif`;
    ctx.fillText(label < 0 ? "·" : marker(label, call in this.corpus.clips), x, y);
    ctx.globalAlpha = 1;
  }
}

/** Return the sign of a label: colours repeat after seven, signs after four. */
function marker(number, isFilled = true) {
  const signs = isFilled ? ["●", "■", "▲", "◆"] : ["○", "□", "△", "◇"];
  return signs[Math.floor(number / COLOURS) % signs.length];
}

/** Return whether a point is inside a closed line, by the crossings of a ray. */
function isInside([x, y], line) {
  let inside = false;
  line.forEach(([x1, y1], n) => {
    const [x0, y0] = line[(n + line.length - 1) % line.length];
    if (y0 > y !== y1 > y && x < x0 + ((y - y0) / (y1 - y0)) * (x1 - x0)) inside = !inside;
  });
  return inside;
}

function drawLasso(ctx, line) {
  ctx.beginPath();
  line.forEach(([x, y]) => ctx.lineTo(x, y));
  ctx.closePath();
  ctx.strokeStyle = cssColour("accent");
  ctx.setLineDash([4, 3]);
  ctx.stroke();
}

startPanel(CallMap, "map", (corpus) => corpus.calls.length && corpus.encoder_calls.length);
