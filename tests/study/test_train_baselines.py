"""Baselines of tables: files in a folder, on the folds and draws of an evaluation."""

import re
from dataclasses import replace
from itertools import product

import polars as pl
import pytest
from typer.testing import CliRunner

from callshot.baselines.options import BaselineOptions
from callshot.cli import app
from callshot.errors import InputError, OptionError, OutputError
from callshot.fewshot.protocol import Protocol
from callshot.study.file_steps import (
    evaluate_files,
    protocol_of_results,
    read_baseline_results,
    train_baseline_files,
)
from callshot.tables.evaluation_files import PROVENANCE, RESULT_FILES
from studies import write_embeddings

PROTOCOL = Protocol(
    shots=(1, 2, 4), draws=5, bootstraps=20, shared_draws=20, total_samples=20, seed=5
)
LOGISTIC = BaselineOptions(("logistic",), per_k=True, draws=6)
CATEGORIES = "label,category\nrumble,low\ngrowl,low\ntrumpet,high\n"
NO_TORCH = "torch is not installed: pip install 'callshot[baselines]'"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Tables of two encoders."""
    folder = tmp_path_factory.mktemp("herd")
    return [
        write_embeddings(folder / "one.parquet", "one"),
        write_embeddings(folder / "two.parquet", "two", seed=1),
    ]


@pytest.fixture(scope="module")
def results(tables):
    """The folder of an evaluation of both tables."""
    out = tables[0].parent / "results"
    evaluate_files(tables, out, PROTOCOL, figure=False)
    return out


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_written_results_read_back_the_same_whatever_the_threads(tables, tmp_path):
    one, two = tmp_path / "1", tmp_path / "2"
    results = train_baseline_files(tables, one, LOGISTIC, PROTOCOL, threads=1)
    stored = read_baseline_results(one)
    assert stored.baselines.equals(results.baselines)
    assert stored.refinement.equals(results.refinement)
    (per_k,) = stored.per_k
    curves = pl.concat([evaluation.curve for evaluation in results.per_k])
    assert per_k.curve.equals(curves)
    frames = ["baselines.csv", "baselines.parquet", "refinement.csv"]
    assert sorted([*frames, *RESULT_FILES, PROVENANCE]) == file_names(one)
    keys = results.baselines.select("encoder", "metric").rows()
    assert set(keys) == set(product(("one", "two"), ("map", "auroc")))
    train_baseline_files(tables, two, LOGISTIC, PROTOCOL, threads=2)
    for path in one.iterdir():
        if path.suffix != ".parquet" or path.stem == "baselines":
            assert path.read_bytes() == (two / path.name).read_bytes(), path.name


def test_without_per_k_there_is_no_curve_and_per_k_may_be_alone(tables, tmp_path):
    options = BaselineOptions(("logistic",))
    results = train_baseline_files(tables[:1], tmp_path / "all", options, PROTOCOL)
    assert not results.per_k
    names = ["baselines.csv", "baselines.parquet", PROVENANCE, "refinement.csv"]
    assert file_names(tmp_path / "all") == names
    assert not read_baseline_results(tmp_path / "all").per_k
    path = tmp_path / "all" / "baselines.parquet"
    for damage in (lambda: path.write_bytes(b"damaged"), path.unlink):
        damage()
        with pytest.raises(InputError, match=r"cannot be read.*; train the baselines"):
            read_baseline_results(tmp_path / "all")
    options = BaselineOptions(per_k=True, draws=2)
    results = train_baseline_files(tables[:1], tmp_path / "k", options, PROTOCOL)
    assert results.baselines.is_empty()
    assert read_baseline_results(tmp_path / "k").per_k


def test_against_an_evaluation_its_folds_and_protocol_are_used_and_crossovers_found(
    tables, results, tmp_path
):
    protocol = protocol_of_results(results, {})
    assert protocol == PROTOCOL
    trained = train_baseline_files(
        tables, tmp_path, LOGISTIC, protocol, against=results
    )
    assert (tmp_path / "folds.csv").read_bytes() == (results / "folds.csv").read_bytes()
    keys = set(trained.crossovers.select("labels", "spread").rows())
    of_all = set(product(["all"], ("per-query", "shared", "total")))
    assert keys == of_all | set(product(["k"], ("shared", "total")))
    assert len(pl.read_csv(tmp_path / "crossovers.csv")) == len(trained.crossovers)


def test_an_option_that_differs_from_the_evaluation_is_an_error(
    tables, results, tmp_path
):
    groups = tmp_path / "groups.csv"
    groups.write_text(CATEGORIES)
    for changes, choice, match in (
        ({"seed": 7}, {}, "seed: expected 5 as in .*, got 7; only results of the same"),
        ({}, {"folds": 3}, "folds: the folds of .* are used"),
        ({}, {"corpus": "zebras"}, "corpus: its name in .* is 'herd"),
        ({}, {"fold_file": tmp_path / "f.csv"}, "folds: the folds of .* are used"),
        ({}, {"categories": groups}, "groups.csv: .* was made from another file"),
    ):
        protocol = protocol_of_results(results, changes)
        words = (tables, tmp_path / "out", LOGISTIC, protocol)
        with pytest.raises((InputError, OptionError), match=match):
            train_baseline_files(*words, choice=choice, against=results)


def test_baselines_are_compared_with_the_centroid_alone(tables, tmp_path):
    for classifiers in (("cosine",), ("cosine", "centroid")):
        results = tmp_path / classifiers[-1]
        protocol = replace(PROTOCOL, classifiers=classifiers)
        evaluate_files(tables[:1], results, protocol, figure=False)
    chosen = protocol_of_results(tmp_path / "cosine", {})
    words = (tables[:1], tmp_path / "out", LOGISTIC, chosen)
    with pytest.raises(InputError, match="has no curve of the centroid"):
        train_baseline_files(*words, against=tmp_path / "cosine")
    chosen = protocol_of_results(results, {})
    words = (tables[:1], tmp_path / "out", LOGISTIC, chosen)
    trained = train_baseline_files(*words, against=results)
    keys = trained.crossovers.select(
        "baseline", "labels", "scoring", "metric", "spread"
    )
    assert not keys.is_empty()
    assert keys.is_unique().all()


def test_baselines_do_not_replace_an_evaluation(tables, results):
    before = file_names(results)
    with pytest.raises(OutputError, match="it has the results of another command"):
        train_baseline_files(tables, results, LOGISTIC, PROTOCOL, against=results)
    assert file_names(results) == before


def test_what_cannot_be_trained_is_an_error_before_training(tables, tmp_path):
    def train(*kinds):
        train_baseline_files(tables[:1], tmp_path, BaselineOptions(kinds), PROTOCOL)

    with pytest.raises(OptionError, match="nothing to train"):
        train()
    pytest.importorskip("torch", reason=NO_TORCH)
    with pytest.raises(InputError, match="embed the segments again with --sequence"):
        train("recurrent")
    with pytest.raises(OptionError, match="end-to-end needs audio; pass --segments"):
        train("end-to-end")


def test_the_command_shows_scores_and_where_curves_cross(tables, results, tmp_path):
    out = tmp_path / "baselines"
    paths = [str(path) for path in tables]
    options = ["--against", str(results), "--out", str(out), "--per-k", "--draws", "4"]
    result = CliRunner().invoke(app, ["baselines", *paths, *options])
    assert result.exit_code == 0, result.output
    assert "LR" in result.output
    assert re.search(r"0\.\d{3} \[0\.\d\d, [01]\.\d\d\]", result.output)
    assert "logistic at the same k passes the centroid" in result.output
    assert f"results in {out}" in result.output
    assert set(pl.read_csv(out / "curve.csv")["k"]) == {1, 2, 4}
