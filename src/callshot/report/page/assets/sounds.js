"use strict";
// Sounds: one player for the page, buttons for the calls that have a sound, and the calls worth hearing of each type.

const player = new Audio();
const PICKS = [
  ["most typical", "nearest to the mean of its type"],
  ["most like another", "nearest to the mean of another type"],
  ["least typical", "farthest from the mean of its type"],
];

/** Play a sound that is base64 text of an MP3 file. */
function playSound(text) {
  player.src = `data:audio/mpeg;base64,${text}`;
  player.play().catch(() => {}); // another sound was started meanwhile
}

/** Make the buttons of a call that has a sound; a low one has a second button, sped up. */
function makeButtons(corpus, call) {
  const clip = corpus.clips[call];
  if (!clip) return [];
  const [sound, , seconds, , fast, speed] = clip;
  const button = (text, label, content) =>
    makeElement("button", { type: "button", class: "play", "aria-label": `${label}: ${corpus.calls[call]}`,
      click: () => playSound(content) }, text);
  const buttons = [button(`▶ ${seconds.toFixed(1)} s`, "Play", sound)];
  if (fast) buttons.push(button(`▶ ${speed}× faster`, `Play ${speed} times faster`, fast));
  return buttons;
}

/** Make the spectrogram of a call, with the ends of its axes. */
function makePicture([, picture, seconds, top]) {
  const frequency = top < 1000 ? `${Math.round(top)} Hz` : `${(top / 1000).toPrecision(2)} kHz`;
  const label = (side, text) => makeElement("span", { class: `axis ${side}` }, text);
  const alt = `Spectrogram: 0 to ${frequency}, ${seconds.toFixed(1)} s`;
  return makeElement("div", { class: "spectrogram" },
    label("top", frequency), label("bottom", "0"),
    makeElement("img", { src: `data:image/png;base64,${picture}`, alt, width: 300, height: 128 }),
    label("start", "0"), label("end", `${seconds.toFixed(1)} s`));
}

/** Make the name of a call, with its buttons. */
function makeCall(corpus, call) {
  const name = makeElement("span", { class: "call" }, corpus.calls[call]);
  return makeElement("span", { class: "call-row" }, ...makeButtons(corpus, call), name);
}

class Listen {
  constructor(host, data) {
    Object.assign(this, { host, data, state: { corpus: 0, encoder: 0 } });
    this.controls = makeElement("div", { class: "fields" });
    this.grid = makeElement("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Calls to listen to" });
    host.append(this.controls, this.grid);
    this.update({ corpus: 0 });
  }

  get corpus() { return this.data.corpora[this.state.corpus]; }

  update(change) {
    Object.assign(this.state, change);
    if ("corpus" in change) {
      this.state.encoder = this.corpus.best;
      this.controls.replaceChildren(...makeChoices(this, "listen"));
    }
    this.grid.replaceChildren(this.makeTable());
  }

  makeTable() {
    const { labels, encoder_calls } = this.corpus;
    const headings = PICKS.map(([name, why]) => makeElement("th", { scope: "col", title: why }, name));
    const head = makeElement("tr", {}, makeElement("th", { scope: "col" }, "call type"), ...headings);
    const { picks } = encoder_calls[this.state.encoder];
    const rows = labels.map((label, number) => this.makeRow(label, picks[number]));
    return makeElement("table", { class: "listen", "data-testid": "listen-table" },
      makeElement("thead", {}, head), makeElement("tbody", {}, ...rows));
  }

  makeRow(label, [typical, nearest, other, farthest]) {
    const note = `like ${this.corpus.labels[other]}`;
    return makeElement("tr", {}, makeElement("th", { scope: "row" }, label),
      this.makeCell(typical, ""), this.makeCell(nearest, note), this.makeCell(farthest, ""));
  }

  makeCell(call, note) {
    const clip = this.corpus.clips[call];
    const parts = [makeElement("div", { class: "quiet" }, this.corpus.calls[call])];
    if (clip) {
      parts.unshift(makePicture(clip),
        makeElement("div", {}, ...makeButtons(this.corpus, call), note ? makeElement("span", { class: "quiet" }, ` ${note}`) : null));
    }
    return makeElement("td", {}, ...parts);
  }
}

/** Make the selects of corpus and encoder of a panel. */
function makeChoices(panel, name) {
  const select = (label, key, names) => {
    const field = makeSelect(label, `${name}-${key}`, names, (value) => panel.update({ [key]: value }));
    field.querySelector("select").value = panel.state[key];
    return field;
  };
  const corpora = panel.data.corpora.map((corpus) => corpus.name);
  const fields = [select("Encoder", "encoder", panel.corpus.encoders)];
  if (corpora.length > 1) fields.unshift(select("Corpus", "corpus", corpora));
  return fields;
}

/** Start a panel when its section is opened, with the corpora that it can show. */
function startPanel(PanelClass, name, canShow) {
  const host = document.getElementById(`${name}-panel`);
  const data = readData();
  const corpora = data.corpora.filter(canShow);
  if (host && corpora.length) startWhenOpen(host, () => new PanelClass(host, { ...data, corpora }));
}

startPanel(Listen, "listen", (corpus) => corpus.has_clips);
