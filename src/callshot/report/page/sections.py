"""Chapters → the sections of the page that are the same without scripts."""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from callshot.errors import InputError
from callshot.records import CorpusResults
from callshot.report.page.grids import show_table
from callshot.report.page.html import Markup, element, join
from callshot.report.page.words import count
from callshot.report.tables.table import Cell, Column, Table

PNG = b"\x89PNG\r\n\x1a\n"
MOST_REJECTS = 200


def show_answer(corpus_results: CorpusResults, sentences: Sequence[str]) -> Markup:
    """Return the answer of a corpus, and in one quiet line what it rests on."""
    lead = [
        element("p", sentence, class_=None if at else "lead")
        for at, sentence in enumerate(sentences)
    ]
    return join(*lead, element("p", _basis(corpus_results), class_="quiet"))


def _basis(corpus_results: CorpusResults) -> str:
    found = corpus_results.evaluation
    classes = count(sum(c.eligible for c in found.classes), "class", "classes")
    heard = f"{count(corpus_results.facts.recordings.count, 'recording')}, {count(corpus_results.evaluated.count, 'segment')}"
    return (
        f"From {heard}: {classes}, {count(found.queries, 'query', 'queries')} in {count(found.folds.count, 'fold')}. "
        f"Every class can give k exemplars in every split up to k* = {found.complete_shots}."
    )


def show_picture(caption: str, path: Path) -> Markup:
    """Return a PNG with its caption; its bytes are in the page."""
    data = path.read_bytes()
    if not data.startswith(PNG) or len(data) < 24:
        raise InputError(
            f"{path}: a picture of the report must be a PNG, and this is none; draw it again"
        )
    width, height = struct.unpack(">II", data[16:24])
    source = "data:image/png;base64," + base64.b64encode(data).decode("ascii")
    size = {"width": str(width), "height": str(height)}
    image = element("img", src=source, alt=caption, loading="lazy", decoding="async", **size)
    return element(
        "figure",
        element("div", image, class_="scroll"),
        element("figcaption", caption),
        class_="picture",
    )


def show_left_out(corpus_results: CorpusResults, name: str) -> Markup:
    """Return what was left out of a corpus, and why, and every warning."""
    return join(*_left_out(corpus_results, name)) or element(
        "p", "Nothing was left out, and there are no warnings."
    )


def _left_out(corpus_results: CorpusResults, name: str) -> Iterator[Markup]:
    notes = list(dict.fromkeys([*corpus_results.notes, *corpus_results.evaluation.notes]))
    if notes:
        yield element("ul", *(element("li", note) for note in notes), class_="warnings")
    if out := [c for c in corpus_results.evaluation.classes if not c.eligible]:
        rows = [[Cell(c.label), Cell(f"{c.exemplars:,}", c.exemplars), Cell(c.reason)] for c in out]
        columns = [Column("class"), Column("exemplars"), Column("reason")]
        yield show_table(
            Table("ineligible", "Classes that were not evaluated", columns, rows), f"{name}-classes"
        )
    if corpus_results.rejects:
        told = element(
            "summary",
            f"{count(len(corpus_results.rejects), 'row or file', 'rows and files')} left out, with reasons",
        )
        yield element("details", told, show_table(_reject_table(corpus_results), f"{name}-rejects"))


def _reject_table(corpus_results: CorpusResults) -> Table:
    total, shown = len(corpus_results.rejects), corpus_results.rejects[:MOST_REJECTS]
    rows = [
        [Cell(r.file), Cell("" if r.row is None else str(r.row), r.row), Cell(r.reason)]
        for r in shown
    ]
    title = "Rows and files that were left out"
    title += (
        f": the first {MOST_REJECTS} of {total:,}, rejects.csv has them all"
        if total > MOST_REJECTS
        else ""
    )
    return Table("rejects", title, [Column("file"), Column("row"), Column("reason")], rows)


def show_provenance(value: Any) -> Markup:
    """Return nested facts as nested lists; lists of plain values stay on one line."""
    if isinstance(value, Mapping):
        pairs = (
            join(element("dt", str(key)), element("dd", show_provenance(v)))
            for key, v in value.items()
        )
        return element("dl", *pairs)
    if isinstance(value, list | tuple) and any(
        isinstance(v, Mapping | list | tuple) for v in value
    ):
        return element("ul", *(element("li", show_provenance(v)) for v in value))
    if isinstance(value, list | tuple):
        return join(", ".join(_plain(v) for v in value) or "none")
    if isinstance(value, str) and "\n" in value:
        return element("pre", value)
    return join(_plain(value))


def _plain(value: Any) -> str:
    if isinstance(value, str | Path):
        return str(value)
    return "none" if value is None else json.dumps(value, default=str)


def show_commands(commands: Sequence[str]) -> Markup:
    """Return shell lines to copy."""
    return element("pre", element("code", "\n".join(commands)), tabindex="0")
