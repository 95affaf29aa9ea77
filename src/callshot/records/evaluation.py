"""Folds, classes and episodes of the protocol, and the result of an evaluation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

import numpy as np
import polars as pl

from callshot.records import frames, notebook
from callshot.records.embeddings import Embeddings, IntArray
from callshot.records.frames import Frame, empty_default, unique_values
from callshot.records.recordings import Segmentation
from callshot.records.terms import preferred_spread


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

    `min_length_s` is the shorter minimum that was tried, where the given one would drop most calls.
    `possible` maps a number of folds to the number of labels in enough recordings; `folds` is None
    where there are too few recordings.
    """

    segmentation: Segmentation
    min_length_s: float | None
    possible: Mapping[int, int]
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
    segments : Embeddings
        The evaluated segments, by the first encoder.
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
    segments: Embeddings
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
    def excluded_classes(self) -> list[ClassCount]:
        """The classes that were not evaluated; each has a reason."""
        return [count for count in self.classes if not count.eligible]

    @property
    def largest_class(self) -> tuple[str, float]:
        """The class with the most queries, and its mean share of the queries of a fold.

        That is the accuracy of always deciding for this class, where queries have one label.
        """
        classes = self.eligible_classes
        queries = np.array([count.per_fold for count in classes], np.float64)
        shares = np.mean(queries / queries.sum(axis=0), axis=1)
        largest = int(shares.argmax())
        return classes[largest].label, float(shares[largest])

    def name_classifiers(self, reference: str) -> "Evaluation":
        """Return curves in which every classifier but the reference is named beside its encoder."""
        is_reference = pl.col("classifier") == reference
        full_name = pl.format("{}, {}", "encoder", "classifier")
        encoder = pl.when(is_reference).then("encoder").otherwise(full_name)
        return replace(self, curve=self.curve.with_columns(encoder=encoder))

    def select_classifiers(self, classifiers: Collection[str]) -> "Evaluation":
        """Return the curves, values and classes of some classifiers."""
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
            map, auroc, accuracy or balanced_accuracy.
        spread : str, optional
            per-query, shared or total; by default the last of these that was evaluated.
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        spread = spread or preferred_spread(self.curve["spread"])
        return notebook.plot_curves(self.curve, metric, spread, ax)

    def _describe(self) -> str:
        return (
            f"{self.corpus}: {len(self.eligible_classes)} classes, {self.queries} queries, "
            f"{self.folds.count} folds, k* = {self.complete_shots}"
        )

    def __repr__(self) -> str:
        if self.curve.is_empty():
            return f"Evaluation of {self._describe()}"
        table = notebook.text_table(*notebook.summary_rows(self.curve))
        return f"Evaluation of {self._describe()}\n{table}"

    def _repr_html_(self) -> str:
        if self.curve.is_empty():
            return escape(self._describe())
        return notebook.html_table(self._describe(), *notebook.summary_rows(self.curve))
