"""A chapter → its intervals and its paired differences by k."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from callshot.records import CorpusResults, Curve, Difference
from callshot.report.tables.file_names import safe_name
from callshot.report.tables.scores import METRICS, SPREADS
from callshot.report.tables.shots import (
    PAPER_SHOTS,
    shot_cell,
    shown_shots,
    star_note,
    starred_shot,
)
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Group = tuple[str, str]  # a spread and a metric
Points = Mapping[
    tuple[str, int, Group], Curve | Difference
]  # by the name of a block of rows, k, and group

INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"


def intervals(corpus_results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table:
    """Tell the mean and the 1st to 99th percentile of both spreads by k, for each encoder."""
    curve = [
        c for c in corpus_results.evaluation.curve if c.scoring == "all" and c.metric in METRICS
    ]
    points: Points = {(c.encoder, c.k, (c.spread, c.metric)): c for c in curve}
    told = (
        f"{spread} is {SPREADS.get(spread, spread)}"
        for spread in dict.fromkeys(c.spread for c in curve)
    )
    note = f"{PERCENTILES}; {'; '.join(told)}."
    return _tell(
        corpus_results,
        "intervals",
        "means and intervals by k",
        "Encoder",
        points,
        INTERVAL,
        shots,
        note,
    )


def differences(corpus_results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table | None:
    """Tell paired differences by k, where there are any: mean, interval, and the share of samples in which one wins."""
    points: Points = {
        (_pair(d), d.k, (d.spread, d.metric)): d
        for d in corpus_results.differences
        if d.metric in METRICS
    }
    note = (
        f"The first less the second, over the same draws; {PERCENTILES}; wins is the share of samples in which the "
        "first is larger, equal ones counted half."
    )
    fields, title = (*INTERVAL, "wins"), "paired differences by k"
    return (
        _tell(corpus_results, "differences", title, "Difference", points, fields, shots, note)
        if points
        else None
    )


def _pair(difference: Difference) -> str:
    scoring = "" if difference.scoring == "all" else f", {difference.scoring} scoring"
    return f"{difference.one} − {difference.other}{scoring}"


def _tell(
    corpus_results: CorpusResults,
    name: str,
    title: str,
    lead: str,
    points: Points,
    fields: Sequence[str],
    shots: Sequence[int],
    note: str,
) -> Table:
    """Make a block of rows by k for each encoder or pair, and a group of columns for each spread and metric."""
    corpus, best = corpus_results.evaluation.corpus, corpus_results.evaluation.complete_shots
    shown, groups = shown_shots((k for _, k, _ in points), shots), _groups(points)
    star = starred_shot(shown, best)
    rows = [
        [
            Cell(block),
            shot_cell(k, star),
            *_cells((points.get((block, k, group)) for group in groups), fields),
        ]
        for block in dict.fromkeys(block for block, _, _ in points)
        for k in shown
    ]
    heads = (
        Column(field, f"{METRICS[metric]}, {spread}")
        for spread, metric in groups
        for field in fields
    )
    columns, notes = [Column(lead), Column("k"), *heads], [star_note(star, best), ("", note)]
    return Table(
        f"{name}-{safe_name(corpus)}", f"{corpus}: {title}", columns, rows, 0, notes, blocks=True
    )


def _groups(points: Points) -> list[Group]:
    """Return the spreads in their order, each with its metrics in that of the tables."""
    there = dict.fromkeys(group for _, _, group in points)
    return [(s, m) for s in dict.fromkeys(s for s, _ in there) for m in METRICS if (s, m) in there]


def _cells(points: Iterable[Curve | Difference | None], fields: Sequence[str]) -> Iterator[Cell]:
    for point in points:
        yield from (
            Cell(MISSING) if point is None else number(getattr(point, field), 3) for field in fields
        )
