"""What a result came from: versions, options, the inputs' checksums, and what was left out and why."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import polars as pl

from callshot.fewshot.protocol import Protocol
from callshot.records import ClassCount, CorpusStats, Evaluation, Folds, Segmentation
from callshot.version import __version__

PACKAGES = ("numpy", "scipy", "numba", "polars")


def describe_evaluation(
    result: Evaluation,
    protocol: Protocol,
    files: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return everything that is needed to repeat a run, and to doubt it."""
    return {
        "corpus": result.corpus,
        "classes": sum(c.eligible for c in result.classes),
        "queries": result.queries,
        "complete_shots": result.complete_shots,
        "folds": {
            "count": result.folds.count,
            "origin": result.folds.origin,
            "proof": result.folds.proof,
        },
        "protocol": {name: getattr(protocol, name) for name in Protocol.__dataclass_fields__},
        "options": dict(options),
        "inputs": list(files),
        "ties": _describe_ties(result.ties),
        "rejects": [
            {"label": c.label, "segments": c.exemplars, "reason": c.reason}
            for c in result.classes
            if not c.eligible
        ],
        "notes": result.notes,
        **_tell_machine(PACKAGES),
    }


def describe_segmentation(
    found: Segmentation, facts: CorpusStats, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return where segments came from, by which rule, what they are, and how many annotations became none."""
    return {
        "facts": asdict(facts),
        "recordings": len(found.recordings),
        "annotated": len(found.annotated),
        "sources": [
            {"format": name, "why": why, "files": files} for name, why, files in found.sources
        ],
        "read": found.annotation_count,
        "segments": len(found.segments),
        "rejects": len(found.rejects),
        "refused": len(found.skipped_files),
        "notes": list(found.notes),
        "options": dict(options),
        **_tell_machine(("numpy", "polars", "soundfile", "soxr")),
    }


def describe_folds(
    folds: Folds, classes: Sequence[ClassCount], missing: Sequence[str]
) -> dict[str, Any]:
    """Return how folds came about, what they allow, and the segments that some encoder has no vector of."""
    told = [
        {name: getattr(c, name) for name in ("label", "exemplars", "complete_to_k", "reason")}
        for c in classes
    ]
    return {
        "count": folds.count,
        "origin": folds.origin,
        "proof": folds.proof,
        "classes": told,
        "missing": list(missing),
        **_tell_machine(("numpy", "scipy")),
    }


def _tell_machine(packages: Sequence[str]) -> dict[str, Any]:
    own = {"callshot": __version__, "python": platform.python_version()}
    return {
        "versions": {name: version(name) for name in packages} | own,
        "machine": {"system": platform.system(), "processor": platform.machine()},
    }


def _describe_ties(ties: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the ties of each encoder and spread, and where their share is largest."""
    entries = []
    for rows in ties.partition_by("encoder", "spread", maintain_order=True):
        worst = rows.row(int(rows["share"].arg_max() or 0), named=True)
        entry = {
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
