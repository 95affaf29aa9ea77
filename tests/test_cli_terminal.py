"""What a terminal shows of an evaluation: which shots, and names that are not obeyed."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from callshot.cli.terminal import choose_shots, show_evaluation
from callshot.records import ClassCount
from report.figures.made_up_results import make_results


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


@pytest.mark.parametrize("terminal", [False, True])
def test_markup_and_control_characters_in_names_are_shown_and_not_obeyed(terminal):
    encoders = ("[red]mfcc[/red]", "x\x1b[31m\r\n")
    evaluation = make_results(("roar", "rumble"), encoders, (1, 2, 99)).evaluation
    rare = [ClassCount(f"[b]\u202e {n}", 1, 0, False, "[i]") for n in range(9)]
    evaluation = replace(
        evaluation,
        corpus="[/]\x1b]0;x\x07",
        classes=[*evaluation.classes, *rare],
        notes=["[bold]\x07 :elephant:"],
    )
    file = io.StringIO()
    show_evaluation(
        evaluation,
        Console(file=file, width=120, force_terminal=terminal, color_system=None),
    )
    text = file.getvalue()
    assert "[red]mfcc[/red]" in text
    assert text.startswith("[/]�]0;x�: 2 classes, 9 queries, 5 folds given, k* = ")
    assert "not eligible: 9 of 11 classes\n  [b]� 0 (1): [i]\n" in text
    assert "and 3 more classes, see classes.csv" in text
    assert "note: [bold]� :elephant:" in text
    assert "⋆" in text
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
