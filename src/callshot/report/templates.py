"""Templates of the page and of its sentences: Jinja without newlines and indentation."""

import re
from collections.abc import Callable
from math import isfinite
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from callshot.errors import count_text

# Control characters, half surrogates (of file names that are not UTF-8), changes of direction.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    r"""Replace the characters that a page cannot hold or would obey instead of showing them.

    >>> clean("a\x00b\udcff")
    'a\ufffdb\ufffd'
    """
    unix_lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", unix_lines)


class _Compact(Extension):
    """Drops the newlines and the indentation of templates, which are there for people."""

    def preprocess(
        self, source: str, name: str | None, filename: str | None = None
    ) -> str:
        """Return a template without its newlines and the spaces around them."""
        return re.sub(r"\s*\n\s*", "", source)


def make_environment(
    package: str, clean: Callable[[str], str], *, autoescape: bool
) -> Environment:
    """Return the templates of a package; `clean` replaces characters in inserted texts."""

    def finalize(value: Any) -> Any:
        """Clean a value before it is inserted."""
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return clean(value) if is_text else value

    environment = Environment(
        loader=PackageLoader(package),
        autoescape=autoescape,
        undefined=StrictUndefined,
        extensions=[_Compact],
        finalize=finalize,
    )
    environment.filters["count"] = count_text
    environment.tests["finite"] = lambda value: value is not None and isfinite(value)
    return environment
