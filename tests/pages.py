"""Studies to make pages of: chapters with everything around them, hostile names included."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

from callshot.records import (
    Baseline,
    BudgetRow,
    CorpusResults,
    Curve,
    Difference,
    Evaluation,
    Reject,
)
from callshot.report.page import write_page
from callshot.report.tables.table import Cell, Column, Table
from corpus_results import make_corpus_results, make_tables

HOSTILE = "<script>alert(1)</script>"
QUOTED = """it's "quoted" & <b>bold</b>.wav"""
LONG = "a very long rumble with overlapping harmonics and a name of sixty"
RIVAL_KINDS = (("logistic", "LR", 0.81), ("recurrent", "GRU", 0.86))


def make_study(folder: Path) -> dict[str, Any]:
    """Return the arguments of `write_page`, but for its path: two corpora, two encoders each, and a picture."""
    labels = ("rumble", HOSTILE, "trumpet", LONG)
    first = make_corpus_results(
        make_tables(labels, {"mfcc": 0.6, "birdnet-v2.4": 1.2}, recordings=10),
        corpus="reserve",
        categories={"rumble": "low", LONG: "low", "trumpet": "high"},
    )
    second = make_corpus_results(
        make_tables(("song", "call"), ("mfcc", "random"), recordings=8, seed=1), corpus="aviary"
    )
    all_results = [_fill(first), _fill(second)]
    names = [corpus_results.evaluation.corpus for corpus_results in all_results]
    return {
        "title": "Elephants & finches",
        "all_results": all_results,
        "answers": {name: _answers(name) for name in names},
        "tables": {c.evaluation.corpus: [make_grid(c.evaluation)] for c in all_results},
        "pictures": {"reserve": [("Sweep of <mfcc>", draw_picture(folder / "sweep.png"))]},
        "provenance": {
            "seed": 0,
            "inputs": [{"file": QUOTED, "sha256": "ab" * 32}],
            "shots": [1, 2, 3],
            "note": None,
        },
        "commands": [
            "callshot init reserve",
            "callshot run reserve/study.toml && echo 'done' > \"log\"",
        ],
    }


def write_study(path: Path, study: dict[str, Any]) -> Path:
    write_page(path, **study)
    return path


def _answers(name: str) -> list[str]:
    return [
        f"On {name}, birdnet-v2.4 with 3 examples per call type already beats logistic regression trained on all.",
        "More than 10 examples add less than 0.01 mAP.",
    ]


def _fill(corpus_results: CorpusResults) -> CorpusResults:
    """Add rivals, differences, a budget, rejects and notes, all made up."""
    found = corpus_results.evaluation
    rejects = [Reject(QUOTED, i or None, f"too short: {HOSTILE}") for i in range(250)]
    return replace(
        corpus_results,
        others=make_others(found),
        baselines=list(make_rivals(found)),
        differences=list(make_differences(found)),
        budget=list(make_budget(found)),
        rejects=rejects,
        notes=[f"one note on {HOSTILE}"],
    )


def make_others(found: Evaluation) -> Evaluation:
    """Return curves of a rule in both spreads, and of one that was trained at every k in `shared`."""
    cosine = [replace(c, classifier="cosine", mean=c.mean - 0.03) for c in found.curve]
    at_k = [
        replace(c, classifier="logistic", mean=c.mean + 0.02)
        for c in found.curve
        if c.spread == "shared"
    ]
    return replace(found, curve=[*cosine, *at_k], values=[], per_class=[])


def make_rivals(found: Evaluation) -> Iterator[Baseline]:
    for encoder in dict.fromkeys(c.encoder for c in found.curve):
        for scoring, metric in dict.fromkeys((c.scoring, c.metric) for c in found.curve):
            for kind, name, value in RIVAL_KINDS:
                yield Baseline(
                    found.corpus,
                    encoder,
                    kind,
                    name,
                    scoring,
                    metric,
                    value - 0.05 * (encoder == "mfcc"),
                )


def make_differences(found: Evaluation) -> Iterator[Difference]:
    one, other = list(dict.fromkeys(c.encoder for c in found.curve))[:2]
    points = {(c.encoder, c.scoring, c.metric, c.spread, c.k): c for c in found.curve}
    for c in found.curve:
        if c.encoder == one:
            d = points[other, c.scoring, c.metric, c.spread, c.k].mean - c.mean
            levels = (d - 0.05, d - 0.02, d, d + 0.02, d + 0.05)
            yield Difference(
                found.corpus, other, one, c.scoring, c.metric, c.spread, c.k, d, *levels, 0.9375
            )


def make_budget(found: Evaluation) -> Iterator[BudgetRow]:
    for encoder in dict.fromkeys(c.encoder for c in found.curve):
        for n, c in enumerate(c for c in found.classes if c.eligible):
            gains = (nan, nan, nan) if n == 1 else (0.021 / (n + 1), 0.1 / (n + 1), 0.9)
            value = 0.6 + 0.05 * n + 0.1 * (encoder != "mfcc")
            yield BudgetRow(
                found.corpus, encoder, c.label, "map", c.exemplars, 4, value, *gains, 0.01
            )


def make_grid(found: Evaluation) -> Table:
    """Return a table like those of the paper: k down, encoders across, a rival at the foot."""
    encoders = list(dict.fromkeys(c.encoder for c in found.curve))
    columns = [
        Column("k"),
        *(Column(name, encoder) for encoder in encoders for name in ("mAP", "AUROC")),
    ]
    shots = sorted({c.k for c in found.curve})
    rows = [
        [Cell(str(k), k, mark="⋆" if k == 5 else ""), *_cells(found.curve, encoders, k)]
        for k in shots
    ]
    foot = [Cell("LR"), *(Cell("0.810", 0.81) for _ in columns[1:])]
    return Table(
        "results",
        f"Results on {found.corpus}",
        columns,
        [*rows, foot],
        1,
        [("⋆", "the first row beyond k*")],
    )


def _cells(curve: Sequence[Curve], encoders: Sequence[str], k: int) -> Iterator[Cell]:
    for encoder in encoders:
        for metric in ("map", "auroc"):
            at = (encoder, "all", metric, "per-query", k)
            value = next(
                c.mean for c in curve if (c.encoder, c.scoring, c.metric, c.spread, c.k) == at
            )
            yield Cell(f"{value:.3f}", value, underline={3: 1, 10: 2}.get(k, 0))


def draw_picture(path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), dpi=100)
    figure.subplots().plot([1, 3, 2])
    figure.savefig(path, metadata={"Software": None})
    return path
