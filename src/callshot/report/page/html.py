"""Text → HTML in which nothing that came from a file can be anything but text."""

import re
from html import escape

VOID = frozenset({"img", "link", "meta"})
# Controls, halves of characters (from file names that are no UTF-8), and what would turn the direction of a line.
UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML already; every other string is escaped where it is put in."""

    __slots__ = ()


def clean(text: str) -> str:
    r"""Replace what a page cannot hold or would obey instead of showing it.

    >>> clean("a\x00b\udcff")
    'a\ufffdb\ufffd'
    """
    return UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n").replace("\r", "\n"))


def element(name: str, /, *children: str, **attributes: str | bool | None) -> Markup:
    """Return an element; `class_` is the attribute class, `data_value` data-value, and None or False no attribute.

    >>> element("p", "1 < 2 ", element("b", "is so"), class_="lead", hidden=True)
    '<p class="lead" hidden>1 &lt; 2 <b>is so</b></p>'
    """
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(
        f"<{name}{head}>" if name in VOID else f"<{name}{head}>{join(*children)}</{name}>"
    )


def join(*children: str) -> Markup:
    """Put children one after another, escaping those that are not markup."""
    return Markup(
        "".join(c if isinstance(c, Markup) else escape(clean(c), quote=False) for c in children)
    )


def _attribute(key: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escape(clean(value))}"'
