"""The status of encoders, and the check of their vectors against references."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.encoders import install
from callshot.encoders.catalogue import ENCODERS, find_encoder
from callshot.encoders.install import (
    check_encoder,
    describe_weight,
    list_encoders,
    list_needs,
    read_references,
)
from callshot.encoders.models.perch import EXTRA as TENSORFLOW_EXTRA
from callshot.encoders.weights import TORCH_EXTRA, find_weight
from callshot.encoders.windows import make_test_sounds
from callshot.errors import InputError

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


# Status


def test_the_status_lists_missing_packages_and_weights(monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    assert list_needs(find_encoder("mfcc")) == list_needs(find_encoder("random")) == []
    needs = list_needs(find_encoder("birdnet-v2.4"))
    assert "callshot encoders get birdnet-v2.4" in needs
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    needs = list_needs(find_encoder("perch-v2"))
    assert needs[0] == "pip install 'callshot[onnx]'"


def test_the_data_frame_has_one_row_per_encoder(monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    frame = list_encoders()
    assert frame["name"].to_list() == [spec.name for spec in ENCODERS]
    assert frame["dimension"].to_list() == [spec.dimension for spec in ENCODERS]
    assert frame.schema["needs"] == pl.List(pl.String)
    ready = frame.filter("ready")["name"].to_list()
    assert ready == ["mfcc", "random"]
    assert frame.filter(pl.col("ready") != (pl.col("needs").list.len() == 0)).is_empty()


def test_weights_for_torch_need_torch_unless_the_others_are_there(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    spec = find_encoder("hubert-base-l3")
    files: set[str] = set()

    def find_file(name, weight):
        return weight.file if weight.file in files else None

    def find_package(name):
        return None if name == "torch" else name

    monkeypatch.setattr(install, "find_weight", find_file)
    monkeypatch.setattr(install, "weight_sha256", lambda name, weight: "abc")
    monkeypatch.setattr(install, "find_spec", find_package)
    assert list_needs(spec) == ["callshot encoders get hubert-base-l3"]
    files.add("model.safetensors")
    assert list_needs(spec) == [f"pip install 'callshot[{TORCH_EXTRA}]'"]
    files.add("model.onnx")
    assert list_needs(spec) == []
    assert "sha256 abc, no checksum" in describe_weight(spec, spec.weights[0])
    assert describe_weight(spec, spec.alternatives[0]) == "missing"


def test_an_onnx_model_of_the_user_is_ready_once_its_file_exists(tmp_path):
    choices = {"rate_hz": "16000", "window_s": "1", "dimension": "3"}
    path = tmp_path / "mine.onnx"
    spec = find_encoder(f"onnx:{path}", choices)
    assert list_needs(spec) == [f"the file {path}, which does not exist"]
    path.touch()
    assert list_needs(spec) == []


def test_every_extra_in_a_message_can_be_installed():
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = {spec.extra for spec in ENCODERS if spec.extra is not None}
    extras |= {TORCH_EXTRA, TENSORFLOW_EXTRA}
    assert extras <= set(project["optional-dependencies"])


def test_listing_encoders_imports_no_framework_and_writes_nothing(tmp_path):
    code = (
        "import sys; from callshot.encoders.install import list_encoders; list_encoders();"
        "frameworks = {'onnxruntime', 'onnx', 'torch', 'tensorflow', 'ai_edge_litert', 'numba'};"
        "print(*frameworks & set(sys.modules))"
    )
    folders = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = {"PATH": "", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    command = [sys.executable, "-c", code]
    output = subprocess.check_output(command, env=folders | environment, text=True)
    assert output.strip() == ""
    assert list(tmp_path.iterdir()) == []


# References


@pytest.mark.parametrize("name", ["mfcc", "birdnet-v2.4"])
def test_an_encoder_gives_its_reference_vectors(name):
    spec = find_encoder(name)
    if any(find_weight(spec.weights_name, weight) is None for weight in spec.weights):
        pytest.skip(f"the weights of {name} are not here: callshot encoders get {name}")
    lines = list(check_encoder(spec))
    assert [line.partition(":")[0] for line in lines] == [name, *make_test_sounds(1)]


def test_other_options_and_other_models_have_no_references():
    other = find_encoder("mfcc", {"mel": "htk"})
    assert read_references(other) == {}
    assert read_references(find_encoder("perch-v2")) == {}
    assert "no reference vectors" in list(check_encoder(other))[-1]


def test_a_vector_that_differs_from_its_reference_is_an_error(monkeypatch):
    spec = find_encoder("mfcc")
    references = read_references(spec)
    wrong = {name: vector + np.float32(1) for name, vector in references.items()}
    monkeypatch.setattr(install, "read_references", lambda spec: wrong)
    with pytest.raises(InputError, match="vector for tone differs from the reference"):
        list(check_encoder(spec))
