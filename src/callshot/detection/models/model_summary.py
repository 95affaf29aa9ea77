"""A model → what people should know of it: its classes, doubtful examples, what to expect."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from scipy.spatial.distance import cdist, pdist

from callshot.detection.models.background import WITHOUT_CALLS, Background
from callshot.detection.models.expected_recall import (
    FEW_PARTS,
    ExpectedRecall,
    expect_recall,
)
from callshot.detection.models.leave_one_recording_out import (
    LabelledVectors,
    decide_by_others,
    find_testable,
    gain_of_one_more,
    recall_by_class,
)
from callshot.detection.models.model import SEGMENT, Model, describe_locations
from callshot.errors import InputError, count_text, join_names
from callshot.records import FloatArray, IntArray

Cells = tuple[str, str, str, str, str]

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
    within = _mean_squares(model)
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


def _mean_squares(model: Model) -> FloatArray:
    """Return the mean squared distance of each class's examples from their mean."""
    deviation = model.vectors - model.means[model.label]
    squares = np.einsum("nd,nd->n", deviation, deviation)
    return np.asarray(np.bincount(model.label, squares) / model.counts)


def doubtful_examples(model: Model) -> pl.DataFrame:
    """Return examples that may have the wrong label, the most doubtful first.

    An example is doubtful if it is three times as far from the other examples of its class as the
    median of that class; or 1.5 times, if the mean of another class is nearer (`nearer_to`).
    """
    own_distance = model.distances
    nearest, distance = _nearest_other_class(model)
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


def _nearest_other_class(model: Model) -> tuple[IntArray, FloatArray]:
    """Return the nearest mean of another class for each example, and its distance."""
    vectors = model.vectors.astype(np.float64)
    distances = cdist(vectors, model.means)
    distances[np.arange(len(vectors)), model.label] = np.inf
    return distances.argmin(axis=1), distances.min(axis=1)


def describe_model(model: Model) -> Iterator[str]:
    """Yield the lines of `callshot model`."""
    yield from _describe_input(model)
    yield ""
    yield from _describe_classes(class_table(model), has_clips=_has_clips(model))
    if model.settings.source != SEGMENT:
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


def _describe_input(model: Model) -> Iterator[str]:
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


def _has_clips(model: Model) -> bool:
    """Return whether all examples begin where their files do: they were cut out by somebody."""
    return not any(model.examples["start_s"])


def _describe_classes(table: pl.DataFrame, *, has_clips: bool) -> Iterator[str]:
    """Yield a table of the classes, and the balanced accuracy to expect.

    With one class there is nothing to confuse it with, so no share of correct names is shown.
    """
    rows = [("label", "examples", "recordings", "correct", "gain of one more example")]
    rows += [_class_cells(**row) for row in table.iter_rows(named=True)]
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


def _class_cells(
    label: str,
    examples: int,
    recordings: int,
    testable: int,
    recall: float | None,
    one_more: float | None,
) -> Cells:
    right = "–"
    if recall is not None:
        right = f"{round(recall * testable)} of {testable}"
    gain = "–"
    if one_more is not None:
        gain = f"+{100 * one_more:.1f} points" if one_more > MIN_GAIN else "none"
    return label, str(examples), str(recordings), right, gain


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
    yield from _align(_threshold_cells(model, expected))
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


def _threshold_cells(model: Model, expected: ExpectedRecall) -> list[tuple[str, ...]]:
    rows = [("label", "threshold", "detected")]
    for number, label in enumerate(model.classes):
        testable = expected.testable[number]
        found_share = "–" if testable == 0 else f"{expected.hits[number]} of {testable}"
        threshold = f"{expected.detector.thresholds[number]:.3g}"
        rows.append((label, threshold, found_share))
    return list(rows)


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
