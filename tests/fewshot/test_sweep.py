"""The engine against the literal transcription of Algorithm 1 (tests/literal.py)."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import literal
from callshot.fewshot import engine as engine_module
from callshot.fewshot import per_query_resampling
from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes, split
from callshot.fewshot.folds import count_classes
from callshot.fewshot.metrics import expected_auroc
from callshot.fewshot.per_query_resampling import score_own, sweep_per_query
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.summary import chance_levels
from callshot.fewshot.sweep import sweep
from corpora import corpora, folds_of, random_corpus

QUICK = settings(
    max_examples=settings().max_examples // 5,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate],  # the twin is too slow to shrink with
)
SMALL = Protocol(shots=(1, 2, 4), draws=3, bootstraps=7, shared_draws=5)
protocols = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    sampler=st.sampled_from(["distinct", "replacement"]),
    score=st.sampled_from(["log", "softmax"]),
    seed=st.integers(0, 3),
)


def engine_for(table, protocol=SMALL, *, threads=1, memory=2**30):
    folds = folds_of(table)
    return open_engine(
        plan_episodes(table, folds, count_classes(table.label, folds)), protocol, threads, memory
    )


def run(table, protocol, spread, **options):
    with engine_for(table, protocol, **options) as engine:
        return sweep(engine, spread)


def pool_sizes(corpus):
    """Return how many exemplars each class has outside each fold."""
    return {
        sum(corpus.fold[m] != f for m in rows)
        for rows in corpus.members.values()
        for f in range(corpus.folds)
    }


@QUICK
@given(table=corpora(), protocol=protocols, memory=st.sampled_from([0, 2**30]))
def test_end_to_end_equals_the_literal_algorithm_on_whole_numbers_and_powers_of_two(
    table, protocol, memory
):
    corpus = literal.Corpus(table, table.fold, folds_of(table).count)
    assume(
        protocol.sampler == "replacement" or 3 not in pool_sizes(corpus)
    )  # thirds are not exact in floats
    for spread, twin in (
        ("per-query", literal.per_query_values),
        ("shared", literal.shared_values),
    ):
        k, tally = run(table, protocol, spread, memory=memory)
        assert k.tolist() == [1, 2, 4]
        for s, shots in enumerate(k.tolist()):
            for metric, wanted in twin(corpus, protocol, shots).items():
                np.testing.assert_allclose(
                    tally.values["all", metric][s], wanted, rtol=0, atol=1e-12
                )


def test_sorting_every_sample_gives_the_same_values_as_counting(monkeypatch):
    for seed in range(8):
        table = random_corpus(
            seed, classes=4, size=4, values=3, integers=seed % 2 == 0, dimensions=2
        )
        _, counted = run(table, SMALL, "per-query")
        with monkeypatch.context() as patch:
            patch.setattr(per_query_resampling, "MANY", 0)
            _, by_sort = run(table, SMALL, "per-query")
        for key, values in counted.values.items():
            np.testing.assert_allclose(by_sort.values[key], values, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(by_sort.tied, counted.tied)


@QUICK
@given(table=corpora(values=3, classes=4), protocol=protocols)
def test_the_same_scores_give_the_same_bootstrap_values_as_scikit_learn(table, protocol):
    engine = engine_for(table, protocol)
    episodes, shots = engine.episodes, np.array(protocol.shots)
    tally = MetricSums(len(shots), protocol.bootstraps, episodes.classes, None)
    for number in range(episodes.folds):
        part = split(episodes, number)
        scores, _ = score_own(engine, part, shots, tally.decisions)
        corpus = literal.Corpus(table, table.fold, episodes.folds)
        queries = corpus.queries(number)
        picks = [
            [literal.pick(protocol.seed, table.segment[i], b, protocol.draws) for i in queries]
            for b in range(7)
        ]
        one = MetricSums(3, protocol.bootstraps, episodes.classes, None)
        sweep_per_query(engine, part, shots, one)
        for s in range(3):
            for b in range(7):
                table_b = scores[s][:, np.arange(len(queries)), picks[b]].T
                ap, auroc = literal.metrics(table_b, part.relevant.T)
                np.testing.assert_allclose(one.per_class["map"][s, :, b], ap, rtol=0, atol=1e-12)
                np.testing.assert_allclose(
                    one.per_class["auroc"][s, :, b], np.nan_to_num(auroc), rtol=0, atol=1e-12
                )
    engine.threads.shutdown()


@pytest.mark.parametrize("memory", [0, 2**30], ids=["directly", "by Gram matrix"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (5.0, 500.0), (1e-3, 7.0), (1e4, -3e4)])
def test_scores_of_the_same_draws_are_within_the_bound(scale, offset, memory):
    table = random_corpus(
        3, classes=3, size=3, dimensions=12, integers=False, scale=scale, offset=offset
    )
    table = dataclasses.replace(table, vectors=table.vectors.astype(np.float32))
    protocol = dataclasses.replace(SMALL, shots=(1, 2, 3, 5), draws=4)
    engine = engine_for(table, protocol, memory=memory)
    episodes = engine.episodes
    corpus = literal.Corpus(table, table.fold, episodes.folds)
    for number in range(episodes.folds):
        part = split(episodes, number)
        seen = a_of_engine(engine, part)
        for q, i in enumerate(corpus.queries(number)):
            for r in range(protocol.draws):
                for s, k in enumerate(protocol.shots):
                    exact, distance = [], []
                    for c in corpus.classes:
                        pool = [m for m in corpus.members[c] if corpus.fold[m] != number]
                        rows = literal.draw_own(
                            protocol.seed, table.segment[i], r, c, pool, k, "distinct"
                        )
                        support = [table.vectors[m] for m in rows]
                        exact.append(literal.a_exact(table.vectors[i], support))
                        centre = np.mean(np.array(support, np.float64), axis=0)
                        distance.append(np.sum((table.vectors[i] - centre) ** 2))
                    got = (
                        seen[s, :, q, r] - seen[s, 0, q, r]
                    )  # a common shift is free: it cancels in every score
                    error = [abs(float(a - exact[0]) - x) for a, x in zip(exact, got, strict=True)]
                    assert max(error) <= 2e-6 * max(distance)
    engine.threads.shutdown()


def a_of_engine(engine, part):
    """Return a_n (shots, classes, queries, draws), before any score is taken."""
    shots = np.array(engine.protocol.shots)
    out = np.empty(
        (len(shots), len(engine.episodes.classes), len(part.rows), engine.protocol.draws)
    )
    per_query_resampling._filler(engine, part, shots, out)(0, len(part.rows))
    return out


def test_more_shots_more_bootstraps_and_more_draws_leave_the_earlier_values_alone():
    table = random_corpus(11, classes=4, size=3)
    for spread in ("per-query", "shared"):
        _, less = run(table, SMALL, spread)
        longer = dataclasses.replace(SMALL, shots=(1, 2, 3, 4, 6), bootstraps=300, shared_draws=9)
        _, more = run(table, longer, spread)
        for key, values in less.values.items():
            np.testing.assert_array_equal(values, more.values[key][[0, 1, 3], : values.shape[1]])


def test_blocks_of_shots_and_the_order_of_rows_cannot_be_seen():
    table = random_corpus(12, classes=4, size=3, integers=False)
    turned = [
        dataclasses.replace(
            table,
            **{
                c: list(getattr(table, c))[::-1]
                for c in ("segment", "recording", "label", "labels")
            },
            vectors=table.vectors[::-1],
            fold=table.fold[::-1],
        )
    ][0]
    for spread in ("per-query", "shared"):
        _, whole = run(table, SMALL, spread)
        _, other = run(turned, SMALL, spread)
        for key in whole.values:
            np.testing.assert_array_equal(whole.values[key], other.values[key])


def test_folds_may_be_renumbered_without_moving_a_draw():
    table = random_corpus(13, classes=3, folds=3, size=3)
    renumbered = dataclasses.replace(table, fold=np.where(table.fold < 0, -1, (table.fold + 1) % 3))
    for spread in ("per-query", "shared"):
        _, one = run(table, SMALL, spread)
        _, two = run(renumbered, SMALL, spread)
        np.testing.assert_allclose(
            one.values["all", "map"], two.values["all", "map"], rtol=0, atol=1e-15
        )


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_the_number_of_threads_cannot_be_seen(spread):
    table = random_corpus(14, classes=5, size=6, dimensions=8, integers=False)
    protocol = Protocol(shots=(1, 2, 3, 7), draws=9, bootstraps=300, shared_draws=50)
    runs = [run(table, protocol, spread, threads=n)[1] for n in (1, 2, 4)]
    for key in runs[0].values:
        np.testing.assert_array_equal(runs[0].values[key], runs[1].values[key])
        np.testing.assert_array_equal(runs[0].values[key], runs[2].values[key])
    np.testing.assert_array_equal(runs[0].decisions, runs[2].decisions)


@pytest.mark.parametrize("seed", range(4))
def test_the_bootstrap_mean_of_auroc_meets_its_closed_form(seed):
    table = random_corpus(seed, classes=4, size=5, dimensions=3, integers=False)
    protocol = Protocol(shots=(1, 3), draws=20, bootstraps=4000)
    engine = engine_for(table, protocol)
    _, tally = sweep(engine, "per-query")
    expected = []
    for number in range(engine.episodes.folds):
        part = split(engine.episodes, number)
        spare = MetricSums(2, 1, engine.episodes.classes, None)
        scores, _ = score_own(engine, part, np.array([1, 3]), spare.decisions)
        defined = [n for n in range(len(engine.episodes.classes)) if not part.relevant[n].all()]
        expected.append(
            [[expected_auroc(scores[s, n], part.relevant[n]) for n in defined] for s in range(2)]
        )
    for s in range(2):
        values = tally.values["all", "auroc"][s]
        wanted = np.mean([np.mean(fold[s]) for fold in expected])
        assert abs(values.mean() - wanted) <= 4 * values.std() / np.sqrt(len(values)) + 1e-12
    engine.threads.shutdown()


def test_separated_classes_score_one_in_every_metric_spread_and_score():
    table = random_corpus(5, classes=3, size=4, dimensions=3, integers=False, scale=0.01)
    label = np.array([int(name[1]) for name in table.label])
    table = dataclasses.replace(
        table, vectors=table.vectors + 10.0 * np.eye(3)[label], labels=[()] * len(table)
    )
    for score in ("log", "softmax"):
        for spread in ("per-query", "shared"):
            _, tally = run(table, dataclasses.replace(SMALL, score=score), spread)
            for values in tally.values.values():
                np.testing.assert_array_equal(values, 1.0)


def test_noise_scores_chance_on_average_over_corpora():
    values = {("per-query", m): [] for m in ("map", "auroc")} | {
        ("shared", m): [] for m in ("map", "auroc")
    }
    for seed in range(60):
        table = random_corpus(1000 + seed, classes=3, folds=3, size=4, dimensions=6, integers=False)
        for spread in ("per-query", "shared"):
            engine = engine_for(table, dataclasses.replace(SMALL, bootstraps=50, shared_draws=20))
            _, tally = sweep(engine, spread)
            engine.threads.shutdown()
            chance = chance_levels(engine.episodes, tally)
            for metric in ("map", "auroc"):
                values[spread, metric].append(
                    tally.values["all", metric].mean() - chance["all", metric]
                )
    for found in values.values():
        assert abs(np.mean(found)) <= 4 * np.std(found) / np.sqrt(len(found))


def test_the_whole_pool_is_the_limit_of_a_long_sweep():
    table = random_corpus(21, classes=3, size=3, integers=False)
    protocol = Protocol(shots=(1, 50), whole_pool=True, draws=4, bootstraps=6, shared_draws=3)
    for spread in ("per-query", "shared"):
        k, tally = run(table, protocol, spread)
        largest = max(np.bincount([int(x[1]) for x in table.label]))
        assert k[2] <= largest
        for values in tally.values.values():
            np.testing.assert_allclose(values[1], values[2], rtol=0, atol=1e-12)


@pytest.mark.parametrize("many", [per_query_resampling.MANY, 0], ids=["counted", "sorted"])
def test_large_codes_take_the_wide_path_and_give_the_same_values(many, monkeypatch):
    monkeypatch.setattr(per_query_resampling, "MANY", many)
    table = random_corpus(31, classes=2, folds=2, size=40, dimensions=4, integers=False)
    wide = Protocol(shots=(2,), draws=700, bootstraps=20)
    engine = engine_for(table, wide)
    part = split(engine.episodes, 0)
    one = MetricSums(1, 20, engine.episodes.classes, None)
    scores, _ = score_own(engine, part, np.array([2]), one.decisions)
    sweep_per_query(engine, part, np.array([2]), one)
    corpus = literal.Corpus(table, table.fold, 2)
    queries = corpus.queries(0)
    for b in range(20):
        r = [literal.pick(0, table.segment[i], b, 700) for i in queries]
        ap, auroc = literal.metrics(scores[0][:, np.arange(len(queries)), r].T, part.relevant.T)
        np.testing.assert_allclose(one.per_class["map"][0, :, b], ap, rtol=0, atol=1e-12)
        np.testing.assert_allclose(
            one.per_class["auroc"][0, :, b], np.nan_to_num(auroc), rtol=0, atol=1e-12
        )
    engine.threads.shutdown()


def repeat_vectors(table, seed=0):
    """Let every vector stand several times, under whatever labels."""
    rng = np.random.default_rng(seed)
    return dataclasses.replace(
        table, vectors=table.vectors[rng.integers(0, len(table) // 3, len(table))]
    )


@pytest.mark.parametrize("memory", [0, 2**30], ids=["directly", "by Gram matrix"])
def test_a_support_that_is_the_whole_pool_is_one_set_also_where_vectors_repeat(memory):
    table = repeat_vectors(random_corpus(22, classes=3, size=5, integers=False, dimensions=37))
    protocol = Protocol(shots=(1, 90), whole_pool=True, draws=20, bootstraps=30, shared_draws=30)
    for spread in ("per-query", "shared"):
        _, tally = run(table, protocol, spread, memory=memory)
        for values in tally.values.values():
            assert np.ptp(values[1]) == 0
            np.testing.assert_allclose(values[1], values[2], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(tally.tied[1], tally.tied[2])


def test_repeated_vectors_tie_with_and_without_the_gram_matrix():
    table = repeat_vectors(
        random_corpus(23, classes=3, folds=3, size=20, integers=False, dimensions=129)
    )
    for spread in ("per-query", "shared"):
        _, usual = run(table, SMALL, spread)
        _, tight = run(table, SMALL, spread, memory=0)
        np.testing.assert_array_equal(usual.tied, tight.tied)
        for key, values in usual.values.items():
            np.testing.assert_allclose(values, tight.values[key], rtol=0, atol=1e-12)
    assert usual.tied.sum() > 0


def test_far_from_the_origin_only_centred_vectors_keep_the_bound():
    near = random_corpus(24, classes=3, size=4, integers=False, dimensions=8)
    far = dataclasses.replace(near, vectors=np.rint(near.vectors * 64) / 64 + 2.0**33)
    still = dataclasses.replace(near, vectors=np.rint(near.vectors * 64) / 64)
    for spread in ("per-query", "shared"):
        _, one = run(far, SMALL, spread)
        _, two = run(still, SMALL, spread)
        np.testing.assert_allclose(
            one.values["all", "map"], two.values["all", "map"], rtol=0, atol=1e-12
        )


def test_several_blocks_of_shots_give_what_one_does(monkeypatch):
    table = random_corpus(25, classes=3, size=4, integers=False, dimensions=4)
    protocol = Protocol(shots=(1, 2, 3, 5, 8), draws=4, bootstraps=9)
    _, whole = run(table, protocol, "per-query")
    monkeypatch.setattr(
        per_query_resampling, "blocks", lambda total, size: engine_module.blocks(total, 2)
    )
    _, cut = run(table, protocol, "per-query")
    for key, values in whole.values.items():
        np.testing.assert_array_equal(values, cut.values[key])
    np.testing.assert_array_equal(whole.decisions, cut.decisions)


def test_the_row_all_counts_ties_and_decisions_as_every_draw_would():
    table = repeat_vectors(random_corpus(26, classes=3, size=4, integers=False))
    protocol = Protocol(shots=(90,), whole_pool=True, draws=7, bootstraps=5, shared_draws=6)
    for spread in ("per-query", "shared"):
        k, tally = run(table, protocol, spread)
        np.testing.assert_allclose(tally.decisions[0], tally.decisions[1])
        np.testing.assert_array_equal(tally.tied[0], tally.tied[1])
        corpus = literal.Corpus(table, table.fold, folds_of(table).count)
        assert k[1] == max(pool_sizes(corpus))


def test_ties_are_those_of_positives_with_other_queries():
    table = random_corpus(27, classes=3, folds=2, size=4, values=2, dimensions=2)
    protocol = dataclasses.replace(SMALL, shots=(1,))
    corpus = literal.Corpus(table, table.fold, 2)
    wanted = np.zeros((2, len(corpus.classes)), int)
    for f in range(2):
        relevant = corpus.relevant(f)
        scores, _ = literal.own_scores(corpus, protocol, 1, f)
        for q in range(len(scores)):
            others = np.delete(scores, q, axis=0)
            for n in np.flatnonzero(relevant[q]):
                wanted[0, n] += sum(bool((others[:, :, n] == x).any()) for x in scores[q, :, n])
        for draw in range(protocol.shared_draws):
            one, _ = literal.shared_scores(corpus, protocol, 1, f, draw)
            for q in range(len(one)):
                for n in np.flatnonzero(relevant[q]):
                    wanted[1, n] += bool((np.delete(one[:, n], q) == one[q, n]).any())
    for spread, found in zip(("per-query", "shared"), wanted, strict=True):
        assert run(table, protocol, spread)[1].tied[0].tolist() == found.tolist()


def test_per_class_values_and_chance_are_the_literal_ones():
    table = random_corpus(28, classes=3, folds=2, size=4, integers=False)
    table = dataclasses.replace(
        table,
        labels=[
            ("c0", "c1") if f == 0 else names
            for f, names in zip(table.fold, table.labels, strict=True)
        ],
    )
    protocol = dataclasses.replace(SMALL, shots=(2,))
    with engine_for(table, protocol) as engine:
        _, tally = sweep(engine, "shared", {"c0": "low", "c1": "low", "c2": "high"})
        chance = chance_levels(engine.episodes, tally)
    corpus = literal.Corpus(table, table.fold, 2)
    own = {
        m: np.zeros((len(corpus.classes), protocol.shared_draws, 2))
        for m in ("map", "auroc", "accuracy")
    }
    for f in range(2):
        relevant, label = corpus.relevant(f), [table.label[i] for i in corpus.queries(f)]
        for draw in range(protocol.shared_draws):
            scores, decided = literal.shared_scores(corpus, protocol, 2, f, draw, literal.a_float)
            own["map"][:, draw, f], own["auroc"][:, draw, f] = literal.metrics(scores, relevant)
            hit = np.array([relevant[q, d] for q, d in enumerate(decided)])
            own["accuracy"][:, draw, f] = [
                hit[[name == c for name in label]].mean() for c in corpus.classes
            ]
    for metric, values in own.items():
        np.testing.assert_allclose(
            tally.per_class[metric][0], np.nanmean(values, axis=2), rtol=0, atol=1e-9
        )
    groups = [
        [n for n, c in enumerate(corpus.classes) if c in names] for names in (("c2",), ("c0", "c1"))
    ]
    for metric in ("map", "auroc"):
        by_fold = [
            np.mean(
                [
                    np.nanmean(own[metric][g, :, f], axis=0)
                    for g in groups
                    if not np.isnan(own[metric][g, 0, f]).all()
                ],
                axis=0,
            )
            for f in range(2)
        ]
        np.testing.assert_allclose(
            tally.values["reduced", metric][0], np.mean(by_fold, axis=0), rtol=0, atol=1e-9
        )
    shares = [corpus.relevant(f).sum() / corpus.relevant(f).size for f in range(2)]
    assert chance["all", "accuracy"] == pytest.approx(np.mean(shares))
