"""A table → LaTeX, with booktabs, siunitx and threeparttable; names of files → a document that shows them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from callshot.report.tables.latex_escape import LETTER, escape, escape_prose
from callshot.report.tables.latex_layout import (
    GAP_PT,
    MOST_PT,
    NARROWEST_PT,
    WIDE_PT,
    column_groups,
    fit,
    text_pt,
    widths_pt,
)
from callshot.report.tables.table import Cell, Column, Table, kinds

RAGGED, CENTRED = r">{\raggedright\arraybackslash}", r">{\centering\arraybackslash}"
DOCUMENT = r"""\documentclass[a4paper]{article}
\usepackage[margin=2cm]{geometry}
\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
\usepackage{array,booktabs,siunitx,threeparttable}
\begin{document}
%s
\end{document}
"""


def to_latex(table: Table) -> str:
    r"""Return a table as floats, one for each part that fits a page. It wants array, booktabs, siunitx, threeparttable.

    >>> from callshot.report.tables.table import number
    >>> table = Table("t", "A & B", [Column("k"), Column("mAP")], [[number(1, 0), number(0.5, underline=1)]])
    >>> print("\n".join(to_latex(table).splitlines()[6:12]))
          \toprule
          $k$ & {mAP} \\
          \midrule
          1 & {\smash{\underline{0.5000}}} \\
          \bottomrule
        \end{tabular*}
    """
    labels = (rf"\label{{tab:{table.name}}}", *[""] * len(table.rows))
    text = "\n".join(_float(part, label) for part, label in zip(fit(table), labels, strict=False))
    return (LETTER if r"\callshotletter" in text else "") + text


def to_document(names: Iterable[str]) -> str:
    """Return a document that shows the tables in the files of these names, each on a page of its own."""
    return DOCUMENT % "\n".join(rf"\input{{{name}}}\clearpage" for name in names)


@dataclass(frozen=True)
class _Layout:
    """How the columns of a table are set: what they hold, and how wide they are; a block's name is none of them."""

    columns: Sequence[Column]
    kinds: Sequence[str]
    widths_pt: Sequence[float]
    rows: Sequence[Sequence[Cell]]

    @property
    def width_pt(self) -> float:
        return sum(self.widths_pt)

    def room_pt(self, columns: Sequence[int]) -> float:
        """Return the width of some neighbours."""
        return sum(self.widths_pt[n] for n in columns) - GAP_PT

    def set_pt(self, width_pt: float) -> str:
        """Return an estimated width in the size of letters that will be used."""
        return f"{width_pt * (0.89 if self.width_pt > WIDE_PT else 1.0):.0f}pt"


def _lay_out(table: Table) -> _Layout:
    """Choose the columns that are aligned by siunitx: all numbers, but for the first and for those with marks."""
    first, rows = int(table.blocks), [row[int(table.blocks) :] for row in table.rows]
    columns, found = table.columns[first:], kinds(table)[first:]
    marked = [any(row[n].mark for row in rows) or n == 0 for n in range(len(columns))]
    chosen = [
        "mixed" if mark and kind == "number" else kind
        for kind, mark in zip(found, marked, strict=True)
    ]
    return _Layout(columns, chosen, widths_pt(table)[first:], rows)


def _float(table: Table, label: str) -> str:
    layout = _lay_out(table)
    size, gap = (r"\footnotesize", 3.5) if layout.width_pt > WIDE_PT else (r"\small", 4)
    lines = (
        r"\begin{table}[!htbp]",
        rf"  \centering{size}\setlength{{\tabcolsep}}{{{gap}pt}}\renewcommand{{\arraystretch}}{{1.2}}",
        r"  \setlength{\belowcaptionskip}{6pt}",
        rf"  \caption{{{escape_prose(table.title)}}}{label}",
        r"  \begin{threeparttable}",
        *(f"    {line}" for line in _tabular(table, layout)),
        *(f"    {line}" for line in _notes(table)),
        r"  \end{threeparttable}",
        r"\end{table}",
    )
    return "\n".join(lines) + "\n"


def _tabular(table: Table, layout: _Layout) -> Iterator[str]:
    """Yield the lines of a tabular; a narrow one is stretched, for its notes are as wide as it is."""
    spec = "".join(_spec(layout, n) for n in range(len(layout.columns)))
    star, begin = "", rf"{{@{{}}{spec}@{{}}}}"
    if layout.width_pt < NARROWEST_PT:
        star, begin = "*", rf"{{{NARROWEST_PT:g}pt}}{{@{{\extracolsep{{\fill}}}}{spec}@{{}}}}"
    yield rf"\begin{{tabular{star}}}{begin}"
    yield from (
        f"  {line}"
        for line in (
            r"\toprule",
            *_head(layout),
            r"\midrule",
            *_body(table, layout),
            r"\bottomrule",
        )
    )
    yield rf"\end{{tabular{star}}}"


def _spec(layout: _Layout, n: int) -> str:
    """Return the type of a column."""
    kind, cells = layout.kinds[n], [row[n] for row in layout.rows]
    if kind == "number":
        return f"S[table-format={_format([cell.text for cell in cells if cell.value is not None])}]"
    if max((text_pt(cell.text) for cell in cells), default=0) > MOST_PT[kind]:
        return rf"{RAGGED if kind == 'text' else CENTRED}p{{{layout.set_pt(layout.room_pt([n]))}}}"
    return "l" if kind == "text" else "r" if n == 0 else "c"


def _format(numbers: Sequence[str]) -> str:
    """Return siunitx's word for the room that numbers take.

    >>> _format(["−0.5", "12", "3.25"])
    '-2.2'
    """
    sign = "-" if any(text.startswith("−") for text in numbers) else ""
    parts = [text.lstrip("−").partition(".") for text in numbers]
    return (
        f"{sign}{max(len(whole) for whole, _, _ in parts)}.{max(len(rest) for _, _, rest in parts)}"
    )


def _head(layout: _Layout) -> Iterator[str]:
    """Yield a line of shared headings with rules below them, where there are any, and the line of headings."""
    groups = [(name, members) for name, members in column_groups(layout.columns)]
    if any(name for name, _ in groups):
        yield " & ".join(_group(layout, name, members) for name, members in groups) + r" \\"
        yield " ".join(
            rf"\cmidrule(lr){{{members[0] + 1}-{members[-1] + 1}}}"
            for name, members in groups
            if name
        )
    yield " & ".join(_heading(layout, n) for n in range(len(layout.columns))) + r" \\"


def _group(layout: _Layout, name: str, members: Sequence[int]) -> str:
    text = _wrapped(layout, name, escape(name), members)
    return rf"\multicolumn{{{len(members)}}}{{c}}{{{text}}}" if name else ""


def _heading(layout: _Layout, n: int) -> str:
    name = layout.columns[n].name
    text = escape_prose(name)
    if layout.kinds[n] != "text":
        text = _wrapped(layout, name, text, [n])
    return f"{{{text}}}" if layout.kinds[n] == "number" else text


def _wrapped(layout: _Layout, name: str, text: str, columns: Sequence[int]) -> str:
    """Return a heading, in several lines if it is longer than what it stands above."""
    room_pt = layout.room_pt(columns)
    if text_pt(name) <= room_pt + 1:
        return text
    return rf"\parbox[b]{{{layout.set_pt(room_pt)}}}{{\centering\strut {text}\strut}}"


def _body(table: Table, layout: _Layout) -> Iterator[str]:
    first_foot, block = len(table.rows) - table.foot, None
    for n, (row, cells) in enumerate(zip(table.rows, layout.rows, strict=True)):
        if 0 < n == first_foot:
            yield r"\midrule"
        if table.blocks and row[0].text != block:
            yield from _block(row[0].text, layout, n)
            block = row[0].text
        yield " & ".join(map(_cell, cells, layout.kinds)) + r" \\"


def _block(name: str, layout: _Layout, n: int) -> Iterator[str]:
    if n:
        yield r"\addlinespace"
    wide = (
        text_pt(name) > 0.8 * layout.width_pt
    )  # italics are wide, and a name must not widen the table
    spec = rf"@{{}}{RAGGED}p{{{layout.set_pt(0.9 * layout.width_pt)}}}@{{}}" if wide else "@{}l@{}"
    yield rf"\multicolumn{{{len(layout.columns)}}}{{{spec}}}{{\textit{{{escape(name)}}}}} \\"


def _cell(cell: Cell, kind: str) -> str:
    if kind == "number" and cell.value is not None and not cell.underline:
        return cell.text.replace("−", "-")
    text = escape(cell.text)
    for _ in range(cell.underline):
        text = rf"\underline{{{text}}}"
    if cell.underline:  # without its depth, which would push the next row down
        text = rf"\smash{{{text}}}"
    if kind == "number":
        return f"{{{text}}}"
    mark = rf"\tnote{{{escape(cell.mark)}}}" if cell.mark else ""
    return text + (rf"\rlap{{{mark}}}" if mark and kind == "mixed" else mark)


def _notes(table: Table) -> Iterator[str]:
    if table.notes:
        yield r"\begin{tablenotes}[flushleft]\footnotesize\raggedright"
        flush = r"\hspace*{-\labelsep}"  # where no mark stands before a note
        yield from (
            rf"  \item[{escape(mark)}]{' ' if mark else flush}{escape_prose(text)}"
            for mark, text in table.notes
        )
        yield r"\end{tablenotes}"
