"""The end-to-end rival's front end: Kaldi's log-mel frames, and how they are cut. Nothing here needs torch."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from callshot.baselines.crops import (
    COLUMNS,
    cut_by_chance,
    cut_whole,
    in_even_batches,
    line_up_cuts,
)
from callshot.baselines.sequence_batches import lay_out
from callshot.baselines.spectrogram import AERD, AST, BEATS, FrontEnd, hear, log_mel

FRONTS = {"aerd": AERD, "beats": BEATS, "ast": AST}


def noise(samples: int, seed: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0.0, 0.1, samples).astype(np.float32)


def literal(signal: NDArray[Any], front: FrontEnd) -> NDArray[Any]:
    """Take a frame at a time, a point at a time, as Kaldi's manual has it."""

    def mel(hz: float) -> float:
        return 1127.0 * math.log(1.0 + hz / 700.0)

    out = np.zeros((1 + (len(signal) - 400) // 160, 128))
    step = (mel(8000.0) - mel(20.0)) / 129
    for t in range(len(out)):
        x = signal[160 * t : 160 * t + 400].astype(float) * front.gain
        x = x - x.mean()
        x = np.array([x[n] - 0.97 * x[max(n - 1, 0)] for n in range(400)])
        hann = [0.5 - 0.5 * math.cos(2 * math.pi * n / 399) for n in range(400)]
        x = x * [w**0.85 if front.window == "povey" else w for w in hann]
        power = [
            abs(sum(x * np.exp(-2j * np.pi * k * np.arange(400) / 512))) ** 2 for k in range(256)
        ]
        for band in range(128):
            left, centre, right = (mel(20.0) + (band + n) * step for n in range(3))
            total = 0.0
            for k in range(256):
                at = mel(k * 31.25)
                total += power[k] * max(
                    0.0, min((at - left) / (centre - left), (right - at) / (right - centre))
                )
            out[t, band] = math.log(max(total, 1.1920928955078125e-07))
    return (out - front.mean) / (2 * front.deviation)


@pytest.mark.parametrize("name", FRONTS)
def test_frames_are_those_of_a_slow_transcription(name: str) -> None:
    signal = noise(2800)[:880] if name == "aerd" else noise(880)
    padded = np.pad(signal, (0, 2800 - 880))
    assert (
        np.abs(log_mel(signal, FRONTS[name])[:4] - literal(padded[:880], FRONTS[name])).max()
        <= 1e-5
    )


def test_frames_are_those_of_transformers_for_ast() -> None:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not here: make test-torch"
    )
    signal = noise(40_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a band that is empty there too
        wanted = transformers.ASTFeatureExtractor()(
            signal, sampling_rate=16_000, return_tensors="np"
        )["input_values"]
    found = log_mel(signal, AST)
    assert np.abs(found - wanted[0, : len(found)]).max() <= 1e-5


def test_a_long_signal_is_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = log_mel(noise(16_000))
    monkeypatch.setattr("callshot.baselines.spectrogram.AT_ONCE", 7)
    assert np.array_equal(log_mel(noise(16_000)), whole)


def test_a_signal_shorter_than_a_patch_is_followed_by_zeros() -> None:
    short = noise(300)
    assert log_mel(short).shape == (16, 128)
    assert np.array_equal(log_mel(short), log_mel(np.pad(short, (0, 2500))))


def test_silence_is_finite() -> None:
    assert np.isfinite(log_mel(np.zeros(5000, np.float32))).all()


def test_the_table_has_each_signal_in_its_place() -> None:
    signals = [noise(5000), noise(2800), noise(9000)]
    table = hear(signals, AERD)
    for row, signal in enumerate(signals):
        assert np.array_equal(
            table.frames[table.start[row] : table.start[row + 1]], log_mel(signal)
        )


# Cuts


@given(st.lists(st.integers(16, 5000), min_size=1, max_size=6))
def test_windows_take_every_whole_column_once(lengths: list[int]) -> None:
    cuts = cut_whole(np.array(lengths), np.arange(len(lengths)))
    for row, length in enumerate(lengths):
        own = cuts.take(np.flatnonzero(cuts.row == row))
        taken = [
            f + 16 * n
            for f, columns in zip(own.first, own.columns, strict=True)
            for n in range(columns)
        ]
        assert taken == [16 * n for n in range(length // 16)]
        assert own.columns.max() <= COLUMNS
        assert own.columns.max() - own.columns.min() <= 1


@given(st.lists(st.integers(16, 5000), min_size=1, max_size=6), st.integers(0, 99))
def test_pieces_by_chance_lie_inside_their_rows(lengths: list[int], seed: int) -> None:
    rows = np.arange(len(lengths))
    cuts = cut_by_chance(np.array(lengths), rows, np.random.default_rng(seed))
    assert np.array_equal(cuts.columns, np.minimum(np.array(lengths) // 16, COLUMNS))
    assert (cuts.first >= 0).all()
    assert (cuts.first + 16 * cuts.columns <= lengths).all()


def test_a_long_row_is_cut_everywhere() -> None:
    lengths = np.array([70 * 16])
    rng = np.random.default_rng(1)
    firsts = {int(cut_by_chance(lengths, np.array([0]), rng).first[0]) for _ in range(2000)}
    assert firsts == {*range(6 * 16 + 1)}


def test_a_batch_has_the_frames_of_its_cuts() -> None:
    table = lay_out([np.arange(40.0)[:, None], 100 + np.arange(80.0)[:, None]])
    (cuts,) = in_even_batches(cut_whole(table.lengths, np.array([1, 0])), 8)
    places, there = line_up_cuts(table, cuts)
    found = table.frames[places, 0]
    assert cuts.row.tolist() == [0, 1]
    assert found[0, :32].tolist() == [*range(32)]
    assert found[1].tolist() == [*range(100, 180)]
    assert there.tolist() == [[True] * 2 + [False] * 3, [True] * 5]
