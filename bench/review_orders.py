"""What decisions buy, by the order in which detections are reviewed: a simulated reviewer.

    callshot synth site --soundscape --recordings 24 --minutes 5 --calls-per-hour 120
    python bench/review_orders.py site ../shared/data/finch --figure review_orders.png

A model of a few examples of each type scans recordings, with low thresholds. In half of the
recordings a reviewer who knows the annotations decides on detections, in each order; the model is
updated after every decision. Confirmed calls have the reviewer's label, rejected ones are dropped,
and all others have the best label of the model if its score reaches the threshold of the usual aim.
Recall and precision of the result are those of all annotated calls, label and place (IoU 0.3), in
the recordings that are reviewed and in the other half, where nobody decides. Means over draws.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.detection.background import Covariance
from callshot.detection.detector import make_detector
from callshot.detection.events import open_recordings, read_events
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import Model, make_model
from callshot.detection.scan import scan
from callshot.records import IntArray
from callshot.review.sources import (
    ORDERS,
    ModelScores,
    draw_sample,
    make_items,
    measure_background,
    open_vectors,
    order_items,
    replace_scores,
)
from callshot.spans import Spans
from table import parser, show

STEPS = (0, 20, 50, 100, 200)
RANDOM = "random"
IOU = 0.3
USUAL_PER_H = 1.0


@dataclass(frozen=True)
class Site:
    """Recordings, annotations, and where examples are; windows and aims that suit the calls."""

    name: str
    recordings: Path
    annotations: Path
    examples: Path
    example_annotations: Path
    window_s: float
    hop_s: float
    shots: int
    loose_per_h: float
    usual_per_h: float
    examples_are_apart: bool


def open_site(folder: Path) -> Site:
    """Return a synthetic site, or a folder of songs with annotations.csv."""
    if (folder / "recordings").is_dir():
        return Site(
            "soundscape",
            folder / "recordings",
            folder / "raven",
            folder / "examples" / "recordings",
            folder / "examples" / "raven",
            2.0,
            0.5,
            3,
            60.0,
            USUAL_PER_H,
            True,
        )
    table = folder / "annotations.csv"
    return Site(
        "finch songs", folder, table, folder, table, 0.08, 0.02, 3, 3600.0, 360.0, False
    )


@dataclass(frozen=True)
class Trial:
    """Detections with vectors, and what each of them is: the row of its annotation, or −1."""

    model: Model
    items: Spans
    vectors: NDArray[np.float32]
    covariance: Covariance | None
    thresholds: dict[str, float]
    truth: IntArray
    names: list[str]  # of all annotations
    reviewed: NDArray[
        np.bool_
    ]  # whether an item is in the recordings that are reviewed
    counts: tuple[int, int]  # of annotations in those recordings, and in the others


def make_trial(site: Site, folder: Path, seed: int) -> Trial:
    """Draw examples, scan with low thresholds, and compare with the annotations."""
    calls = read_events(site.annotations, open_recordings(site.recordings)).events
    whole = learn(
        site.examples,
        "mfcc",
        annotations=site.example_annotations,
        window_s=site.window_s,
        store=folder / "store",
    ).model
    share = 1.0 if site.examples_are_apart else 0.2
    model, used = draw_examples(whole, site.shots, share, seed)
    index = index_recordings(
        site.recordings,
        folder / "index",
        "mfcc",
        window_s=site.window_s,
        hop_s=site.hop_s,
    ).index
    result = scan(model, index, false_alarms=site.loose_per_h, adapt="none")
    kept = set(calls["recording"])
    if not site.examples_are_apart:
        kept -= used
    names = sorted(kept)
    events = result.events.filter(pl.col("recording").is_in(names))
    calls = calls.filter(
        pl.col("recording").is_in(names) & pl.col("label").is_in(list(model.classes))
    )
    usual = site.usual_per_h * min(1.0, index.settings.hop_s / model.background.hop_s)
    detector = make_detector(model, model.background, usual)
    items = make_items(events)
    covariance = measure_background(model)
    review = folder / f"review-{seed}"
    review.mkdir()
    half = set(names[::2])
    in_half = calls["recording"].is_in(list(half)).to_numpy()
    return Trial(
        model,
        items,
        open_vectors(review, items, index, model, covariance),
        covariance,
        dict(zip(detector.classes, detector.thresholds.tolist(), strict=True)),
        match(events, calls),
        calls["label"].to_list(),
        events["recording"].is_in(list(half)).to_numpy(),
        (int(in_half.sum()), int((~in_half).sum())),
    )


def draw_examples(
    model: Model, shots: int, share: float, seed: int
) -> tuple[Model, set[str]]:
    """Return a model of examples in a share of the recordings, and these recordings."""
    generator = np.random.default_rng(seed)
    order = generator.permutation(len(model.examples)).tolist()
    labels = model.examples.spans["label"]
    paths = model.examples.spans.paths
    recordings = sorted(set(paths))
    count = round(share * len(recordings))
    allowed = set(generator.permutation(recordings)[:count])
    rows = []
    for label in model.classes:
        own = [row for row in order if labels[row] == label]
        first = [row for row in own if paths[row] in allowed]
        rows += first[:shots]
    small = make_model(
        model.examples.take(rows),
        encoder=model.encoder,
        fingerprint=model.fingerprint,
        settings=model.settings,
        licence=model.licence,
        background=model.background,
    )
    return small, {paths[row] for row in rows}


def match(events: pl.DataFrame, calls: pl.DataFrame) -> IntArray:
    """Return the annotation with the largest overlap with each event, −1 below IoU 0.3."""
    truth = np.full(len(events), -1)
    recording = calls["recording"].to_numpy()
    start_s = calls["start_s"].to_numpy()
    end_s = calls["end_s"].to_numpy()
    for row, event in enumerate(events.iter_rows(named=True)):
        inner = np.minimum(end_s, event["end_s"]) - np.maximum(
            start_s, event["start_s"]
        )
        outer = np.maximum(end_s, event["end_s"]) - np.minimum(
            start_s, event["start_s"]
        )
        share = np.where(recording == event["recording"], inner / outer, -1.0)
        if len(share) and share.max() >= IOU:
            truth[row] = share.argmax()
    return truth


def review(trial: Trial, order: str, seed: int) -> Iterator[tuple[int, list[float]]]:
    """Decide in an order; yield recall and precision at each of STEPS, in both halves."""
    items = trial.items
    scores = ModelScores(trial.model, trial.vectors, trial.covariance)
    sample = draw_sample(items, seed)
    shuffled = np.random.default_rng(seed).permutation(len(items))
    decided: dict[int, str | None] = {}
    added: dict[str, list[int]] = {}
    for number in range(STEPS[-1] + 1):
        if number in STEPS:
            yield number, measure(trial, scores, decided)
        ranking = scores.rank(items.frame["label"], trial.model.classes)
        items = replace_scores(items, ranking)
        ordered = shuffled
        if order != RANDOM:
            ordered = order_items(order, items, trial.thresholds, sample)
        left = [
            one
            for one in ordered.tolist()
            if trial.reviewed[one] and one not in decided
        ]
        if not left:
            continue
        item = left[0]
        is_call = trial.truth[item] >= 0
        decided[item] = trial.names[trial.truth[item]] if is_call else None
        if is_call:
            added.setdefault(str(decided[item]), []).append(item)
            scores.update(added)


def measure(
    trial: Trial, scores: ModelScores, decided: dict[int, str | None]
) -> list[float]:
    """Return recall and precision in the reviewed half and in the other."""
    own = trial.items.frame["label"]
    ranking = scores.rank(own, trial.model.classes)
    is_other = (ranking["runner_up_score"] > ranking["score"]).fill_null(value=False)
    best = ranking["runner_up"].zip_with(is_other, own)
    highest = pl.max_horizontal("score", "runner_up_score")
    score = ranking.select(highest).to_series()
    figures = []
    for half, count in zip(
        (trial.reviewed, ~trial.reviewed), trial.counts, strict=True
    ):
        right: set[int] = set()
        kept = 0
        correct = 0
        for item in np.flatnonzero(half).tolist():
            label = best[item]
            if item in decided:
                if decided[item] is None:
                    continue
                label = str(decided[item])
            elif score[item] < trial.thresholds.get(label, np.inf):
                continue
            kept += 1
            call = int(trial.truth[item])
            if call >= 0 and trial.names[call] == label:
                correct += 1
                right.add(call)
        figures += [len(right) / max(count, 1), correct / max(kept, 1)]
    return figures


def main() -> None:
    """Run all orders on all sites; print a table, and draw it."""
    found = parser(__doc__)
    found.add_argument("sites", type=Path, nargs="+")
    found.add_argument("--draws", type=int, default=5)
    found.add_argument("--figure", type=Path)
    arguments = found.parse_args()
    rows: list[dict[str, object]] = []
    for folder in arguments.sites:
        site = open_site(folder)
        with tempfile.TemporaryDirectory() as place:
            rows += run_site(site, Path(place), arguments.draws)
    show("What decisions buy, by order", rows, arguments.json)
    if arguments.figure is not None:
        draw(rows, arguments.figure)


def run_site(site: Site, folder: Path, draws: int) -> list[dict[str, object]]:
    """Return a row for each order and number of decisions."""
    results: dict[tuple[str, int], list[list[float]]] = {}
    queue = []
    for seed in range(draws):
        trial = make_trial(site, folder, seed)
        queue.append(int(trial.reviewed.sum()))
        for order in (*ORDERS, RANDOM):
            for number, figures in review(trial, order, seed):
                results.setdefault((order, number), []).append(figures)
    rows: list[dict[str, object]] = []
    for (order, number), values in results.items():
        recall, precision, other_recall, other_precision = np.mean(values, axis=0)
        rows.append(
            {
                "site": site.name,
                "queue": round(float(np.mean(queue))),
                "order": order,
                "decisions": number,
                "recall": round(float(recall), 3),
                "precision": round(float(precision), 3),
                "recall elsewhere": round(float(other_recall), 3),
                "precision elsewhere": round(float(other_precision), 3),
            }
        )
    return rows


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """Draw recall and precision over decisions, a line for each order."""
    import matplotlib.pyplot as plt

    sites = list(dict.fromkeys(str(row["site"]) for row in rows))
    columns = ("recall", "precision", "recall elsewhere", "precision elsewhere")
    styles = dict(zip((*ORDERS, RANDOM), ["o", "s", "^", "D", "v", "x"], strict=True))
    figure, axes = plt.subplots(
        len(sites),
        4,
        figsize=(11, 2.7 * len(sites)),
        squeeze=False,
        layout="constrained",
    )
    for line, site in zip(axes, sites, strict=True):
        for panel, column in zip(line, columns, strict=True):
            for order, marker in styles.items():
                own = [
                    row for row in rows if (row["site"], row["order"]) == (site, order)
                ]
                panel.plot(
                    [row["decisions"] for row in own],
                    [row[column] for row in own],
                    color="black" if order == RANDOM else None,
                    linestyle="--" if order == RANDOM else "-",
                    marker=marker,
                    markersize=4,
                    label=order,
                )
            panel.set_title(f"{site}: {column}", fontsize=9)
            panel.set_xlabel("decisions", fontsize=8)
            panel.tick_params(labelsize=8)
            panel.set_ylim(0, 1.02)
            panel.grid(alpha=0.3)
    axes[0][0].legend(fontsize=7)
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
