"""What `callshot verify` finds, file by file."""

from pathlib import Path
from typing import NamedTuple

STATES = {
    "whole": "as it was written",
    "unverified": "can be read, but has no checksum",
    "set aside": "was damaged, and is not used any more",
    "foreign": "was not written by callshot",
    "missing": "is listed, but not there",
    "damaged": "differs from its checksum, or cannot be read",
}
FAILURES = ("missing", "damaged")


class Finding(NamedTuple):
    """The state of a file (a key of STATES), and the reason if it is not whole."""

    path: Path
    state: str
    reason: str = ""
