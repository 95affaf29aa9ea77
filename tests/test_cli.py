"""The command line, end to end, as a person would use it."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from callshot import cli
from callshot.interrupts import MESSAGE
from callshot.records import METRICS, SPREADS
from callshot.records.frames import CURVE, DIFFERENCES
from callshot.tables.embedding_tables import write_table
from corpora import random_corpus
from corpus_results import make_tables

FEW = ["--shots", "1,2,4", "--draws", "4", "--bootstraps", "9", "--shared-draws", "6"]
FEW += ["--permutations", "5", "--total-samples", "6"]
MANY = ["--shots", "1-3", "--draws", "4", "--bootstraps", "101", "--no-figure"]
MANY += ["--shared-draws", "101", "--total-samples", "101", "--permutations", "0"]


def run(*words, code=0):
    """Run a command in this process."""
    try:
        sys_argv, sys.argv = sys.argv, ["callshot", *map(str, words)]
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = sys_argv
    assert (stop.value.code or 0) == code


def evaluate(table, out, *options, code=0):
    """Evaluate a table with few samples, without a figure and without a word."""
    words = ("--out", out, "--no-figure", "--quiet")
    run("evaluate", table, *words, *FEW, *options, code=code)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "herd" / "mfcc.parquet"
    path.parent.mkdir()
    corpus = random_corpus(2, classes=4, size=3, dimensions=3, integers=False)
    write_table(corpus, path, corpus="herd")
    frame = pl.read_parquet(path)
    # Without metadata: the names come from the file and its folder.
    frame.write_parquet(path)
    return path


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def file_contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_evaluate_writes_every_file_with_its_columns(table, tmp_path, capsys):
    out = tmp_path / "out"
    run("evaluate", table, "--out", out, *FEW)
    said = capsys.readouterr()
    assert "herd" in said.out
    assert "\x1b" not in said.out + said.err  # without a terminal, lines are plain
    provenance = json.loads((out / "provenance.json").read_text())
    names = {path.name for path in out.iterdir()}
    assert names == {*provenance["files"], "provenance.json"}
    assert {"sweep.pdf", "sweep.png", "curve.csv", "values.parquet"} <= names
    assert provenance["protocol"]["seed"] == 0
    assert provenance["inputs"][0]["file"] == "mfcc.parquet"
    curve = pl.read_csv(out / "curve.csv")
    assert curve.columns == list(CURVE)
    pairs = {(metric, spread) for metric in METRICS for spread in SPREADS}
    assert set(curve.select("metric", "spread").rows()) == pairs
    assert set(curve["k"]) == {1, 2, 4}
    names = set(curve.select("corpus", "encoder", "classifier").rows())
    assert names == {("herd", "mfcc", "centroid")}
    values = pl.read_parquet(out / "values.parquet")
    assert values.height == 3 * len(METRICS) * (9 + 6 + 6)
    key = {"metric": "map", "spread": "shared", "k": 2}
    samples = values.filter(**key)["value"]
    (row,) = curve.filter(**key).to_dicts()
    assert row["p01"] == pytest.approx(np.percentile(samples, 1), abs=1e-15)
    assert row["mean"] == pytest.approx(samples.mean(), abs=1e-15)
    confusion = pl.read_csv(out / "confusion.csv").group_by("k").agg(pl.sum("count"))
    assert confusion["count"].to_list() == pytest.approx([provenance["queries"]] * 3)
    (out / "notes.txt").write_text("mine")
    evaluate(table, out)
    assert not (out / "sweep.png").exists()  # of the earlier run
    assert (out / "notes.txt").read_text() == "mine"
    said = capsys.readouterr()
    assert said.out + said.err == ""


def write_two(folder, separation):
    """Write tables of two encoders; 0 gives the second one the vectors of the first."""
    tables = make_tables(encoders={"good": 2.0, "other": separation})
    if not separation:
        tables[1] = replace(tables[0], encoder="other")
    paths = [folder / f"{table.encoder}.parquet" for table in tables]
    for path, table in zip(paths, tables, strict=True):
        write_table(table, path)
    return paths


def test_evaluate_compares_two_tables_and_says_which_is_better(tmp_path, capsys):
    out = tmp_path / "out"
    run("evaluate", *write_two(tmp_path, 0.2), "--out", out, *MANY)
    assert "good is clearly better than other: mAP is 0." in capsys.readouterr().out
    differences = pl.read_csv(out / "differences.csv")
    assert differences.columns == list(DIFFERENCES)
    assert set(differences.select("one", "other").iter_rows()) == {("good", "other")}
    curve = pl.read_csv(out / "curve.csv")
    key = {"scoring": "all", "metric": "map", "spread": "total", "k": 3}
    means = curve.filter(**key).sort("encoder")["mean"]
    assert differences.filter(**key)["mean"][0] == pytest.approx(means[0] - means[1])
    run("evaluate", tmp_path / "good.parquet", "--out", out, *MANY)
    assert not (out / "differences.csv").exists()  # of the earlier evaluation
    run("evaluate", *write_two(tmp_path, 2.0), "--out", out, *MANY)
    assert "it is not clear whether" in capsys.readouterr().out


def test_evaluate_measures_tables_with_the_same_vectors_once(tmp_path, capsys):
    out = tmp_path / "out"
    tables = write_two(tmp_path, 0.0)
    run("evaluate", *tables, "--out", out, *MANY)
    assert "other gives the same vectors as good" in capsys.readouterr().out
    assert set(pl.read_csv(out / "curve.csv")["encoder"]) == {"good"}
    assert not (out / "differences.csv").exists()
    run("baselines", *tables, "--against", out, "--out", tmp_path / "trained")
    trained = pl.read_csv(tmp_path / "trained" / "baselines.csv")
    assert set(trained["encoder"]) == {"good"}


def test_evaluate_says_how_many_labels_a_target_needs(table, tmp_path, capsys):
    words = ("evaluate", table, "--no-figure", *FEW, "--target")
    run(*words, "0.01", "--out", tmp_path / "out")
    text = capsys.readouterr().out
    assert "mfcc reaches mAP 0.01 on average with 1 example per call type" in text
    run(*words, "8", "--out", tmp_path / "no", code=2)
    assert "target: expected a score above 0 and up to 1" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_folds_of_a_run_can_be_given_to_the_next(table, tmp_path):
    pl.read_parquet(table).drop("fold").write_parquet(table)
    names = tmp_path / "categories.csv"
    names.write_text("label,category\nc0,low\nc1,low\n")
    first, second = tmp_path / "first", tmp_path / "second"
    evaluate(table, first, "--folds", 3, "--categories", names)
    folds = first / "folds.csv"
    evaluate(table, second, "--fold-file", folds, "--categories", names)
    assert (first / "curve.csv").read_bytes() == (second / "curve.csv").read_bytes()
    scorings = pl.read_csv(first / "curve.csv")["scoring"]
    assert set(scorings) == {"all", "reduced"}


def test_literal_softmax_counts_its_ties_and_prices_them(table, tmp_path):
    scaled = pl.col("embedding").list.eval(pl.element() * 60)
    pl.read_parquet(table).with_columns(scaled).write_parquet(table)
    key = {"metric": "map", "spread": "shared", "k": 2}
    means = {}
    ties = {}
    for score in ("log", "softmax"):
        out = tmp_path / score
        evaluate(table, out, "--score", score)
        per_class = pl.read_csv(out / "per_class.csv").filter(**key)
        means[score] = dict(per_class.select("label", "mean").iter_rows())
        ties[score] = pl.read_csv(out / "ties.csv")
        facts = json.loads((out / "provenance.json").read_bytes())["ties"]
        assert sum(entry["ties"] for entry in facts) == ties[score]["ties"].sum()
        assert all(("worst_label" in entry) == (score == "softmax") for entry in facts)
    assert ties["softmax"]["ties"].sum() > 0
    assert ties["log"]["ties"].sum() == 0
    priced = ties["softmax"].filter(spread="shared", k=2)
    for label, cost in priced.select("label", "cost_map").iter_rows():
        expected = means["log"][label] - means["softmax"][label]
        assert cost == pytest.approx(expected, abs=1e-12)


def test_evaluate_says_which_device_it_used(table, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("callshot.fewshot.gpu.device.has_driver", lambda: False)
    line = "evaluated on the CPU: no NVIDIA driver was found"
    for device in ("auto", "cuda", "cpu"):
        out = tmp_path / device
        run("evaluate", table, "--out", out, "--no-figure", "--device", device, *FEW)
        said = capsys.readouterr()
        assert (said.out + said.err).count(line) == (device != "cpu")
        provenance = json.loads((out / "provenance.json").read_text("utf-8"))
        assert provenance["options"]["device"] == device
        assert (line in provenance["notes"]) == (device == "cuda")
    assert rows(tmp_path / "cuda" / "curve.csv") == rows(tmp_path / "cpu" / "curve.csv")


def list_commands(command, *names):
    """Yield each command with its words, such as ("encoders", "show")."""
    yield names, command
    for name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, *names, name)


def test_help_says_what_each_option_is_in_sentences():
    for _, command in list_commands(typer.main.get_command(cli.app)):
        for parameter in command.params:
            assert parameter.help[0].isupper(), parameter.name
            assert parameter.help.endswith("."), parameter.name
    for words in ([], ["scan"], ["encoders", "get"]):
        said = CliRunner().invoke(cli.app, [*words, "--help"], env={"COLUMNS": "200"})
        assert said.exit_code == 0
        for noise in ("<bool>", "[default", "[[", "{programs}"):
            assert noise not in said.output


def change_value(column, row, value):
    """Return a function that changes a value of a column."""
    is_row = pl.int_range(pl.len()) == row - 1
    changed = pl.when(is_row).then(value).otherwise(pl.col(column)).alias(column)
    return lambda frame: frame.with_columns(changed)


BAD = {
    "row 1, dimension e0: expected a finite number, got nan": change_value(
        "embedding", 1, pl.lit([np.nan, 1.0, 1.0])
    ),
    "only one eligible class, 'a': it is the only label": lambda f: f.with_columns(
        label=pl.lit("a")
    ),
    "column fold: recording 'all' is in": lambda f: f.with_columns(
        recording=pl.lit("all")
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_table_is_one_line_and_code_2_and_nothing_is_written(
    message, table, tmp_path, capsys
):
    BAD[message](pl.read_parquet(table)).write_parquet(table)
    evaluate(table, tmp_path / "out", code=2)
    said = capsys.readouterr().err
    assert message in said
    assert "mfcc.parquet" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


OPTIONS = {
    "shots: expected 1 or more": "--shots 0",
    "10,000 values of k, none above 1,000,000": "--shots 1-9999,20000-20010",
    "values of k, none above 1,000,000": "--shots 2000000",
    "draws: expected 1 to 65535, got 0": "--draws 0",
    "device: expected one of auto, cpu, cuda": "--device gpu",
    "memory: expected 0 to 1048576 GiB, got inf": "--memory inf",
    "has 3 folds, but folds is 7": "--folds 7",
    "which needs the sampler distinct": "--shots all --sampler replacement",
    "nowhere.csv: cannot be read": "--fold-file nowhere.csv",
    "did you mean neighbour?": "--classifiers neighbor",
    "centre: needs --queries": "--centre",
}


def test_a_bad_option_is_one_line_and_code_2(table, tmp_path, capsys):
    for message, words in OPTIONS.items():
        evaluate(table, tmp_path / "out", *words.split(), code=2)
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_tables_that_differ_or_cannot_be_read_are_refused(table, tmp_path, capsys):
    out = tmp_path / "out"
    other = table.with_name("other.parquet")
    pl.read_parquet(table).slice(1).write_parquet(other)
    evaluate(table, out, other, code=2)
    assert "expected the same segments in all tables" in capsys.readouterr().err
    other.write_bytes(table.read_bytes()[:-40])
    evaluate(other, out, code=2)
    assert "other.parquet: cannot be read" in capsys.readouterr().err
    path = tmp_path / "excel.csv"
    path.write_text("recording;label;e0\na;b;1,5\n")
    evaluate(path, out, code=2)
    assert "save the file with commas between fields" in capsys.readouterr().err


def test_a_run_that_is_stopped_leaves_the_earlier_results_as_they_were(table, tmp_path):
    out = tmp_path / "out"
    evaluate(table, out)
    before = file_contents(out)
    words = ["evaluate", table, "--out", out, "--no-figure", "--draws", 3000]
    command = [sys.executable, "-m", "callshot", *words, "--bootstraps", 300_000]
    child = subprocess.Popen(
        [str(word) for word in command], stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob(".callshot-unfinished")):
        time.sleep(0.02)
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    said = child.communicate(timeout=60)[1]
    # A shell shows 130 for an exit by SIGINT too.
    assert child.returncode in (130, -signal.SIGINT)
    assert MESSAGE in said
    visible = [path for path in out.iterdir() if not path.name.startswith(".")]
    assert {path.name: path.read_bytes() for path in visible} == before
    evaluate(table, out)
    assert set(file_contents(out)) == set(before)


def test_modules_load_only_the_libraries_that_they_use(tmp_path):
    code = """
import sys

def show(*names):
    print(*set(names) & set(sys.modules))

import callshot.cli
show("numpy", "numba", "polars", "scipy", "matplotlib")
import callshot.detection.index.index_recordings, callshot.study.doctor
show("matplotlib", "numba", "scipy.fft", "scipy.sparse", "scipy.signal")
import callshot.baselines.run, callshot.baselines.sequence_batches
show("torch")
from callshot.corpus.recordings import find_recordings
from callshot.storage import to_path
find_recordings(to_path("."))
show("fsspec")
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    table, tmp_path, capsys
):
    frame = pl.read_parquet(table).with_columns(recording=pl.lit("\x1b[31mred"))
    frame.write_parquet(table)
    evaluate(table, tmp_path / "out", code=2)
    assert "\x1b" not in capsys.readouterr().err
    frame = frame.with_columns(recording=pl.col("segment"))
    frame.write_parquet(table, metadata={"encoder": "\x1b[31mred"})
    run("evaluate", table, "--out", tmp_path / "out", "--no-figure", *FEW)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err


def test_kernels_of_a_package_that_cannot_be_written_are_kept_in_our_own_folder(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    run("--version")
    assert os.environ.pop("NUMBA_CACHE_DIR") == str(tmp_path / "numba")
    # That of another user is not taken: its kernels could be anything.
    (tmp_path / "numba").mkdir(mode=0o777, exist_ok=True)
    owner = (tmp_path / "numba").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    run("--version")
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_results_do_not_go_to_folders_of_others(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    for out, problem in (
        ("/", "out: / is the root of a disk"),
        ("", "out: expected the name of a folder, got an empty one"),
        (
            ".callshot",
            "out: .callshot is in .callshot, where callshot stores the steps",
        ),
        ("home", "is your home folder"),
    ):
        evaluate(table, out, code=2)
        assert problem in capsys.readouterr().err
    evaluate(table, "home/results")


def test_quiet_commands_show_our_messages_and_no_noise_of_libraries():
    code = """
import os, sys
from callshot.cli.app import run_with_progress
with run_with_progress(quiet=True):
    os.write(2, b"[src/libmpg123/layer3.c] error: noise\\n")
    print("ours", file=sys.stderr)
os.write(2, b"after\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "ours\nafter\n")


def test_doctor_prints_every_check_and_fails_only_for_a_problem(capsys, monkeypatch):
    from callshot.study import doctor

    run("doctor")
    said = capsys.readouterr().out
    assert "good    encoder mfcc: ready" in said
    assert " 0 problems, " in said
    monkeypatch.setattr(doctor, "REQUIRED", ("no-such-package",))
    run("doctor", code=1)
    said = capsys.readouterr().out
    assert "problem packages: missing: no-such-package\n        pip install" in said


def test_a_terminal_without_unicode_gets_question_marks(monkeypatch):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    module = sys.modules["callshot.cli.app"]
    monkeypatch.setattr(module, "app", lambda: print("1 ⋆ 0.5–0.6"))
    cli.main()
    stream.flush()
    assert raw.getvalue().decode("cp1252") == "1 ? 0.5–0.6\n"
