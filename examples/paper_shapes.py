"""Write embeddings with the class counts and folds of the paper's two corpora, to run the whole protocol on.

The vectors are synthetic: a Gaussian cloud per class and a shift per recording, in two strengths; and `unequal`, where
directions differ, so that the centroid wins with few labels and logistic regression with many. The counts, the folds
and so k*, the pools and the number of queries are the paper's (its appendix table): 12 call types and 257 queries for
Elephant Voices, 10 and 3,985 for LDC.

    python examples/paper_shapes.py DIR
"""

import sys
from pathlib import Path

import numpy as np

from callshot import Embeddings, write_table

ELEPHANT_VOICES = {  # label: (exemplars, complete to k)
    "comment rumble": (51, 37),
    "oestrous rumble": (40, 21),
    "greeting rumble": (37, 17),
    "female chorus": (32, 22),
    "conflict roar": (23, 16),
    "trumpet blast": (21, 15),
    "grumbling rumble": (17, 13),
    "pulsated play trumpet": (13, 10),
    "separated rumble": (7, 5),
    "lets-go rumble": (6, 4),
    "musth rumble": (6, 4),
    "begging rumble": (5, 4),
}
LDC = {
    "growl": (2949, 2651),
    "longroar-rumble": (253, 227),
    "rumble": (178, 159),
    "longroar": (149, 134),
    "bark-rumble": (140, 125),
    "trumpet": (87, 73),
    "blow": (77, 61),
    "roar-rumble": (73, 64),
    "trunk-bounce": (45, 34),
    "roar": (36, 31),
}
CORPORA = {
    "elephant-voices": (ELEPHANT_VOICES, 5, ("comment rumble",)),
    "ldc": (LDC, 10, ("growl", "blow")),
}
STRENGTHS = {"synthetic-strong": 0.28, "synthetic-weak": 0.19}
DIMENSIONS, CALLS_PER_RECORDING = 128, 5
TELLING, LOUD, FAINT = 29, 3, 80  # directions of `unequal`


def spread_over_folds(counts, folds, common):
    """Return (label, fold) of every segment: a class's largest fold is its exemplars less its complete-to-k.

    `common` names the classes with an exemplar in the common fold (−1), once for each.
    """
    label, fold = [], []
    for name, (exemplars, complete) in counts.items():
        largest, apart = exemplars - complete, common.count(name)
        rest = complete - apart
        others = [rest // (folds - 1) + (i < rest % (folds - 1)) for i in range(folds - 1)]
        for number, size in [*enumerate([largest, *others]), (-1, apart)]:
            label += [name] * size
            fold += [number] * size
    return label, np.array(fold)


def record(fold, rng):
    """Return the recording of every segment: a few calls each, of one fold."""
    place = np.argsort(rng.random(len(fold)), kind="stable")
    return [f"recording {fold[i]:+d}/{place[i] // CALLS_PER_RECORDING}" for i in range(len(fold))]


def imitate(counts, folds, common, strength, seed=0):
    """Return embeddings of one strength: what a stronger encoder pulls apart, a weaker one leaves together."""
    rng = np.random.default_rng(seed)
    label, fold = spread_over_folds(counts, folds, common)
    recording = record(fold, rng)
    kind = {name: rng.normal(size=DIMENSIONS) for name in counts}
    place_of = {name: 0.5 * rng.normal(size=DIMENSIONS) for name in sorted(set(recording))}
    noise = rng.normal(size=(len(label), DIMENSIONS))
    vectors = noise + [
        strength * kind[c] + place_of[r] for c, r in zip(label, recording, strict=True)
    ]
    segment = [f"segment {i:04d}" for i in range(len(label))]
    return vectors.astype(np.float32), segment, recording, label, fold


def unequal(corpus, sample=0):
    """Return embeddings of `elephant-voices` or `ldc` whose covariance is far from a sphere.

    29 directions of deviation 1 hold the class means. Three more say nothing and are loud (deviation 6): the centroid
    hears them for ever, a trained layer learns not to. All 32 are mixed into 32 columns. 80 other columns say nothing
    either and are faint (deviation 0.1): hardly anything to the centroid, but logistic regression standardises its
    columns, and while labels are few it cannot tell them from the others. Every sample has the same class means and
    fresh rows.
    """
    counts, folds, common = CORPORA[corpus]
    label, fold = spread_over_folds(counts, folds, common)
    rng, mixed = np.random.default_rng(0), TELLING + LOUD
    mix = np.linalg.qr(rng.normal(size=(mixed, mixed)))[0]
    means = dict(
        zip(counts, rng.normal(size=(len(counts), mixed)) * (np.arange(mixed) >= LOUD), strict=True)
    )
    rng = np.random.default_rng((2, sample))
    recording = record(fold, rng)
    deviation = np.where(np.arange(mixed) < LOUD, 6.0, 1.0)
    moving = [means[name] for name in label] + deviation * rng.normal(size=(len(label), mixed))
    faint = 0.1 * rng.normal(size=(len(label), FAINT))
    vectors = np.hstack([moving @ mix, faint]).astype(np.float32)
    segment = [f"segment {i:04d}" for i in range(len(label))]
    return Embeddings(
        "synthetic-unequal", vectors, segment, recording, label, [(name,) for name in label], fold
    )


def main(folder: Path) -> None:
    """Write one table for each corpus and strength, and one with unequal directions."""
    for corpus, shape in CORPORA.items():
        (folder / corpus).mkdir(parents=True, exist_ok=True)
        for encoder, strength in STRENGTHS.items():
            vectors, segment, recording, label, fold = imitate(*shape, strength)
            table = Embeddings(
                encoder, vectors, segment, recording, label, [(name,) for name in label], fold
            )
            write_table(table, folder / corpus / f"{encoder}.parquet", corpus=corpus)
        write_table(unequal(corpus), folder / corpus / "synthetic-unequal.parquet", corpus=corpus)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
