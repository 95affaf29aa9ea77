"""Where a result came from: versions, options, checksums of the inputs, and what was left out."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from callshot.fewshot.protocol import Protocol
from callshot.records import ClassCount, CorpusStats, Evaluation, Folds, Segmentation
from callshot.records.frames import Frame
from callshot.version import __version__

Facts = dict[str, Any]
Options = Mapping[str, Any]


def describe_evaluation(
    evaluation: Evaluation,
    protocol: Protocol,
    files: Sequence[Mapping[str, Any]],
    options: Options,
) -> Facts:
    """Return everything that is needed to reproduce and check a run."""
    folds = evaluation.folds
    rejects = [
        {"label": count.label, "segments": count.exemplars, "reason": count.reason}
        for count in evaluation.excluded_classes
    ]
    return {
        "corpus": evaluation.corpus,
        "classes": len(evaluation.eligible_classes),
        "queries": evaluation.queries,
        "complete_shots": evaluation.complete_shots,
        "folds": {"count": folds.count, "origin": folds.origin, "proof": folds.proof},
        "protocol": asdict(protocol),
        "options": dict(options),
        "inputs": list(files),
        "ties": _describe_ties(evaluation.ties),
        "rejects": rejects,
        "notes": evaluation.notes,
        **_describe_machine("numpy", "scipy", "numba", "polars"),
    }


def describe_segmentation(
    segmentation: Segmentation,
    stats: CorpusStats,
    options: Options,
    inputs: Sequence[Mapping[str, Any]] = (),
) -> Facts:
    """Return the sources, options and statistics of segments, and the counts of rejects.

    `inputs` are the checksums of recordings and annotation files.
    """
    sources = [
        {"format": name, "why": reason, "files": count}
        for name, reason, count in segmentation.sources
    ]
    return {
        "facts": asdict(stats),
        "recordings": len(segmentation.recordings),
        "annotated": len(segmentation.annotated),
        "sources": sources,
        "read": segmentation.annotation_count,
        "segments": len(segmentation.segments),
        "rejects": len(segmentation.rejects),
        "skipped_files": len(segmentation.skipped_files),
        "notes": list(segmentation.notes),
        "options": dict(options),
        "inputs": list(inputs),
        **_describe_machine("numpy", "polars", "soundfile", "soxr"),
    }


def describe_folds(
    folds: Folds,
    classes: Sequence[ClassCount],
    missing: Sequence[str],
) -> Facts:
    """Return how folds were made, what they allow, and the segments without a vector."""
    columns = ("label", "exemplars", "complete_to_k", "reason")
    return {
        "count": folds.count,
        "origin": folds.origin,
        "proof": folds.proof,
        "classes": [
            {name: getattr(count, name) for name in columns} for count in classes
        ],
        "missing": list(missing),
        **_describe_machine("numpy", "scipy"),
    }


def _describe_machine(*packages: str) -> Facts:
    versions = {name: version(name) for name in packages}
    versions |= {"callshot": __version__, "python": platform.python_version()}
    return {
        "versions": versions,
        "machine": {"system": platform.system(), "processor": platform.machine()},
    }


def _describe_ties(ties: Frame) -> list[Facts]:
    """Sum the ties of each encoder and spread; the largest share names its class and k."""
    entries = []
    for _, rows in ties.group_by(["encoder", "spread"], maintain_order=True):
        worst = rows.row(rows["share"].arg_max() or 0, named=True)
        entry: Facts = {
            "encoder": worst["encoder"],
            "spread": worst["spread"],
            "ties": rows["ties"].sum(),
        }
        if worst["ties"]:
            entry["worst_share"] = worst["share"]
            entry["worst_label"] = worst["label"]
            entry["worst_k"] = worst["k"]
            entry["largest_cost_map"] = rows["cost_map"].max()
        entries.append(entry)
    return entries
