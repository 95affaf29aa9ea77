"""A table → LaTeX with longtable and booktabs; file names → a document that shows the tables.

Columns are shares of the line width and wrap their text, so that no name can widen a table; pages
break between rows. A table with many columns is split into several. Any text is shown as it is and
never obeyed. Letters beyond ASCII are written as UTF-8: XeLaTeX and LuaLaTeX show all that their
font has, pdfLaTeX those of European languages.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from callshot.errors import printable
from callshot.report.tables.table import Table, column_groups, number_columns

# Characters that LaTeX would obey, or take for an argument or a ligature.
ESCAPES = str.maketrans(
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
LIGATURE = re.compile(r"([-',])(?=\1)")
SYMBOLS = {"k": "$k$", "k*": r"$k^\star$"}
LONG_WORD = 16
MAX_RUN = 5  # characters of a long word that stay together


def escape(text: str) -> str:
    r"""Return a text as LaTeX.

    Long words may be broken without a hyphen, because names in files have none.

    >>> print(escape("50 %_a\\b"), escape("é⋆"), escape("象"))
    50 \%\_a\textbackslash{}b é\ensuremath{\star} 象
    """
    words = []
    for word in printable(text).split(" "):
        size = MAX_RUN if len(word) > LONG_WORD else LONG_WORD
        runs = [word[start : start + size] for start in range(0, len(word), size)]
        escaped = [LIGATURE.sub(r"\1{}", run.translate(ESCAPES)) for run in runs]
        words.append(r"\allowbreak{}".join(escaped))
    return " ".join(words)


def escape_prose(text: str) -> str:
    """Return a sentence of callshot as LaTeX, with its k and k* as mathematics.

    >>> escape_prose("100 % at k = 4, k* = 5")
    '100 \\\\% at $k$ = 4, $k^\\\\star$ = 5'
    """
    parts = re.split(r"(?<![\w-])(k\*|k)(?!\w)", text)
    return "".join(SYMBOLS.get(part) or escape(part) for part in parts)


MAX_COLUMNS = 8  # side by side, besides those that lead the rows
LINE = 60  # characters; with fewer, a table is narrower than the line
NARROWEST = 7  # characters of a column
WIDEST = 24
ALIGNMENT = (r"\raggedright", r"\raggedleft")  # of texts and of numbers
DOCUMENT = r"""%% XeLaTeX and LuaLaTeX show more letters than pdfLaTeX.
\documentclass[a4paper]{article}
\usepackage[margin=2cm]{geometry}
\usepackage{iftex}
\ifPDFTeX\IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}\fi
\usepackage{array,booktabs,longtable}
\begin{document}
%s
\end{document}
"""
LONGTABLE = r"""\begingroup\footnotesize\setlength{\tabcolsep}{3pt}\renewcommand{\arraystretch}{1.2}
\setlength{\LTcapwidth}{\linewidth}\setlength{\LTpost}{2pt}
\begin{longtable}{@{}%(columns)s@{}}
\caption{%(title)s}%(label)s \\
\toprule
%(head)s
\midrule
\endfirsthead
\toprule
%(head)s
\midrule
\endhead
\bottomrule
\endfoot
%(body)s
\end{longtable}\raggedright
%(notes)s\endgroup
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
    lead = 2 if table.blocks else 1
    part: list[int] = []
    parts = [part]  # columns, without those that lead the rows; groups stay together
    for _, group in column_groups(table.columns):
        if group[0] < lead:
            continue
        if part and len(part) + len(group) > MAX_COLUMNS:
            part = []
            parts.append(part)
        part += group
    label = rf"\label{{tab:{table.name}}}"
    if len(parts) == 1:
        return _format(table, label)
    texts = []
    for number, part in enumerate(parts, 1):
        select = itemgetter(*range(lead), *part)
        part_table = replace(
            table,
            title=f"{table.title} (part {number} of {len(parts)})",
            columns=select(table.columns),
            rows=[select(row) for row in table.rows],
        )
        texts.append(_format(part_table, label if number == 1 else ""))
    return "".join(texts)


def to_document(names: Iterable[str]) -> str:
    """Return a document that shows the tables in the files of these names, each on its own page."""
    inputs = [rf"\input{{{name}}}\clearpage" for name in names]
    return DOCUMENT % "\n".join(inputs)


def _format(table: Table, label: str) -> str:
    """Return a longtable. The names of blocks are rows of their own, not a column."""
    first = 1 if table.blocks else 0
    columns = table.columns[first:]
    widths = []
    for index, column in enumerate(columns, first):
        longest = max(len(column.name), *(len(row[index].text) for row in table.rows))
        widths.append(min(max(longest, NARROWEST), WIDEST))
    line = max(LINE, sum(widths))
    shares = [width / line for width in widths]
    numeric = number_columns(table)[first:]
    rules = []
    headings = []
    for name, indices in column_groups(columns):
        heading = ""
        if name:
            rules.append(rf"\cmidrule(lr){{{indices[0] + 1}-{indices[-1] + 1}}}")
            span = [shares[index] for index in indices]
            heading = _span(r"\centering", span, escape(name))
        headings.append(heading)
    names = _row(escape_prose(column.name) for column in columns)
    head = [_row(headings), " ".join(rules), names] if rules else [names]
    notes = [
        rf"\noindent {_mark(mark)}{escape_prose(text)}\par" + "\n"
        for mark, text in table.notes
    ]
    return LONGTABLE % {
        "columns": "".join(
            _column(ALIGNMENT[is_number], share)
            for is_number, share in zip(numeric, shares, strict=True)
        ),
        "title": escape_prose(table.title),
        "label": label,
        "head": "\n".join(head),
        "body": "\n".join(_body(table, numeric, shares)),
        "notes": "".join(notes),
    }


def _body(
    table: Table, numeric: Sequence[bool], shares: Sequence[float]
) -> Iterator[str]:
    first_foot = len(table.rows) - table.foot
    block = None
    for number, row in enumerate(table.rows):
        if 0 < number == first_foot:
            yield r"\midrule"
        if table.blocks and row[0].text != block:
            block = row[0].text
            if number:
                yield r"\addlinespace"
            name = rf"\textit{{{escape(block)}}}"
            yield _row([_span(r"\raggedright", shares, name)])
        texts = []
        for cell, is_number in zip(row[-len(numeric) :], numeric, strict=True):
            text = escape(cell.text)
            for _ in range(cell.underline):
                text = rf"\underline{{{text}}}"
            if cell.underline:  # without its depth, which would push the next row down
                text = rf"\smash{{{text}}}"
            mark = _mark(cell.mark)
            if mark and is_number:  # beside the column, so that the digits stay aligned
                mark = rf"\rlap{{{mark}}}"
            texts.append(text + mark)
        yield _row(texts)


def _span(alignment: str, shares: Sequence[float], text: str) -> str:
    column = _column(alignment, sum(shares))
    return rf"\multicolumn{{{len(shares)}}}{{{column}}}{{{text}}}"


def _column(alignment: str, share: float) -> str:
    """Return the type of a column that takes a share of the line."""
    width = rf"\dimexpr {share:.4f}\linewidth-2\tabcolsep\relax"
    return rf">{{{alignment}\arraybackslash}}p{{{width}}}"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"


def _mark(mark: str) -> str:
    return rf"\textsuperscript{{{escape(mark)}}}" if mark else ""
