"""A path → the state of every file behind it: `callshot verify`.

KINDS lists what can be verified, and the function that does it. To add a kind, add a row.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from callshot.corpus.recordings import DAMAGED_MANIFEST
from callshot.corpus.segment_table import verify_inputs
from callshot.corpus.segments import audio_root
from callshot.detection.index.index_files import is_index, verify_index
from callshot.encoders.embed import default_store
from callshot.encoders.store import is_store, verify_store
from callshot.errors import InputError, OptionError
from callshot.files import MANIFESTS, RESULTS_OF_SCANS
from callshot.records import Finding
from callshot.results import compare_files, is_intact
from callshot.review.journal import is_review
from callshot.review.results import verify_review
from callshot.study.file_steps import SEGMENTS_INFO
from callshot.study.plan import plan
from callshot.study.steps import RECORD_FILE, optional
from callshot.study.study_file import read_study
from callshot.tables.embedding_tables import is_table, verify_table

RUN_AGAIN = "callshot run makes it again"
NESTED = ("index", "review", "folder of results")  # kinds in a folder of results
NO_MANIFEST = "not a provenance that callshot wrote; run again"
REASONS = {
    "ok": "",
    "damaged": "differs from the checksum in {}: damaged, or edited since",
    "missing": "{} lists it; run again",
}


class Kind(NamedTuple):
    """Something that can be verified; `verify` gets the path, and `repair` where it has a store."""

    name: str
    recognise: Callable[[Path], bool]
    verify: Callable[..., Iterator[Finding]]
    has_store: bool = False


def verify_path(path: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Return the state of every file of a study, store, index, review, results or table.

    With `repair`, damaged shards of a store and damaged files of an index are set aside: the next
    run makes them again. Nothing else is changed.
    """
    for kind in KINDS:
        if not kind.recognise(path):
            continue
        if not repair:
            return kind.verify(path)
        if not kind.has_store:
            raise OptionError(
                f"repair: {path} is a {kind.name}, which has no store; run again what wrote it"
            )
        return kind.verify(path, repair=True)
    names = ", ".join(kind.name for kind in KINDS)
    raise InputError(f"{path}: expected one of these: {names}")


def default_path() -> Path:
    """Return what is verified by default: the study here, or the user's store."""
    study = Path("study.toml")
    return study if study.is_file() else default_store()


def verify_study(path: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of the files of all steps, of recordings, annotations and the store."""
    study = read_study(path)
    roots = {corpus.name: audio_root(corpus.audio) for corpus in study.corpora}
    for step in plan(study):
        if step.folder.is_dir():  # it has run
            root = roots.get(step.corpus)
            yield from verify_results(step.folder, root, step.record_path)
    store = study.store or default_store()
    if is_store(store):
        yield from verify_store(store, repair=repair)


def is_results(folder: Path) -> bool:
    """Return whether a folder has results of callshot."""
    return any((folder / name).is_file() for name in (*MANIFESTS, *RESULTS_OF_SCANS))


def verify_results(
    folder: Path, audio: Path | None = None, record: Path | None = None
) -> Iterator[Finding]:
    """Yield the state of each file in a folder, and of the files that segments were cut from.

    Files are compared with the checksums in the manifests of the folder. `audio` is the folder of
    recordings, if it is not the one that the results name, and `record` the record of the step that
    wrote the folder, if one did. Indexes, reviews and results in the folder are verified too, and
    files that no manifest lists are not from callshot. A manifest that cannot be read ends it.
    """
    # The record of another step is neither verified nor reported as unknown.
    known = set() if record == folder / RECORD_FILE else {folder / RECORD_FILE}
    manifests = [folder / name for name in (*MANIFESTS, *RESULTS_OF_SCANS)]
    paths = [path for path in (*optional(record), *manifests) if path.is_file()]
    if record is not None and record not in paths:
        yield Finding(record, "missing", f"the step did not end; {RUN_AGAIN}")
    for path in paths:
        # The record of a step has no checksum of its own.
        findings, is_readable = _verify_manifest(
            path, folder, audio, is_sealed=path != record
        )
        for finding in findings:
            if finding.path not in known:
                known.add(finding.path)
                yield finding
        if not is_readable:
            return
    # Without results, other steps may have their files in the same folder.
    if record is not None and not is_results(folder):
        return
    nested = []
    for path in sorted(filter(Path.is_dir, folder.iterdir())):
        kinds = [kind for kind in KINDS if kind.name in NESTED and kind.recognise(path)]
        if kinds:
            nested.append(path)
            yield from kinds[0].verify(path)
    for path in sorted(folder.rglob("*")):
        is_known = path in known or any(path.is_relative_to(part) for part in nested)
        if not is_known and path.is_file() and not path.name.startswith("."):
            yield Finding(path, "not from callshot")


def _verify_manifest(
    path: Path, folder: Path, audio: Path | None, *, is_sealed: bool
) -> tuple[list[Finding], bool]:
    """Verify a manifest, the files that it lists and the inputs that it names.

    `is_sealed` says whether it holds its own checksum. Return what was found, the manifest first,
    and whether it could be read to its end.
    """
    findings = [Finding(path, "ok")]
    try:
        content = path.read_bytes()
        manifest = json.loads(content)
        for file, state in compare_files(folder, manifest):
            findings.append(Finding(file, state, REASONS[state].format(path.name)))
        if path.name == SEGMENTS_INFO:
            root = audio or Path(manifest["options"]["audio"])
            findings += verify_inputs(manifest, root)
        if is_sealed and not is_intact(content):
            reason = REASONS["damaged"].format(path.name)
            findings[0] = Finding(path, "damaged", reason)
    except DAMAGED_MANIFEST:
        findings[0] = Finding(path, "damaged", NO_MANIFEST)
        return findings, False
    return findings, True


KINDS = (
    Kind(
        "study file",
        lambda path: path.suffix == ".toml" and path.is_file(),
        verify_study,
        has_store=True,
    ),
    Kind("index", is_index, verify_index, has_store=True),
    Kind("review", is_review, verify_review),
    Kind("folder of results", is_results, verify_results),
    Kind("store", is_store, verify_store, has_store=True),
    Kind("table", is_table, lambda path: iter([verify_table(path)])),
)
