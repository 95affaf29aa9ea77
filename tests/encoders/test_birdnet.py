"""BirdNET: a rewritten tflite file gives the bits of the slow way, row by row; a damaged one is refused in one line.

Most tests stand on a tiny model with BirdNET's ends. Those on the real weights look for them in callshot's cache, or
where $CALLSHOT_BIRDNET says.
"""

import importlib
import importlib.util
import os
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from callshot.encoders import birdnet
from callshot.encoders.birdnet import (
    EMBEDDING,
    TOLERANCE,
    check_rewrite,
    expose_tensor,
    open_birdnet,
)
from callshot.errors import InputError, OptionError
from tflites import tiny, weights, written

needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)
Signal = NDArray[np.float32]


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    """The tiny model, rewritten."""
    expose_tensor(written(tmp_path, tiny()), tmp_path / "cut.tflite", EMBEDDING)
    return tmp_path / "cut.tflite"


def noise(rows: int, samples: int = 144000) -> Signal:
    return np.random.default_rng(1).normal(size=(rows, samples)).astype(np.float32)


# The model


@needs_litert
def test_each_window_becomes_a_row_of_its_own(cut: Path) -> None:
    windows, model = noise(5), open_birdnet(cut)
    assert model(windows).dtype == np.float32
    for rows in (0, 1, 2, 5):
        np.testing.assert_array_equal(model(windows[:rows]), windows[:rows, :1024])


@needs_litert
def test_what_was_returned_is_not_changed_by_the_next_call(cut: Path) -> None:
    model = open_birdnet(cut)
    first = model(noise(1))
    kept = first.copy()
    model(noise(2)[1:])
    np.testing.assert_array_equal(first, kept)


@needs_litert
def test_threads_keep_the_order_of_rows(cut: Path) -> None:
    windows = noise(20)
    np.testing.assert_array_equal(open_birdnet(cut, threads=3)(windows), windows[:, :1024])


@needs_litert
def test_windows_that_lie_otherwise_in_memory_give_the_same(cut: Path) -> None:
    windows = noise(3)
    np.testing.assert_array_equal(open_birdnet(cut)(np.asfortranarray(windows)), windows[:, :1024])
    np.testing.assert_array_equal(open_birdnet(cut)(windows.astype(np.float64)), windows[:, :1024])


@needs_litert
@pytest.mark.parametrize("shape", [(144000,), (2, 143999), (1, 2, 144000), (0, 0)])
def test_windows_of_another_shape_are_refused(cut: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"wanted windows of shape \(n, 144000\), found"):
        open_birdnet(cut)(np.zeros(shape, np.float32))


@needs_litert
def test_the_file_that_was_not_rewritten_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"found .*'Identity', 1, 1024.*; rewrite BirdNET's own file"
    ):
        open_birdnet(written(tmp_path, tiny(model={7: None})))


@needs_litert
@pytest.mark.parametrize(
    "content", [b"", b"\x08\0\0\0TFL3", tiny()[:600], tiny(graph={1: [99]}), tiny(model={1: []})]
)
def test_a_damaged_model_is_not_opened(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, content)
    with pytest.raises(
        InputError, match=r"not a tflite model|cannot be opened as a tflite model"
    ) as caught:
        open_birdnet(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


def test_no_threads_are_refused(cut: Path) -> None:
    with pytest.raises(OptionError, match="threads: a whole number from 1, got 0"):
        open_birdnet(cut, threads=0)


def test_a_missing_package_is_told_with_the_extra(
    cut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(InputError, match=r"pip install 'callshot\[birdnet\]'"):
        open_birdnet(cut)


def test_importing_the_module_imports_no_framework() -> None:
    code = "import sys, callshot.encoders.birdnet; print([m for m in sys.modules if 'litert' in m or 'tensorflow' in m])"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout == "[]\n"


@needs_litert
def test_opening_prints_nothing(cut: Path) -> None:
    code = "import sys, pathlib; from callshot.encoders import birdnet; birdnet.open_birdnet(pathlib.Path(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", code, str(cut)], capture_output=True, text=True, check=True
    )
    assert (made.stdout, made.stderr) == ("", "")


def test_only_the_greeting_is_kept_from_the_terminal_also_after_an_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with suppress(KeyError), birdnet._hushed():
        os.write(2, b"before\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nafter\n")
        raise KeyError
    os.write(2, b"behind\n")
    assert capfd.readouterr().err == "before\nafter\nbehind\n"


@needs_litert
def test_the_check_finds_no_difference_in_a_rewriting(tmp_path: Path, cut: Path) -> None:
    assert check_rewrite(tmp_path / "source.tflite", cut) == 0.0


@needs_litert
def test_the_check_finds_another_model(tmp_path: Path, cut: Path) -> None:
    begin = {4: [{}, {0: struct.pack("<2i", 0, 7)}, {0: struct.pack("<2i", 1, 1024)}]}
    assert check_rewrite(written(tmp_path, tiny(model=begin), "other.tflite"), cut) > 1
    with pytest.raises(InputError, match="wanted a tensor"):
        check_rewrite(
            written(tmp_path, tiny().replace(b"AVG_POOL", b"MAX_POOL"), "other.tflite"), cut
        )


# The real weights


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BirdNET's own file, rewritten."""
    pytest.importorskip("ai_edge_litert")
    target = tmp_path_factory.mktemp("birdnet") / "embedding.tflite"
    expose_tensor(weights(), target, EMBEDDING)
    return target


def sounds() -> dict[str, Signal]:
    rng, time_s = np.random.default_rng(5), np.arange(144000) / 48000
    hiss = rng.normal(size=144000)
    made = {
        "noise": hiss * 0.1,
        "chirp": 0.7 * np.sin(2 * np.pi * (200 + 2000 * time_s) * time_s),
        "silence": 0 * time_s,
        "loud": hiss * 1e4,
        "faint": hiss * 1e-6,
        "click": (np.arange(144000) == 70000) * 0.9,
        "rumble": np.sum([np.sin(2 * np.pi * 18 * n * time_s) / n for n in range(1, 20)], axis=0)
        * 0.3,
    }
    return {name: signal.astype(np.float32) for name, signal in made.items()}


def slow_way(source: Path, windows: Signal) -> Signal:
    """Keep every tensor of the untouched model, and read the one that is wanted."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter
    with pytest.warns(UserWarning, match="preserve_all_tensors"):
        model = interpreter(model_path=str(source), experimental_preserve_all_tensors=True)
    model.allocate_tensors()
    rows = []
    for window in windows:
        model.set_tensor(0, window[None])
        model.invoke()
        rows.append(model.get_tensor(545).copy())
    return np.concatenate(rows)


def test_birdnet_equals_the_slow_way(real: Path) -> None:
    windows = np.stack(list(sounds().values()))
    ours, theirs = open_birdnet(real)(windows), slow_way(weights(), windows)
    assert ours.shape == (7, 1024)
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    assert check_rewrite(weights(), real) <= TOLERANCE


def test_birdnet_gives_the_same_bits_alone_in_any_batch_again_and_in_threads(real: Path) -> None:
    windows, model = np.stack(list(sounds().values())[:5]), open_birdnet(real)
    alone = np.concatenate([model(window[None]) for window in windows])
    for rows in (1, 2, 5):
        np.testing.assert_array_equal(model(windows[:rows]), alone[:rows])
    np.testing.assert_array_equal(open_birdnet(real, threads=2)(windows), alone)


def test_a_window_without_numbers_does_not_reach_into_the_next(real: Path) -> None:
    windows, model = (
        np.stack([np.full(144000, np.nan, np.float32), sounds()["chirp"]]),
        open_birdnet(real),
    )
    np.testing.assert_array_equal(model(windows)[1], model(windows[1:])[0])


def test_two_bytes_of_birdnet_change(real: Path) -> None:
    before, after = (np.fromfile(path, np.uint8) for path in (weights(), real))
    assert np.count_nonzero(before != after) == 2


def test_birdnet_gives_what_another_runtime_gave(real: Path) -> None:
    row = open_birdnet(real)(sounds()["chirp"][None])[0]
    theirs = {
        515: 3.463169,
        794: 3.280769,
        477: 3.248842,
        648: 3.018829,
        486: 2.660067,
    }  # tflite-runtime 2.14.0
    np.testing.assert_allclose(row[list(theirs)], list(theirs.values()), rtol=0, atol=1e-4)
    assert np.linalg.norm(row) == pytest.approx(23.488316, abs=1e-4)
