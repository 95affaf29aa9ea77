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


def assert_same(cpu, gpu):
    """Check that the metrics of a sweep are those of the CPU."""
    for key, table in cpu.values.items():
        np.testing.assert_allclose(gpu.values[key], table, 0, 1e-12, err_msg=str(key))
    for metric, table in cpu.per_class.items():
        np.testing.assert_allclose(gpu.per_class[metric], table, 0, 1e-12)
    np.testing.assert_array_equal(gpu.tied, cpu.tied)
    np.testing.assert_array_equal(gpu.decisions, cpu.decisions)
    for metric, folds in cpu.undefined.items():
        np.testing.assert_array_equal(gpu.undefined[metric], folds)
    for metric, level in cpu.chance.items():
        np.testing.assert_allclose(gpu.chance[metric], level, 0, 1e-12)
