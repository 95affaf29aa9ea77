"""Small corpora for tests: random ones by seed, the paper's counts, and a hypothesis strategy over the former."""

import numpy as np
from hypothesis import strategies as st

from callshot.fewshot.folds import check_folds
from callshot.records import Embeddings


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
    """Return embeddings with folds: two classes in every fold, the others where chance puts them.

    Some rows are in the common fold, some classes are rare, some segments carry several labels, some vectors repeat.
    """
    rng = np.random.default_rng(seed)
    label, fold = [], []
    for n in range(classes):
        everywhere = n < 2 or rng.random() < 0.5
        for f in range(-1, folds):
            count = (
                int(rng.integers(1, size + 2)) if f >= 0 and everywhere else int(rng.integers(0, 2))
            )
            label += [f"c{n}"] * count
            fold += [f] * count
    n = len(label)
    vectors = (
        rng.integers(0, values, (n, dimensions)) if integers else rng.normal(size=(n, dimensions))
    )
    names = [f"c{i}" for i in range(classes)]
    labels = [
        tuple(str(x) for x in rng.choice(names, 2)) if rng.random() < 0.3 else () for _ in range(n)
    ]
    order = rng.permutation(n)
    recording = [f"r{f}-{int(rng.integers(3))}" for f in fold]
    pick = lambda column: [column[i] for i in order]  # noqa: E731
    segment = [f"s{i:03d}" for i in rng.permutation(n)]
    return Embeddings(
        "test",
        np.asarray(vectors, np.float64)[order] * scale + offset,
        segment,
        pick(recording),
        pick(label),
        pick(labels),
        np.array(fold)[order],
    )


def folds_of(table):
    return check_folds(table.recording, table.fold)


@st.composite
def corpora(draw, **fixed):
    """Draw a corpus whose vectors are small whole numbers."""
    return random_corpus(
        draw(st.integers(0, 10**6)),
        **{
            "classes": draw(st.integers(2, 5)),
            "folds": draw(st.integers(2, 4)),
            "size": draw(st.integers(0, 3)),
            "dimensions": draw(st.integers(1, 3)),
            **fixed,
        },
    )
