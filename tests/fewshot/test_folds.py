import dataclasses

import numpy as np
import pytest
from paper_shapes import CORPORA, spread_over_folds

from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.episodes import plan_episodes, split
from callshot.fewshot.folds import (
    audit,
    check_folds,
    complete_shots,
    count_classes,
    make_folds,
    new_exemplars,
)
from callshot.records import Embeddings


@pytest.mark.parametrize(
    ("corpus", "queries", "support", "best"),
    [("elephant-voices", 257, 258, 4), ("ldc", 3985, 3987, 31)],
)
def test_the_bookkeeping_gives_the_golden_values_of_the_paper(corpus, queries, support, best):
    counts = CORPORA[corpus][0]
    label, fold = spread_over_folds(*CORPORA[corpus])
    found = count_classes(label, check_folds([f"recording {i}" for i in range(len(label))], fold))
    assert {c.label: (c.exemplars, c.complete_to_k) for c in found} == counts
    assert all(c.eligible for c in found)
    assert sum(c.exemplars for c in found) == support
    assert int((fold >= 0).sum()) == queries
    assert complete_shots(found) == best
    assert [new_exemplars(found, k) for k in (1, best)] == [len(counts)] * 2
    assert new_exemplars(found, best + 1) == sum(c > best for _, c in counts.values())


def test_new_exemplars_fall_away_as_the_papers_lower_panel_does():
    label, fold = spread_over_folds(*CORPORA["elephant-voices"])
    found = count_classes(label, check_folds([f"recording {i}" for i in range(len(label))], fold))
    assert [new_exemplars(found, k) for k in range(1, 41)] == [
        12,
        12,
        12,
        12,
        9,
        8,
        8,
        8,
        8,
        8,
        7,
        7,
        7,
        6,
        6,
        5,
        4,
        3,
        3,
        3,
        3,
        2,
        *[1] * 15,
        0,
        0,
        0,
    ]


def test_classes_that_miss_a_fold_are_ineligible_with_the_reason():
    folds = check_folds(["a", "b", "c", "d"], np.array([0, 1, 0, -1]))
    found = {c.label: c for c in count_classes(["x", "x", "y", "z"], folds)}
    assert found["x"].eligible
    assert (found["y"].eligible, found["y"].reason) == (False, "no exemplar in fold 1")
    assert (found["z"].eligible, found["z"].reason) == (False, "only in the common fold")


@pytest.mark.parametrize("fold", [[0, 1], [0, -1]])
def test_a_recording_on_both_sides_of_a_split_is_named(fold):
    with pytest.raises(LeakError, match="recording 'field 7' is in"):
        audit(["field 7", "field 7"], np.array(fold))


@pytest.mark.parametrize("fold", [[0, 0], [0, 2], [1, 2], [-1, -1], [-2, 0]])
def test_folds_with_gaps_or_too_few_are_refused(fold):
    with pytest.raises(InputError, match="numbered 0, 1"):
        check_folds(["a", "b"], np.array(fold))


def test_fewer_than_two_folds_are_refused():
    with pytest.raises(OptionError, match="two at least"):
        make_folds(["x"], ["a"], 1)


def table_of(label, fold, labels=None):
    n = len(label)
    return Embeddings(
        "e",
        np.arange(n, dtype=float)[:, None],
        [f"s{i}" for i in range(n)],
        [f"r{i}" for i in range(n)],
        label,
        labels or [()] * n,
        np.array(fold),
    )


def test_ineligible_names_are_dropped_from_labels_and_their_segments_take_no_part():
    table = table_of(["x", "x", "y", "y", "z"], [0, 1, 0, 1, 0], [("z",), ("y",), (), (), ("x",)])
    folds = check_folds(table.recording, table.fold)
    episodes = plan_episodes(table, folds, count_classes(table.label, folds))
    assert episodes.classes == ("x", "y")
    assert episodes.relevant.tolist() == [[True, False], [True, True], [False, True], [False, True]]


def test_support_is_every_other_fold_and_the_common_fold():
    table = table_of(["x", "x", "x", "y", "y", "y"], [0, 1, -1, 0, 1, -1])
    folds = check_folds(table.recording, table.fold)
    episodes = plan_episodes(table, folds, count_classes(table.label, folds))
    part = split(episodes, 0)
    assert part.rows.tolist() == [0, 3]
    assert part.pool.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("label", "message"),
    [(["x", "x", "y"], "only one eligible class, 'x'"), (["x", "y", "z"], "no eligible class")],
)
def test_fewer_than_two_eligible_classes_are_refused_with_the_reasons(label, message):
    table = table_of(label, [0, 1, 0])
    folds = check_folds(table.recording, table.fold)
    with pytest.raises(InputError, match=message):
        plan_episodes(table, folds, count_classes(label, folds))


def test_new_exemplars_are_those_of_eligible_classes():
    folds = check_folds(["a", "b", "c", "d", "e"], np.array([0, 1, 0, 0, -1]))
    found = count_classes(["x", "x", "y", "y", "y"], folds)
    assert [c.eligible for c in found] == [False, True]
    assert new_exemplars(found, 1) == 1


def test_values_whose_squares_are_no_floats_are_refused():
    for scale in (1e170, 1e-170):
        table = table_of(["x", "x", "y", "y"], [0, 1, 0, 1])
        table = dataclasses.replace(table, vectors=table.vectors * scale)
        folds = check_folds(table.recording, table.fold)
        with pytest.raises(InputError, match="squares are floats"):
            plan_episodes(table, folds, count_classes(table.label, folds))
