"""The evaluation of whole tables: its frames, its notes, and what it does not accept."""

import dataclasses

import numpy as np
import pytest

from callshot import Protocol, Vectors
from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.records import CLASS_METRICS, METRICS, Folds
from corpora import SMALL, folds_of, random_corpus

FEW = dataclasses.replace(SMALL, shots=(1, 2), total_samples=6)


def test_everything_the_protocol_promises_is_in_the_evaluation():
    table = random_corpus(3, classes=4, size=3, integers=False)
    result = evaluate_tables([table], FEW, corpus="herd")
    keys = set(result.curve.select("scoring", "metric", "spread", "k").rows())
    assert keys == {
        ("all", metric, spread, k)
        for metric in METRICS
        for spread in ("per-query", "shared", "total")
        for k in (1, 2)
    }
    samples = result.values.select("spread", result.values["value"].list.len()).unique()
    assert dict(samples.rows()) == {"per-query": 5, "shared": 4, "total": 6}
    eligible = [c.label for c in result.classes if c.eligible]
    assert len(result.per_class) == len(CLASS_METRICS) * 3 * 2 * len(eligible)
    assert len(result.confusion) == 2 * len(eligible) ** 2
    assert result.queries == sum(
        f >= 0 and name in eligible
        for f, name in zip(table.fold, table.label, strict=True)
    )


def test_tables_with_the_same_vectors_are_evaluated_once_and_a_note_names_both():
    table = random_corpus(3, classes=3, size=3, integers=False)
    other = dataclasses.replace(table, encoder="other", matrix=-table.matrix)
    twin = dataclasses.replace(table, encoder="twin")
    again = dataclasses.replace(table, encoder="again")
    result = evaluate_tables([table, other, twin, again], FEW)
    assert result.encoders == ["test", "other"]
    named = [note for note in result.notes if "same vectors as test" in note]
    assert [note.split()[0] for note in named] == ["twin", "again"]
    assert result.curve.equals(evaluate_tables([table, other], FEW).curve)


def test_without_room_for_the_gram_matrix_the_numbers_are_the_same_and_a_note_says_so():
    table = random_corpus(8, classes=3, size=3, dimensions=6, integers=False)
    usual = evaluate_tables([table], FEW)
    tight = evaluate_tables([table], FEW, memory=0)
    np.testing.assert_allclose(
        usual.curve["mean"], tight.curve["mean"], rtol=0, atol=1e-9
    )
    assert "scoring from the vectors directly" in tight.notes[0]


def test_tables_that_cannot_be_evaluated_are_errors():
    table = random_corpus(3, size=3, integers=False)
    spoiled = table.matrix.copy()
    spoiled[4, 0] = np.nan
    rows = len(table)
    folds = folds_of(table)
    one = table.with_columns(recording=["one"] * rows)
    moved = dataclasses.replace(one, encoder="b")
    backwards = table.with_columns(segment=list(table.segment)[::-1])
    for tables, error, message in (
        (
            [dataclasses.replace(table, matrix=spoiled)],
            InputError,
            "row 5: expected finite",
        ),
        ([table.with_columns(segment=["x"] * rows)], InputError, "same id"),
        ([table, backwards], InputError, "column segment: expected the same as in"),
        ([table, moved], InputError, "column recording: expected the same as in"),
        ([], InputError, "no table"),
        ([one], LeakError, "recording 'one' is in"),
    ):
        with pytest.raises(error, match=message):
            evaluate_tables(tables, FEW, folds=folds)
    with pytest.raises(InputError, match="3 folds were given"):
        evaluate_tables([table], FEW, folds=Folds(np.array([0, 1, 0]), 2, "given"))


def test_plain_python_values_are_accepted_or_an_error_names_the_reason():
    table = random_corpus(3, size=3, integers=False)
    columns = (table.segment, table.recording, table.label, table.labels)
    lists = Vectors.from_columns(
        table.encoder, table.matrix.tolist(), *columns, table.fold
    )
    curve = evaluate_tables([table], FEW).curve
    assert evaluate_tables([lists], FEW).curve.equals(curve)
    with pytest.raises(
        InputError, match=r"expected \(segments, dimensions\) of \d+ seg"
    ):
        dataclasses.replace(table, matrix=table.matrix[:, 0])
    with pytest.raises(InputError, match="expected numbers"):
        Vectors.from_columns("e", [[1.0], [1.0, 2.0]], *columns)
    with pytest.raises(InputError, match="got text"):
        Vectors.from_columns("e", table.matrix, *columns[:3], ["c0"] * len(table))
    for shots in (5, "1-10", (1.5,)):
        with pytest.raises(OptionError, match="expected whole numbers in a tuple"):
            Protocol(shots=shots)


def test_labels_that_differ_only_in_space_are_noted_and_so_are_classes_outside_the_categories():
    table = random_corpus(3, classes=3, size=4, integers=False)
    label = ["C0 " if name == "c1" else name for name in table.label]
    relabelled = table.with_columns(label=label, labels=[()] * len(label))
    result = evaluate_tables([relabelled], FEW, categories={"C0 ": "low"})
    assert "the labels 'C0 ', 'c0' differ only in space or case" in result.notes[0]
    assert "without a category, so not in the reduced scoring: " in result.notes[1]


def test_the_share_of_ties_is_of_all_scores_of_positives():
    table = random_corpus(
        3, classes=3, size=4, integers=False, dimensions=3, scale=60.0
    )
    table = table.with_columns(labels=[()] * len(table))
    result = evaluate_tables(
        [table], dataclasses.replace(FEW, score="softmax", whole_pool=True)
    )
    draws = {"per-query": FEW.draws, "shared": FEW.shared_draws}
    queries = {c.label: sum(c.per_fold) for c in result.classes}
    assert result.ties["ties"].sum() > 0
    assert any("scores of positives tie with other" in note for note in result.notes)
    assert not any("tie" in note for note in evaluate_tables([table], FEW).notes)
    for row in result.ties.iter_rows(named=True):
        scores = queries[row["label"]] * draws[row["spread"]]
        assert row["share"] == pytest.approx(row["ties"] / scores)
        assert row["share"] <= 1
