"""The inner loops of logistic regression, compiled by numba."""
