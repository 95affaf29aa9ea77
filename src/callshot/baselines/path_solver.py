"""Standardised rows and their labels → the optimum of logistic regression for one C after another.

The objective and the bound of its gap are those of `solver`, which is for many small fits. This
solver is for many rows and several C. Weights are written on the principal axes of the rows. There
the Hessian is close to a Kronecker product, as if all rows had the mean curvature of the softmax,
so conjugate gradients are preconditioned by the eigenvectors of the curvature and one number for
each of them and each axis. A fit starts from the best combination of the last fits.

Products are by BLAS: limit its threads to 1 around a pool of fits.
"""

import numpy as np

from callshot.baselines.solver import MAX_INNER_STEPS, MAX_STEPS, TINY
from callshot.records import FloatArray, IntArray

COMBINED_FITS = 4  # in the start of the next
MAX_START_STEPS = 6
# How far conjugate gradients go: shares of the squared length of the descent that may be left.
FIRST_GOAL = 1e-3
MAX_GOAL = 1e-2
MIN_GOAL = 1e-9


def principal_axes(rows: FloatArray) -> FloatArray:
    """Return orthonormal axes (dimensions, axes) of the span of rows, by rising variation."""
    count, dimensions = rows.shape
    if count >= dimensions:
        return np.linalg.eigh(rows.T @ rows)[1]
    basis, _ = np.linalg.qr(rows.T)
    return basis @ principal_axes(rows @ basis)


class Objective:
    """C · objective of rows and their labels, as a function of a position.

    A position (classes, axes and bias) has the weights on orthonormal `axes` (dimensions, axes) and
    the bias in its last column, which is not `penalised`; `rows` are written in the same way.
    """

    def __init__(
        self, rows: FloatArray, label: IntArray, classes: int, axes: FloatArray
    ) -> None:
        self.axes = axes
        ones = np.ones(len(rows))
        self.rows = np.column_stack([rows @ axes, ones])
        self.penalised = np.append(np.ones(axes.shape[1]), 0.0)
        self.label = label
        self.truth = np.arange(classes)[:, None] == label

    def softmax(self, logits: FloatArray) -> tuple[FloatArray, float]:
        """Return the probabilities of logits (classes, rows), and Σ −log p of the labels."""
        shifted = logits - logits.max(axis=0)
        p = np.exp(shifted)
        total = p.sum(axis=0)
        p /= total
        of_labels = shifted[self.label, np.arange(len(self.label))]
        return p, float(np.sum(np.log(total) - of_labels))

    def evaluate(self, c: float, position: FloatArray) -> tuple[float, FloatArray]:
        """Return C · objective at a position, and the probabilities (classes, rows)."""
        p, loss = self.softmax(position @ self.rows.T)
        square = float(np.sum(np.square(position) * self.penalised))
        return c * loss + 0.5 * square, p

    def position(self, weight: FloatArray, bias: FloatArray) -> FloatArray:
        """Return the position of weights (classes, dimensions) and bias (classes)."""
        return np.column_stack([weight @ self.axes, bias])

    def layer(self, position: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights (classes, dimensions) and bias (classes) of a position."""
        return position[:, :-1] @ self.axes.T, position[:, -1]


class PathSolver(Objective):
    """Fits on the same rows, one C after another."""

    def __init__(self, rows: FloatArray, label: IntArray, classes: int) -> None:
        super().__init__(rows, label, classes, principal_axes(rows))
        self.variation = np.square(self.rows).mean(axis=0)
        self.fits: list[FloatArray] = []

    def solve(self, c: float, tolerance: float) -> tuple[FloatArray, FloatArray, float]:
        """Return weight and bias at the optimum for C, and how far the objective may be above it.

        Newton steps are taken until the gap is at most `tolerance` or only rounding is left.
        """
        position = self._start(c)
        value, p = self.evaluate(c, position)  # C · objective, and the probabilities
        gap = np.inf
        gain = np.inf
        for _ in range(MAX_STEPS):
            residual = c * (self.truth - p)
            descent = residual @ self.rows - position * self.penalised
            previous_gap = gap
            gap = self._bound_gap(c, p, descent)
            if gap <= tolerance:
                break
            if gain <= 1e-15 * abs(value) and gap > 0.5 * previous_gap:
                break  # only rounding is left
            goal = FIRST_GOAL
            if previous_gap < np.inf:  # the faster the gap falls, the more digits pay
                goal = np.clip(0.01 * gap / previous_gap, MIN_GOAL, MAX_GOAL)
            goal = max(goal, 0.1 * tolerance / gap)  # no more digits than needed
            step = self._find_step(c, p, descent, goal)
            # The step, or half of it, and so on, until C · objective is not higher.
            share = 1.0
            while share > 1e-9:
                trial = position + share * step
                new_value, new_p = self.evaluate(c, trial)
                if new_value <= value + 1e-13 * abs(value):
                    break
                share *= 0.5
            else:
                break  # only rounding is left
            gain = value - new_value
            position = trial
            value = new_value
            p = new_p
        self.fits = [*self.fits[1 - COMBINED_FITS :], position]
        weight, bias = self.layer(position)
        return weight, bias, gap

    def _bound_gap(self, c: float, p: FloatArray, descent: FloatArray) -> float:
        """Return how far the objective may be above its optimum; see `solver.bound_gap`.

        `descent` is the negative gradient of C · objective where the probabilities are p.
        """
        variances = p * (1.0 - p)
        bias_curvature = np.maximum(c * variances.sum(axis=1), TINY)
        weights = descent[:, :-1]
        bias = descent[:, -1]
        square = np.vdot(weights, weights) + np.sum(bias**2 / bias_curvature)
        return float(0.5 * square / c)

    def _start(self, c: float) -> FloatArray:
        """Return the linear combination of the last fits with the lowest objective; at first zeros.

        A few Newton steps find the shares of the fits.
        """
        if not self.fits:
            return np.zeros((len(self.truth), self.rows.shape[1]))
        fits = np.stack(self.fits)
        logits = fits @ self.rows.T
        # The inner products of the weights of all pairs of fits.
        products = np.tensordot(fits * self.penalised, fits, ((1, 2), (1, 2)))
        shares = np.zeros(len(fits))
        shares[-1] = 1.0
        value, p = self.evaluate(c, fits[-1])
        for _ in range(MAX_START_STEPS):
            weighted = p * logits
            means = weighted.sum(axis=1)
            gradient = c * np.tensordot(logits, p - self.truth, 2) + products @ shares
            spread = np.tensordot(weighted, logits, ((1, 2), (1, 2))) - means @ means.T
            hessian = c * spread + products
            trial = shares - np.linalg.lstsq(hessian, gradient)[0]
            new_value, p = self.evaluate(c, np.tensordot(trial, fits, 1))
            if not new_value < value:
                break
            shares = trial
            value = new_value
        return np.tensordot(shares, fits, 1)

    def _find_step(
        self, c: float, p: FloatArray, descent: FloatArray, goal: float
    ) -> FloatArray:
        """Return a Newton step by conjugate gradients, where the probabilities are p.

        `goal` is the share of the squared length of the descent that may be left. With S, the
        curvature of the softmax, diag(p) − p p', summed over the n rows, the Hessian is about
        diag(penalised) + C · S ⊗ diag(variation); it is inverted along the eigenvectors of S.
        """
        curvature = np.diag(p.sum(axis=1)) - p @ p.T
        strength, directions = np.linalg.eigh(c * curvature)
        # The same number added to every bias changes nothing: along it the scale is 0.
        strength[strength <= 1e-9 * strength[-1]] = 0.0
        hessian_scale = self.penalised + strength[:, None] * self.variation
        is_flat = hessian_scale == 0.0
        scale = np.where(is_flat, 0.0, 1.0 / np.where(is_flat, 1.0, hessian_scale))

        def precondition(residual: FloatArray) -> FloatArray:
            """Return the residual times the approximate inverse of the Hessian."""
            return directions @ (scale * (directions.T @ residual))

        residual = descent
        scaled = precondition(residual)
        size = np.vdot(residual, scaled)
        target = goal * size
        search = scaled
        step = np.zeros_like(residual)
        for _ in range(MAX_INNER_STEPS):
            # The derivative of the gradient along the search direction.
            logits = search @ self.rows.T
            logits -= np.einsum("ni,ni->i", p, logits)
            change = (c * p * logits) @ self.rows + search * self.penalised
            curve = np.vdot(change, search)
            if not (curve > 0.0 and size > 0.0):  # only rounding is left
                break
            alpha = size / curve
            step += alpha * search
            residual = residual - alpha * change
            scaled = precondition(residual)
            previous = size
            size = np.vdot(residual, scaled)
            if size <= target:
                break
            search = scaled + size / previous * search
        return step
