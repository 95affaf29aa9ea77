"""From a folder of recordings with labels to a model, labels of segments, and an ONNX file."""

import polars as pl
import pytest

from field_recordings import write_site
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
    assert "named right" in shown.out
    assert "expected recall: 100% on average over 3 labels" in shown.out
    segments = tmp_path / "segments"
    run("segment", site, "--min-length-s", "0.1", "--out", segments, "--quiet")
    labels = tmp_path / "labels"
    table = segments / "segments.parquet"
    shown = run("scan", model, "--segments", table, "--out", labels)
    assert "18 segments named" in shown.out
    frame = pl.read_csv(labels / "labels.csv")
    assert (frame["label"] == frame["annotated"]).all()
    shown = run("export", model, "--onnx", tmp_path / "model.onnx")
    assert "takes vectors of mfcc" in shown.out
    assert (tmp_path / "model.onnx").stat().st_size > 0


def test_bad_input_is_one_line(tmp_path, site, run):
    shown = run("learn", site, "--encoder", "mfcc", "--out", tmp_path / "m.txt", code=2)
    assert shown.err.startswith("callshot: out: expected a name that ends in .npz")
    shown = run("learn", site, "--out", tmp_path / "m.npz", code=2)
    assert shown.err.startswith("callshot: encoder: name one")
    shown = run("model", site / "a.wav", code=2)
    assert "expected a model of callshot learn" in shown.err
    assert shown.err.count("\n") == 1
