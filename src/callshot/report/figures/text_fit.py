"""Names from files → names that fit: control characters are replaced, long ones lose their middle.

Widths are measured in the figures' font, since sixty letters may be a line or a half of one. A Figure of `plates.blank`
must be open, so that the font is set.
"""

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache, partial

from callshot.report.figures.style import TEXT_PT

SHARES = (0.5, 0.25, 0.75, 0.0, 1.0)  # of the letters that are kept, how many are of the beginning


def readable(name: str) -> str:
    """Replace what has no sign of its own: line breaks and tabs by spaces, other controls by a question mark."""
    return "".join(
        " " if c.isspace() else c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name
    )


@lru_cache(16384)
def width_pt(text: str, size: float = TEXT_PT, weight: str = "normal") -> float:
    """Return how wide a text will be."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    return float(
        text_to_path.get_text_width_height_descent(
            text, FontProperties(size=size, weight=weight), False
        )[0]
    )


def shorten(
    name: str, room_pt: float, size: float = TEXT_PT, weight: str = "normal", share: float = 0.5
) -> str:
    """Return a name with an ellipsis for as much of its middle as must go; `share` of the rest is its beginning."""
    name = readable(name)
    if width_pt(name, size, weight) <= room_pt:
        return name
    kept = bisect_left(
        range(len(name)), True, key=lambda n: width_pt(_cut(name, n, share), size, weight) > room_pt
    )
    return _cut(name, max(kept - 1, 1), share)


def shorten_all(
    names: Sequence[str], room_pt: float, size: float = TEXT_PT, weight: str = "normal"
) -> list[str]:
    """Shorten names so that different ones stay different; where no cut does that, they are numbered."""
    tries = [[shorten(name, room_pt, size, weight, share) for name in names] for share in SHARES]
    apart = len(set(names))
    found = next((short for short in tries if len(set(short)) == apart), None)
    if found is not None:
        return found
    number = {name: f"{i + 1} " for i, name in enumerate(dict.fromkeys(names))}
    cut = partial(shorten, size=size, weight=weight)
    return [
        number[name] + cut(name, room_pt - width_pt(number[name], size, weight)) for name in names
    ]


def wrap(name: str, room_pt: float, size: float = TEXT_PT, weight: str = "normal") -> str:
    """Return a name on one line or two: the break is at a space where there is one, else the name is shortened."""
    name = readable(name)
    if width_pt(name, size, weight) <= room_pt:
        return name
    breaks = [
        i
        for i, c in enumerate(name)
        if c == " " and 0 < width_pt(name[:i], size, weight) <= room_pt
    ]
    if not breaks:
        return shorten(name, room_pt, size, weight)
    return f"{name[: breaks[-1]]}\n{shorten(name[breaks[-1] + 1 :], room_pt, size, weight)}"


def _cut(name: str, letters: int, share: float) -> str:
    """Keep some letters of the beginning and the end: whole words, where that costs no more than a half of them."""
    first = round(letters * share)
    head, tail = name[:first], name[len(name) - (letters - first) :]
    words, rest = head[: head.rfind(" ") + 1], tail[tail.find(" ") + 1 :]
    head = words if len(head) < 2 * len(words) and name[first : first + 1] != " " else head
    tail = rest if len(tail) < 2 * len(rest) and name[-len(tail) - 1] != " " else tail
    return f"{head.rstrip()}…{tail.lstrip()}"
