import dataclasses

import numpy as np
import pytest
from paper_shapes import CORPORA, spread_over_folds

from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.episodes import make_split
from callshot.fewshot.folds import (
    check_folds,
    check_no_leak,
    choose_folds,
    complete_shots,
    count_classes,
    new_exemplars,
)
from callshot.vectors import Vectors
from corpora import episodes_of


def count_paper_classes(corpus):
    label, fold = spread_over_folds(*CORPORA[corpus])
    recordings = [f"recording {i}" for i in range(len(label))]
    return count_classes(label, check_folds(recordings, fold)), fold


@pytest.mark.parametrize(
    ("corpus", "queries", "support", "best"),
    [("elephant-voices", 257, 258, 4), ("ldc", 3985, 3987, 31)],
)
def test_the_counts_are_the_golden_values_of_the_paper(corpus, queries, support, best):
    golden = CORPORA[corpus][0]
    counts, fold = count_paper_classes(corpus)
    assert {c.label: (c.exemplars, c.complete_to_k) for c in counts} == golden
    assert all(c.eligible for c in counts)
    assert sum(c.exemplars for c in counts) == support
    assert int((fold >= 0).sum()) == queries
    assert complete_shots(counts) == best
    assert [new_exemplars(counts, k) for k in (1, best)] == [len(golden)] * 2
    assert new_exemplars(counts, best + 1) == sum(k > best for _, k in golden.values())


def test_new_exemplars_fall_as_in_the_papers_lower_panel():
    counts, _ = count_paper_classes("elephant-voices")
    classes = [12, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    panel = np.repeat(classes, [4, 1, 5, 3, 2, 1, 1, 4, 1, 15, 3])
    assert [new_exemplars(counts, k) for k in range(1, 41)] == panel.tolist()


def test_classes_that_miss_a_fold_are_ineligible_with_the_reason():
    folds = check_folds(["a", "b", "c", "d"], np.array([0, 1, 0, -1]))
    counts = count_classes(["x", "x", "y", "z"], folds)
    assert {c.label: (c.eligible, c.reason) for c in counts} == {
        "x": (True, ""),
        "y": (False, "no exemplar in fold 1"),
        "z": (False, "only in the common fold"),
    }


@pytest.mark.parametrize("fold", [[0, 1], [0, -1]])
def test_a_recording_on_both_sides_of_a_split_is_named(fold):
    with pytest.raises(LeakError, match="recording 'field 7' is in"):
        check_no_leak(["field 7", "field 7"], np.array(fold))


@pytest.mark.parametrize("fold", [[0, 0], [3, -1], [-1, -1]])
def test_fewer_than_two_given_folds_are_rejected(fold):
    with pytest.raises(InputError, match="expected two folds or more"):
        check_folds(["a", "b"], np.array(fold))


def test_given_folds_are_numbered_in_their_order():
    folds = check_folds(list("abcd"), np.array([7, -1, -3, 10**15]))
    assert (folds.fold.tolist(), folds.count) == ([1, -1, 0, 2], 3)
    with pytest.raises(LeakError, match="'a' is in folds 3 and 7"):
        check_folds(["a", "a", "b"], np.array([3, 7, 3]))


def table_of(label, fold, labels=None):
    n = len(label)
    return Vectors.from_columns(
        "e",
        np.arange(n, dtype=float)[:, None],
        [f"s{i}" for i in range(n)],
        [f"r{i}" for i in range(n)],
        label,
        labels or [()] * n,
        None if fold is None else np.array(fold),
    )


def test_given_folds_come_before_built_ones_and_must_match_the_option():
    table = table_of(["x", "x", "y", "y"], [0, 1, 0, 1])
    assert choose_folds(table.spans).origin == "given"
    given = np.array([1, 0, 1, 0])
    for count, fold in ((2, given), (None, given + 1)):
        folds = choose_folds(table.spans, count, fold, "folds.csv")
        assert folds.fold.tolist() == given.tolist()
    for error, inputs, message in (
        (OptionError, (3,), "memory: column fold has 2 folds, but folds is 3"),
        (InputError, (None, given * 0, "folds.csv"), r"folds\.csv: .* two folds or m"),
    ):
        with pytest.raises(error, match=message):
            choose_folds(table.spans, *inputs)
    built = choose_folds(table_of(["x", "x", "y", "y"], None).spans, default=2)
    assert (built.origin, built.count) == ("built", 2)


def test_ineligible_names_are_dropped_from_labels_and_their_segments_take_no_part():
    labels = [("z",), ("y",), (), (), ("x",)]
    episodes = episodes_of(table_of(["x", "x", "y", "y", "z"], [0, 1, 0, 1, 0], labels))
    assert episodes.classes == ("x", "y")
    assert episodes.relevant.tolist() == [
        [True, False],
        [True, True],
        [False, True],
        [False, True],
    ]


def test_support_is_every_other_fold_and_the_common_fold():
    episodes = episodes_of(table_of([*"xxxyyy"], [0, 1, -1, 0, 1, -1]))
    split = make_split(episodes, 0)
    assert split.rows.tolist() == [0, 3]
    assert split.pool.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (["x", "x", "y"], "only one eligible class, 'x'"),
        (["x", "y", "z"], "no eligible class"),
    ],
)
def test_fewer_than_two_eligible_classes_are_rejected_with_the_reasons(label, message):
    with pytest.raises(InputError, match=message):
        episodes_of(table_of(label, [0, 1, 0]))


@pytest.mark.parametrize(
    ("scale", "offset"), [(1e170, 0.0), (1e-170, 0.0), (1e110, 1e120)]
)
def test_values_whose_squares_are_no_floats_are_rejected(scale, offset):
    table = table_of(["x", "x", "y", "y"], [0, 1, 0, 1])
    matrix = table.matrix * scale + offset
    with pytest.raises(InputError, match=r"^memory: .* divide all vectors by a const"):
        episodes_of(dataclasses.replace(table, matrix=matrix))
