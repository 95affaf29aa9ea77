"""A model → an ONNX file: from a vector of the encoder to the scores of all labels.

    embedding (batch, dimensions) float32 ─▶ evidence 2 c·z − |c|² ─▶ scores (log-odds)
                                                                  └─▶ label (text)

The graph computes in float64, because |z|² may be large against the distances.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.detection.model import Model, check_classes
from callshot.encoders.validation import import_package
from callshot.errors import OptionError
from callshot.files import atomic_path, check_new_file, make_folder
from callshot.version import __version__

OPSET = 17
ML_OPSET = 3
IR_VERSION = 8  # what ONNX Runtime 1.14 and later read
SUFFIX = ".onnx"
PRODUCER = "callshot"
PRODUCER_FIELD = b"\x12\x08callshot"  # field 2, of 8 bytes
START_BYTES = 32


def export_onnx(model: Model, path: Path) -> None:
    """Write the classifier of a model as ONNX."""
    check_onnx_path(path)
    check_classes(model)
    graph = make_graph(model)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        temporary.write_bytes(graph.SerializeToString())


def check_onnx_path(path: Path) -> None:
    """Check that an ONNX file can be written and replaces no file of others."""
    if path.suffix != SUFFIX:
        raise OptionError(f"onnx: expected a name that ends in {SUFFIX}, got {path}")
    check_new_file(path, "classifier", _is_own_file)


def _is_own_file(path: Path) -> bool:
    with path.open("rb") as stream:
        return PRODUCER_FIELD in stream.read(START_BYTES)


def make_graph(model: Model) -> Any:
    """Return the classifier of a model as an ONNX model."""
    onnx = import_package("onnx", "onnx")
    helper = onnx.helper
    opsets = [
        helper.make_opsetid("", OPSET),
        helper.make_opsetid("ai.onnx.ml", ML_OPSET),
    ]
    made = helper.make_model(
        _connect_nodes(onnx, model),
        opset_imports=opsets,
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=__version__,
    )
    helper.set_model_props(made, _describe(model))
    onnx.checker.check_model(made)
    return made


def _connect_nodes(onnx: Any, model: Model) -> Any:
    """Return the graph with its inputs, outputs and weights."""
    layer = model.layer
    classes = len(model.classes)
    weights = {
        "weight": np.ascontiguousarray(layer.weight.T),
        "bias": layer.bias,
        "others": _other_classes(classes),
        "last_axis": np.array([2]),
    }
    inputs = [_tensor(onnx, "embedding", "FLOAT", ["batch", model.vectors.shape[1]])]
    outputs = [
        _tensor(onnx, "scores", "DOUBLE", ["batch", classes]),
        _tensor(onnx, "evidence", "DOUBLE", ["batch", classes]),
        _tensor(onnx, "label", "STRING", ["batch"]),
    ]
    to_tensor = onnx.numpy_helper.from_array
    initializers = [to_tensor(values, name) for name, values in weights.items()]
    nodes = _make_nodes(onnx.helper, model.classes)
    return onnx.helper.make_graph(nodes, PRODUCER, inputs, outputs, initializers)


def _make_nodes(helper: Any, classes: tuple[str, ...]) -> list[Any]:
    node = helper.make_node
    return [
        node("Cast", ["embedding"], ["z"], to=11),  # 11: float64
        node("MatMul", ["z", "weight"], ["products"]),
        node("Add", ["products", "bias"], ["evidence"]),
        # Log-odds: a_n − log Σ exp a_m over the others, with the largest set apart.
        node("Gather", ["evidence", "others"], ["other_evidence"], axis=1),
        node("ReduceMax", ["other_evidence"], ["largest"], axes=[2], keepdims=1),
        node("Sub", ["other_evidence", "largest"], ["gaps"]),
        node("Exp", ["gaps"], ["terms"]),
        node("ReduceSum", ["terms", "last_axis"], ["sum"], keepdims=0),
        node("Log", ["sum"], ["log_sum"]),
        node("Squeeze", ["largest", "last_axis"], ["reference"]),
        node("Sub", ["evidence", "reference"], ["lead"]),
        node("Sub", ["lead", "log_sum"], ["scores"]),
        node("ArgMax", ["evidence"], ["number"], axis=1, keepdims=0),
        node(
            "LabelEncoder",
            ["number"],
            ["label"],
            domain="ai.onnx.ml",
            keys_int64s=list(range(len(classes))),
            values_strings=list(classes),
        ),
    ]


def _other_classes(classes: int) -> NDArray[np.int64]:
    """Return the numbers of all other classes, for each class.

    >>> _other_classes(3).tolist()
    [[1, 2], [0, 2], [0, 1]]
    """
    rows = [[m for m in range(classes) if m != n] for n in range(classes)]
    return np.array(rows, np.int64)


def _tensor(onnx: Any, name: str, kind: str, shape: list[Any]) -> Any:
    number = getattr(onnx.TensorProto, kind)
    return onnx.helper.make_tensor_value_info(name, number, shape)


def _describe(model: Model) -> dict[str, str]:
    """Return what a user of the file has to know: labels, the encoder, its licence."""
    return {
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "encoder": model.encoder,
        "fingerprint": json.dumps(dict(model.fingerprint), sort_keys=True),
        "licence": model.licence,
    }
