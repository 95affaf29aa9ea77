"""A file that is made → its place, whole or not at all; and what a library says of a failure, in one line."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from callshot.errors import OutputError


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Hand out a name to write to; it takes the place of the target when all went well, and goes when not."""
    unfinished = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
    try:
        yield unfinished
        with unfinished.open("rb+") as stream:  # Windows syncs only what may be written
            os.fsync(stream.fileno())
        unfinished.replace(target)
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({reason(error)})") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def reason(error: BaseException) -> str:
    """Say in one line what a library says in many."""
    return getattr(error, "strerror", None) or " ".join(str(error).split())[:300] or type(error).__name__
