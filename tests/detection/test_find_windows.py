"""The windows nearest to one sound are found, ranked, and few per recording."""

import math
import shutil
from collections import Counter

import numpy as np
import polars as pl
import pytest
import soundfile as sf

import callshot
from callshot.chunks import write_record
from callshot.detection.index.find_windows import (
    choose_apart,
    embed_example,
    find_windows,
    parse_example,
)
from callshot.detection.index.index_files import span_paths
from callshot.errors import InputError, OptionError
from sounds import record
from test_cli import run

RATE_HZ = 16000


def add_tone(signal, start_s, end_s, frequency_hz):
    span = slice(round(start_s * RATE_HZ), round(end_s * RATE_HZ))
    time_s = np.arange(span.stop - span.start) / RATE_HZ
    signal[span] += 0.5 * np.sin(2 * np.pi * frequency_hz * time_s)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Noise with low and high tones at known times, and an index of it."""
    folder = tmp_path_factory.mktemp("tones")
    random = np.random.default_rng(0)
    low_s = {"20260314_053000.wav": [4, 12], "b.wav": [9]}
    for name, starts in low_s.items():
        signal = random.normal(0, 0.01, 20 * RATE_HZ)
        for start_s in starts:
            add_tone(signal, start_s, start_s + 1, 500)
        add_tone(signal, 16, 17, 3000)
        sf.write(folder / name, signal, RATE_HZ)
    callshot.index_recordings(
        folder, folder / "index", "mfcc", window_s=1, hop_s=0.5, dtype="float32"
    )
    return folder


def test_the_same_sound_is_found_everywhere(folder):
    found = find_windows(f"{folder}/b.wav@9-10", folder / "index", count=3).windows
    places = list(found.select("recording", "start_s").iter_rows())
    assert places[0] == ("b.wav", 9.0)
    assert set(places) == {
        ("b.wav", 9.0),
        ("20260314_053000.wav", 4.0),
        ("20260314_053000.wav", 12.0),
    }
    assert found["rank"].to_list() == [1, 2, 3]
    assert found["distance"].is_sorted()
    clocks = found.filter(pl.col("start_s") == 12)["clock"].to_list()
    assert clocks == ["2026-03-14T05:30:12.000"]


def test_all_windows_of_one_recording_are_found_and_the_index_inside_a_folder(folder):
    found = find_windows(f"{folder}/b.wav@9-10", folder, count=9).windows
    assert len(found) == 9
    assert max(Counter(found["recording"]).values()) > 3
    few = find_windows(f"{folder}/b.wav@9-10", folder, count=9, per_recording=2).windows
    assert max(Counter(few["recording"]).values()) == 2


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_distances_are_those_of_each_window(folder, distance):
    index = callshot.open_index(folder / "index")
    found = find_windows(
        f"{folder}/b.wav@16.2-16.7", index, count=5, per_recording=2, distance=distance
    ).windows
    query = embed_example(f"{folder}/b.wav@16.2-16.7", index)
    literal = {}
    for block in index.read_blocks():
        for start_s, row in zip(block.spans["start_s"], block.matrix, strict=True):
            vector = row.astype(np.float64)
            value = np.sqrt(sum((vector - query) ** 2))
            if distance == "cosine":
                lengths = np.sqrt(sum(vector**2)) * np.sqrt(
                    sum(query.astype(float) ** 2)
                )
                value = 1 - sum(vector * query) / lengths
            literal[block.recording[0], start_s] = value
    assert len(found) == 4  # two per recording
    for recording, start_s, value in found.select(
        "recording", "start_s", "distance"
    ).iter_rows():
        assert value == pytest.approx(literal[recording, start_s], rel=1e-4, abs=1e-6)
    assert found["distance"][0] == pytest.approx(
        min(literal.values()), rel=1e-4, abs=1e-6
    )


def test_windows_that_overlap_a_nearer_one_are_left_out():
    random = np.random.default_rng(1)
    for _ in range(50):
        start_s = np.arange(30) * 0.5
        distances = random.permutation(30).astype(float)
        chosen = choose_apart(distances, start_s, start_s + 1, 4)
        expected = []
        for row in sorted(range(30), key=lambda row: distances[row]):
            apart = all(abs(start_s[row] - start_s[one]) >= 1 for one in expected)
            if apart and len(expected) < 4:
                expected.append(row)
        assert chosen.tolist() == expected


def test_a_short_example_has_its_context_and_a_long_one_is_the_mean(folder):
    index = callshot.open_index(folder / "index")
    path = folder / "b.wav"
    centre = embed_example(f"{path}@9.4-9.6", index)
    whole = embed_example(f"{path}@9.0-10.0", index)
    np.testing.assert_array_equal(centre, whole)
    block = next(index.read_recording(index.recordings[1]))
    long = embed_example(f"{path}@2.0-4.0", index)
    np.testing.assert_allclose(
        long, block.matrix[4:7].mean(axis=0), rtol=1e-3, atol=0.02
    )
    at_the_end = embed_example(f"{path}@19.9-20.0", index)
    np.testing.assert_allclose(at_the_end, block.matrix[-1], rtol=1e-3, atol=0.02)


def test_a_file_name_with_an_at_sign_is_a_file(tmp_path):
    path = record(tmp_path / "a.wav@1-2", 1.0, RATE_HZ, format="WAV")
    assert parse_example(str(path)) == (path, 0.0, math.inf)


@pytest.mark.parametrize(
    ("example", "options", "error", "message"),
    [
        ("absent.wav", {}, InputError, "absent.wav: cannot be opened"),
        ("b.wav@30-31", {}, InputError, "expected a span inside its 20.000 s"),
        ("b.wav@5-4", {}, InputError, "expected a span inside"),
        ("b.wav", {"count": 0}, OptionError, "count: expected 1 or more"),
        ("b.wav", {"distance": "cos"}, OptionError, "did you mean cosine"),
    ],
)
def test_bad_input_is_one_line(folder, example, options, error, message):
    with pytest.raises(error, match=message):
        find_windows(f"{folder}/{example}", folder / "index", **options)


def test_a_damaged_file_of_windows_is_a_reject_and_the_search_goes_on(folder, tmp_path):
    out = shutil.copytree(folder / "index", tmp_path / "index")
    index = callshot.open_index(out)
    damage(span_paths(out, index.recordings[0])[0])
    found = find_windows(f"{folder}/b.wav@9-10", out)
    assert found.windows["recording"].unique().to_list() == ["b.wav"]
    assert [reject.file for reject in found.rejects] == ["20260314_053000.wav"]
    assert "differs from the checksum" in found.rejects[0].reason
    damage(span_paths(out, index.recordings[1])[0])
    with pytest.raises(InputError, match="differs from the checksum"):
        find_windows(f"{folder}/b.wav@9-10", out)


def test_a_damaged_entry_of_a_recording_is_a_reject(folder, tmp_path, capsys):
    out = shutil.copytree(folder / "index", tmp_path / "index")
    entry = span_paths(out, callshot.open_index(out).recordings[0])[0].parent
    damage(entry / "recording.json")
    assert "1 recording, 1 damaged" in repr(callshot.open_index(out))
    found = find_windows(f"{folder}/b.wav@9-10", out)
    assert found.windows["recording"].unique().to_list() == ["b.wav"]
    assert found.rejects[0].file == f"recordings/{entry.name}/recording.json"
    run("find", f"{folder}/b.wav@9-10", out, "--count", 1)
    assert capsys.readouterr().err.startswith("left out: 1 recording (1: ")


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_a_silent_example_is_one_line(folder, tmp_path):
    sf.write(tmp_path / "silent.wav", np.zeros(32000), 16000)
    with pytest.raises(InputError, match="the example is silent"):
        callshot.find_windows(tmp_path / "silent.wav", folder / "index")


def test_an_index_of_another_version_of_the_encoder_is_refused(folder, tmp_path):
    record(tmp_path / "a.wav", 2, RATE_HZ)
    index = callshot.index_recordings(
        tmp_path, tmp_path / "i", "mfcc", window_s=1
    ).index
    settings = dict(vars(index.settings))
    settings["fingerprint"] = {**index.settings.fingerprint, "version": 99}
    write_record(tmp_path / "i" / "index.json", settings)
    with pytest.raises(InputError, match="made with another version of mfcc"):
        find_windows(tmp_path / "a.wav", tmp_path / "i")


def test_the_command_shows_a_table_and_writes_csv(folder, tmp_path, capsys):
    out = tmp_path / "found.csv"
    run("find", f"{folder}/b.wav@9-10", folder / "index", "--count", 2, "-o", out)
    shown = capsys.readouterr().out.splitlines()[1]
    assert shown.split()[:4] == ["1", "b.wav", "9.00", "10.00"]
    assert pl.read_csv(out)["start_s"].to_list()[0] == 9.0
