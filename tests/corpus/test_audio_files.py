"""Audio files in every format: headers, spans, streams, truncated and damaged files."""

import io
import math
import os
import struct
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.corpus import audio_files
from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.audio import load_audio, open_recording, probe
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus
from callshot.detection.index.index_recordings import index_recordings
from callshot.errors import InputError
from sounds import damage_middle, noise, truncate, write_audio, write_float_wav
from wrong_headers import RATE_HZ, add_tag, set_data_size, write_folder, write_mp3

FORMATS = [
    *(("wav", "WAV", subtype) for subtype in ("PCM_U8", "PCM_24", "FLOAT")),
    *((suffix, suffix.upper(), "PCM_16") for suffix in ("rf64", "flac", "aiff")),
    ("sph", "NIST", "PCM_16"),
    ("ogg", "OGG", "VORBIS"),
    ("opus", "OGG", "OPUS"),
    ("mp3", "MP3", "MPEG_LAYER_III"),
]
LOSSY = ("VORBIS", "OPUS", "MPEG_LAYER_III")


def test_probe_returns_the_header_whatever_the_suffix(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(1000, 2), 44100)
    path = path.rename(tmp_path / "a.wav")
    output = probe(path, "sub/a.wav")
    facts = (output.path, output.frames, output.rate_hz, output.channels, output.kind)
    assert facts == ("sub/a.wav", 1000, 44100.0, 2, "FLAC PCM_16")
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


def test_a_missing_file_a_folder_a_pipe_and_an_impossible_name_are_errors(tmp_path):
    names = {"x.wav": "No such file", "a\0.wav": "embedded null", "a" * 999: "too long"}
    for name, reason in names.items():
        with pytest.raises(InputError, match=f"cannot be opened .*{reason}"):
            probe(tmp_path / name)
    with pytest.raises(InputError, match="got a folder, pipe or device"):
        probe(tmp_path)
    if hasattr(os, "mkfifo"):
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


def test_a_recording_without_frames_or_with_an_impossible_rate_is_an_error(tmp_path):
    with pytest.raises(InputError, match="0 frames"):
        probe(write_float_wav(tmp_path / "a.wav", noise(0)))
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
    whole, _ = soundfile.read(path, dtype="float32")
    content = bytearray(path.read_bytes())
    content[21] &= 0xF0  # the number of samples: 36 bits, 0 if unknown
    content[22:26] = bytes(4)
    path.write_bytes(content)
    assert soundfile.info(path).frames > 2**62
    assert probe(path).frames == 200_000
    with open_recording(path) as reader:
        assert np.array_equal(reader.read(10, 13, rate_hz=16000), whole[160_000:])


def test_a_wav_stream_without_a_length_is_not_truncated(tmp_path):
    path = write_audio(tmp_path / "a.wav", noise(16000))
    content = bytearray(path.read_bytes())
    size = content.index(b"data") + 4
    content[size : size + 4] = struct.pack("<I", 0xFFFFFFFF)
    path.write_bytes(content)
    with open_recording(path) as reader:
        assert len(reader.read(0.5, 9, rate_hz=16000)) == 8000


@pytest.mark.parametrize(("suffix", "format_name", "subtype"), FORMATS)
def test_a_span_equals_that_of_the_whole_file_in_every_format(
    tmp_path, suffix, format_name, subtype, capfd
):
    """Random order makes sequential reading start again; no library prints to the terminal."""
    signal = noise(16000 * 4, 2)
    path = write_audio(tmp_path / f"a.{suffix}", signal, 16000, format_name, subtype)
    with soundfile.SoundFile(path) as file:
        file.seekable = lambda: False  # or soundfile seeks
        whole = file.read(len(signal), dtype="float32", always_2d=True)[:, 1]
    assert len(whole) == len(signal)
    if subtype not in LOSSY:
        step = 1 / 128 if subtype == "PCM_U8" else 1 / 32768
        assert np.abs(whole - signal[:, 1]).max() <= step
    with open_recording(path) as reader:
        read = partial(reader.read, rate_hz=16000, channel_rule="2")
        for start in np.random.default_rng(0).integers(0, 16000 * 3, 8).tolist():
            output = read(start / 16000, start / 16000 + 1)
            assert np.array_equal(output, whole[start : start + 16000])
            assert output.dtype == np.float32
    assert capfd.readouterr() == ("", "")


def test_vorbis_blocks_of_both_lengths_are_read_exactly(tmp_path):
    """A tone that rises through noise has both, and libsndfile's seeks go wrong between them."""
    time_s = np.arange(16000 * 10) / 16000
    tone = 0.3 * np.sin(2 * np.pi * 440 * time_s * (1 + time_s / 10))
    tone += 0.2 * noise(len(time_s))[:, 0]
    path = write_audio(tmp_path / "a.ogg", tone.astype(np.float32))
    with open_recording(path) as reader:
        whole = reader.read(0, 10, rate_hz=16000)
        for start in range(1000, 16000 * 9, 7777):
            span = reader.read(start / 16000, start / 16000 + 0.1, rate_hz=16000)
            assert np.array_equal(span, whole[start : start + 1600])


@pytest.mark.parametrize("suffix", ["wav", "flac", "w64", "mp3", "ogg", "sph"])
def test_a_truncated_file_is_read_up_to_its_end(tmp_path, suffix):
    kind = {"sph": "NIST"}.get(suffix, suffix.upper())
    path = write_audio(tmp_path / "a", noise(16000 * 10)[:, 0], 16000, kind)
    with open_recording(path) as reader:
        whole = reader.read(0, 10, rate_hz=16000)
    with open_recording(truncate(path, 0.6), "a") as reader:
        frames = reader.recording.frames
        assert 4.5 * 16000 < frames <= 6.1 * 16000
        is_known = suffix not in ("ogg", "sph")  # which seem to be shorter files
        if is_known:
            assert reader.recording.announced_s == pytest.approx(10, abs=0.01)
        assert ("of 10.0 s" in reader.recording.describe_length()) == is_known
        for _ in range(2):
            assert np.array_equal(reader.read(2, 4, rate_hz=16000), whole[32000:64000])
            rest = reader.read(4, 7, rate_hz=16000)
            assert len(rest) == frames - 64000
            if suffix not in ("mp3", "ogg"):  # whose last block decodes otherwise
                assert np.array_equal(rest, whole[64000:frames])
            assert len(reader.read(0, 10, rate_hz=16000)) == frames
            with pytest.raises(InputError, match=r"^a: nothing to read"):
                reader.read(8, 9, rate_hz=16000)


@pytest.mark.parametrize("suffix", ["flac", "ogg", "mp3"])
def test_damage_inside_a_file_is_an_error_and_spans_before_it_are_read(
    tmp_path, suffix
):
    signal = noise(16000 * 20)[:, 0]
    path = write_audio(tmp_path / "a", signal, 16000, suffix.upper())
    with open_recording(path) as reader:
        whole = reader.read(0, 20, rate_hz=16000)
    with open_recording(damage_middle(path)) as reader:
        for _ in range(2):
            assert np.array_equal(reader.read(2, 4, rate_hz=16000), whole[32000:64000])
            with pytest.raises(InputError, match="cut short or damaged"):
                reader.read(4, 16, rate_hz=16000)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


NOISE = noise(3000).tobytes()
BIRDS = Path(__file__).parents[2] / "../shared/data/birds"


@pytest.fixture(autouse=True)
def forget_lengths(monkeypatch):
    monkeypatch.setattr(audio_files, "_counted_frames", {})


def decode(path):
    with open_recording(path) as reader:
        rate_hz = round(reader.recording.rate_hz)
        return reader.read(0, reader.recording.duration_s, rate_hz=rate_hz)


def test_an_mp3_file_ends_where_decoding_ends(tmp_path):
    path = add_tag(write_mp3(tmp_path / "a.mp3", noise(RATE_HZ * 20)[:, 0]))
    estimate = soundfile.info(path).frames
    recording = probe(path)
    assert recording.frames < estimate - RATE_HZ / 2
    assert recording.duration_s == pytest.approx(20, abs=0.2)
    assert recording.is_estimate
    assert not recording.describe_length()  # nothing is missing
    assert len(decode(path)) == recording.frames


@pytest.mark.parametrize("is_quiet_first", [True, False])
def test_an_mp3_file_of_variable_bit_rate_is_read_whole(tmp_path, is_quiet_first):
    """The estimate is too long if the first frame is small, too short if it is large."""
    parts = [np.zeros(RATE_HZ * 10, np.float32), noise(RATE_HZ * 2)[:, 0]]
    signal = np.concatenate(parts if is_quiet_first else parts[::-1])
    path = write_mp3(tmp_path / "a.mp3", signal, "VARIABLE")
    estimate = soundfile.info(path).frames
    decoded = decode(path)
    assert (estimate > len(decoded)) == is_quiet_first
    assert abs(len(decoded) - len(signal)) < 0.2 * RATE_HZ
    loud = decoded[-RATE_HZ:] if is_quiet_first else decoded[:RATE_HZ]
    assert loud.std() > 0.1
    with open_recording(path) as reader:
        for start_s in (11.0, 0.0, 10.5):
            first = round(start_s * RATE_HZ)
            span = reader.read(start_s, start_s + 0.5, rate_hz=RATE_HZ)
            assert np.array_equal(span, decoded[first : first + RATE_HZ // 2])


@pytest.mark.parametrize(
    ("absent", "is_estimate"), [(1, True), (2, False)], ids=["frames", "bytes"]
)
def test_an_mp3_header_is_believed_only_if_it_has_the_number_of_frames(
    tmp_path, absent, is_estimate
):
    path = tmp_path / "a.mp3"
    parts = [np.zeros(RATE_HZ * 10, np.float32), noise(RATE_HZ * 2)[:, 0]]
    options = {"format": "MP3", "bitrate_mode": "VARIABLE", "compression_level": 0.5}
    soundfile.write(path, np.concatenate(parts), RATE_HZ, **options)
    content = bytearray(path.read_bytes())
    content[content.index(b"Xing") + 7] &= ~absent  # the flags of what it has
    path.write_bytes(content)
    recording = probe(path)
    assert recording.duration_s == pytest.approx(12, abs=0.2)
    assert recording.is_estimate == is_estimate


def test_a_file_is_decoded_once_to_count_its_frames(tmp_path, monkeypatch):
    path = add_tag(write_mp3(tmp_path / "a.mp3", noise(RATE_HZ * 5)[:, 0]))
    frames = probe(path).frames
    monkeypatch.setattr(audio_files.FrameReader, "_decode", None)
    assert probe(path).frames == frames
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(TypeError):
        probe(path)


def test_a_flac_header_that_announces_too_much_is_noted(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(RATE_HZ * 10)[:, 0])
    content = bytearray(path.read_bytes())
    content[22:26] = b"\xff\xff\xff\xff"  # the number of samples
    path.write_bytes(content)
    recording = probe(path)
    assert recording.frames == RATE_HZ * 10
    assert "used 10.0 of 268435.5 s" in recording.describe_length()
    assert len(decode(path)) == RATE_HZ * 10


@pytest.mark.parametrize(
    ("subtype", "announced_s"), [("PCM_16", 0), ("PCM_24", 10), ("FLOAT", 10)]
)
def test_sound_after_the_length_in_a_wav_header_is_used(tmp_path, subtype, announced_s):
    signal = noise(RATE_HZ * 20)[:, 0]
    path = write_audio(tmp_path / "a.wav", signal, RATE_HZ, "WAV", subtype)
    whole = decode(path)
    width = soundfile.SoundFile(path).subtype
    size = {"PCM_16": 2, "PCM_24": 3, "FLOAT": 4}[width] * RATE_HZ * announced_s
    set_data_size(path, size)
    recording = probe(path)
    assert (recording.frames, recording.announced_s) == (RATE_HZ * 20, announced_s)
    assert "the file has 20.0 s" in recording.describe_length()
    assert np.array_equal(decode(path), whole)
    with open_recording(path) as reader:
        span = reader.read(15, 16, rate_hz=RATE_HZ)
    assert np.array_equal(span, whole[15 * RATE_HZ : 16 * RATE_HZ])


@pytest.mark.parametrize(
    "tail",
    [
        b"LIST" + struct.pack("<I", 9000) + b"INFO" + NOISE[:8996],
        b"LIST" + struct.pack("<I", 90000) + b"INFO" + NOISE,
        b"bext" + struct.pack("<I", 6000) + NOISE[:6000],
        b"junk" + struct.pack("<I", 6000) + bytes(6000),
        b"ID3\4" + NOISE,
        b"TAG" + NOISE,
        bytes(9000),
        NOISE[:400],
    ],
    ids=lambda tail: f"{tail[:4]!r} {len(tail)}",
)
@pytest.mark.parametrize("frames", [RATE_HZ * 2, RATE_HZ * 2 + 1])
def test_what_follows_the_sound_is_not_read_as_sound(tmp_path, tail, frames):
    signal = noise(frames)[:, 0]
    path = write_audio(tmp_path / "a.wav", signal, RATE_HZ, "WAV", "PCM_U8")
    content = path.read_bytes()
    size = content.index(b"data") + 8 + frames
    for padding in (b"\0" * (frames % 2), b""):
        path.write_bytes(content[:size] + padding + tail)
        recording = probe(path)
        assert recording.frames == frames
        assert not recording.describe_length()


def test_a_wav_file_without_sound_is_an_error(tmp_path):
    path = write_audio(tmp_path / "a.wav", noise(0)[:, 0], RATE_HZ, "WAV")
    path.write_bytes(path.read_bytes() + b"LIST\x04\0\0\0INFO" + bytes(8000))
    with pytest.raises(InputError, match="no audio"):
        probe(path)


def test_all_windows_that_can_be_decoded_are_indexed(tmp_path):
    names = write_folder(tmp_path / "audio")
    places = (tmp_path / "audio", tmp_path / "index")
    result = index_recordings(*places, "mfcc", window_s=1)
    assert result.rejects == []
    assert [recording.path for recording in result.index.recordings] == names
    for recording in result.index.recordings:
        assert recording.duration_s > 8
        (block,) = result.index.read_recording(recording)
        assert block.spans["end_s"][-1] == pytest.approx(recording.duration_s, abs=1e-3)
        assert recording.windows == len(block)
    noted = sorted(note.partition(":")[0] for note in result.notes)
    assert noted == ["cut.flac", "cut.mp3", "cut.wav", "short.wav", "zero.wav"]
    assert index_recordings(*places, "mfcc", window_s=1).added == []


def test_a_call_at_the_estimated_end_is_shortened(tmp_path):
    write_folder(tmp_path / "audio")
    table = tmp_path / "calls.csv"
    rows = [f"{name}.mp3,11.0,12.4,roar" for name in ("tag", "variable")]
    table.write_text("recording,start_s,end_s,label\n" + "\n".join(rows))
    result = segment_corpus(tmp_path / "audio", table)
    lengths_s = dict(zip(result.segments.paths, result.segments["end_s"], strict=True))
    for path, end_s in lengths_s.items():
        assert end_s == probe(tmp_path / "audio" / path).duration_s
    assert "tag.mp3" in lengths_s


@pytest.mark.parametrize("suffix", ["flac", "ogg"])
def test_a_recording_with_damage_inside_is_indexed_up_to_it(tmp_path, suffix):
    (tmp_path / "audio").mkdir()
    path = tmp_path / f"audio/a.{suffix}"
    damage_middle(write_audio(path, noise(RATE_HZ * 20)[:, 0]))
    result = index_recordings(
        tmp_path / "audio", tmp_path / "index", "mfcc", window_s=1
    )
    (recording,) = result.index.recordings
    assert 8 < recording.duration_s < 11
    assert recording.windows == sum(map(len, result.index.read_blocks()))
    (note,) = result.notes
    assert "of 20.0 s" in note


def test_a_call_that_reaches_into_damage_is_read_up_to_it_with_a_note(tmp_path):
    damage_middle(write_audio(tmp_path / "a.flac", noise(RATE_HZ * 20)[:, 0]))
    table = tmp_path / "calls.csv"
    spans = [(2, 4), (8, 15), (8.5, 16), (17, 19)]
    rows = [f"a.flac,{start_s},{end_s},roar" for start_s, end_s in spans]
    table.write_text("recording,start_s,end_s,label\n" + "\n".join(rows))
    result = segment_corpus(tmp_path, table)
    assert len([note for note in result.notes if "damaged" in note]) == 1
    lengths_s = [len(audio) / RATE_HZ for _, audio in load_audio(result.segments)]
    assert lengths_s[0] == lengths_s[3] == 2
    assert 1 < lengths_s[1] < 3
    assert lengths_s[2] == pytest.approx(lengths_s[1] - 0.5, abs=1e-3)


def test_a_collar_that_reaches_into_damage_is_noted(tmp_path):
    damage_middle(write_audio(tmp_path / "a.flac", noise(RATE_HZ * 20)[:, 0]))
    table = tmp_path / "calls.csv"

    def segment(start_s, end_s):
        table.write_text(
            f"recording,start_s,end_s,label\na.flac,{start_s},{end_s},roar\n"
        )
        return segment_corpus(tmp_path, table, options=SegmentationOptions(collar_s=1))

    ((_, audio),) = load_audio(segment(8, 15).segments)
    damage_s = 7 + len(audio) / RATE_HZ
    for before_s, notes in ((0.5, 1), (1.5, 0)):
        result = segment(damage_s - 3, damage_s - before_s)
        assert len([note for note in result.notes if "damaged" in note]) == notes


def test_published_field_recordings_are_all_used(tmp_path):
    if not BIRDS.is_dir():
        pytest.skip("needs the recordings in ../shared/data/birds, which are not here")
    files = sorted(BIRDS.glob("*.mp3"))[::15]
    for path in files:
        (tmp_path / path.name).symlink_to(path)
    header, *rows = (BIRDS / "annotations.csv").read_text().splitlines()
    rows = [row for row in rows if any(path.name in row for path in files)]
    (tmp_path / "calls.csv").write_text("\n".join([header, *rows]))
    links = AnnotationOptions(follow_links=True)
    result = segment_corpus(tmp_path, annotation_options=links, check=False)
    assert len(result.recordings) == len(files)
    assert len(result.segments) == len(rows)
    for path in files:
        recording = probe(path)
        with open_recording(path) as reader:
            rate_hz = round(recording.rate_hz)
            end = reader.read(
                recording.duration_s - 1, recording.duration_s + 9, rate_hz=rate_hz
            )
        assert len(end) == rate_hz
