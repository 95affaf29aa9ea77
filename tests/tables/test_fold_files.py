"""What rivals scored, and how folds were dealt, from files."""

import json
from pathlib import Path

import numpy as np
import pytest

from callshot.errors import InputError
from callshot.records import Baseline, Embeddings
from callshot.tables.fold_files import read_references, read_categories, read_folds, read_folds_dir

HEADER = "corpus,encoder,kind,name,scoring,metric,value\n"


def baselines(tmp_path: Path, rows: str, header: str = HEADER) -> list[Baseline]:
    path = tmp_path / "rivals.csv"
    path.write_text(header + rows)
    return read_references(path, ["ev", "ldc"], ["mfcc", "perch-v2"])


def test_a_row_without_a_corpus_is_for_all_of_them(tmp_path: Path) -> None:
    found = baselines(
        tmp_path,
        "ev,mfcc,logistic,LR,,map,0.14\nldc,mfcc,logistic,LR,,map,0.13\n,,end-to-end,AERD,reduced,auroc,0.84\n",
    )
    assert found == [
        Baseline("ev", "mfcc", "logistic", "LR", "all", "map", 0.14),
        Baseline("ldc", "mfcc", "logistic", "LR", "all", "map", 0.13),
        Baseline("ev", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
        Baseline("ldc", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
    ]


@pytest.mark.parametrize("own_first", [True, False])
def test_a_row_of_a_corpus_of_its_own_comes_before_one_for_all(
    tmp_path: Path, own_first: bool
) -> None:
    rows = [",mfcc,logistic,LR,,map,0.9\n", "ev,mfcc,logistic,LR,all,map,0.1\n"]
    found = baselines(tmp_path, "".join(rows[::-1] if own_first else rows))
    assert {(r.corpus, r.value) for r in found} == {("ev", 0.1), ("ldc", 0.9)}
    assert len(found) == 2


def test_rows_that_differ_in_what_they_tell_of_are_no_repetition(tmp_path: Path) -> None:
    rows = "ev,mfcc,logistic,LR,,map,0.1\n" + "".join(
        f"{row},0.2\n"
        for row in (
            "ev,mfcc,logistic,LR,,auroc",
            "ev,mfcc,logistic,LR,reduced,map",
            "ev,mfcc,logistic,LR-b,,map",
            "ev,perch-v2,logistic,LR,,map",
            "ldc,mfcc,logistic,LR,,map",
        )
    )
    assert [r.value for r in baselines(tmp_path, rows)] == [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize("corpus", ["ev", ""])
@pytest.mark.parametrize(
    "again",
    ["mfcc,logistic,LR,,map,0.2", "mfcc,logistic,LR,all,map,0.1", "mfcc,recurrent,LR,,map,0"],
)
def test_a_rival_that_is_told_twice_is_refused_with_its_row(
    tmp_path: Path, corpus: str, again: str
) -> None:
    with pytest.raises(
        InputError, match=r"rivals\.csv: row 3: 'LR' has such a row before; keep one of them"
    ):
        baselines(
            tmp_path,
            f"{corpus},mfcc,logistic,LR,,map,0.1\nldc,mfcc,logistic,LR,,map,0.1\n{corpus},{again}\n",
        )


def test_corpus_and_scoring_may_be_left_out(tmp_path: Path) -> None:
    found = baselines(tmp_path, "mfcc,recurrent,GRU,map,0.2\n", "encoder,kind,name,metric,value\n")
    assert found == [
        Baseline(corpus, "mfcc", "recurrent", "GRU", "all", "map", 0.2) for corpus in ("ev", "ldc")
    ]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (
            "ev,mfc,logistic,LR,,map,0.1\n",
            "column encoder, row 1: one of mfcc, perch-v2, nothing, found 'mfc'",
        ),
        (
            "hree,mfcc,logistic,LR,,map,0.1\n",
            "column corpus, row 1: one of ev, ldc, nothing, found 'hree'",
        ),
        (
            "ev,mfcc,logistic,,,map,0.1\n",
            "column name, row 1: wanted a name that no encoder .* found ''",
        ),
        ("ev,mfcc,logistic,  ,,map,0.1\n", "column name, row 1"),
        ("ev,,end-to-end,mfcc,,map,0.1\n", "column name, row 1: .*found 'mfcc'"),
        (
            "ev,mfcc,forest,RF,,map,0.1\n",
            "column kind, row 1: one of logistic, recurrent, end-to-end, found 'forest'",
        ),
        ("ev,mfcc,logistic,LR,,f1,0.1\n", "column metric, row 1"),
        ("ev,mfcc,logistic,LR,half,map,0.1\n", "column scoring, row 1"),
        (
            "ev,mfcc,logistic,LR,,map,14\n",
            "column value, row 1: wanted a number from 0 to 1, found '14'",
        ),
        ("ev,mfcc,logistic,LR,,map,nan\n", "column value, row 1"),
        ("ev,mfcc,logistic,LR,,map,x\n", "column value, row 1"),
    ],
)
def test_what_is_no_rival_is_told_with_its_row(tmp_path: Path, row: str, match: str) -> None:
    with pytest.raises(InputError, match=match):
        baselines(tmp_path, row)


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    header = "encoder,kind,name,metric,value,value\n"
    with pytest.raises(InputError, match=r"rivals\.csv: column value is in the header 2 times"):
        baselines(tmp_path, "mfcc,logistic,LR,map,0.5,0.6\n", header)
    (tmp_path / "c.csv").write_text("label,category,label\nroar,low,bark\n")
    with pytest.raises(InputError, match="column label is in the header 2 times"):
        read_categories(tmp_path / "c.csv", table())
    (tmp_path / "f.csv").write_text("segment,fold,,\na,0,,\nb,1,,\nc,1,,\n")
    assert read_folds(tmp_path / "f.csv", table()).tolist() == [
        0,
        1,
        1,
    ]  # a sheet with empty columns at its right


# --- dealt folds


def table() -> Embeddings:
    labels = ["roar", "bark", "bark"]
    return Embeddings(
        "e",
        np.zeros((3, 1)),
        ["a", "b", "c"],
        ["r", "s", "s"],
        labels,
        [(name,) for name in labels],
    )


def deal(folder: Path, told: object, folds: str = "a,0\nb,1\n") -> Path:
    (folder / "folds.csv").write_text("segment,fold\n" + folds)
    (folder / "folds.json").write_text(told if isinstance(told, str) else json.dumps(told))
    return folder


TOLD = {"count": 2, "origin": "built", "proof": "optimum proved"}


def test_dealt_folds_come_back_with_how_they_came_about(tmp_path: Path) -> None:
    part, folds = read_folds_dir(deal(tmp_path, TOLD | {"classes": []}), table())
    assert (part.segment, folds.fold.tolist()) == (("a", "b"), [0, 1])
    assert (folds.count, folds.origin, folds.proof) == (2, "built", "optimum proved")
    assert read_folds_dir(deal(tmp_path, TOLD, "a,0\nb,1\nc,-1\n"), table())[1].fold.tolist() == [
        0,
        1,
        -1,
    ]


@pytest.mark.parametrize(
    ("told", "match"),
    [
        ("", r"folds\.json: not a JSON file \("),
        ('{"count": 2,', r"folds\.json: not a JSON file \("),
        ("[" * 100_000, r"folds\.json: not a JSON file \("),
        ([TOLD], r"folds\.json: count: wanted an integer, found null; deal the folds again"),
        ({"count": 2, "origin": "built"}, r"folds\.json: proof: wanted text, found null"),
        (TOLD | {"count": "2"}, r'count: wanted an integer, found "2"'),
        (TOLD | {"count": True}, "count: wanted an integer, found true"),
        (TOLD | {"origin": None}, "origin: wanted text"),
        (
            TOLD | {"count": 3},
            r"folds\.csv: wanted the 3 folds that folds\.json tells of, .* found 0, 1; deal",
        ),
        (TOLD | {"count": 1}, "wanted the 1 folds .* found 0, 1"),
        (TOLD | {"count": -1}, "wanted the -1 folds"),
    ],
)
def test_damaged_dealt_folds_are_refused_in_one_line(
    tmp_path: Path, told: object, match: str
) -> None:
    with pytest.raises(InputError, match=match) as caught:
        read_folds_dir(deal(tmp_path, told), table())
    assert "\n" not in str(caught.value)


def test_dealt_folds_that_are_not_there_or_not_text_are_refused(tmp_path: Path) -> None:
    deal(tmp_path, TOLD)
    (tmp_path / "folds.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"folds\.json: not a JSON file"):
        read_folds_dir(tmp_path, table())
    (tmp_path / "folds.json").unlink()
    with pytest.raises(InputError, match=r"folds\.json: cannot be read"):
        read_folds_dir(tmp_path, table())


@pytest.mark.parametrize("folds", ["a,0\nb,2\n", "a,0\nb,0\n", "a,-2\nb,1\nc,0\n", "z,0\n"])
def test_dealt_folds_whose_numbers_are_others_are_refused(tmp_path: Path, folds: str) -> None:
    with pytest.raises(InputError, match=r"folds\.csv: wanted the 2 folds"):
        read_folds_dir(deal(tmp_path, TOLD, folds), table())
