"""Small tables of embeddings for tests: random ones by seed, and a hypothesis strategy."""

import dataclasses

import numpy as np
import pytest
from hypothesis import strategies as st

from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.episodes import open_engine, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.fewshot.protocol import Protocol
from callshot.vectors import Vectors

SMALL = Protocol(
    shots=(1, 2, 4),
    draws=3,
    bootstraps=5,
    shared_draws=4,
    total_samples=4,
    permutations=5,
)
both_ways = pytest.mark.parametrize(
    "memory", [0, 2**30], ids=["directly", "by Gram matrix"]
)


def random_corpus(
    seed,
    *,
    classes=3,
    folds=3,
    size=1,
    dimensions=2,
    values=4,
    scale=1.0,
    offset=0.0,
    integers=True,
):
    """Return embeddings with folds: two classes in every fold, the others at random.

    Some rows are in the common fold, some classes are rare, some segments have several labels, some
    vectors repeat.
    """
    rng = np.random.default_rng(seed)
    label = []
    fold = []
    for n in range(classes):
        is_everywhere = n < 2 or rng.random() < 0.5
        for f in range(-1, folds):
            limits = (1, size + 2) if f >= 0 and is_everywhere else (0, 2)
            count = int(rng.integers(*limits))
            label += [f"c{n}"] * count
            fold += [f] * count
    rows = len(label)
    if integers:
        vectors = rng.integers(0, values, (rows, dimensions)).astype(np.float64)
    else:
        vectors = rng.normal(size=(rows, dimensions))
    names = [f"c{n}" for n in range(classes)]
    labels = []
    for _ in range(rows):
        has_labels = rng.random() < 0.3
        labels.append(tuple(map(str, rng.choice(names, 2))) if has_labels else ())
    order = rng.permutation(rows)
    recording = [f"r{f}-{int(rng.integers(3))}" for f in fold]
    segment = [f"s{n:03d}" for n in rng.permutation(rows)]
    return Vectors.from_columns(
        "test",
        vectors[order] * scale + offset,
        segment,
        [recording[n] for n in order],
        [label[n] for n in order],
        [labels[n] for n in order],
        np.array(fold)[order],
    )


def gaussian_corpus(
    sizes,
    dimensions,
    *,
    separation=1.0,
    folds=3,
    common=1,
    calls=1,
    seed=0,
):
    """Return embeddings of Gaussian classes, some calls in each recording.

    The first rows of the first class are in the common fold.
    """
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[:common] = -1
    means = separation * rng.normal(size=(len(sizes), dimensions))
    vectors = means[label] + rng.normal(size=(len(label), dimensions))
    place = [np.count_nonzero(fold[:i] == f) for i, f in enumerate(fold)]
    recording = [f"{f}/{p // calls}" for f, p in zip(fold, place, strict=True)]
    segment = [f"s{i:04d}" for i in range(len(label))]
    names = [f"type {n}" for n in label]
    return Vectors.from_columns(
        "test", vectors, segment, recording, names, [()] * len(label), fold
    )


def folds_of(table):
    """Return the folds of a table with a fold column."""
    return check_folds(table.recording, table.fold)


def episodes_of(table):
    folds = folds_of(table)
    return plan_episodes(table, folds, count_classes(table.label, folds))


def engine_for(
    table, protocol=SMALL, *, classifier="centroid", threads=1, memory=2**30, gpu=None
):
    """Open the engine that runs a classifier on a table with a fold column."""
    rule = CLASSIFIERS[classifier]
    episodes = episodes_of(table)
    return open_engine(episodes, protocol, threads, memory, classifier=rule, gpu=gpu)


def repeat_vectors(table):
    """Return a table in which every vector occurs several times, under any labels."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(table) // 3, len(table))
    return dataclasses.replace(table, matrix=table.matrix[rows])


def reverse_rows(table):
    return table.take(range(len(table))[::-1])


@st.composite
def corpora(draw, **fixed):
    """Draw a corpus whose vectors are small integers."""
    options = {
        "classes": draw(st.integers(2, 5)),
        "folds": draw(st.integers(2, 4)),
        "size": draw(st.integers(0, 3)),
        "dimensions": draw(st.integers(1, 3)),
    }
    return random_corpus(draw(st.integers(0, 10**6)), **(options | fixed))
