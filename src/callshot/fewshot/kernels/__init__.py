"""The inner loops, compiled by numba: GIL released, no state, cached on disk.

streams    (keys) → random words: counter-based, the same bits on any machine
supports   (Gram matrix or vectors, pools) → a_n of every draw and shot, by class means
exemplars  (products, distances) → a_n by one exemplar of each class, for both spreads
scores     a_n → log-odds or softmax, and the hard decision
ranks      scores of a class → small integer codes that keep the order and the ties
bootstrap  codes → AP and AUROC of every bootstrap sample
shared     one support set for all queries of a fold → AP, AUROC, hits of every draw

Nothing here imports NumPy's random state, holds a global or starts a thread.
"""

from collections.abc import Callable
from typing import Any

import numba

Function = Callable[..., Any]
njit: Callable[..., Callable[[Function], Function]] = numba.njit


COMPILED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def kernel(function: Function) -> Function:
    """Compile with the GIL released and keep the machine code on disk, where a disk can be written."""
    try:
        return njit(cache=True, **COMPILED)(function)
    except RuntimeError:  # numba found no folder to write its cache to
        return njit(**COMPILED)(function)


def inner(function: Function) -> Function:
    """Compile for other kernels only: without the wrappers that a call from Python needs, which take their time."""
    return njit(no_cpython_wrapper=True, **COMPILED)(function)


def formula(function: Function) -> Function:
    """Put a function of numbers into its callers as text is put into text: nothing is compiled twice.

    Not for arrays: numba would count references to each, in the innermost loop.
    """
    return njit(inline="always", error_model="numpy")(function)
