"""Finished parts of an evaluation, kept on a disk or in a store until the results are written."""

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from callshot.errors import OutputError
from callshot.results import SWEEPS as FOLDER
from callshot.results import FinishedSweeps
from callshot.storage import to_path

ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture(params=["disk", "store"])
def results(request, tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    if request.param == "disk":
        return tmp_path / "results"
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").store.clear()
    return to_path("memory://results")


def test_arrays_are_found_until_they_are_removed(results):
    finished = FinishedSweeps(results)
    assert finished.find(ONE) is None
    arrays = {"values all map": np.array([[0.5, np.nan]]), "shots": np.array([3])}
    finished.add(ONE, arrays)
    finished.add(OTHER, {"shots": np.array([4])})
    found = FinishedSweeps(results).find(ONE)
    assert found is not None
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    finished.remove()
    assert finished.find(ONE) is None
    assert finished.find(OTHER) is None
    finished.remove()


class Attack:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_nothing_is_unpickled(tmp_path):
    attack = np.array([Attack(tmp_path / "touched")], dtype=object)
    content = io.BytesIO()
    np.savez(content, shots=attack)
    (tmp_path / FOLDER).mkdir()
    for text in (content.getvalue(), pickle.dumps(attack)):
        (tmp_path / FOLDER / f"{ONE}.npz").write_bytes(text)
        assert FinishedSweeps(tmp_path).find(ONE) is None
    assert not (tmp_path / "touched").exists()


def test_a_link_is_not_followed_out_of_the_results(tmp_path):
    other = FinishedSweeps(tmp_path / "other")
    other.add(ONE, {"shots": np.array([3])})
    results = tmp_path / "results"
    results.mkdir()
    (results / FOLDER).symlink_to(other.folder)
    finished = FinishedSweeps(results)
    assert finished.find(ONE) is None
    with pytest.raises(OutputError, match=r"sweeps: a link leads to") as caught:
        finished.add(OTHER, {"shots": np.array([4])})
    assert "\n" not in str(caught.value)
    finished.remove()
    assert [path.name for path in other.folder.iterdir()] == [f"{ONE}.npz"]


def header_of_a_huge_array():
    content = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": (10**15,)}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue()


@pytest.mark.parametrize(
    ("member", "content"),
    [("shots", b"no array"), ("shots.npy", header_of_a_huge_array())],
)
def test_damaged_files_are_not_found(tmp_path, member, content):
    finished = FinishedSweeps(tmp_path)
    finished.folder.mkdir()
    with zipfile.ZipFile(finished.folder / f"{ONE}.npz", "w") as archive:
        archive.writestr(member, content)
    assert finished.find(ONE) is None


def test_what_a_killed_run_left_unfinished_is_removed(tmp_path):
    finished = FinishedSweeps(tmp_path)
    finished.add(ONE, {"shots": np.array([3])})
    part = finished.folder / f".{OTHER[:40]}.999999999-abcd1234.part.npz"
    part.write_bytes(b"")
    finished.remove()
    assert not finished.folder.exists()
