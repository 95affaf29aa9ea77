"""A step that is done → what a person would want to hear of it, in a few words: how much, and what was left out."""

import json
from collections.abc import Callable
from typing import Any

from callshot.corpus.table import read_rejects
from callshot.encoders.sidecars import DEALT
from callshot.pipeline import TOLD_IN
from callshot.study.steps import Step


def tell_outcome(step: Step) -> list[str]:
    """Tell how many segments, rejects and call types there are, then notes; nothing where there is nothing to tell."""
    tell = TELLERS.get(step.kind)
    return [] if tell is None else tell(step)


def _tell_segments(step: Step) -> list[str]:
    told = _read(step, TOLD_IN)
    files = f" and {told['refused']} whole files" if told["refused"] else ""
    return [f"{told['segments']} segments, {told['rejects']} rejects{files}", *told["notes"]]


def _tell_embeddings(step: Step) -> list[str]:
    path = next((step.folder / name for name in step.note()["files"] if name.endswith(".rejects.csv")), None)
    rejects = [] if path is None else read_rejects(path)
    return [f"{len(rejects)} rejects, the first: {rejects[0].reason}"] if rejects else []


def _tell_folds(step: Step) -> list[str]:
    told = _read(step, DEALT)
    left = [f"not evaluated: '{c['label']}' ({c['reason']})" for c in told["classes"] if c["reason"]]
    missing = [f"{len(told['missing'])} segments are left out, as some encoder refused them"] if told["missing"] else []
    every = len(told["classes"])
    return [f"{every - len(left)} of {every} call types in {told['count']} folds", *left, *missing]


def _read(step: Step, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((step.folder / name).read_text(encoding="utf-8"))
    return found


TELLERS: dict[str, Callable[[Step], list[str]]] = {
    "segment": _tell_segments, "embed": _tell_embeddings, "fold": _tell_folds,
}  # fmt: skip
