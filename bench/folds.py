"""Compare our fold builder with scikit-learn's StratifiedGroupKFold on random grouped corpora.

    python bench/folds.py [--corpora 300] [--json figures.json]

scikit-learn runs twice, over the rows outside the common fold and over all rows, and ours must lose
to neither. A corpus has 5 to 30 classes with Zipf counts, 1 to 20 segments per recording, and 5 or
10 folds. In a third of the corpora each recording has one label, in a third each has several, and a
third is mixed.
"""

import time
import warnings
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from callshot.fewshot.fold_optimizer import build_folds
from callshot.records import COMMON_FOLD, IntArray
from table import parser, show

Cost = tuple[int, float]

MUST_BE_ZERO = (
    "recordings split",
    "corpora with fewer eligible classes",
    "  ours worse",
)


def draw_corpus(seed: int) -> tuple[list[str], list[str], int]:
    """Return labels, recordings and the number of folds."""
    rng = np.random.default_rng(seed)
    classes = int(rng.integers(5, 31))
    most = int(rng.integers(1, 21))
    share = np.arange(1.0, classes + 1) ** -rng.uniform(0.6, 1.4)
    several = (0.0, 1.0, rng.uniform())[seed % 3]
    label: list[str] = []
    recording: list[str] = []
    wanted = classes * int(rng.integers(10, 81))
    number = 0
    while len(label) < wanted:
        kinds = int(rng.integers(2, 5)) if rng.uniform() < several else 1
        pool = rng.choice(classes, kinds, replace=False, p=share / share.sum())
        picks = rng.choice(pool, int(rng.integers(1, most + 1)))
        recording += [f"recording {number:04d}"] * len(picks)
        label += [f"class {pick:02d}" for pick in picks]
        number += 1
    return label, recording, int(rng.choice([5, 10]))


def measure(label: list[str], fold: IntArray, count: int) -> Cost:
    """Return minus the number of eligible classes, and the mean of their spreads.

    The spread of a class is (max − min) / mean of its fold counts; the common fold is ignored.
    """
    spreads = []
    for name in set(label):
        folds = fold[[other == name for other in label]]
        counts = np.bincount(folds[folds >= 0], minlength=count)
        if counts.min() > 0:
            spreads.append(float(np.ptp(counts) / counts.mean()))
    return -len(spreads), float(np.mean(spreads)) if spreads else 0.0


def run_sklearn(
    label: list[str], recording: list[str], count: int, rows: IntArray
) -> IntArray:
    """Return the folds of StratifiedGroupKFold over some rows; others are in the common fold."""
    fold = np.full(len(label), COMMON_FOLD)
    names = np.array(label)[rows]
    groups = np.array(recording)[rows]
    with (
        warnings.catch_warnings(),
        suppress(ValueError),
    ):  # too few members for the folds
        warnings.simplefilter("ignore")
        splits = StratifiedGroupKFold(count).split(names, names, groups)
        for number, (_, test) in enumerate(splits):
            fold[rows[test]] = number
    return fold


def compare(seed: int) -> dict[str, Any]:
    """Return the figures of one corpus; ours is compared with the better run of scikit-learn."""
    label, recording, count = draw_corpus(seed)
    start = time.perf_counter()
    ours = build_folds(label, recording, count)
    built = time.perf_counter()
    all_rows = run_sklearn(label, recording, count, np.arange(len(label)))
    theirs = time.perf_counter()
    some_rows = run_sklearn(label, recording, count, np.flatnonzero(ours.fold >= 0))
    eligible, spread = measure(label, ours.fold, count)
    best_eligible, best_spread = min(
        measure(label, f, count) for f in (all_rows, some_rows)
    )
    pairs = set(zip(recording, ours.fold.tolist(), strict=True))
    return {
        "recordings": len(set(recording)),
        "split": len(pairs) - len(set(recording)),
        "eligible_ours": -eligible,
        "eligible_theirs": -best_eligible,
        "spread_ours": spread,
        "spread_theirs": best_spread,
        "proved": ours.proof.startswith("optimum proved"),
        "solver": "integer" in ours.proof,
        "seconds_ours": built - start,
        "seconds_theirs": theirs - built,
    }


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Turn the corpora into the figures of the table."""
    column = {
        name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]
    }
    gain = column["eligible_ours"] - column["eligible_theirs"]
    equal = (gain == 0) & (column["eligible_ours"] > 0)
    ours = column["spread_ours"][equal]
    theirs = column["spread_theirs"][equal]
    return {
        "corpora": len(rows),
        "recordings": column["recordings"].sum(),
        "recordings split": column["split"].sum(),
        "eligible classes, ours": column["eligible_ours"].sum(),
        "eligible classes, scikit-learn": column["eligible_theirs"].sum(),
        "corpora with fewer eligible classes": np.sum(gain < 0),
        "corpora with more eligible classes": np.sum(gain > 0),
        "corpora with as many (and some)": np.sum(equal),
        "  mean spread there, ours": ours.mean(),
        "  mean spread there, scikit-learn": theirs.mean(),
        "  ours worse": np.sum(ours > theirs),
        "  ours better": np.sum(ours < theirs),
        "optimum proved": column["proved"].sum(),
        "  by integer programming": column["solver"].sum(),
        "mean s, ours": column["seconds_ours"].mean(),
        "max s, ours": column["seconds_ours"].max(),
        "mean s, scikit-learn": column["seconds_theirs"].mean(),
        "max s, scikit-learn": column["seconds_theirs"].max(),
    }


def main() -> None:
    """Run the comparison, print the table and fail if ours lost anywhere."""
    options = parser(__doc__)
    options.add_argument("--corpora", type=int, default=300)
    chosen = options.parse_args()
    build_folds(["a", "a"], ["x", "y"], 2)  # compile first
    figures = summarise([compare(seed) for seed in range(chosen.corpora)])
    rows: list[dict[str, object]] = []
    for name, figure in figures.items():
        rows.append({"what": name, "figure": float(figure)})
    show("bench/folds", rows, chosen.json)
    if any(figures[name] for name in MUST_BE_ZERO):
        raise SystemExit("ours lost")


if __name__ == "__main__":
    main()
