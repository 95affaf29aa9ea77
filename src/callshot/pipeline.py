"""The paper on one page: read → segment → embed → fold → evaluate → report.

    found = segment_corpus(audio, …)         recordings and annotations → segments, and a reason for each left out
    keys = embed_segments(segments, …)       audio of segments → vectors of a frozen encoder, kept by content
    tables = read_tables(paths)              vectors, with a label and a recording each
    folds = choose_folds(tables[0], …)       grouped by recording; audited
    result = evaluate(tables, protocol)      k-shot curves with intervals, for every encoder
    write_results(staging, result, …)        plain files, all or nothing

Here the rooms meet; each step is theirs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from callshot.corpus.annotations import Hints
from callshot.corpus.audio import read_segments
from callshot.corpus.corpora import CORPORA, Corpus
from callshot.corpus.rule import Rule
from callshot.corpus.segments import audio_root, segment_corpus
from callshot.corpus.table import read_segment_table, write_categories, write_rejects, write_segment_table
from callshot.encoders.catalogue import find_encoder, told_name
from callshot.encoders.embed import (
    default_threads,
    embed_segments,
    given_folds,
    make_table,
    refuse_rates,
    write_sequences,
)
from callshot.encoders.encode import open_encoder
from callshot.encoders.sidecars import read_categories, read_folds
from callshot.encoders.store import open_store
from callshot.encoders.table import read_tables, refuse_place, table_corpus, write_table
from callshot.encoders.weights import home
from callshot.errors import InputError, OptionError
from callshot.fewshot.evaluate import Report, choose_folds, evaluate
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings, Evaluation, Reject, Segmentation
from callshot.report.figures import draw_sweep
from callshot.report.provenance import tell_file, tell_provenance, tell_segmentation
from callshot.report.results import open_results, write_results
from callshot.report.staging import open_staging

SEGMENTS, REJECTS, CATEGORIES, TOLD_IN = "segments.parquet", "rejects.csv", "categories.csv", "segments.json"


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
    with open_staging(out, (SEGMENTS, REJECTS, CATEGORIES), TOLD_IN) as staging:
        found = segment_corpus(
            audio, annotations, rule, format=format, hints=hints, corpus=corpus, check=check, threads=threads,
            report=report,
        )  # fmt: skip
        facts = {} if corpus is None else {"corpus": corpus.name, "folds": str(corpus.folds)}
        facts |= {"audio": str(audio_root(audio).absolute())}

        def make(folder: Path) -> list[str]:
            write_segment_table(found.segments, folder / SEGMENTS, facts)
            write_rejects([*found.rejects, *found.refused], folder / REJECTS)
            if corpus is not None:
                write_categories(corpus.categories, folder / CATEGORIES)
            return [SEGMENTS, REJECTS, *([CATEGORIES] if corpus is not None else [])]

        options: Mapping[str, Any] = {"format": format, "check": check, "annotations": str(annotations or ""), **facts}
        staging.write(make, tell_segmentation(found, {**asdict(rule), **options}))
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
    if out.absolute() == source.absolute():
        raise OptionError(f"{out}: the segments themselves; name another table")
    segments, facts = read_segment_table(source)
    given_folds(segments, source)
    refuse_rates(row, segments, source)
    root = Path(facts.get("audio", "")) if audio is None else audio
    workers = threads or default_threads()
    opened = open_encoder(row, device=device, threads=workers, sequences=sequences)
    with open_store(store or home() / "store", opened.fingerprint, sequences=sequences) as kept:
        read = partial(read_segments, root, threads=workers)
        keys, rejects = embed_segments(segments, root, read, opened, kept, report)
        found = [(segment, key) for segment, key in zip(segments, keys, strict=True) if key is not None]
        if not found:
            why = f" (the first: {rejects[0].reason})" if rejects else ""
            raise InputError(f"{source}: no segment could be embedded from {root}{why}")
        here, there = [segment for segment, _ in found], [key for _, key in found]
        table = make_table(told_name(row), here, kept.vectors(there), source)
        if sequences:
            write_sequences(out.with_suffix(".sequences.parquet"), table.segment, kept.sequences(there))
        write_table(table, out, corpus=facts.get("corpus"))
    left_out = out.with_suffix(".rejects.csv")
    left_out.unlink(missing_ok=True)
    if rejects:
        write_rejects(rejects, left_out)
    return table, rejects


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    figure: bool = True,
    report: Report = lambda done, what: None,
) -> Evaluation:
    """Read tables, evaluate them, and write the results to a directory; see `evaluate` for the options.

    A corpus that callshot knows brings its number of folds and its categories, where none are given.
    """
    with open_results(out) as staging:
        tables = read_tables(paths)
        name = corpus or table_corpus(paths[0]) or paths[0].absolute().parent.name or "corpus"
        known = CORPORA.get(name)
        given = read_folds(fold_file, tables[0]) if fold_file is not None else None
        groups = read_categories(categories, tables[0]) if categories is not None else _categories(known, tables[0])
        others = {"folds": fold_file, "categories": categories}
        files = [tell_file(path, encoder=t.encoder, role="table") for path, t in zip(paths, tables, strict=True)]
        files += [tell_file(path, role=role) for role, path in others.items() if path is not None]
        chosen = choose_folds(tables[0], folds, given, fold_file, default=5 if known is None else known.folds)
        result = evaluate(
            tables,
            protocol,
            folds=chosen,
            categories=groups,
            corpus=name,
            threads=threads,
            memory=memory,
            report=report,
        )
        options = {"folds": folds, "corpus": corpus, "threads": threads, "memory": memory, "figure": figure}
        provenance = tell_provenance(result, protocol, files, options)
        write_results(staging, result, provenance, draw_sweep if figure else None)
    return result


def _categories(corpus: Corpus | None, table: Embeddings) -> dict[str, str] | None:
    """Return the categories of a known corpus for the labels that are there."""
    labels = set(table.label)
    found = {} if corpus is None else {label: name for label, name in corpus.categories.items() if label in labels}
    return found or None
