from callshot.records.frames import DIFFERENCES
from callshot.report.tables.score_tables import difference_table, interval_table
from corpus_results import make_rows, replace_frames
from report.tables.paper_tables import elev


def difference(other, k, spread="shared", scoring="all", mean=-0.0125, is_clear=False):
    """Return a row of the DIFFERENCES schema."""
    key = ("ELEV", "perch-v2", other, scoring, "map", spread, k)
    judgement = (200, -0.2, 0.2, is_clear)
    return (*key, mean, -0.1, -0.05, -0.01, 0.0, 0.05, 0.25, *judgement)


def make_table(*rows):
    return difference_table(
        replace_frames(elev(), differences=make_rows(DIFFERENCES, *rows))
    )


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
    table = make_table(
        difference("mfcc", 1), difference("mfcc", 7), difference("mfcc LR", 1)
    )
    assert [column.whole for column in table.columns] == [
        "Difference",
        "k",
        *(f"mAP, shared {field}" for field in ("mean", "p01", "p99", "wins")),
    ]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["perch-v2 − mfcc", "1", "−0.013", "−0.100", "0.050", "0.250"],
        ["perch-v2 − mfcc LR", "1", "−0.013", "−0.100", "0.050", "0.250"],
    ]


def test_a_difference_that_rounds_to_0_has_no_sign():
    assert make_table(difference("mfcc", 1, mean=-0.0001)).rows[0][2].text == "0.000"


def test_differences_in_reduced_scoring_are_named_so():
    table = make_table(
        difference("mfcc", 1), difference("mfcc", 1, scoring="reduced", mean=0.5)
    )
    assert [(row[0].text, row[2].text) for row in table.rows] == [
        ("perch-v2 − mfcc", "−0.013"),
        ("perch-v2 − mfcc, reduced scoring", "0.500"),
    ]


def test_pairs_that_were_not_compared_are_missing():
    table = make_table(
        difference("mfcc", 1, "per-query"), difference("hubert", 1, "shared")
    )
    values = ["−0.013", "−0.100", "0.050", "0.250"]
    assert [cell.text for cell in table.rows[0][2:]] == [*values, *"––––"]
    assert [cell.text for cell in table.rows[1][2:]] == [*"––––", *values]


def test_without_differences_there_is_no_table():
    assert difference_table(elev()) is None
