"""Results of a corpus → the parts of sections that are the same without scripts."""

import base64
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import polars as pl

from callshot.errors import InputError
from callshot.fewshot.label_budget import has_gains, recommended_class
from callshot.records import ClassCount, CorpusResults, Reject
from callshot.records.frames import Frame
from callshot.report.page.data import class_metric_name
from callshot.report.page.grids import show_table
from callshot.report.page.html import Markup, element, join
from callshot.report.tables.table import Cell, Column, Table

PNG = b"\x89PNG\r\n\x1a\n"
MAX_REJECTS = 200
MAX_ITEMS = 100  # of a list in the provenance, for example of recordings
NOTHING_LEFT_OUT = "Nothing was left out, and there are no warnings."
BUDGET_NOTE = (
    "What one more example is worth to a class, by a curve a − b/k fitted to its own points; at "
    "each step every class gets one more. The longer the bar, the more the next label helps. The "
    "curve is fitted again in every sample of the spread total; more labels are "
    "recommended for a class that gains in 98 % of them, gains most in 90 %, and would gain at "
    "least 0.01 from twice as many."
)


def show_picture(caption: str, path: Path) -> Markup:
    """Return a PNG with its caption; its bytes are in the page."""
    data = path.read_bytes()
    if not data.startswith(PNG) or len(data) < 24:
        raise InputError(f"{path}: expected a PNG file; draw the figure again")
    width, height = struct.unpack(">II", data[16:24])
    encoded = base64.b64encode(data).decode("ascii")
    image = element(
        "img",
        src=f"data:image/png;base64,{encoded}",
        alt=caption,
        loading="lazy",
        decoding="async",
        width=str(width),
        height=str(height),
    )
    return element(
        "figure",
        element("div", image, class_="scroll"),
        element("figcaption", caption),
        class_="picture",
    )


def show_budget(budget: Frame) -> Markup:
    """Return a list of classes for each encoder and metric; the best encoder is first, and open."""
    parts: list[Markup] = []
    for rows in _order_budget(budget).partition_by("encoder", "metric"):
        most = max(0.0, rows["next_gain"][0])  # 0 if no gain is known
        items = [_show_class(row, most) for row in rows.iter_rows(named=True)]
        part = element(
            "details",
            element("summary", describe_budget(rows)),
            element("ol", *items, class_="budget"),
            open=not parts,
            data_testid="budget",
        )
        parts.append(part)
    if parts:
        parts.insert(0, element("p", BUDGET_NOTE, class_="quiet"))
    return join(*parts)


def _order_budget(budget: Frame) -> Frame:
    """Sort by the mean of an encoder, then by the gain of a class, both largest first."""
    value = pl.col("value").fill_nan(None)
    gain = pl.col("next_gain").fill_nan(None)
    return budget.sort(
        value.mean().over("encoder", "metric"),
        "encoder",
        "metric",
        gain,
        "label",
        descending=[True, False, False, True, False],
        nulls_last=True,
    )


def describe_budget(rows: Frame) -> str:
    """Return which class of an encoder gains most from its next example, if one stands out."""
    encoder = rows["encoder"][0]
    metric = class_metric_name(rows["metric"][0])
    best = recommended_class(rows)
    if best is not None:
        gain = format_change(best["next_gain"], 4)
        value = format_number(best["value"])
        return (
            f"With {encoder}, “{best['label']}” gains most from its next example: about {gain} "
            f"on an {metric} of {value} with {best['k']}."
        )
    if has_gains(rows):
        return f"With {encoder}, no call type stands out."
    return f"With {encoder}, it is not known which call type gains most."


def _show_class(row: dict[str, Any], most: float) -> Markup:
    gain = row["next_gain"]
    text = "not known"
    share = 0.0
    if isfinite(gain):
        text = format_change(gain, 4)
        if gain > 0:
            share = 100 * gain / most
    bar = element("rect", width=f"{share:.1f}%", height="100%", rx="2")
    return element(
        "li",
        element("span", row["label"], class_="label"),
        element("span", text, class_="gain"),
        element("svg", bar, class_="bar", aria_hidden="true"),
        element("small", "; ".join(_describe_class(row))),
    )


def _describe_class(row: dict[str, Any]) -> Iterator[str]:
    exemplars = format_count(row["exemplars"], "exemplar")
    if row["k"] == 0:
        yield f"{exemplars}, and no evaluated shot that all splits can give"
        return
    metric = class_metric_name(row["metric"])
    value = format_number(row["value"])
    yield f"{metric} {value} with {row['k']} of {exemplars}"
    if not isfinite(row["next_gain"]):
        yield "too few complete shots for a curve"
        return
    yield f"twice as many: {format_change(row['double_gain'])}"
    yield f"the curve levels off at {format_number(row['limit'])}"
    if isfinite(row["prob_largest_gain"]):
        low = format_change(row["next_gain_p01"], 4)
        high = format_change(row["next_gain_p99"], 4)
        yield f"98 % interval of the gain: {low} to {high}"
        yield f"gains most in {100 * row['prob_largest_gain']:.0f} % of samples"


def show_left_out(results: CorpusResults, name: str) -> Markup:
    """Return the warnings of a corpus, and what was left out, with reasons."""
    content = join(*_left_out_parts(results, name))
    return content or element("p", NOTHING_LEFT_OUT)


def _left_out_parts(results: CorpusResults, name: str) -> Iterator[Markup]:
    evaluation = results.evaluation
    notes = dict.fromkeys([*results.notes, *evaluation.notes])
    if notes:
        items = [element("li", note) for note in notes]
        yield element("ul", *items, class_="warnings")
    excluded = evaluation.excluded_classes
    if excluded:
        yield show_table(_excluded_table(excluded), f"{name}-classes")
    if results.rejects:
        count = format_count(len(results.rejects), "row or file", "rows and files")
        summary = element("summary", f"{count} left out, with reasons")
        table = show_table(_reject_table(results.rejects), f"{name}-rejects")
        yield element("details", summary, table)


def _excluded_table(classes: Sequence[ClassCount]) -> Table:
    rows = []
    for count in classes:
        exemplars = Cell(f"{count.exemplars:,}", count.exemplars)
        rows.append([Cell(count.label), exemplars, Cell(count.reason)])
    columns = [Column("class"), Column("exemplars"), Column("reason")]
    return Table("ineligible", "Classes that were not evaluated", columns, rows)


def _reject_table(rejects: Sequence[Reject]) -> Table:
    title = "Rows and files that were left out"
    if len(rejects) > MAX_REJECTS:
        title += f": the first {MAX_REJECTS} of {len(rejects):,}; rejects.csv has all of them"
    rows = []
    for reject in rejects[:MAX_REJECTS]:
        text = "" if reject.row is None else str(reject.row)
        row = Cell(text, reject.row)
        rows.append([Cell(reject.file), row, Cell(reject.reason)])
    columns = [Column("file"), Column("row"), Column("reason")]
    return Table("rejects", title, columns, rows)


def show_provenance(value: Any) -> Markup:
    """Return nested values as nested lists; a list of plain values is one line."""
    if isinstance(value, Mapping):
        return element("dl", *map(_show_fact, value.keys(), value.values()))
    if isinstance(value, list | tuple):
        return _show_list(value)
    if isinstance(value, str) and "\n" in value:
        return element("pre", value)
    return join(_format_value(value))


def _show_fact(name: object, value: Any) -> Markup:
    term = element("dt", str(name))
    description = element("dd", show_provenance(value))
    return join(term, description)


def _show_list(values: Sequence[Any]) -> Markup:
    if any(isinstance(value, Mapping | list | tuple) for value in values):
        shown = values[:MAX_ITEMS]
        items = [element("li", show_provenance(value)) for value in shown]
        if len(values) > MAX_ITEMS:
            rest = len(values) - MAX_ITEMS
            items.append(element("li", f"and {rest} more, in provenance.json"))
        return element("ul", *items)
    texts = map(_format_value, values)
    return join(", ".join(texts) or "none")


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(value, default=str)


def show_commands(commands: Sequence[str]) -> Markup:
    """Return shell commands to copy, or nothing if there are none."""
    if not commands:
        return Markup()
    lines = "\n".join(commands)
    return element("pre", element("code", lines), tabindex="0")


def format_number(value: float) -> str:
    """Return a number with three decimals.

    >>> format_number(-0.12345)
    '−0.123'
    """
    return f"{value:.3f}".replace("-", "−")


def format_change(value: float, digits: int = 3) -> str:
    """Return a difference with its sign, or without one if it rounds to 0.

    >>> format_change(0.0214), format_change(-0.5), format_change(-0.0001)
    ('+0.021', '−0.500', '0.000')
    """
    sign = "+" if round(value, digits) else ""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a number of things.

    >>> format_count(1, "class", "classes"), format_count(1200, "query", "queries")
    ('1 class', '1,200 queries')
    """
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {plural or noun + 's'}"
