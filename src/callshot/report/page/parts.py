"""Text, tables, pictures and results of a corpus → parts of the page, without scripts.

The templates are in `templates/`. Text from files is always text: Jinja escapes it, and characters
that a page cannot hold are replaced.
"""

import base64
import json
import struct
from collections.abc import Mapping
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Template
from markupsafe import Markup

from callshot.errors import InputError, count_text
from callshot.fewshot.label_budget import has_gains, recommended_class
from callshot.records import METRICS, CorpusResults
from callshot.records.frames import Frame
from callshot.report.tables.table import (
    Column,
    Table,
    column_groups,
    make_rows,
    number_columns,
)
from callshot.report.templates import clean, make_environment

PNG = b"\x89PNG\r\n\x1a\n"
MAX_REJECTS = 200
MAX_ITEMS = 100  # of a list in the provenance, for example of recordings


@cache
def get_template(name: str) -> Template:
    """Return a template of the page, in which text is escaped."""
    environment = make_environment("callshot.report.page", clean, autoescape=True)
    environment.filters["plain"] = _format_value
    environment.filters["change"] = format_change
    environment.filters["class_metric"] = class_metric_name
    environment.tests["finite"] = lambda value: value is not None and isfinite(value)
    environment.tests["nested"] = _is_nested
    return environment.get_template(name)


def render(part: str, *values: Any) -> Markup:
    """Return a part of the page: a macro of `parts.html`.

    >>> render("paragraphs", ["1 < 2"])
    Markup('<p>1 &lt; 2</p>')
    """
    macro = getattr(get_template("parts.html").module, part)
    return Markup(macro(*values))


def _is_nested(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return any(isinstance(item, Mapping | list | tuple) for item in value)


def _format_value(value: Any) -> str:
    """Return a plain value of the provenance, or a list of such values."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "none"
    if value is None:
        return "none"
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(value, default=str)


def show_table(table: Table, name: str) -> Markup:
    """Return a table in a box that scrolls, with its caption and notes; `name` is its id."""
    # A column with any number in it is aligned and sorted as numbers.
    classes = ["n" if is_number else "" for is_number in number_columns(table)]
    return render("table", table, name, classes, list(column_groups(table.columns)))


def show_picture(caption: str, path: Path) -> Markup:
    """Return a PNG with its caption; its bytes are in the page."""
    data = path.read_bytes()
    if not data.startswith(PNG) or len(data) < 24:
        raise InputError(f"{path}: expected a PNG file; draw the figure again")
    encoded = base64.b64encode(data).decode("ascii")
    return render("picture", caption, encoded, *struct.unpack(">II", data[16:24]))


def show_budget(budget: Frame) -> Markup:
    """Return a list of classes for each encoder and metric; the best encoder is first, and open."""
    value = pl.col("value").fill_nan(None)
    gain = pl.col("next_gain").fill_nan(None)
    ordered = budget.sort(
        value.mean().over("encoder", "metric"),
        "encoder",
        "metric",
        gain,
        "label",
        descending=[True, False, False, True, False],
        nulls_last=True,
    )
    encoders = [
        (rows.to_dicts(), recommended_class(rows), has_gains(rows))
        for rows in ordered.partition_by("encoder", "metric")
    ]
    return render("budget", encoders)


def show_left_out(results: CorpusResults, name: str) -> Markup:
    """Return the warnings of a corpus, and what was left out, with reasons."""
    evaluation = results.evaluation
    notes = list(dict.fromkeys([*results.notes, *evaluation.notes]))
    excluded = rejects = ""
    if evaluation.excluded_classes:
        title = "Classes that were not evaluated"
        columns = [Column("class"), Column("exemplars"), Column("reason")]
        classes = evaluation.excluded_classes
        rows = make_rows([one.label, one.exemplars, one.reason] for one in classes)
        table = Table("ineligible", title, columns, rows)
        excluded = show_table(table, f"{name}-classes")
    if results.rejects:
        title = "Rows and files that were left out"
        if len(results.rejects) > MAX_REJECTS:
            title += f": the first {MAX_REJECTS} of {len(results.rejects):,}; "
            title += "rejects.csv has all of them"
        columns = [Column("file"), Column("row"), Column("reason")]
        shown = results.rejects[:MAX_REJECTS]
        rows = make_rows(
            [one.file, "" if one.row is None else one.row, one.reason] for one in shown
        )
        table = Table("rejects", title, columns, rows)
        rejects = show_table(table, f"{name}-rejects")
    count = count_text(len(results.rejects), "row or file", "rows and files")
    return render("left_out", notes, excluded, rejects, count)


def class_metric_name(metric: str) -> str:
    """Return what people call a metric of one class, whose AP is not a mean."""
    return METRICS[metric].of_class


def format_change(value: float, digits: int = 3) -> str:
    """Return a difference with its sign, or without one if it rounds to 0.

    >>> format_change(0.0214), format_change(-0.5), format_change(-0.0001)
    ('+0.021', '−0.500', '0.000')
    """
    sign = "+" if round(value, digits) else ""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")
