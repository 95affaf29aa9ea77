"""From a folder of recordings with labels to a model, labels of segments, and an ONNX file."""

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
    shown = run("learn", site, "--add", model, "--out", model)
    assert "18 examples (0 new) of 3 labels" in shown.out
    shown = run("model", model)
    assert "gain of one more example" in shown.out
    assert "expected accuracy: 100% on average over 3 labels" in shown.out
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
    assert "next: callshot score" in shown.out
    assert "callshot review" in shown.out
    assert "aim: 1 false alarm per hour and class" in shown.out
    events = pl.read_csv(found / "events.csv")
    assert set(events["label"]) <= {"hoot", "bark", "trill"}
    again = tmp_path / "again"
    run("scan", model, found / "index", "--out", again, "--quiet")
    assert (again / "events.csv").read_bytes() == (found / "events.csv").read_bytes()
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--false-alarms", "0"), "--false-alarms: expected more than 0"),
        (("--to", "ravn"), "to: 'ravn': did you mean raven?"),
        (("--gap", "-1"), "gap: expected 0 or more seconds, got -1"),
        (("--segments", "s.parquet"), "segments: expected either RECORDINGS"),
    ],
)
def test_bad_options_of_scan_are_one_line(tmp_path, site, run, options, message):
    model = tmp_path / "model.npz"
    run("learn", site, "--encoder", "mfcc", "--out", model, "--quiet")
    shown = run("scan", model, site, "--out", tmp_path / "out", *options, code=2)
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
