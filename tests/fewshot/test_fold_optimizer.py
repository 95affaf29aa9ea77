"""The fold builder against brute force, the definition of balance, and scikit-learn."""

import itertools
import warnings
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from callshot.errors import InputError, OptionError
from callshot.fewshot import fold_optimizer
from callshot.fewshot.fold_optimizer import build_folds
from callshot.fewshot.folds import make_folds
from callshot.fewshot.kernels.fold_assignment import assign_greedily, least_range

# A corpus is a list of recordings, a recording a list of labels.
tiny = st.lists(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=7
)


def columns(corpus):
    """The labels and the recordings of all segments."""
    label = []
    recording = []
    for number, labels in enumerate(corpus):
        label += labels
        recording += [f"r{number:02d}"] * len(labels)
    return label, recording


def random_columns(seed, recordings=60):
    """Labels, recordings and a number of folds."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(3, 12))
    share = np.arange(1.0, classes + 1) ** -1.2
    several = (0.0, 1.0, 0.5)[seed % 3]
    corpus = []
    for _ in range(int(rng.integers(recordings // 2, recordings))):
        kinds = 3 if rng.uniform() < several else 1
        pool = rng.choice(classes, kinds, replace=False, p=share / share.sum())
        corpus.append(
            [f"class {c:02d}" for c in rng.choice(pool, int(rng.integers(1, 13)))]
        )
    return *columns(corpus), int(rng.choice([3, 5, 10]))


def hard_columns():
    """Fourteen recordings of all labels: no class can be spread as evenly as it could be alone."""
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 9, size=(14, 4))
    return columns([np.repeat(list("abcd"), row).tolist() for row in counts])


def cost(label, fold, count):
    """Minus the number of eligible classes, and the mean of their spreads: smaller is better."""
    spreads = []
    for name in set(label):
        folds = [int(f) for x, f in zip(label, fold, strict=True) if x == name]
        held = [folds.count(number) for number in range(count)]
        if min(held) > 0:
            spreads.append(Fraction(max(held) - min(held)) / Fraction(sum(held), count))
    return -len(spreads), sum(spreads, Fraction(0)) / max(1, len(spreads))


def brute_force(label, recording, count):
    """The least cost of all assignments."""
    names = sorted(set(recording))
    row = [names.index(name) for name in recording]
    products = itertools.product(range(count), repeat=len(names) - 1)
    # Folds are interchangeable: the first recording is in fold 0.
    assignments = [np.array([0, *folds]) for folds in products]
    return min(cost(label, folds[row], count) for folds in assignments)


def is_proved(folds):
    return folds.proof.startswith("optimum proved")


def count_pairs(label, row, rows):
    """The segments of each label in each row."""
    table = np.zeros((rows, len(set(label))), dtype=np.int64)
    np.add.at(table, (row, np.unique(label, return_inverse=True)[1]), 1)
    return table


def run_sklearn(label, recording, count, rows):
    fold = np.full(len(label), -1)
    names = np.array(label)[rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = StratifiedGroupKFold(count).split(
            rows, names, np.array(recording)[rows]
        )
        for number, (_, test) in enumerate(splits):
            fold[rows[test]] = number
    return fold


@given(tiny, st.integers(2, 4))
@settings(max_examples=25)
def test_no_recording_is_split_and_the_common_fold_holds_those_with_rare_labels_only(
    corpus, count
):
    label, recording = columns(corpus)
    folds = build_folds(label, recording, count, nodes=0)
    rare = {name for name in label if sum(name in labels for labels in corpus) < count}
    for number, labels in enumerate(corpus):
        rows = [name == f"r{number:02d}" for name in recording]
        (fold,) = set(folds.fold[rows].tolist())
        assert (fold == -1) == (set(labels) <= rare)
        assert -1 <= fold < count


@pytest.mark.parametrize("searches", [fold_optimizer.SEARCHES, ()])
@given(corpus=tiny, count=st.integers(2, 3))
@settings(max_examples=20)
def test_tiny_corpora_get_the_optimum_and_the_proof(searches, corpus, count):
    label, recording = columns(corpus)
    lowest = brute_force(label, recording, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_optimizer, "SEARCHES", searches)
        folds = build_folds(label, recording, count)
        assert is_proved(folds), folds.proof
        assert cost(label, folds.fold, count) == lowest
        patch.setattr(fold_optimizer, "SEARCHES", ((1, True),))
        folds = build_folds(label, recording, count, nodes=0)
    if cost(label, folds.fold, count) != lowest:
        assert "not proved: the solver was left out" in folds.proof


@pytest.mark.parametrize("seed", range(2))
def test_local_search_alone_finds_the_optimum_where_eligibility_and_evenness_disagree(
    seed,
):
    rng = np.random.default_rng(seed)
    corpus = []
    for _ in range(7):
        counts = rng.integers(9, size=4) * rng.integers(2, size=4)
        corpus.append(np.repeat(list("abcd"), counts).tolist())
    label, recording = columns(corpus)
    folds = build_folds(label, recording, 3, nodes=0)
    assert cost(label, folds.fold, 3) == brute_force(label, recording, 3)


def test_three_classes_that_share_three_recordings_in_pairs_cannot_all_be_eligible():
    label, recording = columns([["a", "c"], ["a", "b"], ["b", "c"]])
    folds = build_folds(label, recording, 2)
    assert cost(label, folds.fold, 2) == (-2, 0)
    assert folds.proof == "optimum proved by integer programming"


@pytest.mark.parametrize("seed", range(2))
def test_the_greedy_start_is_the_folds_of_scikit_learn(seed):
    label, recording, count = random_columns(seed)
    names, row = np.unique(recording, return_inverse=True)
    theirs = run_sklearn(label, recording, count, np.arange(len(label)))
    ours = assign_greedily(count_pairs(label, row, len(names)), count)
    np.testing.assert_array_equal(ours[row], theirs)


@pytest.mark.parametrize("seed", range(2))
def test_folds_are_never_worse_than_those_of_scikit_learn_with_or_without_the_common_rows(
    seed,
):
    label, recording, count = random_columns(seed)
    search = seed % 2 == 1  # never worse by construction, so without search too
    with pytest.MonkeyPatch.context() as patch:
        if not search:
            patch.setattr(fold_optimizer, "SEARCHES", ())
        folds = build_folds(label, recording, count, nodes=20 if search else 0)
    for rows in (np.arange(len(label)), np.flatnonzero(folds.fold >= 0)):
        if len(rows):
            theirs = run_sklearn(label, recording, count, rows)
            assert cost(label, folds.fold, count) <= cost(label, theirs, count)


@given(tiny, st.integers(2, 3), st.randoms())
@settings(max_examples=15)
def test_the_order_of_rows_changes_nothing(corpus, count, random):
    label, recording = columns(corpus)
    order = list(range(len(label)))
    random.shuffle(order)
    folds = build_folds(label, recording, count, nodes=20)
    again = build_folds(
        [label[i] for i in order], [recording[i] for i in order], count, nodes=20
    )
    np.testing.assert_array_equal(again.fold, folds.fold[order])
    assert again.proof == folds.proof
    numbers = list(dict.fromkeys(folds.fold[folds.fold >= 0].tolist()))
    assert numbers == list(range(len(numbers)))  # by their first recording


def test_bounds_of_the_solver_change_the_proof_but_not_the_folds():
    label, recording, count = random_columns(0)
    solved = build_folds(label, recording, count)
    bare = build_folds(label, recording, count, nodes=0)
    assert is_proved(solved)
    np.testing.assert_array_equal(solved.fold, bare.fold)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=7), st.integers(2, 3))
def test_no_spread_of_one_class_falls_below_its_least_range(held, count):
    assignments = itertools.product(range(count), repeat=len(held))
    ranges = [np.ptp(np.bincount(folds, held, count)) for folds in assignments]
    assert least_range(np.array([0, *held]), count) <= min(ranges)


def test_single_segments_are_spread_as_evenly_as_whole_numbers_can_be():
    label = np.repeat(["a", "b", "c"], [53, 20, 11]).tolist()
    folds = build_folds(label, [f"r{i:02d}" for i in range(84)], 10)
    spread = (Fraction(10, 53) + Fraction(10, 11)) / 3
    assert cost(label, folds.fold, 10) == (-3, spread)
    assert folds.proof.startswith("optimum proved: every class is spread as evenly")
    assert np.ptp(np.bincount(folds.fold)) <= 1


def test_of_equal_folds_those_of_more_equal_size_are_chosen():
    gained = []
    for seed in (2, 8):
        label, recording, count = random_columns(seed)
        settled = build_folds(label, recording, count, nodes=0).fold
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fold_optimizer, "SETTLING", 0)
            loose = build_folds(label, recording, count, nodes=0).fold
        assert cost(label, settled, count) == cost(label, loose, count)
        less, more = (np.bincount(fold[fold >= 0]) for fold in (settled, loose))
        gained.append(np.sum(more**2) - np.sum(less**2))
    assert min(gained) >= 0 < max(gained)


def test_too_few_recordings_leave_all_in_the_common_fold():
    folds = build_folds(["a", "a", "b"], ["r1", "r2", "r2"], 3)
    assert folds.fold.tolist() == [-1, -1, -1]
    assert folds.proof.startswith("optimum proved: no label is in 3 recordings")
    assert build_folds([], [], 2).fold.tolist() == []


def test_wrong_arguments_are_rejected_by_name():
    with pytest.raises(OptionError, match="folds: expected 2 or more, got 1"):
        make_folds(["a"], ["r"], 1)
    with pytest.raises(InputError, match="expected one for each of 2 labels, got 1"):
        make_folds(["a", "b"], ["r"], 2)


@pytest.mark.parametrize(
    ("nodes", "places", "reason"),
    [
        (1, 300, "did not finish within 1 nodes"),
        (9, 10, "14 recordings are too many for"),
    ],
)
def test_a_proof_that_failed_names_the_limit_and_the_distance(
    nodes, places, reason, monkeypatch
):
    monkeypatch.setattr(fold_optimizer, "MAX_PLACES", places)
    folds = build_folds(*hard_columns(), 5, nodes=nodes)
    assert folds.proof.startswith("not proved: ")
    assert reason in folds.proof
    assert "best of local search, at most 0." in folds.proof


def test_a_solution_that_the_clock_cut_short_is_not_used(monkeypatch):
    bare = build_folds(*hard_columns(), 5, nodes=0)
    places = np.zeros(10_000)
    stopped = SimpleNamespace(message="Time limit reached.", status=1, x=places)
    monkeypatch.setattr("scipy.optimize.milp", lambda *_, **__: stopped)
    folds = build_folds(*hard_columns(), 5, seconds=0.5)
    np.testing.assert_array_equal(folds.fold, bare.fold)
    assert "the solver was stopped after 0.5 s and its work is not used" in folds.proof
    assert not is_proved(folds)
