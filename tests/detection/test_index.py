"""All windows of recordings are embedded once, whatever happens to disks, files and processes."""

import errno
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

import callshot
from callshot import files
from callshot.chunks import read_record
from callshot.corpus.audio import open_recording
from callshot.detection.index import index_recordings as indexing
from callshot.detection.index import windows
from callshot.detection.index.index_files import open_index, read_span, span_paths
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    WindowGrid,
    make_grid,
    read_windows,
)
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder
from callshot.encoders.workers import Workers
from callshot.errors import InputError, OptionError
from callshot.files import LockBusy
from callshot.records import FAILURES
from callshot.study.verify import verify_path
from cluster_jobs import list_files
from killed_runs import kill_self, run_killed
from sounds import record, record_badly

RATE_HZ = 16000
STANDIN_S = 0.5


def read_all(index):
    """Return the rows of each recording."""
    rows: dict[str, list[np.ndarray]] = {}
    for recording in index.recordings:
        for path in span_paths(index.folder, recording):
            part = read_span(path, index.settings)
            rows.setdefault(recording.path, []).append(part)
    return {path: np.concatenate(parts) for path, parts in rows.items()}


def find_faults(folder, **options):
    findings = verify_path(folder, **options)
    return {one.path.name: one.state for one in findings if one.state != "ok"}


def make_recordings(folder, count=3, seconds=3.3):
    for number in range(count):
        record(folder / f"r{number}.wav", seconds, RATE_HZ, seed=number)
    return folder


@pytest.fixture
def small_spans(monkeypatch):
    """Files of 4 windows, in blocks of 2."""
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 4)
    monkeypatch.setattr(windows, "BLOCK_SAMPLES", 2 * 8000)


# Windows


@pytest.mark.parametrize(("window", "hop"), [(4, 4), (4, 3), (5, 1), (7, 2)])
def test_windows_cover_a_recording_to_its_last_sample(window, hop):
    grid = WindowGrid(1, window, hop)
    for samples in range(1, 40):
        starts = grid.find_starts(samples)
        covered = {n for start in starts for n in range(start, start + window)}
        assert covered >= set(range(samples))
        assert len(starts) == len(set(starts.tolist()))
        assert max(starts) + window == max(samples, window)


@pytest.mark.parametrize("speed", [0.3, 7.7])
def test_a_click_is_found_at_its_time_at_every_speed(tmp_path, speed):
    spec = find_encoder("birdnet-v2.4", {"speed": str(speed), "window_s": "0.5"})
    grid = make_grid(spec)
    samples = round(2.4 * grid.window_s * RATE_HZ)  # three windows
    sample_s = max(1 / RATE_HZ, speed / spec.rate_hz)
    found = set()
    for share in (0, 0.2, 0.5, 0.95, 1):
        click = round(share * (samples - 1))
        sound = np.zeros(samples)
        sound[click] = 0.5
        soundfile.write(tmp_path / "a.wav", sound, RATE_HZ, subtype="FLOAT")
        with RecordingAtSpeed(tmp_path / "a.wav", "a.wav", spec, "first") as sound:
            starts = grid.find_starts(sound.samples)
            windows = np.stack(read_windows(sound, starts, grid.window))
        window, sample = np.unravel_index(np.abs(windows).argmax(), windows.shape)
        time_s = grid.to_seconds(starts[window] + sample)
        assert abs(time_s - click / RATE_HZ) <= sample_s
        found.add(int(window))
    assert found >= {0, 2}


def literal_vectors(path, window_s, hop_s, speed, **choices):
    """Return start, end, level and vector of each window: read, sped up and encoded one by one."""
    texts = {"speed": str(speed), **choices}
    encoder = open_encoder(find_encoder("mfcc", texts))
    rows = []
    with open_recording(path) as reader:
        duration_s = reader.recording.duration_s
        start_s = 0.0
        while True:
            is_last = start_s + window_s >= duration_s - 1e-9
            if is_last:
                start_s = max(0.0, duration_s - window_s)
            end_s = min(start_s + window_s, duration_s)
            rate_hz = round(RATE_HZ / speed)
            audio = reader.read(start_s, end_s, rate_hz=rate_hz)
            prepared = encoder.prepare(audio, rate_hz)
            vector = encoder.pool(prepared, encoder.run(prepared.input))
            level = 20 * np.log10(np.sqrt(np.mean(audio.astype(np.float64) ** 2)))
            rows.append((start_s, end_s, level, vector))
            if is_last:
                return rows
            start_s += hop_s


@pytest.mark.parametrize(("speed", "pooling"), [(1, "mean"), (2, "max"), (0.5, "mean")])
def test_vectors_are_those_of_each_window_in_real_seconds(
    tmp_path, small_spans, speed, pooling
):
    record(tmp_path / "a.wav", 7.3, RATE_HZ)
    choices = {"speed": str(speed), "pooling": pooling}
    result = index_recordings(
        tmp_path,
        tmp_path / "index",
        "mfcc",
        encoder_options=choices,
        window_s=1.0,
        hop_s=0.75,
        dtype="float32",
    )
    rows = read_all(result.index)["a.wav"]
    expected = literal_vectors(tmp_path / "a.wav", 1.0, 0.75, speed, pooling=pooling)
    starts, ends, levels, vectors = (
        np.array(one) for one in zip(*expected, strict=True)
    )
    np.testing.assert_allclose(rows["start_s"], starts, atol=1e-9)
    np.testing.assert_allclose(rows["end_s"], ends, atol=1e-9)
    np.testing.assert_allclose(rows["rms_dbfs"], levels, atol=0.02)
    np.testing.assert_allclose(rows["vector"], vectors, rtol=2e-4, atol=5e-3)
    assert rows["end_s"][-1] == 7.3


def test_threads_and_sizes_of_files_do_not_change_the_vectors(tmp_path, monkeypatch):
    record(tmp_path / "a.wav", 10, 22050)

    def index(name, **options):
        options |= {"window_s": 1.0, "hop_s": 0.5}
        out = tmp_path / name
        return index_recordings(tmp_path / "a.wav", out, "mfcc", **options).index

    one = index("one", threads=1)
    two = index("two", threads=3)
    assert list_files(one.folder) == list_files(two.folder)
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 3)
    vectors, others = (
        read_all(made)["a.wav"]["vector"].astype(np.float32)
        for made in (one, index("three"))
    )
    np.testing.assert_allclose(vectors, others, rtol=2e-3, atol=2e-3)


def test_an_index_is_mapped_not_loaded(tmp_path):
    make_recordings(tmp_path, 1)
    index = index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1).index
    (block,) = index.read_blocks()
    owner = block.matrix
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    assert isinstance(owner, np.memmap)
    assert block.matrix.dtype == np.float16
    assert block.encoder == "mfcc"


def test_windows_of_an_encoder_with_a_window_of_its_own(tmp_path, monkeypatch):
    """A stand-in: the mean and the largest value of each window."""
    spec = find_encoder("birdnet-v2.4", {"speed": "2"})

    def open_standin(spec, **_):
        from callshot.encoders.encode import Encoder

        def model(batch):
            vectors = np.zeros((len(batch), spec.dimension), np.float32)
            vectors[:, 0] = batch.mean(axis=1)
            vectors[:, 1] = batch.max(axis=1)
            return vectors

        return Encoder(spec, model, {"encoder": spec.name}, 2)

    monkeypatch.setattr("callshot.encoders.workers.open_encoder", open_standin)
    monkeypatch.setattr(
        indexing, "encoder_fingerprint", lambda spec, _: {"encoder": spec.name}
    )
    record(tmp_path / "a.wav", 20, RATE_HZ)
    index = index_recordings(
        tmp_path, tmp_path / "i", "birdnet-v2.4", encoder_options={"speed": 2}
    ).index
    rows = read_all(index)["a.wav"]
    assert rows["start_s"].tolist() == [0, 6, 12, 14]
    assert rows["end_s"].tolist() == [6, 12, 18, 20]
    with open_recording(tmp_path / "a.wav") as reader:
        audio = reader.read(14, 20, rate_hz=24000)
    assert rows["vector"][-1][1] == pytest.approx(audio.max(), rel=2e-3)
    assert spec.windowing.window_s == 3


# Growing, changing and damaged recordings


def test_new_recordings_extend_an_index_and_changed_ones_replace_windows(tmp_path):
    folder = make_recordings(tmp_path / "audio", 2)
    first = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    before = list_files(tmp_path / "i")
    record(folder / "new.wav", 2.0, RATE_HZ, seed=9)
    second = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert (first.added, second.added) == (["r0.wav", "r1.wav"], ["new.wav"])
    after = list_files(tmp_path / "i")
    assert {name: after[name] for name in before} == before
    record(folder / "r0.wav", 5.0, RATE_HZ, seed=5)
    result = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert result.added == ["r0.wav"]
    assert len(result.index) == 5 + 4 + 2
    assert len(list((tmp_path / "i").rglob("*.npy"))) == 3


def test_a_drive_that_does_not_answer_is_a_reject_and_no_held_lock(
    tmp_path, monkeypatch
):
    first = make_recordings(tmp_path / "first", 1)
    index_recordings(first, tmp_path / "i", "mfcc", window_s=1)
    folder = tmp_path / "second"
    record(folder / "r0.wav", 5.0, RATE_HZ, seed=5)
    record(folder / "r1.wav", 2.0, RATE_HZ, seed=6)
    exists = Path.exists

    def time_out(path, **options):
        if path == first / "r0.wav":
            raise TimeoutError(110, "Connection timed out")
        return exists(path, **options)

    monkeypatch.setattr(Path, "exists", time_out)
    result = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert result.added == ["r1.wav"]
    assert [reject.file for reject in result.rejects] == ["r0.wav"]
    assert "timed out" in result.rejects[0].reason.lower()


def test_a_file_that_grows_while_it_is_read_waits_for_the_next_run(
    tmp_path, monkeypatch
):
    folder = make_recordings(tmp_path / "audio", 2)
    write_span = indexing.write_span

    def grow_and_write(*arguments):
        with (folder / "r0.wav").open("ab") as stream:
            stream.write(bytes(32000))
        monkeypatch.setattr(indexing, "write_span", write_span)
        return write_span(*arguments)

    monkeypatch.setattr(indexing, "write_span", grow_and_write)
    first = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert first.added == ["r1.wav"]
    assert [one.reason for one in first.rejects] == [
        "r0.wav: changed while it was read; index again when it is complete"
    ]
    second = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert second.added == ["r0.wav"]
    assert not second.rejects


def test_corrupt_files_are_rejects_and_the_rest_goes_on(tmp_path):
    folder = make_recordings(tmp_path / "audio", 1)
    bad = [f"{kind}.wav" for kind in ("empty", "nan", "text", "zero")]
    for name in bad:
        record_badly(folder / name, name.removesuffix(".wav"))
    result = index_recordings(folder, tmp_path / "i", "mfcc", window_s=0.5)
    assert result.added == ["r0.wav"]
    assert sorted(one.file for one in result.rejects) == bad
    for one in result.rejects:
        assert one.reason.startswith(f"{one.file}: ")
    text = (tmp_path / "i" / "rejects.csv").read_text()
    assert sorted(line.split(",")[0] for line in text.splitlines()[1:]) == bad


# Crashes


def index_and_die(audio, out, moment):
    """Index recordings in small files, and die before the call with this number."""
    numbers = itertools.count(1)

    def count_calls(function):
        def run(*arguments):
            if next(numbers) == moment:
                kill_self()
            return function(*arguments)

        return run

    indexing.SPAN_WINDOWS = 4
    windows.BLOCK_SAMPLES = 2 * 8000
    for module, name in (
        (files, "sync_file"),
        (files, "sync_folder"),
        (windows, "read_windows"),
        (indexing, "write_indexed"),
    ):
        setattr(module, name, count_calls(getattr(module, name)))
    index_recordings(audio, out, "mfcc", window_s=0.5, threads=1)


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    return make_recordings(tmp_path_factory.mktemp("audio"))


@pytest.mark.parametrize("moment", [8, 21])  # bench/index.py tries more
def test_a_killed_run_leaves_an_index_that_the_next_run_completes(
    tmp_path, audio, small_spans, moment
):
    index_recordings(audio, tmp_path / "whole", "mfcc", window_s=0.5)
    expected = list_files(tmp_path / "whole")
    out = tmp_path / "killed"
    run_killed(index_and_die, audio, out, moment)
    assert list_files(out) != expected
    index_recordings(audio, out, "mfcc", window_s=0.5)
    assert list_files(out) == expected
    assert find_faults(out) == {}


def test_finished_files_are_not_made_again(tmp_path, audio, small_spans, monkeypatch):
    out = tmp_path / "i"
    index_recordings(audio, out, "mfcc", window_s=0.5)
    for path in out.rglob("recording.json"):
        path.unlink()
    monkeypatch.setattr(windows, "read_windows", None)  # would fail
    result = index_recordings(audio, out, "mfcc", window_s=0.5)
    assert len(result.added) == 3


def test_no_space_for_windows_keeps_what_was_written(tmp_path, audio, monkeypatch):
    sync = files.sync_file
    written = []

    def fail_later(path):
        written.append(path)
        if len(written) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(path)

    monkeypatch.setattr(files, "sync_file", fail_later)
    with pytest.raises(callshot.CallshotError, match=r"No space left.*run again"):
        index_recordings(audio, tmp_path / "i", "mfcc", window_s=0.5)
    assert len(open_index(tmp_path / "i").recordings) == 1
    result = index_recordings(audio, tmp_path / "i", "mfcc", window_s=0.5)
    assert result.added == ["r1.wav", "r2.wav"]


def test_two_processes_share_the_recordings_of_one_index(tmp_path):
    folder = make_recordings(tmp_path / "audio", 5, 0.6)
    script = (
        "import sys; from callshot import index_recordings;"
        "print(*index_recordings(sys.argv[1], sys.argv[2], 'mfcc', window_s=0.1,"
        " hop_s=0.01, threads=1).added)"
    )
    command = [sys.executable, "-c", script, str(folder), str(tmp_path / "i")]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    added = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    names = sorted(path.name for path in folder.iterdir())
    assert sorted([*added[0], *added[1]]) == names
    index_recordings(folder, tmp_path / "alone", "mfcc", window_s=0.1, hop_s=0.01)
    assert list_files(tmp_path / "i") == list_files(tmp_path / "alone")


def test_a_recording_that_another_process_has_is_waited_for(tmp_path, monkeypatch):
    folder = make_recordings(tmp_path / "audio", 2)
    waits = []
    hold_lock = indexing.hold_lock

    def hold_first_later(path, *, timeout_s=-1.0):
        waits.append(timeout_s)
        if waits.count(0.0) == 1 and timeout_s == 0.0:
            raise LockBusy
        return hold_lock(path, timeout_s=timeout_s)

    monkeypatch.setattr(indexing, "hold_lock", hold_first_later)
    result = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
    assert waits.count(0.0) == 3  # the first recording is tried again after the second
    assert result.added == ["r0.wav", "r1.wav"]


# Verification


def flip(path):
    content = bytearray(path.read_bytes())
    content[-30] ^= 4
    path.write_bytes(content)


def test_damage_is_found_set_aside_and_made_again(tmp_path, audio):
    out = tmp_path / "i"
    index = index_recordings(audio, out, "mfcc", window_s=0.5).index
    expected = list_files(out)
    (out / "other.txt").write_text("mine")
    assert find_faults(out) == {"other.txt": "not from callshot"}
    span = next(out.rglob("*.npy"))
    flip(span)
    flip(next(out.rglob("recording.json")))
    assert find_faults(out)[span.name] == "damaged"
    with pytest.raises(InputError, match="differs from the checksum in its name"):
        list(index.read_blocks())
    (reject,) = open_index(out).rejects
    assert "callshot verify --repair" in reject.reason
    states = find_faults(out, repair=True)
    assert states[span.name] == states["recording.json"] == "damaged"
    index_recordings(audio, out, "mfcc", window_s=0.5)
    assert not set(find_faults(out).values()) & set(FAILURES)
    after = list_files(out)
    assert {name: after[name] for name in expected} == expected
    assert (out / "other.txt").read_text() == "mine"


def test_missing_and_changed_files_of_an_index_are_named(tmp_path, audio):
    out = tmp_path / "i"
    index_recordings(audio, out, "mfcc", window_s=0.5)
    span = next(out.rglob("*.npy"))
    span.unlink()
    assert find_faults(out) == {span.name: "missing"}
    assert len(index_recordings(audio, out, "mfcc", window_s=0.5).added) == 1
    # An entry that was changed, though it can be read
    path = next(out.rglob("recording.json"))
    text = path.read_text()
    path.write_text(text.replace('"duration_s": 3.3', '"duration_s": 4.3', 1))
    assert find_faults(out) == {"recording.json": "damaged"}
    (reject,) = open_index(out).rejects
    assert "differs from its checksum" in reject.reason
    path.write_text(text)
    # Names cannot lead outside
    outside = {"spans": ["../../../etc/passwd"]}
    indexing.write_record(path, read_record(path, "") | outside)
    (reject,) = open_index(out).rejects
    assert "expected names of files of windows" in reject.reason
    settings = (out / "index.json").read_text()
    (out / "index.json").write_text(settings.replace("16", "32", 1))
    assert find_faults(out)["index.json"] == "damaged"
    with pytest.raises(InputError, match="differs from its checksum"):
        open_index(out)
    with pytest.raises(InputError, match=r"index\.json: .*in another folder"):
        index_recordings(audio, out, "mfcc", window_s=0.5)


# Bad input


def test_a_short_recording_and_a_low_rate_are_noted(tmp_path):
    record(tmp_path / "short.wav", 0.4, RATE_HZ)
    record(tmp_path / "low.wav", 3.0, 8000)
    result = index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1)
    assert result.notes == [
        "low.wav: at 8000 Hz it has nothing above 4000 Hz, and mfcc uses 100 to 8000 Hz",
        "short.wav: shorter than the window of 1 s; used whole",
    ]
    rows = read_all(result.index)["short.wav"]
    assert (rows["start_s"].tolist(), rows["end_s"].tolist()) == ([0.0], [0.4])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "window: mfcc has no window of its own; .*--window 2"),
        ({"window_s": 0}, "window: expected 6.25e-05 to 86400 s"),
        ({"window_s": 1, "hop_s": 2}, "hop: expected 0.01 to 1 s"),
        (
            {"window_s": 1, "hop_s": 0.001},
            "hop: expected 0.01 to 1 s, a hundredth of the",
        ),
        ({"window_s": 1, "dtype": "int8"}, "dtype: expected one of float16, float32"),
        ({"window_s": 1, "channel": "left"}, "channel"),
        (
            {"window_s": 1, "encoder_options": {"speed": "auto"}},
            "speed=auto .*give a number",
        ),
        (
            {"window_s": 1, "encoder_options": {"speed": "1+2"}},
            "expected one encoder at one",
        ),
        (
            {"encoder": "birdnet-v2.4[speed=2]", "window_s": 2},
            r"birdnet-v2\.4 has windows of 6 s; remove --window",
        ),
    ],
)
def test_bad_options_are_one_line(tmp_path, options, message):
    record(tmp_path / "a.wav", 1, RATE_HZ)
    with pytest.raises(OptionError, match=message):
        index_recordings(tmp_path, tmp_path / "i", **{"encoder": "mfcc"} | options)
    assert not (tmp_path / "i").exists()


def test_an_index_of_another_encoder_is_left_alone(tmp_path):
    record(tmp_path / "a.wav", 2, RATE_HZ)
    index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1)
    before = list_files(tmp_path / "i")
    for encoder, options, message in (
        ("random", {}, "is an index of mfcc, not of random .they differ in .*encoder"),
        ("mfcc[speed=2]", {}, r"of mfcc, not of mfcc\[speed=2\]"),
        ("mfcc", {"hop_s": 0.5}, "differ in hop_s: 1.0 there, 0.5 here.; name another"),
        ("mfcc", {"dtype": "float32"}, "dtype: float16 there, float32 here"),
    ):
        with pytest.raises(InputError, match=message):
            index_recordings(tmp_path, tmp_path / "i", encoder, window_s=1, **options)
        assert list_files(tmp_path / "i") == before


def test_two_recordings_of_one_name_are_not_mixed(tmp_path):
    record(tmp_path / "site1" / "a.wav", 2, RATE_HZ)
    record(tmp_path / "site2" / "a.wav", 3, RATE_HZ)
    index_recordings(tmp_path / "site1", tmp_path / "i", "mfcc", window_s=1)
    result = index_recordings(tmp_path / "site2", tmp_path / "i", "mfcc", window_s=1)
    assert result.added == []
    assert "another recording of this name, from" in result.rejects[0].reason


def test_folders_without_an_index_or_readable_recordings_are_errors(tmp_path):
    with pytest.raises(InputError, match="no recordings in this folder"):
        index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1)
    with pytest.raises(InputError, match="expected an index, made by callshot index"):
        open_index(tmp_path)
    record_badly(tmp_path / "bad.wav", "text")
    with pytest.raises(InputError, match=r"no recording could be indexed .the first"):
        index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1)
    for text in ("[]", "1", "null", "{}", "{", '"sha256"'):
        (tmp_path / "index.json").write_text(text)
        with pytest.raises(InputError, match=r"index\.json: not a file of callshot"):
            open_index(tmp_path)


def test_vectors_too_large_for_float16_are_an_error(tmp_path, monkeypatch):
    record(tmp_path / "a.wav", 2, RATE_HZ)
    submit_windows = Workers.submit_windows

    def enlarge(self, windows):
        vectors = submit_windows(self, windows)
        return lambda: vectors() * 1e6

    monkeypatch.setattr(Workers, "submit_windows", enlarge)
    with pytest.raises(InputError, match=r"too large for float16; .*--dtype float32"):
        index_recordings(tmp_path, tmp_path / "i", "mfcc", window_s=1)


def test_a_band_cuts_what_lies_outside_it_in_every_block(tmp_path, small_spans):
    record(tmp_path / "a.wav", 3.37, RATE_HZ)
    options = {"window_s": 1.0, "hop_s": 0.5, "dtype": "float32"}
    plain = index_recordings(tmp_path, tmp_path / "plain", "mfcc", **options)
    cut = index_recordings(
        tmp_path,
        tmp_path / "cut",
        "mfcc",
        encoder_options={"band": "0-1000"},
        **options,
    )
    levels = read_all(cut.index)["a.wav"]["rms_dbfs"]
    loss = read_all(plain.index)["a.wav"]["rms_dbfs"] - levels
    assert np.all(np.abs(loss - 9.03) < 0.6)  # an eighth of the band is left


def test_a_recording_that_changed_is_the_same_one_under_another_spelling(tmp_path):
    site = tmp_path / "site"
    (tmp_path / "other").mkdir()
    for seconds, folder in ((2, site), (3, tmp_path / "other" / ".." / "site")):
        record(site / "a.wav", seconds, RATE_HZ)
        result = index_recordings(folder, tmp_path / "i", "mfcc", window_s=1)
        assert (result.added, result.rejects) == (["a.wav"], [])
