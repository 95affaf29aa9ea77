"""Results, summaries, tables and pictures → one HTML file that needs no network.

The first screen answers; everything else is in collapsible sections, in the order in which people
ask. Scripts and styles are part of the file, and its content security policy names them by their
hashes: nothing else runs, and nothing is fetched.
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
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
# Only the styles and scripts of the page count, and nothing is fetched.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; "
    "media-src data:; base-uri 'none'; form-action 'none'"
)


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
    assets = files("callshot.report.page") / "assets"
    licence, *texts = [
        (assets / name).read_text(encoding="utf-8")
        for name in (LICENCE, *STYLES, *SCRIPTS)
    ]
    styles, scripts = texts[: len(STYLES)], texts[len(STYLES) :]
    text = get_template("page.html").render(
        title=title,
        policy=POLICY.format(scripts=_hashes(scripts), styles=_hashes(styles)),
        styles=styles,
        scripts=scripts,
        licence=licence,
        first=show_first_screen(content.all_results, content.summaries),
        sections=make_sections(content),
        data={"data": to_json(numbers), "clips": to_json(clips)},
    )
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


def _hashes(texts: Sequence[str]) -> str:
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)


def make_sections(content: PageContent) -> list[Section]:
    """Return the sections that have content, in the order in which people ask."""
    corpora = [results.corpus for results in content.all_results]

    def show(bodies: Iterable[str]) -> Markup:
        return render("corpora", list(zip(corpora, bodies, strict=True)))

    summaries = [content.summaries[corpus] for corpus in corpora]
    has_differences = any(
        len(results.evaluation.differences) for results in content.all_results
    )
    has_clips = any(calls.clips for calls in content.calls.values())
    licences = [
        text for one in summaries[:1] for text in one.answers.get("provenance", ())
    ]
    # What is between the sentences of a section and what it shows of each corpus, and after it.
    between = {
        "encoder": render("panel", "curves"),
        "confused": render("panel", "confusion"),
        "listen": render("listen", has_clips) if content.calls else Markup(),
        "repeat": render("repeat", content.commands),
        "provenance": render("sources", licences, content.provenance, MAX_ITEMS),
    }
    after = {"certainty": render("panel", "differences")} if has_differences else {}
    shown = [_show_corpus(content, number) for number in range(len(corpora))]
    sections = []
    for name, heading in HEADINGS.items():
        figures = [_show_figures(content, name, n) for n in range(len(corpora))]
        anchor = FIGURES.get(name, "")
        if anchor in LATER_FIGURES and not any(figures):
            anchor = FIGURES["encoder"]
        answers = [
            render("answers", one.answers.get(name, ()) if anchor else (), anchor)
            for one in summaries
        ]
        body = show(answers) + between.get(name, "")
        body += show(parts.get(name, "") for parts in shown)
        body += after.get(name, "") + show(figures)
        cards = [
            card for one in summaries for card in one.cards if card.section == name
        ]
        if not body:  # the sentences of the cards that lead here
            body = render("paragraphs", [card.text for card in cards])
        if body:
            sections.append(Section(name, heading, _gist(summaries, name), body))
    return sections


def _gist(summaries: Sequence[Summary], name: str) -> str:
    """Return the first sentence that a section has on the first corpus."""
    for summary in summaries[:1]:
        for card in summary.cards:
            if card.section == name:
                return f"{card.answer}. {card.text}"
        for text in summary.answers.get(name, ())[:1]:
            return text.partition(". ")[0].removesuffix(".") + "."
    return ""


def _show_corpus(content: PageContent, number: int) -> dict[str, Markup]:
    """Return what sections show of a corpus, besides sentences, tables and pictures."""
    results = content.all_results[number]
    summary = content.summaries[results.corpus]
    k = summary.headline.k
    table = needs_table(results, summary.best, k)
    needs = Markup() if table is None else show_table(table, f"needs-{number}")
    needs += Markup("<div>{}</div>").format(show_budget(results.evaluation.budget))
    return {
        "encoder": show_matrix(results, k) + show_multiples(results),
        "labels": render("side", needs, None if number else "budget"),
        "certainty": show_spreads(results, summary.best, "" if number else "spreads"),
        "left-out": show_left_out(results, f"left-{number}"),
        "methods": render("methods", content.methods.get(results.corpus, ())),
    }


def _show_figures(content: PageContent, name: str, number: int) -> Markup:
    """Return the tables and pictures of a corpus that belong to a section."""
    corpus = content.all_results[number].corpus
    parts = Markup()
    for index, table in enumerate(content.tables.get(corpus, ())):
        if table.section == name:
            parts += show_table(table, f"table-{number}-{index}")
    for picture in content.pictures.get(corpus, ()):
        if picture.section == name:
            parts += show_picture(picture.caption, picture.path)
    figure = FIGURES.get(name)
    is_first = not number and figure in LATER_FIGURES
    return parts and render("side", parts, figure if is_first else None)
