"""Segments are embedded once, kept in the store, and survive crashes, full disks and kills."""

import os
import random
import signal as signals
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial

import numpy as np
import polars as pl
import pytest

from callshot.corpus.audio import load_audio
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import EmbedOptions, embed, embed_spans
from callshot.encoders.encode import Encoder, PreparedSegment, open_encoder
from callshot.encoders.store import Store
from callshot.errors import InputError, OptionError, OutputError
from callshot.study.file_steps import embed_files, segment_files
from rows_of_spans import make_row, make_spans
from sounds import record, record_badly

make_segment = partial(make_row, channel_rule="mean", peak_dbfs=-3.0)


class CountingEncoder:
    """An encoder that counts the calls of its model."""

    def __init__(self, name="mfcc"):
        self.opened = open_encoder(find_encoder(name))
        self.calls = 0

    @property
    def encoder(self):
        def model(signal):
            self.calls += 1
            return self.opened.model(signal)

        return Encoder(self.opened.spec, model, self.opened.fingerprint)


def embed_folder(folder, segments, encoder, store="store"):
    with Store(folder / store, encoder.fingerprint) as opened:
        spans = make_spans(segments, folder)
        keys, rejects = embed_spans(spans, encoder, opened, threads=2)
        return keys, rejects, opened.vectors([key for key in keys if key is not None])


@pytest.fixture
def library(tmp_path):
    for n in range(3):
        record(tmp_path / f"r{n}.wav", seconds=4, rate=16000, seed=n)
    return tmp_path


def test_what_the_store_has_is_not_encoded_again_and_vectors_stay_the_same(library):
    segments = [
        make_segment(f"r{n}.wav", start, start + 1.5)
        for n in range(3)
        for start in (0.0, 1.0, 2.0, 1.0)
    ]
    counting = CountingEncoder()
    embed_folder(library, segments[1::5], counting.encoder)
    first = embed_folder(library, segments, counting.encoder)
    assert counting.calls == 9  # repeated audio once
    again = embed_folder(library, segments[::-1], counting.encoder)
    assert counting.calls == 9
    assert first[0] == again[0][::-1]
    np.testing.assert_array_equal(first[2], again[2][::-1])
    for (_, signal), vector in zip(
        load_audio(make_spans(segments, library)), first[2], strict=True
    ):
        (output,) = counting.opened.encode([PreparedSegment(signal)])
        np.testing.assert_array_equal(vector, output[0])


def test_every_way_of_reading_a_segment_has_its_own_vector(library):
    record(library / "two.wav", seconds=4, rate=16000, channels=2)
    plain = make_segment("two.wav") | {"peak_dbfs": None}
    changes = {"start_s": 0.5, "end_s": 1.5, "collar_s": 0.2, "channel_rule": "2"}
    changes |= {"peak_dbfs": -6.0, "source_rate_hz": 8000.0}
    segments = [plain | {name: value} for name, value in changes.items()]
    # The same samples at another rate
    fast = {"rate_hz": 48000, "source_rate_hz": 48000.0, "end_s": 1 / 3}
    every = [plain, *segments, plain | fast]
    encoder = CountingEncoder("random").encoder
    embed_folder(library, [plain], encoder)  # the store knows it by its source
    keys, _, _ = embed_folder(library, every, encoder)
    assert len(set(keys)) == 8
    assert keys[0].partition("@")[0] == keys[-1].partition("@")[0]


@pytest.mark.parametrize("name", ["mfcc", "birdnet-v2.4"])
def test_a_segment_on_which_the_model_fails_is_a_reject(library, name):
    spec = find_encoder(name)

    def model(items):
        count = 1 if items.ndim == 1 else len(items)
        value = np.nan if (np.abs(items) > 0.9).any() else items.flat[0]
        return np.full((count, spec.dimension), value, np.float32)

    record(library / "loud.wav", seconds=4, rate=16000)
    segments = [
        make_segment(f"r{n % 3}.wav", n / 20, n / 20 + 1) | {"peak_dbfs": -20.0}
        for n in range(20)
    ]
    segments.insert(7, make_segment("loud.wav") | {"peak_dbfs": 0.0})
    keys, rejects, vectors = embed_folder(
        library, segments, Encoder(spec, model, {"encoder": name})
    )
    assert [(reject.file, reject.row) for reject in rejects] == [("loud.wav", 8)]
    assert keys[7] is None
    assert len(vectors) == 20


def test_a_copy_of_known_audio_is_read_only_once(library, monkeypatch):
    (library / "copy.wav").write_bytes((library / "r0.wav").read_bytes())
    encoder = CountingEncoder().encoder
    embed_folder(library, [make_segment("r0.wav")], encoder)
    embed_folder(library, [make_segment("copy.wav")], encoder)

    def fail_to_load(spans, **options):
        assert not spans, "read again"
        return ()

    monkeypatch.setattr("callshot.encoders.embed.load_spans", fail_to_load)
    with Store(library / "store", encoder.fingerprint) as store:
        copy = make_spans([make_segment("copy.wav")], library)
        embed_spans(copy, encoder, store)


def test_a_changed_file_is_encoded_again(library):
    counting = CountingEncoder()
    first = embed_folder(library, [make_segment("r0.wav")], counting.encoder)[0]
    record(library / "r0.wav", seconds=4, rate=16000, seed=9)
    os.utime(library / "r0.wav", ns=(1, 1))
    assert embed_folder(library, [make_segment("r0.wav")], counting.encoder)[0] != first
    assert counting.calls == 2


def make_watched_encoder(before_model):
    """Return an encoder that calls a function with all prepared lengths before its model."""
    prepared = []

    class WatchedEncoder(Encoder):
        def prepare(self, signal, rate_hz):
            prepared.append(len(signal))
            return super().prepare(signal, rate_hz)

    def model(windows):
        before_model(prepared)
        return np.repeat(windows[:, :1], 1024, axis=1)

    return WatchedEncoder(find_encoder("birdnet-v2.4"), model, {"encoder": "watched"})


def embed_many(library, encoder, count=12):
    segments = [make_segment(f"r{n % 3}.wav", n / 10, n / 10 + 1) for n in range(count)]
    with Store(library / "store", encoder.fingerprint) as store:
        embed_spans(make_spans(segments, library), encoder, store)


def test_the_number_of_prepared_segments_is_limited(library, monkeypatch):
    # Two segments of 1 s, and one more
    monkeypatch.setattr("callshot.encoders.embed.MAX_AHEAD_SAMPLES", 2 * 48000)
    monkeypatch.setattr("callshot.encoders.workers.BATCH_WINDOWS", 1)
    counts = []

    def wait(prepared):
        time.sleep(0.01)
        counts.append(len(prepared))

    embed_many(library, make_watched_encoder(wait), 30)
    assert max(prepared - used for used, prepared in enumerate(counts)) <= 5


def test_a_model_that_raises_leaves_no_thread_behind(library):
    def fail(prepared):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        embed_many(library, make_watched_encoder(fail))
    assert not any(
        thread.name.startswith("callshot-") for thread in threading.enumerate()
    )


def test_ctrl_c_does_not_wait_for_the_model_and_keeps_what_it_returned(library):
    may_end = threading.Event()
    calls = []

    def wait(prepared):
        calls.append(threading.current_thread())
        if len(calls) == 3:
            time.sleep(0.1)  # until the main thread waits
            os.kill(os.getpid(), signals.SIGINT)
            may_end.wait(60)

    encoder = make_watched_encoder(wait)
    with pytest.raises(KeyboardInterrupt):
        embed_many(library, encoder)
    shards = (library / "store").rglob("*.npy")
    heights = [len(np.load(shard)) for shard in shards]
    may_end.set()
    assert threading.main_thread() not in calls
    assert heights == [2]


def test_progress_adds_up_to_one_and_shows_the_pace(library):
    calls: list[tuple[float, str]] = []
    encoder = CountingEncoder().encoder
    segments = [make_segment(f"r{n}.wav") for n in range(3)]
    embed_folder(library, segments[:1], encoder)
    spans = make_spans(segments, library)
    with Store(library / "store", encoder.fingerprint) as store:
        embed_spans(spans, encoder, store, lambda *call: calls.append(call))
    assert sum(share for share, _ in calls) == pytest.approx(1)
    assert "h of audio per hour" in calls[-1][1]


def test_embed_returns_a_table_in_the_order_of_the_segments_and_the_rejects(library):
    record_badly(library / "bad.wav", "text")
    segments = [make_segment(name) for name in ("r2.wav", "bad.wav", "r0.wav")]
    sequences = {}

    def write_sequences(names, arrays):
        sequences.update(zip(names, arrays, strict=True))

    spans = make_spans(segments, library)
    options = EmbedOptions({"coefficients": "13"}, library / "store")
    table, rejects = embed(spans, "mfcc", options, write_sequences=write_sequences)
    assert table.encoder == "mfcc[coefficients=13]"
    assert table.recording == ("r2.wav", "r0.wav")
    assert [(reject.file, reject.row) for reject in rejects] == [("bad.wav", 2)]
    means = [array.mean(axis=0) for array in sequences.values()]
    assert list(sequences) == list(table.segment)
    np.testing.assert_allclose(table.matrix, means, rtol=1e-5)


SEGMENTS = 60


@pytest.fixture
def segment_table(library):
    starts = [n / 100 for n in range(SEGMENTS)]
    lines = [f"r{n % 3}.wav,{s},{s + 1.2},label {n % 2}" for n, s in enumerate(starts)]
    text = "\n".join(["recording,start_s,end_s,label", *lines])
    (library / "calls.csv").write_text(text)
    segment_files(library, library / "segments", library / "calls.csv")
    return library / "segments" / "segments.parquet"


def test_the_table_has_all_columns_and_the_sequences_are_beside_it(
    segment_table, tmp_path
):
    (tmp_path / "moved").mkdir()
    for n in range(3):
        (tmp_path / f"r{n}.wav").rename(tmp_path / "moved" / f"r{n}.wav")
    place = (segment_table, tmp_path / "mfcc.parquet", "mfcc")
    options = {"sequences": True, "store": tmp_path / "store"}
    with pytest.raises(InputError, match="no segment could be embedded from"):
        embed_files(*place, **options)
    table, rejects = embed_files(*place, audio=tmp_path / "moved", **options)
    assert (len(table), rejects) == (SEGMENTS, [])
    frame = pl.read_parquet(tmp_path / "mfcc.parquet")
    columns = {"recording", "label", "segment", "labels", "embedding"}
    assert set(frame.columns) == columns
    sequences = pl.read_parquet(tmp_path / "mfcc.sequences.parquet")
    assert sequences["frames"].unique().to_list() == [121]
    frames = sequences["sequence"][3].to_numpy().reshape(121, 40)
    mean = frames.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(frame["embedding"][3].to_numpy(), mean, rtol=1e-6)


def test_a_bad_output_path_is_an_error_before_any_work(
    segment_table, tmp_path, monkeypatch
):
    opener = "callshot.encoders.embed.open_encoder"
    monkeypatch.setattr(opener, lambda *_, **__: pytest.fail("opened"))
    before = segment_table.read_bytes()
    for out in (
        "segments/segments.parquet",
        "x.csv",
        "calls.csv/x.parquet",
        "segments",
    ):
        with pytest.raises((OutputError, OptionError)):
            embed_files(segment_table, tmp_path / out, "mfcc", store=tmp_path / "store")
    assert segment_table.read_bytes() == before


@pytest.fixture
def encoded(monkeypatch):
    """One item for each segment that is encoded in this process."""
    calls = []

    pool = Encoder.pool

    def count_and_pool(*arguments):
        calls.append(1)
        return pool(*arguments)

    monkeypatch.setattr(Encoder, "pool", count_and_pool)
    return calls


def list_shards(store):
    return set(store.glob("*/shard-*.npy"))


def count_stored(store):
    """Count the segments in a store by reading its files."""
    return len({one for path in list_shards(store) for one in np.load(path)["source"]})


@pytest.fixture
def expected_table(segment_table, tmp_path):
    """The table of an undisturbed run, as bytes."""
    path = tmp_path / "expected.parquet"
    embed_files(segment_table, path, "mfcc", store=tmp_path / "undisturbed")
    return path.read_bytes()


# Forks a process for each input line, after the imports: 20 processes do not repeat them.
FORKS = """
import os, sys
from pathlib import Path
import numpy as np
from callshot.encoders import catalogue, encode
from callshot.encoders import store
from callshot.study.file_steps import embed_files
segment_table, out, folder = map(Path, sys.argv[1:])
silence = encode.PreparedSegment(np.zeros(16000, np.float32))
encode.open_encoder(catalogue.find_encoder("mfcc")).encode([silence])
store.FLUSH_AFTER_S = 0.0
for _ in sys.stdin:
    if (pid := os.fork()) == 0:
        embed_files(segment_table, out, "mfcc", store=folder)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


def kill_one(forks, store, rng):
    """Start embedding and kill it after some shards."""
    before = list_shards(store)
    count = rng.randrange(1, 5)
    forks.stdin.write("\n")
    forks.stdin.flush()
    pid = int(forks.stdout.readline())
    with suppress(ProcessLookupError):  # it ended by itself
        while len(list_shards(store) - before) < count:
            os.kill(pid, 0)
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))
        os.kill(pid, signals.SIGKILL)
    return int(forks.stdout.readline())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no SIGKILL")
def test_runs_that_are_killed_and_repeated_give_the_same_table(
    segment_table, tmp_path, expected_table, encoded
):
    rng = random.Random(4)
    store = tmp_path / "store"
    out = tmp_path / "killed.parquet"
    counts = []
    command = [sys.executable, "-c", FORKS, segment_table, out, store]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        for _ in range(5):
            status = kill_one(forks, store, rng)
            counts.append(
                count_stored(store) if status == signals.SIGKILL else SEGMENTS
            )
    assert sum(0 < count < SEGMENTS for count in counts) >= 2
    assert counts == sorted(counts)  # stored vectors are never lost
    embed_files(segment_table, out, "mfcc", store=store)
    assert len(encoded) == SEGMENTS - counts[-1]
    assert out.read_bytes() == expected_table
