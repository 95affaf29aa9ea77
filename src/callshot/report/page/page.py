"""Chapters, sentences, tables and pictures → one HTML file that asks for no network and opens from disk.

Scripts and styles stand in the file and are named by their hashes in its content security policy: nothing else runs,
and nothing is fetched.
"""

import base64
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from callshot.records import CorpusResults
from callshot.report.output_folder import explain_errors
from callshot.report.page.budget import show_budget
from callshot.report.page.data import chart_data, to_json
from callshot.report.page.grids import show_table
from callshot.report.page.html import Markup, element, join
from callshot.report.page.sections import (
    show_answer,
    show_commands,
    show_left_out,
    show_picture,
    show_provenance,
)
from callshot.report.tables.table import Table

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = ("uPlot.iife.min.js", "dom.js", "chart.js", "panels.js", "tables.js")
LICENCE = "uPlot.LICENSE.txt"

Section = tuple[str, str, Markup]  # id, heading, content


def write_page(
    path: Path,
    title: str,
    all_results: Sequence[CorpusResults],
    *,
    answers: Mapping[str, Sequence[str]],
    tables: Mapping[str, Sequence[Table]],
    pictures: Mapping[str, Sequence[tuple[str, Path]]],
    provenance: Mapping[str, Any],
    commands: Sequence[str],
) -> None:
    """Write the report of a study; equal inputs give equal bytes.

    The mappings are by corpus. `answers` are sentences, the most important first; `pictures` are captions and PNG
    files; `commands` are the shell lines that repeat the study.
    """
    page = _Page(all_results, answers, tables, pictures, provenance, commands)
    text = _document(title, list(page.sections()), to_json(chart_data(all_results)))
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".callshot-", dir=path.parent) as folder:
            (Path(folder) / path.name).write_bytes(text.encode("utf-8"))
            os.replace(Path(folder) / path.name, path)  # noqa: PTH105


class _Page:
    """The sections, in the order in which they are read; those that have nothing to say are left out."""

    def __init__(
        self,
        all_results: Sequence[CorpusResults],
        answers: Mapping[str, Sequence[str]],
        tables: Mapping[str, Sequence[Table]],
        pictures: Mapping[str, Sequence[tuple[str, Path]]],
        provenance: Mapping[str, Any],
        commands: Sequence[str],
    ) -> None:
        self.all_results, self.answers, self.tables, self.pictures = (
            all_results,
            answers,
            tables,
            pictures,
        )
        self.provenance, self.commands = provenance, commands

    def sections(self) -> Iterator[Section]:
        each = self.each
        yield (
            "answer",
            "The answer",
            each(lambda c, _: show_answer(c, self.answers.get(c.evaluation.corpus, ()))),
        )
        yield "curves", "Curves", _panel("curves")
        yield from _told("tables", "Tables", each(self.show_tables))
        yield from _told("budget", "Label budget", each(self.show_budget))
        if any(corpus_results.differences for corpus_results in self.all_results):
            yield "differences", "Paired differences", _panel("differences")
        yield from _told("pictures", "Pictures", each(self.show_pictures))
        yield (
            "left-out",
            "Left out, and warnings",
            each(lambda c, at: show_left_out(c, f"left-{at}")),
        )
        yield from _told("provenance", "Provenance", self.show_provenance())
        yield from _told(
            "repeat", "Repeat it", show_commands(self.commands) if self.commands else Markup()
        )

    def each(self, show: Callable[[CorpusResults, int], Markup]) -> Markup:
        """Return what every corpus has to say; where there are several, under its name."""
        told = [(c.evaluation.corpus, show(c, at)) for at, c in enumerate(self.all_results)]
        several = len(self.all_results) > 1
        return join(
            *(join(element("h3", name) if several else "", part) for name, part in told if part)
        )

    def show_tables(self, corpus_results: CorpusResults, at: int) -> Markup:
        tables = self.tables.get(corpus_results.evaluation.corpus, ())
        return join(*(show_table(table, f"table-{at}-{i}") for i, table in enumerate(tables)))

    def show_budget(self, corpus_results: CorpusResults, _: int) -> Markup:
        return show_budget(corpus_results.budget)

    def show_pictures(self, corpus_results: CorpusResults, _: int) -> Markup:
        return join(
            *(
                show_picture(*picture)
                for picture in self.pictures.get(corpus_results.evaluation.corpus, ())
            )
        )

    def show_provenance(self) -> Markup:
        if not self.provenance:
            return Markup()
        what = element("summary", "The study, versions, options, and checksums")
        return element("details", what, show_provenance(self.provenance), class_="provenance")


def _panel(name: str) -> Markup:
    """Return the place of a chart, which scripts fill."""
    without = element(
        "noscript", element("p", "Scripts are off: the tables have these values at some k.")
    )
    return element("div", without, id=f"{name}-panel", class_="panel")


def _told(name: str, heading: str, content: Markup) -> Iterator[Section]:
    if content:
        yield name, heading, content


def _document(title: str, sections: Sequence[Section], data: str) -> str:
    styles, scripts = [_asset(name) for name in STYLES], [_asset(name) for name in SCRIPTS]
    policy = f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; img-src data:"
    head = [
        element("meta", charset="utf-8"),
        _meta_policy(f"{policy}; base-uri 'none'; form-action 'none'"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        *(element("style", Markup(text)) for text in styles),
    ]
    body = [
        element("a", "Skip to the answer", href="#answer", class_="skip"),
        element("header", element("h1", title), _contents(sections)),
        element("main", _without_scripts(), *(_section(*section) for section in sections)),
        Markup(f"<!-- The charts are drawn by uPlot.\n{_asset(LICENCE)}\n-->"),
        element("script", Markup(data), type="application/json", id="data"),
        *(element("script", Markup(text)) for text in scripts),
    ]
    page = element(
        "html", element("head", *_lines(head)), element("body", *_lines(body)), lang="en"
    )
    return f"<!doctype html>\n{page}\n"


def _lines(parts: Sequence[Markup]) -> Iterator[Markup]:
    for part in parts:
        yield Markup("\n")
        yield part


def _meta_policy(policy: str) -> Markup:
    return element("meta", http_equiv="Content-Security-Policy", content=policy)


def _contents(sections: Sequence[Section]) -> Markup:
    links = (element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in sections)
    return element("nav", element("ul", *links), aria_label="Contents")


def _section(name: str, heading: str, content: Markup) -> Markup:
    title = element("h2", heading, id=f"{name}-heading")
    return element("section", title, content, id=name, aria_labelledby=f"{name}-heading")


def _without_scripts() -> Markup:
    text = "Scripts are off: nothing can be drawn here, but the answer and the tables below are readable without scripts."
    return element("noscript", element("p", text, class_="quiet"))


def _asset(name: str) -> str:
    return (files("callshot.report.page") / "assets" / name).read_text(encoding="utf-8")


def _hashes(texts: Sequence[str]) -> str:
    digests = (
        base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
        for text in texts
    )
    return " ".join(f"'sha256-{digest}'" for digest in digests)
