"""Any text → LaTeX that shows it as it is and never obeys it."""

import re
import unicodedata
from itertools import pairwise

from callshot.errors import printable

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
