"""Frames: the path of an audio file comes in, any run of its frames goes out, exactly, or an error that says why not.

The format is known by the content of a file, whatever its name says. Files are sought in, but OGG and MP3 are read
forward only, from their start: after a seek libsndfile returns other samples than it does without one (Vorbis: half a
block of wrong ones, and now and then those of another place; Opus and MP3: about the same ones, and MP3 writes messages
on the terminal). So the frames of such a file are fastest in their order.

What libsndfile does with a file that was cut short, and how that is found:

    WAV, AIFF, AU, W64, RF64   takes it for a shorter one and logs that      the log is read
    FLAC                       seeks and reads beyond the cut fail           the place where they do is searched
    MP3                        fewer frames come than the header promises    they are counted
    OGG, SPHERE                takes it for a shorter one                    not at all: it is a shorter recording

A page that is missing inside an OGG file is skipped and logged; callshot refuses what comes after it, which would be at
the wrong time. The length of an MP3 file without a Xing header is an estimate, beyond which libsndfile does not read.
"""

import os
import re
import stat
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.options import RATES_HZ
from callshot.errors import InputError
from callshot.records import Recording

Signal = NDArray[np.float32]

OPENING = (
    threading.Lock()
)  # libsndfile keeps why a file could not be opened in one place for all threads
FORWARD = ("OGG", "MP3")
TAIL_S = 30.0  # that are kept of such a file: calls overlap, and collars reach back
HOLE = "libogg reports a hole"
BLOCK, FORWARD_BLOCK = (
    2**17,
    2**12,
)  # frames that are read at a time; small where a failure is found by its block
UNKNOWN_FRAMES = 2**62  # libsndfile gives a length beyond it to a file whose header has none
STREAMED_BYTES = 0x7FFF0000  # programs that write to a pipe promise this much or more
PROMISE = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)", re.MULTILINE
)


class Frames:
    """An open audio file. For one thread at a time.

    `promised` is the number of frames that the header promises; fewer of them, `recording.frames`, may be there. Where
    the header has no number the file is decoded once to count them. After damage was met the file is opened anew, so
    that frames before it can still be read.
    """

    def __init__(self, path: Path, name: str, source_rate_hz: float | None) -> None:
        self._path, self._name, self._at = path, name, 0
        self._tail: deque[tuple[int, Signal]] = (
            deque()
        )  # the last frames of a file that is read forward only
        self._reached: int | None = None  # where forward reading came to an early end
        _check_file(path, name)
        self._handle = self._open()
        try:
            self.recording = self._describe(source_rate_hz)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def blocks(self, first: int, last: int) -> Iterator[tuple[int, Signal]]:
        """Yield frames `first` to `last`, some at a time, as (frames, channels), each with the number of its first."""
        try:
            kept = self._kept(first, last)
            yield from kept
            first += sum(len(block) for _, block in kept)
            if first < last:
                self._go_to(first, last)
            while first < last:
                at, block = self._at, self._take(last)
                first = self._at
                yield at, block
        except soundfile.SoundFileError as error:
            self.close()
            raise self.cut_short(first, last, self._readable(last), _said(error)) from None

    def _kept(self, first: int, last: int) -> list[tuple[int, Signal]]:
        """Return what is still in memory of a file that is read forward only, if the first frame is."""
        if not self._tail or first < self._tail[0][0] or first >= self._at:
            return []
        parts = (
            (max(at, first), block[max(0, first - at) : max(0, last - at)])
            for at, block in self._tail
        )
        return [(at, block) for at, block in parts if len(block)]

    def cut_short(self, first: int, last: int, readable: int, said: str) -> InputError:
        """Return the error that frames `first` to `last` are not all there."""
        wanted_s, end_s, there_s = (
            frame / self.recording.rate_hz for frame in (first, last, readable)
        )
        return self.error(
            f"wanted {wanted_s:.2f} s to {end_s:.2f} s, but the file is cut short or damaged: it can be read up to "
            f"{there_s:.2f} s ({said}); copy it again from where it came"
        )

    def error(self, text: str) -> InputError:
        """Return an error about this file."""
        return InputError(f"{self._name}: {text}")

    def _describe(self, source_rate_hz: float | None) -> Recording:
        handle = self._handle
        rate_hz = float(handle.samplerate if source_rate_hz is None else source_rate_hz)
        if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
            whose = "its header says" if source_rate_hz is None else "the source rate given is"
            raise self.error(
                f"wanted a rate of {RATES_HZ[0]:.0f} to {RATES_HZ[1]:.0f} Hz, {whose} {rate_hz:g} Hz"
            )
        frames = handle.frames if handle.frames < UNKNOWN_FRAMES else self._count()
        if frames <= 0:
            raise self.error("the file holds no audio: its header says 0 frames")
        self.promised = _promised_frames(handle.extra_info, frames)
        kind, missing_s = f"{handle.format} {handle.subtype}", (self.promised - frames) / rate_hz
        return Recording(self._name, frames, rate_hz, handle.channels, kind, missing_s)

    def _count(self) -> int:
        """Decode the file to its end, or as far as it can be decoded."""
        frames = 0
        with self._open() as handle:
            try:
                while count := len(handle.read(BLOCK, dtype="float32")):
                    frames += count
            except soundfile.SoundFileError:
                pass  # spans beyond are refused as beyond the end, which is all that is known
        return frames

    def _go_to(self, frame: int, last: int) -> None:
        """Go to a frame from which those up to `last` will be read."""
        if self._handle.closed or (self._forward and frame < self._at):
            self._handle.close()
            self._handle, self._at = self._open(), 0
            self._tail.clear()
        if self._reached is not None and last > self._reached:
            raise soundfile.SoundFileRuntimeError("the file ends early")
        if not self._forward and self._at != frame:
            self._seek(frame)
        while self._at < frame:
            self._take(frame)

    @property
    def _forward(self) -> bool:
        return self._handle.format in FORWARD

    def _seek(self, frame: int) -> None:
        self._at = self._handle.seek(frame)
        if self._at != frame:
            raise soundfile.SoundFileRuntimeError("a seek went elsewhere")

    def _take(self, last: int) -> Signal:
        """Return the next frames, not beyond `last`."""
        count = min(FORWARD_BLOCK if self._forward else BLOCK, last - self._at)
        block: Signal = self._handle.read(count, dtype="float32", always_2d=True)
        if self._handle.format == "OGG" and HOLE in self._handle.extra_info:
            raise soundfile.SoundFileRuntimeError("a page is missing")
        if self._forward:
            self._tail.append((self._at, block))
            while self._at - self._tail[0][0] > TAIL_S * self.recording.rate_hz:
                self._tail.popleft()
        self._at += len(block)
        if len(block) < count:
            self._reached = self._at if self._forward else None
            raise soundfile.SoundFileRuntimeError("the file ends early")
        return block

    def _readable(self, last: int) -> int:
        """Return about how far a file can be read that failed before `last`."""
        if self._forward:
            return self._at if self._reached is None else self._reached
        low, high = 0, last
        while high - low > max(1, self.recording.rate_hz / 100):
            middle = (low + high) // 2
            low, high = (middle, high) if self._can_read(middle) else (low, middle)
        return low

    def _can_read(self, frame: int) -> bool:
        with self._open() as handle:
            try:
                return handle.seek(frame) == frame and len(handle.read(1, dtype="float32")) == 1
            except soundfile.SoundFileError:
                return False

    def _open(self) -> "_Handle":
        try:
            with OPENING:
                return _Handle(os.fsencode(self._path) if os.name == "posix" else str(self._path))
        except (soundfile.SoundFileError, TypeError) as error:  # TypeError: the file is named .raw
            raise self.error(
                f"wanted audio that libsndfile can read; it said: {_said(error)}"
            ) from None


class _Handle(soundfile.SoundFile):  # type: ignore[misc]
    """A SoundFile that seeks only when told to: soundfile does so after each read of a file that says it can."""

    def seekable(self) -> bool:
        return False


def _check_file(path: Path, name: str) -> None:
    """Refuse what is not a regular file that can be opened and holds something."""
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            path.open("rb").close()
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{name}: the file cannot be opened: {error.strerror}") from None
    except ValueError:
        raise InputError(
            f"{name!r}: wanted the name of a file, found a character that none can have"
        ) from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{name}: wanted an audio file, found something that is not a regular file"
        )
    if status.st_size == 0:
        raise InputError(f"{name}: the file is empty (0 bytes)")


def _promised_frames(log: str, frames: int) -> int:
    """Return how many frames a header promises, by what libsndfile logged when it found fewer."""
    found = PROMISE.search(log)
    if found is None or int(found[1]) >= STREAMED_BYTES:
        return frames
    return max(frames, frames * int(found[1]) // max(1, int(found[2])))


def _said(error: Exception) -> str:
    """Return what libsndfile said, on one line."""
    return " ".join(str(getattr(error, "error_string", error)).split()).rstrip(".")
