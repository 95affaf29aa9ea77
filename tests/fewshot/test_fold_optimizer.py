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
from callshot.fewshot.fold_optimizer import Balance, build_folds, measure_balance
from callshot.fewshot.kernels.fold_assignment import assign_greedily, least_range

# A corpus is a list of recordings, a recording a list of labels.
tiny = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=7)


def rows(corpus):
    return [x for held in corpus for x in held], [
        f"r{i:02d}" for i, held in enumerate(corpus) for _ in held
    ]


def random_corpus(seed, recordings=60):
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(3, 12))
    share = np.arange(1.0, classes + 1) ** -1.2
    several = (0.0, 1.0, 0.5)[seed % 3]
    corpus = []
    for _ in range(int(rng.integers(recordings // 2, recordings))):
        kinds = 3 if rng.uniform() < several else 1
        pool = rng.choice(classes, kinds, replace=False, p=share / share.sum())
        corpus.append([f"class {c:02d}" for c in rng.choice(pool, int(rng.integers(1, 13)))])
    return *rows(corpus), int(rng.choice([3, 5, 10]))


def literal_cost(label, fold, count):
    """The definition, a class and a fold at a time; smaller is better."""
    spreads = []
    for name in set(label):
        held = [
            sum(x == name and f == k for x, f in zip(label, fold, strict=True))
            for k in range(count)
        ]
        if min(held) > 0:
            spreads.append(Fraction(max(held) - min(held)) / Fraction(sum(held), count))
    return -len(spreads), sum(spreads, Fraction(0)) / max(1, len(spreads))


def brute_force(label, recording, count):
    names = sorted(set(recording))
    return min(
        literal_cost(label, [folds[names.index(r)] for r in recording], count)
        for folds in itertools.product(range(count), repeat=len(names))
        if folds[0] == 0
    )


def run_sklearn(label, recording, count, kept):
    fold = np.full(len(label), -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = StratifiedGroupKFold(count).split(
            kept, np.array(label)[kept], np.array(recording)[kept]
        )
        for number, (_, test) in enumerate(splits):
            fold[kept[test]] = number
    return fold


def cost(balance):
    return -balance.eligible, balance.spread


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 2)), max_size=30), st.randoms())
def test_balance_is_the_definition_in_any_order_of_rows(pairs, random):
    eligible, spread = literal_cost([x for x, _ in pairs], [f for _, f in pairs], 3)
    random.shuffle(pairs)
    fold = np.array([f for _, f in pairs], dtype=np.int64)
    assert measure_balance([x for x, _ in pairs], fold, 3) == Balance(-eligible, float(spread))


@pytest.mark.parametrize("fold", [[0, 2], [0, -2], [0]])
def test_balance_rejects_folds_that_do_not_fit(fold):
    with pytest.raises(InputError, match="expected a number from -1 to 1 for each of 2 labels"):
        measure_balance(["a", "b"], np.array(fold), 2)


@given(tiny, st.integers(2, 4))
@settings(max_examples=50)
def test_no_recording_is_split_and_the_common_fold_holds_those_with_rare_labels_only(corpus, count):
    label, recording = rows(corpus)
    built = build_folds(label, recording, count, nodes=0)
    rare = {x for x in label if sum(x in held for held in corpus) < count}
    for i, held in enumerate(corpus):
        (fold,) = {
            f for f, r in zip(built.fold.tolist(), recording, strict=True) if r == f"r{i:02d}"
        }
        assert (fold == -1) == (set(held) <= rare)
        assert -1 <= fold < count
    assert built.balance == measure_balance(label, built.fold, count)


@given(tiny, st.integers(2, 3))
@settings(max_examples=60)
def test_tiny_corpora_get_the_optimum_and_the_proof(corpus, count):
    label, recording = rows(corpus)
    built = build_folds(label, recording, count)
    assert built.proved, built.proof
    assert literal_cost(label, built.fold.tolist(), count) == brute_force(label, recording, count)


@given(tiny, st.integers(2, 3))
@settings(max_examples=40)
def test_nothing_is_proved_that_brute_force_can_beat(corpus, count):
    label, recording = rows(corpus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_optimizer, "SEARCHES", ((1, True),))
        built = build_folds(label, recording, count, nodes=0)
    if literal_cost(label, built.fold.tolist(), count) != brute_force(label, recording, count):
        assert not built.proved
        assert "the solver was left out" in built.proof


@given(tiny, st.integers(2, 3))
@settings(max_examples=40)
def test_the_integer_program_finds_the_optimum_without_local_search(corpus, count):
    label, recording = rows(corpus)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fold_optimizer, "SEARCHES", ())
        built = build_folds(label, recording, count)
    assert built.proved, built.proof
    assert literal_cost(label, built.fold.tolist(), count) == brute_force(label, recording, count)


@pytest.mark.parametrize("seed", range(30))
def test_local_search_alone_finds_the_optimum_where_eligibility_and_evenness_disagree(seed):
    rng = np.random.default_rng(seed)
    corpus = [
        [x for x in "abcd" for _ in range(int(rng.integers(9)) * int(rng.integers(2)))]
        for _ in range(7)
    ]
    label, recording = rows(corpus)
    built = build_folds(label, recording, 3, nodes=0)
    assert literal_cost(label, built.fold.tolist(), 3) == brute_force(label, recording, 3)


def test_one_more_eligible_class_is_worth_any_spread_of_the_others():
    built = build_folds(*rows([[*"abcde"], [*"abcde"], [*"bbccddee"]]), 2, nodes=0)
    assert built.balance == Balance(5, 4 / 5)


def test_three_classes_that_share_three_recordings_in_pairs_cannot_all_be_eligible():
    built = build_folds(*rows([["a", "c"], ["a", "b"], ["b", "c"]]), 2)
    assert (built.balance, built.proved) == (Balance(2, 0.0), True)
    assert built.proof == "optimum proved by integer programming"


@pytest.mark.parametrize("seed", range(30))
def test_the_greedy_start_is_the_folds_of_scikit_learn(seed):
    label, recording, count = random_corpus(seed)
    table = np.zeros((len(set(recording)), len(set(label))), dtype=np.int64)
    row = np.unique(recording, return_inverse=True)[1]
    np.add.at(table, (row, np.unique(label, return_inverse=True)[1]), 1)
    theirs = run_sklearn(label, recording, count, np.arange(len(label)))
    np.testing.assert_array_equal(assign_greedily(table, count)[row], theirs)


@pytest.mark.parametrize("seed", range(40))
def test_folds_are_never_worse_than_those_of_scikit_learn_with_or_without_the_common_rows(seed):
    label, recording, count = random_corpus(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            fold_optimizer, "SEARCHES", fold_optimizer.SEARCHES if seed % 2 else ()
        )  # by construction, so without search too
        built = build_folds(label, recording, count, nodes=20 if seed % 2 else 0)
    for kept in (np.arange(len(label)), np.flatnonzero(built.fold >= 0)):
        if len(kept):
            theirs = measure_balance(label, run_sklearn(label, recording, count, kept), count)
            assert cost(built.balance) <= cost(theirs)


def test_folds_are_better_where_scikit_learn_loses_classes():
    gained = 0
    for seed in range(1, 40, 3):
        label, recording, count = random_corpus(seed)
        theirs = measure_balance(
            label, run_sklearn(label, recording, count, np.arange(len(label))), count
        )
        gained += build_folds(label, recording, count, nodes=0).balance.eligible - theirs.eligible
    assert gained > 0


@given(tiny, st.integers(2, 3), st.randoms())
@settings(max_examples=30)
def test_the_order_of_rows_changes_nothing(corpus, count, random):
    label, recording = rows(corpus)
    order = list(range(len(label)))
    random.shuffle(order)
    built = build_folds(label, recording, count, nodes=20)
    again = build_folds([label[i] for i in order], [recording[i] for i in order], count, nodes=20)
    np.testing.assert_array_equal(again.fold, built.fold[order])
    assert (again.balance, again.proved, again.proof) == (built.balance, built.proved, built.proof)


@pytest.mark.parametrize("seed", [1, 4, 8])
def test_the_same_corpus_gets_the_same_folds_numbered_by_their_first_recording(seed):
    label, recording, count = random_corpus(seed)
    built, again = (build_folds(label, recording, count, nodes=0) for _ in range(2))
    np.testing.assert_array_equal(built.fold, again.fold)
    assert list(dict.fromkeys(built.fold[built.fold >= 0].tolist())) == list(range(count))


@pytest.mark.parametrize("seed", [0, 3, 6, 9])
def test_bounds_of_the_solver_change_the_proof_but_not_the_folds(seed):
    label, recording, count = random_corpus(seed)
    proved, bare = (
        build_folds(label, recording, count),
        build_folds(label, recording, count, nodes=0),
    )
    assert proved.proved
    assert proved.balance == bare.balance
    np.testing.assert_array_equal(proved.fold, bare.fold)


@given(st.lists(st.integers(1, 9), min_size=3, max_size=7), st.integers(2, 3))
def test_no_spread_of_one_class_falls_below_its_least_range(held, count):
    ranges = [
        np.ptp(np.bincount(folds, held, count))
        for folds in itertools.product(range(count), repeat=len(held))
    ]
    assert least_range(np.array([0, *held]), count) <= min(ranges)


def test_single_segments_are_spread_as_evenly_as_whole_numbers_can_be():
    label = np.repeat(["a", "b", "c"], [53, 20, 11]).tolist()
    built = build_folds(label, [f"r{i:02d}" for i in range(84)], 10)
    assert built.balance == Balance(3, float((Fraction(10, 53) + Fraction(10, 11)) / 3))
    assert built.proof == "optimum proved: every class is spread as evenly as its recordings allow"
    assert np.ptp(np.bincount(built.fold)) <= 1


def test_of_equal_folds_those_of_more_equal_size_are_taken():
    gained = []
    for seed in (2, 5, 8, 11):
        label, recording, count = random_corpus(seed)
        settled = build_folds(label, recording, count, nodes=0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fold_optimizer, "SETTLING", 0)
            loose = build_folds(label, recording, count, nodes=0)
        assert settled.balance == loose.balance
        squares = [
            np.sum(np.bincount(built.fold[built.fold >= 0]) ** 2) for built in (loose, settled)
        ]
        gained.append(squares[0] - squares[1])
    assert min(gained) >= 0 < max(gained)


def test_too_few_recordings_leave_all_in_the_common_fold():
    built = build_folds(["a", "a", "b"], ["r1", "r2", "r2"], 3)
    assert built.fold.tolist() == [-1, -1, -1]
    assert (built.balance, built.proved) == (Balance(0, 0.0), True)
    assert "no label is in 3 recordings" in built.proof
    assert build_folds([], [], 2).fold.tolist() == []


def test_wrong_arguments_are_rejected_by_name():
    with pytest.raises(OptionError, match="expected 2 folds or more, got 1"):
        build_folds(["a"], ["r"], 1)
    with pytest.raises(InputError, match="expected one for each of 2 labels, got 1"):
        build_folds(["a", "b"], ["r"], 2)


def hard_corpus():
    """Fourteen recordings of all labels: no class can be spread as evenly as it could be alone."""
    rng = np.random.default_rng(0)
    return rows([[x for x in "abcd" for _ in range(int(rng.integers(0, 9)))] for _ in range(14)])


def test_a_proof_that_failed_names_the_limit_and_the_distance():
    for nodes, places, why in (
        (1, 300, "did not finish within 1 nodes"),
        (9, 10, "14 recordings are too many for"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fold_optimizer, "MAX_PLACES", places)
            built = build_folds(*hard_corpus(), 5, nodes=nodes)
        assert not built.proved
        assert built.proof.startswith("not proved: ")
        assert why in built.proof
        assert "best of local search, at most 0." in built.proof


def test_what_the_solver_had_when_the_clock_stopped_it_is_not_used():
    bare = build_folds(*hard_corpus(), 5, nodes=0)
    with pytest.MonkeyPatch.context() as patch:
        stopped = SimpleNamespace(message="Time limit reached.", status=1, x=np.zeros(10_000))
        patch.setattr("scipy.optimize.milp", lambda *_, **__: stopped)
        built = build_folds(*hard_corpus(), 5, seconds=0.5)
    np.testing.assert_array_equal(built.fold, bare.fold)
    assert not built.proved
    assert "the solver was stopped after 0.5 s and its work is not used" in built.proof
