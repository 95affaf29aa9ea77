"""When a recording began: from its file name, or from what the recorder wrote into its header.

    20260314_053000.WAV                AudioMoth, Song Meter, Swift, … (also with a prefix)
    SITE1_20260314_053000+0200.wav     with the offset from UTC; Z is UTC
    5E6C6F38.WAV                       old AudioMoth: seconds since 1970 in hexadecimal, UTC
    header "Recorded at 05:30:00 14/03/2026 (UTC+2)"            AudioMoth
    header "Timestamp:2026-03-14T05:30:00+02:00"                GUANO: Song Meter and others
    header OriginationDate and OriginationTime                  Broadcast Wave

The name counts first, because programs that split recordings leave the header as it was. Where both
give the same time, the offset comes from the header.
"""

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path, PurePosixPath
from typing import BinaryIO

NAME = re.compile(
    r"(?<!\d)((?:19|20)\d{6})[_T-](\d{6})(?!\d)(?:(Z)|([+-]\d{4})(?!\d))?"
)
HEX_NAME = re.compile(r"[45678][0-9A-F]{7}")  # 2006 to 2038 and later
AUDIOMOTH = re.compile(
    r"Recorded at (\d{2}:\d{2}:\d{2} \d{2}/\d{2}/\d{4}) \(UTC([+-]\d{1,2})?(?::(\d{2}))?\)"
)
GUANO = re.compile(r"^Timestamp: *(\S+)", re.MULTILINE)
BROADCAST = re.compile(r"(\d{4})[-:_ /.](\d{2})[-:_ /.](\d{2})(\d{2}):(\d{2}):(\d{2})")
BROADCAST_DATE = slice(320, 338)  # of a bext chunk: date and time
MAX_CHUNKS = 100
MAX_BYTES = 2**16  # of a chunk
TEXT_CHUNKS = (b"LIST", b"guan", b"bext")


def parse_clock(clock: str | None) -> datetime | None:
    """Return a time in the format of ISO 8601 without its offset from UTC, None if it is none.

    >>> parse_clock("2026-03-14T05:30:00+02:00"), parse_clock("dawn")
    (datetime.datetime(2026, 3, 14, 5, 30), None)
    """
    if clock is None:
        return None
    try:
        return datetime.fromisoformat(clock).replace(tzinfo=None)
    except ValueError:
        return None


def find_clock_time(path: Path, name: str) -> str | None:
    """Return when a recording began, in the format of ISO 8601; None if nothing says it.

    `name` is that of the recording; `path` is its file, whose header is read if there is one.

    >>> find_clock_time(Path("absent.wav"), "site1/SM4_20260314_053000.wav")
    '2026-03-14T05:30:00'
    """
    clock = parse_name(name)
    by_header = None
    with suppress(OSError), path.open("rb") as stream:
        by_header = parse_header(_read_texts(stream))
    # The header counts without a name, or adds the offset from UTC to the same time.
    if by_header is not None and clock in (None, by_header.replace(tzinfo=None)):
        clock = by_header
    return None if clock is None else clock.isoformat()


def shift_clock(clock: str | None, seconds: float) -> str | None:
    """Return the clock time some seconds into a recording, None if its clock is not known.

    >>> shift_clock("2026-03-14T05:30:00", 61.5)
    '2026-03-14T05:31:01.500'
    """
    if clock is None:
        return None
    moment = datetime.fromisoformat(clock) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds")


def parse_name(name: str) -> datetime | None:
    """Return the time in the name of a file."""
    stem = PurePosixPath(name).stem
    match = NAME.search(stem)
    if match is not None:
        date, time, is_utc, offset = match.groups()
        if is_utc or offset:  # Z is an offset of 0
            return _parse_time(f"{date}{time}{offset or '+0000'}", "%Y%m%d%H%M%S%z")
        return _parse_time(f"{date}{time}", "%Y%m%d%H%M%S")
    if HEX_NAME.fullmatch(stem) is not None:
        return datetime.fromtimestamp(int(stem, 16), UTC)
    return None


def find_place(name: str) -> str:
    """Return where a recording was made, by its path: its folder, and what precedes the clock time.

    >>> find_place("north/SM4_20260314_053000.wav"), find_place("north/20260314_053000.WAV")
    ('north/SM4', 'north')
    >>> find_place("north/a.wav"), find_place("a.wav")
    ('north', '.')
    """
    path = PurePosixPath(name)
    match = NAME.search(path.stem)
    prefix = "" if match is None else path.stem[: match.start()]
    return (path.parent / prefix.strip("_- ")).as_posix()


def parse_header(texts: dict[bytes, bytes]) -> datetime | None:
    """Return the time in the chunks of a WAV file that contain text, by the names of the chunks."""
    comment = texts.get(b"LIST", b"").decode("latin-1")
    match = AUDIOMOTH.search(comment)
    if match is not None:
        time, hours, minutes = match.groups()
        clock = _parse_time(time, "%H:%M:%S %d/%m/%Y")
        sign = -1 if (hours or "").startswith("-") else 1  # also of the minutes
        offset = timedelta(hours=int(hours or 0), minutes=sign * int(minutes or 0))
        if clock is None:
            return None
        return clock.replace(tzinfo=timezone(offset))
    guano = texts.get(b"guan", b"").decode("utf-8", "replace")
    match = GUANO.search(guano)
    if match is not None:
        with suppress(ValueError):
            return datetime.fromisoformat(match[1])
    date = texts.get(b"bext", b"")[BROADCAST_DATE].decode("latin-1")
    match = BROADCAST.fullmatch(date)
    if match is None:
        return None
    return _parse_time("".join(match.groups()), "%Y%m%d%H%M%S")


def _parse_time(text: str, pattern: str) -> datetime | None:
    """Return a time, None for digits that are none, such as those of a serial number."""
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        return None


def _read_texts(stream: BinaryIO) -> dict[bytes, bytes]:
    """Return the chunks of a WAV file that contain text; nothing for other files."""
    texts: dict[bytes, bytes] = {}
    head = stream.read(12)
    if head[:4] not in (b"RIFF", b"RF64") or head[8:] != b"WAVE":
        return texts
    for _ in range(MAX_CHUNKS):
        head = stream.read(8)
        if len(head) < 8:
            break
        size = int.from_bytes(head[4:], "little")
        position = stream.tell()
        if head[:4] in TEXT_CHUNKS:
            texts[head[:4]] = stream.read(min(size, MAX_BYTES))
        stream.seek(position + size + size % 2)  # a chunk has an even length on disk
    return texts
