"""All figures of a corpus: which there are, that they fit a page, and that no text is hidden."""

from dataclasses import replace
from itertools import combinations

import polars as pl
import pytest

from callshot.report.figures import plan_figures
from callshot.report.figures.figure_io import open_figure
from report.figures.made_up_results import (
    MANY_CLASSES,
    SMALL,
    SMALLEST,
    STRANGE,
    draw_case,
    make_case,
)

PAGE_IN = (7.2, 9.3)
SMALLEST_PT = 6.5
TRAINED = ("training", "classifiers", "refinement")


def overlap(box, other, slack=0.006):
    left, bottom, right, top = box
    other_left, other_bottom, other_right, other_top = other
    across = left < other_right - slack and other_left < right - slack
    return across and bottom < other_top - slack and other_bottom < top - slack


def check_texts(figures):
    for stem, (figure, texts) in figures.items():
        width, height = figure.get_size_inches()
        assert width <= PAGE_IN[0] + 1e-9, stem
        assert height <= PAGE_IN[1], stem
        for text, (left, bottom, right, top) in texts.items():
            assert min(left, bottom) >= -0.01, (stem, text.get_text())
            assert right <= width + 0.01, (stem, text.get_text())
            assert top <= height + 0.01, (stem, text.get_text())
            assert text.get_fontsize() >= SMALLEST_PT, (stem, text.get_text())
        covered = [
            (text.get_text(), other.get_text())
            for (text, box), (other, other_box) in combinations(texts.items(), 2)
            if overlap(box, other_box)
        ]
        assert not covered, stem


@pytest.mark.parametrize(
    ("case", "stems"),
    [
        (STRANGE, ("",)),
        (MANY_CLASSES, ("classes", "map")),
    ],
)
def test_no_text_is_clipped_covered_or_too_small_and_every_figure_fits_a_page(
    case, stems
):
    figures = draw_case(case, stems)
    assert len(figures) >= len(stems)
    check_texts(figures)


def plan_stems(results):
    return [page.stem for page in plan_figures(results)]


def test_figures_are_drawn_if_there_is_data_for_them():
    last = ["confusion", "episode", "map"]
    compared = ["reduced", "inset", "classes", "spreads", "differences"]
    assert plan_stems(make_case(SMALL)) == ["sweep", *compared, *TRAINED, *last]
    results = make_case(SMALLEST)
    assert plan_stems(results) == ["sweep", "classes", *TRAINED, *last]
    untrained = replace(
        results, other_classifiers=None, refinement=results.refinement.clear()
    )
    assert plan_stems(untrained) == ["sweep", "classes", *last]
    others = results.other_classifiers.select_classifiers(["cosine"])
    cosine = replace(untrained, other_classifiers=others)
    assert set(plan_stems(cosine)) & set(TRAINED) == {"classifiers"}


def test_a_figure_that_does_not_fit_a_page_becomes_several():
    stems = plan_stems(make_case(MANY_CLASSES))
    confusion = [stem for stem in stems if stem.startswith("confusion")]
    assert confusion == ["confusion-1", "confusion-2", "confusion-3"]
    assert "classes" in stems


def erase(frame, *columns):
    """Replace all numbers of some columns by NaN."""
    undefined = [(pl.col(name) * float("nan")).alias(name) for name in columns]
    return frame.with_columns(undefined)


def test_undefined_values_leave_gaps_in_every_figure():
    results = make_case(SMALL)
    interval = ("mean", "p01", "p99")
    summary = (*interval, "p25", "p50", "p75")
    evaluation = replace(
        results.evaluation,
        curve=erase(results.evaluation.curve, *summary),
        per_class=erase(results.evaluation.per_class, *interval),
        values=erase(results.evaluation.values, "value"),
        differences=erase(results.evaluation.differences, "wins", *summary),
    )
    others = replace(
        results.other_classifiers,
        curve=erase(results.other_classifiers.curve, *interval),
        values=erase(results.other_classifiers.values, "value"),
    )
    undefined = replace(
        results,
        evaluation=evaluation,
        other_classifiers=others,
        refinement=erase(results.refinement, "value"),
    )
    drawn = []
    stems = ("sweep", "inset", "classes", "spreads", "differences", *TRAINED)
    for page in plan_figures(undefined):
        if page.stem in stems:
            with open_figure() as figure:
                page.draw(figure)
                figure.draw_without_rendering()
            drawn.append(page.stem)
    assert len(drawn) == len(stems)
