"""An index → the state of every file in it; damaged files are set aside if that is asked for."""

from collections.abc import Iterator
from pathlib import Path

from callshot.detection.index.index_files import (
    INDEX,
    LOCK,
    RECORDING,
    RECORDINGS,
    REJECTS,
    SPAN_NAME,
    find_span_damage,
    read_record,
    read_settings,
)
from callshot.errors import InputError
from callshot.files import error_reason
from callshot.records import Finding

DAMAGED_SUFFIX = ".damaged"


def verify_index(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of an index; with `repair`, set damaged windows aside.

    The next `callshot index` makes them again.
    """
    yield _verify_settings(folder / INDEX)
    for path in sorted(folder.iterdir()):
        if path.name not in (INDEX, RECORDINGS, REJECTS, LOCK):
            yield Finding(path, "not from callshot")
    for path in sorted((folder / RECORDINGS).glob("*")):
        if path.is_dir():
            yield from _verify_recording(path, repair)
        else:
            yield Finding(path, "not from callshot")


def _verify_settings(path: Path) -> Finding:
    """Return the state of `index.json`, which cannot be made again from the rest."""
    try:
        read_settings(path.parent)
    except InputError as error:
        return Finding(path, "damaged", str(error).removeprefix(f"{path}: "))
    return Finding(path, "ok")


def _verify_recording(folder: Path, repair: bool) -> Iterator[Finding]:
    spans = _list_spans(folder)
    if (folder / RECORDING).exists():
        yield _verify_record(folder / RECORDING, repair)
    for name in spans:
        if not (folder / name).exists():
            reason = "windows of a recording; callshot index makes them again"
            yield Finding(folder / name, "missing", reason)
    for path in sorted(folder.iterdir()):
        if path.name in (RECORDING, LOCK):
            continue
        if path.name.endswith(DAMAGED_SUFFIX):
            yield Finding(path, "quarantined", "may be removed")
        elif SPAN_NAME.fullmatch(path.name) is None:
            yield Finding(path, "not from callshot")
        else:
            yield _verify_span(path, repair)


def _list_spans(folder: Path) -> list[str]:
    """Return the files that a recording lists, none if the list cannot be read."""
    try:
        names = read_record(folder / RECORDING).get("spans", [])
    except InputError:
        return []
    return [name for name in names if SPAN_NAME.fullmatch(str(name)) is not None]


def _verify_record(path: Path, repair: bool) -> Finding:
    try:
        read_record(path)
    except InputError as error:
        damage = str(error).removeprefix(f"{path}: ").partition(";")[0]
        return _report_damage(path, damage, repair)
    return Finding(path, "ok")


def _verify_span(path: Path, repair: bool) -> Finding:
    damage = find_span_damage(path)
    if damage:
        return _report_damage(path, damage, repair)
    return Finding(path, "ok")


def _report_damage(path: Path, damage: str, repair: bool) -> Finding:
    if not repair:
        return Finding(path, "damaged", f"{damage}; --repair sets it aside")
    outcome = "it was set aside; callshot index makes it again"
    try:
        path.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
    except OSError as error:
        outcome = f"it stays where it is ({error_reason(error)})"
    return Finding(path, "damaged", f"{damage}; {outcome}")
