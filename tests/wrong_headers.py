"""Recordings whose headers are wrong about their length."""

import struct
from pathlib import Path

import numpy as np
import soundfile

from sounds import Signal, noise, truncate, write_audio

RATE_HZ = 16000


def write_mp3(path: Path, signal: Signal, mode: str = "CONSTANT") -> Path:
    """Write an MP3 file without the first frame, which contains the number of frames."""
    soundfile.write(
        path, signal, RATE_HZ, format="MP3", bitrate_mode=mode, compression_level=0.5
    )
    content = path.read_bytes()
    count = max(content.find(b"Xing"), content.find(b"Info"))
    assert 0 < count < 64
    second_frame = content.index(content[:2], count)
    path.write_bytes(content[second_frame:])
    return path


def add_tag(path: Path, size: int = 2**14) -> Path:
    """Put an ID3 tag before an audio file."""
    digits = bytes((size >> shift) & 127 for shift in (21, 14, 7, 0))
    path.write_bytes(b"ID3\4\0\0" + digits + bytes(size) + path.read_bytes())
    return path


def set_data_size(path: Path, size: int, tail: bytes = b"") -> Path:
    content = bytearray(path.read_bytes())
    place = content.index(b"data") + 4
    content[place : place + 4] = struct.pack("<I", size)
    content[4:8] = struct.pack("<I", place + size - 4)
    path.write_bytes(content + tail)
    return path


def write_folder(folder: Path) -> list[str]:
    """Write recordings whose headers are wrong, 8 to 12 s each; return their names."""
    folder.mkdir()
    signal = noise(RATE_HZ * 12)[:, 0]
    add_tag(write_mp3(folder / "tag.mp3", signal))
    parts = [noise(RATE_HZ * 2)[:, 0], np.zeros(RATE_HZ * 10, np.float32)]
    write_mp3(folder / "variable.mp3", np.concatenate(parts), "VARIABLE")
    truncate(write_audio(folder / "cut.flac", signal), 0.7)
    truncate(write_audio(folder / "cut.wav", signal), 0.7)
    truncate(write_audio(folder / "cut.mp3", signal), 0.7)
    set_data_size(write_audio(folder / "short.wav", signal), RATE_HZ * 2)
    set_data_size(write_audio(folder / "zero.wav", signal), 0)
    return sorted(path.name for path in folder.iterdir())
