import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from callshot.report.tables.latex import to_latex
from callshot.report.tables.latex_escape import escape, escape_prose
from callshot.report.tables.latex_layout import fit
from callshot.report.tables.scores import results
from callshot.report.tables.table import Cell, Column, Table, number
from callshot.report.tables.writing import write_tables
from report.tables.hostile_labels import LABELS, nasty
from report.tables.paper_tables import elev, ldc

PACKAGES = ("array", "booktabs", "geometry", "siunitx", "threeparttable")
ARTICLE = r"\documentclass{article}\usepackage{siunitx,booktabs,threeparttable}\begin{document}%s\end{document}"
TOKENS = {
    r"\textbackslash{}": "\\",
    r"\textasciitilde{}": "~",
    r"\textasciicircum{}": "^",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\texttt{\char34}": '"',
    r"\ensuremath{\$}": "$",
    r"\allowbreak{}": "",
    r"\dots{}": "…",
    r"\'{e}": "é",
    r"\callshotletter{象}{8C61}": "象",
    r"\ensuremath{\star}": "⋆",
    "{--}": "–",
    "{}": "",
    **{f"{{{c}}}": c for c in "[]*`"},
    **{f"\\{c}": c for c in "_&%#{}"},
}
TOKEN = re.compile(
    "|".join(map(re.escape, sorted(TOKENS, key=len, reverse=True))) + r"|[^\\{}$&#^_~%\[\]*`]"
)


def read_back(text: str) -> str:
    """Return what LaTeX would show, read literally; whatever it could obey is refused."""
    at, shown = 0, ""
    while at < len(text):
        token = TOKEN.match(text, at)
        assert token, text[at:]
        shown, at = shown + TOKENS.get(token[0], token[0]), token.end()
    return shown


@given(st.text(st.sampled_from("ab1 \\~^_&%$#{}[]*`'\"<>|-,.?!/é…⋆–象"), max_size=40))
@example("---")
@example("x" * 60)
@example("\\" * 20)
def test_latex_shows_any_text_and_obeys_none(text):
    assert read_back(escape(text)) == text


def test_ligatures_are_taken_apart():
    assert escape("a--b ''c'' ,, ?`") == "a-{}-b '{}'c'{}' ,{}, ?{`}"


def test_what_cannot_be_printed_is_told_as_such():
    assert escape("a\nb\x1b") == "a{[}?{]}b{[}?{]}"


def test_a_decomposed_accent_is_an_accent():
    assert escape("e\u0301l") == escape("él") == r"\'{e}l"


def test_our_k_is_mathematics_and_a_word_is_not():
    assert escape_prose("k-shot bark, k*=3") == r"$k$-shot bark, $k^\star$=3"


@pytest.mark.parametrize(("encoders", "parts"), [(1, 1), (4, 1), (7, 2), (13, 3)])
def test_a_wide_table_is_cut_between_encoders_and_every_part_has_k(encoders, parts):
    columns = [
        Column("k"),
        *(Column(m, f"encoder {n}") for n in range(encoders) for m in ("AUROC", "mAP")),
    ]
    table = Table("t", "T", columns, [[number(1, 0), *(number(0.5) for _ in columns[1:])]])
    made = fit(table)
    assert len(made) == parts
    assert [part.columns[0].name for part in made] == ["k"] * parts
    assert [column for part in made for column in part.columns[1:]] == columns[1:]
    assert all(len(part.columns) % 2 for part in made)


def test_a_long_table_is_cut_between_rows_and_its_foot_stays_apart():
    rows = [[Cell(f"class {n}"), number(n, 0)] for n in range(100)]
    made = fit(Table("t", "T", [Column("Call type"), Column("Exemplars")], rows, foot=30))
    assert [row for part in made for row in part.rows] == rows
    assert sum(part.foot for part in made) == 30
    assert made[0].title == f"T (part 1 of {len(made)})"
    assert len(made) == 3


def test_the_papers_table_has_its_underlines_rules_and_star():
    text = to_latex(results(elev()))
    assert text.count(r"\smash{\underline{\underline{") == 5
    assert text.count(r"\smash{\underline{0") == 5
    assert r"4\rlap{\tnote{\ensuremath{\star}}} & 0.6963" in text
    assert text.count("S[table-format=1.4]") == 8
    assert text.count(r"\cmidrule(lr)") == 4


def missing() -> str:
    """Say what LaTeX lacks here, if anything."""
    if shutil.which("pdflatex") is None or shutil.which("kpsewhich") is None:
        return "pdflatex is not installed; Debian has it in texlive-latex-extra and texlive-science"
    files = [f"{name}.sty" for name in PACKAGES]
    found = subprocess.run(
        ["kpsewhich", *files], capture_output=True, text=True, check=False
    ).stdout.split()
    lacking = sorted(set(files) - {Path(path).name for path in found})
    return (
        f"LaTeX lacks {', '.join(lacking)}; Debian has them in texlive-latex-extra and texlive-science"
        if lacking
        else ""
    )


def compile_latex(folder: Path, name: str, *options: str) -> str:
    """Compile a document, and return its log; the test is skipped where there is no LaTeX."""
    if why := missing():
        pytest.skip(why)
    command = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
        *options,
        name,
    ]
    env = {**os.environ, "max_print_line": "1000"}
    done = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, check=False, timeout=120
    )
    log = (folder / name).with_suffix(".log").read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, log[-3000:]
    return log


def flaws(log: str) -> list[str]:
    """Return what sticks out by more than 5 points, and tables that are higher than a page."""
    boxes = re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\).*", log)
    return [f"{width} pt too wide" for width in boxes if float(width) > 5] + re.findall(
        r"Float too large.*", log
    )


def test_tables_compile_whatever_the_names_and_nothing_sticks_out(tmp_path):
    names = write_tables([elev(), ldc(), nasty()], tmp_path)
    log = compile_latex(tmp_path, "tables.tex", "-draftmode")
    assert flaws(log) == []
    assert "Missing character" not in log
    assert all(f"(./{name}" in log for name in names if name.endswith(".tex"))


def test_four_encoders_fit_a_plain_article(tmp_path):
    text = "\n".join(to_latex(table) for table in (results(elev()), results(ldc())))
    (tmp_path / "plain.tex").write_text(ARTICLE % text, encoding="utf-8")
    assert flaws(compile_latex(tmp_path, "plain.tex", "-draftmode")) == []


def test_the_pdf_shows_the_labels_as_they_are(tmp_path):
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed; Debian has it in poppler-utils")
    rows = [
        [Cell(label), number(n, 0)]
        for n, label in enumerate(LABELS)
        if label.isascii() and label.isprintable()
    ]
    table = Table("t", "T", [Column("Call type"), Column("Exemplars")], rows)
    (tmp_path / "labels.tex").write_text(ARTICLE % to_latex(table), encoding="utf-8")
    compile_latex(tmp_path, "labels.tex")
    shown = subprocess.run(
        ["pdftotext", "-raw", "labels.pdf", "-"], cwd=tmp_path, capture_output=True, check=True
    ).stdout
    page = letters(shown.decode())
    for row in rows:
        assert letters(row[0].text) in page


def letters(text: str) -> str:
    """Return a text without what PDF readers tell apart in their own way: spaces, accents and quotes."""
    return re.sub(r"[\s~^˜ˆ`'’‘\"_−-]", "", text)
