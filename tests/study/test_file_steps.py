"""Steps from files to files: folds of the segments that all encoders have, and an evaluation."""

import json

import numpy as np
import polars as pl
import pytest

from callshot import Protocol, Vectors, write_table
from callshot.errors import InputError
from callshot.records.table_files import write_parquet
from callshot.study.file_steps import evaluate_files, fold_files
from rows_of_spans import make_row, make_spans

SMALL = Protocol(shots=(1, 2), draws=4, bootstraps=16, shared_draws=8, total_samples=8)


@pytest.fixture
def segments():
    """Two roars and a rumble in each of six recordings."""
    segments = []
    for recording in (f"r{n}.wav" for n in range(6)):
        for position, label in enumerate(("roar", "rumble", "roar")):
            start_s = 2.0 * position
            segments.append(make_row(recording, start_s, start_s + 1.5, label=label))
    return make_spans(segments)


@pytest.fixture
def source(segments, tmp_path):
    """The table of the segments."""
    path = tmp_path / "segments.parquet"
    write_parquet(segments.frame, path)
    return path


def make_table(segments, encoder, vectors):
    return Vectors.from_columns(
        encoder,
        vectors,
        segments["segment"],
        segments["recording"],
        segments["label"],
        [tuple(labels) for labels in segments["labels"]],
    )


def write_random_table(segments, path, seed):
    vectors = np.random.default_rng(seed).normal(size=(len(segments), 4))
    write_table(make_table(segments, path.stem, vectors), path)
    return path


def test_folds_have_the_segments_of_every_table_and_name_the_missing_ones(
    segments, source, tmp_path
):
    tables = [
        write_random_table(segments.take(range(1, 18)), tmp_path / "a.parquet", seed=0),
        write_random_table(segments.take(range(17)), tmp_path / "b.parquet", seed=1),
    ]
    fold_files(source, tmp_path / "folds", tables, count=3)
    folds = pl.read_csv(tmp_path / "folds" / "folds.csv")
    assert folds["segment"].to_list() == segments["segment"][1:-1]
    facts = json.loads((tmp_path / "folds" / "folds.json").read_text())
    assert facts["missing"] == [segments["segment"][0], segments["segment"][-1]]
    choice = {"folds_dir": tmp_path / "folds"}
    result = evaluate_files(
        tables[:1], tmp_path / "a", SMALL, choice=choice, figure=False
    )
    assert result.queries == 16
    assert (result.folds.origin, result.folds.count) == ("built", 3)


def test_folds_from_a_step_give_the_same_results_as_folds_built_for_the_evaluation(
    segments, source, tmp_path
):
    table = write_random_table(segments, tmp_path / "a.parquet", seed=0)
    fold_files(source, tmp_path / "folds", [table], count=3)
    choices = {
        "step": {"folds_dir": tmp_path / "folds", "corpus": "c"},
        "built": {"folds": 3, "corpus": "c"},
    }
    results = {}
    for name, choice in choices.items():
        results[name] = evaluate_files(
            [table], tmp_path / name, SMALL, choice=choice, figure=False
        )
    assert results["step"].curve.equals(results["built"].curve)
    curve = (tmp_path / "step" / "curve.csv").read_bytes()
    assert curve == (tmp_path / "built" / "curve.csv").read_bytes()
    assert results["step"].folds.proof == results["built"].folds.proof
    assert results["built"].folds.proof != ""


def test_segments_without_an_eligible_class_are_an_error_and_nothing_is_written(
    segments, tmp_path
):
    source = tmp_path / "segments.parquet"
    write_parquet(segments.take(range(6)).frame, source)
    with pytest.raises(InputError, match="no eligible class: at least two"):
        fold_files(source, tmp_path / "folds", [], count=3)
    assert not (tmp_path / "folds").exists()
