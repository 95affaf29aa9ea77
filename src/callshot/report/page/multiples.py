"""Curves of call types → a matrix of encoders and call types, and small pictures on one scale."""

from collections.abc import Sequence
from dataclasses import replace

from callshot.records import CorpusResults
from callshot.records.frames import Frame
from callshot.report.classifiers import main_spread
from callshot.report.page.curve_svg import SvgLine, SvgPicture, draw_svg, share_scale
from callshot.report.page.html import Markup, element, join

COLOURS = 7  # of the style of the page
SHADES = 8
WIDTH = 260  # of a small picture
HEIGHT = 190
MATRIX = "Encoders and call types"
NOTE = "Shading and numbers: AP with {k} examples; hover for the 98 % interval."


def show_matrix(results: CorpusResults, k: int) -> Markup:
    """Return the AP of every encoder for every call type at k, as a table with shaded cells."""
    points = _class_points(results).filter(k=k)
    if points.is_empty():
        return Markup()
    encoders = results.evaluation.encoders
    headings = [element("th", element("span", name), scope="col") for name in encoders]
    head = element("tr", element("th", "call type", scope="col"), *headings)
    rows = []
    for count in results.evaluation.eligible_classes:
        of_label = points.filter(label=count.label)
        cells = [_cell(of_label.filter(encoder=name)) for name in encoders]
        rows.append(element("tr", element("th", count.label, scope="row"), *cells))
    body = element("tbody", *rows)
    table = element("table", element("thead", head), body, class_="heat matrix")
    caption = element("figcaption", f"{MATRIX}. ", NOTE.format(k=k))
    box = element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label=MATRIX
    )
    return element("figure", caption, box)


def _cell(point: Frame) -> Markup:
    for mean, low, high in point.select("mean", "p01", "p99").iter_rows():
        shade = min(SHADES - 1, int(mean * SHADES))
        title = f"98 % interval: {low:.2f} to {high:.2f}"
        return element("td", f"{mean:.2f}", class_=f"shade-{shade}", title=title)
    return element("td", "–", class_="shade-0")


def show_multiples(results: CorpusResults) -> Markup:
    """Return the curves of every call type, one picture each, on the same axes."""
    points = _class_points(results)
    if points.is_empty():
        return Markup()
    encoders = results.evaluation.encoders
    pictures = [
        _picture(points.filter(label=count.label), count.label, encoders)
        for count in results.evaluation.eligible_classes
    ]
    scale = replace(share_scale(pictures), width=WIDTH, height=HEIGHT)
    figures = [
        element(
            "figure", element("figcaption", picture.title), draw_svg(picture, scale)
        )
        for picture in pictures
    ]
    names = [
        element(
            "span", "● ", element("span", name, class_="ink-text"), class_=_colour(n)
        )
        for n, name in enumerate(encoders)
    ]
    return join(
        element("h3", "Every call type, on the same axes"),
        element("div", *names, class_="legend"),
        element("div", *figures, class_="multiples"),
    )


def _picture(points: Frame, label: str, encoders: Sequence[str]) -> SvgPicture:
    lines = []
    for number, name in enumerate(encoders):
        curve = points.filter(encoder=name).sort("k")
        shots = curve["k"].to_list()
        means = curve["mean"].to_list()
        lines.append(SvgLine("", shots, means, colour=number % COLOURS))
    return SvgPicture(label, lines, "AP")


def _colour(number: int) -> str:
    return f"colour-{number % COLOURS}"


def _class_points(results: CorpusResults) -> Frame:
    evaluation = results.evaluation
    spread = main_spread(evaluation)
    return evaluation.per_class.filter(scoring="all", metric="map", spread=spread)
