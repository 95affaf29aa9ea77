"""The GPU of this machine for tests, or the CPU as Triton's interpreter uses it."""

import numba
import numpy as np
import torch
import triton  # noqa: F401  # tests are skipped without it

from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.kernels import fma

HAS_GPU = torch.cuda.is_available()


@numba.vectorize(["float64(float64, float64, float64)"])
def fused(x, y, z):
    """x · y + z, rounded once."""
    return fma(x, y, z)


if HAS_GPU:
    GPU = Gpu("GPU", torch.device("cuda"), torch.cuda.mem_get_info()[0])
else:
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def _create_fma(self, x, y, z):
        return TensorHandle(np.asarray(fused(x.data, y.data, z.data)), x.dtype.scalar)

    InterpreterBuilder.create_fma = _create_fma  # it rounds twice
    GPU = Gpu("interpreter", torch.device("cpu"), 2**33)
