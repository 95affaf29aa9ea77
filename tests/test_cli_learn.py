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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return write_site(tmp_path_factory.mktemp("field") / "site")


def test_learn_model_scan_and_export_work_one_after_the_other(
    tmp_path, site, monkeypatch, run
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
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


def test_bad_options_of_scan_are_one_line(tmp_path, site, run):
    model = tmp_path / "model.npz"
    run("learn", site, "--encoder", "mfcc", "--out", model, "--quiet")
    mistakes = {
        "--false-alarms 0": "--false-alarms: expected more than 0",
        "--to ravn": "got 'ravn'; did you mean raven?",
        "--gap -1": "gap: expected 0 or more seconds, got -1",
        "--segments s.parquet": "segments: expected either RECORDINGS",
    }
    for words, message in mistakes.items():
        out = ("--out", tmp_path / "out", *words.split())
        shown = run("scan", model, site, *out, code=2)
        assert message in shown.err
        assert shown.err.count("\n") == 1


def test_scan_lays_clips_into_the_site_unless_told_otherwise(
    tmp_path, monkeypatch, run
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    clips = tmp_path / "clips"
    calls = write_site(tmp_path / "calls", ("a",))
    rng = np.random.default_rng(0)
    for label in ("hoot", "bark"):
        (clips / label).mkdir(parents=True)
        for n in range(2):
            signal = rng.normal(0, 0.001, 8000)
            add_tone(signal, label, 0.0, 0.5, 16000, rng)
            sf.write(clips / label / f"{n}.wav", signal, 16000)
    noise = rng.normal(0, 0.01, 60 * 16000)
    sf.write(calls / "noise.wav", noise, 16000)
    model = tmp_path / "model.npz"
    run("learn", clips, "--encoder", "mfcc", "--out", model)
    site = calls / "noise.wav"
    shown = run("scan", model, site, "--out", tmp_path / "auto")
    assert "4 examples mixed into background" in shown.out
    index = tmp_path / "auto" / "index"
    shown = run("scan", model, index, "--adapt", "none", "--out", tmp_path / "plain")
    assert "mixed into" not in shown.out
    assert "thresholds from distances of the examples" in shown.out
    shown = run("learn", clips, "--encoder", "mfcc", "--site", site, "--out", model)
    shown = run("scan", model, index, "--out", tmp_path / "learned")
    assert "windows without labels" in shown.out


def write_noise(path, seconds, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(seed).normal(0, 0.01, int(seconds * 16000))
    sf.write(path, noise, 16000)


def test_learn_says_at_once_when_background_is_little(tmp_path, site, monkeypatch, run):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    words = ("learn", site, "-e", "mfcc", "--window", "0.5", "-o", tmp_path / "m.npz")
    write_noise(tmp_path / "short" / "a.wav", 8.5)
    shown = run(*words, "--background", tmp_path / "short")
    assert "thresholds rest on 17 windows" in shown.out
    write_noise(tmp_path / "long" / "a.wav", 120)
    shown = run(*words, "--background", tmp_path / "long")
    assert "thresholds rest on" not in shown.out
    assert "hardly stands out" not in shown.out


def test_learn_and_model_say_when_calls_do_not_stand_out(tmp_path, monkeypatch, run):
    """The background has the calls of the examples."""
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    model = tmp_path / "m.npz"
    site = write_site(tmp_path / "five", tuple("abcde"))
    like_calls = write_site(tmp_path / "like", tuple("abcdef"), calls=4, seed=3)
    words = ("learn", site, "-e", "mfcc", "--window", "0.5", "-o", model)
    shown = run(*words, "--background", like_calls)
    assert "bark hardly stands out from the background" in shown.out
    assert "bark hardly stands out from the background" in run("model", model).out


def test_a_scan_that_finds_nothing_says_so_and_what_to_do(
    tmp_path, site, monkeypatch, run
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    model = tmp_path / "m.npz"
    run("learn", site, "-e", "mfcc", "--window", "0.5", "-o", model)
    write_noise(tmp_path / "new" / "a.wav", 20, seed=5)
    shown = run("scan", model, tmp_path / "new", "--out", tmp_path / "out")
    text = " ".join(shown.out.split())
    assert "nothing was found" in text
    assert "learn EXAMPLES --background" in text
    assert "are not marked" in text


def test_a_model_of_one_class_has_no_accuracy(tmp_path, monkeypatch, run):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    site = write_site(tmp_path / "site", labels=("hoot",), calls=4)
    model = tmp_path / "m.npz"
    run("learn", site, "-e", "mfcc", "--window", "0.5", "-o", model)
    shown = run("model", model)
    assert "hoot" in shown.out
    assert "accuracy" not in shown.out
    assert "correct" not in shown.out
    assert "expected recall" in shown.out


def test_what_clips_say_of_each_other_is_not_promised_for_calls_in_noise(
    tmp_path, site, monkeypatch, run
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    rng = np.random.default_rng(0)
    for label in ("hoot", "bark", "trill"):
        (tmp_path / "clips" / label).mkdir(parents=True)
        for n in range(4):
            signal = rng.normal(0, 1e-6, 8000)
            add_tone(signal, label, 0.0, 0.5, 16000, rng)
            sf.write(tmp_path / "clips" / label / f"{n}.wav", signal, 16000, "FLOAT")
    segments = tmp_path / "segments"
    run("segment", site, "--min-length-s", "0.1", "--out", segments, "--quiet")
    table = segments / "segments.parquet"
    clips, own = tmp_path / "clips.npz", tmp_path / "own.npz"
    run("learn", tmp_path / "clips", "-e", "mfcc", "--window", "0.5", "-o", clips)
    run("learn", site, "-e", "mfcc", "--window", "0.5", "-o", own)
    assert "expected accuracy: not known" in run("model", clips).out
    assert "expected accuracy: 100%" in run("model", own).out
    shown = run("scan", clips, "--segments", table, "--out", tmp_path / "by-clips")
    assert "is not known" in shown.out
    shown = run("scan", own, "--segments", table, "--out", tmp_path / "by-own")
    assert "is not known" not in shown.out


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
