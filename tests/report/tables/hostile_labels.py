"""Results that break careless tables: 27 classes, names of 60 letters or with LaTeX in them."""

from dataclasses import replace
from functools import cache
from itertools import product

from callshot.records import Baseline, ClassCount, CorpusResults, Crossover, Difference, Evaluation
from corpus_results import SMALL, make_corpus_results, make_tables

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
PROTOCOL = replace(SMALL, shots=(1, 2, 3, 4, 5), draws=3, bootstraps=10, shared_draws=5)


@cache
def make_hostile_results() -> CorpusResults:
    """Return results with every part that a report can show."""
    categories = {label: LABELS[index % 5] for index, label in enumerate(LABELS[:12])}
    base = make_corpus_results(
        make_tables(LABELS, ENCODERS, recordings=6, each=1),
        corpus=CORPUS,
        protocol=replace(PROTOCOL, classifiers=("centroid", "cosine", "cl2n", "medoid")),
        categories=categories,
    )
    evaluation = base.evaluation
    reason = "in 3 recordings, and 5 folds need 5"
    rare = [ClassCount(f"rare {number} {'y' * 50}", 3, 2, False, reason) for number in range(15)]
    formats = ("WAV PCM_16", "FLAC PCM_24", "OGG VORBIS", "MP3 MPEG_LAYER_III")
    rates_hz = (16000.0, 44100.0, 48000.0, 96000.0)
    return replace(
        base,
        evaluation=replace(evaluation.under(["centroid"]), classes=[*evaluation.classes, *rare]),
        others=_make_others(evaluation),
        crossovers=_make_crossovers(),
        facts=replace(base.facts, kinds=formats, rates_hz=rates_hz),
        baselines=_make_baselines(),
        differences=_make_differences(),
    )


def _make_others(evaluation: Evaluation) -> Evaluation:
    """Return other classifiers, and one with an unknown name that was trained at every k."""
    others = evaluation.under(["cosine", "cl2n"])
    trained = evaluation.under(["medoid"])
    curve = [replace(row, classifier=TRAINED) for row in trained.curve if row.spread == "shared"]
    values = [replace(row, classifier=TRAINED) for row in trained.values if row.spread == "shared"]
    return replace(others, curve=[*others.curve, *curve], values=[*others.values, *values])


def _make_crossovers() -> list[Crossover]:
    crossovers = []
    for baseline, spread in product(_make_baselines(), ("per-query", "shared")):
        crossover = Crossover(
            corpus=CORPUS,
            encoder=baseline.encoder,
            baseline=baseline.name,
            labels="all",
            scoring=baseline.scoring,
            metric=baseline.metric,
            spread=spread,
            k=4 if baseline.metric == "map" else None,
            k_clear=None,
        )
        crossovers.append(crossover)
    for encoder in ENCODERS:
        crossover = Crossover(CORPUS, encoder, TRAINED, "k", "all", "map", "shared", 2, 5)
        crossovers.append(crossover)
    return crossovers


def _make_baselines() -> list[Baseline]:
    baselines = []
    keys = product(ENCODERS, BASELINE_NAMES, ("all", "reduced"), ("auroc", "map"))
    for encoder, kind, scoring, metric in keys:
        name = BASELINE_NAMES[kind]
        if kind == "recurrent":
            name += encoder[:3]
        baseline = Baseline(CORPUS, encoder, kind, name, scoring, metric, 0.3, CHOICES)
        baselines.append(baseline)
    return baselines


def _make_differences() -> list[Difference]:
    keys = product(ENCODERS[1:], ("map", "auroc"), ("per-query", "shared"), PROTOCOL.shots)
    return [
        Difference(
            corpus=CORPUS,
            one=ENCODERS[0],
            other=other,
            scoring="all",
            metric=metric,
            spread=spread,
            k=k,
            mean=-0.0123,
            p01=-0.1,
            p25=-0.05,
            p50=-0.01,
            p75=0.02,
            p99=0.05,
            wins=0.4,
        )
        for other, metric, spread, k in keys
    ]
