"""What a terminal shows of an evaluation: text of any width and encoding, nothing obeyed."""

import io
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from callshot.cli.terminal import choose_shots, show_evaluation
from callshot.records import ClassCount, Evaluation, Folds, frames
from callshot.vectors import Vectors


def make_evaluation(
    shots=(1, 2),
    encoders=("mfcc", "perch"),
    spreads=("per-query", "shared"),
    best=1,
    ineligible=0,
    notes=(),
    scorings=("all",),
):
    keys = product(encoders, spreads, scorings, ("map", "auroc"), shots)
    points = [make_point(*key, best) for key in keys]
    curve = pl.DataFrame(points, schema=dict(frames.CURVE), orient="row")
    classes = [ClassCount("rumble", 9, 7, True), ClassCount("roar", 9, best, True)]
    reason = "only in the common fold"
    classes += [
        ClassCount(f"rare {number}", 1, 0, False, reason)
        for number in range(ineligible)
    ]
    folds = Folds(np.array([0, 1]), 2, "built", "optimum proved")
    segments = Vectors.from_columns(
        "mfcc", np.zeros((2, 1)), ["a", "b"], ["a", "b"], ["rumble", "roar"], [()] * 2
    )
    return Evaluation(
        "reserve", best, 18, classes, folds, segments.spans, list(notes), curve=curve
    )


def make_point(encoder, spread, scoring, metric, k, best):
    """Return a row of the curve."""
    mean = k / (k + 1)
    levels = (mean - 0.1, mean - 0.05, mean, mean + 0.05, mean + 0.1)
    chance = 0.123 if metric == "map" else 0.5
    names = ("reserve", encoder, "centroid", scoring, metric, spread)
    return (*names, k, mean, *levels, chance, k <= best, 2, 0)


def show(evaluation, width=120, terminal=False, colour=None):
    """Return what a console prints."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    console = Console(
        file=file, width=width, force_terminal=terminal, color_system=colour
    )
    show_evaluation(evaluation, console)
    file.flush()
    return raw.getvalue().decode()


def test_the_headline_has_corpus_classes_queries_folds_and_k_star():
    evaluation = make_evaluation(notes=["scoring directly"])
    text = show(evaluation)
    headline = "reserve: 2 classes, 18 queries, 2 folds built (optimum proved), k* = 1"
    assert text.splitlines()[0] == headline
    assert "note: scoring directly" in text
    folds = Folds(np.array([0, 1]), 2, "given", "folds as given")
    assert "2 folds given, k* = 1" in show(replace(evaluation, folds=folds))


@pytest.mark.parametrize(
    ("shots", "rows"),
    [
        (range(1, 13), list(range(1, 13))),
        (range(1, 41), [1, 2, 3, 4, 5, 10, 15, 20, 30, 40]),
        ([*range(1, 41), 2651], [1, 2, 3, 4, 5, 10, 15, 20, 30, 40, 2651]),
        (range(7, 30), [7, 10, 15, 20, 29]),
        ([3], [3]),
    ],
)
def test_all_of_a_few_shots_are_shown_and_of_many_the_round_ones_and_both_ends(
    shots, rows
):
    assert choose_shots(shots) == rows


@pytest.mark.parametrize(
    ("best", "row", "legend"),
    [
        (4, "4 ⋆", "This row is at k* = 4"),
        (31, "40 ⋆", "This row is the first beyond k* = 31"),
    ],
)
def test_the_star_is_at_k_star_or_the_first_row_beyond_and_the_legend_says_which(
    best, row, legend
):
    evaluation = make_evaluation(range(1, 41), ("mfcc",), best=best)
    lines = [line.strip() for line in show(evaluation).splitlines() if "⋆" in line]
    assert [line.startswith(start) for line in lines for start in (row,)] == [
        True,
        False,
    ]
    assert legend in lines[1]


def test_up_to_six_classes_that_are_not_eligible_are_listed_with_reasons():
    lines = show(make_evaluation(ineligible=9)).splitlines()
    assert lines[1] == "not eligible: 9 of 11 classes"
    assert lines[2] == "  rare 0 (1): only in the common fold"
    assert lines[8] == "and 3 more classes, see classes.csv"
    assert not any(
        "see classes.csv" in line
        for line in show(make_evaluation(ineligible=6)).splitlines()
    )


@pytest.mark.parametrize("terminal", [False, True])
def test_markup_and_control_characters_in_names_are_shown_and_not_obeyed(terminal):
    evaluation = make_evaluation(
        encoders=("[red]mfcc[/red]", "x\x1b[31m\r\n"), notes=["[bold]\x07 :elephant:"]
    )
    evaluation = replace(
        evaluation,
        corpus="[/]\x1b]0;x\x07",
        classes=[ClassCount("[b]\u202e", 1, 0, False, "[i]")],
    )
    text = show(evaluation, terminal=terminal)
    assert "[red]mfcc[/red]" in text
    assert "[/]�]0;x�" in text
    assert "[b]� (1): [i]" in text
    assert "note: [bold]� :elephant:" in text
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
