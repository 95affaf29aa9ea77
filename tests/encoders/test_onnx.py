"""ONNX models: sessions, windows in batches, and graphs that are cut without changing a bit."""

import importlib
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.onnx import cut_graph, open_session, open_windows
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
    return open_windows(path, samples=8, dimension=1, **options)


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
    monkeypatch.setenv(
        "ORT_DISABLE_TELEMETRY", "1"
    )  # this may be the first import of all
    return importlib.import_module("onnxruntime")


def test_missing_cuda_is_an_error_with_the_available_providers(tmp_path, runtime):
    if "CUDAExecutionProvider" in runtime.get_available_providers():
        pytest.skip("this ONNX Runtime has CUDA")
    with pytest.raises(
        OptionError,
        match=r"cuda is not in this ONNX Runtime, which has .*CPUExecutionProvider",
    ):
        open_session(save_model(tmp_path, MEAN), device="cuda")


def test_cuda_that_does_not_start_is_an_error_and_is_not_replaced_by_the_cpu(
    tmp_path, runtime, monkeypatch
):
    monkeypatch.setattr(
        runtime, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )
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
        open_session(save_model(tmp_path, MEAN), device="cuda")
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


@pytest.mark.parametrize("name", [b"me\nn", b"\x1b[2J"])
def test_names_that_cannot_be_printed_are_an_error_in_one_line(tmp_path, name, capfd):
    content = onnx.parser.parse_model(HEAD + MEAN).SerializeToString()
    (tmp_path / "bad.onnx").write_bytes(content.replace(b"mean", name))
    one_line = r"bad\.onnx: [ -~…\N{REPLACEMENT CHARACTER}]*$"
    with pytest.raises(InputError, match=one_line):
        open_windows(tmp_path / "bad.onnx", samples=3, dimension=5)
    with pytest.raises(InputError, match=one_line):
        cut_graph(tmp_path / "bad.onnx", tmp_path / "cut.onnx", ["mean"])
    assert capfd.readouterr() == ("", "")


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


def test_a_missing_package_is_an_error_with_the_command_that_installs_it():
    with pytest.raises(InputError, match=r"pip install 'callshot\[onnx\]'"):
        import_package("no_such_onnxruntime", "onnx")


def test_a_package_that_cannot_be_loaded_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text(
        "raise ImportError('libcudart.so: cannot open')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"cannot be loaded \(libcudart"):
        import_package("broken_package", "onnx")


# Windows


def test_a_vector_does_not_depend_on_the_others_in_its_batch(tmp_path):
    graph = Graph()
    graph.node("MatMul", ["wave", graph.random_weight("first", 500, 300)], "hidden")
    graph.node("Tanh", ["hidden"], "activation")
    graph.node(
        "MatMul", ["activation", graph.random_weight("second", 300, 70)], "vector"
    )
    path = graph.save(tmp_path / "m.onnx", {"wave": ["n", 500]}, {"vector": ["n", 70]})
    model = open_windows(path, samples=500, dimension=70)
    windows = make_windows(33, 500)
    together = model(windows)
    assert (together.dtype, together.shape) == (np.float32, (33, 70))
    for count in (1, 2, 5, 16):
        assert np.abs(model(windows[:count]) - together[:count]).max() <= 1e-5
    assert np.array_equal(model(windows), together)


def test_a_model_with_batch_1_is_run_row_by_row(tmp_path):
    free = open_mean(save_model(tmp_path, MEAN, "free.onnx"))
    fixed = open_mean(save_model(tmp_path, MEAN.replace("[n", "[1"), "fixed.onnx"))
    windows = make_windows(5, 8)
    assert np.allclose(fixed(windows), windows.mean(1, keepdims=True), atol=1e-7)
    assert np.allclose(fixed(windows), free(windows), atol=1e-7)


def test_a_result_is_not_changed_by_the_next_call(tmp_path):
    model = open_mean(save_model(tmp_path, MEAN))
    first = model(np.ones((2, 8), np.float32))
    copy = first.copy()
    assert model(np.zeros((2, 8), np.float32)).max() == 0
    assert np.array_equal(first, copy)
    assert first.flags.writeable
    assert first.flags.owndata


def test_memory_layout_and_float_type_of_windows_do_not_matter(tmp_path):
    model = open_mean(save_model(tmp_path, MEAN))
    windows = make_windows(4, 8)
    for other in (
        np.asfortranarray(windows),
        windows.astype(np.float64),
        np.repeat(windows, 2, axis=0)[::2],
    ):
        assert np.array_equal(model(other), model(windows))


def test_an_output_is_chosen_by_name_or_by_its_dimension(tmp_path):
    text = """(float[n, 8] wave) => (float[n, 1] mean, float[n, 8] size, float[n, 2, 4] block) {
        mean = ReduceMean <axes = [1]> (wave)
        size = Abs(wave)
        shape = Constant <value = int64[3] {-1, 2, 4}> ()
        block = Reshape(wave, shape)
    }"""
    path = save_model(tmp_path, text)
    windows = make_windows(3, 8)
    by_name = open_windows(path, samples=8, dimension=8, output="size")
    assert by_name(windows).shape == (3, 8)
    by_dimension = open_windows(path, samples=8, dimension=1)
    assert by_dimension(windows).shape == (3, 1)
    message = (
        r"expected one output of 2 dimensions.*mean tensor\(float\) \['n', 1\], size"
    )
    with pytest.raises(InputError, match=message):
        open_windows(path, samples=8, dimension=2)
    with pytest.raises(
        InputError, match="expected the output 'sizes', in floats, got mean"
    ):
        open_windows(path, samples=8, dimension=8, output="sizes")
    block = open_windows(path, samples=8, dimension=4, output="block")
    with pytest.raises(
        InputError, match=r"expected vectors of shape \(3, 4\), .*\(3, 2, 4\)"
    ):
        block(windows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MEAN.replace("float[n, 8]", "float16[n, 8]").replace(
                "float[n, 1]", "float16[n, 1]"
            ),
            "one input of waveforms",
        ),
        (
            MEAN.replace("n, 8", "n, 1, 8").replace("n, 1]", "n, 1, 8]"),
            "one input of waveforms",
        ),
        (MEAN.replace("n,", "4,"), r"with a free batch or 1, got wave .*\[4, 8\]"),
        (
            "(float[n, 8] a, float[n, 8] b) => (float[n, 8] c) { c = Add(a, b) }",
            "one input of waveforms.*b tensor",
        ),
        (
            "(float[n, 8] a) => (int64[n, 8] c) { c = Cast <to = 7> (a) }",
            "in floats, got c tensor.int64",
        ),
    ],
)
def test_a_model_with_other_inputs_or_outputs_is_an_error(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        open_mean(save_model(tmp_path, text))


def test_sizes_that_disagree_with_the_file_are_errors(tmp_path):
    path = save_model(tmp_path, MEAN)
    message = r"windows \(batch, 9\) .* got wave .* is this the right file"
    with pytest.raises(InputError, match=message):
        open_windows(path, samples=9, dimension=1)
    with pytest.raises(InputError, match=r"vectors \(batch, 2\) .* got wave"):
        open_windows(path, samples=8, dimension=2)


def test_sizes_that_the_file_leaves_free_are_checked_when_it_runs(tmp_path):
    path = save_model(tmp_path, "(float[n, s] x) => (float[n, s] y) { y = Abs(x) }")
    windows = make_windows(2, 5)
    assert open_windows(path, samples=5, dimension=5)(windows).shape == (2, 5)
    with pytest.raises(
        InputError, match=r"expected vectors of shape \(2, 4\), .*\(2, 5\)"
    ):
        open_windows(path, samples=5, dimension=4)(windows)


def test_a_model_that_fails_on_its_input_is_an_error_in_one_line(tmp_path, capfd):
    text = """(float[n, s] x) => (float[m, 4] y) {
        shape = Constant <value = int64[2] {-1, 4}> ()
        y = Reshape(x, shape)
    }"""
    model = open_windows(save_model(tmp_path, text), samples=5, dimension=4)
    with pytest.raises(
        InputError, match=r"cannot be run on an input of shape \(1, 5\) \(.*\)$"
    ):
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


@pytest.mark.parametrize("names", [["spectrogram", "embedding"], ["sizes", "label"]])
def test_a_graph_can_be_cut_to_any_tensors_in_any_order(tmp_path, names):
    whole = perch_v2(tmp_path / "whole.onnx")
    cut = tmp_path / "cut.onnx"
    signal = make_windows(2, 160_000)
    cut_graph(whole, cut, names)
    model = onnx.load(cut)
    assert [output.name for output in model.graph.output] == names
    larger = tmp_path / "larger.onnx"
    cut_graph(whole, larger, [*names, *({"embedding", "label"} - set(names))])
    arrays = run_session(cut, signal)
    expected = run_session(larger, signal, names)
    assert all(map(np.array_equal, arrays, expected))
    assert len(arrays) == len(names)


def test_tensors_that_a_branch_reads_are_kept(tmp_path):
    whole = save_model(tmp_path, BRANCH)
    cut = tmp_path / "cut.onnx"
    cut_graph(whole, cut, ["y"])
    kinds = [node.op_type for node in onnx.load(cut).graph.node]
    assert "Exp" not in kinds
    for signal in (np.ones((2, 4), np.float32), -np.ones((2, 4), np.float32)):
        assert np.array_equal(run_session(cut, signal)[0], np.ones((2, 4)))


def test_inputs_that_the_cut_does_not_read_are_dropped(tmp_path):
    text = "(float[n] a, float[n] b) => (float[n] c) { d = Abs(a) c = Add(d, b) }"
    whole = save_model(tmp_path, text)
    cut = tmp_path / "cut.onnx"
    cut_graph(whole, cut, ["d"])
    assert [entry.name for entry in onnx.load(cut).graph.input] == ["a"]


def test_external_weights_beside_the_source_are_copied_into_the_cut(tmp_path):
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
    signal = make_windows(1, 160_000)
    assert np.array_equal(
        run_session(tmp_path / "one.onnx", signal)[0],
        run_session(tmp_path / "two.onnx", signal)[0],
    )
    (beside / "m.data").unlink()
    with pytest.raises(InputError, match=r"m\.onnx: "):
        cut_graph(beside / "m.onnx", tmp_path / "three.onnx", ["embedding"])
    assert not (tmp_path / "three.onnx").exists()


def test_external_weights_outside_the_folder_of_the_source_are_not_read(tmp_path):
    whole = perch_v2(tmp_path / "whole.onnx")
    beside = tmp_path / "beside"
    beside.mkdir()
    onnx.save(
        onnx.load(whole),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        location="m.data",
    )
    model = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "../m.data" if entry.key == "location" else entry.value
    (beside / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"m\.onnx: "):
        cut_graph(beside / "m.onnx", tmp_path / "cut.onnx", ["embedding"])


def test_an_unknown_tensor_is_an_error_with_near_names(tmp_path):
    with pytest.raises(
        InputError, match=r"no tensor 'embeddings'; did you mean embedding\?"
    ):
        cut_graph(
            perch_v2(tmp_path / "whole.onnx"), tmp_path / "cut.onnx", ["embeddings"]
        )
