"""Clock times are read as recorders write them, from names and headers."""

import numpy as np
import pytest
import soundfile as sf

from callshot.detection.index.clock import find_clock_time


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("20260314_053000.WAV", "2026-03-14T05:30:00"),
        ("20260314_053000T.WAV", "2026-03-14T05:30:00"),
        ("site/SM4A_20260314_053000.wav", "2026-03-14T05:30:00"),
        ("2MM01234_20260314_053000.wav", "2026-03-14T05:30:00"),
        ("S01_20260314_053000Z.flac", "2026-03-14T05:30:00+00:00"),
        ("SWIFT_20260314_053000-0400.wav", "2026-03-14T05:30:00-04:00"),
        ("20260314T053000+0530_x.wav", "2026-03-14T05:30:00+05:30"),
        ("69B4F738.WAV", "2026-03-14T05:50:48+00:00"),
        ("DEADBEEF.WAV", None),
        ("20261399_053000.wav", None),
        ("x120260314_053000.wav", None),
        ("20260314_05300012.wav", None),
        ("call7.wav", None),
        ("20260314.wav", None),
    ],
)
def test_times_in_names(tmp_path, name, clock):
    assert find_clock_time(tmp_path / "absent.wav", name) == clock


def write_wave(path, *chunks):
    """Write a WAV file with more chunks after its audio."""
    sf.write(path, np.zeros(800), 8000)
    content = path.read_bytes()
    for kind, text in chunks:
        padding = b"\0" * (len(text) % 2)
        content += kind + len(text).to_bytes(4, "little") + text + padding
    size = (len(content) - 8).to_bytes(4, "little")
    path.write_bytes(content[:4] + size + content[8:])
    return path


COMMENT = b"INFOICMT\x80\0\0\0Recorded at 05:30:00 14/03/2026 (UTC%s) by AudioMoth 24A0"
BROADCAST = bytes(320) + b"2026-03-1405:30:00" + bytes(264)


@pytest.mark.parametrize(
    ("chunks", "clock"),
    [
        ([(b"LIST", COMMENT % b"")], "2026-03-14T05:30:00+00:00"),
        ([(b"LIST", COMMENT % b"-3")], "2026-03-14T05:30:00-03:00"),
        ([(b"LIST", COMMENT % b"-9:30")], "2026-03-14T05:30:00-09:30"),
        (
            [
                (b"junk", b"x"),
                (b"guan", b"GUANO|Version:1.0\nTimestamp:2026-03-14T05:30:00"),
            ],
            "2026-03-14T05:30:00",
        ),
        (
            [(b"guan", b"Timestamp: yesterday"), (b"bext", BROADCAST)],
            "2026-03-14T05:30:00",
        ),
        ([(b"bext", bytes(602))], None),
        ([(b"LIST", b"INFOICMT nothing")], None),
    ],
)
def test_times_in_headers(tmp_path, chunks, clock):
    path = write_wave(tmp_path / "a.wav", *chunks)
    assert find_clock_time(path, "a.wav") == clock


def test_the_name_counts_and_the_header_adds_the_offset(tmp_path):
    path = write_wave(tmp_path / "a.wav", (b"LIST", COMMENT % b"+2"))
    same = find_clock_time(path, "20260314_053000.WAV")
    assert same == "2026-03-14T05:30:00+02:00"
    part = find_clock_time(path, "20260314_063000.WAV")  # of a recording that was split
    assert part == "2026-03-14T06:30:00"


def test_a_header_of_nonsense_gives_no_time(tmp_path):
    path = tmp_path / "a.wav"
    for content in (b"", b"RIFF", b"RIFF\0\0\0\0WAVE" + b"LIST\xff\xff\xff\xff" * 9):
        path.write_bytes(content)
        assert find_clock_time(path, "a.wav") is None
