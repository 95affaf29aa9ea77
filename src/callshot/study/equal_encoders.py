"""Encoders of a study whose tables are the same → one is measured, the others are named.

An encoder with speed=auto gives the vectors of the plain one where the chosen speed is 1. That is
known once both are embedded. The steps that would measure the second one write the name of the
first instead.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from callshot.errors import InputError
from callshot.fewshot.dataset import describe_equal
from callshot.files import write_atomic
from callshot.records import Progress
from callshot.study.steps import Step
from callshot.tables.embedding_tables import stored_checksum

SAME_AS = "same_as.json"


def measure_once(step: Step, table: Path, earlier: Sequence[tuple[str, Path]]) -> Step:
    """Return a step that runs unless an earlier encoder, a name and a table, has the same table."""
    if not earlier:
        return step
    find = partial(find_equal, table, earlier)
    make_results = step.make

    def make(progress: Progress) -> Sequence[str]:
        marker = step.folder / SAME_AS
        first = find()
        if not first:
            marker.unlink(missing_ok=True)
            return make_results(progress)
        step.folder.mkdir(parents=True, exist_ok=True)
        facts = {"encoder": step.encoder, "same_as": first}
        write_atomic(marker, json.dumps(facts, ensure_ascii=False) + "\n")
        return [SAME_AS]

    return replace(step, inputs=[*step.inputs, find], make=make)


def find_equal(table: Path, earlier: Sequence[tuple[str, Path]]) -> str:
    """Return the name of the first encoder with the same table, or nothing."""
    checksum = _checksum(table)
    for name, other in earlier:
        if checksum and _checksum(other) == checksum:
            return name
    return ""


def _checksum(table: Path) -> str:
    with suppress(
        InputError
    ):  # of a table that is missing or damaged: it is made again
        return stored_checksum(table)
    return ""


def is_measured(folder: Path) -> bool:
    """Return whether a step wrote results to its folder, not the name of an equal encoder."""
    return not (folder / SAME_AS).exists()


def describe_equal_encoders(folders: Sequence[Path]) -> list[str]:
    """Return a note for every encoder that was not measured, because an earlier one is the same."""
    notes = []
    for folder in folders:
        if not is_measured(folder):
            facts = json.loads((folder / SAME_AS).read_text(encoding="utf-8"))
            notes.append(describe_equal(facts["encoder"], facts["same_as"]))
    return notes
