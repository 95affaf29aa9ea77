"""From recordings without labels to a model that finds calls: minutes of listening, and clicks.

    callshot synth --soundscape site --recordings 168 --minutes 1 --every-minutes 60 \\
        --calls-per-hour 12 --types 8
    python bench/label_person.py ../shared/data --site site --folder indexes

A program that knows the annotations plays the person who uses the page of `callshot label`.

in order         it listens to whole recordings, in random order, and boxes every call
more like this   it listens in the same order until it hears a type for the first time, boxes this
                 call, and answers the cards of "more like this" until it has 20 calls of the type,
                 or two lists of 12 in a row without one; then it listens on
kinds of sounds  it listens to the sounds of "kinds of sounds", one after another; at a type that it
                 hears for the first time, it names it, and goes on as before
5 given          it listens to nothing: 5 calls of each type are given as examples

A box costs two clicks (drag, name), an answer one, an answer with another name two. A card is
listened to from start to end. Calls are found by `learn` and `scan`, as "find all calls" does it:
after the minutes of CHECKS, and each type that was met. It ends when they have a recall of 0.6 at
a precision of 0.8 as bench/field_rules.py counts them (all types together, examples too).
Means over --draws; a draw that never gets there counts with all its minutes, and as a failure.
"""

import time
import uuid
from argparse import Namespace
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from callshot.corpus.options import make_annotation_options
from callshot.corpus.segments import segment_corpus
from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.scan import scan
from callshot.encoders.embed import EmbedOptions
from callshot.review.labelling import Labelling
from callshot.review.learning import learn_review_files
from callshot.review.server import ServerOptions, open_labelling
from callshot.review.similar import SearchOptions
from field_rules import OTHER, judge
from table import parser, show

ENCODER = "birdnet-v2.4"
RECALL = 0.6
PRECISION = 0.8
WANTED = 20  # calls of a type
MAX_LISTS = 20  # of 12 kinds of sounds
GIVEN = 5
EMPTY_LISTS = 2
CHECKS = (1, 2, 3, 5, 8, 12, 18, 25, 35, 50, 75, 110, 160, 230)  # minutes
SHARED_S = 0.2  # of a card and a call, by which it is heard
KINDS = "kinds of sounds"
PLACE = ("recording", "start_s", "end_s", "label")


class Reached(Exception):
    """The calls are found."""


class Person:
    """Somebody who listens and answers; raises Reached at the end."""

    def __init__(
        self, session: Labelling, index: Index, calls: pl.DataFrame, store: Path
    ) -> None:
        self.session = session
        self.index = index
        self.calls = calls
        self.store = store
        self.listened_s = 0.0
        self.clicks = 0
        self.labels: defaultdict[str, list[str]] = defaultdict(list)  # ids of boxes
        self.checks = list(CHECKS)
        self.figures = (0.0, 0.0)

    def add(self, action: str, place: dict, **more: object) -> str:
        """Save a box or an answer; return its id."""
        key = str(uuid.uuid4())
        top_hz = self.session.find_recording(place["recording"]).rate_hz / 2
        box = {"id": key, "low_freq_hz": 0.0, "high_freq_hz": top_hz, **place}
        request = {"uuid": str(uuid.uuid4()), "action": action, "box": box, **more}
        self.session.change("person", request)
        return key

    def listen(self, recording: str, start_s: float, end_s: float) -> None:
        """Listen to a stretch."""
        self.listened_s += end_s - start_s
        request = {"recording": recording, "start_s": start_s, "end_s": end_s}
        self.session.listen("person", {"uuid": str(uuid.uuid4()), **request})

    def box(self, place: dict) -> None:
        """Box a call that is heard, unless it is boxed."""
        known = self.session.labels.calls
        if any(
            is_heard(one, place) and one["label"] == place["label"] for one in known
        ):
            return
        self.clicks += 2
        self.labels[place["label"]].append(self.add("add", place))

    def check(self, *, now: bool = False) -> None:
        """Find all calls when it is time to; raise Reached if they are found."""
        is_due = bool(self.checks) and self.listened_s >= 60 * self.checks[0]
        if not (is_due or now) or not self.labels:
            return
        self.checks = [one for one in self.checks if 60 * one > self.listened_s]
        labels = self.session.journal.path.parent
        embedding = EmbedOptions({"band": "none"}, self.store)
        out = labels.parent / "calls.npz"
        model = learn_review_files(labels, out, ENCODER, embedding).model
        events = scan(model, self.index).events.select(PLACE).rows()
        count, found, right, wrong = judge(events, self.calls)
        self.figures = (found / count, right / max(1, right + wrong))
        if self.figures[0] >= RECALL and self.figures[1] >= PRECISION:
            raise Reached

    def listen_in_order(self, recordings: list[str], *, search: bool) -> None:
        """Listen to recordings; box all calls, or with `search` the first of each type."""
        for name in recordings:
            length_s = self.session.find_recording(name).duration_s
            own = self.calls.filter(pl.col("recording") == name).sort("start_s")
            start_s = 0.0
            for call in own.filter(pl.col("label") != OTHER).to_dicts():
                if search and call["label"] in self.labels:
                    continue
                self.box(call)
                if search:
                    end_s = min(length_s, call["end_s"])
                    if end_s > start_s:
                        self.listen(name, start_s, end_s)
                        start_s = end_s
                    self.find_similar(call["label"])
                    self.check(now=True)
            if length_s > start_s:
                self.listen(name, start_s, length_s)
            self.check()
        self.check(now=True)

    def listen_to_kinds(self) -> None:
        """Listen to kinds of sounds; name those with a type that is new, or with nothing."""
        for _ in range(MAX_LISTS):
            known = self.session.list_kinds()
            cards = [known["sounds"][row] for row in known["order"][:12]]
            if not cards:
                break
            for card in cards:
                place = {name: card[name] for name in PLACE[:3]}
                self.listened_s += place["end_s"] - place["start_s"]
                heard = [
                    one["label"]
                    for one in self.calls.to_dicts()
                    if is_heard(one, place)
                ]
                named = [one for one in heard if one != OTHER]
                self.clicks += 2 if named else 1
                if not named:  # another animal is no call either
                    self.add("add", {**place, "label": None})
                    continue
                is_new = named[0] not in self.labels
                key = self.add("add", {**place, "label": named[0]}, tight=True)
                self.labels[named[0]].append(key)
                if is_new:
                    self.find_similar(named[0])
                    self.check(now=True)
            self.check()
        self.check(now=True)

    def find_similar(self, label: str) -> None:
        """Answer lists of similar sounds."""
        empty = 0
        while empty < EMPTY_LISTS and len(self.labels[label]) < WANTED:
            cards = self.session.list_similar(self.labels[label][0])["cards"]
            if not cards:
                return
            before = len(self.labels[label])
            for card in cards:
                place = {name: card[name] for name in PLACE[:3]}
                self.listen(**place)
                heard = [
                    one["label"]
                    for one in self.calls.to_dicts()
                    if is_heard(one, place)
                ]
                others = [one for one in heard if one not in (label, OTHER)]
                if label in heard:
                    self.clicks += 1
                    key = self.add("add", {**place, "label": label}, tight=True)
                    self.labels[label].append(key)
                elif others:
                    self.clicks += 2
                    place["label"] = others[0]
                    self.labels[others[0]].append(self.add("add", place, tight=True))
                else:
                    self.clicks += 1
                    self.add("no", {**place, "label": label})
            empty = 0 if len(self.labels[label]) > before else empty + 1


def is_heard(call: dict, place: dict) -> bool:
    """Return whether a call and a place share some sound."""
    shared_s = min(call["end_s"], place["end_s"]) - max(
        call["start_s"], place["start_s"]
    )
    lengths_s = [one["end_s"] - one["start_s"] for one in (call, place)]
    is_enough = shared_s >= min(SHARED_S, 0.99 * min(lengths_s))
    return call["recording"] == place["recording"] and is_enough


def measure(
    way: str,
    folder: Path,
    calls: pl.DataFrame,
    index: Index,
    options: Namespace,
    draw: int,
) -> list[float]:
    """Return minutes, clicks, recall, precision, and whether the aim was reached."""
    rng = np.random.default_rng(draw)
    order = rng.permutation([one.path for one in index.recordings]).tolist()
    with TemporaryDirectory() as name:
        searching = SearchOptions(encoder=None, index=index.folder)
        out = Path(name) / "labels"
        with open_labelling(folder, ServerOptions(), out, searching) as session:
            while session.describe_tasks()["index"]["state"] == "running":
                time.sleep(0.5)
            person = Person(session, index, calls, options.folder / "store")
            is_reached = False
            try:
                if way == "5 given":
                    for label in sorted(set(calls["label"]) - {OTHER}):
                        own = calls.filter(label=label)
                        rows = rng.permutation(len(own))[:GIVEN]
                        for call in own[rows].to_dicts():
                            person.labels[label].append(person.add("add", call))
                    person.check(now=True)
                elif way == KINDS:
                    person.listen_to_kinds()
                else:
                    person.listen_in_order(order, search=way == "more like this")
            except Reached:
                is_reached = True
            examples = sum(map(len, person.labels.values()))
            minutes = person.listened_s / 60
            return [minutes, person.clicks, examples, *person.figures, is_reached]


def main() -> None:
    """Measure all ways on all sets."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--site", type=Path)
    arguments.add_argument("--draws", type=int, default=3)
    options = arguments.parse_args()
    sets = {}
    birds = pl.read_csv(options.data / "birds" / "annotations.csv").select(PLACE)
    sets["birds"] = (options.data / "birds", birds)
    owls = segment_corpus(
        options.data / "boobook" / "positive",
        annotation_options=make_annotation_options(label="owl"),
        check=False,
    ).calls.frame
    recording = pl.format("positive/{}", "path").alias("recording")
    owls = owls.select(recording, "start_s", "end_s", "label")
    sets["boobook"] = (options.data / "boobook", owls)
    if options.site is not None:
        calls = pl.read_csv(options.site / "annotations.csv").select(PLACE)
        sets["synthetic"] = (options.site / "recordings", calls)
    rows = []
    for name, (folder, calls) in sets.items():
        index = index_recordings(folder, options.folder / name, ENCODER).index
        minutes = sum(one.duration_s for one in index.recordings) / 60
        for way in ("in order", "more like this", KINDS, "5 given"):
            figures = [
                measure(way, folder, calls, index, options, draw)
                for draw in range(options.draws)
            ]
            means = np.mean(figures, axis=0)
            rows.append(
                {
                    "set": f"{name}, {minutes:.0f} min",
                    "way": way,
                    "minutes": means[0],
                    "clicks": means[1],
                    "examples": means[2],
                    "recall": means[3],
                    "precision": means[4],
                    "reached": f"{sum(one[5] for one in figures):.0f} of {len(figures)}",
                }
            )
            print(rows[-1], flush=True)
    show(
        f"From no labels to recall {RECALL} at precision {PRECISION}",
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
