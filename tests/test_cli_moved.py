"""evaluate --queries: examples of one table, queries of another, from files to files."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from callshot.study.verify import verify_path
from callshot.tables.embedding_tables import write_table
from corpora import random_corpus
from test_cli import FEW, rows, run

FILES = {
    "chance_test.csv",
    "classes.csv",
    "confusion.csv",
    "curve.csv",
    "differences.csv",
    "duplicates.csv",
    "folds.csv",
    "moved.pdf",
    "moved.png",
    "per_class.csv",
    "provenance.json",
    "ties.csv",
    "values.parquet",
}
PLACES = {("library", "site"), ("site", "site"), ("library", "library")}


def make_table(seed, prefix):
    table = random_corpus(seed, classes=3, folds=3, size=3, integers=False)
    return replace(
        table,
        encoder="mfcc",
        segment=[prefix + name for name in table.segment],
        recording=[prefix + name for name in table.recording],
    )


@pytest.fixture
def library(tmp_path):
    path = tmp_path / "library.parquet"
    write_table(make_table(4, "lib "), path)
    return path


@pytest.fixture
def site(tmp_path):
    path = tmp_path / "site.parquet"
    write_table(make_table(7, ""), path)
    return path


def places(frame):
    return {(row["supports"], row["queries"]) for row in frame}


def test_every_file_says_where_examples_and_queries_are_from(
    library, site, tmp_path, capsys
):
    out = tmp_path / "out"
    run("evaluate", library, "--queries", site, "--out", out, *FEW)
    assert {path.name for path in out.iterdir()} == FILES
    for name in ("curve", "per_class", "confusion", "classes", "folds"):
        assert places(rows(out / f"{name}.csv")) == PLACES
    values = pl.read_parquet(out / "values.parquet")
    assert set(values.select("supports", "queries").unique().rows()) == PLACES
    costs = rows(out / "differences.csv")
    assert {row["other"] for row in costs} == {"examples of site"}
    assert {row["k"] for row in costs} == {"1", "2", "4"}
    text = capsys.readouterr().out
    first = text.splitlines()[0]
    assert first.startswith(
        "With 2 examples per call type from library, mAP at site is 0."
    )
    assert "than with examples of the site itself" in first
    assert "of the calls get the right name" in first


def test_numbers_of_the_sentence_are_those_of_the_files(
    library, site, tmp_path, capsys
):
    out = tmp_path / "out"
    run("evaluate", library, "--queries", site, "--out", out, "--no-figure", *FEW)
    key = {"metric": "map", "spread": "total", "k": "2", "scoring": "all"}
    (cost,) = [
        row
        for row in rows(out / "differences.csv")
        if all(row[name] == value for name, value in key.items())
    ]
    word = "lower" if float(cost["mean"]) < 0 else "higher"
    text = capsys.readouterr().out
    assert f"{abs(float(cost['mean'])):.2f} {word} than" in text


def test_provenance_names_both_tables_and_their_folds(library, site, tmp_path):
    out = tmp_path / "out"
    words = ("--queries", site, "--out", out, "--quiet", "--no-figure")
    run("evaluate", library, *words, *FEW)
    provenance = json.loads((out / "provenance.json").read_text())
    roles = {file["file"]: file["role"] for file in provenance["inputs"]}
    assert roles == {"library.parquet": "library", "site.parquet": "queries"}
    assert provenance["library"] == "library"
    assert provenance["site"] == "site"
    assert provenance["inside_site"]["queries"] == provenance["queries"]
    states = {finding.state for finding in verify_path(out)}
    assert states == {"ok", "unverified"}


def test_the_same_seed_gives_the_same_bytes(library, site, tmp_path):
    for name in ("one", "two"):
        words = ("--queries", site, "--out", tmp_path / name, "--quiet", "--centre")
        run("evaluate", library, *words, *FEW)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_centred_vectors_have_a_curve_of_their_own(library, site, tmp_path, capsys):
    out = tmp_path / "out"
    words = ("--queries", site, "--centre", "--out", out, "--no-figure")
    run("evaluate", library, *words, *FEW)
    encoders = {row["encoder"] for row in rows(out / "curve.csv")}
    assert encoders == {"mfcc", "mfcc, centred"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mfcc: with 2 examples")
    assert lines[1].startswith("mfcc, centred: with 2 examples")


def test_several_libraries_and_tables_of_the_site_are_paired_by_encoder(
    library, site, tmp_path
):
    paths = []
    for path, seed, prefix in ((library, 4, "lib "), (site, 7, "")):
        table = make_table(seed, prefix)
        other = replace(table, encoder="perch", vectors=table.vectors[:, :1])
        paths.append(path.with_name(f"perch-{path.name}"))
        write_table(other, paths[-1])
    out = tmp_path / "out"
    words = ("--queries", paths[1], "--queries", site, "--no-figure", "--quiet")
    run("evaluate", library, paths[0], *words, "--out", out, *FEW)
    assert {row["one"] for row in rows(out / "differences.csv")} == {"mfcc", "perch"}
    assert not (out / "moved.png").exists()


def test_errors_are_one_line_and_leave_no_folder(library, site, tmp_path, capsys):
    out = tmp_path / "out"
    table = make_table(7, "")
    other = tmp_path / "other.parquet"
    cases = [
        (replace(table, encoder="perch"), "encoder is 'mfcc', that of the queries"),
        (replace(table, vectors=np.ones((len(table), 3))), "got 2; embed both"),
        (
            replace(table, label=["x" + name for name in table.label]),
            "expected two labels or more",
        ),
    ]
    for changed, message in cases:
        write_table(changed, other)
        run("evaluate", library, "--queries", other, "--out", out, *FEW, code=2)
        error = capsys.readouterr().err
        assert message in error
        assert len([line for line in error.splitlines() if "callshot" in line]) <= 1
        assert not out.exists()
    run("evaluate", library, "--centre", "--out", out, *FEW, code=2)
    assert "centre: needs --queries" in capsys.readouterr().err


def test_results_of_an_ordinary_evaluation_are_not_replaced(
    library, site, tmp_path, capsys
):
    out = tmp_path / "out"
    run("evaluate", site, "--out", out, "--quiet", "--no-figure", *FEW)
    run("evaluate", library, "--queries", site, "--out", out, *FEW, code=2)
    assert "it has the results of another command" in capsys.readouterr().err


def test_tables_of_one_name_are_called_after_their_folders(tmp_path, capsys):
    for folder, seed, prefix in (("clips", 4, "lib "), ("north", 7, "")):
        write_table(make_table(seed, prefix), tmp_path / folder / "mfcc.parquet")
    words = ("--queries", tmp_path / "north" / "mfcc.parquet", "--no-figure")
    table = tmp_path / "clips" / "mfcc.parquet"
    run("evaluate", table, *words, "--out", tmp_path / "out", *FEW)
    assert "per call type from clips, mAP at north is" in capsys.readouterr().out


def test_a_file_of_folds_is_that_of_the_queries(library, site, tmp_path):
    table = make_table(7, "")
    folds = tmp_path / "folds.csv"
    lines = ["segment,fold"]
    for segment, fold in zip(table.segment, table.fold.tolist(), strict=True):
        lines.append(f"{segment},{'' if fold == -1 else 9 - fold}")
    folds.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    words = ("--queries", site, "--fold-file", folds, "--quiet", "--no-figure")
    run("evaluate", library, *words, "--out", out, *FEW)
    inside = [row for row in rows(out / "folds.csv") if row["supports"] == "site"]
    given = dict(zip(table.segment, table.fold.tolist(), strict=True))
    for row in inside:
        fold = given[row["segment"]]
        assert int(row["fold"]) == (-1 if fold == -1 else 2 - fold)
