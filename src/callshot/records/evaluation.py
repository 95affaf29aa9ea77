"""Recordings, segments, folds, classes and episodes, and the results of evaluations and corpora.

Below the dataclasses is how an evaluation looks in a notebook: a plot, a short text, a table.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import check_choice, count_text
from callshot.records import frames
from callshot.records.frames import Frame, empty_default, unique_values
from callshot.records.terms import METRIC_NAMES, preferred_spread, reference_classifier
from callshot.spans import IntArray, Spans
from callshot.vectors import Vectors


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file.

    `path` is relative to the audio folder, with `/`. `rate_hz` is the rate it is read at.
    It is as long as it can be decoded. `announced_s` is its length in the header, if that differs;
    with `is_estimate` the header has none, as in many MP3 files, and this is what programs guess.
    """

    path: str
    frames: int
    rate_hz: float
    channels: int
    kind: str
    announced_s: float | None = None
    is_estimate: bool = False

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.frames / self.rate_hz

    def shorten(self, frames: int) -> "Recording":
        """Return the recording as one that ends after `frames`; its header has the old end."""
        announced_s = self.announced_s or self.duration_s
        return replace(self, frames=frames, announced_s=announced_s, is_estimate=False)

    def describe_length(self) -> str:
        """Return a note if the header announces another length, else an empty text."""
        if self.announced_s is None or self.is_estimate:
            return ""
        if self.announced_s > self.duration_s:
            return (
                f"used {self.duration_s:.1f} of {self.announced_s:.1f} s: the file is cut short "
                f"or damaged after {self.duration_s:.2f} s; copy it again"
            )
        return (
            f"its header announces {self.announced_s:.1f} s, but the file has "
            f"{self.duration_s:.1f} s of sound; all of it is used"
        )


@dataclass(frozen=True, slots=True)
class Reject:
    """A row of a file that was left out, or (`row` None) a whole file. A row of `rejects.csv`."""

    file: str
    row: int | None
    reason: str


@dataclass(frozen=True)
class Segmentation:
    """The annotations of a corpus after segmentation: each is a segment or a reject.

    `calls` are all annotations on a recording, also those too short for a segment. `sources` are
    formats, how each was recognised, and how many files. `skipped_files` are files left out.
    `audio` is the folder that the paths of segments are relative to. `duplicates` are the segments
    whose audio is also in another recording: group, segment, recording and label. Calls shorter
    than `min_length_s` are rejects.
    """

    recordings: Sequence[Recording]
    annotated: frozenset[str]
    sources: Sequence[tuple[str, str, int]]
    annotation_count: int
    calls: Spans
    segments: Spans
    rejects: Sequence[Reject]
    skipped_files: Sequence[Reject]
    notes: Sequence[str]
    audio: str = ""
    duplicates: Sequence[tuple[int, str, str, str]] = ()
    min_length_s: float = 0.0

    def __repr__(self) -> str:
        return (
            f"Segmentation({count_text(len(self.segments), 'segment')} of "
            f"{count_text(self.recording_count, 'recording')}, "
            f"{count_text(len(self.rejects), 'reject')})"
        )

    @property
    def recording_count(self) -> int:
        """Return the number of recordings, where files that the annotations group count once."""
        files_without_calls = len(self.recordings) - len(set(self.calls.paths))
        return files_without_calls + len(set(self.calls["recording"]))

    @property
    def file_noun(self) -> str:
        """Return what an audio file is called: a recording, unless some are grouped."""
        is_grouped = self.recording_count < len(self.recordings)
        return "file" if is_grouped else "recording"


SHOWN_SHOTS = (1, 2, 5, 10, 20, 40)


def plot_curves(
    curve: pl.DataFrame, metric: str, spread: str | None, ax: Any = None
) -> Any:
    """Draw the mean of each curve against k, with its 98 % interval; return the axes."""
    from matplotlib import pyplot

    check_choice("metric", metric, list(METRIC_NAMES))
    spread = spread or preferred_spread(curve["spread"])
    check_choice("spread", spread, unique_values(curve, "spread"))
    if ax is None:
        _, ax = pyplot.subplots()
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    lines = points.partition_by("encoder", "classifier", maintain_order=True)
    for number, rows in enumerate(lines):
        name, classifier = rows.select("encoder", "classifier").row(0)
        if classifier != "centroid":
            name += f", {classifier}"
        k = rows["k"]
        (line,) = ax.plot(k, rows["mean"], label=name)
        color = line.get_color()
        ax.fill_between(k, rows["p01"], rows["p99"], color=color, alpha=0.2)
        label = "chance" if number == 0 else None
        ax.plot(k, rows["chance"], color="grey", linestyle=":", label=label)
    ax.set_xlabel("examples per call type (k)")
    ax.set_ylabel(METRIC_NAMES[metric])
    ax.legend()
    return ax


def summarise_curves(curve: pl.DataFrame) -> pl.DataFrame:
    """Return mAP and its 98 % interval at a few k, a row per encoder and classifier, as texts."""
    spread = preferred_spread(curve["spread"])
    points = curve.filter(metric="map", spread=spread, scoring="all")
    different = points["k"].unique()
    evaluated = different.sort().to_list()
    shots = [k for k in SHOWN_SHOTS if k in evaluated] or evaluated
    rows = []
    for line in points.partition_by("encoder", "classifier", maintain_order=True):
        encoder, classifier = line.select("encoder", "classifier").row(0)
        cells = {f"mAP, {spread}": f"{encoder}, {classifier}"}
        for k in shots:
            mean, low, high = line.filter(k=k).select("mean", "p01", "p99").row(0)
            cells[f"k = {k}"] = f"{mean:.2f} [{low:.2f}–{high:.2f}]"
        rows.append(cells)
    return pl.DataFrame(rows)


def show_whole_tables() -> pl.Config:
    """Return a context in which polars prints whole tables, without frame, types and shape."""
    return pl.Config(
        tbl_formatting="NOTHING",
        tbl_hide_column_data_types=True,
        tbl_hide_dataframe_shape=True,
        tbl_rows=-1,
        tbl_cols=-1,
        tbl_width_chars=-1,
        fmt_str_lengths=1000,
    )


TARGET_EXAMPLES = "examples of {}"  # what a transfer is compared with


@dataclass(frozen=True)
class Folds:
    """The fold of each segment, 0 to count − 1, or −1 for the common fold.

    `origin` is "given" or "built"; `proof` says in words how good built folds are known to be.
    With `only_common`, all examples come from the common fold: folds 0 to count − 1 are queries of
    another corpus.
    """

    fold: IntArray
    count: int
    origin: str
    proof: str = ""
    only_common: bool = False


@dataclass(frozen=True)
class ClassCount:
    """One class in the bookkeeping of folds; `reason` says why it is not eligible."""

    label: str
    exemplars: int
    complete_to_k: int
    eligible: bool
    reason: str = ""
    per_fold: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Episode:
    """One query, one draw: the support set, by label, and the query's scores."""

    segment: str
    k: int
    draw: int
    support: dict[str, tuple[str, ...]]
    scores: dict[str, float]


@dataclass(frozen=True)
class Inspection:
    """What a folder holds before anything is decided, and what the protocol could do with it.

    `labels_by_folds` maps a number of folds to the number of labels in as many recordings or more,
    which it can evaluate; `folds` is None where there are too few recordings.
    """

    segmentation: Segmentation
    labels_by_folds: Mapping[int, int]
    folds: Folds | None
    classes: Sequence[ClassCount]
    complete_shots: int


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of the k-shot protocol for one corpus and one or more encoders.

    Attributes
    ----------
    corpus : str
    complete_shots : int
        k*, the largest k at which every class has k exemplars outside every fold.
    queries : int
        Number of queries.
    curve, values, per_class, confusion, ties : polars.DataFrame
    chance_test, partitions, sensitivity, sensitivity_means : polars.DataFrame
    duplicates, differences, budget, crossovers : polars.DataFrame
        See `callshot.records.frames` for their columns.
    classes : list of ClassCount
        The exemplars of each class, and why it is or is not eligible.
    folds : Folds
    segments : Spans
        The evaluated segments.
    notes : list of str
        What a reader of the numbers should know.
    settings : mapping
        The fields of the `Protocol`.
    """

    corpus: str
    complete_shots: int
    queries: int
    classes: list[ClassCount]
    folds: Folds
    segments: Spans
    notes: list[str] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    curve: Frame = empty_default(frames.CURVE)
    values: Frame = empty_default(frames.VALUES)
    per_class: Frame = empty_default(frames.PER_CLASS)
    confusion: Frame = empty_default(frames.CONFUSION)
    ties: Frame = empty_default(frames.TIES)
    chance_test: Frame = empty_default(frames.CHANCE_TEST)
    partitions: Frame = empty_default(frames.PARTITIONS)
    sensitivity: Frame = empty_default(frames.SENSITIVITY)
    sensitivity_means: Frame = empty_default(frames.SENSITIVITY_MEANS)
    duplicates: Frame = empty_default(frames.DUPLICATES)
    differences: Frame = empty_default(frames.DIFFERENCES)
    budget: Frame = empty_default(frames.BUDGET)
    crossovers: Frame = empty_default(frames.CROSSOVERS)

    @property
    def encoders(self) -> list[str]:
        """The names of the encoders, in the order of the curves."""
        return unique_values(self.curve, "encoder")

    @property
    def spreads(self) -> list[str]:
        """The spreads, in the order of the curves."""
        return unique_values(self.curve, "spread")

    @property
    def eligible_classes(self) -> list[ClassCount]:
        """The classes that were evaluated."""
        return [count for count in self.classes if count.eligible]

    @property
    def eligible_labels(self) -> list[str]:
        """The labels of the classes that were evaluated."""
        return [count.label for count in self.eligible_classes]

    @property
    def excluded_classes(self) -> list[ClassCount]:
        """The classes that were not evaluated; each has a reason."""
        return [count for count in self.classes if not count.eligible]

    @property
    def largest_class(self) -> tuple[str, float]:
        """The largest class and its mean share of queries: what always guessing it scores."""
        classes = self.eligible_classes
        queries = np.array([count.per_fold for count in classes], np.float64)
        shares_of_fold = queries / queries.sum(axis=0)
        shares = np.mean(shares_of_fold, axis=1)  # of each class, over folds
        largest = int(shares.argmax())
        return classes[largest].label, float(shares[largest])

    def name_classifiers(self, reference: str) -> "Evaluation":
        """Call encoders in `curve` "encoder, classifier", except in rows of the reference."""
        is_reference = pl.col("classifier") == reference
        full_name = pl.format("{}, {}", "encoder", "classifier")
        encoder = pl.when(is_reference).then("encoder").otherwise(full_name)
        return replace(self, curve=self.curve.with_columns(encoder=encoder))

    def select_classifiers(self, classifiers: Collection[str]) -> "Evaluation":
        """Return the evaluation with only some classifiers in `curve`, `values` and `per_class`."""
        selected = pl.col("classifier").is_in(list(classifiers))
        return replace(
            self,
            curve=self.curve.filter(selected),
            values=self.values.filter(selected),
            per_class=self.per_class.filter(selected),
        )

    def plot(
        self, metric: str = "map", *, spread: str | None = None, ax: Any = None
    ) -> Any:
        """Draw the k-shot curves with their 98 % intervals.

        Parameters
        ----------
        metric : str
            A key of `callshot.records.METRICS`: map, auroc, accuracy, …
        spread : str, optional
            per-query, shared or total; by default the last of these that was evaluated.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        return plot_curves(self.curve, metric, spread, ax)

    def _describe(self) -> str:
        return (
            f"{self.corpus}: {len(self.eligible_classes)} classes, {self.queries} queries, "
            f"{self.folds.count} folds, k* = {self.complete_shots}"
        )

    def __repr__(self) -> str:
        text = f"Evaluation of {self._describe()}"
        if self.curve.is_empty():
            return text
        with show_whole_tables():
            return f"{text}\n{summarise_curves(self.curve)}"

    def _repr_html_(self) -> str:
        text = f"<p>{escape(self._describe())}</p>"
        if self.curve.is_empty():
            return text
        with show_whole_tables():
            return text + summarise_curves(self.curve)._repr_html_()


@dataclass(frozen=True, eq=False, repr=False)
class TransferEvaluation(Evaluation):
    """The k-shot curve with examples from a source corpus and queries from a target corpus.

    Its frames describe the transfer; `differences` also has `transfer_difference`.

    Attributes
    ----------
    source_corpus, corpus : str
        The names of both corpora; `corpus` is the target, which the queries are from.
    within_target : Evaluation
        The curve within the target: examples from its other folds.
    within_source : Evaluation or None
        The curve within the source; None where it allows none.
    encoder_pairs : mapping
        The encoders of source and target by the encoder of the transfer curve: names may differ.
    """

    source_corpus: str = "source"
    within_target: Evaluation = field(kw_only=True)
    within_source: Evaluation | None = None
    encoder_pairs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def transfer_difference(self) -> Frame:
        """Curves of the transfer minus those within the target: below 0 if it is worse."""
        return self.differences.filter(other=TARGET_EXAMPLES.format(self.corpus))

    def evaluations(self) -> list[tuple[str, Evaluation]]:
        """Return (corpus that the examples are from, evaluation) for all two or three of them."""
        pairs = [(self.source_corpus, self), (self.corpus, self.within_target)]
        if self.within_source is not None:
            pairs.append((self.source_corpus, self.within_source))
        return pairs

    def join_frames(self, frame: str | Callable[[Evaluation], Frame]) -> Frame:
        """Return a frame of all evaluations, with where examples and queries are from.

        Parameters
        ----------
        frame : str or callable
            The name of a frame, such as "curve" or "per_class", or a function that makes it.

        Returns
        -------
        polars.DataFrame
            With the columns `source_corpus` and `target_corpus` first, in place of `corpus`.
        """
        get_frame = attrgetter(frame) if isinstance(frame, str) else frame
        joined = []
        for source_corpus, evaluation in self.evaluations():
            source = pl.lit(source_corpus).alias("source_corpus")
            target = pl.lit(evaluation.corpus).alias("target_corpus")
            rows = get_frame(evaluation)
            joined.append(rows.select(source, target, pl.selectors.exclude("corpus")))
        return pl.concat(joined)

    def list_curves(self, encoder: str) -> dict[str, Frame]:
        """Return the two or three curves of an encoder of the transfer, by what to call them.

        They are those of the reference classifier: of the transfer, within target and source.
        """
        source, target = self.encoder_pairs[encoder]
        curves = {
            f"{self.source_corpus} → {self.corpus}": self.curve.filter(encoder=encoder),
            f"within {self.corpus}": self.within_target.curve.filter(encoder=target),
        }
        if self.within_source is not None:
            rows = self.within_source.curve.filter(encoder=source)
            curves[f"within {self.source_corpus}"] = rows
        classifier = self.reference
        return {
            name: rows.filter(classifier=classifier) for name, rows in curves.items()
        }

    @property
    def reference(self) -> str:
        """The classifier of tables and figures."""
        return reference_classifier(unique_values(self.curve, "classifier"))

    def plot(
        self, metric: str = "map", *, spread: str | None = None, ax: Any = None
    ) -> Any:
        """Draw the curves of the transfer, and those within both corpora; see `Evaluation`."""
        name = pl.format("{}, {} → {}", "encoder", "source_corpus", "target_corpus")
        curve = self.join_frames("curve").with_columns(encoder=name)
        return plot_curves(curve, metric, spread, ax)

    def _describe(self) -> str:
        return f"examples from {self.source_corpus}, queries from {super()._describe()}"


@dataclass(frozen=True)
class DurationStats:
    """The number of spans and their durations; the standard deviation is the population's."""

    count: int
    total_s: float
    mean_s: float
    shortest_s: float
    longest_s: float
    deviation_s: float


@dataclass(frozen=True)
class CorpusStats:
    """What a corpus consists of; `kinds` are the audio formats as libsndfile names them."""

    rates_hz: tuple[float, ...]
    channels: tuple[int, ...]
    kinds: tuple[str, ...]
    labels: int
    min_length_s: float
    collar_s: float
    recordings: DurationStats
    annotated: DurationStats
    calls: DurationStats
    segments: DurationStats


@dataclass(frozen=True, eq=False)
class CorpusResults:
    """The results of one corpus of a study.

    `evaluation` has the reference classifier, with its `differences`, `budget` and `crossovers`.
    `other_classifiers` has the curves of those without training, and of baselines trained at
    every k on the first draws of the spread `shared`. `tables` are the embeddings, one per encoder,
    rows as in the evaluation. `callshot.records.frames` describes `baselines` and `refinement`.
    """

    evaluation: Evaluation
    stats: CorpusStats
    evaluated: DurationStats
    tables: Sequence[Vectors]
    categories: Mapping[str, str] | None = None
    rejects: Sequence[Reject] = ()
    notes: Sequence[str] = ()
    other_classifiers: Evaluation | None = None
    baselines: Frame = empty_default(frames.BASELINES)
    refinement: Frame = empty_default(frames.REFINEMENT)

    @property
    def corpus(self) -> str:
        """The name of the corpus."""
        return self.evaluation.corpus
