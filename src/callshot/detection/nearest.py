"""Windows of recordings → the class of each, or background: the nearest of several means.

A scan uses this rule if it finds more than thresholds do (`detector.py`) at the same number of
false alarms in known background. Where calls fill the recordings, or few minutes are known to have
none, thresholds are above nearly all calls. Where calls are rare, and wind and rain are louder than
they are, thresholds find more.

Vectors are compared by the signed square roots of their values, each value divided by its standard
deviation over the windows that are scanned. Where these are few, values that hardly vary among them
would count most, so the variance over the examples counts like 64 windows. Beside the mean c of
each class there is the mean b of the background: of the quietest sixth of the windows of each
scanned recording, or of all windows where levels are not known (vectors of another tool). A window
z belongs to the nearest mean: of the classes, the background, windows that are known to have no
calls, and detections that a reviewer rejected. Its score for a class is

    (z − b) · (c − b) / |c − b|²

0 at the background and 1 at the class. It must exceed n / (2 n + 1) for a class of n examples, a
little less than half-way, because the mean of a few examples lies farther out than a mean of many.

Calls of one recording are more alike than those of many. So each recording is searched again: the
mean of a class that was found there moves half-way to the windows that were found, until nothing
changes, or six times.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from callshot.detection.background import (
    Background,
    find_event_thresholds,
    split_background,
)
from callshot.detection.index.index_files import (
    Index,
    IndexedRecording,
    read_span,
    span_paths,
)
from callshot.detection.index.windows import SILENCE_DBFS
from callshot.detection.model import Model
from callshot.detection.verdicts import Calibration
from callshot.errors import InputError, count_text
from callshot.fewshot.centroid import LinearLayer
from callshot.fewshot.classifiers import signed_root
from callshot.files import explain_unreadable
from callshot.records import FloatArray, IntArray
from callshot.records.table_files import open_npz
from callshot.vectors import FloatMatrix, Vectors

BACKGROUND = -1  # the number of the class of windows without a call
QUIET_SHARE = 1 / 6  # of the windows of a recording
MAX_SAMPLE = 16384  # windows that scale and background are measured on
EXAMPLES_WEIGHT = 64  # windows that the variance of the examples counts like
FURTHER_PASSES = 6
MIN_ALLOWED = 5  # false alarms in known background, by which thresholds are lowered
BLOCK_WINDOWS = 64  # that are scored at once: they stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Site:
    """How windows of some recordings are compared, and the mean of their quiet windows.

    scale       (dimensions,), the standard deviation of the root of each value of a vector
    background  (dimensions,), mean of the scaled roots of quiet windows
    quiet       how many windows that is the mean of
    """

    scale: FloatArray
    background: FloatArray
    quiet: int

    def transform(self, vectors: FloatMatrix) -> FloatArray:
        """Return the scaled roots of vectors: signed square roots by their standard deviation."""
        return find_roots(vectors) / self.scale

    def transform_model(self, model: Model) -> Model:
        """Return a model whose examples and rejected detections are scaled roots."""
        examples = self._transform_all(model.examples)
        # None, if there are no rejected detections, stays None.
        rejected = model.rejected and self._transform_all(model.rejected)
        return replace(model, examples=examples, rejected=rejected)

    def _transform_all(self, vectors: Vectors) -> Vectors:
        scaled = self.transform(vectors.matrix)
        return replace(vectors, matrix=scaled.astype(np.float32))


def find_roots(vectors: FloatMatrix) -> FloatArray:
    """Return the square root of each value, with its sign.

    >>> find_roots(np.array([[4.0, -9.0]]))
    array([[ 2., -3.]])
    """
    return signed_root(np.asarray(vectors, np.float32)).astype(np.float64)


def squared_distances(vectors: FloatMatrix, means: FloatArray) -> FloatArray:
    """Return |z − c|² of each vector z and mean c, vectors × means."""
    rows = np.asarray(vectors, np.float64)
    # |z|² − 2 z·c + |c|²
    row_squares = np.einsum("nd,nd->n", rows, rows)[:, None]
    mean_squares = np.einsum("nd,nd->n", means, means)
    squares = row_squares - 2 * rows @ means.T + mean_squares
    return np.asarray(np.maximum(squares, 0.0))


def measure_site(index: Index, examples: FloatMatrix) -> Site:
    """Measure the scale of windows and examples, and the mean of quiet windows.

    Silent windows do not count. Recordings that cannot be read are left out.
    """
    total = max(1, len(index))
    # The sample has every `step`-th window, and every `quiet_step`-th quiet window.
    step = math.ceil(total / MAX_SAMPLE)
    quiet_total = round(total * QUIET_SHARE + 1)  # never 0
    quiet_step = math.ceil(quiet_total / MAX_SAMPLE)
    count = 0
    quiet_count = 0
    root_sum = np.zeros(index.settings.dimension)
    square_sum = np.zeros(index.settings.dimension)
    quiet_sum = np.zeros(index.settings.dimension)
    for recording in index.recordings:
        with suppress(InputError):  # which the scan reports
            roots, quiet_roots = _sample_roots(index, recording, step, quiet_step)
            root_sum += roots.sum(axis=0)
            square_sum += np.einsum("nd,nd->d", roots, roots)
            count += len(roots)
            quiet_sum += quiet_roots.sum(axis=0)
            quiet_count += len(quiet_roots)
    mean = root_sum / max(1, count)
    mean_square = square_sum / max(1, count)
    window_variance = np.maximum(mean_square - mean**2, 0.0)
    example_variance = find_roots(examples).var(axis=0)
    share = count / (count + EXAMPLES_WEIGHT)  # of the windows
    variance = share * window_variance + (1 - share) * example_variance
    scale = np.where(variance > 0, np.sqrt(variance), 1.0)
    quiet_mean = quiet_sum / max(1, quiet_count)
    background = quiet_mean / scale
    return Site(scale, background, quiet_count)


def _sample_roots(
    index: Index, recording: IndexedRecording, step: int, quiet_step: int
) -> tuple[FloatArray, FloatArray]:
    """Return the roots of every `step`-th window, and of every `quiet_step`-th quiet window.

    Silent windows of the recording are not counted.
    """
    parts = [
        read_span(path, index.settings, verify=False)
        for path in span_paths(index.folder, recording)
    ]
    levels = np.concatenate([part["rms_dbfs"] for part in parts])
    vectors = [part["vector"] for part in parts]
    audible = np.flatnonzero(~(levels <= SILENCE_DBFS))  # also NaN
    sample = select_rows(vectors, audible[::step])
    quiet = find_quiet(levels, audible)[::quiet_step]
    return find_roots(sample), find_roots(select_rows(vectors, quiet))


def find_quiet(levels: FloatMatrix, rows: IntArray) -> IntArray:
    """Return the quietest sixth of some `rows` of windows; all where levels are not known (NaN).

    `levels` are those of all windows, also of others than `rows`.
    """
    if np.isnan(levels).all():
        return rows
    count = max(1, round(len(rows) * QUIET_SHARE))
    order = np.argsort(levels[rows], kind="stable")
    return rows[order[:count]]


def split_blocks(parts: Iterable[FloatMatrix]) -> Iterator[FloatMatrix]:
    """Yield the rows of matrices one after another, in blocks of BLOCK_WINDOWS or fewer."""
    for part in parts:
        for start in range(0, len(part), BLOCK_WINDOWS):
            yield part[start : start + BLOCK_WINDOWS]


def select_rows(parts: Sequence[FloatMatrix], rows: IntArray) -> FloatMatrix:
    """Return `np.concatenate(parts)[rows]` for rising `rows`, without concatenating all parts."""
    chosen = []
    first = 0  # the row at which a part begins
    for part in parts:
        rows_in_part = rows[(rows >= first) & (rows < first + len(part))]
        chosen.append(part[rows_in_part - first])
        first += len(part)
    return np.concatenate(chosen)


def write_site(site: Site, path: Path) -> None:
    """Write scale and quiet windows of a site to an .npz file, for the review of a scan."""
    np.savez(
        path,
        allow_pickle=False,
        scale=site.scale,
        background=site.background,
        quiet=np.array(site.quiet),
    )


def read_site(path: Path) -> Site:
    """Read the site in an .npz file that `write_site` wrote."""
    with explain_unreadable(path), path.open("rb") as stream:
        arrays = dict(open_npz(stream, path))
    return Site(arrays["scale"], arrays["background"], int(arrays["quiet"]))


@dataclass(frozen=True, eq=False)
class ShareScorer:
    """Scores windows by how far they are on the way from the background, 0, to a mean, 1.

    All vectors are scaled roots (`Site.transform`).
    """

    means: FloatArray
    background: FloatArray

    def score(self, scaled: FloatMatrix) -> FloatArray:
        """Return the score of each mean for each window, windows × means."""
        return np.asarray((scaled - self.background) @ self._directions.T)

    @cached_property
    def _directions(self) -> FloatArray:
        return np.asarray((self.means - self.background) / self._squares[:, None])

    @cached_property
    def _squares(self) -> FloatArray:
        """|c − b|² of each mean c and the background b; never 0, to divide by it."""
        towards = self.means - self.background
        smallest = np.finfo(np.float64).tiny
        squares = np.einsum("nd,nd->n", towards, towards)
        return np.asarray(np.maximum(squares, smallest))

    def find_nearest(self, scores: FloatArray) -> IntArray:
        """Return the number of the nearest mean of each window, given its scores."""
        # |z − b|² − |z − c|² of a window z, the background b and a mean c: highest where the
        # distance |z − c| is shortest.
        gains = (2 * scores - 1) * self._squares
        return np.asarray(gains.argmax(axis=1))

    def distances(self, scaled: FloatMatrix) -> FloatArray:
        """Return the distance of each window from each mean, windows × means."""
        return np.asarray(np.sqrt(squared_distances(scaled, self.means)))


@dataclass(frozen=True, eq=False)
class Limits:
    """What the score of a window must exceed apart from the rule of nearest means.

    layer       gives this score, by the covariance of known background
    thresholds  one for each class
    factor      by how much the number of false alarms can miss its aim
    """

    layer: LinearLayer
    thresholds: FloatArray
    factor: float

    def apply(
        self, parts: Sequence[FloatMatrix], class_of_window: IntArray
    ) -> IntArray:
        """Return the class of each window, set to BACKGROUND where its score is too low.

        `parts` are vectors of windows; `class_of_window` has a class for each, over all parts.
        """
        rows = np.flatnonzero(class_of_window != BACKGROUND)
        label = class_of_window[rows]
        vectors = select_rows(parts, rows).astype(np.float64)
        # Only the score for the class of each window: (rows,)
        scores = np.einsum("nd,nd->n", vectors, self.layer.weight[label])
        scores += self.layer.bias[label]
        is_too_low = scores <= self.thresholds[label]
        limited = class_of_window.copy()
        limited[rows[is_too_low]] = BACKGROUND
        return limited


@dataclass(frozen=True, eq=False)
class NearestMeanDetector:
    """What decides whether a window has a call, and of which class.

    site        how windows are compared: vectors become scaled roots (`Site.transform`)
    means       of the scaled roots of the examples of each class, classes × dimensions
    others      means of the scaled roots of what is no call, (0 to 2, dimensions): of the known
                background, then of rejected detections, as far as there are any
    thresholds  the score that a window of each class must exceed
    curves      from scores to probabilities, by class, where there are verdicts
    known       how many windows are known to have no calls
    passes      how often a recording may be searched again
    limits      what a window must reach too, so that there are few false alarms
    """

    classes: tuple[str, ...]
    site: Site
    means: FloatArray
    others: FloatArray
    thresholds: FloatArray
    curves: Mapping[str, Calibration] = field(default_factory=dict)
    known: int = 0
    passes: int = FURTHER_PASSES
    limits: Limits | None = None

    @property
    def origin(self) -> str:
        """What decisions rest on, in words."""
        quiet = count_text(self.site.quiet, "quiet window")
        known = ""
        if self.known:
            known = f" and {count_text(self.known, 'window')} without calls"
        return f"{quiet} of these recordings{known}"

    def distances(self, vectors: FloatMatrix) -> FloatArray:
        """Return the distance of each window from each class mean, windows × classes."""
        scorer = ShareScorer(self.means, self.site.background)
        return scorer.distances(self.site.transform(vectors))

    def search(
        self, parts: Sequence[FloatMatrix]
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the class of each window, or BACKGROUND, and two kinds of scores.

        The mean of each class that is found moves half-way to the windows that were found, and the
        recording is searched again. What is found at first stays, with its score at that time,
        unless a mean that has moved is nearer. Scores are (windows, classes), as they decided
        and before a mean moved.
        """
        first_found, first_scores = self.search_once(parts, self.means)
        found = first_found  # class of each window
        scores = first_scores
        for _ in range(self.passes):
            present = np.unique(found[found != BACKGROUND])  # classes
            if len(present) == 0:
                break
            means = self._move_means(parts, found)
            next_found, next_scores = self.search_once(parts, means)
            is_by_moved_mean = np.isin(next_found, present)
            previous = found
            found = np.where(is_by_moved_mean, next_found, first_found)
            scores = np.where(is_by_moved_mean[:, None], next_scores, first_scores)
            if (found == previous).all():
                break
        return found, scores, first_scores

    def _move_means(
        self, parts: Sequence[FloatMatrix], class_of_window: IntArray
    ) -> FloatArray:
        """Return the means, those of classes with windows half-way to the mean of these windows."""
        means = self.means.copy()
        for number in np.unique(class_of_window[class_of_window != BACKGROUND]):
            rows = np.flatnonzero(class_of_window == number)
            vectors = select_rows(parts, rows)
            total = np.zeros(self.means.shape[1])
            for block in split_blocks([vectors]):  # to save memory
                total += self.site.transform(block).sum(axis=0)
            mean_here = total / len(vectors)
            means[number] = (self.means[number] + mean_here) / 2
        return means

    def search_once(
        self, parts: Sequence[FloatMatrix], means: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Return the class of each window, or BACKGROUND, and the scores (windows, classes).

        `means` (classes, dimensions) take the place of those of the detector.
        """
        # Columns of scores are the classes, then the other sounds, which are never a class.
        all_means = np.vstack([means, self.others])
        scorer = ShareScorer(all_means, self.site.background)
        scaled_blocks = map(self.site.transform, split_blocks(parts))
        scores = np.concatenate([scorer.score(scaled) for scaled in scaled_blocks])
        nearest = scorer.find_nearest(scores)
        best_scores = scores[np.arange(len(nearest)), nearest]
        never = np.full(len(self.others), np.inf)  # no score exceeds it
        thresholds = np.append(self.thresholds, never)
        is_call = best_scores > thresholds[nearest]
        class_of_window = np.where(is_call, nearest, BACKGROUND)
        if self.limits is not None:
            class_of_window = self.limits.apply(parts, class_of_window)
        return class_of_window, scores[:, : len(means)]

    def search_held_out(self, background: Background) -> tuple[IntArray, FloatArray]:
        """Return the class of each window of known background, or BACKGROUND, and scores.

        Background is in parts. For each, the mean of known background, the first of `others`, is
        measured on the other parts. The detector must be made with this background.
        """
        vectors = background.vectors
        class_of_window = np.full(len(vectors), BACKGROUND)
        scores = np.empty((len(vectors), len(self.classes)))
        background_mean, *rejected = self.others
        for inside in split_background(background):
            if not inside.all():
                outside = self.site.transform(vectors[~inside])
                background_mean = outside.mean(axis=0)
            held_out = replace(self, others=np.array([background_mean, *rejected]))
            class_of_window[inside], scores[inside] = held_out.search_once(
                [vectors[inside]], self.means
            )
        return class_of_window, scores

    def allow(
        self, background: Background, false_alarms_per_h: float
    ) -> "NearestMeanDetector":
        """Lower the thresholds as far as an aim of false alarms in known background allows.

        They are halved at most, and stay as they are if too few events are allowed to count them.
        """
        allowed = false_alarms_per_h * background.hours  # events of a class
        if allowed < MIN_ALLOWED:
            return self
        lowered = replace(self, thresholds=self.thresholds / 2)
        class_of_window, scores = lowered.search_held_out(background)
        reached = find_event_thresholds(class_of_window, scores, background, allowed)
        at_least_half = np.maximum(lowered.thresholds, reached)
        thresholds = np.minimum(self.thresholds, at_least_half)  # never higher than now
        return replace(self, thresholds=thresholds)


def make_nearest_detector(model: Model, site: Site) -> NearestMeanDetector:
    """Return the detector of a model at a site, with the means of what is known to be no call."""
    scaled = site.transform(model.examples.matrix)
    numbers = range(len(model.classes))
    means = np.array([scaled[model.label == number].mean(axis=0) for number in numbers])
    no_calls = []
    known = 0
    if model.background is not None:
        no_calls.append(model.background.windows)
        known = len(model.background.vectors)
    if model.rejected is not None:
        no_calls.append(model.rejected)
    others = [
        site.transform(vectors.matrix).mean(axis=0)
        for vectors in no_calls
        if len(vectors) > 0
    ]
    return NearestMeanDetector(
        classes=model.classes,
        site=site,
        means=means,
        others=np.array(others).reshape(-1, len(site.scale)),  # also if there are none
        # A little less than half-way, for the mean of a few examples lies farther out.
        thresholds=model.counts / (2 * model.counts + 1),
        known=known,
    )
