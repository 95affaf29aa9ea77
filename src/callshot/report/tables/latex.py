"""A table → LaTeX with longtable and booktabs; file names → a document that shows the tables.

Columns are shares of the line width and wrap their text, so that no name can widen a table; pages
break between rows. A table with many columns is split into several. Any text is shown as it is and
never obeyed.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter

from callshot.errors import printable
from callshot.report.tables.table import Cell, Table, column_groups, column_kinds

# Characters that LaTeX would obey, or take for an argument or a ligature.
ASCII = {
    **{character: f"\\{character}" for character in "_&%#{}"},
    **{character: f"{{{character}}}" for character in "[]*`"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
}
# In braces, so that no ligature reaches beyond.
TEXT = {
    "–": "{--}",
    "—": "{---}",
    "‘": "{`}",
    "’": "{'}",
    "“": "{``}",
    "”": "{''}",
    "¡": "{!`}",
    "¿": "{?`}",
    "\N{NO-BREAK SPACE}": "~",
    "…": r"\dots{}",
    "ß": r"\ss{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "œ": r"\oe{}",
    "Œ": r"\OE{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "ł": r"\l{}",
    "Ł": r"\L{}",
    "ı": r"\i{}",
    "\N{REPLACEMENT CHARACTER}": "{[}?{]}",  # LuaLaTeX does not accept it
}
GREEK = """alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ
mu μ nu ν xi ξ pi π rho ρ varsigma ς sigma σ tau τ upsilon υ phi φ chi χ psi ψ omega ω Gamma Γ
Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω"""
SIGNS = """star ⋆ dagger † ddagger ‡ times × pm ± cdot · mu µ le ≤ ge ≥ to → leftarrow ← infty ∞
S § P ¶ pounds £"""
COMMANDS = re.findall(r"(\w+) (\S)", f"{GREEK} {SIGNS}")
MATH = {
    **{character: f"\\{command}" for command, character in COMMANDS},
    "$": r"\$",  # in text it needs a font that few people have
    "−": "-",
    "°": r"^\circ",
}
# The combining accents that every font encoding of LaTeX has, and the commands for them.
ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030c\u030b\u0327\u0323\u0331\u030a",
        "`'^~\"=.uvHcdbr",
        strict=True,
    )
)
# Shows a character if the engine and its font have it, and its number in Unicode otherwise.
LETTER_COMMAND = r"""\providecommand{\callshotletter}[2]{%
  \ifdefined\Uchar\iffontchar\font"#2 #1\else[U+#2]\fi
  \else\ifnum\pdfstrcmp{\csname f@encoding\endcsname}{T1}=0
    \ifcsname u8:\detokenize{#1}\endcsname#1\else[U+#2]\fi
  \else[U+#2]\fi\fi}
"""
LIGATURES = "-',"  # where doubled
SYMBOLS = {"k": "$k$", "k*": r"$k^\star$"}
LONG_WORD = 16
LONGEST_RUN = 5  # characters of a long word that stay together


def escape(text: str) -> str:
    r"""Return a text as LaTeX; uncommon characters use `\callshotletter` from LETTER_COMMAND.

    Long words may be broken without a hyphen, because names in files have none.

    >>> print(escape("50 %_a\\b"), escape("é–⋆"), escape("象"))
    50 \%\_a\textbackslash{}b \'{e}{--}\ensuremath{\star} \callshotletter{象}{8C61}
    """
    words = unicodedata.normalize("NFC", printable(text)).split(" ")
    return " ".join(_escape_word(word) for word in words)


def escape_prose(text: str) -> str:
    """Return a sentence of callshot as LaTeX, with its k and k* as mathematics.

    >>> escape_prose("100 % at k = 4, k* = 5")
    '100 \\\\% at $k$ = 4, $k^\\\\star$ = 5'
    """
    escaped = ""
    for part in re.split(r"(?<![\w-])(k\*|k)(?!\w)", text):
        escaped += SYMBOLS.get(part) or escape(part)
    return escaped


def _escape_word(word: str) -> str:
    """Escape a word; a long one may break after a sign, or else after some letters."""
    text = ""
    run = 0
    for previous, character in pairwise(f" {word}"):
        if character == previous and character in LIGATURES:
            text += "{}"
        text += _escape_character(character)
        run += 1
        needed = LONGEST_RUN if character.isalnum() else 3
        if len(word) > LONG_WORD and run >= needed:
            text += r"\allowbreak{}"
            run = 0
    return text


def _escape_character(character: str) -> str:
    if character in MATH:
        return rf"\ensuremath{{{MATH[character]}}}"
    if character.isascii():
        return ASCII.get(character, character)
    if character in TEXT:
        return TEXT[character]
    decomposed = unicodedata.normalize("NFD", character)
    letter = decomposed[0]
    accent = decomposed[1:]
    if letter.isascii() and accent in ACCENTS:
        dotless = {"i": r"\i", "j": r"\j"}.get(letter, letter)
        return rf"\{ACCENTS[accent]}{{{dotless}}}"
    return rf"\callshotletter{{{character}}}{{{ord(character):04X}}}"


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
