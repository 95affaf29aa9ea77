"""Products of a support → the logits by ridge regression on its first rows, at every k.

The Cholesky factor of the first rows of a symmetric matrix is the first rows of its factor. So one
elimination, from the first exemplar to the last, solves the regression on every nested support.
"""

import math

import numpy as np

from callshot.fewshot.kernels import kernel


@kernel
def eliminate(table, sizes, classes, out):
    """Fill out[s, n, q] with the logit of class n for query q by the first sizes[s] exemplars.

    `table` (rows, rows + classes + queries) has three matrices side by side, with a row for each
    exemplar: K + penalty · I with the products K of the exemplars, their targets T, and their
    products P with the queries. The logits are T' (K + penalty · I)⁻¹ P. With the Cholesky factor L
    of the first matrix, L⁻¹ T and L⁻¹ P take the places of T and P.
    """
    rows, width = table.shape
    first_target = np.uint64(rows)
    first_query = np.uint64(rows + classes)
    queries = np.uint64(width) - first_query
    total = np.zeros((classes, queries))
    shot = 0
    for i in range(np.uint64(rows)):
        line = table[i]
        for j in range(i):
            earlier = table[j]
            factor = earlier[i]
            for c in range(i, np.uint64(width)):
                line[c] -= factor * earlier[c]
        scale = 1.0 / math.sqrt(line[i])
        for c in range(i, np.uint64(width)):
            line[c] *= scale
        for n in range(np.uint64(classes)):
            target = line[first_target + n]
            of_class = total[n]
            for q in range(queries):
                of_class[q] += target * line[first_query + q]
        while shot < sizes.size and sizes[shot] == i + 1:
            for n in range(np.uint64(classes)):
                for q in range(queries):
                    out[shot, n, q] = total[n, q]
            shot += 1
