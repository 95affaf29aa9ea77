"""What `learn` and `scan` find in real field recordings with five clips of each class.

    python bench/field.py ../shared/data --folder vectors

The recordings, examples and figures are those of bench/field_rules.py, but clips are written to
files, learned and scanned, all by default. "background" adds recordings without calls to the model:
what is not boxed in the recordings of the examples. "verdicts" adds 50 verdicts, by the boxes, on
detections of the first scan that are spread evenly over their scores; the recordings are scanned
again, with what was judged. Indexes are kept in --folder. "by events" are
the figures of `callshot score`: a call and its event have an IoU of 0.3 or more, one to one.
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
from callshot.detection.model import Model, merge_models
from callshot.detection.nearest import NearestMeanDetector
from callshot.detection.scan import ScanResult, scan
from callshot.detection.score import score_detections
from callshot.spans import Spans
from field_rules import CLIPS, OTHER, SPECIES, draw_examples, judge
from table import parser, show

RATE_HZ = 48000
MIN_FREE_S = 3.0
VERDICTS = 50
LIKELY = 0.9
BACKGROUND = "background"
VERDICTS_KNOWN = "verdicts"
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
) -> tuple[ScanResult, list[float]]:
    """Scan the recordings of birds but those of the examples; return also the figures.

    Recall and precision of events that share 0.2 s with a call, recall and precision by events, and
    the median length of events.
    """
    kept = tuple(one for one in index.recordings if one.path not in used)
    result = scan(model, replace(index, recordings=kept))
    wanted = boxes.filter(
        pl.col("label").is_in([*model.classes, OTHER])
        & pl.col("recording").is_in([one.path for one in kept])
    )
    events = result.events
    calls, found, right, wrong = judge(
        events.select(PLACE).rows(), wanted.select(PLACE)
    )
    lengths_s = {one.path: one.duration_s for one in kept}
    scores = score_detections(
        events, wanted, recordings=lengths_s, unknown=OTHER, samples=1
    ).scores
    total = scores.filter(pl.col("label").is_null(), by="events")
    return result, [
        found / calls,
        right / max(1.0, right + wrong),
        total["recall"][0],
        total["precision"][0],
        (events["end_s"] - events["start_s"]).median(),
    ]


def judge_detections(
    model: Model, events: pl.DataFrame, boxes: pl.DataFrame, root: Path
) -> Model:
    """Add verdicts on some detections to a model, as `callshot learn --add REVIEW` does."""
    ranked = events.sort("score", descending=True)
    rows = np.unique(np.linspace(0, len(ranked) - 1, VERDICTS).round().astype(int))
    is_right = []
    is_wrong = []
    for event in ranked[rows].select(PLACE).iter_rows():
        _, _, right, wrong = judge([event], boxes.select(PLACE))
        is_right.append(right > 0)
        is_wrong.append(wrong > 0)
    part = learn_events(model, ranked[rows].filter(pl.Series(is_right)), root)
    spans = part.examples.spans.with_columns(reviewed=True)
    confirmed = replace(part.examples, spans=spans)
    model = merge_models(model, replace(part, examples=confirmed))
    return reject(model, ranked[rows].filter(pl.Series(is_wrong)), root)


def learn_events(model: Model, events: pl.DataFrame, root: Path) -> Model:
    """Learn from events as they are, with the encoder of a model."""
    with TemporaryDirectory() as folder:
        table = Path(folder) / "events.csv"
        events.select(PLACE).write_csv(table)
        return learn(
            root,
            model.encoder,
            annotations=table,
            background="none",
            store=Path(folder) / "store",
        ).model


def reject(model: Model, events: pl.DataFrame, root: Path) -> Model:
    """Add rejected events to a model, as `callshot learn --add REVIEW` does."""
    if len(events) == 0:
        return model
    rejected = learn_events(model, events, root).examples
    spans = rejected.spans.with_columns(root=str(root.resolve()))
    return replace(model, rejected=replace(rejected, spans=spans))


def measure(
    examples: dict[str, list[int]],
    known: str,
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
        if known == BACKGROUND:
            lengths_s = {
                one.path: one.duration_s
                for one in indexes["birds"].recordings
                if one.path in used
            }
            write_clips(root, find_free(boxes, lengths_s), quiet)
        model = learn(
            clips,
            options.encoder,
            background=quiet if known == BACKGROUND else "none",
            store=Path(folder) / "store",
        ).model
    result, figures = scan_birds(model, indexes["birds"], boxes, used)
    if known == VERDICTS_KNOWN:
        model = judge_detections(model, result.events, boxes, root)
        result, figures = scan_birds(model, indexes["birds"], boxes, used)
    elsewhere = [scan(model, indexes[name]) for name in ("positive", "negative")]
    events = sum(len(one.events) for one in elsewhere)
    hours = sum(one.hours for one in elsewhere)
    by_nearest_mean = isinstance(result.detector, NearestMeanDetector)
    likely = result.events.filter(pl.col("probability") >= LIKELY)
    _, _, right, wrong = judge(likely.select(PLACE).rows(), boxes.select(PLACE))
    return [
        *figures,
        events / hours / len(examples),
        float(by_nearest_mean),
        right / (right + wrong) if right + wrong else np.nan,  # no wrong verdicts
        len(likely) / len(result.events),
    ]


def main() -> None:
    """Measure with clips alone, with background and with verdicts, on the same draws."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--hop", type=float)
    arguments.add_argument("--draws", type=int, default=5)
    arguments.add_argument("--ways", nargs="+", default=["random", "spread", "few"])
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
    for way in options.ways:
        drawn = list(draw_examples(boxes, options.draws, way))
        for known in ("clips", BACKGROUND, VERDICTS_KNOWN):
            figures = [
                measure(examples, known, boxes, indexes, options) for examples in drawn
            ]
            means = np.nanmean(figures, axis=0)
            table.append(
                {
                    "examples": way,
                    "known": known,
                    "recall": means[0],
                    "precision": means[1],
                    "lowest recall": np.min(figures, axis=0)[0],
                    "lowest precision": np.min(figures, axis=0)[1],
                    "recall by events": means[2],
                    "precision by events": means[3],
                    "median event (s)": means[4],
                    "false alarms / h / class elsewhere": means[5],
                    "by nearest mean": means[6],
                    "probability 0.9 or more: precision": means[7],
                    "share of events": means[8],
                }
            )
    title = f"{options.encoder}, {CLIPS} clips of each of {SPECIES} species, {options.draws} draws"
    show(title, table, options.json)


if __name__ == "__main__":
    main()
