import numpy as np
import pytest

import literal
from callshot.errors import InputError, OptionError
from callshot.fewshot import reference
from callshot.fewshot.evaluate import rerun_episode
from callshot.fewshot.protocol import Protocol
from corpora import episodes_of, folds_of, random_corpus


@pytest.mark.parametrize(
    ("spread", "sampler", "classifier", "score"),
    [
        ("per-query", "distinct", "centroid", "softmax"),
        ("per-query", "replacement", "whitened", "log"),
        ("shared", "replacement", "cosine", "softmax"),
        ("shared", "distinct", "medoid", "log"),
        ("per-query", "distinct", "ridge", "log"),
    ],
)
def test_an_episode_has_the_support_and_the_scores_of_the_reference(
    spread, sampler, classifier, score
):
    table = random_corpus(4, size=3, dimensions=3, integers=False, offset=2.0)
    protocol = Protocol(
        draws=2, shared_draws=2, total_samples=2, sampler=sampler, score=score
    )
    episodes = episodes_of(table)
    rule = literal.RULES[classifier]
    scores = reference.score_fold(episodes, protocol, spread, 3, 1, rule)
    for q, row in enumerate(np.flatnonzero(episodes.fold == 1)):
        segment = episodes.segment[row]
        for draw in range(2):
            inputs = (segment, 3, draw, protocol, spread, classifier)
            episode = rerun_episode(table, folds_of(table), *inputs)
            values = list(episode.scores.values())
            expected = scores[q, draw, :-1]
            np.testing.assert_allclose(values, expected, rtol=1e-9, atol=1e-9)
            for n, segments in enumerate(episode.support.values()):
                golden = reference.draw_support(
                    episodes, protocol, spread, row, draw, n, 3
                )
                assert set(segments) == {episodes.segment[i] for i in golden}


def test_a_segment_that_is_no_query_has_no_episode():
    table = random_corpus(4, size=3)
    folds = folds_of(table)
    with pytest.raises(OptionError, match="k: expected 1 or more, got 0"):
        rerun_episode(table, folds, table.segment[0], 0, 0, Protocol())
    common = table.segment[int(np.flatnonzero(table.fold < 0)[0])]
    for segment in ("nobody", common):
        with pytest.raises(InputError, match="is no query"):
            rerun_episode(table, folds, segment, 1, 0, Protocol())
