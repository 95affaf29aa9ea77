import pytest

from served_review import make_scan


@pytest.fixture(scope="session")
def scan(tmp_path_factory):
    return make_scan(tmp_path_factory.mktemp("review"))
