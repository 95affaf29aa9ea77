"""Results whose truth is known: what their summary says, and what it must not say."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.fewshot.protocol import Protocol
from callshot.records import ClassCount
from callshot.records.frames import REFINEMENT
from callshot.report.summary import write_summary
from callshot.report.write_report import describe_methods, list_references
from corpus_results import (
    SMALL,
    make_baselines,
    make_corpus_results,
    make_rows,
    make_tables,
    replace_frames,
)
from summaries import (
    COMMON,
    LATE,
    NOISE,
    RISING,
    SHOTS,
    baseline,
    class_budget,
    end_to_end,
    make,
    make_trained,
    with_rare,
)

MFCC = {"mfcc": RISING}
WORSE = [mean - 0.05 for mean in RISING]


def lines_of(results, *arguments):
    """Return all paragraphs of a summary, whatever question they answer."""
    answers = write_summary(results, *arguments).answers
    return [text for texts in answers.values() for text in texts]


def answers_of(results, section):
    return list(write_summary(results).answers[section])


def summary_text(results):
    return "\n".join(lines_of(results))


def check(results, *said, never=()):
    """Check what a summary says, and what it does not say."""
    text = summary_text(results)
    for words in said:
        assert words in text
    for words in never:
        assert words not in text


# What to expect of a few examples


def test_the_first_sentences_say_what_to_expect_of_a_few_examples():
    results = make(MFCC)
    first = lines_of(results)[0]
    assert first.startswith(
        "With 5 examples per call type, MFCC reaches mAP 0.60 on average; chance is 0.20."
    )
    assert "One labelled set gives 0.50 to 0.70 on other recordings" in first
    curve = results.evaluation.curve
    accuracy = curve.filter(k=5).with_columns(metric=pl.lit("accuracy"), mean=0.716)
    balanced = accuracy.with_columns(metric=pl.lit("balanced_accuracy"), mean=0.633)
    auroc = curve.with_columns(metric=pl.lit("auroc"), mean=math.nan)
    frames = pl.concat([curve, accuracy, balanced, auroc])
    second = lines_of(replace_frames(results, curve=frames))[1]
    shares = re.findall(r"(\d+) %", second)
    assert shares == ["72", "20", "67", "63"]  # right, guessed, most frequent, balanced


def test_a_few_examples_are_at_most_as_many_as_every_call_type_has():
    rare = with_rare(3)
    check(make(MFCC, classes=rare), "With 3 examples per call type, MFCC reaches mAP")
    first = lines_of(make({"mfcc": [0.6]}, shots=[10], classes=rare))[0]
    assert first.startswith("With up to 10 examples per call type, MFCC")
    check(make({"mfcc": [0.6]}, shots=[1]), "With 1 example per call type, MFCC")


# Encoders


def test_the_best_encoder_is_compared_with_the_next_best():
    check(
        make({"third": [0.3] * 6, "mfcc": WORSE, "perch": RISING}),
        "perch reaches mAP 0.60 on average",
        "perch is on average ahead of MFCC by 0.050 of mAP (98 % interval: 0.050 to",
        "ahead in 100 % of 101 samples. The difference is clear.",
        never=["third"],
    )
    check(make(MFCC), never=["ahead of"])
    check(
        make({"mfcc": WORSE, "perch": RISING}, noise={"perch": NOISE[::-1]}),
        "(98 % interval: −0.146 to 0.246). It is ahead in 62 % of 101 samples.",
        "The difference is not clear, because the interval includes 0.",
        never=["difference is clear"],
    )
    results = make({**MFCC, "perch": RISING}, baselines=[baseline(0.1)])
    differences = results.evaluation.differences.clear()
    uncompared = replace_frames(results, differences=differences)
    check(uncompared, never=["ahead", "beat"])


def test_another_encoder_is_named_if_it_is_clearly_better_with_more_examples():
    means = {**MFCC, "late": LATE}
    better = (
        "With 10 examples per call type, late is clearly better than MFCC, by 0.160"
    )
    check(make(means), "MFCC reaches mAP 0.60 on average", better)
    few = dict.fromkeys(means, NOISE[:99])
    for options in (
        {"noise": {"late": NOISE[::-1]}},
        {"noise": few},
        {"classes": with_rare(5)},
    ):
        check(make(means, **options), never=["late is clearly"])
    crossing = {"mfcc": (0.6, 0.6, 0.6), "late": (0.5, 0.8, 0.4)}
    check(
        make(crossing, shots=(5, 10, 20), classes=with_rare(10, 16)),
        "With 10 examples per call type, late is clearly better than MFCC, by 0.200",
    )


def test_chance_is_tested_up_to_k_star_and_that_nothing_is_better_comes_first():
    means = {"mfcc": [0.25] * 6, "perch": [0.26] * 6}
    lines = lines_of(make(means, baselines=[baseline(0.5, encoder="perch")]))
    assert lines[0].startswith("Nothing here is clearly better than chance. With 10")
    assert "perch reaches mAP 0.26; chance is 0.20, and p = 0.500." in lines[0]
    assert not any("better than chance from" in line for line in lines)
    check(
        make(MFCC, chance=0.43),
        "MFCC is clearly better than chance from 3 examples per call type on. The test",
        "p at most 0.005 with 3, 4, 5, 10, by 199 permutations",
        never=["Nothing here"],
    )
    check(
        make({"mfcc": (0.2, 0.2, 0.5, 0.5, 0.5, 0.25)}),
        "MFCC is clearly better than chance at some k only.",
        never=["better than chance from", "Nothing here"],
    )
    late = make({"mfcc": [0.25] * 4 + [0.9] * 2}, classes=with_rare(4))
    check(late, "Nothing here is clearly better than chance. With 4 examples")
    results = make(MFCC)
    tests = results.evaluation.chance_test.filter(pl.col("k") < 10)
    above = "is clearly better than chance from 1 example per call type on, up to 5."
    check(replace_frames(results, chance_test=tests), above)
    untested = replace_frames(results, chance_test=tests.clear())
    check(untested, "MFCC is on average better than chance from 1 example")


def test_random_vectors_are_never_the_best_and_the_best_is_compared_with_them():
    behind = (
        "MFCC is not clearly better than random vectors (the encoder random): behind"
    )
    ahead = "MFCC is clearly better than random vectors (the encoder random): ahead by"
    check(
        make({"random": [0.9] * 6, **MFCC}),
        "MFCC reaches mAP 0.60 on average",
        f"{behind} by 0.300 of mAP",
        "Caution: even the encoder random reaches mAP 0.90",
    )
    check(
        make({**MFCC, "random": [0.2] * 6}),
        f"{ahead} 0.400 of mAP",
        never=["even the encoder random", "ahead of"],
    )
    name = "random (dimension=80)"
    typed = "random[dimension=80]"
    check(
        make({typed: [0.9] * 6, **MFCC, "random": [0.1] * 6}),
        "MFCC reaches mAP 0.60 on average",
        behind.replace("random):", f"{name}):"),
        f"{ahead} 0.5",
        f"Caution: even the encoder {name} reaches mAP 0.90",
        never=["ahead of"],
    )
    alone = make({typed: [0.22] * 6, "random": [0.21] * 6})
    check(alone, "Only the encoder random was evaluated", never=["random vectors"])
    check(make({"randomised": RISING, "random": [0.2] * 6}), "randomised is clearly")


# Baselines


def test_a_baseline_is_beaten_from_the_k_after_which_it_always_is():
    for means, value, said in (
        (RISING, 0.54, "With 3, mAP is 0.550 against 0.540."),
        (RISING, 0.7, "There, mAP is 0.640 against 0.700."),
        ((0.4, 0.5, 0.6, 0.6, 0.5, 0.5), 0.55, "0.500 against 0.550. It does with 3."),
        ((0.40, 0.56, 0.50, 0.58, 0.60, 0.64), 0.54, "for the first time with 2."),
    ):
        results = make({"mfcc": means}, baselines=[baseline(value)])
        (first,) = answers_of(results, "training")
        assert said in first
    # Beyond k*, it is not clearly beaten.
    options = {"noise": {"mfcc": NOISE / 100}, "classes": with_rare(4)}
    for value, ending in (
        (0.54, "clear from 3 on, up to 4: its 98 % interval is above 0."),
        (0.57, "The difference is clear with 4: its 98 % interval is above 0."),
        (0.59, "from up to 5 examples per call type on. With 5, mAP is 0.600 against"),
    ):
        results = make(MFCC, baselines=[baseline(value)], **options)
        (first,) = answers_of(results, "training")
        assert ending in first
        assert ("is clear" in first) == ("clear" in ending)


def test_the_first_sentences_agree_with_the_crossovers():
    baselines = [baseline(0.54), baseline(0.1, "recurrent", "GRU"), end_to_end(0.9)]
    results = make(MFCC, baselines=baselines)
    crossovers = results.evaluation.crossovers
    assert len(crossovers) == 3
    lines = answers_of(results, "training")
    for line, row in zip(lines, crossovers.iter_rows(named=True), strict=True):
        k_mean = row["k_mean"]
        k_clear = row["k_clear"]
        assert ("does not beat" in line) == (k_mean is None)
        assert k_mean is None or re.search(
            f"on average (at every k|from {k_mean} examples? per)", line
        )
        assert (k_clear is None) == ("is clear from" not in line)
        assert k_clear is None or f"is clear from {k_clear} on" in line


def test_baselines_of_the_best_encoder_and_those_without_one_are_compared_by_their_map():
    rows = [
        baseline(0.54, name="LR-a"),
        baseline(0.95, name="LR-a", metric="auroc"),
        baseline(0.7, name="LR-b"),
        baseline(0.1, name="LR-c", encoder="perch"),
    ]
    results = make({**MFCC, "perch": [0.3] * 6}, baselines=rows)
    lines = answers_of(results, "training")
    assert len(lines) == 2
    assert lines[0].startswith("MFCC beats LR-a trained on all labelled data")
    assert "0.550 against 0.540" in lines[0]
    assert "does not beat LR-b trained on all labelled data" in lines[1]


def test_reduced_scoring_is_for_baselines_that_read_audio_or_have_no_other_score():
    baselines = [
        baseline(0.5),
        baseline(0.5, scoring="reduced"),
        baseline(0.5, "recurrent", "GRU", scoring="reduced"),
        end_to_end(0.5),
        end_to_end(0.5, "reduced"),
    ]
    lines = lines_of(make(MFCC, scorings=("all", "reduced"), baselines=baselines))
    found = []
    for line in lines:
        match = re.search("beats (logistic|GRU|AERD)", line)
        if match:
            found.append((match[1], "reduced scoring" in line))
    names = ("logistic", "GRU", "AERD", "AERD")
    assert found == list(zip(names, (False, True, False, True), strict=True))
    rows = [
        baseline(0.1, scoring="reduced", metric=metric) for metric in ("map", "auroc")
    ]
    caution = "Caution: the reduced scores of LR are not compared, because no"
    assert summary_text(make(MFCC, baselines=rows)).count(caution) == 1
    both = make(MFCC, scorings=("all", "reduced"), baselines=rows)
    check(both, never=["not compared"])


# Training on the same examples, and other classifiers


def training_sentence(results):
    lines = lines_of(results)
    (sentence,) = [line for line in lines if line.startswith("On the same examples")]
    return sentence


def test_training_pays_from_the_k_of_the_crossover():
    results = make_trained((-0.2, -0.15, 0.05, 0.05, 0.15, 0.2))
    sentence = training_sentence(results)
    assert "on average from 3 examples per call type on. With 3, mAP is 0.6" in sentence
    assert "The difference is clear from 5 on" in sentence
    crossovers = results.evaluation.crossovers.select("k_mean", "k_clear")
    assert crossovers.rows() == [(3, 5)]
    rare = with_rare(5)
    for lead, classes, said in (
        ([0.05] * 6, COMMON, " With 10, the difference is not clear"),
        ([-0.05] * 3 + [-0.2] * 3, COMMON, "It is clearly worse from 4 on."),
        ([-0.2, -0.1] + [0.15] * 4, rare, "is clear from 3 on, up to 5: its 98"),
        ([-0.2] * 5 + [0.15], rare, "from up to 10 examples per call type on. With 10"),
    ):
        assert said in training_sentence(make_trained(lead, classes=classes))
    for lead, options in (
        ([-0.1, 0.3, 0.3, 0.3, 0.3, 0.3], {"draws": 99}),
        ([-0.3] * 6, {"draws": 99}),
        ([0.1] * 6, {"noise": np.zeros(101)}),
    ):
        assert "clear" not in training_sentence(make_trained(lead, **options))


@pytest.mark.parametrize("change", [{"encoder": "other"}, {"spread": "per-query"}])
def test_training_is_compared_only_for_the_best_encoder_and_on_the_same_draws(change):
    results = make_trained([0.1] * 6)
    literals = {column: pl.lit(value) for column, value in change.items()}
    values = results.other_classifiers.values.with_columns(**literals)
    others = replace(results.other_classifiers, values=values)
    check(replace(results, other_classifiers=others), never=["On the same"])


def test_another_classifier_is_named_if_it_is_clearly_better_with_a_few_examples():
    check(
        make_trained([0, 0, 0, 0, 0.15, 0], name="cl2n"),
        "Without training, CL2N is clearly better than the nearest centroid with MFCC",
        "The difference is 0.150 of mAP (98 % interval: 0.052 to 0.248",
    )
    worse = make_trained([0.15, 0.15, 0.15, 0.15, 0.05, 0.15], name="cl2n")
    check(worse, "No other classifier without training is clearly better")
    few = make_trained([0.3] * 6, name="cl2n", draws=99)
    assert "without training" not in summary_text(few).lower()


def test_gradient_steps_are_described_with_their_highest_value():
    for values, said in (
        ((0.5, 0.8, 0.7), "from 0.500 to 0.700. On the way it is 0.800 at step 9."),
        ((0.5, 0.4, 0.3), "from 0.500 to 0.300."),
    ):
        rows = [
            ("herd", "mfcc", "all", "map", 10**index - 1, value, 2.0)
            for index, value in enumerate(values)
        ]
        steps = make_rows(REFINEMENT, *reversed(rows))
        elsewhere = steps.with_columns(encoder=pl.lit("other"), value=0.0)
        check(replace(make(MFCC), refinement=pl.concat([elsewhere, steps])), said)
        alone = replace(make(MFCC), refinement=steps.filter(step=0))
        check(alone, never=["gradient step"])


# More labels


def test_a_curve_is_level_from_where_more_examples_add_little():
    flat = (0.40, 0.50, 0.60, 0.605, 0.607, 0.608)
    add = "examples per call type add at most 0.01 of mAP."
    check(make({"mfcc": flat}), f"With MFCC, more than 3 {add} Up to 10 were evaluated")
    rises = "mAP still rises by 0.040 from 5 to 10 examples per call type."
    check(make(MFCC), rises, never=["add at most"])
    flat = (0.40, 0.50, 0.60, 0.70, 0.70, 0.70)
    check(make({"mfcc": flat}), f"more than 4 {add}")
    rises = "mAP still rises by 0.100 from 3 to 4 examples per call type"
    partial = make({"mfcc": flat}, classes=with_rare(4))
    check(partial, rises, never=["add at most"])
    means = {"mfcc": (0.5, 0.5, 0.505, 0.505, 0.6, 0.7)}
    level = "more than 1 example per call type add at most 0.01 of mAP. Up to 4 were"
    check(make(means, classes=with_rare(4)), level, never=["still rises"])


def test_the_class_that_stands_out_is_named():
    rows = [
        class_budget("roar", 0.01),
        class_budget("bark", 0.02, recommended=True),
        class_budget("rumble", math.nan, judged=False),
        class_budget("trumpet", 0.9, encoder="perch", recommended=True),
    ]
    check(
        make(MFCC, budget=rows),
        "'bark' should gain most from more examples: about 0.020 of AP from 4 to 5 "
        "(98 % interval: 0.010 to 0.030). From 4 to 8 it should gain about 0.050.",
        "1 of 3 call types have too few complete shots for a curve.",
    )
    rows = [class_budget("bark", 0.02), class_budget("roar", 0.03)]
    check(make(MFCC, budget=rows), "no call type stands out as the one that gains most")
    for rows in ([], [class_budget("bark", 0.02, judged=False)]):
        check(make(MFCC, budget=rows), never=["gain"])


def test_a_target_is_answered_for_the_best_encoder():
    results = make({**MFCC, "random": [0.2] * len(RISING)}, spread="total")
    lines = [line for line in lines_of(results, 0.55) if "mAP 0.55" in line]
    assert len(lines) == 1
    assert lines[0].startswith("MFCC reaches mAP 0.55 on average with ")
    check(results, never=["0.55 on average with"])


# Cautions


def test_with_few_samples_only_means_are_reported():
    means = {**MFCC, "late": LATE, "random": [0.2] * 6}
    rows = [baseline(0.3)]
    for count in (99, 100):
        noise = dict.fromkeys(means, NOISE[:count])
        results = make(means, noise=noise, baselines=rows, permutations=19)
        check(results, f"ahead in 100 % of {count} samples", never=["clear"])
        assert answers_of(results, "certainty")[-1] == (
            "Caution: only means and counts are reported. A 98 % interval needs at least "
            f"101 samples, and there are {count}."
        )
    enough = summary_text(make(means, baselines=rows))
    assert enough.count("clear") == 5
    few = dict.fromkeys(("mfcc", "random"), NOISE[[0, 50, 100]])
    means = {"mfcc": [0.19] * 6, "random": [0.9] * 6}
    check(
        make(means, noise=few, permutations=19),
        "Nothing here is better than chance on average. With 10 examples",
        "MFCC is not on average better than random vectors (the encoder random): behind",
        never=["better than chance from", "even the encoder random", "clear"],
    )
    means = {"mfcc": (0.1, 0.1, 0.5, 0.5, 0.5, 0.1)}
    between = make(means, noise=few, permutations=19)
    check(between, never=["better than chance"])


def test_nothing_is_clear_beyond_k_star_or_if_all_draws_are_equal():
    means = {"mfcc": RISING[-1:], "perch": [0.3], "random": [0.2]}
    rows = [baseline(0.2)]
    check(
        make(means, shots=[10], baselines=rows, classes=with_rare(4)),
        "MFCC is on average better than chance from up to 10 examples",
        never=["clear"],
    )
    equal = np.zeros(101)
    means = {**MFCC, "perch": [0.3] * 6}
    noise = dict.fromkeys(means, equal)
    check(
        make(means, noise=noise, baselines=rows, permutations=19),
        "MFCC reaches mAP 0.60 on average",
        never=["clear", "One labelled set"],
    )
    perfect = {"mfcc": [1.0] * 6, "perch": [0.3] * 6}
    clear = make(perfect, noise={"mfcc": equal})
    check(clear, "ahead of perch by 0.700 of mAP (98 %", "The difference is clear.")


def test_what_was_not_evaluated_and_few_examples_or_queries_are_told():
    excluded = [
        ClassCount(f"call {i}", 1, 0, False, f"in {i} recordings, 5 needed", (0, 0))
        for i in range(5)
    ]
    check(
        make(MFCC, classes=[*COMMON, *excluded]),
        "5 of 7 call types were not evaluated. 'call 0' is left out: in 0 recordings",
        "'call 2' is left out: in 2 recordings, 5 needed. The table",
        never=["call 3"],
    )
    one = make(MFCC, classes=[*COMMON, excluded[0]])
    check(one, "1 of 3 call types was not evaluated.")
    check(make(MFCC), never=["not evaluated", "Caution", "few queries"])
    rare = with_rare(3, 5)
    beyond = "Caution: beyond k* = 3, not every call type has that many different"
    check(make(MFCC, classes=rare), beyond)
    few_shots = make({"mfcc": RISING[:3]}, shots=SHOTS[:3], classes=rare)
    check(few_shots, never=["Caution"])
    few = [*COMMON, ClassCount("bark", 29, 20, True, "", (4, 3)), excluded[0]]
    check(make(MFCC, classes=few), "Caution: few queries, 60 in all and 7 of 'bark'")


def test_small_differences_and_extreme_shares_are_not_rounded_away():
    lift = np.where(np.arange(101) == 50, -0.001, 0.0)
    means = {"mfcc": [0.5999] * 6, "perch": [0.6] * 6}
    results = make(means, noise={"mfcc": NOISE, "perch": NOISE + lift})
    interval = "by 0.00009 of mAP (98 % interval: 0.00008 to 0.00010)."
    check(results, f"{interval} It is ahead in >99 % of 101 samples.")


def test_names_from_files_cannot_break_lines():
    odd = [*COMMON, ClassCount("a\nb\x1b[31m", 1, 0, False, "why", (0, 0))]
    rows = [class_budget("bark\r", 0.02, encoder="per\nch", recommended=True)]
    lines = lines_of(make({"per\nch": RISING}, classes=odd, budget=rows))
    assert all(line.isprintable() for line in lines)
    assert any("'a\N{REPLACEMENT CHARACTER}b" in line for line in lines)


@settings(max_examples=5, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from(["a", "b", "random"]), st.floats(0, 2), min_size=1),
    st.integers(0, 99),
    st.sampled_from([("shared",), ("per-query",), ("per-query", "shared")]),
    st.booleans(),
    st.sampled_from([(), (10,), (1, 2, 40)]),
)
def test_any_evaluation_gives_whole_sentences_with_its_own_numbers(
    separations, seed, spreads, whole_pool, shots
):
    samples = 20 if seed % 2 else 100
    protocol = replace(
        SMALL,
        shots=shots,
        whole_pool=whole_pool or not shots,
        draws=4,
        bootstraps=samples,
        shared_draws=samples,
        total_samples=samples,
        spreads=spreads,
    )
    rows = [
        ("corpus", encoder, "logistic", "LR", "all", metric, 0.6)
        for encoder in separations
        for metric in ("map", "auroc")
    ]
    tables = make_tables(encoders=separations, recordings=6, each=1, seed=seed)
    baselines = make_baselines(*rows)
    results = make_corpus_results(tables, protocol=protocol, baselines=baselines)
    lines = lines_of(results)
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9].*\.", line)
        assert "nan" not in line.lower()
        assert samples == 100 or "clear" not in line
    means = results.evaluation.curve.filter(metric="map")["mean"]
    matches = [re.search(r"(\d\.\d\d) on average[; ]", line) for line in lines]
    found = {match[1] for match in matches if match}
    assert found
    assert found <= {f"{mean:.2f}" for mean in means}


# The first screen: headline, cards and methods


def test_the_headline_says_how_many_more_examples_reach_the_next_level():
    headline = write_summary(
        make({"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.72)})
    ).headline
    assert headline.sentence == (
        "With 5 examples per call type, MFCC reaches mAP 0.61; label 5 more of each to reach 0.70."
    )
    assert (headline.k, headline.next_k) == (5, 10)


def test_a_smaller_level_or_a_target_is_named_if_it_is_reached():
    means = {"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.66)}
    headline = write_summary(make(means)).headline
    assert headline.sentence.endswith("label 5 more of each to reach 0.65.")
    headline = write_summary(make({"mfcc": RISING}), 0.62).headline
    assert headline.sentence.endswith("label 5 more of each to reach 0.62.")
    missed = write_summary(make({"mfcc": RISING}), 0.9).headline
    assert missed.sentence.endswith("; it is 0.64 with 10, the largest number tested.")
    level = (0.4, 0.5, 0.6, 0.605, 0.607, 0.608)
    headline = write_summary(make({"mfcc": level})).headline
    assert headline.sentence.endswith("; up to 10 bring no clear gain.")


def test_no_level_is_promised_if_samples_do_not_rise():
    noise = {"mfcc": np.where(np.arange(101) % 10 == 0, -0.2, 0.01)}
    means = {"mfcc": (0.4, 0.5, 0.55, 0.58, 0.61, 0.72)}
    rises = write_summary(make(means, noise=noise)).headline
    assert rises.next_k == 10  # every sample rises by the same
    results = make(means, noise=noise)
    values = results.evaluation.values
    samples = values["value"].to_list()
    samples[-1] = [*samples[-1][5:], *samples[-1][:5]]
    mixed = values.with_columns(value=pl.Series(samples))
    headline = write_summary(replace_frames(results, values=mixed)).headline
    assert headline.next_k is None
    assert headline.sentence.endswith(
        "; it is 0.71 with 10, the largest number tested."
    )
    assert headline.details[0] == "10 are better than 5 in 89 % of samples."


def test_the_share_of_right_names_is_below_the_headline_where_it_was_measured():
    results = make_corpus_results(make_tables(encoders={"mfcc": 2.0}, recordings=10))
    headline = write_summary(results).headline
    curve = results.evaluation.curve.filter(
        metric="accuracy", scoring="all", spread="total", k=headline.k
    )
    share = f"names the right type {100 * curve['mean'][0]:.0f} % of the time"
    assert share in headline.details[-1]
    assert "always naming" in headline.details[-1]


def test_the_card_of_encoders_names_both_if_the_difference_is_not_clear():
    worse = [mean - 0.05 for mean in RISING]
    clear = write_summary(make({"mfcc": worse, "perch": RISING})).cards[0]
    assert clear.answer == "perch"
    mixed = make({"mfcc": worse, "perch": RISING}, noise={"perch": NOISE[::-1]})
    card = write_summary(mixed).cards[0]
    assert card.answer == "perch or MFCC"
    assert card.text.endswith("(98 % interval: −0.146 to 0.246): not clear.")


@pytest.mark.parametrize(
    ("lead", "answer"),
    [
        ((-0.2, -0.15, 0.05, 0.05, 0.15, 0.2), "From 5 examples on"),
        ((0.05,) * 6, "Not clearly"),
        ((-0.05,) * 6, "No"),
    ],
)
def test_the_card_of_training_says_from_when_it_is_clear(lead, answer):
    assert write_summary(make_trained(lead)).cards[1].answer == answer


def test_methods_name_the_protocol_and_the_references():
    results = make_corpus_results(make_tables(encoders=("mfcc", "birdnet-v2.4")))
    protocol = Protocol(seed=7)
    text = " ".join(describe_methods(results, protocol))
    assert "The seed was 7" in text
    assert f"{protocol.bootstraps:,} bootstrap samples" in text
    references = list_references(results)
    assert [line[:3] for line in references] == ["[1]", "[2]", "[3]", "[4]"]
    assert "Kahl" in references[-1]
