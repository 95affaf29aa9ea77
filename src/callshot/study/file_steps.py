"""The steps of the pipeline, each from files to files.

segment_files    recordings and annotations → segments.parquet, rejects.csv
embed_files      segments → a table of embeddings
fold_files       segments and tables → folds.csv
evaluate_files   tables → k-shot curves with intervals
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from callshot import pipeline
from callshot.corpus.annotations import AnnotationOptions, describe_annotation_options
from callshot.corpus.options import (
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
)
from callshot.encoders.embed import (
    EmbedOptions,
    check_store,
    default_store,
)
from callshot.encoders.joined_encoder import check_title
from callshot.errors import OptionError
from callshot.fewshot.dataset import Dataset
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
    Evaluation,
    Folds,
    Progress,
    Reject,
    Segmentation,
    TransferEvaluation,
    no_progress,
)
from callshot.records.duplicates import (
    NO_GROUP,
    find_equal_vectors,
    group_recordings,
)
from callshot.report.evaluation_files import (
    describe_evaluation,
    describe_folds,
    describe_segmentation,
    open_results,
    write_folds,
    write_results,
)
from callshot.report.figures import draw_sweep
from callshot.report.figures.differences import draw_transfer
from callshot.results import open_output_folder
from callshot.storage import to_path
from callshot.tables.dataset import read_dataset
from callshot.tables.embedding_tables import (
    check_new_table,
    read_table,
    sequences_path,
    table_segments,
    write_sequences,
    write_table,
)
from callshot.tables.fold_files import FOLDS, FOLDS_INFO, read_folds
from callshot.vectors import Vectors

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
        return read_dataset(paths, **asdict(self))


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
    progress: Progress = no_progress,
    **options: Any,
) -> tuple[Vectors, list[Reject]]:
    """Embed the segments of a table; write the embeddings, and the rejects beside them.

    `name` is the name of the encoder in results, instead of its own. With a `mix`, calls are
    mixed into background first. `options` are fields of `EmbedOptions`.
    """
    embedding = EmbedOptions(choices, **options)
    if mix is not None and sequences:
        raise OptionError(
            "sequence: cannot be combined with --site; remove one of the two"
        )
    check_no_cluster(mix, embedding.cluster, "--")
    source = to_path(source)
    out = to_path(out)
    check_new_table(out)
    rejects_path = out.with_suffix(REJECTS_SUFFIX)
    duplicates_path = out.with_suffix(DUPLICATES_SUFFIX)
    columns = {rejects_path: REJECT_SCHEMA, duplicates_path: DUPLICATE_COLUMNS}
    for path, names in columns.items():
        check_new_file(path, "list of segments", partial(has_header, columns=names))
    if sequences:
        check_new_table(sequences_path(out))
    if name is not None:
        check_title(name, "name")
    check_store(embedding.store or default_store())
    if out.absolute() == source.absolute():
        raise OptionError(f"{out}: this is the table of segments; choose another name")
    segments = read_segments(source)
    write = partial(write_sequences, sequences_path(out)) if sequences else None
    table, rejects = pipeline.embed(
        segments,
        encoder,
        embedding,
        name=name,
        audio=audio,
        mix=mix,
        write_sequences=write,
        progress=progress,
    )
    make_folder(out.absolute().parent)
    groups = find_equal_vectors(table).tolist()
    rows = zip(groups, table.segment, table.recording, table.label, strict=True)
    duplicates = [row for row in rows if row[0] != NO_GROUP]
    _write_list(rejects_path, rejects, write_rejects)
    _write_list(duplicates_path, duplicates, write_duplicates)
    write_table(table, out, corpus=segments.metadata.get("corpus"))
    return table, rejects


def _write_list(
    path: Path, entries: Sequence[Any], write: Callable[[Any, Path], object]
) -> None:
    """Write a file with entries, or remove the earlier one if there are none."""
    if not entries:
        path.unlink(missing_ok=True)
        return
    with atomic_path(path) as temporary:
        write(entries, temporary)


def fold_files(
    source: Path,
    out: Path,
    tables: Sequence[Path],
    *,
    count: int | None = None,
    file: Path | None = None,
    default: int = DEFAULT_FOLDS,
    group_duplicates: bool = False,
    progress: Progress = no_progress,
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
        names = frozenset(segments["segment"])
        shared = segments.only(names.intersection(*map(table_segments, tables)))
        fold = None if file is None else read_folds(file, shared)
        if group_duplicates:
            kept = frozenset(shared["segment"])
            read = [read_table(path).only(kept) for path in tables]
            groups = [find_equal_vectors(table) for table in read]
            recordings = group_recordings(shared["recording"], groups)
            shared = shared.with_columns(recording=recordings)
        folds = choose_folds(shared, count, fold, file, default=default)
        classes = count_classes(shared["label"], folds, shared["recording"])
        evaluated_classes(classes)
        missing = sorted(names.difference(shared["segment"]))
        provenance = describe_folds(folds, classes, missing=missing)
        output.write(
            lambda folder: [write_folds(shared, folds, folder / FOLDS)], provenance
        )
    return folds


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    queries: Sequence[Path] | None = None,
    choice: DatasetChoice | None = None,
    centre: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    figure: bool = True,
    progress: Progress = no_progress,
) -> Evaluation:
    """Read tables, evaluate them and write the results to a folder.

    With `queries`, the tables have the examples, and these have the queries: another corpus. Then
    the file of folds, the categories and the name of the corpus are those of the queries.
    """
    choice = choice or DatasetChoice()
    options = {
        "folds": choice.folds,
        "corpus": choice.corpus,
        "group_duplicates": choice.group_duplicates,
        "threads": threads,
        "memory": memory,
        "device": device,
        "figure": figure,
    }
    target = None
    files: list[Mapping[str, Any]] = []
    with open_results(out, transfer=bool(queries)) as output:
        if queries:
            dataset, target = _read_corpora(paths, queries, choice)
            # The role of a table is what it was used for.
            for one, role in ((dataset, "source"), (target, "target")):
                for file in one.files:
                    own_role = role if file["role"] == "table" else file["role"]
                    files.append({**file, "role": own_role})
            options["centre"] = centre
        else:
            dataset = choice.read(paths)
            files += dataset.files
        result = pipeline.evaluate(
            dataset,
            protocol,
            queries=target,
            centre=centre,
            threads=threads,
            memory=memory,
            device=device,
            cluster=cluster,
            progress=progress,
        )
        provenance = describe_evaluation(result, protocol, files, options)
        draw = None
        if isinstance(result, TransferEvaluation):
            if figure:
                draw = partial(draw_transfer, result)
            provenance["source_corpus"] = result.source_corpus
            provenance["target_corpus"] = result.corpus
            for name in ("within_target", "within_source"):
                within = getattr(result, name)
                if within is not None:
                    provenance[name] = _describe_folds(within)
        elif figure:
            draw = partial(draw_sweep, result.name_classifiers(protocol.reference))
        write_results(output, result, provenance, draw)
    return result


def _read_corpora(
    paths: Sequence[Path], queries: Sequence[Path], choice: DatasetChoice
) -> tuple[Dataset, Dataset]:
    """Read the tables of a source and a target corpus; their names differ.

    Names are those in the tables or of their folders, else those of the files.
    """
    own = replace(choice, fold_file=None, categories=None, corpus=None)
    source = own.read(paths)
    target = choice.read(queries)
    for one, other in ((paths[0].stem, queries[0].stem), ("source", "target")):
        if source.corpus == target.corpus:
            source = replace(source, corpus=one)
            target = replace(target, corpus=choice.corpus or other)
    return source, target


def _describe_folds(evaluation: Evaluation) -> dict[str, Any]:
    folds = evaluation.folds
    return {
        "classes": [count.label for count in evaluation.eligible_classes],
        "queries": evaluation.queries,
        "complete_shots": evaluation.complete_shots,
        "folds": {"count": folds.count, "origin": folds.origin, "proof": folds.proof},
    }
