"""A spreadsheet runs no cell that callshot wrote, and callshot reads back what it wrote."""

import csv
import io
import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.corpus.segment_table import read_rejects, write_duplicates, write_rejects
from callshot.records import Reject
from callshot.records.table_files import (
    format_csv,
    protect_text,
    restore_text,
    write_csv,
    write_csv_frame,
)
from callshot.report.tables.table import Cell, Column, Table, to_csv
from callshot.tables.embedding_tables import read_table
from callshot.tables.evaluation_files import read_frame
from callshot.tables.fold_files import read_csv_records
from rows_of_spans import Annotation, read_annotations, write_annotations

FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "'=1")
TEXTS = st.text(st.sampled_from("'=+-@\t\r1.e,\" x"), max_size=6)


def runs(cell: str) -> bool:
    """Return whether a spreadsheet takes a cell for a formula."""
    return cell[:1] in "=+-@\t\r" and not re.fullmatch(r"[+-]?[\d.]+(e[+-]?\d+)?", cell)


@given(TEXTS)
def test_no_text_runs_and_every_text_comes_back(text):
    if text:
        assert not runs(protect_text(text))
    assert restore_text(protect_text(text)) == text


@given(st.floats(allow_nan=False), st.integers())
def test_numbers_stay_numbers(number, whole):
    cells = next(csv.reader(io.StringIO(format_csv([(number, whole)]))))
    assert (float(cells[0]), int(cells[1])) == (number, whole)
    for text in ("-1", "+2.5", "-1e-5", "-.5"):
        assert protect_text(text) == text


def list_cells(path):
    with path.open(newline="", encoding="utf-8") as lines:
        return [cell for row in csv.reader(lines) for cell in row]


@pytest.mark.parametrize("label", FORMULAS)
def test_no_file_has_a_formula_and_each_is_read_back(tmp_path, label):
    stripped = label.strip()
    rejects = [Reject(f"{label}.wav", 3, f"{label} is no call")]
    write_rejects(rejects, tmp_path / "rejects.csv")
    assert read_rejects(tmp_path / "rejects.csv") == rejects
    write_csv([("label", "category"), (label, label)], tmp_path / "categories.csv")
    record = {"label": label, "category": label}
    assert read_csv_records(tmp_path / "categories.csv", ["label"]) == [record]
    write_duplicates([(0, label, label, label)], tmp_path / "duplicates.csv")
    schema = {"label": pl.String, "value": pl.Float64}
    frame = pl.DataFrame({"label": [label], "value": [-1.0]})
    write_csv_frame(frame, tmp_path / "frame.csv")
    assert read_frame(tmp_path / "frame.csv", schema).equals(frame)
    annotation = Annotation("a.wav", 0.5, 2.0, stripped, "a.csv", 1)
    write_annotations([annotation], tmp_path / "calls.csv", "csv")
    (read,) = read_annotations(tmp_path / "calls.csv").annotations
    assert read.label == stripped
    table = Table("t", "", [Column(label)], [[Cell(label)]])
    (tmp_path / "table.csv").write_bytes(to_csv(table).encode())
    files = sorted(tmp_path.glob("*.csv"))
    assert len(files) == 6
    for path in files:
        assert not any(map(runs, list_cells(path))), path


def test_a_table_of_embeddings_has_the_labels_that_were_protected(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("recording,label,e0,e1\na.wav,'=roar,-1.5,2\nb.wav,-x,0,1\n")
    table = read_table(path)
    assert list(table.label) == ["=roar", "-x"]
    assert table.matrix[0, 0] == -1.5
