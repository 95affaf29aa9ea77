import pytest

from callshot import Protocol, rerun_episode
from callshot.records import Episode
from callshot.report.figures.episode import MAX_ROWS, ExampleEpisode, choose_episode
from corpus_results import make_corpus_results, make_tables

FEW = Protocol(shots=(1, 2, 5), draws=3, bootstraps=5, shared_draws=5, total_samples=5)


@pytest.fixture(scope="module")
def results():
    tables = make_tables(encoders={"bad": 0.0, "good": 9.0})
    return make_corpus_results(tables, protocol=FEW)


def test_the_example_is_a_real_episode_of_the_best_encoder(results):
    example = choose_episode(results, FEW)
    episode = example.episode
    folds = results.evaluation.folds
    assert example.encoder == "good"
    assert example.is_correct
    assert episode.k == 2  # the largest evaluated k up to 3
    assert episode == rerun_episode(
        results.tables[1], folds, episode.segment, 2, 0, FEW
    )
    assert example.decision == max(
        episode.scores, key=lambda name: episode.scores[name]
    )


def test_the_rows_of_the_example_count_segments_and_drawn_exemplars_by_fold(results):
    example = choose_episode(results, FEW)
    folds = results.evaluation.folds
    table = results.tables[1]
    numbers = (*range(folds.count), -1)
    for label, segments in example.segments.items():
        is_label = [name == label for name in table.label]
        fold = folds.fold[is_label].tolist()
        assert segments == tuple(fold.count(number) for number in numbers)
        support = example.episode.support[label]
        drawn = [folds.fold[table.segment.index(segment)] for segment in support]
        assert example.drawn[label] == tuple(drawn.count(number) for number in numbers)
        assert example.drawn[label][example.fold] == 0


def test_another_seed_shows_another_draw(results):
    support = choose_episode(results, Protocol(seed=0)).episode.support
    assert choose_episode(results, Protocol(seed=1)).episode.support != support


def test_of_many_classes_those_of_the_query_the_best_and_the_rarest_are_shown():
    tables = make_tables(
        [f"call {i:02}" for i in range(27)], {"e": 3.0}, recordings=5, each=1
    )
    results = make_corpus_results(tables, protocol=FEW)
    example = choose_episode(results, FEW)
    shown = list(example.segments)
    assert len(shown) == MAX_ROWS
    assert {example.labels[0], example.decision} <= set(shown)
    assert [count.label for count in results.evaluation.classes][-2:] == shown[-2:]
    assert example.classes == 27


def test_of_equal_scores_the_first_by_name_decides():
    episode = Episode("query", 1, 0, {}, {"s": 0.5, "r": 0.5, "a": 0.2})
    assert ExampleEpisode("e", episode, ["s"], 0, {}, {}, 3).decision == "r"
