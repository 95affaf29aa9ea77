from dataclasses import replace

from callshot.records import Difference
from callshot.report.tables.comparisons import differences, intervals
from report.tables.paper_tables import ENCODERS, elev

HEADS = [f"{metric}, {spread}" for spread in ("per-query", "shared") for metric in ("AUROC", "mAP")]


def difference(
    other: str, k: int, spread: str = "shared", scoring: str = "all", mean: float = -0.0125
) -> Difference:
    return Difference(
        "ELEV",
        "perch-v2",
        other,
        scoring,
        "map",
        spread,
        k,
        mean,
        -0.1,
        -0.05,
        -0.01,
        0.0,
        0.05,
        0.25,
    )


def test_intervals_have_a_block_for_each_encoder_and_three_columns_for_each_spread_and_metric():
    table = intervals(elev())
    assert [column.whole for column in table.columns[2:]] == [
        f"{h} {f}" for h in HEADS for f in ("mean", "p01", "p99")
    ]
    assert table.blocks
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        (encoder, str(k)) for encoder in ENCODERS for k in (1, 2, 3, 4, 5, 10, 15, 20, 40)
    ]


def test_intervals_are_the_curves_of_both_spreads():
    corpus_results, table = elev(), intervals(elev())
    at = {
        (row[0].text, row[1].text, col.whole): cell
        for row in table.rows
        for col, cell in zip(table.columns, row, strict=True)
    }
    names = {"map": "mAP", "auroc": "AUROC"}
    for c in corpus_results.evaluation.curve:
        for field in ("mean", "p01", "p99"):
            cell = at.get((c.encoder, str(c.k), f"{names[c.metric]}, {c.spread} {field}"))
            if c.scoring == "all":
                assert cell.value == getattr(c, field)
                assert cell.text == f"{getattr(c, field):.3f}"


def test_intervals_mark_k_star_in_every_block():
    assert [row[1].text for row in intervals(elev()).rows if row[1].mark] == ["4"] * 4


def test_differences_are_told_by_pair_and_k_with_the_share_won():
    corpus_results = replace(
        elev(), differences=[difference("mfcc", 1), difference("mfcc", 7), difference("mfcc LR", 1)]
    )
    table = differences(corpus_results)
    assert [column.whole for column in table.columns] == [
        "Difference",
        "k",
        *(f"mAP, shared {field}" for field in ("mean", "p01", "p99", "wins")),
    ]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["perch-v2 − mfcc", "1", "−0.013", "−0.100", "0.050", "0.250"],
        ["perch-v2 − mfcc LR", "1", "−0.013", "−0.100", "0.050", "0.250"],
    ]


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    table = differences(replace(elev(), differences=[difference("mfcc", 1, mean=-0.0001)]))
    assert table.rows[0][2].text == "0.000"


def test_differences_under_reduced_scoring_say_so():
    pairs = [difference("mfcc", 1), difference("mfcc", 1, scoring="reduced", mean=0.5)]
    table = differences(replace(elev(), differences=pairs))
    assert [(row[0].text, row[2].text) for row in table.rows] == [
        ("perch-v2 − mfcc", "−0.013"),
        ("perch-v2 − mfcc, reduced scoring", "0.500"),
    ]


def test_what_was_not_compared_is_missing():
    pairs = [difference("mfcc", 1, "per-query"), difference("hubert", 1, "shared")]
    table = differences(replace(elev(), differences=pairs))
    assert [cell.text for cell in table.rows[0][2:]] == [
        "−0.013",
        "−0.100",
        "0.050",
        "0.250",
        *["–"] * 4,
    ]
    assert [cell.text for cell in table.rows[1][2:]] == [
        *["–"] * 4,
        "−0.013",
        "−0.100",
        "0.050",
        "0.250",
    ]


def test_without_differences_there_is_no_table():
    assert differences(elev()) is None
