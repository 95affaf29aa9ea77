"""What rivals scored, from a file."""

from pathlib import Path

import pytest

from callshot.encoders.sidecars import read_rivals
from callshot.errors import InputError
from callshot.records import Rival

HEADER = "corpus,encoder,kind,name,scoring,metric,value\n"


def rivals(tmp_path: Path, rows: str, header: str = HEADER) -> list[Rival]:
    path = tmp_path / "rivals.csv"
    path.write_text(header + rows)
    return read_rivals(path, "ev", ["mfcc", "perch-v2"])


def test_rows_of_the_corpus_and_of_all_are_taken(tmp_path: Path) -> None:
    found = rivals(
        tmp_path,
        "ev,mfcc,logistic,LR,,map,0.14\nldc,mfcc,logistic,LR,,map,0.13\n,,end-to-end,AERD,reduced,auroc,0.84\n",
    )
    assert found == [
        Rival("ev", "mfcc", "logistic", "LR", "all", "map", 0.14),
        Rival("ev", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
    ]


def test_corpus_and_scoring_may_be_left_out(tmp_path: Path) -> None:
    found = rivals(tmp_path, "mfcc,recurrent,GRU,map,0.2\n", "encoder,kind,name,metric,value\n")
    assert found == [Rival("ev", "mfcc", "recurrent", "GRU", "all", "map", 0.2)]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ("ev,mfc,logistic,LR,,map,0.1\n", "column encoder, row 1: one of mfcc, perch-v2, , found 'mfc'"),
        ("ev,mfcc,forest,RF,,map,0.1\n", "column kind, row 1: one of logistic, recurrent, end-to-end, found 'forest'"),
        ("ev,mfcc,logistic,LR,,f1,0.1\n", "column metric, row 1"),
        ("ev,mfcc,logistic,LR,half,map,0.1\n", "column scoring, row 1"),
        ("ev,mfcc,logistic,LR,,map,14\n", "column value, row 1: wanted a number from 0 to 1, found '14'"),
        ("ev,mfcc,logistic,LR,,map,nan\n", "column value, row 1"),
        ("ev,mfcc,logistic,LR,,map,x\n", "column value, row 1"),
    ],
)
def test_what_is_no_rival_is_told_with_its_row(tmp_path: Path, row: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        rivals(tmp_path, row)
