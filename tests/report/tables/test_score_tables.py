"""Tables of scores: the paper's numbers and underlines, baselines, classifiers, differences."""

from dataclasses import replace

import polars as pl
import pytest

from callshot.records.frames import CROSSOVERS, CURVE, DIFFERENCES
from callshot.report.choices import join_classifiers
from callshot.report.tables.score_tables import (
    baseline_table,
    classifier_table,
    difference_table,
    interval_table,
    reduced_table,
    score_table,
)
from corpus_results import (
    make_baselines,
    make_corpus_results,
    make_rows,
    replace_frames,
)
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
CLASSIFIERS = ["centroid", "cosine", "CL2N", "logistic at k"]


def texts(row):
    return [cell.text for cell in row]


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


# Scores


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_numbers_give_the_papers_table_underlines_and_star(name):
    table, text, encoders = PAPER[name]
    want = {}
    want_underlines = {}
    for first, cells in lines(text).items():
        k = first.rstrip("*")
        want[k] = [cell.rstrip("_=") for cell in cells]
        for column, cell in enumerate(cells):
            if k.isdigit() and MARKS[cell[6:]]:
                want_underlines[k, column] = MARKS[cell[6:]]
    rows = {
        row[0].text: [text.replace("–", "-") for text in texts(row[1:])]
        for row in table.rows
    }
    rows["RNN"] = rows.pop("Recurrent", None)
    assert {k: rows[k] for k in want} == want
    assert underlines(table) == want_underlines
    assert stars(table) == [k.rstrip("*") for k in lines(text) if k.endswith("*")]
    headings = [(column.group, column.name) for column in table.columns[1:]]
    assert headings == [(e, m) for e in encoders for m in ("AUROC", "mAP")]
    assert table.foot == len(table.rows) - sum(k.isdigit() for k in want)


def make_results(means, baselines, *, complete_shots=2, shots=None, scoring="all"):
    """Return results of one encoder: the same curve for each metric, and one baseline per kind."""
    base = elev()
    curve = []
    rows = []
    for metric in ("map", "auroc"):
        for k, mean in zip(shots or range(1, 99), means, strict=False):
            key = ("c", "e", "centroid", scoring, metric, "per-query", k)
            levels = (mean, 0.0, 0.0, 0.0, 0.0, 1.0)
            curve.append((*key, *levels, 0.1, k <= complete_shots, 0, 0))
        for kind, value in baselines.items():
            rows.append(("c", "e", kind, kind.upper(), scoring, metric, value))
    evaluation = replace(
        base.evaluation,
        corpus="c",
        complete_shots=complete_shots,
        curve=make_rows(CURVE, *curve),
    )
    return replace(base, evaluation=evaluation, baselines=make_baselines(*rows))


def test_a_note_says_whether_the_star_is_at_k_star_or_the_first_row_beyond():
    assert "⋆ This row is at k* = 4," in notes(score_table(elev()))
    assert "⋆ This row is the first beyond k* = 31," in notes(score_table(ldc()))
    table = score_table(make_results([0.5, 0.6], {}, complete_shots=7))
    assert stars(table) == []
    assert "At every k shown, every class is complete: k* = 7." in notes(table)


@pytest.mark.parametrize(
    ("means", "baselines", "passed"),
    [
        ([0.5, 0.5, 0.5 + 1e-12], {"logistic": 0.5}, {"3": 1}),  # more than equal
        ([0.3, 0.5, 0.7], {"logistic": 0.6, "recurrent": 0.4}, {"2": 2, "3": 1}),
        ([0.5, 0.3, 0.5], {"logistic": 0.4}, {"1": 1}),  # the first time only
        ([float("nan"), 0.5], {"logistic": 0.4}, {"2": 1}),
    ],
)
def test_the_first_k_that_passes_a_baseline_is_underlined(means, baselines, passed):
    table = score_table(make_results(means, baselines))
    expected = {(k, column): mark for k, mark in passed.items() for column in (0, 1)}
    assert underlines(table) == expected


def test_shots_that_were_evaluated_are_shown_or_all_if_none_of_the_wanted_ones_was():
    results = make_results([0.1, 0.5, 0.6], {"logistic": 0.4})
    table = score_table(results, shots=(1, 3, 10))
    assert [row[0].text for row in table.rows] == ["1", "3", "LOGISTIC", "Chance"]
    assert underlines(table) == {("3", 0): 1, ("3", 1): 1}
    table = score_table(make_results([0.1, 0.2], {}, shots=[6, 8]))
    assert [row[0].text for row in table.rows] == ["6", "8", "Chance"]
    other = score_table(results, spread="shared")  # which was not evaluated
    assert other.title.endswith("per-query")


def test_several_baselines_of_a_kind_on_an_encoder_have_their_own_rows_and_one_crossover():
    base = make_results([0.3, 0.5, 0.7], {"recurrent": 0.4})
    others = base.baselines.with_columns(name=pl.lit("LSTM"), value=0.6)
    table = score_table(replace(base, baselines=pl.concat([base.baselines, others])))
    rows = {row[0].text: row[2].text for row in table.rows}
    assert (rows["RECURRENT"], rows["LSTM"]) == ("0.4000", "0.6000")
    assert underlines(table) == {("3", 0): 2, ("3", 1): 2}


def test_in_reduced_scoring_only_the_end_to_end_baseline_counts_if_there_is_one():
    baselines = {"logistic": 0.2, "recurrent": 0.4}
    for more, passed in (
        ({}, {("1", 0): 1, ("1", 1): 1, ("2", 0): 2, ("2", 1): 2}),
        ({"end-to-end": 0.4}, {("2", 0): 1, ("2", 1): 1}),
    ):
        results = make_results([0.3, 0.5], baselines | more, scoring="reduced")
        assert underlines(reduced_table(results)) == passed
    assert reduced_table(make_results([0.5], {})) is None  # without categories


# Baselines


def test_a_baseline_has_scores_choices_and_crossovers():
    baselines = make_baselines(
        ("ELEV", "mfcc", "logistic", "LR", "reduced", "map", 0.2, "C = 1"),
        ("ELEV", "mfcc", "logistic", "LR", "all", "map", 0.25, "C = 1"),
        ("ELEV", "mfcc", "logistic", "LR", "all", "auroc", 0.7, "C = 1"),
        ("ELEV", "", "end-to-end", "AERD", "reduced", "map", 0.4),
    )
    crossovers = make_rows(
        CROSSOVERS,
        ("ELEV", "mfcc", "LR", "all", "all", "map", "shared", 2, None),
        ("ELEV", "mfcc", "LR", "all", "all", "auroc", "per-query", 3, 10),
        ("ELEV", "mfcc", "LR", "k", "all", "map", "per-query", 7, 7),  # at every k
        ("ELEV", "perch-v2", "AERD", "all", "reduced", "map", "shared", 4, 5),
    )
    results = replace(elev(), baselines=baselines)
    table = baseline_table(replace_frames(results, crossovers=crossovers))
    ends = [
        f"k by {metric}, {spread} {end}"
        for spread in ("per-query", "shared")
        for metric in ("mAP", "AUROC")
        for end in ("mean", "clear")
    ]
    headings = [column.whole for column in table.columns[2:]]
    assert headings == ["mAP", "AUROC", "Chosen", *ends]
    first = ["0.2500", "0.7000", "C_=_1", "–", "–", "3", "10", "2", "–", "–", "–"]
    assert [text.replace(" ", "_") for text in texts(table.rows[0][2:])] == first
    assert texts(table.rows[4][2:]) == ["0.4000", *"––––––45––"]
    assert baseline_table(replace(elev(), baselines=make_baselines())) is None


# Classifiers


def test_every_encoder_has_a_block_with_the_reference_first_and_the_best_underlined(
    trained,
):
    table = classifier_table(trained, (1, 5, 7))
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        (encoder, name) for encoder in ("one", "two") for name in CLASSIFIERS
    ]
    assert [column.whole for column in table.columns[2:]] == [
        f"{metric} at k {k}" for metric in ("mAP", "AUROC") for k in (1, 5)
    ]
    rows = table.rows
    for block in (rows[: len(CLASSIFIERS)], rows[len(CLASSIFIERS) :]):
        for column in range(2, len(block[0])):
            cells = [row[column] for row in block]
            best = max(cell.value for cell in cells)
            is_best = [int(cell.value == best) for cell in cells]
            assert [cell.underline for cell in cells] == is_best
    assert classifier_table(make_corpus_results()) is None  # the reference alone


def test_the_cells_are_means_over_the_shared_draws_that_all_classifiers_have(trained):
    table = classifier_table(trained)
    names = {"CL2N": "cl2n", "logistic at k": "logistic"}
    values = join_classifiers(trained).values.filter(scoring="all", spread="shared")
    key = ["encoder", "classifier", "metric", "k"]
    samples = values.select(*key, "value").rows_by_key(key, unique=True)
    lengths = set()
    for row in table.rows:
        for column, cell in zip(table.columns[2:], row[2:], strict=True):
            metric = column.group.split()[0].lower()
            name = names.get(row[1].text, row[1].text)
            (value,) = samples[row[0].text, name, metric, int(column.name)]
            lengths.add(len(value))
            assert cell.value == pytest.approx(sum(value[:100]) / 100, rel=1e-12)
    assert lengths == {100, 120}


def test_undefined_means_are_missing_and_never_the_best(trained):
    is_cosine = pl.col("classifier") == "cosine"
    undefined = pl.lit([float("nan")] * 120)
    value = pl.when(is_cosine).then(undefined).otherwise("value").alias("value")
    values = trained.other_classifiers.values.with_columns(value)
    others = replace(trained.other_classifiers, values=values)
    for row in classifier_table(replace(trained, other_classifiers=others)).rows:
        assert (row[1].text == "cosine") == (row[2].text == "–")
        assert row[2].underline == 0 or row[2].value > 0


# Intervals and differences


def test_intervals_are_those_of_the_curves_on_both_spreads():
    table = interval_table(elev())
    cells = {
        (row[0].text, row[1].text, column.whole): cell
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
    }
    names = {"map": "mAP", "auroc": "AUROC"}
    for point in elev().evaluation.curve.filter(scoring="all").iter_rows(named=True):
        heading = f"{names[point['metric']]}, {point['spread']}"
        for field in ("mean", "p01", "p99"):
            cell = cells[point["encoder"], str(point["k"]), f"{heading} {field}"]
            assert cell.value == point[field]
            assert cell.text == f"{point[field]:.3f}"


def test_differences_are_shown_by_pair_and_k_with_the_share_of_wins():
    def difference(other, k, spread="shared", scoring="all", mean=-0.0125):
        key = ("ELEV", "perch-v2", other, scoring, "map", spread, "one-set", k)
        levels = (mean, -0.1, -0.05, -0.01, 0.0, 0.05, 0.25)
        return (*key, *levels, 200, -0.2, 0.2, False, None)

    def make_table(*rows):
        frame = make_rows(DIFFERENCES, *rows)
        return difference_table(replace_frames(elev(), differences=frame))

    values = ["−0.013", "−0.100", "0.050", "0.250"]
    table = make_table(
        difference("mfcc", 1),
        difference("mfcc", 7),  # a k that is not shown
        difference("mfcc", 1, scoring="reduced", mean=-0.0001),
    )
    fields = [f"mAP, shared {field}" for field in ("mean", "p01", "p99", "wins")]
    assert [column.whole for column in table.columns] == ["Difference", "k", *fields]
    assert [texts(row) for row in table.rows] == [
        ["perch-v2 − mfcc", "1", *values],
        ["perch-v2 − mfcc, reduced scoring", "1", "0.000", *values[1:]],
    ]
    table = make_table(difference("mfcc", 1, "per-query"), difference("hubert", 1))
    assert [texts(row[2:]) for row in table.rows] == [
        [*values, *"––––"],
        [*"––––", *values],
    ]
    assert difference_table(elev()) is None
