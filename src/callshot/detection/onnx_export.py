"""A model → an ONNX file: from a vector of the encoder to the scores of all labels.

    embedding (batch, dimensions) float32 ─▶ evidence 2 c·z − |c|² ─▶ scores (log-odds)
                                                                  └─▶ label (text)

The graph computes in float64, because |z|² may be large against the distances.
"""

import json
from pathlib import Path

import numpy as np

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


def check_onnx_path(path: Path) -> None:
    """Check that an ONNX file can be written and replaces no file of others."""
    if path.suffix != SUFFIX:
        raise OptionError(f"onnx: expected a name that ends in {SUFFIX}, got {path}")

    def is_own_file(file: Path) -> bool:
        with file.open("rb") as stream:
            return PRODUCER_FIELD in stream.read(START_BYTES)

    check_new_file(path, "classifier", is_own_file)


def export_onnx(model: Model, path: Path) -> None:
    """Write the classifier of a model as ONNX."""
    check_onnx_path(path)
    check_classes(model)
    onnx = import_package("onnx", "onnx")
    node = onnx.helper.make_node
    layer = model.layer
    count = len(model.classes)
    others = [[m for m in range(count) if m != n] for n in range(count)]
    weights = {
        "weight": np.ascontiguousarray(layer.weight.T),
        "bias": layer.bias,
        "others": np.array(others, np.int64),
        "last_axis": np.array([2]),
    }
    nodes = [
        node("Cast", ["embedding"], ["z"], to=onnx.TensorProto.DOUBLE),
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
            keys_int64s=list(range(count)),
            values_strings=list(model.classes),
        ),
    ]
    shapes = {
        "embedding": ("FLOAT", ["batch", model.vectors.shape[1]]),
        "scores": ("DOUBLE", ["batch", count]),
        "evidence": ("DOUBLE", ["batch", count]),
        "label": ("STRING", ["batch"]),
    }
    tensors = [
        onnx.helper.make_tensor_value_info(name, getattr(onnx.TensorProto, kind), shape)
        for name, (kind, shape) in shapes.items()
    ]
    to_tensor = onnx.numpy_helper.from_array
    initializers = [to_tensor(values, name) for name, values in weights.items()]
    graph = onnx.helper.make_graph(
        nodes, PRODUCER, tensors[:1], tensors[1:], initializers
    )
    opsets = {"": OPSET, "ai.onnx.ml": ML_OPSET}
    made = onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*pair) for pair in opsets.items()],
        ir_version=IR_VERSION,
        producer_name=PRODUCER,
        producer_version=__version__,
    )
    facts = {
        "classes": json.dumps(model.classes, ensure_ascii=False),
        "encoder": model.encoder,
        "fingerprint": json.dumps(dict(model.fingerprint), sort_keys=True),
        "licence": model.licence,
    }
    onnx.helper.set_model_props(made, facts)
    onnx.checker.check_model(made)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        temporary.write_bytes(made.SerializeToString())
