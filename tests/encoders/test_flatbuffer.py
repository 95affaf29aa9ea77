"""Flatbuffers: a model is rewritten in a handful of bytes, and whatever is damaged is refused in one line."""

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders import flatbuffer
from callshot.encoders.birdnet import EMBEDDING
from callshot.encoders.flatbuffer import FlatBuffer, expose_tensor
from callshot.errors import InputError, OutputError
from tflites import tensor, tiny, weights, written


def refused(source: Path, match: str, name: str = EMBEDDING) -> None:
    """Expect one line that begins with the file, and nothing left behind."""
    target = source.with_name("never.tflite")
    with pytest.raises(InputError, match=match) as caught:
        expose_tensor(source, target, name)
    assert str(caught.value).startswith(f"{source}: ")
    assert len(str(caught.value).splitlines()) == 1
    assert [path for path in source.parent.iterdir() if "never" in path.name] == []


# The rewriting


def test_only_the_output_and_three_lengths_change(tmp_path: Path) -> None:
    expose_tensor(written(tmp_path, tiny()), tmp_path / "cut.tflite", EMBEDDING)
    before, after = tiny(), (tmp_path / "cut.tflite").read_bytes()
    changed = [at // 4 * 4 for at in range(len(before)) if before[at] != after[at]]
    found = [
        (struct.unpack_from("<i", before, at)[0], struct.unpack_from("<i", after, at)[0])
        for at in changed
    ]
    assert len(before) == len(after)
    assert sorted(found) == [(1, 0), (2, 1), (4, 3)]  # signatures, operators, the output


def test_rewriting_what_is_rewritten_changes_nothing(tmp_path: Path) -> None:
    cut, again = tmp_path / "cut.tflite", tmp_path / "again.tflite"
    expose_tensor(written(tmp_path, tiny()), cut, EMBEDDING)
    expose_tensor(cut, again, EMBEDDING)
    assert again.read_bytes() == cut.read_bytes()


@pytest.mark.parametrize("content", [tiny(), tiny(graph={2: [4, 1, 2]}), tiny(model={7: None})])
def test_the_rewritten_graph_ends_with_the_tensor(tmp_path: Path, content: bytes) -> None:
    source = written(tmp_path, content)
    expose_tensor(source, source, EMBEDDING)
    flat = FlatBuffer("cut", source.read_bytes())
    (graph,) = flat.tables(flat.root, 2)
    assert flat.numbers(graph, 2) == (3,)
    assert [flat.numbers(table, 2) for table in flat.tables(graph, 3)] == [(3,)]
    assert flat.tables(flat.root, 7) == []


def test_a_target_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        expose_tensor(written(tmp_path, tiny()), tmp_path / "no folder" / "cut.tflite", EMBEDDING)


# What is refused


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "not a tflite model: wanted TFL3 at byte 4, found b''"),
        (b"RIFF\0\0\0\0WAVE", "not a tflite model"),
        (b"\xff\xff\xff\x7fTFL3", "damaged at byte 2147483647"),
        (b"\x08\0\0\0TFL3\xff\xff\xff\x7f", "damaged at byte -2147483639"),
        (tiny(model={2: []}), "the model has no graph"),
        (tiny(model={2: None}), "the model has no graph"),
        (tiny(graph={2: []}), "0 tensors are outputs"),
        (tiny(graph={3: [{0: 1, 1: [3], 2: [4]}]}), "0 operators make model/GLOBAL_AVG_POOL/Mean"),
        (
            tiny(graph={0: []}),
            "wanted one tensor model/GLOBAL_AVG_POOL/Mean, found 0 of 0; names like it: none",
        ),
        (tiny(graph={0: [tensor(EMBEDDING, [1, 9])] * 2}), "found 2 of 2"),
        (
            tiny(graph={0: [tensor(EMBEDDING + "\n\x1b[2J", [1, 9])]}),
            f"names like it: {EMBEDDING}\N{REPLACEMENT CHARACTER}",
        ),
        (
            tiny(graph={0: [tensor(EMBEDDING, [1, 3, 1024])]}),
            r"found shape \(1, 3, 1024\) and type 0",
        ),
        (tiny(graph={0: [tensor(EMBEDDING, [2, 1024])]}), r"found shape \(2, 1024\)"),
        (tiny(graph={0: [tensor(EMBEDDING, [1, 1024], 9)]}), "and type 9"),
    ],
)
def test_what_is_not_such_a_model_is_refused(tmp_path: Path, content: bytes, match: str) -> None:
    refused(written(tmp_path, content), match)


def test_a_name_that_is_not_there_is_answered_with_near_ones(tmp_path: Path) -> None:
    refused(written(tmp_path, tiny()), f"names like it: {EMBEDDING}$", "model/GLOBAL_AVG_POOL/Maen")
    refused(written(tmp_path, tiny()), "0 operators make INPUT", "INPUT")


def test_a_vector_that_two_tables_share_is_not_rewritten(tmp_path: Path) -> None:
    content = bytearray(tiny(graph={1: [4]}))
    flat = FlatBuffer("", content)
    (graph,) = flat.tables(flat.root, 2)
    inputs, outputs = flat.field(graph, 1), flat.vector(graph, 2)
    assert inputs is not None
    struct.pack_into("<i", content, inputs, outputs.start - 4 - inputs)
    refused(written(tmp_path, bytes(content)), "its tables overlap")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    content = tiny()
    last = content.index(b"main") + 4  # behind it lie buffers and signatures, which are not read
    for length in range(last):
        refused(written(tmp_path, content[:length]), "damaged at byte|not a tflite model")


@given(st.data())
@settings(max_examples=300)
def test_flipped_bytes_end_in_a_model_or_in_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(tiny())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    source = written(tmp_path_factory.getbasetemp(), bytes(content))
    target = source.with_name("flipped.tflite")
    target.unlink(missing_ok=True)
    try:
        expose_tensor(source, target, EMBEDDING)
    except InputError:
        assert not target.exists()
    else:
        assert len(target.read_bytes()) == len(content)


# The real weights


def test_our_reader_agrees_with_the_generated_one_on_birdnet() -> None:
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    content = weights().read_bytes()
    theirs = schema.Model.GetRootAs(content, 0).Subgraphs(0)
    flat = FlatBuffer("birdnet", content)
    (ours,) = flat.tables(flat.root, 2)
    names = [flat.text(table, 3) for table in flat.tables(ours, 0)]
    assert names == [theirs.Tensors(i).Name().decode() for i in range(theirs.TensorsLength())]
    made = [list(flat.numbers(table, 2)) for table in flat.tables(ours, 3)]
    assert made == [
        theirs.Operators(i).OutputsAsNumpy().tolist() for i in range(theirs.OperatorsLength())
    ]
    assert (flat.numbers(ours, 1), flat.numbers(ours, 2)) == ((0,), (546,))


@pytest.mark.parametrize("trial", range(12))
def test_damaged_weights_end_in_a_model_or_in_an_input_error(trial: int) -> None:
    rng, damaged = np.random.default_rng(trial), bytearray(weights().read_bytes())
    if trial % 4 == 0:
        del damaged[int(rng.integers(len(damaged))) :]
    for at in rng.integers(0, min(64000, len(damaged)), 8):  # most tables are there
        damaged[at] = int(rng.integers(256))
    with suppress(InputError):
        flatbuffer._rewrite(FlatBuffer("damaged", damaged), EMBEDDING)
