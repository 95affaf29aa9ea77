"""Fixed small studies: one with whole-numbered vectors, the same to the last byte everywhere; one of MFCC, within 1e-4.

The recordings are made of whole numbers alone, so that they are the same everywhere too. To write the goldens anew,
when numbers are meant to change: run the tests with the variable CALLSHOT_GOLDEN set, and say so in the changelog.
"""

import os
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile as sf
from callshot.study.file import read_study

from callshot.encoders import catalogue
from callshot.encoders.catalogue import EncoderSpec
from callshot.study.run import run_study

GOLDEN = Path(__file__).parent / "golden"
STUDY = """
[corpus.golden]
audio = "recordings"
normalise = {normalise}
folds = 3
[[encoder]]
name = "{encoder}"
[protocol]
shots = "1,2,4"
draws = 8
bootstraps = 64
shared_draws = 32
seed = 5
[report]
figures = false
"""


def noise(state: int, count: int) -> np.ndarray:
    """Return whole numbers from −2048 to 2047, by a generator that is four lines anywhere."""
    out = np.empty(count, np.int64)
    for n in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        out[n] = (state >> 16) % 4096 - 2048
    return out


def call(kind: int, turn: int) -> np.ndarray:
    """Return a square wave of whole numbers, at a period and a loudness of its own kind, in noise."""
    count = 17000
    period, loud = 90 + 12 * kind + 9 * (turn * 7 % 11), 3000 + 700 * kind + 400 * (turn * 5 % 7)
    wave = np.where((np.arange(count) // (period // 2)) % 2, loud, -loud)
    return wave + noise(kind * 1000 + turn, count) * (1 + turn % 3)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden") / "recordings"
    folder.mkdir()
    for n in range(6):
        calls = [call(kind, 3 * n + kind) for kind in range(3)]
        sf.write(
            folder / f"r{n}.wav", np.concatenate(calls).astype(np.int16), 16000, subtype="PCM_16"
        )
        spans = [f"{i * 1.0625:.4f}\t{(i + 1) * 1.0625:.4f}\t{'abc'[i]}\n" for i in range(3)]
        (folder / f"r{n}.txt").write_text("".join(spans))
    return folder


def load_counts(spec: EncoderSpec, **_: object):
    """Open an encoder whose vectors are whole numbers: crossings of zero, loudness, peaks."""

    def model(signal: np.ndarray) -> np.ndarray:
        whole = np.rint(signal.astype(np.float64) * 32768).astype(np.int64)
        crossovers = int((whole[1:] * whole[:-1] < 0).sum()) // 16
        return np.array(
            [[crossovers, np.abs(whole).sum() // 2**22, whole.max() // 1024]], np.float32
        )

    return model


class Counts:
    """An entry point that brings that encoder."""

    name, value = "counts", f"{__name__}:ROW"

    def load(self) -> EncoderSpec:
        return EncoderSpec(
            "counts",
            "whole numbers",
            3,
            16000,
            "golden_counts:load_counts",
            "none needed",
            "moves it",
        )


def run(folder: Path, recordings: Path, encoder: str, normalise: str) -> Path:
    text = STUDY.format(encoder=encoder, normalise=normalise).replace(
        '"recordings"', f'"{recordings.as_posix()}"'
    )
    (folder / "study.toml").write_text(text, encoding="utf-8")
    run_study(read_study(folder / "study.toml"))
    return folder / "results" / "golden" / "curve.csv"


def kept(found: Path, name: str) -> Path:
    golden = GOLDEN / name
    if os.environ.get("CALLSHOT_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        golden.write_bytes(found.read_bytes())
    return golden


def test_whole_numbers_give_the_same_bytes_everywhere(
    tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [Counts()])
    monkeypatch.setitem(sys.modules, "golden_counts", sys.modules[__name__])
    found = run(tmp_path, recordings, "counts", "false")
    assert found.read_bytes() == kept(found, "counts.csv").read_bytes()


def test_mfcc_gives_the_same_numbers_to_four_digits(
    tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    found = run(tmp_path, recordings, "mfcc", "true")
    ours, golden = pl.read_csv(found), pl.read_csv(kept(found, "mfcc.csv"))
    numbers = ["mean", "p01", "p25", "p50", "p75", "p99", "chance"]
    assert ours.drop(numbers).equals(golden.drop(numbers))
    assert np.abs(ours.select(numbers).to_numpy() - golden.select(numbers).to_numpy()).max() <= 1e-4
