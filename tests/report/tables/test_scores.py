from dataclasses import replace
from functools import cache

import pytest

from callshot.records import Baseline, CorpusResults, Curve
from callshot.report.tables.scores import reduced, results
from callshot.report.tables.table import Table
from corpus_results import make_corpus_results
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
    "table 4": (results(elev()), EV, ENCODERS),
    "table 5": (results(ldc()), LDC, ENCODERS),
    "table 6, Elephant Voices": (reduced(elev()), EV_REDUCED, PERCHES),
    "table 6, LDC": (reduced(ldc()), LDC_REDUCED, PERCHES),
}


def literal_underlines(text: str) -> dict[tuple[str, int], int]:
    """Tell a paper's underlines by the row's k and the column."""
    return {
        (k.rstrip("*"), n): MARKS[cell[6:]]
        for k, cells in lines(text).items()
        for n, cell in enumerate(cells)
        if k[0].isdigit() and MARKS[cell[6:]]
    }


def underlines(table: Table) -> dict[tuple[str, int], int]:
    return {
        (row[0].text, n): cell.underline
        for row in table.rows
        for n, cell in enumerate(row[1:])
        if cell.underline
    }


def stars(table: Table) -> list[str]:
    return [row[0].text for row in table.rows if row[0].mark == "⋆"]


def notes(table: Table) -> str:
    return "\n".join(f"{mark} {text}" for mark, text in table.notes)


def column(table: Table, n: int) -> dict[str, str]:
    return {row[0].text: row[n].text for row in table.rows}


@cache
def small() -> CorpusResults:
    return make_corpus_results(categories={"roar": "loud", "trumpet": "loud", "rumble": "low"})


def corpus_results(
    means: list[float],
    baselines: dict[str, float],
    *,
    best: int = 2,
    shots: list[int] | None = None,
    scoring: str = "all",
) -> CorpusResults:
    """Return a chapter with one encoder, the same curve for each metric, and a rival of each kind given."""
    base = small()
    curve = [
        Curve(
            "c",
            "e",
            "centroid",
            scoring,
            metric,
            "per-query",
            k,
            mean,
            0,
            0,
            0,
            0,
            1,
            0.1,
            k <= best,
            0,
            0,
        )
        for metric in ("map", "auroc")
        for k, mean in zip(shots or range(1, 99), means, strict=False)
    ]
    evaluation = replace(base.evaluation, corpus="c", complete_shots=best, curve=curve)
    found = [
        Baseline("c", "e", kind, kind.upper(), scoring, m, value)
        for kind, value in baselines.items()
        for m in ("map", "auroc")
    ]
    return replace(base, evaluation=evaluation, baselines=found)


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_give_the_papers_underlines(name):
    table, text, _ = PAPER[name]
    assert table is not None
    assert underlines(table) == literal_underlines(text)


def test_the_papers_underlines_are_as_many_as_we_read_in_it():
    counts = [list(literal_underlines(text).values()) for _, text, _ in PAPER.values()]
    assert [(marks.count(1), marks.count(2)) for marks in counts] == [
        (5, 5),
        (2, 0),
        (2, 0),
        (0, 0),
    ]


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_give_the_papers_star(name):
    table, text, _ = PAPER[name]
    assert stars(table) == [k.rstrip("*") for k in lines(text) if k.endswith("*")]


@pytest.mark.parametrize("name", PAPER)
def test_every_number_of_the_papers_tables_is_in_its_place(name):
    table, text, encoders = PAPER[name]
    want = {
        k.rstrip("*"): [cell.rstrip("_=") for cell in cells] for k, cells in lines(text).items()
    }
    rows = {row[0].text: [cell.text.replace("–", "-") for cell in row[1:]] for row in table.rows}
    rows["RNN"] = rows.pop("Recurrent", None)
    assert {k: rows[k] for k in want} == want
    assert [(c.group, c.name) for c in table.columns[1:]] == [
        (e, m) for e in encoders for m in ("AUROC", "mAP")
    ]
    assert table.foot == len(table.rows) - sum(k[0].isdigit() for k in want)


def test_the_star_says_whether_its_row_is_k_star_or_the_first_beyond():
    assert "⋆ This row is at k* = 4," in notes(results(elev()))
    assert "⋆ This row is the first beyond k* = 31," in notes(results(ldc()))
    assert "⋆ This row is the first beyond k* = 4," in notes(reduced(elev()))


def test_where_every_k_shown_is_complete_a_note_says_so_and_there_is_no_star():
    table = results(corpus_results([0.5, 0.6], {}, best=7))
    assert stars(table) == []
    assert "At every k shown, every class is complete: k* = 7." in notes(table)


def test_every_underline_is_explained_and_what_is_never_passed_is_told():
    assert "Underlined once: the first k shown whose mean is above LR." in notes(results(elev()))
    assert "Underlined twice: the first k shown whose mean is above the recurrent rival" in notes(
        results(elev())
    )
    assert "No mean shown is above the recurrent rival." in notes(results(ldc()))
    assert "Underlined once: the first k shown whose mean is above AERD." in notes(reduced(elev()))
    assert "No mean shown is above AERD." in notes(reduced(ldc()))


def test_recurrent_rivals_of_different_names_share_a_row_and_are_named_below():
    assert "Recurrent: GRU on mfcc; GRU on perch-v1; Elman RNN on perch-v2." in notes(
        results(elev())
    )


def test_rivals_of_one_name_give_it_to_their_row():
    table = results(corpus_results([0.5], {"logistic": 0.4, "recurrent": 0.6}))
    assert [row[0].text for row in table.rows] == ["1", "LOGISTIC", "RECURRENT", "Chance"]


def test_to_equal_a_rival_is_not_to_pass_it():
    table = results(corpus_results([0.5, 0.5, 0.5 + 1e-12], {"logistic": 0.5}))
    assert underlines(table) == {("3", 0): 1, ("3", 1): 1}


def test_a_weak_recurrent_rival_is_passed_before_a_strong_logistic_one():
    table = results(corpus_results([0.3, 0.5, 0.7], {"logistic": 0.6, "recurrent": 0.4}))
    assert underlines(table) == {("2", 0): 2, ("2", 1): 2, ("3", 0): 1, ("3", 1): 1}


def test_only_the_first_k_is_underlined_even_if_the_curve_falls_and_passes_again():
    assert underlines(results(corpus_results([0.5, 0.3, 0.5], {"logistic": 0.4}))) == {
        ("1", 0): 1,
        ("1", 1): 1,
    }


def test_only_shots_that_are_shown_can_be_the_first():
    table = results(corpus_results([0.1, 0.5, 0.6], {"logistic": 0.4}), shots=(1, 3))
    assert underlines(table) == {("3", 0): 1, ("3", 1): 1}


def test_a_mean_that_is_not_a_number_passes_nobody():
    table = results(corpus_results([float("nan"), 0.5], {"logistic": 0.4}))
    assert column(table, 1)["1"] == "–"
    assert underlines(table) == {("2", 0): 1, ("2", 1): 1}


def test_shots_that_were_not_evaluated_are_left_out():
    table = results(corpus_results([0.1, 0.2], {}, shots=[1, 5]), shots=(1, 2, 5, 10))
    assert [row[0].text for row in table.rows] == ["1", "5", "Chance"]


def test_of_shots_none_of_which_was_evaluated_those_that_were_are_told():
    table = results(corpus_results([0.1, 0.2], {}, shots=[6, 8]))
    assert [row[0].text for row in table.rows] == ["6", "8", "Chance"]


def test_several_rivals_of_a_kind_on_an_encoder_have_rows_and_are_passed_together():
    base = corpus_results([0.3, 0.5, 0.7], {"recurrent": 0.4})
    others = [replace(baseline, name="LSTM", value=0.6) for baseline in base.baselines]
    table = results(replace(base, baselines=[*base.baselines, *others]))
    assert column(table, 2)["RECURRENT"] == "0.4000"
    assert column(table, 2)["LSTM"] == "0.6000"
    assert underlines(table) == {("3", 0): 2, ("3", 1): 2}


def test_in_reduced_scoring_rivals_underline_where_there_is_no_end_to_end_one():
    table = reduced(
        corpus_results([0.3, 0.5], {"logistic": 0.2, "recurrent": 0.4}, scoring="reduced")
    )
    assert underlines(table) == {("1", 0): 1, ("1", 1): 1, ("2", 0): 2, ("2", 1): 2}


def test_in_reduced_scoring_an_end_to_end_rival_alone_underlines():
    table = reduced(
        corpus_results(
            [0.3, 0.5], {"logistic": 0.2, "recurrent": 0.2, "end-to-end": 0.4}, scoring="reduced"
        )
    )
    assert underlines(table) == {("2", 0): 1, ("2", 1): 1}
    assert [row[0].text for row in table.rows][2:] == [
        "LOGISTIC",
        "RECURRENT",
        "END-TO-END",
        "Chance",
    ]


def test_an_end_to_end_rival_stands_beside_every_encoder():
    table = reduced(elev())
    assert [cell.text for cell in table.rows[-2]] == [
        "AERD",
        "0.8453",
        "0.4054",
        "0.8453",
        "0.4054",
    ]
    assert "AERD hears the audio itself" in notes(table)


def test_without_categories_there_is_no_reduced_table():
    assert reduced(corpus_results([0.5], {})) is None


def test_the_spread_is_chosen_and_named():
    table = results(elev(), spread="shared")
    assert column(table, 1)["1"] == "0.6790"
    assert table.title.endswith("shared")
    assert "query sampling is not in it" in notes(table)


def test_a_spread_that_was_not_evaluated_gives_way_to_the_one_that_was():
    assert results(corpus_results([0.5], {}), spread="shared").title.endswith("per-query")


def test_means_and_chance_are_those_of_the_evaluation():
    made = small()
    for table, scoring in ((results(made), "all"), (reduced(made), "reduced")):
        for c in made.evaluation.curve:
            if (c.scoring, c.spread, c.metric) == (scoring, "per-query", "map"):
                n = [column.whole for column in table.columns].index(f"{c.encoder} mAP")
                cells = {row[0].text: row[n].value for row in table.rows}
                assert cells[str(c.k)] == c.mean
                assert cells["Chance"] == c.chance
