"""Spans of recordings: against whole files, librosa and a literal twin, in every format, and what is refused."""

import io
import math
import os
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callshot.corpus import audio
from callshot.corpus.audio import (
    SUFFIXES,
    load_audio,
    normalise_peak,
    open_recording,
    probe,
    read_segment,
)
from callshot.corpus.options import check_channel_rule
from callshot.errors import InputError, OptionError
from callshot.records import Segment

Signal = NDArray[np.float32]

RATES_HZ = (8000, 11025, 22050, 32000, 44100, 48000, 96000, 192000, 250000, 384000)
LAST_BIT = 6e-8  # of a float32 between 0.5 and 1
FORMATS = [
    *(
        ("wav", "WAV", subtype)
        for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")
    ),
    *(
        (suffix, suffix.upper(), "PCM_16")
        for suffix in ("rf64", "w64", "flac", "aiff", "au", "caf")
    ),
    ("wav", "WAVEX", "PCM_24"),
    ("flac", "FLAC", "PCM_24"),
    ("sph", "NIST", "PCM_16"),
    ("ogg", "OGG", "VORBIS"),
    ("opus", "OGG", "OPUS"),
    ("mp3", "MP3", "MPEG_LAYER_III"),
]
LOSSY = ("VORBIS", "OPUS", "MPEG_LAYER_III")


def noise(frames: int, channels: int = 1, seed: int = 0) -> Signal:
    return np.random.default_rng(seed).uniform(-0.7, 0.7, (frames, channels)).astype(np.float32)


def write(
    path: Path,
    signal: Signal,
    rate_hz: int = 16000,
    form: str | None = None,
    subtype: str | None = None,
) -> Path:
    """Write in blocks: libsndfile's Vorbis encoder dies of a long one."""
    channels = 1 if signal.ndim == 1 else signal.shape[1]
    with soundfile.SoundFile(path, "w", rate_hz, channels, subtype, format=form) as file:
        for start in range(0, len(signal), 5000):
            file.write(signal[start : start + 5000])
    return path


def float_wav(path: Path, signal: Signal, rate_hz: int = 16000) -> Path:
    return write(path, signal, rate_hz, "WAV", "FLOAT")


def cut(path: Path, share: float) -> Path:
    """Cut a file short."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return path


def literal(
    path: Path, start_s: float, end_s: float, rate_hz: int, rule: str, source_rate_hz: float | None
) -> Signal:
    """Read the whole file, reduce it, resample all of it with silence behind it, and cut."""
    whole, header_hz = soundfile.read(path, dtype="float32", always_2d=True)
    source_hz = header_hz if source_rate_hz is None else source_rate_hz
    if rule == "mean":
        mono = np.array([np.float32(sum(map(float, frame)) / len(frame)) for frame in whole])
    else:
        mono = np.ascontiguousarray(whole[:, 0 if rule == "first" else int(rule) - 1])
    if source_hz != rate_hz:
        mono = soxr.resample(np.append(mono, np.zeros(2000, np.float32)), source_hz, rate_hz, "VHQ")
    length = math.ceil(len(whole) * rate_hz / source_hz)
    return mono[max(0, round(start_s * rate_hz)) : min(length, round(end_s * rate_hz))]


def segment(path: str, start_s: float, end_s: float, **other: object) -> Segment:
    plain = Segment("s", path, path, start_s, end_s, 0.0, "call", ("call",), 16000, "first", None)
    return replace(plain, **other)  # type: ignore[arg-type]


def read_all(root: Path, segments: list[Segment], **options: int) -> list[Signal | InputError]:
    found = list(load_audio(root, segments, **options))
    assert [index for index, _ in found] == list(range(len(segments)))
    return [signal for _, signal in found]


def same(one: Iterable[object], two: Iterable[object]) -> bool:
    return all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else str(a) == str(b)
        for a, b in zip(one, two, strict=True)
    )


# What a header says


def test_a_probe_says_what_the_header_says(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", noise(1000, 2), 44100)
    found = probe(path, "sub/a.flac")
    assert (found.path, found.frames, found.rate_hz, found.channels) == (
        "sub/a.flac",
        1000,
        44100.0,
        2,
    )
    assert found.kind == "FLAC PCM_16"
    assert probe(path).path == path.as_posix()


def test_a_source_rate_replaces_the_one_in_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", noise(44100), 44100)
    assert probe(path, None, 441000.0).duration_s == pytest.approx(0.1)
    with open_recording(path, None, 441000.0) as reader:
        slow = reader.read(0.02, 0.07, rate_hz=44100)
    assert np.abs(slow - literal(path, 0.02, 0.07, 44100, "first", 441000.0)).max() <= LAST_BIT


def test_suffixes_are_lower_case_with_a_dot() -> None:
    assert {".wav", ".flac", ".ogg", ".mp3", ".aiff", ".sph", ".rf64"} <= SUFFIXES
    assert all(suffix.startswith(".") and suffix == suffix.lower() for suffix in SUFFIXES)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", r"empty \(0 bytes\)"),
        (b"no audio " * 99, "libsndfile cannot read it as audio: Format not recognised$"),
    ],
)
def test_a_file_that_is_no_audio_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(InputError, match=match):
        probe(tmp_path / "a.wav")


def test_what_is_not_a_file_is_refused(tmp_path: Path) -> None:
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
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.wav")
    with pytest.raises(InputError, match="got a folder, pipe or device"):
        probe(tmp_path / "a.wav")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read every file"
)
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", noise(10)).chmod(0)
    with pytest.raises(InputError, match="Permission denied"):
        probe(tmp_path / "a.wav")


def test_a_recording_without_frames_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="0 frames"):
        probe(float_wav(tmp_path / "a.wav", noise(0)))


def test_an_impossible_rate_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got 1 Hz in its header"):
        probe(write(tmp_path / "a.wav", noise(10), 1))
    for rate_hz in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="as source rate"):
            probe(write(tmp_path / "a.wav", noise(10)), None, rate_hz)


def test_names_that_are_no_unicode_can_be_read(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.wav"))
    try:
        path.write_bytes(write(tmp_path / "a.wav", noise(10)).read_bytes())
    except (OSError, UnicodeError):
        pytest.skip("this file system takes no such names")
    assert probe(path).frames == 10


def test_the_length_of_a_flac_stream_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.flac", noise(200_000))
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


def test_a_wav_stream_without_a_length_is_not_cut_short(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", noise(16000))
    content = path.read_bytes()
    size = content.index(b"data") + 4
    path.write_bytes(content[:size] + struct.pack("<I", 0xFFFFFFFF) + content[size + 4 :])
    with open_recording(path) as reader:
        assert len(reader.read(0.5, 9, rate_hz=16000)) == 8000


# Samples


@pytest.mark.parametrize(("suffix", "form", "subtype"), FORMATS)
def test_any_span_of_any_format_is_that_of_the_whole_file(
    tmp_path: Path, suffix: str, form: str, subtype: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Random order, so that forward reading starts again; nothing is written on the terminal, not even by libraries."""
    signal = noise(16000 * 6, 2)
    path = write(tmp_path / f"a.{suffix}", signal, 16000, form, subtype)
    with soundfile.SoundFile(path) as file:
        file.seekable = lambda: False  # or soundfile seeks
        whole = file.read(len(signal), dtype="float32", always_2d=True)[:, 1]
    assert len(whole) == len(signal)
    if subtype not in LOSSY:
        assert np.abs(whole - signal[:, 1]).max() <= (1 / 128 if subtype == "PCM_U8" else 1 / 32768)
    with open_recording(path) as reader:
        for start in np.random.default_rng(0).integers(0, 16000 * 5, 40).tolist():
            found = reader.read(start / 16000, start / 16000 + 1, rate_hz=16000, channel_rule="2")
            assert np.array_equal(found, whole[start : start + 16000])
            assert found.dtype == np.float32
    assert capfd.readouterr() == ("", "")


def test_vorbis_blocks_of_both_lengths_are_read_exactly(tmp_path: Path) -> None:
    """A tone that rises through noise has both, and libsndfile's seeks go wrong between them."""
    time_s = np.arange(16000 * 20) / 16000
    tone = (
        0.3 * np.sin(2 * np.pi * 440 * time_s * (1 + time_s / 20)) + 0.2 * noise(len(time_s))[:, 0]
    )
    with open_recording(write(tmp_path / "a.ogg", tone.astype(np.float32))) as reader:
        whole = reader.read(0, 20, rate_hz=16000)
        for start in range(1000, 16000 * 19, 1777):
            span = reader.read(start / 16000, start / 16000 + 0.1, rate_hz=16000)
            assert np.array_equal(span, whole[start : start + 1600])


def test_a_wrong_suffix_does_not_matter(tmp_path: Path) -> None:
    write(tmp_path / "a.flac", noise(100)).rename(tmp_path / "a.wav")
    assert probe(tmp_path / "a.wav").kind == "FLAC PCM_16"


def test_samples_at_the_rate_of_the_file_are_its_own_bits(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(-32768, 32768, 5000).astype(np.int16)
    soundfile.write(tmp_path / "a.wav", numbers, 16000)
    with open_recording(tmp_path / "a.wav") as reader:
        assert np.array_equal(reader.read(0.1, 0.2, rate_hz=16000) * 32768, numbers[1600:3200])


def test_values_beyond_full_scale_survive(tmp_path: Path) -> None:
    path = float_wav(tmp_path / "a.wav", noise(32000) * 100, 32000)
    with open_recording(path) as reader:
        assert np.abs(reader.read(0, 1, rate_hz=32000)).max() > 69
        assert np.abs(reader.read(0, 1, rate_hz=16000)).max() > 50


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_span_equals_that_of_librosa(tmp_path: Path) -> None:
    librosa = pytest.importorskip("librosa")
    path = write(tmp_path / "a.flac", noise(44100 * 4)[:, 0], 44100)
    with open_recording(path) as reader:
        ours = reader.read(1.25, 2.75, rate_hz=44100)
        theirs, _ = librosa.load(path, sr=None, offset=1.25, duration=1.5, res_type="soxr_hq")
        assert np.array_equal(ours, theirs)
        tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(44100) / 44100)
    with open_recording(write(tmp_path / "b.wav", tone.astype(np.float32), 44100)) as reader:
        ours = reader.read(0, 1, rate_hz=16000)
        theirs, _ = librosa.load(tmp_path / "b.wav", sr=16000, res_type="soxr_hq")
        assert np.abs(ours - theirs)[500:-500].max() < 1e-5


# Channels


def test_channels_go_by_their_rule(tmp_path: Path) -> None:
    signal = noise(100, 3)
    with open_recording(float_wav(tmp_path / "a.wav", signal)) as reader:
        for rule, wanted in (("first", signal[:, 0]), ("1", signal[:, 0]), ("3", signal[:, 2])):
            assert np.array_equal(reader.read(0, 1, rate_hz=16000, channel_rule=rule), wanted)
        mean = reader.read(0, 1, rate_hz=16000, channel_rule="mean")
        assert np.array_equal(mean, signal.astype(np.float64).mean(axis=1).astype(np.float32))
        with pytest.raises(InputError, match="expected a channel 4, got 3 channels"):
            reader.read(0, 1, rate_hz=16000, channel_rule="4")


@pytest.mark.parametrize("channels", [1, 2, 3, 7])
def test_the_mean_of_equal_channels_is_that_channel(tmp_path: Path, channels: int) -> None:
    one = noise(1000) * np.float32(1e38)
    with open_recording(float_wav(tmp_path / "a.wav", np.repeat(one, channels, axis=1))) as reader:
        assert np.array_equal(reader.read(0, 1, rate_hz=16000, channel_rule="mean"), one[:, 0])


@pytest.mark.parametrize("rule", ["", "0", "-1", "1.5", "last", "First", "²", "٣", " 1", "000"])
def test_an_unknown_channel_rule_is_refused(rule: str) -> None:
    with pytest.raises(OptionError, match="channel rule: expected"):
        check_channel_rule(rule)


# Rates


@pytest.mark.parametrize("source_hz", RATES_HZ)
def test_a_span_read_alone_is_that_of_the_whole_recording(tmp_path: Path, source_hz: int) -> None:
    path = float_wav(tmp_path / "a.wav", noise(source_hz * 2), source_hz)
    whole = literal(path, 0, 2, 16000, "first", None)
    assert len(whole) == 32000
    with open_recording(path) as reader:
        for start in (0, 1, 100, 639, 640, 5000, 16001, 27999):
            alone = reader.read(start / 16000, (start + 4000) / 16000, rate_hz=16000)
            assert np.abs(alone - whole[start : start + 4000]).max() <= LAST_BIT


@pytest.mark.parametrize(
    ("source_hz", "rate_hz"), [(8000, 16000), (16000, 44100), (44100, 8000), (8000, 192000)]
)
def test_rates_go_up_and_down(tmp_path: Path, source_hz: int, rate_hz: int) -> None:
    path = float_wav(tmp_path / "a.wav", noise(source_hz), source_hz)
    with open_recording(path) as reader:
        for start_s, end_s in ((0.0, 0.1), (0.4371, 0.6), (0.9, 1.5)):
            alone, twin = (
                reader.read(start_s, end_s, rate_hz=rate_hz),
                literal(path, start_s, end_s, rate_hz, "1", None),
            )
            assert alone.shape == twin.shape
            assert np.abs(alone - twin).max() <= LAST_BIT


def test_a_narrower_margin_would_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = float_wav(tmp_path / "a.wav", noise(16000), 8000)
    monkeypatch.setattr(audio, "MARGIN", 64)
    with open_recording(path) as reader:
        alone = reader.read(0.5, 1.5, rate_hz=16000)
    assert np.abs(alone - literal(path, 0.5, 1.5, 16000, "first", None)).max() > 1e-5


@pytest.mark.parametrize("source_hz", [44100.1, 12345.678, 99999.9, 16000.001])
def test_rates_without_a_common_grid_are_off_by_half_a_frame_at_most(
    tmp_path: Path, source_hz: float
) -> None:
    period = 10 * max(1, source_hz / 16000)  # of the tone, in frames
    tone = 0.7 * np.sin(2 * np.pi * np.arange(200_000) / period)
    path = float_wav(tmp_path / "a.wav", tone.astype(np.float32))
    with open_recording(path, None, source_hz) as reader:
        for start_s in (0.5, 1.23, 1.7):
            alone = reader.read(start_s, start_s + 0.2, rate_hz=16000)
            twin = literal(path, start_s, start_s + 0.2, 16000, "first", source_hz)
            assert np.abs(alone - twin).max() < 0.5 * 0.7 * 2 * np.pi / period


def test_the_length_at_another_rate_is_rounded_up(tmp_path: Path) -> None:
    with open_recording(float_wav(tmp_path / "a.wav", noise(44101), 44100)) as reader:
        assert len(reader.read(0, 99, rate_hz=16000)) == 16001


def test_a_tone_keeps_its_time_and_height(tmp_path: Path) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(44100) / 44100)
    with open_recording(float_wav(tmp_path / "a.wav", tone.astype(np.float32), 44100)) as reader:
        found = reader.read(0.3, 0.7, rate_hz=16000)
    wanted = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(4800, 11200) / 16000)
    assert np.abs(found - wanted).max() < 1e-6


def test_a_long_span_is_read_in_blocks_and_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = float_wav(tmp_path / "a.wav", noise(44100, 2), 44100)
    spans = []
    for block in (2**17, 1000, 7):
        monkeypatch.setattr("callshot.corpus.audio_files.BLOCK_FRAMES", block)
        with open_recording(path) as reader:
            spans += [
                [
                    reader.read(0.2, 0.3, rate_hz=rate, channel_rule="mean")
                    for rate in (44100, 16000)
                ]
            ]
    assert same(spans[0], spans[1])
    assert same(spans[0], spans[2])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    frames=st.integers(1, 20000),
    rates=st.tuples(
        st.sampled_from([8000, 11025, 16000, 44100, 48000]), st.sampled_from([8000, 16000, 22050])
    ),
    rule=st.sampled_from(["first", "mean", "2"]),
    span=st.tuples(st.floats(-0.5, 2), st.floats(0, 2)),
    source=st.sampled_from([None, 20000.0, 160000.0]),
)
def test_every_span_is_that_of_the_literal_twin(
    tmp_path: Path,
    frames: int,
    rates: tuple[int, int],
    rule: str,
    span: tuple[float, float],
    source: float | None,
) -> None:
    path = float_wav(tmp_path / "a.wav", noise(frames, 2, frames), rates[0])
    start_s, end_s = span[0], span[0] + span[1]
    twin = literal(path, start_s, max(0, end_s), rates[1], rule, source)
    with open_recording(path, None, source) as reader:
        if len(twin) == 0:
            with pytest.raises(InputError, match=r"nothing to read|ends after it starts"):
                reader.read(start_s, end_s, rate_hz=rates[1], channel_rule=rule)
        else:
            found = reader.read(start_s, end_s, rate_hz=rates[1], channel_rule=rule)
            assert found.shape == twin.shape
            assert np.abs(found - twin).max() <= LAST_BIT


# What is refused


@pytest.mark.parametrize(
    ("start_s", "end_s", "match"),
    [
        (1.0, 2.0, "nothing to read from 1.000 s to 2.000 s.* 1.000 s long"),
        (-2.0, -1.0, "nothing to read"),
        (0.50001, 0.50002, "nothing to read"),
        (0.5, 0.5, "ends after it starts"),
        (0.6, 0.5, "ends after it starts"),
        (math.nan, 1.0, "ends after it starts"),
        (0.0, math.inf, "ends after it starts"),
    ],
)
def test_a_span_without_samples_is_refused(
    tmp_path: Path, start_s: float, end_s: float, match: str
) -> None:
    with (
        open_recording(float_wav(tmp_path / "a.wav", noise(16000)), "a.wav") as reader,
        pytest.raises(InputError, match=rf"^a\.wav: .*{match}"),
    ):
        reader.read(start_s, end_s, rate_hz=16000)


def test_an_impossible_wanted_rate_is_refused(tmp_path: Path) -> None:
    with (
        open_recording(float_wav(tmp_path / "a.wav", noise(16000))) as reader,
        pytest.raises(OptionError, match="rate"),
    ):
        reader.read(0, 1, rate_hz=0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rate_hz", [16000, 8000])
def test_a_sample_that_is_no_number_is_refused_and_others_are_not(
    tmp_path: Path, value: float, rate_hz: int
) -> None:
    signal = noise(48000)
    signal[16000] = value
    with open_recording(float_wav(tmp_path / "a.wav", signal)) as reader:
        with pytest.raises(InputError, match=f"expected finite samples, got {value} at 1.000 s"):
            reader.read(0.5, 1.5, rate_hz=rate_hz)
        assert np.isfinite(reader.read(1.5, 2.5, rate_hz=rate_hz)).all()


@pytest.mark.parametrize("form", ["wav", "flac", "aiff", "au", "w64", "rf64", "mp3"])
def test_a_file_cut_short_is_read_up_to_the_cut(tmp_path: Path, form: str) -> None:
    signal = noise(16000 * 10)[:, 0]
    write(tmp_path / f"a.{form}", signal, 16000, form.upper())
    with open_recording(tmp_path / f"a.{form}") as reader:
        whole = reader.read(0, 10, rate_hz=16000)
    with open_recording(cut(tmp_path / f"a.{form}", 0.6), "a") as reader:
        for _ in range(2):
            assert np.array_equal(reader.read(2, 4, rate_hz=16000), whole[32000:64000])
            for start_s, end_s in ((5.0, 7.0), (8.0, 9.0), (0.0, 10.0)):
                with pytest.raises(
                    InputError,
                    match=r"^a: cannot read .*cut short or damaged after [56]\.\d",
                ):
                    reader.read(start_s, end_s, rate_hz=16000)
            assert np.array_equal(reader.read(4, 5, rate_hz=16000), whole[64000:80000])


@pytest.mark.parametrize("form", ["ogg", "sph", "opus"])
def test_a_file_cut_short_in_a_format_that_hides_it_is_a_shorter_recording(
    tmp_path: Path, form: str
) -> None:
    names = {"ogg": ("OGG", "VORBIS"), "sph": ("NIST", "PCM_16"), "opus": ("OGG", "OPUS")}
    path = cut(write(tmp_path / "a", noise(16000 * 10)[:, 0], 16000, *names[form]), 0.6)
    with open_recording(path) as reader:
        assert 4.5 < reader.recording.duration_s < 6.1
        assert len(reader.read(1, 4, rate_hz=16000)) == 48000
        with pytest.raises(InputError, match="nothing to read"):
            reader.read(7, 8, rate_hz=16000)


@pytest.mark.parametrize("form", ["flac", "ogg", "opus", "mp3"])
def test_damage_inside_a_file_is_found_and_what_is_before_it_still_read(
    tmp_path: Path, form: str
) -> None:
    kind = ("OGG", "OPUS") if form == "opus" else (form.upper(), None)
    path = write(tmp_path / "a", noise(16000 * 20)[:, 0], 16000, *kind)
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
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    form=st.sampled_from(["WAV", "FLAC", "AIFF", "AU", "W64", "CAF", "NIST"]),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_header_raises_nothing_but_our_error(
    tmp_path: Path, form: str, changes: list[tuple[int, int]]
) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, noise(1000), 16000, format=form, subtype="PCM_16")
    content = bytearray(buffer.getvalue())
    for place, value in changes:
        content[place] = value
    (tmp_path / "a").write_bytes(content)
    with suppress(InputError), open_recording(tmp_path / "a") as reader:
        end_s = min(reader.recording.duration_s, 1.0)
        assert np.isfinite(reader.read(0, end_s, rate_hz=16000)).all()


# Levels


def test_the_peak_is_at_the_level() -> None:
    assert np.abs(normalise_peak(noise(100)[:, 0], -3.0)).max() == pytest.approx(0.70795, abs=1e-5)
    assert normalise_peak(np.array([0.5, -2.0], np.float32), 0.0).tolist() == [0.25, -1.0]


@pytest.mark.parametrize("peak", [1e-45, 1e-40, 1.1754944e-38, 1e-30, 1e-6, 1.0, 3e38])
def test_peaks_of_any_size_become_the_level(peak: float) -> None:
    found = normalise_peak(np.array([0, peak, -peak], np.float32), -3.0)
    assert found.dtype == np.float32
    assert found == pytest.approx([0, 10**-0.15, -(10**-0.15)], rel=2e-7)


def test_silence_stays_silence() -> None:
    silence = np.zeros(10, np.float32)
    found = normalise_peak(silence, -3.0)
    assert np.array_equal(found, silence)
    assert found is not silence
    assert len(normalise_peak(silence[:0], -3.0)) == 0


@pytest.mark.parametrize("level", [1.0, -201.0, math.nan, -math.inf])
def test_an_impossible_level_is_refused(level: float) -> None:
    with pytest.raises(OptionError, match="level: expected"):
        normalise_peak(np.ones(1, np.float32), level)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_peak_that_is_no_number_is_refused(value: float) -> None:
    with pytest.raises(InputError, match="finite"):
        normalise_peak(np.array([1, value], np.float32), -3.0)


# Segments


def test_a_segment_has_its_collar_clipped_to_the_recording(tmp_path: Path) -> None:
    signal = noise(32000)
    with open_recording(float_wav(tmp_path / "a.wav", signal)) as reader:
        for start_s, end_s, first, last in (
            (0.1, 1.0, 0, 20000),
            (0.5, 1.0, 4000, 20000),
            (1.0, 1.9, 12000, 32000),
        ):
            found = read_segment(reader, segment("a.wav", start_s, end_s, collar_s=0.25))
            assert np.array_equal(found, signal[first:last, 0])
        loud = read_segment(reader, segment("a.wav", 0, 1, level_dbfs=-6.0))
        assert np.abs(loud).max() == pytest.approx(10**-0.3)


def corpus(root: Path) -> list[Segment]:
    """Return segments of good files of many kinds, and of bad ones."""
    write(root / "a.flac", noise(16000 * 20)[:, 0])
    write(root / "b.wav", noise(44100 * 5, 2), 44100)
    write(root / "c.ogg", noise(16000 * 5)[:, 0])
    write(root / "d.mp3", noise(16000 * 5)[:, 0])
    cut(write(root / "e.flac", noise(16000 * 10)[:, 0]), 0.2)
    (root / "f.wav").write_text("no audio")
    starts = np.random.default_rng(0).uniform(0, 19, 120).tolist()
    segments = [segment("a.flac", start, start + 1.5, level_dbfs=-3.0) for start in starts]
    for name in ("b.wav", "c.ogg", "d.mp3", "e.flac", "f.wav", "gone.wav"):
        segments += [
            segment(name, start / 5, start / 5 + 0.4, channel_rule="mean") for start in starts[:12]
        ]
    bad = [
        segment("b.wav", 9, 10),
        segment("b.wav", 1, 2, channel_rule="9"),
        segment("b.wav", 1, 2, channel_rule="x"),
    ]
    return [
        *segments,
        *bad,
        segment("b.wav", math.nan, 2),
        segment("b.wav", 1, 2, source_rate_hz=88200.0),
    ]


def test_any_number_of_threads_gives_the_same_bits(tmp_path: Path) -> None:
    segments = corpus(tmp_path)
    alone = read_all(tmp_path, segments, threads=1, ahead=1)
    for threads, ahead in ((1, 32), (2, 32), (4, 3), (4, 500)):
        assert same(alone, read_all(tmp_path, segments, threads=threads, ahead=ahead))
    assert same(alone, read_all(tmp_path, segments))


def test_a_bad_segment_is_an_error_in_its_place(tmp_path: Path) -> None:
    segments = corpus(tmp_path)
    assert same(read_all(tmp_path, segments), [read_alone(tmp_path, wanted) for wanted in segments])


def read_alone(root: Path, wanted: Segment) -> Signal | str:
    """Read one segment from a file opened for it, or return what the error says."""
    try:
        with open_recording(root / wanted.path, wanted.path, wanted.source_rate_hz) as reader:
            return read_segment(reader, wanted)
    except (InputError, OptionError) as error:
        return str(error)


def test_every_kind_of_error_is_met(tmp_path: Path) -> None:
    texts = " ".join(
        str(found)
        for found in read_all(tmp_path, corpus(tmp_path))
        if isinstance(found, InputError)
    )
    for text in (
        "cut short",
        "Format not recognised",
        "No such file",
        "nothing to read",
        "a channel 9",
        "channel rule",
    ):
        assert text in texts


def audio_threads() -> int:
    return sum(thread.name.startswith("callshot-audio") for thread in threading.enumerate())


def test_closing_early_stops_the_threads_and_closes_the_files(tmp_path: Path) -> None:
    segments = corpus(tmp_path)
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir())) if descriptors.exists() else 0
    with closing(load_audio(tmp_path, segments, threads=3)) as found:
        assert next(found)[0] == 0
        assert audio_threads() > 0
    assert audio_threads() == 0
    assert before == (len(list(descriptors.iterdir())) if descriptors.exists() else 0)


def test_no_more_is_read_ahead_than_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = corpus(tmp_path)
    count = 0

    def counted(*arguments: object) -> Signal:
        nonlocal count
        count += 1
        return read_segment(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(audio, "read_segment", counted)
    with closing(load_audio(tmp_path, segments, threads=2, ahead=5)) as found:
        next(found)
        time.sleep(0.1)
        assert count <= 6
    count = 0
    monkeypatch.setattr(audio, "MAX_PENDING_SAMPLES", 50_000)
    with closing(load_audio(tmp_path, segments, threads=2, ahead=500)) as found:
        next(found)
        time.sleep(0.1)
        assert count <= 3


def test_a_file_is_opened_once_for_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = corpus(tmp_path)[:50]
    opened = []

    def counted(path: Path, *rest: object) -> audio.Reader:
        opened.append(path)
        return open_recording(path, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(audio, "open_recording", counted)
    read_all(tmp_path, segments, threads=1)
    assert len(opened) == 1


def test_no_segments_are_no_work(tmp_path: Path) -> None:
    assert read_all(tmp_path, []) == []


@pytest.mark.parametrize("options", [{"threads": 0}, {"ahead": 0}])
def test_impossible_numbers_of_threads_are_refused_at_once(
    tmp_path: Path, options: dict[str, int]
) -> None:
    with pytest.raises(OptionError, match="at least 1 thread"):
        load_audio(tmp_path, [], **options)


def test_real_clips_are_read_whole() -> None:
    folder = Path(__file__).parents[2] / "../shared/data"
    clips = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)[:40]
    if not clips:
        pytest.skip("needs the recordings in ../shared/data, which are not here")
    for clip in clips:
        recording = probe(clip)
        with open_recording(clip) as reader:
            found = reader.read(0, recording.duration_s, rate_hz=16000, channel_rule="mean")
        assert len(found) == math.ceil(recording.frames * 16000 / recording.rate_hz)
