import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from callshot import Embeddings, Protocol, rerun_episode
from callshot.records import Episode
from callshot.report.figures.example_episode import ROWS, choose_scene, decide
from callshot.report.figures.figure_io import FigurePage, blank, freeze, render
from callshot.report.figures.inset import density
from callshot.report.figures.label_placement import place_names
from callshot.report.figures.projection import make_map, principal_plane
from callshot.report.figures.style import series
from corpus_results import make_corpus_results, make_tables

FEW = Protocol(shots=(1, 2, 5), draws=3, bootstraps=5, shared_draws=5)


@pytest.mark.parametrize("shape", [(40, 5), (7, 30), (3, 3)])
def test_the_plane_is_that_of_a_singular_value_decomposition(shape):
    vectors = np.random.default_rng(0).normal(size=shape) * np.linspace(3, 1, shape[1])
    points, shares = principal_plane(vectors)
    u, s, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(points), np.abs(u[:, :2] * s[:2]))
    assert np.allclose(shares, s[:2] ** 2 / (s**2).sum())


@given(arrays(np.float64, (6, 3), elements=st.integers(-50, 50)), st.permutations(range(3)))
def test_neither_the_sign_nor_the_order_of_dimensions_turns_the_plane(vectors, order):
    squares = np.linalg.eigvalsh(np.cov(vectors.T))
    points, shares = principal_plane(vectors)
    other, _ = principal_plane(-vectors[:, order])
    assert 0 <= shares[1] <= shares[0] <= 1 + 1e-9
    farthest = np.sort(np.abs(points), axis=0)
    if (
        np.diff(squares).min() > 1 and (farthest[-1] - farthest[-2]).min() > 1e-6
    ):  # else axes are a matter of taste
        assert np.allclose(points, -other * np.sign((points * -other).sum(axis=0)), atol=1e-6)
        assert (points[np.abs(points).argmax(axis=0), (0, 1)] > 0).all()


@pytest.mark.parametrize(
    "vectors", [np.ones((4, 3)), np.zeros((1, 1)), np.array([[1.0], [2.0], [4.0]])]
)
def test_vectors_of_one_dimension_or_none_have_a_plane_too(vectors):
    points, shares = principal_plane(vectors)
    assert points.shape == (len(vectors), 2)
    assert np.isfinite(points).all()
    assert shares[1] == 0


def test_a_centroid_is_the_mean_of_its_label_and_other_labels_have_none():
    table = Embeddings(
        "e", [[0.0, 1], [2, 1], [8, 0], [9, 9]], "abcd", "abcd", ["x", "x", "y", "rare"], [()] * 4
    )
    one = make_map(table, ["y", "x"])
    assert one.label.tolist() == [1, 1, 0, -1]
    assert np.allclose(one.centroids, [one.points[2], one.points[:2].mean(axis=0)])


def test_a_density_is_that_of_a_literal_sum_between_the_percentiles():
    values = np.random.default_rng(0).normal(0.5, 0.1, 300)
    levels, height = density(values)
    assert np.allclose(levels[[0, -1]], np.percentile(values, (1, 99)))
    width = values.std() * 300**-0.2
    bell = sum(np.exp(-(((levels[40] - v) / width) ** 2) / 2) for v in values) / (
        300 * width * np.sqrt(2 * np.pi)
    )
    assert height[40] == pytest.approx(bell)
    assert 0.95 < np.trapezoid(height, levels) < 1


@pytest.mark.parametrize("values", [np.full(9, 0.5), np.full(9, np.nan), np.array([1.0])])
def test_values_that_do_not_spread_have_no_density(values):
    assert len(density(values)[0]) == 0


def test_names_on_one_spot_are_written_around_it():
    from matplotlib.text import Text

    with blank() as figure:
        at = figure.subplots()
        freeze(figure)
        place_names(at, np.full((30, 2), 0.5), [str(i) for i in range(30)], 7)
        figure.draw_without_rendering()
        boxes = [Text.get_window_extent(text) for text in at.texts]  # without the lines
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_the_scene_is_a_real_episode_of_the_best_encoder():
    corpus_results = make_corpus_results(
        make_tables(encoders={"bad": 0.0, "good": 9.0}), protocol=FEW
    )
    scene = choose_scene(corpus_results, FEW)
    folds, episode = corpus_results.evaluation.folds, scene.episode
    assert scene.encoder == "good"
    assert scene.right
    assert episode.k == 2  # the most that is a few
    assert episode == rerun_episode(corpus_results.tables[1], folds, episode.segment, 2, 0, FEW)
    assert scene.decision == max(episode.scores, key=lambda name: episode.scores[name])
    table = corpus_results.tables[1]
    for row in scene.rows:
        own = [
            f for f, name in zip(folds.fold.tolist(), table.label, strict=True) if name == row.label
        ]
        assert row.segments == tuple(own.count(f) for f in (*range(folds.count), -1))
        drawn = [folds.fold[table.segment.index(segment)] for segment in episode.support[row.label]]
        assert row.drawn == tuple(drawn.count(f) for f in (*range(folds.count), -1))
        assert row.drawn[scene.fold] == 0


def test_a_right_decision_is_shown_where_there_is_one():
    corpus_results = make_corpus_results(make_tables(encoders={"poor": 0.3}), protocol=FEW)
    assert choose_scene(corpus_results, FEW).right


def test_another_seed_shows_another_draw():
    corpus_results = make_corpus_results(protocol=FEW)
    one, other = (
        choose_scene(corpus_results, Protocol(seed=seed)).episode.support for seed in (0, 1)
    )
    assert one != other


def test_of_many_classes_the_query_s_the_best_and_the_rarest_are_shown():
    tables = make_tables([f"call {i:02}" for i in range(27)], {"e": 3.0}, recordings=5, each=1)
    corpus_results = make_corpus_results(tables, protocol=FEW)
    scene = choose_scene(corpus_results, FEW)
    shown = [row.label for row in scene.rows]
    assert len(shown) == ROWS
    assert {scene.label, scene.decision} <= set(shown)
    assert [c.label for c in corpus_results.evaluation.classes][-2:] == shown[-2:]
    assert scene.classes == 27


def test_of_equal_scores_the_first_by_name_decides():
    assert decide(Episode("query", 1, 0, {}, {"s": 0.5, "r": 0.5, "a": 0.2})) == "r"


def test_a_picture_is_small_and_looks_as_it_was_drawn(tmp_path):
    from PIL import Image

    def compose(figure):
        figure.set_size_inches(4, 3)
        at = figure.subplots()
        for n in range(4):
            at.plot(range(9), [n + i % 3 for i in range(9)], **series(n))
        at.imshow([[i / 99 for i in range(100)]], extent=(0, 8, 6, 8), cmap="Blues", aspect="auto")

    path = next(p for p in render(FigurePage("p", compose), tmp_path) if p.suffix == ".png")
    with blank() as figure:
        compose(figure)
        figure.savefig(tmp_path / "whole.png")
    with Image.open(path) as small, Image.open(tmp_path / "whole.png") as large:
        drawn, whole = (np.asarray(one.convert("RGB")).astype(int) for one in (small, large))
        assert small.info["Software"] == "callshot"
    off = np.abs(drawn - whole).max(axis=2)
    assert drawn[0, 0].tolist() == [255, 255, 255]
    assert off.max() <= 24  # of 255
    assert np.mean(off > 6) < 0.01
    assert path.stat().st_size < 0.6 * (tmp_path / "whole.png").stat().st_size
