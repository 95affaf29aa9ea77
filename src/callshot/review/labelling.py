"""The page of `callshot label`: recordings, boxes and answers, as the browser asks for them."""

import shlex
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from callshot.corpus.recordings import Library
from callshot.detection.index.clock import find_clock_time, parse_name
from callshot.errors import CallshotError, InputError, RequestError
from callshot.records import Recording
from callshot.review.children import DONE
from callshot.review.decisions import (
    CONFIRM,
    check_name,
    check_span,
    is_number,
    make_row,
)
from callshot.review.estimates import Answer, compute_curve, find_obstacle
from callshot.review.finding import STUDIES, Finding
from callshot.review.journal import Journal
from callshot.review.kinds import Kinds
from callshot.review.labels import (
    ADD,
    CHANGE,
    DELETE,
    FOLDER,
    IN_REVIEW,
    LISTENED,
    NO,
    PLACE,
    Box,
    Labels,
    find_same_call,
    group_by_recording,
    is_marked,
    length_of,
)
from callshot.review.session import MAX_ITEMS, MAX_LEVEL_S, Review, Session
from callshot.review.similar import Search
from callshot.review.sound import Clip, read_palettes
from callshot.review.tiles import FLOOR_DB, LEVELS, WIDTH, TiledFiles

MAX_BOX_S = 600.0


class Labelling(Session):
    """A folder of recordings that is open to be labelled.

    Headers of recordings are read in a thread.

    recordings, clocks
              header and clock time of each recording, by name, as far as they are read
    problems  why recordings cannot be shown, by name
    """

    def __init__(
        self,
        library: Library,
        files: TiledFiles,
        journal: Journal,
        reviewer: str,
        search: Search,
        finding: Finding,
    ) -> None:
        self.labels = Labels()
        super().__init__(journal, reviewer, self.labels.apply, self.labels.history)
        self.library = library
        self.files = files
        self.search = search
        self.finding = finding
        self.kinds = Kinds(search)
        self.recordings: dict[str, Recording] = {}
        self.problems = {one.file: one.reason for one in library.rejects}
        self.clocks: dict[str, str | None] = {}
        for name in library.paths:
            clock = parse_name(name)
            self.clocks[name] = None if clock is None else clock.isoformat()
        # What `find_reviews` returned when the decisions of reviews were last saved here.
        self._taken: dict[int, tuple[Path, int]] = {}
        # At the start of the last search: `seq`, and how many recordings were ready.
        self._learned = (-1, 0)
        self._stopped = Event()
        self._thread = Thread(target=self._read_headers, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading headers, and close recordings."""
        self._stopped.set()
        self._thread.join()
        super().close()
        self.files.close()

    def note_folder(self, root: Path) -> None:
        """Save where the recordings are, if they were moved.

        Raise InputError if recordings with calls are not there: it is another folder.
        """
        if str(root) == (self.labels.folder or self.journal.facts.get("source")):
            return
        missing = {box["recording"] for box in self.labels.calls} - {*self.clocks}
        if missing:
            raise InputError(
                f"{root}: has no {min(missing)}, in which calls are labelled; give the folder of "
                "the same recordings, or another folder for the labels (--out)"
            )
        self._save_new(FOLDER, {"folder": str(root)}, self.reviewer)

    def _read_headers(self) -> None:
        """Read lengths and clock times of all recordings; runs in a thread."""
        for name in self.library.paths:
            if self._stopped.is_set():
                return
            try:
                self.find_recording(name)
            except CallshotError:
                continue  # kept in `problems`
            self.clocks[name] = find_clock_time(self.library.root / name, name)

    def find_recording(self, name: object) -> Recording:
        """Return the header of a recording; raise an error if it is unknown or cannot be read."""
        if not isinstance(name, str) or name not in self.files.roots:
            raise RequestError("recording: expected one of this folder", 404)
        if name in self.recordings:
            return self.recordings[name]
        try:
            recording = self.files.describe(name)
        except InputError as error:
            self.problems[name] = str(error).removeprefix(f"{name}: ")
            raise
        self.problems.pop(name, None)
        self.recordings[name] = recording
        return recording

    # What the page shows

    def describe_session(self, reviewer: str) -> Answer:
        """Return everything that the page needs once."""
        page = self.describe_page(self.library.root.absolute().name, reviewer)
        self.take_reviews()
        recordings = shlex.quote(str(self.library.root))
        with self.lock:
            return {
                **page,
                "palettes": read_palettes(),
                "tile": {"width": WIDTH, "floor_db": FLOOR_DB, "levels": LEVELS},
                "max_box_s": MAX_BOX_S,
                **self.count_names(),
                "exports": [*page["exports"], *STUDIES],
                "commands": [
                    self.describe_learning(),
                    f"callshot scan calls.npz {recordings} --edges sound --out detections",
                ],
                "seq": self.seq,
            }

    def describe_learning(self) -> str:
        """Return the command that makes a model of the calls."""
        learn = ["callshot", "learn", str(self.folder), *self.search.arguments]
        return shlex.join([*learn, "--out", "calls.npz"])

    def read_sample(self) -> list[Clip]:
        """Return the beginning of the first recording that can be read."""
        for name in self.library.paths:
            try:
                self.find_recording(name)
                return [self.files.read(name, 0.0, MAX_LEVEL_S)]
            except CallshotError:
                continue
        return []

    def count_names(self) -> Answer:
        """Return the names of calls, the most frequent first, and how many calls have each."""
        counts = Counter(box["label"] for box in self.labels.calls).most_common()
        return {
            "names": [name for name, _ in counts],
            "counts": [count for _, count in counts],
        }

    def list_recordings(self) -> Answer:
        """Describe all recordings; `pending` is how many headers were not read yet."""
        # Before the rows: what is read meanwhile counts as pending, so the page asks again.
        known = {*self.recordings, *self.problems}
        with self.lock:
            rows = self._describe_recordings([*self.library.paths])
            # And files that are no recordings
            for name in self.problems.keys() - self.files.roots.keys():
                rows.append({"name": name, "problem": self.problems[name]})
        pending = sum(name not in known for name in self.library.paths)
        return {"recordings": rows, "pending": pending}

    def _describe_recordings(self, names: Iterable[str]) -> list[Answer]:
        """Describe recordings: length, clock time, boxes, and what was listened to."""
        listened = self.labels.find_listened()
        counts = Counter(box["recording"] for box in self.labels.calls)
        rows = []
        for name in names:
            recording = self.recordings.get(name)
            row: Answer = {
                "name": name,
                "clock": self.clocks.get(name),
                "boxes": counts[name],
                "listened": listened.get(name, []),
                "problem": self.problems.get(name),
            }
            if recording is not None:
                row["duration_s"] = recording.duration_s
                row["rate_hz"] = recording.rate_hz
                row["note"] = recording.describe_length()
            rows.append(row)
        return rows

    def open_recording(self, name: str | None) -> Answer:
        """Return one recording with its boxes."""
        self.find_recording(name)
        with self.lock:
            (row,) = self._describe_recordings([str(name)])
            boxes = [
                box for box in self.labels.boxes.values() if box["recording"] == name
            ]
            return {"recording": row, "boxes": boxes, "seq": self.seq}

    def list_changes(self, after: int) -> Answer:
        """Return boxes and recordings that changed after the row `after` of the journal."""
        with self.lock:
            return self.describe_changes(self.changes[after:], "")

    def describe_changes(
        self, changes: Sequence[tuple[set[str], set[str]]], reviewer: str
    ) -> Answer:
        """Return the boxes and recordings that rows of the journal changed, as they are now.

        `changes` are the ids of boxes and the names of recordings that each row changed.
        """
        changed: set[str] = set().union(*(ids for ids, _ in changes))
        recordings: set[str] = set().union(*(names for _, names in changes))
        boxes = self.labels.boxes
        return {
            "seq": self.seq,
            "boxes": [boxes[one] for one in sorted(changed & boxes.keys())],
            "gone": sorted(changed - boxes.keys()),
            "recordings": self._describe_recordings(sorted(recordings)),
            **self.count_names(),
        }

    def list_similar(self, box_id: str | None) -> Answer:
        """Return sounds that are similar to the calls that have the name of a box."""
        with self.lock:
            labels = self.labels
            box = labels.boxes.get(box_id or "")
            if box is None or box["label"] is None:
                raise RequestError("box: expected a call with a name", 404)
            calls = labels.list_calls(box["label"])
            refused = [
                one for one in labels.refused.values() if one["label"] == box["label"]
            ]
            answered = [*labels.boxes.values(), *refused]  # are not shown again
        return self.search.find_similar(box, calls, refused, answered, self.clocks)

    def list_kinds(self) -> Answer:
        """Return sounds on a map, and the order in which to listen to them."""
        with self.lock:
            calls = self.labels.calls
            listened = self.labels.find_listened()
        return self.kinds.describe(calls, listened, self.clocks)

    def describe_tasks(self) -> Answer:
        """Return how far the index is, the search for all calls, and which call helps most."""
        # A copy: another thread adds to `recordings`.
        known = [*self.recordings.values()]
        duration_s = sum(recording.duration_s for recording in known)
        return {
            "index": self.search.describe(duration_s),
            "find": self.finding.describe(),
            "advice": self._advise(),
        }

    def _advise(self) -> Box | None:
        """Return the newest call of the label that gains most from one more; None if not clear.

        The label follows from the latest curve, which may be of earlier calls.
        """
        job = self.search.job
        with self.lock:
            calls = self.labels.calls
            labelled = [(box["id"], box["label"]) for box in calls]
            # The curve changes with the calls, and with the windows that are ready. It is computed
            # again when the job that makes windows starts or ends, not whenever some are new.
            job_state = None if job is None else job.state
            key = (job_state, labelled)
            curve = self.get_latest_curve(key, partial(self._measure_curve, calls))
        label = curve.get("recommended")
        of_label = [box for box in calls if box["label"] == label]
        return max(of_label, key=itemgetter("time"), default=None)

    def _measure_curve(self, calls: Sequence[Box]) -> Answer:
        """Return the k-shot curve of the calls whose windows are ready, or why there is none."""
        # Of the vectors: their rows by label, and the name of the recording of each row.
        confirmed: dict[str, list[int]] = defaultdict(list)
        names: list[str] = []
        vectors = []
        for box in calls:
            vector = self.search.find_window(box)
            if vector is not None:
                confirmed[box["label"]].append(len(names))
                names.append(box["recording"])
                vectors.append(vector)
        _, recording = np.unique(names, return_inverse=True)  # as numbers
        why = find_obstacle(confirmed, recording)
        if why:
            return {"why": why}
        return compute_curve(confirmed, recording, np.array(vectors, np.float32))

    # What the page does

    def take_reviews(self) -> None:
        """Save what was decided in reviews of what was found: calls as boxes, other sounds as "no".

        A call that has a box already gets no other one. A decision that was taken back takes its
        box with it; what a person has changed or deleted here stays so.
        """
        with self.lock:
            reviews = self.finding.find_reviews()
            if reviews == self._taken:  # nothing was decided since
                return
            try:
                decided = self.finding.read_decisions()
            except InputError:  # one is damaged: what was saved of it stays
                return
            labels = self.labels
            saved = {**labels.boxes, **labels.refused}  # by id
            known = group_by_recording([*labels.calls, *labels.deleted])
            # Ids of boxes that came from a review are the keys of its decisions.
            for key, box in saved.items():
                if box["reviewed"] and key not in decided:
                    self._save_new(DELETE, {"id": key}, box["reviewer"])
            for key, row in decided.items():
                if key in saved or labels.is_changed(key):
                    continue
                new_box = self._make_reviewed_box(key, row)
                if new_box is None:
                    continue
                known_calls = known[row["recording"]]
                is_call = row["confirmed"]
                if is_call and find_same_call(known_calls, new_box):
                    continue
                action = ADD if is_call else NO
                self._save_new(action, new_box, row["reviewer"] + IN_REVIEW)
                if is_call:
                    known_calls.append(new_box)
            self._taken = reviews

    def _make_reviewed_box(self, key: str, row: Mapping[str, Any]) -> Box | None:
        """Return the box of a decision in a review; None if it can have none.

        Then its recording is gone, or it makes no sense as a box; see `_check_box`.
        """
        place = {name: row[name] for name in PLACE}
        try:
            rate_hz = self.find_recording(row["recording"]).rate_hz
            # Detections may have no band: then they have all frequencies.
            place["low_freq_hz"] = place["low_freq_hz"] or 0.0
            place["high_freq_hz"] = place["high_freq_hz"] or rate_hz / 2
            checked = self._check_box(place)
        except (InputError, RequestError):
            return None
        return {"id": key, **checked, "reviewed_at": row["reviewed_at"]}

    def _save_new(self, action: str, body: dict[str, Any], reviewer: str) -> None:
        """Save a row with a new uuid."""
        self.save([make_row({"uuid": str(uuid.uuid4())}, action, body)], reviewer)

    def open_review(self, number: int) -> Review:
        """Return the review of what was found; confirm the calls that have a box."""
        self.take_reviews()
        review = self.finding.open(number)
        with self.lock:
            known = group_by_recording(self.labels.calls)
        decisions = []
        for item, row in enumerate(review.items.frame.iter_rows(named=True)):
            is_new = item not in review.decisions.touched
            if is_new and is_marked(known[row["recording"]], row):
                request = {"uuid": str(uuid.uuid4()), "action": CONFIRM, "item": item}
                decisions.append(request)
        # A request may have MAX_ITEMS decisions.
        for first in range(0, len(decisions), MAX_ITEMS):
            part = decisions[first : first + MAX_ITEMS]
            review.decide(self.reviewer, {"decisions": part})
        return review

    def find_all(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Learn from all calls, and look for more of them in all recordings that are ready."""
        if self.search.note:
            raise RequestError(self.search.note, 409)
        self.take_reviews()
        with self.lock:
            counts = Counter(box["label"] for box in self.labels.calls)
            listened = self.labels.find_listened()
        if not counts:
            raise RequestError("Mark a call first.", 409)
        rarest = min(counts, key=counts.__getitem__)
        if counts[rarest] == 1 and not listened:  # a scan would find no threshold
            raise RequestError(
                f"There is only one call of {rarest}: mark another one, or listen to a minute "
                "without calls.",
                409,
            )
        windows = self.search.windows
        learned = (self.seq, len(windows.finished) if windows else 0)
        job = self.finding.job
        if job is not None and job.state == DONE and learned == self._learned:
            raise RequestError(
                "Nothing has changed since the last search: mark or answer more sounds, or "
                "review what was found.",
                409,
            )
        self.finding.start(self.search)
        self._learned = learned
        return self.describe_tasks()

    def stop_finding(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Stop looking for all calls."""
        self.finding.stop()
        return self.describe_tasks()

    def change(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Add, change or delete a box, or save that a sound is not of a name; return what changed.

        A box that is added as `tight` is cut to the sound in it.
        """
        action = request.get("action")
        actions = (ADD, CHANGE, DELETE, NO)
        if action not in actions:
            raise RequestError(f"action: expected one of {', '.join(actions)}")
        box = request.get("box")
        if not isinstance(box, Mapping):
            raise RequestError("box: expected an object")
        # The id of a box is checked as the uuid of a row is.
        box_id = make_row({"uuid": box.get("id")}, action, body={})["uuid"]
        row = make_row(request, action, {"id": box_id})
        with self.lock:
            # The page repeats a request without an answer; what is saved already stays.
            if row["uuid"] not in self.journal.by_uuid:
                is_box = box_id in self.labels.boxes
                is_refused = box_id in self.labels.refused
                if action in (ADD, NO) and (is_box or is_refused):
                    raise RequestError("box: there is one with this id already", 409)
                if action in (CHANGE, DELETE) and not is_box:
                    raise RequestError("this call was deleted, or never saved", 404)
                if action != DELETE:
                    is_tight = action == ADD and request.get("tight") is True
                    row["body"] |= self._complete_box(box, action, is_tight=is_tight)
            return self.describe_changes(self.save([row], reviewer), reviewer)

    def _complete_box(
        self, box: Mapping[str, Any], action: str, *, is_tight: bool
    ) -> Box:
        """Return what the journal keeps of a box; RequestError if it makes no sense.

        A person drew it, or else answered for a sound (`is_tight`, or NO), whose band is guessed.
        """
        if is_tight or action == NO:
            box = self._guess_band(box)
        body = self._check_box(box)
        if action == NO and body["label"] is None:
            raise RequestError("label: expected the name that it is not")
        if is_tight and body["label"] is None:
            raise RequestError("label: expected the name of the call to be cut out")
        if is_tight:
            body |= self._find_tight_span(body)
        return body

    def _guess_band(self, box: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a box with frequencies: the median of calls with its label, else all.

        A box keeps the frequencies that it has, unless its recording does not reach them. Without a
        label, it has none.
        """
        if box.get("label") is None:
            return box
        low_hz: Any = box.get("low_freq_hz")
        top_hz = self.find_recording(box.get("recording")).rate_hz / 2
        is_too_high = is_number(low_hz) and low_hz >= top_hz
        if low_hz is not None and not is_too_high:
            return box
        band = {"low_freq_hz": 0.0, "high_freq_hz": top_hz}
        calls = self.labels.list_calls(box["label"])
        if calls:
            usual = {name: np.median([one[name] for one in calls]) for name in band}
            if usual["low_freq_hz"] < top_hz:
                band = {name: min(float(usual[name]), top_hz) for name in band}
        return {**box, **band}

    def _find_tight_span(self, box: Box) -> dict[str, float]:
        """Return start_s and end_s of the call in a box, about as long as calls of its name are.

        Empty if there are no calls to compare with, or the recording cannot be read.
        """
        from callshot.detection.edges import find_sound

        calls = self.labels.list_calls(box["label"]) or self.labels.calls
        lengths_s = [length_of(one) for one in calls]
        span = (box["start_s"], box["end_s"])
        band = (box["low_freq_hz"], box["high_freq_hz"])
        if not lengths_s:
            return {}
        with suppress(CallshotError), self.files.open(box["recording"]) as reader:
            channel = self.files.channel_rule
            call_s = float(np.median(lengths_s))
            start_s, end_s = find_sound(reader, channel, span, call_s, band)
            return {"start_s": round(start_s, 4), "end_s": round(end_s, 4)}
        return {}

    def listen(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Save that a stretch of a recording was played."""
        row = make_row(request, LISTENED, self._check_span(request))
        with self.lock:
            return self.describe_changes(self.save([row], reviewer), reviewer)

    def _check_span(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return recording, start and end of a request; raise RequestError if they are wrong."""
        recording = self.find_recording(request.get("recording"))
        start_s, end_s = check_span(request, recording.duration_s)
        return {"recording": recording.path, "start_s": start_s, "end_s": end_s}

    def _check_box(self, box: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the journal keeps of a box; raise RequestError if it makes no sense."""
        body = self._check_span(box)
        if box.get("label") is None:  # a stretch with nothing in it
            return body | dict.fromkeys(("low_freq_hz", "high_freq_hz", "label"), None)
        if body["end_s"] - body["start_s"] > MAX_BOX_S:
            raise RequestError(f"a call is at most {MAX_BOX_S:g} s long")
        low_hz: Any = box.get("low_freq_hz")
        high_hz: Any = box.get("high_freq_hz")
        top_hz = self.recordings[body["recording"]].rate_hz / 2
        are_numbers = is_number(low_hz) and is_number(high_hz)
        if not are_numbers or not 0 <= low_hz < min(high_hz, top_hz):
            raise RequestError(
                f"low_freq_hz, high_freq_hz: expected a band from 0 to {top_hz:g} Hz"
            )
        return body | {
            "low_freq_hz": float(low_hz),
            "high_freq_hz": min(float(high_hz), top_hz),
            "label": check_name(box["label"]),
        }
