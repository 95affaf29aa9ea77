"""Folds as people name them → numbers.

A fold is any integer or any name; −1 and an empty cell are the common fold.
"""

import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from callshot.records.terms import COMMON_FOLD
from callshot.spans import Spans

IntArray = NDArray[np.int64]

INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0+)?")  # 2.0: pandas, beside a missing one
MISSING = ("", "na", "nan", "none", "null")


def number_folds(names: Iterable[object]) -> list[int]:
    """Return the number of each fold; None and empty names are the common fold.

    Integers stay as they are. If one fold is not an integer, all are numbered from 0 in the order
    of their names, in which numbers count as numbers.

    >>> number_folds(["1", "5", -1, None])
    [1, 5, -1, -1]
    >>> number_folds(["site 10", "site 9", "", "site 10"])
    [1, 0, -1, 1]
    """
    texts = [_text(name) for name in names]
    fold_names = {text for text in texts if text != str(COMMON_FOLD)}
    if all(map(INTEGER.fullmatch, fold_names)):
        return [int(text) for text in texts]
    numbers = {text: n for n, text in enumerate(sorted(fold_names, key=_natural_key))}
    return [numbers.get(text, COMMON_FOLD) for text in texts]


def given_folds(segments: Spans) -> IntArray | None:
    """Return the folds that came with the annotations of segments; None if there are none."""
    if "fold" not in segments.frame.columns:
        return None
    folds = segments["fold"]
    if all(fold is None for fold in folds):
        return None
    return np.array(number_folds(folds), np.int64)


def _text(name: object) -> str:
    """Return how a fold is written, without the decimals of an integer."""
    text = "" if name is None else str(name).strip()
    if text.casefold() in MISSING:
        return str(COMMON_FOLD)
    text = text.replace("\N{MINUS SIGN}", "-")
    if INTEGER.fullmatch(text):
        return str(int(text.partition(".")[0]))
    return text


def _natural_key(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts "fold 9" before "fold 10"."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
