from dataclasses import replace

from callshot.records import Crossing, Rival
from callshot.report.tables.baselines import rivals
from callshot.report.tables.csv import to_csv
from report.tables.paper_tables import elev

MINE = (
    Rival("ELEV", "mfcc", "logistic", "LR", "reduced", "map", 0.2, "C = 1"),
    Rival("ELEV", "mfcc", "logistic", "LR", "all", "map", 0.25, "C = 1"),
    Rival("ELEV", "mfcc", "logistic", "LR", "all", "auroc", 0.7, "C = 1"),
    Rival("ELEV", "", "end-to-end", "AERD", "reduced", "map", 0.4),
)
CROSSED = (
    Crossing("ELEV", "mfcc", "LR", "all", "all", "map", "shared", 2, None),
    Crossing("ELEV", "mfcc", "LR", "all", "all", "auroc", "per-query", 3, 10),
    Crossing(
        "ELEV", "mfcc", "LR", "k", "all", "map", "per-query", 7, 7
    ),  # of a rival with the same k: not this table's
    Crossing("ELEV", "perch-v2", "AERD", "all", "reduced", "map", "shared", 4, 5),
)


def told():
    return rivals(replace(elev(), rivals=MINE, crossings=CROSSED))


def test_a_rival_has_a_block_for_each_scoring_and_a_row_for_each_encoder_it_meets():
    assert [(row[0].text, row[1].text) for row in told().rows] == [
        ("LR", "mfcc"),
        ("LR, reduced scoring", "mfcc"),
        *(
            ("AERD, reduced scoring", name)
            for name in ("mfcc", "perch-v1", "perch-v2", "hubert-base-l2")
        ),
    ]


def test_a_row_tells_scores_choices_and_crossings():
    table = told()
    assert [column.whole for column in table.columns[2:]] == [
        "mAP",
        "AUROC",
        "Chosen",
        *(
            f"k by {m}, {s} {e}"
            for s in ("per-query", "shared")
            for m in ("mAP", "AUROC")
            for e in ("mean", "surely")
        ),
    ]
    first = [cell.text for cell in table.rows[0][2:]]
    assert first == ["0.2500", "0.7000", "C = 1", "–", "–", "3", "10", "2", "–", "–", "–"]
    assert [cell.text for cell in table.rows[4][2:]] == ["0.4000", *"––––––", "4", "5", "–", "–"]


def test_the_csv_has_nothing_where_there_is_nothing():
    assert to_csv(told()).splitlines()[1] == "LR,mfcc,0.25,0.7,C = 1,,,3,10,2,,,"


def test_without_rivals_there_is_no_table():
    assert rivals(replace(elev(), rivals=[])) is None
