"""Labelled calls to compare an item with: examples of the model, and confirmed calls.

The number of an example is its row in the model; that of a confirmed call is its item, counted on
from there.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.errors import RequestError
from callshot.review.session import Review
from callshot.review.sound import FULL_SCALE, Clip

if TYPE_CHECKING:
    from callshot.detection.model import Model
    from callshot.review.score_worker import Scores

MAX_CLASSES = 2
MAX_EXAMPLES = 4


@dataclass(frozen=True, eq=False)
class ExampleClip:
    """The sound of an example, which its model keeps."""

    number: int
    clip: Clip

    @property
    def start_s(self) -> float:
        """When it begins in its recording."""
        return self.clip.start_s

    @property
    def end_s(self) -> float:
        """When it ends."""
        return self.clip.end_s

    def key(self) -> tuple[Any, ...]:
        """Return what changes when the sound does."""
        return ("example", self.number)

    def read(self, margin_s: float = 0.0) -> Clip:
        """Return the samples; there are none beyond the example."""
        return self.clip


def list_examples(review: Review, item: int, reviewer: str) -> list[dict[str, Any]]:
    """Return the nearest labelled calls of the two best classes of an item."""
    scores = review.scores
    if scores is None:
        return [_list_confirmed(review, item, reviewer)]
    row = int(review.items.row[item])
    confirmed = review.list_confirmed(reviewer)
    classes = []
    for label in scores.find_best(row, MAX_CLASSES):
        other_rows = [other for other in confirmed.get(label, []) if other != row]
        calls = _near_examples(scores, row, label)
        calls += _near_calls(review, scores, row, other_rows)
        calls.sort(key=_distance)
        classes.append({"label": label, "examples": calls[:MAX_EXAMPLES]})
    return classes


def _list_confirmed(review: Review, item: int, reviewer: str) -> dict[str, Any]:
    """Return confirmed calls of the label of an item, where there are no vectors."""
    label = review.items.name(int(review.items.label[item]))
    rows = review.list_confirmed(reviewer).get(str(label), [])
    other_rows = [row for row in rows if row != item][:MAX_EXAMPLES]
    calls = [_describe_call(review, row, 0, None) for row in other_rows]
    return {"label": label, "examples": calls}


def _distance(call: dict[str, Any]) -> float:
    return float(call["distance"])


def _near_examples(scores: "Scores", row: int, label: str) -> list[dict[str, Any]]:
    """Return the examples of a label whose sound the model keeps."""
    model = scores.model
    if model is None or model.clips is None:
        return []
    numbers = [
        number
        for number, name in enumerate(model.examples["label"])
        if name == label and model.clips.samples[number] is not None
    ]
    distances = scores.measure(row, model.vectors[numbers])
    calls = []
    examples = model.examples.take(numbers).rows()
    for number, example, distance in zip(numbers, examples, distances, strict=True):
        calls.append(
            {
                "example": number,
                "recording": example["path"],
                "start_s": example["start_s"],
                "end_s": example["end_s"],
                "distance": float(distance),
                "confirmed": False,
            }
        )
    return calls


def _near_calls(
    review: Review, scores: "Scores", row: int, other_rows: list[int]
) -> list[dict[str, Any]]:
    first = 0 if scores.model is None else len(scores.model.examples)
    distances = scores.measure(row, scores.vectors[other_rows])
    pairs = zip(other_rows, distances.tolist(), strict=True)
    return [_describe_call(review, item, first, distance) for item, distance in pairs]


def _describe_call(
    review: Review, item: int, first: int, distance: float | None
) -> dict[str, Any]:
    span = review.items.describe(item)
    verdict = review.decisions.verdicts.get(item)
    if verdict is not None and verdict.start_s is not None:
        span |= {"start_s": verdict.start_s, "end_s": verdict.end_s}
    return {
        "example": first + item,
        "recording": span["recording"],
        "start_s": span["start_s"],
        "end_s": span["end_s"],
        "distance": distance,
        "confirmed": True,
    }


def find_example(review: Review, number: int) -> ExampleClip | int:
    """Return the sound of an example, or the item that it is."""
    scores = review.scores
    model = None if scores is None else scores.model
    first = 0 if model is None else len(model.examples)
    if model is None or number >= first:
        return review.check_item(number - first)
    clip = make_example_clip(model, number)
    if clip is None:
        raise RequestError(f"example {number}: the model does not keep its sound", 404)
    return ExampleClip(number, clip)


def make_example_clip(model: "Model", number: int) -> Clip | None:
    """Return the sound of an example at its real rate; of a long call its middle."""
    samples = None if model.clips is None else model.clips.samples[number]
    if model.clips is None or samples is None:
        return None
    speed = model.fingerprint.get("options", {}).get("speed", 1.0)
    rate_hz = model.clips.rate_hz / float(speed)
    signal = samples.astype(np.float32) / np.float32(FULL_SCALE)
    example = model.examples.frame.row(number, named=True)
    length_s = example["end_s"] - example["start_s"]
    excess_s = max(0.0, length_s - len(signal) / rate_hz)
    return Clip(signal, rate_hz, example["start_s"] + excess_s / 2)
