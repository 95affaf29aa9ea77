"""Audio files in every format: headers, spans, streams, truncated and damaged files."""

import io
import math
import os
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.corpus.audio import open_recording, probe
from callshot.errors import InputError
from sounds import noise, truncate, write_audio, write_float_wav

FORMATS = [
    *(("wav", "WAV", subtype) for subtype in ("PCM_U8", "PCM_24", "FLOAT")),
    *((suffix, suffix.upper(), "PCM_16") for suffix in ("rf64", "flac", "aiff")),
    ("sph", "NIST", "PCM_16"),
    ("ogg", "OGG", "VORBIS"),
    ("opus", "OGG", "OPUS"),
    ("mp3", "MP3", "MPEG_LAYER_III"),
]
LOSSY = ("VORBIS", "OPUS", "MPEG_LAYER_III")


def test_probe_returns_the_header(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(1000, 2), 44100)
    output = probe(path, "sub/a.flac")
    assert (output.path, output.frames, output.rate_hz, output.channels) == (
        "sub/a.flac",
        1000,
        44100.0,
        2,
    )
    assert output.kind == "FLAC PCM_16"
    assert probe(path).path == path.as_posix()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"empty \(0 bytes\)"),
        (
            b"no audio " * 99,
            "libsndfile cannot read it as audio: Format not recognised$",
        ),
    ],
)
def test_a_file_that_is_not_audio_is_an_error(tmp_path, content, match):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(InputError, match=match):
        probe(tmp_path / "a.wav")


def test_a_missing_file_a_folder_and_an_impossible_name_are_errors(tmp_path):
    with pytest.raises(
        InputError, match=r"^x\.wav: cannot be opened \(No such file or directory\)"
    ):
        probe(tmp_path / "x.wav", "x.wav")
    with pytest.raises(InputError, match="got a folder, pipe or device"):
        probe(tmp_path)
    with pytest.raises(InputError, match="cannot be opened \\(embedded null byte\\)"):
        probe(tmp_path / "a\0.wav")
    with pytest.raises(InputError, match="cannot be opened \\(File name too long\\)"):
        probe(tmp_path / ("a" * 999))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(InputError, match="got a folder, pipe or device"):
        probe(tmp_path / "a.wav")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="the superuser may read every file",
)
def test_a_file_without_permission_is_an_error(tmp_path):
    write_audio(tmp_path / "a.wav", noise(10)).chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        probe(tmp_path / "a.wav")


def test_a_recording_without_frames_is_an_error(tmp_path):
    with pytest.raises(InputError, match="0 frames"):
        probe(write_float_wav(tmp_path / "a.wav", noise(0)))


def test_an_impossible_rate_of_a_recording_is_an_error(tmp_path):
    with pytest.raises(InputError, match="got 1 Hz in its header"):
        probe(write_audio(tmp_path / "a.wav", noise(10), 1))
    for rate_hz in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="as source rate"):
            probe(write_audio(tmp_path / "a.wav", noise(10)), None, rate_hz)


def test_a_file_whose_name_is_not_unicode_can_be_read(tmp_path):
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav"))
    try:
        path.write_bytes(write_audio(tmp_path / "a.wav", noise(10)).read_bytes())
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    assert probe(path).frames == 10


def test_the_frames_of_a_flac_stream_without_a_length_are_counted(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(200_000))
    (tmp_path / "b.flac").write_bytes(path.read_bytes())
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the number of samples: 36 bits, 0 if unknown
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert soundfile.info(path).frames > 2**62
    assert probe(path).frames == 200_000
    with open_recording(path) as reader:
        assert np.array_equal(
            reader.read(10, 13, rate_hz=16000),
            soundfile.read(tmp_path / "b.flac", dtype="float32")[0][160_000:],
        )


def test_a_wav_stream_without_a_length_is_not_truncated(tmp_path):
    path = write_audio(tmp_path / "a.wav", noise(16000))
    content = path.read_bytes()
    size = content.index(b"data") + 4
    path.write_bytes(
        content[:size] + struct.pack("<I", 0xFFFFFFFF) + content[size + 4 :]
    )
    with open_recording(path) as reader:
        assert len(reader.read(0.5, 9, rate_hz=16000)) == 8000


@pytest.mark.parametrize(("suffix", "format_name", "subtype"), FORMATS)
def test_a_span_equals_that_of_the_whole_file_in_every_format(
    tmp_path, suffix, format_name, subtype, capfd
):
    """Random order makes sequential reading start again; no library prints to the terminal."""
    signal = noise(16000 * 6, 2)
    path = write_audio(tmp_path / f"a.{suffix}", signal, 16000, format_name, subtype)
    with soundfile.SoundFile(path) as file:
        file.seekable = lambda: False  # or soundfile seeks
        whole = file.read(len(signal), dtype="float32", always_2d=True)[:, 1]
    assert len(whole) == len(signal)
    if subtype not in LOSSY:
        assert np.abs(whole - signal[:, 1]).max() <= (
            1 / 128 if subtype == "PCM_U8" else 1 / 32768
        )
    with open_recording(path) as reader:
        for start in np.random.default_rng(0).integers(0, 16000 * 5, 15).tolist():
            output = reader.read(
                start / 16000, start / 16000 + 1, rate_hz=16000, channel_rule="2"
            )
            assert np.array_equal(output, whole[start : start + 16000])
            assert output.dtype == np.float32
    assert capfd.readouterr() == ("", "")


def test_vorbis_blocks_of_both_lengths_are_read_exactly(tmp_path):
    """A tone that rises through noise has both, and libsndfile's seeks go wrong between them."""
    time_s = np.arange(16000 * 20) / 16000
    tone = (
        0.3 * np.sin(2 * np.pi * 440 * time_s * (1 + time_s / 20))
        + 0.2 * noise(len(time_s))[:, 0]
    )
    with open_recording(
        write_audio(tmp_path / "a.ogg", tone.astype(np.float32))
    ) as reader:
        whole = reader.read(0, 20, rate_hz=16000)
        for start in range(1000, 16000 * 19, 7777):
            span = reader.read(start / 16000, start / 16000 + 0.1, rate_hz=16000)
            assert np.array_equal(span, whole[start : start + 1600])


def test_a_wrong_suffix_does_not_matter(tmp_path):
    write_audio(tmp_path / "a.flac", noise(100)).rename(tmp_path / "a.wav")
    assert probe(tmp_path / "a.wav").kind == "FLAC PCM_16"


@pytest.mark.parametrize("format_name", ["wav", "flac", "w64", "mp3"])
def test_a_truncated_file_is_read_up_to_its_end(tmp_path, format_name):
    signal = noise(16000 * 10)[:, 0]
    write_audio(tmp_path / f"a.{format_name}", signal, 16000, format_name.upper())
    with open_recording(tmp_path / f"a.{format_name}") as reader:
        whole = reader.read(0, 10, rate_hz=16000)
    with open_recording(truncate(tmp_path / f"a.{format_name}", 0.6), "a") as reader:
        frames = reader.recording.frames
        assert 5.5 * 16000 < frames <= 6.1 * 16000
        assert reader.recording.announced_s == pytest.approx(10, abs=0.01)
        assert "of 10.0 s" in reader.recording.describe_length()
        for _ in range(2):
            assert np.array_equal(reader.read(2, 4, rate_hz=16000), whole[32000:64000])
            rest = reader.read(5, 7, rate_hz=16000)
            if (
                format_name != "mp3"
            ):  # the last block of a cut MP3 file decodes otherwise
                assert np.array_equal(rest, whole[80000:frames])
            assert len(reader.read(0, 10, rate_hz=16000)) == frames
            with pytest.raises(InputError, match=r"^a: nothing to read .*cut short"):
                reader.read(8, 9, rate_hz=16000)
            assert np.array_equal(reader.read(4, 5, rate_hz=16000), whole[64000:80000])


@pytest.mark.parametrize("format_name", ["ogg", "sph"])
def test_a_truncated_ogg_or_sphere_file_is_a_shorter_recording(tmp_path, format_name):
    names = {
        "ogg": ("OGG", "VORBIS"),
        "sph": ("NIST", "PCM_16"),
    }
    path = truncate(
        write_audio(
            tmp_path / "a", noise(16000 * 10)[:, 0], 16000, *names[format_name]
        ),
        0.6,
    )
    with open_recording(path) as reader:
        assert 4.5 < reader.recording.duration_s < 6.1
        assert len(reader.read(1, 4, rate_hz=16000)) == 48000
        with pytest.raises(InputError, match="nothing to read"):
            reader.read(7, 8, rate_hz=16000)


@pytest.mark.parametrize("format_name", ["flac", "ogg", "mp3"])
def test_damage_inside_a_file_is_an_error_and_spans_before_it_are_read(
    tmp_path, format_name
):
    path = write_audio(
        tmp_path / "a", noise(16000 * 20)[:, 0], 16000, format_name.upper()
    )
    with open_recording(path) as reader:
        whole = reader.read(0, 20, rate_hz=16000)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 6000] = np.random.default_rng(0).bytes(6000)
    path.write_bytes(content)
    with open_recording(path) as reader:
        for _ in range(2):
            assert np.array_equal(reader.read(2, 4, rate_hz=16000), whole[32000:64000])
            with pytest.raises(InputError, match="cut short or damaged"):
                reader.read(4, 16, rate_hz=16000)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    format_name=st.sampled_from(["WAV", "FLAC", "AIFF", "AU", "W64", "CAF", "NIST"]),
    changes=st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4
    ),
)
def test_a_damaged_header_raises_only_input_errors(tmp_path, format_name, changes):
    buffer = io.BytesIO()
    soundfile.write(buffer, noise(1000), 16000, format=format_name, subtype="PCM_16")
    content = bytearray(buffer.getvalue())
    for place, value in changes:
        content[place] = value
    (tmp_path / "a").write_bytes(content)
    with suppress(InputError), open_recording(tmp_path / "a") as reader:
        end_s = min(reader.recording.duration_s, 1.0)
        assert np.isfinite(reader.read(0, end_s, rate_hz=16000)).all()
