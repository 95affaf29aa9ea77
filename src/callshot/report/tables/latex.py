"""A table → LaTeX with longtable and booktabs; file names → a document that shows the tables.

Columns are shares of the line width and wrap their text, so that no name can widen a table; pages
break between rows. A table with many columns is split into several.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from callshot.report.tables.latex_escape import LETTER_COMMAND, escape, escape_prose
from callshot.report.tables.table import Cell, Table, column_groups, column_kinds

MAX_COLUMNS = 8  # side by side, besides those that lead the rows
LINE = 60  # characters; with fewer, a table is narrower than the line
NARROWEST = 7  # characters of a column
WIDEST = 24
ALIGNMENT = {"text": r"\raggedright", "number": r"\raggedleft", "mixed": r"\raggedleft"}
SETTINGS = (
    r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}\renewcommand{\arraystretch}{1.2}",
    r"\setlength{\LTcapwidth}{\linewidth}\setlength{\LTpost}{2pt}",
)
DOCUMENT = r"""\documentclass[a4paper]{article}
\usepackage[margin=2cm]{geometry}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
\usepackage{array,booktabs,longtable}
\begin{document}
%s
\end{document}
"""


def to_latex(table: Table) -> str:
    r"""Return a table as LaTeX that needs the packages array, booktabs and longtable.

    >>> from callshot.report.tables.table import Column, number
    >>> columns = [Column("k"), Column("mAP")]
    >>> table = Table("t", "A & B", columns, [[number(1, 0), number(0.5, underline=1)]])
    >>> print("\n".join(to_latex(table).splitlines()[3:7]))
    \caption{A \& B}\label{tab:t} \\
    \toprule
    $k$ & mAP \\
    \midrule
    """
    lines: list[str] = []
    label = rf"\label{{tab:{table.name}}}"
    for part in _split_columns(table):
        lines += _LongTable(part).format_lines(label)
        label = ""
    text = "\n".join([*lines, ""])
    if r"\callshotletter" in text:
        return LETTER_COMMAND + text
    return text


def to_document(names: Iterable[str]) -> str:
    """Return a document that shows the tables in the files of these names, each on its own page."""
    inputs = [rf"\input{{{name}}}\clearpage" for name in names]
    return DOCUMENT % "\n".join(inputs)


def _split_columns(table: Table) -> list[Table]:
    """Split a table with many columns between its groups; the leading columns are in each part."""
    lead = [0, 1] if table.blocks else [0]
    parts = _divide_groups(table, len(lead))
    if len(parts) == 1:
        return [table]
    tables = []
    for number, part in enumerate(parts, 1):
        select = itemgetter(*lead, *part)
        part_table = replace(
            table,
            title=f"{table.title} (part {number} of {len(parts)})",
            columns=select(table.columns),
            rows=[select(row) for row in table.rows],
        )
        tables.append(part_table)
    return tables


def _divide_groups(table: Table, lead: int) -> list[list[int]]:
    """Return the columns of each part, without the first `lead`; groups stay together."""
    part: list[int] = []
    parts = [part]
    for _, group in column_groups(table.columns):
        if group[0] < lead:
            continue
        if part and len(part) + len(group) > MAX_COLUMNS:
            part = []
            parts.append(part)
        part += group
    return parts


class _LongTable:
    """The lines of a longtable. The names of blocks are rows of their own, not a column."""

    def __init__(self, table: Table) -> None:
        first = 1 if table.blocks else 0
        self.table = table
        self.columns = table.columns[first:]
        self.rows = [row[first:] for row in table.rows]
        self.kinds = column_kinds(table)[first:]
        self.indices = range(len(self.columns))
        widths = [self._width(index) for index in self.indices]
        line = max(LINE, sum(widths))
        self.shares = [width / line for width in widths]

    def _width(self, index: int) -> int:
        """Return the width of a column in characters."""
        texts = [row[index].text for row in self.rows]
        texts.append(self.columns[index].name)
        longest = max(map(len, texts))
        return min(max(longest, NARROWEST), WIDEST)

    def format_lines(self, label: str) -> Iterator[str]:
        title = escape_prose(self.table.title)
        head = (r"\toprule", *self._head(), r"\midrule")
        yield from SETTINGS
        yield rf"\begin{{longtable}}{{@{{}}{self._columns()}@{{}}}}"
        yield rf"\caption{{{title}}}{label} \\"
        yield from head
        yield r"\endfirsthead"
        yield from head
        yield r"\endhead"
        yield r"\bottomrule"
        yield r"\endfoot"
        yield from self._body()
        yield r"\end{longtable}\raggedright"
        for mark, text in self.table.notes:
            yield rf"\noindent {_mark(mark)}{escape_prose(text)}\par"
        yield r"\endgroup"

    def _columns(self) -> str:
        alignments = [ALIGNMENT[kind] for kind in self.kinds]
        return "".join(map(_column, alignments, self.shares))

    def _head(self) -> Iterator[str]:
        """Yield a line of shared headings with rules below them, and the line of headings."""
        rules = []
        headings = []
        for name, indices in column_groups(self.columns):
            if name:
                first = indices[0] + 1
                last = indices[-1] + 1
                rules.append(rf"\cmidrule(lr){{{first}-{last}}}")
            headings.append(self._span(r"\centering", indices, escape(name)))
        if rules:
            yield _row(headings)
            yield " ".join(rules)
        yield _row(escape_prose(column.name) for column in self.columns)

    def _span(self, alignment: str, indices: Sequence[int], text: str) -> str:
        if not text:
            return ""
        share = sum(self.shares[index] for index in indices)
        column = _column(alignment, share)
        return rf"\multicolumn{{{len(indices)}}}{{{column}}}{{{text}}}"

    def _body(self) -> Iterator[str]:
        first_foot = len(self.rows) - self.table.foot
        block = None
        for number, cells in enumerate(self.rows):
            if 0 < number == first_foot:
                yield r"\midrule"
            name = self.table.rows[number][0].text
            if self.table.blocks and name != block:
                block = name
                if number:
                    yield r"\addlinespace"
                yield self._block_heading(name)
            yield _row(map(_cell, cells, self.kinds))

    def _block_heading(self, name: str) -> str:
        text = rf"\textit{{{escape(name)}}}"
        heading = self._span(r"\raggedright", self.indices, text)
        return _row([heading])


def _column(alignment: str, share: float) -> str:
    """Return the type of a column that takes a share of the line."""
    width = rf"\dimexpr {share:.4f}\linewidth-2\tabcolsep\relax"
    return rf">{{{alignment}\arraybackslash}}p{{{width}}}"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(cell: Cell, kind: str) -> str:
    text = escape(cell.text)
    for _ in range(cell.underline):
        text = rf"\underline{{{text}}}"
    if cell.underline:  # without its depth, which would push the next row down
        text = rf"\smash{{{text}}}"
    mark = _mark(cell.mark)
    if mark and kind != "text":  # beside the column, so that the digits stay aligned
        mark = rf"\rlap{{{mark}}}"
    return text + mark


def _mark(mark: str) -> str:
    return rf"\textsuperscript{{{escape(mark)}}}" if mark else ""
