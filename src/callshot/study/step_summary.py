"""A step that is done → what a person would want to hear of it, in a few words: how much, and what was left out."""

import json
from collections.abc import Callable
from typing import Any

from callshot.baselines.run import KINDS
from callshot.corpus.segment_table import read_rejects
from callshot.report.results import read_baselines
from callshot.report.tables.scores import METRICS
from callshot.study.baseline_steps import PUBLISHED
from callshot.study.file_steps import TOLD_IN
from callshot.study.step_cache import Step
from callshot.study.train_baselines import BASELINES
from callshot.tables.fold_files import FOLDS_INFO


def describe_outcome(step: Step) -> list[str]:
    """Tell how many segments, rejects and call types there are, then notes; nothing where there is nothing to tell."""
    tell = TELLERS.get(step.kind)
    return [] if tell is None else tell(step)


def _tell_segments(step: Step) -> list[str]:
    told = _read(step, TOLD_IN)
    files = f" and {told['refused']} whole files" if told["refused"] else ""
    return [f"{told['segments']} segments, {told['rejects']} rejects{files}", *told["notes"]]


def _tell_embeddings(step: Step) -> list[str]:
    path = next(
        (step.folder / name for name in step.note()["files"] if name.endswith(".rejects.csv")), None
    )
    rejects = [] if path is None else read_rejects(path)
    return [f"{len(rejects)} rejects, the first: {rejects[0].reason}"] if rejects else []


def _tell_folds(step: Step) -> list[str]:
    told = _read(step, FOLDS_INFO)
    left = [
        f"not evaluated: '{c['label']}' ({c['reason']})" for c in told["classes"] if c["reason"]
    ]
    missing = (
        [f"{len(told['missing'])} segments are left out, as some encoder refused them"]
        if told["missing"]
        else []
    )
    every = len(told["classes"])
    return [f"{every - len(left)} of {every} call types in {told['count']} folds", *left, *missing]


def _tell_rivals(step: Step) -> list[str]:
    """Tell what each rival scored, and what was chosen for it on inner folds."""
    baselines = read_baselines(step.folder / BASELINES)
    told = []
    for name, scoring in dict.fromkeys((r.name, r.scoring) for r in baselines):
        own = [r for r in baselines if (r.name, r.scoring) == (name, scoring)]
        values = ", ".join(f"{METRICS[r.metric]} {r.value:.3f}" for r in own)
        where = "" if scoring == "all" else f" ({scoring} scoring)"
        told.append(f"{name}: {values}{where}{'; ' * bool(own[0].how)}{own[0].how}")
    return told


def _read(step: Step, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((step.folder / name).read_text(encoding="utf-8"))
    return found


TELLERS: dict[str, Callable[[Step], list[str]]] = {
    "segment": _tell_segments,
    "embed": _tell_embeddings,
    "fold": _tell_folds,
    **dict.fromkeys((*KINDS, PUBLISHED), _tell_rivals),
}
