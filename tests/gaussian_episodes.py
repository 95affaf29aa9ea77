"""Episodes of Gaussian classes, for the tests of logistic regression."""

import numpy as np

from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import Embeddings


def gaussian(
    sizes=(30, 20, 10), dimensions=6, *, separation=1.0, folds=5, common=3, seed=0
) -> tuple[Episodes, np.ndarray]:
    """Return episodes of Gaussian classes with recordings of two segments, and their groups.

    A few rows are in the common fold.
    """
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[np.flatnonzero(label == 0)[:common]] = -1
    means = separation * rng.normal(size=(len(sizes), dimensions))
    vectors = means[label] + rng.normal(size=(len(label), dimensions))
    return episodes_of(vectors, label, fold)


def episodes_of(vectors, label, fold):
    """Return episodes of rows with given folds, two segments to a recording, and their groups."""
    recording = []
    for i, f in enumerate(fold.tolist()):
        place = np.count_nonzero(fold[:i] == f)
        recording.append(f"{f}/{place // 2}")
    names = [f"type {n:02d}" for n in label]
    segment = [f"s{i:04d}" for i in range(len(label))]
    table = Embeddings(
        "test", vectors, segment, recording, names, [(name,) for name in names], fold
    )
    folds = check_folds(recording, fold)
    order = sorted(range(len(label)), key=lambda i: (names[i], segment[i]))
    groups = np.unique(recording, return_inverse=True)[1][order]
    return plan_episodes(table, folds, count_classes(names, folds)), groups
