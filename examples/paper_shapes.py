"""Write embeddings with the class counts and folds of the paper's two corpora.

The vectors are synthetic: a Gaussian cloud per class and a shift per recording, in two strengths;
and `unequal`, where directions differ, so that the centroid wins with few labels and logistic
regression with many. The counts, the folds and so k*, the pools and the number of queries are the
paper's (its appendix table): 12 call types and 257 queries for Elephant Voices, 10 and 3,985 for
LDC.

    python examples/paper_shapes.py DIR
"""

import sys
from pathlib import Path

import numpy as np

from callshot import Vectors, write_table

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
CORPORA = {  # counts, folds, and the classes with an exemplar in the common fold
    "elephant-voices": (ELEPHANT_VOICES, 5, ("comment rumble",)),
    "ldc": (LDC, 10, ("growl", "blow")),
}
STRENGTHS = {"synthetic-strong": 0.28, "synthetic-weak": 0.19}
DIMENSIONS = 128
CALLS_PER_RECORDING = 5
INFORMATIVE = 29  # directions of `unequal` that hold the class means
LOUD = 3  # directions without information, deviation 6
FAINT = 80  # columns without information, deviation 0.1


def spread_over_folds(counts, folds, common):
    """Return (label, fold) of every segment: a class's largest fold is what completes it to k.

    `common` names the classes with an exemplar in the common fold (−1), once for each.
    """
    label = []
    fold = []
    for name, (exemplars, complete) in counts.items():
        in_common = common.count(name)
        rest = complete - in_common
        others = folds - 1
        sizes = [rest // others + (i < rest % others) for i in range(others)]
        largest = exemplars - complete
        for number, size in [*enumerate([largest, *sizes]), (-1, in_common)]:
            label += [name] * size
            fold += [number] * size
    return label, np.array(fold)


def assign_recordings(fold, rng):
    """Return the recording of every segment: a few calls each, of one fold."""
    place = np.argsort(rng.random(len(fold)), kind="stable") // CALLS_PER_RECORDING
    return [f"recording {f:+d}/{i}" for f, i in zip(fold, place, strict=True)]


def make_table(encoder, vectors, recording, label, fold):
    """Return embeddings of segments with one label each."""
    return Vectors.from_columns(
        encoder,
        vectors.astype(np.float32),
        segment=[f"segment {i:04d}" for i in range(len(label))],
        recording=recording,
        label=label,
        labels=[(name,) for name in label],
        fold=fold,
    )


def imitate(corpus, encoder):
    """Return embeddings of one strength: a stronger encoder separates the classes further."""
    counts, folds, common = CORPORA[corpus]
    rng = np.random.default_rng(0)
    label, fold = spread_over_folds(counts, folds, common)
    recording = assign_recordings(fold, rng)
    class_mean = {name: rng.normal(size=DIMENSIONS) for name in counts}
    shift = {name: 0.5 * rng.normal(size=DIMENSIONS) for name in sorted(set(recording))}
    vectors = rng.normal(size=(len(label), DIMENSIONS))
    for row, (name, place) in enumerate(zip(label, recording, strict=True)):
        vectors[row] += STRENGTHS[encoder] * class_mean[name] + shift[place]
    return make_table(encoder, vectors, recording, label, fold)


def unequal(corpus, sample=0):
    """Return embeddings of `elephant-voices` or `ldc` whose covariance is far from a sphere.

    29 directions of deviation 1 hold the class means. Three more are loud and hold no information:
    they always disturb the centroid, and a trained layer learns to ignore them. All 32 are mixed
    into 32 columns. 80 other columns hold no information either and are faint: they hardly matter
    to the centroid, but logistic regression standardises its columns, and with few labels it cannot
    distinguish them from the others. Every sample has the same class means and fresh rows.
    """
    counts, folds, common = CORPORA[corpus]
    label, fold = spread_over_folds(counts, folds, common)
    rng = np.random.default_rng(0)
    mixed = INFORMATIVE + LOUD
    is_loud = np.arange(mixed) < LOUD
    rotation, _ = np.linalg.qr(rng.normal(size=(mixed, mixed)))
    means = rng.normal(size=(len(counts), mixed)) * ~is_loud
    class_mean = dict(zip(counts, means, strict=True))
    rng = np.random.default_rng((2, sample))
    recording = assign_recordings(fold, rng)
    noise = np.where(is_loud, 6.0, 1.0) * rng.normal(size=(len(label), mixed))
    vectors = [class_mean[name] for name in label] + noise
    faint = 0.1 * rng.normal(size=(len(label), FAINT))
    columns = np.hstack([vectors @ rotation, faint])
    return make_table("synthetic-unequal", columns, recording, label, fold)


def main(folder: Path) -> None:
    """Write one table for each corpus and strength, and one with unequal directions."""
    for corpus in CORPORA:
        (folder / corpus).mkdir(parents=True, exist_ok=True)
        tables = [imitate(corpus, encoder) for encoder in STRENGTHS]
        for table in (*tables, unequal(corpus)):
            write_table(
                table, folder / corpus / f"{table.encoder}.parquet", corpus=corpus
            )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
