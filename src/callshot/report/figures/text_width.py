"""Names from files → names that fit: control characters are replaced, long names lose their middle.

Widths are measured in the font of the figures, so a Figure of `open_figure` must be open.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from callshot.report.figures.style import TEXT_FONT, Font

UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"
SHARES = (0.5, 0.25, 0.75, 0.0, 1.0)  # how much of a shortened name is its beginning


def display_name(name: str) -> str:
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


def shorten(
    name: str, room_pt: float, font: Font = TEXT_FONT, share: float = 0.5
) -> str:
    """Replace as much of the middle of a name by an ellipsis as it takes to fit.

    `share` of the letters that stay are from the beginning.
    """
    name = display_name(name)

    def is_too_wide(letters: int) -> bool:
        return text_width_pt(_cut(name, letters, share), font) > room_pt

    if text_width_pt(name, font) <= room_pt:
        return name
    letters = bisect_left(range(len(name)), True, key=is_too_wide)
    return _cut(name, max(letters - 1, 1), share)


def shorten_all(
    names: Sequence[str], room_pt: float, font: Font = TEXT_FONT
) -> list[str]:
    """Shorten names so that different ones stay different; number them if no cut does that."""
    different = list(dict.fromkeys(names))
    for share in SHARES:
        short = [shorten(name, room_pt, font, share) for name in names]
        if len(set(short)) == len(different):
            return short
    numbered = []
    for name in names:
        number = f"{different.index(name) + 1} "
        room = room_pt - text_width_pt(number, font)
        numbered.append(number + shorten(name, room, font))
    return numbered


def wrap(name: str, room_pt: float, font: Font = TEXT_FONT) -> str:
    """Break a name that does not fit at a space, or shorten it; it has two lines at most."""
    name = display_name(name)
    first = name
    while text_width_pt(first, font) > room_pt:
        first = first.rpartition(" ")[0]
    if first == name:
        return name
    rest = shorten(name[len(first) :].strip(), room_pt, font)
    return f"{first}\n{rest}" if first else rest


def _cut(name: str, letters: int, share: float) -> str:
    """Return letters of the beginning and the end; whole words, if that costs at most half."""
    first = round(letters * share)
    last = len(name) - (letters - first)
    head = name[:first]
    tail = name[last:]
    whole_head = head[: head.rfind(" ") + 1]
    whole_tail = tail[tail.find(" ") + 1 :]
    cuts_first_word = name[first : first + 1] != " "
    cuts_last_word = name[last - 1] != " "
    if cuts_first_word and len(head) < 2 * len(whole_head):
        head = whole_head
    if cuts_last_word and len(tail) < 2 * len(whole_tail):
        tail = whole_tail
    return f"{head.rstrip()}…{tail.lstrip()}"
