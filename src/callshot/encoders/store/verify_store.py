"""A store → the state of every file in it; damaged shards are set aside if that is asked for."""

from collections.abc import Iterator
from pathlib import Path

from callshot.encoders.store.shards import (
    DAMAGED_SUFFIX,
    find_damage,
    list_shards,
    set_aside,
)
from callshot.encoders.store.store import FINGERPRINT
from callshot.errors import InputError
from callshot.files import error_reason, sha256_file
from callshot.records import Finding

LOCK = ".lock"


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, or the part of a store with one encoder."""
    return _has_shards(folder) or any(map(_has_shards, _list_folder(folder)))


def verify_store(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of a store; with `repair`, set damaged shards aside."""
    if _has_shards(folder):
        yield from _verify_encoder(folder, repair)
        return
    for path in _list_folder(folder):
        if _has_shards(path):
            yield from _verify_encoder(path, repair)
        else:
            yield Finding(path, "not from callshot")


def _has_shards(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    is_encoder = (folder / FINGERPRINT).is_file()
    return is_encoder or bool(list_shards(folder, sequences=False))


def _list_folder(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _verify_encoder(folder: Path, repair: bool) -> Iterator[Finding]:
    yield _verify_fingerprint(folder / FINGERPRINT)
    shards = set(list_shards(folder, sequences=False))
    for path in _list_folder(folder):
        if path in shards:
            yield _verify_shard(path, repair)
        elif path.name.endswith(DAMAGED_SUFFIX):
            yield Finding(path, "quarantined", "may be removed")
        elif path.name not in (LOCK, FINGERPRINT):
            yield Finding(path, "not from callshot")


def _verify_fingerprint(path: Path) -> Finding:
    if not path.is_file():
        reason = "the encoder that the shards are from; embedding writes it again"
        return Finding(path, "missing", reason)
    if sha256_file(path).startswith(path.parent.name):
        return Finding(path, "ok")
    reason = "not what its folder is named after; embedding writes it again"
    return Finding(path, "damaged", reason)


def _verify_shard(shard: Path, repair: bool) -> Finding:
    try:
        damage = find_damage(shard)
    except OSError as error:
        raise InputError(f"{shard}: cannot be read ({error_reason(error)})") from error
    if damage and repair:
        notes: list[str] = []
        set_aside(shard, damage, notes)
        return Finding(shard, "damaged", notes[0].removeprefix(f"{shard}: "))
    if damage:
        return Finding(shard, "damaged", f"{damage}; --repair sets it aside")
    return Finding(shard, "ok")
