"""A model → an ONNX file: from a vector of the encoder to the scores of all labels.

    embedding (batch, dimensions) float32 ─▶ evidence 2 c·z − |c|² ─▶ scores (log-odds)
                                                                  └─▶ label (text)

The graph computes in float64, because |z|² may be large against the distances.
"""

import json
from pathlib import Path

import numpy as np

from callshot.detection.model import Model, check_classes
from callshot.encoders.weights import import_package
from callshot.errors import OptionError
from callshot.files import atomic_path, check_new_file, make_folder
from callshot.version import __version__

SUFFIX = ".onnx"
PRODUCER_FIELD = b"\x12\x08callshot"  # field 2, of 8 bytes
START_BYTES = 32
# Version 8 of the format is what ONNX Runtime 1.14 and later read. The scores are log-odds:
# a_n − log Σ exp a_m over the others, with the largest set apart.
GRAPH = f"""<
  ir_version: 8,
  opset_import: ["": 17, "ai.onnx.ml": 3],
  producer_name: "callshot",
  producer_version: "{__version__}"
>
callshot (float[batch, {{dimensions}}] embedding) => (
  double[batch, {{count}}] scores, double[batch, {{count}}] evidence, string[batch] label
) {{{{
  z = Cast <to = 11> (embedding)
  products = MatMul (z, weight)
  evidence = Add (products, bias)
  other_evidence = Gather <axis = 1> (evidence, others)
  largest = ReduceMax <axes = [2], keepdims = 1> (other_evidence)
  gaps = Sub (other_evidence, largest)
  terms = Exp (gaps)
  sum = ReduceSum <keepdims = 0> (terms, last_axis)
  log_sum = Log (sum)
  reference = Squeeze (largest, last_axis)
  lead = Sub (evidence, reference)
  scores = Sub (lead, log_sum)
  number = ArgMax <axis = 1, keepdims = 0> (evidence)
  label = ai.onnx.ml.LabelEncoder (number)
}}}}"""


def check_onnx_path(path: Path) -> None:
    """Check that an ONNX file can be written and no other file is overwritten."""
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
    count = len(model.classes)
    text = GRAPH.format(dimensions=model.examples.matrix.shape[1], count=count)
    made = onnx.parser.parse_model(text)
    layer = model.layer
    others = [[m for m in range(count) if m != n] for n in range(count)]
    weights = {
        "weight": np.ascontiguousarray(layer.weight.T),
        "bias": layer.bias,
        "others": np.array(others, np.int64),
        "last_axis": np.array([2]),
    }
    for name, values in weights.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    names = {"keys_int64s": list(range(count)), "values_strings": list(model.classes)}
    for name, items in names.items():
        attribute = onnx.helper.make_attribute(name, items)
        made.graph.node[-1].attribute.append(attribute)
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
