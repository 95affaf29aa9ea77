"""A model → what people should know of it: its classes, doubtful examples, what to expect.

Expected accuracy: every example is named by the class means of all examples in other recordings. An
example of a class that no other recording has cannot be tested.

Expected recall: the examples of each recording are scored by a detector that was made without them.
With many recordings, some are left out together, and more of them if there are many classes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from scipy.spatial.distance import cdist, pdist

from callshot.detection.background import WITHOUT_CALLS, Background
from callshot.detection.detector import Detector, find_spreads, make_detector
from callshot.detection.model import SEGMENT, Model, describe_locations
from callshot.errors import InputError, count_text, join_names
from callshot.records import FloatArray, IntArray

MAX_LEFT_OUT = 20  # examples of a class, to find what one is worth


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors with the numbers of their classes and recordings, from 0; all in one order."""

    vectors: FloatArray
    label: IntArray
    recording: IntArray
    classes: int

    @property
    def counts(self) -> IntArray:
        """The number of examples of each class."""
        return np.bincount(self.label, minlength=self.classes)


@dataclass(frozen=True)
class Decisions:
    """The class that examples of other recordings give each example, and the second choice.

    Evidence is 2 x·c − |c|² for a vector x and a class mean c: the larger, the nearer.
    """

    first: IntArray
    second: IntArray
    evidence: FloatArray  # of both, examples × 2

    def best_other(self, number: int) -> tuple[IntArray, FloatArray]:
        """Return the best class but one, and its evidence, for each example."""
        is_first = self.first == number
        classes = np.where(is_first, self.second, self.first)
        examples = np.arange(len(classes))
        return classes, self.evidence[examples, is_first.astype(int)]


def decide_by_others(data: LabelledVectors) -> Decisions:
    """Return what examples of other recordings decide about each example."""
    count = len(data.vectors)
    sums = _sum_by_class(data.vectors, data.label, data.classes)
    best_classes = np.zeros((count, 2), np.int64)
    values = np.full((count, 2), -np.inf)
    for rows in _rows_by_recording(data.recording):
        evidence = _evidence_of_others(data, rows, sums)
        for rank in (0, 1):
            best = evidence.argmax(axis=1)
            numbers = np.arange(len(rows))
            best_classes[rows, rank] = best
            values[rows, rank] = evidence[numbers, best]
            evidence[numbers, best] = -np.inf
    return Decisions(best_classes[:, 0], best_classes[:, 1], values)


def _evidence_of_others(
    data: LabelledVectors, rows: IntArray, sums: FloatArray
) -> FloatArray:
    """Return the evidence about the examples of a recording, from all others; −inf: none."""
    counts = data.counts
    vectors = data.vectors[rows]
    present, inside = np.unique(data.label[rows], return_inverse=True)
    remaining = counts[present] - np.bincount(inside)
    left = sums[present] - _sum_by_class(vectors, inside, len(present))
    means = sums / np.maximum(counts, 1)[:, None]
    means[present] = left / np.maximum(remaining, 1)[:, None]
    evidence = measure_evidence(vectors, means)
    evidence[:, present[remaining < 1]] = -np.inf
    return evidence


def measure_evidence(vectors: FloatArray, means: FloatArray) -> FloatArray:
    """Return 2 x·c − |c|², vectors × means."""
    evidence = 2 * vectors @ means.T
    evidence -= np.einsum("nd,nd->n", means, means)
    return np.asarray(evidence)


def _sum_by_class(vectors: FloatArray, label: IntArray, classes: int) -> FloatArray:
    sums = np.zeros((classes, vectors.shape[1]))
    np.add.at(sums, label, vectors)
    return sums


def _rows_by_recording(recording: IntArray) -> Iterable[IntArray]:
    order = np.argsort(recording, kind="stable")
    starts = np.flatnonzero(np.diff(recording[order])) + 1
    return np.split(order, starts)


def find_testable(data: LabelledVectors) -> np.ndarray:
    """Return whether another recording has the class of each example."""
    pairs = np.unique(np.column_stack([data.label, data.recording]), axis=0)
    recordings = np.bincount(pairs[:, 0], minlength=data.classes)
    return np.asarray(recordings[data.label] > 1)


def recall_by_class(
    data: LabelledVectors, testable: np.ndarray, decided: IntArray
) -> FloatArray:
    """Return the share of the testable examples of each class that are named right; NaN: none."""
    total = np.bincount(data.label[testable], minlength=data.classes).astype(float)
    right = testable & (decided == data.label)
    hits = np.bincount(data.label[right], minlength=data.classes)
    recall = np.full(data.classes, np.nan)
    np.divide(hits, total, out=recall, where=total > 0)
    return recall


def gain_of_one_more(data: LabelledVectors) -> FloatArray:
    """Return what one more example of each class would add to the mean recall of all classes.

    The loss is measured when one of the k examples of a class is left out, for up to 20 of them.
    What k examples give behaves as a − b/k, so the next one adds (k − 1)/(k + 1) of that loss. NaN
    for classes with fewer than three examples, or if no class can be tested.
    """
    testable = find_testable(data)
    gains = np.full(data.classes, np.nan)
    if not testable.any():
        return gains
    weight = _weigh_examples(data, testable)
    decisions = decide_by_others(data)
    is_right = decisions.first == data.label
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        count = len(rows)
        if count < 3:
            continue
        left_out = _choose_left_out(rows)
        stays_right = _decide_without(data, decisions, number, left_out)
        losses = weight @ (is_right[:, None].astype(int) - stays_right)
        gains[number] = losses.mean() * (count - 1) / (count + 1)
    return gains


def _choose_left_out(rows: IntArray) -> IntArray:
    """Return some of the rows, spread evenly."""
    positions = np.linspace(0, len(rows) - 1, MAX_LEFT_OUT).round()
    return rows[np.unique(positions).astype(np.int64)]


def _weigh_examples(data: LabelledVectors, testable: np.ndarray) -> FloatArray:
    """Return what each example adds to the mean recall of all classes if it is named right."""
    total = np.bincount(data.label[testable], minlength=data.classes)
    weight = 1 / (np.maximum(total, 1) * np.count_nonzero(total))
    return np.asarray(np.where(testable, weight[data.label], 0.0))


def _decide_without(
    data: LabelledVectors, decisions: Decisions, number: int, left_out: IntArray
) -> np.ndarray:
    """Return which examples are named right if one of a class is left out, examples × left out.

    The evidence for the other classes stays as it was.
    """
    other_class, best = decisions.best_other(number)
    evidence = _evidence_without(data, number, left_out)
    is_tied = evidence == best[:, None]
    comes_first = (number < other_class)[:, None]
    wins = (evidence > best[:, None]) | (is_tied & comes_first)
    decided = np.where(wins, number, other_class[:, None])
    # An example never supports a class in its own recording: nothing changes there.
    same = data.recording[:, None] == data.recording[left_out]
    decided = np.where(same, decisions.first[:, None], decided)
    return np.asarray(decided == data.label[:, None])


def _evidence_without(
    data: LabelledVectors, number: int, left_out: IntArray
) -> FloatArray:
    """Return the evidence for a class if one example is left out, examples × left out."""
    rows = np.flatnonzero(data.label == number)
    sums = data.vectors[rows].sum(axis=0) - data.vectors[left_out]
    evidence = measure_evidence(data.vectors, sums / (len(rows) - 1))
    groups = data.recording[rows]
    for recording in np.unique(groups):
        recording_rows = rows[groups == recording]
        in_recording = data.recording == recording
        remaining = len(rows) - len(recording_rows) - 1
        evidence[in_recording] = -np.inf
        if remaining > 0:
            means = (sums - data.vectors[recording_rows].sum(axis=0)) / remaining
            evidence[in_recording] = measure_evidence(data.vectors[in_recording], means)
    return evidence


MAX_PARTS = 20
FEW_PARTS = 5  # for more classes than MANY_CLASSES
MANY_CLASSES = 200


@dataclass(frozen=True, eq=False)
class ExpectedRecall:
    """The detector of a model; of each class, how many examples could be tested, and were found."""

    detector: Detector
    testable: IntArray
    hits: IntArray

    @property
    def recall(self) -> FloatArray:
        """The share of calls of each class that are found and named right; NaN: unknown."""
        recall = np.full(len(self.testable), np.nan)
        np.divide(self.hits, self.testable, out=recall, where=self.testable > 0)
        return recall

    def share_of_examples(self, model: Model) -> FloatArray:
        """Return the share of examples of each class that reach its threshold; calls do so less."""
        label = model.label
        scores = self.detector.score(model.vectors)[np.arange(len(label)), label]
        reached = scores >= self.detector.thresholds[label]
        return np.asarray(np.bincount(label, reached) / model.counts)


def expect_recall(
    model: Model, false_alarms_per_h: float, most_parts: int = MAX_PARTS
) -> ExpectedRecall:
    """Return the detector of a model, and how many examples of other recordings it finds.

    Recordings are left out in at most `most_parts` parts: fewer take less time, and are more
    pessimistic.

    Raises
    ------
    InputError
        If no threshold can be found.
    """
    spreads = find_spreads(model.background)
    detector = make_detector(model, model.background, false_alarms_per_h, spreads)
    testable = np.zeros(len(model.classes), np.int64)
    hit_counts = np.zeros(len(model.classes), np.int64)
    recordings = model.examples["recording"]
    parts = FEW_PARTS if len(model.classes) > MANY_CLASSES else most_parts
    part_numbers = {name: n % parts for n, name in enumerate(sorted(set(recordings)))}
    part = np.array([part_numbers[name] for name in recordings])
    names = np.array(model.classes)[model.label]
    for number in range(part.max() + 1):
        inside = part == number
        if inside.all():
            continue
        others = replace(
            model,
            examples=model.examples.take(np.flatnonzero(~inside)),
            vectors=model.vectors[~inside],
        )
        try:
            other_detector = make_detector(
                others, model.background, false_alarms_per_h, spreads
            )
        except InputError:  # a class of one example, and no background
            continue
        rows = np.flatnonzero(inside & np.isin(names, other_detector.classes))
        if len(rows) == 0:
            continue
        scores = other_detector.score(model.vectors[rows])
        best = scores.argmax(axis=1)
        best_scores = scores[np.arange(len(best)), best]
        reached = best_scores >= other_detector.thresholds[best]
        is_right = np.array(other_detector.classes)[best] == names[rows]
        labels = model.label[rows]
        testable += np.bincount(labels, minlength=len(testable))
        hits = labels[reached & is_right]
        hit_counts += np.bincount(hits, minlength=len(testable))
    return ExpectedRecall(detector, testable, hit_counts)


DEFAULT_AIM = 1.0  # false alarms per hour and label, as in a scan
FAR = 3.0  # times the median distance of a class
DOUBTFUL_FROM = 1.5  # times that median, if another class is nearer
MIN_GAIN = 0.0005  # of recall that is shown
MAX_LISTED = 8  # doubtful examples, pairs or names
FEW_WINDOWS = 100  # of background
LOW_RECALL = 0.1
MORE_BACKGROUND = (
    "give recordings or minutes without calls, of the places to scan, "
    "with learn --background DIR"
)
LOOSER_AIM = "scan --false-alarms 10/h, or more, lowers thresholds"
PAIRS = {
    "label": pl.String,
    "other_label": pl.String,
    "distance": pl.Float64,
    "ratio": pl.Float64,
}
DOUBTFUL = {
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
    "nearer_to": pl.String,
    "distance": pl.Float64,
}


def labelled_vectors(model: Model) -> LabelledVectors:
    """Return the examples of a model as arrays; vectors are moved near the origin."""
    vectors = model.vectors.astype(np.float64)
    recording = np.unique(model.examples["recording"], return_inverse=True)[1]
    centred = vectors - vectors.mean(axis=0)
    return LabelledVectors(centred, model.label, recording, len(model.classes))


def class_table(model: Model) -> pl.DataFrame:
    """Return a row per class: examples, recordings, recall by other recordings, one more example.

    `testable` examples have their class in another recording; `recall` is the share of them that
    the examples of other recordings name right; `one_more` is what one more example of the class
    would add to the mean recall of all classes.
    """
    data = labelled_vectors(model)
    testable = find_testable(data)
    recall = recall_by_class(data, testable, decide_by_others(data).first)
    pairs = np.unique(np.column_stack([data.label, data.recording]), axis=0)
    columns = {
        "label": list(model.classes),
        "examples": model.counts,
        "recordings": np.bincount(pairs[:, 0], minlength=data.classes),
        "testable": np.bincount(data.label[testable], minlength=data.classes),
        "recall": recall,
        "one_more": gain_of_one_more(data),
    }
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def similar_pairs(model: Model) -> pl.DataFrame:
    """Return the pairs of classes, the most similar first.

    `ratio` is the distance of their means over the typical distance (root mean square) of their
    examples from the mean; below 1 they overlap much. It is empty if no class has two examples.
    """
    deviation = model.vectors - model.means[model.label]
    squares = np.einsum("nd,nd->n", deviation, deviation)
    within = np.asarray(np.bincount(model.label, squares) / model.counts)
    first, second = np.triu_indices(len(model.classes), 1)
    distance = pdist(model.means)
    mean_within = (within[first] + within[second]) / 2
    ratio = np.full(len(distance), np.nan)
    np.divide(distance, np.sqrt(mean_within), out=ratio, where=mean_within > 0)
    names = pl.Series(model.classes, dtype=pl.String)
    columns = {
        "label": names.gather(first),
        "other_label": names.gather(second),
        "distance": distance,
        "ratio": ratio,
    }
    frame = pl.DataFrame(columns, PAIRS).with_columns(pl.col("ratio").fill_nan(None))
    return frame.sort("ratio", "distance", "label", "other_label", nulls_last=True)


def doubtful_examples(model: Model) -> pl.DataFrame:
    """Return examples that may have the wrong label, the most doubtful first.

    An example is doubtful if it is three times as far from the other examples of its class as the
    median of that class; or 1.5 times, if the mean of another class is nearer (`nearer_to`).
    """
    own_distance = model.distances
    distances = cdist(model.vectors.astype(np.float64), model.means)
    distances[np.arange(len(distances)), model.label] = np.inf
    nearest = distances.argmin(axis=1)
    distance = distances.min(axis=1)
    classes = range(len(model.classes))
    medians = [np.median(own_distance[model.label == number]) for number in classes]
    rows = []
    for row, example in enumerate(model.examples.rows()):
        nearer_to = None
        limit = FAR
        excess = own_distance[row] - distance[row]
        if excess > 0:
            nearer_to = model.classes[nearest[row]]
            limit = DOUBTFUL_FROM
        if own_distance[row] > limit * medians[model.label[row]]:
            location = [example[name] for name in ("path", "start_s", "end_s", "label")]
            rows.append((*location, nearer_to, own_distance[row], excess))
    frame = pl.DataFrame(rows, DOUBTFUL | {"excess": pl.Float64}, orient="row")
    ordered = frame.sort("excess", "path", "start_s", descending=[True, False, False])
    return ordered.drop("excess")


def describe_model(model: Model) -> Iterator[str]:
    """Yield the lines of `callshot model`."""
    settings = model.settings
    examples = len(model.examples)
    yield (
        f"{model.source}: {count_text(examples, 'example')} of "
        f"{count_text(len(model.classes), 'label')}, "
        f"{model.encoder}, {model.vectors.shape[1]} dimensions"
    )
    windows = "windows of the recordings, around the calls"
    if settings.source == SEGMENT:
        windows = "segments as they were cut"
    elif settings.window_s is not None:
        windows = f"windows of {settings.window_s:g} s around the calls"
    yield f"vectors of {windows}; channel {settings.channel_rule}"
    yield f"licence of the weights: {model.provenance.licence}"
    yield ""
    # If all examples begin where their files do, the files were cut out: they are clips.
    has_clips = not any(model.examples["start_s"])
    yield from _describe_classes(class_table(model), has_clips=has_clips)
    if settings.source != SEGMENT:
        yield ""
        yield from describe_thresholds(model)
    pairs = similar_pairs(model)
    if len(pairs) > 0:
        yield ""
        yield "most similar (distance of the means / typical distance from a mean):"
    for label, other_label, distance, ratio in pairs.head(MAX_LISTED).iter_rows():
        measure = f"{distance:.3g}" if ratio is None else f"{ratio:.2f}"
        yield f"  {label} – {other_label}: {measure}"
    yield ""
    yield from _describe_doubts(doubtful_examples(model))
    yield from describe_limits(model)


def _describe_classes(table: pl.DataFrame, *, has_clips: bool) -> Iterator[str]:
    """Yield a table of the classes, and the balanced accuracy to expect.

    With one class there is nothing to confuse it with, so no share of correct names is shown.
    """
    rows = [("label", "examples", "recordings", "correct", "gain of one more example")]
    for row in table.iter_rows(named=True):
        right = "–"
        if row["recall"] is not None:
            right = f"{round(row['recall'] * row['testable'])} of {row['testable']}"
        gain = "–"
        if row["one_more"] is not None:
            is_shown = row["one_more"] > MIN_GAIN
            gain = f"+{100 * row['one_more']:.1f} points" if is_shown else "none"
        counts = (str(row["examples"]), str(row["recordings"]))
        rows.append((row["label"], *counts, right, gain))
    if len(table) == 1:
        yield from _align([cells[:3] for cells in rows])
        return
    yield from _align(rows)
    recalls = table["recall"].drop_nulls().to_numpy()
    if len(recalls) == 0:
        yield "expected accuracy: unknown; it needs labels with examples in two recordings"
        return
    labels = count_text(len(recalls), "label")
    share = f"{recalls.mean():.0%} on average over {labels}"
    if has_clips:
        yield (
            "expected accuracy: not known for calls in recordings, because the examples are clips; "
            f"of clips like these: {share} (each classified by those of other recordings)"
        )
        return
    yield (
        f"expected accuracy: {share} (each example classified by those of other recordings); it "
        "holds for calls in recordings like these"
    )


def describe_thresholds(model: Model) -> Iterator[str]:
    """Yield the thresholds of a scan at its default aim, and the recall to expect there."""
    try:
        expected = expect_recall(model, DEFAULT_AIM)
    except InputError as error:
        yield f"thresholds: {str(error).removeprefix(f'{model.source}: ')}"
        return
    detector = expected.detector
    aim = count_text(DEFAULT_AIM, "false alarm")
    yield f"thresholds at {aim} per hour and label, from {detector.origin}:"
    rows: list[tuple[str, ...]] = [("label", "threshold", "detected")]
    for number, label in enumerate(model.classes):
        testable = expected.testable[number]
        found_share = "–" if testable == 0 else f"{expected.hits[number]} of {testable}"
        rows.append((label, f"{detector.thresholds[number]:.3g}", found_share))
    yield from _align(rows)
    recalls = expected.recall[expected.testable > 0]
    if len(recalls) > 0:
        yield (
            f"expected recall of a scan at these thresholds: {recalls.mean():.0%} on average over "
            f"{count_text(len(recalls), 'label')} (each example searched with those of other "
            "recordings)"
        )
    yield from describe_few_windows(model)
    yield from _describe_low_recall(model, expected)


def describe_few_windows(model: Model) -> Iterator[str]:
    """Yield a line if thresholds rest on little background."""
    background = model.background
    if background is None or not 0 < len(background.vectors) < FEW_WINDOWS:
        return
    windows = count_text(len(background.vectors), "window")
    seconds = len(background.vectors) * background.hop_s
    yield (
        f"thresholds rest on {windows} of background ({seconds:.0f} s): that is little, and "
        f"they are uncertain; {_advise_background(background)}"
    )


def _advise_background(background: Background) -> str:
    """Return how to get better thresholds: background without calls, or more of it."""
    if WITHOUT_CALLS not in background.origins:
        return MORE_BACKGROUND
    minutes = 60 * background.hours
    return (
        f"{minutes:.0f} min without calls cannot show {DEFAULT_AIM:g} false alarm per hour: "
        "give an hour or more (--background DIR), of several recordings"
    )


def describe_low_recall(model: Model) -> Iterator[str]:
    """Yield a line if a scan at the default aim would hardly find calls, by a quick estimate."""
    background = model.background
    if background is None or len(background.vectors) == 0:
        return
    try:
        expected = expect_recall(model, DEFAULT_AIM, FEW_PARTS)
    except InputError:  # no threshold can be found, which scan and model say
        return
    yield from _describe_low_recall(model, expected)


def _describe_low_recall(model: Model, expected: ExpectedRecall) -> Iterator[str]:
    if expected.detector.weights is None:  # a scan sets other thresholds, where it can
        return
    recall = expected.recall
    own_recall = expected.share_of_examples(model)
    recall = np.where(np.isnan(recall), own_recall, recall)
    labels = [
        label
        for label, share in zip(model.classes, recall, strict=True)
        if share < LOW_RECALL
    ]
    if not labels:
        return
    advice = MORE_BACKGROUND
    if model.background is not None:
        advice = _advise_background(model.background)
    yield (
        f"a scan would find hardly any call of {join_names(labels)}: at {DEFAULT_AIM:g} false "
        f"alarm per hour, thresholds are above nearly all examples; {advice}; {LOOSER_AIM}; "
        "callshot find lists the windows most similar to a call, without thresholds"
    )


def _align(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield rows as lines, with their cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        padded = map(str.ljust, cells, widths)
        yield "  ".join(padded).rstrip()


def _describe_doubts(doubts: pl.DataFrame) -> Iterator[str]:
    if len(doubts) == 0:
        yield "no example is far from its class"
        return
    yield f"far from their class, perhaps mislabelled: {len(doubts)}"
    for path, start_s, end_s, label, nearer_to, _ in doubts.head(
        MAX_LISTED
    ).iter_rows():
        reason = "far from all others"
        if nearer_to is not None:
            reason = f"nearer to {nearer_to}"
        yield f"  {path} {start_s:.2f}–{end_s:.2f} s: {label}, {reason}"
    if len(doubts) > MAX_LISTED:
        yield f"  and {len(doubts) - MAX_LISTED} more"


def describe_limits(model: Model) -> Iterator[str]:
    """Yield a line for each weakness of a model: few labels, single or identical examples."""
    if len(model.classes) < 2:
        count = len(model.examples)
        yield (
            f"only {model.classes[0]} has examples ({count}): a second label is needed to name "
            "calls; add examples with --add"
        )
    single = [
        name
        for name, count in zip(model.classes, model.counts, strict=True)
        if count == 1
    ]
    if single:
        yield f"one example only: {join_names(single)}; two or more are safer"
    yield from _describe_identical(model)


def _describe_identical(model: Model) -> Iterator[str]:
    """Yield a line for each set of examples with the same vector."""
    groups: dict[bytes, list[int]] = {}
    for row, vector in enumerate(model.vectors):
        groups.setdefault(vector.tobytes(), []).append(row)
    for group in groups.values():
        if len(group) < 2:
            continue
        examples = model.examples.take(group)
        labels = sorted(set(examples["label"]))
        locations = ", ".join(describe_locations(examples)[:3])
        advice = "the same sound counts several times; keep one of them"
        if len(labels) > 1:
            advice = f"labelled {' and '.join(labels)}; correct the labels"
        yield f"{len(group)} identical examples ({locations}): {advice}"
