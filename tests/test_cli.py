"""The command line, end to end, as a person would use it."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from typer.testing import CliRunner

from callshot import cli
from callshot.interrupts import MESSAGE
from callshot.records import METRICS, SPREADS
from callshot.records.frames import DIFFERENCES
from callshot.tables.embedding_tables import write_table
from corpora import random_corpus
from corpus_results import make_tables

FEW = [
    "--shots",
    "1,2,4",
    "--draws",
    "4",
    "--bootstraps",
    "9",
    "--shared-draws",
    "6",
    "--permutations",
    "5",
    "--total-samples",
    "6",
]
FILES = {
    "classes.csv",
    "confusion.csv",
    "curve.csv",
    "curve.parquet",
    "folds.csv",
    "per_class.csv",
    "provenance.json",
    "sweep.pdf",
    "sweep.png",
    "ties.csv",
    "chance_test.csv",
    "partitions.csv",
    "sensitivity.csv",
    "sensitivity_means.csv",
    "duplicates.csv",
    "budget.csv",
    "values.parquet",
}
CURVE = (
    "corpus,encoder,classifier,scoring,metric,spread,k,mean,p01,p25,p50,p75,p99,"
    "chance,complete,new_exemplars,ties"
)


def run(*words, code=0):
    """Run a command in this process; return what it said on both streams."""
    try:
        sys_argv, sys.argv = sys.argv, ["callshot", *map(str, words)]
        with pytest.raises(SystemExit) as stop:
            cli.main()
    finally:
        sys.argv = sys_argv
    assert (stop.value.code or 0) == code


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "herd" / "mfcc.parquet"
    path.parent.mkdir()
    write_table(
        random_corpus(2, classes=4, size=3, dimensions=3, integers=False),
        path,
        corpus="herd",
    )
    frame = pl.read_parquet(path)
    frame.write_parquet(
        path
    )  # without metadata: the names come from the file and its folder
    return path


def rows(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_evaluate_writes_every_file_with_its_columns(table, tmp_path, capsys):
    out = tmp_path / "out"
    run("evaluate", table, "--out", out, *FEW)
    assert {p.name for p in out.iterdir()} == FILES
    assert (out / "curve.csv").read_text().splitlines()[0] == CURVE
    curve = rows(out / "curve.csv")
    assert {(r["metric"], r["spread"]) for r in curve} == {
        (metric, spread) for metric in METRICS for spread in SPREADS
    }
    assert {r["k"] for r in curve} == {"1", "2", "4"}
    assert {(r["corpus"], r["encoder"], r["classifier"]) for r in curve} == {
        ("herd", "mfcc", "centroid")
    }
    values = pl.read_parquet(out / "values.parquet")
    assert values.height == 3 * len(METRICS) * (9 + 6 + 6)
    one = values.filter(
        (pl.col("metric") == "map")
        & (pl.col("spread") == "shared")
        & (pl.col("k") == 2)
    )["value"]
    row = next(
        r for r in curve if (r["metric"], r["spread"], r["k"]) == ("map", "shared", "2")
    )
    assert float(row["p01"]) == pytest.approx(np.percentile(one, 1), abs=1e-15)
    assert float(row["mean"]) == pytest.approx(one.mean(), abs=1e-15)
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["protocol"]["seed"] == 0
    assert provenance["inputs"][0]["file"] == "mfcc.parquet"
    assert "herd" in capsys.readouterr().out


def write_two(folder: Path, separation: float) -> list[Path]:
    """Write tables of two encoders; 0 gives the second one the vectors of the first."""
    tables = make_tables(encoders={"good": 2.0, "other": separation})
    if not separation:
        tables[1] = replace(tables[0], encoder="other")
    paths = []
    for table in tables:
        path = folder / f"{table.encoder}.parquet"
        write_table(table, path)
        paths.append(path)
    return paths


MANY = ["--shots", "1-3", "--draws", "4", "--bootstraps", "101", "--no-figure"]
MANY += ["--shared-draws", "101", "--total-samples", "101", "--permutations", "0"]


def test_evaluate_compares_two_tables_and_says_which_is_better(tmp_path, capsys):
    out = tmp_path / "out"
    run("evaluate", *write_two(tmp_path, 0.2), "--out", out, *MANY)
    shown = capsys.readouterr().out
    assert "good is clearly better than other: mAP is 0." in shown
    differences = pl.read_csv(out / "differences.csv")
    assert differences.columns == list(DIFFERENCES)
    assert set(differences.select("one", "other").iter_rows()) == {("good", "other")}
    provenance = json.loads((out / "provenance.json").read_text())
    assert "differences.csv" in provenance["files"]
    curve = pl.read_csv(out / "curve.csv")
    means = [
        curve.filter(encoder=name, metric="map", spread="total", k=3)["mean"][0]
        for name in ("good", "other")
    ]
    row = differences.filter(scoring="all", metric="map", spread="total", k=3)
    assert row["mean"][0] == pytest.approx(means[0] - means[1])
    run("evaluate", tmp_path / "good.parquet", "--out", out, *MANY)
    assert not (out / "differences.csv").exists()  # of the earlier evaluation


def test_evaluate_says_that_a_small_difference_is_not_clear(tmp_path, capsys):
    run("evaluate", *write_two(tmp_path, 2.0), "--out", tmp_path / "out", *MANY)
    assert "it is not clear whether" in capsys.readouterr().out


def test_evaluate_measures_tables_with_the_same_vectors_once(tmp_path, capsys):
    out = tmp_path / "out"
    run("evaluate", *write_two(tmp_path, 0.0), "--out", out, *MANY)
    shown = capsys.readouterr().out
    assert "other gives the same vectors as good" in shown
    assert set(pl.read_csv(out / "curve.csv")["encoder"]) == {"good"}
    assert not (out / "differences.csv").exists()
    tables = [tmp_path / f"{name}.parquet" for name in ("good", "other")]
    run("baselines", *tables, "--against", out, "--out", tmp_path / "trained")
    trained = pl.read_csv(tmp_path / "trained" / "baselines.csv")
    assert set(trained["encoder"]) == {"good"}


def test_evaluate_says_how_many_labels_a_target_needs(table, tmp_path, capsys):
    run("evaluate", table, "--out", tmp_path / "out", *FEW, "--target", "0.01")
    text = capsys.readouterr().out
    assert "mfcc reaches mAP 0.01 on average with 1 example per call type" in text
    run("evaluate", table, "--out", tmp_path / "no", "--target", "8", code=2)
    assert "target: expected a score above 0 and up to 1" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_confusion_adds_up_to_the_queries_at_every_k(table, tmp_path):
    out = tmp_path / "out"
    run("evaluate", table, "--out", out, "--quiet", *FEW)
    queries = json.loads((out / "provenance.json").read_text())["queries"]
    for k in ("1", "2", "4"):
        total = sum(
            float(r["count"]) for r in rows(out / "confusion.csv") if r["k"] == k
        )
        assert total == pytest.approx(queries)


def test_threads_and_repetition_leave_no_trace_in_the_csv_files(table, tmp_path):
    kept = []
    for i, threads in enumerate((1, 2, 4, 1)):
        out = tmp_path / f"out{i}"
        run(
            "evaluate",
            table,
            "--out",
            out,
            "--threads",
            threads,
            "--no-figure",
            "--quiet",
            *FEW,
        )
        kept.append({p.name: p.read_bytes() for p in out.glob("*.csv")})
    assert kept[0] == kept[1] == kept[2] == kept[3]


def test_csv_and_npz_tables_give_the_same_curve_as_parquet(table, tmp_path):
    frame = pl.read_parquet(table)
    vectors = np.stack(frame["embedding"].to_list())
    wide = frame.drop("embedding").with_columns(
        pl.col("labels").list.join(";"),
        *(pl.Series(f"e{i}", vectors[:, i]) for i in range(vectors.shape[1])),
    )
    wide.write_csv(table.with_suffix(".csv"))
    joined = frame["labels"].list.join(";").to_list()
    columns = {
        name: np.array(frame[name].to_list())
        for name in ("recording", "label", "segment", "fold")
    }
    np.savez(
        table.with_suffix(".npz"), embedding=vectors, labels=np.array(joined), **columns
    )
    curves = []
    for suffix in (".parquet", ".csv", ".npz"):
        out = tmp_path / f"out{suffix}"
        run(
            "evaluate",
            table.with_suffix(suffix),
            "--out",
            out,
            "--no-figure",
            "--quiet",
            *FEW,
        )
        curves.append((out / "curve.csv").read_bytes())
    assert curves[0] == curves[1] == curves[2]


def test_several_encoders_meet_the_same_draws(table, tmp_path):
    twin = table.with_name("twin.parquet")
    turned = pl.col("embedding").list.eval(-pl.element())  # with the same distances
    pl.read_parquet(table).with_columns(turned).write_parquet(twin)
    out = tmp_path / "out"
    run("evaluate", table, twin, "--out", out, "--no-figure", "--quiet", *FEW)
    curve = rows(out / "curve.csv")
    means = {
        name: [r["mean"] for r in curve if r["encoder"] == name]
        for name in ("mfcc", "twin")
    }
    assert means["mfcc"] == means["twin"]


def test_folds_of_a_run_can_be_given_to_the_next(table, tmp_path):
    frame = pl.read_parquet(table).drop("fold")
    frame.write_parquet(table)
    first, second = tmp_path / "first", tmp_path / "second"
    run("evaluate", table, "--out", first, "--folds", 3, "--no-figure", "--quiet", *FEW)
    folds = first / "folds.csv"
    run(
        "evaluate",
        table,
        "--out",
        second,
        "--fold-file",
        folds,
        "--no-figure",
        "--quiet",
        *FEW,
    )
    assert (first / "curve.csv").read_bytes() == (second / "curve.csv").read_bytes()


def test_categories_add_the_reduced_scoring(table, tmp_path):
    names = tmp_path / "categories.csv"
    names.write_text("label,category\nc0,low\nc1,low\n")
    out = tmp_path / "out"
    run(
        "evaluate",
        table,
        "--out",
        out,
        "--categories",
        names,
        "--no-figure",
        "--quiet",
        *FEW,
    )
    curve = rows(out / "curve.csv")
    per_class = rows(out / "per_class.csv")
    for spread in ("per-query", "shared"):
        found = next(
            r
            for r in curve
            if (r["scoring"], r["metric"], r["spread"], r["k"])
            == ("reduced", "map", spread, "2")
        )
        own = [
            float(r["mean"])
            for r in per_class
            if (r["metric"], r["spread"], r["k"]) == ("map", spread, "2")
            and r["label"] in ("c0", "c1")
        ]
        assert float(found["mean"]) == pytest.approx(np.mean(own), abs=1e-12)


def test_literal_softmax_counts_its_ties_and_prices_them(table, tmp_path):
    frame = pl.read_parquet(table)
    frame.with_columns(pl.col("embedding").list.eval(pl.element() * 60)).write_parquet(
        table
    )
    out, log = tmp_path / "out", tmp_path / "log"
    run(
        "evaluate",
        table,
        "--out",
        out,
        "--score",
        "softmax",
        "--no-figure",
        "--quiet",
        *FEW,
    )
    run("evaluate", table, "--out", log, "--no-figure", "--quiet", *FEW)
    ties = rows(out / "ties.csv")
    assert sum(int(r["ties"]) for r in ties) > 0
    assert sum(int(r["ties"]) for r in rows(log / "ties.csv")) == 0

    def mean(folder, label):
        return next(
            float(r["mean"])
            for r in rows(folder / "per_class.csv")
            if (r["metric"], r["spread"], r["k"], r["label"])
            == ("map", "shared", "2", label)
        )

    for row in ties:
        if (row["spread"], row["k"]) == ("shared", "2"):
            cost = mean(log, row["label"]) - mean(out, row["label"])
            assert float(row["cost_map"]) == pytest.approx(cost, abs=1e-12)


def test_without_a_terminal_there_are_plain_lines_and_with_quiet_none(
    table, tmp_path, capsys
):
    run("evaluate", table, "--out", tmp_path / "a", "--no-figure", *FEW)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "%" not in said.err  # no progress of a job of seconds
    run("evaluate", table, "--out", tmp_path / "b", "--no-figure", "--quiet", *FEW)
    said = capsys.readouterr()
    assert said.out + said.err == ""


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


def list_commands(
    command: typer.core.TyperGroup, *names: str
) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, such as ("encoders", "show")."""
    yield names
    for name, child in getattr(command, "commands", {}).items():
        yield from list_commands(child, *names, name)


COMMANDS = list(list_commands(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_says_what_each_option_is_in_sentences(words):
    said = CliRunner().invoke(cli.app, [*words, "--help"], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    assert "<bool>" not in said.output
    assert "[default" not in said.output
    assert "[[" not in said.output
    command = typer.main.get_command(cli.app)
    for word in words:
        command = command.commands[word]
    for parameter in command.params:
        assert parameter.help[0].isupper(), parameter.name
        assert parameter.help.endswith("."), parameter.name


def test_learn_has_no_option_that_is_always_an_error():
    said = CliRunner().invoke(cli.app, ["learn", "--help"], env={"COLUMNS": "200"})
    assert "--corpus" not in said.output


def test_help_teaches_and_names_every_option():
    said = (
        CliRunner()
        .invoke(cli.app, ["evaluate", "--help"], env={"COLUMNS": "200"})
        .output
    )
    for word in (
        "--shots",
        "--draws",
        "--bootstraps",
        "--shared-draws",
        "--permutations",
        "--repeat-folds",
        "--folds",
        "--seed",
        "--sampler",
        "--score",
        "--spread",
        "--threads",
        "--categories",
        "--quiet",
        "Example",
    ):
        assert word in said


def broken(table, change):
    """Rewrite a table with one change."""
    change(pl.read_parquet(table)).write_parquet(table)


LEAK = pl.Series([0 if i % 2 else 1 for i in range(200)])
BAD = {
    "column label is missing": lambda f: f.drop("label"),
    "column embedding, row 2: expected 3 numbers": lambda f: f.with_columns(
        pl.when(pl.int_range(pl.len()) == 1)
        .then([1.0])
        .otherwise(pl.col("embedding"))
        .alias("embedding")
    ),
    "row 1, dimension e0: expected a finite number, got nan": lambda f: f.with_columns(
        pl.when(pl.int_range(pl.len()) == 0)
        .then([np.nan, 1.0, 1.0])
        .otherwise(pl.col("embedding"))
        .alias("embedding")
    ),
    "got inf": lambda f: f.with_columns(
        pl.when(pl.int_range(pl.len()) == 0)
        .then([1.0, np.inf, 1.0])
        .otherwise(pl.col("embedding"))
        .alias("embedding")
    ),
    "the table has no rows": lambda f: f.head(0),
    "only one eligible class, 'a': it is the only label": lambda f: f.with_columns(
        label=pl.lit("a")
    ),
    "no eligible class": lambda f: f.with_columns(label=pl.col("segment")),
    "column label, row 1: expected text": lambda f: f.with_columns(
        label=pl.when(pl.int_range(pl.len()) == 0)
        .then(pl.lit(" "))
        .otherwise(pl.col("label"))
    ),
    "column fold: recording 'all' is in": lambda f: f.with_columns(
        recording=pl.lit("all")
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_table_is_one_line_and_code_2_and_nothing_is_written(
    message, table, tmp_path, capsys
):
    broken(table, BAD[message])
    run("evaluate", table, "--out", tmp_path / "out", *FEW, code=2)
    said = capsys.readouterr().err
    assert message in said
    assert "mfcc.parquet" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


OPTIONS = {
    "shots: expected 1 or more": ["--shots", "0"],
    "expected like 1-40": ["--shots", "one"],
    "draws: expected 1 to 65535, got 0": ["--draws", "0"],
    "bootstraps: expected 1 to": ["--bootstraps", "0"],
    "threads: expected 1 or more, got 0": ["--threads", "0"],
    "memory: expected 0 to": ["--memory", "-1"],
    "device: expected one of auto, cpu, cuda": ["--device", "gpu"],
    "memory: expected 0 to 1048576 GiB, got inf": ["--memory", "inf"],
    "folds: expected 2 or more, got 0": ["--folds", "0"],
    "has 3 folds, but folds is 7": ["--folds", "7"],
    "which needs the sampler distinct": ["--shots", "all", "--sampler", "replacement"],
    "nowhere.csv: cannot be read": ["--fold-file", "nowhere.csv"],
}


@pytest.mark.parametrize("message", OPTIONS)
def test_a_bad_option_is_one_line_and_code_2(message, table, tmp_path, capsys):
    run("evaluate", table, "--out", tmp_path / "out", *OPTIONS[message], code=2)
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_tables_whose_segments_differ_are_refused(table, tmp_path, capsys):
    other = table.with_name("other.parquet")
    pl.read_parquet(table).slice(1).write_parquet(other)
    run("evaluate", table, other, "--out", tmp_path / "out", code=2)
    assert "expected the same segments in all tables" in capsys.readouterr().err


def test_a_truncated_parquet_file_is_refused(table, tmp_path, capsys):
    table.write_bytes(table.read_bytes()[:-40])
    run("evaluate", table, "--out", tmp_path / "out", code=2)
    said = capsys.readouterr().err
    assert "mfcc.parquet: cannot be read" in said


def test_an_unwritable_directory_is_refused_before_anything_is_read(
    table, tmp_path, capsys
):
    (tmp_path / "file").write_text("in the way")
    run(
        "evaluate",
        table.with_name("missing.parquet"),
        "--out",
        tmp_path / "file" / "out",
        code=2,
    )
    assert "cannot write results" in capsys.readouterr().err


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"]
)
def test_a_run_that_is_stopped_leaves_the_earlier_results_as_they_were(
    number, table, tmp_path
):
    out = tmp_path / "out"
    run("evaluate", table, "--out", out, "--no-figure", "--quiet", *FEW)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    words = [
        "evaluate",
        str(table),
        "--out",
        str(out),
        "--draws",
        "3000",
        "--bootstraps",
        "300000",
        "--no-figure",
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "callshot", *words],
        env=os.environ,
        stderr=subprocess.DEVNULL,
    )
    while not list(out.glob(".callshot-unfinished")):
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(number)
    # A shell shows 130 for an exit by SIGINT too.
    assert child.wait(60) in (130, -signal.SIGINT, -signal.SIGKILL)
    visible = [path for path in out.iterdir() if not path.name.startswith(".")]
    assert {path.name: path.read_bytes() for path in visible} == before
    run("evaluate", table, "--out", out, "--no-figure", "--quiet", *FEW)
    assert {p.name for p in out.iterdir()} == set(before)


def test_help_waits_for_nothing_heavy():
    heavy = "{'numpy', 'numba', 'polars', 'scipy', 'matplotlib'}"
    code = f"import sys, callshot.cli; print(*{heavy} & set(sys.modules))"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == ""


def test_a_file_of_the_users_with_one_of_our_names_is_not_touched(
    table, tmp_path, capsys
):
    out = tmp_path / "out"
    out.mkdir()
    (out / "curve.csv").write_text("mine")
    run("evaluate", table, "--out", out, *FEW, code=2)
    assert "curve.csv, not written by callshot" in capsys.readouterr().err
    assert (out / "curve.csv").read_text() == "mine"
    assert [p.name for p in out.iterdir()] == ["curve.csv"]


def test_a_figure_of_an_earlier_run_does_not_outlive_it(table, tmp_path):
    out = tmp_path / "out"
    run("evaluate", table, "--out", out, "--quiet", *FEW)
    (out / "notes.txt").write_text("mine")
    told = json.loads((out / "provenance.json").read_text())["files"]
    assert {"sweep.png", "sweep.pdf", "curve.csv"} <= set(told)
    run("evaluate", table, "--out", out, "--quiet", "--no-figure", *FEW)
    assert not (out / "sweep.png").exists()
    assert (out / "notes.txt").read_text() == "mine"


def test_a_table_saved_with_semicolons_is_told_so(tmp_path, capsys):
    path = tmp_path / "excel.csv"
    path.write_text("recording;label;e0\na;b;1,5\n")
    run("evaluate", path, "--out", tmp_path / "out", code=2)
    assert "save the file with commas between fields" in capsys.readouterr().err


def test_an_interrupted_run_says_so(table, tmp_path):
    out = tmp_path / "out"
    words = [
        "evaluate",
        str(table),
        "--out",
        str(out),
        "--draws",
        "3000",
        "--bootstraps",
        "300000",
        "--no-figure",
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "callshot", *words], stderr=subprocess.PIPE, text=True
    )
    while not list(out.glob(".callshot-unfinished")):
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(signal.SIGINT)
    assert MESSAGE in child.communicate(timeout=60)[1]
    assert child.returncode in (130, -signal.SIGINT)  # a shell shows 130 for both


def test_control_characters_of_a_file_do_not_reach_the_terminal(
    table, tmp_path, capsys
):
    frame = pl.read_parquet(table).with_columns(recording=pl.lit("\x1b[31mred"))
    frame.write_parquet(table)
    run("evaluate", table, "--out", tmp_path / "out", *FEW, code=2)
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


def test_kernels_of_another_user_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(os, "access", lambda *_: False)
    (tmp_path / "numba").mkdir(mode=0o777)
    owner = (tmp_path / "numba").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    run("--version")
    assert "NUMBA_CACHE_DIR" not in os.environ


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ("/", "out: / is the root of a disk"),
        ("", "out: expected the name of a folder, got an empty one"),
        (
            ".callshot",
            "out: .callshot is in .callshot, where callshot stores the steps",
        ),
        ("home", "is your home folder"),
    ],
)
def test_results_do_not_go_to_folders_of_others(
    out, problem, table, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    run("evaluate", table, "--out", out, *FEW, code=2)
    assert problem in capsys.readouterr().err
    run("evaluate", table, "--out", "home/results", "--no-figure", "--quiet", *FEW)


@pytest.mark.parametrize("shots", ["1-99999999", "1-9999,20000-20010", "2000000"])
def test_too_many_shots_are_refused_with_the_limits(shots, table, tmp_path, capsys):
    run("evaluate", table, "--out", tmp_path / "out", "--shots", shots, code=2)
    assert (
        "shots: expected up to 10,000 values of k, none above 1,000,000"
        in capsys.readouterr().err
    )


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


def test_an_import_does_not_replace_a_file_of_others(table, tmp_path, capsys):
    foreign = tmp_path / "mine.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(foreign)
    before = foreign.read_bytes()
    run("import", tmp_path / "missing.npy", "--out", foreign, code=2)
    assert "is no table that callshot wrote; move it" in capsys.readouterr().err
    assert foreign.read_bytes() == before


def test_a_study_file_in_a_place_without_folders_is_refused_before_the_scan(
    tmp_path, capsys
):
    (tmp_path / "file").write_text("in the way")
    out = tmp_path / "file" / "study.toml"
    run("init", tmp_path / "missing", "--out", out, code=2)
    assert "cannot be written to (Not a directory)" in capsys.readouterr().err


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


def test_a_terminal_without_unicode_gets_question_marks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    module = sys.modules["callshot.cli.app"]
    monkeypatch.setattr(module, "app", lambda: print("1 ⋆ 0.5–0.6"))
    cli.main()
    stream.flush()
    assert raw.getvalue().decode("cp1252") == "1 ? 0.5–0.6\n"
