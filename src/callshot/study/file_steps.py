"""The steps of the pipeline, each from files to files.

segment_files    recordings and annotations → segments.parquet, rejects.csv
embed_files      segments → a table of embeddings
fold_files       segments and tables → folds.csv
evaluate_files   tables → k-shot curves with intervals
report_files     results → tables, figures, a page
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from callshot.corpus.annotations import AnnotationOptions, describe_annotation_options
from callshot.corpus.options import (
    CORPORA,
    Corpus,
    SegmentationOptions,
    default_options,
)
from callshot.corpus.segment_table import (
    DUPLICATE_COLUMNS,
    REJECT_SCHEMA,
    SEGMENTATION,
    describe_inputs,
    measure_corpus,
    read_segments,
    write_duplicates,
    write_rejects,
    write_segmentation,
)
from callshot.corpus.segments import check_any_segments, segment_corpus
from callshot.detection.embed_mixed_segments import (
    BackgroundMix,
    check_no_cluster,
    embed_recorded_segments,
)
from callshot.encoders.embed import (
    EmbedOptions,
    check_store,
    default_store,
    make_table,
)
from callshot.encoders.joined_encoder import check_title
from callshot.errors import OptionError
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    choose_folds,
    count_classes,
    evaluated_classes,
)
from callshot.fewshot.protocol import Protocol
from callshot.files import atomic_path, check_new_file, has_header, make_folder
from callshot.jobs import Cluster
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
from callshot.records.duplicates import (
    NO_GROUP,
    find_equal_vectors,
    group_recordings,
)
from callshot.report.figures import draw_sweep
from callshot.report.provenance import (
    describe_evaluation,
    describe_folds,
    describe_segmentation,
)
from callshot.report.results import PROVENANCE, open_results, write_folds, write_results
from callshot.report.summary import write_summary
from callshot.report.write_report import ReportOptions, write_report
from callshot.results import EarlierFiles, FinishedSweeps, open_output_folder
from callshot.spans import Spans
from callshot.storage import to_path
from callshot.tables.dataset import read_dataset
from callshot.tables.embedding_tables import (
    check_new_table,
    read_table,
    table_segments,
    write_table,
)
from callshot.tables.fold_files import FOLDS, FOLDS_INFO, read_folds
from callshot.tables.sequence_tables import (
    check_new_sequences,
    sequences_path,
    write_sequences,
)

SEGMENTS_INFO = "segments.json"
REJECTS_SUFFIX = ".rejects.csv"  # of files beside a table of embeddings
DUPLICATES_SUFFIX = ".duplicates.csv"


@dataclass(frozen=True)
class DatasetChoice:
    """How the folds, categories and name of a dataset are chosen; see `read_dataset`."""

    fold_file: Path | None = None
    folds: int | None = None
    folds_dir: Path | None = None
    categories: Path | None = None
    corpus: str | None = None
    group_duplicates: bool = False

    def read(self, paths: Sequence[Path]) -> Dataset:
        """Read tables, and choose their folds and categories."""
        return read_dataset(paths, **asdict(self), known_corpora=CORPORA)


def segment_files(
    audio: Path,
    out: Path,
    annotations: Path | None = None,
    options: SegmentationOptions | None = None,
    *,
    format: str = "auto",
    annotation_options: AnnotationOptions | None = None,
    corpus: Corpus | None = None,
    check: bool = True,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Segmentation:
    """Cut recordings into segments; write segments, rejects and a known corpus's categories."""
    options = options or default_options(corpus)
    annotations = None if annotations is None else to_path(annotations)
    with open_output_folder(out, SEGMENTATION, SEGMENTS_INFO) as output:
        segmentation = segment_corpus(
            audio,
            annotations,
            options=options,
            format=format,
            annotation_options=annotation_options,
            corpus=corpus,
            check=check,
            threads=threads,
            progress=progress,
        )
        check_any_segments(segmentation)
        facts = {"audio": segmentation.audio}
        categories = None
        if corpus is not None:
            facts |= {"corpus": corpus.name, "folds": str(corpus.folds)}
            categories = corpus.categories
        described = {
            **asdict(options),
            "format": format,
            **describe_annotation_options(annotation_options or AnnotationOptions()),
            "check": check,
            "annotations": str(annotations or ""),
            **facts,
        }
        stats = measure_corpus(segmentation, options)
        inputs = describe_inputs(segmentation, progress)
        provenance = describe_segmentation(segmentation, stats, described, inputs)
        output.write(
            lambda folder: write_segmentation(segmentation, folder, facts, categories),
            provenance,
        )
    return segmentation


def embed_files(
    source: Path,
    out: Path,
    encoder: str,
    choices: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    audio: Path | None = None,
    sequences: bool = False,
    mix: BackgroundMix | None = None,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed the segments of a table; write the embeddings, and the rejects beside them.

    `name` is the name of the encoder in results, instead of its own. With a `mix`, calls are
    mixed into background first.
    """
    if mix is not None and sequences:
        raise OptionError(
            "sequence: cannot be combined with --site; remove one of the two"
        )
    check_no_cluster(mix, cluster, "--")
    source = to_path(source)
    out = to_path(out)
    check_new_table(out)
    _check_beside(out)
    if sequences:
        check_new_sequences(sequences_path(out))
    if name is not None:
        check_title(name, "name")
    check_store(default_store() if store is None else store)
    if out.absolute() == source.absolute():
        raise OptionError(f"{out}: this is the table of segments; choose another name")
    segments = read_segments(source)
    if audio is not None:
        segments = replace(segments, root=to_path(audio))
    write = partial(write_sequences, sequences_path(out)) if sequences else None
    table, rejects = embed_recorded_segments(
        segments,
        encoder,
        EmbedOptions(choices, store, device, threads, cluster),
        mix=mix,
        write_sequences=write,
        progress=progress,
    )
    if name is not None:
        table = replace(table, encoder=name)
    make_folder(out.absolute().parent)
    _write_beside(rejects, write_rejects, out.with_suffix(REJECTS_SUFFIX))
    duplicates = _list_duplicates(table)
    _write_beside(duplicates, write_duplicates, out.with_suffix(DUPLICATES_SUFFIX))
    write_table(table, out, corpus=segments.metadata.get("corpus"))
    return table, rejects


def _check_beside(out: Path) -> None:
    """Check that the files beside a table are free, or earlier ones of callshot."""
    files = {REJECTS_SUFFIX: REJECT_SCHEMA, DUPLICATES_SUFFIX: DUPLICATE_COLUMNS}
    for suffix, columns in files.items():
        is_own = partial(has_header, columns=columns)
        check_new_file(out.with_suffix(suffix), "list of segments", is_own)


def _write_beside(
    rows: Sequence[Any], write: Callable[[Sequence[Any], Path], None], path: Path
) -> None:
    """Write rows to a file beside a table; where there are none, remove an earlier file."""
    if not rows:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary:
        write(rows, temporary)


def _list_duplicates(table: Embeddings) -> list[tuple[int, str, str, str]]:
    """Return the segments whose vector is also in another recording, with their groups."""
    groups = find_equal_vectors(table).tolist()
    rows = zip(groups, table.segment, table.recording, table.label, strict=True)
    return [row for row in rows if row[0] != NO_GROUP]


def fold_files(
    source: Path,
    out: Path,
    tables: Sequence[Path],
    *,
    count: int | None = None,
    file: Path | None = None,
    default: int = DEFAULT_FOLDS,
    group_duplicates: bool = False,
) -> Folds:
    """Split the segments that every table has into folds, given or built; write folds.csv.

    With `group_duplicates`, recordings that share an equal vector are one recording.

    Raises
    ------
    InputError
        If no class can be evaluated.
    """
    with open_output_folder(out, (FOLDS,), FOLDS_INFO) as output:
        segments = read_segments(source)
        vectors = np.zeros((len(segments), 1), np.float32)
        whole = make_table("segments", segments, vectors)
        names = frozenset(whole.segment)
        shared = whole.only(names.intersection(*map(table_segments, tables)))
        fold = None if file is None else read_folds(file, shared)
        if group_duplicates:
            shared = _group_segments(shared, tables)
        folds = choose_folds(shared, count, fold, file, default=default)
        classes = count_classes(shared.label, folds, shared.recording)
        evaluated_classes(classes)
        missing = sorted(names.difference(shared.segment))
        provenance = describe_folds(folds, classes, missing=missing)
        output.write(
            lambda folder: [write_folds(shared, folds, folder / FOLDS)], provenance
        )
    return folds


def _group_segments(shared: Embeddings, tables: Sequence[Path]) -> Embeddings:
    """Return segments in which recordings that share an equal vector are one recording."""
    names = frozenset(shared.segment)
    groups = [find_equal_vectors(read_table(path).only(names)) for path in tables]
    return replace(shared, recording=group_recordings(shared.recording, groups))


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    choice: DatasetChoice | None = None,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    figure: bool = True,
    progress: Progress = no_progress,
) -> Evaluation:
    """Read tables, evaluate them and write the results to a folder."""
    choice = choice or DatasetChoice()
    with open_results(out) as output:
        finished = FinishedSweeps(output.folder)
        dataset = choice.read(paths)
        result = evaluate_tables(
            dataset.tables,
            protocol,
            folds=dataset.folds,
            categories=dataset.categories,
            corpus=dataset.corpus,
            threads=threads,
            memory=memory,
            device=device,
            cluster=cluster,
            store=finished,
            progress=progress,
        )
        result = replace(result, notes=[*dataset.notes, *result.notes])
        options = {
            "folds": choice.folds,
            "corpus": choice.corpus,
            "group_duplicates": choice.group_duplicates,
            "threads": threads,
            "memory": memory,
            "device": device,
            "figure": figure,
        }
        provenance = describe_evaluation(result, protocol, dataset.files, options)
        draw = None
        if figure:
            draw = partial(draw_sweep, result.name_classifiers(protocol.reference))
        write_results(output, result, provenance, draw)
        finished.remove()
    return result


def report_files(
    results: Mapping[str, CorpusResults],
    out: Path,
    options: ReportOptions,
    facts: Mapping[str, Any],
    *,
    segments: Mapping[str, Spans] | None = None,
    workers: Executor | None = None,
    keys: Path | None = None,
    owner: str = "",
    progress: Progress = no_progress,
) -> list[str]:
    """Write the tables, figures and page of a study, and all its numbers; return the file names.

    With the `segments` of corpora, the page has sounds of some calls. `workers` draw figures beside
    this process. The file `keys` lists which files of the earlier report did not change; they are
    not made again.
    """
    earlier = EarlierFiles(out, keys)
    with open_output_folder(out, (), PROVENANCE, owner=owner) as output:
        summaries = {
            name: write_summary(one, options.target, facts.get("licences", {}))
            for name, one in results.items()
        }
        answers = {name: asdict(summary) for name, summary in summaries.items()}
        provenance = {**facts, "answers": answers}

        def make(folder: Path) -> list[str]:
            return write_report(
                folder,
                results,
                options,
                summaries,
                provenance,
                segments,
                workers,
                earlier,
                progress,
            )

        written = output.write(make, provenance)
        earlier.save()
    return [path.relative_to(out).as_posix() for path in written]
