"""A finished step → a few lines for the screen: how much there is, and what was left out."""

import json
from typing import Any

from callshot.corpus.segment_table import read_rejects
from callshot.errors import count_text
from callshot.records import BASELINE_KINDS, METRIC_NAMES
from callshot.study.baseline_steps import PUBLISHED
from callshot.study.equal_encoders import describe_equal_encoders, is_measured
from callshot.study.file_steps import SEGMENTS_INFO
from callshot.study.steps import Step
from callshot.study.train_baselines import read_baselines
from callshot.tables.fold_files import FOLDS_INFO


def describe_outcome(step: Step) -> list[str]:
    """Return a line on the outcome of a step, then notes; nothing where there is nothing to say."""
    if not is_measured(step.folder):
        return describe_equal_encoders([step.folder])
    if step.kind == "segment":
        return _describe_segments(step)
    if step.kind == "embed":
        return _describe_embeddings(step)
    if step.kind == "fold":
        return _describe_folds(step)
    if step.kind in (*BASELINE_KINDS, PUBLISHED):
        return _describe_baselines(step)
    return []


def _describe_segments(step: Step) -> list[str]:
    facts = _read_json(step, SEGMENTS_INFO)
    skipped = facts["skipped_files"]
    files = f" and {count_text(skipped, 'whole file')}" if skipped else ""
    segments = count_text(facts["segments"], "segment")
    rejects = count_text(facts["rejects"], "reject")
    return [
        f"{segments}, {rejects}{files}",
        *facts["notes"],
    ]


def _describe_embeddings(step: Step) -> list[str]:
    for name in step.read_record()["files"]:
        if name.endswith(".rejects.csv"):
            rejects = read_rejects(step.folder / name)
            count = count_text(len(rejects), "reject")
            return [f"{count}, the first: {rejects[0].reason}"]
    return []


def _describe_folds(step: Step) -> list[str]:
    facts = _read_json(step, FOLDS_INFO)
    classes = facts["classes"]
    excluded = [row for row in classes if row["reason"]]
    count = len(classes) - len(excluded)
    call_types = count_text(len(classes), "call type")
    lines = [f"{count} of {call_types} in {facts['count']} folds"]
    lines += [f"not evaluated: '{row['label']}' ({row['reason']})" for row in excluded]
    if facts["missing"]:
        missing = count_text(len(facts["missing"]), "segment")
        lines.append(f"{missing} left out, because an encoder could not embed them")
    return lines


def _describe_baselines(step: Step) -> list[str]:
    """Return what each baseline scored, and what was chosen for it on inner folds."""
    baselines = read_baselines(step.folder)
    lines = []
    for rows in baselines.partition_by("name", "scoring"):
        name, scoring, how = rows.select("name", "scoring", "how").row(0)
        scores = []
        for metric, value in rows.select("metric", "value").iter_rows():
            scores.append(f"{METRIC_NAMES[metric]} {value:.3f}")
        line = f"{name}: {', '.join(scores)}"
        if scoring != "all":
            line += f" ({scoring} scoring)"
        lines.append(f"{line}; {how}" if how else line)
    return lines


def _read_json(step: Step, name: str) -> dict[str, Any]:
    text = (step.folder / name).read_text(encoding="utf-8")
    facts: dict[str, Any] = json.loads(text)
    return facts
