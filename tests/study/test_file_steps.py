"""Steps that start from files: folds of what every encoder has, and an evaluation by them."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot import Embeddings, Protocol, write_table
from callshot.corpus.segment_table import write_segment_table
from callshot.errors import InputError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import make_folds
from callshot.records import Segment
from callshot.study.file_steps import evaluate_files, fold_files

SMALL = Protocol(shots=(1, 2), draws=4, bootstraps=16, shared_draws=8)


@pytest.fixture
def segments() -> list[Segment]:
    spans = [
        (f"r{n}.wav", 2.0 * i, label)
        for n in range(6)
        for i, label in enumerate(("roar", "rumble", "roar"))
    ]
    return [
        Segment(
            f"{path}@{start}",
            path,
            path,
            start,
            start + 1.5,
            0.0,
            label,
            (label,),
            16000,
            "mean",
            -3.0,
        )
        for path, start, label in spans
    ]


def embed(segments: list[Segment], path: Path, seed: int) -> Path:
    vectors = np.random.default_rng(seed).normal(size=(len(segments), 4))
    columns = (
        [s.segment for s in segments],
        [s.recording for s in segments],
        [s.label for s in segments],
    )
    write_table(Embeddings(path.stem, vectors, *columns, [s.labels for s in segments]), path)
    return path


def test_folds_are_of_the_segments_that_every_table_has(
    segments: list[Segment], tmp_path: Path
) -> None:
    write_segment_table(segments, tmp_path / "segments.parquet")
    tables = [
        embed(segments[1:], tmp_path / "a.parquet", 0),
        embed(segments[:-1], tmp_path / "b.parquet", 1),
    ]
    fold_files(tmp_path / "segments.parquet", tmp_path / "folds", tables, count=3)
    folds_dir = pl.read_csv(tmp_path / "folds" / "folds.csv")
    assert folds_dir["segment"].to_list() == [s.segment for s in segments[1:-1]]
    told = json.loads((tmp_path / "folds" / "folds.json").read_text())
    assert told["missing"] == [segments[0].segment, segments[-1].segment]
    found = evaluate_files(
        tables[:1], tmp_path / "a", SMALL, folds_dir=tmp_path / "folds", figure=False
    )
    assert found.queries == 16
    assert (found.folds.origin, found.folds.count) == ("built", 3)


def test_dealt_folds_give_what_folds_that_are_built_on_the_spot_give(
    segments: list[Segment], tmp_path: Path
) -> None:
    write_segment_table(segments, tmp_path / "segments.parquet")
    table = embed(segments, tmp_path / "a.parquet", 0)
    fold_files(tmp_path / "segments.parquet", tmp_path / "folds", [table], count=3)
    by_step = evaluate_files(
        [table], tmp_path / "x", SMALL, folds_dir=tmp_path / "folds", corpus="c", figure=False
    )
    at_once = evaluate_files([table], tmp_path / "y", SMALL, folds=3, corpus="c", figure=False)
    assert by_step.curve == at_once.curve
    assert (tmp_path / "x" / "curve.csv").read_bytes() == (
        tmp_path / "y" / "curve.csv"
    ).read_bytes()
    assert by_step.folds.proof == at_once.folds.proof != ""


def test_folds_without_an_eligible_class_are_refused_and_nothing_is_left(
    segments: list[Segment], tmp_path: Path
) -> None:
    write_segment_table(segments[:6], tmp_path / "segments.parquet")
    with pytest.raises(InputError, match="no eligible class: at least two"):
        fold_files(tmp_path / "segments.parquet", tmp_path / "folds", [], count=3)
    assert not (tmp_path / "folds").exists()


def test_a_part_of_a_table_is_a_table_of_that_part(segments: list[Segment]) -> None:
    names, label = [s.segment for s in segments], [s.label for s in segments]
    table = Embeddings(
        "e",
        np.arange(36.0).reshape(18, 2),
        names,
        [s.recording for s in segments],
        label,
        [s.labels for s in segments],
        np.arange(18) % 3,
    )
    part = table.only({names[5], names[2], "not there"})
    assert part.segment == (names[2], names[5])
    assert part.vectors.tolist() == [[4.0, 5.0], [10.0, 11.0]]
    assert part.fold is not None
    assert part.fold.tolist() == [2, 2]
    assert evaluate_tables(table, SMALL, folds=make_folds(label, table.recording, 3)).queries == 18
