"use strict";
// The heat map of confusions: a table of shares; a cell that is clicked lists the calls behind it.

const SHADES = 8;

class Confusion {
  constructor(host, data) {
    Object.assign(this, { host, data, state: { corpus: 0, encoder: 0, shot: 0 } });
    this.controls = makeElement("div", { class: "fields" });
    this.grid = makeElement("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Confusions" });
    this.list = makeElement("div", { class: "readout", "aria-live": "polite", "data-testid": "confusion-calls" });
    host.append(this.controls, makeElement("div", { class: "side-by-side confusion-side" }, this.grid, this.list));
    this.update({ corpus: 0 });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }
  get matrix() {
    const k = this.corpus.confusion.shots[this.state.shot];
    return this.corpus.confusion.matrices[`${this.state.encoder}.${k}`];
  }

  update(change) {
    Object.assign(this.state, change);
    if ("corpus" in change) this.resetControls();
    this.grid.replaceChildren(this.makeTable());
    this.showHint();
  }

  resetControls() {
    const { encoders, best, confusion } = this.corpus;
    const shot = Math.max(0, confusion.shots.indexOf(confusion.first)); // that of the answer
    Object.assign(this.state, { encoder: Math.max(0, best), shot });
    const select = (label, key, names) => {
      const field = makeSelect(label, `confusion-${key}`, names, (value) => this.update({ [key]: value }));
      field.querySelector("select").value = this.state[key];
      return field;
    };
    const corpora = this.data.corpora.map((corpus) => corpus.name);
    this.controls.replaceChildren(...[
      corpora.length > 1 ? select("Corpus", "corpus", corpora) : null,
      select("Encoder", "encoder", encoders),
      select("k, examples per call type", "shot", confusion.shots.map(String)),
    ].filter((field) => field !== null));
  }

  makeTable() {
    const { confusion: { labels } } = this.corpus;
    const heading = (text) => makeElement("th", { scope: "col" }, makeElement("span", {}, text));
    const head = makeElement("tr", {}, makeElement("th", { scope: "col" }, "label ↓ named →"), ...labels.map(heading));
    const rows = this.matrix.map((shares, row) => this.makeRow(shares, row));
    return makeElement("table", { class: "heat", "data-testid": "confusion-table" },
      makeElement("thead", {}, head), makeElement("tbody", {}, ...rows));
  }

  makeRow(shares, row) {
    const { confusion: { labels } } = this.corpus;
    const cells = shares.map((share, column) => {
      const shade = Math.min(SHADES - 1, Math.floor((share / 100) * SHADES));
      const label = `${labels[row]} named ${labels[column]}: ${share} %`;
      const button = makeElement("button", { type: "button", "aria-label": label, click: () => this.showCalls(row, column) },
        share < 0.5 ? "" : share.toFixed(0));
      return makeElement("td", { class: `shade-${shade}` }, button);
    });
    return makeElement("tr", {}, makeElement("th", { scope: "row" }, labels[row]), ...cells);
  }

  showHint() {
    this.list.replaceChildren(makeElement("p", { class: "quiet" },
      "Shares of names, not mAP: each row sums to 100 %. Click a cell to see the calls behind it."));
  }

  showCalls(row, column) {
    const { confusion: { labels }, encoder_calls } = this.corpus;
    const isRight = row === column;
    const share = this.matrix[row][column];
    const what = isRight ? `${labels[row]}, named right` : `${labels[row]}, named ${labels[column]}`;
    const order = isRight ? "The clearest calls first." : `The calls of ${labels[row]} most like ${labels[column]} first.`;
    const calls = encoder_calls[this.state.encoder]?.confused[row][column] ?? [];
    const items = calls.map((call) => makeElement("li", {}, makeCall(this.corpus, call)));
    this.list.replaceChildren(
      makeElement("p", {}, makeElement("strong", {}, `${share} %`), what),
      makeElement("p", { class: "quiet" }, order),
      makeElement("ol", { class: "calls" }, ...items));
  }
}

function startConfusion() {
  const host = document.getElementById("confusion-panel");
  const data = readData();
  const corpora = data.corpora.filter((corpus) => corpus.confusion.shots.length);
  if (host && corpora.length) startWhenOpen(host, () => new Confusion(host, { ...data, corpora }));
}

startConfusion();
