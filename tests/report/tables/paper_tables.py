"""The paper's tables as literals, and the results they would be made from.

In a row, `_` follows what the paper underlines once, `=` what it underlines twice, and `*` the k
that it stars; `-` is missing.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from callshot.records import (
    ClassCount,
    CorpusResults,
    CorpusStats,
    DurationStats,
    Evaluation,
    Folds,
)
from callshot.records.frames import CURVE
from callshot.vectors import Vectors
from corpus_results import make_baselines, make_rows

ENCODERS = ("mfcc", "perch-v1", "perch-v2", "hubert-base-l2")
PERCHES = ("perch-v1", "perch-v2")
METRICS = ("auroc", "map")

EV = """
1 0.6290 0.2344= 0.6855 0.3159 0.7160 0.3853_ 0.7180 0.3288_
2 0.6670 0.2716 0.7578 0.4157= 0.7709 0.4491= 0.7731 0.3935
3 0.6862_ 0.2919 0.7912 0.4602 0.7975 0.4907 0.7960 0.4370
4* 0.6963 0.3049 0.8068_ 0.4968 0.8116_ 0.5208 0.8081 0.4584
5 0.7038 0.3152 0.8185 0.5121 0.8222 0.5415 0.8155 0.4715
10 0.7149= 0.3361 0.8368 0.5505 0.8349 0.5781 0.8304 0.5011
15 0.7187 0.3494 0.8452= 0.5689 0.8418 0.5869 0.8364 0.5087
20 0.7192 0.3467 0.8486 0.5759 0.8450 0.5932 0.8381 0.5114
40 0.7216 0.3542 0.8550 0.5898 0.8476 0.5920 0.8414 0.5171
LR 0.6814 0.1418 0.8024 0.3628 0.8020 0.3654 0.8658 0.3068
RNN 0.7143 0.2177 0.8433 0.3843 0.8492 0.4220 - -
"""

LDC = """
1 0.5570 0.1206 0.6091 0.1704 0.6821 0.2226 0.6609 0.1718
2 0.5785 0.1285 0.6932 0.2232 0.7648 0.2799 0.7052 0.2037
3 0.5923 0.1340 0.7349 0.2596 0.8012 0.3204 0.7300 0.2264
4 0.6013 0.1378_ 0.7607 0.2838 0.8243 0.3509 0.7451 0.2398
5 0.6083 0.1402 0.7776 0.3017 0.8371 0.3684 0.7551 0.2492
10 0.6285 0.1510 0.8166 0.3507 0.8712 0.4233 0.7840 0.2819
15 0.6363 0.1559 0.8339 0.3772 0.8855 0.4460 0.7947 0.2967
20 0.6430 0.1610 0.8439 0.3935 0.8933 0.4613 0.8013 0.3076
40* 0.6558 0.1713 0.8612 0.4246 0.9054 0.4868_ 0.8128 0.3326
LR 0.7162 0.1359 0.9197 0.4384 0.9319 0.4824 0.9262 0.3492
RNN 0.8091 0.2489 0.9103 0.4411 0.9312 0.5126 - -
"""

EV_REDUCED = """
1 0.6527 0.3088 0.7018 0.3926
2 0.7120 0.3974 0.7538 0.4544_
5* 0.7670 0.4672_ 0.7987 0.5324
10 0.7916 0.5011 0.8161 0.5741
20 0.8056 0.5262 0.8289 0.5990
40 0.8130 0.5363 0.8333 0.6011
AERD 0.8453 0.4054 0.8453 0.4054
"""

LDC_REDUCED = """
1 0.6253 0.2009 0.6986 0.2705
2 0.7037 0.2818 0.7671 0.3430
5 0.7688 0.3765 0.8235 0.4302
10 0.8001 0.4174 0.8520 0.4734
20 0.8250 0.4504 0.8717 0.5051
40* 0.8420 0.4762 0.8838 0.5285
AERD 0.9497 0.6412 0.9497 0.6412
"""

# The recurrent baseline of each encoder in the paper.
RECURRENT = {
    "ELEV": {"mfcc": "GRU", "perch-v1": "GRU", "perch-v2": "Elman RNN"},
    "LDC": {"mfcc": "GRU", "perch-v1": "LSTM", "perch-v2": "GRU"},
}

# Call types with exemplars, complete to k, and category; in the appendix' order.
ELEV_CLASSES = """
comment rumble|51|37|comment rumble
oestrous rumble|40|21|oestrous rumble
greeting rumble|37|17|
female chorus|32|22|female chorus
conflict roar|23|16|conflict roar
trumpet blast|21|15|trumpet blast
grumbling rumble|17|13|grumbling rumble
pulsated play trumpet|13|10|pulsated play trumpet
separated rumble|7|5|
lets-go rumble|6|4|
musth rumble|6|4|
begging rumble|5|4|
"""
LDC_CLASSES = """
growl|2949|2651|rumble
longroar-rumble|253|227|roar
rumble|178|159|rumble
longroar|149|134|roar
bark-rumble|140|125|bark
trumpet|87|73|trumpet
blow|77|61|
roar-rumble|73|64|roar
trunk-bounce|45|34|
roar|36|31|roar
"""
ELEV_STATS = CorpusStats(
    (44100.0,),
    (2,),
    ("WAV PCM_16",),
    27,
    1.0,
    0.0,
    DurationStats(226, 55.6 * 60, 14.75, 0.49, 296.53, 31.55),
    DurationStats(226, 55.6 * 60, 14.75, 0.49, 296.53, 31.55),
    DurationStats(422, 29.6 * 60, 4.20, 0.28, 26.11, 3.63),
    DurationStats(376, 1700.0, 4.5, 1.04, 26.11, 3.0),
)
LDC_STATS = CorpusStats(
    (48000.0,),
    (1, 2),
    ("WAV PCM_24",),
    16,
    1.0,
    0.25,
    DurationStats(1577, 57.4 * 3600, 131.03, 1.25, 3889.38, 177.08),
    DurationStats(762, 32.6 * 3600, 154.0, 1.25, 3889.38, 190.0),
    DurationStats(4845, 5.55 * 3600, 4.13, 0.07, 43.99, 3.15),
    DurationStats(4103, 19500.0, 4.75, 1.0, 43.99, 3.0),
)
ELEV_EVALUATED = DurationStats(258, 17.9 * 60, 4.16, 1.04, 21.93, 2.47)
LDC_EVALUATED = DurationStats(3987, 5.37 * 3600, 4.85, 1.00, 43.99, 2.99)


def elev() -> CorpusResults:
    """Return the results of Elephant Voices."""
    return _make_results(
        "ELEV", EV, EV_REDUCED, ELEV_CLASSES, 257, 4, 5, ELEV_STATS, ELEV_EVALUATED
    )


def ldc() -> CorpusResults:
    """Return the results of the Linguistic Data Consortium's elephants."""
    return _make_results(
        "LDC", LDC, LDC_REDUCED, LDC_CLASSES, 3985, 31, 10, LDC_STATS, LDC_EVALUATED
    )


def lines(text: str) -> dict[str, list[str]]:
    """Return the cells of each row, by its first."""
    rows = [row.split() for row in text.strip().splitlines()]
    return {first: cells for first, *cells in rows}


def _make_results(
    corpus: str,
    table: str,
    reduced: str,
    classes: str,
    queries: int,
    complete_shots: int,
    folds: int,
    stats: CorpusStats,
    evaluated: DurationStats,
) -> CorpusResults:
    rows = [row.split("|") for row in classes.strip().splitlines()]
    counts = [
        ClassCount(label, int(count), int(k), True) for label, count, k, _ in rows
    ]
    categories = {label: category for label, _, _, category in rows if category}
    curve = [
        *_curve_rows(corpus, table, "all", ENCODERS, complete_shots),
        *_curve_rows(corpus, reduced, "reduced", PERCHES, complete_shots),
    ]
    segments = Vectors.from_columns(
        "mfcc", np.zeros((1, 1)), ["s"], ["r"], ["x"], [("x",)]
    )
    given = Folds(np.zeros(1, np.int64), folds, "given")
    evaluation = Evaluation(
        corpus,
        complete_shots,
        queries,
        counts,
        given,
        segments.spans,
        curve=make_rows(CURVE, *curve),
    )
    baselines = make_baselines(*_baseline_rows(corpus, table, reduced))
    return CorpusResults(
        evaluation, stats, evaluated, [segments], categories, baselines=baselines
    )


def _curve_rows(
    corpus: str, table: str, scoring: str, encoders: Sequence[str], complete_shots: int
) -> Iterator[tuple[Any, ...]]:
    """Yield the means of the paper on the spread per-query, and larger ones on shared."""
    shots = {
        int(k.rstrip("*")): cells for k, cells in lines(table).items() if k[0].isdigit()
    }
    for column, (encoder, metric) in enumerate(product(encoders, METRICS)):
        chance = 0.5 if metric == "auroc" else 0.1
        key = (corpus, encoder, "centroid", scoring, metric)
        for k, cells in shots.items():
            mean = float(cells[column].rstrip("_="))
            rest = (chance, k <= complete_shots, 0, 0)
            middle = (mean - 0.01, mean, mean + 0.01)
            yield (*key, "per-query", k, mean, mean - 0.03, *middle, mean + 0.03, *rest)
            p99 = min(mean + 0.12, 1.0)
            yield (*key, "shared", k, mean + 0.05, mean - 0.04, *middle, p99, *rest)


def _baseline_rows(corpus: str, table: str, reduced: str) -> Iterator[tuple[Any, ...]]:
    logistic = lines(table)["LR"]
    recurrent = lines(table)["RNN"]
    columns = product(ENCODERS, METRICS)
    for (encoder, metric), lr, rnn in zip(columns, logistic, recurrent, strict=True):
        yield corpus, encoder, "logistic", "LR", "all", metric, float(lr)
        if rnn != "-":
            name = RECURRENT[corpus][encoder]
            yield corpus, encoder, "recurrent", name, "all", metric, float(rnn)
    for metric, value in zip(METRICS, lines(reduced)["AERD"][:2], strict=True):
        yield corpus, "", "end-to-end", "AERD", "reduced", metric, float(value)
