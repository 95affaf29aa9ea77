"""Standardised rows and their labels → the optimum of logistic regression for one C after another.

The objective, the bound of its gap and the unknowns are those of `solver`, which is for many small
fits. This solver is for many rows and several C:

- What depends on the rows alone is computed once for all C.
- A fit starts from the best combination of the last fits.
- Conjugate gradients find Newton steps in float32, because a step needs few digits. Where a step
  leads, and how far the objective is above its optimum, is computed in float64.
- Conjugate gradients are preconditioned in the directions in which the rows vary most. There the
  Hessian is close to a Kronecker product, as if all rows had the mean curvature of the softmax,
  and is inverted by the eigenvectors of its two factors.

The unknowns A count rows, W = A Z, up to n = 2 d: then one product with the Gram matrix Z Zᵀ takes
the place of two with Z. Products are by BLAS: limit its threads to 1 around a pool of fits.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.solver import MAX_INNER_STEPS, MAX_STEPS, TINY
from callshot.records import FloatArray, IntArray

DIRECTIONS = 32  # that are preconditioned
POWER_STEPS = 2  # to find them
COMBINED_FITS = 4  # in the start of the next
MAX_START_STEPS = 6
# How far conjugate gradients go: shares of the squared length of the descent that may be left.
FIRST_GOAL = 1e-3
MAX_GOAL = 1e-2
MIN_GOAL = 1e-6  # float32 has few more digits
MIN_SCALE = 1e-4  # of the preconditioner: the directions have the digits of float32
DOUBLE_GOAL = 1e-12  # in float64, where float32 leads no further

Array = NDArray[Any]


class Vector(NamedTuple):
    """Unknowns (classes, unknowns), bias (classes), and logits (classes, rows) without the bias."""

    unknowns: Array
    bias: Array
    logits: Array

    def plus(self, share: float, other: "Vector") -> "Vector":
        """Return this vector + share · other."""
        return Vector(
            self.unknowns + share * other.unknowns,
            self.bias + share * other.bias,
            self.logits + share * other.logits,
        )


class Rows(NamedTuple):
    """The matrices that vectors are multiplied with, in one precision.

    Unknowns times `table` (unknowns, rows) are logits. If unknowns are weights, factors (classes,
    rows) times `rows` (rows, dimensions) are unknowns.
    """

    table: Array
    rows: Array


class Preconditioner(NamedTuple):
    """An approximate inverse of the Hessian of C · objective, in one precision.

    axes        (classes, classes) eigenvectors of the curvature of the softmax, summed over rows
    shrink      (classes, directions) what is added to 1 as the scale of the unknowns, for each
                eigenvector and each direction in which the rows vary most
    bias_scale  (classes) scale of the bias for each eigenvector
    """

    axes: Array
    shrink: Array
    bias_scale: Array


class Objective:
    """The objective of standardised rows and their labels, as a function of unknowns and bias.

    With few rows the unknowns are coefficients of the rows (`in_span`), else they are weights.
    `further_rows` widen the span: they have coefficients too, but no labels. `ridge` times the
    trace is added to the diagonal of the Gram matrix.
    """

    def __init__(
        self,
        rows: FloatArray,
        label: IntArray,
        classes: int,
        further_rows: FloatArray | None = None,
        *,
        ridge: float = 0.0,
    ) -> None:
        """Compute the matrices that vectors are multiplied with, in both precisions."""
        count, dimensions = rows.shape
        self.label = label
        self.truth = np.arange(classes)[:, None] == label
        # Then one product with the Gram matrix costs less than two with the rows.
        self.in_span = count <= 2 * dimensions
        self.all_rows = rows
        if self.in_span and further_rows is not None:
            self.all_rows = np.vstack([rows, further_rows])
        # Unknowns times this are logits: the transposed rows, or in their span the Gram matrix.
        table = np.ascontiguousarray(rows.T)
        if self.in_span:
            table = self.all_rows @ self.all_rows.T
            table.flat[:: len(table) + 1] += ridge * np.trace(table)
        self.double = Rows(table, rows)
        self.single = Rows(table.astype(np.float32), rows.astype(np.float32))

    def softmax(self, logits: FloatArray) -> tuple[FloatArray, float]:
        """Return the probabilities of logits (classes, rows), and Σ −log p of the labels."""
        shifted = logits - logits.max(axis=0)  # so that exp does not overflow
        p = np.exp(shifted)
        total = p.sum(axis=0)
        p /= total
        of_labels = shifted[self.label, np.arange(len(self.label))]
        return p, float(np.sum(np.log(total) - of_labels))

    def dual(self, vector: Vector) -> Array:
        """Return the array whose product with another vector's unknowns is their inner product.

        That is the inner product of their weights, W·V. In the span of the rows Z, with unknowns A
        and B, it is A·(Z Zᵀ B), where Z Zᵀ B are the logits.
        """
        return vector.logits if self.in_span else vector.unknowns

    def multiply(self, unknowns: FloatArray, bias: FloatArray) -> Vector:
        """Return the vector of some unknowns and bias, with its logits."""
        return Vector(unknowns, bias, unknowns @ self.double.table)

    def weight(self, vector: Vector) -> FloatArray:
        """Return the weights (classes, dimensions) of a vector."""
        if self.in_span:
            return vector.unknowns @ self.all_rows
        return vector.unknowns


class PathSolver(Objective):
    """Fits on the same rows, one C after another."""

    def __init__(self, rows: FloatArray, label: IntArray, classes: int) -> None:
        # Rounding may make eigenvalues negative, and the objective would have no minimum.
        super().__init__(rows, label, classes, ridge=1e-12)
        self.fits: list[Vector] = []
        self._find_directions(min(DIRECTIONS, min(rows.shape) // 2))

    def _find_directions(self, number: int) -> None:
        """Find `number` directions of weights in which the rows vary most, by power iteration.

        They are orthonormal, and set three attributes: `basis` (unknowns, directions) holds their
        unknowns, `image` (rows, directions) their logits, `variation` the squared lengths of these.
        Directions in which the rows do not vary are left out.
        """
        table, rows = self.single

        def multiply_gram(basis: Array) -> Array:
            """Return a basis times the Gram matrix Z Zᵀ of the rows in their span, else Zᵀ Z."""
            return table @ basis if self.in_span else table @ (rows @ basis)

        rng = np.random.default_rng(0)
        basis = rng.normal(size=(len(table), number)).astype(np.float32)
        for _ in range(POWER_STEPS):
            basis, _ = np.linalg.qr(multiply_gram(basis))
        # The eigenvectors of the Gram matrix inside the basis, and their eigenvalues.
        projected = basis.T @ multiply_gram(basis)
        variation, axes = np.linalg.eigh(projected.astype(np.float64))
        varies = variation > max(1e-6 * variation.max(initial=0.0), TINY)
        self.variation = variation[varies]
        axes = axes[:, varies]
        if self.in_span:  # so that the weights have length 1, not their coefficients
            axes = axes / np.sqrt(self.variation)
        self.basis = basis @ axes.astype(np.float32)
        self.image = (table if self.in_span else rows) @ self.basis

    def solve(self, c: float, tolerance: float) -> tuple[FloatArray, FloatArray, float]:
        """Return weight and bias at the optimum for C, and how far the objective may be above it.

        Newton steps are found in float32 as long as they lower C · objective, then in float64,
        until the gap is at most `tolerance` or only rounding is left.
        """
        position = self._start(c)
        value, p = self._evaluate(c, position)  # C · objective, and the probabilities
        gap = np.inf
        gain = np.inf  # by how much the last step lowered C · objective
        rows = self.single
        for _ in range(MAX_STEPS):
            descent = self._find_descent(c, position, p)
            previous_gap = gap
            gap = self._bound_gap(c, p, descent)
            if gap <= tolerance:
                break
            has_no_gain = gain <= 1e-15 * abs(value) and gap > 0.5 * previous_gap
            if has_no_gain and rows is self.double:  # only rounding is left
                break
            # In float32 neither the objective nor the gap falls much further.
            if gain <= 1e-6 * abs(value) and gap > 0.1 * previous_gap:
                rows = self.double
            goal = self._choose_goal(rows, gap, previous_gap, tolerance)
            # A step that overflows in float32 is not taken, and the next is in float64.
            with np.errstate(over="ignore", invalid="ignore"):
                step = self._find_step(rows, c, p, descent, goal)
                position, new_value, p = self._take_step(c, position, value, p, step)
            gain = value - new_value
            value = new_value
        self.fits = [*self.fits[1 - COMBINED_FITS :], position]
        return self.weight(position), position.bias, gap

    def _choose_goal(
        self, rows: Rows, gap: float, previous_gap: float, tolerance: float
    ) -> float:
        """Return the share of the squared descent at which conjugate gradients stop.

        `rows` have the precision of the step; `previous_gap` is infinite before the first one.
        """
        goal = FIRST_GOAL
        if rows is self.double:
            goal = DOUBLE_GOAL
        elif previous_gap < np.inf:  # the faster the gap falls, the more digits pay
            goal = np.clip(0.01 * gap / previous_gap, MIN_GOAL, MAX_GOAL)
        return max(goal, 0.1 * tolerance / gap)  # no more digits than needed

    def _find_descent(self, c: float, position: Vector, p: FloatArray) -> Vector:
        """Return the negative gradient of C · objective at a position with probabilities p."""
        residual = c * (self.truth - p)
        row_sums = self._sum_rows(self.double, residual)
        return self.multiply(row_sums - position.unknowns, residual.sum(axis=1))

    def _bound_gap(self, c: float, p: FloatArray, descent: Vector) -> float:
        """Return how far the objective may be above its optimum, as `solver.bound_gap`.

        `descent` is the negative gradient of C · objective, and `p` (classes, rows) are the
        probabilities at the same position.
        """
        bias_curvature = np.maximum(c * (p * (1.0 - p)).sum(axis=1), TINY)
        square = np.vdot(descent.unknowns, self.dual(descent))
        square += np.sum(descent.bias**2 / bias_curvature)
        return float(0.5 * square / c)

    def _start(self, c: float) -> Vector:
        """Return the combination of the last fits with the lowest objective; zeros without fits."""
        classes, count = self.truth.shape
        zeros = np.zeros((classes, len(self.double.table)))
        position = Vector(zeros, np.zeros(classes), np.zeros((classes, count)))
        if not self.fits:
            return position
        shares = self._find_shares(c)
        for share, fit in zip(shares.tolist(), self.fits, strict=True):
            position = position.plus(share, fit)
        return position

    def _find_shares(self, c: float) -> FloatArray:
        """Return the share of each of the last fits in the combination with the lowest objective.

        A few Newton steps find them, from the last fit alone.
        """
        logits = np.stack([fit.logits + fit.bias[:, None] for fit in self.fits])
        # The inner products of the weights of all pairs of fits.
        products = np.empty((len(self.fits), len(self.fits)))
        for i, fit in enumerate(self.fits):
            for j, other in enumerate(self.fits):
                products[i, j] = np.vdot(other.unknowns, self.dual(fit))
        shares = np.zeros(len(self.fits))
        shares[-1] = 1.0

        def evaluate(shares: FloatArray) -> tuple[float, FloatArray]:
            """Return C · objective and the probabilities of a combination of the fits."""
            p, loss = self.softmax(np.tensordot(shares, logits, 1))
            return c * loss + 0.5 * float(shares @ products @ shares), p

        value, p = evaluate(shares)
        for _ in range(MAX_START_STEPS):
            weighted = p * logits  # (fits, classes, rows), as the logits
            means = weighted.sum(axis=1)
            gradient = c * np.tensordot(logits, p - self.truth, 2) + products @ shares
            spread = np.tensordot(weighted, logits, ((1, 2), (1, 2))) - means @ means.T
            hessian = c * spread + products
            trial = shares - np.linalg.lstsq(hessian, gradient)[0]
            new_value, p = evaluate(trial)
            if not new_value < value:
                break
            shares = trial
            value = new_value
        return shares

    def _evaluate(self, c: float, position: Vector) -> tuple[float, FloatArray]:
        """Return C · objective at a position, and its probabilities."""
        p, loss = self.softmax(position.logits + position.bias[:, None])
        square = np.vdot(position.unknowns, self.dual(position))
        return float(c * loss + 0.5 * square), p

    def _take_step(
        self, c: float, position: Vector, value: float, p: FloatArray, step: Vector
    ) -> tuple[Vector, float, FloatArray]:
        """Take a step, or half of it, and so on, until C · objective is not higher; else stay.

        Return the new position, C · objective there, and its probabilities.
        """
        share = 1.0
        while share > 1e-9:
            trial = position.plus(share, step)
            new_value, new_p = self._evaluate(c, trial)
            if new_value <= value + 1e-13 * abs(value):
                return trial, new_value, new_p
            share *= 0.5
        return position, value, p

    def _find_step(
        self, rows: Rows, c: float, p: FloatArray, descent: Vector, goal: float
    ) -> Vector:
        """Return a Newton step, by conjugate gradients in the precision of the rows.

        `p` (classes, rows) are the probabilities and `descent` the negative gradient of C ·
        objective at the position. `goal` is the share that may be left of its squared length, the
        inner product with the preconditioned descent.
        """
        dtype = rows.table.dtype
        inverse = self._make_preconditioner(c, p, dtype)
        factors = (c * p).astype(dtype)
        p = p.astype(dtype)
        # The residual is what the step leaves of the descent, divided by a length of it: float32
        # would overflow, or lose small numbers.
        length = np.abs(descent.unknowns).max() + np.abs(descent.bias).max()
        residual = (descent.unknowns / length).astype(dtype)
        residual_bias = (descent.bias / length).astype(dtype)
        scaled = self._precondition(rows, inverse, residual, residual_bias)
        size = np.vdot(residual, self.dual(scaled)) + residual_bias @ scaled.bias
        smallest_size = goal * size
        search = scaled
        step = np.zeros_like(residual)
        step_bias = np.zeros_like(residual_bias)
        for _ in range(MAX_INNER_STEPS):
            # The Hessian of C · objective times the search direction: `change` and `bias_change`.
            logits = search.logits + search.bias[:, None]
            logits -= np.einsum("ni,ni->i", p, logits)
            logits *= factors
            change = self._sum_rows(rows, logits) + search.unknowns
            bias_change = logits.sum(axis=1)
            curve = np.vdot(change, self.dual(search)) + bias_change @ search.bias
            # Only rounding is left, or float32 overflows.
            if not (0.0 < curve < np.inf and 0.0 < size < np.inf):
                break
            alpha = size / curve
            step += alpha * search.unknowns
            step_bias += alpha * search.bias
            residual -= alpha * change
            residual_bias -= alpha * bias_change
            scaled = self._precondition(rows, inverse, residual, residual_bias)
            previous = size
            size = np.vdot(residual, self.dual(scaled)) + residual_bias @ scaled.bias
            if size <= smallest_size:
                break
            search = scaled.plus(size / previous, search)
        return self.multiply(
            length * step.astype(np.float64), length * step_bias.astype(np.float64)
        )

    def _make_preconditioner(
        self, c: float, p: FloatArray, dtype: Any
    ) -> Preconditioner:
        """Return an approximate inverse of the Hessian of C · objective, of type `dtype`.

        With probabilities p (classes, rows), the Hessian is about I + C · S ⊗ diag(variation) / n,
        where S is the curvature of softmax, diag(p) − p p', summed over the n rows. It is inverted
        along the eigenvectors of S.
        """
        curvature = np.diag(p.sum(axis=1)) - p @ p.T
        strength, axes = np.linalg.eigh(c * curvature)
        # The same number added to every bias changes nothing: along it the scale is 0.
        is_flat = strength <= 1e-9 * strength[-1]
        strength = np.where(is_flat, 0.0, strength)
        bias_scale = np.zeros_like(strength)
        bias_scale[~is_flat] = 1.0 / strength[~is_flat]
        mean_strength = strength[:, None] / len(self.label)  # of a row
        scale = 1.0 / (1.0 + mean_strength * self.variation)
        # What is added to the scale 1 that all other directions have.
        shrink = np.maximum(scale, MIN_SCALE) - 1.0
        return Preconditioner(
            axes.astype(dtype), shrink.astype(dtype), bias_scale.astype(dtype)
        )

    def _precondition(
        self, rows: Rows, inverse: Preconditioner, unknowns: Array, bias: Array
    ) -> Vector:
        """Return a residual, given as unknowns and bias, times an approximate inverse Hessian.

        Unknowns are scaled in the directions in which the rows vary most, and otherwise stay.
        """
        axes, shrink, bias_scale = inverse
        new_bias = axes @ (bias_scale * (axes.T @ bias))
        # Components along the directions: in the span, from the logits by the Gram matrix.
        if self.in_span:
            logits = unknowns @ rows.table
            components = logits @ self.basis  # (classes, directions)
        else:
            components = unknowns @ self.basis
        changes = axes @ (shrink * (axes.T @ components))
        new_unknowns = unknowns + changes @ self.basis.T
        if self.in_span:  # `image` is the Gram matrix times `basis`
            logits += changes @ self.image.T
        else:
            logits = new_unknowns @ rows.table
        return Vector(new_unknowns, new_bias, logits)

    def _sum_rows(self, rows: Rows, factors: Array) -> Array:
        """Return Σ_i factors[n, i] · row i for each class n, as unknowns.

        `factors` is (classes, rows). In the span, unknowns are coefficients of the rows.
        """
        return factors if self.in_span else factors @ rows.rows
