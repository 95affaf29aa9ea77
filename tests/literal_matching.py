"""Detections and annotations of one class matched as in the few-shot task of DCASE.

Event by event, with the maximum matching of scipy: first with annotations of the class, then what
is left over with annotations that nobody could name.
"""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching


def literal_iou(one, other):
    shared = min(one[1], other[1]) - max(one[0], other[0])
    if shared <= 0:
        return 0.0
    return shared / (one[1] - one[0] + other[1] - other[0] - shared)


def literal_matching(detections, annotations, min_iou):
    """Return which detections (spans) have a partner in a maximum matching."""
    if not detections or not annotations:
        return [False] * len(detections)
    fits = [
        [literal_iou(detection, annotation) >= min_iou for annotation in annotations]
        for detection in detections
    ]
    graph = csr_matrix(np.array(fits, np.int8))
    partners = maximum_bipartite_matching(graph, perm_type="column")
    return [partner >= 0 for partner in partners]


def literal_cut(span, duration_s):
    """Return a span cut to its recording, None if it lies outside."""
    start_s, end_s = max(span[0], 0.0), min(span[1], duration_s)
    return (start_s, end_s) if start_s < end_s else None
