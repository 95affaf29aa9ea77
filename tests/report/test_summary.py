"""Chapters whose truth is known, because it was put there: what their answers say, and what they must not."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.fewshot.crossover import find_crossovers
from callshot.fewshot.differences import compare
from callshot.fewshot.label_budget import label_budget
from callshot.records import (
    Baseline,
    BudgetRow,
    ClassCount,
    CorpusResults,
    CorpusStats,
    Curve,
    Embeddings,
    Evaluation,
    Folds,
    RefinementStep,
    Values,
)
from callshot.report.summary import write_summary
from corpus_results import SMALL, make_corpus_results, make_durations, make_tables

SHOTS = (1, 2, 3, 4, 5, 10)
NOISE = np.linspace(-0.1, 0.1, 101)  # what the draws do: 1st to 99th percentile are ∓0.098
RISING = (0.40, 0.50, 0.55, 0.58, 0.60, 0.64)
MANY = [
    ClassCount("roar", 30, 20, True, "", (10, 10)),
    ClassCount("rumble", 40, 25, True, "", (20, 20)),
]
ONE = make_durations([1.0])
AERD = ("end-to-end", "AERD", "")
FACTS = CorpusStats((16000.0,), (1,), ("WAV PCM_16",), 2, 1.0, 0.0, ONE, ONE, ONE, ONE)


def make(
    means: Mapping[str, Sequence[float]],
    *,
    noise: Mapping[str, np.ndarray] | None = None,
    shots: Sequence[int] = SHOTS,
    spread: str = "shared",
    scorings: Sequence[str] = ("all",),
    chance: float = 0.2,
    classes: Sequence[ClassCount] = tuple(MANY),
    baselines: Sequence[Baseline] = (),
    budget: Sequence[BudgetRow] = (),
) -> CorpusResults:
    """Return a chapter whose curves have these means, and around each the encoder's own noise, or the same for all."""
    best = min(c.complete_to_k for c in classes if c.eligible)
    values, curve = [], []
    for encoder, mean in means.items():
        for scoring in scorings:
            table = np.array(mean)[:, None] + (noise or {}).get(encoder, NOISE)
            values.append(
                Values("herd", encoder, "centroid", scoring, "map", spread, np.array(shots), table)
            )
            for k, row in zip(shots, table, strict=True):
                levels = np.percentile(row, (1, 25, 50, 75, 99)).tolist()
                key = ("herd", encoder, "centroid", scoring, "map", spread, k)
                curve.append(Curve(*key, float(row.mean()), *levels, chance, k <= best, 0, 0))
    segments = Embeddings("e", np.zeros((2, 1)), "ab", "xy", ["roar", "rumble"], [(), ()])
    folds = Folds(np.array([0, 1]), 2, "given")
    result = Evaluation(
        "herd", best, 60, curve, values, [], [], [], list(classes), folds, segments, []
    )
    return CorpusResults(
        result, FACTS, ONE, [], baselines, compare(values, baselines), budget, None, (), ()
    )


def said(corpus_results: CorpusResults) -> str:
    return "\n".join(write_summary(corpus_results))


def baseline(
    value: float, kind: str = "logistic", name: str = "LR", encoder: str = "mfcc", **more: str
) -> Baseline:
    return Baseline(
        "herd", encoder, kind, name, more.get("scoring", "all"), more.get("metric", "map"), value
    )


def worth(
    label: str, next_gain: float, *, encoder: str = "mfcc", error: float = 0.001, k: int = 4
) -> BudgetRow:
    return BudgetRow(
        "herd", encoder, label, "map", 9, k, 0.5, next_gain, next_gain * (k + 1) / 2, 0.9, error
    )


def test_the_first_sentence_says_what_to_expect_of_a_few_examples():
    first = write_summary(make({"mfcc": RISING}))[0]
    assert first == (
        "With one labelled set of 5 examples per call type, expect mAP between 0.50 and 0.70 from mfcc "
        "(0.60 on average; chance is 0.20)."
    )


def test_the_share_of_right_call_types_is_told_where_it_was_measured():
    corpus_results = make({"mfcc": RISING})
    points = [
        replace(c, metric="accuracy", mean=0.716)
        for c in corpus_results.evaluation.curve
        if c.k == 5
    ]
    points += [replace(c, metric="auroc", mean=math.nan) for c in corpus_results.evaluation.curve]
    with_more = replace(
        corpus_results.evaluation, curve=[*corpus_results.evaluation.curve, *points]
    )
    first = write_summary(replace(corpus_results, evaluation=with_more))[0]
    assert first.endswith(
        "(0.60 on average; chance is 0.20), and the right call type for about 72 % of queries."
    )


def test_a_few_examples_are_no_more_than_every_call_type_can_give():
    rare = [*MANY, ClassCount("bark", 5, 3, True, "", (12, 12))]
    assert "set of 3 examples per call type, expect mAP between 0.45 and 0.65" in said(
        make({"mfcc": RISING}, classes=rare)
    )
    assert write_summary(make({"mfcc": [0.6]}, shots=[10], classes=rare))[0].startswith(
        "With one labelled set of up to 10 examples per call type"
    )
    assert "set of 1 example per call type, expect" in said(make({"mfcc": [0.6]}, shots=[1]))


def test_the_best_encoder_is_named_with_how_far_it_is_ahead_and_that_it_is_clear():
    worse = [mean - 0.05 for mean in RISING]
    text = said(make({"third": [0.3] * 6, "mfcc": worse, "perch": RISING}))
    assert "from perch (0.60 on average" in text
    assert (
        "With 5 examples per call type, perch is on average ahead of mfcc, the next best, by 0.050 of mAP (1–99 %: "
        "0.050 to 0.050; ahead in 100 % of labelled sets): a clear difference." in text
    )
    assert "third" not in text


def test_a_difference_whose_interval_includes_nothing_is_not_called_clear():
    worse = [mean - 0.05 for mean in RISING]
    text = said(make({"mfcc": worse, "perch": RISING}, noise={"perch": NOISE[::-1].copy()}))
    assert (
        "by 0.050 of mAP (1–99 %: −0.146 to 0.246; ahead in 62 % of labelled sets): not a clear difference"
        in text
    )
    assert ": a clear difference" not in text


def test_one_encoder_is_ahead_of_none():
    assert "next best" not in said(make({"mfcc": RISING}))


def test_without_comparisons_nothing_is_compared():
    corpus_results = replace(
        make({"mfcc": RISING, "perch": RISING, "random": RISING}, baselines=[baseline(0.1)]),
        differences=(),
    )
    text = said(corpus_results)
    assert "ahead" not in text
    assert "beat" not in text


def test_another_encoder_that_is_clearly_better_with_more_examples_is_named():
    late = (0.2, 0.3, 0.4, 0.5, 0.58, 0.80)
    text = said(make({"mfcc": RISING, "late": late}))
    assert "from mfcc (0.60 on average" in text
    assert (
        "With 10 examples per call type, late is better than mfcc, by 0.160 of mAP (1–99 %: 0.160 to 0.160"
        in text
    )
    unclear = said(make({"mfcc": RISING, "late": late}, noise={"late": NOISE[::-1].copy()}))
    assert "late is better" not in unclear
    rare = [*MANY, ClassCount("bark", 9, 5, True, "", (12, 12))]  # at 10 it has no more to give
    assert "late is better" not in said(make({"mfcc": RISING, "late": late}, classes=rare))


def test_a_rival_is_beaten_from_some_k_on_on_average_and_clearly_from_a_later_one():
    lines = write_summary(make({"mfcc": RISING}, baselines=[baseline(0.54)]))
    assert lines[0] == (
        "mfcc beats logistic regression trained on all labelled data from 3 examples per call type on, on average (mAP "
        "0.550 against 0.540), and clearly from 10 on (1–99 % interval of the difference above 0)."
    )
    assert lines[1].startswith("With one labelled set of 5")


def test_a_rival_that_is_beaten_on_average_only_is_not_said_to_be_beaten_clearly():
    first = write_summary(make({"mfcc": RISING}, baselines=[baseline(0.59)]))[0]
    assert (
        "from 5 examples per call type on, on average (mAP 0.600 against 0.590), but not clearly with 10 (1–99 % "
        "interval of the difference not above 0)." in first
    )
    assert "and clearly" not in first


def test_a_rival_that_is_never_beaten_is_said_not_to_be():
    first = write_summary(make({"mfcc": RISING}, baselines=[baseline(0.7, "recurrent", "GRU")]))[0]
    assert first == (
        "With 10 examples per call type, mfcc does not beat GRU trained on all labelled data on average (mAP 0.640 "
        "against 0.700)."
    )


def test_a_rival_that_is_passed_and_passes_again_is_not_said_to_be_beaten():
    first = write_summary(
        make({"mfcc": (0.4, 0.5, 0.6, 0.6, 0.5, 0.5)}, baselines=[baseline(0.55)])
    )[0]
    assert "does not beat logistic regression" in first
    assert first.endswith("(mAP 0.500 against 0.550), though with 3 examples per call type it did.")


def test_two_rivals_of_one_kind_are_told_apart_by_their_names():
    pair = [
        baseline(0.54, name="LR-a"),
        baseline(0.7, name="LR-b"),
        baseline(0.1, name="LR-c", encoder="perch"),
    ]
    lines = write_summary(make({"mfcc": RISING, "perch": [0.3] * 6}, baselines=pair))
    assert lines[0].startswith("mfcc beats LR-a trained on all labelled data")
    assert "does not beat LR-b trained on all labelled data" in lines[1]
    both = [
        baseline(0.54, *AERD),
        baseline(0.54, *AERD, scoring="reduced"),
    ]  # one rival in two scorings
    text = said(make({"mfcc": RISING}, scorings=("all", "reduced"), baselines=both))
    assert text.count("beats AERD trained") == 2


def test_a_rival_in_a_scoring_that_was_not_evaluated_is_a_caution():
    rows = [baseline(0.1, scoring="reduced", metric=metric) for metric in ("map", "auroc")]
    text = said(make({"mfcc": RISING}, baselines=rows))
    assert (
        text.count(
            "Caution: what LR scored in the reduced scoring is held against nothing: no categories were"
        )
        == 1
    )
    assert "held against" not in said(
        make({"mfcc": RISING}, scorings=("all", "reduced"), baselines=rows)
    )


def test_partial_support_is_told_where_a_rival_is_beaten_with_it():
    rare = [*MANY, ClassCount("bark", 5, 3, True, "", (12, 12))]
    first = write_summary(make({"mfcc": RISING}, baselines=[baseline(0.59)], classes=rare))[0]
    assert "from up to 5 examples per call type on" in first


def test_only_rivals_of_the_best_encoder_and_those_without_one_are_told():
    baselines = [
        baseline(0.1, encoder="perch"),
        baseline(0.1, metric="auroc"),
        baseline(0.58, "end-to-end", "AERD", "", scoring="reduced"),
    ]
    text = said(
        make({"mfcc": RISING, "perch": [0.3] * 6}, scorings=("all", "reduced"), baselines=baselines)
    )
    assert "logistic" not in text
    assert (
        "mfcc beats AERD trained on all labelled data in the reduced scoring from 5 examples"
        in text
    )


def test_a_rival_with_several_metrics_is_told_once_by_its_map():
    text = said(make({"mfcc": RISING}, baselines=[baseline(0.95, metric="auroc"), baseline(0.54)]))
    assert text.count("logistic regression") == 1
    assert "0.550 against 0.540" in text


def trained(
    ahead: Sequence[float], *, draws: int = 101, name: str = "logistic", noise=NOISE, **more
) -> CorpusResults:
    """Return a chapter in which another classifier is so far ahead of the centroid at each k, on the first draws."""
    corpus_results = make({"mfcc": RISING}, **more)
    (own,) = corpus_results.evaluation.values
    values = own.value[:, :draws] + np.array(ahead)[:, None] + noise[:draws]
    others = replace(
        corpus_results.evaluation,
        values=[replace(own, classifier=name, value=values)],
        curve=[],
        per_class=[],
    )
    crossovers = find_crossovers(
        [own],
        [],
        others.values if name == "logistic" else [],
        corpus_results.evaluation.complete_shots,
    )
    return replace(corpus_results, others=others, crossovers=crossovers)


def training_of(corpus_results: CorpusResults) -> str:
    (sentence,) = [
        line for line in write_summary(corpus_results) if line.startswith("With the same examples")
    ]
    return sentence


def test_training_on_the_same_examples_is_told_to_pay_from_where_it_does():
    corpus_results = trained((-0.2, -0.15, 0.05, 0.05, 0.15, 0.2))
    assert training_of(corpus_results) == (
        "With the same examples, logistic regression on mfcc is ahead of the nearest centroid from 3 examples per call "
        "type on, on average (mAP 0.600 against 0.550), and clearly from 5 on (1–99 % interval of the difference above "
        "0); with fewer, the nearest centroid is better."
    )
    (crossing,) = corpus_results.crossovers
    assert (crossing.k, crossing.k_clear) == (3, 5)


def test_training_that_always_pays_is_said_to_with_the_means_at_a_few_examples():
    assert training_of(trained([0.15] * 6)) == (
        "With the same examples, logistic regression on mfcc is ahead of the nearest centroid at every k, on average "
        "(mAP 0.750 against 0.600 with 5 examples per call type), and clearly from 1 on (1–99 % interval of the "
        "difference above 0)."
    )


def test_training_that_pays_on_average_only_is_not_said_to_pay_clearly():
    assert training_of(trained([0.05] * 6)).endswith(
        ", but not clearly with 10 (1–99 % interval of the difference not above 0)."
    )


def test_training_that_never_pays_is_said_not_to():
    assert training_of(trained([-0.05] * 6)) == (
        "With the same examples, logistic regression on mfcc is not ahead of the nearest centroid on average with 10 "
        "examples per call type (mAP 0.590 against 0.640)."
    )
    assert training_of(trained([-0.05] * 3 + [-0.2] * 3)).endswith(
        "(mAP 0.440 against 0.640), and clearly behind from 4 on."
    )
    assert ", though with 2 examples per call type it is" in training_of(
        trained([-0.1, 0.1, -0.1, -0.1, -0.1, -0.1])
    )


def test_that_fewer_examples_are_better_for_the_centroid_is_said_only_where_they_all_are():
    assert "with fewer" not in training_of(trained([0.1, -0.1, 0.1, 0.1, 0.1, 0.1]))


def test_with_fewer_than_a_hundred_draws_training_is_told_on_average():
    told = training_of(trained([-0.1, 0.3, 0.3, 0.3, 0.3, 0.3], draws=99))
    assert "from 2 examples per call type on, on average" in told
    assert "clearly" not in told
    assert "clearly" not in training_of(trained([-0.3] * 6, draws=99))


def test_beyond_k_star_training_is_not_said_to_pay_clearly():
    rare = [*MANY, ClassCount("bark", 9, 5, True, "", (12, 12))]
    told = training_of(trained([-0.2, -0.1, 0.15, 0.15, 0.15, 0.15], classes=rare))
    assert "and clearly from 3 on, up to 5 (1–99" in told
    late = training_of(trained([-0.2, -0.2, -0.2, -0.2, -0.2, 0.15], classes=rare))
    assert (
        "from up to 10 examples per call type on, on average (mAP 0.790 against 0.640); with fewer, the"
        in late
    )


def test_draws_that_differ_by_nothing_make_training_not_clear():
    assert "clearly" not in training_of(trained([0.1] * 6, noise=np.zeros(101)))


def test_training_is_told_of_the_best_encoder_and_where_both_met_the_same_draws():
    corpus_results = trained([0.1] * 6)
    away = [replace(v, encoder="other") for v in corpus_results.others.values]
    assert "With the same" not in said(
        replace(corpus_results, others=replace(corpus_results.others, values=away))
    )
    apart = [replace(v, spread="per-query") for v in corpus_results.others.values]
    assert "With the same" not in said(
        replace(corpus_results, others=replace(corpus_results.others, values=apart))
    )


def test_another_rule_is_named_where_it_is_clearly_better_with_a_few_examples():
    better = said(trained([0, 0, 0, 0, 0.15, 0], name="cl2n"))
    assert (
        "Clearly better than the nearest centroid with mfcc and 5 examples per call type, also without training: CL2N "
        "by 0.150 of mAP (1–99 %: 0.052 to 0.248 over labelled sets)." in better
    )
    worse = said(trained([0.15, 0.15, 0.15, 0.15, 0.05, 0.15], name="cl2n"))
    assert (
        "No other rule without training is clearly better than the nearest centroid with mfcc and 5 examples"
        in worse
    )
    few = said(trained([0.3] * 6, name="cl2n", draws=99))
    assert "without training" not in few


def test_what_gradient_steps_buy_is_told_with_the_best_of_them_as_a_description():
    def refined(*values: float) -> str:
        steps = [
            RefinementStep("herd", "mfcc", "all", "map", 10**n - 1, v, 2.0)
            for n, v in enumerate(values)
        ]
        elsewhere = [replace(row, encoder="other", value=0.0) for row in steps]
        return said(replace(make({"mfcc": RISING}), refinement=[*elsewhere, *reversed(steps)]))

    whole = "With mfcc, 99 gradient steps from the centroid of all labels to logistic regression take mAP from 0.500 to "
    assert (
        f"{whole}0.700; step 9, on the way, has 0.800: a description of these queries, not a choice."
        in refined(0.5, 0.8, 0.7)
    )
    assert f"{whole}0.700." in refined(0.5, 0.6, 0.7)
    assert f"{whole}0.300." in refined(0.5, 0.4, 0.3)
    assert "gradient step" not in refined(0.5)


def test_the_first_sentences_agree_with_the_crossings():
    baselines = [
        baseline(0.54),
        baseline(0.1, "recurrent", "GRU"),
        baseline(0.9, "end-to-end", "AERD", ""),
    ]
    corpus_results = make({"mfcc": RISING}, baselines=baselines)
    lines = write_summary(corpus_results)
    for line, c in zip(
        lines, find_crossovers(corpus_results.evaluation.values, baselines), strict=False
    ):
        assert ("does not beat" in line) == (c.k is None)
        assert (
            c.k is None
            or f"from {c.k} example{'s' * (c.k != 1)} per call type on, on average" in line
        )
        assert (c.k_clear is None) == ("clearly from" not in line)
        assert c.k_clear is None or f"clearly from {c.k_clear} on" in line


def test_a_rival_that_is_passed_twice_is_told_with_the_first_time():
    text = said(make({"mfcc": (0.40, 0.56, 0.50, 0.58, 0.60, 0.64)}, baselines=[baseline(0.54)]))
    assert (
        "from 4 examples per call type on, on average (mAP 0.580 against 0.540; the first time with 2)"
        in text
    )


def test_reduced_scoring_is_told_of_rivals_that_hear_the_audio_or_have_no_other():
    baselines = [
        baseline(0.5),
        baseline(0.5, scoring="reduced"),
        baseline(0.5, "recurrent", "GRU", scoring="reduced"),
        baseline(0.5, "end-to-end", "AERD", ""),
        baseline(0.5, "end-to-end", "AERD", "", scoring="reduced"),
    ]
    lines = [
        line
        for line in write_summary(
            make({"mfcc": RISING}, scorings=("all", "reduced"), baselines=baselines)
        )
        if "beats" in line
    ]
    told = [
        (name, "reduced scoring" in line)
        for line in lines
        for name in ("logistic", "GRU", "AERD")
        if name in line
    ]
    assert told == [("logistic", False), ("GRU", True), ("AERD", False), ("AERD", True)]


def test_where_a_curve_is_level_it_is_said_from_where_on():
    flat = (0.40, 0.50, 0.60, 0.605, 0.607, 0.608)
    assert (
        "With mfcc, more than 3 examples per call type add no more than 0.01 of mAP (up to 10)."
        in said(make({"mfcc": flat}))
    )


def test_a_curve_that_still_rises_is_not_called_level():
    text = said(make({"mfcc": RISING}))
    assert "add no more" not in text
    assert (
        "mAP still rises by 0.040 from 5 to 10 examples per call type, the most that was evaluated with"
        in text
    )


def test_a_curve_that_is_level_only_where_supports_are_partial_is_not_called_level():
    flat = (0.40, 0.50, 0.60, 0.70, 0.70, 0.70)
    rare = [*MANY, ClassCount("bark", 6, 4, True, "", (12, 12))]
    text = said(make({"mfcc": flat}, classes=rare))
    assert "add no more" not in text
    assert "mAP still rises by 0.100 from 3 to 4 examples per call type" in text
    assert "more than 4 examples per call type add no more" in said(make({"mfcc": flat}))


def test_a_curve_that_rises_only_where_supports_are_partial_is_called_neither():
    rare = [*MANY, ClassCount("bark", 6, 4, True, "", (12, 12))]
    text = said(make({"mfcc": (0.5, 0.5, 0.505, 0.505, 0.6, 0.7)}, classes=rare))
    assert "add no more" not in text
    assert "still rises" not in text


def test_that_nothing_is_better_than_chance_comes_first():
    corpus_results = make(
        {"mfcc": [0.25] * 6, "perch": [0.26] * 6}, baselines=[baseline(0.5, encoder="perch")]
    )
    lines = write_summary(corpus_results)
    assert lines[0] == (
        "Nothing here is clearly better than chance: even with 10 examples per call type, perch has a 1–99 % interval "
        "from 0.16 to 0.36 of mAP, and chance is 0.20."
    )
    assert not any("better than chance from" in line for line in lines)


def test_from_where_on_the_best_encoder_is_above_chance_is_told():
    text = said(make({"mfcc": RISING}, chance=0.43))
    assert "mfcc is clearly better than chance from 3 examples per call type on." in text
    assert "Nothing here" not in text


def test_an_encoder_that_is_above_chance_only_in_between_is_not_said_to_be_above_it():
    text = said(make({"mfcc": (0.2, 0.2, 0.5, 0.5, 0.5, 0.25)}))
    assert "clearly better than chance from" not in text
    assert "Nothing here" not in text
    assert (
        "mfcc is not at every k clearly better than chance: with 10 examples per call type, mfcc has"
        in text
    )


def test_the_floor_is_never_the_best_and_the_best_is_held_against_it():
    text = said(make({"random": [0.9] * 6, "mfcc": RISING}))
    assert "from mfcc (0.60 on average" in text
    assert (
        "mfcc is not clearly better than vectors of pure chance (the encoder random): behind by 0.300 of mAP"
        in text
    )
    assert (
        "Caution: even the encoder random is above chance here (mAP 0.90, chance is 0.20)" in text
    )
    text = said(make({"mfcc": RISING, "random": [0.2] * 6}))
    assert (
        "mfcc is clearly better than vectors of pure chance (the encoder random): ahead by 0.400 of mAP"
        in text
    )
    assert "even the encoder random" not in text
    assert "the next best" not in text


def test_the_floor_alone_is_told_for_what_it_is():
    text = said(make({"random": [0.22] * 6}))
    assert "Only the encoder random was evaluated" in text
    assert text.startswith("Nothing here is clearly better than chance")


def test_a_floor_with_choices_is_the_floor_too():
    floor = "random[dimension=80]"
    text = said(make({floor: [0.9] * 6, "mfcc": RISING, "random": [0.1] * 6}))
    assert "from mfcc (0.60 on average" in text
    assert (
        f"mfcc is not clearly better than vectors of pure chance (the encoder {floor}): behind by 0.300"
        in text
    )
    assert (
        "mfcc is clearly better than vectors of pure chance (the encoder random): ahead by 0.500"
        in text
    )
    assert text.count("Caution: even the encoder") == 1
    assert f"even the encoder {floor} is above chance" in text
    assert "the next best" not in text
    alone = said(make({floor: [0.22] * 6, "random": [0.21] * 6}))
    assert "Only the encoder random was evaluated" in alone
    assert "pure chance" not in alone
    other = said(make({"randomised": RISING, "random": [0.2] * 6}))
    assert "randomised is clearly better than vectors of pure chance (the encoder random)" in other


# --- when nothing may be called clear


def test_with_few_samples_only_averages_are_told():
    late = (0.2, 0.3, 0.4, 0.5, 0.58, 0.80)
    means = {"mfcc": RISING, "late": late, "random": [0.2] * 6}
    lines = write_summary(
        make(means, noise=dict.fromkeys(means, NOISE[1:-1]), baselines=[baseline(0.3)])
    )
    assert lines[0] == (
        "mfcc beats logistic regression trained on all labelled data from 1 example per call type on, on average (mAP "
        "0.400 against 0.300)."
    )
    assert lines[1:4] == [
        "With 5 examples per call type, mfcc reaches mAP 0.60 on average (chance is 0.20).",
        "With 5 examples per call type, mfcc is on average ahead of late, the next best, by 0.020 of mAP.",
        "With mfcc, mAP still rises by 0.040 from 5 to 10 examples per call type, the most that was evaluated with "
        "every call type complete.",
    ]
    assert lines[4:6] == [
        "mfcc is on average better than chance from 1 example per call type on.",
        "mfcc is on average better than vectors of pure chance (the encoder random): ahead by 0.400 of mAP.",
    ]
    assert lines[-1] == (
        "Caution: only averages are told: a 1–99 % interval needs 100 labelled sets at least, and there are 99."
    )
    enough = said(make(means, noise=dict.fromkeys(means, NOISE[:100]), baselines=[baseline(0.3)]))
    assert enough.count("clear") == 5
    assert "late is better than mfcc" in enough


def test_with_few_samples_a_floor_that_is_ahead_and_chance_are_told_on_average():
    few = {"mfcc": NOISE[[0, 50, 100]], "random": NOISE[[0, 50, 100]]}
    text = said(make({"mfcc": [0.19] * 6, "random": [0.9] * 6}, noise=few))
    assert text.startswith(
        "Nothing here is better than chance on average: even with 10 examples per call type, mfcc reaches mAP 0.19, "
        "and chance is 0.20."
    )
    assert (
        "mfcc is not on average better than vectors of pure chance (the encoder random): behind by 0.710"
        in text
    )
    assert "better than chance from" not in text
    assert "even the encoder random" not in text
    assert "clear" not in text
    between = said(make({"mfcc": (0.1, 0.1, 0.5, 0.5, 0.5, 0.1)}, noise=few))
    assert "better than chance" not in between


def test_beyond_k_star_nothing_is_called_clear():
    rare = [*MANY, ClassCount("bark", 9, 4, True, "", (12, 12))]
    steady = {"mfcc": NOISE / 100}
    first, *rest = write_summary(
        make({"mfcc": RISING}, noise=steady, baselines=[baseline(0.54)], classes=rare)
    )
    assert first.endswith(
        "and clearly from 3 on, up to 4 (1–99 % interval of the difference above 0)."
    )
    assert "mfcc is clearly better than chance from 1 example per call type on, up to 4." in rest
    first = write_summary(
        make({"mfcc": RISING}, noise=steady, baselines=[baseline(0.57)], classes=rare)
    )[0]
    assert first.endswith("and clearly with 4 (1–99 % interval of the difference above 0).")
    first = write_summary(
        make({"mfcc": RISING}, noise=steady, baselines=[baseline(0.59)], classes=rare)
    )[0]
    assert first.endswith(
        "from up to 5 examples per call type on, on average (mAP 0.600 against 0.590)."
    )
    means = {"mfcc": RISING[-1:], "perch": [0.3], "random": [0.2]}
    text = said(make(means, shots=[10], baselines=[baseline(0.2)], classes=rare))
    assert "clear" not in text
    assert "mfcc is on average better than chance from up to 10 examples per call type on." in text


def test_the_last_verdict_is_that_at_k_star():
    late, rare = (
        (0.2, 0.3, 0.4, 0.5, 0.58, 0.80),
        [*MANY, ClassCount("bark", 9, 4, True, "", (12, 12))],
    )
    text = said(make({"mfcc": [0.25] * 4 + [0.9] * 2}, classes=rare))
    assert text.startswith(
        "Nothing here is clearly better than chance: even with 4 examples per call type, mfcc has"
    )
    means = {"mfcc": (0.6, 0.6, 0.6), "late": (0.5, 0.8, 0.4)}
    text = said(
        make(
            means,
            shots=(5, 10, 20),
            classes=[*MANY, ClassCount("bark", 16, 10, True, "", (12, 12))],
        )
    )
    assert "With 10 examples per call type, late is better than mfcc, by 0.200" in text
    few = {"mfcc": NOISE[:99], "late": NOISE[:99]}
    assert "late is better" not in said(make({"mfcc": RISING, "late": late}, noise=few))


def test_a_rival_passed_for_good_only_beyond_k_star_is_not_clearly_beaten_before():
    rare = [*MANY, ClassCount("bark", 9, 4, True, "", (12, 12))]
    dip = (0.8, 0.8, 0.8, 0.8, 0.4, 0.6)
    first = write_summary(
        make({"mfcc": dip}, noise={"mfcc": NOISE / 100}, baselines=[baseline(0.5)], classes=rare)
    )[0]
    assert first.endswith(
        "from up to 10 examples per call type on, on average (mAP 0.600 against 0.500; the first time with 1)."
    )


def test_draws_that_are_all_alike_make_nothing_clear():
    same = np.zeros(101)
    text = said(
        make(
            {"mfcc": RISING, "perch": [0.3] * 6},
            noise={"mfcc": same, "perch": same},
            baselines=[baseline(0.2)],
        )
    )
    assert "clear" not in text
    assert "expect mAP between" not in text
    assert "mfcc reaches mAP 0.60 on average" in text
    perfect = said(make({"mfcc": [1.0] * 6, "perch": [0.3] * 6}, noise={"mfcc": same}))
    assert "ahead of perch, the next best, by 0.700 of mAP (1–99 %" in perfect
    assert ": a clear difference" in perfect


def test_where_only_the_last_draws_are_alike_the_verdict_is_that_before():
    corpus_results = make({"mfcc": RISING})
    curve = [
        replace(c, p01=c.mean, p99=c.mean) if c.k == 10 else c
        for c in corpus_results.evaluation.curve
    ]
    text = said(replace(corpus_results, evaluation=replace(corpus_results.evaluation, curve=curve)))
    assert "mfcc is clearly better than chance from 1 example per call type on, up to 5." in text


def test_the_class_that_gains_most_is_named_with_what_it_gains():
    rows = [
        worth("roar", 0.01),
        worth("bark", 0.02),
        worth("rumble", math.nan),
        worth("trumpet", 0.9, encoder="perch"),
    ]
    assert (
        "By its curve with mfcc, 'bark' has most to gain from more examples: about 0.020 of AP from 4 to 5, 0.050 from "
        "4 to 8; 1 of 3 call types have too few complete shots for such a curve."
        in said(make({"mfcc": RISING}, budget=rows))
    )


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [worth("bark", math.nan)],
        [worth("bark", 0.001)],
        [worth("bark", 0.02, error=0.06)],
        [worth("bark", 0.0)],
        [worth("bark", 0.02), worth("noise", 0.03, error=0.5)],
    ],
)
def test_a_gain_that_is_unknown_small_or_badly_fitted_is_not_told(rows):
    assert "to gain" not in said(make({"mfcc": RISING}, budget=rows))


def test_classes_that_were_not_evaluated_are_counted_with_their_reasons():
    out = [
        ClassCount(f"call {i}", 1, 0, False, f"in {i} recordings, and 5 folds need 5", (0, 0))
        for i in range(5)
    ]
    assert (
        "5 of 7 call types were not evaluated: 'call 0' (in 0 recordings, and 5 folds need 5); 'call 1' (in 1 "
        "recordings, and 5 folds need 5); 'call 2' (in 2 recordings, and 5 folds need 5); and 2 more."
        in said(make({"mfcc": RISING}, classes=[*MANY, *out]))
    )
    assert (
        "1 of 3 call types was not evaluated: 'call 0' (in 0 recordings, and 5 folds need 5)."
        in said(make({"mfcc": RISING}, classes=[*MANY, out[0]]))
    )
    assert "not evaluated" not in said(make({"mfcc": RISING}))


def test_a_small_number_of_complete_shots_is_a_caution_where_more_were_tried():
    rare = [*MANY, ClassCount("bark", 5, 3, True, "", (12, 12))]
    assert (
        "Caution: beyond k* = 3 not every call type has that many different examples to give"
        in said(make({"mfcc": RISING}, classes=rare))
    )
    assert "give all they have" not in said(
        make({"mfcc": RISING}, classes=rare)
    )  # not so with replacement
    assert "Caution" not in said(make({"mfcc": RISING[:3]}, shots=SHOTS[:3], classes=rare))
    assert "Caution" not in said(make({"mfcc": RISING}))


def test_few_queries_are_a_caution():
    few = [
        *MANY,
        ClassCount("bark", 29, 20, True, "", (4, 3)),
        ClassCount("out", 1, 0, False, "why", (1, 0)),
    ]
    assert "Caution: few queries, 60 in all and 7 of 'bark'" in said(
        make({"mfcc": RISING}, classes=few)
    )
    assert "few queries" not in said(make({"mfcc": RISING}))


def test_with_the_spread_of_the_paper_alone_no_labelled_set_is_spoken_of():
    lines = write_summary(
        make({"mfcc": RISING, "perch": [0.3] * 6}, spread="per-query", baselines=[baseline(0.59)])
    )
    assert (
        lines[1]
        == "With 5 examples per call type, mfcc reaches mAP 0.60 on average (chance is 0.20)."
    )
    assert "ahead in 100 % of bootstrap samples" in lines[2]
    assert "labelled sets" not in "".join(lines)
    assert "one labelled set for all queries would do is not in them" in lines[-1]


def test_the_shared_spread_is_read_where_there_are_two():
    one, two = make({"mfcc": [0.3] * 6}, spread="per-query"), make({"mfcc": RISING})
    few = [replace(v, value=v.value[:, :9]) for v in one.evaluation.values]
    points = [*one.evaluation.curve, *two.evaluation.curve]
    both = replace(two.evaluation, curve=points, values=[*few, *two.evaluation.values])
    assert write_summary(
        replace(two, evaluation=both, differences=[*one.differences, *two.differences])
    ) == write_summary(two)


def test_what_the_intervals_leave_out_is_always_said():
    assert write_summary(make({"mfcc": RISING}))[-1].endswith(
        "recorded and queried is not in them."
    )


def test_small_differences_and_shares_near_the_ends_are_not_rounded_away():
    lift = np.where(np.arange(101) == 50, -0.001, 0.0)
    text = said(
        make(
            {"mfcc": [0.5999] * 6, "perch": [0.6] * 6}, noise={"mfcc": NOISE, "perch": NOISE + lift}
        )
    )
    assert (
        "by 0.00009 of mAP (1–99 %: 0.00010 to 0.00010; ahead in >99 % of labelled sets): a clear"
        in text
    )


def test_names_from_files_stay_on_their_line():
    odd = [*MANY, ClassCount("a\nb\x1b[31m", 1, 0, False, "why", (0, 0))]
    lines = write_summary(
        make({"per\nch": RISING}, classes=odd, budget=[worth("bark\r", 0.02, encoder="per\nch")])
    )
    assert all(line.isprintable() for line in lines)
    assert any("'a\N{REPLACEMENT CHARACTER}b" in line for line in lines)


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(["a", "b", "random"]), st.floats(0, 2), min_size=1),
    st.integers(0, 99),
    st.sampled_from([("shared",), ("per-query",), ("per-query", "shared")]),
    st.booleans(),
    st.sampled_from([(), (10,), (1, 2, 40)]),
)
def test_any_evaluation_is_told_in_whole_sentences_with_numbers_that_are_its_own(
    apart, seed, spreads, all_, shots
):
    samples = 20 if seed % 2 else 100
    protocol = replace(SMALL, draws=4, bootstraps=samples, shared_draws=samples, spreads=spreads)
    protocol = (
        replace(protocol, shots=shots, whole_pool=True)
        if all_ or not shots
        else replace(protocol, shots=shots)
    )
    corpus_results = make_corpus_results(
        make_tables(encoders=apart, recordings=6, each=1, seed=seed), protocol=protocol
    )
    result = corpus_results.evaluation
    baselines = [
        Baseline("corpus", name, "logistic", "LR", "all", m, 0.6)
        for name in apart
        for m in ("map", "auroc")
    ]
    budget, compared = (
        label_budget(result.per_class, result.classes),
        compare(result.values, baselines),
    )
    lines = write_summary(
        replace(corpus_results, baselines=baselines, differences=compared, budget=budget)
    )
    assert lines
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9].*\.", line)
        assert "nan" not in line.lower()
        assert samples == 100 or "clear" not in line
    means = {f"{c.mean:.2f}" for c in result.curve if c.metric == "map"}
    told = [m[1] for line in lines for m in re.finditer(r"(\d\.\d\d) on average[; ]", line)]
    assert told
    assert set(told) <= means


def test_undefined_auroc_does_not_stop_the_answer():
    tables = make_tables(["roar", "rumble"], encoders=("a", "b"), recordings=6, each=1)
    tables = [replace(table, labels=[("roar", "rumble")] * len(table)) for table in tables]
    corpus_results = make_corpus_results(tables)
    assert any(math.isnan(c.mean) for c in corpus_results.evaluation.curve)
    corpus_results = replace(corpus_results, differences=compare(corpus_results.evaluation.values))
    assert write_summary(corpus_results)[0].startswith(
        "Nothing here is better than chance on average"
    )
    corpus_results = make_corpus_results(tables, protocol=replace(SMALL, shared_draws=100))
    assert write_summary(corpus_results)[0].startswith("Nothing here is clearly better than chance")
