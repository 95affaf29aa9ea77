"""Results, summaries, tables and pictures → the collapsible sections of the page, by question."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callshot.records import CorpusResults
from callshot.report.calls import CorpusCalls
from callshot.report.page.curve_svg import SvgLine, SvgPicture, draw_svg, share_scale
from callshot.report.page.first_screen import show_paragraphs
from callshot.report.page.grids import show_table
from callshot.report.page.html import Markup, element, join
from callshot.report.page.multiples import show_matrix, show_multiples
from callshot.report.page.section_content import (
    show_budget,
    show_commands,
    show_left_out,
    show_picture,
    show_provenance,
)
from callshot.report.summary import Summary
from callshot.report.tables.corpora import needs_table
from callshot.report.tables.table import Table

HEADINGS = {
    "encoder": "Which encoder?",
    "confused": "Which call types are confused?",
    "listen": "What do the calls sound and look like?",
    "labels": "What is the next label worth?",
    "training": "Is training better, and from when?",
    "certainty": "How sure is this?",
    "left-out": "What was left out?",
    "methods": "Methods, ready to paste",
    "repeat": "How do I add my own encoder, or repeat this?",
    "provenance": "Where do the numbers come from?",
}
# The figure that the sentences of a section rest on.
FIGURES = {
    "encoder": "curves-panel",
    "confused": "confusion-panel",
    "labels": "budget",
    "training": "training-figures",
    "certainty": "spreads",
    "left-out": "left-out-tables",
}
LATER_FIGURES = ("training-figures", "left-out-tables")  # which a study may not have
# Where tables and pictures are shown, by the start of their names.
TABLES = {
    "results": "encoder",
    "reduced": "encoder",
    "classes": "left-out",
    "corpora": "left-out",
    "segments": "left-out",
    "baselines": "training",
    "classifiers": "training",
    "intervals": "certainty",
    "differences": "certainty",
}
PICTURES = {
    "sweep": "encoder",
    "reduced": "encoder",
    "inset": "encoder",
    "classes": "encoder",
    "confusion": "confused",
    "map": "listen",
    "training": "training",
    "classifiers": "training",
    "refinement": "training",
    "spreads": "certainty",
    "differences": "certainty",
    "sensitivity": "certainty",
    "episode": "methods",
}
NO_CHART = "Scripts are off: the tables have these values at some k."
NO_SOUNDS = "Scripts are off: sounds and the map of calls need them."
MORE_ENCODERS = """[[encoder]]
name = "onnx:model.onnx"   # your own model, beside the study file
rate_hz = 16000            # of the audio that it reads
window_s = 1.0             # length of its windows
dimension = 1024           # of its output

callshot run study.toml    # embeds with the new encoder only"""
Show = Callable[[str], Markup]
SPREAD_NOTE = (
    "The same mean, three intervals. per-query: every query has draws of its own. shared: one "
    "labelled set for all. total: one labelled set on other recordings."
)


@dataclass(frozen=True)
class Picture:
    """A PNG file, the name of its figure, and its caption."""

    name: str
    caption: str
    path: Path


@dataclass(frozen=True)
class PageContent:
    """What a page shows. The mappings are by corpus.

    `commands` are the shell lines that repeat the study, `confusion_shots` those of the heat map,
    `methods` paragraphs and references.
    """

    all_results: Sequence[CorpusResults]
    summaries: Mapping[str, Summary]
    tables: Mapping[str, Sequence[Table]] = field(default_factory=dict)
    pictures: Mapping[str, Sequence[Picture]] = field(default_factory=dict)
    methods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    commands: Sequence[str] = ()
    confusion_shots: Sequence[int] = ()
    calls: Mapping[str, CorpusCalls] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """A collapsible section: its id, its question, a short answer beside it, and the rest."""

    name: str
    heading: str
    gist: str
    content: Markup


def make_sections(content: PageContent) -> list[Section]:
    """Return the sections that have content, in the order in which people ask."""
    maker = _SectionMaker(content)
    sections = []
    for name, shows in maker.parts().items():
        body = join(maker.answers(name), *(show(name) for show in shows))
        if not body:
            body = maker.cards(name)
        if body:
            sections.append(Section(name, HEADINGS[name], _gist(content, name), body))
    return sections


def _gist(content: PageContent, name: str) -> str:
    """Return the first sentence that a section has on the first corpus."""
    for results in content.all_results[:1]:
        summary = content.summaries[results.corpus]
        for card in summary.cards:
            if card.section == name:
                return f"{card.answer}. {card.text}"
        for text in summary.answers.get(name, ())[:1]:
            return text.partition(". ")[0].removesuffix(".") + "."
    return ""


@dataclass(frozen=True)
class _SectionMaker:
    """Makes the parts of sections; every method gets the name of the section."""

    content: PageContent

    def parts(self) -> dict[str, Sequence[Show]]:
        """Return what is below the sentences of each section."""
        return {
            "encoder": (self.curves, self.multiples, self.figures),
            "confused": (self.confusion, self.figures),
            "listen": (self.listen, self.figures),
            "labels": (self.needs, self.figures),
            "training": (self.figures,),
            "certainty": (self.spreads, self.differences, self.figures),
            "left-out": (self.left_out, self.figures),
            "methods": (self.methods, self.figures),
            "repeat": (self.repeat,),
            "provenance": (self.provenance,),
        }

    def for_each(self, show: Callable[[CorpusResults, int], Markup]) -> Markup:
        """Return what is shown of every corpus, under its name if there are several."""
        parts = []
        all_results = self.content.all_results
        for number, results in enumerate(all_results):
            body = show(results, number)
            if body and len(all_results) > 1:
                parts.append(element("h3", results.corpus))
            parts.append(body)
        return join(*parts)

    def answers(self, name: str) -> Markup:
        if name not in FIGURES:
            return Markup()

        figure = FIGURES[name]
        if figure in LATER_FIGURES and not self.figures(name):
            figure = FIGURES["encoder"]

        def show(results: CorpusResults, _: int) -> Markup:
            summary = self.content.summaries[results.corpus]
            return show_paragraphs(summary.answers.get(name, ()), figure)

        return self.for_each(show)

    def cards(self, name: str) -> Markup:
        """Return the sentences of the cards that lead to a section."""
        parts = []
        for summary in self.content.summaries.values():
            texts = [card.text for card in summary.cards if card.section == name]
            parts += [element("p", text) for text in texts]
        return join(*parts)

    def figures(self, name: str) -> Markup:
        def show(results: CorpusResults, number: int) -> Markup:
            return _show_figures(self.content, results, name, number)

        return self.for_each(show)

    def curves(self, _: str) -> Markup:
        return _panel("curves")

    def multiples(self, _: str) -> Markup:
        def show(results: CorpusResults, _: int) -> Markup:
            k = self.content.summaries[results.corpus].headline.k
            return join(show_matrix(results, k), show_multiples(results))

        return self.for_each(show)

    def confusion(self, _: str) -> Markup:
        return _panel("confusion")

    def listen(self, _: str) -> Markup:
        if not self.content.calls:
            return Markup()
        has_clips = any(calls.clips for calls in self.content.calls.values())
        sounds = _panel("listen", NO_SOUNDS) if has_clips else Markup()
        return join(
            sounds, element("h3", "A map of all calls"), _panel("map", NO_SOUNDS)
        )

    def differences(self, _: str) -> Markup:
        for results in self.content.all_results:
            if len(results.evaluation.differences):
                return _panel("differences")
        return Markup()

    def needs(self, _: str) -> Markup:
        def show(results: CorpusResults, number: int) -> Markup:
            summary = self.content.summaries[results.corpus]
            return _show_needs(results, summary, number)

        return self.for_each(show)

    def spreads(self, _: str) -> Markup:
        def show(results: CorpusResults, number: int) -> Markup:
            best = self.content.summaries[results.corpus].best
            return _show_spreads(results, best, number)

        return self.for_each(show)

    def left_out(self, _: str) -> Markup:
        return self.for_each(lambda results, n: show_left_out(results, f"left-{n}"))

    def methods(self, _: str) -> Markup:
        return self.for_each(lambda results, _: _show_methods(self.content, results))

    def repeat(self, _: str) -> Markup:
        commands = show_commands(self.content.commands)
        title = element("p", "The commands of this study:") if commands else Markup()
        return join(
            element("p", "For another encoder, add these lines to the study file."),
            element("pre", element("code", MORE_ENCODERS), tabindex="0"),
            title,
            commands,
        )

    def provenance(self, _: str) -> Markup:
        return _show_provenance(self.content)


def _show_figures(
    content: PageContent, results: CorpusResults, name: str, number: int
) -> Markup:
    """Return the tables and pictures of a corpus that belong to a section."""
    parts = []
    for index, table in enumerate(content.tables.get(results.corpus, ())):
        if TABLES.get(_first_word(table.name)) == name:
            parts.append(show_table(table, f"table-{number}-{index}"))
    pictures = content.pictures.get(results.corpus, ())
    parts += [
        show_picture(picture.caption, picture.path)
        for picture in pictures
        if PICTURES[_first_word(picture.name)] == name
    ]
    if not parts:
        return Markup()
    figure = FIGURES.get(name)
    is_first = not number and figure in LATER_FIGURES
    return element("div", *parts, class_="side", id=figure if is_first else None)


def _first_word(name: str) -> str:
    return name.partition("-")[0]


def _panel(name: str, without_scripts: str = NO_CHART) -> Markup:
    """Return the place of a chart, which scripts fill."""
    note = element("noscript", element("p", without_scripts))
    return element("div", note, id=f"{name}-panel", class_="panel")


def _show_needs(results: CorpusResults, summary: Summary, number: int) -> Markup:
    """Return how many examples call types need, and what one more is worth to each."""
    table = needs_table(results, summary.best, summary.headline.k)
    shown = Markup() if table is None else show_table(table, f"needs-{number}")
    budget = element("div", show_budget(results.evaluation.budget))
    name = None if number else "budget"
    return element("div", shown, budget, id=name, class_="side")


def _show_spreads(results: CorpusResults, best: str, number: int) -> Markup:
    picture = _spread_picture(results, best)
    drawing = draw_svg(picture, share_scale([picture]))
    caption = element("figcaption", SPREAD_NOTE)
    name = None if number else "spreads"
    return element("figure", drawing, caption, class_="spread-curve", id=name)


def _spread_picture(results: CorpusResults, best: str) -> SvgPicture:
    """Return the mAP of the best encoder with its three intervals, the widest first."""
    evaluation = results.evaluation
    curve = evaluation.curve.filter(encoder=best, scoring="all", metric="map")
    lines = []
    for number, spread in enumerate(reversed(evaluation.spreads)):
        points = curve.filter(spread=spread).sort("k")
        width = (points["p99"] - points["p01"]).mean()
        line = SvgLine(
            f"{spread}: ±{width / 2:.3f}" if isinstance(width, float) else spread,
            points["k"].to_list(),
            points["mean"].to_list(),
            points["p01"].to_list(),
            points["p99"].to_list(),
            number,
        )
        lines.append(line)
    title = f"{results.corpus}: mAP of {best} with the interval of each spread"
    return SvgPicture(title, lines, "mAP", None, evaluation.complete_shots)


def _show_methods(content: PageContent, results: CorpusResults) -> Markup:
    texts = content.methods.get(results.corpus, ())
    if not texts:
        return Markup()
    paragraphs = [element("p", text) for text in texts]
    return element("div", *paragraphs, class_="paste", tabindex="0")


def _show_provenance(content: PageContent) -> Markup:
    parts = []
    for results in content.all_results[:1]:
        texts = content.summaries[results.corpus].answers.get("provenance", ())
        parts += [element("p", text) for text in texts]
    if content.provenance:
        summary_line = element("summary", "The study, versions, options, and checksums")
        facts = show_provenance(content.provenance)
        parts.append(element("details", summary_line, facts, class_="provenance"))
    return join(*parts)
