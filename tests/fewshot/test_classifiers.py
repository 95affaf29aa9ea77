"""The rules without training against their literal twins (tests/literal.py) and scikit-learn; what no query may do."""

import csv
import dataclasses
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.covariance import LedoitWolf
from sklearn.neighbors import KNeighborsClassifier

import literal
from callshot import Protocol, cli
from callshot.errors import InputError, OptionError
from callshot.fewshot.classifiers import CLASSIFIERS, find_classifier, ledoit_wolf, whiten
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes, split, splits
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import count_classes
from callshot.fewshot.per_query_resampling import score_own
from callshot.fewshot.shared_resampling import _cross, pool_a, shared_a
from callshot.fewshot.single_episode import rerun_episode
from callshot.fewshot.sweep import sweep
from callshot.records import Embeddings
from callshot.tables.embedding_tables import write_table
from corpora import corpora, folds_of, random_corpus

SMALL = Protocol(shots=(1, 2, 3, 5), draws=3, bootstraps=7, shared_draws=4)
WAYS = pytest.mark.parametrize("memory", [0, 2**30], ids=["directly", "by matrices"])
EVERY = pytest.mark.parametrize("name", list(CLASSIFIERS))


def engine_for(table, name, protocol=SMALL, *, threads=1, memory=2**30):
    folds = folds_of(table)
    episodes = plan_episodes(table, folds, count_classes(table.label, folds))
    return open_engine(episodes, protocol, threads, memory, classifier=find_classifier(name))


def run(table, name, protocol, spread, **options):
    with engine_for(table, name, protocol, **options) as engine:
        return sweep(engine, spread)


def own_scores(table, name, number, protocol=SMALL, **options):
    """Return the scores (shots, classes, queries, draws) of one fold."""
    shots = np.array(protocol.shots)
    with engine_for(table, name, protocol, **options) as engine:
        part = split(engine.episodes, number)
        classes = len(engine.episodes.classes)
        return score_own(
            engine.at_split(part), part, shots, np.zeros((len(shots), classes, classes))
        )[0]


def shared_evidence(table, name, number, protocol=SMALL, **options):
    """Return a[draw, shot, n, q] of one fold."""
    with engine_for(table, name, protocol, **options) as engine:
        part = split(engine.episodes, number)
        own = engine.at_split(part)
        return shared_a(
            own, part, np.array(protocol.shots), _cross(own, part), slice(0, protocol.shared_draws)
        )


def repeat_vectors(table):
    """Let every vector stand several times, under whatever labels."""
    rng = np.random.default_rng(0)
    return dataclasses.replace(
        table, vectors=table.vectors[rng.integers(0, len(table) // 3, len(table))]
    )


def test_the_table_and_its_twins_have_the_same_rows():
    assert list(CLASSIFIERS) == list(literal.CLASSIFIERS)
    assert all(name == row.name for name, row in CLASSIFIERS.items())


@EVERY
@WAYS
@pytest.mark.parametrize("sampler", ["distinct", "replacement"])
def test_scores_and_values_are_those_of_the_literal_twin(name, memory, sampler):
    table = random_corpus(41, classes=3, folds=2, size=3, dimensions=4, integers=False, offset=1.5)
    protocol, corpus = (
        dataclasses.replace(SMALL, sampler=sampler),
        literal.Corpus(table, table.fold, 2),
    )
    rule = literal.CLASSIFIERS[name]
    for f in range(2):
        found = own_scores(table, name, f, protocol, memory=memory)
        shared = shared_evidence(table, name, f, protocol, memory=memory)
        for s, k in enumerate(protocol.shots):
            wanted, _ = literal.own_scores(corpus, protocol, k, f, *rule)
            np.testing.assert_allclose(found[s].transpose(1, 2, 0), wanted, rtol=1e-9, atol=1e-9)
            for draw in range(protocol.shared_draws):
                _, decided = literal.shared_scores(corpus, protocol, k, f, draw, *rule)
                assert shared[draw, s].argmax(axis=0).tolist() == decided.tolist()
    for spread, twin in (
        ("per-query", literal.per_query_values),
        ("shared", literal.shared_values),
    ):
        _, tally = run(table, name, protocol, spread, memory=memory)
        for metric, wanted in twin(corpus, protocol, 3, *rule).items():
            np.testing.assert_allclose(tally.values["all", metric][2], wanted, rtol=0, atol=1e-12)


@settings(
    max_examples=settings().max_examples // 10,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
)
@given(
    table=corpora(classes=3, folds=2),
    memory=st.sampled_from([0, 2**30]),
    sampler=st.sampled_from(["distinct", "replacement"]),
    name=st.sampled_from(["neighbour", "medoid"]),
)
def test_one_exemplar_of_each_class_is_exact_on_whole_numbers_ties_and_all(
    table, memory, sampler, name
):
    protocol = Protocol(shots=(1, 2, 3), draws=2, bootstraps=2, shared_draws=2, sampler=sampler)
    corpus, rule = (
        literal.Corpus(table, table.fold, folds_of(table).count),
        literal.CLASSIFIERS[name],
    )
    for spread, twin in (
        ("per-query", literal.per_query_values),
        ("shared", literal.shared_values),
    ):
        k, tally = run(table, name, protocol, spread, memory=memory)
        for s, shots in enumerate(k.tolist()):
            for metric, wanted in twin(corpus, protocol, shots, *rule).items():
                np.testing.assert_allclose(
                    tally.values["all", metric][s], wanted, rtol=0, atol=1e-12
                )


@WAYS
def test_with_one_exemplar_centroid_neighbour_and_medoid_are_the_same_bits(memory):
    table = random_corpus(42, classes=4, size=4, dimensions=7, integers=False, offset=20.0)
    protocol = dataclasses.replace(SMALL, shots=(1,))
    for f in range(3):
        one, two, three = (
            own_scores(table, name, f, memory=memory)[0]
            for name in ("centroid", "neighbour", "medoid")
        )
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    for spread in ("per-query", "shared"):
        runs = [
            run(table, name, protocol, spread, memory=memory)[1]
            for name in ("centroid", "neighbour", "medoid")
        ]
        for key, values in runs[0].values.items():
            np.testing.assert_array_equal(values, runs[1].values[key])
            np.testing.assert_array_equal(values, runs[2].values[key])


def test_distances_by_products_are_the_distances_and_those_of_equal_vectors_are_0():
    table = repeat_vectors(random_corpus(52, classes=3, size=40, integers=False, dimensions=333))
    with engine_for(table, "medoid") as engine:
        block, start = engine.matrices
        for n in range(len(engine.episodes.classes)):
            own = engine.episodes.vectors[engine.episodes.label == n]
            found = block[start[n] : start[n + 1]].reshape(len(own), len(own))
            golden = cdist(own, own)
            np.testing.assert_allclose(found, golden, rtol=1e-9)
            assert (found[golden == 0] == 0).all()


def test_of_two_exemplars_the_first_is_the_medoid_unless_they_are_the_whole_pool():
    table = random_corpus(43, classes=3, folds=2, size=8, dimensions=3, integers=False)
    found = shared_evidence(table, "medoid", 0, dataclasses.replace(SMALL, shots=(1, 2)))
    sizes = np.diff(split(engine_for(table, "medoid").episodes, 0).pool_start)
    assert (sizes > 2).any()
    np.testing.assert_array_equal(found[:, 0][:, sizes > 2], found[:, 1][:, sizes > 2])


def test_decisions_over_the_whole_pool_are_scikit_learns_nearest_neighbour():
    table = random_corpus(44, classes=4, size=6, dimensions=3, integers=False)
    with engine_for(table, "neighbour") as engine:
        episodes = engine.episodes
        for part in splits(episodes):
            outside = episodes.fold != part.number
            golden = KNeighborsClassifier(1).fit(episodes.vectors[outside], episodes.label[outside])
            found = pool_a(engine, part)[0, 0].argmax(axis=0)
            assert found.tolist() == golden.predict(episodes.vectors[part.rows]).tolist()


@EVERY
@WAYS
def test_the_whole_pool_is_one_support_set_also_where_vectors_repeat(name, memory):
    table = repeat_vectors(random_corpus(22, classes=3, size=5, integers=False, dimensions=9))
    protocol = Protocol(shots=(2, 90), whole_pool=True, draws=6, bootstraps=9, shared_draws=6)
    for spread in ("per-query", "shared"):
        _, tally = run(table, name, protocol, spread, memory=memory)
        for values in tally.values.values():
            assert np.ptp(values[1]) == 0
            np.testing.assert_allclose(values[1], values[2], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(tally.tied[1], tally.tied[2])


@EVERY
@WAYS
def test_equal_queries_tie_wherever_they_stand(name, memory):
    one = random_corpus(23, classes=3, folds=3, size=9, integers=False, dimensions=67)
    twice = {
        c: [*getattr(one, c), *getattr(one, c)[::-1]] for c in ("recording", "label", "labels")
    }
    segment = [*one.segment, *(f"{name}'" for name in one.segment[::-1])]
    vectors, fold = (np.concatenate([x, x[::-1]]) for x in (one.vectors, one.fold))
    table = dataclasses.replace(one, **twice, segment=segment, vectors=vectors, fold=fold)
    with engine_for(table, name, memory=memory) as engine:
        positives = np.sum([part.positives for part in splits(engine.episodes)], axis=0)
        _, tally = sweep(engine, "shared")
    assert tally.tied.tolist() == [(SMALL.shared_draws * positives).tolist()] * len(SMALL.shots)


@EVERY
def test_neither_threads_nor_the_order_of_rows_can_be_seen(name):
    table = random_corpus(45, classes=4, size=4, dimensions=6, integers=False)
    columns = {
        c: list(getattr(table, c))[::-1] for c in ("segment", "recording", "label", "labels")
    }
    turned = dataclasses.replace(
        table, **columns, vectors=table.vectors[::-1], fold=table.fold[::-1]
    )
    for spread in ("per-query", "shared"):
        first, *rest = (
            run(which, name, SMALL, spread, threads=n)[1]
            for which, n in ((table, 1), (table, 3), (turned, 1))
        )
        for key, values in first.values.items():
            for other in rest:
                np.testing.assert_array_equal(values, other.values[key])


@EVERY
def test_a_query_moves_no_score_but_its_own(name):
    table = random_corpus(46, classes=3, size=4, dimensions=5, integers=False)
    table = dataclasses.replace(table, vectors=table.vectors.astype(np.float32))
    with engine_for(table, name) as engine:
        part = split(engine.episodes, 1)
    row = int(np.flatnonzero(np.array(table.segment) == _segment_of(table, part.rows[0]))[0])
    vectors = table.vectors.copy()
    vectors[row] += np.float32(100.0)
    spoiled = dataclasses.replace(table, vectors=vectors)
    for memory in (0, 2**30):
        before, after = (own_scores(t, name, 1, memory=memory) for t in (table, spoiled))
        np.testing.assert_allclose(after[:, :, 1:], before[:, :, 1:], rtol=1e-9, atol=1e-9)
        assert not np.allclose(after[:, :, 0], before[:, :, 0])


@pytest.mark.parametrize("name", [name for name, row in CLASSIFIERS.items() if row.fit is not None])
def test_what_is_fitted_to_a_split_is_the_same_bits_whatever_the_queries_are(name):
    table = random_corpus(46, classes=3, size=4, dimensions=5, integers=False)
    table = dataclasses.replace(table, vectors=table.vectors.astype(np.float32))
    vectors = table.vectors.copy()
    vectors[table.fold == 1] = 7.0 * vectors[table.fold == 1][::-1] + np.float32(3.0)
    seen = []
    for one in (table, dataclasses.replace(table, vectors=vectors)):
        with engine_for(one, name) as engine:
            own = engine.at_split(split(engine.episodes, 1)).episodes
            seen.append(own.vectors[own.fold != 1])
    np.testing.assert_array_equal(*seen)


@EVERY
def test_a_feature_that_only_the_query_fold_has_does_not_help(name):
    table = random_corpus(47, classes=3, size=4, dimensions=4, integers=False)
    label = np.array([int(x[1]) for x in table.label])
    found = []
    for told in (label, (label + 1) % 3):
        more = np.where((table.fold == 0)[:, None], 5.0 * np.eye(3)[told], 0.0)
        found.append(
            own_scores(
                dataclasses.replace(table, vectors=np.hstack([table.vectors, more])), name, 0
            )
        )
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "shift"), [("cosine", 0.0), ("cl2n", 2.0), ("whitened", 2.0)])
def test_scores_do_not_know_the_scale_of_the_embeddings(name, shift):
    table = random_corpus(48, classes=3, size=4, dimensions=4, integers=False)
    other = dataclasses.replace(table, vectors=8.0 * table.vectors + shift)
    np.testing.assert_allclose(
        own_scores(other, name, 0), own_scores(table, name, 0), rtol=1e-8, atol=1e-8
    )
    for other_name in ("centroid", "neighbour", "medoid"):
        assert not np.allclose(own_scores(other, other_name, 0), own_scores(table, other_name, 0))


def test_evidence_of_cosine_and_cl2n_is_bounded():
    table = random_corpus(49, classes=4, size=4, dimensions=3, integers=False, scale=1e4)
    assert np.abs(shared_evidence(table, "cosine", 0)).max() <= 1.0
    cl2n = shared_evidence(table, "cl2n", 0)
    assert cl2n.min() >= -3.0 - 1e-12
    assert cl2n.max() <= 1.0 + 1e-12


@WAYS
def test_vectors_without_a_length_or_without_variance_still_have_scores(memory):
    table = random_corpus(50, classes=3, size=3, dimensions=3)
    still = dataclasses.replace(table, vectors=np.zeros_like(table.vectors))
    some = dataclasses.replace(
        table, vectors=np.where(np.arange(len(table))[:, None] % 2, table.vectors, 0.0)
    )
    for name in CLASSIFIERS:
        for spread in ("per-query", "shared"):
            for one in (still, some):
                _, tally = run(one, name, SMALL, spread, memory=memory)
                assert all(np.isfinite(values).all() for values in tally.values.values())


@WAYS
def test_a_mean_that_cancels_out_has_the_cosine_0(memory):
    vectors = [[0.25, 1.0], [1.0, 0.5], [-1.0, -0.5], [0.5, 1.0], [0.5, 0.75], [1.0, -1.0]]
    label, fold = list("aaabbb"), np.array([0, 1, 1, 0, 1, 1])
    table = Embeddings("e", vectors, list("uvwxyz"), list("uvwxyz"), label, [()] * 6, fold)
    assert (
        shared_evidence(table, "cosine", 0, memory=memory)[:, 1:, 0].tolist()
        == [[[0.0, 0.0]] * 3] * 4
    )
    found = own_scores(table, "cosine", 0, memory=memory)[1, :, :, 0]
    np.testing.assert_allclose(found[0], -found[1])
    np.testing.assert_allclose(found[0][0], -literal.a_cosine(vectors[0], vectors[4:]))


def test_the_mean_of_a_table_must_be_squarable_where_it_matters():
    table = random_corpus(51, classes=3, size=3, integers=False)
    far = dataclasses.replace(
        table, vectors=np.round(table.vectors, 1) * 1e110 + 1e120, source="far.npz"
    )
    with pytest.raises(InputError, match=r"far\.npz: embeddings: "):
        evaluate_tables(far, dataclasses.replace(SMALL, classifiers=("cosine",)))


@settings(max_examples=40)
@given(
    st.integers(2, 30),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e4]),
)
def test_the_covariance_is_scikit_learns_ledoit_wolf(count, dimensions, seed, scale):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, dimensions)) @ rng.normal(
        size=(dimensions, dimensions)
    ) + rng.normal(size=dimensions)
    mean, covariance = ledoit_wolf(scale * vectors)
    golden = LedoitWolf().fit(vectors)
    np.testing.assert_allclose(
        mean, scale * golden.location_, rtol=1e-12, atol=1e-13 * scale * np.abs(vectors).max()
    )
    np.testing.assert_allclose(
        covariance, scale**2 * golden.covariance_, rtol=0, atol=1e-7 * covariance.max()
    )


def test_whitened_vectors_have_distances_by_the_inverse_covariance():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(40, 5)) * [1.0, 2.0, 5.0, 0.1, 1.0] + 3.0
    moved = whiten(vectors)(vectors)
    inverse = np.linalg.inv(LedoitWolf().fit(vectors).covariance_)
    off = vectors[0] - vectors[1]
    assert ((moved[0] - moved[1]) ** 2).sum() == pytest.approx(off @ inverse @ off, rel=1e-6)


@pytest.mark.parametrize("vectors", [[[1.0, 2.0]], [[1.0, 2.0], [3.0, 2.0]], [[1.0, 2.0]] * 4])
def test_the_fewest_vectors_have_a_covariance_with_an_inverse(vectors):
    moved = whiten(np.array(vectors))(np.array([*vectors, [9.0, 9.0]]))
    assert np.isfinite(moved).all()
    if len(vectors) == 2:
        np.testing.assert_allclose(np.abs(moved[:2, 0]), 1.0 / np.sqrt(1.0 - 5e-9))


@EVERY
@pytest.mark.parametrize("sampler", ["distinct", "replacement"])
def test_an_episode_alone_is_the_one_of_the_sweep(name, sampler):
    table = random_corpus(4, classes=3, size=3, dimensions=3, integers=False, offset=2.0)
    protocol = dataclasses.replace(SMALL, sampler=sampler)
    scores = own_scores(table, name, 1, protocol)
    corpus = literal.Corpus(table, table.fold, 3)
    for q, row in enumerate(corpus.queries(1)):
        for draw in range(protocol.draws):
            found = rerun_episode(
                table, folds_of(table), table.segment[row], 3, draw, protocol, classifier=name
            )
            np.testing.assert_allclose(
                list(found.scores.values()), scores[2, :, q, draw], rtol=1e-9, atol=1e-9
            )


def test_an_unknown_classifier_is_answered_with_the_nearest():
    with pytest.raises(
        OptionError, match=r"no 'medoids'; did you mean medoid\? There are centroid, cosine, "
    ):
        Protocol(classifiers=("centroid", "medoids"))
    for wrong in ("centroid", (), ("centroid", "centroid")):
        with pytest.raises(OptionError, match="classifier: wanted names in a tuple, each once"):
            Protocol(classifiers=wrong)
    assert Protocol(classifiers=("medoid", "centroid")).reference == "centroid"
    assert Protocol(classifiers=("medoid", "cosine")).reference == "medoid"


@pytest.mark.parametrize("score", ["log", "softmax"])
def test_more_classifiers_add_rows_and_move_none(score):
    table = random_corpus(3, classes=4, size=3, integers=False)
    few, heard = dataclasses.replace(SMALL, score=score, whole_pool=True), []
    alone = evaluate_tables(table, few)
    result = evaluate_tables(
        table,
        dataclasses.replace(few, classifiers=("medoid", "centroid", "cl2n")),
        progress=lambda s, _: heard.append(s),
    )
    assert list(dict.fromkeys(c.classifier for c in result.curve)) == ["medoid", "centroid", "cl2n"]
    for rows in ("curve", "per_class"):
        assert [c for c in getattr(result, rows) if c.classifier == "centroid"] == getattr(
            alone, rows
        )
    assert (result.confusion, result.ties, result.notes) == (
        alone.confusion,
        alone.ties,
        alone.notes,
    )
    assert len(result.values) == 3 * len(alone.values)
    assert sum(heard) == pytest.approx(1.0)


def test_the_first_classifier_has_the_confusion_where_there_is_no_centroid():
    table = random_corpus(3, classes=4, size=3, integers=False)
    only, both = (
        evaluate_tables(table, dataclasses.replace(SMALL, classifiers=names))
        for names in (("neighbour",), ("neighbour", "cosine"))
    )
    assert only.confusion == both.confusion
    assert only.ties == both.ties


def test_the_command_takes_classifiers(tmp_path, capsys, monkeypatch):
    table = tmp_path / "mfcc.parquet"
    write_table(
        random_corpus(2, classes=4, size=3, dimensions=3, integers=False), table, corpus="herd"
    )
    few = [
        "--shots",
        "1,2",
        "--draws",
        "4",
        "--bootstraps",
        "9",
        "--shared-draws",
        "6",
        "--no-figure",
        "--quiet",
    ]
    words = ["callshot", "evaluate", str(table), "--out", str(tmp_path / "out"), *few]
    monkeypatch.setattr(
        sys, "argv", [*words, "--classifier", "whitened", "--classifier", "neighbour"]
    )
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    with (tmp_path / "out" / "curve.csv").open(encoding="utf-8", newline="") as lines:
        assert {row["classifier"] for row in csv.DictReader(lines)} == {"whitened", "neighbour"}
    monkeypatch.setattr(sys, "argv", [*words, "--classifier", "neighbor"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "did you mean neighbour?" in capsys.readouterr().err


def _segment_of(table, row):
    """Return the id of a row of the episodes."""
    folds = folds_of(table)
    classes = {c.label for c in count_classes(table.label, folds) if c.eligible}
    return sorted(
        (name, i) for name, i in zip(table.label, table.segment, strict=True) if name in classes
    )[row][1]


def test_rules_are_shown_apart_and_the_reference_keeps_its_encoders_name():
    table = random_corpus(3, classes=3, size=2)
    protocol = Protocol(
        shots=(1, 2), draws=3, bootstraps=10, shared_draws=5, classifiers=("centroid", "cosine")
    )
    found = evaluate_tables(table, protocol, folds=folds_of(table))
    shown = found.apart(protocol.reference)
    assert {(c.encoder, c.classifier) for c in shown.curve} == {
        ("test", "centroid"),
        ("test, cosine", "cosine"),
    }
    assert [c.mean for c in shown.curve] == [c.mean for c in found.curve]
