"""What is made of labels: a study, and rounds of finding all calls: learn, scan and review.

    LABELS/found/1/calls.npz            a model of the labels
    LABELS/found/1/detections/          a scan with it
    LABELS/found/1/detections/review/   what a person said about its detections

A round that was stopped, or failed, is begun again.
"""

import json
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5
from zipfile import ZIP_DEFLATED, ZipFile

from callshot.errors import InputError, RequestError
from callshot.files import FOUND, SCAN_FACTS, make_folder
from callshot.results import read_intact_provenance
from callshot.review.children import DONE, RUNNING, Job
from callshot.review.journal import JOURNAL, is_review
from callshot.review.results import read_review
from callshot.review.similar import NOT_READY, Search

if TYPE_CHECKING:
    from callshot.review.session import Review

MODEL = "calls.npz"
DETECTIONS = "detections"
REVIEW = "review"
SEGMENTS = "segments"
STUDIES = (SEGMENTS, "study")  # what calls can be made into, beside EXPORTS
# The line in which `scan` says how far its events can be trusted (`sentences.txt`), and what in it
# is advice for a terminal: an option, and a command.
TRUST = "based on "
ADVICE = re.compile(r"; --precision .*| \(callshot [^)]*\)")

OpenReview = Callable[[Path], AbstractContextManager["Review"]]


class Finding:
    """The rounds in which all calls were looked for; one at a time can run.

    reviews  of detections that are open, by the number of the round
    """

    def __init__(self, labels: Path, open_review: OpenReview) -> None:
        self.labels = labels.absolute()
        self.folder = self.labels / FOUND
        self.job: Job | None = None
        self.reviews: dict[int, Review] = {}
        self._open_review = open_review
        self._lock = Lock()
        self._opened = ExitStack()

    def close(self) -> None:
        """Stop the processes, and close the reviews."""
        self.stop()
        self._opened.close()

    def find_rounds(self) -> list[int]:
        """Return the numbers of all rounds that ended."""
        scans = self.folder.glob(f"*/{DETECTIONS}/{SCAN_FACTS}")
        names = [path.parents[1].name for path in scans]
        return sorted(int(name) for name in names if name.isdecimal())

    def start(self, search: Search) -> None:
        """Begin the next round on the recordings that are ready; RequestError if one runs."""
        if search.windows is None or not search.windows.finished:
            raise RequestError(NOT_READY, 409)
        with self._lock:
            if self.job is not None and self.job.state == RUNNING:
                raise RequestError("All calls are being looked for already.", 409)
            rounds = self.find_rounds()
            folder = self.folder / str(max([0, *rounds]) + 1)
            make_folder(folder)
            model = str(folder / MODEL)
            # The index has all frequencies, so the model must have them too.
            learn = ["learn", str(self.labels), *search.arguments, "--out", model]
            if not any(one.startswith("band=") for one in search.arguments):
                learn += ["--set", "band=none"]
            out = str(folder / DETECTIONS)
            scan = ["scan", model, str(search.folder), "--edges", "sound", "--out", out]
            self.job = Job(
                [
                    ("learning from your calls", learn),
                    ("looking for calls in the recordings", scan),
                ]
            )

    def find_reviews(self) -> dict[int, tuple[Path, int]]:
        """Return the reviews by round: the folder of each, and the size of its journal.

        A journal only grows, so another size says that there are new decisions.
        """
        reviews = {}
        for number in self.find_rounds():
            folder = self.folder / str(number) / DETECTIONS / REVIEW
            if is_review(folder):
                reviews[number] = (folder, (folder / JOURNAL).stat().st_size)
        return reviews

    def read_decisions(self) -> dict[str, dict[str, Any]]:
        """Return what was decided in the reviews of all rounds; InputError if one is damaged.

        Values are rows of `ReviewResults.events`. Keys are made of the round, the place, label and
        verdict: a changed verdict is a new decision, and the old one is gone.
        """
        decided = {}
        for number, (folder, _) in self.find_reviews().items():
            events = read_review(folder, rejected=True).events
            for row in events.iter_rows(named=True):
                names = ("recording", "start_s", "end_s", "label", "confirmed")
                identity = [number, *(row[name] for name in names)]
                key = uuid5(NAMESPACE_OID, json.dumps(identity))
                decided[str(key)] = row
        return decided

    def stop(self) -> None:
        """Stop the round that runs; it does not count."""
        if self.job is not None:
            self.job.stop()

    def describe(self) -> dict[str, Any]:
        """Return how far the present round is (`Job.describe`), and what the last that ended found.

        `found` is None if no round ended. Otherwise it has the `number` of the round, None if there
        is nothing to review; `calls`, how many there are by label; and how far to `trust` them, ""
        where that is not known.
        """
        answer: dict[str, Any] = {"state": "none", "found": None}
        if self.job is not None:
            answer |= self.job.describe()
        rounds = self.find_rounds()
        if not rounds:
            return answer
        number = rounds[-1]
        path = self.folder / str(number) / DETECTIONS / SCAN_FACTS
        with suppress(InputError):  # it is damaged: look for calls again
            facts = read_intact_provenance(path)
            counts = {one["label"]: one["events"] for one in facts["classes"]}
            to_review = number if any(counts.values()) else None
            trust = self._find_trust()
            answer["found"] = {"number": to_review, "calls": counts, "trust": trust}
        return answer

    def _find_trust(self) -> str:
        """Return what `scan` printed about how far to trust its events.

        No file has it, so it is "" for a round of an earlier run of the server.
        """
        if self.job is None or self.job.state != DONE:
            return ""
        lines = [line for line in self.job.lines if line.startswith(TRUST)]
        return ADVICE.sub("", lines[-1]) if lines else ""

    def open(self, number: int) -> "Review":
        """Return the review of a round; RequestError if there is none."""
        with self._lock:
            if number not in self.reviews:
                if number not in self.find_rounds():
                    raise RequestError("nothing was found under this address", 404)
                context = self._open_review(self.folder / str(number) / DETECTIONS)
                self.reviews[number] = self._opened.enter_context(context)
            return self.reviews[number]


def pack_study(calls: bytes, recordings: Path, format: str) -> tuple[str, bytes]:
    """Return calls, given as CSV, as a file to download: its name and its content.

    "segments" is a segments.parquet, "study" a ZIP file with a study for `callshot run`.
    """
    with TemporaryDirectory(prefix="callshot-") as temporary:
        # From a deep folder, init writes whole paths of recordings, not such as ../recordings.
        folder = Path(temporary, "of", "labels", "study").resolve()
        folder.mkdir(parents=True)
        annotations = folder / "annotations.csv"
        annotations.write_bytes(calls)
        command = [str(recordings), "--annotations", str(annotations), "--out"]
        if format == SEGMENTS:
            command = ["segment", *command, str(folder / "out"), "--min-length-s", "0"]
        else:
            command = ["init", *command, str(folder / "study.toml")]
        job = Job([("writing a study", command)])
        job.wait()
        if job.error:
            raise RequestError(job.error, 409)
        if format == SEGMENTS:
            return "segments.parquet", (
                folder / "out" / "segments.parquet"
            ).read_bytes()
        packed = BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, path.name)
    return "labels-study.zip", packed.getvalue()
