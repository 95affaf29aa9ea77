"""Which k a table tells, and how it marks k*."""

from collections.abc import Iterable, Sequence

from callshot.report.tables.table import Cell

PAPER_SHOTS = (1, 2, 3, 4, 5, 10, 15, 20, 40)


def shown_shots(evaluated: Iterable[int], wanted: Sequence[int]) -> list[int]:
    """Return the shots that are both wanted and evaluated, or all that were evaluated if none is both.

    >>> shown_shots([1, 2, 3, 4, 7], (1, 2, 5)), shown_shots([7, 6, 7], (1, 2))
    ([1, 2], [6, 7])
    """
    there = set(evaluated)
    return sorted(there & set(wanted)) or sorted(there)


def starred_shot(shots: Sequence[int], complete_shots: int) -> int | None:
    """Return the k to mark: k* if it is told, else the first beyond it.

    >>> [starred_shot((1, 5, 10), k) for k in (5, 7, 31)]
    [5, 10, None]
    """
    return min((k for k in shots if k >= complete_shots), default=None)


def shot_cell(k: int, star: int | None) -> Cell:
    """Return the cell that names a row's k."""
    return Cell(str(k), k, mark="⋆" if k == star else "")


def star_note(star: int | None, complete_shots: int) -> tuple[str, str]:
    """Say which row the star is at, and what it means."""
    last = f"k* = {complete_shots}, the largest k at which every class is complete"
    if star is None:
        return "", f"At every k shown, every class is complete: k* = {complete_shots}."
    if star == complete_shots:
        return "⋆", f"This row is at {last}. Beyond it, support is partial."
    return "⋆", f"This row is the first beyond {last}. Its support is partial."
