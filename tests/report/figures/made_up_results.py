"""Results with made-up numbers, for figures: curves that grow with k, and noise."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import NDArray

from callshot.fewshot.differences import compare_encoders
from callshot.fewshot.folds import complete_shots, count_classes
from callshot.records import (
    ClassCount,
    CorpusResults,
    CorpusStats,
    Evaluation,
    FloatArray,
    Folds,
)
from callshot.records.frames import (
    CONFUSION,
    CROSSOVERS,
    CURVE,
    CURVE_KEY,
    PER_CLASS,
    REFINEMENT,
    make_frame,
    split_curves,
    summarise_samples,
    value_matrix,
    values_frame,
)
from callshot.report.figures import plan_figures
from callshot.report.figures.figure_io import open_figure
from callshot.vectors import Vectors
from corpus_results import make_baselines, make_durations, make_rows, make_tables

TextBoxes = dict[Text, NDArray[np.float64]]  # left, bottom, right, top, in inches

SHOTS = (1, 2, 3, 5, 20)
STRANGE_NAMES = (
    "ゾウの低い声",
    "أصوات الفيل",
    "$5 and $x^{2$",
    "two\nlines",
    "<script>alert(1)</script>",
    "W" * 60,
    "плач",
    "{\\a_b%",
)
TEXT = "of a female with calves, heard from afar at the water"
CALLS = ("rumble", "roar", "trumpet")
LONG_NAMES = tuple(
    f"{CALLS[i % 3]} {TEXT[: 57 - len(CALLS[i % 3])]} {i:02}" for i in range(27)
)
OTHER_CLASSIFIERS = ("cosine", "cl2n", "whitened", "neighbour", "medoid", "logistic")
LOGISTIC_DRAWS = 40

MANY_CLASSES = "27 classes with long names, 4 encoders, 40 shots"
STRANGE = "names that fonts and markup cannot handle"
SMALL = "3 classes, 3 encoders"
SMALLEST = "2 classes, 1 encoder, 1 shot, 1 spread"


@lru_cache
def make_case(case: str) -> CorpusResults:
    """Return the results of a case by its name."""
    if case == MANY_CLASSES:
        encoders = ("perch-v2", "perch-v1", "hubert-base-l2", "mfcc")
        return make_results(LONG_NAMES, encoders, range(1, 41), folds=10)
    if case == STRANGE:
        encoders = ("象", "M" * 90, "$mfcc$", "x\ny")
        return make_results(STRANGE_NAMES, encoders, (1, 2, 5, 10, 100, 100000))
    if case == SMALL:
        return make_results(
            CALLS, ("birdnet-v2.4", "mfcc", "random"), SHOTS, reduced=True
        )
    return make_results(("a", "$x^{2$"), ("one",), (1,), spreads=("shared",))


def make_results(
    labels: Sequence[str],
    encoders: Sequence[str],
    shots: Sequence[int],
    *,
    folds: int = 5,
    spreads: Sequence[str] = ("per-query", "shared", "total"),
    reduced: bool = False,
) -> CorpusResults:
    """Return results with the frames that an evaluation with baselines has."""
    tables = [
        _thin_out(table)
        for table in make_tables(labels, encoders, recordings=folds + 2)
    ]
    fold = _recording_numbers(tables[0])
    given = Folds(np.where(fold < folds, fold, -1), folds, "given")
    counts = count_classes(tables[0].label, given)
    scorings = ("all", "reduced") if reduced else ("all",)
    values = _make_values(encoders, scorings, spreads, shots)
    evaluation = Evaluation(
        "c",
        complete_shots(counts),
        9,
        counts,
        given,
        tables[0].spans,
        curve=pl.concat([_make_curve(curve, counts) for curve in split_curves(values)]),
        values=values,
        per_class=_make_class_curves(values.filter(scoring="all"), labels),
        confusion=_make_confusion(
            encoders, [k for k in shots if k in (1, 5, 20)], labels
        ),
        differences=compare_encoders(values),
        crossovers=_make_crossovers(encoders, shots[-1]),
    )
    span = make_durations([1.0])
    return CorpusResults(
        evaluation,
        CorpusStats(
            (16000.0,), (1,), ("WAV",), len(labels), 1.0, 0.0, span, span, span, span
        ),
        span,
        tables,
        other_classifiers=_make_others(evaluation),
        baselines=_make_baselines(encoders),
        refinement=_make_refinement(encoders),
    )


def _recording_numbers(table: Vectors) -> NDArray[np.int64]:
    return np.array([int(name.split()[1]) for name in table.recording])


def _thin_out(table: Vectors) -> Vectors:
    """Remove the second segment of later labels from the first folds: classes differ in size."""
    fold = _recording_numbers(table)
    names = list(dict.fromkeys(table.label))
    numbers = [names.index(label) % 4 for label in table.label]
    rows = range(len(table))
    return table.take(
        [row for row in rows if row % 2 == 0 or fold[row] >= numbers[row]]
    )


def _make_values(
    encoders: Sequence[str],
    scorings: Sequence[str],
    spreads: Sequence[str],
    shots: Sequence[int],
) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    frames = []
    keys = product(encoders, ["centroid"], scorings, ("map", "auroc"), spreads)
    for key in keys:
        mean = 0.9 - 0.1 * encoders.index(key[0])
        mean = mean - 0.5 / (1 + np.arange(len(shots)))[:, None]
        sd = 0.05 if key[-1] == "shared" else 0.02
        samples = mean + sd * rng.normal(size=(len(shots), 60))
        named_key = dict(zip(CURVE_KEY, ("c", *key), strict=True))
        frames.append(values_frame(named_key, np.array(shots), samples))
    return pl.concat(frames)


def _make_curve(values: pl.DataFrame, counts: Sequence[ClassCount]) -> pl.DataFrame:
    shots = values["k"].to_list()
    columns = {
        "k": shots,
        **summarise_samples(value_matrix(values)),
        "complete": [k <= complete_shots(counts) for k in shots],
        "new_exemplars": [
            sum(count.complete_to_k >= k for count in counts) for k in shots
        ],
    }
    key = values.select(list(CURVE_KEY)).row(0, named=True)
    return make_frame(CURVE, columns, {**key, "chance": 0.1, "ties": 0})


def _make_class_curves(values: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    numbered = pl.DataFrame({"label": labels, "number": range(len(labels))})
    mean = 1 - 0.6 / (1 + pl.col("k")) - 0.01 * pl.col("number")
    points = values.join(numbered, how="cross").with_columns(mean=mean)
    levels = {"p01": pl.col("mean") - 0.1, "p99": pl.col("mean") + 0.05}
    return points.with_columns(**levels).select(list(PER_CLASS))


def _make_confusion(
    encoders: Sequence[str], shots: Sequence[int], labels: Sequence[str]
) -> pl.DataFrame:
    rows = []
    for encoder, k, true, predicted in product(encoders, shots, labels, labels):
        errors = 3.0 * labels.index(true)
        count = errors + 20.0 * (true == predicted)
        row_sum = errors * len(labels) + 20.0
        rows.append((encoder, k, true, predicted, count, row_sum, count / row_sum))
    return make_rows(CONFUSION, *rows)


def _make_crossovers(encoders: Sequence[str], k_mean: int) -> pl.DataFrame:
    key = ("logistic", "k", "all", "map", "shared")
    rows = [("c", encoder, *key, k_mean, None) for encoder in encoders]
    return make_rows(CROSSOVERS, *rows)


def _make_baselines(encoders: Sequence[str]) -> pl.DataFrame:
    kinds = (("logistic", 0.5), ("recurrent", 0.52))
    rows = [
        ("c", encoder, kind, kind.upper(), "all", "map", value)
        for encoder, (kind, value) in product(encoders, kinds)
    ]
    audio = ("c", "", "end-to-end", "AERD with a long name", "all", "map", 0.51)
    return make_baselines(*rows, audio)


def _make_refinement(encoders: Sequence[str]) -> pl.DataFrame:
    keys = product(enumerate(encoders), ("map", "auroc"), (0, 1, 2, 5, 90000))
    rows = [
        ("c", encoder, "all", metric, step, 0.5 + 0.01 * number + step / 1e6, 2.0)
        for (number, encoder), metric, step in keys
    ]
    return make_rows(REFINEMENT, *rows)


def _make_others(evaluation: Evaluation) -> Evaluation:
    """Return other classifiers, and logistic regression on fewer draws of the spread `shared`."""
    curves = []
    values = []
    for number, name in enumerate(OTHER_CLASSIFIERS):
        shift = 0.01 * (number - 2)
        curve = evaluation.curve.with_columns(
            pl.col("mean") + shift, classifier=pl.lit(name)
        )
        samples = pl.col("value") + shift
        if name == "logistic":
            curve = curve.filter(spread="shared")
            samples = samples.list.head(LOGISTIC_DRAWS)
        rows = evaluation.values.filter(
            pl.col("spread").is_in(curve["spread"].unique())
        )
        curves.append(curve)
        values.append(rows.with_columns(samples, classifier=pl.lit(name)))
    return replace(evaluation, curve=pl.concat(curves), values=pl.concat(values))


def curve_samples(values: pl.DataFrame, **key: str) -> FloatArray:
    """Return the samples (shots, samples) of one curve."""
    return value_matrix(values.filter(**key))


@lru_cache
def draw_case(
    case: str, stems: tuple[str, ...] = ("",)
) -> dict[str, tuple[Figure, TextBoxes]]:
    """Return every figure of a case by its stem, with all texts that are drawn."""
    figures = {}
    for page in plan_figures(make_case(case), confusion_shots=(5,)):
        if page.stem.startswith(stems):
            with open_figure() as figure:
                page.draw(figure)
                figures[page.stem] = (figure, find_texts(figure))
    return figures


def draw_figure(case: str, stem: str) -> Figure:
    """Return one figure of a case; those of the small one are drawn together."""
    figures = draw_case(case) if case == SMALL else draw_case(case, (stem,))
    return figures[stem][0]


def find_texts(figure: Figure) -> TextBoxes:
    """Return the texts that are drawn, and their boxes in inches."""
    texts: dict[Text, None] = {}
    draw = Text.draw

    def record(self: Text, renderer: object) -> None:
        texts[self] = None
        draw(self, renderer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "draw", record)
        figure.draw_without_rendering()
    visible = [text for text in texts if text.get_visible() and text.get_text().strip()]
    return {text: Text.get_window_extent(text).extents / figure.dpi for text in visible}


def panel_titles(figure: Figure) -> list[str]:
    """Return the titles of the panels of a figure, without empty ones."""
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    return [title for title in titles if title]


def legend_texts(figure: Figure) -> list[str]:
    """Return the texts of the legend of a figure."""
    return [text.get_text() for text in figure.legends[0].get_texts()]


def line_values(ax: object) -> list[list[float]]:
    """Return the vertical values of all lines of a panel."""
    return [list(line.get_ydata()) for line in ax.lines]
