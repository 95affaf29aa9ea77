"""Weight files: found when complete, imported when right, derived once; no network but loopback."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.encoders import weights
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
from weightfiles import BODY, MEMBER, digest, get, list_files, pypi, tar, wheel

pytestmark = pytest.mark.usefixtures("cache")


def test_the_cache_is_in_callshot_home_or_else_in_the_users_cache(cache, monkeypatch):
    assert home() == cache
    monkeypatch.setenv("CALLSHOT_HOME", "~/somewhere")
    assert home() == Path.home() / "somewhere"
    monkeypatch.setenv("CALLSHOT_HOME", "")
    assert home().is_absolute()
    assert "callshot" in home().parts


def test_a_missing_weight_is_an_error_with_the_command(cache):
    with pytest.raises(InputError, match="get them with: callshot encoders get test"):
        require_weight("test-v1", pypi())
    assert not cache.exists()  # looking writes nothing


def test_a_file_that_changed_in_the_cache_is_noticed_and_replaced(server, monkeypatch):
    path = get(server.weight())
    with monkeypatch.context() as patch:  # of the same size and time
        patch.setattr(weights, "sha256_file", None)
        assert find_weight("test-v1", server.weight()) == path
    os.utime(path, (1, 1))  # a copied cache
    assert find_weight("test-v1", server.weight()) == path
    body = bytearray(BODY)
    body[1000] ^= 1
    path.write_bytes(body)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    path.write_bytes(BODY[:-1])
    assert find_weight("test-v1", server.weight()) is None


def test_the_sha256_of_a_weight_is_known_also_without_one_in_the_catalogue(server):
    weight = server.weight(sha256=None)
    with pytest.raises(InputError, match="needs its weights"):
        weight_sha256("test-v1", weight)
    get(weight)
    assert weight_sha256("test-v1", weight) == digest(BODY)


def test_a_weight_that_differs_from_the_catalogue_is_not_found(server):
    path = get(server.weight())
    other = "https://other.org/model.onnx"
    assert find_weight("test-v1", server.weight(source=other)) == path
    changes = [{"source": other, "sha256": None}, {"sha256": "0" * 64}, {"size": 5}]
    for change in changes:
        assert find_weight("test-v1", server.weight(**change)) is None


@pytest.mark.parametrize("note", [b"", b"[]", b"{", b'{"size": 1}', b"\xff\xfe"])
def test_a_damaged_record_counts_as_none(server, note):
    path = get(server.weight())
    path.with_name("model.onnx.weight.json").write_bytes(note)
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()) == path


def test_a_home_that_is_not_a_folder_is_an_output_error(server, cache, tmp_path):
    cache.write_text("in the way")
    file = tmp_path / "model.onnx"
    file.write_bytes(BODY)
    for attempt in (
        lambda: get(server.weight()),
        lambda: import_weight("test-v1", server.weight(), file),
        lambda: derive_file("test-v1", "cut.onnx", file, lambda path: None),
    ):
        with pytest.raises(OutputError, match=r"weights cannot .*CALLSHOT_HOME"):
            attempt()


def test_a_full_disk_is_an_output_error_and_no_weight_is_found(server, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        message = r"No space left on device.*CALLSHOT_HOME"
        with pytest.raises(OutputError, match=message):
            get(server.weight())
    assert find_weight("test-v1", server.weight()) is None
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 1  # what had come was not lost


def test_a_full_disk_is_explained_once_where_a_weight_is_copied(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = tmp_path / "model.onnx"
    file.write_bytes(BODY)
    monkeypatch.setattr("shutil.copyfile", full)
    message = r"written there \(No space left on device\); free .*CALLSHOT_HOME"
    weight = Weight("model.onnx", "https://example.org/model.onnx")
    for attempt in (
        lambda: import_weight("test-v1", weight, file),
        lambda: derive_file("test-v1", "cut.onnx", file, full),
    ):
        with pytest.raises(OutputError, match=message):
            attempt()


@pytest.mark.parametrize("kind", ["wheel", "tar", "bare", "folder"])
def test_a_weight_is_imported_from_a_wheel_a_tar_a_folder_or_itself(tmp_path, kind):
    (tmp_path / "folder/wheel/models").mkdir(parents=True)
    (tmp_path / "folder" / MEMBER).write_bytes(BODY)
    files = {
        "wheel": wheel(tmp_path / "a.whl"),
        "tar": tar(tmp_path / "a.tar.gz", f"./{MEMBER}"),
        "bare": tmp_path / "folder" / MEMBER,
        "folder": tmp_path / "folder",
    }
    weight = pypi(file="saved_model/small") if kind == "folder" else pypi()
    path = import_weight("test-v1", weight, files[kind])
    assert path == weight_folder("test-v1") / weight.file
    assert path.read_bytes() == BODY
    assert find_weight("test-v1", weight) == path
    assert files[kind].exists()
    assert list_files(path.parent) == [path.name, f"{path.name}.weight.json"]


def test_a_model_that_ends_like_a_zip_file_is_not_an_archive(tmp_path):
    # Metadata are kept so in tflite models.
    model = b"model" + wheel(tmp_path / "a.whl").read_bytes()
    (tmp_path / "model").write_bytes(model)
    weight = pypi(size=len(model), sha256=digest(model))
    assert import_weight("test-v1", weight, tmp_path / "model").read_bytes() == model


@pytest.mark.parametrize("kind", ["wheel", "tar", "bare", "missing", "large"])
def test_a_wrong_file_is_not_imported_and_stays_where_it_is(tmp_path, kind):
    files = {
        "wheel": wheel(tmp_path / "w.whl", "other"),
        "tar": tar(tmp_path / "a.tgz", "other"),
        "bare": tmp_path / "bare",
        "missing": tmp_path / "missing",
        "large": wheel(tmp_path / "large.whl"),  # it could fill the disk
    }
    files["bare"].write_bytes(BODY[::-1])
    weight = pypi(size=5) if kind == "large" else pypi()
    message = "expected at most 5 bytes, got more" if kind == "large" else ": "
    with pytest.raises(InputError, match=message) as caught:
        import_weight("test-v1", weight, files[kind])
    assert str(caught.value).startswith(f"{files[kind]}: ")
    assert files[kind].exists() == (kind != "missing")
    assert find_weight("test-v1", weight) is None
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


def test_a_derived_file_is_made_once_for_each_content_and_name(tmp_path):
    source = tmp_path / "a.onnx"
    calls: list[str] = []

    def make(path):
        calls.append(path.suffix)
        path.write_bytes(source.read_bytes()[:3])

    source.write_bytes(b"abcdef")
    first = derive_file("test-v1", "cut.onnx", source, make)
    assert derive_file("test-v1", "cut.onnx", source, make) == first
    assert first.read_bytes() == b"abc"
    assert calls == [".onnx"]
    other = derive_file("test-v1", "other.onnx", source, make)
    source.write_bytes(b"ABCDEF")
    changed = derive_file("test-v1", "cut.onnx", source, make)
    assert len({first, other, changed}) == len(calls) == 3
    assert changed.read_bytes() == b"ABC"
    assert list_files(first.parent) == ["cut.onnx", "other.onnx"]


def test_a_folder_may_be_the_source_of_a_derived_file(tmp_path):
    saved = tmp_path / "saved"
    (saved / "variables").mkdir(parents=True)
    (saved / "graph.pb").write_bytes(b"1")
    derive = partial(derive_file, "test-v1", "a.onnx", saved, Path.touch)
    paths = [derive()]
    (saved / "variables/data").write_bytes(b"2")
    paths.append(derive())
    os.utime(saved / "variables/data", (1, 1))  # imported again
    assert derive() == paths[1]
    (saved / "variables/data").rename(saved / "data")
    paths.append(derive())
    assert len(set(paths)) == 3


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


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Make one archive of each kind."""
    path = tmp_path_factory.mktemp("archives") / "a"
    kinds = [tar(path, body=SMALL, kind=f"w:{kind}").read_bytes() for kind in KINDS]
    return [wheel(path, body=SMALL).read_bytes(), *kinds]


SMALL = BODY[:5000]
KINDS = ("", "gz", "bz2", "xz")


@given(data=st.data())
def test_a_damaged_archive_gives_the_right_bytes_or_one_error(
    tmp_path_factory, archives, data
):
    archive = tmp_path_factory.mktemp("damaged") / "archive"
    body = bytearray(data.draw(st.sampled_from(archives)))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    archive.write_bytes(body[: data.draw(st.integers(0, len(body)))])
    weight = pypi(size=5000, sha256=digest(SMALL))
    message = f"{archive}: "
    try:
        assert import_weight("test-v1", weight, archive).read_bytes() == SMALL
    except InputError as error:
        message = str(error)
    assert message.startswith(f"{archive}: ")
