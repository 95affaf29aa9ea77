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
    rows = ["ev,mfcc,logistic,LR,,map,0.14", "ldc,mfcc,logistic,LR,,map,0.13"]
    rows.append(",,end-to-end,AERD,reduced,auroc,0.84")
    references = read(tmp_path, "\n".join(rows))
    assert references.select(KEY).rows() == [
        ("ev", "mfcc", "logistic", "LR", "all", "map", 0.14),
        ("ldc", "mfcc", "logistic", "LR", "all", "map", 0.13),
        ("ev", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
        ("ldc", "", "end-to-end", "AERD", "reduced", "auroc", 0.84),
    ]
    assert references["p01"].is_nan().all()
    assert set(references["samples"].list.len()) == {0}
    header = "encoder,kind,name,metric,value\n"
    assert len(read(tmp_path, "mfcc,recurrent,GRU,map,0.2\n", header)) == 2


@pytest.mark.parametrize("specific_first", [True, False])
def test_a_row_with_a_corpus_overrides_the_row_for_all_corpora(
    tmp_path, specific_first
):
    rows = [",mfcc,logistic,LR,,map,0.9\n", "ev,mfcc,logistic,LR,all,map,0.1\n"]
    references = read(tmp_path, "".join(rows[::-1] if specific_first else rows))
    values = sorted(references.select("corpus", "value").rows())
    assert values == [("ev", 0.1), ("ldc", 0.9)]


@pytest.mark.parametrize("corpus", ["ev", ""])
@pytest.mark.parametrize("again", ["logistic,LR,,map,0.2", "recurrent,LR,all,map,0"])
def test_a_reference_that_is_there_twice_is_an_error_with_its_row(
    tmp_path, corpus, again
):
    first = "mfcc,logistic,LR,,map,0.1"
    rows = f"{corpus},{first}\nldc,{first}\n{corpus},mfcc,{again}\n"
    with pytest.raises(InputError, match=r"row 3: 'LR' is there already .* keep one"):
        read(tmp_path, rows)


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (
            "ev,mfc,logistic,LR,,map,0.1",
            "encoder, row 1: expected one of mfcc, perch-v2",
        ),
        ("hree,mfcc,logistic,LR,,map,0.1", "corpus, row 1: .*nothing, got 'hree'"),
        ("ev,mfcc,logistic,,,map,0.1", "name, row 1: expected a name .* got ''"),
        ("ev,,end-to-end,mfcc,,map,0.1", "name, row 1: .*got 'mfcc'"),
        ("ev,mfcc,forest,RF,,map,0.1", "kind, row 1: expected one of .*got 'forest'"),
        ("ev,mfcc,logistic,LR,,f1,0.1", "metric, row 1"),
        ("ev,mfcc,logistic,LR,half,map,0.1", "scoring, row 1"),
        ("ev,mfcc,logistic,LR,,map,14", "value, row 1: expected a number from 0 to 1"),
        ("ev,mfcc,logistic,LR,,map,nan", "value, row 1"),
    ],
)
def test_a_bad_value_is_an_error_with_its_column_and_row(tmp_path, row, match):
    with pytest.raises(InputError, match=f"column {match}"):
        read(tmp_path, f"{row}\n")


def test_a_column_that_is_there_twice_is_an_error(tmp_path):
    header = "encoder,kind,name,metric,value,value\n"
    with pytest.raises(InputError, match=r"column value is in the header 2 times"):
        read(tmp_path, "mfcc,logistic,LR,map,0.5,0.6\n", header)
    (tmp_path / "c.csv").write_text("label,category,label\nroar,low,bark\n")
    with pytest.raises(InputError, match="column label is in the header 2 times"):
        read_categories(tmp_path / "c.csv", table().spans)


BY_RECORDING = "recording,fold\nr,1\ns,2\n"


@pytest.mark.parametrize(
    ("text", "encoding", "numbers"),
    [
        ("segment,fold\na,1\nb,5\nc,5\n", "utf-8", [1, 5, 5]),
        ("segment,fold\na,north\nb,\nc,east\n", "utf-8", [1, -1, 0]),
        ("segment,fold\na,fold10\nb,fold9\nc,-1\n", "utf-8", [1, 0, -1]),
        ("segment,fold,,\na,0,,\nb,1,,\nc,1,,\n", "utf-8", [0, 1, 1]),
        (BY_RECORDING.replace(",", ";"), "cp1252", [1, 2, 2]),
        (BY_RECORDING.replace(",", "\t").replace("\n", "\r\n"), "utf-16", [1, 2, 2]),
        ('"","recording","fold"\n"1","r",1\n"2","s",2\n', "utf-8", [1, 2, 2]),  # R
    ],
)
def test_folds_are_any_integers_or_names(tmp_path, text, encoding, numbers):
    path = tmp_path / "f.csv"
    path.write_bytes(text.encode(encoding))
    assert read_folds(path, table().spans).tolist() == numbers


def table():
    label = ["roar", "bark", "bark"]
    labels = [(name,) for name in label]
    return Vectors.from_columns("e", np.zeros((3, 1)), "abc", "rss", label, labels)


def write_folds(folder, folds):
    (folder / "folds.csv").write_text("segment,fold\n" + folds)
    info = {"count": 2, "origin": "built", "proof": "optimum proved", "classes": []}
    (folder / "folds.json").write_text(json.dumps(info))
    return folder


def test_folds_in_a_folder_are_read_with_their_number_origin_and_proof(tmp_path):
    part, folds = read_folds_dir(write_folds(tmp_path, "a,0\nb,1\n"), table())
    assert (part.segment, folds.fold.tolist()) == (("a", "b"), [0, 1])
    assert (folds.count, folds.origin, folds.proof) == (2, "built", "optimum proved")
    _, folds = read_folds_dir(write_folds(tmp_path, "a,0\nb,1\nc,-1\n"), table())
    assert folds.fold.tolist() == [0, 1, -1]
