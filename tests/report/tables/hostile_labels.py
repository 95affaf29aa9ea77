"""Results that break careless tables: 27 classes, names of 60 letters or with LaTeX in them."""

from dataclasses import replace
from functools import cache
from itertools import product

import polars as pl

from callshot.records import ClassCount, CorpusResults, Evaluation
from callshot.records.frames import CROSSOVERS, DIFFERENCES
from corpus_results import (
    SMALL,
    make_baselines,
    make_corpus_results,
    make_rows,
    make_tables,
)

HOSTILE = (
    r"\input{/etc/passwd} ~^_&%$#{}",
    "Grollen·象 élan ß ø ł ñ ą я 🐘",
    "<script>alert(1)</script>",
    "x" * 60,
    "W" * 60,
    "[optional] *star*",
    "*[2pt] a|b `code` \"quoted\" --- ''x'' ?`!`",
    "a_very_long_name_with_underscores_and-hyphens_of_60_letters_x",
    "new\nline\ttab\r\x00\x1b[31m\u202e",
    "\\",
    r"$x^2$ & \\ \end{document}",
    "% comment",
    "@user :smile: #1 http://x.org",
    '=1+1,"2"',
)
LONG_LABELS = [
    f"class {number:02} with a name that is sixty letters long, or nearly so"[:60]
    for number in range(len(HOSTILE), 27)
]
LABELS = (*HOSTILE, *LONG_LABELS)
ENCODERS = (
    "perch-v2",
    "n" * 60,
    "an encoder_with_a_name of sixty letters and under_scores here",
    r"\evil{%}",
)
TRAINED = r"l\ogistic_&%" + "g" * 40
CHOICES = f"C & {HOSTILE[0]} by inner folds: 0.1, 1, 10, 0.01; {'z' * 60}"
BASELINE_NAMES = {"logistic": "LR", "recurrent": "GRU_", "end-to-end": "AERD & Co"}
CORPUS = r"../Nasty & Co_ %\{} 象 " + "n" * 40
PROTOCOL = replace(
    SMALL,
    shots=(1, 2, 3, 4, 5),
    draws=3,
    bootstraps=10,
    shared_draws=5,
    total_samples=5,
)


@cache
def make_hostile_results() -> CorpusResults:
    """Return results with every part that a report can show."""
    categories = {label: LABELS[index % 5] for index, label in enumerate(LABELS[:12])}
    base = make_corpus_results(
        make_tables(LABELS, ENCODERS, recordings=6, each=1),
        corpus=CORPUS,
        protocol=replace(
            PROTOCOL, classifiers=("centroid", "cosine", "cl2n", "medoid")
        ),
        categories=categories,
    )
    evaluation = base.evaluation
    reason = "in 3 recordings, and 5 folds need 5"
    rare = [
        ClassCount(f"rare {number} {'y' * 50}", 3, 2, False, reason)
        for number in range(15)
    ]
    formats = ("WAV PCM_16", "FLAC PCM_24", "OGG VORBIS", "MP3 MPEG_LAYER_III")
    rates_hz = (16000.0, 44100.0, 48000.0, 96000.0)
    reference = evaluation.select_classifiers(["centroid"])
    return replace(
        base,
        evaluation=replace(
            reference,
            classes=[*evaluation.classes, *rare],
            crossovers=_make_crossovers(),
            differences=_make_differences(),
        ),
        other_classifiers=_make_others(evaluation),
        stats=replace(base.stats, kinds=formats, rates_hz=rates_hz),
        baselines=_make_baselines(),
    )


def _make_others(evaluation: Evaluation) -> Evaluation:
    """Return other classifiers, and one with an unknown name that was trained at every k."""
    others = evaluation.select_classifiers(["cosine", "cl2n"])
    trained = evaluation.select_classifiers(["medoid"])
    name = pl.lit(TRAINED).alias("classifier")
    curve = trained.curve.filter(spread="shared").with_columns(name)
    values = trained.values.filter(spread="shared").with_columns(name)
    return replace(
        others,
        curve=pl.concat([others.curve, curve]),
        values=pl.concat([others.values, values]),
    )


def _make_crossovers() -> pl.DataFrame:
    rows = []
    for baseline in _make_baselines().iter_rows(named=True):
        k_mean = 4 if baseline["metric"] == "map" else None
        for spread in ("per-query", "shared"):
            key = (
                CORPUS,
                baseline["encoder"],
                baseline["name"],
                "all",
                baseline["scoring"],
            )
            rows.append((*key, baseline["metric"], spread, k_mean, None))
    trained = [
        (CORPUS, encoder, TRAINED, "k", "all", "map", "shared", 2, 5)
        for encoder in ENCODERS
    ]
    return make_rows(CROSSOVERS, *rows, *trained)


def _make_baselines() -> pl.DataFrame:
    rows = []
    keys = product(ENCODERS, BASELINE_NAMES, ("all", "reduced"), ("auroc", "map"))
    for encoder, kind, scoring, metric in keys:
        name = BASELINE_NAMES[kind]
        if kind == "recurrent":
            name += encoder[:3]
        rows.append((CORPUS, encoder, kind, name, scoring, metric, 0.3, CHOICES))
    return make_baselines(*rows)


def _make_differences() -> pl.DataFrame:
    keys = product(
        ENCODERS[1:], ("map", "auroc"), ("per-query", "shared"), PROTOCOL.shots
    )
    numbers = (-0.0123, -0.1, -0.05, -0.01, 0.02, 0.05, 0.4, 200, -0.1, 0.1, False)
    rows = [
        (CORPUS, ENCODERS[0], other, "all", metric, spread, k, *numbers)
        for other, metric, spread, k in keys
    ]
    return make_rows(DIFFERENCES, *rows)
