"""LaTeX tables: any text is shown and none obeyed, nothing sticks out, numbers are the paper's."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callshot.report.tables.score_tables import score_table
from callshot.report.tables.table import Cell, Column, Table, number
from callshot.report.tables.table_writers import (
    build_tables,
    escape_latex,
    escape_prose,
    to_latex,
    write_tables,
)
from report.tables.hostile_labels import LABELS, make_hostile_results
from report.tables.paper_tables import elev, ldc

PACKAGES = ("array", "booktabs", "geometry", "iftex", "longtable")
ARTICLE = r"""\documentclass{article}
\usepackage{array,booktabs,longtable}
\begin{document}
%s
\end{document}
"""
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


def test_ligatures_are_separated():
    assert escape_latex("a--b ''c'' ,, ?`") == "a-{}-b '{}'c'{}' ,{}, ?{`}"


def test_characters_that_cannot_be_printed_are_replaced():
    assert escape_latex("a\nb\x1b") == "a{[}?{]}b{[}?{]}"


def test_k_is_mathematics_and_a_letter_inside_a_word_is_not():
    assert escape_prose("k-shot bark, k*=3") == r"$k$-shot bark, $k^\star$=3"


@pytest.mark.parametrize(("encoders", "parts"), [(1, 1), (4, 1), (7, 2), (13, 4)])
def test_a_wide_table_is_split_between_encoders_and_every_part_has_k(encoders, parts):
    columns = [Column("k")]
    for index in range(encoders):
        columns += [
            Column("AUROC", f"encoder {index}"),
            Column("mAP", f"encoder {index}"),
        ]
    cells = [number(1, 0)] + [number(index / 100) for index in range(1, len(columns))]
    text = to_latex(Table("t", "T", columns, [cells]))
    assert text.count(r"\begin{longtable}") == parts
    assert text.count("\n1 & ") == parts
    assert text.count(r"\label{tab:t}") == 1
    assert re.findall(r"\d\.\d{4}(?= )", text) == [cell.text for cell in cells[1:]]
    assert re.findall(r"part \d of \d", text) == [
        f"part {part} of {parts}" for part in range(1, parts + 1) if parts > 1
    ]
    headings = text.partition(r"\endfirsthead")[0]
    assert headings.count("AUROC") == headings.count("mAP") == min(encoders, 4)


def test_the_table_of_the_paper_has_its_underlines_rules_and_star():
    text = to_latex(score_table(elev()))
    assert text.count(r"\smash{\underline{\underline{") == 5
    assert text.count(r"\smash{\underline{0") == 5
    assert r"4\rlap{\textsuperscript{\ensuremath{\star}}} & 0.6963" in text
    assert text.count(r"\cmidrule(lr)") == 2 * 4  # also in the head of later pages


def missing_packages():
    """Return why LaTeX cannot run here, or "" if it can."""
    advice = "Debian has it in texlive-xetex"
    if shutil.which("xelatex") is None or shutil.which("kpsewhich") is None:
        return f"xelatex is not installed; {advice}"
    files = [f"{name}.sty" for name in PACKAGES]
    process = subprocess.run(
        ["kpsewhich", *files], capture_output=True, text=True, check=False
    )
    installed = {Path(path).name for path in process.stdout.split()}
    missing = sorted(set(files) - installed)
    return f"LaTeX lacks {', '.join(missing)}; {advice}" if missing else ""


def compile_latex(folder, name, *options):
    """Compile a document and return its log; skip the test if there is no LaTeX."""
    reason = missing_packages()
    if reason:
        pytest.skip(reason)
    command = [
        "xelatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
    ]
    process = subprocess.run(
        [*command, *options, name],
        cwd=folder,
        env={**os.environ, "max_print_line": "1000"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    log = (
        (folder / name)
        .with_suffix(".log")
        .read_text(encoding="utf-8", errors="replace")
    )
    assert process.returncode == 0, log[-3000:]
    return log


def overfull_boxes(log):
    """Return the widths of what sticks out by more than 5 points."""
    widths = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\)", log)
    return [width for width in widths if float(width) > 5]


def test_tables_compile_with_any_names_and_nothing_sticks_out(tmp_path):
    names = write_tables(
        build_tables([elev(), ldc(), make_hostile_results()]), tmp_path
    )
    log = compile_latex(tmp_path, "tables.tex")
    assert overfull_boxes(log) == []
    assert all(f"(./{name}" in log for name in names if name.endswith(".tex"))


def test_the_pdf_shows_the_labels_as_they_are(tmp_path):
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed; Debian has it in poppler-utils")
    labels = [label for label in LABELS if label.isascii() and label.isprintable()]
    rows = [[Cell(label), number(index, 0)] for index, label in enumerate(labels)]
    table = Table("t", "T", [Column("Call type"), Column("Exemplars")], rows)
    (tmp_path / "labels.tex").write_text(ARTICLE % to_latex(table), encoding="utf-8")
    compile_latex(tmp_path, "labels.tex")
    process = subprocess.run(
        ["pdftotext", "-raw", "labels.pdf", "-"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    page = normalize(process.stdout.decode())
    for label in labels:
        assert normalize(label) in page


def normalize(text):
    """Return a text without spaces, accents and quotes, which PDF readers show in their own way."""
    return re.sub(r"[\s~^˜ˆ`'’‘\"_−-]", "", text)
