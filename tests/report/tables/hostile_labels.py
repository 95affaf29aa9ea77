"""A chapter to break tables with: 27 classes, names of 60 letters, and names that LaTeX or Markdown would obey."""

from dataclasses import replace
from functools import cache

from callshot.records import Baseline, ClassCount, CorpusResults, Crossover, Difference, Evaluation
from corpus_results import SMALL, make_corpus_results, make_tables

NASTY = (
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
LABELS = (
    *NASTY,
    *(
        f"class {n:02} with a name that is sixty letters long, or nearly so"[:60]
        for n in range(len(NASTY), 27)
    ),
)
ENCODERS = (
    "perch-v2",
    "n" * 60,
    "an encoder_with_a_name of sixty letters and under_scores here",
    r"\evil{%}",
)
TRAINED = r"l\ogistic_&%" + "g" * 40
HOW = f"C & {NASTY[0]} by inner folds: 0.1, 1, 10, 0.01; {'z' * 60}"
CORPUS = r"../Nasty & Co_ %\{} 象 " + "n" * 40
FEW = replace(SMALL, shots=(1, 2, 3, 4, 5), draws=3, bootstraps=10, shared_draws=5)


@cache
def nasty() -> CorpusResults:
    """Return the chapter; everything that can be in it is."""
    categories = {label: LABELS[n % 5] for n, label in enumerate(LABELS[:12])}
    tables = make_tables(LABELS, ENCODERS, recordings=6, each=1)
    rules = replace(FEW, classifiers=("centroid", "cosine", "cl2n", "medoid"))
    base = make_corpus_results(tables, corpus=CORPUS, protocol=rules, categories=categories)
    found = base.evaluation
    rare = [
        ClassCount(f"rare {n} {'y' * 50}", 3, 2, False, "in 3 recordings, and 5 folds need 5")
        for n in range(15)
    ]
    kinds = ("WAV PCM_16", "FLAC PCM_24", "OGG VORBIS", "MP3 MPEG_LAYER_III")
    return replace(
        base,
        evaluation=replace(found.under(["centroid"]), classes=[*found.classes, *rare]),
        others=_others(found),
        crossovers=_crossings(),
        facts=replace(base.facts, kinds=kinds, rates_hz=(16000.0, 44100.0, 48000.0, 96000.0)),
        baselines=_rivals(),
        differences=_differences(),
    )


def _others(found: Evaluation) -> Evaluation:
    """Return the other rules, and one that was trained at every k under a name that nobody knows."""
    others = found.under(["cosine", "cl2n"])
    trained = found.under(["medoid"])
    return replace(
        others,
        curve=[
            *others.curve,
            *(replace(c, classifier=TRAINED) for c in trained.curve if c.spread == "shared"),
        ],
        values=[
            *others.values,
            *(replace(v, classifier=TRAINED) for v in trained.values if v.spread == "shared"),
        ],
    )


def _crossings() -> list[Crossover]:
    passed = [
        Crossover(
            CORPUS,
            r.encoder,
            r.name,
            "all",
            r.scoring,
            r.metric,
            spread,
            4 if r.metric == "map" else None,
            None,
        )
        for r in _rivals()
        for spread in ("per-query", "shared")
    ]
    return [
        *passed,
        *(Crossover(CORPUS, e, TRAINED, "k", "all", "map", "shared", 2, 5) for e in ENCODERS),
    ]


def _rivals() -> list[Baseline]:
    kinds = {"logistic": "LR", "recurrent": "GRU_", "end-to-end": "AERD & Co"}
    return [
        Baseline(
            CORPUS,
            encoder,
            kind,
            name + encoder[:3] * (kind == "recurrent"),
            scoring,
            metric,
            0.3,
            HOW,
        )
        for encoder in ENCODERS
        for kind, name in kinds.items()
        for scoring in ("all", "reduced")
        for metric in ("auroc", "map")
    ]


def _differences() -> list[Difference]:
    return [
        Difference(
            CORPUS,
            ENCODERS[0],
            other,
            "all",
            metric,
            spread,
            k,
            -0.0123,
            -0.1,
            -0.05,
            -0.01,
            0.02,
            0.05,
            0.4,
        )
        for other in ENCODERS[1:]
        for metric in ("map", "auroc")
        for spread in ("per-query", "shared")
        for k in FEW.shots
    ]
