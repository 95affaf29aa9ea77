"use strict";
// Points on a canvas: a click chooses one, arrow keys walk from one to the next, and a line drawn around some selects them.
// The page to label recordings uses it too. A map has `points`, [x, y] each from 0 to MAP_SIDE, and draws them by drawPoint.

const MAP_SIDE = 1000; // of the data
const MARGIN = 24;
const NEAR = 12; // px from a point
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

class PointMap {
  constructor(canvas) {
    Object.assign(this, { canvas, lasso: null, chosen: -1, selected: new Set() });
    const at = (event) => [event.offsetX, event.offsetY];
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.lasso = [at(event)];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.lasso) return;
      this.lasso.push(at(event));
      this.draw();
    });
    canvas.addEventListener("pointerup", (event) => this.finish(at(event)));
    canvas.addEventListener("pointercancel", () => { this.lasso = null; this.draw(); });
    canvas.addEventListener("keydown", (event) => this.handleKey(event));
    new ResizeObserver(() => requestAnimationFrame(() => this.draw())).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  handleKey(event) {
    const count = this.points.length;
    if (event.key in STEPS && count) this.choose((this.chosen + STEPS[event.key] + count) % count, false);
    else if (event.key === "Enter" && this.chosen >= 0) this.choose(this.chosen, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  get side() { return this.canvas.clientWidth || 320; }

  /** Return where a point is on the canvas, in px. */
  place([x, y]) {
    const inner = this.side - 2 * MARGIN;
    return [MARGIN + (x / MAP_SIDE) * inner, this.side - MARGIN - (y / MAP_SIDE) * inner];
  }

  finish(end) {
    const line = this.lasso ?? [end];
    this.lasso = null;
    const isClick = line.every(([x, y]) => Math.hypot(x - end[0], y - end[1]) < 6);
    if (isClick) this.chooseNear(end);
    else this.select([...this.points.keys()].filter((number) => isInside(this.place(this.points[number]), line)));
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

  draw() {
    const { side, canvas } = this;
    const ratio = devicePixelRatio || 1;
    canvas.width = side * ratio;
    canvas.height = side * ratio;
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    ctx.textAlign = "center";
    ctx.textBaseline = "middle";
    const numbers = [...this.points.keys()];
    const top = numbers.filter((number) => this.isOnTop(number));
    for (const number of [...numbers, ...top]) this.drawPoint(ctx, this.points[number], number);
    if (this.lasso) drawLasso(ctx, this.lasso);
  }

  isOnTop(number) { return this.selected.has(number); }

  /** Write the sign of a point; those that are not selected are pale. */
  drawSign(ctx, point, number, sign, colour) {
    const [x, y] = this.place(point);
    const isSelected = this.selected.has(number);
    ctx.globalAlpha = this.selected.size && !isSelected ? 0.3 : 0.85;
    ctx.fillStyle = colour;
    ctx.font = `${isSelected ? 17 : 12}px system-ui, sans-serif`;
    ctx.fillText(sign, x, y);
    ctx.globalAlpha = 1;
  }
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
  ctx.strokeStyle = getComputedStyle(ctx.canvas).getPropertyValue("--accent").trim();
  ctx.setLineDash([4, 3]);
  ctx.stroke();
}
