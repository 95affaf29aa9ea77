"""Ways to find and name calls with a few examples, on a synthetic site or annotated recordings.

    callshot synth --soundscape site --types 5 --examples 20 --calls-per-hour 100
    callshot synth --soundscape quiet --calls-per-hour 0 --start 2026-03-04T01:00
    python bench/detectors.py site --quiet quiet/recordings --encoder birdnet-v2.4 --hop 1.5

Every way has the same examples: clips from elsewhere (plain), the same clips mixed into background
of the site (mixed), or the same calls annotated in recordings of the site (own). Windows without
calls (--quiet, or those of the examples' recordings) give thresholds at --aim false alarms per
hour and class. AP is the mean over classes of event AP (IoU 0.3); recall, names (share of events on
a call that have its name) and false alarms per hour and class (on no call) are those at the
thresholds. Means over draws of examples. The detector of a scan is "shipped"; "windows without
labels" are all windows that are searched. --templates adds template matching.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from callshot.detection.background import (
    Background,
    BackgroundRecording,
    make_windows,
)
from callshot.detection.detector import (
    HIGHEST_AIM,
    Detector,
    find_thresholds,
    make_detector,
)
from callshot.detection.edges import Spacing, merge_windows
from callshot.detection.matching import find_partners, match_events
from callshot.detection.model import (
    AudioSettings,
    make_model,
)
from callshot.spans import Spans
from callshot.vectors import Vectors
from detector_examples import (
    Array,
    Embedder,
    Examples,
    Windows,
    embed_clips,
    embed_own,
    find_annotations,
    read_calls,
    read_windows,
    select_free,
)
from detector_ways import WAYS, Way
from table import parser, show
from template_matching import match_templates, read_spectrogram

LOOSER = 60.0  # times the aim, for the events that are ranked for AP
IOU = 0.3
TOUCHING = 0.05  # IoU from which an event is on a call, whatever its name
FOLDS = 4  # of background, for thresholds


def make_background(quiet: Windows, origin: str) -> Background:
    """Return windows as the background of a model."""
    paths = np.unique(quiet.path)
    names = tuple(BackgroundRecording(str(path), 0, (), origin) for path in paths)
    vectors = quiet.vectors.astype(np.float32)
    windows = make_windows(quiet.path, quiet.start_s, quiet.window_s, vectors)
    return Background(names, windows, quiet.window_s, quiet.hop_s)


def make_shipped(
    examples: Examples, background: Background, aim: float
) -> tuple[Detector, Array]:
    """Return the detector that a scan uses, and thresholds for the events that AP ranks."""
    labels = [str(label) for label in examples.label]
    names = [str(n) for n in range(len(labels))]
    places = {"label": labels, "recording": names, "path": names}
    times = {"start_s": 0.0, "end_s": 1.0, "windows": 1}
    model = make_model(
        Vectors(
            Spans(pl.DataFrame(places | times)), examples.vectors.astype(np.float32)
        ),
        encoder="",
        fingerprint={},
        settings=AudioSettings(),
        licence="",
    )
    aims = [aim, min(LOOSER * aim, HIGHEST_AIM)]
    detector, loose = [make_detector(model, background, aim) for aim in aims]
    return detector, loose.thresholds


def score_held_out(make: Way, examples: Examples, quiet: Windows) -> Array:
    """Return scores of background windows by detectors that were made without them."""
    paths = np.unique(quiet.path)
    fold = np.searchsorted(paths, quiet.path) % FOLDS
    scores = [None] * FOLDS
    rows = []
    for number in range(FOLDS):
        score = make(examples, quiet.vectors[fold != number])
        inside = np.flatnonzero(fold == number)
        scores[number] = score(quiet.vectors[inside])
        rows.append(inside)
    return np.concatenate(scores)[np.argsort(np.concatenate(rows))]


@dataclass
class Trial:
    """The recordings to search, their calls, and background for thresholds."""

    windows: Windows
    calls: pl.DataFrame
    quiet: Windows
    classes: list[str]
    call_s: Array
    aim: float  # false alarms per hour and class

    def detect(self, scores: Array, thresholds: Array) -> pl.DataFrame:
        """Return events, as a scan finds them."""
        excess = scores - thresholds
        best = scores.argmax(axis=1)
        rows = np.arange(len(best))
        active = excess[rows, best] >= 0
        call_s = dict(zip(self.classes, self.call_s, strict=True))
        spacing = Spacing(self.windows.window_s, self.windows.hop_s, call_s)
        events = []
        for path in np.unique(self.windows.path):
            chosen = np.flatnonzero(active & (self.windows.path == path))
            start_s = self.windows.start_s[chosen]
            part = {
                "start_s": start_s,
                "end_s": start_s + self.windows.window_s,
                "label": np.array(self.classes, object)[best[chosen]],
                "score": scores[chosen, best[chosen]],
            }
            merged = merge_windows(part, spacing, 1e9)
            rows_of = zip(*merged.values(), strict=True)
            events += [(path, *event) for event in rows_of]
        columns = ["path", "start_s", "end_s", "label", "score"]
        frame = pl.DataFrame(events, columns, orient="row")
        return frame.sort("score", descending=True) if events else frame

    def match(self, events: pl.DataFrame, calls: pl.DataFrame, iou: float) -> Array:
        """Return the row of the call of each event, −1 if there is none."""
        if events.is_empty():
            return np.full(0, -1)
        frames = [
            frame.select("start_s", "end_s", recording="path")
            for frame in (events, calls)
        ]
        return match_events(find_partners(*frames, iou))

    def measure(self, make: Way, examples: Examples) -> dict[str, float]:
        """Return all figures of one way to score."""
        score = make(examples, self.quiet.vectors)
        quiet = score_held_out(make, examples, self.quiet)
        scores = score(self.windows.vectors)
        hours = self.quiet.hours
        loose = find_thresholds(quiet, hours * LOOSER * self.aim)
        return self.judge(scores, loose, find_thresholds(quiet, hours * self.aim))

    def judge(
        self, scores: Array, loose_thresholds: Array, thresholds: Array
    ) -> dict[str, float]:
        """Return all figures of scores: AP from the lower thresholds, the rest from the others."""
        loose = self.detect(scores, loose_thresholds)
        events = self.detect(scores, thresholds)
        precisions = []
        recalls = []
        for name in self.classes:
            calls = self.calls.filter(label=name)
            ranked = loose.filter(pl.col("label") == name)
            hits = self.match(ranked, calls, IOU) >= 0
            precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
            precisions.append((precision * hits).sum() / len(calls))
            found = self.match(events.filter(pl.col("label") == name), calls, IOU)
            recalls.append((found >= 0).sum() / len(calls))
        near = self.match(events, self.calls, TOUCHING)
        on_call = near >= 0
        names = self.calls["label"].to_numpy()[near[on_call]]
        given = events["label"].to_numpy()[on_call] if len(events) else names
        away = self.count_away(events)
        return {
            "AP": float(np.mean(precisions)),
            "recall": float(np.mean(recalls)),
            "names": float(np.mean(given == names)) if len(names) else np.nan,
            "false/h": away / self.windows.hours / len(self.classes),
        }

    def measure_shipped(
        self, examples: Examples, windows: Windows, origin: str
    ) -> dict[str, float]:
        """Return all figures of the detector that a scan uses."""
        background = make_background(windows, origin)
        detector, loose = make_shipped(examples, background, self.aim)
        scores = detector.score(self.windows.vectors)
        return self.judge(scores, loose, detector.thresholds)

    def count_away(self, events: pl.DataFrame) -> int:
        """Count events that touch no call of any label."""
        count = 0
        for (path,), part in events.group_by("path"):
            calls = self.calls.filter(path=path)
            starts = part["start_s"].to_numpy()[:, None]
            ends = part["end_s"].to_numpy()[:, None]
            before = ends <= calls["start_s"].to_numpy()
            after = starts >= calls["end_s"].to_numpy()
            count += int((before | after).all(axis=1).sum())
        return count


def draw(examples: Examples, shots: int, seed: int, classes: list[str]) -> Examples:
    """Return `shots` examples of each class."""
    rng = np.random.default_rng(seed)
    rows: list[int] = []
    for name in classes:
        own = np.flatnonzero(examples.label == name)
        rows += rng.permutation(own)[:shots].tolist()
    return Examples(examples.vectors[rows], examples.label[rows])


def centre_examples(examples: Examples, site_mean: Array) -> Examples:
    """Move examples so that their mean is that of background of the site."""
    moved = examples.vectors - examples.vectors.mean(axis=0) + site_mean
    return Examples(moved, examples.label)


def measure_all(
    trial: Trial, kinds: dict[str, Examples], options: Namespace
) -> Iterator[dict[str, object]]:
    """Yield a row for each number of examples, kind of examples and way to score."""
    site_mean = trial.quiet.vectors.mean(axis=0)
    for shots in options.shots:
        draws = options.draws if shots < 20 else 1
        for kind, examples in kinds.items():
            for centring in (False, True):
                if centring and kind == "own":
                    continue
                if centring and not options.centring:
                    continue
                for way, make in choose_ways(options):
                    figures = []
                    for seed in range(draws):
                        chosen = draw(examples, shots, seed, trial.classes)
                        if centring:
                            chosen = centre_examples(chosen, site_mean)
                        figures.append(trial.measure(make, chosen))
                    name = f"{kind}, centred" if centring else kind
                    yield make_row(way, f"{shots} {name}", figures)
            shipped = {
                "shipped, windows without calls": (trial.quiet, "without calls"),
                "shipped, windows without labels": (trial.windows, "unlabelled"),
            }
            for way, (windows, origin) in shipped.items():
                figures = [
                    trial.measure_shipped(
                        draw(examples, shots, seed, trial.classes), windows, origin
                    )
                    for seed in range(draws)
                ]
                yield make_row(way, f"{shots} {kind}", figures)


def choose_ways(options: Namespace) -> list[tuple[str, Way]]:
    """Return the ways whose names contain one of those that are asked for."""
    asked = options.ways.split(",")
    return [
        (name, make) for name, make in WAYS.items() if any(a in name for a in asked)
    ]


def make_row(
    way: str, examples: str, figures: list[dict[str, float]]
) -> dict[str, object]:
    """Return a row of the table: means of figures."""
    row: dict[str, object] = {"way": way, "examples": examples}
    for key in figures[0]:
        values = [one[key] for one in figures if not np.isnan(one[key])]
        row[key] = round(float(np.mean(values)), 2) if values else "–"
    return row


def main() -> None:
    """Measure all ways and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument("site", type=Path)
    arguments.add_argument("--quiet", type=Path)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--window", type=float)
    arguments.add_argument("--hop", type=float)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--draws", type=int, default=3)
    arguments.add_argument(
        "--shots",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1, 5, 20],
    )
    arguments.add_argument("--aim", type=float, default=1.0)
    arguments.add_argument("--work", type=Path, default=Path("detectors"))
    arguments.add_argument("--ways", default="", help="parts of names; default all")
    arguments.add_argument("--no-centring", dest="centring", action="store_false")
    arguments.add_argument("--templates", action="store_true")
    arguments.add_argument("--scale", type=float, default=1.0)
    options = arguments.parse_args()
    trial = open_trial(options)
    kinds = read_examples(options)
    rows = list(measure_all(trial, kinds, options))
    if options.templates:
        rows += measure_templates(trial, options)
    show(f"detectors on {options.site}, {options.encoder}", rows, options.json)


def open_trial(options: Namespace) -> Trial:
    """Return the recordings to search, and background."""
    work = options.work / options.encoder
    site = options.site
    windows = read_windows(site / "recordings", work / "windows", options)
    place = site / "examples"
    example_calls = read_calls(place / "recordings", find_annotations(place))
    if options.quiet is None:
        all_windows = read_windows(place / "recordings", work / "examples", options)
        quiet = select_free(all_windows, example_calls)
    else:
        quiet = read_windows(options.quiet, work / "quiet", options)
    lengths = example_calls.with_columns(length=pl.col("end_s") - pl.col("start_s"))
    medians = lengths.group_by("label").agg(pl.col("length").median()).sort("label")
    classes = medians["label"].to_list()
    calls = read_calls(site / "recordings", find_annotations(site))
    return Trial(
        windows, calls, quiet, classes, medians["length"].to_numpy(), options.aim
    )


def read_examples(options: Namespace) -> dict[str, Examples]:
    """Return the examples of each kind; they are embedded once."""
    stored = options.work / options.encoder / "examples.npz"
    if not stored.exists():
        embedder = Embedder(options)
        site = options.site
        place = site / "examples"
        kinds = {}
        if (site / "clips").exists():
            kinds |= embed_clips(site / "clips", site / "recordings", embedder)
        kinds["own"] = embed_own(
            place / "recordings", find_annotations(place), embedder
        )
        arrays = {f"{kind} vectors": one.vectors for kind, one in kinds.items()}
        for kind, one in kinds.items():
            arrays[f"{kind} label"] = one.label.astype(str)
        np.savez(stored, **arrays)
    arrays = dict(np.load(stored))
    names = [name.removesuffix(" label") for name in arrays if name.endswith(" label")]
    return {
        name: Examples(arrays[f"{name} vectors"], arrays[f"{name} label"])
        for name in names
    }


def measure_templates(trial: Trial, options: Namespace) -> Iterator[dict[str, object]]:
    """Yield a row for each number of examples: templates cut from recordings of the site."""
    site = options.site
    place = site / "examples" / "recordings"
    calls = read_calls(place, find_annotations(site / "examples"))
    quiet_folder = place if options.quiet is None else options.quiet
    for shots in options.shots:
        templates = {}
        for name in trial.classes:
            chosen = calls.filter(label=name).sample(fraction=1, shuffle=True, seed=0)
            templates[name] = [
                read_spectrogram(place / path, options.scale, (start_s, end_s))
                for path, start_s, end_s, _ in chosen.head(shots).iter_rows()
            ]
        quiet = match_templates(
            templates, quiet_folder, trial.quiet, trial.classes, options.scale
        )
        scores = match_templates(
            templates, site / "recordings", trial.windows, trial.classes, options.scale
        )
        hours = trial.quiet.hours
        loose = find_thresholds(quiet, hours * LOOSER * trial.aim)
        figures = trial.judge(scores, loose, find_thresholds(quiet, hours * trial.aim))
        yield make_row("template matching", f"{shots} own", [figures])


if __name__ == "__main__":
    main()
