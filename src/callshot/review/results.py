"""What came of a review or of labels: calls for other programs, and its files.

A call counts if all who decided it agree, or if the conflict was settled. The journal is enough:
the scan, its index and its model may be gone.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from callshot.corpus.recordings import Library
from callshot.detection.events import RecordingFolder, open_recordings
from callshot.detection.exports import EXPORTS, export_events
from callshot.detection.index.clock import find_clock_time, shift_clock
from callshot.errors import CallshotError, InputError, RequestError, check_choice
from callshot.files import FOUND, is_inside
from callshot.records import Finding
from callshot.records.frames import EVENTS, Frame
from callshot.review.decisions import SPLIT, Decisions
from callshot.review.items import PLACE, make_items
from callshot.review.journal import JOURNAL, TORN, Journal, read_journal
from callshot.review.labels import LABELS, Labels, Span
from callshot.review.similar import INDEX_FOLDER
from callshot.review.sound import RecordingFiles
from callshot.review.sources import VECTOR_FACTS, VECTORS, read_vector_facts
from callshot.review.web_safety import ADDRESS, read_address

# Beside the columns of EVENTS; `added` says that a person marked the call.
WHO = {"reviewer": pl.String, "reviewed_at": pl.String, "added": pl.String}
ADDED = "yes"


@dataclass(frozen=True)
class ReviewResults:
    """The calls of a review: the columns of EVENTS, and who confirmed or rejected them when.

    conflicts   how many items are left out because reviewers disagree
    roots       the folders of the recordings, by name
    facts       what the review is about
    listened_s  spans that were listened to, by recording: sorted, apart from each other; there is
                no call in them but those in `events`
    notes       on a line of the file that is not complete
    """

    events: Frame
    conflicts: int
    roots: Mapping[str, Path]
    facts: Mapping[str, Any] = field(default_factory=dict)
    listened_s: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def list_recordings(self) -> RecordingFolder:
        """Return the recordings of the calls as a folder, without those that cannot be read."""
        files = RecordingFiles(self.roots)
        recordings = {}
        for name in sorted(set(self.events["recording"])):
            with suppress(CallshotError):
                recordings[name] = files.describe(name)
        root = next(iter(self.roots.values()), Path())
        library = Library(root, tuple(recordings))
        return RecordingFolder(library, recordings, roots=dict(self.roots))


def read_review(
    folder: Path | str, *, reviewer: str | None = None, rejected: bool = False
) -> ReviewResults:
    """Read the calls of a review.

    Parameters
    ----------
    folder : path
        The folder of a review, made by `callshot review`, or of labels, made by `callshot label`.
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
    >>> folder = Path(tempfile.mkdtemp())
    >>> journal = open_journal(folder, {"items": 1})
    >>> place = {"item": 0, "recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "label": "roar"}
    >>> row = {"uuid": "1", "action": "confirm", "body": {**place, "verdict": "roar"}}
    >>> _ = journal.append("ada", [row])
    >>> journal.close()
    >>> read_review(folder).events.select("label", "reviewer").rows()
    [('roar', 'ada')]
    """
    journal = read_journal(Path(folder))
    if journal.facts.get("kind") == LABELS:
        return read_labels(journal, reviewer, rejected=rejected)
    # The journal alone is read: items of the source are rows of nulls.
    count = journal.facts.get("items", 0)
    events = pl.DataFrame(schema=dict(EVENTS)).clear(count)
    items = make_items(events.with_columns(recording=pl.lit("")))
    decisions = Decisions(items)
    journal.replay(decisions.apply)
    place_of_item = _find_places(journal, decisions)
    rows = []
    for item in decisions.touched:
        verdict = decisions.find_verdict(item, reviewer)
        is_added = decisions.items.frame["added"][item]
        if verdict is None:
            continue
        is_confirmed = verdict["label"] is not None
        # A rejected call that a person had added is no detection.
        keep_rejected = rejected and not is_added
        if not is_confirmed and not keep_rejected:
            continue
        reviewers = {verdict["reviewer"]}
        for other in decisions.find_verdicts(item):
            if reviewer is None and other["label"] == verdict["label"]:
                reviewers.add(other["reviewer"])
        row = {name: place_of_item[item].get(name) for name in EVENTS}
        for name in ("label", "start_s", "end_s"):
            if verdict[name] is not None:  # the reviewer changed it, or named it
                row[name] = verdict[name]
        row["confirmed"] = is_confirmed
        row["reviewer"] = ", ".join(sorted(reviewers))
        row["reviewed_at"] = verdict["time"]
        row["added"] = ADDED if is_added else None
        rows.append(row)
    calls = pl.DataFrame(rows, schema={**EVENTS, **WHO})
    roots = journal.facts.get("recordings", {})
    return ReviewResults(
        events=calls.sort(PLACE, maintain_order=True),
        conflicts=len(decisions.conflicts),
        roots={name: Path(root) for name, root in roots.items()},
        facts=journal.facts,
        notes=journal.notes,
    )


def _find_places(
    journal: Journal, decisions: Decisions
) -> dict[int, Mapping[str, Any]]:
    """Return place, label, band and scores of each item that was decided, by its number.

    They are those of the latest row of the journal on it, or else of the row that added it.
    """
    first_new = decisions.source_count
    new_items = decisions.items.frame[first_new:].iter_rows(named=True)
    places: dict[int, Mapping[str, Any]] = dict(enumerate(new_items, first_new))
    for entry in journal.entries:
        if "item" in entry.body:
            places[entry.body["item"]] = entry.body
    return places


def add_undecided(
    results: ReviewResults,
    decisions: Decisions,
    reviewer: str,
    whose: str | None = None,
) -> ReviewResults:
    """Return the calls of `results` and all items without a verdict, labelled as in the source.

    Items that were split are left out: their parts are there. Only decisions of `whose` count, by
    default those of all. Spans are as `reviewer` changed them.
    """
    rows = []
    split = set()
    is_active = decisions.is_active
    for item, row in enumerate(decisions.items.frame.iter_rows(named=True)):
        by_reviewer = decisions.find_all(item)
        counted = list(by_reviewer.values())
        if whose is not None:
            counted = [by_reviewer[whose]] if whose in by_reviewer else []
        is_split = any(one["action"] == SPLIT for one in counted)
        if is_split:
            split.add(item)
            continue
        # Parts of an item that only somebody else split are not there. Items come before their
        # parts, so `split` is complete for them.
        parent = row["parent"]
        is_there = parent is None or whose is None or parent in split
        if not is_active[item] or not is_there:
            continue
        if not decisions.find_verdict(item, whose):
            start_s, end_s = decisions.find_span(item, reviewer)
            call = {name: row.get(name) for name in EVENTS}
            call["start_s"] = start_s
            call["end_s"] = end_s
            rows.append(call)
    undecided = pl.DataFrame(rows, schema={**EVENTS, **WHO})
    events = pl.concat([results.events, undecided])
    return replace(results, events=events.sort(PLACE, maintain_order=True))


def read_labels(
    journal: Journal, reviewer: str | None = None, *, rejected: bool = False
) -> ReviewResults:
    """Return the calls that were marked on recordings, all or those of one person.

    With `rejected`, also the sounds that are not of a name, as not confirmed.
    """
    labels = Labels()
    journal.replay(labels.apply)
    root = Path(labels.folder or str(journal.facts.get("source")))
    listened_s = labels.find_listened()
    clocks: dict[str, str | None] = {}
    rows = []
    refused = [*labels.refused.values()] if rejected else []
    for box in [*labels.calls, *refused]:
        if reviewer not in (None, box["reviewer"]):
            continue
        name = box["recording"]
        if name not in clocks:
            clocks[name] = find_clock_time(root / name, name)
        row = {column: box.get(column) for column in EVENTS}
        row["clock"] = shift_clock(clocks[name], box["start_s"])
        row["confirmed"] = box["id"] in labels.boxes
        row |= {"reviewer": box["reviewer"], "reviewed_at": box["time"]}
        # A box that came from a review was found by a scan.
        rows.append(row | {"added": None if box["reviewed"] else ADDED})
    calls = pl.DataFrame(rows, schema={**EVENTS, **WHO})
    return ReviewResults(
        events=calls.sort(PLACE, maintain_order=True),
        conflicts=0,
        roots=dict.fromkeys({*clocks, *listened_s}, root),
        facts=journal.facts,
        listened_s=listened_s,
        notes=journal.notes,
    )


def convert_review(
    folder: Path, format: str, out: Path, recordings: Path | None
) -> tuple[ReviewResults, list[Path]]:
    """Write the confirmed calls of a review in one of EXPORTS; return them, and the files.

    `recordings` is the folder of all recordings, which a format whose times run on from one
    recording to the next needs: those without calls count there too.
    """
    check_choice("to", format, EXPORTS)
    results = read_review(folder)
    library = None if EXPORTS[format].needs_folder else results.list_recordings()
    if recordings is not None:
        library = open_recordings(recordings)
    return results, export_events(results.events, format, out, library)


def pack_calls(results: ReviewResults, format: str) -> tuple[str, bytes]:
    """Return the calls in a format as a file to download, ZIP for several: name and content."""
    exports = {name: one for name, one in EXPORTS.items() if one.on_page}
    if format not in exports:
        raise RequestError(f"format: expected one of {', '.join(exports)}", 404)
    export = exports[format]
    files = dict(export.write(results.events, results.list_recordings()))
    for name in files:
        if not is_inside(Path(), name):
            raise InputError(f"{name}: a recording outside the folder of recordings")
    is_labels = results.facts.get("kind") == LABELS
    stem = LABELS if is_labels else "review"
    if export.suffix:
        content = next(iter(files.values()))
        return f"{stem}{export.suffix}", content
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            # ZipInfo has a fixed time, so the same calls are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), content)
    return f"{stem}-{format}.zip", packed.getvalue()


def verify_review(folder: Path) -> Iterator[Finding]:
    """Yield the state of each file of a review; hidden files are left out."""
    journal = folder / JOURNAL
    prefix = f"{journal}: "
    try:
        notes = [note.removeprefix(prefix) for note in read_review(folder).notes]
        state = "unverified" if notes else "ok"
        yield Finding(journal, state, *notes)
    except InputError as error:
        yield Finding(journal, "damaged", str(error).removeprefix(prefix))
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or path.name == JOURNAL:
            continue
        if path.relative_to(folder).parts[0] in (INDEX_FOLDER, FOUND):
            continue  # an index and scans, which are verified by themselves
        if path.name not in (VECTORS, VECTOR_FACTS, ADDRESS):
            is_torn = path.name == TORN
            yield Finding(path, "quarantined" if is_torn else "not from callshot")
            continue
        content = read_vector_facts(path.parent)
        if path.name == ADDRESS:
            content, _ = read_address(path.parent)  # the port
        if content is None:
            yield Finding(path, "damaged", "remove it: the next review makes it again")
        else:
            yield Finding(path, "ok")
