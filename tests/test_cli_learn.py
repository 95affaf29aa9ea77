"""From a folder of recordings with labels to a model, labels of segments, and an ONNX file."""

import re

import numpy as np
import polars as pl
import pytest
import soundfile as sf

from field_recordings import add_tone, write_site
from test_cli import run as run_command


@pytest.fixture
def run(capsys):
    """Run a command; return what it printed on both streams."""

    def run_and_capture(*words, code=0):
        run_command(*words, code=code)
        return capsys.readouterr()

    return run_and_capture


@pytest.fixture(scope="module", autouse=True)
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CALLSHOT_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return write_site(tmp_path_factory.mktemp("field") / "site")


@pytest.fixture(scope="module")
def learned(site, home):
    """A model of the site, with windows as long as the calls."""
    model = site.parent / "model.npz"
    words = ("-e", "mfcc", "--window", "0.5", "-o", model, "--quiet")
    run_command("learn", site, *words)
    return model


def write_clips(folder, labels, count, level=1e-3):
    """Write a call of half a second in each clip."""
    rng = np.random.default_rng(0)
    for label in labels:
        (folder / label).mkdir(parents=True)
        for n in range(count):
            signal = rng.normal(0, level, 8000)
            add_tone(signal, label, 0.0, 0.5, 16000, rng)
            sf.write(folder / label / f"{n}.wav", signal, 16000, "FLOAT")
    return folder


def write_noise(path, seconds, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 0.01, int(seconds * 16000))
    sf.write(path, noise, 16000)
    return path


def test_learn_model_scan_and_export_work_one_after_the_other(tmp_path, site, run):
    model = tmp_path / "model.npz"
    shown = run("learn", site, "--encoder", "mfcc", "--out", model)
    assert "18 examples (18 new) of 3 labels" in shown.out
    assert "mark every call in these recordings" in " ".join(shown.out.split())
    shown = run("learn", site, "--add", model, "--out", model)
    assert "18 examples (0 new) of 3 labels" in shown.out
    shown = run("model", model)
    assert "gain of one more example" in shown.out
    assert "expected accuracy: 100% (67–100%) of calls named right" in shown.out
    segments = tmp_path / "segments"
    run("segment", site, "--min-length-s", "0.1", "--out", segments, "--quiet")
    labels = tmp_path / "labels"
    table = segments / "segments.parquet"
    shown = run("scan", model, "--segments", table, "--out", labels)
    assert "18 segments labelled" in shown.out
    frame = pl.read_csv(labels / "labels.csv")
    assert (frame["label"] == frame["annotated"]).all()
    found = tmp_path / "found"
    shown = run("scan", model, site, "--out", found, "--to", "raven,audacity")
    assert "based on" in shown.out
    assert "callshot review" in shown.out
    assert "aim: 1 false alarm per hour and label" in shown.out
    events = pl.read_csv(found / "events.csv")
    assert set(events["label"]) <= {"hoot", "bark", "trill"}
    again = tmp_path / "again"
    run("scan", model, found / "index", "--out", again, "--quiet")
    assert (again / "events.csv").read_bytes() == (found / "events.csv").read_bytes()
    run("convert", found, "--to", "kaleidoscope", "--out", tmp_path / "k", "--quiet")
    converted = pl.read_csv(tmp_path / "k" / "kaleidoscope.csv")
    assert len(converted) == len(events)
    for number, detections in enumerate((found, found / "events.parquet")):
        run(
            "score",
            detections,
            site,
            "--recordings",
            site,
            "--out",
            tmp_path / f"{number}",
        )
    scores = [(tmp_path / name / "scores.csv").read_bytes() for name in "01"]
    assert scores[0] == scores[1]
    shown = run("export", model, "--onnx", tmp_path / "model.onnx")
    assert "takes vectors of mfcc" in shown.out
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_bad_input_is_one_line(tmp_path, site, run):
    shown = run("learn", site, "--encoder", "mfcc", "--out", tmp_path / "m.txt", code=2)
    assert shown.err.startswith("callshot: --out: expected a name that ends in .npz")
    shown = run("learn", site, "--out", tmp_path / "m.npz", code=2)
    assert shown.err.startswith("callshot: --encoder: name one")
    shown = run("model", site / "a.wav", code=2)
    assert "expected a model of callshot learn" in shown.err
    assert shown.err.count("\n") == 1


def test_bad_options_of_scan_are_one_line(tmp_path, site, learned, run):
    mistakes = {
        "--false-alarms 0": "--false-alarms: expected more than 0",
        "--to ravn": "got 'ravn'; did you mean raven?",
        "--gap -1": "gap: expected 0 or more seconds, got -1",
        "--segments s.parquet": "segments: expected either RECORDINGS",
    }
    for words, message in mistakes.items():
        out = ("--out", tmp_path / "out", *words.split())
        shown = run("scan", learned, site, *out, code=2)
        assert message in shown.err
        assert shown.err.count("\n") == 1


def test_scan_mixes_clips_into_the_site_if_the_model_has_no_background(tmp_path, run):
    clips = write_clips(tmp_path / "clips", ("hoot", "bark"), 2)
    site = write_noise(tmp_path / "site" / "noise.wav", 60)
    model = tmp_path / "model.npz"
    run("learn", clips, "--encoder", "mfcc", "--out", model)
    shown = run("scan", model, site, "--out", tmp_path / "auto")
    assert "4 examples mixed into background" in shown.out
    index = tmp_path / "auto" / "index"
    shown = run("scan", model, index, "--adapt", "none", "--out", tmp_path / "plain")
    assert "mixed into" not in shown.out
    assert "thresholds from distances of the examples" in shown.out


def test_learn_says_at_once_when_background_is_little(tmp_path, site, run):
    words = ("learn", site, "-e", "mfcc", "--window", "0.5", "-o", tmp_path / "m.npz")
    write_noise(tmp_path / "short" / "a.wav", 8.5)
    shown = run(*words, "--background", tmp_path / "short")
    assert "thresholds rest on 17 windows" in shown.out
    write_noise(tmp_path / "long" / "a.wav", 120)
    shown = run(*words, "--background", tmp_path / "long")
    assert "thresholds rest on" not in shown.out
    assert "hardly stands out" not in shown.out


def test_learn_and_model_say_when_background_has_the_calls(tmp_path, run):
    model = tmp_path / "m.npz"
    site = write_site(tmp_path / "five", tuple("abcde"))
    like_calls = write_site(tmp_path / "like", tuple("abcdef"), calls=4, seed=3)
    words = ("learn", site, "-e", "mfcc", "--window", "0.5", "-o", model)
    for shown in (run(*words, "--background", like_calls), run("model", model)):
        assert "bark hardly stands out from the background" in shown.out


def test_a_scan_that_finds_nothing_says_so_and_what_to_do(tmp_path, learned, run):
    write_noise(tmp_path / "new" / "a.wav", 20, seed=5)
    shown = run("scan", learned, tmp_path / "new", "--out", tmp_path / "out")
    text = " ".join(shown.out.split())
    assert "nothing was found" in text
    assert "learn EXAMPLES --background" in text
    assert "are not marked" in text


def test_a_model_of_one_class_has_no_accuracy(tmp_path, run):
    site = write_site(tmp_path / "site", labels=("hoot",), calls=4)
    model = tmp_path / "m.npz"
    run("learn", site, "-e", "mfcc", "--window", "0.5", "-o", model)
    shown = run("model", model)
    assert "accuracy" not in shown.out
    assert "correct" not in shown.out
    assert "expected recall" in shown.out


def test_what_clips_say_of_each_other_is_not_promised_for_calls_in_noise(
    tmp_path, site, learned, run
):
    clips = write_clips(tmp_path / "clips", ("hoot", "bark", "trill"), 4, level=1e-6)
    segments = tmp_path / "segments"
    run("segment", site, "--min-length-s", "0.1", "--out", segments, "--quiet")
    of_clips = tmp_path / "clips.npz"
    run("learn", clips, "-e", "mfcc", "--window", "0.5", "-o", of_clips)
    for model, accuracy, is_known in (
        (of_clips, "not known", False),
        (learned, "100%", True),
    ):
        assert f"expected accuracy: {accuracy}" in run("model", model).out
        words = ("--segments", segments / "segments.parquet", "--out", tmp_path / "out")
        assert ("is not known" in run("scan", model, *words).out) != is_known


def test_the_last_line_says_how_much_was_left_out_and_why(tmp_path, run):
    site = write_site(tmp_path / "site")
    (site / "bad.mp3").write_bytes(b"no audio " * 99)
    table = next(site.glob("*.txt"))
    (site / "bad.txt").write_text(table.read_text())
    model = tmp_path / "model.npz"
    to_segments = ("--min-length-s", "0.1", "--out", tmp_path / "segments")
    to_store = ("--store", tmp_path / "store")
    to_index = ("--window", "1", "--out", tmp_path / "index")
    for words, quiet in (
        (("index", site, "-e", "mfcc", *to_index), []),
        (("segment", site, *to_segments), ["--quiet"]),
        (("learn", site, "-e", "mfcc", "--out", model, *to_store), ["--quiet"]),
        (("scan", model, site, "--out", tmp_path / "scan"), []),
    ):
        shown = run(*words, *quiet)
        last = shown.err.splitlines()[-1]
        assert re.match(r"left out: (1 \w+|\d+ \w+s\b)", last)
        assert "libsndfile cannot read it as audio" in last
        assert bool(quiet) == (not shown.out)
    (site / "bad.mp3").unlink()
    (site / "bad.txt").unlink()
    assert "left out" not in run("segment", site, *to_segments).err
