"""Results of corpora → tables of what was evaluated, and of how many examples call types need."""

from collections.abc import Iterable, Sequence
from math import nan
from typing import Any

import polars as pl

from callshot.records import CorpusResults, DurationStats
from callshot.report.choices import main_spread
from callshot.report.summary.context import say
from callshot.report.tables.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    Value,
    make_rows,
    table_of_corpus,
    table_of_study,
)

AllResults = Sequence[CorpusResults]
Facts = dict[str, Value]  # of one corpus, by the name of the row

UNITS = {"h": 3600.0, "min": 60.0}
FORMAT_ROWS = 4  # of the table of corpora; the others are its foot
ANNOTATED_ROWS = 7  # of the table of segments; the others are its foot
COMPLETE = "Complete to k"
COMPLETE_NOTE = (
    COMPLETE
    + ": the class can give k exemplars in every split, and no more in at least one."
)
SEGMENT_NOTE = (
    "The eligible support exemplars include the common fold, which has no queries. The complete "
    "shot count, k*, is the largest k at which every evaluated call type can give k exemplars in "
    "every split."
)


@table_of_study
def corpus_table(all_results: AllResults) -> Table:
    """Return the audio files of each corpus, before segmentation: the paper's table 1."""
    unit, unit_s = _choose_unit([results.stats.recordings for results in all_results])
    columns = []
    for results in all_results:
        stats = results.stats
        recordings = stats.recordings
        annotated = stats.annotated
        facts = {
            "Sampling rate (kHz)": _list_numbers(
                rate / 1000 for rate in stats.rates_hz
            ),
            "Channels": _list_numbers(stats.channels),
            "Format": ", ".join(stats.kinds) or None,
            "Call types annotated": stats.labels,
            "Audio files": recordings.count,
            "Annotated audio files": annotated.count,
            f"Total duration ({unit})": recordings.total_s / unit_s,
            f"Annotated duration ({unit})": annotated.total_s / unit_s,
            **_describe_lengths(recordings),
            "Cross-validation folds": results.evaluation.folds.count,
        }
        columns.append(facts)
    title = "Corpora: their audio files, before segmentation"
    return _make_table("corpora", title, all_results, columns, FORMAT_ROWS)


@table_of_study
def segment_table(all_results: AllResults) -> Table:
    """Return what was annotated, and what was evaluated: the paper's table 2."""
    unit, unit_s = _choose_unit([results.stats.calls for results in all_results])
    minima = {results.stats.min_length_s for results in all_results}
    columns = []
    for results in all_results:
        calls = results.stats.calls
        facts = {
            "Call types annotated": results.stats.labels,
            "Segments annotated": calls.count,
            f"Annotated duration ({unit})": calls.total_s / unit_s,
            **_describe_lengths(calls),
        }
        minimum = results.stats.min_length_s
        if len(minima) > 1:  # the name of a row is the same for all corpora
            facts["Minimum length (s)"] = _list_numbers([minimum])
            name = "of at least that length"
        elif minimum:
            name = f"of at least {minimum:g} s"
        else:
            name = "cut, of any length"
        evaluated = results.evaluated
        evaluation = results.evaluation
        exemplars = [one.exemplars for one in evaluation.eligible_classes]
        facts |= {
            f"Segments {name}": results.stats.segments.count,
            "Call types evaluated, C": len(exemplars),
            "Query segments, Q": evaluation.queries,
            "Eligible support exemplars": sum(exemplars),
            f"Evaluated duration ({unit})": evaluated.total_s / unit_s,
            **_describe_lengths(evaluated, ", evaluated"),
            "Complete shot count": evaluation.complete_shots,
        }
        columns.append(facts)
    title = "Segments annotated, and those of them evaluated"
    notes = [("", SEGMENT_NOTE)]
    return _make_table("segments", title, all_results, columns, ANNOTATED_ROWS, notes)


@table_of_corpus
def class_table(results: CorpusResults, *_: Any) -> Table:
    """Return the exemplars of each class and its complete shots; below, the classes left out."""
    evaluation = results.evaluation
    categories = results.categories or {}
    classes = sorted(
        evaluation.classes,
        key=lambda one: (not one.eligible, -one.exemplars, one.label),
    )
    excluded = len(evaluation.excluded_classes)
    columns = [Column("Call type"), Column("Exemplars"), Column(COMPLETE)]
    if excluded:
        columns.append(Column("Not evaluated because"))
    rows: list[list[Value]] = []
    members: dict[str, list[str]] = {}
    for one in classes:
        mark = ""
        if one.eligible and one.label in categories:
            mark = "†"
            members.setdefault(categories[one.label], []).append(one.label)
        complete = one.complete_to_k if one.eligible else None
        label = Cell(one.label, mark=mark)
        row: list[Value] = [label, one.exemplars, complete, one.reason]
        rows.append(row[: len(columns)])  # reasons only if some are left out
    notes = [("", COMPLETE_NOTE)]
    if members:
        notes.append(("†", say("categories", members)))
    title = f"{results.corpus}: call types evaluated, by their number of exemplars"
    cells = make_rows(rows)
    return Table(
        "classes",
        title,
        columns,
        cells,
        foot=excluded,  # they are sorted to the end
        notes=notes,
        section="left-out",
    )


def _make_table(
    name: str,
    title: str,
    all_results: AllResults,
    columns: Sequence[Facts],
    head: int,
    notes: Sequence[Note] = (),
) -> Table:
    """Return a table of the facts of each corpus; rows below the first `head` are the foot."""
    labels = columns[0]  # of the rows: the same for all corpora
    rows = make_rows([label, *(facts[label] for facts in columns)] for label in labels)
    corpora = [Column(""), *(Column(results.corpus) for results in all_results)]
    foot = len(rows) - head
    return Table(name, title, corpora, rows, foot=foot, notes=notes, section="left-out")


def _list_numbers(numbers: Iterable[float]) -> Cell:
    """Return numbers as one cell, which has a value if it is one number."""
    values = list(numbers)
    text = ", ".join(f"{value:g}" for value in values)
    return Cell(text or MISSING, values[0] if len(values) == 1 else None)


def _choose_unit(durations: Sequence[DurationStats]) -> tuple[str, float]:
    """Return the largest unit of which the longest total has at least two, and its seconds.

    >>> _choose_unit([DurationStats(226, 3336.0, 14.75, 0.49, 296.53, 31.55)])
    ('min', 60.0)
    """
    longest_s = max(stats.total_s for stats in durations)
    for unit, unit_s in UNITS.items():
        if longest_s >= 2 * unit_s:
            return unit, unit_s
    return "s", 1.0


def _describe_lengths(stats: DurationStats, subset: str = "") -> Facts:
    """Return rows on lengths, None if nothing was measured; names contain `subset`."""
    facts: Facts = {
        f"Average length{subset} (s)": stats.mean_s,
        f"Shortest{subset} (s)": stats.shortest_s,
        f"Longest{subset} (s)": stats.longest_s,
        f"Std. dev.{subset} (s)": stats.deviation_s,
    }
    return facts if stats.count else dict.fromkeys(facts)


LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
NEEDS_NOTE = (
    "The smallest evaluated k whose mean AP reaches the level; in brackets, the k at which 99 % "
    "of samples do. A dash: more than this call type has."
)


def examples_needed_table(results: CorpusResults, encoder: str, k: int) -> Table | None:
    """Return how many examples each call type needs for some levels of AP."""
    evaluation = results.evaluation
    spread = main_spread(evaluation)
    points = evaluation.per_class.filter(
        encoder=encoder, scoring="all", metric="map", spread=spread
    )
    if points.is_empty():
        return None
    rows = []
    for eligible in evaluation.eligible_classes:
        curve = points.filter(label=eligible.label).sort("k")
        # As far as the class has k examples in every split.
        complete = curve.filter(pl.col("k") <= eligible.complete_to_k)
        means_at_k = curve.filter(k=k)["mean"]
        mean = next(iter(means_at_k), nan)
        row = [eligible.label, eligible.exemplars, mean]
        for level in LEVELS:
            # The first k at which the mean, or the 1st percentile, reaches the level
            mean_reaches = complete.filter(pl.col("mean") >= level)
            percentile_reaches = complete.filter(pl.col("p01") >= level)
            on_average = next(iter(mean_reaches["k"]), None)
            nearly_always = next(iter(percentile_reaches["k"]), None)
            text = MISSING if on_average is None else str(on_average)
            if nearly_always is not None:
                text += f" ({nearly_always})"
            row.append(Cell(text, on_average))
        rows.append(row)
    levels = [Column(f"{level:g}", "examples for an AP of") for level in LEVELS]
    columns = [Column("call type"), Column("examples"), Column(f"AP with {k}"), *levels]
    title = f"How many examples a call type needs, with {encoder}"
    return Table("needs", title, columns, make_rows(rows), notes=[("", NEEDS_NOTE)])
