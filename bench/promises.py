"""What `callshot model` expects against what is then seen, in real and synthetic recordings.

    callshot synth --soundscape site0 --recordings 24 --minutes 10 --calls-per-hour 60
    python bench/promises.py ../shared/data --folder vectors --sites site0

accuracy      five random examples of each label (birds: boxes of 8 of 10 species; finch:
              syllables of three to five songs; elephants: clips), and all calls of other recordings
recall, false alarms
              all calls of some recordings, and what nobody annotated there as background; a scan of
              the other recordings. A call is found by an event of its name that shares 0.2 s with
              it; a false alarm touches no annotation. Boobook has `neg_1` as background; of
              `positive`, half is learned from, and half is scanned.

How false alarms are expected, from how many a label hardly stands out, and how the accuracy is
corrected was chosen while looking at these cases (one synthetic site, birds and boobook, and the
draws of accuracy).

`inside` counts observations inside the interval of 95 %, of those that have one (`stated`).
The second table has what scans found of labels that are said to stand out hardly from the
background, and of the others. Vectors are kept in --folder.
"""

from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from callshot.detection.background import (
    ANNOTATED,
    WITHOUT_CALLS,
    Background,
    BackgroundRecording,
    find_free,
    make_windows,
)
from callshot.detection.index.clock import find_place
from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import Model, load_model, write_model
from callshot.detection.model_summary import (
    Interval,
    class_table,
    expect_accuracy,
    expect_recall,
    expect_scan,
    explain_unknown,
)
from callshot.detection.scan import scan
from callshot.detection.sentences import DEFAULT_AIM
from callshot.spans import Spans
from field_rules import OTHER, SPECIES, judge
from table import parser, show

Array = np.ndarray
SHOTS = 5
PLACE = ("recording", "start_s", "end_s", "label")
ENCODER = "birdnet-v2.4"


@dataclass
class Case:
    """A quantity of one draw of examples: what was expected (None: not known), and seen."""

    quantity: str
    corpus: str
    expected: Interval | None
    seen: float
    of_nearest_mean: bool = False


def learn_once(name: str, folder: Path, encoder: str, options: Namespace, **more):
    """Learn a model of all examples of a folder, once."""
    file = options.folder / f"{name}.npz"
    if not file.exists():
        store = options.folder / "store"
        model = learn(folder, encoder, background="none", store=store, **more).model
        write_model(model, file)
    return load_model(file)


def select(model: Model, rows: Sequence[int] | Array) -> Model:
    """Return a model of some of the examples."""
    return replace(model, examples=model.examples.take(np.asarray(rows)))


def name_calls(
    model: Model, corpus: str, recording: Array, draws: int
) -> Iterator[Case]:
    """Yield the accuracy of a few examples on the calls of other recordings."""
    rng = np.random.default_rng(0)
    label = np.array(model.examples.label)
    matrix = model.examples.matrix.astype(np.float64)
    frame = model.examples.spans.frame.with_columns(recording=pl.Series(recording))
    model = replace(model, examples=replace(model.examples, spans=Spans(frame)))
    for draw in range(draws):
        labels = np.unique(label[label != OTHER])
        labels = rng.permutation(labels)[:SPECIES] if corpus == "birds" else labels
        songs = np.unique(recording)
        if corpus == "finch":
            songs = rng.permutation(songs)[: 3 + draw % 3]
        in_songs = np.isin(recording, songs)
        rows = []
        for name in labels:
            own = np.flatnonzero((label == name) & in_songs)
            rows += rng.permutation(own)[:SHOTS].tolist()
        drawn = select(model, rows)
        table = class_table(drawn)
        is_new = ~np.isin(recording, recording[rows])
        named = drawn.classifier.predict(matrix[is_new])
        shares = []
        for name in table.filter(pl.col("testable") > 0)["label"]:
            own = label[is_new] == name
            if own.any():
                shares.append(np.mean(named[own] == name))
        yield Case("accuracy", corpus, expect_accuracy(table), float(np.mean(shares)))


def find_background(
    index: Index, names: Sequence[str], calls: pl.DataFrame, origin: str = ANNOTATED
) -> Background:
    """Return the windows of some recordings of an index that no call touches."""
    recordings = [one for one in index.recordings if one.path in names]
    settings = index.settings
    found = []
    for one in recordings:
        blocks = list(index.read_recording(one))
        start_s = np.concatenate([block.spans.frame["start_s"] for block in blocks])
        matrix = np.concatenate([block.matrix for block in blocks])
        spans_s = calls.filter(recording=one.path)["start_s", "end_s"].rows()
        free = find_free(start_s, settings.window_s, spans_s)
        found.append((one, start_s[free], matrix[free], tuple(spans_s)))
    windows = make_windows(
        [one.path for one, start_s, _, _ in found for _ in start_s],
        np.concatenate([start_s for _, start_s, _, _ in found]),
        settings.window_s,
        np.concatenate([matrix for _, _, matrix, _ in found]).astype(np.float32),
    )
    known = tuple(
        BackgroundRecording(
            one.path, one.windows, spans_s, origin, find_place(one.path)
        )
        for one, _, _, spans_s in found
    )
    return Background(known, windows, settings.window_s, settings.hop_s)


def find_calls(
    model: Model,
    corpus: str,
    index: Index,
    calls: pl.DataFrame,
    names: Sequence[str],
    parts: int,
) -> tuple[list[Case], list[dict[str, float]]]:
    """Scan some recordings; return recall and false alarms, and what is said of each label."""
    scanned = replace(
        index, recordings=tuple(one for one in index.recordings if one.path in names)
    )
    expected = expect_scan(model, DEFAULT_AIM, parts)
    result = scan(model, scanned)
    events = result.events.select(PLACE).rows()
    calls = calls.filter(pl.col("recording").is_in(names)).select(PLACE)
    hardly = {name for name, _ in expected.find_costly(model)}
    recalls = []
    labels = []
    for number, name in enumerate(model.classes):
        own = calls.filter(pl.col("label").is_in([name, OTHER]))
        count, found, *_ = judge(events, own)
        given = [event for event in events if event[3] == name]
        *_, right, wrong = judge(given, calls)
        if count and expected.tested[number]:
            recalls.append(found / count)
        if count:
            precision = right / (right + wrong) if right + wrong else np.nan
            labels.append(
                {
                    "hardly": name in hardly,
                    "recall": found / count,
                    "precision": precision,
                }
            )
    by_nearest_mean = result.false_alarms is None
    free = find_background(index, names, calls)
    places = defaultdict(list)
    for recording, start_s, end_s, _ in calls.rows():
        places[recording].append((start_s, end_s))
    alarms = 0
    for recording, start_s, end_s, _ in events:
        spans_s = places[recording]
        alarms += not any(a < end_s and start_s < b for a, b in spans_s)
    is_known = not explain_unknown(model)
    return [
        Case(
            "recall",
            corpus,
            expect_recall(model, expected),
            float(np.mean(recalls)) if recalls else np.nan,
            by_nearest_mean,
        ),
        Case(
            "false alarms / h",
            corpus,
            expected.alarms if is_known else None,
            alarms / free.hours,
            by_nearest_mean,
        ),
    ], labels


def main() -> None:
    """Measure all cases, and show how many are inside their interval."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--sites", type=Path, nargs="*", default=[])
    arguments.add_argument("--draws", type=int, default=20)
    arguments.add_argument("--scans", type=int, default=10)
    arguments.add_argument(
        "--parts", type=int, default=20, help="in which recordings are left out"
    )
    options = arguments.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    data = options.data
    cases: list[Case] = []
    labels: dict[str, list[dict[str, float]]] = defaultdict(list)

    table = data / "birds" / "annotations.csv"
    birds = learn_once("birds", data / "birds", ENCODER, options, annotations=table)
    table = data / "finch" / "annotations.csv"
    finch = learn_once("finch", data / "finch", "mfcc", options, annotations=table)
    elephants = learn_once("elephants", data / "elephants", ENCODER, options)
    groups = pl.read_csv(data / "elephants" / "segments.csv")
    group = dict(zip(groups["path"], groups["recording"], strict=True))
    groups_of_clips = [group[path] for path in elephants.examples.spans["path"]]
    for name, model, recording in (
        ("birds", birds, birds.examples.spans["path"]),
        ("finch", finch, finch.examples.spans["path"]),
        ("elephants", elephants, groups_of_clips),
    ):
        cases += name_calls(model, name, np.array(recording), options.draws)

    corpora = {"birds": (birds, data / "birds")}
    for site in options.sites:
        model = learn_once(
            site.name, site / "recordings", ENCODER, options, annotations=site / "raven"
        )
        corpora[site.name] = (model, site / "recordings")
    for name, (model, folder) in corpora.items():
        out = options.folder / "indexes" / name
        index = index_recordings(folder, out, ENCODER).index
        calls = model.examples.spans.frame.select(
            "start_s", "end_s", "label", recording="path"
        )
        recordings = np.array([one.path for one in index.recordings])
        rng = np.random.default_rng(0)
        for _ in range(options.scans):
            used = rng.permutation(recordings)[: len(recordings) // 2].tolist()
            is_used = pl.col("recording").is_in(used) & (pl.col("label") != OTHER)
            rows = calls.with_row_index().filter(is_used)["index"].to_numpy()
            background = find_background(index, used, calls)
            drawn = replace(select(model, rows), background=background)
            others = [path for path in recordings if path not in used]
            found, said = find_calls(drawn, name, index, calls, others, options.parts)
            cases += found
            labels[name] += said

    boobook = data / "boobook"
    owl = learn_once("boobook", boobook / "positive", ENCODER, options, label="boobook")
    indexes = {
        name: index_recordings(
            boobook / name, options.folder / "indexes" / name, ENCODER
        ).index
        for name in ("positive", "negative")
    }
    calls = owl.examples.spans.frame.select(
        "start_s", "end_s", "label", recording="path"
    )
    negative = [one.path for one in indexes["negative"].recordings]
    quiet = [path for path in negative if "neg_1" in path]
    background = find_background(indexes["negative"], quiet, calls, WITHOUT_CALLS)
    recordings = np.array([one.path for one in indexes["positive"].recordings])
    rng = np.random.default_rng(0)
    for _ in range(options.scans):
        used = rng.permutation(recordings)[: len(recordings) // 2].tolist()
        is_used = pl.col("recording").is_in(used)
        rows = calls.with_row_index().filter(is_used)["index"].to_numpy()
        drawn = replace(select(owl, rows), background=background)
        others = [path for path in recordings if path not in used]
        found, said = find_calls(
            drawn, "boobook", indexes["positive"], calls, others, options.parts
        )
        cases += found
        labels["boobook"] += said

    rows = []
    for quantity, corpus in dict.fromkeys((one.quantity, one.corpus) for one in cases):
        own = [one for one in cases if (one.quantity, one.corpus) == (quantity, corpus)]
        stated = [one for one in own if one.expected is not None]
        inside = [
            one for one in stated if one.expected.low <= one.seen <= one.expected.high
        ]
        rows.append(
            {
                "quantity": quantity,
                "corpus": corpus,
                "cases": len(own),
                "not known": len(own) - len(stated),
                "stated": len(stated),
                "inside": len(inside),
                "expected": _mean([one.expected.value for one in stated]),
                "low": _mean([one.expected.low for one in stated]),
                "high": _mean([one.expected.high for one in stated]),
                "seen": _mean([one.seen for one in own]),
                "by nearest mean": sum(one.of_nearest_mean for one in own),
            }
        )
    show("expected by callshot model, and seen", rows, options.json)
    rows = []
    for corpus, said in labels.items():
        for hardly in (False, True):
            own = [one for one in said if one["hardly"] == hardly]
            rows.append(
                {
                    "corpus": corpus,
                    "said to stand out hardly": "yes" if hardly else "no",
                    "labels": len(own),
                    "recall": _mean([one["recall"] for one in own]),
                    "precision": _mean([one["precision"] for one in own]),
                }
            )
    if rows:
        show("labels in scans", rows)


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan


if __name__ == "__main__":
    main()
