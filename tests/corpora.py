"""Small corpora for tests: random ones by seed, the paper's counts, and a hypothesis strategy over the former."""

import numpy as np
from hypothesis import strategies as st

from callshot.fewshot.folds import give_folds
from callshot.records import Embeddings

ELEPHANT_VOICES = {  # label: (exemplars, complete to k) of the paper's appendix
    "comment rumble": (51, 37), "oestrous rumble": (40, 21), "greeting rumble": (37, 17), "female chorus": (32, 22),
    "conflict roar": (23, 16), "trumpet blast": (21, 15), "grumbling rumble": (17, 13), "pulsated play trumpet": (13, 10),
    "separated rumble": (7, 5), "lets-go rumble": (6, 4), "musth rumble": (6, 4), "begging rumble": (5, 4),
}  # fmt: skip
LDC = {
    "growl": (2949, 2651), "longroar-rumble": (253, 227), "rumble": (178, 159), "longroar": (149, 134),
    "bark-rumble": (140, 125), "trumpet": (87, 73), "blow": (77, 61), "roar-rumble": (73, 64),
    "trunk-bounce": (45, 34), "roar": (36, 31),
}  # fmt: skip


def random_corpus(seed, *, classes=3, folds=3, size=1, dimensions=2, values=4, scale=1.0, offset=0.0, integers=True):
    """Return embeddings with folds: two classes in every fold, the others where chance puts them.

    Some rows are in the common fold, some classes are rare, some segments carry several labels, some vectors repeat.
    """
    rng = np.random.default_rng(seed)
    label, fold = [], []
    for n in range(classes):
        everywhere = n < 2 or rng.random() < 0.5
        for f in range(-1, folds):
            count = int(rng.integers(1, size + 2)) if f >= 0 and everywhere else int(rng.integers(0, 2))
            label += [f"c{n}"] * count
            fold += [f] * count
    n = len(label)
    vectors = rng.integers(0, values, (n, dimensions)) if integers else rng.normal(size=(n, dimensions))
    names = [f"c{i}" for i in range(classes)]
    labels = [tuple(str(x) for x in rng.choice(names, 2)) if rng.random() < 0.3 else () for _ in range(n)]
    order = rng.permutation(n)
    recording = [f"r{f}-{int(rng.integers(3))}" for f in fold]
    pick = lambda column: [column[i] for i in order]  # noqa: E731
    segment = [f"s{i:03d}" for i in rng.permutation(n)]
    return Embeddings(
        "test", np.asarray(vectors, np.float64)[order] * scale + offset, segment, pick(recording), pick(label),
        pick(labels), np.array(fold)[order],
    )  # fmt: skip


def folds_of(table):
    return give_folds(table.recording, table.fold)


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


def paper_corpus(counts, folds, common):
    """Return (label, recording, fold) with the paper's class counts and complete-to-k: its largest fold is what is left.

    `common` names the classes with an exemplar in the common fold, once for each.
    """
    label, fold = [], []
    for name, (exemplars, complete) in counts.items():
        largest, in_common = exemplars - complete, common.count(name)
        rest = exemplars - largest - in_common
        others = [rest // (folds - 1) + (i < rest % (folds - 1)) for i in range(folds - 1)]
        assert max(others) <= largest
        assert min(others) >= 1
        for f, count in enumerate([largest, *others]):
            label += [name] * count
            fold += [f] * count
        label += [name] * in_common
        fold += [-1] * in_common
    return label, [f"recording {i}" for i in range(len(label))], np.array(fold)
