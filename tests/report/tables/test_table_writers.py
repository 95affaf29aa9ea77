"""Tables in files: any text is shown and none obeyed, and CSV and Markdown read back."""

import csv
import html
import io
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from callshot.errors import printable
from callshot.records.table_files import restore_text
from callshot.report.tables.score_tables import score_table
from callshot.report.tables.table import (
    Cell,
    Column,
    Table,
    build_tables,
    escape_latex,
    escape_prose,
    number,
    to_csv,
    to_latex,
    to_markdown,
    write_tables,
)
from corpus_results import make_corpus_results, make_tables
from report.figures.made_up_results import make_results
from report.tables.paper_tables import elev, ldc

HOSTILE = (
    r"\input{/etc/passwd} ~^_&%$#{}",
    "Grollen·象 élan ß ø ł ñ ą я 🐘",
    "<script>alert(1)</script>",
    "x" * 60,
    "[optional] *star*",
    "*[2pt] a|b `code` \"quoted\" --- ''x'' ?`!`",
    "a_very_long_name_with_underscores_and-hyphens_of_60_letters_x",
    "new\nline\ttab\r\x00\x1b[31m\u202e",
    "\\",
    r"$x^2$ & \\ \end{document}",
    "@user :smile: #1 http://x.org",
    '=1+1,"2"',
)
ENCODERS = ("perch-v2", "n" * 60, r"\evil{%}")
HOSTILE_RESULTS = replace(
    make_results(HOSTILE, ENCODERS, (1, 2, 5), reduced=True),
    categories=dict.fromkeys(HOSTILE[:5], HOSTILE[0]),
)
TABLES = build_tables([elev(), ldc(), HOSTILE_RESULTS])
NAMES = [table.name for table in TABLES]
ANY = st.text(
    st.sampled_from("ab1 \\`*_[]|~#<>&$@:;!-+=(){}^%\"',.\n\r\té–象⋆"), max_size=12
)


def make_table(text):
    columns = [Column(text), Column("mAP", text)]
    return Table("t", text, columns, [[Cell(text), number(0.5)]], notes=[("", text)])


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
def test_csv_and_markdown_have_the_same_cells_and_csv_the_whole_numbers(table):
    head, *rows = read_csv(table)
    assert head == [column.whole for column in table.columns]
    assert len(rows) == len(table.rows)
    for texts, cells in zip(rows, table.rows, strict=True):
        for text, cell in zip(texts, cells, strict=True):
            if cell.value is not None:
                assert float(text) == cell.value
            else:
                assert text == ("" if cell.text == "–" else cell.text)
    page = render(table)
    headings = [printable(column.whole).strip() for column in table.columns]
    assert cell_texts(page, "th") == headings
    cells = [cell for row in table.rows for cell in row]
    expected = [printable(cell.text + cell.mark).strip() for cell in cells]
    assert cell_texts(page, "td") == expected


@given(ANY)
@example("–")
@example(r"a\|b")
def test_any_text_reads_back_from_csv_and_markdown(text):
    head, row = read_csv(make_table(text))
    assert head == [text, f"{text} mAP" if text else "mAP"]
    assert row == [text, "0.5"]
    page = render(make_table(text))
    expected = printable(text).strip()
    assert cell_texts(page, "td")[0] == cell_texts(page, "th")[0] == expected


def test_markdown_makes_no_tag_mention_emoji_or_formula_of_a_label():
    text = to_markdown(make_table("<script> @user :smile: $x$ #1"))
    assert not re.search(r"<script|@user|:smile:|\$x|(?<!\\)#1", text)


def test_files_are_written_for_every_table_in_each_format(tmp_path):
    folder = tmp_path / "deep" / "tables"
    tables = build_tables([elev(), ldc()], shots=(1, 40), spread="shared")
    names = write_tables(tables, folder)
    stems = ["corpora", "segments"]
    kinds = ("classes", "results", "reduced", "baselines", "intervals")
    stems += [f"{kind}-{c}" for c in ("elev", "ldc") for kind in kinds]
    files = [f"{stem}.{kind}" for stem in stems for kind in ("tex", "md", "csv")]
    assert names == [*files, "tables.tex"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    rows = list(csv.reader((folder / "results-elev.csv").read_text().splitlines()))
    assert [row[0] for row in rows] == ["k", "1", "40", "LR", "Recurrent", "Chance"]
    assert float(rows[1][2]) == pytest.approx(0.2344 + 0.05)


def test_each_corpus_has_file_names_of_its_own_that_are_safe(tmp_path):
    tables = make_tables(encoders=["one"])
    corpora = ("../a b", "A/B", "象", "..")
    all_results = [make_corpus_results(tables, corpus=corpus) for corpus in corpora]
    names = write_tables(build_tables(all_results), tmp_path)
    stems = re.findall(r"\bresults-([\w-]+)\.csv", " ".join(names))
    assert stems == ["a-b", "a-b-2", "corpus", "corpus-2"]
    assert all(re.fullmatch(r"[a-z0-9-]+\.(tex|md|csv)", name) for name in names)


# LaTeX

TOKENS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\texttt{\char34}": '"',
    r"\allowbreak{}": "",
    r"\ensuremath{\star}": "⋆",
    "{}": "",
    **{f"{{{c}}}": c for c in "[]*`"},
    **{f"\\{c}": c for c in "_&%#{}$"},
}
TOKEN = re.compile(
    "|".join(map(re.escape, sorted(TOKENS, key=len, reverse=True)))
    + r"|[^\\{}$&#^_~%\[\]*`]"
)


def read_back(text):
    """Return what LaTeX shows, read literally; fail on what it could obey."""
    position = 0
    shown = ""
    while position < len(text):
        token = TOKEN.match(text, position)
        assert token, text[position:]
        shown += TOKENS.get(token[0], token[0])
        position = token.end()
    return shown


@given(st.text(st.sampled_from("ab1 \\~^_&%$#{}[]*`'\"<>|-,.?!/é…⋆–象"), max_size=40))
@example("---")
@example("x" * 60)
@example("\\" * 20)
def test_latex_shows_any_text_and_obeys_none(text):
    assert read_back(escape_latex(text)) == text


def test_latex_has_no_ligatures_and_no_control_characters_and_k_is_mathematics():
    assert escape_latex("a--b ''c'' ,, ?`") == "a-{}-b '{}'c'{}' ,{}, ?{`}"
    assert escape_latex("a\nb\x1b") == "a{[}?{]}b{[}?{]}"
    assert escape_prose("k-shot bark, k*=3") == r"$k$-shot bark, $k^\star$=3"


@pytest.mark.parametrize(("encoders", "parts"), [(1, 1), (4, 1), (7, 2), (13, 4)])
def test_a_wide_table_is_split_between_encoders_and_every_part_has_k(encoders, parts):
    columns = [Column("k")]
    for index in range(encoders):
        name = f"encoder {index}"
        columns += [Column("AUROC", name), Column("mAP", name)]
    cells = [number(1, 0)] + [number(index / 100) for index in range(1, len(columns))]
    text = to_latex(Table("t", "T", columns, [cells]))
    assert text.count(r"\begin{longtable}") == parts
    assert text.count("\n1 & ") == parts
    assert text.count(r"\label{tab:t}") == 1
    assert re.findall(r"\d\.\d{4}(?= )", text) == [cell.text for cell in cells[1:]]
    assert text.count(f"of {parts}") == (parts if parts > 1 else 0)
    headings = text.partition(r"\endfirsthead")[0]
    assert headings.count("AUROC") == headings.count("mAP") == min(encoders, 4)


def test_the_table_of_the_paper_has_its_underlines_rules_and_star():
    text = to_latex(score_table(elev()))
    assert text.count(r"\smash{\underline{\underline{") == 5
    assert text.count(r"\smash{\underline{0") == 5
    assert r"4\rlap{\textsuperscript{\ensuremath{\star}}} & 0.6963" in text
    assert text.count(r"\cmidrule(lr)") == 2 * 4  # also in the head of later pages


def find_missing_packages():
    """Return why LaTeX cannot run here, or "" if it can."""
    advice = "Debian has it in texlive-xetex"
    if shutil.which("xelatex") is None or shutil.which("kpsewhich") is None:
        return f"xelatex is not installed; {advice}"
    packages = ("array", "booktabs", "geometry", "iftex", "longtable")
    command = ["kpsewhich", *(f"{name}.sty" for name in packages)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    installed = {Path(path).stem for path in process.stdout.split()}
    missing = sorted(set(packages) - installed)
    return f"LaTeX lacks {', '.join(missing)}; {advice}" if missing else ""


def test_tables_compile_with_any_names_and_nothing_sticks_out(tmp_path):
    reason = find_missing_packages()
    if reason:
        pytest.skip(reason)
    names = write_tables(TABLES, tmp_path)
    options = ["-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape"]
    process = subprocess.run(
        ["xelatex", *options, "tables.tex"],
        cwd=tmp_path,
        env={**os.environ, "max_print_line": "1000"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    log = (tmp_path / "tables.log").read_text(encoding="utf-8", errors="replace")
    assert process.returncode == 0, log[-3000:]
    widths_pt = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", log)
    assert [width for width in widths_pt if float(width) > 5] == []
    assert all(f"(./{name}" in log for name in names if name.endswith(".tex"))
