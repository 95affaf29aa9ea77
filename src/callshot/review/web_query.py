"""The values in the address of a request, each checked."""

import math
from typing import Any

from starlette.requests import Request

from callshot.errors import RequestError

MOST_DIGITS = 15


class Query:
    """The values in the address of a request, each checked."""

    def __init__(self, request: Request) -> None:
        self.values = request.query_params

    def text(self, name: str) -> str | None:
        """Return a text, None if it is missing or empty."""
        return self.values.get(name) or None

    def number(self, name: str, default: Any = None) -> Any:
        """Return a finite number."""
        text = self.values.get(name)
        if text is None or text == "":
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise RequestError(f"{name}: expected a number")
        return value

    def integer(self, name: str, low: int, high: int, default: Any) -> Any:
        """Return a whole number within limits."""
        text = self.values.get(name)
        if text is None or text == "":
            return default
        value = read_integer(text)
        if value is None or not low <= value <= high:
            raise RequestError(f"{name}: expected a whole number from {low} to {high}")
        return value


def read_integer(text: str) -> int | None:
    """Return a whole number of up to 15 digits, None if a text is none.

    >>> read_integer("12"), read_integer("-1"), read_integer("9" * 5000)
    (12, None, None)
    """
    is_number = text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None
