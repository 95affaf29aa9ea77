"""Small studies for tests: recordings of tones, label tracks, study files that run in seconds."""

from pathlib import Path

import numpy as np
import soundfile as sf

from callshot.study.run import run_study
from callshot.study.study_file import read_study
from callshot.tables.embedding_tables import write_table
from callshot.vectors import Vectors

RATE_HZ = 16000
CALL_S = 1.2
TONES_HZ = {"rumble": 125, "roar": 500, "trumpet": 2000}
OTHER_TONE_HZ = 900

CATEGORIES = "label,category\nrumble,low\nroar,low\ntrumpet,high\n"
PROTOCOL = """
[protocol]
shots = "1-3"
draws = 5
bootstraps = 20
shared_draws = 10
permutations = 9
total_samples = 10
seed = 3
"""
REPORT = "\n[report]\nfigures = false\n"


def make_corpus(
    folder: Path,
    recordings: int = 6,
    seed: int = 0,
    labels: tuple[str, ...] = tuple(TONES_HZ),
) -> Path:
    """Write recordings with one call of every label in each, and an Audacity track beside each."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    time_s = np.arange(int(CALL_S * RATE_HZ)) / RATE_HZ
    for number in range(recordings):
        calls = []
        lines = []
        for position, label in enumerate(labels):
            frequency_hz = TONES_HZ.get(label, OTHER_TONE_HZ) * rng.uniform(0.7, 1.4)
            calls.append(0.3 * np.sin(2 * np.pi * frequency_hz * time_s))
            start_s = CALL_S * position
            end_s = CALL_S * (position + 1)
            lines.append(f"{start_s:.6f}\t{end_s:.6f}\t{label}\n")
        signal = np.concatenate(calls)
        signal += rng.normal(scale=0.1, size=len(signal))
        sf.write(
            folder / f"r{number}.wav", signal.clip(-1, 1), RATE_HZ, subtype="PCM_16"
        )
        (folder / f"r{number}.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def write_study(
    path: Path,
    corpora: dict[str, str] | None = None,
    encoders: tuple[str, ...] = ("mfcc", "random"),
    corpus_keys: str = "",
) -> Path:
    """Write a study of corpora in folders beside it; `corpus_keys` are added to each corpus."""
    corpora = corpora or {"here": "recordings"}
    parts = [
        f'title = "a small study"\nout = "results"\nstore = "store"\n{PROTOCOL}{REPORT}'
    ]
    for name, audio in corpora.items():
        parts.append(f'[corpus.{name}]\naudio = "{audio}"\nfolds = 3\n{corpus_keys}')
    parts += [f'[[encoder]]\nname = "{name}"' for name in encoders]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def run_steps(path: Path) -> list[str]:
    """Run a study; return the names of the steps that ran."""
    return [step.name for step in run_study(read_study(path))]


def replace_text(path: Path, old: str, new: str) -> None:
    """Replace text that a file must contain."""
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def write_embeddings(path: Path, encoder: str = "mine", seed: int = 0) -> Path:
    """Write vectors of 60 calls of three types in 20 recordings; some calls have two labels."""
    rng = np.random.default_rng(seed)
    means = {
        "rumble": 0.0,
        "growl": 1.0,
        "trumpet": 4.0,
    }  # rumbles and growls are alike
    label = list(means) * 20
    vectors = np.array([[means[name], 0, 0, 0] for name in label])
    vectors = vectors + rng.normal(size=vectors.shape)
    labels = [(name,) for name in label]
    labels[::10] = [(name, "trumpet") for name in label[::10]]
    segment = [f"s{n:02}" for n in range(60)]
    recording = [f"r{n // 3:02}" for n in range(60)]
    table = Vectors.from_columns(
        encoder, vectors.astype(np.float32), segment, recording, label, labels
    )
    write_table(table, path)
    return path


def write_linear(path: Path, samples: int, dimension: int, seed: int) -> Path:
    """Write an ONNX model that multiplies waveforms with numbers drawn with a seed."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weight = (
        np.random.default_rng(seed).normal(size=(samples, dimension)).astype(np.float32)
    )
    wave = helper.make_tensor_value_info("wave", TensorProto.FLOAT, ["batch", samples])
    vector = helper.make_tensor_value_info(
        "vector", TensorProto.FLOAT, ["batch", dimension]
    )
    node = helper.make_node("MatMul", ["wave", "weight"], ["vector"])
    initializer = numpy_helper.from_array(weight, "weight")
    graph = helper.make_graph([node], "linear", [wave], [vector], [initializer])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, path)
    return path
