"""How often an interval holds what other recordings score, and how often noise gives a claim.

Coverage: a corpus is split into two halves of different recordings (finch: of different calls, as
it has 10 recordings only; birds: boxes of up to 3 s, and 3 folds). One half gives the interval
[1st, 99th percentile] at every k, the other one the scores of its labelled sets; the table has the
share of these inside, nominal 0.98, and the mean width. Both halves take both parts. For the spread
`mean`, the mean of each half has an error of its own: the table has the share of splits in which 0
is inside the interval of the difference of the two means, nominal 0.98, and its mean width. The
difference of two encoders has such an interval too.

False claims: corpora of noise, in which two encoders are independent Gaussian vectors. How often is
a difference called clear, an encoder better than chance, a crossover clear, or a call type
recommended?

Power: one of two encoders is better by a planted difference. How often is that found?

Means: corpora of one population, drawn again and again, so that the true mean over labelled sets
and recordings is known. How often is it inside the 98 % interval of the mean, for a curve and for
the difference of two encoders that share 60 % of their variance?
"""

import argparse
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from callshot import Protocol, Vectors, embed, segment, train_baselines
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import make_folds
from callshot.records import Evaluation, Folds
from callshot.records.terms import LARGEST_P, MEAN
from table import show

DATA = Path(__file__).parents[2] / "shared" / "data"
SHOTS = (1, 5, 10, 15)
SAMPLES = 300
HALVES = Protocol(
    shots=SHOTS, total_samples=SAMPLES, spreads=("shared", "total"), permutations=0
)
FOLDS = 5
BIRDS_FOLDS = 3  # of seven recordings of a species, a half has three or four
LONGEST_BOX_S = 3.0
METRICS = ("map", "auroc")

Row = dict[str, object]


def make_table(
    vectors: np.ndarray, label: list[str], recording: list[str], encoder: str = "X"
) -> Vectors:
    """Return a table of vectors with numbered segments."""
    segments = [f"s{i:05}" for i in range(len(label))]
    return Vectors.from_columns(
        encoder, vectors, segments, recording, label, [()] * len(label)
    )


def real_tables() -> Iterator[tuple[str, list[Vectors], int]]:
    """Yield name, tables by encoder and number of folds of the real recordings that are there."""
    if not DATA.exists():
        print(f"{DATA} is not there: real recordings are left out", file=sys.stderr)
        return
    elephants = segment(
        DATA / "elephants",
        annotations=DATA / "elephants/segments.csv",
        min_length_s=1.0,
    ).segments
    finch = segment(
        DATA / "finch", annotations=DATA / "finch/annotations.csv", min_length_s=0.02
    ).segments
    birds = segment(
        DATA / "birds",
        annotations=DATA / "birds/annotations.csv",
        rename={"bird": ""},
    ).segments
    birds = birds.take(np.flatnonzero(birds.durations_s <= LONGEST_BOX_S))
    for name, calls, folds in (
        ("elephants", elephants, FOLDS),
        ("finch", finch, FOLDS),
        ("birds", birds, BIRDS_FOLDS),
    ):
        tables = []
        for encoder in ("birdnet-v2.4", "mfcc"):
            table = embed(calls, encoder, audio=DATA / name)
            recording = table.segment if name == "finch" else table.recording
            vectors = np.asarray(table.matrix, np.float64)
            columns = (list(table.label), list(recording), encoder)
            tables.append(make_table(vectors, *columns))
        yield name, tables, folds


def synthetic_table(
    classes: int, recordings: int, calls: int, seed: int = 7
) -> Vectors:
    """Return Gaussian classes with effects of recordings; each recording has one call type."""
    rng = np.random.default_rng(seed)
    dimensions = 20
    means = 0.6 * rng.normal(size=(classes, dimensions))
    vectors = []
    label = []
    recording = []
    for n, r, _ in np.ndindex(classes, recordings, calls):
        label.append(f"call {n:02}")
        recording.append(f"{n:02}-{r:03}")
        vectors.append(means[n])
    effects = {
        name: 0.7 * rng.normal(size=dimensions) for name in dict.fromkeys(recording)
    }
    noise = 0.7 * rng.normal(size=(len(label), dimensions))
    table = np.array(vectors) + [effects[name] for name in recording] + noise
    return make_table(table, label, recording)


def split_recordings(table: Vectors, rng: np.random.Generator) -> np.ndarray:
    """Return which rows are in the first half: of each call type half of the recordings."""
    first_label = {}
    for name, label in zip(table.recording, table.label, strict=True):
        first_label.setdefault(name, label)
    names = rng.permutation(list(first_label))
    half = set()
    for label in sorted(set(table.label)):
        of_label = [name for name in names if first_label[name] == label]
        start = int(rng.integers(2))
        half.update(of_label[start::2])
    return np.array([name in half for name in table.recording])


def take(table: Vectors, rows: np.ndarray) -> Vectors:
    """Return some rows of a table."""
    numbers = np.flatnonzero(rows)
    return make_table(
        table.matrix[numbers],
        [table.label[i] for i in numbers],
        [table.recording[i] for i in numbers],
        table.encoder,
    )


def folds_of(table: Vectors, folds: int = FOLDS) -> Folds:
    """Return folds of the table's recordings."""
    return make_folds(table.label, table.recording, folds)


def eligible_labels(table: Vectors, folds: int) -> set[str]:
    """Return the labels that are in every fold."""
    fold = folds_of(table, folds).fold
    return {
        label
        for label in set(table.label)
        if set(fold[[name == label for name in table.label]]) >= set(range(folds))
    }


def evaluate_halves(
    tables: list[Vectors], folds: int, rng: np.random.Generator
) -> list[Evaluation]:
    """Evaluate two halves of a corpus on the labels that both have, with seeds of their own."""
    in_first = split_recordings(tables[0], rng)
    sides = (in_first, ~in_first)
    labels = [eligible_labels(take(tables[0], rows), folds) for rows in sides]
    is_common = np.isin(tables[0].label, list(labels[0] & labels[1]))
    results = []
    for seed, rows in enumerate(sides):
        half = [take(table, rows & is_common) for table in tables]
        protocol = replace(HALVES, seed=seed)
        results.append(evaluate_tables(half, protocol, folds=folds_of(half[0], folds)))
    return results


def curves_of(result: Evaluation, spread: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yield encoder, metric and samples (shots, samples); of means also the encoders' difference.

    Shots beyond k* are not a number.
    """
    complete = np.array(SHOTS)[:, None] <= result.complete_shots
    for metric in METRICS:
        curves = {}
        rows = result.values.filter(spread=spread, metric=metric).sort("k")
        for (encoder,), curve in rows.group_by("encoder", maintain_order=True):
            samples = np.array(curve["value"].to_list())
            curves[str(encoder)] = np.where(complete, samples, np.nan)
        if spread == MEAN and len(curves) > 1:
            curves["difference"] = curves["birdnet-v2.4"] - curves["mfcc"]
        for name, samples in curves.items():
            yield name, metric, samples


def coverage_rows(
    name: str, tables: list[Vectors], folds: int, splits: int
) -> Iterator[Row]:
    """Yield a row for every encoder, metric and spread."""
    rng = np.random.default_rng(0)
    found = defaultdict(list)  # by encoder, metric and spread: (share inside, width)
    for _ in range(splits):
        halves = evaluate_halves(tables, folds, rng)
        for spread in ("shared", "total"):
            for one, other in (halves, halves[::-1]):
                scores = curves_of(other, "shared")
                for (*key, samples), (_, _, values) in zip(
                    curves_of(one, spread), scores, strict=True
                ):
                    found[*key, spread].append(share_inside(samples, values))
        pairs = zip(*(curves_of(half, MEAN) for half in halves), strict=True)
        for (*key, samples), (_, _, of_other) in pairs:
            difference = samples - of_other
            zero = np.zeros((len(SHOTS), 1))
            found[*key, MEAN].append(share_inside(difference, zero))
    for (encoder, metric, spread), cells in sorted(found.items()):
        row: Row = {"corpus": name, "encoder": encoder}
        row |= {"metric": metric, "spread": spread}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no split allows the largest k
            shares, widths = np.nanmean(cells, axis=0)
        for k, share, width in zip(SHOTS, shares, widths, strict=True):
            row[f"k = {k}"] = f"{share:.3f} ({width:.2f})"
        yield row


def share_inside(samples: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the share of values inside the interval of samples, and its width, (2, shots)."""
    low, high = np.percentile(samples, (1, 99), axis=1, keepdims=True)
    is_inside = (values >= low) & (values <= high)
    inside = np.where(np.isnan(low) | np.isnan(values), np.nan, is_inside)
    return np.stack([inside.mean(axis=1), (high - low)[:, 0]])


def noise_tables(
    rng: np.random.Generator, classes: int, calls: int, shift: float = 0.0
) -> list[Vectors]:
    """Return two encoders of one corpus: noise, the first with classes `shift` apart."""
    recordings = 15
    label = [f"call {n:02}" for n in np.repeat(np.arange(classes), recordings * calls)]
    names = [f"{i // calls:04}" for i in range(len(label))]
    number = np.repeat(np.arange(classes), recordings * calls)
    means = rng.normal(size=(classes, 10))
    tables = []
    for encoder, distance in (("one", shift), ("other", 0.0)):
        effects = rng.normal(size=(len(label) // calls, 10))
        own = rng.normal(size=(len(label), 10))
        noise = np.repeat(effects, calls, axis=0) * 0.7 + own * 0.7
        vectors = noise + distance * means[number]
        tables.append(make_table(vectors, label, names, encoder))
    return tables


def count_claims(tables: list[Vectors], protocol: Protocol) -> dict[str, float]:
    """Return which claims are made about a corpus, at any k up to k*."""
    result = evaluate_tables(tables, protocol, folds=folds_of(tables[0]))
    complete = pl.col("k") <= result.complete_shots
    differences = result.differences.filter(complete, interval="mean", metric="map")
    tests = result.chance_test.filter(complete, metric="map")
    better = tests["p"] <= LARGEST_P
    trained = train_baselines(tables, against=result)
    crossovers = trained.crossovers.filter(spread="mean", metric="map")
    return {
        "clear difference": float(differences["clear"].any()),
        "better than chance, each k": float(better.cast(float).mean()),
        "clear crossover": float(crossovers["k_clear"].is_not_null().any()),
        "recommended call type": float(result.budget["recommended"].any()),
    }


def claim_rows(corpora: int) -> Iterator[Row]:
    """Yield how often claims are made about noise."""
    protocol = Protocol(
        shots=(1, 2, 5, 10),
        shared_draws=SAMPLES,
        total_samples=SAMPLES,
        spreads=("shared", "total"),
    )
    for classes, calls in ((3, 1), (3, 5), (10, 1), (10, 5), (12, 1), (12, 5)):
        rng = np.random.default_rng([classes, calls])
        claims = [
            count_claims(noise_tables(rng, classes, calls), protocol)
            for _ in range(corpora)
        ]
        row: Row = {"call types": classes, "calls per recording": calls}
        for name in claims[0]:
            row[name] = f"{np.mean([claim[name] for claim in claims]):.3f}"
        yield row


def power_rows(corpora: int) -> Iterator[Row]:
    """Yield how often a planted difference is found at k = 5: asked alone, and among four k."""
    protocol = Protocol(
        shots=(1, 2, 5, 10),
        total_samples=SAMPLES,
        spreads=("shared", "total"),
        permutations=0,
    )
    alone = replace(protocol, shots=(5,), spreads=("shared",))
    for shift in (0.2, 0.23, 0.29, 0.325, 0.4):
        rng = np.random.default_rng(7)
        found = []
        differences = []
        for _ in range(corpora):
            tables = noise_tables(rng, 10, 1, shift)
            folds = folds_of(tables[0])
            of_k = evaluate_tables(tables, alone, folds=folds)
            of_mean = of_k.differences.filter(metric="map", interval="mean")
            of_all_k = evaluate_tables(tables, protocol, folds=folds)
            frame = of_all_k.differences.filter(metric="map", k=5)
            differences.append(of_mean["mean"][0])
            found.append(
                (
                    bool(of_mean["clear"][0]),
                    bool(frame.filter(interval="mean")["clear"][0]),
                    bool(frame.filter(spread="total")["clear"][0]),
                )
            )
        by_k, by_all_k, by_set = np.mean(found, axis=0)
        yield {
            "distance of classes": shift,
            "difference in mAP at k = 5": f"{np.mean(differences):.3f}",
            "mean called clear": f"{by_k:.2f}",
            "among four k": f"{by_all_k:.2f}",
            "one set called clear": f"{by_set:.2f}",
        }


def population(
    rng: np.random.Generator, classes: int, recordings: int, calls: int
) -> list[Vectors]:
    """Return two encoders of a corpus; all corpora of a design have the same class means."""
    number = np.repeat(np.arange(classes), recordings * calls)
    label = [f"call {n:02}" for n in number]
    names = [f"{i // calls:04}" for i in range(len(label))]
    of_means = np.random.default_rng(12345)

    def draw() -> np.ndarray:
        """Return effects of recordings and of calls."""
        effects = rng.normal(size=(len(label) // calls, 10))
        return np.repeat(effects, calls, axis=0) + rng.normal(size=(len(label), 10))

    common = draw()
    tables = []
    for encoder, distance in (("one", 0.45), ("other", 0.3)):
        means = distance * of_means.normal(size=(classes, 10))
        noise = 0.7 * (np.sqrt(0.6) * common + np.sqrt(0.4) * draw())
        tables.append(make_table(means[number] + noise, label, names, encoder))
    return tables


def mean_rows(corpora: int) -> Iterator[Row]:
    """Yield how often the interval of the mean holds the mean of all corpora of a design."""
    protocol = Protocol(shots=(1, 2, 5, 10), spreads=("shared",), permutations=0)
    designs = product((3, 10, 12), (8, 15, 40), (1, 5))
    for classes, recordings, calls in designs:
        rng = np.random.default_rng([classes, recordings, calls])
        samples = []
        for _ in range(corpora):
            tables = population(rng, classes, recordings, calls)
            folds = folds_of(tables[0])
            result = evaluate_tables(tables, protocol, folds=folds)
            complete = pl.col("k") <= result.complete_shots
            values = result.values.filter(complete, spread="mean")
            rows = {}
            for metric in (*METRICS, "accuracy"):
                curves = values.filter(metric=metric).sort("encoder", "k")
                one, other = np.split(np.array(curves["value"].to_list()), 2)
                rows[metric] = np.stack([one, one - other])
            samples.append(np.stack(list(rows.values())))
        table = np.array(samples)  # (corpora, metrics, curve or difference, k, samples)
        estimate = table.mean(axis=-1)
        low, high = np.percentile(table, (1, 99), axis=-1)
        truth = estimate.mean(axis=0)
        inside = np.mean((low <= truth) & (truth <= high), axis=(0, -1))
        row: Row = {
            "call types": classes,
            "recordings of each": recordings,
            "calls in each": calls,
        }
        for metric, shares in zip((*METRICS, "accuracy"), inside, strict=True):
            row[metric] = f"{shares[0]:.3f}"
            row[f"{metric}, difference"] = f"{shares[1]:.3f}"
        yield row


def main() -> None:
    """Print the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--splits", type=int, default=25)
    options.add_argument("--corpora", type=int, default=200)
    choices = ("coverage", "claims", "power", "means")
    options.add_argument("--only", choices=choices)
    given = options.parse_args()
    if given.only in (None, "coverage"):
        corpora = [
            *real_tables(),
            ("6 × 40 recordings", [synthetic_table(6, 40, 1)], FOLDS),
            ("6 × 40 recordings × 5 calls", [synthetic_table(6, 40, 5)], FOLDS),
        ]
        rows = []
        for corpus in corpora:
            rows += coverage_rows(*corpus, given.splits)
        show(
            "share of labelled sets inside [p01, p99], nominal 0.98 (mean width)", rows
        )
    if given.only in (None, "claims"):
        each = given.corpora // 6 + 1
        show(f"claims about noise, {each} corpora each", list(claim_rows(each)))
    if given.only in (None, "means"):
        rows = list(mean_rows(given.corpora // 2))
        show("share of corpora whose interval holds the true mean, nominal 0.98", rows)
    if given.only in (None, "power"):
        show("planted differences", list(power_rows(given.corpora // 4)))


if __name__ == "__main__":
    main()
