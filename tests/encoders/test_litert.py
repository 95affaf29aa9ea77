"""A tflite model is rewritten in a few bytes; a damaged one is an error in one line."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.litert import expose_tensor
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
    assert sorted(changes) == [
        (1, 0),
        (2, 1),
        (4, 3),
    ]  # signatures, operators, the output


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


def test_every_truncated_file_is_an_error(tmp_path):
    content = tiny()
    last = content.index(b"main") + 4  # later buffers and signatures are not read
    for length in range(last):
        assert_rejected(save(tmp_path, content[:length]))


@given(st.data())
@settings(max_examples=100)
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


# The real weights


@pytest.mark.parametrize("trial", range(4))
def test_damaged_weights_give_a_model_or_an_input_error(trial, tmp_path):
    rng = np.random.default_rng(trial)
    damaged = bytearray(birdnet_weights().read_bytes())
    if trial % 4 == 0:
        del damaged[int(rng.integers(len(damaged))) :]
    for position in rng.integers(
        0, min(64000, len(damaged)), 8
    ):  # most tables are there
        damaged[position] = int(rng.integers(256))
    with suppress(InputError):
        expose_tensor(save(tmp_path, bytes(damaged)), tmp_path / "cut", EMBEDDING)
