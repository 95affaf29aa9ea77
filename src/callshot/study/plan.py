"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗

Each corpus goes its own way; the report is of all.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from callshot.corpus.segments import audio_root
from callshot.corpus.table import REJECTS, SEGMENTS, read_segment_table
from callshot.encoders.catalogue import fingerprint
from callshot.encoders.models import used_weights
from callshot.encoders.sidecars import DEALT, FOLDS
from callshot.encoders.table import table_segments
from callshot.encoders.weights import weight_sha256
from callshot.fewshot.evaluate import Report
from callshot.pipeline import (
    TOLD_IN,
    embed_files,
    evaluate_files,
    fold_files,
    report_chapters,
    segment_files,
)
from callshot.report.book import Look
from callshot.report.results import PROVENANCE, WRITERS
from callshot.study.chapter import Outcome, read_chapter
from callshot.study.file import CorpusPart, EncoderPart, Study
from callshot.study.steps import Input, Step, look

EMBEDDINGS = "embeddings.parquet"


def plan(study: Study, *, device: str = "cpu", threads: int | None = None) -> list[Step]:
    """Return every step of a study; `device` and `threads` change the time, not what has to run."""
    cuts = [_segment(study, corpus, threads) for corpus in study.corpora]
    embeds = [
        [_embed(study, corpus, encoder, cut, device, threads) for encoder in study.encoders]
        for corpus, cut in zip(study.corpora, cuts, strict=True)
    ]
    folds = [_fold(study, *parts) for parts in zip(study.corpora, cuts, embeds, strict=True)]
    measured = [
        [
            _evaluate(study, corpus, encoder, embed, fold, threads)
            for encoder, embed in zip(study.encoders, own, strict=True)
        ]
        for corpus, own, fold in zip(study.corpora, embeds, folds, strict=True)
    ]
    report = _report(study, cuts, embeds, measured)
    return [
        *cuts,
        *(step for own in embeds for step in own),
        *folds,
        *(step for own in measured for step in own),
        report,
    ]


def _segment(study: Study, corpus: CorpusPart, threads: int | None) -> Step:
    folder = study.work / "segment" / corpus.name
    known = None if corpus.known is None else corpus.known.name
    hints = {"columns": corpus.hints.columns, "tiers": corpus.hints.tiers, "label": corpus.hints.label}
    options = {**asdict(corpus.rule), **hints, "format": corpus.format, "corpus": known}
    inputs: list[Input] = [
        partial(look, corpus.audio, [study.path, study.out, *_maybe(study.store)]),
        *_maybe(corpus.annotations),
    ]

    def make(report: Report) -> Sequence[str]:
        segment_files(
            corpus.audio, folder, corpus.annotations, corpus.rule, format=corpus.format, hints=corpus.hints,
            corpus=corpus.known, threads=threads, report=report,
        )  # fmt: skip
        return [SEGMENTS, REJECTS, TOLD_IN]

    return Step("segment", corpus.name, "", folder, folder, options, inputs, make)


def _embed(study: Study, corpus: CorpusPart, encoder: EncoderPart, cut: Step, device: str, threads: int | None) -> Step:
    folder, source = study.work / "embed" / corpus.name / _safe(encoder.told), cut.folder / SEGMENTS
    weights = {w.file: weight_sha256(encoder.row.place, w) for w in used_weights(encoder.row, device)}

    def make(report: Report) -> Sequence[str]:
        out = folder / EMBEDDINGS
        embed_files(
            source, out, encoder.name, encoder.choices, store=study.store, device=device, threads=threads, report=report
        )
        rejects = out.with_suffix(".rejects.csv")
        return [EMBEDDINGS, *([rejects.name] if rejects.exists() else [])]

    inputs: list[Input] = [source, partial(_recordings, source, corpus.audio)]
    return Step(
        "embed", corpus.name, encoder.told, folder, folder, fingerprint(encoder.row, weights), inputs, make, [cut]
    )


def _fold(study: Study, corpus: CorpusPart, cut: Step, embeds: Sequence[Step]) -> Step:
    folder, source = study.work / "fold" / corpus.name, cut.folder / SEGMENTS
    tables = [embed.folder / EMBEDDINGS for embed in embeds]
    default = 5 if corpus.known is None else corpus.known.folds

    def make(report: Report) -> Sequence[str]:
        fold_files(source, folder, tables, count=corpus.folds, file=corpus.fold_file, default=default)
        return [FOLDS, DEALT]

    inputs: list[Input] = [source, *_maybe(corpus.fold_file), partial(_shared, tables)]
    options = {"count": corpus.folds, "default": default}
    return Step("fold", corpus.name, "", folder, folder, options, inputs, make, [cut, *embeds])


def _evaluate(
    study: Study, corpus: CorpusPart, encoder: EncoderPart, embed: Step, fold: Step, threads: int | None
) -> Step:
    folder, table = study.work / "evaluate" / corpus.name / _safe(encoder.told), embed.folder / EMBEDDINGS

    def make(report: Report) -> Sequence[str]:
        evaluate_files(
            [table], folder, study.protocol, dealt=fold.folder, categories=corpus.categories, corpus=corpus.name,
            threads=threads, figure=False, report=report,
        )  # fmt: skip
        return [*WRITERS, PROVENANCE]

    inputs: list[Input] = [table, fold.folder / FOLDS, *_maybe(corpus.categories)]
    return Step(
        "evaluate", corpus.name, encoder.told, folder, folder, asdict(study.protocol), inputs, make, [embed, fold]
    )


def _report(
    study: Study, cuts: Sequence[Step], embeds: Sequence[Sequence[Step]], measured: Sequence[Sequence[Step]]
) -> Step:
    left = [
        Outcome(corpus.name, cut.folder, [e.folder / EMBEDDINGS for e in own], [m.folder for m in results],
                study.references, corpus.categories, corpus.known)
        for corpus, cut, own, results in zip(study.corpora, cuts, embeds, measured, strict=True)
    ]  # fmt: skip
    commands = [f"callshot run {study.path.name}"]
    look = Look(study.title, study.shots, study.confusion, study.spread, study.protocol, commands, study.figures)

    def make(report: Report) -> Sequence[str]:
        chapters = {one.corpus: read_chapter(one) for one in left}
        return report_chapters(chapters, study.out, look, _facts(study, measured), report=report)

    steps = [step for own in (cuts, *embeds, *measured) for step in own]
    inputs: list[Input] = [partial(_outcomes, steps), *_maybe(study.references)]
    return Step("report", "", "", study.out, study.work / "report", asdict(look), inputs, make, steps)


def _facts(study: Study, measured: Sequence[Sequence[Step]]) -> dict[str, object]:
    """Tell what a study was, and where its numbers came from."""
    told = [json.loads((step.folder / PROVENANCE).read_text(encoding="utf-8")) for own in measured for step in own]
    return {"study": study.path.read_text(encoding="utf-8-sig"), "title": study.title, "steps": told}


def _maybe(path: Path | None) -> list[Path]:
    return [] if path is None else [path]


def _safe(name: str) -> str:
    """Return a name that can be a folder's, and is another for another name."""
    plain = re.sub(r"[^\w.-]+", "_", name)
    return plain if plain == name else f"{plain[:60]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _recordings(source: Path, audio: Path) -> str:
    """Tell the recordings that segments are cut from, by size and time."""
    if not source.exists():
        return "nothing"
    root = audio_root(audio)
    paths = sorted({segment.path for segment in read_segment_table(source)[0]})
    return hashlib.sha256(repr([(path, look(root / path)) for path in paths]).encode()).hexdigest()


def _outcomes(steps: Sequence[Step]) -> str:
    """Tell what steps made, by their notes."""
    return hashlib.sha256(repr([sorted(step.note().get("files", {}).items()) for step in steps]).encode()).hexdigest()


def _shared(tables: Sequence[Path]) -> str:
    """Tell which segments all tables have."""
    found = [table_segments(path) for path in tables if path.exists()]
    return hashlib.sha256(repr(sorted(frozenset.intersection(*found))).encode()).hexdigest() if found else "nothing"
