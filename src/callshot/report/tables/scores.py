"""Results of a corpus → tables of means by k, underlined where the centroid passes a baseline.

These are the paper's tables 4 to 6. All tables by k choose their shots and mark k* as here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, nan
from typing import Any

import polars as pl

from callshot.fewshot.differences import baseline_name
from callshot.records import BASELINE_KINDS, METRIC_NAMES, CorpusResults
from callshot.records.frames import Frame, Shots
from callshot.report.tables.table import Cell, Column, Table, number
from callshot.report.terminal import starred_shot

Row = list[Cell]
Note = tuple[str, str]  # a mark, and its text
ScoreColumn = tuple[str, str]  # an encoder and a metric

TABLE_METRICS = ("auroc", "map")  # in the order of the columns
IS_SHOWN = pl.col("metric").is_in(TABLE_METRICS)
PAPER_SHOTS = (1, 2, 3, 4, 5, 10, 15, 20, 40)
UNDERLINES = {"logistic": 1, "recurrent": 2}
SPREADS = {
    "per-query": "the paper's: over bootstrap samples, in which each query has its own support set",
    "shared": (
        "the luck of which examples were labelled: over sets that serve all queries of these "
        "recordings"
    ),
    "total": "what one labelled set would score on other recordings of the same kind",
}
TRAINED_NOTE = (
    "Baselines are trained on all labelled data of the support side of each split."
)


def score_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, spread: str = "per-query"
) -> Table:
    """Return AUROC and mAP by k for each encoder, with baselines and chance: tables 4 and 5.

    Only evaluated shots are shown, and all of them where none of `shots` was evaluated. If `spread`
    was not evaluated, the first one is shown.
    """
    sweep = _select_sweep(results, "all", shots, spread)
    title = "mean AUROC and mAP of the centroid with k exemplars per class"
    return _make_table(results, sweep, "results", title, UNDERLINES)


def reduced_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, spread: str = "per-query"
) -> Table | None:
    """Return the same in reduced scoring, if there are categories: table 6.

    Underlines compare with end-to-end baselines, or with those of `score_table` if there are none.
    """
    if "reduced" not in results.evaluation.curve["scoring"]:
        return None
    sweep = _select_sweep(results, "reduced", shots, spread)
    underlines = {"end-to-end": 1} if "end-to-end" in sweep.kinds else UNDERLINES
    title = "mean AUROC and mAP of the centroid over categories (reduced scoring)"
    return _make_table(results, sweep, "reduced", title, underlines)


def shown_shots(evaluated: Iterable[int], table_shots: Shots) -> list[int]:
    """Return the evaluated shots of a table, or all evaluated ones if there are none.

    >>> shown_shots([1, 2, 3, 4, 7], (1, 2, 5)), shown_shots([7, 6, 7], (1, 2))
    ([1, 2], [6, 7])
    """
    shots = set(evaluated)
    return sorted(shots & set(table_shots)) or sorted(shots)


def shot_cell(k: int, star: int | None) -> Cell:
    """Return the cell that names the k of a row."""
    mark = "⋆" if k == star else ""
    return Cell(str(k), k, mark=mark)


def star_note(star: int | None, complete_shots: int) -> Note:
    """Return the note on the starred row."""
    last = f"k* = {complete_shots}, the largest k at which every class is complete"
    if star is None:
        return "", f"At every k shown, every class is complete: k* = {complete_shots}."
    if star == complete_shots:
        return "⋆", f"This row is at {last}. Beyond it, support is partial."
    return "⋆", f"This row is the first beyond {last}. Its support is partial."


@dataclass(frozen=True)
class _Sweep:
    """The means of one scoring and spread at the shots shown, and the baselines of that scoring."""

    spread: str
    shots: list[int]
    means: dict[tuple[Any, ...], float]  # by encoder, metric and k
    chances: dict[ScoreColumn, float]
    baselines: Frame

    @property
    def columns(self) -> list[ScoreColumn]:
        """The encoder and the metric of each column."""
        encoders = dict.fromkeys(encoder for encoder, _ in self.chances)
        return list(product(encoders, TABLE_METRICS))

    @property
    def kinds(self) -> dict[str, Frame]:
        """The baselines of each kind, in the order of their rows."""
        baselines = self.baselines
        kinds = [kind for kind in BASELINE_KINDS if kind in baselines["kind"]]
        return {kind: baselines.filter(kind=kind) for kind in kinds}

    def mean(self, column: ScoreColumn, k: int) -> float:
        return self.means.get((*column, k), nan)

    def crossovers(self, kind: str) -> dict[ScoreColumn, int]:
        """Return, by column, the first k shown whose mean is above every baseline of a kind."""
        baselines = self.baselines.filter(kind=kind)
        shots = {}
        for column in self.columns:
            best = max(_column_values(baselines, column), default=inf)
            above = [k for k in self.shots if self.mean(column, k) > best]
            if above:
                shots[column] = above[0]
        return shots


def _select_sweep(
    results: CorpusResults, scoring: str, shots: Shots, spread: str
) -> _Sweep:
    curve = results.evaluation.curve.filter(IS_SHOWN, scoring=scoring)
    if spread not in curve["spread"]:
        spread = curve["spread"][0]
    curve = curve.filter(spread=spread)
    means = {}
    chances = {}
    points = curve.select("encoder", "metric", "k", "mean", "chance")
    for encoder, metric, k, mean, chance in points.iter_rows():
        means[encoder, metric, k] = mean
        chances[encoder, metric] = chance
    return _Sweep(
        spread,
        shown_shots(curve["k"], shots),
        means,
        chances,
        results.baselines.filter(scoring=scoring),
    )


def _make_table(
    results: CorpusResults,
    sweep: _Sweep,
    name: str,
    title: str,
    underlines: Mapping[str, int],
) -> Table:
    """Return rows of k, then baselines, then chance; `underlines` has a number of lines by kind."""
    complete_shots = results.evaluation.complete_shots
    star = starred_shot(sweep.shots, complete_shots)
    foot = list(_foot_rows(sweep))
    columns = [
        Column(METRIC_NAMES[metric], encoder) for encoder, metric in sweep.columns
    ]
    texts = [
        *_underline_notes(sweep, underlines),
        *_baseline_notes(sweep),
        "Chance: what a random ranking scores.",
        f"The spread {sweep.spread} is {SPREADS[sweep.spread]}.",
    ]
    notes = [("", text) for text in texts]
    return Table(
        name,
        f"{results.corpus}: {title}, {sweep.spread}",
        [Column("k"), *columns],
        [*_mean_rows(sweep, underlines, star), *foot],
        foot=len(foot),
        notes=[star_note(star, complete_shots), *notes],
    )


def _mean_rows(
    sweep: _Sweep, underlines: Mapping[str, int], star: int | None
) -> Iterator[Row]:
    """Yield the means by k; where two crossovers coincide, the larger number of lines is drawn."""
    lines = {}
    for kind, count in underlines.items():
        for crossover in sweep.crossovers(kind).items():
            lines[crossover] = count
    for k in sweep.shots:
        row = [shot_cell(k, star)]
        for column in sweep.columns:
            underline = lines.get((column, k), 0)
            row.append(number(sweep.mean(column, k), underline=underline))
        yield row


def _foot_rows(sweep: _Sweep) -> Iterator[Row]:
    """Yield the rows of baselines, and chance."""
    for baselines in sweep.kinds.values():
        yield from _baseline_rows(sweep, baselines)
    chances = [number(sweep.chances.get(column, nan)) for column in sweep.columns]
    yield [Cell("Chance"), *chances]


def _baseline_rows(sweep: _Sweep, baselines: Frame) -> Iterator[Row]:
    """Yield one row for all baselines of a kind, or one per name if an encoder has several."""
    groups = [baselines]
    counts = [len(_column_values(baselines, column)) for column in sweep.columns]
    if max(counts) > 1:
        groups = baselines.partition_by("name")
    for group in groups:
        row = [Cell(_row_name(group))]
        for column in sweep.columns:
            values = _column_values(group, column) or [nan]
            row.append(number(values[0]))
        yield row


def reads_encoder(encoder: str) -> pl.Expr:
    """Return whether a baseline was trained on this encoder, or reads audio."""
    return pl.col("encoder").is_in(["", encoder])


def _column_values(baselines: Frame, column: ScoreColumn) -> list[float]:
    """Return the values of baselines on an encoder, and of those that read audio."""
    encoder, metric = column
    return baselines.filter(reads_encoder(encoder), metric=metric)["value"].to_list()


def _row_name(baselines: Frame) -> str:
    """Return the name of the baselines in a row, or their kind if they have several names."""
    if _has_several_names(baselines):
        return str(baselines["kind"][0].capitalize())
    return str(baselines["name"][0])


def _has_several_names(baselines: Frame) -> bool:
    return baselines["name"].n_unique() > 1


def _underline_notes(sweep: _Sweep, underlines: Mapping[str, int]) -> Iterator[str]:
    for kind, baselines in sweep.kinds.items():
        if kind not in underlines:
            continue
        name = _row_name(baselines)
        if _has_several_names(baselines):
            name = f"every {kind} baseline of the encoder"
        if not sweep.crossovers(kind):
            yield f"No mean shown is above {name}."
        elif underlines[kind] == 1:
            yield f"Underlined once: the first k shown whose mean is above {name}."
        else:
            yield (
                f"Underlined twice: the first k shown whose mean is above {name}; "
                "also where both underlines would be at the same k."
            )


def _baseline_notes(sweep: _Sweep) -> Iterator[str]:
    """Yield what the names of baseline rows leave open."""
    for baselines in sweep.kinds.values():
        yield from _kind_notes(baselines)
    if not sweep.baselines.is_empty():
        yield TRAINED_NOTE


def _kind_notes(baselines: Frame) -> Iterator[str]:
    row_name = _row_name(baselines)
    if _has_several_names(baselines):
        pairs = baselines.select("name", "encoder").unique(maintain_order=True)
        names = map(baseline_name, pairs.to_dicts())
        yield f"{row_name}: {'; '.join(names)}."
    if "" not in baselines["encoder"]:
        return
    yield f"{row_name} reads the audio: its values are the same for every encoder."
    if "reduced" in baselines["scoring"]:
        yield (
            f"{row_name} has one score per category; for the centroid, the AP of classes is "
            "averaged within categories. The two tasks are compared as in the paper."
        )
