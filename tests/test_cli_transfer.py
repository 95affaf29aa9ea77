"""evaluate --queries: examples of one table, queries of another, from files to files."""

import json
from dataclasses import replace

import polars as pl
import pytest

from callshot.study.verify import verify_path
from callshot.tables.embedding_tables import write_table
from corpora import random_corpus
from test_cli import FEW, rows, run

CORPORA = {("source", "target"), ("target", "target"), ("source", "source")}


def make_table(seed, prefix):
    table = random_corpus(seed, classes=3, folds=3, size=3, integers=False)
    return replace(
        table.with_columns(
            segment=[prefix + name for name in table.segment],
            recording=[prefix + name for name in table.recording],
        ),
        encoder="mfcc",
    )


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.parquet"
    write_table(make_table(4, "lib "), path)
    return path


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "target.parquet"
    write_table(make_table(7, ""), path)
    return path


def corpora_of(frame):
    return {(row["source_corpus"], row["target_corpus"]) for row in frame}


def test_every_file_says_where_examples_and_queries_are_from(
    source, target, tmp_path, capsys
):
    out = tmp_path / "out"
    words = ("evaluate", source, "--queries", target, "--centre", *FEW, "--out")
    run(*words, out)
    lines = capsys.readouterr().out.splitlines()
    provenance = json.loads((out / "provenance.json").read_text())
    names = {path.name for path in out.iterdir()}
    assert names == {*provenance["files"], "provenance.json"}
    assert {"transfer.pdf", "transfer.png", "differences.csv"} <= names
    for name in ("curve", "per_class", "confusion", "classes", "folds"):
        assert corpora_of(rows(out / f"{name}.csv")) == CORPORA
    values = pl.read_parquet(out / "values.parquet")
    pairs = values.select("source_corpus", "target_corpus").unique().rows()
    assert set(pairs) == CORPORA
    differences = pl.read_csv(out / "differences.csv")
    assert set(differences["other"]) == {"examples of target", "mfcc, centred"}
    assert set(differences["k"]) == {1, 2, 4}
    encoders = {row["encoder"] for row in rows(out / "curve.csv")}
    assert encoders == {"mfcc", "mfcc, centred"}
    key = {"metric": "map", "spread": "total", "k": 2, "scoring": "all"}
    pair = {"one": "mfcc", "other": "examples of target"}
    cost = differences.filter(**key, **pair)["mean"].item()
    word = "lower" if cost < 0 else "higher"
    assert lines[0].startswith(
        "mfcc: with 2 examples per call type from source, mAP on"
    )
    assert f"{abs(cost):.2f} {word} than with examples of target itself" in lines[0]
    assert lines[1].startswith("mfcc, centred: with 2 examples")
    roles = {file["file"]: file["role"] for file in provenance["inputs"]}
    assert roles == {"source.parquet": "source", "target.parquet": "target"}
    assert provenance["source_corpus"] == "source"
    assert provenance["target_corpus"] == "target"
    assert provenance["within_target"]["queries"] == provenance["queries"]
    assert {finding.state for finding in verify_path(out)} == {"ok"}
    run(*words, tmp_path / "again", "--quiet")
    for path in out.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_several_libraries_and_tables_of_the_site_are_paired_by_encoder(
    source, target, tmp_path
):
    paths = []
    for path, seed, prefix in ((source, 4, "lib "), (target, 7, "")):
        table = make_table(seed, prefix)
        other = replace(table, encoder="perch", matrix=table.matrix[:, :1])
        paths.append(path.with_name(f"perch-{path.name}"))
        write_table(other, paths[-1])
    out = tmp_path / "out"
    words = ("--queries", paths[1], "--queries", target, "--no-figure", "--quiet")
    run("evaluate", source, paths[0], *words, "--out", out, *FEW)
    assert {row["one"] for row in rows(out / "differences.csv")} == {"mfcc", "perch"}
    assert not (out / "transfer.png").exists()


def test_a_file_of_folds_is_that_of_the_queries(source, target, tmp_path):
    table = make_table(7, "")
    folds = tmp_path / "folds.csv"
    lines = ["segment,fold"]
    for segment, fold in zip(table.segment, table.fold.tolist(), strict=True):
        lines.append(f"{segment},{'' if fold == -1 else 9 - fold}")
    folds.write_text("\n".join(lines) + "\n")
    out = tmp_path / "out"
    words = ("--queries", target, "--fold-file", folds, "--quiet", "--no-figure")
    run("evaluate", source, *words, "--out", out, *FEW)
    within = [
        row for row in rows(out / "folds.csv") if row["source_corpus"] == "target"
    ]
    given = dict(zip(table.segment, table.fold.tolist(), strict=True))
    for row in within:
        fold = given[row["segment"]]
        assert int(row["fold"]) == (-1 if fold == -1 else 2 - fold)
