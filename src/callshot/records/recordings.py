"""Recordings, their annotations, and the segments that are cut from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from callshot.errors import count_text
from callshot.spans import Spans

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One audio file.

    `path` is relative to the audio folder, with `/`. `rate_hz` is the rate it is read at.
    It is as long as it can be decoded. `announced_s` is its length in the header, if that differs;
    with `is_estimate` the header has none, as in many MP3 files, and this is what programs guess.
    """

    path: str
    frames: int
    rate_hz: float
    channels: int
    kind: str
    announced_s: float | None = None
    is_estimate: bool = False

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.frames / self.rate_hz

    def shorten(self, frames: int) -> "Recording":
        """Return the recording as one that ends after some frames."""
        announced_s = self.announced_s or self.duration_s
        return replace(self, frames=frames, announced_s=announced_s, is_estimate=False)

    def describe_length(self) -> str:
        """Return a note if the header has another length, nothing otherwise.

        >>> Recording("a.wav", 98400, 8000.0, 1, "WAV PCM_16", 20.0).describe_length()
        'used 12.3 of 20.0 s: the file is cut short or damaged after 12.30 s; copy it again'
        """
        if self.announced_s is None or self.is_estimate:
            return ""
        if self.announced_s > self.duration_s:
            return (
                f"used {self.duration_s:.1f} of {self.announced_s:.1f} s: the file is cut short "
                f"or damaged after {self.duration_s:.2f} s; copy it again"
            )
        return (
            f"its header announces {self.announced_s:.1f} s, but the file has "
            f"{self.duration_s:.1f} s of sound; all of it is used"
        )


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
    whose audio is also in another recording: group, segment, recording and label. Calls shorter
    than `min_length_s` are rejects.
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
    min_length_s: float = 0.0

    def __repr__(self) -> str:
        return (
            f"Segmentation({count_text(len(self.segments), 'segment')} of "
            f"{count_text(len(self.recordings), 'recording')}, "
            f"{count_text(len(self.rejects), 'reject')})"
        )
