"""Summaries of samples, beside NumPy's."""

import numpy as np
import pytest

from callshot.records.frames import PERCENTILE_NAMES, PERCENTILES, summarise_samples


@pytest.mark.parametrize("count", [1, 2, 3, 8, 101, 1000])
def test_percentiles_are_those_of_numpy(count):
    rng = np.random.default_rng(count)
    samples = rng.normal(size=(20, count))
    samples[5:10] = np.round(samples[5:10], 1)
    samples[10, 0] = np.nan
    found = summarise_samples(samples)
    expected = np.percentile(samples, PERCENTILES, axis=1)
    for name, values in zip(PERCENTILE_NAMES, expected, strict=True):
        np.testing.assert_array_equal(found[name], values)
