from dataclasses import replace
from functools import cache

import polars as pl
import pytest

from callshot.records.frames import CURVE
from callshot.report.tables.score_tables import reduced_table, score_table
from corpus_results import make_baselines, make_corpus_results, make_rows
from report.tables.paper_tables import (
    ENCODERS,
    EV,
    EV_REDUCED,
    LDC,
    LDC_REDUCED,
    PERCHES,
    elev,
    ldc,
    lines,
)

MARKS = {"": 0, "_": 1, "=": 2}
PAPER = {
    "table 4": (score_table(elev()), EV, ENCODERS),
    "table 5": (score_table(ldc()), LDC, ENCODERS),
    "table 6, Elephant Voices": (reduced_table(elev()), EV_REDUCED, PERCHES),
    "table 6, LDC": (reduced_table(ldc()), LDC_REDUCED, PERCHES),
}


def literal_underlines(text):
    """Return the underlines of the paper by the k of the row and the column."""
    underlines = {}
    for k, cells in lines(text).items():
        for column, cell in enumerate(cells):
            if k[0].isdigit() and MARKS[cell[6:]]:
                underlines[k.rstrip("*"), column] = MARKS[cell[6:]]
    return underlines


def underlines(table):
    return {
        (row[0].text, column): cell.underline
        for row in table.rows
        for column, cell in enumerate(row[1:])
        if cell.underline
    }


def stars(table):
    return [row[0].text for row in table.rows if row[0].mark == "⋆"]


def notes(table):
    return "\n".join(f"{mark} {text}" for mark, text in table.notes)


def column(table, index):
    return {row[0].text: row[index].text for row in table.rows}


@cache
def small_results():
    return make_corpus_results(
        categories={"roar": "loud", "trumpet": "loud", "rumble": "low"}
    )


def make_results(means, baselines, *, complete_shots=2, shots=None, scoring="all"):
    """Return results of one encoder: the same curve for each metric, and one baseline per kind."""
    base = small_results()
    curve = []
    rows = []
    for metric in ("map", "auroc"):
        for k, mean in zip(shots or range(1, 99), means, strict=False):
            key = ("c", "e", "centroid", scoring, metric, "per-query", k)
            curve.append(
                (*key, mean, 0.0, 0.0, 0.0, 0.0, 1.0, 0.1, k <= complete_shots, 0, 0)
            )
        for kind, value in baselines.items():
            rows.append(("c", "e", kind, kind.upper(), scoring, metric, value))
    evaluation = replace(
        base.evaluation,
        corpus="c",
        complete_shots=complete_shots,
        curve=make_rows(CURVE, *curve),
    )
    return replace(base, evaluation=evaluation, baselines=make_baselines(*rows))


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_give_the_papers_underlines(name):
    table, text, _ = PAPER[name]
    assert table is not None
    assert underlines(table) == literal_underlines(text)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_give_the_papers_star(name):
    table, text, _ = PAPER[name]
    assert stars(table) == [k.rstrip("*") for k in lines(text) if k.endswith("*")]


@pytest.mark.parametrize("name", PAPER)
def test_every_number_of_the_papers_tables_is_in_its_cell(name):
    table, text, encoders = PAPER[name]
    want = {
        k.rstrip("*"): [cell.rstrip("_=") for cell in cells]
        for k, cells in lines(text).items()
    }
    rows = {
        row[0].text: [cell.text.replace("–", "-") for cell in row[1:]]
        for row in table.rows
    }
    rows["RNN"] = rows.pop("Recurrent", None)
    assert {k: rows[k] for k in want} == want
    assert [(c.group, c.name) for c in table.columns[1:]] == [
        (e, m) for e in encoders for m in ("AUROC", "mAP")
    ]
    assert table.foot == len(table.rows) - sum(k[0].isdigit() for k in want)


def test_the_star_says_whether_its_row_is_k_star_or_the_first_beyond():
    assert "⋆ This row is at k* = 4," in notes(score_table(elev()))
    assert "⋆ This row is the first beyond k* = 31," in notes(score_table(ldc()))
    assert "⋆ This row is the first beyond k* = 4," in notes(reduced_table(elev()))


def test_where_every_k_shown_is_complete_a_note_says_so_and_there_is_no_star():
    table = score_table(make_results([0.5, 0.6], {}, complete_shots=7))
    assert stars(table) == []
    assert "At every k shown, every class is complete: k* = 7." in notes(table)


def test_a_mean_equal_to_a_baseline_does_not_pass_it():
    table = score_table(make_results([0.5, 0.5, 0.5 + 1e-12], {"logistic": 0.5}))
    assert underlines(table) == {("3", 0): 1, ("3", 1): 1}


def test_a_weak_recurrent_baseline_is_passed_before_a_strong_logistic_one():
    table = score_table(
        make_results([0.3, 0.5, 0.7], {"logistic": 0.6, "recurrent": 0.4})
    )
    assert underlines(table) == {("2", 0): 2, ("2", 1): 2, ("3", 0): 1, ("3", 1): 1}


def test_only_the_first_k_is_underlined_even_if_the_curve_falls_and_passes_again():
    assert underlines(
        score_table(make_results([0.5, 0.3, 0.5], {"logistic": 0.4}))
    ) == {
        ("1", 0): 1,
        ("1", 1): 1,
    }


def test_only_shots_that_are_shown_can_be_the_first():
    table = score_table(make_results([0.1, 0.5, 0.6], {"logistic": 0.4}), shots=(1, 3))
    assert underlines(table) == {("3", 0): 1, ("3", 1): 1}


def test_a_mean_that_is_not_a_number_passes_no_baseline():
    table = score_table(make_results([float("nan"), 0.5], {"logistic": 0.4}))
    assert column(table, 1)["1"] == "–"
    assert underlines(table) == {("2", 0): 1, ("2", 1): 1}


def test_shots_that_were_not_evaluated_are_left_out():
    table = score_table(make_results([0.1, 0.2], {}, shots=[1, 5]), shots=(1, 2, 5, 10))
    assert [row[0].text for row in table.rows] == ["1", "5", "Chance"]


def test_all_evaluated_shots_are_shown_if_none_of_the_wanted_ones_was_evaluated():
    table = score_table(make_results([0.1, 0.2], {}, shots=[6, 8]))
    assert [row[0].text for row in table.rows] == ["6", "8", "Chance"]


def test_several_baselines_of_a_kind_on_an_encoder_have_their_own_rows_and_one_crossover():
    base = make_results([0.3, 0.5, 0.7], {"recurrent": 0.4})
    others = base.baselines.with_columns(name=pl.lit("LSTM"), value=0.6)
    table = score_table(replace(base, baselines=pl.concat([base.baselines, others])))
    assert column(table, 2)["RECURRENT"] == "0.4000"
    assert column(table, 2)["LSTM"] == "0.6000"
    assert underlines(table) == {("3", 0): 2, ("3", 1): 2}


def test_in_reduced_scoring_all_baselines_count_if_there_is_no_end_to_end_one():
    table = reduced_table(
        make_results([0.3, 0.5], {"logistic": 0.2, "recurrent": 0.4}, scoring="reduced")
    )
    assert underlines(table) == {("1", 0): 1, ("1", 1): 1, ("2", 0): 2, ("2", 1): 2}


def test_in_reduced_scoring_only_the_end_to_end_baseline_counts():
    table = reduced_table(
        make_results(
            [0.3, 0.5],
            {"logistic": 0.2, "recurrent": 0.2, "end-to-end": 0.4},
            scoring="reduced",
        )
    )
    assert underlines(table) == {("2", 0): 1, ("2", 1): 1}
    assert [row[0].text for row in table.rows][2:] == [
        "LOGISTIC",
        "RECURRENT",
        "END-TO-END",
        "Chance",
    ]


def test_without_categories_there_is_no_reduced_table():
    assert reduced_table(make_results([0.5], {})) is None


def test_an_evaluated_spread_replaces_one_that_was_not_evaluated():
    assert score_table(make_results([0.5], {}), spread="shared").title.endswith(
        "per-query"
    )


def test_means_and_chance_are_those_of_the_evaluation():
    results = small_results()
    for table, scoring in (
        (score_table(results), "all"),
        (reduced_table(results), "reduced"),
    ):
        headings = [column.whole for column in table.columns]
        curve = results.evaluation.curve.filter(
            scoring=scoring, spread="per-query", metric="map"
        )
        for point in curve.iter_rows(named=True):
            index = headings.index(f"{point['encoder']} mAP")
            cells = {row[0].text: row[index].value for row in table.rows}
            assert cells[str(point["k"])] == point["mean"]
            assert cells["Chance"] == point["chance"]
