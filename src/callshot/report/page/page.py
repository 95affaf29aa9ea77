"""Results, sentences, tables and pictures → one HTML file that needs no network.

Scripts and styles are part of the file, and its content security policy names them by their hashes:
nothing else runs, and nothing is fetched.
"""

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from callshot.files import write_atomic
from callshot.records import CorpusResults
from callshot.report.output_folder import explain_errors
from callshot.report.page.data import chart_data, to_json
from callshot.report.page.grids import show_table
from callshot.report.page.html import Markup, element, join
from callshot.report.page.sections import (
    show_answer,
    show_budget,
    show_commands,
    show_left_out,
    show_picture,
    show_provenance,
)
from callshot.report.tables.table import Table

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = ("uPlot.iife.min.js", "dom.js", "chart.js", "panels.js", "tables.js")
LICENCE = "uPlot.LICENSE.txt"
HEADINGS = {
    "answer": "The answer",
    "curves": "Curves",
    "tables": "Tables",
    "budget": "Label budget",
    "differences": "Paired differences",
    "pictures": "Pictures",
    "left-out": "Left out, and warnings",
    "provenance": "Provenance",
    "repeat": "Repeat it",
}
NO_CHART = "Scripts are off: the tables have these values at some k."
NO_SCRIPTS = (
    "Scripts are off: nothing can be drawn here, but the answer and the tables below are readable "
    "without scripts."
)

ByCorpus = Mapping[str, Sequence[Any]]
AllResults = Sequence[CorpusResults]
Section = tuple[str, str, Markup]  # id, heading, content


def write_page(
    path: Path,
    title: str,
    all_results: AllResults,
    *,
    answers: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[Table]],
    pictures: Mapping[str, Sequence[tuple[str, Path]]],
    provenance: Mapping[str, Any],
    commands: Sequence[str],
) -> None:
    """Write the report of a study; equal inputs give equal bytes.

    The mappings are by corpus. `answers` are sentences, the most important first; `pictures` are
    captions and PNG files; `commands` are the shell lines that repeat the study.
    """
    page = _Page(all_results, answers, tables, pictures, provenance, commands)
    data = to_json(chart_data(all_results))
    text = _format_document(title, page.sections(), data)
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


@dataclass(frozen=True)
class _Page:
    """What a page shows; sections without content are left out."""

    all_results: AllResults
    answers: ByCorpus
    tables: ByCorpus
    pictures: ByCorpus
    provenance: Mapping[str, Any]
    commands: Sequence[str]

    def sections(self) -> list[Section]:
        contents = {
            "answer": self.for_each(self.show_answer),
            "curves": _panel("curves"),
            "tables": self.for_each(self.show_tables),
            "budget": self.for_each(
                lambda results, _: show_budget(results.evaluation.budget)
            ),
            "differences": self.show_differences(),
            "pictures": self.for_each(self.show_pictures),
            "left-out": self.for_each(
                lambda results, n: show_left_out(results, f"left-{n}")
            ),
            "provenance": self.show_provenance(),
            "repeat": show_commands(self.commands),
        }
        shown = {name: content for name, content in contents.items() if content}
        return [(name, HEADINGS[name], content) for name, content in shown.items()]

    def for_each(self, show: Callable[[CorpusResults, int], Markup]) -> Markup:
        """Return the content of every corpus; if there are several, under their names."""
        parts = []
        for number, results in enumerate(self.all_results):
            content = show(results, number)
            if content and len(self.all_results) > 1:
                parts.append(element("h3", results.corpus))
            parts.append(content)
        return join(*parts)

    def show_answer(self, results: CorpusResults, _: int) -> Markup:
        return show_answer(results, self.answers.get(results.corpus, ()))

    def show_tables(self, results: CorpusResults, number: int) -> Markup:
        parts = []
        for index, table in enumerate(self.tables.get(results.corpus, ())):
            parts.append(show_table(table, f"table-{number}-{index}"))
        return join(*parts)

    def show_differences(self) -> Markup:
        for results in self.all_results:
            if len(results.evaluation.differences):
                return _panel("differences")
        return Markup()

    def show_pictures(self, results: CorpusResults, _: int) -> Markup:
        pictures = self.pictures.get(results.corpus, ())
        parts = [show_picture(*picture) for picture in pictures]
        return join(*parts)

    def show_provenance(self) -> Markup:
        if not self.provenance:
            return Markup()
        summary = element("summary", "The study, versions, options, and checksums")
        facts = show_provenance(self.provenance)
        return element("details", summary, facts, class_="provenance")


def _panel(name: str) -> Markup:
    """Return the place of a chart, which scripts fill."""
    note = element("noscript", element("p", NO_CHART))
    return element("div", note, id=f"{name}-panel", class_="panel")


def _format_document(title: str, sections: Sequence[Section], data: str) -> str:
    styles = [_read_asset(name) for name in STYLES]
    scripts = [_read_asset(name) for name in SCRIPTS]
    head = _format_head(title, styles, _security_policy(styles, scripts))
    body = _format_body(title, sections, data, scripts)
    page = element(
        "html",
        element("head", *_on_lines(head)),
        element("body", *_on_lines(body)),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _format_head(title: str, styles: Sequence[str], policy: str) -> Iterator[Markup]:
    yield element("meta", charset="utf-8")
    yield element("meta", http_equiv="Content-Security-Policy", content=policy)
    yield element(
        "meta", name="viewport", content="width=device-width, initial-scale=1"
    )
    yield element("meta", name="color-scheme", content="light dark")
    yield element("link", rel="icon", href="data:,")
    yield element("title", title)
    for style in styles:
        yield element("style", Markup(style))


def _format_body(
    title: str,
    sections: Sequence[Section],
    data: str,
    scripts: Sequence[str],
) -> Iterator[Markup]:
    note = element("noscript", element("p", NO_SCRIPTS, class_="quiet"))
    contents = [_format_section(*section) for section in sections]
    licence = _read_asset(LICENCE)
    yield element("a", "Skip to the answer", href="#answer", class_="skip")
    yield element("header", element("h1", title), _format_contents(sections))
    yield element("main", note, *contents)
    yield Markup(f"<!-- The charts are drawn by uPlot.\n{licence}\n-->")
    yield element("script", Markup(data), type="application/json", id="data")
    for script in scripts:
        yield element("script", Markup(script))


def _on_lines(elements: Iterable[Markup]) -> Iterator[Markup]:
    for part in elements:
        yield Markup("\n")
        yield part


def _format_contents(sections: Sequence[Section]) -> Markup:
    items = []
    for name, heading, _ in sections:
        items.append(element("li", element("a", heading, href=f"#{name}")))
    return element("nav", element("ul", *items), aria_label="Contents")


def _format_section(name: str, heading: str, content: Markup) -> Markup:
    heading_id = f"{name}-heading"
    title = element("h2", heading, id=heading_id)
    return element("section", title, content, id=name, aria_labelledby=heading_id)


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
