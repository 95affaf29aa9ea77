import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from callshot.records import ClassCount, Embeddings, Evaluation, Folds
from callshot.records.frames import CURVE
from callshot.report.terminal import Series, draw_chart, show_evaluation, shown_shots
from corpus_results import make_rows

ASCII_CHART = """\
0.60 |                     ooo
     |               oooooo
0.40 |           oooo
     |      ooooo
     |   ooo
0.20 |ooo
     |........................
0.00 |
     +------------------------
      1           2          3
      o mfcc  . chance 0.100"""

TABLE = """\
        mfcc                                             perch
   k    mAP per-query        mAP shared           AUROC  mAP per-query        mAP shared           AUROC
   1 ⋆  0.500 [0.400–0.600]  0.500 [0.400–0.600]  0.500  0.500 [0.400–0.600]  0.500 [0.400–0.600]  0.500
   2    0.667 [0.567–0.767]  0.667 [0.567–0.767]  0.667  0.667 [0.567–0.767]  0.667 [0.567–0.767]  0.667
chance  0.123                0.123                0.500  0.123                0.123                0.500"""


def make_evaluation(
    shots=(1, 2),
    encoders=("mfcc", "perch"),
    spreads=("per-query", "shared"),
    best=1,
    left_out=0,
    notes=(),
    scorings=("all",),
) -> Evaluation:
    keys = [
        (e, s, m, p) for e in encoders for p in spreads for s in scorings for m in ("map", "auroc")
    ]
    curve = [make_point(*key, k, best) for key in keys for k in shots]
    classes = [ClassCount("rumble", 9, 7, True), ClassCount("roar", 9, best, True)]
    classes += [
        ClassCount(f"rare {n}", 1, 0, False, "only in the common fold") for n in range(left_out)
    ]
    folds = Folds(np.array([0, 1]), 2, "built", "optimum proved")
    segments = Embeddings(
        "mfcc", np.zeros((2, 1)), ["a", "b"], ["a", "b"], ["rumble", "roar"], [()] * 2
    )
    return Evaluation(
        "reserve",
        best,
        18,
        classes,
        folds,
        segments,
        list(notes),
        curve=make_rows(CURVE, *curve),
    )


def make_point(encoder, scoring, metric, spread, k, best) -> tuple:
    mean = k / (k + 1)
    levels = (mean - 0.1, mean - 0.05, mean, mean + 0.05, mean + 0.1)
    chance = 0.123 if metric == "map" else 0.5
    return (
        "reserve",
        encoder,
        "centroid",
        scoring,
        metric,
        spread,
        k,
        mean,
        *levels,
        chance,
        k <= best,
        2,
        0,
    )


def shown(evaluation, width=120, terminal=False, encoding="utf-8", colour=None) -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, newline="\n")
    show_evaluation(
        evaluation, Console(file=file, width=width, force_terminal=terminal, color_system=colour)
    )
    file.flush()
    return raw.getvalue().decode(encoding)


def test_the_headline_tells_corpus_classes_queries_folds_and_k_star():
    headline = shown(make_evaluation()).splitlines()[0]
    assert headline == "reserve: 2 classes, 18 queries, 2 folds built (optimum proved), k* = 1"


def test_given_folds_need_no_proof():
    evaluation = replace(
        make_evaluation(), folds=Folds(np.array([0, 1]), 2, "given", "folds as given")
    )
    assert "2 folds given, k* = 1" in shown(evaluation)


def test_two_encoders_stand_side_by_side_where_there_is_room():
    assert TABLE in shown(make_evaluation())


def test_encoders_stand_below_each_other_where_there_is_not():
    lines = shown(make_evaluation(), width=80).splitlines()
    assert [line.strip() for line in lines if line.strip() in ("mfcc", "perch")] == [
        "mfcc",
        "perch",
    ]
    assert max(map(len, lines)) <= 85  # lines that are not of the table are not broken


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("width", [20, 40, 41, 60, 80, 200])
def test_the_table_fits_any_width_from_40_on(width, terminal):
    lines = shown(make_evaluation(range(1, 41)), width, terminal).splitlines()
    assert max(len(line) for line in lines if "[0" in line or "│" in line) <= max(width, 40)


def test_a_single_spread_has_a_single_column():
    text = shown(make_evaluation(spreads=("shared",)))
    assert "mAP shared" in text
    assert "per-query" not in text


def test_reduced_scoring_has_columns_of_its_own():
    assert "mfcc, reduced" in shown(
        make_evaluation(encoders=("mfcc",), scorings=("all", "reduced"))
    )


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
def test_few_shots_are_all_shown_and_of_many_the_round_ones_and_the_ends(shots, rows):
    assert shown_shots(shots) == rows


@pytest.mark.parametrize(
    ("best", "row", "said"),
    [
        (4, "   4 ⋆", "⋆ k* = 4; beyond k*, support is partial"),
        (31, "  40 ⋆", "⋆ the first row beyond k* = 31; beyond k*, support is partial"),
    ],
)
def test_the_star_is_at_k_star_or_at_the_first_row_beyond_it_and_says_which(best, row, said):
    lines = shown(make_evaluation(range(1, 41), best=best)).splitlines()
    assert [line[:6] for line in lines if "⋆" in line and line != said] == [row]
    assert said in lines


def test_there_is_no_star_where_every_row_is_complete():
    assert "⋆" not in shown(make_evaluation(best=50))


def test_classes_that_are_left_out_are_told_with_reasons_and_not_more_than_six():
    lines = shown(make_evaluation(left_out=9)).splitlines()
    assert lines[1] == "not eligible: 9 of 11 classes"
    assert lines[2] == "  rare 0 (1): only in the common fold"
    assert lines[8] == "  and 3 more, see classes.csv"
    assert not any("more, see" in line for line in shown(make_evaluation(left_out=6)).splitlines())


def test_notes_are_told():
    assert "note: scoring directly" in shown(make_evaluation(notes=["scoring directly"]))


def test_the_shared_spread_says_what_is_not_in_it():
    assert "query sampling is not in it" in shown(make_evaluation())


@pytest.mark.parametrize("terminal", [False, True])
def test_markup_and_control_characters_in_names_are_shown_and_not_obeyed(terminal):
    evaluation = make_evaluation(
        encoders=("[red]mfcc[/red]", "x\x1b[31m\r\n"), notes=["[bold]\x07 :elephant:"]
    )
    evaluation = replace(
        evaluation, corpus="[/]\x1b]0;x\x07", classes=[ClassCount("[b]\u202e", 1, 0, False, "[i]")]
    )
    text = shown(evaluation, terminal=terminal)
    assert "[red]mfcc[/red]" in text
    assert "[/]�]0;x�" in text
    assert "[b]� (1): [i]" in text
    assert "note: [bold]� :elephant:" in text
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)


def test_only_a_terminal_gets_colours_and_a_chart():
    assert "\x1b[" in shown(make_evaluation(), terminal=True, colour="standard")
    assert "mAP against k, per-query" in shown(make_evaluation(), terminal=True)
    plain = shown(make_evaluation())
    assert "\x1b" not in plain
    assert "against k" not in plain
    assert not set(plain) & set("│┤└─●")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_a_terminal_without_unicode_gets_ascii(encoding):
    text = shown(
        make_evaluation(encoders=("Größe 象",), notes=["−1"]), terminal=True, encoding=encoding
    )
    assert "1 *  0.500 [0.400-0.600]" in text
    assert "o Gr" in text


def test_an_ascii_chart_looks_like_this():
    chart = draw_chart(
        [Series("mfcc", [1, 2, 3], [0.2, 0.45, 0.6])], width=30, height=11, ascii=True, chance=0.1
    )
    assert "\n".join(line.rstrip() for line in chart.splitlines()) == ASCII_CHART


def test_a_chart_has_the_size_that_was_asked_for():
    series = [
        Series(f"encoder number {n}", range(1, 41), np.linspace(0.1, 0.2 + n / 10, 40))
        for n in range(6)
    ]
    for width, height in [(40, 8), (80, 15), (133, 16)]:
        lines = draw_chart(series, width, height, ascii=False, chance=0.05).splitlines()
        assert len(lines) == height
        assert max(map(len, lines[:-2])) == width
        assert max(map(len, lines)) <= max(width, 75)


def test_a_single_series_shows_its_interval_and_several_do_not():
    series = Series("mfcc", [1, 2, 3], [0.4, 0.5, 0.6], [0.2, 0.3, 0.4], [0.7, 0.8, 0.9])
    assert "░" in draw_chart([series], 60, 12, ascii=False)
    assert "░" not in draw_chart([series, series], 60, 12, ascii=False)
    assert ":" in draw_chart([series], 60, 12, ascii=True)


def test_every_series_has_its_mark_in_the_chart_and_in_the_legend():
    series = [Series(f"e{n}", [1, 2, 3, 4], [n / 10, n / 9, n / 8, n / 7]) for n in range(1, 5)]
    *chart, legend = draw_chart(series, 80, 15, ascii=False, chance=0.01).splitlines()
    for mark in "●▲■◆":
        assert mark in "".join(chart)
        assert mark in legend
    assert "┈ chance 0.010" in legend


@pytest.mark.parametrize("ascii", [False, True])
@pytest.mark.parametrize(
    "mean", [[0.0], [0.5], [1.0], [0.3, 0.3], [float("nan"), 0.4], [0.0, 1.0], [1e-9, 2e-9]]
)
def test_a_chart_of_one_shot_or_a_flat_line_can_be_drawn(mean, ascii):
    chart = draw_chart([Series("mfcc", range(1, len(mean) + 1), mean, mean, mean)], 40, 10, ascii)
    assert ("o" if ascii else "●") in "".join(chart.splitlines()[:-1])
