"""Studies for pages: results with everything around them, hostile names included."""

from dataclasses import replace
from itertools import product
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.records import CorpusResults, Evaluation, Reject
from callshot.records.frames import BUDGET, DIFFERENCES, make_frame
from callshot.report.calls import CallClip, choose_sounds, find_calls, make_call_clip
from callshot.report.page import write_page
from callshot.report.summary import write_summary
from callshot.report.tables.table import Cell, Column, Table
from corpus_results import make_baselines, make_corpus_results, make_rows, make_tables

HOSTILE = "<script>alert(1)</script>"
QUOTED = """it's "quoted" & <b>bold</b>.wav"""
LONG = "a very long rumble with overlapping harmonics and a name of sixty"
BASELINE_VALUES = (("logistic", "LR", 0.81), ("recurrent", "GRU", 0.86))


def make_study(folder: Path) -> dict[str, Any]:
    """Return a title, and what `write_page` takes: two corpora of two encoders, a picture."""
    labels = ("rumble", HOSTILE, "trumpet", LONG)
    first = make_corpus_results(
        make_tables(labels, {"mfcc": 0.6, "birdnet-v2.4": 1.2}, recordings=10),
        corpus="reserve",
        categories={"rumble": "low", LONG: "low", "trumpet": "high"},
    )
    second = make_corpus_results(
        make_tables(("song", "call"), ("mfcc", "random"), recordings=8, seed=1),
        corpus="aviary",
    )
    all_results = [_fill(first), _fill(second)]
    evaluations = [results.evaluation for results in all_results]
    return {
        "title": "Elephants & finches",
        "all_results": all_results,
        "summaries": {one.corpus: write_summary(one) for one in all_results},
        "tables": {one.corpus: [make_table(one)] for one in evaluations},
        "pictures": {
            "reserve": [
                ("encoder", "Sweep of <mfcc>", draw_picture(folder / "sweep.png"))
            ]
        },
        "methods": {"reserve": ["We counted calls.", "[1] A reference."]},
        "confusion_shots": (1, 5),
        "calls": {one.corpus: find_calls(one) for one in all_results},
        "clips": {one.corpus: make_clips(one) for one in all_results},
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


def make_clips(results: CorpusResults) -> dict[str, CallClip]:
    """Return a sound of the calls to play; every second one is low."""
    calls = find_calls(results)
    clips = {}
    for number, name in enumerate(choose_sounds(calls, results)):
        frequency_hz = (440.0, 30.0)[number % 2]
        signal = np.sin(2 * np.pi * frequency_hz * np.arange(8000) / 16000)
        clips[name] = make_call_clip(signal, 16000)
    return clips


def _fill(results: CorpusResults) -> CorpusResults:
    """Add baselines, differences, a budget, rejects and notes, all made up."""
    evaluation = results.evaluation
    rejects = [Reject(QUOTED, i or None, f"too short: {HOSTILE}") for i in range(250)]
    return replace(
        results,
        evaluation=replace(
            evaluation,
            differences=make_differences(evaluation),
            budget=make_budget(evaluation),
        ),
        other_classifiers=make_others(evaluation),
        baselines=make_encoder_baselines(evaluation),
        rejects=rejects,
        notes=[f"one note on {HOSTILE}"],
    )


def make_others(evaluation: Evaluation) -> Evaluation:
    """Return the curves of one classifier on all spreads, and of a trained one on all but one."""
    curve = evaluation.curve
    cosine = curve.with_columns(pl.col("mean") - 0.03, classifier=pl.lit("cosine"))
    shared_draws = curve.filter(pl.col("spread") != "per-query")
    trained = shared_draws.with_columns(
        pl.col("mean") + 0.02, classifier=pl.lit("logistic")
    )
    return replace(
        evaluation,
        curve=pl.concat([cosine, trained]),
        values=evaluation.values.clear(),
        per_class=evaluation.per_class.clear(),
    )


def make_encoder_baselines(evaluation: Evaluation) -> pl.DataFrame:
    metrics = (
        evaluation.curve.select("scoring", "metric").unique(maintain_order=True).rows()
    )
    rows = []
    for encoder, (scoring, metric) in product(evaluation.encoders, metrics):
        for kind, name, value in BASELINE_VALUES:
            less = 0.05 if encoder == "mfcc" else 0.0
            rows.append(
                (evaluation.corpus, encoder, kind, name, scoring, metric, value - less)
            )
    return make_baselines(*rows)


def make_differences(evaluation: Evaluation) -> pl.DataFrame:
    """Return the second encoder less the first, with made-up intervals."""
    one, other = evaluation.encoders[:2]
    first = evaluation.curve.filter(encoder=one)
    second = evaluation.curve.filter(encoder=other)
    mean = second["mean"] - first["mean"]
    percentiles = {"p01": -0.05, "p25": -0.02, "p50": 0.0, "p75": 0.02, "p99": 0.05}
    columns = {name: first[name] for name in ("scoring", "metric", "spread", "k")}
    columns |= {"mean": mean} | {
        name: mean + offset for name, offset in percentiles.items()
    }
    constants = {
        "corpus": evaluation.corpus,
        "one": other,
        "other": one,
        "wins": 0.9375,
        "samples": 200,
        "low": -0.1,
        "high": 0.1,
        "clear": False,
    }
    return make_frame(DIFFERENCES, columns, constants)


def make_budget(evaluation: Evaluation) -> pl.DataFrame:
    rows = []
    for encoder in evaluation.encoders:
        eligible = [count for count in evaluation.classes if count.eligible]
        for index, count in enumerate(eligible):
            gains = (0.021 / (index + 1), 0.1 / (index + 1), 0.9)
            if index == 1:
                gains = (nan, nan, nan)
            value = 0.6 + 0.05 * index + 0.1 * (encoder != "mfcc")
            key = (
                evaluation.corpus,
                encoder,
                count.label,
                "map",
                count.exemplars,
                4,
                value,
            )
            interval = (gains[0] - 0.02, gains[0] + 0.02)
            shares = (nan, nan) if index == 1 else (0.99, 0.95 if index == 0 else 0.02)
            rows.append((*key, *gains, 0.01, *interval, *shares, index == 0))
    return make_rows(BUDGET, *rows)


def make_table(evaluation: Evaluation) -> Table:
    """Return a table like those of the paper: k down, encoders across, a baseline at the foot."""
    keys = list(product(evaluation.encoders, ("map", "auroc")))
    names = {"map": "mAP", "auroc": "AUROC"}
    columns = [
        Column("k"),
        *(Column(names[metric], encoder) for encoder, metric in keys),
    ]
    rows = []
    for k in sorted(set(evaluation.curve["k"])):
        cells = [Cell(str(k), k, mark="⋆" if k == 5 else "")]
        for encoder, metric in keys:
            point = evaluation.curve.filter(
                encoder=encoder, scoring="all", metric=metric, spread="per-query", k=k
            )
            value = point["mean"].item()
            cells.append(Cell(f"{value:.3f}", value, underline={3: 1, 10: 2}.get(k, 0)))
        rows.append(cells)
    rows.append([Cell("LR"), *(Cell("0.810", 0.81) for _ in keys)])
    title = f"Results on {evaluation.corpus}"
    notes = [("⋆", "the first row beyond k*")]
    return Table("results", title, columns, rows, 1, notes, section="encoder")


def draw_picture(path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), dpi=100)
    figure.subplots().plot([1, 3, 2])
    figure.savefig(path, metadata={"Software": None})
    return path
