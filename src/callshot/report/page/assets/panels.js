"use strict";
// The curve of the first screen, and two panels with controls, a chart and a readout: curves, and paired differences.

const SPREAD_NOTES = {
  "per-query": "per-query, the paper's: every query has draws of its own, and their variation averages out.",
  shared: "shared: the variation from the choice of labelled examples; the interval leaves out which calls were recorded.",
  total: "total: what one labelled set would score on other recordings of the same kind; the answer rests on it.",
};
const PREFERRED_SPREADS = ["total", "shared", "per-query"];
const BASELINE_DASHES = { logistic: [7, 4], recurrent: [2, 3], "end-to-end": [10, 3, 2, 3] };
const CLASSIFIER_DASHES = [[1, 3], [5, 2], [9, 2, 1, 2], [12, 4], [4, 2, 1, 2, 1, 2], [3, 4]];
const HELP = "Move over the chart or use the arrow keys for values; drag sideways to zoom, tap twice or press Escape to see all.";
const REDUCED_NOTE = "Reduced scoring is over categories and has no single classes";
const NO_CURVE_NOTE = "There is no curve of this metric, spread and class";
const FIRST_HEIGHT = 360;
const MAX_FIRST_LINES = 6;

class Panel {
  constructor(host, name, data) {
    const state = { corpus: 0, metric: 0, spread: 0, log: false };
    Object.assign(this, { host, name, data, state });
    this.controls = makeElement("div", { class: "controls" });
    this.heading = makeElement("p", { class: "chart-heading", "data-testid": `${name}-heading` });
    this.canvas = makeElement("div", { class: "chart", tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": HELP, "data-testid": `${name}-chart` });
    this.reset = makeElement("button", { type: "button", class: "reset", "data-testid": `${name}-reset`, hidden: true,
      click: () => this.chart.reset() });
    this.readout = makeElement("div", { class: "readout", "aria-live": "polite", "data-testid": `${name}-readout` });
    this.hint = makeElement("p", { class: "quiet hint" });
    const drawing = makeElement("div", { class: "drawing" }, this.heading, this.canvas, this.reset);
    const columns = makeElement("div", { class: "side-by-side" }, drawing, this.readout);
    host.append(this.controls, columns, this.hint);
    this.chart = new Chart(this.canvas, (index) => this.showValues(index), (zoom) => this.showZoom(zoom));
    this.update({ corpus: this.firstCorpus() });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }
  get metric() { return this.corpus.metrics[this.state.metric]; }

  /** Change the state and draw again; another corpus has other controls. */
  update(change) {
    Object.assign(this.state, change);
    if ("corpus" in change) this.resetControls();
    this.heading.textContent = this.describeChart();
    this.hint.textContent = `${SPREAD_NOTES[this.corpus.spreads[this.state.spread]] ?? ""} ${HELP}`;
    this.chart.show(this.picture());
  }

  resetControls() {
    Object.assign(this.state, { metric: 0, spread: preferredSpread(this.corpus) }, this.initialState());
    const corpora = this.data.corpora.map((corpus) => corpus.name);
    const setLog = (log) => this.update({ log });
    this.controls.replaceChildren(
      makeElement("div", { class: "fields" },
        corpora.length > 1 ? this.makeSelect("Corpus", "corpus", corpora) : null,
        this.makeSelect("Metric", "metric", this.corpus.metrics.map((metric) => metric.name)),
        this.makeSelect("Spread", "spread", this.corpus.spreads),
        ...this.lastSelects()),
      makeElement("div", { class: "ticks" }, ...this.checkboxes(),
        makeCheckbox("logarithmic k", `${this.name}-log`, this.state.log, setLog)),
      ...this.furtherControls());
  }

  makeSelect(label, key, names) {
    const field = makeSelect(label, `${this.name}-${key}`, names, (value) => this.update({ [key]: value }));
    field.querySelector("select").value = this.state[key];
    return field;
  }

  furtherControls() { return []; }

  showZoom(zoom) {
    this.reset.hidden = zoom === null;
    this.reset.textContent = zoom === null ? "" : `k = ${zoom[0]} to ${zoom[1]}: show all`;
  }

  /** Show the values at a shot: a sentence and a table. */
  showValues(index) {
    const headings = ["", "mean", "1 – 99 %"].map((text) => makeElement("th", { scope: "col" }, text));
    const head = makeElement("thead", {}, makeElement("tr", {}, ...headings));
    const table = makeElement("table", {}, head, makeElement("tbody", {}, ...this.rows(index)));
    const k = makeElement("strong", { "data-testid": `${this.name}-k` }, `k = ${this.corpus.shots[index]}`);
    const note = makeElement("span", { class: "quiet" }, this.describeShot(index));
    this.readout.replaceChildren(makeElement("p", {}, k, note), table);
  }

  formatNumber(value) {
    return value === null ? "–" : value.toFixed(this.data.digits).replace("-", "−");
  }

  formatInterval(low, high) {
    if (low === undefined) return "";
    return low === null ? "–" : `${this.formatNumber(low)} – ${this.formatNumber(high)}`;
  }

  makeRow(name, { colour, dash }, mean, low, high) {
    const swatch = makeSwatch(typeof colour === "number" ? colour : null, dash);
    return makeElement("tr", { "data-testid": `${this.name}-row`, "data-name": name },
      makeElement("th", { scope: "row" }, swatch, makeElement("span", {}, name)),
      makeElement("td", {}, this.formatNumber(mean)),
      makeElement("td", {}, this.formatInterval(low, high)));
  }
}

class Curves extends Panel {
  firstCorpus() { return 0; }
  initialState() { return { label: 0, hidden: new Set(), classifiers: new Set() }; }

  lastSelects() {
    this.classField = this.makeSelect("Class", "label", ["all classes", ...this.corpus.classes]);
    return [this.classField];
  }

  checkboxes() {
    return this.corpus.encoders.map((name, encoder) => {
      const { colour, dash } = lineStyle(encoder);
      const toggle = (checked) => {
        this.state.hidden[checked ? "delete" : "add"](encoder);
        this.update({});
      };
      return makeCheckbox(name, "curves-encoder", true, toggle, makeSwatch(colour, dash));
    });
  }

  /** The other classifiers, hidden at first: colours stand for encoders, dashes for classifiers. */
  furtherControls() {
    this.classifierFields = this.corpus.classifiers.map((name, classifier) => {
      const toggle = (checked) => {
        this.state.classifiers[checked ? "add" : "delete"](classifier);
        this.update({});
      };
      const swatch = makeSwatch(null, classifierDash(classifier));
      return makeCheckbox(name, "curves-classifier", false, toggle, swatch);
    });
    if (!this.classifierFields.length) return [];
    const label = makeElement("span", { class: "quiet" }, "Beside the centroid:");
    const attributes = { class: "ticks", role: "group", "aria-label": "Other classifiers" };
    return [makeElement("div", attributes, label, ...this.classifierFields)];
  }

  /** The index of the chosen class, or null for the mean of all; reduced scoring has only the mean. */
  get label() {
    return this.state.label === 0 || this.metric.of_class === null ? null : this.state.label - 1;
  }

  describeChart() {
    const select = this.classField.querySelector("select");
    select.disabled = this.metric.of_class === null;
    select.title = select.disabled ? REDUCED_NOTE : "";
    this.disableClassifiers();
    const { name, of_class } = this.metric;
    const subject = this.label === null ? name : `${of_class} of ${this.corpus.classes[this.label]}`;
    return `${subject}: mean, and band from the 1st to the 99th percentile`;
  }

  /** Disable the classifiers without a line for the chosen metric, spread and class. */
  disableClassifiers() {
    this.classifierFields.forEach((field, classifier) => {
      const hasLine = this.corpus.encoders.some((_, encoder) => this.classifierValues(encoder, classifier));
      field.querySelector("input").disabled = !hasLine;
      field.title = hasLine ? "" : NO_CURVE_NOTE;
    });
  }

  classifierValues(encoder, classifier) {
    const { metric, spread } = this.state;
    if (this.label !== null) return undefined;
    return this.corpus.lines[`${metric}.${spread}.${encoder}.c${classifier}`];
  }

  lines() {
    const { metric, spread, hidden } = this.state;
    return this.corpus.encoders.flatMap((name, encoder) => {
      const label = this.label === null ? [] : [this.label];
      const values = this.corpus.lines[[metric, spread, encoder, ...label].join(".")];
      if (hidden.has(encoder) || !values) return [];
      return [makeLine(name, lineStyle(encoder), values), ...this.classifierLines(name, encoder)];
    });
  }

  classifierLines(encoderName, encoder) {
    const classifiers = [...this.state.classifiers].sort((a, b) => a - b);
    return classifiers.flatMap((classifier) => {
      const values = this.classifierValues(encoder, classifier);
      const name = `${this.corpus.classifiers[classifier]} on ${encoderName}`;
      const style = { colour: lineStyle(encoder).colour, dash: classifierDash(classifier), thin: true };
      return values ? [makeLine(name, style, values)] : [];
    });
  }

  /** Baselines of the encoders that are shown, and chance; a single class has only chance. */
  levels() {
    if (this.label !== null) return chanceLevel(this.metric.chances[this.label]);
    const { metric, hidden } = this.state;
    const levels = [];
    for (const { name, kind, encoder, value, metric: measured } of this.corpus.baselines) {
      if (measured !== metric || value === null || hidden.has(encoder)) continue;
      const hasEncoder = encoder !== null;
      levels.push({
        name,
        value,
        colour: hasEncoder ? lineStyle(encoder).colour : null,
        dash: BASELINE_DASHES[kind] ?? [5, 5],
        label: hasEncoder ? `${name} on ${this.corpus.encoders[encoder]}` : name,
      });
    }
    return [...levels, ...chanceLevel(this.metric.chance, this.metric.chance_name)];
  }

  picture() {
    const { shots, complete_shots: completeShots, k: firstShot } = this.corpus;
    const { log } = this.state;
    return { shots, completeShots, firstShot, lines: this.lines(), levels: this.levels(), log, bounded: true };
  }

  describeShot(index) {
    const { shots, complete_shots: completeShots, new_exemplars: newExemplars, classes } = this.corpus;
    if (shots[index] <= completeShots) return "every class has k exemplars";
    return `beyond k* = ${completeShots}: ${newExemplars[index]} of ${classes.length} classes have k, the others give all they have`;
  }

  rows(index) {
    const lines = this.lines().map((line) =>
      this.makeRow(line.name, line, line.mean[index], line.low[index], line.high[index]));
    const levels = this.levels().map((level) => this.makeRow(level.label, level, level.value));
    return [...lines, ...levels];
  }
}

class Differences extends Panel {
  firstCorpus() { return this.data.corpora.findIndex((corpus) => corpus.pairs.length); }
  initialState() { return { pair: 0 }; }
  checkboxes() { return []; }

  /** Two lists: both names of a pair are wider than a phone. */
  lastSelects() {
    const names = [...new Set(this.corpus.pairs.map(([one]) => one))];
    const choose = (number) => {
      const pair = this.corpus.pairs.findIndex(([one]) => one === names[number]);
      this.update({ pair });
      this.others.replaceChildren(...this.makeOthers().children);
    };
    this.others = this.makeOthers();
    return [makeSelect("Compare", "differences-one", names, choose), this.others];
  }

  /** Make the list of those that the first of the chosen pair is compared with. */
  makeOthers() {
    const { pairs } = this.corpus;
    const numbers = [...pairs.keys()].filter((number) => pairs[number][0] === this.pair[0]);
    const names = numbers.map((number) => pairs[number][1]);
    return makeSelect("with", "differences-other", names, (index) => this.update({ pair: numbers[index] }));
  }

  get pair() { return this.corpus.pairs[this.state.pair] ?? ["", ""]; }

  get values() {
    const { metric, spread, pair } = this.state;
    return this.corpus.differences[[metric, spread, pair].join(".")];
  }

  formatNumber(value) {
    return value > 0 ? `+${super.formatNumber(value)}` : super.formatNumber(value);
  }

  describeChart() {
    const [one, other] = this.pair;
    return `${this.metric.name} of ${one} less that of ${other}, over the same draws`;
  }

  picture() {
    const { shots, complete_shots: completeShots, k: firstShot } = this.corpus;
    const lines = this.values ? [makeLine("", lineStyle(0), this.values)] : [];
    const zero = { name: "no difference", value: 0, colour: "quiet", dash: [1, 3] };
    return { shots, completeShots, firstShot, lines, levels: [zero], log: this.state.log, bounded: false };
  }

  describeShot(index) {
    const wins = this.values?.[3][index] ?? null;
    if (wins === null) return "not compared";
    const clear = this.values[4][index] ? "clear, for all pairs and k at once" : "not clear";
    return `${this.pair[0]} is larger in ${(100 * wins).toFixed(1)} % of the samples: ${clear}`;
  }

  rows(index) {
    const [one, other] = this.pair;
    const values = this.values ? this.values.slice(0, 3).map((list) => list[index]) : [null, null, null];
    return [this.makeRow(`${one} less ${other}`, lineStyle(0), ...values)];
  }
}

/** Return the number of the spread that the answer rests on. */
function preferredSpread({ spreads }) {
  const preferred = PREFERRED_SPREADS.find((name) => spreads.includes(name));
  return Math.max(spreads.indexOf(preferred), 0);
}

/** Return the first picture of a corpus: mAP of its encoders, a band of the best one, and the points of the headline. */
function firstPicture(corpus) {
  const { encoders, shots, best, k: firstShot, complete_shots: completeShots, headline } = corpus;
  const others = encoders.map((_, encoder) => encoder).filter((encoder) => encoder !== best);
  const shown = [...others.slice(0, MAX_FIRST_LINES - 1), best];
  const spread = preferredSpread(corpus);
  const lines = shown.map((encoder) => {
    const style = { colour: lineStyle(encoder).colour, dash: [], thin: encoder !== best };
    return makeLine(encoders[encoder], style, corpus.lines[`0.${spread}.${encoder}`]);
  });
  const levels = [{ ...headline.chance, colour: "quiet", dash: [1, 3] }];
  const { marks } = headline;
  return { shots, completeShots, firstShot, lines, levels, marks, log: true, isNamed: true, height: FIRST_HEIGHT };
}

/** Draw the curves of the first screen, one chart per corpus, all on the same axes; return the charts. */
function drawFirstCurves(hosts, corpora) {
  const pictures = corpora.map(firstPicture);
  const all = (lists) => lists.flat(2).filter((value) => value !== null);
  const bands = ({ lines }) => lines.flatMap((line) => (line.thin ? [line.mean] : [line.mean, line.low, line.high]));
  const shots = all(pictures.map((picture) => picture.shots));
  const values = all(pictures.map((picture) => [...bands(picture), picture.levels.map((level) => level.value)]));
  const limits = {
    k: [Math.min(...shots), Math.max(...shots)],
    values: [Math.floor(10 * Math.min(...values)) / 10, Math.ceil(10 * Math.max(...values)) / 10],
  };
  return pictures.map((picture, number) => {
    const chart = new Chart(hosts[number], () => {}, () => {});
    chart.show({ ...picture, limits });
    return chart;
  });
}

function makeLine(name, style, [mean, low, high]) {
  return { name, ...style, mean, low, high };
}

function chanceLevel(value, label = "chance") {
  if (value === null) return [];
  return [{ name: "chance", label, value, colour: "quiet", dash: [1, 3] }];
}

function classifierDash(classifier) {
  return CLASSIFIER_DASHES[classifier % CLASSIFIER_DASHES.length];
}

function startPanels() {
  const data = readData();
  const panels = [];
  const start = (PanelClass, name, hasData) => {
    const host = document.getElementById(`${name}-panel`);
    if (!host || !data.corpora.some(hasData)) return;
    startWhenOpen(host, () => panels.push(new PanelClass(host, name, data)));
  };
  start(Curves, "curves", (corpus) => corpus.shots.length);
  start(Differences, "differences", (corpus) => corpus.pairs.length);
  const firstCharts = drawFirstCurves(document.querySelectorAll(".first-curve .chart"), data.corpora);
  const redraw = () => {
    panels.forEach((panel) => panel.update({}));
    firstCharts.forEach((chart) => chart.show(chart.picture));
  };
  const setPrint = (isPrint) => () => {
    document.documentElement.toggleAttribute("data-print", isPrint); // paper is white, dark screen or not
    redraw();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", setPrint(true));
  addEventListener("afterprint", setPrint(false));
}

startPanels();
