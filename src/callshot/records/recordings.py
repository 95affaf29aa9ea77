"""Recordings, their annotations, and the segments that are cut from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from callshot.spans import Spans

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file.

    `path` is relative to the audio folder, with `/`. `rate_hz` is the rate it is read at.
    `missing_s` is how much longer the header says it is.
    """

    path: str
    frames: int
    rate_hz: float
    channels: int
    kind: str
    missing_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.frames / self.rate_hz


@dataclass(frozen=True, slots=True)
class Reject:
    """A row of a file that was left out, or (`row` None) a whole file. A row of `rejects.csv`."""

    file: str
    row: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """A label on a span of a recording, as in row `row` (from 1) of the annotation file `file`.

    `row` is None if the label is the name of a folder. `path` is the audio file as the annotation
    names it, None if the annotation file belongs to one recording by its own name. `recording` is
    the group of files that must stay together, if one is given. `end_s` is None if the label is on
    the whole recording. With `in_frames`, times count frames instead of seconds.
    """

    path: str | None
    start_s: float
    end_s: float | None
    label: str
    file: str
    row: int | None
    recording: str | None = None
    in_frames: bool = False
    extra: Mapping[str, Cell] = field(default_factory=dict)

    def reject(self, reason: object) -> Reject:
        """Return the reject of this annotation."""
        return Reject(self.file, self.row, str(reason))


@dataclass(frozen=True)
class Segmentation:
    """What became of the annotations of a corpus: each is a segment or a reject.

    `calls` are all annotations on a recording, also those too short for a segment. `sources` are
    formats, how each was recognised, and how many files. `skipped_files` are files left out.
    `audio` is the folder that the paths of segments are relative to. `duplicates` are the segments
    whose audio is also in another recording: group, segment, recording and label.
    """

    recordings: Sequence[Recording]
    annotated: frozenset[str]
    sources: Sequence[tuple[str, str, int]]
    annotation_count: int
    calls: Spans
    segments: Spans
    rejects: Sequence[Reject]
    skipped_files: Sequence[Reject]
    notes: Sequence[str]
    audio: str = ""
    duplicates: Sequence[tuple[int, str, str, str]] = ()

    def __repr__(self) -> str:
        return (
            f"Segmentation({len(self.segments)} segments of {len(self.recordings)} recordings, "
            f"{len(self.rejects)} rejects)"
        )
