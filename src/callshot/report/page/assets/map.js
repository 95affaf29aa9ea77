"use strict";
// The map of calls: a point plays, and a line drawn around points lists them.

const MAX_LISTED = 60;

class CallMap extends PointMap {
  constructor(host, data) {
    super(makeElement("canvas", { class: "map", tabindex: 0, role: "img", "data-testid": "map-canvas",
      "aria-label": "Map of calls: arrow keys walk from call to call, Enter plays" }));
    Object.assign(this, { host, data, state: { corpus: 0, encoder: 0 } });
    this.controls = makeElement("div", { class: "fields" });
    this.legend = makeElement("div", { class: "legend" });
    this.list = makeElement("div", { class: "readout", "aria-live": "polite", "data-testid": "map-list" });
    const drawing = makeElement("div", { class: "drawing" }, this.canvas, this.legend);
    host.append(this.controls, makeElement("div", { class: "side-by-side map-side" }, drawing, this.list));
    this.update({ corpus: 0 });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }
  get points() { return this.corpus.encoder_calls[this.state.encoder].map; }

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

  drawPoint(ctx, point, call) {
    const label = this.corpus.call_labels[call];
    const sign = label < 0 ? "·" : marker(label, call in this.corpus.clips);
    this.drawSign(ctx, point, call, sign, cssColour(label < 0 ? "rule" : label % COLOURS));
  }
}

/** Return the sign of a label: colours repeat after seven, signs after four. */
function marker(number, isFilled = true) {
  const signs = isFilled ? ["●", "■", "▲", "◆"] : ["○", "□", "△", "◇"];
  return signs[Math.floor(number / COLOURS) % signs.length];
}

startPanel(CallMap, "map", (corpus) => corpus.calls.length && corpus.encoder_calls.length);
