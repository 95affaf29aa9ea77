"""Names of corpora and labels → parts of file names that every system and LaTeX accept."""

import re
import unicodedata
from collections.abc import Sequence

LONGEST = 60


def safe_name(name: str, default: str = "corpus") -> str:
    """Return a name in lower-case ASCII letters, digits and hyphens; `default` if none is left.

    >>> safe_name("Éléphants / Parc n° 3"), safe_name("../.."), safe_name("象")
    ('elephants-parc-n-3', 'corpus', 'corpus')
    """
    decomposed = unicodedata.normalize("NFKD", name)
    ascii_name = decomposed.encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())
    cropped = hyphenated.strip("-")[:LONGEST]
    return cropped.rstrip("-") or default


def safe_names(names: Sequence[str], default: str = "corpus") -> list[str]:
    """Return a safe name for each name, in the same order; equal ones are numbered.

    >>> safe_names(["a b", "A/B", "a-b-2", "c"])
    ['a-b', 'a-b-2', 'a-b-2-2', 'c']
    """
    unique: list[str] = []
    for text in names:
        name = safe_name(text, default)
        candidate = name
        count = 1
        while candidate in unique:
            count += 1
            candidate = f"{name}-{count}"
        unique.append(candidate)
    return unique
