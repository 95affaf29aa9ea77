"""Threads run the model at once; outputs and their order do not depend on how many there are."""

import threading
from dataclasses import replace

import numpy as np
import pytest

import standins
from callshot.encoders import catalogue, workers
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import embed_spans
from callshot.encoders.encode import Encoder, PreparedSegment, open_encoder
from callshot.encoders.install import import_weights
from callshot.encoders.store import Store
from callshot.encoders.workers import Workers
from callshot.errors import InputError
from rows_of_spans import make_row, make_spans
from sounds import record

PERCH = find_encoder("perch-v2")
MFCC = find_encoder("mfcc")


def make_encoder(model, count, spec=PERCH):
    spec = replace(spec, dimension=2)
    return Encoder(spec, model, {"test": 1}, workers=count)


def make_windows(count, value=0.0):
    windows = np.full((count, 3), value, np.float32)
    windows[:, 0] = range(count)
    return PreparedSegment(windows, np.ones(count), np.ones(count))


def first_two(windows):
    return windows[:, :2].copy()


def run_all(encoder, segments):
    with Workers(encoder) as running:
        outputs = [running.submit(segment) for segment in segments]
        return [output() for output in outputs]


@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("parallel", [True, False])
def test_outputs_are_whole_and_in_order(count, parallel):
    sizes = []

    def model(windows):
        sizes.append(len(windows))
        return first_two(windows)

    segments = [make_windows(n, value=n) for n in (1, 4, 5, 13)]
    spec = replace(PERCH, parallel=parallel)
    outputs = run_all(make_encoder(model, count, spec), segments)
    for segment, output in zip(segments, outputs, strict=True):
        np.testing.assert_array_equal(output, segment.input[:, :2])
    assert (sizes == [1] * 23) == parallel  # a window is alone in the model


def test_two_threads_are_in_the_model_at_the_same_time():
    together = threading.Barrier(2, timeout=20)

    def model(windows):
        together.wait()
        return first_two(windows)

    outputs = run_all(make_encoder(model, 2), [make_windows(1), make_windows(1)])
    assert len(outputs) == 2


@pytest.mark.parametrize("changes", [{"parallel": False}, {"device": "cuda"}])
def test_one_thread_runs_a_model_that_allows_no_more(changes):
    threads = set()
    sizes = []

    def model(windows):
        threads.add(threading.get_ident())
        sizes.append(len(windows))
        return first_two(windows)

    encoder = make_encoder(model, 1)
    if "parallel" in changes:
        encoder = replace(encoder, spec=replace(encoder.spec, **changes))
    else:
        encoder = replace(encoder, **changes)
    with Workers(encoder) as running:
        running.batch_size = 8
        outputs = [running.submit(make_windows(1)) for _ in range(20)]
        assert all(output().shape == (1, 2) for output in outputs)
    assert len(threads) == 1
    assert sizes == [8, 8, 4]  # windows of several segments together


@pytest.mark.parametrize("parallel", [True, False])
def test_a_segment_that_fails_does_not_change_the_others(parallel):
    def model(windows):
        if (windows[:, 1] == 7).any():
            raise InputError("seven")
        return first_two(windows)

    spec = replace(PERCH, parallel=parallel)
    segments = [make_windows(2, value) for value in (6, 7, 8)]
    with Workers(make_encoder(model, 2, spec)) as running:
        outputs = [running.submit(segment) for segment in segments]
        np.testing.assert_array_equal(outputs[0](), segments[0].input[:, :2])
        with pytest.raises(InputError, match="seven"):
            outputs[1]()
        np.testing.assert_array_equal(outputs[2](), segments[2].input[:, :2])


def test_long_whole_segments_are_in_the_model_one_at_a_time(monkeypatch):
    monkeypatch.setattr(workers, "MAX_SAMPLES", 1000)
    inside = []
    most = []

    def model(signal):
        inside.append(len(signal))
        most.append(sum(inside))
        threading.Event().wait(0.01)
        inside.remove(len(signal))
        return np.ones((1, 2), np.float32)

    signals = [PreparedSegment(np.zeros(n, np.float32)) for n in (400, 5000) * 4]
    run_all(make_encoder(model, 4, MFCC), signals)
    assert max(most) <= 5000


def test_an_interrupt_drops_what_has_not_begun_and_waits_for_nothing():
    begun = []
    started = threading.Event()
    release = threading.Event()

    def model(windows):
        begun.append(1)
        started.set()
        release.wait(20)
        return first_two(windows)

    running = Workers(make_encoder(model, 2))
    for _ in range(50):
        running.submit(make_windows(1))
    started.wait(20)
    with pytest.raises(KeyboardInterrupt), running:
        raise KeyboardInterrupt
    assert len(begun) <= 2
    release.set()
    running.executor.shutdown()
    assert len(begun) <= 2


@pytest.fixture
def library(tmp_path):
    lengths = [1.0, 7.5, 11.0, 5.0, 5.0, 0.5]
    segments = []
    for n, seconds in enumerate(lengths):
        record(tmp_path / f"r{n}.wav", seconds=seconds, rate=16000, seed=n)
        name = f"r{n}.wav"
        segments.append(make_row(name, 0.0, seconds, peak_dbfs=-3.0))
    return tmp_path, make_spans(segments, tmp_path)


@pytest.mark.parametrize("name", ["perch-v2", "hubert-base-l2"])
def test_the_store_has_the_same_bytes_for_any_number_of_threads(
    name, library, monkeypatch
):
    folder, segments = library
    monkeypatch.setenv("CALLSHOT_HOME", str(folder / "home"))
    monkeypatch.setattr(catalogue, "ENCODERS", standins.unpinned("perch-v2"))
    make = {"perch-v2": standins.perch_v2, "hubert-base-l2": standins.hubert}[name]
    spec = find_encoder(name)
    import_weights(spec, [make(folder / "model.onnx")])
    contents = []
    for threads in (1, 3):
        encoder = open_encoder(spec, threads=threads)
        assert encoder.workers == threads
        with Store(folder / f"store-{threads}", encoder.fingerprint) as store:
            keys, rejects = embed_spans(segments, encoder, store, threads=2)
            contents.append((keys, store.vectors(keys).tobytes()))
        assert rejects == []
    assert contents[0] == contents[1]


class LengthModel:
    """A model of whole segments: frames of the mean and the largest sample; notes its batches."""

    def __init__(self):
        self.batches = []

    def __call__(self, signal):
        return self.encode_batch(signal[np.newaxis])[0]

    def encode_batch(self, signals):
        self.batches.append(signals.shape)
        rows = np.stack([signals.mean(axis=1), signals.max(axis=1)], axis=1)
        return np.repeat(rows[:, np.newaxis], 3, axis=1).astype(np.float32)


def make_signals(*lengths):
    random = np.random.default_rng(0)
    return [PreparedSegment(random.random(n, np.float32)) for n in lengths]


def run_in_batches(model, signals, size):
    encoder = replace(make_encoder(model, 1, MFCC), device="cuda")
    with Workers(encoder) as running:
        running.batch_size = size
        outputs = [running.submit(signal) for signal in signals]
        return [output() for output in outputs]


def test_on_a_gpu_whole_segments_of_one_length_are_encoded_together():
    model = LengthModel()
    signals = make_signals(5, 9, 5, 5, 9, 4)
    outputs = run_in_batches(model, signals, size=6)
    assert model.batches == [(1, 4), (3, 5), (2, 9)]
    alone = LengthModel()
    for signal, output in zip(signals, outputs, strict=True):
        np.testing.assert_array_equal(output, alone(signal.input))


def test_a_batch_of_whole_segments_has_a_limit_of_samples(monkeypatch):
    monkeypatch.setattr(workers, "MAX_BATCH_SAMPLES", 30)
    model = LengthModel()
    run_in_batches(model, make_signals(*[10] * 7), size=64)
    assert model.batches == [(3, 10), (3, 10), (1, 10)]
    model = LengthModel()
    run_all(make_encoder(model, 1, MFCC), make_signals(5, 5, 5))  # on the CPU
    assert model.batches == [(1, 5)] * 3
