"""Every command of the how-to guides runs, on a small corpus: each section is a test."""

import re
import shlex
import shutil
import time
import uuid
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from callshot.review.similar import SearchOptions
from served_review import serve, serve_labels
from test_cli import run

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("how-to-study.md", "how-to-field.md", "how-to-formats.md", "how-to-cluster.md")
BLOCK = re.compile(r"^```(sh|python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Lines that cannot run in a test, and why.
NOT_RUN = {
    "pip install": "changes the environment",
    "callshot encoders get": "downloads",
    "callshot segment LDC2010S05": "the corpus cannot be had; tests/corpus has one like it",
    "s3://": "needs a bucket; tests/storage has one",
    "--device cuda": "needs a GPU",
    "--cluster": "starts many processes; tests/distributed starts a few",
    "callshot label study.toml": "opens a page; tests/review does it",
    "--train recurrent": "trains networks for minutes; tests/baselines does it",
}
# An encoder that every installation has, and fewer samples.
SMALLER = {
    "--encoder birdnet-v2.4": "--encoder mfcc",
    "callshot index recordings --encoder mfcc": (
        "callshot index recordings --encoder mfcc --window 1"
    ),
    "callshot learn recordings/labels --encoder mfcc": (
        "callshot learn recordings/labels --encoder mfcc --window 1"
    ),
    "callshot evaluate": (
        "callshot evaluate --shots 1 --bootstraps 20 --shared-draws 110 --draws 5 "
        "--total-samples 110 --permutations 9 --no-figure"
    ),
    "--per-k": "--per-k --draws 2 --C 1",
    "--hop 1": "--hop 0.5",
}


def make_files():
    """Make the files and folders that the guides name, in the current folder."""
    run("synth", "corpus", "--scale", "0.01", "--quiet")
    run(
        *("synth", "week", "--soundscape", "--types", "2", "--recordings", "3"),
        *("--minutes", "1", "--every-minutes", "60", "--calls-per-hour", "360"),
        "--quiet",
    )
    for name in ("recordings", "audio", "more-recordings", "new-recordings"):
        shutil.copytree("week/recordings", name)
    shutil.copytree("week/recordings", "site-recordings")
    shutil.copytree("week/clips", "clips")
    shutil.copytree("week/clips", "ElephantVoices")
    for name in ("selection-tables", "selections", "calls"):
        shutil.copytree("week/raven", name)
    for table in Path("week/raven").iterdir():
        shutil.copy(table, "more-recordings")
    first = sorted(Path("recordings").iterdir())[0]
    signal, rate_hz = soundfile.read(first, dtype="float32")
    soundfile.write("night.wav", signal, rate_hz)
    vectors = np.random.default_rng(0).normal(0, 1, (200, 8)).astype(np.float32)
    vectors[15:25] += 9
    np.save("aves.npy", vectors)
    Path("rumbles.csv").write_text(
        "recording,start_s,end_s,label\naves,10,12,rumble\naves,13,15,rumble\n"
    )
    clip = next(Path("ElephantVoices").rglob("*.*")).relative_to("ElephantVoices")
    Path("sheet.csv").write_text(
        "Selection,Sound_file,Start_time,End_time,Call_type\n"
        f"1,{clip.as_posix()},0,1,Rumble\n"
    )
    run(
        *("segment", "corpus/recordings", "--annotations", "corpus/raven"),
        *("--out", "segments", "--quiet"),
    )
    for name in ("source", "target"):
        shutil.copytree("segments", name)
    shutil.copytree("week/recordings", "target/recordings")
    run("embed", "segments/segments.parquet", "-e", "mfcc", "--out", "mfcc.parquet")
    run(
        *("convert", "week/raven", "--to", "csv", "--recordings", "audio"),
        *("--out", "events"),
    )
    events = pl.read_csv("events/events.csv")
    scores = pl.Series("score", range(len(events)), pl.Float64)
    events.with_columns(scores).write_csv("detections.csv")


def review_detections():
    """Confirm and reject a detection, in place of a person on the page."""
    with serve(Path("detections"), Path("detections/review")) as (client, _):
        client.decide(0, "confirm")
        client.decide(1, "reject")


def label_recordings():
    """Mark two calls and what was listened to, in place of a person on the page."""
    folder = Path("recordings")
    search = SearchOptions("mfcc", window_s=1.0)
    with serve_labels(folder, folder / "labels", search) as (client, session):
        name = session.library.paths[0]
        for number, label in enumerate(("rumble", "roar")):
            box = {"id": str(uuid.uuid4()), "recording": name, "label": label}
            box |= {"start_s": 5.0 + number, "end_s": 5.8 + number}
            box |= {"low_freq_hz": 20.0, "high_freq_hz": 200.0}
            body = {"uuid": str(uuid.uuid4()), "action": "add", "box": box}
            client.post("/api/boxes", body)
        span = {"recording": name, "start_s": 0.0, "end_s": 30.0}
        client.post("/api/listened", {"uuid": str(uuid.uuid4()), **span})
        while client.get("/api/tasks")["index"]["state"] == "running":
            time.sleep(0.2)


def list_sections():
    """Return the commands of each section of the pages, without comments, by page and heading."""
    sections = {}
    for page in PAGES:
        text = (DOCS / page).read_text(encoding="utf-8") if DOCS.exists() else ""
        for section in text.split("\n## ")[1:]:
            lines = "".join(block for _, block in BLOCK.findall(section)).splitlines()
            commands = [
                line for line in lines if line.startswith(("callshot ", "pip "))
            ]
            name = f"{page}: {section.partition(chr(10))[0]}"
            if commands:
                sections[name] = [line.partition("  #")[0].strip() for line in commands]
    return sections


SECTIONS = list_sections()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Return a folder with the files that the guides name, and reviewed detections."""
    folder = tmp_path_factory.mktemp("how-to")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("CALLSHOT_HOME", str(folder / "home"))
        make_files()
        learn = ("learn", "recordings", "--annotations", "selections")
        run(*learn, "--encoder", "mfcc", "--out", "calls.npz")
        run("scan", "calls.npz", "new-recordings", "--out", "detections")
        review_detections()
    return folder


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not installed")
def test_the_guides_have_sections_with_commands():
    assert len(SECTIONS) >= 15
    assert sum(map(len, SECTIONS.values())) > 40


@pytest.mark.parametrize("section", SECTIONS)
def test_every_command_of_a_how_to_guide_runs(section, prepared, tmp_path, monkeypatch):
    folder = tmp_path / "files"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CALLSHOT_HOME", str(folder / "home"))
    for line in SECTIONS[section]:
        if any(words in line for words in NOT_RUN):
            continue
        if line == "callshot review detections":
            review_detections()
            continue
        if line == "callshot label recordings":
            label_recordings()
            continue
        for old, new in SMALLER.items():
            line = line.replace(old, new)
        _, *words = shlex.split(line)
        run(*words)
