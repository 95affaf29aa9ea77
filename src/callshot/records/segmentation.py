"""Recordings, their annotations, and the segments that are cut from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from callshot.errors import count_text
from callshot.spans import Spans


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


@dataclass(frozen=True)
class Segmentation:
    """The annotations of a corpus after segmentation: each is a segment or a reject.

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
