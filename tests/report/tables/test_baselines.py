from dataclasses import replace

from callshot.records.frames import CROSSOVERS
from callshot.report.tables.score_tables import baseline_table
from corpus_results import make_baselines, make_rows, replace_frames
from report.tables.paper_tables import elev

BASELINES = make_baselines(
    ("ELEV", "mfcc", "logistic", "LR", "reduced", "map", 0.2, "C = 1"),
    ("ELEV", "mfcc", "logistic", "LR", "all", "map", 0.25, "C = 1"),
    ("ELEV", "mfcc", "logistic", "LR", "all", "auroc", 0.7, "C = 1"),
    ("ELEV", "", "end-to-end", "AERD", "reduced", "map", 0.4),
)
CROSSOVER_ROWS = make_rows(
    CROSSOVERS,
    ("ELEV", "mfcc", "LR", "all", "all", "map", "shared", 2, None),
    ("ELEV", "mfcc", "LR", "all", "all", "auroc", "per-query", 3, 10),
    ("ELEV", "mfcc", "LR", "k", "all", "map", "per-query", 7, 7),  # not for this table
    ("ELEV", "perch-v2", "AERD", "all", "reduced", "map", "shared", 4, 5),
)


def make_table():
    results = replace(elev(), baselines=BASELINES)
    return baseline_table(replace_frames(results, crossovers=CROSSOVER_ROWS))


def test_a_row_has_scores_choices_and_crossovers():
    table = make_table()
    headings = [column.whole for column in table.columns[2:]]
    assert headings == [
        "mAP",
        "AUROC",
        "Chosen",
        *(
            f"k by {metric}, {spread} {end}"
            for spread in ("per-query", "shared")
            for metric in ("mAP", "AUROC")
            for end in ("mean", "clear")
        ),
    ]
    first = [cell.text for cell in table.rows[0][2:]]
    assert first == [
        "0.2500",
        "0.7000",
        "C = 1",
        "–",
        "–",
        "3",
        "10",
        "2",
        "–",
        "–",
        "–",
    ]
    assert [cell.text for cell in table.rows[4][2:]] == [
        "0.4000",
        *"––––––",
        "4",
        "5",
        "–",
        "–",
    ]


def test_without_baselines_there_is_no_table():
    assert baseline_table(replace(elev(), baselines=make_baselines())) is None
