"""The paper on one page: read → segment → embed → fold → evaluate → report.

    found = segment_corpus(audio, …)         recordings and annotations → segments, and a reason for each left out
    keys = embed_segments(segments, …)       audio of segments → vectors of a frozen encoder, kept by content
    folds = choose_folds(table, …)           grouped by recording; audited
    result = evaluate(tables, protocol)      k-shot curves with intervals, for every encoder
    write_book(folder, chapters, …)          tables, figures, the page

Here the rooms meet; each step is theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.annotations import Hints
from callshot.corpus.audio import read_segments
from callshot.corpus.known_corpora import Corpus
from callshot.corpus.options import Rule
from callshot.corpus.segment_table import (
    SEGMENTATION,
    read_segment_table,
    write_rejects,
    write_segmentation,
)
from callshot.corpus.segments import audio_root, segment_corpus
from callshot.corpus.stats import tell_facts
from callshot.encoders.catalogue import find_encoder, told_name
from callshot.encoders.embed import (
    default_threads,
    embed_segments,
    make_table,
    refuse_segments,
    refuse_store,
)
from callshot.encoders.encode import open_encoder
from callshot.encoders.store.store import open_store
from callshot.encoders.weights.weight_files import home
from callshot.errors import InputError, OptionError
from callshot.fewshot.evaluate import Report, choose_folds, evaluate
from callshot.fewshot.folds import DEFAULT_FOLDS, count_classes, evaluated_classes
from callshot.fewshot.protocol import Protocol
from callshot.records import Chapter, Embeddings, Evaluation, Folds, Reject, Segmentation
from callshot.report.figures import draw_sweep
from callshot.report.output_folder import open_staging
from callshot.report.provenance import tell_folds, tell_provenance, tell_segmentation
from callshot.report.results import PROVENANCE, open_results, write_folds, write_results
from callshot.report.summary import answer
from callshot.report.write_report import Look, write_book
from callshot.tables.dataset import read_ground
from callshot.tables.embedding_tables import refuse_place, table_segments, write_table
from callshot.tables.fold_files import DEALT, FOLDS, read_folds
from callshot.tables.sequences import sequences_path, write_sequences

TOLD_IN = "segments.json"


def segment_files(
    audio: Path,
    out: Path,
    annotations: Path | None = None,
    rule: Rule | None = None,
    *,
    format: str = "auto",
    hints: Hints | None = None,
    corpus: Corpus | None = None,
    check: bool = True,
    threads: int | None = None,
    report: Report = lambda done, what: None,
) -> Segmentation:
    """Cut recordings into segments and write these, the rejects, and a corpus's categories to a directory."""
    rule = rule or (Rule() if corpus is None else corpus.rule)
    with open_staging(out, SEGMENTATION, TOLD_IN) as staging:
        found = segment_corpus(
            audio,
            annotations,
            rule,
            format=format,
            hints=hints,
            corpus=corpus,
            check=check,
            threads=threads,
            report=report,
        )
        named = {} if corpus is None else {"corpus": corpus.name, "folds": str(corpus.folds)}
        named |= {"audio": str(audio_root(audio).absolute())}
        options: Mapping[str, Any] = {
            "format": format,
            "check": check,
            "annotations": str(annotations or ""),
            **named,
        }
        told = tell_segmentation(found, tell_facts(found, rule), {**asdict(rule), **options})
        categories = None if corpus is None else corpus.categories
        staging.write(lambda folder: write_segmentation(found, folder, named, categories), told)
    return found


def embed_files(
    source: Path,
    out: Path,
    encoder: str,
    choices: Mapping[str, str] | None = None,
    *,
    audio: Path | None = None,
    sequences: bool = False,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    report: Report = lambda done, what: None,
) -> tuple[Embeddings, list[Reject]]:
    """Embed the segments of a table and write the table of embeddings; what is in the store is not made again."""
    row = find_encoder(encoder, choices)
    refuse_place(out)
    refuse_store(shelf := store or home() / "store")
    if out.absolute() == source.absolute():
        raise OptionError(f"{out}: the segments themselves; name another table")
    segments, facts = read_segment_table(source)
    refuse_segments(row, segments, source)
    root = Path(facts.get("audio", "")) if audio is None else audio
    workers = threads or default_threads()
    opened = open_encoder(row, device=device, threads=workers, sequences=sequences)
    with open_store(shelf, opened.fingerprint, sequences=sequences) as kept:
        read = partial(read_segments, root, threads=workers)
        keys, rejects = embed_segments(segments, root, read, opened, kept, report)
        there = [
            (segment, key) for segment, key in zip(segments, keys, strict=True) if key is not None
        ]
        if not there:
            why = f" (the first: {rejects[0].reason})" if rejects else ""
            raise InputError(f"{source}: no segment could be embedded from {root}{why}")
        found, kept_as = zip(*there, strict=True)
        table = make_table(told_name(row), found, kept.vectors(kept_as), source)
        if sequences:
            write_sequences(sequences_path(out), table.segment, kept.sequences(kept_as))
        write_table(table, out, corpus=facts.get("corpus"))
    write_rejects(rejects, out.with_suffix(".rejects.csv"), keep_empty=False)
    return table, rejects


def fold_files(
    source: Path,
    out: Path,
    tables: Sequence[Path],
    *,
    count: int | None = None,
    file: Path | None = None,
    default: int = DEFAULT_FOLDS,
) -> Folds:
    """Deal the segments that every table has into folds, given or built, and write folds.csv to a directory.

    Refused where no class would be evaluated.
    """
    with open_staging(out, (FOLDS,), DEALT) as staging:
        segments, _ = read_segment_table(source)
        whole = make_table("segments", segments, np.zeros((len(segments), 1), np.float32), source)
        shared = whole.only(
            frozenset.intersection(frozenset(whole.segment), *map(table_segments, tables))
        )
        given = None if file is None else read_folds(file, shared)
        folds = choose_folds(shared, count, given, file, default=default)
        classes = count_classes(shared.label, folds, shared.recording)
        evaluated_classes(classes)
        told = tell_folds(folds, classes, missing=sorted(set(whole.segment) - set(shared.segment)))
        staging.write(lambda folder: [write_folds(shared, folds, folder / FOLDS)], told)
    return folds


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    dealt: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    figure: bool = True,
    report: Report = lambda done, what: None,
) -> Evaluation:
    """Read tables, evaluate them and write the results to a directory; see `read_ground` and `evaluate`."""
    with open_results(out) as staging:
        ground = read_ground(
            paths,
            folds=folds,
            fold_file=fold_file,
            dealt=dealt,
            categories=categories,
            corpus=corpus,
        )
        result = evaluate(
            ground.tables,
            protocol,
            folds=ground.folds,
            categories=ground.categories,
            corpus=ground.corpus,
            threads=threads,
            memory=memory,
            report=report,
        )
        options = {
            "folds": folds,
            "corpus": corpus,
            "threads": threads,
            "memory": memory,
            "figure": figure,
        }
        provenance = tell_provenance(result, protocol, ground.files, options)
        sweep = partial(_draw_apart, protocol.reference) if figure else None
        write_results(staging, result, provenance, sweep)
    return result


def _draw_apart(reference: str, result: Evaluation, path_stem: Path) -> Sequence[Path]:
    return draw_sweep(result.apart(reference), path_stem)


def report_chapters(
    chapters: Mapping[str, Chapter],
    out: Path,
    look: Look,
    facts: Mapping[str, Any],
    *,
    mark: str = "",
    report: Report = lambda done, what: None,
) -> list[str]:
    """Write the tables, figures and page of a study, and all its numbers, to a directory; return the names."""
    with open_staging(out, None, PROVENANCE, mark=mark) as staging:
        answers = {name: answer(chapter) for name, chapter in chapters.items()}
        told = {**facts, "answers": answers}
        written = staging.write(
            lambda folder: write_book(folder, chapters, look, answers, told, report), told
        )
    return [path.relative_to(out).as_posix() for path in written]
