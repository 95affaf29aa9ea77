"""Frames of audio files: a path comes in, any run of frames goes out exactly, or an error.

The format of a file is known by its content, whatever its suffix. Most files are read by seeking.
OGG and MP3 files are read from their start only, because libsndfile returns other samples after a
seek (Vorbis: half a block of wrong ones, sometimes from elsewhere; Opus and MP3: slightly different
ones, and MP3 prints to the terminal). Their frames are therefore fastest in order.

A recording is as long as it can be decoded, whatever its header says, and its length is known
when it is open. How libsndfile handles a truncated file, and how we find its end:

    WAV, AIFF, AU, W64, RF64   reads it as a shorter file, with a log entry   we read the log
    FLAC                       seeks and reads beyond the end fail            we search for the end
    MP3                        returns fewer frames than announced            we count them
    OGG, SPHERE                reads it as a shorter file                     cannot be detected

MP3 files whose header has no exact length, and files that are shorter than such a header says, are
decoded once to count their frames. Where else a header is wrong about the length:

WAV   A recorder that lost power leaves a header with the length of an earlier moment, or 0. The
      sound then goes on after the data chunk, where other chunks should be.
MP3   Without a Xing, Info or VBRI header, libsndfile estimates the length from the size of the
      file, tags included. Mostly that is too long; where it is too short, libsndfile does not read
      beyond it. `MendedFile` hides the size.

Damage inside a file is found when it is read (DamagedAudio). libsndfile skips a missing page
inside an OGG file and logs that; for callshot the file ends there, since later times are wrong.
"""

import io
import os
import re
import stat
import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError
from callshot.files import error_reason
from callshot.options import RATES_HZ
from callshot.records import Recording
from callshot.storage import RangeReader, is_remote
from callshot.storage.requests import FileVersion

CHANNEL_RULE = re.compile("first|mean|0{0,8}[1-9][0-9]*")
ENDLESS_BYTES = 2**50
MIN_SOUND_S = 0.1  # after the data chunk; a shorter rest is some program's mark
BLOCK_BYTES = 2**20
MAX_CHUNKS = 1000
# Chunks, and tags that programs append to files of any kind: no sound, whatever size they have,
# because a file may be cut inside one.
KNOWN_CHUNK = re.compile(
    rb"LIST|bext|iXML|axml|_PMX|id3 |guan|wamd|cue |plst|smpl|inst|fact|PEAK|cart|DISP|acid|afsp"
    rb"|umid|minf|elm1|regn|chna|JUNK|junk|PAD |FLLR|TAG|ID3|APETAGEX|LYRICS"
)
PRINTABLE = re.compile(rb"[\x20-\x7e]{4}")
FRAME_COUNT = re.compile(rb"(?:Xing|Info)\0\0\0(.)(.{4})(.{4})|VBRI", re.DOTALL)
FIRST_FRAME_BYTES = 256  # contain the header with the number of frames
HAS_FRAMES = 1
HAS_BYTES = 2
Signal = NDArray[np.float32]
# The number of the first frame, and frames as (frames, channels).
Block = tuple[int, Signal]
# libsndfile stores the reason of a failed open in one global place.
OPEN_LOCK = threading.Lock()
SEQUENTIAL_FORMATS = ("OGG", "MP3")
WAV_FORMATS = ("WAV", "WAVEX")
# Encodings of samples after which a seek finds the same samples as reading in order, FLAC's too;
# in others, such as GSM 6.10, libsndfile cannot seek.
SEEKABLE_ENCODINGS = re.compile(r"PCM_\w+|FLOAT|DOUBLE|ULAW|ALAW")
CACHE_S = 30.0  # of a sequential file: calls overlap, and collars reach back
HOLE_MESSAGE = "libogg reports a hole"
BLOCK_FRAMES = 2**17
SEQUENTIAL_BLOCK_FRAMES = 2**12  # small, because a failure is located by its block
# libsndfile reports more frames than this if the header has no length, and in an endless file.
UNKNOWN_FRAMES = 2**44
ENDLESS_FRAMES = 2**62
STREAMED_BYTES = 0x7FFF0000  # programs that write to a pipe announce this much or more
ANNOUNCED_BYTES = re.compile(
    r"^\s*(?:data|SSND|Data Size|riff|Riff size)\s*: (\d+) \(should be (\d+)\)",
    re.MULTILINE,
)
# How many frames files have where the header does not say it; a file is opened many times.
_counted_frames: dict[FileVersion, int] = {}


class MendedFile:
    """A file that libsndfile reads to its end, whatever its header says.

    The size of the data in a WAV header, if its offset is given, is replaced by the largest one.
    Other files seem to be very large, so that an estimate of their length is too long.
    """

    def __init__(self, file: Any, size_offset: int | None = None) -> None:
        self._file = file
        self._size_offset = size_offset
        self._size = int(file.seek(0, io.SEEK_END))
        self._position = int(file.seek(0))

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte.

        To hide its size, the end of a file that is not WAV seems to be ENDLESS_BYTES away.
        Positions before the end are true: libsndfile looks for tags there.
        """
        if self._size_offset is None and (offset, whence) == (0, io.SEEK_END):
            self._position = ENDLESS_BYTES
        else:
            bases = {io.SEEK_CUR: self._position, io.SEEK_END: self._size}
            self._position = bases.get(whence, 0) + offset
        self._file.seek(min(self._position, self._size))
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes; return their number."""
        target = memoryview(buffer).cast("B")
        count = int(self._file.readinto(target))
        if self._size_offset is not None:
            # Replace those of the four bytes of the size that are in the buffer.
            first = self._size_offset - self._position  # in the buffer
            for index in range(first, first + 4):
                if 0 <= index < count:
                    target[index] = 0xFF
        self._position += count
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def find_unfinished_data(file: BinaryIO) -> int | None:
    """Return where a WAV header has the size of its data, if sound goes on after it."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    position = 12
    bytes_per_s = 0
    for _ in range(MAX_CHUNKS):
        file.seek(position)
        chunk = file.read(20)
        if len(chunk) < 8:
            return None
        length = int.from_bytes(chunk[4:8], "little")
        end = position + 8 + length
        if chunk[:4] == b"fmt ":
            bytes_per_s = int.from_bytes(chunk[16:20], "little")
        if chunk[:4] == b"data":
            is_long = size - end >= max(1, MIN_SOUND_S * bytes_per_s)
            if is_long and _is_sound(file, end, size):
                return position + 4
            return None
        position = end + length % 2
    return None


def _is_sound(file: BinaryIO, position: int, size: int) -> bool:
    """Return whether the bytes from a position on are sound: no chunk, no tag, not only zeros."""
    file.seek(position)
    start = file.read(9)
    # Chunks of odd length should be followed by a byte; some programs leave it out.
    for chunk in (start, start[1:]):
        end = position + 8 + int.from_bytes(chunk[4:8], "little")
        fits = end <= size and PRINTABLE.match(chunk)
        if fits or KNOWN_CHUNK.match(chunk):
            return False
    file.seek(position)
    blocks = iter(partial(file.read, BLOCK_BYTES), b"")
    return any(map(any, blocks))


def count_missing_bytes(file: BinaryIO) -> int | None:
    """Return how many bytes an MP3 file lacks; None if its header counts no frames."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    position = 0  # of the first frame, after all tags
    while (tag := file.read(10))[:3] == b"ID3" and len(tag) == 10:
        # The size of a tag after its first 10 bytes is four times 7 bits.
        bits = "".join(f"{byte & 127:07b}" for byte in tag[6:])
        position += 10 + int(bits, 2)
        file.seek(position)
    file.seek(position)
    match = FRAME_COUNT.search(file.read(FIRST_FRAME_BYTES))
    if match is None:
        return None
    if match[1] is None:  # VBRI always counts frames
        return 0
    flags = match[1][0]
    if not flags & HAS_FRAMES:
        return None
    announced_bytes = int.from_bytes(match[3], "big") if flags & HAS_BYTES else 0
    return max(0, position + announced_bytes - size)


class DamagedAudio(InputError):
    """A span cannot be decoded to its end: the file is damaged from `end_frame` on, about."""

    def __init__(self, text: str, end_frame: int) -> None:
        super().__init__(text)
        self.end_frame = end_frame


class FrameReader:
    """An open audio file, for one thread at a time.

    If the header has no length or a wrong one, the true one is found once in a process. After an
    error the file is opened again, so that the frames before the damage can still be read.
    """

    def __init__(self, path: Path, name: str, source_rate_hz: float | None) -> None:
        self._path = path
        self._name = name
        self._position = 0
        self._cache: deque[Block] = deque()  # the latest frames of a sequential file
        self._stream: RangeReader | None = None  # of a remote file
        # Makes of the file what libsndfile can read to its end.
        self._mend: Callable[[Any], Any] | None = None
        if not is_remote(path):
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
        if self._stream is not None:
            self._stream.close()

    def error(self, text: str) -> InputError:
        """Return an error about this file."""
        return InputError(f"{self._name}: {text}")

    def read_blocks(self, first: int, last: int) -> Iterator[Block]:
        """Yield frames in blocks, each with its first frame; DamagedAudio if some are damaged."""
        try:
            # Take what the cache has; `first` moves on to the next frame that is needed.
            if self._cache and first >= self._cache[0][0]:
                for position, block in [*self._cache]:
                    begin = max(0, first - position)
                    end = max(0, last - position)
                    cached = block[begin:end]
                    if len(cached) > 0:
                        yield first, cached
                        first += len(cached)
            if first < last:
                # To be read in order; a seek reads little, in some places.
                frames_ahead = 0
                if self._is_sequential:  # all frames before the first are read too
                    is_behind = first < self._position
                    frames_ahead = last if is_behind else last - self._position
                self._expect(frames_ahead)
                self._move_to(first)
                self._expect(last - first)
            while first < last:
                block = self._read_block(last)
                yield first, block
                first += len(block)
        except soundfile.SoundFileError as error:
            self._check_stream()
            self.close()
            # On a fixed grid, so that the answer does not depend on what was read before.
            position = 0
            if not self._is_sequential:
                position = first - first % SEQUENTIAL_BLOCK_FRAMES
            end_frame = self._decode(
                position, last, block_frames=SEQUENTIAL_BLOCK_FRAMES
            )
            rate_hz = self.recording.rate_hz
            raise DamagedAudio(
                f"{self._name}: cannot read {first / rate_hz:.2f} s to {last / rate_hz:.2f} s: "
                f"the file is cut short or damaged after {end_frame / rate_hz:.2f} s "
                f"({_error_text(error)}); copy it again",
                end_frame,
            ) from None

    def _expect(self, frames: int) -> None:
        """Announce how many frames of a remote file will be read in order."""
        if self._stream is not None:
            self._stream.expect(frames / self.recording.frames)

    def _describe(self, source_rate_hz: float | None) -> Recording:
        """Return the recording, with its true length, and open the file so that all is read."""
        handle = self._handle
        rate_hz = float(handle.samplerate if source_rate_hz is None else source_rate_hz)
        low_hz, high_hz = RATES_HZ
        if not low_hz <= rate_hz <= high_hz:
            origin = "in its header" if source_rate_hz is None else "as source rate"
            raise self.error(
                f"expected a rate of {low_hz:,.0f} to {high_hz:,.0f} Hz, "
                f"got {rate_hz:g} Hz {origin}"
            )
        announced = self._find_announced()
        # Bytes that an MP3 file lacks: 0 if it is whole, or another format; None if its header does
        # not say how long it is, so that the length is an estimate.
        missing_bytes: int | None = 0
        if handle.format == "MP3":
            with self._open_apart(self._open_bytes) as file:
                missing_bytes = count_missing_bytes(file)
        elif handle.format in WAV_FORMATS:
            with self._open_apart(self._open_bytes) as file:
                offset = find_unfinished_data(file)
            if offset is not None:
                self._reopen(partial(MendedFile, size_offset=offset))
        frames = self._find_length(self._handle.frames, is_wrong=missing_bytes != 0)
        if frames <= 0:
            raise self.error("the file has no audio (0 frames)")
        announced_s = None
        if announced not in (None, frames):
            announced_s = announced / rate_hz
        return Recording(
            path=self._name,
            frames=frames,
            rate_hz=rate_hz,
            channels=handle.channels,
            kind=f"{handle.format} {handle.subtype}",
            announced_s=announced_s,
            is_estimate=missing_bytes is None,
        )

    def _find_announced(self) -> int | None:
        """Return the number of frames that the header announces, None if it announces none.

        A number of bytes from STREAMED_BYTES on is ignored: a program that writes to a pipe does
        not know the length.
        """
        frames: int = self._handle.frames
        if frames >= UNKNOWN_FRAMES:
            return None
        # libsndfile cuts it to the size of the file, and logs the number of bytes announced.
        match = ANNOUNCED_BYTES.search(self._handle.extra_info)
        if match is None or int(match[1]) >= STREAMED_BYTES:
            return frames
        return max(frames, frames * int(match[1]) // max(1, int(match[2])))

    def _reopen(self, mend: Callable[[Any], Any]) -> None:
        """Open the file again through `mend`, such as MendedFile."""
        self._mend = mend
        self._handle.close()
        self._handle = self._open()

    def _find_length(self, frames: int, is_wrong: bool) -> int:
        """Return how many frames can be decoded; the header says `frames`.

        With `is_wrong`, or if the header has no length, the file is decoded once. In a FLAC file
        that was cut short, the last good frame is found by bisection. Results are kept for the
        next time that the same version of a file is opened.
        """
        is_unknown = is_wrong or frames >= UNKNOWN_FRAMES
        if not is_unknown and self._handle.format != "FLAC":
            return frames
        if self._stream is not None:
            version = self._stream.version
        else:
            status = self._path.stat()
            version = (str(self._path), status.st_size, status.st_mtime_ns)
        count = _counted_frames.get(version)
        if count is None:
            count = self._count_frames(frames, is_unknown=is_unknown)
            _counted_frames[version] = count
        if count > frames:
            self._reopen(MendedFile)
        return count

    def _count_frames(self, frames: int, *, is_unknown: bool) -> int:
        """Count frames by decoding, or in a FLAC file up to damage; `frames`: by the header."""
        if is_unknown:
            # What follows damage counts as beyond the end of the recording.
            decode = partial(self._decode, 0, ENDLESS_FRAMES, block_frames=BLOCK_FRAMES)
            count = decode()
            if count >= frames:
                # libsndfile stops at the announced length: decode again with a mended header.
                self._mend = MendedFile
                with suppress(InputError):  # some MP3 files are known by their suffix
                    count = max(count, decode())
                self._mend = None
            return count
        if self._is_damaged(frames - 1):
            # The first damaged frame, which is also the number of good ones
            return bisect_left(range(frames - 1), True, key=self._is_damaged)
        return frames

    def _decode(self, position: int, last: int, *, block_frames: int) -> int:
        """Decode from `position` up to `last` without keeping audio; return where it ended."""
        with (
            self._open_apart(self._open) as handle,
            suppress(soundfile.SoundFileError),  # the damage
        ):
            if position > 0 and handle.seek(position) != position:
                return position
            while position < last:
                count = min(block_frames, last - position)
                block = handle.read(count, dtype="float32")
                if self._is_sequential and HOLE_MESSAGE in handle.extra_info:
                    break
                position += len(block)
                if len(block) < count:
                    break
        return position

    @property
    def starts_anywhere(self) -> bool:
        """Whether reading may start at any frame, and gives the same samples as from the start."""
        handle = self._handle
        if self._is_sequential or handle.frames >= UNKNOWN_FRAMES:
            return False
        return SEEKABLE_ENCODINGS.fullmatch(handle.subtype) is not None

    @property
    def _is_sequential(self) -> bool:
        return self._handle.format in SEQUENTIAL_FORMATS

    def _move_to(self, frame: int) -> None:
        """Make `frame` the next one to be read: by a seek, or by reading up to it."""
        is_behind = self._is_sequential and frame < self._position
        if self._handle.closed or is_behind:
            self._handle.close()
            self._handle = self._open()
            self._position = 0
            self._cache.clear()
        if not self._is_sequential and self._position != frame:
            self._position = self._handle.seek(frame)
            if self._position != frame:
                raise soundfile.SoundFileRuntimeError("a seek failed")
        while self._position < frame:
            self._read_block(frame)

    def _read_block(self, last: int) -> Signal:
        """Return the next frames, at most up to `last`, as (frames, channels)."""
        size = SEQUENTIAL_BLOCK_FRAMES if self._is_sequential else BLOCK_FRAMES
        count = min(size, last - self._position)
        block: Signal = self._handle.read(count, dtype="float32", always_2d=True)
        self._check_stream()
        if self._is_sequential:
            if HOLE_MESSAGE in self._handle.extra_info:
                raise soundfile.SoundFileRuntimeError("a page is missing")
            self._cache.append((self._position, block))
            oldest = self._position - CACHE_S * self.recording.rate_hz
            while self._cache[0][0] < oldest:
                self._cache.popleft()
        self._position += len(block)
        if len(block) < count:
            raise soundfile.SoundFileRuntimeError("the file ends early")
        return block

    def _is_damaged(self, frame: int) -> bool:
        """Return whether one frame cannot be decoded."""
        return self._decode(frame, frame + 1, block_frames=1) <= frame

    def _check_stream(self) -> None:
        """Raise the error that reading a remote file had; libsndfile takes it for the end."""
        if self._stream is None or self._stream.error is None:
            return
        error = self._stream.error
        self.close()
        if isinstance(error, OSError):
            raise self.error(f"cannot be read ({error_reason(error)})") from None
        raise error

    @contextmanager
    def _open_apart(self, open_file: Callable[[], Any]) -> Iterator[Any]:
        """Open the file a second time with `open_file`; the handle in use keeps its position."""
        # Of a remote file, open_file makes its own stream the one in use. The first is put back.
        stream = self._stream
        self._stream = None
        try:
            with open_file() as opened:
                yield opened
            self._check_stream()
        finally:
            self._stream = stream

    def _open(self) -> "_SoundFile":
        """Open by path, or through a stream that is mended or remote; InputError if not audio."""
        if self._mend is not None:
            source = self._mend(self._open_bytes())
        elif is_remote(self._path):
            source = self._open_bytes()
        elif os.name == "posix":
            source = os.fsencode(self._path)
        else:
            source = str(self._path)
        try:
            with OPEN_LOCK:
                return _SoundFile(source)
        # TypeError: the suffix is .raw
        except (soundfile.SoundFileError, TypeError) as error:
            if not isinstance(source, str | bytes):
                source.close()
            self._check_stream()
            reason = _error_text(error)
            if reason.startswith("File does not exist"):  # of an MP3 file without sound
                reason = "Format not recognised"
            raise self.error(f"libsndfile cannot read it as audio: {reason}") from None

    def _open_bytes(self) -> Any:
        """Open the file to read its bytes; of a remote one, this becomes the stream in use."""
        try:
            if not is_remote(self._path):
                return self._path.open("rb")
            self._stream = RangeReader(self._path, keep_errors=True)
            self._stream.load_start()  # before the lock is held
        except OSError as error:
            raise self.error(f"cannot be read ({error_reason(error)})") from None
        if self._stream.size == 0:
            raise self.error("the file is empty (0 bytes)")
        return self._stream


class _SoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """A SoundFile that seeks only when asked, and closes a file object that it was given.

    soundfile seeks after each read if it can.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        super().__init__(source)

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        super().close()
        if not isinstance(self._source, str | bytes):
            self._source.close()


def _check_file(path: Path, name: str) -> None:
    """Raise InputError unless a path is a regular file with content that we may read."""
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            # libsndfile does not say why a file cannot be opened.
            path.open("rb").close()
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be opened ({error_reason(error)})") from None
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{name}: expected an audio file, got a folder, pipe or device"
        )
    if status.st_size == 0:
        raise InputError(f"{name}: the file is empty (0 bytes)")


def _error_text(error: Exception) -> str:
    """Return the message of libsndfile on one line."""
    text = str(getattr(error, "error_string", error))
    return " ".join(text.split()).rstrip(".")


def check_channel_rule(rule: str) -> None:
    """Raise OptionError unless a rule is "first", "mean" or the number of a channel from 1."""
    if CHANNEL_RULE.fullmatch(rule) is None:
        raise OptionError(
            f'channel: expected "first", "mean" or the number of a channel, got {rule!r}'
        )
