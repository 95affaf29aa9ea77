"""The files that segments were made from → their checksums, which go into the provenance.

A recording has its path in the folder of recordings; so has an annotation file that is in there. An
annotation file elsewhere has its absolute path. So `root / file` is the file again.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from callshot.files import explain_unreadable, sha256_file
from callshot.records import (
    Finding,
    Progress,
    Segmentation,
    no_progress,
)
from callshot.storage import is_remote, to_path

ANNOTATIONS = "annotations"
RECORDING = "recording"


def describe_inputs(
    segmentation: Segmentation,
    progress: Progress = no_progress,
    *,
    root: Path | None = None,
) -> list[dict[str, str]]:
    """Return role, file and sha256 of every annotation file and of all recordings with segments.

    `root` is the folder of the recordings, if it is open already.
    """
    root = root or to_path(segmentation.audio)
    roles = dict.fromkeys(_annotation_files(segmentation, root), ANNOTATIONS)
    recordings = sorted(set(segmentation.segments.paths))
    roles |= dict.fromkeys(recordings, RECORDING)
    inputs = []
    for file, role in roles.items():
        progress(0.0, f"checksum of {file}")
        path = _find_input(root, file)
        with explain_unreadable(path):
            inputs.append({"role": role, "file": file, "sha256": sha256_file(path)})
    return inputs


def _find_input(root: Path, file: str) -> Path:
    """Return the path of an input: a URL, absolute, or below the folder of the recordings."""
    path = to_path(file)
    if is_remote(path) or path.is_absolute():
        return path
    return root / file


def _annotation_files(segmentation: Segmentation, root: Path) -> list[str]:
    calls = segmentation.calls
    rows = [
        *zip(calls["annotation_file"], calls["annotation_row"], strict=True),
        *((reject.file, reject.row) for reject in segmentation.rejects),
    ]
    names = {file for file, row in rows if row is not None}
    files = []
    for name in names:
        path: PurePath = to_path(name).absolute()
        if path.is_relative_to(root):
            path = path.relative_to(root)
        files.append(path.as_posix())
    return sorted(files)


def verify_inputs(provenance: Mapping[str, Any], root: Path) -> Iterator[Finding]:
    """Yield what became of the files that segments were made from."""
    for entry in provenance.get("inputs", ()):
        path = _find_input(root, entry["file"])
        expected = entry["sha256"]
        try:
            is_same = sha256_file(path) == expected
        except OSError:
            yield Finding(path, "missing", f"the {entry['role']} of segments")
            continue
        if is_same:
            yield Finding(path, "ok")
        else:
            reason = "has changed since the segments were cut; run again"
            yield Finding(path, "damaged", reason)
