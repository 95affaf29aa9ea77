"""The first screen as a whole: sentence, cards, curve and matrix have one encoder, metric and k."""

import json
import re
from itertools import product
from pathlib import Path

import polars as pl
import pytest

from callshot.records import CorpusResults
from callshot.records.frames import CONFUSION
from callshot.report.encoder_names import with_names
from callshot.report.page import write_page
from callshot.report.summary import Summary, write_summary
from corpus_results import make_corpus_results, make_rows, make_tables, replace_frames
from pages import Reader
from summaries import LATE, RISING, class_budget, make, make_trained, with_rare

WORSE = tuple(mean - 0.1 for mean in RISING)
SHARES = {"mfcc": 0.59, "yamnet": 0.66}
JOINED = "birdnet-v2.4[speed=1+2]"
SHOTS = re.compile(r"\b[Ww]ith (?:up to )?(\d+)\b([^.;:]*)")
# What a sentence may say about another k than that of the answer.
REASONS = (
    "the largest number tested",
    "the largest number compared",
    "the first where",
)
MORE = re.compile(r"More than (\d+) of every call type cannot be tested")
NEXT = re.compile(r"From (\d+) to \d+ examples")
RISE = re.compile(
    r"From (\d+) to (\d+) of each, mAP (?:rises by (\d\.\d+)|does not rise)"
)
TEXTS = {"lead", "detail", "card", "first-curve"}


class FirstScreen:
    """The texts of the first screen, by the class of their element, and the data of the page."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.texts: dict[str, list[str]] = {name: [] for name in TEXTS}
        for _, attributes, text in Reader(page).found:
            if attributes.get("class") in TEXTS:
                self.texts[attributes["class"]].append(" ".join(text))
            if attributes.get("id") == "data":
                self.data = json.loads("".join(text))


def with_decisions(results: CorpusResults) -> CorpusResults:
    """Add accuracy, in which yamnet is ahead of mfcc, and decisions that differ between k."""
    evaluation = results.evaluation
    share = pl.col("encoder").replace_strict(SHARES, default=0.4)
    accuracy = evaluation.curve.with_columns(metric=pl.lit("accuracy"), mean=share)
    labels = evaluation.eligible_labels
    rows = []
    shots = sorted(set(evaluation.curve["k"]))
    for encoder, k, true, named in product(evaluation.encoders, shots, labels, labels):
        right = (40 + k + labels.index(true)) / 100
        recall = right if true == named else (1 - right) / (len(labels) - 1)
        rows.append((encoder, k, true, named, 10 * recall, 10.0, recall))
    return replace_frames(
        results,
        curve=pl.concat([evaluation.curve, accuracy]),
        confusion=make_rows(CONFUSION, *rows),
    )


def in_both() -> CorpusResults:
    return with_decisions(make({"mfcc": RISING, "yamnet": WORSE}))


def with_training(lead: tuple[float, ...]) -> CorpusResults:
    return with_decisions(make_trained(lead, classes=with_rare(4)))


def recommended() -> CorpusResults:
    rows = [class_budget("roar", 0.02, recommended=True, k=8)]
    results = make({"mfcc": RISING, "yamnet": LATE}, classes=with_rare(4), budget=rows)
    return with_decisions(results)


CORPORA = {
    "mAP and accuracy order the encoders differently": in_both,
    "k* is 4, and a call type has more": recommended,
    "k* is below every shot": lambda: with_decisions(
        make({"mfcc": RISING[-2:]}, shots=(8, 10), classes=with_rare(4))
    ),
    "training is behind": lambda: with_training((-0.05,) * 6),
    "training leads later": lambda: with_training((-0.2, -0.1, 0.05, 0.05, 0.15, 0.2)),
    "training is clear with few alone": lambda: with_decisions(
        make_trained((0.3,) * 5 + (0.05,))
    ),
    "an encoder at several speeds": lambda: with_decisions(
        make({"birdnet-v2.4": WORSE, JOINED: RISING, f"{JOINED}+mfcc": WORSE})
    ),
    "nothing is better than chance": lambda: with_decisions(
        make({"mfcc": [0.25] * 6, "yamnet": [0.24] * 6})
    ),
    "a real evaluation": lambda: make_corpus_results(make_tables(recordings=8)),
    "real encoders": lambda: make_corpus_results(
        make_tables(encoders={"mfcc": 0.6, JOINED: 1.2}, recordings=8)
    ),
}


def write_first_screen(
    path: Path, results: CorpusResults
) -> tuple[FirstScreen, Summary]:
    summary = write_summary(results)
    summaries = {results.corpus: summary}
    write_page(path, "title", [results], summaries, confusion_shots=(1, 10, 20))
    return FirstScreen(path.read_text(encoding="utf-8")), summary


@pytest.fixture(scope="module", params=CORPORA)
def shown(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    results = CORPORA[request.param]()
    return *write_first_screen(path, results), with_names(results)


def check_shots(text: str, k: int) -> None:
    """Check that every number of examples in a text is k, or that a reason follows it."""
    for number, rest in SHOTS.findall(text):
        has_reason = any(reason in rest for reason in REASONS)
        assert int(number) == k or has_reason, text
    for number in MORE.findall(text):
        assert int(number) >= k, text
    for start, end, _ in RISE.findall(text):
        assert str(k) in (start, end), text
    for number in NEXT.findall(text):
        assert int(number) == k or "of its own" in text, text


def test_the_first_curve_shows_the_encoder_metric_and_k_of_the_sentence(shown):
    screen, summary, _ = shown
    headline = summary.headline
    (curve,) = screen.texts["first-curve"]
    assert "mAP with k examples" in curve
    assert f"interval of {summary.best}" in curve
    (corpus,) = screen.data["corpora"]
    k, _, text = corpus["headline"]["marks"][0]
    assert k == headline.k
    (lead,) = screen.texts["lead"]
    values = re.findall(r"reaches mAP (\d\.\d\d)", lead)
    assert values in ([text.split()[0]], [])
    assert values or "Nothing here" in lead
    assert (summary.best in lead) == bool(values)


def test_no_encoder_is_above_that_of_the_sentence_where_it_is_marked(shown):
    screen, summary, _ = shown
    (corpus,) = screen.data["corpora"]
    assert corpus["metrics"][0]["name"] == "mAP"
    assert corpus["encoders"][corpus["best"]] == summary.best
    assert corpus["k"] == summary.headline.k
    position = corpus["shots"].index(corpus["k"])
    spread = corpus["spreads"].index("total")
    means = [
        corpus["lines"][f"0.{spread}.{encoder}"][0][position]
        for encoder in range(len(corpus["encoders"]))
    ]
    assert means[corpus["best"]] == max(means)
    assert screen.texts["card"][0].split("?")[1].strip().startswith(summary.best)


def test_an_encoder_that_names_more_calls_right_is_named_with_the_reason(shown):
    screen, summary, results = shown
    points = results.evaluation.curve.filter(
        metric="accuracy", spread="total", k=summary.headline.k
    )
    shares = dict(points.select("encoder", "mean").iter_rows())
    ahead = {name for name, share in shares.items() if share > shares[summary.best]}
    reasons = [text for text in screen.texts["detail"] if "names more right" in text]
    assert bool(reasons) == bool(ahead)
    for reason in reasons:
        assert reason.partition(" names more right")[0] in ahead
        assert "compared by mAP" in reason


def test_the_matrix_opens_at_the_k_of_the_sentence_with_the_shares_of_the_text(shown):
    screen, summary, _ = shown
    (corpus,) = screen.data["corpora"]
    confusion = corpus["confusion"]
    assert confusion["first"] == summary.headline.k
    assert confusion["first"] in confusion["shots"]
    matrix = confusion["matrices"][f"{corpus['best']}.{confusion['first']}"]
    right = [row[number] for number, row in enumerate(matrix)]
    text = summary.answers["confused"][0]
    check_shots(text, summary.headline.k)
    most, least = map(int, re.findall(r": (\d+) %", text))
    assert (most, least) == (round(max(right)), round(min(right)))


def test_each_card_says_what_to_do_next_in_the_numbers_of_the_curve(shown):
    _, summary, results = shown
    for card in summary.cards:
        assert card.advice.startswith("Next: ") or card.answer == "Not measured"
    points = results.evaluation.curve.filter(
        encoder=summary.best, scoring="all", metric="map", spread="total"
    )
    advice = summary.cards[0].advice
    if "times as fast" in summary.best:  # nothing scans with several speeds
        assert "--encoder birdnet-v2.4 --set speed=auto." in advice
    means = dict(points.select("k", "mean").iter_rows())
    for start, end, rise in RISE.findall(summary.cards[-1].advice):
        expected = max(means[int(end)] - means[int(start)], 0.0)
        assert float(rise or 0.0) == pytest.approx(expected, abs=0.0006)


def test_no_text_of_the_first_screen_has_an_encoder_s_name_in_the_study_but_to_type_it(
    shown,
):
    _, summary, _ = shown
    headline = summary.headline
    texts = [headline.sentence, *headline.details]
    for card in summary.cards:
        texts += [card.answer, card.text]
    for text in texts:
        assert not re.search(r"mfcc|yamnet|birdnet", text), text
