"""ONNX models: the same vectors alone and in a batch, graphs cut without a changed bit, and a quiet runtime."""

import importlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callshot.encoders.onnx import cut_graph, need_package, open_session, open_windows
from callshot.errors import CallshotError, InputError, OptionError, OutputError
from standins import Graph, hubert, perch_v2, weights_of

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MEAN = "(float[n, 8] wave) => (float[n, 1] mean) { mean = ReduceMean <axes = [1]> (wave) }"
BRANCH = """(float[n, 4] x) => (float[n, 4] z) {
    big = Abs(x)
    small = Neg(x)
    extra = Exp(x)
    total = ReduceSum <keepdims = 0> (x)
    zero = Constant <value = float {0.0}> ()
    up = Greater(total, zero)
    y = If (up) <
        then_branch = left () => (float[n, 4] l) { l = Identity(big) },
        else_branch = right () => (float[n, 4] r) { r = Identity(small) }>
    z = Add(y, extra)
}"""


def written(folder: Path, text: str, name: str = "model.onnx") -> Path:
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / name)
    return folder / name


def waves(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def outputs(
    path: Path, signal: NDArray[np.float32], names: Sequence[str] | None = None
) -> list[Any]:
    session = open_session(path)
    return list(session.run(names, {session.get_inputs()[0].name: signal}))


# Sessions


def test_a_session_uses_the_threads_it_is_given_and_does_not_spin(tmp_path: Path) -> None:
    options = open_session(written(tmp_path, MEAN), threads=2).get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize(("option", "value"), [("device", "gpu"), ("threads", 0), ("threads", -1)])
def test_an_option_out_of_range_is_refused(tmp_path: Path, option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"^{option}: .*{value}"):
        open_session(written(tmp_path, MEAN), **{option: value})


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")  # this may be the first import of all
    return importlib.import_module("onnxruntime")


def test_cuda_is_refused_where_it_is_not_and_the_error_says_what_is_there(
    tmp_path: Path, runtime: Any
) -> None:
    if "CUDAExecutionProvider" in runtime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(
        OptionError, match=r"cuda is not in this ONNX Runtime, which has .*CPUExecutionProvider"
    ):
        open_session(written(tmp_path, MEAN), device="cuda")


def test_cuda_that_does_not_start_is_refused_and_never_replaced_by_the_cpu(
    tmp_path: Path, runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(runtime, "preload_dlls", lambda: None, raising=False)
    given: list[Any] = []

    class Fallen:
        def __init__(
            self, path: str, options: Any, providers: list[Any], enable_fallback: int
        ) -> None:
            given.extend((*providers, enable_fallback))

        def get_inputs(self) -> list[Any]:
            return []

        get_outputs = disable_fallback = get_inputs

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(runtime, "InferenceSession", Fallen)
    with pytest.raises(OptionError, match="cuda did not start"):
        open_session(written(tmp_path, MEAN), device="cuda")
    assert given[0][0] == "CUDAExecutionProvider"
    assert given[0][1]["use_tf32"] == "0"
    assert given[1] == 0


@pytest.mark.parametrize(
    "content", [b"", b"this is not a model\n" * 50, b"\0" * 1000, b"PK\3\4" * 100]
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    for use in (
        open_session,
        open_windows,
        lambda path: cut_graph(path, tmp_path / "cut.onnx", ["mean"]),
    ):
        with pytest.raises(InputError, match=r"bad\.onnx: "):
            use(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.onnx"]


def test_a_folder_and_a_missing_file_are_refused_in_the_words_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        open_session(tmp_path / "gone.onnx")
    with pytest.raises(InputError, match="Is a directory"):
        open_session(tmp_path)


@pytest.mark.parametrize("name", [b"me\nn", b"me\x80n", b"\x1b[2J"])
def test_names_that_cannot_be_shown_are_refused_in_one_line(
    tmp_path: Path, name: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    content = onnx.parser.parse_model(HEAD + MEAN).SerializeToString()
    (tmp_path / "bad.onnx").write_bytes(content.replace(b"mean", name))
    for use in (open_session, lambda path: cut_graph(path, tmp_path / "cut.onnx", ["mean"])):
        with pytest.raises(InputError, match=r"bad\.onnx: [ -~…\N{REPLACEMENT CHARACTER}]*$"):
            use(tmp_path / "bad.onnx")
    assert capfd.readouterr() == ("", "")


@settings(max_examples=60)
@given(
    at=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    length=st.floats(0, 1) | st.just(1.0),
)
def test_a_damaged_model_raises_nothing_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory, at: float, value: int, length: float
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(onnx.parser.parse_model(HEAD + MEAN).SerializeToString())
    content[int(at * len(content))] = value
    (folder / "bad.onnx").write_bytes(content[: int(len(content) * length)])
    messages = []
    for use in (
        lambda: cut_graph(folder / "bad.onnx", folder / "cut.onnx", ["mean"]),
        lambda: open_windows(folder / "bad.onnx")(waves(2, 8)),
    ):
        try:
            use()
        except CallshotError as error:
            messages.append(str(error))
    assert not any("\n" in message for message in messages)


def test_a_missing_package_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(InputError, match=r"pip install 'callshot\[onnx\]'"):
        need_package("onnxruntime_that_is_not_there", "onnx")


def test_a_package_that_does_not_load_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_package.py").write_text("raise ImportError('libcudart.so: cannot open')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot be loaded \(libcudart"):
        need_package("broken_package", "onnx")


SILENT = """
import sys
from pathlib import Path
import numpy as np
from callshot.encoders.onnx import cut_graph, open_windows
assert "onnxruntime" not in sys.modules and "onnx" not in sys.modules
source, target = map(Path, sys.argv[1:])
cut_graph(source, target, ["mean"])
print(open_windows(target, threads=2)(np.ones((3, 8), np.float32)).tolist())
"""


def test_opening_and_running_a_session_writes_nothing_home_and_says_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    names = (
        "HOME",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "TMPDIR",
        "USERPROFILE",
    )
    names += ("XDG_RUNTIME_DIR", "LOCALAPPDATA", "APPDATA")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("ORT_DISABLE_TELEMETRY", "CI")
    }
    command = [
        sys.executable,
        "-c",
        SILENT,
        str(written(tmp_path, MEAN)),
        str(tmp_path / "cut.onnx"),
    ]
    done = subprocess.run(
        command,
        env=kept | dict.fromkeys(names, str(home)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[1.0], [1.0], [1.0]]\n", "")
    assert list(home.rglob("*")) == []


# Windows


def test_a_row_does_not_depend_on_the_others_in_its_batch(tmp_path: Path) -> None:
    graph = Graph()
    graph.node("MatMul", ["wave", graph.drawn("first", 500, 300)], "hidden")
    graph.node("Tanh", ["hidden"], "bent")
    graph.node("MatMul", ["bent", graph.drawn("second", 300, 70)], "vector")
    model = open_windows(
        graph.save(tmp_path / "m.onnx", {"wave": ["n", 500]}, {"vector": ["n", 70]})
    )
    windows = waves(33, 500)
    together = model(windows)
    assert (together.dtype, together.shape) == (np.float32, (33, 70))
    assert (model.samples, model.dimension) == (500, 70)
    for count in (1, 2, 5, 16):
        assert np.abs(model(windows[:count]) - together[:count]).max() <= 1e-5
    assert np.array_equal(model(windows), together)


def test_a_model_of_batch_1_is_run_row_by_row(tmp_path: Path) -> None:
    free, fixed = (
        open_windows(written(tmp_path, MEAN.replace("[n", f"[{n}"), f"{n}.onnx"))
        for n in ("n", "1")
    )
    windows = waves(5, 8)
    assert np.allclose(fixed(windows), windows.mean(1, keepdims=True), atol=1e-7)
    assert np.allclose(fixed(windows), free(windows), atol=1e-7)


def test_what_a_model_returned_is_not_changed_by_the_next_call(tmp_path: Path) -> None:
    model = open_windows(written(tmp_path, MEAN))
    first = model(np.ones((2, 8), np.float32))
    kept = first.copy()
    assert model(np.zeros((2, 8), np.float32)).max() == 0
    assert np.array_equal(first, kept)
    assert first.flags.writeable
    assert first.flags.owndata


def test_windows_of_any_layout_and_kind_of_float_give_the_same_rows(tmp_path: Path) -> None:
    model, windows = open_windows(written(tmp_path, MEAN)), waves(4, 8)
    for other in (
        np.asfortranarray(windows),
        windows.astype(np.float64),
        np.repeat(windows, 2, axis=0)[::2],
    ):
        assert np.array_equal(model(other), model(windows))


def test_an_output_is_found_by_name_or_as_the_only_matrix_or_by_its_dimension(
    tmp_path: Path,
) -> None:
    several = """(float[n, 8] wave) => (float[n, 1] mean, float[n, 8] size, float[n, 2, 4] block) {
        mean = ReduceMean <axes = [1]> (wave)
        size = Abs(wave)
        shape = Constant <value = int64[3] {-1, 2, 4}> ()
        block = Reshape(wave, shape)
    }"""
    path, windows = written(tmp_path, several), waves(3, 8)
    assert open_windows(path, output="size")(windows).shape == (3, 8)
    assert open_windows(path, dimension=1)(windows).shape == (3, 1)
    with pytest.raises(
        InputError, match=r"one output of some dimensions.*mean tensor\(float\) \['n', 1\], size"
    ):
        open_windows(path)
    with pytest.raises(InputError, match=r"wanted the output 'sizes', in floats, found mean"):
        open_windows(path, output="sizes")
    with pytest.raises(InputError, match=r"output block: wanted shape \(3, 4\), found \(3, 2, 4\)"):
        open_windows(path, output="block")(windows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MEAN.replace("float[n, 8]", "float16[n, 8]").replace("float[n, 1]", "float16[n, 1]"),
            "one input of waveforms",
        ),
        (MEAN.replace("n, 8", "n, 1, 8").replace("n, 1]", "n, 1, 8]"), "one input of waveforms"),
        (MEAN.replace("n,", "4,"), "wanted a free batch, or 1, found 4"),
        (
            "(float[n, 8] a, float[n, 8] b) => (float[n, 8] c) { c = Add(a, b) }",
            "one input of waveforms.*b tensor",
        ),
        (
            "(float[n, 8] a) => (int64[n, 8] c) { c = Cast <to = 7> (a) }",
            "in floats, found c tensor.int64",
        ),
    ],
)
def test_a_model_with_other_ends_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_windows(written(tmp_path, text))


def test_sizes_that_the_file_contradicts_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, MEAN)
    with pytest.raises(
        InputError, match="input wave, samples: wanted 9, found 8; is this the right file"
    ):
        open_windows(path, samples=9)
    with pytest.raises(InputError, match="output mean, dimension: wanted 2, found 1"):
        open_windows(path, dimension=2)


@pytest.mark.parametrize("shape", [(8,), (0, 8), (2, 7), (2, 8, 1)])
def test_windows_of_another_shape_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"wanted windows of shape \(n, 8\)"):
        open_windows(written(tmp_path, MEAN))(waves(*shape))


def test_sizes_that_the_file_leaves_free_are_checked_when_it_runs(tmp_path: Path) -> None:
    path = written(tmp_path, "(float[n, s] x) => (float[n, s] y) { y = Abs(x) }")
    assert open_windows(path)(waves(2, 5)).shape == (2, 5)
    assert open_windows(path).dimension is None
    with pytest.raises(InputError, match=r"output y: wanted shape \(2, 4\), found \(2, 5\)"):
        open_windows(path, dimension=4)(waves(2, 5))
    with pytest.raises(InputError, match=r"wanted windows of shape \(n, 6\)"):
        open_windows(path, samples=6)(waves(2, 5))


def test_a_model_that_fails_on_its_input_says_so_in_one_line_and_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = "(float[n, s] x) => (float[m, 4] y) { to = Constant <value = int64[2] {-1, 4}> () y = Reshape(x, to) }"
    with pytest.raises(InputError, match=r"cannot be run on an input of shape \(1, 5\) \(.*\)$"):
        open_windows(written(tmp_path, text))(waves(1, 5))
    assert capfd.readouterr() == ("", "")


# Cutting


def test_a_cut_holds_what_its_outputs_need_and_gives_the_same_bits(tmp_path: Path) -> None:
    whole, cut, signal = perch_v2(tmp_path / "whole.onnx"), tmp_path / "cut.onnx", waves(3, 160_000)
    cut_graph(whole, cut, ["embedding"])
    assert sorted(weights_of(cut)) == ["body", "coarse"]
    assert [output.name for output in onnx.load(cut).graph.output] == ["embedding"]
    assert np.array_equal(outputs(cut, signal)[0], outputs(whole, signal, ["embedding"])[0])
    assert cut.stat().st_size < 0.6 * whole.stat().st_size


@pytest.mark.parametrize(
    "names", [["label"], ["spectrogram", "embedding"], ["means"], ["sizes", "label"]]
)
def test_any_tensors_may_be_cut_to_in_the_order_of_their_names(
    tmp_path: Path, names: list[str]
) -> None:
    whole, cut, signal = perch_v2(tmp_path / "whole.onnx"), tmp_path / "cut.onnx", waves(2, 160_000)
    cut_graph(whole, cut, names)
    model = onnx.load(cut)
    assert [output.name for output in model.graph.output] == names
    all_out = tmp_path / "all.onnx"
    cut_graph(whole, all_out, [*names, *({"embedding", "label"} - set(names))])
    for found, wanted in zip(outputs(cut, signal), outputs(all_out, signal, names), strict=True):
        assert np.array_equal(found, wanted)


def test_what_a_branch_reads_is_kept(tmp_path: Path) -> None:
    whole, cut = written(tmp_path, BRANCH), tmp_path / "cut.onnx"
    cut_graph(whole, cut, ["y"])
    kinds = [node.op_type for node in onnx.load(cut).graph.node]
    assert "Exp" not in kinds
    for signal in (np.ones((2, 4), np.float32), -np.ones((2, 4), np.float32)):
        assert np.array_equal(outputs(cut, signal)[0], np.ones((2, 4)))


def test_inputs_that_the_cut_does_not_read_are_dropped(tmp_path: Path) -> None:
    whole, cut = (
        written(tmp_path, "(float[n] a, float[n] b) => (float[n] c) { d = Abs(a) c = Add(d, b) }"),
        tmp_path / "c",
    )
    cut_graph(whole, cut, ["d"])
    assert [entry.name for entry in onnx.load(cut).graph.input] == ["a"]


def test_a_cut_of_a_cut_is_the_same_file_and_so_is_a_cut_again(tmp_path: Path) -> None:
    whole = hubert(tmp_path / "whole.onnx")
    inner = "/encoder/layers.1/final_layer_norm/Add_1_output_0"
    for source, target in ((whole, "a"), (whole, "b"), (tmp_path / "a", "c")):
        cut_graph(source, tmp_path / target, [inner])
    contents = {(tmp_path / name).read_bytes() for name in "abc"}
    assert len(contents) == 1


def test_weights_in_a_file_beside_the_source_are_taken_into_the_cut(tmp_path: Path) -> None:
    whole = perch_v2(tmp_path / "whole.onnx")
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save(
        onnx.load(whole),
        beside / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=1024,
    )
    cut_graph(whole, tmp_path / "one.onnx", ["embedding"])
    cut_graph(beside / "m.onnx", tmp_path / "two.onnx", ["embedding"])
    signal = waves(1, 160_000)
    assert np.array_equal(
        outputs(tmp_path / "one.onnx", signal)[0], outputs(tmp_path / "two.onnx", signal)[0]
    )
    (beside / "m.data").unlink()
    with pytest.raises(InputError, match=r"m\.onnx: "):
        cut_graph(beside / "m.onnx", tmp_path / "three.onnx", ["embedding"])
    assert not (tmp_path / "three.onnx").exists()


def test_weights_outside_the_folder_of_the_source_are_not_read(tmp_path: Path) -> None:
    whole = perch_v2(tmp_path / "whole.onnx")
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save(onnx.load(whole), tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../m.data" if entry.key == "location" else entry.value
    (beside / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"m\.onnx: "):
        cut_graph(beside / "m.onnx", tmp_path / "cut.onnx", ["embedding"])


def test_a_name_that_is_not_in_the_graph_is_answered_with_near_ones(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"no tensor 'embeddings' is made in it; near names: embedding"
    ):
        cut_graph(perch_v2(tmp_path / "whole.onnx"), tmp_path / "cut.onnx", ["embeddings"])


def test_a_cut_that_cannot_be_written_leaves_the_old_one_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = written(tmp_path, MEAN), tmp_path / "cut.onnx"
    cut.write_bytes(b"old")
    monkeypatch.setattr(
        os, "fsync", lambda number: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(
        OutputError, match=r"cut\.onnx: cannot be written \(No space left on device\)"
    ):
        cut_graph(whole, cut, ["mean"])
    assert cut.read_bytes() == b"old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["cut.onnx", "model.onnx"]
