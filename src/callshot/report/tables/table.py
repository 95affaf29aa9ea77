"""Tables of columns, rows of cells and notes, and their writers: LaTeX, Markdown, CSV, HTML."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import rich.table
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup
from rich.text import Text

from callshot.errors import printable
from callshot.records import CorpusResults
from callshot.records.frames import Shots
from callshot.records.table_files import format_csv
from callshot.report.templates import clean, make_environment
from callshot.results import explain_errors

MISSING = "–"
PAPER_SHOTS = (1, 2, 3, 4, 5, 10, 15, 20, 40)
Note = tuple[str, str]  # a mark, and its text


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    `value` is the number behind the text, None for words. `underline` is 0, 1 or 2. `mark`, such as
    ⋆, refers to a note of the table.
    """

    text: str
    value: float | None = None
    underline: int = 0
    mark: str = ""


Row = list[Cell]
Value = Cell | str | float | None


@dataclass(frozen=True)
class Column:
    """The heading of a column, and one that it shares with its neighbours (an encoder, say)."""

    name: str
    group: str = ""

    @property
    def whole(self) -> str:
        """Both headings in one, for formats with a single line of headings."""
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns.

    `name` is the stem of a file, `title` a caption. The last `foot` rows are set apart. `notes` are
    pairs of a mark and its text; notes on the whole table have an empty mark. With `blocks`, the
    first column repeats over several rows, and formats may show it as a heading above them.
    `section` is the part of the page that shows the table.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: int = 0
    notes: Sequence[Note] = ()
    blocks: bool = False
    section: str = ""

    @property
    def is_number(self) -> list[bool]:
        """For each column, whether it has a number.

        >>> rows = [[number(1, 0), Cell("a")], [Cell("LR"), Cell("–")]]
        >>> Table("t", "", [Column("k"), Column("how")], rows).is_number
        [True, False]
        """
        numbers = [[cell.value is not None for cell in row] for row in self.rows]
        return [any(row[n] for row in numbers) for n in range(len(self.columns))]


TableBuilder = Callable[..., Table | None]
Builder = TypeVar("Builder", bound=TableBuilder)
STUDY_TABLES: list[TableBuilder] = []  # by all results
CORPUS_TABLES: list[TableBuilder] = []  # by the results of a corpus, shots and a spread


def table_of_study(build: Builder) -> Builder:
    """Register a table of all corpora, by `build(all_results)`."""
    STUDY_TABLES.append(build)
    return build


def table_of_corpus(build: Builder) -> Builder:
    """Register a table of each corpus, by `build(results, shots, spread)`; None without data."""
    CORPUS_TABLES.append(build)
    return build


def number(value: float, decimals: int = 4, underline: int = 0) -> Cell:
    """Return a cell with a number; NaN and infinity are missing.

    >>> number(-0.38529).text, number(float("nan")).text, number(12, 0)
    ('−0.3853', '–', Cell(text='12', value=12, underline=0, mark=''))
    """
    if not isfinite(value):
        return Cell(MISSING)
    text = f"{value:z.{decimals}f}"
    return Cell(text.replace("-", "−"), value, underline)


def make_cell(value: Value) -> Cell:
    """Return a cell: a count without decimals, a measurement with two, or a text.

    >>> make_cell(12).text, make_cell(0.5).text, make_cell(None).text
    ('12', '0.50', '–')
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, int | float):
        return number(value, 0 if isinstance(value, int) else 2)
    return Cell(MISSING if value is None else value)


def make_rows(rows: Iterable[Iterable[Value]]) -> list[Row]:
    """Return rows of cells from rows of values."""
    return [list(map(make_cell, row)) for row in rows]


def column_groups(columns: Sequence[Column]) -> list[tuple[str, list[int]]]:
    """Return each shared heading with the indices of its columns; "" for a column without one."""
    groups: list[tuple[str, list[int]]] = []
    for index, column in enumerate(columns):
        if groups and column.group and column.group == groups[-1][0]:
            groups[-1][1].append(index)
        else:
            groups.append((column.group, [index]))
    return groups


MAX_NAME = 60


def safe_name(name: str, default: str = "corpus") -> str:
    """Return a name in lower-case ASCII letters, digits and hyphens; `default` if none is left.

    >>> safe_name("Éléphants / Parc n° 3"), safe_name("../.."), safe_name("象")
    ('elephants-parc-n-3', 'corpus', 'corpus')
    """
    decomposed = unicodedata.normalize("NFKD", name)
    ascii_name = decomposed.encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())
    return hyphenated.strip("-")[:MAX_NAME].rstrip("-") or default


def safe_names(names: Sequence[str], default: str = "corpus") -> list[str]:
    """Return a safe name for each name, in the same order; equal ones are numbered.

    >>> safe_names(["a b", "A/B", "a-b-2", "c"])
    ['a-b', 'a-b-2', 'a-b-2-2', 'c']
    """
    unique = []
    for text in names:
        name = candidate = safe_name(text, default)
        count = 1
        while candidate in unique:
            count += 1
            candidate = f"{name}-{count}"
        unique.append(candidate)
    return unique


# Characters that LaTeX would obey, or take for an argument or a ligature.
LATEX_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "_&%#{}$"},
        **{character: f"{{{character}}}" for character in "[]*`"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\texttt{\char34}",
        "⋆": r"\ensuremath{\star}",
        "−": r"\ensuremath{-}",
        "\N{REPLACEMENT CHARACTER}": "{[}?{]}",  # LuaLaTeX does not accept it
    }
)
# The first of two equal characters that LaTeX would join, such as -- to a dash.
LIGATURE = re.compile(r"([-',])(?=\1)")
SYMBOLS = {"k": "$k$", "k*": r"$k^\star$"}
LONG_WORD = 16
MAX_RUN = 5  # characters of a long word that stay together


def escape_latex(text: str) -> str:
    r"""Return a text as LaTeX.

    Long words may be broken without a hyphen, because names in files have none.

    >>> print(escape_latex("50 %_a\\b"), escape_latex("é⋆"), escape_latex("象"))
    50 \%\_a\textbackslash{}b é\ensuremath{\star} 象
    """
    words = []
    for word in printable(text).split(" "):
        # A short word is one run.
        size = MAX_RUN if len(word) > LONG_WORD else LONG_WORD
        runs = [word[start : start + size] for start in range(0, len(word), size)]
        escaped = [LIGATURE.sub(r"\1{}", run.translate(LATEX_ESCAPES)) for run in runs]
        words.append(r"\allowbreak{}".join(escaped))
    return " ".join(words)


def escape_prose(text: str) -> str:
    """Return a sentence of callshot as LaTeX, with its k and k* as mathematics.

    >>> escape_prose("100 % at k = 4, k* = 5")
    '100 \\\\% at $k$ = 4, $k^\\\\star$ = 5'
    """
    parts = re.split(r"(?<![\w-])(k\*|k)(?!\w)", text)
    return "".join(SYMBOLS.get(part) or escape_latex(part) for part in parts)


# A backslash does not stop tags, entities, formulas, mentions and (:name:) emoji.
ENTITIES = {character: f"&#{ord(character)};" for character in "<>&$@"}
BACKSLASHES = {character: f"\\{character}" for character in r"\`*_[]|~#"}
MARKDOWN_ESCAPES = str.maketrans({**ENTITIES, **BACKSLASHES})
UNDERLINE = ("%s", "<ins>%s</ins>", "<ins>**%s**</ins>")


def escape_markdown(text: str) -> str:
    """Return a text as Markdown."""
    escaped = printable(text).translate(MARKDOWN_ESCAPES)
    return re.sub(r":(?=\w)", "&#58;", escaped)


@cache
def _get_template(name: str) -> Template:
    """Return the template of a LaTeX or Markdown table, in which {} and % have no meaning."""
    environment = Environment(
        loader=PackageLoader("callshot.report.tables"),
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["latex"] = escape_latex
    environment.filters["prose"] = escape_prose
    environment.filters["markdown"] = escape_markdown
    return environment.get_template(name)


MAX_COLUMNS = 9  # side by side
LINE = 60  # characters; with fewer, a table is narrower than the line
MIN_WIDTH = 7  # characters of a column
MAX_WIDTH = 24
LATEX_DOCUMENT = r"""%% XeLaTeX and LuaLaTeX show more letters than pdfLaTeX.
\documentclass[a4paper]{article}
\usepackage[margin=2cm]{geometry}
\usepackage{iftex}
\ifPDFTeX\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}\fi
\usepackage{array,booktabs,longtable}
\begin{document}
%s
\end{document}
"""


def to_latex(table: Table) -> str:
    r"""Return a table as LaTeX that needs the packages array, booktabs and longtable.

    The names of blocks are rows of their own, not a column. A wide table is split into parts.

    >>> from callshot.report.tables.table import Column, number
    >>> columns = [Column("k"), Column("mAP")]
    >>> table = Table("t", "A & B", columns, [[number(1, 0), number(0.5, underline=1)]])
    >>> print("\n".join(to_latex(table).splitlines()[3:7]))
    \caption{A \& B}\label{tab:t} \\
    \toprule
    $k$ & mAP \\
    \midrule
    """
    described = []
    for indices in _split_columns(table):
        # The share of the line that each column gets by its longest text
        widths = []
        for index in indices:
            texts = [
                table.columns[index].name,
                *(row[index].text for row in table.rows),
            ]
            longest = max(map(len, texts))
            widths.append(min(max(longest, MIN_WIDTH), MAX_WIDTH))
        shares = [width / max(LINE, sum(widths)) for width in widths]
        columns = [table.columns[index] for index in indices]
        described.append((indices, columns, shares, column_groups(columns)))
    return _get_template("table.tex").render(table=table, parts=described)


def _split_columns(table: Table) -> list[list[int]]:
    """Return the columns of each part of a wide table; all begin with the column of row names.

    Groups of columns stay together.
    """
    lead = 1 if table.blocks else 0  # the names of blocks are no column
    parts = [[lead]]
    for _, indices in column_groups(table.columns):
        if indices[0] > lead:  # those before are names of blocks and rows
            width = len(parts[-1])
            if width > 1 and width + len(indices) > MAX_COLUMNS:
                parts.append([lead])
            parts[-1] += indices
    return parts


def to_markdown(table: Table) -> str:
    """Return a table with its title above and its notes below.

    GitHub shows `<ins>` underlined and has no double underline: such cells are bold, too.

    >>> from callshot.report.tables.table import Cell, Column
    >>> rows = [[Cell("4", 4, 2, "⋆")]]
    >>> print(to_markdown(Table("t", "Two", [Column("a|b")], rows, notes=[("⋆", "k* = 4")])))
    **Two**
    <BLANKLINE>
    | a\\|b |
    | ---: |
    | <ins>**4**</ins><sup>⋆</sup> |
    <BLANKLINE>
    - ⋆ k\\* = 4
    - Bold and underlined stands for underlined twice here.
    <BLANKLINE>
    """
    text = _get_template("table.md").render(table=table, underline=UNDERLINE)
    return text.rstrip() + "\n"


@cache
def _get_html() -> Any:
    """Return the module of the template of HTML tables, in which text is escaped."""
    environment = make_environment("callshot.report.tables", clean, autoescape=True)
    return environment.get_template("table.html").module


def drop_missing(table: Table) -> Table:
    """Drop columns that are missing in every row; the first column names the rows, and stays.

    >>> rows = [[Cell("a"), Cell("–"), Cell("1", 1)], [Cell("b"), Cell("–"), Cell("–")]]
    >>> [one.name for one in drop_missing(Table("t", "", [*map(Column, "xyz")], rows)).columns]
    ['x', 'z']
    """
    kept = []
    for index in range(len(table.columns)):
        texts = {row[index].text for row in table.rows}
        if index == 0 or texts - {"", MISSING}:
            kept.append(index)
    columns = [table.columns[index] for index in kept]
    rows = [[row[index] for index in kept] for row in table.rows]
    return replace(table, columns=columns, rows=rows)


def to_html(table: Table, name: str) -> Markup:
    """Return a table in a box that scrolls; `name` is its id. Missing columns are not shown."""
    table = drop_missing(table)
    # A column with any number in it is aligned and sorted as numbers.
    classes = ["n" if is_number else "" for is_number in table.is_number]
    groups = column_groups(table.columns)
    return Markup(_get_html().table(table, name, classes, groups))


def to_csv(table: Table) -> str:
    """Return a table as CSV; a shared heading stands before the heading of a column.

    >>> from callshot.report.tables.table import Cell, Column, number
    >>> columns = [Column("k"), Column("mAP", "mfcc, v2")]
    >>> print(to_csv(Table("t", "", columns, [[Cell("1", 1), number(0.12345)]])))
    k,"mfcc, v2 mAP"
    1,0.12345
    <BLANKLINE>
    """
    rows: list[list[object]] = [[column.whole for column in table.columns]]
    for cells in table.rows:
        values: list[object] = []
        for cell in cells:
            is_label = not values  # the first cell, which may look like a missing one
            value: object = cell.text
            if cell.value is not None:
                value = cell.value if isinstance(cell.value, int) else float(cell.value)
            elif cell.text == MISSING and not is_label:
                value = None
            values.append(value)
        rows.append(values)
    return format_csv(rows)


def to_terminal(table: Table) -> rich.table.Table:
    """Return the rows of a table for a terminal; the foot is pale, a row with a mark bold."""
    shown = rich.table.Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    for column, is_number in zip(table.columns, table.is_number, strict=True):
        heading = Text(printable(column.whole))
        justify: Any = "right" if is_number else "left"
        shown.add_column(heading, justify=justify, overflow="fold")
    first_foot = len(table.rows) - table.foot
    for position, row in enumerate(table.rows):
        style = "dim" if position >= first_foot else ""
        if any(cell.mark for cell in row):
            style = "bold"
        texts = [f"{cell.text} {cell.mark}".rstrip() for cell in row]
        shown.add_row(*(Text(printable(text)) for text in texts), style=style)
    return shown


FORMATS = {".tex": to_latex, ".md": to_markdown, ".csv": to_csv}
DOCUMENT = "tables.tex"


def write_tables(tables: Sequence[Table], folder: Path) -> list[str]:
    """Write tables in each format, and the document `tables.tex`; return the file names."""
    texts = {}
    for table in tables:
        for suffix, convert in FORMATS.items():
            texts[f"{table.name}{suffix}"] = convert(table)
    pages = [rf"\input{{{table.name}.tex}}\clearpage" for table in tables]
    texts[DOCUMENT] = LATEX_DOCUMENT % "\n".join(pages)
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text.encode("utf-8"))
    return list(texts)


def build_tables(
    all_results: Sequence[CorpusResults],
    *,
    shots: Shots = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[Table]:
    """Build the tables of the study, then the tables of each corpus; their names are unique."""
    built = [build(all_results) for build in STUDY_TABLES]
    names = safe_names([results.corpus for results in all_results])
    for results, name in zip(all_results, names, strict=True):
        for build in CORPUS_TABLES:
            table = build(results, shots, spread)
            if table is not None:
                built.append(replace(table, name=f"{table.name}-{name}"))
    return [table for table in built if table is not None]
