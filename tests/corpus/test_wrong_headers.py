"""Recordings are used as far as they can be decoded, whatever length their header says."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from callshot.corpus import audio_files
from callshot.corpus.audio import load_audio, open_recording, probe
from callshot.corpus.segments import segment_corpus
from callshot.detection.index.index_recordings import index_recordings
from callshot.errors import InputError
from sounds import noise, write_audio
from wrong_headers import RATE_HZ, add_tag, set_data_size, write_folder, write_mp3

BIRDS = Path(__file__).parents[2] / "../shared/data/birds"


@pytest.fixture(autouse=True)
def forget_lengths(monkeypatch):
    monkeypatch.setattr(audio_files, "_counted_frames", {})


def decode(path):
    with open_recording(path) as reader:
        rate_hz = round(reader.recording.rate_hz)
        return reader.read(0, reader.recording.duration_s, rate_hz=rate_hz)


# MP3


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


def test_a_file_is_decoded_once_to_count_its_frames(tmp_path, monkeypatch):
    path = add_tag(write_mp3(tmp_path / "a.mp3", noise(RATE_HZ * 5)[:, 0]))
    frames = probe(path).frames
    monkeypatch.setattr(audio_files.FrameReader, "_decode", None)
    assert probe(path).frames == frames
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(TypeError):
        probe(path)


# FLAC


def test_a_flac_header_that_announces_too_much_is_noted(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(RATE_HZ * 10)[:, 0])
    content = bytearray(path.read_bytes())
    content[22:26] = b"\xff\xff\xff\xff"  # the number of samples
    path.write_bytes(content)
    recording = probe(path)
    assert recording.frames == RATE_HZ * 10
    assert "used 10.0 of 268435.5 s" in recording.describe_length()
    assert len(decode(path)) == RATE_HZ * 10


# WAV


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
        b"LIST" + struct.pack("<I", 9000) + b"INFO" + noise(3000).tobytes()[:8996],
        b"LIST" + struct.pack("<I", 90000) + b"INFO" + noise(3000).tobytes(),
        b"bext" + struct.pack("<I", 6000) + noise(1500).tobytes(),
        b"junk" + struct.pack("<I", 6000) + bytes(6000),
        b"ID3\4" + noise(3000).tobytes(),
        b"TAG" + noise(3000).tobytes(),
        bytes(9000),
        noise(100).tobytes(),
    ],
    ids=lambda tail: f"{tail[:4]!r} {len(tail)}",
)
@pytest.mark.parametrize("frames", [RATE_HZ * 2, RATE_HZ * 2 + 1])
def test_what_follows_the_sound_is_not_read_as_sound(tmp_path, tail, frames):
    path = write_audio(
        tmp_path / "a.wav", noise(frames)[:, 0], RATE_HZ, "WAV", "PCM_U8"
    )
    content = path.read_bytes()
    size = content.index(b"data") + 8 + frames
    path.write_bytes(content[:size])
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


# Every command


def test_all_windows_that_can_be_decoded_are_indexed(tmp_path):
    names = write_folder(tmp_path / "audio")
    result = index_recordings(
        tmp_path / "audio", tmp_path / "index", "mfcc", window_s=1
    )
    assert result.rejects == []
    assert [recording.path for recording in result.index.recordings] == names
    for recording in result.index.recordings:
        assert recording.duration_s > 8
        (block,) = result.index.read_recording(recording)
        assert block.spans["end_s"][-1] == pytest.approx(recording.duration_s, abs=1e-3)
        assert recording.windows == len(block)
    noted = sorted(note.partition(":")[0] for note in result.notes)
    assert noted == ["cut.flac", "cut.mp3", "cut.wav", "short.wav", "zero.wav"]
    again = index_recordings(tmp_path / "audio", tmp_path / "index", "mfcc", window_s=1)
    assert again.added == []


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
    path = write_audio(tmp_path / f"audio/a.{suffix}", noise(RATE_HZ * 20)[:, 0])
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 6000] = np.random.default_rng(0).bytes(6000)
    path.write_bytes(content)
    result = index_recordings(
        tmp_path / "audio", tmp_path / "index", "mfcc", window_s=1, hop_s=0.25
    )
    (recording,) = result.index.recordings
    assert 8 < recording.duration_s < 11
    blocks = result.index.read_blocks()
    assert recording.windows == sum(map(len, blocks))
    assert [note for note in result.notes if "of 20.0 s" in note] == result.notes
    assert len(result.notes) == 1


def test_a_call_that_reaches_into_damage_is_read_up_to_it_with_a_note(tmp_path):
    path = write_audio(tmp_path / "a.flac", noise(RATE_HZ * 20)[:, 0])
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 6000] = np.random.default_rng(0).bytes(6000)
    path.write_bytes(content)
    table = tmp_path / "calls.csv"
    spans = [(2, 4), (8, 15), (8.5, 16), (17, 19)]
    rows = [f"a.flac,{start_s},{end_s},roar" for start_s, end_s in spans]
    table.write_text("recording,start_s,end_s,label\n" + "\n".join(rows))
    result = segment_corpus(tmp_path, table)
    assert len(result.segments) == 4
    assert len([note for note in result.notes if "damaged" in note]) == 1
    loaded = dict(load_audio(result.segments))
    lengths_s = [len(loaded[number]) / RATE_HZ for number in range(4)]
    assert lengths_s[0] == lengths_s[3] == 2
    assert 1 < lengths_s[1] < 3
    assert lengths_s[2] == pytest.approx(lengths_s[1] - 0.5, abs=1e-3)


def test_published_field_recordings_are_all_used(tmp_path):
    if not BIRDS.is_dir():
        pytest.skip("needs the recordings in ../shared/data/birds, which are not here")
    files = sorted(BIRDS.glob("*.mp3"))
    result = segment_corpus(BIRDS, BIRDS / "annotations.csv", check=False)
    assert len(result.recordings) == len(files) == 74
    assert not result.skipped_files
    assert not [reject for reject in result.rejects if "shorter" not in reject.reason]
    for path in files[::5]:
        recording = probe(path)
        with open_recording(path) as reader:
            rate_hz = round(recording.rate_hz)
            end = reader.read(
                recording.duration_s - 1, recording.duration_s + 9, rate_hz=rate_hz
            )
        assert len(end) == rate_hz
