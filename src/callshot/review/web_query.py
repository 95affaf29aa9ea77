"""The values in the address of a request, each checked."""

import math
from typing import Any

from starlette.requests import Request

from callshot.errors import RequestError


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
        if not text.isdecimal() or not low <= int(text[:15]) <= high:
            raise RequestError(f"{name}: expected a whole number from {low} to {high}")
        return int(text)
