"""tflite models: rewritten in a few bytes, the same vectors; a damaged one is an error in one line.

The real weights are looked for in callshot's cache and at $CALLSHOT_BIRDNET and $CALLSHOT_YAMNET.
"""

import os
import struct
from contextlib import suppress
from importlib import import_module
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

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
flatbuffers = pytest.importorskip("flatbuffers")
EMBEDDING = find_encoder("birdnet-v2.4").output
BIRDNET_FILE = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"


def make(kind, **fields):
    """Return a table of the schema."""
    table = getattr(schema, f"{kind}T")()
    vars(table).update(fields)
    return table


def make_tensor(name, shape, kind=0, buffer=0):
    return make("Tensor", name=name, shape=shape, type=kind, buffer=buffer)


def tiny(graph=(), **model):
    """Make a model: wave → slice of 1024 → its negative, with a signature for the negative.

    `graph` and `model` change fields; None removes a field.
    """
    slice_code, negate_code = 65, 59
    fields = {
        "tensors": [
            make_tensor("INPUT", [1, 144000]),
            make_tensor("begin", [2], 2, 1),
            make_tensor("size", [2], 2, 2),
            make_tensor(EMBEDDING, [1, 1024]),
            make_tensor("Identity", [1, 1024]),
        ],
        "inputs": [0],
        "outputs": [4],
        "operators": [
            make("Operator", opcodeIndex=0, inputs=[0, 1, 2], outputs=[3]),
            make("Operator", opcodeIndex=1, inputs=[3], outputs=[4]),
        ],
    }
    signature = make(
        "SignatureDef",
        inputs=[make("TensorMap", name="wave", tensorIndex=0)],
        outputs=[make("TensorMap", name="logits", tensorIndex=4)],
        signatureKey="serving_default",
    )
    root = {
        "version": 3,
        "operatorCodes": [
            make("OperatorCode", deprecatedBuiltinCode=code, builtinCode=code)
            for code in (slice_code, negate_code)
        ],
        "subgraphs": [make("SubGraph", **fields | dict(graph))],
        "buffers": [
            make("Buffer"),
            make("Buffer", data=list(struct.pack("<2i", 0, 0))),
            make("Buffer", data=list(struct.pack("<2i", 1, 1024))),
        ],
        "signatureDefs": [signature],
    }
    builder = flatbuffers.Builder()
    builder.Finish(make("Model", **root | model).Pack(builder), b"TFL3")
    return bytes(builder.Output())


def save(folder, content):
    path = folder / "source.tflite"
    path.write_bytes(content)
    return path


def find_real(name, file, variable):
    """Return the path of real weights, or skip the test."""
    for path in (weight_folder(name) / file, Path(os.environ.get(variable, ""))):
        if path.is_file():
            return path
    pytest.skip(f"the weights are not here: callshot encoders get {name}")


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
    "content", [tiny(), tiny({"outputs": [4, 1, 2]}), tiny(signatureDefs=None)]
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
        tiny(subgraphs=[]),
        tiny({"outputs": []}),
        tiny({"operators": [make("Operator", opcodeIndex=1, inputs=[3], outputs=[4])]}),
        tiny({"tensors": []}),
        tiny({"tensors": [make_tensor(EMBEDDING + "\n\x1b[2J", [1, 9])]}),
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


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x08\0\0\0TFL3",
        tiny()[:600],
        tiny({"inputs": [99]}),
        tiny(operatorCodes=[]),
    ],
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
def birdnet():
    """BirdNET's own file."""
    return find_real("birdnet-v2.4", BIRDNET_FILE, "CALLSHOT_BIRDNET")


@pytest.fixture(scope="module")
def real(birdnet, tmp_path_factory):
    """BirdNET's own file, rewritten."""
    target = tmp_path_factory.mktemp("birdnet") / "embedding.tflite"
    expose_tensor(birdnet, target, EMBEDDING)
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


def test_birdnet_gives_the_vectors_of_the_original_file(birdnet, real):
    sounds = make_sounds()
    windows = np.stack([sounds[name] for name in ("chirp", "silence", "loud", "faint")])
    ours = open_tflite(real)(windows)
    theirs = embed_slowly(birdnet, windows, EMBEDDING)
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
    return find_real("yamnet", "yamnet.tflite", "CALLSHOT_YAMNET")


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
