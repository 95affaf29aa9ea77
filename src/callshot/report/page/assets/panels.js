"use strict";
// The two panels with a chart: curves, and paired differences. Each has its choices, a chart, and a readout.

const SPREADS = {
  "per-query": "per-query: every query meets draws of its own, as in the paper; chance evens out over queries.",
  shared: "shared: one labelled set for all queries, as in the field; which queries there are is not in the spread.",
};
const RIVAL_DASHES = { logistic: [7, 4], recurrent: [2, 3], "end-to-end": [10, 3, 2, 3] };
const RULE_DASHES = [[1, 3], [5, 2], [9, 2, 1, 2], [12, 4], [4, 2, 1, 2, 1, 2], [3, 4]];
const HELP = "Move over the chart or use the arrow keys for values; drag sideways to zoom, tap twice or press Escape to see all.";

class Panel {
  constructor(host, name, data) {
    Object.assign(this, { host, name, data, state: { corpus: 0, metric: 0, spread: 0, log: false } });
    this.controls = make("div", { class: "controls" });
    this.heading = make("p", { class: "chart-heading", "data-testid": `${name}-heading` });
    this.canvas = make("div", { class: "chart", tabindex: 0, role: "group", "aria-roledescription": "chart",
      "aria-label": HELP, "data-testid": `${name}-chart` });
    this.reset = make("button", { type: "button", class: "reset", "data-testid": `${name}-reset`, hidden: true,
      click: () => this.chart.reset() });
    this.readout = make("div", { class: "readout", "aria-live": "polite", "data-testid": `${name}-readout` });
    this.hint = make("p", { class: "quiet hint" });
    const drawing = make("div", { class: "drawing" }, this.heading, this.canvas, this.reset);
    host.append(this.controls, make("div", { class: "side-by-side" }, drawing, this.readout), this.hint);
    this.chart = new Chart(this.canvas, (at) => this.read(at), (zoom) => this.tellZoom(zoom));
    this.choose({ corpus: this.firstCorpus() });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }
  get metric() { return this.corpus.metrics[this.state.metric]; }

  /** Change the state and draw again; another corpus brings its own choices. */
  choose(change) {
    Object.assign(this.state, change);
    if ("corpus" in change) this.restart();
    this.heading.textContent = this.tell();
    this.hint.textContent = `${SPREADS[this.corpus.spreads[this.state.spread]] ?? ""} ${HELP}`;
    this.chart.show(this.picture());
  }

  restart() {
    const shared = this.corpus.spreads.indexOf("shared"); // the one that the answer speaks of
    Object.assign(this.state, { metric: 0, spread: Math.max(shared, 0) }, this.fresh());
    const choice = (label, key, names) => {
      const made = makeChoice(label, `${this.name}-${key}`, names, (value) => this.choose({ [key]: value }));
      made.querySelector("select").value = this.state[key];
      return made;
    };
    const corpora = this.data.corpora.map((corpus) => corpus.name);
    const log = makeTick("logarithmic k", `${this.name}-log`, this.state.log, (value) => this.choose({ log: value }));
    this.controls.replaceChildren(
      make("div", { class: "fields" },
        corpora.length > 1 ? choice("Corpus", "corpus", corpora) : null,
        choice("Metric", "metric", this.corpus.metrics.map((metric) => metric.name)),
        choice("Spread", "spread", this.corpus.spreads),
        this.field(choice)),
      make("div", { class: "ticks" }, ...this.ticks(), log), ...this.more());
  }

  /** What stands below the other choices. */
  more() { return []; }

  tellZoom(zoom) {
    this.reset.hidden = zoom === null;
    this.reset.textContent = zoom === null ? "" : `k = ${zoom[0]} to ${zoom[1]}: show all`;
  }

  /** Show the values at a shot: a line of words and a table. */
  read(at) {
    const { shots } = this.corpus;
    const head = ["", "mean", "1 – 99 %"].map((text) => make("th", { scope: "col" }, text));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...this.rows(at)));
    const k = make("strong", { "data-testid": `${this.name}-k` }, `k = ${shots[at]}`);
    this.readout.replaceChildren(make("p", {}, k, make("span", { class: "quiet" }, this.tellShot(at))), table);
  }

  number(value) {
    return value === null ? "–" : value.toFixed(this.data.digits).replace("-", "−");
  }

  row(name, { look, dash }, mean, low, high) {
    const range = low === undefined ? "" : low === null ? "–" : `${this.number(low)} – ${this.number(high)}`;
    return make("tr", { "data-testid": `${this.name}-row`, "data-name": name },
      make("th", { scope: "row" }, makeSwatch(look, dash), make("span", {}, name)),
      make("td", {}, this.number(mean)), make("td", {}, range));
  }
}

class Curves extends Panel {
  firstCorpus() { return 0; }
  fresh() { return { label: 0, hidden: new Set(), rules: new Set() }; }

  field(choice) {
    this.classes = choice("Class", "label", ["all classes", ...this.corpus.classes]);
    return this.classes;
  }

  ticks() {
    return this.corpus.encoders.map((name, n) => {
      const { look, dash } = lookOf(n);
      const toggle = (shown) => {
        this.state.hidden[shown ? "delete" : "add"](n);
        this.choose({});
      };
      return makeTick(name, "curves-encoder", true, toggle, makeSwatch(look, dash));
    });
  }

  /** The other classifiers, none of them shown at first: a colour is an encoder's, a dash theirs. */
  more() {
    this.rules = this.corpus.rules.map((name, n) => {
      const toggle = (shown) => {
        this.state.rules[shown ? "add" : "delete"](n);
        this.choose({});
      };
      return makeTick(name, "curves-rule", false, toggle, makeSwatch(null, ruleDash(n)));
    });
    const label = make("span", { class: "quiet" }, "Beside the centroid:");
    return this.rules.length ? [make("div", { class: "ticks", role: "group", "aria-label": "Other classifiers" }, label, ...this.rules)] : [];
  }

  /** The place of the chosen class, or null for the mean of all, which is all that reduced scoring has. */
  get label() {
    return this.state.label === 0 || this.metric.of_class === null ? null : this.state.label - 1;
  }

  tell() {
    const select = this.classes.querySelector("select");
    select.disabled = this.metric.of_class === null;
    select.title = select.disabled ? "Reduced scoring is over categories: it has no classes of its own" : "";
    this.tellRules();
    const what = this.label === null ? this.metric.name : `${this.metric.of_class} of ${this.corpus.classes[this.label]}`;
    return `${what}: mean, and band from the 1st to the 99th percentile`;
  }

  /** Disable the classifiers that have no line here. */
  tellRules() {
    this.rules.forEach((tick, n) => {
      const there = this.corpus.encoders.some((_, encoder) => this.ofRule(encoder, n));
      tick.querySelector("input").disabled = !there;
      tick.title = there ? "" : "It has no curve of this metric, spread and class";
    });
  }

  ofRule(encoder, rule) {
    const { metric, spread } = this.state;
    return this.label === null ? this.corpus.lines[`${metric}.${spread}.${encoder}.r${rule}`] : undefined;
  }

  lines() {
    const { metric, spread, hidden } = this.state;
    return this.corpus.encoders.flatMap((name, n) => {
      const key = [metric, spread, n, ...(this.label === null ? [] : [this.label])].join(".");
      const found = this.corpus.lines[key];
      if (hidden.has(n) || !found) return [];
      return [{ name, ...lookOf(n), mean: found[0], low: found[1], high: found[2] }, ...this.linesOfRules(name, n)];
    });
  }

  linesOfRules(encoder, n) {
    return [...this.state.rules].sort((a, b) => a - b).flatMap((rule) => {
      const found = this.ofRule(n, rule);
      const name = `${this.corpus.rules[rule]} on ${encoder}`;
      const look = { look: lookOf(n).look, dash: ruleDash(rule), bare: true };
      return found ? [{ name, ...look, mean: found[0], low: found[1], high: found[2] }] : [];
    });
  }

  /** Rivals, of the encoders that are shown, and chance; of a class alone, chance is all that is known. */
  levels() {
    const { metric, hidden } = this.state;
    const shown = (rival) => rival.metric === metric && rival.value !== null && !hidden.has(rival.encoder);
    const rivals = this.label === null ? this.corpus.rivals.filter(shown) : [];
    const levels = rivals.map(({ name, kind, encoder, value }) => ({
      name, value, look: encoder === null ? null : lookOf(encoder).look, dash: RIVAL_DASHES[kind] ?? [5, 5],
      told: encoder === null ? name : `${name} on ${this.corpus.encoders[encoder]}`,
    }));
    const chance = this.label === null ? this.metric.chance : this.metric.chances[this.label];
    if (chance === null) return levels;
    return [...levels, { name: "chance", told: "chance", value: chance, look: "quiet", dash: [1, 3] }];
  }

  picture() {
    const { shots, best } = this.corpus;
    return { shots, best, lines: this.lines(), levels: this.levels(), log: this.state.log, bounded: true };
  }

  tellShot(at) {
    const { shots, best, fresh, classes } = this.corpus;
    if (shots[at] <= best) return "every class gives k exemplars";
    return `beyond k* = ${best}: ${fresh[at]} of ${classes.length} classes still give k, the others all they have`;
  }

  rows(at) {
    const lines = this.lines().map((line) => this.row(line.name, line, line.mean[at], line.low[at], line.high[at]));
    const levels = this.levels().map((level) => this.row(level.told, { ...level, look: inkOf(level.look) }, level.value));
    return [...lines, ...levels];
  }
}

class Differences extends Panel {
  firstCorpus() { return this.data.corpora.findIndex((corpus) => corpus.pairs.length); }
  fresh() { return { pair: 0 }; }
  ticks() { return []; }

  field(choice) {
    return choice("Comparison", "pair", this.corpus.pairs.map(([one, other]) => `${one} less ${other}`));
  }

  get found() {
    const { metric, spread, pair } = this.state;
    return this.corpus.differences[[metric, spread, pair].join(".")];
  }

  number(value) {
    return value > 0 ? `+${super.number(value)}` : super.number(value);
  }

  tell() {
    const [one, other] = this.corpus.pairs[this.state.pair] ?? ["", ""];
    return `${this.metric.name} of ${one} less that of ${other}, over the same draws`;
  }

  picture() {
    const { shots, best } = this.corpus;
    const lines = this.found ? [{ ...lookOf(0), mean: this.found[0], low: this.found[1], high: this.found[2] }] : [];
    const zero = { name: "no difference", value: 0, look: "quiet", dash: [1, 3] };
    return { shots, best, lines, levels: [zero], log: this.state.log, bounded: false };
  }

  tellShot(at) {
    const wins = this.found?.[3][at] ?? null;
    const [one] = this.corpus.pairs[this.state.pair] ?? [""];
    return wins === null ? "not compared" : `${one} is larger in ${(100 * wins).toFixed(1)} % of the samples`;
  }

  rows(at) {
    const [one, other] = this.corpus.pairs[this.state.pair] ?? ["", ""];
    const values = this.found ? this.found.slice(0, 3).map((list) => list[at]) : [null, null, null];
    return [this.row(`${one} less ${other}`, lookOf(0), ...values)];
  }
}

function ruleDash(n) {
  return RULE_DASHES[n % RULE_DASHES.length];
}

/** A swatch is in ink where a line has no colour of its own. */
function inkOf(look) {
  return typeof look === "number" ? look : null;
}

function startPanels() {
  const data = JSON.parse(document.getElementById("data").textContent);
  const panels = [];
  const start = (Kind, name, there) => {
    const host = document.getElementById(`${name}-panel`);
    if (host && data.corpora.some(there)) panels.push(new Kind(host, name, data));
  };
  start(Curves, "curves", (corpus) => corpus.shots.length);
  start(Differences, "differences", (corpus) => corpus.pairs.length);
  const redraw = () => panels.forEach((panel) => panel.choose({}));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const print = (on) => () => {
    document.documentElement.toggleAttribute("data-print", on); // paper is white, also where the screen is dark
    redraw();
  };
  addEventListener("beforeprint", print(true));
  addEventListener("afterprint", print(false));
}

startPanels();
