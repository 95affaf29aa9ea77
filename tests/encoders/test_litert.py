"""tflite models: rewritten in a few bytes, the same vectors; a damaged one is an error in one line.

The real weights are looked for in callshot's cache and at $CALLSHOT_BIRDNET and $CALLSHOT_YAMNET.
"""

import os
import struct
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.litert import expose_tensor, hide_greeting, open_tflite
from callshot.encoders.weights import weight_folder
from callshot.encoders.windows import make_test_sounds
from callshot.errors import InputError
from tflites import EMBEDDING, birdnet_weights, save, tensor, tiny

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")


def assert_rejected(source):
    """Check for an error in one line that begins with the file, and that no file is left."""
    target = source.with_name("target.tflite")
    with pytest.raises(InputError, match="cannot be read as a tflite model") as caught:
        expose_tensor(source, target, EMBEDDING)
    assert str(caught.value).startswith(f"{source}: ")
    assert len(str(caught.value).splitlines()) == 1
    assert [path for path in source.parent.iterdir() if "target" in path.name] == []


# Rewriting


def test_only_the_output_and_three_lengths_change(tmp_path):
    expose_tensor(save(tmp_path, tiny()), tmp_path / "cut.tflite", EMBEDDING)
    before = tiny()
    after = (tmp_path / "cut.tflite").read_bytes()
    assert len(before) == len(after)
    changes = []
    for position in range(0, len(before), 4):
        old = before[position : position + 4]
        new = after[position : position + 4]
        if old != new:
            changes.append((*struct.unpack("<i", old), *struct.unpack("<i", new)))
    # Signatures, operators, the output
    assert sorted(changes) == [(1, 0), (2, 1), (4, 3)]


@pytest.mark.parametrize(
    "content", [tiny(), tiny(graph={2: [4, 1, 2]}), tiny(model={7: None})]
)
def test_the_rewritten_graph_ends_with_the_tensor(tmp_path, content):
    source = save(tmp_path, content)
    expose_tensor(source, source, EMBEDDING)
    model = schema.Model.GetRootAs(source.read_bytes(), 0)
    graph = model.Subgraphs(0)
    assert graph.OutputsAsNumpy().tolist() == [3]
    assert graph.OperatorsLength() == 1
    assert graph.Operators(0).OutputsAsNumpy().tolist() == [3]
    assert model.SignatureDefsLength() == 0


# Bad files


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RIFF\0\0\0\0WAVE",
        b"\xff\xff\xff\x7fTFL3",
        b"\x08\0\0\0TFL3\xff\xff\xff\x7f",
        tiny(model={2: []}),
        tiny(graph={2: []}),
        tiny(graph={3: [{0: 1, 1: [3], 2: [4]}]}),
        tiny(graph={0: []}),
        tiny(graph={0: [tensor(EMBEDDING + "\n\x1b[2J", [1, 9])]}),
    ],
)
def test_a_file_that_is_not_such_a_model_is_an_error(tmp_path, content):
    assert_rejected(save(tmp_path, content))


@given(st.data())
@settings(max_examples=40)
def test_random_bytes_give_a_model_or_an_input_error(tmp_path_factory, data):
    content = bytearray(tiny())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    source = save(tmp_path_factory.getbasetemp(), bytes(content))
    target = source.with_name("flipped.tflite")
    target.unlink(missing_ok=True)
    try:
        expose_tensor(source, target, EMBEDDING)
    except InputError:
        assert not target.exists()
    else:
        assert len(target.read_bytes()) == len(content)


needs_litert = pytest.mark.skipif(
    find_spec("ai_edge_litert") is None, reason="ai-edge-litert is not installed"
)


@needs_litert
@pytest.mark.parametrize(
    "content",
    [b"", b"\x08\0\0\0TFL3", tiny()[:600], tiny(graph={1: [99]}), tiny(model={1: []})],
)
def test_a_damaged_model_is_an_error_in_one_line(tmp_path, content):
    path = save(tmp_path, content)
    message = r"cannot be opened as a tflite model"
    with pytest.raises(InputError, match=message) as caught:
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
    sounds = {
        "chirp": 0.7 * np.sin(2 * np.pi * (200 + 2000 * time_s) * time_s),
        "silence": 0 * time_s,
        "loud": hiss * 1e4,
        "faint": hiss * 1e-6,
    }
    return {name: signal.astype(np.float32) for name, signal in sounds.items()}


def embed_slowly(source, windows, tensor):
    """Run the original model with every tensor kept; return what `tensor` holds, as rows."""
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter
    with pytest.warns(UserWarning, match="preserve_all_tensors"):
        model = interpreter(str(source), experimental_preserve_all_tensors=True)
    model.allocate_tensors()
    numbers = {one["name"]: one["index"] for one in model.get_tensor_details()}
    wave = model.get_input_details()[0]
    rows = []
    for window in windows:
        model.set_tensor(wave["index"], window.reshape(wave["shape"]))
        model.invoke()
        rows.append(model.get_tensor(numbers[tensor]).ravel())
    return np.stack(rows)


def test_birdnet_gives_the_vectors_of_the_original_file(real):
    sounds = make_sounds()
    windows = np.stack([sounds[name] for name in ("chirp", "silence", "loud", "faint")])
    ours = open_tflite(real)(windows)
    theirs = embed_slowly(birdnet_weights(), windows, EMBEDDING)
    assert ours.shape == (4, 1024)
    assert np.isfinite(ours).all()
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


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


SCALE = 0.022328350692987442  # of the whole numbers that the embedding has, from −128


@pytest.fixture(scope="module")
def weights():
    for path in (
        weight_folder("yamnet") / "yamnet.tflite",
        Path(os.environ.get("CALLSHOT_YAMNET", "")),
    ):
        if path.is_file():
            pytest.importorskip("ai_edge_litert")
            return path
    pytest.skip("YAMNet's weights are not here: callshot encoders get yamnet")


@pytest.fixture(scope="module")
def rewritten(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("yamnet") / "embedding.tflite"
    expose_tensor(weights, path, find_encoder("yamnet").output)
    return path


def test_the_rewritten_file_gives_the_vectors_of_the_original(weights, rewritten):
    windows = np.stack([*make_test_sounds(15600).values()])
    vectors = open_tflite(rewritten)(windows)
    numbers = embed_slowly(weights, windows, find_encoder("yamnet").output)
    values = (numbers + np.float32(128)) * np.float32(SCALE)
    np.testing.assert_array_equal(vectors, values)
    steps = vectors / SCALE
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert vectors.min() >= 0
    assert len(np.unique(vectors, axis=0)) > 1
