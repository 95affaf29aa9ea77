"""The tutorials run as they are written, on less data."""

import re
import shlex
from pathlib import Path

import polars as pl
import pytest

from callshot.detection.model import load_model
from served_review import serve
from test_cli import run

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A smaller week, and an encoder that every installation has.
SMALLER = {
    "callshot encoders get yamnet\n": "",
    "--encoder yamnet": "--encoder mfcc",
    "--recordings 168 --minutes 2 --calls-per-hour 40": (
        "--types 2 --recordings 6 --every-minutes 240 --minutes 1 --calls-per-hour 240"
    ),
    "--recordings 56 --minutes 1 --every-minutes 180": (
        "--recordings 3 --minutes 1 --every-minutes 500"
    ),
    "--clips 3": "--clips 1",
    # The window of MFCC is as long as the examples, so clips need an index of their own.
    "scan clips.npz detections/index": "scan clips.npz week/recordings",
    "--out density": "--no-figure --out density",
    "--out more-scores": "--no-figure --samples 10 --out more-scores",
}


def read_blocks(name, changes):
    """Return the code of a page as (language, text), with some texts replaced."""
    text = (DOCS / name).read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text, f"{name} has no {old!r} any more"
        text = text.replace(old, new)
    return BLOCK.findall(text)


def answer_detections():
    """Confirm and reject detections by the annotations, in place of a person on the page."""
    calls = pl.read_csv("week/annotations.csv")
    with serve(Path("detections"), Path("detections/review")) as (client, review):
        for number, row in enumerate(review.source.items.frame.iter_rows(named=True)):
            alike = calls.filter(recording=row["recording"], label=row["label"])
            is_call = not alike.filter(
                pl.col("start_s") < row["end_s"], pl.col("end_s") > row["start_s"]
            ).is_empty()
            client.decide(number, "confirm" if is_call else "reject")


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not installed")
def test_the_tutorial_on_a_week_of_recordings_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    for language, text in read_blocks("tutorial-field.md", SMALLER):
        assert language == "sh"
        for line in text.splitlines():
            program, *words = shlex.split(line)
            assert program == "callshot"
            if words[0] == "review":
                answer_detections()
            else:
                run(*words)
    # Files that the page names exist, and what it promises holds.
    named = re.findall(
        r"`((?:detections|scores)/[\w./]+)`",
        (DOCS / "tutorial-field.md").read_text("utf-8"),
    )
    assert len(named) >= 7
    assert [name for name in named if not Path(name).exists()] == []
    events = pl.read_parquet("detections/events.parquet")
    assert set(events["label"]) <= {path.name for path in Path("week/clips").iterdir()}
    scores = pl.read_csv("scores/scores.csv").filter(pl.col("label").is_null())
    by_events = scores.filter(by="events")
    assert by_events["annotated"].to_list() == [24]
    assert by_events["recall"][0] > 0.1
    assert "probability" in pl.read_csv("better/events.csv").columns
    better = load_model("better.npz")
    assert sum(better.examples.spans["reviewed"]) > 0
