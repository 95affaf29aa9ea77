"""ONNX models: sessions, windows in batches, and graphs that are cut without changing a bit."""

import importlib
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.models.onnx import cut_graph, open_session, open_window_model
from callshot.encoders.weights import import_package
from callshot.errors import CallshotError, InputError, OptionError
from standins import Graph, perch_v2, read_weights

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '
MEAN = (
    "(float[n, 8] wave) => (float[n, 1] mean) { mean = ReduceMean <axes = [1]> (wave) }"
)
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


def save_model(folder, text, name="model.onnx"):
    path = folder / name
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return path


def open_mean(path, **options):
    """Open the model MEAN."""
    return open_window_model(path, samples=8, dimension=1, **options)


def make_windows(*shape):
    return np.random.default_rng(7).normal(size=shape).astype(np.float32)


def run_session(path, signal, names=None):
    session = open_session(path)
    return list(session.run(names, {session.get_inputs()[0].name: signal}))


# Sessions


def test_a_session_uses_one_thread_and_keeps_no_plan_for_each_length(tmp_path):
    options = open_session(save_model(tmp_path, MEAN)).get_session_options()
    assert options.intra_op_num_threads == 1
    assert not options.enable_mem_pattern
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.fixture
def runtime(monkeypatch):
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")  # for the first import of all
    return importlib.import_module("onnxruntime")


def test_cuda_that_does_not_start_is_an_error_and_is_not_replaced_by_the_cpu(
    tmp_path, runtime, monkeypatch
):
    path = save_model(tmp_path, MEAN)
    if "CUDAExecutionProvider" not in runtime.get_available_providers():
        with pytest.raises(OptionError, match=r"cuda is not in this .*CPUExecution"):
            open_session(path, device="cuda")
    names = ["CUDAExecutionProvider"]
    monkeypatch.setattr(runtime, "get_available_providers", lambda: names)
    monkeypatch.setattr(runtime, "preload_dlls", lambda: None, raising=False)
    arguments: list[Any] = []

    class CpuSession:
        def __init__(self, path, options, providers, enable_fallback):
            arguments.extend((*providers, enable_fallback))

        def get_inputs(self):
            return []

        get_outputs = disable_fallback = get_inputs

        def get_providers(self):
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(runtime, "InferenceSession", CpuSession)
    with pytest.raises(OptionError, match="cuda did not start"):
        open_session(path, device="cuda")
    (provider, provider_options), enable_fallback = arguments
    assert provider == "CUDAExecutionProvider"
    assert provider_options["use_tf32"] == "0"
    assert enable_fallback == 0


@pytest.mark.parametrize("content", [b"", b"this is not a model\n" * 50])
def test_a_file_that_is_no_model_is_an_error(tmp_path, content):
    path = tmp_path / "bad.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.onnx: "):
        open_session(path)
    with pytest.raises(InputError, match=r"bad\.onnx: "):
        open_mean(path)
    with pytest.raises(InputError, match=r"bad\.onnx: "):
        cut_graph(path, tmp_path / "cut.onnx", ["mean"])
    assert [entry.name for entry in tmp_path.iterdir()] == ["bad.onnx"]


def test_a_folder_and_a_missing_file_are_errors_that_say_so(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        open_session(tmp_path / "missing.onnx")
    with pytest.raises(InputError, match="got a folder"):
        open_session(tmp_path)


@settings(max_examples=60)
@given(
    position=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    length=st.floats(0, 1) | st.just(1.0),
)
def test_a_damaged_model_raises_only_errors_of_callshot(
    tmp_path_factory, position, value, length
):
    folder = tmp_path_factory.getbasetemp()
    content = bytearray(onnx.parser.parse_model(HEAD + MEAN).SerializeToString())
    content[int(position * len(content))] = value
    (folder / "bad.onnx").write_bytes(content[: int(len(content) * length)])
    messages = []
    try:
        cut_graph(folder / "bad.onnx", folder / "cut.onnx", ["mean"])
    except CallshotError as error:
        messages.append(str(error))
    try:
        open_mean(folder / "bad.onnx")(make_windows(2, 8))
    except CallshotError as error:
        messages.append(str(error))
    assert not any("\n" in message for message in messages)


def test_a_package_that_is_missing_or_cannot_be_loaded_is_an_error(
    tmp_path, monkeypatch
):
    with pytest.raises(InputError, match=r"pip install 'callshot\[onnx\]'"):
        import_package("no_such_onnxruntime", "onnx")
    text = "raise ImportError('libcudart.so: cannot open')"
    (tmp_path / "broken_package.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot be loaded \(libcudart"):
        import_package("broken_package", "onnx")


# Windows


def test_a_vector_does_not_depend_on_the_others_in_its_batch(tmp_path):
    graph = Graph()
    graph.node("MatMul", ["wave", graph.random_weight("first", 500, 300)], "hidden")
    graph.node("Tanh", ["hidden"], "active")
    graph.node("MatMul", ["active", graph.random_weight("second", 300, 70)], "vector")
    path = graph.save(tmp_path / "m.onnx", {"wave": ["n", 500]}, {"vector": ["n", 70]})
    model = open_window_model(path, samples=500, dimension=70)
    windows = make_windows(33, 500)
    together = model(windows)
    assert (together.dtype, together.shape) == (np.float32, (33, 70))
    copy = together.copy()
    for count in (1, 2, 5, 16):
        assert np.abs(model(windows[:count]) - together[:count]).max() <= 1e-5
    assert np.array_equal(together, copy)  # the next call changed nothing
    for other in (np.asfortranarray(windows), windows.astype(np.float64)):
        assert np.array_equal(model(other), together)


def test_a_model_with_batch_1_is_run_row_by_row(tmp_path):
    free = open_mean(save_model(tmp_path, MEAN, "free.onnx"))
    fixed = open_mean(save_model(tmp_path, MEAN.replace("[n", "[1"), "fixed.onnx"))
    windows = make_windows(5, 8)
    assert np.allclose(fixed(windows), windows.mean(1, keepdims=True), atol=1e-7)
    assert np.allclose(fixed(windows), free(windows), atol=1e-7)


def test_an_output_is_chosen_by_name_or_by_its_dimension(tmp_path):
    text = """(float[n, 8] wave) => (float[n, 1] mean, float[n, 8] size, float[n, 2, 4] block) {
        mean = ReduceMean <axes = [1]> (wave)
        size = Abs(wave)
        shape = Constant <value = int64[3] {-1, 2, 4}> ()
        block = Reshape(wave, shape)
    }"""
    open_model = partial(open_window_model, save_model(tmp_path, text), samples=8)
    windows = make_windows(3, 8)
    assert open_model(dimension=8, output="size")(windows).shape == (3, 8)
    assert open_model(dimension=1)(windows).shape == (3, 1)
    with pytest.raises(InputError, match=r"one output of 2 dim.*\['n', 1\], size"):
        open_model(dimension=2)
    with pytest.raises(InputError, match="expected the output 'sizes', in floats, got"):
        open_model(dimension=8, output="sizes")
    with pytest.raises(InputError, match=r"shape \(3, 4\), .*\(3, 2, 4\)"):
        open_model(dimension=4, output="block")(windows)


ADD = "(float[n, 8] a, float[n, 8] b) => (float[n, 8] c) { c = Add(a, b) }"
CAST = "(float[n, 8] a) => (int64[n, 8] c) { c = Cast <to = 7> (a) }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MEAN.replace("float[", "float16["), "one input of waveforms"),
        (MEAN.replace("n, 8", "n, 1, 8").replace("n, 1]", "n, 1, 8]"), "one input of"),
        (MEAN.replace("n,", "4,"), r"with a free batch or 1, got wave .*\[4, 8\]"),
        (ADD, "one input of waveforms.*b tensor"),
        (CAST, "in floats, got c tensor.int64"),
    ],
)
def test_a_model_with_other_inputs_or_outputs_is_an_error(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        open_mean(save_model(tmp_path, text))


def test_a_model_that_fails_on_its_input_is_an_error_in_one_line(tmp_path, capfd):
    text = """(float[n, s] x) => (float[m, 4] y) {
        shape = Constant <value = int64[2] {-1, 4}> ()
        y = Reshape(x, shape)
    }"""
    model = open_window_model(save_model(tmp_path, text), samples=5, dimension=4)
    message = r"cannot be run on an input of shape \(1, 5\) \(.*\)$"
    with pytest.raises(InputError, match=message):
        model(make_windows(1, 5))
    assert capfd.readouterr() == ("", "")


# Cutting


def test_a_cut_has_what_its_outputs_need_and_gives_the_same_bits(tmp_path):
    whole = perch_v2(tmp_path / "whole.onnx")
    cut = tmp_path / "cut.onnx"
    signal = make_windows(3, 160_000)
    cut_graph(whole, cut, ["embedding"])
    assert sorted(read_weights(cut)) == ["body", "coarse"]
    assert [output.name for output in onnx.load(cut).graph.output] == ["embedding"]
    assert np.array_equal(
        run_session(cut, signal)[0], run_session(whole, signal, ["embedding"])[0]
    )
    assert cut.stat().st_size < 0.6 * whole.stat().st_size


def test_tensors_that_a_branch_reads_are_kept(tmp_path):
    whole = save_model(tmp_path, BRANCH)
    cut = tmp_path / "cut.onnx"
    cut_graph(whole, cut, ["y"])
    kinds = [node.op_type for node in onnx.load(cut).graph.node]
    assert "Exp" not in kinds
    for signal in (np.ones((2, 4), np.float32), -np.ones((2, 4), np.float32)):
        assert np.array_equal(run_session(cut, signal)[0], np.ones((2, 4)))


def test_a_model_with_weights_in_other_files_is_an_error(tmp_path):
    whole = perch_v2(tmp_path / "whole.onnx")
    source = tmp_path / "m.onnx"
    options = {"save_as_external_data": True, "location": "m.data"}
    onnx.save(onnx.load(whole), source, size_threshold=1024, **options)
    with pytest.raises(InputError, match=r"m\.onnx: its weights are in other files"):
        cut_graph(source, tmp_path / "cut.onnx", ["embedding"])
