"""Small models with the inputs and outputs of Perch, BirdNET and HuBERT, and references.

`unpinned` is the catalogue without checksums, so that a stand-in can take the place of a model.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from callshot.encoders.catalogue import ENCODERS
from callshot.encoders.models.onnx import cut_graph
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.weights import Weight

SAMPLES = 160_000
WIDTH = 768
KERNELS = (10, 3, 3, 3, 3, 2, 2)
STRIDES = (5, 2, 2, 2, 2, 2, 2)

Shapes = dict[str, Sequence[Any]]


def unpinned(*names: str) -> tuple[EncoderSpec, ...]:
    """Return the catalogue; the weights of these encoders have no size and no checksum."""
    specs = []
    for spec in ENCODERS:
        if spec.name in names:
            weights = tuple(map(unpin, spec.weights))
            alternatives = tuple(map(unpin, spec.alternatives))
            spec = replace(spec, weights=weights, alternatives=alternatives)
        specs.append(spec)
    return tuple(specs)


def unpin(weight: Weight) -> Weight:
    """Return a weight without size and checksum."""
    return replace(weight, size=None, sha256=None)


class Graph:
    """An ONNX graph: nodes in the order of computation, and random weights."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}
        self.rng = np.random.default_rng(0)

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        output: str,
        name: str = "",
        **attributes: Any,
    ) -> str:
        """Add a node and return the name of its output."""
        name = name or f"node_{output}"
        self.nodes.append(
            helper.make_node(kind, inputs, [output], name=name, **attributes)
        )
        return output

    def weight(self, name: str, values: Any) -> str:
        """Add a weight and return its name."""
        self.weights[name] = np.asarray(values)
        return name

    def random_weight(self, name: str, *shape: int) -> str:
        """Add a random weight and return its name."""
        values = self.rng.normal(size=shape, scale=shape[0] ** -0.5)
        return self.weight(name, values.astype(np.float32))

    def save(self, path: Path, inputs: Shapes, outputs: Shapes) -> Path:
        """Write the graph as a model."""
        tensors = [
            numpy_helper.from_array(values, name)
            for name, values in self.weights.items()
        ]
        graph = helper.make_graph(
            self.nodes,
            "standin",
            describe_tensors(inputs),
            describe_tensors(outputs),
            initializer=tensors,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
        onnx.checker.check_model(model)
        onnx.save(model, path)
        return path


def describe_tensors(shapes: Shapes) -> list[Any]:
    """Return the inputs or outputs of a graph."""
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]


def perch_v2(path: Path, dimension: int = 1536) -> Path:
    """Write a model with the four outputs of Perch 2, from the sizes of means of 50 samples."""
    graph = Graph()
    graph.node("Reshape", ["inputs", graph.weight("fine", [-1, 500, 320])], "frames")
    graph.node(
        "MatMul", ["frames", graph.random_weight("bands", 320, 128)], "spectrogram"
    )
    graph.node(
        "Reshape", ["inputs", graph.weight("coarse", [-1, 16, 4, 50, 50])], "blocks"
    )
    graph.node("ReduceMean", ["blocks"], "means", axes=[4], keepdims=0)
    graph.node("Abs", ["means"], "sizes")
    graph.node(
        "MatMul",
        ["sizes", graph.random_weight("body", 50, dimension)],
        "spatial_embedding",
    )
    graph.node(
        "ReduceMean", ["spatial_embedding"], "embedding", axes=[1, 2], keepdims=0
    )
    graph.node(
        "MatMul", ["embedding", graph.random_weight("neck", dimension, 4)], "narrow"
    )
    graph.node("MatMul", ["narrow", graph.random_weight("head", 4, 14795)], "label")
    outputs: Shapes = {
        "embedding": ["batch", dimension],
        "spatial_embedding": ["batch", 16, 4, dimension],
        "spectrogram": ["batch", 500, 128],
        "label": ["batch", 14795],
    }
    return graph.save(path, {"inputs": ["batch", SAMPLES]}, outputs)


def perch_v2_headless(path: Path) -> Path:
    """Write a model as OpenSoundscape's zoo has it: Perch 2 with its embedding alone."""
    whole = perch_v2(path.with_name("whole.onnx"))
    cut_graph(whole, path, ["embedding"])
    return path


def birdnet_v2(path: Path, tensor: str = "Mean_reduced_0") -> Path:
    """Write a model with the names of a converted BirdNET 2.4: the embedding is no output.

    As BirdNET does, it scales each window first.
    """
    graph = Graph()
    graph.node("Abs", ["input"], "size")
    graph.node("ReduceMax", ["size"], "peak", axes=[1], keepdims=1)
    graph.node("Add", ["peak", graph.weight("floor", np.float32(1e-6))], "scale")
    graph.node("Div", ["input", "scale"], "scaled")
    graph.node("Reshape", ["scaled", graph.weight("cut", [-1, 100, 1440])], "blocks")
    graph.node("ReduceL1", ["blocks"], "sizes", axes=[2], keepdims=0)
    body = graph.random_weight("body", 100, 1024)
    graph.node("MatMul", ["sizes", body], "features")
    graph.node("Relu", ["features"], "active")
    pool = "model/GLOBAL_AVG_POOL"
    cells = graph.weight("cells", [-1, 1, 1, 1024])
    graph.node("Reshape", ["active", cells], f"{pool}/Mean__1640:0")
    flat = graph.weight("flat", [-1, 1024])
    embedding = graph.node(
        "Reshape", [f"{pool}/Mean__1640:0", flat], f"{pool}/{tensor}"
    )
    neck = graph.random_weight("neck", 1024, 100)
    graph.node("MatMul", [embedding, neck], "narrow")
    head = graph.random_weight("head", 100, 6522)
    graph.node("MatMul", ["narrow", head], "output")
    return graph.save(path, {"input": ["batch", 144_000]}, {"output": ["batch", 6522]})


def reference_birdnet_v2(path: Path, windows: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the embedding of the stand-in for BirdNET 2.4."""
    scaled = windows / (np.abs(windows).max(axis=1, keepdims=True) + 1e-6)
    blocks = scaled.astype(np.float64).reshape(len(windows), 100, 1440)
    sizes = np.abs(blocks).sum(axis=2)
    return np.maximum(sizes @ read_weights(path)["body"].astype(np.float64), 0)


def birdnet_v3(path: Path) -> Path:
    """Write a model with the outputs of BirdNET 3.0; windows may have any number of 10 ms."""
    graph = Graph()
    graph.node("Unsqueeze", ["input", graph.weight("axis", [1])], "signal")
    bands = graph.random_weight("bands", 40, 1, 320)
    graph.node("Conv", ["signal", bands], "frames", strides=[320])
    graph.node("Abs", ["frames"], "levels")
    graph.node("ReduceMean", ["levels"], "means", axes=[2], keepdims=0)
    body = graph.random_weight("body", 40, 1280)
    graph.node("MatMul", ["means", body], "embeddings")
    neck = graph.random_weight("neck", 1280, 4)
    graph.node("MatMul", ["embeddings", neck], "narrow")
    graph.node("MatMul", ["narrow", graph.random_weight("head", 4, 11560)], "x")
    graph.node("Sigmoid", ["x"], "predictions")
    outputs: Shapes = {"predictions": ["batch", 11560], "embeddings": ["batch", 1280]}
    return graph.save(path, {"input": ["batch", "samples"]}, outputs)


def reference_birdnet_v3(path: Path, windows: NDArray[Any]) -> NDArray[np.float64]:
    """Compute the embedding of the stand-in for BirdNET 3.0."""
    weights = read_weights(path)
    frames = windows.astype(np.float64).reshape(len(windows), -1, 320)
    levels = np.abs(frames @ weights["bands"][:, 0].T.astype(np.float64))
    return levels.mean(axis=1) @ weights["body"].astype(np.float64)


def reference_perch_v2(path: Path, windows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Compute the embedding of the stand-in: the mean over its 64 cells."""
    body = read_weights(path)["body"].astype(np.float64)
    blocks = windows.astype(np.float64).reshape(len(windows), 64, 50, 50)
    return (np.abs(blocks.mean(axis=3)) @ body).mean(axis=1)


def perch_v1(path: Path) -> Path:
    """Write a model like the output of `convert_perch_v1`: batch 1, one output."""
    graph = Graph()
    graph.node("Reshape", ["inputs", graph.weight("coarse", [1, 50, 3200])], "blocks")
    graph.node("ReduceL1", ["blocks"], "sizes", axes=[2], keepdims=0)
    graph.node("MatMul", ["sizes", graph.random_weight("body", 50, 1280)], "embedding")
    return graph.save(path, {"inputs": [1, SAMPLES]}, {"embedding": [1, 1280]})


def hubert(path: Path, layers: int = 12, width: int = WIDTH) -> Path:
    """Write a model with the convolutions and names of an exported HuBERT, and small layers."""
    graph = Graph()
    tensor = graph.node(
        "Unsqueeze", ["input_values", graph.weight("axis", [1])], "signal"
    )
    for i, (kernel, stride) in enumerate(zip(KERNELS, STRIDES, strict=True)):
        weight = graph.random_weight(f"conv_{i}", 8, 1 if i == 0 else 8, kernel)
        tensor = graph.node("Conv", [tensor, weight], f"conv_{i}_out", strides=[stride])
        if i == 0:
            gain = graph.weight("gain", np.ones(8, np.float32))
            shift = graph.weight("shift", np.zeros(8, np.float32))
            tensor = graph.node(
                "InstanceNormalization", [tensor, gain, shift], "over_time"
            )
        tensor = graph.node("Tanh", [tensor], f"tanh_{i}")
    tensor = graph.node("Transpose", [tensor], "frames", perm=[0, 2, 1])
    projection = graph.random_weight("projection", 8, width)
    tensor = graph.node("MatMul", [tensor, projection], "projected")
    for i in range(layers):
        output = "last_hidden_state" if i == layers - 1 else ""
        tensor = add_layer(graph, i, tensor, width, output)
    return graph.save(
        path,
        {"input_values": ["batch", "samples"]},
        {tensor: ["batch", "frames", width]},
    )


def add_layer(graph: Graph, i: int, tensor: str, width: int, output: str) -> str:
    """Add a narrow matrix and a normalisation in its parts, named as in the export."""
    layer = f"/encoder/layers.{i}"
    inner = f"{layer}/feed_forward"
    weight = graph.random_weight(f"narrow_{i}", width, 4)
    narrow = graph.node("MatMul", [tensor, weight], f"{inner}/in", f"{inner}/MatMul")
    weight = graph.random_weight(f"wide_{i}", 4, width)
    wide = graph.node("MatMul", [narrow, weight], f"{inner}/out", f"{inner}/MatMul_1")
    total = graph.node(
        "Add", [tensor, wide], f"{layer}/Add_1_output_0", f"{layer}/Add_1"
    )

    def norm(kind: str, step: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"{layer}/final_layer_norm/{step}"
        result = f"{name}_output_0"
        if step == "Add_1" and output:
            result = output
        return graph.node(kind, inputs, result, name, **attributes)

    mean = norm("ReduceMean", "ReduceMean", [total], axes=[2])
    centred = norm("Sub", "Sub", [total, mean])
    two = norm("Constant", "Constant", [], value_float=2.0)
    square = norm("Pow", "Pow", [centred, two])
    variance = norm("ReduceMean", "ReduceMean_1", [square], axes=[2])
    floor = norm("Constant", "Constant_1", [], value_float=1e-5)
    scale = norm("Sqrt", "Sqrt", [norm("Add", "Add", [variance, floor])])
    scaled = norm("Div", "Div", [centred, scale])
    level = norm("Mul", "Mul", [scaled, graph.random_weight(f"gain_{i}", width)])
    return norm("Add", "Add_1", [level, graph.random_weight(f"shift_{i}", width)])


def reference_hubert(
    path: Path, signal: NDArray[np.float32], layer: int
) -> NDArray[np.float64]:
    """Compute a layer of the stand-in in float64, one frame of a convolution at a time."""
    weights = {
        name: values.astype(np.float64) for name, values in read_weights(path).items()
    }
    channels = signal.astype(np.float64)[None]
    for i, (kernel, stride) in enumerate(zip(KERNELS, STRIDES, strict=True)):
        columns = []
        for start in range(0, channels.shape[1] - kernel + 1, stride):
            field = channels[:, start : start + kernel]
            columns.append(np.tensordot(weights[f"conv_{i}"], field, 2))
        channels = np.stack(columns, axis=1)
        if i == 0:
            channels = standardise(channels)
        channels = np.tanh(channels)
    frames = channels.T @ weights["projection"]
    for i in range(layer):
        frames = frames + frames @ weights[f"narrow_{i}"] @ weights[f"wide_{i}"]
        frames = standardise(frames) * weights[f"gain_{i}"] + weights[f"shift_{i}"]
    return frames


def standardise(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each row with zero mean and unit variance."""
    return (rows - rows.mean(1, keepdims=True)) / np.sqrt(
        rows.var(1, keepdims=True) + 1e-5
    )


def read_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Return the weights of a model by name."""
    tensors = onnx.load(path).graph.initializer
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in tensors}
