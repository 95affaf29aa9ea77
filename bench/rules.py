"""Rules without training on tables of embeddings: mAP and accuracy, and gains over the centroid.

    python bench/rules.py birds-*.parquet elephants-*.parquet --data ../shared/data

Every table is a corpus and an encoder: CORPUS-ENCODER.parquet of `callshot embed`. With --data, the
vectors of rumbles24h are one more: the rumbles, and one piece of each stretch without a rumble that
is as long as the median rumble; recordings are the hours of the day. Figures are means over the
labelled sets of the spread `shared`, which are the same for all rules; a gain is paired. With
--samples, a gain also has a margin: 2.33 standard deviations of the paired differences of one
labelled set on other recordings (the samples of `total`). This is wider than an interval of the
mean, which is over labelled sets. Clear is a gain above its margin. Only the rules of callshot
weigh exemplars as `total` asks for: use --rules centroid root-cl2n ridge.

Beside the classifiers of callshot there are rules that it does not have, all on the vectors of
root-cl2n unless said otherwise:

    sharper         root-cl2n with logits times 10, as ridge has it
    ridge 0.1       ridge with a tenth of the penalty
    power 0.25      signed fourth roots instead of square roots (Tukey's power; cl2n has power 1)
    root-whitened   square roots, whitened by all vectors on the support side (LDA with the
                    covariance of vectors without labels)
    tied            LDA with the covariance inside classes of the exemplars, shrunk as Ledoit and
                    Wolf do; the centroid where classes have fewer than three exemplars
    shrunk means    class means moved 1 / (k + 1) of the way to the mean of all classes
    own mean        root-cl2n with the mean of the exemplars instead of that of the support side,
                    whose other vectors have no labels
    ridge, own mean the same for ridge
    soft k-means    class means of exemplars and queries together, by the probabilities of the
                    queries: five steps (it sees the queries of a fold at once)
"""

from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from callshot.fewshot.classifiers import (
    CLASSIFIERS,
    Classifier,
    centre_and_normalise,
    root_centre_and_normalise,
    signed_root,
    whiten,
)
from callshot.fewshot.episodes import Engine, Split, open_engine, plan_episodes
from callshot.fewshot.folds import check_tables, count_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import TARGET, score_support, support_rows
from callshot.fewshot.spreads import Spread
from callshot.fewshot.sweep import ComputeLogits, Scorer, sweep
from callshot.records import FloatArray, IntArray
from callshot.tables.embedding_tables import read_table
from callshot.vectors import Vectors
from table import parser, show

SHOTS = (1, 5, 10, 20)
METRICS = ("map", "accuracy")
MEMORY = 2**32
STEPS = 5  # of soft k-means
SHARPNESS = 10.0  # of its probabilities, as is usual for vectors of length 1
MIN_SHOTS = 3  # from which classes have a covariance of their own
HOUR_S = 3600
WIDTH = 2.33  # standard deviations to each side of a 98 % interval
EQUAL = 0.005  # a smaller difference counts as none

# Logits (classes, queries) by exemplars, their class numbers, and the queries
Rule = Callable[[FloatArray, IntArray, FloatArray], FloatArray]


def find_means(vectors: FloatArray, label: IntArray) -> FloatArray:
    """Return the mean of each class."""
    return np.stack([vectors[label == n].mean(axis=0) for n in range(label.max() + 1)])


def score_by_means(means: FloatArray, queries: FloatArray) -> FloatArray:
    """Return 2 c·z − |c|² of every class and query."""
    return 2 * means @ queries.T - np.square(means).sum(axis=1)[:, None]


def sharpen(vectors: FloatArray, label: IntArray, queries: FloatArray) -> FloatArray:
    """Score by class means; logits that lie farther apart changes only rankings."""
    return TARGET * score_by_means(find_means(vectors, label), queries)


def regress(
    vectors: FloatArray, label: IntArray, queries: FloatArray, share: float = 1.0
) -> FloatArray:
    """Score by ridge regression with a share of the penalty."""
    products = vectors @ np.concatenate([vectors, queries]).T
    sizes = np.array([len(label)])
    weight = np.full(len(label), 1 / share)
    return score_support(products, label, int(label.max()) + 1, sizes, weight)[0]


def shrink_means(
    vectors: FloatArray, label: IntArray, queries: FloatArray
) -> FloatArray:
    """Score by class means that are moved towards the mean of all classes."""
    means = find_means(vectors, label)
    common = means.mean(axis=0)
    exemplars = np.bincount(label)[:, None]
    return score_by_means(means + (common - means) / (exemplars + 1), queries)


def refine_means(
    vectors: FloatArray, label: IntArray, queries: FloatArray
) -> FloatArray:
    """Score by the class means of exemplars and queries together."""
    own = find_means(vectors, label)
    exemplars = np.bincount(label)[:, None]
    means = own
    for _ in range(STEPS):
        scores = SHARPNESS * score_by_means(means, queries)
        share = np.exp(scores - scores.max(axis=0))
        share /= share.sum(axis=0)
        total = exemplars * own + share @ queries
        means = total / (exemplars + share.sum(axis=1)[:, None])
    return score_by_means(means, queries)


def centre_on_exemplars(
    vectors: FloatArray, label: IntArray, queries: FloatArray
) -> FloatArray:
    """Score roots by class means, centred on the mean of the exemplars."""
    transform = centre_and_normalise(vectors)
    means = find_means(transform(vectors), label)
    return score_by_means(means, transform(queries))


def regress_on_exemplars(
    vectors: FloatArray, label: IntArray, queries: FloatArray
) -> FloatArray:
    """Score roots by ridge regression, centred on the mean of the exemplars."""
    transform = centre_and_normalise(vectors)
    return regress(transform(vectors), label, transform(queries))


def tie_covariances(
    vectors: FloatArray, label: IntArray, queries: FloatArray
) -> FloatArray:
    """Score by Mahalanobis distances, with the covariance inside the classes of the exemplars.

    Σ = share · W'W / rows + rest · I, W the deviations from class means; its inverse is found in
    the dual. Vectors may be scaled by any number.
    """
    means = find_means(vectors, label)
    if np.bincount(label).min() < MIN_SHOTS:
        return score_by_means(means, queries)
    deviations = vectors - means[label]
    rows, dimensions = vectors.shape
    products = deviations @ deviations.T
    squares = np.diagonal(products)
    scale = squares.sum() / rows / dimensions
    power = np.sum(products**2) / rows**2
    noise = (np.mean(squares**2) - power) / rows
    shrinkage = min(max(noise / (power - dimensions * scale**2), 1e-8), 1.0)
    if shrinkage == 1.0:
        return score_by_means(means, queries)
    rest = shrinkage * scale
    inner = products + np.eye(rows) * rest * rows / (1 - shrinkage)
    towards_means = deviations @ means.T
    solved = np.linalg.solve(inner, towards_means)
    # Σ⁻¹ c, up to the factor 1 / rest; the vectors have length 1, so the scale is kept.
    directions = means - solved.T @ deviations
    offsets = np.einsum("nd,nd->n", directions, means)
    return 2 * directions @ queries.T - offsets[:, None]


def score_by_rule(
    rule: Rule, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> ComputeLogits:
    """Return the function that computes the logits by some draws, as `Scorer.shared`."""
    episodes = engine.for_split(split).episodes
    queries = episodes.vectors[split.rows]

    def compute(span: slice) -> FloatArray:
        out = np.empty(
            (span.stop - span.start, len(shots), len(episodes.classes), len(queries))
        )
        for d, draw in enumerate(range(span.start, span.stop)):
            rows, sizes = support_rows(spread, split.fold, draw, shots)
            for s, size in enumerate(sizes):
                chosen = rows[:size]
                out[d, s] = rule(
                    episodes.vectors[chosen], episodes.label[chosen], queries
                )
        return out

    return compute


def power_cl2n(support: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Do what root-cl2n does, with fourth roots."""
    transform = root_centre_and_normalise(signed_root(support))
    return lambda vectors: transform(signed_root(vectors))


def whiten_roots(support: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Whiten signed roots."""
    transform = whiten(signed_root(support))
    return lambda vectors: transform(signed_root(vectors))


def list_rules() -> Iterator[tuple[str, Classifier, Scorer | None]]:
    """Yield every rule with its name, and what scores by it if a classifier does not."""
    for name in ("centroid", "cosine", "cl2n", "root-cl2n", "ridge", "whitened"):
        yield name, CLASSIFIERS[name], None
    for name, fit in (
        ("power 0.25", power_cl2n),
        ("root-whitened", whiten_roots),
    ):
        yield name, Classifier(name, "", "", centred=False, fit=fit), None
    roots = Classifier("roots", "", "", centred=False, fit=lambda _: signed_root)
    normalised = CLASSIFIERS["root-cl2n"]
    for name, rule, classifier in (
        ("sharper", sharpen, normalised),
        ("ridge 0.1", partial(regress, share=0.1), normalised),
        ("tied", tie_covariances, normalised),
        ("shrunk means", shrink_means, normalised),
        ("soft k-means", refine_means, normalised),
        ("own mean", centre_on_exemplars, roots),
        ("ridge, own mean", regress_on_exemplars, roots),
    ):
        yield name, classifier, Scorer(partial(score_by_rule, rule), _never)


def _never(*_: object) -> Callable[[slice], None]:
    raise NotImplementedError("only the spread shared is measured")


def read_rumbles(data: Path) -> Vectors:
    """Return rumbles, and a piece of each stretch without a rumble, as a table."""
    archive = np.load(data / "vectors.npz")
    segments = pl.read_csv(data / "segments.csv")
    is_rumble = segments["label"] == "rumble"
    typical = int(segments.filter(is_rumble)["rows"].median())
    vectors = []
    for label, first, rows in segments.select("label", "first_row", "rows").iter_rows():
        last = first + (rows if label == "rumble" else min(rows, typical))
        vectors.append(archive["quantised"][first:last].mean(axis=0) * archive["scale"])
    hours = (segments["start"] // HOUR_S).cast(pl.Int64)
    return Vectors.from_columns(
        "aves",
        np.array(vectors),
        [f"s{row:04}" for row in range(len(segments))],
        [f"{hour:02}h" for hour in hours],
        ["rumble" if rumble else "none" for rumble in is_rumble],
        [()] * len(segments),
    )


def list_tables(options: Namespace) -> Iterator[tuple[str, str, Vectors]]:
    """Yield corpus, encoder and table."""
    for path in options.tables:
        corpus, encoder = path.stem.split("-", 1)
        yield corpus, encoder, read_table(path)
    if options.data:
        yield "rumbles24h", "aves", read_rumbles(options.data / "rumbles24h")


def measure_table(
    table: Vectors, protocol: Protocol, names: Sequence[str], threads: int
) -> Iterator[tuple[str, dict[tuple[str, str], FloatArray]]]:
    """Yield every rule, and its values (shots, samples) by spread and metric."""
    folds = check_tables([table], None)
    counts = count_classes(table.label, folds, table.recording)
    episodes = plan_episodes(table, folds, counts)
    for name, classifier, scorer in list_rules():
        if name not in names:
            continue
        values = {}
        with open_engine(
            episodes, protocol, threads, MEMORY, classifier=classifier
        ) as engine:
            for spread in protocol.spreads:
                _, sums = sweep(engine, spread, scorer=scorer)
                for metric in METRICS:
                    values[spread, metric] = sums.values["all", metric]
        yield name, values


def compare(
    values: dict[tuple[str, str], FloatArray],
    reference: dict[tuple[str, str], FloatArray],
) -> dict[str, object]:
    """Return the means of a rule, its gains over the centroid, and their intervals."""
    row: dict[str, object] = {}
    for metric in METRICS:
        mean = values["shared", metric].mean(axis=1)
        gain = mean - reference["shared", metric].mean(axis=1)
        for k, value, one in zip(SHOTS, mean, gain, strict=True):
            row[f"{metric} {k}"] = round(float(value), 3)
            row[f"{metric} gain {k}"] = round(float(one), 3)
        if ("total", metric) in values:
            paired = values["total", metric] - reference["total", metric]
            margin = WIDTH * paired.std(axis=1)
            for k, one, half in zip(SHOTS, gain, margin, strict=True):
                row[f"{metric} ± {k}"] = round(float(half), 3)
                row[f"{metric} clear {k}"] = int(np.sign(one)) * bool(abs(one) > half)
    return row


def main() -> None:
    """Measure all tables, and print a row for each rule and table, and one for each rule."""
    names = [name for name, _, _ in list_rules()]
    arguments = parser(__doc__)
    arguments.add_argument("tables", nargs="+", type=Path, metavar="TABLE")
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--rules", nargs="+", default=names, choices=names)
    arguments.add_argument("--draws", type=int, default=200)
    arguments.add_argument("--samples", type=int, default=0)
    arguments.add_argument("--threads", type=int, default=2)
    options = arguments.parse_args()
    protocol = Protocol(
        shots=SHOTS,
        spreads=("shared", "total") if options.samples else ("shared",),
        shared_draws=options.draws,
        total_samples=options.samples or 1,
    )
    rows: list[dict[str, object]] = []
    for corpus, encoder, table in list_tables(options):
        measured = measure_table(table, protocol, options.rules, options.threads)
        reference = None
        for name, values in measured:
            reference = reference or values  # the first is the centroid
            row = {"corpus": corpus, "encoder": encoder, "rule": name}
            rows.append({**row, **compare(values, reference)})
    show("bench/rules", rows, options.json)
    summary = summarise(rows, options.samples > 0)
    show("bench/rules: mean gain over the centroid (tables won, lost)", summary)


def summarise(
    rows: list[dict[str, object]], has_intervals: bool
) -> list[dict[str, object]]:
    """Return the mean gain of each rule, and in how many tables it is better and worse.

    Better is a gain of more than 0.005; with intervals, one that is clear.
    """
    frame = pl.DataFrame(rows)
    summary = []
    for (name,), group in frame.group_by("rule", maintain_order=True):
        row: dict[str, object] = {"rule": name}
        for metric, k in product(METRICS, SHOTS):
            gains = group[f"{metric} gain {k}"]
            decided = gains / EQUAL
            if has_intervals:
                decided = 2 * group[f"{metric} clear {k}"]
            won = (decided > 1).sum()
            lost = (decided < -1).sum()
            row[f"{metric} {k}"] = f"{gains.mean():+.3f} ({won}, {lost})"
        summary.append(row)
    return summary


if __name__ == "__main__":
    main()
