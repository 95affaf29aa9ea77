"""Results whose truth is known: what their summary says, and what it must not say."""

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.records import (
    ClassCount,
)
from callshot.records.frames import (
    REFINEMENT,
)
from callshot.report.summary import write_summary
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


def lines_of(results, *arguments):
    """Return all paragraphs of a summary, whatever question they answer."""
    return write_summary(results, *arguments).paragraphs


def answers_of(results, section):
    return list(write_summary(results).answers[section])


def summary_text(results):
    return "\n".join(lines_of(results))


def test_the_first_sentence_says_what_to_expect_of_a_few_examples():
    first = lines_of(make({"mfcc": RISING}))[0]
    assert first == (
        "With 5 examples per call type, mfcc reaches mAP 0.60 on average; chance is 0.20. One "
        "labelled set gives 0.50 to 0.70 on other recordings of the same kind (98 % interval)."
    )


def test_the_share_of_right_call_types_is_given_where_it_was_measured():
    results = make({"mfcc": RISING})
    curve = results.evaluation.curve
    accuracy = curve.filter(k=5).with_columns(metric=pl.lit("accuracy"), mean=0.716)
    balanced = accuracy.with_columns(metric=pl.lit("balanced_accuracy"), mean=0.633)
    auroc = curve.with_columns(metric=pl.lit("auroc"), mean=math.nan)
    frames = [curve, accuracy, balanced, auroc]
    lines = lines_of(replace_frames(results, curve=pl.concat(frames)))
    assert lines[1] == (
        "mfcc names the right type 72 % of the time; guessing gives 20 %, and always naming "
        "'rumble', the most frequent, 67 %. Balanced over call types, it is 63 %."
    )


def test_a_few_examples_are_at_most_as_many_as_every_call_type_has():
    rare = with_rare(3)
    text = summary_text(make({"mfcc": RISING}, classes=rare))
    assert "With 3 examples per call type, mfcc reaches mAP 0.55" in text
    assert "One labelled set gives 0.45 to 0.65" in text
    first = lines_of(make({"mfcc": [0.6]}, shots=[10], classes=rare))[0]
    assert first.startswith("With up to 10 examples per call type, mfcc")
    text = summary_text(make({"mfcc": [0.6]}, shots=[1]))
    assert "With 1 example per call type, mfcc reaches" in text


def test_the_best_encoder_is_compared_with_the_next_best():
    worse = [mean - 0.05 for mean in RISING]
    text = summary_text(make({"third": [0.3] * 6, "mfcc": worse, "perch": RISING}))
    assert "perch reaches mAP 0.60 on average" in text
    assert (
        "With 5 examples per call type, perch is on average ahead of mfcc by 0.050 of mAP "
        "(98 % interval: 0.050 to 0.050). It is ahead in 100 % of 101 samples. The difference is "
        "clear." in text
    )
    assert "third" not in text


def test_a_difference_is_not_clear_if_its_interval_includes_0():
    worse = [mean - 0.05 for mean in RISING]
    text = summary_text(
        make({"mfcc": worse, "perch": RISING}, noise={"perch": NOISE[::-1]})
    )
    assert (
        "by 0.050 of mAP (98 % interval: −0.146 to 0.246). It is ahead in 62 % of 101 samples. "
        "The difference is not clear, because the interval includes 0." in text
    )
    assert "difference is clear" not in text


def test_a_single_encoder_has_no_next_best():
    assert "ahead of" not in summary_text(make({"mfcc": RISING}))


def test_without_differences_nothing_is_compared():
    means = {"mfcc": RISING, "perch": RISING, "random": RISING}
    results = make(means, baselines=[baseline(0.1)])
    differences = results.evaluation.differences.clear()
    text = summary_text(replace_frames(results, differences=differences))
    assert "ahead" not in text
    assert "beat" not in text


def test_another_encoder_is_named_if_it_is_clearly_better_with_more_examples():
    means = {"mfcc": RISING, "late": LATE}
    text = summary_text(make(means))
    assert "mfcc reaches mAP 0.60 on average" in text
    assert (
        "With 10 examples per call type, late is clearly better than mfcc, by 0.160 of mAP "
        "(98 % interval: 0.160 to 0.160" in text
    )
    assert "late is clearly" not in summary_text(
        make(means, noise={"late": NOISE[::-1]})
    )
    assert "late is clearly" not in summary_text(make(means, classes=with_rare(5)))


def test_a_baseline_is_beaten_on_average_from_some_k_on_and_clearly_from_a_later_one():
    results = make({"mfcc": RISING}, baselines=[baseline(0.54)])
    assert answers_of(results, "training") == [
        "mfcc beats logistic regression trained on all labelled data on average from 3 examples "
        "per call type on. With 3, mAP is 0.550 against 0.540. The difference is clear from 10 "
        "on: its 98 % interval is above 0."
    ]


def test_a_baseline_that_is_beaten_on_average_only_is_not_beaten_clearly():
    results = make({"mfcc": RISING}, baselines=[baseline(0.59)])
    (first,) = answers_of(results, "training")
    assert (
        "on average from 5 examples per call type on. With 5, mAP is 0.600 against 0.590. With "
        "10, the difference is not clear: its 98 % interval includes 0." in first
    )
    assert "is clear " not in first


def test_a_baseline_that_is_never_beaten_is_compared_at_the_last_k():
    results = make({"mfcc": RISING}, baselines=[baseline(0.7, "recurrent", "GRU")])
    assert answers_of(results, "training") == [
        "mfcc does not beat GRU trained on all labelled data on average with 10 examples per call "
        "type. There, mAP is 0.640 against 0.700."
    ]


def test_a_baseline_that_is_passed_only_in_between_is_not_beaten():
    means = {"mfcc": (0.4, 0.5, 0.6, 0.6, 0.5, 0.5)}
    (first,) = answers_of(make(means, baselines=[baseline(0.55)]), "training")
    assert "does not beat logistic regression" in first
    assert first.endswith("There, mAP is 0.500 against 0.550. It does with 3.")


def test_two_baselines_of_a_kind_are_called_by_their_names():
    rows = [
        baseline(0.54, name="LR-a"),
        baseline(0.7, name="LR-b"),
        baseline(0.1, name="LR-c", encoder="perch"),
    ]
    results = make({"mfcc": RISING, "perch": [0.3] * 6}, baselines=rows)
    lines = answers_of(results, "training")
    assert lines[0].startswith("mfcc beats LR-a trained on all labelled data")
    assert "does not beat LR-b trained on all labelled data" in lines[1]
    one_in_two_scorings = [end_to_end(0.54), end_to_end(0.54, "reduced")]
    scorings = ("all", "reduced")
    text = summary_text(
        make({"mfcc": RISING}, scorings=scorings, baselines=one_in_two_scorings)
    )
    assert text.count("beats AERD trained") == 2


def test_scores_of_a_baseline_in_a_scoring_that_was_not_evaluated_are_a_caution():
    rows = [
        baseline(0.1, scoring="reduced", metric=metric) for metric in ("map", "auroc")
    ]
    text = summary_text(make({"mfcc": RISING}, baselines=rows))
    assert (
        text.count("Caution: the reduced scores of LR are not compared, because no")
        == 1
    )
    text = summary_text(
        make({"mfcc": RISING}, scorings=("all", "reduced"), baselines=rows)
    )
    assert "not compared" not in text


def test_partial_support_is_named_where_a_baseline_is_beaten_with_it():
    results = make({"mfcc": RISING}, baselines=[baseline(0.59)], classes=with_rare(3))
    (first,) = answers_of(results, "training")
    assert "from up to 5 examples per call type on" in first


def test_only_baselines_of_the_best_encoder_and_those_without_one_are_compared():
    baselines = [
        baseline(0.1, encoder="perch"),
        baseline(0.1, metric="auroc"),
        end_to_end(0.58, "reduced"),
    ]
    means = {"mfcc": RISING, "perch": [0.3] * 6}
    text = summary_text(make(means, scorings=("all", "reduced"), baselines=baselines))
    assert "logistic" not in text
    assert (
        "mfcc beats AERD trained on all labelled data (reduced scoring) on average from 5 "
        "examples" in text
    )


def test_a_baseline_with_several_metrics_is_compared_once_by_its_map():
    rows = [baseline(0.95, metric="auroc"), baseline(0.54)]
    text = summary_text(make({"mfcc": RISING}, baselines=rows))
    assert text.count("logistic regression") == 1
    assert "0.550 against 0.540" in text


def training_sentence(results):
    lines = lines_of(results)
    (sentence,) = [line for line in lines if line.startswith("On the same examples")]
    return sentence


def test_training_on_the_same_examples_pays_from_the_k_of_the_crossover():
    results = make_trained((-0.2, -0.15, 0.05, 0.05, 0.15, 0.2))
    assert training_sentence(results) == (
        "On the same examples, logistic regression with mfcc beats the nearest centroid on average "
        "from 3 examples per call type on. With 3, mAP is 0.600 against 0.550. The difference is "
        "clear from 5 on: its 98 % interval is above 0."
    )
    assert results.evaluation.crossovers.select("k_mean", "k_clear").rows() == [(3, 5)]


def test_training_that_always_pays_is_compared_at_a_few_examples():
    assert training_sentence(make_trained([0.15] * 6)) == (
        "On the same examples, logistic regression with mfcc beats the nearest centroid on average "
        "at every k. With 5, mAP is 0.750 against 0.600. The difference is clear from 1 on: its "
        "98 % interval is above 0."
    )


def test_training_that_pays_on_average_only_does_not_pay_clearly():
    assert training_sentence(make_trained([0.05] * 6)).endswith(
        " With 10, the difference is not clear: its 98 % interval includes 0."
    )


def test_training_that_never_pays_is_compared_at_the_last_k():
    assert training_sentence(make_trained([-0.05] * 6)) == (
        "On the same examples, logistic regression with mfcc does not beat the nearest centroid on "
        "average with 10 examples per call type. There, mAP is 0.590 against 0.640."
    )
    assert training_sentence(make_trained([-0.05] * 3 + [-0.2] * 3)).endswith(
        "There, mAP is 0.440 against 0.640. It is clearly worse from 4 on."
    )
    sentence = training_sentence(make_trained([-0.1, 0.1, -0.1, -0.1, -0.1, -0.1]))
    assert " It does with 2." in sentence


def test_with_fewer_than_a_hundred_draws_training_is_compared_on_average_only():
    sentence = training_sentence(
        make_trained([-0.1, 0.3, 0.3, 0.3, 0.3, 0.3], draws=99)
    )
    assert "on average from 2 examples per call type on" in sentence
    assert "clear" not in sentence
    assert "clear" not in training_sentence(make_trained([-0.3] * 6, draws=99))


def test_beyond_k_star_training_does_not_pay_clearly():
    rare = with_rare(5)
    sentence = training_sentence(
        make_trained([-0.2, -0.1, 0.15, 0.15, 0.15, 0.15], classes=rare)
    )
    assert "is clear from 3 on, up to 5: its 98" in sentence
    late = training_sentence(
        make_trained([-0.2, -0.2, -0.2, -0.2, -0.2, 0.15], classes=rare)
    )
    assert (
        "on average from up to 10 examples per call type on. With 10, mAP is 0.790 against 0.640."
        in late
    )


def test_training_is_not_clearly_better_if_all_draws_differ_by_the_same():
    assert "clear" not in training_sentence(
        make_trained([0.1] * 6, noise=np.zeros(101))
    )


@pytest.mark.parametrize("change", [{"encoder": "other"}, {"spread": "per-query"}])
def test_training_is_compared_only_for_the_best_encoder_and_on_the_same_draws(change):
    results = make_trained([0.1] * 6)
    literals = {column: pl.lit(value) for column, value in change.items()}
    values = results.other_classifiers.values.with_columns(**literals)
    others = replace(results.other_classifiers, values=values)
    assert "On the same" not in summary_text(replace(results, other_classifiers=others))


def test_another_classifier_is_named_if_it_is_clearly_better_with_a_few_examples():
    better = summary_text(make_trained([0, 0, 0, 0, 0.15, 0], name="cl2n"))
    assert (
        "Without training, CL2N is clearly better than the nearest centroid with mfcc and 5 "
        "examples per call type. The difference is 0.150 of mAP (98 % interval: 0.052 to 0.248 "
        "over samples)." in better
    )
    worse = summary_text(
        make_trained([0.15, 0.15, 0.15, 0.15, 0.05, 0.15], name="cl2n")
    )
    assert (
        "No other classifier without training is clearly better than the nearest centroid with "
        "mfcc and 5 examples" in worse
    )
    few = summary_text(make_trained([0.3] * 6, name="cl2n", draws=99))
    assert "without training" not in few.lower()


def refinement_text(*values):
    rows = [
        ("herd", "mfcc", "all", "map", 10**index - 1, value, 2.0)
        for index, value in enumerate(values)
    ]
    steps = make_rows(REFINEMENT, *reversed(rows))
    elsewhere = steps.with_columns(encoder=pl.lit("other"), value=0.0)
    results = replace(make({"mfcc": RISING}), refinement=pl.concat([elsewhere, steps]))
    return summary_text(results)


def test_gradient_steps_are_described_with_their_highest_value():
    sentence = (
        "With mfcc, 99 gradient steps from the centroid of all labels to logistic regression "
        "change mAP from 0.500 to "
    )
    assert (
        f"{sentence}0.700. On the way it is 0.800 at step 9. That describes these queries; it is "
        "no way to choose a step." in refinement_text(0.5, 0.8, 0.7)
    )
    assert f"{sentence}0.700." in refinement_text(0.5, 0.6, 0.7)
    assert f"{sentence}0.300." in refinement_text(0.5, 0.4, 0.3)
    assert "gradient step" not in refinement_text(0.5)


def test_the_first_sentences_agree_with_the_crossovers():
    baselines = [
        baseline(0.54),
        baseline(0.1, "recurrent", "GRU"),
        end_to_end(0.9),
    ]
    results = make({"mfcc": RISING}, baselines=baselines)
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


def test_a_baseline_that_is_passed_twice_is_described_with_the_first_time():
    means = {"mfcc": (0.40, 0.56, 0.50, 0.58, 0.60, 0.64)}
    assert (
        "on average from 4 examples per call type on. With 4, mAP is 0.580 against 0.540. "
        "It is ahead for the first time with 2."
        in summary_text(make(means, baselines=[baseline(0.54)]))
    )


def test_reduced_scoring_is_for_baselines_that_read_audio_or_have_no_other_score():
    baselines = [
        baseline(0.5),
        baseline(0.5, scoring="reduced"),
        baseline(0.5, "recurrent", "GRU", scoring="reduced"),
        end_to_end(0.5),
        end_to_end(0.5, "reduced"),
    ]
    lines = lines_of(
        make({"mfcc": RISING}, scorings=("all", "reduced"), baselines=baselines)
    )
    found = []
    for line in lines:
        match = re.search("beats (logistic|GRU|AERD)", line)
        if match:
            found.append((match[1], "reduced scoring" in line))
    assert found == [
        ("logistic", False),
        ("GRU", True),
        ("AERD", False),
        ("AERD", True),
    ]


def test_a_level_curve_is_described_from_where_it_is_level():
    flat = (0.40, 0.50, 0.60, 0.605, 0.607, 0.608)
    assert (
        "With mfcc, more than 3 examples per call type add at most 0.01 of mAP. "
        "Up to 10 were evaluated with every call type complete."
        in summary_text(make({"mfcc": flat}))
    )


def test_a_curve_that_still_rises_is_not_level():
    text = summary_text(make({"mfcc": RISING}))
    assert "add at most" not in text
    assert (
        "mAP still rises by 0.040 from 5 to 10 examples per call type. 10 is the largest number "
        "evaluated with" in text
    )


def test_a_curve_that_is_level_only_with_partial_support_is_not_level():
    flat = (0.40, 0.50, 0.60, 0.70, 0.70, 0.70)
    text = summary_text(make({"mfcc": flat}, classes=with_rare(4)))
    assert "add at most" not in text
    assert "mAP still rises by 0.100 from 3 to 4 examples per call type" in text
    assert "more than 4 examples per call type add at most" in summary_text(
        make({"mfcc": flat})
    )


def test_points_with_partial_support_do_not_change_where_a_curve_is_level():
    means = {"mfcc": (0.5, 0.5, 0.505, 0.505, 0.6, 0.7)}
    text = summary_text(make(means, classes=with_rare(4)))
    assert (
        "more than 1 example per call type add at most 0.01 of mAP. "
        "Up to 4 were evaluated with every call type complete." in text
    )
    assert "still rises" not in text


def test_that_nothing_is_better_than_chance_comes_first():
    means = {"mfcc": [0.25] * 6, "perch": [0.26] * 6}
    lines = lines_of(make(means, baselines=[baseline(0.5, encoder="perch")]))
    assert lines[0] == (
        "Nothing here is clearly better than chance. With 10 examples per call type, perch "
        "reaches mAP 0.26; chance is 0.20, and p = 0.500."
    )
    assert not any("better than chance from" in line for line in lines)


def test_the_best_encoder_is_above_chance_from_some_k_on():
    text = summary_text(make({"mfcc": RISING}, chance=0.43))
    assert (
        "mfcc is clearly better than chance from 3 examples per call type on. The test gives p at "
        "most 0.005 with 3, 4, 5, 10, by 199 permutations of labels over recordings."
        in text
    )
    assert "Nothing here" not in text


def test_an_encoder_that_is_above_chance_only_in_between_is_not_above_it():
    text = summary_text(make({"mfcc": (0.2, 0.2, 0.5, 0.5, 0.5, 0.25)}))
    assert "clearly better than chance from" not in text
    assert "Nothing here" not in text
    assert (
        "mfcc is clearly better than chance at some k only. "
        "With 10 examples per call type, mfcc reaches mAP 0.25; chance is 0.20, and p = 0.500."
        in text
    )


def test_random_vectors_are_never_the_best_and_the_best_is_compared_with_them():
    text = summary_text(make({"random": [0.9] * 6, "mfcc": RISING}))
    assert "mfcc reaches mAP 0.60 on average" in text
    assert (
        "mfcc is not clearly better than random vectors (the encoder random): "
        "behind by 0.300 of mAP" in text
    )
    assert (
        "Caution: even the encoder random reaches mAP 0.90; chance is 0.20, and p = 0.005: that "
        "much is luck with these 60 queries." in text
    )
    text = summary_text(make({"mfcc": RISING, "random": [0.2] * 6}))
    assert (
        "mfcc is clearly better than random vectors (the encoder random): "
        "ahead by 0.400 of mAP" in text
    )
    assert "even the encoder random" not in text
    assert "ahead of" not in text


def test_random_vectors_alone_are_named_as_such():
    text = summary_text(make({"random": [0.22] * 6}))
    assert "Only the encoder random was evaluated" in text
    assert text.startswith("Nothing here is clearly better than chance")


def test_random_vectors_with_options_are_random_too():
    name = "random[dimension=80]"
    text = summary_text(make({name: [0.9] * 6, "mfcc": RISING, "random": [0.1] * 6}))
    assert "mfcc reaches mAP 0.60 on average" in text
    assert (
        f"mfcc is not clearly better than random vectors (the encoder {name}): "
        "behind by 0.300" in text
    )
    assert (
        "mfcc is clearly better than random vectors (the encoder random): "
        "ahead by 0.5" in text
    )
    assert text.count("Caution: even the encoder") == 1
    assert f"even the encoder {name} reaches mAP 0.90" in text
    assert "ahead of" not in text
    alone = summary_text(make({name: [0.22] * 6, "random": [0.21] * 6}))
    assert "Only the encoder random was evaluated" in alone
    assert "random vectors" not in alone
    other = summary_text(make({"randomised": RISING, "random": [0.2] * 6}))
    assert (
        "randomised is clearly better than random vectors (the encoder random)" in other
    )


def test_with_few_samples_only_means_are_reported():
    means = {"mfcc": RISING, "late": LATE, "random": [0.2] * 6}
    noise = dict.fromkeys(means, NOISE[1:-1])
    rows = [baseline(0.3)]
    results = make(means, noise=noise, baselines=rows, permutations=19)
    assert answers_of(results, "training") == [
        "mfcc beats logistic regression trained on all labelled data on average at every k. "
        "With 5, mAP is 0.600 against 0.300. With 1, it is ahead in 100 % of 99 samples."
    ]
    assert answers_of(results, "encoder") == [
        "With 5 examples per call type, mfcc reaches mAP 0.60 on average; chance is 0.20. mfcc is "
        "the best of 2 encoders, chosen on the same calls, so this is slightly optimistic.",
        "With 5 examples per call type, mfcc is on average ahead of late by 0.020 of mAP. It is "
        "ahead in 100 % of 99 samples.",
        "mfcc is on average better than chance from 1 example per call type on.",
        "mfcc is on average better than random vectors (the encoder random): ahead by 0.400 of "
        "mAP.",
    ]
    assert answers_of(results, "labels") == [
        "With mfcc, mAP still rises by 0.040 from 5 to 10 examples per call type. 10 is the "
        "largest number evaluated with every call type complete.",
    ]
    assert answers_of(results, "certainty")[-1] == (
        "Caution: only means and counts are reported. A 98 % interval needs at least 101 samples, "
        "and there are 99."
    )
    few = dict.fromkeys(means, NOISE[:100])
    text = summary_text(make(means, noise=few, baselines=rows, permutations=19))
    assert "clear" not in text
    assert "in 100 % of 100 samples" in text
    enough = summary_text(make(means, baselines=rows))
    assert enough.count("clear") == 5
    assert "late is clearly better than mfcc" in enough


def test_with_few_samples_random_vectors_and_chance_are_compared_on_average():
    few = dict.fromkeys(("mfcc", "random"), NOISE[[0, 50, 100]])
    means = {"mfcc": [0.19] * 6, "random": [0.9] * 6}
    text = summary_text(make(means, noise=few, permutations=19))
    assert text.startswith(
        "Nothing here is better than chance on average. With 10 examples per call type, mfcc "
        "reaches mAP 0.19, and chance is 0.20."
    )
    assert (
        "mfcc is not on average better than random vectors (the encoder random): behind by 0.710"
        in text
    )
    assert "better than chance from" not in text
    assert "even the encoder random" not in text
    assert "clear" not in text
    means = {"mfcc": (0.1, 0.1, 0.5, 0.5, 0.5, 0.1)}
    between = summary_text(make(means, noise=few, permutations=19))
    assert "better than chance" not in between


@pytest.mark.parametrize(
    ("value", "ending"),
    [
        (
            0.54,
            "The difference is clear from 3 on, up to 4: its 98 % interval is above 0.",
        ),
        (0.57, "The difference is clear with 4: its 98 % interval is above 0."),
        (
            0.59,
            "from up to 5 examples per call type on. With 5, mAP is 0.600 against 0.590.",
        ),
    ],
)
def test_beyond_k_star_a_baseline_is_not_clearly_beaten(value, ending):
    noise = {"mfcc": NOISE / 100}
    rows = [baseline(value)]
    results = make({"mfcc": RISING}, noise=noise, baselines=rows, classes=with_rare(4))
    (first,) = answers_of(results, "training")
    assert first.endswith(ending)
    assert any(
        "mfcc is clearly better than chance from 1 example per call type on, up to 4. The"
        in line
        for line in answers_of(results, "encoder")
    )


def test_nothing_is_clear_if_only_k_beyond_k_star_were_evaluated():
    means = {"mfcc": RISING[-1:], "perch": [0.3], "random": [0.2]}
    rows = [baseline(0.2)]
    text = summary_text(make(means, shots=[10], baselines=rows, classes=with_rare(4)))
    assert "clear" not in text
    assert (
        "mfcc is on average better than chance from up to 10 examples per call type on."
        in text
    )


def test_encoders_are_compared_up_to_k_star():
    text = summary_text(make({"mfcc": [0.25] * 4 + [0.9] * 2}, classes=with_rare(4)))
    assert text.startswith(
        "Nothing here is clearly better than chance. With 4 examples per call type, mfcc "
        "reaches mAP 0.25"
    )
    means = {"mfcc": (0.6, 0.6, 0.6), "late": (0.5, 0.8, 0.4)}
    text = summary_text(make(means, shots=(5, 10, 20), classes=with_rare(10, 16)))
    assert (
        "With 10 examples per call type, late is clearly better than mfcc, by 0.200"
        in text
    )
    few = dict.fromkeys(("mfcc", "late"), NOISE[:99])
    assert "late is clearly" not in summary_text(
        make({"mfcc": RISING, "late": LATE}, noise=few)
    )


def test_a_baseline_passed_to_the_end_only_beyond_k_star_is_not_clearly_beaten_before():
    results = make(
        {"mfcc": (0.8, 0.8, 0.8, 0.8, 0.4, 0.6)},
        noise={"mfcc": NOISE / 100},
        baselines=[baseline(0.5)],
        classes=with_rare(4),
    )
    (first,) = answers_of(results, "training")
    assert first.endswith(
        "from up to 10 examples per call type on. With 10, mAP is 0.600 against 0.500. It is ahead "
        "for the first time with 1."
    )


def test_nothing_is_clear_if_all_draws_are_equal():
    equal = np.zeros(101)
    means = {"mfcc": RISING, "perch": [0.3] * 6}
    noise = dict.fromkeys(means, equal)
    rows = [baseline(0.2)]
    text = summary_text(make(means, noise=noise, baselines=rows, permutations=19))
    assert "clear" not in text
    assert "One labelled set" not in text
    assert "mfcc reaches mAP 0.60 on average" in text
    perfect = summary_text(
        make({"mfcc": [1.0] * 6, "perch": [0.3] * 6}, noise={"mfcc": equal})
    )
    assert "ahead of perch by 0.700 of mAP (98 %" in perfect
    assert "The difference is clear." in perfect


def test_beyond_the_last_tested_k_nothing_is_said_of_chance():
    results = make({"mfcc": RISING})
    tests = results.evaluation.chance_test.filter(pl.col("k") < 10)
    text = summary_text(replace_frames(results, chance_test=tests))
    assert (
        "mfcc is clearly better than chance from 1 example per call type on, up to 5. The"
        in text
    )
    untested = summary_text(replace_frames(results, chance_test=tests.clear()))
    assert "mfcc is on average better than chance from 1 example" in untested


def test_the_class_that_stands_out_is_named():
    rows = [
        class_budget("roar", 0.01),
        class_budget("bark", 0.02, recommended=True),
        class_budget("rumble", math.nan, judged=False),
        class_budget("trumpet", 0.9, encoder="perch", recommended=True),
    ]
    assert (
        "With mfcc, 'bark' should gain most from more examples: about 0.020 of AP from 4 to 5 "
        "(98 % interval: 0.010 to 0.030). From 4 to 8 it should gain about 0.050. 1 of 3 call "
        "types have too few complete shots for a curve."
        in summary_text(make({"mfcc": RISING}, budget=rows))
    )


def test_a_target_is_answered_for_the_best_encoder():
    results = make({"mfcc": RISING, "random": [0.2] * len(RISING)}, spread="total")
    lines = [line for line in lines_of(results, 0.55) if "mAP 0.55" in line]
    assert len(lines) == 1
    assert lines[0].startswith("mfcc reaches mAP 0.55 on average with ")
    assert "0.55 on average with" not in summary_text(results)


def test_no_class_is_named_where_none_stands_out():
    rows = [class_budget("bark", 0.02), class_budget("roar", 0.03)]
    assert (
        "With mfcc, no call type stands out as the one that gains most from more examples."
        in summary_text(make({"mfcc": RISING}, budget=rows))
    )


@pytest.mark.parametrize("rows", [[], [class_budget("bark", 0.02, judged=False)]])
def test_nothing_is_said_of_gains_that_were_not_compared(rows):
    assert "gain" not in summary_text(make({"mfcc": RISING}, budget=rows))


def test_excluded_classes_are_counted_with_their_reasons():
    excluded = [
        ClassCount(
            f"call {i}", 1, 0, False, f"in {i} recordings, and 5 folds need 5", (0, 0)
        )
        for i in range(5)
    ]
    assert (
        "5 of 7 call types were not evaluated. 'call 0' is left out: in 0 recordings, and 5 folds "
        "need 5. 'call 1' is left out: in 1 recordings, and 5 folds need 5. 'call 2' is left out: "
        "in 2 recordings, and 5 folds need 5. The table of call types gives the reasons for 2 more."
        in summary_text(make({"mfcc": RISING}, classes=[*COMMON, *excluded]))
    )
    assert (
        "1 of 3 call types was not evaluated. 'call 0' is left out: in 0 recordings, and 5 folds "
        "need 5."
        in summary_text(make({"mfcc": RISING}, classes=[*COMMON, excluded[0]]))
    )
    assert "not evaluated" not in summary_text(make({"mfcc": RISING}))


def test_few_complete_shots_are_a_caution_if_more_were_evaluated():
    rare = with_rare(3, 5)
    text = summary_text(make({"mfcc": RISING}, classes=rare))
    assert (
        "Caution: beyond k* = 3, not every call type has that many different examples"
        in text
    )
    assert "all they have" not in text  # wrong for draws with replacement
    text = summary_text(make({"mfcc": RISING[:3]}, shots=SHOTS[:3], classes=rare))
    assert "Caution" not in text
    assert "Caution" not in summary_text(make({"mfcc": RISING}))


def test_few_queries_are_a_caution():
    few = [
        *COMMON,
        ClassCount("bark", 29, 20, True, "", (4, 3)),
        ClassCount("out", 1, 0, False, "why", (1, 0)),
    ]
    text = summary_text(make({"mfcc": RISING}, classes=few))
    assert "Caution: few queries, 60 in all and 7 of 'bark'" in text
    assert "few queries" not in summary_text(make({"mfcc": RISING}))


def test_with_the_spread_per_query_alone_labelled_sets_are_not_mentioned():
    means = {"mfcc": RISING, "perch": [0.3] * 6}
    lines = lines_of(make(means, spread="per-query", baselines=[baseline(0.59)]))
    assert lines[0] == (
        "With 5 examples per call type, mfcc reaches mAP 0.60 on average; chance is 0.20. mfcc is "
        "the best of 2 encoders, chosen on the same calls, so this is slightly optimistic."
    )
    assert "ahead in 100 % of 101 bootstrap samples" in lines[1]
    assert "labelled sets" not in "".join(lines)
    assert lines[-1].startswith("The 98 % intervals are the paper's")
    assert "total shows what one labelled set for all queries would do" in lines[-1]


@pytest.mark.parametrize(
    ("used", "other"),
    [("total", "shared"), ("total", "per-query"), ("shared", "per-query")],
)
def test_total_is_used_before_shared_and_shared_before_per_query(used, other):
    one = make({"mfcc": [0.3] * 6}, spread=other).evaluation
    results = make({"mfcc": RISING}, spread=used)
    two = results.evaluation
    few = one.values.with_columns(pl.col("value").list.head(9))
    both = replace_frames(
        results,
        curve=pl.concat([one.curve, two.curve]),
        values=pl.concat([few, two.values]),
        differences=pl.concat([one.differences, two.differences]),
    )
    assert lines_of(both) == lines_of(results)


def test_the_last_sentence_says_what_the_intervals_do_not_include():
    shared = make({"mfcc": RISING}, spread="shared")
    first, *_, last = lines_of(shared)
    assert "One labelled set gives 0.50 to 0.70 on these recordings" in first
    assert "the variation from the choice of labelled examples" in last
    assert "leave out the choice of calls that were recorded and queried" in last
    last = lines_of(make({"mfcc": RISING}))[-1]
    assert last.endswith("would score on other recordings of the same kind.")
    last = lines_of(make({"mfcc": RISING, "perch": RISING}))[-1]
    assert last.endswith("hold for all pairs and all k up to k* = 20 at once.")


def test_small_differences_and_extreme_shares_are_not_rounded_away():
    lift = np.where(np.arange(101) == 50, -0.001, 0.0)
    means = {"mfcc": [0.5999] * 6, "perch": [0.6] * 6}
    text = summary_text(make(means, noise={"mfcc": NOISE, "perch": NOISE + lift}))
    assert (
        "by 0.00009 of mAP (98 % interval: 0.00008 to 0.00010). It is ahead in >99 % of 101 "
        "samples. The difference is clear." in text
    )


def test_names_from_files_cannot_break_lines():
    odd = [*COMMON, ClassCount("a\nb\x1b[31m", 1, 0, False, "why", (0, 0))]
    rows = [class_budget("bark\r", 0.02, encoder="per\nch", recommended=True)]
    lines = lines_of(make({"per\nch": RISING}, classes=odd, budget=rows))
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
    means = {
        f"{mean:.2f}" for mean in results.evaluation.curve.filter(metric="map")["mean"]
    }
    matches = [re.search(r"(\d\.\d\d) on average[; ]", line) for line in lines]
    found = {match[1] for match in matches if match}
    assert found
    assert found <= means


def test_an_undefined_auroc_does_not_prevent_a_summary():
    tables = make_tables(["roar", "rumble"], encoders=("a", "b"), recordings=6, each=1)
    tables = [
        table.with_columns(labels=[("roar", "rumble")] * len(table)) for table in tables
    ]
    results = make_corpus_results(tables)
    assert results.evaluation.curve["mean"].is_nan().any()
    first = lines_of(results)[0]
    assert first.startswith("Nothing here is better than chance on average")
    results = make_corpus_results(tables, protocol=replace(SMALL, permutations=49))
    first = lines_of(results)[0]
    assert first.startswith("Nothing here is better than chance on average")


def test_the_last_sentence_gives_the_licences_of_weights():
    results = make({"mfcc": RISING})
    licences = {"mfcc": "none needed", "birdnet-v2.4": "CC BY-NC-SA 4.0: not for sale"}
    last = "Licences of weights: CC BY-NC-SA 4.0: not for sale (birdnet-v2.4)."
    assert lines_of(results, None, licences) == [*lines_of(results), last]
