"""Results, summaries, tables and pictures → one HTML file that needs no network.

The first screen answers; everything else is in collapsible sections, in the order in which people
ask. Scripts and styles are part of the file, and its content security policy names them by their
hashes: nothing else runs, and nothing is fetched.
"""

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from callshot.files import write_atomic
from callshot.records import CorpusResults
from callshot.report.calls import CorpusCalls
from callshot.report.page.curves import (
    show_first_screen,
    show_matrix,
    show_multiples,
    show_spreads,
)
from callshot.report.page.data import chart_data, clip_data, to_json
from callshot.report.page.parts import (
    MAX_ITEMS,
    clean,
    get_template,
    render,
    show_budget,
    show_left_out,
    show_picture,
    show_table,
)
from callshot.report.summary import Summary
from callshot.report.tables.corpora import needs_table
from callshot.report.tables.table import Table
from callshot.results import explain_errors

STYLES = ("uPlot.min.css", "page.css", "first_screen.css", "panels.css")
SCRIPTS = (
    "uPlot.iife.min.js",
    "dom.js",
    "sections.js",
    "chart.js",
    "panels.js",
    "sounds.js",
    "confusion.js",
    "map.js",
    "tables.js",
)
LICENCE = "uPlot.LICENSE.txt"
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
MORE_ENCODERS = """[[encoder]]
name = "onnx:model.onnx"   # your own model, beside the study file
rate_hz = 16000            # of the audio that it reads
window_s = 1.0             # length of its windows
dimension = 1024           # of its output

callshot run study.toml    # embeds with the new encoder only"""


@dataclass(frozen=True)
class Picture:
    """A PNG file, its caption, and the section of the page that shows it."""

    section: str
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


def write_page(path: Path, title: str, content: PageContent) -> None:
    """Write the report of a study; equal inputs give equal bytes."""
    first_shown = {
        corpus: (summary.best, summary.headline.k)
        for corpus, summary in content.summaries.items()
    }
    numbers = chart_data(
        content.all_results, content.confusion_shots, first_shown, content.calls
    )
    clips = [
        clip_data(results, content.calls.get(results.corpus))
        for results in content.all_results
    ]
    styles = [_read_asset(name) for name in STYLES]
    scripts = [_read_asset(name) for name in SCRIPTS]
    text = get_template("page.html").render(
        title=title,
        policy=_security_policy(styles, scripts),
        styles=styles,
        scripts=scripts,
        licence=_read_asset(LICENCE),
        first=show_first_screen(content.all_results, content.summaries),
        sections=make_sections(content),
        data={"data": to_json(numbers), "clips": to_json(clips)},
    )
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


def _read_asset(name: str) -> str:
    path = files("callshot.report.page") / "assets" / name
    return path.read_text(encoding="utf-8")


def _security_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a policy by which only these styles and scripts count, and nothing is fetched."""
    rules = (
        "default-src 'none'",
        f"script-src {_hashes(scripts)}",
        f"style-src {_hashes(styles)}",
        "img-src data:",
        "media-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hashes(texts: Sequence[str]) -> str:
    hashes = []
    for text in texts:
        digest = hashlib.sha256(text.encode()).digest()
        encoded = base64.b64encode(digest).decode()
        hashes.append(f"'sha256-{encoded}'")
    return " ".join(hashes)


def make_sections(content: PageContent) -> list[Section]:
    """Return the sections that have content, in the order in which people ask."""
    sections = []
    for name, heading in HEADINGS.items():
        figures = _show_figures(content, name)
        body = _show_answers(content, name, bool(figures))
        if name in SHOWN:
            body += SHOWN[name](content)
        body += figures
        if not body:  # the sentences of the cards that lead here
            for summary in content.summaries.values():
                texts = [card.text for card in summary.cards if card.section == name]
                body += render("paragraphs", texts)
        if body:
            sections.append(Section(name, heading, _gist(content, name), body))
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


def _for_each(
    content: PageContent, show: Callable[[CorpusResults, Summary, int], Markup]
) -> Markup:
    """Return what is shown of every corpus, under its name if there are several."""
    parts = Markup()
    for number, results in enumerate(content.all_results):
        body = show(results, content.summaries[results.corpus], number)
        if body and len(content.all_results) > 1:
            parts += Markup("<h3>{}</h3>").format(clean(results.corpus))
        parts += body
    return parts


def _show_answers(content: PageContent, name: str, has_figures: bool) -> Markup:
    if name not in FIGURES:
        return Markup()
    figure = FIGURES[name]
    if figure in LATER_FIGURES and not has_figures:
        figure = FIGURES["encoder"]

    def show(_: CorpusResults, summary: Summary, __: int) -> Markup:
        return render("answers", summary.answers.get(name, ()), figure)

    return _for_each(content, show)


def _show_figures(content: PageContent, name: str) -> Markup:
    """Return the tables and pictures of every corpus that belong to a section."""

    def show(results: CorpusResults, _: Summary, number: int) -> Markup:
        parts = Markup()
        for index, table in enumerate(content.tables.get(results.corpus, ())):
            if table.section == name:
                parts += show_table(table, f"table-{number}-{index}")
        for picture in content.pictures.get(results.corpus, ()):
            if picture.section == name:
                parts += show_picture(picture.caption, picture.path)
        if not parts:
            return Markup()
        figure = FIGURES.get(name)
        is_first = not number and figure in LATER_FIGURES
        return render("side", parts, figure if is_first else None)

    return _for_each(content, show)


def _show_encoders(content: PageContent) -> Markup:
    def show(results: CorpusResults, summary: Summary, _: int) -> Markup:
        return show_matrix(results, summary.headline.k) + show_multiples(results)

    return render("panel", "curves") + _for_each(content, show)


def _show_calls(content: PageContent) -> Markup:
    if not content.calls:
        return Markup()
    has_clips = any(calls.clips for calls in content.calls.values())
    return render("listen", has_clips)


def _show_needs(content: PageContent) -> Markup:
    """Return how many examples call types need, and what one more is worth to each."""

    def show(results: CorpusResults, summary: Summary, number: int) -> Markup:
        table = needs_table(results, summary.best, summary.headline.k)
        shown = Markup() if table is None else show_table(table, f"needs-{number}")
        budget = show_budget(results.evaluation.budget)
        shown += Markup("<div>{}</div>").format(budget)
        return render("side", shown, None if number else "budget")

    return _for_each(content, show)


def _show_certainty(content: PageContent) -> Markup:
    def show(results: CorpusResults, summary: Summary, number: int) -> Markup:
        return show_spreads(results, summary.best, "" if number else "spreads")

    parts = _for_each(content, show)
    if any(len(results.evaluation.differences) for results in content.all_results):
        parts += render("panel", "differences")
    return parts


def _show_provenance(content: PageContent) -> Markup:
    texts: list[str] = []
    for results in content.all_results[:1]:
        texts += content.summaries[results.corpus].answers.get("provenance", ())
    return render("sources", texts, content.provenance, MAX_ITEMS)


# What is between the sentences of a section and its figures.
SHOWN: dict[str, Callable[[PageContent], Markup]] = {
    "encoder": _show_encoders,
    "confused": lambda _: render("panel", "confusion"),
    "listen": _show_calls,
    "labels": _show_needs,
    "certainty": _show_certainty,
    "left-out": lambda content: _for_each(
        content, lambda results, _, number: show_left_out(results, f"left-{number}")
    ),
    "methods": lambda content: _for_each(
        content,
        lambda results, *_: render("methods", content.methods.get(results.corpus, ())),
    ),
    "repeat": lambda content: render("repeat", MORE_ENCODERS, content.commands),
    "provenance": _show_provenance,
}
