"""Helpers of the tests that train networks: interruptions, and the content of folders."""

from pathlib import Path

from callshot.records import Progress


class Interrupted(BaseException):
    """An interruption that no training can catch."""


def interrupt_at(text: str) -> Progress:
    """Return a progress function that interrupts the run when a message contains a text."""

    def interrupt(share: float, what: str) -> None:
        if text in what:
            raise Interrupted

    return interrupt


def folder_content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def saved_weights(folder: Path) -> dict[str, bytes]:
    """Return the finished networks of a folder, by fold, seed and kind of network."""
    paths = sorted(folder.glob("*[0-9a-f].safetensors"))
    return {path.name.rpartition("-")[0]: path.read_bytes() for path in paths}
