from dataclasses import replace

import matplotlib as mpl
import numpy as np
import polars as pl
import pytest

from callshot.report.figures.against_k import density, draw_sweep, sweep_page
from callshot.report.figures.figure_io import open_figure
from corpus_results import make_baselines
from report.figures.made_up_results import (
    legend_texts,
    line_values,
    make_results,
    panel_titles,
)

PDF = b"%PDF-1."
PNG = b"\x89PNG\r\n\x1a\n"


def make_evaluation(
    shots=(1, 2, 3), encoders=("mfcc",), spreads=("per-query", "shared"), complete=2
):
    results = make_results(("rumble", "roar"), encoders, shots, spreads=spreads)
    is_complete = pl.col("k") <= complete
    curve = results.evaluation.curve.with_columns(
        complete=is_complete, new_exemplars=1 + is_complete.cast(pl.Int64)
    )
    return replace(results.evaluation, complete_shots=complete, curve=curve)


@pytest.fixture
def draw():
    """Return a function that draws a sweep and returns the Figure, without files."""

    def draw_figure(evaluation, **options):
        with open_figure() as figure:
            sweep_page(evaluation, "sweep", **options).draw(figure)
        return figure

    return draw_figure


@pytest.fixture(scope="module")
def sweep_files(tmp_path_factory):
    """Write a sweep once, and return the paths."""
    return draw_sweep(
        make_evaluation(), tmp_path_factory.mktemp("sweep") / "new" / "sweep.v1"
    )


def test_a_sweep_is_written_as_pdf_and_png_and_nothing_else(sweep_files):
    assert [path.name for path in sweep_files] == ["sweep.v1.pdf", "sweep.v1.png"]
    assert sweep_files[0].read_bytes().startswith(PDF)
    assert sweep_files[1].read_bytes().startswith(PNG)
    assert len(list(sweep_files[0].parent.iterdir())) == 2


@pytest.mark.parametrize(("encoders", "shots"), [(1, (3,)), (5, (1, 2, 5, 10, 2651))])
def test_every_encoder_has_a_panel_and_all_have_the_same_axes(draw, encoders, shots):
    names = [f"encoder {n}" for n in range(encoders)]
    figure = draw(make_evaluation(shots, names))
    panels = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert panel_titles(figure) == names
    assert len({ax.get_ylim() for ax in panels}) == 1
    assert len({ax.get_xlim() for ax in figure.axes if ax.get_visible()}) == 1


def test_the_panel_below_shows_new_exemplars_and_k_star(draw):
    lowest = draw(make_evaluation(complete=2)).axes[-1]
    assert [bar.get_height() for bar in lowest.patches] == [2, 2, 1]
    assert [text.get_text() for text in lowest.texts] == ["k* = 2"]
    assert (
        lowest.lines[0].get_xdata()[0] == 1.5
    )  # between the second shot and the third
    complete = draw(make_evaluation(complete=9)).axes[-1]
    assert [text.get_text() for text in complete.texts] == ["k* = 9"]
    assert not complete.lines


def test_boxes_show_quartiles_and_whiskers_the_1st_to_the_99th_percentile(draw):
    evaluation = make_evaluation(spreads=("per-query",))
    panel = draw(evaluation).axes[0]
    curve = evaluation.curve.filter(metric="map")
    boxes = [(box.get_y(), box.get_y() + box.get_height()) for box in panel.patches]
    assert np.allclose(boxes, curve.select("p25", "p75"))
    whiskers = [path[:, 1] for path in panel.collections[0].get_segments()]
    assert np.array_equal(whiskers, curve.select("p01", "p99"))
    assert curve["mean"].to_list() in line_values(panel)


def test_the_band_of_shared_is_drawn_beside_another_spread_only(draw):
    both = legend_texts(draw(make_evaluation()))
    shared = legend_texts(draw(make_evaluation(spreads=("shared",))))
    assert [text.split(":")[0] for text in both] == ["per-query", "shared", "chance"]
    assert [text.split(":")[0] for text in shared] == ["shared", "chance"]


def make_some_baselines(*values, metric="map", scoring="all", corpus="c"):
    names = (
        ("mfcc", "logistic", "LR"),
        ("mfcc", "recurrent", "GRU"),
        ("", "end-to-end", "AERD"),
        ("b", "logistic", "LR"),
    )
    pairs = zip(names, values, strict=False)
    return make_baselines(
        *((corpus, *name, scoring, metric, value) for name, value in pairs)
    )


def test_baselines_are_lines_in_the_panels_of_their_encoders_named_in_the_legend(draw):
    baselines = make_some_baselines(0.3, 0.4, 0.95, 0.5)
    figure = draw(make_evaluation(encoders=("mfcc", "b")), baselines=baselines)
    levels = []
    for ax in figure.axes[:2]:
        lines = [line for line in ax.lines if list(line.get_xdata()) == [0, 1]]
        levels.append({line.get_ydata()[0] for line in lines})
    assert {0.3, 0.4, 0.95} <= levels[0]
    assert 0.5 not in levels[0]
    assert {0.5, 0.95} <= levels[1]
    words = [text.split()[0] for text in legend_texts(figure)]
    assert words == ["per-query:", "shared:", "chance", "LR:", "GRU:", "AERD:"]


@pytest.mark.parametrize(
    "other", [{"metric": "auroc"}, {"scoring": "reduced"}, {"corpus": "park"}]
)
def test_a_baseline_of_another_metric_scoring_or_corpus_is_not_drawn(draw, other):
    baselines = make_some_baselines(0.3, 0.4, 0.5, **other)
    undefined = make_some_baselines(float("nan"))
    figure = draw(make_evaluation(), baselines=pl.concat([baselines, undefined]))
    assert len(legend_texts(figure)) == 3


def test_settings_of_the_caller_change_no_byte(sweep_files, tmp_path):
    with mpl.rc_context({"axes.facecolor": "red"}):
        others = draw_sweep(make_evaluation(), tmp_path / "other")
        assert mpl.rcParams["axes.facecolor"] == "red"
    assert [path.read_bytes() for path in sweep_files] == [
        path.read_bytes() for path in others
    ]


def test_a_density_equals_a_literal_sum_of_kernels_between_the_percentiles():
    samples = np.random.default_rng(0).normal(0.5, 0.1, 300)
    levels, height = density(samples)
    assert np.allclose(levels[[0, -1]], np.percentile(samples, (1, 99)))
    width = samples.std() * 300**-0.2
    kernels = [
        np.exp(-(((levels[40] - sample) / width) ** 2) / 2) for sample in samples
    ]
    assert height[40] == pytest.approx(
        sum(kernels) / (300 * width * np.sqrt(2 * np.pi))
    )
    assert 0.95 < np.trapezoid(height, levels) < 1


@pytest.mark.parametrize(
    "samples", [np.full(9, 0.5), np.full(9, np.nan), np.array([1.0])]
)
def test_samples_without_spread_have_no_density(samples):
    assert len(density(samples)[0]) == 0
