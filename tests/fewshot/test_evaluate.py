import dataclasses

import numpy as np
import pytest

from callshot import Protocol, evaluate
from callshot.errors import InputError, LeakError, OptionError
from callshot.records import Folds
from corpora import folds_of, random_corpus

FEW = Protocol(shots=(1, 2), draws=3, bootstraps=5, shared_draws=4)


def test_everything_the_protocol_promises_is_in_the_evaluation():
    table = random_corpus(3, classes=4, size=3, integers=False)
    result = evaluate([table], FEW, corpus="herd")
    keys = {(c.scoring, c.metric, c.spread, c.k) for c in result.curve}
    assert keys == {
        ("all", m, s, k)
        for m in ("map", "auroc", "accuracy")
        for s in ("per-query", "shared")
        for k in (1, 2)
    }
    for values in result.values:
        assert values.value.shape == (2, 5 if values.spread == "per-query" else 4)
    eligible = [c.label for c in result.classes if c.eligible]
    assert len(result.per_class) == 3 * 2 * 2 * len(eligible)
    assert len(result.confusion) == 2 * len(eligible) ** 2
    assert result.queries == sum(
        f >= 0 and name in eligible for f, name in zip(table.fold, table.label, strict=True)
    )


def test_percentiles_and_means_are_those_of_the_values():
    result = evaluate([random_corpus(3, classes=4, size=3, integers=False)], FEW)
    values = {(v.scoring, v.metric, v.spread): v for v in result.values}
    for c in result.curve:
        row = values[c.scoring, c.metric, c.spread].value[FEW.shots.index(c.k)]
        wanted = [row.mean(), *np.percentile(row, (1, 25, 50, 75, 99))]
        np.testing.assert_allclose(
            [c.mean, c.p01, c.p25, c.p50, c.p75, c.p99], wanted, rtol=0, atol=1e-15
        )


def test_accuracy_is_the_diagonal_of_the_confusion_within_each_fold_size():
    table = dataclasses.replace(random_corpus(3, classes=2, folds=2, size=3, integers=False))
    result = evaluate([table], FEW)
    for k in FEW.shots:
        cells = {(c.true, c.predicted): c.count for c in result.confusion if c.k == k}
        assert sum(cells.values()) == pytest.approx(result.queries)


def test_where_every_query_of_a_fold_is_positive_auroc_is_left_out_and_counted():
    table = random_corpus(3, classes=3, folds=2, size=3, integers=False)
    labels = [("c0", "c1") if f == 0 else () for f in table.fold]
    result = evaluate([dataclasses.replace(table, labels=labels)], FEW)
    assert any("every query of 1 fold(s) is positive for 'c0'" in note for note in result.notes)
    assert all(np.isfinite(c.mean) for c in result.curve)


def test_progress_adds_up_to_one():
    heard = []
    table = random_corpus(3, classes=3, size=3)
    evaluate(
        [table, dataclasses.replace(table, encoder="other")],
        FEW,
        progress=lambda share, what: heard.append(share),
    )
    assert sum(heard) == pytest.approx(1.0)


def test_without_room_for_the_gram_matrix_the_numbers_are_the_same_and_a_note_says_so():
    table = random_corpus(8, classes=3, size=3, dimensions=6, integers=False)
    usual, tight = evaluate([table], FEW), evaluate([table], FEW, memory=0)
    assert [c.mean for c in usual.curve] == pytest.approx([c.mean for c in tight.curve], abs=1e-9)
    assert "scoring directly" in tight.notes[0]


def test_what_cannot_be_evaluated_is_refused():
    table = random_corpus(3, classes=3, size=3, integers=False)
    spoiled = table.vectors.copy()
    spoiled[4, 0] = np.nan
    with pytest.raises(InputError, match="row 5: wanted finite numbers"):
        evaluate([dataclasses.replace(table, vectors=spoiled)], FEW)
    with pytest.raises(InputError, match="same id"):
        evaluate([dataclasses.replace(table, segment=["x"] * len(table))], FEW)
    with pytest.raises(InputError, match="column segment: not that of"):
        evaluate([table, dataclasses.replace(table, segment=list(table.segment)[::-1])], FEW)
    with pytest.raises(InputError, match="no table"):
        evaluate([], FEW)
    with pytest.raises(InputError, match="3 folds were given"):
        evaluate([table], FEW, folds=Folds(np.array([0, 1, 0]), 2, "given"))
    folds = folds_of(table)
    with pytest.raises(LeakError, match="recording 'one' is in"):
        evaluate([dataclasses.replace(table, recording=["one"] * len(table))], FEW, folds=folds)


def test_a_second_table_with_other_recordings_is_refused():
    table = random_corpus(3, classes=3, size=3, integers=False)
    moved = dataclasses.replace(table, encoder="b", recording=["r"] * len(table))
    with pytest.raises(InputError, match="column recording: not that of"):
        evaluate([table, moved], FEW)


def test_plain_python_values_are_taken_or_refused_with_a_reason():
    table = random_corpus(3, classes=3, size=3, integers=False)
    lists = dataclasses.replace(table, vectors=table.vectors.tolist())
    assert evaluate(lists, FEW).curve[0].mean == evaluate([table], FEW).curve[0].mean
    numbered = dataclasses.replace(table, label=[int(x[1]) for x in table.label])
    assert set(numbered.label) == {"0", "1", "2"}
    with pytest.raises(InputError, match=r"wanted \(segments, dimensions\), found shape"):
        dataclasses.replace(table, vectors=table.vectors[:, 0])
    with pytest.raises(InputError, match="wanted numbers, as many in every row"):
        dataclasses.replace(table, vectors=[[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="found text"):
        dataclasses.replace(table, labels=["c0"] * len(table))
    for shots in (5, "1-10", (1.5,)):
        with pytest.raises(OptionError, match="expected whole numbers in a tuple"):
            Protocol(shots=shots)


def test_labels_that_differ_only_in_space_are_noted_and_so_are_classes_outside_the_categories():
    table = random_corpus(3, classes=3, size=4, integers=False)
    label = ["C0 " if name == "c1" else name for name in table.label]
    result = evaluate(
        dataclasses.replace(table, label=label, labels=[()] * len(label)),
        FEW,
        categories={"C0 ": "low"},
    )
    assert "the labels 'C0 ', 'c0' differ only in space or case" in result.notes[0]
    assert "in no category, so not in the reduced scoring: " in result.notes[1]


def test_ties_are_noted_with_what_they_cost():
    table = random_corpus(3, classes=3, size=4, integers=False, dimensions=3, scale=60.0)
    literal = evaluate(table, dataclasses.replace(FEW, score="softmax"))
    assert any("scores of positives tie with others" in note for note in literal.notes)
    assert not any("tie" in note for note in evaluate(table, FEW).notes)


def test_the_share_of_ties_is_of_all_scores_of_positives():
    table = random_corpus(3, classes=3, size=4, integers=False, dimensions=3, scale=60.0)
    table = dataclasses.replace(table, labels=[()] * len(table))
    result = evaluate(table, dataclasses.replace(FEW, score="softmax", whole_pool=True))
    draws = {"per-query": FEW.draws, "shared": FEW.shared_draws}
    queries = {c.label: sum(c.per_fold) for c in result.classes}
    assert any(t.ties for t in result.ties)
    for t in result.ties:
        assert t.share == pytest.approx(t.ties / (queries[t.label] * draws[t.spread]))
        assert t.share <= 1
