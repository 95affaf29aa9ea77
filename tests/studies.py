"""Small studies for tests: recordings of tones with label tracks beside them, and study files that run in seconds."""

from pathlib import Path

import numpy as np
import soundfile as sf

RATE_HZ = 16000
TONES_HZ = {"rumble": 125, "roar": 500, "trumpet": 2000}

PROTOCOL = """
[protocol]
shots = "1-3"
draws = 5
bootstraps = 20
shared_draws = 10
seed = 3
"""
REPORT = "\n[report]\nfigures = false\n"


def make_corpus(
    folder: Path, recordings: int = 6, seed: int = 0, labels: tuple[str, ...] = tuple(TONES_HZ)
) -> Path:
    """Write recordings with a call of every label in each, and an Audacity label track beside each."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for n in range(recordings):
        time_s = np.arange(int(1.2 * RATE_HZ)) / RATE_HZ
        calls = [
            np.sin(2 * np.pi * TONES_HZ.get(label, 900) * rng.uniform(0.7, 1.4) * time_s)
            for label in labels
        ]
        signal = np.concatenate(calls) * 0.3 + rng.normal(scale=0.1, size=len(labels) * len(time_s))
        sf.write(folder / f"r{n}.wav", signal.clip(-1, 1), RATE_HZ, subtype="PCM_16")
        spans = [(1.2 * i, 1.2 * (i + 1), label) for i, label in enumerate(labels)]
        text = "".join(f"{start:.6f}\t{end:.6f}\t{label}\n" for start, end, label in spans)
        (folder / f"r{n}.txt").write_text(text, encoding="utf-8")
    return folder


def write_study(
    path: Path,
    corpora: dict[str, str] | None = None,
    encoders: tuple[str, ...] = ("mfcc", "random"),
    more: str = "",
) -> Path:
    """Write a study of corpora in folders beside it; `more` is put into the tables of all of them."""
    named = {"here": "recordings"} if corpora is None else corpora
    parts = [f'title = "a small study"\nout = "results"\nstore = "store"\n{PROTOCOL}{REPORT}']
    parts += [
        f'[corpus.{name}]\naudio = "{audio}"\nfolds = 3\n{more}' for name, audio in named.items()
    ]
    parts += [f'[[encoder]]\nname = "{name}"' for name in encoders]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def write_linear(path: Path, samples: int, dimension: int, seed: int) -> Path:
    """Write an ONNX model of waveforms that multiplies them with numbers drawn by a seed."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = np.random.default_rng(seed).normal(size=(samples, dimension)).astype(np.float32)
    wave = helper.make_tensor_value_info("wave", TensorProto.FLOAT, ["batch", samples])
    out = helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["batch", dimension])
    node = helper.make_node("MatMul", ["wave", "weight"], ["vector"])
    graph = helper.make_graph(
        [node], "linear", [wave], [out], [numpy_helper.from_array(weight, "weight")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path
