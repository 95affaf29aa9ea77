"""Any text → LaTeX that shows it as it is, and never obeys it."""

import re
import unicodedata
from itertools import pairwise

from callshot.errors import printable

# What LaTeX would obey, or take for an argument or a ligature.
ASCII = {
    **{c: f"\\{c}" for c in "_&%#{}"},
    **{c: f"{{{c}}}" for c in "[]*`"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\texttt{\char34}",
}
TEXT = {
    # in braces, so that no ligature reaches beyond
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
    "\N{REPLACEMENT CHARACTER}": "{[}?{]}",  # LuaLaTeX would refuse it
}
GREEK = """alpha α beta β gamma γ delta δ epsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π
rho ρ varsigma ς sigma σ tau τ upsilon υ phi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ
Upsilon Υ Phi Φ Psi Ψ Omega Ω"""
SIGNS = "star ⋆ dagger † ddagger ‡ times × pm ± cdot · mu µ le ≤ ge ≥ to → leftarrow ← infty ∞ S § P ¶ pounds £"
MATH = {
    **{c: f"\\{name}" for names in (GREEK, SIGNS) for name, c in re.findall(r"(\w+) (\S)", names)},
    "$": r"\$",  # in text, it would want a font that few have
    "−": "-",
    "°": r"^\circ",
}
# The accents that every font encoding of LaTeX can set.
ACCENTS = dict(
    zip(
        "\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030c\u030b\u0327\u0323\u0331\u030a",
        "`'^~\"=.uvHcdbr",
        strict=True,
    )
)
# A letter that pdfLaTeX may lack: itself where the engine and its font have it, else its number in Unicode.
LETTER = r"""\providecommand{\callshotletter}[2]{%
  \ifdefined\Uchar\iffontchar\font"#2 #1\else[U+#2]\fi
  \else\ifnum\pdfstrcmp{\csname f@encoding\endcsname}{T1}=0
    \ifcsname u8:\detokenize{#1}\endcsname#1\else[U+#2]\fi
  \else[U+#2]\fi\fi}
"""
LIGATURES = "-',"  # where doubled
LONG_WORD, RUN = 16, 5


def escape(text: str) -> str:
    r"""Return a text as LaTeX. What is in no font at hand is told by `\callshotletter`, which LETTER defines.

    Long words may be broken, without a hyphen, since names in files have none.

    >>> print(escape("50 %_a\\b"), escape("é–⋆"), escape("象"))
    50 \%\_a\textbackslash{}b \'{e}{--}\ensuremath{\star} \callshotletter{象}{8C61}
    """
    words = unicodedata.normalize("NFC", printable(text)).split(" ")
    return " ".join(_word(word) for word in words)


def escape_prose(text: str) -> str:
    """Return what callshot says, with its k and k* as mathematics.

    >>> escape_prose("100 % at k = 4, k* = 5")
    '100 \\\\% at $k$ = 4, $k^\\\\star$ = 5'
    """
    parts = re.split(r"(?<![\w-])(k\*|k)(?!\w)", text)
    return "".join(
        {"k": "$k$", "k*": r"$k^\star$"}[part] if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )


def _word(word: str) -> str:
    """Escape a word, with places to break it where it is long: behind signs, or else after some letters."""
    letters, run = [], 0
    for before, letter in pairwise(f" {word}"):
        letters.append("{}" * (letter == before and letter in LIGATURES) + _letter(letter))
        run += 1
        if len(word) > LONG_WORD and (run >= RUN or (not letter.isalnum() and run > 2)):
            letters.append(r"\allowbreak{}")
            run = 0
    return "".join(letters)


def _letter(letter: str) -> str:
    if letter in MATH:
        return rf"\ensuremath{{{MATH[letter]}}}"
    if letter.isascii():
        return ASCII.get(letter, letter)
    return (
        TEXT.get(letter)
        or _accented(letter)
        or rf"\callshotletter{{{letter}}}{{{ord(letter):04X}}}"
    )


def _accented(letter: str) -> str:
    parts = unicodedata.normalize("NFD", letter)
    if len(parts) != 2 or not parts[0].isascii() or parts[1] not in ACCENTS:
        return ""
    letter = {"i": r"\i", "j": r"\j"}.get(parts[0], parts[0])
    return rf"\{ACCENTS[parts[1]]}{{{letter}}}"
