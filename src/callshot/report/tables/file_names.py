"""Names of corpora → parts of file names that every system takes, and LaTeX too."""

import re
import unicodedata
from collections.abc import Sequence

LONGEST = 60


def safe_name(name: str) -> str:
    """Return a name in lower-case ASCII letters, digits and hyphens.

    >>> safe_name("Éléphants / Parc n° 3"), safe_name("../.."), safe_name("象")
    ('elephants-parc-n-3', 'corpus', 'corpus')
    """
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:LONGEST].rstrip("-") or "corpus"


def safe_names(names: Sequence[str]) -> list[str]:
    """Return safe names that differ, in the same order: those that would be the same are numbered.

    >>> safe_names(["a b", "A/B", "a-b-2", "c"])
    ['a-b', 'a-b-2', 'a-b-2-2', 'c']
    """
    taken: list[str] = []
    for name in map(safe_name, names):
        count = 1
        while (candidate := name if count == 1 else f"{name}-{count}") in taken:
            count += 1
        taken.append(candidate)
    return taken
