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
from callshot.corpus.audio import load_audio
from callshot.corpus.inspection import measure_corpus
from callshot.corpus.known_corpora import CORPORA, Corpus, default_options
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segment_table import (
    SEGMENTATION,
    read_segments,
    write_rejects,
    write_segmentation,
)
from callshot.corpus.segments import audio_root, segment_corpus
from callshot.encoders.embed import (
    check_store,
    default_store,
    default_threads,
    embed,
    make_table,
)
from callshot.errors import OptionError
from callshot.fewshot.evaluate import evaluate
from callshot.fewshot.folds import DEFAULT_FOLDS, choose_folds, count_classes, evaluated_classes
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    CorpusResults,
    Embeddings,
    Evaluation,
    Folds,
    Progress,
    Reject,
    Segmentation,
    no_progress,
)
from callshot.report.figures import draw_sweep
from callshot.report.output_folder import open_output_folder
from callshot.report.provenance import describe_evaluation, describe_folds, describe_segmentation
from callshot.report.results import PROVENANCE, open_results, write_folds, write_results
from callshot.report.summary import write_summary
from callshot.report.write_report import FigureStyle, write_report
from callshot.tables.dataset import read_dataset
from callshot.tables.embedding_tables import (
    check_output_path,
    sequences_path,
    table_segments,
    write_sequences,
    write_table,
)
from callshot.tables.fold_files import FOLDS, FOLDS_INFO, read_folds

TOLD_IN = "segments.json"


def segment_files(
    audio: Path,
    out: Path,
    annotations: Path | None = None,
    *,
    options: SegmentationOptions | None = None,
    format: str = "auto",
    hints: Hints | None = None,
    corpus: Corpus | None = None,
    check: bool = True,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Segmentation:
    """Cut recordings into segments and write these, the rejects, and a corpus's categories to a directory."""
    options = options or default_options(corpus)
    with open_output_folder(out, SEGMENTATION, TOLD_IN) as staging:
        found = segment_corpus(
            audio,
            annotations,
            options=options,
            format=format,
            hints=hints,
            corpus=corpus,
            check=check,
            threads=threads,
            progress=progress,
        )
        named = {} if corpus is None else {"corpus": corpus.name, "folds": str(corpus.folds)}
        named |= {"audio": str(audio_root(audio).absolute())}
        settings: Mapping[str, Any] = {
            **asdict(options),
            "format": format,
            "check": check,
            "annotations": str(annotations or ""),
            **named,
        }
        told = describe_segmentation(found, measure_corpus(found, options), settings)
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
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed the segments of a table and write the table of embeddings, and the rejects beside it."""
    check_output_path(out)
    check_store(default_store() if store is None else store)
    if out.absolute() == source.absolute():
        raise OptionError(f"{out}: this is the table of segments; choose another name")
    segments, facts = read_segments(source)
    root = Path(facts.get("audio", "")) if audio is None else audio
    table, rejects = embed(
        segments,
        encoder,
        root=root,
        load_audio=partial(load_audio, root, threads=threads or default_threads()),
        choices=choices,
        store=store,
        device=device,
        threads=threads,
        write_sequences=partial(write_sequences, sequences_path(out)) if sequences else None,
        source=source,
        progress=progress,
    )
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
    with open_output_folder(out, (FOLDS,), FOLDS_INFO) as staging:
        segments, _ = read_segments(source)
        whole = make_table("segments", segments, np.zeros((len(segments), 1), np.float32), source)
        shared = whole.only(
            frozenset.intersection(frozenset(whole.segment), *map(table_segments, tables))
        )
        given = None if file is None else read_folds(file, shared)
        folds = choose_folds(shared, count, given, file, default=default)
        classes = count_classes(shared.label, folds, shared.recording)
        evaluated_classes(classes)
        told = describe_folds(
            folds, classes, missing=sorted(set(whole.segment) - set(shared.segment))
        )
        staging.write(lambda folder: [write_folds(shared, folds, folder / FOLDS)], told)
    return folds


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    folds: int | None = None,
    fold_file: Path | None = None,
    folds_dir: Path | None = None,
    categories: Path | None = None,
    corpus: str | None = None,
    threads: int | None = None,
    memory: int | None = None,
    figure: bool = True,
    progress: Progress = no_progress,
) -> Evaluation:
    """Read tables, evaluate them and write the results to a directory; see `read_ground` and `evaluate`."""
    with open_results(out) as staging:
        dataset = read_dataset(
            paths,
            folds=folds,
            fold_file=fold_file,
            folds_dir=folds_dir,
            categories=categories,
            corpus=corpus,
            known=CORPORA,
        )
        result = evaluate(
            dataset.tables,
            protocol,
            folds=dataset.folds,
            categories=dataset.categories,
            corpus=dataset.corpus,
            threads=threads,
            memory=memory,
            progress=progress,
        )
        options = {
            "folds": folds,
            "corpus": corpus,
            "threads": threads,
            "memory": memory,
            "figure": figure,
        }
        provenance = describe_evaluation(result, protocol, dataset.files, options)
        sweep = partial(_draw_apart, protocol.reference) if figure else None
        write_results(staging, result, provenance, sweep)
    return result


def _draw_apart(reference: str, result: Evaluation, path_stem: Path) -> Sequence[Path]:
    return draw_sweep(result.apart(reference), path_stem)


def report_files(
    all_results: Mapping[str, CorpusResults],
    out: Path,
    look: FigureStyle,
    facts: Mapping[str, Any],
    *,
    mark: str = "",
    progress: Progress = no_progress,
) -> list[str]:
    """Write the tables, figures and page of a study, and all its numbers, to a directory; return the names."""
    with open_output_folder(out, (), PROVENANCE, mark=mark) as staging:
        answers = {
            name: write_summary(corpus_results) for name, corpus_results in all_results.items()
        }
        told = {**facts, "answers": answers}
        written = staging.write(
            lambda folder: write_report(folder, all_results, look, answers, told, progress), told
        )
    return [path.relative_to(out).as_posix() for path in written]
