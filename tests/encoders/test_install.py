"""Weights are run before they are kept; without a checksum, the first file is trusted."""

import os
from dataclasses import replace

import numpy as np
import onnx
import pytest

import standins
from callshot.encoders import catalogue, install
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder
from callshot.encoders.install import download_weights, import_weights, list_needs
from callshot.encoders.models import hubert
from callshot.encoders.weights import get_weight, weight_folder
from callshot.errors import InputError
from weightfiles import list_files

pytestmark = pytest.mark.usefixtures("cache")
NAME = "hubert-base-l2"
SPEC = find_encoder(NAME)
FILES = ["derived", "model.onnx", "model.onnx.weight.json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return standins.hubert(tmp_path_factory.mktemp("model") / "model.onnx")


@pytest.fixture(scope="module")
def other_model(model):
    changed = onnx.load(model)
    changed.doc_string = "another file of the same model"
    path = model.with_name("other.onnx")
    onnx.save(changed, path)
    return path


def is_ready():
    return list_needs(SPEC) == []


def list_weights():
    return list_files(weight_folder(NAME)) if weight_folder(NAME).exists() else []


# Running


def test_weights_that_run_are_kept_with_what_was_derived_from_them(
    model, cache, monkeypatch
):
    lines = import_weights(SPEC, [model])
    assert lines[0] == str(weight_folder(NAME) / "model.onnx")
    assert "trusted because it came first" in lines[1]
    assert "checksum of its vectors" in lines[2]
    assert is_ready()
    assert list_weights() == FILES
    assert list_files(cache / "weights") == [NAME]
    monkeypatch.setattr(hubert, "cut_hubert", lambda *_, **__: pytest.fail("cut again"))
    open_encoder(SPEC)  # with the derived file


@pytest.mark.parametrize("content", [b"", os.urandom(5000), b"\x08\x08model"])
def test_bytes_that_are_no_model_are_not_kept(content, tmp_path, cache):
    file = tmp_path / "noise.onnx"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"{NAME}: .* not kept: ") as caught:
        import_weights(SPEC, [file])
    assert ".new" not in str(caught.value)
    assert not is_ready()
    assert list_weights() == []
    assert list_files(cache / "weights") == []


def test_a_model_with_one_vector_for_every_sound_is_not_kept(model, monkeypatch):
    vectors = {name: np.ones(768, np.float32) for name in ("tone", "noise")}
    monkeypatch.setattr(install, "compute_vectors", lambda spec: vectors)
    with pytest.raises(InputError, match="every test sound has the same vector"):
        import_weights(SPEC, [model])
    assert list_weights() == []


def test_without_the_runtime_nothing_is_kept(model, monkeypatch):
    monkeypatch.setattr(install, "find_spec", lambda name: None)
    message = r"that needs: pip install 'callshot\[onnx\]'$"
    with pytest.raises(InputError, match=message):
        import_weights(SPEC, [model])
    assert list_weights() == []


# Trust


def test_a_checksum_of_the_catalogue_is_required(tmp_path, monkeypatch):
    file = standins.perch_v2(tmp_path / "perch.onnx")
    with pytest.raises(InputError, match="expected size 413350933, got"):
        import_weights(find_encoder("perch-v2"), [file], replace_first=True)
    monkeypatch.setattr(catalogue, "ENCODERS", standins.unpinned("perch-v2"))
    spec = find_encoder("perch-v2")
    import_weights(spec, [file])
    assert list_needs(spec) == []


def test_the_first_file_is_trusted_and_another_one_needs_replace(
    model, other_model, tmp_path
):
    import_weights(SPEC, [model])
    path = weight_folder(NAME) / "model.onnx"
    with pytest.raises(InputError, match=r"sha256 .*, as at first use, .* --replace"):
        import_weights(SPEC, [other_model])
    (tmp_path / "noise.onnx").write_bytes(b"noise")
    with pytest.raises(InputError, match="not kept"):
        import_weights(SPEC, [tmp_path / "noise.onnx"], replace_first=True)
    assert is_ready()
    assert path.read_bytes() == model.read_bytes()
    import_weights(SPEC, [other_model], replace_first=True)
    assert path.read_bytes() == other_model.read_bytes()
    path.unlink()
    assert not is_ready()
    with pytest.raises(InputError, match="as at first use"):
        import_weights(SPEC, [model])


# Downloads


@pytest.fixture
def model_server(server, model, monkeypatch):
    monkeypatch.setattr("callshot.encoders.download.SCHEMES", ("http",))

    def get_from_server(name, weight, progress):
        source = replace(weight, source=server.url)
        path = get_weight(name, source, progress)
        record = path.with_name("model.onnx.weight.json")
        text = record.read_text().replace(server.url, weight.source)
        record.write_text(text)
        return path

    monkeypatch.setattr(install, "get_weight", get_from_server)
    server.body = model.read_bytes()
    return server


def test_a_download_is_run_kept_and_not_repeated_unless_asked(model_server):
    shares: list[float] = []
    download_weights(SPEC, progress=lambda share, what: shares.append(share))
    assert sum(shares) == pytest.approx(1)
    assert is_ready()
    requests = len(model_server.ranges)
    assert "trusted because it came first" in download_weights(SPEC)[1]
    assert len(model_server.ranges) == requests
    download_weights(SPEC, replace_first=True)
    assert len(model_server.ranges) == requests + 1


def test_weights_of_a_killed_process_are_not_used(model, cache):
    folder = cache / "weights" / f"{NAME}.new"
    (folder / "derived" / "0123").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"noise")
    (folder / "derived" / "0123" / "cut.onnx").write_bytes(b"noise")
    import_weights(SPEC, [model])
    assert list_files(cache / "weights") == [NAME]
    derived = list((weight_folder(NAME) / "derived").iterdir())
    assert len(derived) == 1
