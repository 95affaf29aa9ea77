"""The journal of a review → confirmed calls, as events for other programs and as examples.

A call counts if all who decided it agree, or if the conflict was settled. The journal is enough:
the scan, its index and its model may be gone.
"""

import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from callshot.corpus.recordings import Library
from callshot.detection.events import RecordingFolder, open_recordings
from callshot.detection.exports import EXPORTS, check_format, export_events
from callshot.errors import CallshotError, InputError, OptionError, RequestError
from callshot.records import Recording
from callshot.records.frames import EVENTS, Frame
from callshot.results import check_result
from callshot.review.decisions import Decision, Decisions
from callshot.review.items import make_empty_items
from callshot.review.journal import JOURNAL, describe_torn, read_journal
from callshot.review.journal_lines import Entry
from callshot.review.sound import RecordingFiles
from callshot.review.sources import SCAN_FACTS

WHO = {"reviewer": pl.String, "reviewed_at": pl.String}  # beside the columns of EVENTS
WEB_FORMATS = ("raven", "audacity", "csv", "parquet")


@dataclass(frozen=True)
class ReviewResults:
    """The calls of a review: the columns of EVENTS, and who confirmed or rejected them when.

    conflicts  how many items are left out because reviewers disagree
    roots      the folders of the recordings, by name
    facts      what the review is about
    notes      on a line of the file that is not complete
    """

    events: Frame
    conflicts: int
    roots: Mapping[str, Path]
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def list_recordings(self) -> RecordingFolder:
        """Return the recordings of the calls, those that can be read."""
        files = RecordingFiles(self.roots)
        recordings: dict[str, Recording] = {}
        for name in sorted(set(self.events["recording"])):
            try:
                recordings[name] = files.describe(name)
            except CallshotError:
                continue
        root = next(iter(self.roots.values()), Path())
        library = Library(root, tuple(recordings))
        return RecordingFolder(library, recordings, {}, dict(self.roots))


def read_review(
    folder: Path | str, *, reviewer: str | None = None, rejected: bool = False
) -> ReviewResults:
    """Read the calls of a review.

    Parameters
    ----------
    folder : path
        The folder of a review, made by `callshot review`.
    reviewer : str, optional
        Whose decisions count; by default those on which all agree, and settled conflicts.
    rejected : bool
        Whether detections that are no call of their label are in the result, as not confirmed.

    Returns
    -------
    ReviewResults
        `.events`, a frame with who decided and when; `.conflicts`, how many calls are left out.

    Raises
    ------
    InputError
        If the folder has no journal, or a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> from callshot.review.journal import open_journal
    >>> from callshot.review.journal_lines import NewEntry
    >>> folder = Path(tempfile.mkdtemp())
    >>> journal = open_journal(folder, {"items": 1})
    >>> place = {"item": 0, "recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "label": "roar"}
    >>> row = NewEntry("1", "confirm", {**place, "verdict": "roar"})
    >>> _ = journal.append("1", "ada", [row])
    >>> journal.close()
    >>> read_review(folder).events.select("label", "reviewer").rows()
    [('roar', 'ada')]
    """
    folder = Path(folder)
    journal = read_journal(folder)
    facts = journal.facts
    entries = journal.entries
    path = folder / JOURNAL
    decisions = Decisions(make_empty_items(int(facts.get("items", 0))))
    decisions.apply_all(entries, path)
    notes = [describe_torn(path)] if journal.torn else []
    roots = {name: Path(root) for name, root in facts.get("recordings", {}).items()}
    events = list_calls(decisions, entries, reviewer=reviewer, rejected=rejected)
    return ReviewResults(events, len(decisions.conflicts), roots, facts, notes)


def list_calls(
    decisions: Decisions,
    entries: Iterable[Entry],
    *,
    reviewer: str | None = None,
    rejected: bool = False,
) -> Frame:
    """Return the calls that stand, by recording and time."""
    item_rows = {
        entry.body["item"]: entry.body for entry in entries if "item" in entry.body
    }
    rows = []
    for item in decisions.touched:
        verdict = decisions.find_verdict(item, reviewer)
        if verdict is None or (verdict.call_label is None and not rejected):
            continue
        names = _list_reviewers(decisions, item, verdict, reviewer)
        rows.append(_make_row(item_rows[item], verdict, names))
    frame = pl.DataFrame(rows, schema={**EVENTS, **WHO})
    return frame.sort("recording", "start_s", "end_s", "label", maintain_order=True)


def _list_reviewers(
    decisions: Decisions, item: int, verdict: Decision, reviewer: str | None
) -> str:
    """Return who said so."""
    if reviewer is not None:
        return reviewer
    names = {verdict.reviewer: None}
    for decision in decisions.find_all(item):
        if decision.is_verdict and decision.call_label == verdict.call_label:
            names[decision.reviewer] = None
    return ", ".join(sorted(names))


def _make_row(
    item_row: Mapping[str, Any], verdict: Decision, names: str
) -> dict[str, Any]:
    is_call = verdict.call_label is not None
    has_span = verdict.start_s is not None
    return {
        "recording": item_row["recording"],
        "start_s": verdict.start_s if has_span else item_row["start_s"],
        "end_s": verdict.end_s if has_span else item_row["end_s"],
        "label": verdict.call_label if is_call else item_row["label"],
        "score": item_row.get("score"),
        "clock": item_row.get("clock"),
        "confirmed": is_call,
        "reviewer": names,
        "reviewed_at": verdict.time,
    }


def convert_review(
    folder: Path, format: str, out: Path, recordings: Path | None
) -> tuple[ReviewResults, list[Path]]:
    """Write the confirmed calls of a review for other programs.

    A table that runs on over all recordings also needs those without calls: their folder.
    """
    check_format(format)
    results = read_review(folder)
    library = None if format == "raven-all" else results.list_recordings()
    if recordings is not None:
        library = open_recordings(recordings)
    return results, export_events(results.events, format, out, library)


def pack_calls(results: ReviewResults, format: str) -> tuple[str, bytes]:
    """Return the calls as a file to download: its name and its content; several as a ZIP file."""
    if format not in WEB_FORMATS:
        raise RequestError(f"format: expected one of {', '.join(WEB_FORMATS)}", 404)
    files = dict(EXPORTS[format](results.events, results.list_recordings()))
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{name}: a recording outside the folder of recordings")
    if format in ("csv", "parquet"):
        return f"review.{format}", next(iter(files.values()))
    return f"review-{format}.zip", _pack(files)


def _pack(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return packed.getvalue()


def find_model(results: ReviewResults, folder: Path) -> Path:
    """Return the model that a review is about; raise an error if it is not known or gone."""
    model = results.facts.get("model")
    if model is None:
        raise OptionError(
            f"add: {folder} is a review of {results.facts.get('kind')}, which has no model to add "
            f"to; make one (callshot learn {folder}), or name one (callshot learn {folder} --add "
            "MODEL)"
        )
    path = Path(str(model))
    if not path.is_file():
        raise InputError(
            f"{path}: the model of the review {folder} is not there any more"
        )
    check_result(path, (SCAN_FACTS,))  # a scan may have written it
    return path


def split_by_root(results: ReviewResults) -> list[tuple[Path, Frame]]:
    """Return the calls of each folder of recordings."""
    parts = []
    for root in sorted(set(results.roots.values())):
        names = [name for name, folder in results.roots.items() if folder == root]
        events = results.events.filter(pl.col("recording").is_in(names))
        if len(events) > 0:
            parts.append((root, events))
    missing = set(results.events["recording"]) - results.roots.keys()
    if missing:
        raise InputError(f"{min(missing)}: the folder of this recording is not known")
    return parts
