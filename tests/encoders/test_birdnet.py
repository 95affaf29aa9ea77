"""BirdNET: a rewritten tflite file gives the vectors of the original.

Most tests use a tiny model with BirdNET's input and output. The real weights are looked for in
callshot's cache and at $CALLSHOT_BIRDNET.
"""

import importlib
import importlib.util
import os
from contextlib import suppress

import numpy as np
import pytest

from callshot.encoders.litert import expose_tensor, hide_greeting, open_tflite
from callshot.errors import InputError
from tflites import EMBEDDING, birdnet_weights, save, tiny

needs_litert = pytest.mark.skipif(
    importlib.util.find_spec("ai_edge_litert") is None,
    reason="ai-edge-litert is not installed",
)


def noise(rows, samples=144000):
    return np.random.default_rng(1).normal(size=(rows, samples)).astype(np.float32)


# The tiny model


@needs_litert
@pytest.mark.parametrize(
    "content",
    [b"", b"\x08\0\0\0TFL3", tiny()[:600], tiny(graph={1: [99]}), tiny(model={1: []})],
)
def test_a_damaged_model_is_an_error_in_one_line(tmp_path, content):
    path = save(tmp_path, content)
    with pytest.raises(
        InputError, match=r"cannot be opened as a tflite model"
    ) as caught:
        open_tflite(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


def test_only_the_greeting_of_litert_is_hidden_also_after_an_error(capfd):
    with suppress(KeyError), hide_greeting():
        os.write(
            2,
            b"before\nINFO: Created TensorFlow Lite XNNPACK delegate for CPU.\nafter\n",
        )
        raise KeyError
    os.write(2, b"later\n")
    assert capfd.readouterr().err == "before\nafter\nlater\n"


# The real weights


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """BirdNET's own file, rewritten."""
    pytest.importorskip("ai_edge_litert")
    target = tmp_path_factory.mktemp("birdnet") / "embedding.tflite"
    expose_tensor(birdnet_weights(), target, EMBEDDING)
    return target


def make_sounds():
    time_s = np.arange(144000) / 48000
    hiss = np.random.default_rng(5).normal(size=144000)
    harmonics = [np.sin(2 * np.pi * 18 * n * time_s) / n for n in range(1, 20)]
    sounds = {
        "noise": hiss * 0.1,
        "chirp": 0.7 * np.sin(2 * np.pi * (200 + 2000 * time_s) * time_s),
        "silence": 0 * time_s,
        "loud": hiss * 1e4,
        "faint": hiss * 1e-6,
        "click": (np.arange(144000) == 70000) * 0.9,
        "rumble": np.sum(harmonics, axis=0) * 0.3,
    }
    return {name: signal.astype(np.float32) for name, signal in sounds.items()}


def embed_slowly(source, windows):
    """Run the original model with every tensor kept, and read the embedding."""
    interpreter = importlib.import_module("ai_edge_litert.interpreter").Interpreter
    with pytest.warns(UserWarning, match="preserve_all_tensors"):
        model = interpreter(
            model_path=str(source), experimental_preserve_all_tensors=True
        )
    model.allocate_tensors()
    rows = []
    for window in windows:
        model.set_tensor(0, window[None])
        model.invoke()
        rows.append(model.get_tensor(545).copy())
    return np.concatenate(rows)


def test_birdnet_gives_the_vectors_of_the_original_file(real):
    windows = np.stack(list(make_sounds().values()))
    ours = open_tflite(real)(windows)
    theirs = embed_slowly(birdnet_weights(), windows)
    assert ours.shape == (7, 1024)
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_birdnet_gives_the_same_bits_in_any_batch_and_in_threads(real):
    windows = np.stack(list(make_sounds().values())[:5])
    model = open_tflite(real)
    alone = np.concatenate([model(window[None]) for window in windows])
    for rows in (1, 2, 5):
        np.testing.assert_array_equal(model(windows[:rows]), alone[:rows])
    np.testing.assert_array_equal(open_tflite(real, threads=2)(windows), alone)


def test_birdnet_gives_the_vector_of_another_runtime(real):
    vector = open_tflite(real)(make_sounds()["chirp"][None])[0]
    theirs = {  # tflite-runtime 2.14.0
        515: 3.463169,
        794: 3.280769,
        477: 3.248842,
        648: 3.018829,
        486: 2.660067,
    }
    np.testing.assert_allclose(
        vector[list(theirs)], list(theirs.values()), rtol=0, atol=1e-4
    )
    assert np.linalg.norm(vector) == pytest.approx(23.488316, abs=1e-4)
