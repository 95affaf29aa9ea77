import csv
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.errors import InputError
from callshot.fewshot.evaluate import evaluate
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    BudgetRow,
    ClassCount,
    ClassCurve,
    Confusion,
    Curve,
    Difference,
    Embeddings,
    Evaluation,
    Folds,
    Ties,
    Values,
)
from callshot.report import results
from callshot.report.provenance import describe_evaluation
from callshot.report.results import (
    merge,
    open_results,
    read_results,
    write_budget,
    write_differences,
    write_results,
)
from corpora import random_corpus
from corpus_results import make_tables

NAMES = {
    "classes.csv",
    "confusion.csv",
    "curve.csv",
    "curve.parquet",
    "folds.csv",
    "per_class.csv",
    "provenance.json",
    "ties.csv",
    "values.parquet",
}
LABELS = ['say "roar",\ntwice', "carriage\rreturn", " spaced ", "=1+1", "Grollen·象"]
FEW = Protocol(shots=(1, 2), draws=3, bootstraps=5, shared_draws=4)
KEYS = ["corpus", "encoder", "classifier", "scoring", "metric", "spread"]


def make_evaluation(corpus: str = "reserve", samples: int = 3) -> Evaluation:
    key = (corpus, "mfcc", "centroid", "all", "map", "shared")
    rng = np.random.default_rng(0)
    segments = Embeddings(
        "mfcc",
        np.zeros((5, 2)),
        [f"s{i}" for i in range(5)],
        ["a", "a,b", "c", "d", "e"],
        LABELS,
        [()] * 5,
    )
    return Evaluation(
        corpus=corpus,
        complete_shots=1,
        queries=5,
        curve=[
            Curve(*key, 1, 0.1 + 0.2, 0.1, 1 / 3, 0.2, 5e-324, 1.0, 0.05, True, 5, 0),
            Curve(*key, 2, float("nan"), 0.1, 0.2, 0.3, 0.4, 1e22, 0.05, False, 2, 7),
        ],
        values=[
            Values(*key, np.array([1, 2]), rng.random((2, samples))),
            Values(*key[:-1], "per-query", np.array([1, 2]), rng.random((2, 2 * samples))),
        ],
        per_class=[ClassCurve(*key, 1, label, 0.5, 0.25, 0.75) for label in LABELS],
        confusion=[Confusion("mfcc", 1, LABELS[0], LABELS[1], 2.5)],
        ties=[Ties("mfcc", "shared", 1, LABELS[2], 3, 0.25, np.float64(0.1), 0.0)],
        classes=[
            ClassCount(LABELS[0], 4, 2, True),
            ClassCount(LABELS[3], 1, 0, False, "no exemplar in folds 1, 2"),
        ],
        folds=Folds(np.array([0, 1, 0, 1, -1]), 2, "given"),
        segments=segments,
        notes=[],
    )


def write(directory: Path, evaluation: Evaluation | None = None) -> list[Path]:
    with open_results(directory) as opened:
        return write_results(
            opened,
            evaluation or make_evaluation(),
            {"seed": 0, "options": {"folds": 5, "draws": 100}},
        )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_every_file_is_written_and_nothing_else(tmp_path):
    paths = write(tmp_path / "new" / "deep")
    assert {path.name for path in paths} == NAMES
    assert {path.name for path in (tmp_path / "new" / "deep").iterdir()} == NAMES
    assert paths[-1].name == "provenance.json"


def test_curve_csv_reads_back_to_the_last_bit(tmp_path):
    write(tmp_path)
    head, first, second = rows(tmp_path / "curve.csv")
    assert head == [
        *KEYS,
        "k",
        "mean",
        "p01",
        "p25",
        "p50",
        "p75",
        "p99",
        "chance",
        "complete",
        "new_exemplars",
        "ties",
    ]
    assert first[6:] == [
        "1",
        "0.30000000000000004",
        "0.1",
        "0.3333333333333333",
        "0.2",
        "5e-324",
        "1.0",
        "0.05",
        "true",
        "5",
        "0",
    ]
    assert second[6:8] == ["2", "NaN"]
    assert second[12:] == ["1e+22", "0.05", "false", "2", "7"]


def test_curve_parquet_holds_what_curve_csv_holds(tmp_path):
    write(tmp_path)
    parquet = pl.read_parquet(tmp_path / "curve.parquet")
    assert parquet.equals(
        pl.read_csv(tmp_path / "curve.csv", schema=parquet.schema), null_equal=True
    )
    assert parquet.schema["complete"] == pl.Boolean


def test_values_have_one_row_per_shot_and_sample_in_the_order_of_their_curves(tmp_path):
    evaluation = make_evaluation()
    write(tmp_path, evaluation)
    table = pl.read_parquet(tmp_path / "values.parquet")
    assert table.columns == [*KEYS, "k", "index", "value"]
    assert table["spread"].to_list() == ["shared"] * 6 + ["per-query"] * 12
    assert table["k"].to_list() == [1] * 3 + [2] * 3 + [1] * 6 + [2] * 6
    assert table["index"].to_list() == [0, 1, 2] * 2 + [0, 1, 2, 3, 4, 5] * 2
    assert np.array_equal(
        table["value"], np.concatenate([values.value.ravel() for values in evaluation.values])
    )


def test_values_and_curve_join_on_their_keys(tmp_path):
    write(tmp_path)
    values, curve = (pl.read_parquet(tmp_path / f"{name}.parquet") for name in ("values", "curve"))
    assert values.join(curve, on=[*KEYS, "k"]).height == 6


def test_millions_of_values_are_written_small_and_fast(tmp_path):
    evaluation = make_evaluation()
    many = [
        replace(values, k=np.arange(1, 41), value=np.zeros((40, 5000)))
        for values in evaluation.values * 3
    ]
    write(tmp_path, replace(evaluation, values=many))
    assert (
        pl.scan_parquet(tmp_path / "values.parquet").select(pl.len()).collect().item() == 1_200_000
    )
    assert (tmp_path / "values.parquet").stat().st_size < 1_000_000


def test_labels_keep_their_commas_quotes_breaks_and_spaces(tmp_path):
    write(tmp_path)
    head, *body = rows(tmp_path / "folds.csv")
    assert head == ["segment", "recording", "label", "fold"]
    assert [row[2] for row in body] == LABELS
    assert [row[1] for row in body] == ["a", "a,b", "c", "d", "e"]
    assert [row[3] for row in body] == ["0", "1", "0", "1", "-1"]
    assert pl.read_csv(tmp_path / "folds.csv")["label"].to_list() == LABELS


def test_the_small_tables_have_their_columns(tmp_path):
    write(tmp_path)
    assert rows(tmp_path / "classes.csv") == [
        ["label", "exemplars", "complete_to_k", "eligible", "reason"],
        [LABELS[0], "4", "2", "true", ""],
        ["=1+1", "1", "0", "false", "no exemplar in folds 1, 2"],
    ]
    assert rows(tmp_path / "per_class.csv")[0] == [*KEYS, "k", "label", "mean", "p01", "p99"]
    assert rows(tmp_path / "confusion.csv") == [
        ["encoder", "k", "true", "predicted", "count"],
        ["mfcc", "1", LABELS[0], LABELS[1], "2.5"],
    ]
    assert rows(tmp_path / "ties.csv") == [
        ["encoder", "spread", "k", "label", "ties", "share", "cost_map", "cost_auroc"],
        ["mfcc", "shared", "1", " spaced ", "3", "0.25", "0.1", "0.0"],
    ]


def test_text_files_are_utf8_with_newlines_only(tmp_path):
    write(tmp_path)
    text = (tmp_path / "per_class.csv").read_bytes()
    assert "Grollen·象".encode() in text
    assert b"\r" not in text.replace(b"carriage\rreturn", b"")
    assert text.endswith(b"0.75\n")


def test_provenance_holds_the_checksum_of_every_other_file(tmp_path):
    write(tmp_path)
    text = (tmp_path / "provenance.json").read_text(encoding="utf-8")
    told = json.loads(text)
    assert text == json.dumps(told, indent=2, sort_keys=True) + "\n"
    assert told["options"] == {"draws": 100, "folds": 5}
    files = {
        name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()
        for name in NAMES - {"provenance.json"}
    }
    assert told["files"] == files


def test_equal_evaluations_give_equal_bytes(tmp_path):
    write(tmp_path / "one", make_evaluation(samples=1000))
    write(tmp_path / "two", make_evaluation(samples=1000))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_files_of_the_user_are_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".callshot-mine").mkdir()
    (tmp_path / "figures").mkdir()
    write(tmp_path)
    write(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == NAMES | {
        "notes.txt",
        ".callshot-mine",
        "figures",
    }
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["curve.csv", "values.parquet", "ties.csv"])
def test_a_writer_that_fails_leaves_the_earlier_files(tmp_path, monkeypatch, name):
    write(tmp_path)
    before = contents(tmp_path)

    def broken(evaluation, path):
        path.write_text("half")
        raise ZeroDivisionError

    monkeypatch.setitem(results.WRITERS, name, broken)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path, make_evaluation("another"))
    assert contents(tmp_path) == before


def evaluated(tables: Sequence[Embeddings], **more: Any) -> Evaluation:
    return evaluate(tables, FEW, corpus='herd, "north"', **more)


def write_whole(directory: Path, evaluation: Evaluation) -> None:
    with open_results(directory) as opened:
        write_results(opened, evaluation, describe_evaluation(evaluation, FEW, [], {}))


def assert_same(one: Evaluation, other: Evaluation) -> None:
    """Compare everything but the segments' vectors and labels; NaN equals NaN, and columns of numbers to the bit."""
    for name in ("corpus", "complete_shots", "queries", "classes", "notes"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("curve", "per_class", "confusion", "ties"):
        mine, theirs = (
            [dataclasses.astuple(row) for row in getattr(e, name)] for e in (one, other)
        )
        assert list(map(repr, map(plain, mine))) == list(map(repr, map(plain, theirs))), name
    for mine, theirs in zip(one.values, other.values, strict=True):
        assert [getattr(mine, key) for key in KEYS] == [getattr(theirs, key) for key in KEYS]
        assert np.array_equal(mine.k, theirs.k)
        assert mine.value.dtype == theirs.value.dtype
        assert np.array_equal(mine.value, theirs.value, equal_nan=True)
    assert np.array_equal(one.folds.fold, other.folds.fold)
    assert replace(one.folds, fold=None) == replace(other.folds, fold=None)
    for name in ("segment", "recording", "label"):
        assert getattr(one.segments, name) == getattr(other.segments, name)
    assert one.segments.encoder == other.segments.encoder


def plain(row: tuple[Any, ...]) -> list[Any]:
    return [float(cell) if isinstance(cell, float) else cell for cell in row]


def strange_table(
    labels: Sequence[str] = ("a", "b", "c"), seed: int = 3, encoder: str = "mfcc"
) -> Embeddings:
    """A small corpus under names that a CSV file has to quote."""
    table = random_corpus(seed, classes=len(labels), size=2, integers=False)
    named = {f"c{i}": name for i, name in enumerate(labels)}
    return replace(
        table,
        encoder=encoder,
        label=[named[name] for name in table.label],
        labels=[tuple(named[name] for name in names) for names in table.labels],
        segment=[f'{name}, "take\n{i % 3}"' for i, name in enumerate(table.segment)],
    )


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, min_size=3, max_size=3, unique=True), st.integers(0, 50), words)
def test_what_was_written_reads_back_as_it_was(tmp_path, labels, seed, encoder):
    evaluation = evaluated(
        [strange_table(labels, seed, encoder)], categories={labels[0]: "low", labels[1]: "high"}
    )
    write_whole(tmp_path / "out[1]*", evaluation)
    assert_same(read_results(tmp_path / "out[1]*"), evaluation)


def test_two_encoders_built_folds_notes_and_a_whole_pool_read_back(tmp_path):
    tables = make_tables(
        ['say "roar",\ntwice', " roar", "ROAR"], each=1, encoders={"mfcc": 1.0, "per,ch": 0.5}
    )
    evaluation = evaluate(tables, replace(FEW, whole_pool=True, score="softmax"), corpus="herd")
    assert evaluation.notes
    assert evaluation.folds.proof
    write_whole(tmp_path, evaluation)
    assert_same(read_results(tmp_path), evaluation)


def test_undefined_numbers_read_back_as_undefined(tmp_path):
    table = strange_table(["x", "y"])
    evaluation = evaluated([replace(table, labels=[("x", "y")] * len(table))])
    assert any(np.isnan(c.mean) for c in evaluation.curve)
    write_whole(tmp_path, evaluation)
    assert_same(read_results(tmp_path), evaluation)


def test_what_was_read_and_written_again_has_the_same_bytes(tmp_path):
    write_whole(tmp_path / "one", evaluated([strange_table()]))
    write_whole(tmp_path / "two", read_results(tmp_path / "one"))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_segments_come_back_without_vectors(tmp_path):
    write_whole(tmp_path, evaluated([strange_table()]))
    table = read_results(tmp_path).segments
    assert not table.vectors.any()
    assert table.vectors.shape == (len(table), 1)
    assert set(table.labels) == {()}
    assert table.source == str(tmp_path / "folds.csv")


@pytest.mark.parametrize("name", sorted(NAMES - {"provenance.json"}))
def test_a_file_that_was_changed_after_the_run_is_refused(tmp_path, name):
    write_whole(tmp_path, evaluated([strange_table()]))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
    with pytest.raises(
        InputError, match=rf"{re.escape(name)}: not the file that provenance\.json tells of"
    ):
        read_results(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(
        InputError,
        match=rf"{re.escape(name)}: No such file or directory, and provenance\.json tells",
    ):
        read_results(tmp_path)


def test_a_figure_that_was_changed_is_refused_and_one_that_was_not_drawn_is_not_missed(tmp_path):
    evaluation = evaluated([strange_table()])

    def draw(result: Evaluation, path: Path) -> list[Path]:
        path.with_suffix(".png").write_bytes(b"a picture")
        return [path.with_suffix(".png")]

    with open_results(tmp_path) as opened:
        write_results(opened, evaluation, describe_evaluation(evaluation, FEW, [], {}), draw)
    assert_same(read_results(tmp_path), evaluation)
    (tmp_path / "sweep.png").write_bytes(b"another picture")
    with pytest.raises(InputError, match=r"sweep\.png: not the file"):
        read_results(tmp_path)


def test_a_directory_without_results_is_refused(tmp_path):
    with pytest.raises(
        InputError,
        match=r"nowhere/provenance\.json: No such file or directory; name a directory that",
    ):
        read_results(tmp_path / "nowhere")
    write(tmp_path)  # by another command: its provenance tells nothing of an evaluation
    with pytest.raises(
        InputError, match=r"provenance\.json: not the provenance of an evaluation; evaluate again"
    ):
        read_results(tmp_path)
    for text in ("[" * 100_000, "{", "[]", '{"files": 3}', "\xff"):
        (tmp_path / "provenance.json").write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match="not the provenance of an evaluation"):
            read_results(tmp_path)


def test_a_table_of_another_version_is_refused_by_its_columns(tmp_path):
    write_whole(tmp_path, evaluated([strange_table()]))
    text = (tmp_path / "ties.csv").read_bytes().replace(b"cost_map", b"price", 1)
    (tmp_path / "ties.csv").write_bytes(text)
    told = json.loads((tmp_path / "provenance.json").read_text())
    told["files"]["ties.csv"] = hashlib.sha256(text).hexdigest()
    (tmp_path / "provenance.json").write_text(json.dumps(told))
    with pytest.raises(
        InputError,
        match=r"ties\.csv: wanted the columns encoder, .* found encoder, .*, price, .*again",
    ):
        read_results(tmp_path)


def test_encoders_evaluated_apart_and_merged_are_those_evaluated_together_to_the_byte(tmp_path):
    one = strange_table()
    tables = [
        one,
        replace(one, encoder="other", vectors=one.vectors[:, ::-1] ** 3),
        replace(one, encoder="third"),
    ]
    write_whole(tmp_path / "together", evaluated(tables))
    for table in tables:
        write_whole(tmp_path / table.encoder, evaluated([table]))
    merged = merge([read_results(tmp_path / table.encoder) for table in tables])
    assert_same(merged, evaluated(tables))
    write_whole(tmp_path / "merged", merged)
    assert contents(tmp_path / "merged") == contents(tmp_path / "together")
    assert_same(merge([merged]), merged)


def test_notes_of_the_corpus_are_told_once_when_merged():
    tables = make_tables(["roar", "Roar", "rumble"], encoders=("a", "b"))
    together, apart = evaluated(tables), merge([evaluated([table]) for table in tables])
    assert sum("differ only in space or case" in note for note in apart.notes) == 1
    assert apart.notes == together.notes


def test_evaluations_of_different_things_are_not_merged():
    table = strange_table()
    first, other = evaluated([table]), replace(table, encoder="other")
    moved = replace(other, segment=[f"{name}!" for name in table.segment])
    fewer = evaluate_tables([other], replace(FEW, bootstraps=4), corpus=first.corpus)
    longer = evaluate_tables([other], replace(FEW, shots=(1, 2, 3)), corpus=first.corpus)
    folds = replace(
        first.folds, fold=np.where(first.folds.fold >= 0, 1 - first.folds.fold % 2, -1), count=2
    )
    for second, what in (
        (replace(evaluated([other]), corpus="another"), "corpus"),
        (evaluated([moved]), "segments"),
        (replace(evaluated([other]), folds=folds), "folds"),
        (replace(evaluated([other]), classes=first.classes[::-1]), "classes"),
        (replace(evaluated([other]), queries=first.queries + 1), "queries"),
        (fewer, "shots, spreads or samples"),
        (longer, "shots, spreads or samples"),
    ):
        with pytest.raises(
            InputError,
            match=f"the evaluations of 'mfcc' and 'other' differ in their {what}; evaluate",
        ):
            merge([first, second])
    with pytest.raises(InputError, match="encoder 'mfcc' is in two evaluations"):
        merge([first, first])
    with pytest.raises(InputError, match="no evaluation was given"):
        merge([])


def test_differences_and_budget_are_written_like_the_other_tables(tmp_path):
    difference = Difference(
        "herd", "a", "LR on a, b", "all", "map", "shared", 1, 0.1 + 0.2, -0.1, 0, 0, 0, 1.0, 0.5
    )
    worth = BudgetRow("herd", "a", LABELS[0], "map", 5, 2, 0.5, math.nan, 0.25, 1.0, 5e-324)
    write_differences([difference], tmp_path / "differences.csv")
    write_budget([worth], tmp_path / "budget.csv")
    head, row = rows(tmp_path / "differences.csv")
    assert head == [
        "corpus",
        "one",
        "other",
        "scoring",
        "metric",
        "spread",
        "k",
        "mean",
        "p01",
        "p25",
        "p50",
        "p75",
        "p99",
        "wins",
    ]
    assert row[2] == "LR on a, b"
    assert row[7:9] == ["0.30000000000000004", "-0.1"]
    head, row = rows(tmp_path / "budget.csv")
    assert head[:7] == ["corpus", "encoder", "label", "metric", "exemplars", "k", "value"]
    assert row == ["herd", "a", LABELS[0], "map", "5", "2", "0.5", "NaN", "0.25", "1.0", "5e-324"]
    write_differences([], tmp_path / "none.csv")
    assert rows(tmp_path / "none.csv") == [rows(tmp_path / "differences.csv")[0]]
