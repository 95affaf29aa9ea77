"""A folder of results → the state of every file in it, by the checksums in its provenance."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from callshot.corpus.input_files import verify_inputs
from callshot.detection.events.exports import MANIFEST as EXPORT_INFO
from callshot.detection.index.index_files import is_index
from callshot.detection.index.verify_index import verify_index
from callshot.detection.scans.scan_files import PROVENANCE as SCAN_INFO
from callshot.files import is_inside, sha256_file
from callshot.records import Finding
from callshot.report.results import PROVENANCE
from callshot.study.file_steps import SEGMENTS_INFO
from callshot.study.steps import NOTE_FILE
from callshot.tables.fold_files import FOLDS_INFO

MANIFESTS = (  # files that list the others
    PROVENANCE,
    SEGMENTS_INFO,
    FOLDS_INFO,
    SCAN_INFO,
    EXPORT_INFO,
)
NO_MANIFEST = "not a provenance that callshot wrote; run again"
CHANGED = "differs from the checksum in {}: damaged, or edited since"
DAMAGED_MANIFEST = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)


def is_results(folder: Path) -> bool:
    """Return whether a folder has results of callshot."""
    return any((folder / name).is_file() for name in MANIFESTS)


def verify_results(folder: Path, audio: Path | None = None) -> Iterator[Finding]:
    """Yield the state of each file in a folder, and of the files that segments were cut from.

    `audio` is the folder of recordings, if it is not the one that the results name.
    """
    known = {folder / NOTE_FILE}
    for name in MANIFESTS:
        path = folder / name
        if not path.is_file():
            continue
        known.add(path)
        try:
            manifest = json.loads(path.read_bytes())
            findings = list(_verify_manifest(manifest, path, audio))
        except DAMAGED_MANIFEST:
            yield Finding(path, "damaged", NO_MANIFEST)
            return
        known.update(finding.path for finding in findings)
        yield Finding(path, "unverified", "has no checksum")
        yield from findings
    parts = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    nested = [path for path in parts if is_index(path) or is_results(path)]
    for path in nested:
        yield from verify_index(path) if is_index(path) else verify_results(path)
    for path in sorted(folder.rglob("*")):
        is_nested = any(path.is_relative_to(part) for part in nested)
        is_visible = path.is_file() and not path.name.startswith(".")
        if is_visible and not is_nested and path not in known:
            yield Finding(path, "foreign")


def _verify_manifest(
    manifest: Mapping[str, Any], path: Path, audio: Path | None
) -> Iterator[Finding]:
    for name, checksum in manifest["files"].items():
        if is_inside(path.parent, name):
            yield verify_file(path.parent / name, checksum, path.name)
    if path.name == SEGMENTS_INFO:
        root = audio or Path(manifest["options"]["audio"])
        yield from verify_inputs(manifest, root)


def verify_file(path: Path, checksum: str, manifest: str) -> Finding:
    """Return whether a file is as a manifest lists it."""
    try:
        is_same = sha256_file(path) == checksum
    except OSError:
        return Finding(path, "missing", f"{manifest} lists it; run again")
    if is_same:
        return Finding(path, "whole")
    return Finding(path, "damaged", CHANGED.format(manifest))
