"""How well a faint owl is found with and without a band of frequencies.

    python bench/band.py ../shared/data --folder vectors

Examples are the boxes of 5 of the recordings with the owl, background is every second recording
without it; all other recordings are scanned. Windows that overlap a box of the owl count as calls.
`mistaken` is the share of boxes of other sounds that an event overlaps; the columns "after" are
those of a second scan, after these events were rejected. Recordings that are in two folders count
once. Indexes are kept in --folder.
"""

import shutil
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
from sklearn.metrics import average_precision_score

from callshot.corpus.options import make_annotation_options
from callshot.corpus.segments import segment_corpus
from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import Model
from callshot.detection.scan import scan
from field import reject
from table import parser, show

EXAMPLES = 5  # recordings
Boxes = dict[str, list[tuple[float, float]]]


def read_boxes(folder: Path) -> Boxes:
    """Return the boxes of each recording, by the name of its file."""
    labelled = make_annotation_options(label="owl")
    result = segment_corpus(folder, annotation_options=labelled, check=False)
    calls = result.calls.frame
    boxes: Boxes = {}
    for path, start_s, end_s in calls.select("path", "start_s", "end_s").iter_rows():
        boxes.setdefault(Path(path).name, []).append((start_s, end_s))
    return boxes


def overlaps(spans: pl.DataFrame, boxes: Boxes) -> np.ndarray:
    """Return which spans overlap a box of their recording."""
    found = [
        any(
            start_s < last_s and end_s > first_s
            for first_s, last_s in boxes.get(Path(path).name, ())
        )
        for path, start_s, end_s in spans.select(
            "recording", "start_s", "end_s"
        ).iter_rows()
    ]
    return np.array(found, bool)


def measure(
    model: Model, index: Index, used: set[str], owl: Boxes, other: Boxes
) -> tuple[list[float], pl.DataFrame]:
    """Scan all recordings that are not `used`; return the figures of a row, and events."""
    kept = {Path(one.path).name: one for one in reversed(index.recordings)}
    recordings = tuple(one for name, one in kept.items() if name not in used)
    result = scan(model, replace(index, recordings=recordings))
    scores = []
    calls = []
    for recording in recordings:
        blocks = list(index.read_recording(recording))
        windows = pl.concat([block.spans.frame for block in blocks])
        _, _, plain = result.detector.search([block.matrix for block in blocks])
        scores.append(plain[:, 0])
        calls.append(overlaps(windows, owl))
    is_call = np.concatenate(calls)
    precision = average_precision_score(is_call, np.concatenate(scores))
    events = result.events.select("recording", "start_s", "end_s")
    by_recording: Boxes = {}
    for path, start_s, end_s in events.iter_rows():
        by_recording.setdefault(Path(path).name, []).append((start_s, end_s))
    figures = [precision, float(is_call.mean())]
    for boxes in (owl, other):
        rows = [
            (name, *times)
            for name, listed in boxes.items()
            if name in kept and name not in used
            for times in listed
        ]
        table = pl.DataFrame(rows, ("recording", "start_s", "end_s"), orient="row")
        figures.append(float(overlaps(table, by_recording).mean()))
    false = 1 - overlaps(events, owl) if len(events) else np.zeros(0)
    return [*figures, float(false.sum()) / result.hours], result.events


def measure_band(
    band: str, used: list[str], owl: Boxes, other: Boxes, options: Namespace
) -> tuple[list[float], str]:
    """Learn from some recordings and scan the others; return figures and the encoder."""
    boobook = options.data / "boobook"
    background = sorted((boobook / "negative" / "neg_1").glob("*.flac"))[::2]
    with TemporaryDirectory() as folder:
        examples = Path(folder) / "examples"
        quiet = Path(folder) / "quiet"
        examples.mkdir()
        quiet.mkdir()
        for name in used:
            for file in (boobook / "positive").glob(f"{Path(name).stem}.*"):
                shutil.copy2(file, examples)
        for file in background:
            shutil.copy2(file, quiet)
        model = learn(
            examples,
            options.encoder,
            encoder_options={"band": band},
            label="owl",
            background=quiet,
            store=options.folder / "store",
        ).model
    out = options.folder / f"{model.encoder}-{options.hop or 'hop'}"
    index = index_recordings(boobook, out, model.encoder, hop_s=options.hop).index
    not_scanned = {*used, *(file.name for file in background)}
    figures, events = measure(model, index, not_scanned, owl, other)
    is_wrong = overlaps(events, other) & ~overlaps(events, owl)
    reviewed = reject(model, events.filter(pl.Series(is_wrong)), boobook)
    after, _ = measure(reviewed, index, not_scanned, owl, other)
    return [*figures, *after[2:]], model.encoder


def main() -> None:
    """Measure all bands on the same draws of examples."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--hop", type=float)
    arguments.add_argument("--draws", type=int, default=5)
    arguments.add_argument("--bands", default="none 300-1000 auto")
    options = arguments.parse_args()
    owl = read_boxes(options.data / "boobook" / "positive")
    other = read_boxes(options.data / "boobook" / "negative" / "neg_2")
    random = np.random.default_rng(0)
    names = sorted(owl)
    draws = [
        random.permutation(names)[:EXAMPLES].tolist() for _ in range(options.draws)
    ]
    table = []
    for band in options.bands.split():
        figures = []
        encoders = []
        for used in draws:
            row, encoder = measure_band(band, used, owl, other, options)
            figures.append(row)
            encoders.append(encoder)
        precision, chance, found, mistaken, alarms, *after = np.mean(figures, axis=0)
        table.append(
            {
                "band": band,
                "average precision": precision,
                "lowest": np.min(figures, axis=0)[0],
                "chance": chance,
                "found": found,
                "mistaken": mistaken,
                "false alarms / h": alarms,
                "found after": after[0],
                "mistaken after": after[1],
                "false alarms / h after": after[2],
                "encoders": " ".join(dict.fromkeys(encoders)),
            }
        )
    hop = "default hop" if options.hop is None else f"hop of {options.hop:g} s"
    show(f"{options.encoder}, {options.draws} draws, {hop}", table, options.json)


if __name__ == "__main__":
    main()
