import shutil

import pytest
from typer.testing import CliRunner

from callshot.cli import app
from callshot.review import finding, session, similar
from callshot.review.children import DONE, Job
from callshot.review.similar import SearchOptions
from field_recordings import index_site, write_site
from served_review import make_scan


@pytest.fixture(autouse=True, scope="session")
def short_pauses():
    """Compute scores soon after a decision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "PAUSE_S", 0.005)
        yield


@pytest.fixture(scope="session")
def scan(tmp_path_factory):
    return make_scan(tmp_path_factory.mktemp("review"))


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Recordings with an index beside them, and the calls: recording → [(start, end, label)]."""
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=4)
    calls = {}
    for path in folder.glob("*.txt"):
        lines = [line.split("\t") for line in path.read_text().splitlines()]
        calls[f"{path.stem}.wav"] = [(float(a), float(b), name) for a, b, name in lines]
    index_site(folder)
    return folder, calls


class EndedJob:
    """The job that makes an index, where there is nothing left to do."""

    state = DONE

    def __init__(self, steps):
        self.steps = steps

    def describe(self):
        return {"state": DONE, "text": "", "share": 1.0, "left": "", "error": ""}

    def stop(self):
        """It runs no more."""


class OwnJob(Job):
    """Commands in this process, which are as if they had one of their own."""

    def _run_step(self, arguments):
        result = CliRunner().invoke(app, list(arguments))
        self.lines.extend(result.output.splitlines())
        if result.exit_code:
            self.lines.append(f"callshot: {result.exception}")
        return result.exit_code


@pytest.fixture
def own_jobs(monkeypatch):
    """Run what is made of labels in this process: it takes seconds to start another."""
    monkeypatch.setattr(finding, "Job", OwnJob)


@pytest.fixture(scope="module")
def ready_index():
    """Let an index that is there be ready at once; return the options of its search."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(similar, "Job", EndedJob)
        patch.setattr(similar, "START_S", 0.0)
        patch.setattr(similar, "REFRESH_S", 0.01)
        yield SearchOptions("mfcc", window_s=0.5)


@pytest.fixture
def out(site, tmp_path):
    """A folder for labels, with a copy of the index."""
    shutil.copytree(site[0].parent / "index", tmp_path / "labels" / "index")
    return tmp_path / "labels"
