"""Where the header of an audio file is wrong about its length, and how it is read all the same.

WAV   A recorder that lost power leaves a header with the length of an earlier moment, or 0. The
      sound then goes on after the data chunk, where other chunks should be.
MP3   Without a Xing, Info or VBRI header, libsndfile estimates the length from the size of the
      file, tags included. Mostly that is too long; where it is too short, libsndfile does not read
      beyond it. `EndlessFile` hides the size.
"""

import io
import re
from typing import Any, BinaryIO

ENDLESS_BYTES = 2**50
SIZE_TO_THE_END = b"\xff\xff\xff\xff"  # libsndfile then reads up to the end of the file
MIN_SOUND_S = 0.1  # after the data chunk; a shorter rest is some program's mark
BLOCK_BYTES = 2**20
MAX_CHUNKS = 1000
# No sound, whatever size they have: a file may be cut inside one.
# fmt: off
KNOWN_CHUNKS = frozenset((
    b"LIST", b"bext", b"iXML", b"axml", b"_PMX", b"id3 ", b"ID3 ", b"guan", b"wamd", b"cue ",
    b"plst", b"smpl", b"inst", b"fact", b"PEAK", b"cart", b"DISP", b"acid", b"afsp", b"umid",
    b"minf", b"elm1", b"regn", b"chna", b"JUNK", b"junk", b"PAD ", b"FLLR",
))
# fmt: on
# Tags that programs append to files of any kind.
APPENDED_TAGS = (b"TAG", b"ID3", b"APETAGEX", b"LYRICS")
PRINTABLE = re.compile(rb"[\x20-\x7e]{4}")
FRAME_COUNT = re.compile(rb"(?:Xing|Info)\0\0\0(.)(.{4})(.{4})|VBRI", re.DOTALL)
FIRST_FRAME_BYTES = 256  # contain the header with the number of frames
HAS_FRAMES = 1
HAS_BYTES = 2


class PatchedFile(io.RawIOBase):
    """A file in which a few bytes are replaced."""

    def __init__(self, file: Any, offset: int, patch: bytes) -> None:
        super().__init__()
        self._file = file
        self._offset = offset
        self._patch = patch

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte."""
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        position = self.tell()
        target = memoryview(buffer).cast("B")
        count = int(self._file.readinto(target))
        first = max(position, self._offset)
        last = min(position + count, self._offset + len(self._patch))
        if first < last:
            part = self._patch[first - self._offset : last - self._offset]
            target[first - position : last - position] = part
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


class EndlessFile(PatchedFile):
    """A file that seems to be very large, so that an estimate of its length is too long."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, 0, b"")
        self._size = int(file.seek(0, io.SEEK_END))
        self._position = int(file.seek(0))

    def tell(self) -> int:
        """Return the position of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; only the end itself is far away, a tag before it is where it is."""
        if whence == io.SEEK_END and offset == 0:
            self._position = ENDLESS_BYTES
        else:
            bases = {io.SEEK_CUR: self._position, io.SEEK_END: self._size}
            self._position = bases.get(whence, 0) + offset
        self._file.seek(min(self._position, self._size))
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        count = super().readinto(buffer)
        self._position += count
        return count


def find_unfinished_data(file: BinaryIO) -> int | None:
    """Return where a WAV header has the size of its data, if sound goes on after them."""
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
            is_sound = is_long and _is_sound(file, end, size)
            return position + 4 if is_sound else None
        position = end + length % 2
    return None


def _is_sound(file: BinaryIO, position: int, size: int) -> bool:
    """Return whether sound follows at a position, and no chunk, tag or padding."""
    file.seek(position)
    start = file.read(9)
    # Chunks of odd length should be followed by a byte; some programs leave it out.
    for chunk in (start, start[1:]):
        if chunk.startswith(APPENDED_TAGS):
            return False
        length = int.from_bytes(chunk[4:8], "little")
        fits = position + 8 + length <= size
        if chunk[:4] in KNOWN_CHUNKS:
            return False
        if fits and PRINTABLE.match(chunk) is not None:
            return False
    file.seek(position)
    while block := file.read(BLOCK_BYTES):
        if any(block):
            return True
    return False


def count_missing_bytes(file: BinaryIO) -> int | None:
    """Return how many bytes an MP3 file lacks by its header, None if that counts no frames."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    position = 0
    while (tag := file.read(10))[:3] == b"ID3" and len(tag) == 10:
        position += 10 + _read_tag_size(tag)
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


def _read_tag_size(tag: bytes) -> int:
    """Return the size of an ID3v2 tag after its first 10 bytes: four times 7 bits."""
    size = 0
    for byte in tag[6:10]:
        size = size * 128 + (byte & 127)
    return size
