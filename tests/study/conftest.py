"""A study that has run, for the tests that change one line or file of it."""

import shutil

import pytest

from studies import make_corpus, run_steps, write_study


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return the file of a study that has run once; the folder `saved` beside it is a copy."""
    folder = tmp_path_factory.mktemp("finished") / "folder"
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml")
    run_steps(path)
    shutil.copytree(folder, folder.with_name("saved"))
    return path
