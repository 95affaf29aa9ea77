"""Studies for pages: results with everything around them, hostile names included."""

from dataclasses import replace
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.records import CorpusResults, Evaluation, Reject
from callshot.report.calls import CallClip, choose_sounds, find_calls, make_call_clip
from callshot.report.page import write_page
from callshot.report.summary import write_summary
from callshot.report.tables.score_tables import score_table
from corpus_results import make_baselines, make_corpus_results, make_tables

HOSTILE = "<script>alert(1)</script>"
QUOTED = """it's "quoted" & <b>bold</b>.wav"""
LONG = "a very long rumble with overlapping harmonics and a name of sixty"
VOID = {"meta", "link", "img"}
BASELINE_VALUES = (("logistic", "LR", 0.81), ("recurrent", "GRU", 0.86))


class Reader(HTMLParser):
    """What a page holds: its elements, by kind, with attributes and the text directly inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {[kind for kind, *_ in self.open]}"

    def handle_starttag(self, tag, attrs):
        one = (tag, {k: v or "" for k, v in attrs}, [])
        self.found.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def kinds(self, *names):
        return [
            (attributes, "".join(text))
            for kind, attributes, text in self.found
            if kind in names
        ]


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
    return {
        "title": "Elephants & finches",
        "all_results": all_results,
        "summaries": {one.corpus: write_summary(one) for one in all_results},
        "tables": {one.corpus: [score_table(one)] for one in all_results},
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
    """Add baselines, another classifier, rejects and notes, all made up."""
    evaluation = results.evaluation
    rejects = [Reject(QUOTED, i or None, f"too short: {HOSTILE}") for i in range(250)]
    return replace(
        results,
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


def draw_picture(path: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), dpi=100)
    figure.subplots().plot([1, 3, 2])
    figure.savefig(path, metadata={"Software": None})
    return path
