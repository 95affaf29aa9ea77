"""An open recording comes in; the files of its windows go out.

Blocks are read while the model works. What was written before a crash is used again.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from callshot.detection.index.index_files import (
    SPAN_NAME,
    IndexSettings,
    Rows,
    find_span_damage,
    write_span,
)
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    Vectors,
    WindowEncoder,
    WindowGrid,
    measure_levels,
    read_windows,
    split_range,
)
from callshot.errors import InputError
from callshot.files import explain_unreadable
from callshot.records import IntArray, Recording

SPAN_WINDOWS = 1024  # in a file
BLOCKS_AHEAD = 2  # that wait for the model


class SpanWriter:
    """Writes the windows of one recording; `starts` are their first samples.

    `earlier` are the files of windows that are there. `numbers` are the files to write, all of them
    by default. `lock` is held while a file is written.
    """

    def __init__(
        self,
        audio: RecordingAtSpeed,
        folder: Path,
        stamp: str,
        settings: IndexSettings,
        grid: WindowGrid,
        earlier: Sequence[Path],
        *,
        numbers: range | None = None,
        lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.audio = audio
        self.folder = folder
        self.stamp = stamp
        self.settings = settings
        self.grid = grid
        self.lock = lock
        self.starts = grid.find_starts(audio.samples)
        self.numbers = numbers or range(count_files(len(self.starts)))
        self.names = select_whole_spans(earlier, stamp, self.numbers)

    @property
    def spans(self) -> list[str]:
        """The names of the files so far, in order."""
        return [self.names[number] for number in sorted(self.names)]

    def write_spans(self, model: WindowEncoder) -> Iterator[tuple[float, bool]]:
        """Write the files that are missing; yield the share of each, and whether it is new."""
        for number in self.numbers:
            first = number * SPAN_WINDOWS
            starts = self.starts[first : first + SPAN_WINDOWS]
            is_new = number not in self.names
            if is_new:
                rows = self._embed(starts, model)
                with self.lock():
                    name = write_span(self.folder, self.stamp, number, rows)
                self.names[number] = name
            share = len(starts) / len(self.starts)
            yield share, is_new

    def _embed(self, starts: IntArray, model: WindowEncoder) -> Rows:
        """Return windows as rows; the next ones are read while the model works."""
        rows = self._make_rows(starts)
        waiting: deque[tuple[slice, Vectors]] = deque()
        for part in split_range(len(starts), self.grid.block_windows):
            windows = read_windows(self.audio, starts[part], self.grid.window)
            rows["rms_dbfs"][part] = measure_levels(windows)
            waiting.append((part, model.submit(windows)))
            if len(waiting) > BLOCKS_AHEAD:
                _store_first(waiting, rows)
        while waiting:
            _store_first(waiting, rows)
        self._check_finite(rows)
        return rows

    def _make_rows(self, starts: IntArray) -> Rows:
        """Return rows that have their times."""
        rows = np.zeros(len(starts), self.settings.row_dtype())
        ends = np.minimum(starts + self.grid.window, self.audio.samples)
        duration_s = self.audio.recording.duration_s
        rows["start_s"] = self.grid.to_seconds(starts)
        # The last sample at the model's rate may reach beyond the last one of the file.
        rows["end_s"] = np.minimum(self.grid.to_seconds(ends), duration_s)
        return rows

    def _check_finite(self, rows: Rows) -> None:
        if not np.isfinite(rows["vector"]).all():
            raise InputError(
                f"{self.audio.recording.path}: a vector is too large for "
                f"{self.settings.dtype}; index with --dtype float32"
            )


def count_files(windows: int) -> int:
    """Return how many files a number of windows takes."""
    return math.ceil(windows / SPAN_WINDOWS)


def _store_first(waiting: deque[tuple[slice, Vectors]], rows: Rows) -> None:
    """Wait for the vectors of the first block, and put them into their rows."""
    part, vectors = waiting.popleft()
    with np.errstate(over="ignore"):  # checked when all are there
        rows["vector"][part] = vectors()


def group_notes(notes: Iterable[str]) -> list[str]:
    """Return notes that begin with the name of a recording, each text once.

    >>> group_notes(["a.wav: is silent", "b.wav: is silent", "c.wav: is short"])
    ['a.wav and 1 more: is silent', 'c.wav: is short']
    """
    names: dict[str, list[str]] = {}
    for note in notes:
        name, _, text = note.partition(": ")
        names.setdefault(text, []).append(name)
    grouped = []
    for text, (first, *further_names) in names.items():
        more = f" and {len(further_names)} more" if further_names else ""
        grouped.append(f"{first}{more}: {text}")
    return grouped


def describe_recording(
    recording: Recording, grid: WindowGrid, encoder: str
) -> Iterator[str]:
    """Yield what is unusual about a recording: shorter than a window, cut short, low rate.

    >>> short = Recording("a.wav", 8000, 8000.0, 1, "WAV PCM_16")
    >>> for note in describe_recording(short, WindowGrid(16000, 32000, 32000), "mfcc"):
    ...     print(note)
    a.wav: 1 s is shorter than the window of 2 s; its only window is padded
    a.wav: at 8000 Hz it has nothing above 4000 Hz, and mfcc uses up to 8000 Hz
    """
    if recording.duration_s < grid.window_s:
        yield (
            f"{recording.path}: {recording.duration_s:.3g} s is shorter than the window of "
            f"{grid.window_s:g} s; its only window is padded"
        )
    if note := recording.describe_length():
        yield f"{recording.path}: {note}"
    top_hz = recording.rate_hz / 2
    needed_hz = grid.rate_hz / grid.speed / 2
    if top_hz < needed_hz:
        yield (
            f"{recording.path}: at {recording.rate_hz:g} Hz it has nothing above {top_hz:g} Hz, "
            f"and {encoder} uses up to {needed_hz:g} Hz"
        )


def find_spans(folder: Path) -> list[Path]:
    """Return all files of windows in the folder of a recording."""
    with explain_unreadable(folder):
        return select_spans(sorted(folder.glob("*.npy")))


def select_spans(files: Sequence[Path]) -> list[Path]:
    """Return those files that are files of windows."""
    return [path for path in files if SPAN_NAME.fullmatch(path.name) is not None]


def select_whole_spans(
    paths: Sequence[Path], stamp: str, numbers: range
) -> dict[int, str]:
    """Return those whole files of windows of one state of a recording that have certain numbers."""
    spans = {}
    for path in paths:
        match = SPAN_NAME.fullmatch(path.name)
        if match is None or match[1] != stamp or int(match[2]) not in numbers:
            continue
        if not find_span_damage(path):
            spans[int(match[2])] = path.name
    return spans
