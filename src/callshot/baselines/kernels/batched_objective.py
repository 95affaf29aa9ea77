"""C · J of logistic regression for many fits at once, in torch, on tensors that stay in place.

The fits of a batch have the same labels in the same order, and different rows. Vectors have columns
for the unknowns, then zeros up to a multiple of 64, and the bias as the last column. Lanes are the
rows, then zeros; in the span of the rows, lanes and columns are the same.
"""

from typing import Any, NamedTuple

import torch

from callshot.baselines.kernels.solver import TINY

Tensor = Any

COLUMN_STEP = 64


class BatchSize(NamedTuple):
    """What batches have in common that share memory; `is_gram`: the unknowns are in the span."""

    fits: int
    classes: int
    lanes: int
    columns: int
    is_gram: bool


def padded(columns: int) -> int:
    """Return a number of columns with room for the bias.

    >>> padded(63), padded(64)
    (64, 128)
    """
    return (columns // COLUMN_STEP + 1) * COLUMN_STEP


def in_span(count: int, dimensions: int) -> bool:
    """Return whether the unknowns of a fit are in the span of its rows."""
    return count <= dimensions


class BatchObjective:
    """C · J of every fit of a batch.

    The image of a vector is what its logits are computed from. In the span it is the vector times
    the Gram matrix, `matrix` (fits, columns, columns), which has a 1 for the bias, and the inner
    product of two vectors is that of one with the image of the other. Otherwise the image is the
    logits: `matrix` is the transpose of the rows (fits, lanes, columns), whose last column is 1.
    """

    def __init__(self, size: BatchSize, c: float, like: Tensor) -> None:
        fits, classes, lanes, columns, self.is_gram = size
        self.c = c
        self.truth = like.new_zeros((classes, lanes))
        self.valid = like.new_zeros(lanes)
        if self.is_gram:
            self.matrix = like.new_zeros((fits, columns, columns))
            self.curvature = like.new_zeros((fits, classes, 1))
        else:
            self.rows = like.new_zeros((fits, lanes, columns))
            self.matrix = self.rows.transpose(1, 2)
            self.curvature = like.new_zeros((fits, classes, columns))

    def load(self, rows: Tensor, label: Tensor) -> None:
        """Take the rows and labels of a batch."""
        count = rows.shape[1]
        self.truth.zero_()
        self.truth[label, torch.arange(count, device=rows.device)] = 1.0
        self.valid.zero_()
        self.valid[:count] = 1.0
        if self.is_gram:
            self._load_gram(rows)
        else:
            self._load_rows(rows)

    def _load_gram(self, rows: Tensor) -> None:
        """Fill in the Gram matrices, whose diagonals get a little more against rounding."""
        count = rows.shape[1]
        self.matrix.zero_()
        gram = self.matrix[:, :count, :count]
        gram.copy_(torch.bmm(rows, rows.transpose(1, 2)))
        diagonal = gram.diagonal(dim1=1, dim2=2)
        diagonal += 1e-12 * diagonal.sum(1, keepdim=True)
        self.matrix[:, -1, -1] = 1.0

    def _load_rows(self, rows: Tensor) -> None:
        """Fill in the rows, and a 1 for the bias of each."""
        count, dimensions = rows.shape[1:]
        self.rows.zero_()
        self.rows[:, :count, :dimensions] = rows
        self.rows[:, :count, -1] = 1.0

    def find_image(self, vector: Tensor) -> Tensor:
        """Return the image of a vector."""
        return torch.bmm(vector, self.matrix)

    def logits(self, image: Tensor) -> Tensor:
        """Return the logits (fits, classes, lanes) of a vector with this image."""
        return image + image[..., -1:] if self.is_gram else image

    def partner(self, vector: Tensor, image: Tensor) -> Tensor:
        """Return what a vector is multiplied with in an inner product."""
        return image if self.is_gram else vector

    def add_rows(self, factors: Tensor, vector: Tensor, scale: float) -> Tensor:
        """Return Σ_i factor of i · row i, plus scale · the weights of a vector."""
        sums = factors if self.is_gram else torch.bmm(factors, self.rows)
        total = torch.add(sums, vector, alpha=scale)
        total[..., -1] = factors.sum(-1)
        return total

    def value_at(self, position: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return C · J, and the probabilities; 0 where there is no row."""
        logits = self.logits(image)
        largest = logits.amax(1, keepdim=True)
        powers = torch.exp(logits - largest)
        total = powers.sum(1, keepdim=True)
        log_total = (largest + torch.log(total))[:, 0]
        true_logit = (self.truth * logits).sum(1)
        loss = (self.valid * (log_total - true_logit)).sum(-1)
        p = powers / total * self.valid
        penalty = 0.5 * self.square_of_weights(position, image)
        return self.c * loss + penalty, p

    def square_of_weights(self, vector: Tensor, image: Tensor) -> Tensor:
        """Return the inner product of a vector with itself, without the bias."""
        partner = self.partner(vector, image)
        return dot(vector[..., :-1], partner[..., :-1])

    def bound_gap(self, descent: Tensor, image: Tensor) -> Tensor:
        """Return how far J may be above its optimum, as `solver.bound_gap`."""
        square = self.square_of_weights(descent, image)
        bias = descent[..., -1] ** 2 / self.curvature[..., -1]
        return 0.5 * (square + bias.sum(1)) / self.c

    def fill_curvature(self, p: Tensor) -> None:
        """Fill in the second derivatives by each unknown alone; by the bias alone in the span."""
        factors = self.c * p * (1.0 - p)
        if self.is_gram:
            self.curvature.copy_(factors.sum(-1, keepdim=True))
        else:
            self.curvature.copy_(torch.bmm(factors, self.rows * self.rows))
            self.curvature[..., :-1] += 1.0
        self.curvature[..., -1].clamp_(min=TINY)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of vectors (fits, classes, columns)."""
    return (x * y).sum((1, 2))
