from dataclasses import replace

from callshot.records import Baseline, Crossover
from callshot.report.tables.baselines import baselines
from callshot.report.tables.csv import to_csv
from report.tables.paper_tables import elev

MINE = (
    Baseline("ELEV", "mfcc", "logistic", "LR", "reduced", "map", 0.2, "C = 1"),
    Baseline("ELEV", "mfcc", "logistic", "LR", "all", "map", 0.25, "C = 1"),
    Baseline("ELEV", "mfcc", "logistic", "LR", "all", "auroc", 0.7, "C = 1"),
    Baseline("ELEV", "", "end-to-end", "AERD", "reduced", "map", 0.4),
)
CROSSED = (
    Crossover("ELEV", "mfcc", "LR", "all", "all", "map", "shared", 2, None),
    Crossover("ELEV", "mfcc", "LR", "all", "all", "auroc", "per-query", 3, 10),
    Crossover(
        "ELEV", "mfcc", "LR", "k", "all", "map", "per-query", 7, 7
    ),  # of a rival with the same k: not this table's
    Crossover("ELEV", "perch-v2", "AERD", "all", "reduced", "map", "shared", 4, 5),
)


def told():
    return baselines(replace(elev(), baselines=MINE, crossovers=CROSSED))


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
            for e in ("mean", "k_clear")
        ),
    ]
    first = [cell.text for cell in table.rows[0][2:]]
    assert first == ["0.2500", "0.7000", "C = 1", "–", "–", "3", "10", "2", "–", "–", "–"]
    assert [cell.text for cell in table.rows[4][2:]] == ["0.4000", *"––––––", "4", "5", "–", "–"]


def test_the_csv_has_nothing_where_there_is_nothing():
    assert to_csv(told()).splitlines()[1] == "LR,mfcc,0.25,0.7,C = 1,,,3,10,2,,,"


def test_without_rivals_there_is_no_table():
    assert baselines(replace(elev(), baselines=[])) is None
