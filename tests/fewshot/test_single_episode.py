import dataclasses

import numpy as np
import pytest

import literal
from callshot.errors import InputError, OptionError
from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes, split
from callshot.fewshot.folds import count_classes
from callshot.fewshot.per_query_resampling import score_own
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.single_episode import rerun_episode
from corpora import folds_of, random_corpus


@pytest.mark.parametrize("sampler", ["distinct", "replacement"])
def test_an_episode_alone_is_the_one_of_the_sweep(sampler):
    table = random_corpus(4, classes=3, size=3, dimensions=3, integers=False)
    folds, protocol = folds_of(table), Protocol(shots=(1, 3), draws=4, sampler=sampler)
    episodes = plan_episodes(table, folds, count_classes(table.label, folds))
    engine = open_engine(episodes, protocol, 1, 2**30)
    corpus = literal.Corpus(table, table.fold, folds.count)
    part = split(episodes, 1)
    scores, _ = score_own(
        engine, part, np.array([1, 3]), MetricSums(2, 1, episodes.classes, None).decisions
    )
    for q, row in enumerate(corpus.queries(1)):
        for draw in range(4):
            found = rerun_episode(table, folds, table.segment[row], 3, draw, protocol)
            np.testing.assert_allclose(
                list(found.scores.values()), scores[1, :, q, draw], rtol=1e-9, atol=1e-9
            )
    engine.threads.shutdown()


def test_shared_supports_of_two_folds_are_nearly_one_set():
    table = random_corpus(4, classes=3, size=3, dimensions=3, integers=False)
    folds = folds_of(table)
    corpus = literal.Corpus(table, table.fold, folds.count)
    for draw in range(5):
        row = corpus.queries(0)[0]
        found = rerun_episode(table, folds, table.segment[row], 2, draw, Protocol(), "shared")
        for name, segments in found.support.items():
            members = corpus.members[name]
            wanted = literal.draw_shared(
                0, draw, name, members, lambda m: corpus.fold[m] != 0, 2, "distinct"
            )
            assert segments == tuple(table.segment[m] for m in wanted)


def test_what_is_no_query_has_no_episode():
    table = random_corpus(4, classes=3, size=3)
    folds = folds_of(table)
    with pytest.raises(InputError, match="no segment is called"):
        rerun_episode(table, folds, "nobody", 1, 0, Protocol())
    with pytest.raises(OptionError, match="k ≥ 1"):
        rerun_episode(table, folds, table.segment[0], 0, 0, Protocol())
    common = dataclasses.replace(table)
    apart = next(s for s, f in zip(common.segment, table.fold, strict=True) if f < 0)
    with pytest.raises(InputError, match="is no query"):
        rerun_episode(table, folds, apart, 1, 0, Protocol())
