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

from callshot.files import write_atomic
from callshot.records import CorpusResults
from callshot.report.calls import Clip
from callshot.report.page.curves import (
    show_first_screen,
    show_matrix,
    show_multiples,
    show_spreads,
)
from callshot.report.page.data import Data, chart_data, clip_data, to_json
from callshot.report.page.parts import (
    MAX_ITEMS,
    get_template,
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

PARTS: tuple[Callable[..., Any], ...] = (
    needs_table,
    show_budget,
    show_left_out,
    show_matrix,
    show_multiples,
    show_picture,
    show_spreads,
    show_table,
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
    calls: Mapping[str, Data] = field(default_factory=dict)
    clips: Mapping[str, Mapping[str, Clip]] = field(default_factory=dict)


def write_page(path: Path, title: str, content: PageContent) -> None:
    """Write the report of a study; equal inputs give equal bytes."""
    first_shown = {
        corpus: (summary.best, summary.headline.k)
        for corpus, summary in content.summaries.items()
    }
    numbers = chart_data(
        content.all_results,
        content.confusion_shots,
        first_shown,
        content.calls,
        content.clips,
    )
    clips = [
        clip_data(results, content.clips.get(results.corpus, {}))
        for results in content.all_results
    ]
    assets = files("callshot.report.page") / "assets"
    licence, *texts = [
        (assets / name).read_text(encoding="utf-8")
        for name in (LICENCE, *STYLES, *SCRIPTS)
    ]
    styles, scripts = texts[: len(STYLES)], texts[len(STYLES) :]
    has_differences = any(
        len(results.evaluation.differences) for results in content.all_results
    )
    text = get_template("page.html").render(
        vars(content),
        title=title,
        policy=POLICY.format(scripts=_hashes(scripts), styles=_hashes(styles)),
        styles=styles,
        scripts=scripts,
        licence=licence,
        first=show_first_screen(content.all_results, content.summaries),
        headings=HEADINGS,
        figures=FIGURES,
        later_figures=LATER_FIGURES,
        has_differences=has_differences,
        max_items=MAX_ITEMS,
        **{function.__name__: function for function in PARTS},
        data={"data": to_json(numbers), "clips": to_json(clips)},
    )
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


def _hashes(texts: Sequence[str]) -> str:
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
