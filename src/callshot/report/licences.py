"""Licences of encoders → a sentence."""

from collections.abc import Iterator, Mapping

from callshot.errors import printable
from callshot.records.terms import NO_LICENCE


def describe_licences(licences: Mapping[str, str]) -> Iterator[str]:
    """Yield the licences of the weights of encoders, if any have one.

    >>> list(describe_licences({"a": "Apache-2.0", "b": "CC BY-NC 4.0", "c": "Apache-2.0"}))
    ['Licences of weights: Apache-2.0 (a, c); CC BY-NC 4.0 (b).']
    """
    encoders: dict[str, list[str]] = {}
    for encoder, licence in licences.items():
        if licence != NO_LICENCE:
            encoders.setdefault(licence, []).append(encoder)
    texts = [f"{licence} ({', '.join(names)})" for licence, names in encoders.items()]
    if texts:
        yield printable(f"Licences of weights: {'; '.join(texts)}.")
