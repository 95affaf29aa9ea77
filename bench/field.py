"""What `learn` and `scan` find in real field recordings with five clips of each class.

    python bench/field.py ../shared/data --folder vectors

The recordings, examples and figures are those of bench/field_rules.py, but clips are written to
files, learned and scanned, all by default. "background" adds recordings without calls to the model:
what is not boxed in the recordings of the examples. Indexes are kept in --folder.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import soundfile

from callshot.corpus.audio import load_audio
from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import Model
from callshot.detection.nearest import NearestMeanDetector
from callshot.detection.scan import ScanResult, scan
from callshot.spans import Spans
from field_rules import CLIPS, OTHER, SPECIES, draw_examples, judge
from table import parser, show

RATE_HZ = 48000
MIN_FREE_S = 3.0
PLACE = ("recording", "start_s", "end_s", "label")


def read_clips(
    root: Path, spans: pl.DataFrame, rate_hz: int = RATE_HZ
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the row and audio of spans of recordings."""
    rows = spans.with_columns(
        path=pl.col("recording"),
        rate_hz=rate_hz,
        collar_s=0.0,
        channel_rule=pl.lit("first"),
        peak_dbfs=pl.lit(None, pl.Float64),
        source_rate_hz=pl.lit(None, pl.Float64),
    )
    yield from load_audio(Spans(rows, root=root))


def write_clips(root: Path, spans: pl.DataFrame, folder: Path) -> None:
    """Write spans of recordings as files, in a folder for each label."""
    for row, signal in read_clips(root, spans):
        place = folder / spans["label"][row]
        place.mkdir(parents=True, exist_ok=True)
        soundfile.write(place / f"{row}.wav", signal, RATE_HZ)


def find_free(boxes: pl.DataFrame, lengths_s: dict[str, float]) -> pl.DataFrame:
    """Return the stretches without boxes of recordings of these lengths."""
    rows = []
    for name, length_s in lengths_s.items():
        start_s = 0.0
        inside = boxes.filter(recording=name).sort("start_s")
        for first_s, last_s in [*inside["start_s", "end_s"].rows(), (length_s, 0.0)]:
            if first_s - start_s >= MIN_FREE_S:
                rows.append((name, start_s, first_s, "free"))
            start_s = max(start_s, last_s)
    return pl.DataFrame(rows, PLACE, orient="row")


def scan_birds(
    model: Model, index: Index, boxes: pl.DataFrame, used: Sequence[str]
) -> tuple[ScanResult, float, float]:
    """Scan the recordings of birds but those of the examples; return also recall and precision."""
    kept = tuple(one for one in index.recordings if one.path not in used)
    result = scan(model, replace(index, recordings=kept))
    wanted = boxes.filter(
        pl.col("label").is_in([*model.classes, OTHER])
        & pl.col("recording").is_in([one.path for one in kept])
    )
    events = result.events.select(PLACE).rows()
    calls, found, right, wrong = judge(events, wanted.select(PLACE))
    return result, found / calls, right / max(1.0, right + wrong)


def measure(
    examples: dict[str, list[int]],
    background: bool,
    boxes: pl.DataFrame,
    indexes: dict[str, Index],
    options: Namespace,
) -> list[float]:
    """Learn and scan with one draw of examples; return the figures of a row."""
    root = options.data / "birds"
    rows = list(chain(*examples.values()))
    used = boxes["recording"][rows].unique().to_list()
    with TemporaryDirectory() as folder:
        clips = Path(folder) / "clips"
        quiet = Path(folder) / "quiet"
        write_clips(root, boxes[rows], clips)
        if background:
            lengths_s = {
                one.path: one.duration_s
                for one in indexes["birds"].recordings
                if one.path in used
            }
            write_clips(root, find_free(boxes, lengths_s), quiet)
        model = learn(
            clips,
            options.encoder,
            background=quiet if background else "none",
            store=Path(folder) / "store",
        ).model
        result, recall, precision = scan_birds(model, indexes["birds"], boxes, used)
    elsewhere = [scan(model, indexes[name]) for name in ("positive", "negative")]
    events = sum(len(one.events) for one in elsewhere)
    hours = sum(one.hours for one in elsewhere)
    by_nearest_mean = isinstance(result.detector, NearestMeanDetector)
    return [recall, precision, events / hours / len(examples), float(by_nearest_mean)]


def main() -> None:
    """Measure with and without background, on the same draws."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--hop", type=float)
    arguments.add_argument("--draws", type=int, default=5)
    options = arguments.parse_args()
    boobook = options.data / "boobook"
    folders = [options.data / "birds", boobook / "positive", boobook / "negative"]
    indexes = {}
    for folder in folders:
        out = options.folder / f"{options.encoder}-{options.hop or 'hop'}" / folder.name
        result = index_recordings(folder, out, options.encoder, hop_s=options.hop)
        indexes[folder.name] = result.index
    boxes = pl.read_csv(options.data / "birds" / "annotations.csv")
    table = []
    for way in ("random", "spread", "few"):
        drawn = list(draw_examples(boxes, options.draws, way))
        for background in (False, True):
            figures = [
                measure(examples, background, boxes, indexes, options)
                for examples in drawn
            ]
            recall, precision, alarms, by_nearest_mean = np.mean(figures, axis=0)
            table.append(
                {
                    "examples": way,
                    "background": "known" if background else "not known",
                    "recall": recall,
                    "precision": precision,
                    "lowest recall": np.min(figures, axis=0)[0],
                    "lowest precision": np.min(figures, axis=0)[1],
                    "false alarms / h / class elsewhere": alarms,
                    "by nearest mean": by_nearest_mean,
                }
            )
    title = f"{options.encoder}, {CLIPS} clips of each of {SPECIES} species, {options.draws} draws"
    show(title, table, options.json)


if __name__ == "__main__":
    main()
