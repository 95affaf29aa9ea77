"""Recordings, their annotations, and the segments that are cut from them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from callshot.errors import count_text

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""

Span = tuple[str, float, float | None, str]
"""Path, start, end (None: the whole recording) and label."""


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


@dataclass(frozen=True, slots=True)
class Call:
    """An annotation in seconds on a recording that exists, its label as the corpus spells it.

    `recording` is the group that its file is in, or the path of the file.
    """

    path: str
    recording: str
    start_s: float
    end_s: float
    label: str
    annotation: Annotation

    @property
    def duration_s(self) -> float:
        """Its length in seconds, without collar."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Segment:
    """A labelled span of a recording, and how to read its audio. A row of `segments.parquet`.

    `label` is the label at its centre, `labels` are all that overlap it. `start_s` and `end_s` are
    those of the annotation; the audio has `collar_s` more on both sides, inside the recording. It
    is reduced to one channel by `channel_rule`, read at `rate_hz`, and its peak is set to
    `peak_dbfs` unless that is None. `source_rate_hz`, if given, replaces the rate in the header.
    """

    segment: str
    recording: str
    path: str
    start_s: float
    end_s: float
    collar_s: float
    label: str
    labels: tuple[str, ...]
    rate_hz: int
    channel_rule: str
    peak_dbfs: float | None
    source_rate_hz: float | None = None
    extra: Mapping[str, Cell] = field(default_factory=dict)


def name_segments(spans: Sequence[Span]) -> Iterator[str]:
    """Yield unique names for segments: path and times, or only the path of a whole recording.

    If two are the same, their labels and a number are added.

    >>> spans = [("x.wav", 0.0, 1.5, "a"), ("x.wav", 0.0, 1.5, "b"), ("y.wav", 0.0, None, "a")]
    >>> list(name_segments(spans))
    ['x.wav@0-1.5 a', 'x.wav@0-1.5 b', 'y.wav']
    """
    names = [_name_span(*span) for span in spans]
    counts = Counter(names)
    used: set[str] = set()
    for name, (*_, label) in zip(names, spans, strict=True):
        stem = f"{name} {label}" if counts[name] > 1 else name
        unique = stem
        number = 1
        while unique in used:
            number += 1
            unique = f"{stem} #{number}"
        used.add(unique)
        yield unique


def _name_span(path: str, start_s: float, end_s: float | None, _: str) -> str:
    if end_s is None:
        return path
    return f"{path}@{_format_time(start_s)}-{_format_time(end_s)}"


def _format_time(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Segmentation:
    """What became of the annotations of a corpus: each is a segment or a reject.

    `calls` are all annotations on a recording, also those too short for a segment. `sources` are
    formats, how each was recognised, and how many files. `skipped_files` are files left out.
    `audio` is the folder that the paths of segments are relative to. `duplicates` are the segments
    whose audio is also in another recording, each with the number of its group. Calls shorter than
    `min_length_s` are rejects.
    """

    recordings: Sequence[Recording]
    annotated: frozenset[str]
    sources: Sequence[tuple[str, str, int]]
    annotation_count: int
    calls: Sequence[Call]
    segments: Sequence[Segment]
    rejects: Sequence[Reject]
    skipped_files: Sequence[Reject]
    notes: Sequence[str]
    audio: str = ""
    duplicates: Sequence[tuple[int, Segment]] = ()
    min_length_s: float = 0.0

    def __repr__(self) -> str:
        return (
            f"Segmentation({count_text(len(self.segments), 'segment')} of "
            f"{count_text(len(self.recordings), 'recording')}, "
            f"{count_text(len(self.rejects), 'reject')})"
        )
