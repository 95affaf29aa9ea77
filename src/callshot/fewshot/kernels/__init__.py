"""The inner loops, compiled by numba: GIL released, no state, cached on disk.

streams    (keys) → random words: counter-based, the same bits on any machine
supports   (Gram matrix or vectors, pools) → a_n of every draw and shot
scores     a_n → log-odds or softmax, and the hard decision
ranks      scores of a class → small integer codes that keep the order and the ties
bootstrap  codes → AP and AUROC of every bootstrap sample
shared     one support set for all queries of a fold → AP, AUROC, hits of every draw

Nothing here imports NumPy's random state, holds a global or starts a thread.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile with the GIL released and keep the machine code on disk, where a disk can be written."""
    try:
        return njit(nogil=True, cache=True, error_model="numpy")(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no folder to write its cache to
        return njit(nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Compile into the callers; nothing of its own is kept."""
    return njit(nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]
