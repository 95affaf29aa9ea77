"""A folder of a review → the state of each of its files."""

from collections.abc import Iterator
from pathlib import Path

from callshot.errors import InputError
from callshot.records import Finding
from callshot.review.journal import JOURNAL, TORN, describe_torn, read_journal
from callshot.review.model_scores import VECTOR_FACTS, VECTORS, is_same_copy
from callshot.review.results import read_review
from callshot.review.server import ADDRESS, has_address

MADE_AGAIN = "remove it: the next review makes it again"


def verify_review(folder: Path) -> Iterator[Finding]:
    """Yield the state of each file of a review; hidden files are left out."""
    yield _verify_journal(folder)
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith(".") or path.name == JOURNAL:
            continue
        yield _verify_other(path)


def _verify_journal(folder: Path) -> Finding:
    path = folder / JOURNAL
    try:
        is_torn = bool(read_journal(folder).torn)
        read_review(folder)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ")
        return Finding(path, "damaged", reason)
    if is_torn:
        note = describe_torn(path).removeprefix(f"{path}: ")
        return Finding(path, "unverified", note)
    return Finding(path, "ok")


def _verify_other(path: Path) -> Finding:
    """Return the state of a file that can be made again, or that callshot did not write."""
    folder = path.parent
    if path.name.startswith(TORN):
        return Finding(path, "quarantined")
    if path.name in (VECTORS, VECTOR_FACTS):
        is_same = is_same_copy(folder)
    elif path.name == ADDRESS:
        is_same = has_address(folder)
    else:
        return Finding(path, "not from callshot")
    return Finding(path, "ok") if is_same else Finding(path, "damaged", MADE_AGAIN)
