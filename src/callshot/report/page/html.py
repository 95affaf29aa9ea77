"""Text → HTML in which text from files is always text: the only place that escapes HTML."""

import re
from html import escape

VOID = frozenset({"img", "link", "meta"})
# Control characters, half surrogates (of file names that are not UTF-8), changes of direction.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)


class Markup(str):
    """Text that is HTML already; all other text is escaped when it becomes part of an element."""

    __slots__ = ()


def clean(text: str) -> str:
    r"""Replace the characters that a page cannot hold or would obey instead of showing them.

    >>> clean("a\x00b\udcff")
    'a\ufffdb\ufffd'
    """
    unix_lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", unix_lines)


def element(name: str, /, *children: str, **attributes: str | bool | None) -> Markup:
    """Return an element.

    The attribute `class_` is class, and `data_value` is data-value; None and False leave one out.

    >>> element("p", "1 < 2 ", element("b", "is so"), class_="lead", hidden=True)
    '<p class="lead" hidden>1 &lt; 2 <b>is so</b></p>'
    """
    tag = name
    for key, value in attributes.items():
        tag += _attribute(key, value)
    if name in VOID:
        return Markup(f"<{tag}>")
    return Markup(f"<{tag}>{join(*children)}</{name}>")


def join(*children: str) -> Markup:
    """Join children, and escape those that are not markup."""
    return Markup("".join(map(_escape, children)))


def _escape(child: str) -> str:
    if isinstance(child, Markup):
        return child
    return escape(clean(child), quote=False)


def _attribute(key: str, value: str | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    if value is True:
        return f" {name}"
    return f' {name}="{escape(clean(value))}"'
