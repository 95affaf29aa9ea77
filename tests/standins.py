"""Small models with the signatures of the real ones: Perch v1 and v2, and a HuBERT whose layers can be told apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SAMPLES = 160_000
WIDTH = 768
KERNELS = (10, 3, 3, 3, 3, 2, 2)
STRIDES = (5, 2, 2, 2, 2, 2, 2)


class Graph:
    """A graph in the making: nodes in the order of computation, and weights drawn by their names' order."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self.rng = np.random.default_rng(0)

    def node(
        self, kind: str, inputs: Sequence[str], output: str, name: str = "", **attributes: Any
    ) -> str:
        self.nodes.append(
            helper.make_node(kind, inputs, [output], name=name or f"node_{output}", **attributes)
        )
        return output

    def weight(self, name: str, values: Any) -> str:
        self.weights[name] = np.asarray(values)
        return name

    def drawn(self, name: str, *shape: int) -> str:
        return self.weight(
            name, self.rng.normal(size=shape, scale=shape[0] ** -0.5).astype(np.float32)
        )

    def save(
        self, path: Path, inputs: dict[str, Sequence[Any]], outputs: dict[str, Sequence[Any]]
    ) -> Path:
        ends = [
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                for name, shape in side.items()
            ]
            for side in (inputs, outputs)
        ]
        tensors = [numpy_helper.from_array(values, name) for name, values in self.weights.items()]
        graph = helper.make_graph(self.nodes, "standin", *ends, initializer=tensors)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def perch_v2(path: Path, dimension: int = 1536) -> Path:
    """Write a model with the four outputs of Perch v2: means of 50 samples, their sizes, and matrices on them."""
    graph = Graph()
    graph.node("Reshape", ["inputs", graph.weight("fine", [-1, 500, 320])], "frames")
    graph.node("MatMul", ["frames", graph.drawn("bands", 320, 128)], "spectrogram")
    graph.node("Reshape", ["inputs", graph.weight("coarse", [-1, 16, 4, 50, 50])], "blocks")
    graph.node("ReduceMean", ["blocks"], "means", axes=[4], keepdims=0)
    graph.node("Abs", ["means"], "sizes")
    graph.node("MatMul", ["sizes", graph.drawn("body", 50, dimension)], "spatial_embedding")
    graph.node("ReduceMean", ["spatial_embedding"], "embedding", axes=[1, 2], keepdims=0)
    graph.node("MatMul", ["embedding", graph.drawn("neck", dimension, 4)], "narrow")
    graph.node("MatMul", ["narrow", graph.drawn("head", 4, 14795)], "label")
    shapes: dict[str, Sequence[Any]] = {
        "embedding": ["batch", dimension],
        "spatial_embedding": ["batch", 16, 4, dimension],
        "spectrogram": ["batch", 500, 128],
        "label": ["batch", 14795],
    }
    return graph.save(path, {"inputs": ["batch", SAMPLES]}, shapes)


def reference_perch_v2(path: Path, windows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute the embedding of the stand-in literally: the mean over its cells."""
    return perch_v2_cells(path, windows).mean(axis=(1, 2))


def perch_v2_cells(path: Path, windows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute the spatial embedding of the stand-in literally, a cell at a time: n × 16 × 4 × dimension."""
    body = weights_of(path)["body"].astype(np.float64)
    rows = []
    for window in windows.astype(np.float64):
        blocks = [window[at : at + 2500] for at in range(0, SAMPLES, 2500)]
        sizes = [[abs(block[at : at + 50].mean()) for at in range(0, 2500, 50)] for block in blocks]
        cells = [np.array(size) @ body for size in sizes]
        rows.append([cells[at : at + 4] for at in range(0, 64, 4)])
    return np.array(rows)


def perch_v1(path: Path) -> Path:
    """Write a model as `convert_perch_v1` leaves it: batch 1, one output."""
    graph = Graph()
    graph.node("Reshape", ["inputs", graph.weight("coarse", [1, 50, 3200])], "blocks")
    graph.node("ReduceL1", ["blocks"], "sizes", axes=[2], keepdims=0)
    graph.node("MatMul", ["sizes", graph.drawn("body", 50, 1280)], "embedding")
    return graph.save(path, {"inputs": [1, SAMPLES]}, {"embedding": [1, 1280]})


def hubert(path: Path, layers: int = 12, width: int = WIDTH) -> Path:
    """Write a model with the ends, the convolutions and the names of an exported HuBERT, and small layers."""
    graph = Graph()
    at = graph.node("Unsqueeze", ["input_values", graph.weight("axis", [1])], "signal")
    for i, (kernel, stride) in enumerate(zip(KERNELS, STRIDES, strict=True)):
        weight = graph.drawn(f"conv_{i}", 8, 1 if i == 0 else 8, kernel)
        at = graph.node("Conv", [at, weight], f"conv_{i}_out", strides=[stride])
        if i == 0:
            gain = [
                graph.weight("gain", np.ones(8, np.float32)),
                graph.weight("shift", np.zeros(8, np.float32)),
            ]
            at = graph.node("InstanceNormalization", [at, *gain], "over_time")
        at = graph.node("Tanh", [at], f"tanh_{i}")
    at = graph.node("Transpose", [at], "frames", perm=[0, 2, 1])
    at = graph.node("MatMul", [at, graph.drawn("projection", 8, width)], "projected")
    for i in range(layers):
        at = _layer(graph, i, at, width, "last_hidden_state" if i == layers - 1 else "")
    return graph.save(
        path, {"input_values": ["batch", "samples"]}, {at: ["batch", "frames", width]}
    )


def _layer(graph: Graph, i: int, at: str, width: int, output: str) -> str:
    """Add a narrow matrix and a normalisation in its parts, each node named as the export names them."""
    inside = f"/encoder/layers.{i}/feed_forward"
    narrow = graph.node(
        "MatMul", [at, graph.drawn(f"narrow_{i}", width, 4)], f"{inside}/in", f"{inside}/MatMul"
    )
    wide = graph.node(
        "MatMul",
        [narrow, graph.drawn(f"wide_{i}", 4, width)],
        f"{inside}/out",
        f"{inside}/MatMul_1",
    )
    total = graph.node(
        "Add", [at, wide], f"/encoder/layers.{i}/Add_1_output_0", f"/encoder/layers.{i}/Add_1"
    )

    def norm(kind: str, step: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"/encoder/layers.{i}/final_layer_norm/{step}"
        return graph.node(
            kind,
            inputs,
            output if step == "Add_1" and output else f"{name}_output_0",
            name,
            **attributes,
        )

    centred = norm("Sub", "Sub", [total, norm("ReduceMean", "ReduceMean", [total], axes=[2])])
    two = norm("Constant", "Constant", [], value_float=2.0)
    variance = norm("ReduceMean", "ReduceMean_1", [norm("Pow", "Pow", [centred, two])], axes=[2])
    floor = norm("Constant", "Constant_1", [], value_float=1e-5)
    scale = norm("Sqrt", "Sqrt", [norm("Add", "Add", [variance, floor])])
    level = norm(
        "Mul", "Mul", [norm("Div", "Div", [centred, scale]), graph.drawn(f"gain_{i}", width)]
    )
    return norm("Add", "Add_1", [level, graph.drawn(f"shift_{i}", width)])


def reference_hubert(path: Path, signal: NDArray[np.float32], layer: int) -> NDArray[np.float64]:
    """Compute a layer of the stand-in literally, in float64, one frame of a convolution at a time."""
    weights = {name: values.astype(np.float64) for name, values in weights_of(path).items()}
    at = signal.astype(np.float64)[None]
    for i, (kernel, stride) in enumerate(zip(KERNELS, STRIDES, strict=True)):
        starts = range(0, at.shape[1] - kernel + 1, stride)
        at = np.stack(
            [np.tensordot(weights[f"conv_{i}"], at[:, s : s + kernel], 2) for s in starts], axis=1
        )
        if i == 0:
            at = (at - at.mean(1, keepdims=True)) / np.sqrt(at.var(1, keepdims=True) + 1e-5)
        at = np.tanh(at)
    frames = at.T @ weights["projection"]
    for i in range(layer):
        frames = frames + frames @ weights[f"narrow_{i}"] @ weights[f"wide_{i}"]
        frames = (frames - frames.mean(1, keepdims=True)) / np.sqrt(
            frames.var(1, keepdims=True) + 1e-5
        )
        frames = frames * weights[f"gain_{i}"] + weights[f"shift_{i}"]
    return frames


def weights_of(path: Path) -> dict[str, NDArray[Any]]:
    return {
        tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer
    }
