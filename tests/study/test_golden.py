"""Two fixed studies give the numbers of the files in `golden`.

One encoder counts whole numbers: its results are the same to the last byte on every machine. MFCC
is the same within 1e-4. The recordings are whole numbers too. When numbers are meant to change, set
the variable CALLSHOT_GOLDEN: the tests then write the files again. Say so in the changelog.
"""

import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile as sf

from callshot.encoders import catalogue
from callshot.encoders.spec import EncoderSpec
from callshot.records.frames import SUMMARY
from studies import run_steps

GOLDEN = Path(__file__).parent / "golden"
RATE_HZ = 16000
CALL_SAMPLES = 17000
STUDY = """
[corpus.golden]
audio = "{recordings}"
normalise = {normalise}
folds = 3
[[encoder]]
name = "{encoder}"
[protocol]
shots = "1,2,4"
draws = 8
bootstraps = 64
shared_draws = 32
total_samples = 32
seed = 5
[report]
figures = false
"""


def make_noise(state):
    """Return whole numbers from −2048 to 2047, by a generator that is the same everywhere."""
    noise = np.empty(CALL_SAMPLES, np.int64)
    for n in range(CALL_SAMPLES):
        state = (state * 1103515245 + 12345) % 2**31
        noise[n] = (state >> 16) % 4096 - 2048
    return noise


def make_call(kind, variant):
    """Return a square wave in noise; its period and level depend on the kind and the variant."""
    half_period = (90 + 12 * kind + 9 * (variant * 7 % 11)) // 2
    level = 3000 + 700 * kind + 400 * (variant * 5 % 7)
    is_high = (np.arange(CALL_SAMPLES) // half_period) % 2
    wave = np.where(is_high, level, -level)
    return wave + make_noise(kind * 1000 + variant) * (1 + variant % 3)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Six recordings with a call of each of three types, and their label tracks."""
    folder = tmp_path_factory.mktemp("golden") / "recordings"
    folder.mkdir()
    call_s = CALL_SAMPLES / RATE_HZ
    for number in range(6):
        calls = [make_call(kind, 3 * number + kind) for kind in range(3)]
        signal = np.concatenate(calls).astype(np.int16)
        sf.write(folder / f"r{number}.wav", signal, RATE_HZ, subtype="PCM_16")
        lines = []
        for kind, label in enumerate("abc"):
            lines.append(f"{kind * call_s:.4f}\t{(kind + 1) * call_s:.4f}\t{label}\n")
        (folder / f"r{number}.txt").write_text("".join(lines))
    return folder


def load_counts(spec, **_):
    """Return an encoder whose vectors are whole numbers: zero crossings, loudness and peak."""

    def encode(signal):
        samples = np.rint(signal.astype(np.float64) * 32768).astype(np.int64)
        crossings = int((samples[1:] * samples[:-1] < 0).sum()) // 16
        loudness = np.abs(samples).sum() // 2**22
        return np.array([[crossings, loudness, samples.max() // 1024]], np.float32)

    return encode


class CountsEntryPoint:
    """An entry point with that encoder."""

    name = "counts"
    value = f"{__name__}:counts"

    def load(self):
        return EncoderSpec(
            "counts",
            "whole numbers",
            3,
            RATE_HZ,
            "golden_counts:load_counts",
            "none needed",
            "moves it",
        )


def run_golden_study(folder, recordings, encoder, normalise):
    """Run the study with an encoder; return its curve."""
    path = folder / "study.toml"
    text = STUDY.format(
        recordings=recordings.as_posix(), encoder=encoder, normalise=normalise
    )
    path.write_text(text, encoding="utf-8")
    run_steps(path)
    return folder / "results" / "golden" / "curve.csv"


def golden_path(curve, name):
    """Return the golden file; write it first where CALLSHOT_GOLDEN is set."""
    golden = GOLDEN / name
    if os.environ.get("CALLSHOT_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_bytes(curve.read_bytes())
    return golden


def test_an_encoder_of_whole_numbers_gives_the_same_bytes_everywhere(
    tmp_path, recordings, monkeypatch
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [CountsEntryPoint()])
    monkeypatch.setitem(sys.modules, "golden_counts", sys.modules[__name__])
    curve = run_golden_study(tmp_path, recordings, "counts", "false")
    assert curve.read_bytes() == golden_path(curve, "counts.csv").read_bytes()


def test_mfcc_gives_the_same_numbers_to_four_digits(tmp_path, recordings, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    path = run_golden_study(tmp_path, recordings, "mfcc", "true")
    curve = pl.read_csv(path)
    golden = pl.read_csv(golden_path(path, "mfcc.csv"))
    numbers = [*SUMMARY, "chance"]
    assert curve.drop(numbers).equals(golden.drop(numbers))
    difference = curve.select(numbers).to_numpy() - golden.select(numbers).to_numpy()
    assert np.abs(difference).max() <= 1e-4
