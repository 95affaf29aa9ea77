import numpy as np
import pytest

from callshot.errors import InputError, OptionError
from callshot.fewshot import reference
from callshot.fewshot.evaluate import rerun_episode
from callshot.fewshot.protocol import Protocol
from corpora import episodes_of, folds_of, random_corpus


@pytest.mark.parametrize("score", ["log", "softmax"])
@pytest.mark.parametrize("sampler", ["distinct", "replacement"])
@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_an_episode_has_the_support_and_the_scores_of_the_reference(
    spread, sampler, score
):
    table = random_corpus(4, classes=3, size=3, dimensions=3, integers=False)
    protocol = Protocol(
        draws=2, shared_draws=2, total_samples=2, sampler=sampler, score=score
    )
    episodes = episodes_of(table)
    scores = reference.score_fold(episodes, protocol, spread, 3, 1)
    for q, row in enumerate(np.flatnonzero(episodes.fold == 1)):
        segment = episodes.segment[row]
        for draw in range(2):
            episode = rerun_episode(
                table, folds_of(table), segment, 3, draw, protocol, spread
            )
            values = list(episode.scores.values())
            np.testing.assert_allclose(
                values, scores[q, draw, :-1], rtol=1e-9, atol=1e-9
            )
            for n, segments in enumerate(episode.support.values()):
                golden = reference.draw_support(
                    episodes, protocol, spread, row, draw, n, 3
                )
                assert set(segments) == {episodes.segment[i] for i in golden}


def test_a_segment_that_is_no_query_has_no_episode():
    table = random_corpus(4, classes=3, size=3)
    folds = folds_of(table)
    with pytest.raises(InputError, match="is no query"):
        rerun_episode(table, folds, "nobody", 1, 0, Protocol())
    with pytest.raises(OptionError, match="k: expected 1 or more, got 0"):
        rerun_episode(table, folds, table.segment[0], 0, 0, Protocol())
    common = table.segment[int(np.flatnonzero(table.fold < 0)[0])]
    with pytest.raises(InputError, match="is no query"):
        rerun_episode(table, folds, common, 1, 0, Protocol())
