"""Columns of a table with a header: the header's names and a row's cells come in, what callshot calls them goes out."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from callshot.corpus.annotations.rows import Unfit, frequency, integer
from callshot.corpus.annotations.text import shown
from callshot.errors import InputError
from callshot.records import Cell

CARRIED = {
    "lowfreqhz": "low_freq_hz",
    "highfreqhz": "high_freq_hz",
    "fold": "fold",
}  # those we give a name and a type
LISTED = 12


def plain(name: str) -> str:
    """Reduce a column's name to its letters and digits.

    >>> plain("Begin Time (s)")
    'begintimes'
    """
    return "".join(c for c in name.casefold() if c.isalnum())


def read_header(path: Path, line: int, cells: Sequence[str]) -> list[str]:
    """Return the names in a header; those without one are counted, and none may be there twice."""
    names = [cell.strip() or f"column {i}" for i, cell in enumerate(cells, start=1)]
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(
                f"{path}: line {line}: column {shown(name)} is there twice; rename or remove one"
            )
        seen.add(name)
    return names


def find_column(
    names: Sequence[str], wanted: Iterable[str], taken: Iterable[int] = ()
) -> int | None:
    """Find the first of the wanted columns, written exactly so or else as `plain` has it."""
    free = {name: i for i, name in enumerate(names) if i not in taken}
    alike = {
        plain(name): i for name, i in reversed(free.items())
    }  # the first of those that are alike
    for name in wanted:
        found = free.get(name, alike.get(plain(name)))
        if found is not None:
            return found
    return None


def mapped_column(path: Path, line: int, names: Sequence[str], ours: str, theirs: str) -> int:
    """Find the column that the user named for one of ours."""
    found = find_column(names, [theirs])
    if found is None:
        text = f"there is no column {shown(theirs)}, which was named for {ours}"
        raise InputError(f"{path}: line {line}: {text}; {nearest(theirs, names)}")
    return found


def nearest(name: str, names: Sequence[str]) -> str:
    """Say which names come close to one that is not there, and which there are.

    >>> nearest("Speceis", ["Selection", "Species"])
    "did you mean 'Species'? there are 'Selection', 'Species'"
    """
    spelled = {other[:80].casefold(): other for other in names[:200]}
    near = [
        f"did you mean {shown(spelled[other])}? "
        for other in get_close_matches(name[:80].casefold(), spelled, n=1)
    ]
    return f"{''.join(near)}there are {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """List names, but not too many."""
    return ", ".join(map(shown, names[:LISTED])) + (", …" if len(names) > LISTED else "") or "none"


def even(names: Sequence[str], cells: list[str]) -> list[str]:
    """Return a row's cells, one for each column; empty ones may be too many at the end."""
    if len(cells) < len(names) or any(cells[len(names) :]):
        raise Unfit(f"wanted {len(names)} fields as in the header, found {len(cells)}")
    return cells[: len(names)]


def carried_along(
    path: Path, line: int, names: Sequence[str], used: Iterable[int]
) -> dict[int, str]:
    """Return the columns that callshot only carries along, and what it calls them."""
    taken = {*used}
    found = {i: CARRIED.get(plain(name), name) for i, name in enumerate(names) if i not in taken}
    for ours in CARRIED.values():
        twins = [names[i] for i, name in found.items() if name == ours]
        if len(twins) > 1:
            raise InputError(
                f"{path}: line {line}: columns {listed(twins)} are all {ours}; remove all but one"
            )
    return found


def carry(
    others: Mapping[int, str], cells: Sequence[str], *, comma: bool = True
) -> dict[str, Cell]:
    """Return the cells of the columns that are carried along: text as it is written, None where there is none."""
    return {name: _cell(name, cells[i], comma) for i, name in others.items()}


def _cell(name: str, text: str, comma: bool) -> Cell:
    if name in ("low_freq_hz", "high_freq_hz"):
        return frequency(text, name, comma=comma)
    return integer(text, name) if name == "fold" else text or None
