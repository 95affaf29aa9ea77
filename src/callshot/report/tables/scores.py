"""Results of a corpus → tables of means by k, underlined where the centroid passes a baseline.

These are the paper's tables 4 to 6. All tables by k choose their shots and mark k* as here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import nan

import polars as pl

from callshot.fewshot.differences import baseline_name
from callshot.records import BASELINE_KINDS, CorpusResults
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Row = list[Cell]
Note = tuple[str, str]  # a mark, and its text

METRIC_NAMES = {"auroc": "AUROC", "map": "mAP"}  # in the order of the columns
PAPER_SHOTS = (1, 2, 3, 4, 5, 10, 15, 20, 40)
UNDERLINES = {"logistic": 1, "recurrent": 2}
SPREADS = {
    "per-query": "over bootstrap samples, in which every query has its own support set",
    "shared": (
        "over sets of labelled exemplars that serve all queries; query sampling is not included"
    ),
}
TRAINED_NOTE = "Baselines are trained on all labelled data of the support side of each split."


def score_table(
    results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS, spread: str = "per-query"
) -> Table:
    """Return AUROC and mAP by k for each encoder, with baselines and chance: tables 4 and 5.

    Only evaluated shots are shown, and all of them where none of `shots` was evaluated. If `spread`
    was not evaluated, the first one is shown.
    """
    sweep = _select_sweep(results, "all", shots, spread)
    title = "mean AUROC and mAP of the centroid with k exemplars per class"
    return _make_table(results, sweep, "results", title, UNDERLINES)


def reduced_table(
    results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS, spread: str = "per-query"
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


def shown_shots(evaluated: Iterable[int], wanted: Sequence[int]) -> list[int]:
    """Return the shots that are wanted and evaluated, or all evaluated ones if there are none.

    >>> shown_shots([1, 2, 3, 4, 7], (1, 2, 5)), shown_shots([7, 6, 7], (1, 2))
    ([1, 2], [6, 7])
    """
    shots = set(evaluated)
    return sorted(shots & set(wanted)) or sorted(shots)


def starred_shot(shots: Sequence[int], complete_shots: int) -> int | None:
    """Return the k to mark: k* if it is shown, else the first beyond it.

    >>> [starred_shot((1, 5, 10), k) for k in (5, 7, 31)]
    [5, 10, None]
    """
    return min((k for k in shots if k >= complete_shots), default=None)


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
    means: dict[tuple[str, str, int], float]  # by encoder, metric and k
    chances: dict[tuple[str, str], float]  # by encoder and metric
    baselines: pl.DataFrame

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The encoder and the metric of each column."""
        encoders = dict.fromkeys(encoder for encoder, _ in self.chances)
        return list(product(encoders, METRIC_NAMES))

    @property
    def kinds(self) -> dict[str, pl.DataFrame]:
        """The baselines of each kind, in the order of their rows."""
        kinds = [kind for kind in BASELINE_KINDS if kind in self.baselines["kind"]]
        return {kind: self.baselines.filter(kind=kind) for kind in kinds}

    def crossovers(self, kind: str) -> dict[tuple[str, str], int]:
        """Return, by column, the first k shown whose mean is above every baseline of a kind."""
        shots = {}
        for column in self.columns:
            values = _column_values(self.baselines.filter(kind=kind), *column)
            for k in reversed(self.shots):
                if values and self.means.get((*column, k), nan) > max(values):
                    shots[column] = k
        return shots


def _select_sweep(
    results: CorpusResults, scoring: str, shots: Sequence[int], spread: str
) -> _Sweep:
    curve = results.evaluation.curve.filter(
        pl.col("metric").is_in(list(METRIC_NAMES)),
        scoring=scoring,
    )
    if spread not in curve["spread"]:
        spread = curve["spread"][0]
    curve = curve.filter(spread=spread)
    means = curve.select("encoder", "metric", "k", "mean").iter_rows()
    chances = curve.select("encoder", "metric", "chance").iter_rows()
    return _Sweep(
        spread,
        shown_shots(curve["k"], shots),
        {(encoder, metric, k): mean for encoder, metric, k, mean in means},
        {(encoder, metric): chance for encoder, metric, chance in chances},
        results.baselines.filter(scoring=scoring),
    )


def _make_table(
    results: CorpusResults, sweep: _Sweep, name: str, title: str, underlines: Mapping[str, int]
) -> Table:
    """Return rows of k, then baselines, then chance; `underlines` has a number of lines by kind."""
    evaluation = results.evaluation
    star = starred_shot(sweep.shots, evaluation.complete_shots)
    rows = list(_mean_rows(sweep, underlines, star))
    for baselines in sweep.kinds.values():
        rows += _baseline_rows(sweep, baselines)
    chances = [number(sweep.chances.get(column, nan)) for column in sweep.columns]
    rows.append([Cell("Chance"), *chances])
    columns = [Column(METRIC_NAMES[metric], encoder) for encoder, metric in sweep.columns]
    texts = [
        *_underline_notes(sweep, underlines),
        *_baseline_notes(sweep),
        f"Chance: what a random ranking scores. Means are {SPREADS[sweep.spread]}.",
    ]
    notes = [("", text) for text in texts]
    return Table(
        name,
        f"{evaluation.corpus}: {title}, {sweep.spread}",
        [Column("k"), *columns],
        rows,
        foot=len(rows) - len(sweep.shots),
        notes=[star_note(star, evaluation.complete_shots), *notes],
    )


def _mean_rows(sweep: _Sweep, underlines: Mapping[str, int], star: int | None) -> Iterator[Row]:
    """Yield the means by k; where two crossovers coincide, the larger number of lines is drawn."""
    lines = {}
    for kind, count in underlines.items():
        for column, k in sweep.crossovers(kind).items():
            lines[*column, k] = count
    for k in sweep.shots:
        row = [shot_cell(k, star)]
        for column in sweep.columns:
            mean = sweep.means.get((*column, k), nan)
            row.append(number(mean, underline=lines.get((*column, k), 0)))
        yield row


def _baseline_rows(sweep: _Sweep, baselines: pl.DataFrame) -> Iterator[Row]:
    """Yield one row for all baselines of a kind, or one per name if an encoder has several."""
    groups = [baselines]
    if any(len(_column_values(baselines, *column)) > 1 for column in sweep.columns):
        groups = baselines.partition_by("name", maintain_order=True)
    for group in groups:
        row = [Cell(_row_name(group))]
        for column in sweep.columns:
            values = _column_values(group, *column)
            row.append(number(values[0]) if values else Cell(MISSING))
        yield row


def _column_values(baselines: pl.DataFrame, encoder: str, metric: str) -> list[float]:
    """Return the values of baselines on an encoder, and of those that read audio."""
    is_here = pl.col("encoder").is_in(["", encoder])
    return baselines.filter(is_here, metric=metric)["value"].to_list()


def _row_name(baselines: pl.DataFrame) -> str:
    """Return the name of the baselines in a row, or their kind if they have several names."""
    name = baselines["name"][0]
    if baselines["name"].n_unique() > 1:
        name = baselines["kind"][0].capitalize()
    return str(name)


def _underline_notes(sweep: _Sweep, underlines: Mapping[str, int]) -> Iterator[str]:
    for kind, baselines in sweep.kinds.items():
        name = _row_name(baselines)
        if baselines["name"].n_unique() > 1:
            name = f"every {kind} baseline of the encoder"
        if kind not in underlines:
            continue
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
        row_name = _row_name(baselines)
        if baselines["name"].n_unique() > 1:
            pairs = baselines.select("name", "encoder").unique(maintain_order=True)
            names = [baseline_name(row) for row in pairs.iter_rows(named=True)]
            yield f"{row_name}: {'; '.join(names)}."
        if "" not in baselines["encoder"]:
            continue
        yield f"{row_name} reads the audio: its values are the same for every encoder."
        if "reduced" in baselines["scoring"]:
            yield (
                f"{row_name} has one score per category; for the centroid, the AP of classes is "
                "averaged within categories. The two tasks are compared as in the paper."
            )
    if not sweep.baselines.is_empty():
        yield TRAINED_NOTE
