"""Files of references, folds and categories: what is read from them, and one-line errors."""

import json

import numpy as np
import pytest

from callshot.errors import InputError
from callshot.tables.fold_files import (
    read_categories,
    read_folds,
    read_folds_dir,
    read_reference_scores,
)
from callshot.vectors import Vectors

HEADER = "corpus,encoder,kind,name,scoring,metric,value\n"
KEY = HEADER.strip().split(",")


def read(tmp_path, rows, header=HEADER):
    path = tmp_path / "references.csv"
    path.write_text(header + rows)
    return read_reference_scores(path, ["ev", "ldc"], ["mfcc", "perch-v2"])


def test_a_row_without_a_corpus_is_for_all_of_them(tmp_path):
    references = read(
        tmp_path,
        "ev,mfcc,logistic,LR,,map,0.14\nldc,mfcc,logistic,LR,,map,0.13\n,,end-to-end,AERD,reduced,auroc,0.84\n",
    )
    assert references.select(KEY).rows() == [
        ("ev", "mfcc", "logistic", "LR", "all", "map", 0.14),
        ("ldc", "mfcc", "logistic", "LR", "all", "map", 0.13),
        ("ev", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
        ("ldc", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
    ]
    assert references["p01"].is_nan().all()
    assert set(references["samples"].list.len()) == {0}


@pytest.mark.parametrize("specific_first", [True, False])
def test_a_row_with_a_corpus_overrides_the_row_for_all_corpora(
    tmp_path, specific_first
):
    rows = [",mfcc,logistic,LR,,map,0.9\n", "ev,mfcc,logistic,LR,all,map,0.1\n"]
    references = read(tmp_path, "".join(rows[::-1] if specific_first else rows))
    assert set(references.select("corpus", "value").rows()) == {
        ("ev", 0.1),
        ("ldc", 0.9),
    }
    assert len(references) == 2


def test_rows_that_differ_in_metric_scoring_name_encoder_or_corpus_are_all_read(
    tmp_path,
):
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
    assert read(tmp_path, rows)["value"].to_list() == [0.1, 0.2, 0.2, 0.2, 0.2, 0.2]


@pytest.mark.parametrize("corpus", ["ev", ""])
@pytest.mark.parametrize(
    "again",
    [
        "mfcc,logistic,LR,,map,0.2",
        "mfcc,logistic,LR,all,map,0.1",
        "mfcc,recurrent,LR,,map,0",
    ],
)
def test_a_reference_that_is_there_twice_is_an_error_with_its_row(
    tmp_path, corpus, again
):
    with pytest.raises(
        InputError,
        match=r"references\.csv: row 3: 'LR' is there already .* keep one row",
    ):
        read(
            tmp_path,
            f"{corpus},mfcc,logistic,LR,,map,0.1\nldc,mfcc,logistic,LR,,map,0.1\n{corpus},{again}\n",
        )


def test_corpus_and_scoring_may_be_left_out(tmp_path):
    references = read(
        tmp_path, "mfcc,recurrent,GRU,map,0.2\n", "encoder,kind,name,metric,value\n"
    )
    assert references.select(KEY).rows() == [
        (corpus, "mfcc", "recurrent", "GRU", "all", "map", 0.2)
        for corpus in ("ev", "ldc")
    ]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (
            "ev,mfc,logistic,LR,,map,0.1\n",
            "column encoder, row 1: expected one of mfcc, perch-v2, nothing, got 'mfc'",
        ),
        (
            "hree,mfcc,logistic,LR,,map,0.1\n",
            "column corpus, row 1: expected one of ev, ldc, nothing, got 'hree'",
        ),
        (
            "ev,mfcc,logistic,,,map,0.1\n",
            "column name, row 1: expected a name that no encoder .* got ''",
        ),
        ("ev,,end-to-end,mfcc,,map,0.1\n", "column name, row 1: .*got 'mfcc'"),
        (
            "ev,mfcc,forest,RF,,map,0.1\n",
            "column kind, row 1: expected one of logistic, recurrent, end-to-end, got 'forest'",
        ),
        ("ev,mfcc,logistic,LR,,f1,0.1\n", "column metric, row 1"),
        ("ev,mfcc,logistic,LR,half,map,0.1\n", "column scoring, row 1"),
        (
            "ev,mfcc,logistic,LR,,map,14\n",
            "column value, row 1: expected a number from 0 to 1, got '14'",
        ),
        ("ev,mfcc,logistic,LR,,map,nan\n", "column value, row 1"),
    ],
)
def test_a_bad_value_is_an_error_with_its_column_and_row(tmp_path, row, match):
    with pytest.raises(InputError, match=match):
        read(tmp_path, row)


def test_a_column_that_is_there_twice_is_an_error(tmp_path):
    header = "encoder,kind,name,metric,value,value\n"
    with pytest.raises(
        InputError, match=r"references\.csv: column value is in the header 2 times"
    ):
        read(tmp_path, "mfcc,logistic,LR,map,0.5,0.6\n", header)
    (tmp_path / "c.csv").write_text("label,category,label\nroar,low,bark\n")
    with pytest.raises(InputError, match="column label is in the header 2 times"):
        read_categories(tmp_path / "c.csv", table().spans)
    (tmp_path / "f.csv").write_text("segment,fold,,\na,0,,\nb,1,,\nc,1,,\n")
    assert read_folds(tmp_path / "f.csv", table().spans).tolist() == [
        0,
        1,
        1,
    ]  # a sheet with empty columns at its right


@pytest.mark.parametrize(
    ("folds", "numbers"),
    [
        ("a,1\nb,5\nc,5\n", [1, 5, 5]),
        ("a,north\nb,\nc,east\n", [1, -1, 0]),
        ("a,fold10\nb,fold9\nc,-1\n", [1, 0, -1]),
    ],
)
def test_folds_are_any_integers_or_names(tmp_path, folds, numbers):
    (tmp_path / "f.csv").write_text(f"segment,fold\n{folds}")
    assert read_folds(tmp_path / "f.csv", table().spans).tolist() == numbers


# Folders of folds


def table():
    labels = ["roar", "bark", "bark"]
    return Vectors.from_columns(
        "e",
        np.zeros((3, 1)),
        ["a", "b", "c"],
        ["r", "s", "s"],
        labels,
        [(name,) for name in labels],
    )


def write_folds(folder, info, folds="a,0\nb,1\n"):
    (folder / "folds.csv").write_text("segment,fold\n" + folds)
    (folder / "folds.json").write_text(
        info if isinstance(info, str) else json.dumps(info)
    )
    return folder


INFO = {"count": 2, "origin": "built", "proof": "optimum proved"}


def test_folds_in_a_folder_are_read_with_their_number_origin_and_proof(tmp_path):
    part, folds = read_folds_dir(write_folds(tmp_path, INFO | {"classes": []}), table())
    assert (part.segment, folds.fold.tolist()) == (("a", "b"), [0, 1])
    assert (folds.count, folds.origin, folds.proof) == (2, "built", "optimum proved")
    assert read_folds_dir(write_folds(tmp_path, INFO, "a,0\nb,1\nc,-1\n"), table())[
        1
    ].fold.tolist() == [0, 1, -1]


def herd():
    label = ("Brüllen", "Grollen")
    vectors = np.zeros((2, 1), np.float32)
    labels = [(name,) for name in label]
    return Vectors.from_columns(
        "mfcc", vectors, ("a#1", "b#1"), ("a.wav", "b.wav"), label, labels
    )


FOLDS = "recording,fold\na.wav,1\nb.wav,2\n"
AS_PEOPLE_HAVE_THEM = {
    "semicolons": (FOLDS.replace(",", ";"), "utf-8"),
    "tabs": (FOLDS.replace(",", "\t"), "utf-8"),
    "Excel": (FOLDS.replace(",", ";").replace("\n", "\r\n"), "utf-16"),
    "R": ('"","recording","fold"\n"1","a.wav",1\n"2","b.wav",2\n', "utf-8"),
}


@pytest.mark.parametrize("name", AS_PEOPLE_HAVE_THEM)
def test_folds_are_read_as_people_have_them(name, tmp_path):
    text, encoding = AS_PEOPLE_HAVE_THEM[name]
    path = tmp_path / "folds.csv"
    path.write_bytes(text.encode(encoding))
    assert read_folds(path, herd().spans).tolist() == [1, 2]


def test_categories_are_read_as_excel_writes_them_on_windows(tmp_path):
    path = tmp_path / "categories.csv"
    path.write_bytes("label;category\r\nBrüllen;tönend\r\n".encode("cp1252"))
    assert read_categories(path, herd().spans) == {"Brüllen": "tönend"}
