// Small drawings of the panel.

import { make, makeSvg } from "./dom.js";
import { formatShare } from "./format.js";

const WIDTH = 260;
const HEIGHT = 120;
const LEFT = 30;
const BOTTOM = 18;

/** Draw a share between 0 and 1 with its interval. */
export function drawInterval(row) {
  const x = (share) => 4 + share * (WIDTH - 8);
  const shapes = [
    makeSvg("line", { class: "rail", x1: x(0), x2: x(1), y1: 7, y2: 7 }),
    makeSvg("line", { class: "interval", x1: x(row.low), x2: x(row.high), y1: 7, y2: 7 }),
    makeSvg("circle", { class: "point", cx: x(row.precision), cy: 7, r: 4 }),
  ];
  const name = `${formatShare(row.precision)}, from ${formatShare(row.low)} to ${formatShare(row.high)}`;
  return makeSvg("svg", { class: "chart", viewBox: `0 0 ${WIDTH} 14`, role: "img", "aria-label": name }, ...shapes);
}

/** Draw a curve with its interval against the number of examples. */
export function drawCurve(curve) {
  const count = curve.k.length;
  const x = (index) => LEFT + (count === 1 ? 0.5 : index / (count - 1)) * (WIDTH - LEFT - 10);
  const y = (value) => 6 + (1 - value) * (HEIGHT - BOTTOM - 10);
  const points = (values) => values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const band = curve.low ? [...points(curve.high), ...points(curve.low).reverse()].join(" ") : "";
  const rows = [0, 0.5, 1].flatMap((value) => [
    makeSvg("line", { class: "rule", x1: LEFT, x2: WIDTH, y1: y(value), y2: y(value) }),
    makeSvg("text", { x: LEFT - 4, y: y(value) + 4, "text-anchor": "end" }, String(value)),
  ]);
  const ticks = curve.k.map((k, index) => makeSvg("text", { x: x(index), y: HEIGHT - 3, "text-anchor": "middle" }, String(k)));
  const dots = curve.map.map((value, index) => makeSvg("circle", { class: "point", cx: x(index), cy: y(value), r: 3 }));
  const drawing = makeSvg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": describeCurve(curve) },
    ...rows,
    makeSvg("polygon", { class: "band", points: band }),
    makeSvg("polyline", { class: "line", points: points(curve.map).join(" ") }),
    ...dots,
    ...ticks,
  );
  return make("figure", {}, drawing, make("figcaption", { class: "quiet" }, "Mean average precision for k examples of each call."));
}

function describeCurve(curve) {
  const pairs = curve.k.map((k, index) => `${k} examples ${curve.map[index].toFixed(2)}`);
  return `Mean average precision: ${pairs.join(", ")}`;
}
