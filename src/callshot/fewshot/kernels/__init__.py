"""The inner loops, compiled by numba: GIL released, no state, cached on disk.

Arrays that belong together travel as NamedTuples. A kernel unpacks them before its loops: numba
would count references to their arrays in every call of an inner function.
"""

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

Array = Any  # numba infers the type of every array
Function = Callable[..., Any]
njit: Callable[..., Callable[[Function], Function]] = numba.njit

COMPILED: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}


def kernel(function: Function) -> Function:
    """Compile with the GIL released; cache the machine code where a disk can be written."""
    try:
        return njit(cache=True, **COMPILED)(function)
    except RuntimeError:  # numba found no folder to write its cache to
        return njit(**COMPILED)(function)


def inner(function: Function) -> Function:
    """Compile for other kernels only, without the wrapper for calls from Python."""
    return njit(no_cpython_wrapper=True, **COMPILED)(function)


def formula(function: Function) -> Function:
    """Inline a function of numbers into its callers.

    Not for arrays: numba would count references to each of them in the innermost loop.
    """
    return njit(inline="always", error_model="numpy")(function)


@intrinsic  # type: ignore[misc,unused-ignore]
def fma(_typing: Any, _x: Any, _y: Any, _z: Any) -> Any:
    """Return x · y + z, rounded once (IEEE 754): the same bits on any machine."""
    signature = types.float64(types.float64, types.float64, types.float64)

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.fma(*values)  # LLVM's instruction

    return signature, generate
