"""How every figure looks: sizes, colours, lines, markers, and names that fit.

The colours are those of Okabe and Ito. No colour carries a meaning alone: lines also differ in
dashes and markers, areas in lightness, so that a copy in grey can be read.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from math import ceil
from typing import Any

Style = dict[str, Any]
Font = tuple[float, str]  # size in points, and weight

PAGE_WIDTH_IN = 7.2
PAGE_HEIGHT_IN = 9.2
DPI = 160

TITLE_PT = 8.0
TEXT_PT = 7.5
TICK_PT = 7.0
SMALL_PT = 6.5  # no text is smaller
TITLE_FONT: Font = (TITLE_PT, "bold")
TEXT_FONT: Font = (TEXT_PT, "normal")
BOLD_FONT: Font = (TEXT_PT, "bold")
TICK_FONT: Font = (TICK_PT, "normal")
BOLD_TICK_FONT: Font = (TICK_PT, "bold")
SMALL_FONT: Font = (SMALL_PT, "normal")
BOLD_SMALL_FONT: Font = (SMALL_PT, "bold")

INK = "#1F1F1F"
GREY = "#6E6E6E"
SILVER = "#C4C4C4"
MIST = "#EBEBEB"
BLUE = "#0072B2"
VERMILION = "#D55E00"
SKY = "#56B4E9"
PALE_BLUE = "#CFE4F1"
COLOURS = (
    BLUE,
    VERMILION,
    "#009E73",  # green
    "#CC79A7",  # purple
    "#E69F00",  # orange
    SKY,
    INK,
)
SOLID = (0, ())
DASHED = (0, (4, 1.5))
DOTTED = (0, (1, 1.6))
DASHES = (
    SOLID,
    DASHED,
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (1.2, 1.2)),
    (0, (7, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
SHADES = (
    "#FFFFFF",
    "#CFE3F0",
    "#97C4E0",
    "#5BA2CE",
    "#2079B4",
    "#003F66",
)  # shares 0 to 1

BOX: Style = {"facecolor": "#B9DAEC", "edgecolor": BLUE, "linewidth": 0.6, "zorder": 3}
WHISKER: Style = {"color": BLUE, "linewidth": 0.7, "zorder": 2.5}
MEDIAN: Style = {"color": BLUE, "linewidth": 0.9, "zorder": 4}
MEAN: Style = {"color": INK, "linestyle": "none", "marker": "o", "zorder": 5}
VIOLIN: Style = {
    "facecolor": "#DCEDF6",
    "edgecolor": SKY,
    "linewidth": 0.5,
    "zorder": 2.4,
}
CHANCE: Style = {"color": INK, "linewidth": 0.9, "linestyle": DOTTED, "zorder": 2}
ZERO: Style = {"color": INK, "linewidth": 0.7, "zorder": 2.2}
LAST_COMPLETE: Style = {
    "color": GREY,
    "linewidth": 0.7,
    "linestyle": (0, (4, 2)),
    "zorder": 1,
}

# Curves with an interval: the spreads, the centroid beside a trained classifier, and a band behind
# boxes.
BAND = {
    "per-query": PALE_BLUE,
    "shared": "#FBE7C0",
    "total": "#E3E3E3",
    "centroid": PALE_BLUE,
    "trained": "#F8DCCB",
    "background": "#FBE7C0",
}
FIRST_LINE: Style = {"color": BLUE, "linestyle": SOLID, "marker": "o", "zorder": 3}
SECOND_LINE: Style = {
    "color": VERMILION,
    "linestyle": DASHED,
    "marker": "s",
    "zorder": 3,
}
LINE = {
    "per-query": FIRST_LINE,
    "shared": SECOND_LINE,
    "total": {"color": INK, "linestyle": DOTTED, "marker": "^", "zorder": 2},
    "centroid": FIRST_LINE,
    "trained": SECOND_LINE,
    "background": {"color": VERMILION, "linestyle": DASHED, "zorder": 2},
}
CROSSOVER: dict[str, Style] = {
    "k_mean": {"color": INK, "linewidth": 0.8, "linestyle": DOTTED, "zorder": 1.8},
    "k_clear": {"color": INK, "linewidth": 0.8, "linestyle": SOLID, "zorder": 1.8},
}
BASELINE: dict[str, Style] = {
    "logistic": {"color": "#00714F", "linestyle": (0, (6, 1.5))},
    "recurrent": {"color": "#A3487A", "linestyle": (0, (5, 1.2, 1.2, 1.2))},
    "end-to-end": {"color": INK, "linestyle": (0, (2.5, 1.2))},
}


def series_style(number: int) -> Style:
    """Return the style of one of several lines; colours, dashes and markers repeat differently."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "zorder": 3,
    }


UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def clean_name(name: str) -> str:
    """Replace line breaks and tabs by spaces, and other control characters by a question mark."""
    spaced = re.sub(r"\s", " ", name)
    letters = [letter if letter.isprintable() else UNPRINTABLE for letter in spaced]
    return "".join(letters)


@lru_cache(16384)
def text_width_pt(text: str, font: Font = TEXT_FONT) -> float:
    """Return the width of a text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size, weight = font
    properties = FontProperties(size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, False)
    return float(width)


def shorten(name: str, room_pt: float, font: Font = TEXT_FONT) -> str:
    """Replace as much of the middle of a name by an ellipsis as it takes to fit."""
    name = clean_name(name)

    def cut(letters: int) -> str:
        first = ceil(letters / 2)
        last = len(name) - letters + first
        return f"{name[:first].rstrip()}…{name[last:].lstrip()}"

    def is_too_wide(letters: int) -> bool:
        return text_width_pt(cut(letters), font) > room_pt

    if text_width_pt(name, font) <= room_pt:
        return name
    letters = bisect_left(range(len(name)), True, key=is_too_wide)
    return cut(max(letters - 1, 1))


def shorten_all(
    names: Sequence[str], room_pt: float, font: Font = TEXT_FONT
) -> list[str]:
    """Shorten names; number them if different ones would be equal."""
    short = [shorten(name, room_pt, font) for name in names]
    different = list(dict.fromkeys(names))
    if len(set(short)) == len(different):
        return short
    numbers = [f"{different.index(name) + 1} " for name in names]
    widths_pt = [text_width_pt(number, font) for number in numbers]
    return [
        number + shorten(name, room_pt - width_pt, font)
        for number, name, width_pt in zip(numbers, names, widths_pt, strict=True)
    ]


def wrap(name: str, room_pt: float, font: Font = TEXT_FONT) -> str:
    """Break a name that does not fit at a space, or shorten it; it has two lines at most."""
    name = clean_name(name)
    first = name
    while text_width_pt(first, font) > room_pt:
        first = first.rpartition(" ")[0]
    if first == name:
        return name
    rest = shorten(name[len(first) :].strip(), room_pt, font)
    return f"{first}\n{rest}" if first else rest
