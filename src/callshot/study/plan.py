"""A study → its steps, in the order in which they run.

    segment ─→ embed (each encoder) ─→ fold ─→ evaluate (each encoder) ─→ report
       ╰───────────────────────────────↗  ╰──→ rivals (each kind and encoder) ─↗

Each corpus goes its own way; the report is of all.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from callshot.corpus.segment_table import REJECTS, SEGMENTS, read_segments
from callshot.corpus.segments import audio_root
from callshot.encoders.encode import encoder_fingerprint
from callshot.errors import InputError
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.records import Progress
from callshot.report.results import PROVENANCE, WRITERS
from callshot.report.write_report import FigureStyle
from callshot.study.baseline_steps import EMBEDDINGS, baseline_folders, plan_baselines
from callshot.study.corpus_results import Outcome, read_corpus_results
from callshot.study.file import CorpusPart, EncoderPart, Study
from callshot.study.file_steps import (
    TOLD_IN,
    embed_files,
    evaluate_files,
    fold_files,
    report_files,
    segment_files,
)
from callshot.study.step_cache import Input, Step, digest, look, maybe, safe_name
from callshot.tables.embedding_tables import sequences_path, table_segments
from callshot.tables.fold_files import FOLDS, FOLDS_INFO


def plan(study: Study, *, device: str = "cpu", threads: int | None = None) -> list[Step]:
    """Return every step of a study; `device` and `threads` change the time, not what has to run."""
    cuts = [_segment(study, corpus, threads) for corpus in study.corpora]
    sequences, embeds, folds, measured, baselines = [], [], [], [], []
    for corpus, cut in zip(study.corpora, cuts, strict=True):
        cells = study.encoders if "recurrent" in study.training.kinds else ()
        sequences.append(
            [_embed(study, corpus, one, cut, device, threads, "sequence") for one in cells]
        )
        embeds.append(
            [_embed(study, corpus, encoder, cut, device, threads) for encoder in study.encoders]
        )
        folds.append(_fold(study, corpus, cut, embeds[-1]))
        pairs = zip(study.encoders, embeds[-1], strict=True)
        measured.append(
            [_evaluate(study, corpus, one, embed, folds[-1], threads) for one, embed in pairs]
        )
        baselines.append(
            plan_baselines(
                study, corpus, cut, embeds[-1], sequences[-1], folds[-1], device, threads
            )
        )
    progress = _report(study, cuts, embeds, measured, [step for own in baselines for step in own])
    rows = (
        sequences,
        embeds,
        [folds],
        measured,
        baselines,
    )  # sequences first: in the store, vectors come with most
    return [*cuts, *(step for row in rows for own in row for step in own), progress]


def _segment(study: Study, corpus: CorpusPart, threads: int | None) -> Step:
    folder = study.work / "segment" / corpus.name
    known = None if corpus.known is None else corpus.known.name
    hints = {
        "columns": corpus.hints.columns,
        "tiers": corpus.hints.tiers,
        "label": corpus.hints.label,
    }
    options = {**asdict(corpus.rule), **hints, "format": corpus.format, "corpus": known}
    places = [corpus.audio, *maybe(corpus.annotations)]
    inputs: list[Input] = [partial(look, place, corpus.hints.exclude) for place in places]

    def make(progress: Progress) -> Sequence[str]:
        found = segment_files(
            corpus.audio,
            folder,
            corpus.annotations,
            options=corpus.rule,
            format=corpus.format,
            hints=corpus.hints,
            corpus=corpus.known,
            threads=threads,
            progress=progress,
        )
        if not found.segments:
            raise InputError(
                f"[corpus.{corpus.name}]: no segment is left; the first reason: {found.rejects[0].reason}"
            )
        return [SEGMENTS, REJECTS, TOLD_IN]

    return Step("segment", corpus.name, "", folder, folder, options, inputs, make)


def _embed(
    study: Study,
    corpus: CorpusPart,
    encoder: EncoderPart,
    cut: Step,
    device: str,
    threads: int | None,
    kind: str = "embed",
) -> Step:
    """Return the step of an encoder's vectors, or (`sequence`) of what lies behind them.

    The two are apart: with frames, some models give vectors that differ in their last digits.
    """
    folder, source = (
        study.work / kind / corpus.name / safe_name(encoder.told),
        cut.folder / SEGMENTS,
    )
    where, sequences = device if encoder.spec.gpu else "cpu", kind == "sequence"

    def make(progress: Progress) -> Sequence[str]:
        out = folder / EMBEDDINGS
        embed_files(
            source,
            out,
            encoder.name,
            encoder.choices,
            audio=audio_root(corpus.audio),
            store=study.store,
            device=where,
            threads=threads,
            sequences=sequences,
            progress=progress,
        )
        rejects = out.with_suffix(".rejects.csv")
        vectors = [EMBEDDINGS, *([rejects.name] if rejects.exists() else [])]
        return [sequences_path(out).name] if sequences else vectors

    inputs: list[Input] = [source, partial(_recordings, source, corpus.audio)]
    options = encoder_fingerprint(encoder.spec, where)
    return Step(kind, corpus.name, encoder.told, folder, folder, options, inputs, make, [cut])


def _fold(study: Study, corpus: CorpusPart, cut: Step, embeds: Sequence[Step]) -> Step:
    folder, source = study.work / "fold" / corpus.name, cut.folder / SEGMENTS
    tables = [embed.folder / EMBEDDINGS for embed in embeds]
    default = DEFAULT_FOLDS if corpus.known is None else corpus.known.folds

    def make(progress: Progress) -> Sequence[str]:
        fold_files(
            source, folder, tables, count=corpus.folds, file=corpus.fold_file, default=default
        )
        return [FOLDS, FOLDS_INFO]

    inputs: list[Input] = [source, *maybe(corpus.fold_file), partial(_shared, tables)]
    options = {"count": corpus.folds, "default": default}
    return Step("fold", corpus.name, "", folder, folder, options, inputs, make, [cut, *embeds])


def _evaluate(
    study: Study,
    corpus: CorpusPart,
    encoder: EncoderPart,
    embed: Step,
    fold: Step,
    threads: int | None,
) -> Step:
    folder, table = (
        study.work / "evaluate" / corpus.name / safe_name(encoder.told),
        embed.folder / EMBEDDINGS,
    )

    def make(progress: Progress) -> Sequence[str]:
        evaluate_files(
            [table],
            folder,
            study.protocol,
            folds_dir=fold.folder,
            categories=corpus.categories,
            corpus=corpus.name,
            threads=threads,
            figure=False,
            progress=progress,
        )
        return [*WRITERS, PROVENANCE]

    known = None if corpus.known is None else corpus.known.name
    inputs: list[Input] = [
        table,
        fold.folder / FOLDS,
        fold.folder / FOLDS_INFO,
        *maybe(corpus.categories),
    ]
    options = {**asdict(study.protocol), "corpus": known}
    return Step(
        "evaluate", corpus.name, encoder.told, folder, folder, options, inputs, make, [embed, fold]
    )


def _report(
    study: Study,
    cuts: Sequence[Step],
    embeds: Sequence[Sequence[Step]],
    measured: Sequence[Sequence[Step]],
    baselines: Sequence[Step],
) -> Step:
    names = [corpus.name for corpus in study.corpora]
    left = [
        Outcome(
            corpus.name,
            names,
            cut.folder,
            [e.folder / EMBEDDINGS for e in own],
            [m.folder for m in results],
            baseline_folders(baselines, corpus.name),
            study.protocol.reference,
            study.references,
            corpus.categories,
            corpus.known,
        )
        for corpus, cut, own, results in zip(study.corpora, cuts, embeds, measured, strict=True)
    ]
    commands = [f"callshot run {study.path.name}"]
    shown = FigureStyle(
        study.title,
        study.shots,
        study.confusion,
        study.spread,
        study.protocol,
        commands,
        study.figures,
    )

    def make(progress: Progress) -> Sequence[str]:
        all_results = {one.corpus: read_corpus_results(one) for one in left}
        return report_files(
            all_results,
            study.out,
            shown,
            _facts(study, cuts, embeds, [*measured, baselines]),
            mark=study.mark,
            progress=progress,
        )

    steps = [step for own in (cuts, *embeds, *measured, baselines) for step in own]
    inputs: list[Input] = [partial(_outcomes, steps), *maybe(study.references)]
    options = {**asdict(shown), "study": study.text}
    return Step("report", "", "", study.out, study.work / "report", options, inputs, make, steps)


def _facts(
    study: Study,
    cuts: Sequence[Step],
    embeds: Sequence[Sequence[Step]],
    measured: Sequence[Sequence[Step]],
) -> dict[str, object]:
    """Tell what a study was, and where its numbers came from."""

    def read(step: Step, name: str) -> object:
        return json.loads((step.folder / name).read_text(encoding="utf-8"))

    return {
        "study": study.text,
        "title": study.title,
        "encoders": {embed.encoder: embed.options for embed in embeds[0]},
        "segments": {cut.corpus: read(cut, TOLD_IN) for cut in cuts},
        "steps": [read(step, PROVENANCE) for own in measured for step in own],
    }


def _recordings(source: Path, audio: Path) -> str:
    """Tell the recordings that segments are cut from, by size and time."""
    if not source.exists():
        return "nothing"
    root = audio_root(audio)
    paths = sorted({segment.path for segment in read_segments(source)[0]})
    return digest([(path, look(root / path)) for path in paths])


def _outcomes(steps: Sequence[Step]) -> str:
    """Tell what steps made, by their notes."""
    return digest([sorted(step.note().get("files", {}).items()) for step in steps])


def _shared(tables: Sequence[Path]) -> str:
    """Tell which segments all tables have."""
    found = [table_segments(path) for path in tables if path.exists()]
    return digest(sorted(frozenset.intersection(*found))) if found else "nothing"
