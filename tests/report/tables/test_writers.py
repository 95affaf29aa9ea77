"""CSV and Markdown tables read back as they were; files are the same for the same results."""

import csv
import html
import io
import re

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from callshot.errors import printable
from callshot.records.table_files import restore_text
from callshot.report.tables.table import Cell, Column, Table, number
from callshot.report.tables.table_writers import (
    build_tables,
    to_csv,
    to_markdown,
    write_tables,
)
from corpus_results import make_corpus_results, make_tables
from report.tables.hostile_labels import make_hostile_results
from report.tables.paper_tables import elev, ldc

TABLES = build_tables([elev(), ldc(), make_hostile_results()])
NAMES = [table.name for table in TABLES]
ANY = st.text(
    st.sampled_from("ab1 \\`*_[]|~#<>&$@:;!-+=(){}^%\"',.\n\r\té–象⋆"), max_size=12
)


def make_table(text):
    return Table(
        "t",
        text,
        [Column(text), Column("mAP", text)],
        [[Cell(text), number(0.5)]],
        notes=[("", text)],
    )


def read_csv(table):
    rows = csv.reader(io.StringIO(to_csv(table), newline=""))
    return [[restore_text(cell) for cell in cells] for cells in rows]


def render(table):
    """Return the HTML that a Markdown reader makes of a table."""
    return MarkdownIt("commonmark").enable("table").render(to_markdown(table))


def cell_texts(page, tag):
    """Return the text of cells as a reader sees it, without tags."""
    cells = re.findall(rf"<{tag}(?: [^>]*)?>(.*?)</{tag}>", page, flags=re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]*>", "", text)) for text in cells]


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_csv_reads_back_text_by_text_and_number_by_number(table):
    head, *rows = read_csv(table)
    assert head == [column.whole for column in table.columns]
    assert len(rows) == len(table.rows)
    for texts, cells in zip(rows, table.rows, strict=True):
        for text, cell in zip(texts, cells, strict=True):
            if cell.value is not None:
                assert float(text) == cell.value
            elif cell.text == "–":
                assert text == ""
            else:
                assert text == cell.text


def test_other_programs_read_columns_of_numbers_as_numbers():
    table = next(table for table in TABLES if table.name == "intervals-elev")
    frame = pl.read_csv(io.StringIO(to_csv(table)))
    assert set(frame.dtypes[2:]) == {pl.Float64}
    assert frame.dtypes[1] == pl.Int64


@given(ANY)
@example("–")
def test_any_text_reads_back_from_csv(text):
    head, row = read_csv(make_table(text))
    assert head == [text, f"{text} mAP" if text else "mAP"]
    assert row == [text, "0.5"]


@pytest.mark.parametrize("table", TABLES, ids=NAMES)
def test_markdown_has_the_same_cells(table):
    page = render(table)
    assert cell_texts(page, "th") == [
        printable(column.whole).strip() for column in table.columns
    ]
    expected = [
        printable(cell.text + cell.mark).strip() for row in table.rows for cell in row
    ]
    assert cell_texts(page, "td") == expected


@given(ANY)
@example(r"a\|b")
def test_any_text_reads_back_from_markdown(text):
    page = render(make_table(text))
    expected = printable(text).strip()
    assert cell_texts(page, "td")[0] == expected
    assert cell_texts(page, "th")[0] == expected


def test_markdown_makes_no_tag_mention_emoji_or_formula_of_a_label():
    text = to_markdown(make_table("<script> @user :smile: $x$ #1"))
    assert not re.search(r"<script|@user|:smile:|\$x|(?<!\\)#1", text)


def test_files_are_written_for_every_table_in_each_format(tmp_path):
    names = write_tables(build_tables([elev(), ldc()]), tmp_path / "deep" / "tables")
    stems = ["corpora", "segments"]
    kinds = ("classes", "results", "reduced", "baselines", "intervals")
    stems += [f"{kind}-{c}" for c in ("elev", "ldc") for kind in kinds]
    assert names == [
        *(f"{stem}.{kind}" for stem in stems for kind in ("tex", "md", "csv")),
        "tables.tex",
    ]
    assert sorted(
        path.name for path in (tmp_path / "deep" / "tables").iterdir()
    ) == sorted(names)


def test_equal_results_give_equal_bytes(tmp_path):
    for folder in ("a", "b"):
        write_tables(build_tables([elev()]), tmp_path / folder)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()
        assert b"\r" not in path.read_bytes()


def test_each_corpus_has_file_names_of_its_own_that_are_safe(tmp_path):
    tables = make_tables(encoders=["one"])
    all_results = [
        make_corpus_results(tables, corpus=corpus)
        for corpus in ("../a b", "A/B", "象", "..")
    ]
    names = write_tables(build_tables(all_results), tmp_path)
    stems = [
        name.removeprefix("results-").removesuffix(".csv")
        for name in names
        if re.match(r"results.*csv", name)
    ]
    assert stems == ["a-b", "a-b-2", "corpus", "corpus-2"]
    assert all(re.fullmatch(r"[a-z0-9-]+\.(tex|md|csv)", name) for name in names)


def test_shots_and_spread_reach_the_tables(tmp_path):
    write_tables(build_tables([elev()], shots=(1, 40), spread="shared"), tmp_path)
    rows = list(
        csv.reader(
            (tmp_path / "results-elev.csv").read_text(encoding="utf-8").splitlines()
        )
    )
    assert [row[0] for row in rows] == ["k", "1", "40", "LR", "Recurrent", "Chance"]
    assert float(rows[1][2]) == pytest.approx(0.2344 + 0.05)
