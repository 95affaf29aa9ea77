"""Rumbles found with a few examples in vectors of another tool, beside the network of their source.

    python bench/rumbles.py ../shared/data

AVES vectors of 1,032 elephant rumbles and of 359 stretches without, in a recording of 24 hours;
there is no audio. The examples are some of the rumbles, drawn at random; nothing is known to be
background. All is done by `import`, `learn` and `scan`. A rumble is found if an event overlaps it,
and an event is right if it overlaps a rumble. Examples count as found like the others. "at the
network's recall" ranks windows by their score, and takes those that find as many rumbles as the
network did. Its detections are longer, and one finds more rumbles: so wrong events are counted too.

The second table is of scans with an aim of false alarms and known background: 10 rumbles, some
hours of the stretches without rumbles in every second hour of the day, and the rest of the day to
scan. Wrong events are counted per hour of the stretches without rumbles. "factor stated" is by what
`scan` says that the aim can be missed (median).

Of the 94 wrong detections of the network, 44 are between the stretches, where it is not known what
there is, and where there are no vectors. So its row comes with and without these.
"""

import csv
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from callshot.detection.edges import Spacing, merge_windows
from callshot.detection.index.import_index import import_index
from callshot.detection.index.index_files import Index
from callshot.detection.learn import learn
from callshot.detection.nearest import NearestMeanDetector
from callshot.detection.scan import scan
from callshot.records import FloatArray
from table import parser, show

NAME = "night"
WINDOW_S = 0.64
NETWORK = "detections_of_published_head.csv"
HOUR_S = 3600
EXAMPLES = 10  # of scans with an aim
AIMS = (1, 3, 10, 30)  # false alarms per hour


def import_stretches(
    data: Path, segments: pl.DataFrame, folder: Path, *, by_hour: bool = False
) -> Index:
    """Import the vectors of some stretches; by hour of the day, or as one recording."""
    archive = np.load(data / "vectors.npz")
    wanted = []
    folder.mkdir()
    with (folder / "aves.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["recording", "start_s", "end_s"])
        for start_s, _, _, first, rows in segments.sort("start").iter_rows():
            name = f"{start_s // HOUR_S:02.0f}h" if by_hour else NAME
            for row in range(rows):
                begin_s = start_s + row * WINDOW_S
                writer.writerow([name, begin_s, begin_s + WINDOW_S])
                wanted.append(first + row)
    np.save(folder / "aves.npy", archive["quantised"][wanted] * archive["scale"])
    return import_index(folder / "aves.npy", folder / "index", "aves")[0]


def overlaps(first_s: FloatArray, second_s: FloatArray) -> FloatArray:
    """Return which spans (rows of start and end) of the first overlap one of the second."""
    starts_before = first_s[:, None, 0] < second_s[None, :, 1]
    ends_after = first_s[:, None, 1] > second_s[None, :, 0]
    return np.asarray((starts_before & ends_after).any(axis=1))


def judge(events_s: FloatArray, rumbles_s: FloatArray) -> tuple[float, float, float]:
    """Return recall, precision, and how many events are wrong."""
    found = overlaps(rumbles_s, events_s)
    right = overlaps(events_s, rumbles_s)
    return float(found.mean()), float(right.mean()), float((~right).sum())


def rank(
    index: Index, detector: NearestMeanDetector, rumbles_s: FloatArray, wanted: int
) -> tuple[float, float]:
    """Return precision and wrong events of the windows with the highest scores.

    They are so many that `wanted` rumbles are found.
    """
    windows = index.read_rows(index.recordings[0])
    _, scores, _ = detector.search([windows["vector"]])
    score = scores[:, 0]
    best = []
    for start_s, end_s in rumbles_s:
        is_inside = (windows["start_s"] < end_s) & (windows["end_s"] > start_s)
        best.append(score[is_inside].max())
    lowest = np.sort(best)[-wanted]
    active = windows[score >= lowest]
    columns = {
        "start_s": active["start_s"],
        "end_s": active["end_s"],
        "label": np.full(len(active), "rumble", object),
        "score": score[score >= lowest],
    }
    spacing = Spacing(WINDOW_S, index.settings.hop_s, {"rumble": WINDOW_S})
    events = merge_windows(columns, spacing, windows["end_s"].max())
    spans_s = np.column_stack([events["start_s"], events["end_s"]])
    _, precision, wrong = judge(spans_s, rumbles_s)
    return precision, wrong


def measure(
    index: Index, rumbles_s: FloatArray, rows: FloatArray, wanted: int, folder: Path
) -> list[float]:
    """Learn from some rumbles and scan; return the figures of a row."""
    annotations = folder / "annotations.csv"
    frame = pl.DataFrame(rumbles_s[rows], ["start_s", "end_s"], orient="row")
    frame = frame.with_columns(recording=pl.lit(NAME), label=pl.lit("rumble"))
    frame.write_csv(annotations)
    model = learn(index.folder, annotations=annotations, background="none").model
    result = scan(model, index)
    events_s = result.events.select("start_s", "end_s").to_numpy()
    assert isinstance(result.detector, NearestMeanDetector)  # not by thresholds
    ranked = rank(index, result.detector, rumbles_s, wanted)
    return [*judge(events_s, rumbles_s), *ranked]


def measure_aims(
    data: Path, segments: pl.DataFrame, hours: float, draw: int
) -> list[list[float]]:
    """Return what scans with each of AIMS show.

    False alarms per hour, recall, the factor by which the aim was missed, and the one stated.
    """
    rng = np.random.default_rng(draw)
    is_rumble = segments["label"] == "rumble"
    rumbles = segments.filter(is_rumble)
    hour = segments["start"] // HOUR_S
    known = segments.filter(~is_rumble & ((hour + draw) % 2 == 0))
    others = segments.filter(~is_rumble & ((hour + draw) % 2 == 1))
    known = known[rng.permutation(len(known))]
    known = known.filter(known["rows"].cum_sum() * WINDOW_S <= hours * HOUR_S)
    chosen = rng.choice(len(rumbles), EXAMPLES, replace=False)
    examples = rumbles[chosen]
    rest = rumbles.join(examples, on="start", how="anti")
    figures = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        background = import_stretches(data, known, folder / "known", by_hour=True)
        learned = import_stretches(data, examples, folder / "examples")
        scanned = import_stretches(data, pl.concat([others, rest]), folder / "scanned")
        annotations = folder / "annotations.csv"
        examples.select(
            recording=pl.lit(NAME), start_s="start", end_s="end", label="label"
        ).write_csv(annotations)
        model = learn(
            learned.folder, annotations=annotations, background=background.folder
        ).model
        rumbles_s = rest.select("start", "end").to_numpy()
        others_h = others["rows"].sum() * WINDOW_S / HOUR_S
        for aim in AIMS:
            result = scan(model, scanned, false_alarms=aim)
            events_s = result.events.select("start_s", "end_s").to_numpy()
            recall, _, wrong = judge(events_s, rumbles_s)
            assert isinstance(result.detector, NearestMeanDetector)  # not by thresholds
            assert result.detector.limits is not None
            assert result.false_alarms is not None
            ratio = max(wrong, 0.5) / others_h / result.false_alarms
            missed_by = max(ratio, 1 / ratio)  # no event counts half
            stated = result.detector.limits.factor
            figures.append([wrong / others_h, recall, missed_by, stated])
    return figures


def describe_aims(
    data: Path, segments: pl.DataFrame, draws: int
) -> list[dict[str, object]]:
    """Return the rows of scans with an aim."""
    table = []
    for hours in (0.3, 1.0, 3.0):
        scans = [measure_aims(data, segments, hours, draw) for draw in range(draws)]
        for aim, figures in zip(AIMS, np.array(scans).swapaxes(0, 1), strict=True):
            alarms, recall, missed_by, stated = figures.T
            table.append(
                {
                    "hours of background": hours,
                    "aim, per hour": aim,
                    "wrong events per hour": alarms.mean(),
                    "fewest": alarms.min(),
                    "most": alarms.max(),
                    "within a factor of two": (missed_by <= 2).mean(),
                    "factor stated": np.median(stated),
                    "within it": (missed_by <= stated).mean(),
                    "recall": recall.mean(),
                }
            )
    return table


def describe_network(
    options: Namespace, segments: pl.DataFrame
) -> list[dict[str, object]]:
    """Return the rows of the network of the source."""
    rumbles_s = segments.filter(label="rumble").select("start", "end").to_numpy()
    known_s = segments.select("start", "end").to_numpy()
    events_s = pl.read_csv(options.data / "rumbles24h" / NETWORK).to_numpy()
    rows = []
    for name, spans_s in (
        ("network of the source", events_s),
        ("the same, between stretches left out", events_s[overlaps(events_s, known_s)]),
    ):
        recall, precision, wrong = judge(spans_s, rumbles_s)
        rows.append(
            {
                "examples": name,
                "recall": recall,
                "precision": precision,
                "wrong": wrong,
            }
        )
    return rows


def main() -> None:
    """Measure with 5, 10 and 20 examples."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--draws", type=int, default=8)
    options = arguments.parse_args()
    data = options.data / "rumbles24h"
    segments = pl.read_csv(data / "segments.csv")
    rumbles_s = segments.filter(label="rumble").select("start", "end").to_numpy()
    table = describe_network(options, segments)
    wanted = round(float(str(table[0]["recall"])) * len(rumbles_s))
    with TemporaryDirectory() as name:
        folder = Path(name)
        index = import_stretches(data, segments, folder / "all")
        for count in (5, 10, 20):
            figures = []
            for draw in range(options.draws):
                rng = np.random.default_rng(draw)
                rows = rng.choice(len(rumbles_s), count, replace=False)
                figures.append(measure(index, rumbles_s, rows, wanted, folder))
            means = np.mean(figures, axis=0)
            lowest = np.min(figures, axis=0)
            table.append(
                {
                    "examples": str(count),
                    "recall": means[0],
                    "precision": means[1],
                    "wrong": means[2],
                    "lowest recall": lowest[0],
                    "lowest precision": lowest[1],
                    "precision at the network's recall": means[3],
                    "lowest": lowest[3],
                    "wrong there": means[4],
                }
            )
    show(f"rumbles24h, {options.draws} draws", table, options.json)
    aims = describe_aims(data, segments, options.draws)
    show(f"rumbles24h with background and an aim, {options.draws} draws", aims)


if __name__ == "__main__":
    main()
