"""A path → the state of every file behind it: `callshot verify`.

KINDS lists what can be verified, and the function that does it. To add a kind, add a row.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from callshot.corpus.segments import audio_root
from callshot.detection.index.index_files import is_index
from callshot.detection.index.verify_index import verify_index
from callshot.encoders.embed import default_store
from callshot.encoders.store.verify_store import is_store, verify_store
from callshot.errors import InputError, OptionError
from callshot.records import FAILURES, Finding
from callshot.study.plan import plan
from callshot.study.steps import NOTE_FILE, Step
from callshot.study.study_file import read_study
from callshot.study.verify_results import is_results, verify_file, verify_results
from callshot.tables.verify_table import is_table, verify_table

RUN_AGAIN = "callshot run makes it again"


class Kind(NamedTuple):
    """Something that can be verified: how it is recognised, and what is found in it.

    `verify` is called with the path and with whether to repair, which stores and indexes
    can do.
    """

    name: str
    recognise: Callable[[Path], bool]
    verify: Callable[[Path, bool], Iterator[Finding]]
    has_store: bool = False


def verify_path(path: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Return the state of every file of a study, store, index, folder of results or table.

    With `repair`, damaged shards of a store and damaged files of an index are set aside: the next
    run makes them again. Nothing else is changed.

    Raises
    ------
    InputError
        If the path is none of these.
    OptionError
        If something without a store is to be repaired.
    """
    for kind in KINDS:
        if not kind.recognise(path):
            continue
        if repair and not kind.has_store:
            raise OptionError(
                f"repair: {path} is a {kind.name}, which has no store; run again what wrote it"
            )
        return kind.verify(path, repair)
    names = ", ".join(kind.name for kind in KINDS)
    raise InputError(f"{path}: expected one of these: {names}")


def default_path() -> Path:
    """Return what is verified by default: the study here, or the user's store."""
    study = Path("study.toml")
    return study if study.is_file() else default_store()


def is_study(path: Path) -> bool:
    """Return whether a path is that of a study file."""
    return path.suffix == ".toml" and path.is_file()


def verify_study(path: Path, repair: bool) -> Iterator[Finding]:
    """Yield the state of the files of all steps, of recordings, annotations and the store."""
    study = read_study(path)
    roots = {corpus.name: audio_root(corpus.audio) for corpus in study.corpora}
    for step in plan(study):
        yield from _verify_step(step, roots.get(step.corpus))
    store = study.store or default_store()
    if is_store(store):
        yield from verify_store(store, repair=repair)


def _verify_step(step: Step, audio: Path | None) -> Iterator[Finding]:
    """Yield the state of each file of a step once; nothing if the step has not run."""
    if not step.folder.is_dir():
        return
    findings: dict[Path, Finding] = {}
    for finding in (*_verify_note(step), *verify_results(step.folder, audio)):
        earlier = findings.get(finding.path)
        if earlier is None or finding.state in FAILURES:
            findings[finding.path] = finding
    if not is_results(
        step.folder
    ):  # other steps may have their files in the same folder
        findings = {p: f for p, f in findings.items() if f.state != "foreign"}
    yield from findings.values()


def _verify_note(step: Step) -> Iterator[Finding]:
    path = step.note_path
    if not path.exists():
        yield Finding(path, "missing", f"the step {step.name} did not end; {RUN_AGAIN}")
        return
    note = step.read_note()
    if not note:
        yield Finding(path, "damaged", f"not the note of a step; {RUN_AGAIN}")
        return
    yield Finding(path, "whole")
    for name, checksum in note["files"].items():
        yield verify_file(step.folder / name, checksum, NOTE_FILE)


def _verify_store(path: Path, repair: bool) -> Iterator[Finding]:
    return verify_store(path, repair=repair)


def _verify_index(path: Path, repair: bool) -> Iterator[Finding]:
    return verify_index(path, repair=repair)


def _verify_results(path: Path, repair: bool) -> Iterator[Finding]:
    return verify_results(path)


def _verify_table(path: Path, repair: bool) -> Iterator[Finding]:
    yield verify_table(path)


KINDS = (
    Kind("study file", is_study, verify_study, has_store=True),
    Kind("index", is_index, _verify_index, has_store=True),
    Kind("folder of results", is_results, _verify_results),
    Kind("store", is_store, _verify_store, has_store=True),
    Kind("table", is_table, _verify_table),
)
