"""Summaries of corpora → the first screen: a sentence, the curve, three cards, and their basis."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from callshot.records import METRIC_NAMES, CorpusResults
from callshot.records.frames import Frame
from callshot.report.classifiers import main_spread
from callshot.report.page.curve_svg import (
    Scale,
    SvgLine,
    SvgMark,
    SvgPicture,
    draw_svg,
    share_scale,
)
from callshot.report.page.html import Markup, element, join
from callshot.report.page.section_content import format_count
from callshot.report.summary import Card, Headline, Summary
from callshot.report.summary.first_screen import format_value

Summaries = Mapping[str, Summary]
COLOURS = 7  # of the style of the page
MAX_LINES = 6


def show_first_screen(
    all_results: Sequence[CorpusResults], summaries: Summaries
) -> Markup:
    """Return the answer for every corpus; those of several share their axes."""
    has_several = len(all_results) > 1
    pictures = [_picture(results, summaries[results.corpus]) for results in all_results]
    scale = share_scale(pictures)
    articles = []
    for results, picture in zip(all_results, pictures, strict=True):
        summary = summaries[results.corpus]
        title = results.corpus if has_several else ""
        articles.append(_show_corpus(results, summary, picture, scale, title))
    class_ = "answers several" if has_several else "answers"
    return element("div", *articles, class_=class_)


def _show_corpus(
    results: CorpusResults,
    summary: Summary,
    picture: SvgPicture,
    scale: Scale,
    title: str,
) -> Markup:
    headline = summary.headline
    heading = element("h2", title) if title else ""
    details = [element("p", text, class_="detail") for text in headline.details]
    basis = element("p", describe_basis(results), class_="quiet basis")
    link = element("a", "all curves, with values", href="#curves-panel")
    caption = element("figcaption", _describe_picture(summary), " ", link)
    return element(
        "article",
        element(
            "div",
            heading,
            element("p", headline.sentence, class_="lead"),
            *details,
            basis,
            class_="say",
        ),
        element("figure", draw_svg(picture, scale), caption, class_="first-curve"),
        element("div", *map(_show_card, summary.cards), class_="cards"),
    )


def _show_card(card: Card) -> Markup:
    return element(
        "a",
        element("span", card.question, class_="question"),
        element("strong", card.answer),
        element("span", card.text, class_="why"),
        href=f"#{card.section}",
        class_="card",
    )


def describe_basis(results: CorpusResults) -> str:
    """Return what the numbers rest on, and how much was left out."""
    evaluation = results.evaluation
    eligible = len(evaluation.eligible_classes)
    counts = (
        format_count(results.stats.recordings.count, "recording"),
        format_count(results.evaluated.count, "call"),
        format_count(eligible, "call type"),
        format_count(evaluation.folds.count, "fold"),
    )
    left_out = [
        format_count(len(evaluation.excluded_classes), "call type"),
        format_count(len(results.rejects), "row or file", "rows and files"),
    ]
    complete = f"Every call type has k examples up to k* = {evaluation.complete_shots}"
    if max(evaluation.curve["k"]) > evaluation.complete_shots:
        complete += "; beyond that, some give all they have"
    return (
        f"Based on {', '.join(counts)}. Left out: {' and '.join(left_out)}. {complete}."
    )


def _describe_picture(summary: Summary) -> str:
    metric = METRIC_NAMES[summary.headline.metric]
    return f"{metric} with k examples; band: 98 % interval of {summary.best}."


def _picture(results: CorpusResults, summary: Summary) -> SvgPicture:
    headline = summary.headline
    evaluation = results.evaluation
    curve = evaluation.curve.filter(
        scoring="all", metric=headline.metric, spread=main_spread(evaluation)
    )
    other_encoders = [name for name in evaluation.encoders if name != summary.best]
    lines = []
    for name in [*other_encoders[: MAX_LINES - 1], summary.best]:
        points = curve.filter(encoder=name).sort("k")
        colour = evaluation.encoders.index(name) % COLOURS
        lines.append(_line(points, colour, name == summary.best))
    metric = METRIC_NAMES[headline.metric]
    return SvgPicture(
        f"{results.corpus}: {metric} against k",
        lines,
        metric,
        _chance_line(curve.filter(encoder=summary.best).sort("k"), headline),
        evaluation.complete_shots,
        _marks(headline, lines[-1]),
    )


def _chance_line(points: Frame, headline: Headline) -> SvgLine:
    """Return the chance level by k, named by that of the headline: it may differ between k."""
    shots = points["k"].to_list()
    chance = points["chance"].to_list()
    number = shots.index(headline.k) if headline.k in shots else 0
    name = f"chance {format_value(chance[number])}"
    return SvgLine(name, shots, chance)


def _line(points: Frame, colour: int, is_best: bool) -> SvgLine:
    """Return the line of an encoder; only the best has a band."""
    line = SvgLine(
        points["encoder"][0],
        points["k"].to_list(),
        points["mean"].to_list(),
        colour=colour,
        class_="line pale",
    )
    if not is_best:
        return line
    low = points["p01"].to_list()
    high = points["p99"].to_list()
    return replace(line, low=low, high=high, class_="line")


def _marks(headline: Headline, line: SvgLine) -> list[SvgMark]:
    """Return the points that the headline is about."""
    means = dict(zip(line.shots, line.mean, strict=True))
    marks = []
    for k in (headline.k, headline.next_k):
        if k is not None and k in means:
            text = f"{format_value(means[k])} with {k}"
            marks.append(SvgMark(k, means[k], text))
    return marks


def show_paragraphs(texts: Sequence[str], figure: str) -> Markup:
    """Return paragraphs, each with a link to the figure that it rests on."""
    parts = []
    for text in texts:
        link = element("a", "figure", href=f"#{figure}", class_="to-figure")
        parts.append(element("p", text, " ", link))
    return join(*parts)
