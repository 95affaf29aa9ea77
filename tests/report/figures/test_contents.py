"""Each figure of a corpus shows the numbers of its results."""

from dataclasses import replace

import numpy as np
import polars as pl

from callshot.records.frames import SENSITIVITY, make_frame
from callshot.report.figures import plan_figures
from callshot.report.figures.figure_io import open_figure
from report.figures.made_up_results import (
    LOGISTIC_DRAWS,
    MANY_CLASSES,
    SHOTS,
    SMALL,
    curve_samples,
    draw_figure,
    legend_texts,
    line_values,
    make_case,
    panel_titles,
)

ENCODERS = ["birdnet-v2.4", "mfcc", "random"]


def test_classes_are_sorted_by_exemplars_with_a_line_per_encoder_and_their_last_complete_shot():
    evaluation = make_case(SMALL).evaluation
    curves = evaluation.per_class.filter(metric="map", spread="per-query")
    for ax, count in zip(
        draw_figure(SMALL, "classes").axes, evaluation.classes, strict=True
    ):
        assert ax.get_title(loc="left") == f"{count.label}\n{count.exemplars} exemplars"
        lines = [values for values in line_values(ax) if len(values) == len(SHOTS)]
        by_encoder = [
            curves.filter(label=count.label, encoder=name) for name in ENCODERS
        ]
        assert lines == [curve["mean"].to_list() for curve in by_encoder]
        edges = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
        assert edges == [sum(k <= count.complete_to_k for k in SHOTS) - 0.5]


def test_the_widths_of_the_three_spreads_are_drawn_below_them():
    curve = make_case(SMALL).evaluation.curve.filter(
        encoder="mfcc", metric="map", scoring="all"
    )
    figure = draw_figure(SMALL, "spreads")
    spreads = ("total", "shared", "per-query")
    curves = [curve.filter(spread=spread) for spread in spreads]
    upper = line_values(figure.axes[1])
    assert [values for values in upper if len(values) == len(SHOTS)] == [
        points["mean"].to_list() for points in curves
    ]
    widths = [(points["p99"] - points["p01"]).to_list() for points in curves]
    assert line_values(figure.axes[4]) == widths
    assert legend_texts(figure)[:3] == [
        "per-query: the paper's, over bootstrap samples",
        "shared: the choice of labelled examples",
        "total: one labelled set on other recordings",
    ]


def test_differences_are_drawn_around_zero_with_the_share_of_wins():
    figure = draw_figure(SMALL, "differences")
    upper = figure.axes[1]
    lower = figure.axes[4]
    differences = make_case(SMALL).evaluation.differences.filter(
        one="birdnet-v2.4", other="random", scoring="all", metric="map", spread="shared"
    )
    assert upper.get_title(loc="left") == "birdnet-v2.4\nless random"
    assert differences["mean"].to_list() in line_values(upper)
    assert [0.0, 0.0] in line_values(upper)
    assert differences["wins"].to_list() in line_values(lower)
    assert upper.get_ylim()[0] < 0 < upper.get_ylim()[1]


def test_training_is_drawn_on_the_same_draws_with_the_difference_and_crossovers_below():
    results = make_case(SMALL)
    figure = draw_figure(SMALL, "training")
    upper = figure.axes[1]
    lower = figure.axes[4]
    key = {"encoder": "mfcc", "scoring": "all", "metric": "map", "spread": "shared"}
    centroid = curve_samples(results.evaluation.values, classifier="centroid", **key)
    logistic = curve_samples(
        results.other_classifiers.values, classifier="logistic", **key
    )
    assert logistic.shape[1] == LOGISTIC_DRAWS
    same_draws = centroid[:, :LOGISTIC_DRAWS]
    assert same_draws.mean(axis=1).tolist() in line_values(upper)
    assert logistic.mean(axis=1).tolist() in line_values(upper)
    assert (logistic - same_draws).mean(axis=1).tolist() in line_values(lower)
    for ax in (upper, lower):
        last_shot = len(SHOTS) - 1
        assert [last_shot, last_shot] in [list(line.get_xdata()) for line in ax.lines]
    assert lower.get_title(loc="left") == "logistic at k is ahead from k = 20"
    names = {text.partition(":")[0] for text in legend_texts(figure)}
    assert names >= {"LOGISTIC", "RECURRENT"}


def test_other_classifiers_are_drawn_beside_the_centroid_which_is_first():
    results = make_case(SMALL)
    figure = draw_figure(SMALL, "classifiers")
    curves = pl.concat([results.evaluation.curve, results.other_classifiers.curve])
    points = curves.filter(encoder="mfcc", scoring="all", metric="map", spread="shared")
    lines = [
        values for values in line_values(figure.axes[1]) if len(values) == len(SHOTS)
    ]
    by_classifier = points.partition_by("classifier", maintain_order=True)
    assert lines == [curve["mean"].to_list() for curve in by_classifier]
    names = ["centroid", "cosine", "CL2N", "whitened", "neighbour", "medoid"]
    assert legend_texts(figure)[:7] == [*names, "logistic at k"]


def test_the_refinement_goes_from_the_centroid_to_logistic_regression_by_steps():
    first, second = draw_figure(SMALL, "refinement").axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("mAP", "AUROC")
    steps = [0, 1, 2, 5, 90000]
    assert [list(line.get_xdata()) for line in first.lines] == [steps] * 3
    assert first.get_xscale() == "symlog"
    assert line_values(first)[1] == [0.51 + step / 1e6 for step in steps]
    labels = [label.get_text() for label in first.get_xticklabels()]
    assert labels == ["0", "1", "10", "100", "1 000", "10 000", "100 000"]
    assert first.get_title(loc="left") == "centroid"
    assert first.get_title(loc="right") == "logistic regression"


def test_the_sources_of_the_spread_are_drawn_against_k_with_a_panel_per_encoder():
    results = make_case(SMALL)
    columns = {"k": [1, 1, 5, 5], "source": ["folds", "queries"] * 2}
    key = {"corpus": "c", "classifier": "centroid", "share": 0.5}
    frames = []
    for number, encoder in enumerate(ENCODERS):
        sd = [0.1, 0.2, 0.05 * number, 0.1]
        constants = key | {"encoder": encoder}
        frames.append(make_frame(SENSITIVITY, columns | {"sd": sd}, constants))
    evaluation = replace(results.evaluation, sensitivity=pl.concat(frames))
    pages = plan_figures(replace(results, evaluation=evaluation))
    with open_figure() as figure:
        next(page for page in pages if page.stem == "sensitivity").draw(figure)
    assert panel_titles(figure) == ENCODERS
    assert legend_texts(figure) == ["folds", "queries"]
    for number, ax in enumerate(figure.axes):
        assert line_values(ax) == [[0.1, 0.05 * number], [0.2, 0.1]]


def test_confusion_is_the_recall_with_counts_below_if_there_is_room():
    ax = draw_figure(SMALL, "confusion").axes[0]
    recall = ax.images[0].get_array()
    assert np.allclose(recall.sum(axis=1), 1)
    assert np.allclose(np.diag(recall), [20 / 20, 23 / 29, 26 / 38])
    numbers = [text.get_text() for text in ax.texts[:3]]
    assert numbers == ["1.00\n20.0", "0.00\n0.0", "0.00\n0.0"]
    assert not draw_figure(MANY_CLASSES, "confusion").axes[0].texts


def test_few_labels_are_named_on_the_map_and_many_are_numbered_and_listed():
    few = draw_figure(SMALL, "map")
    many = draw_figure(MANY_CLASSES, "map")
    names = [text.get_text() for text in few.axes[0].texts]
    assert names == ["rumble", "roar", "trumpet"]
    assert not few.legends
    numbers = [text.get_text() for text in many.axes[0].texts]
    assert numbers == [str(i) for i in range(1, 28)]
    assert len(legend_texts(many)) == 27
