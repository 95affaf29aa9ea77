"""The steps of the pipeline, each from files to files.

Baselines write baselines.csv (with samples in baselines.parquet), refinement.csv, crossovers.csv
and, trained at every k, curves as callshot evaluate writes them.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot import pipeline
from callshot.baselines.options import BaselineOptions, check_trainable
from callshot.baselines.run import BaselineResults, Signal
from callshot.baselines.training import TrainingContext
from callshot.corpus.annotations import AnnotationOptions, describe_annotation_options
from callshot.corpus.audio import load_audio
from callshot.corpus.options import Corpus, SegmentationOptions, default_options
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
from callshot.encoders.embed import (
    BackgroundMix,
    EmbedOptions,
    check_store,
    default_store,
)
from callshot.errors import InputError, OptionError, printable
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.folds import (
    DEFAULT_FOLDS,
    choose_folds,
    count_classes,
    evaluated_classes,
)
from callshot.fewshot.gpu.device import check_device, network_device
from callshot.fewshot.protocol import Protocol
from callshot.files import (
    atomic_path,
    check_new_file,
    check_writable,
    has_header,
    make_folder,
    sha256_file,
)
from callshot.records import (
    Evaluation,
    FloatArray,
    Folds,
    Progress,
    Reject,
    Segmentation,
    TransferEvaluation,
    no_progress,
)
from callshot.records.duplicates import NO_GROUP, find_equal_vectors, group_recordings
from callshot.records.frames import BASELINES, REFINEMENT, empty_frame
from callshot.records.table_files import read_parquet, write_csv_frame, write_parquet
from callshot.report.figures.against_k import draw_sweep, draw_transfer
from callshot.report.figures.figure_io import FigurePage, draw_page
from callshot.report.figures.layout import (
    BLUE,
    COLOURS,
    DASHES,
    GREY,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    TICK_PT,
    Style,
)
from callshot.results import OutputFolder, open_output_folder
from callshot.storage import to_path
from callshot.study.steps import optional
from callshot.tables.embedding_tables import (
    check_new_table,
    read_sequences,
    read_table,
    sequences_path,
    table_segments,
    write_sequences,
    write_table,
)
from callshot.tables.evaluation_files import (
    PROVENANCE,
    RESULT_FILES,
    describe_evaluation,
    describe_folds,
    describe_segmentation,
    merge_results,
    open_provenance,
    open_results,
    protocol_settings,
    read_frame,
    read_results,
    write_evaluation,
    write_folds,
    write_results,
)
from callshot.tables.fold_files import FOLDS, FOLDS_INFO, read_folds
from callshot.tables.read_dataset import read_dataset
from callshot.vectors import Vectors
from callshot.version import __version__

SEGMENTS_INFO = "segments.json"
NO_CHOICE: Mapping[str, Any] = {}  # of folds, categories and the name of a corpus
REJECTS_SUFFIX = ".rejects.csv"  # of files beside a table of embeddings
DUPLICATES_SUFFIX = ".duplicates.csv"
BASELINES_FILE = "baselines.csv"
SAMPLES_FILE = "baselines.parquet"  # with the samples of the spread total
REFINEMENT_FILE = "refinement.csv"
CROSSOVERS_FILE = "crossovers.csv"
OWNER = "callshot baselines"  # the command that wrote a folder, in its results
ALL_FILES = (
    BASELINES_FILE,
    SAMPLES_FILE,
    REFINEMENT_FILE,
    CROSSOVERS_FILE,
    *RESULT_FILES,
)
AUDIO_RATE_HZ = 16_000  # what the end-to-end baseline reads


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
    progress: Progress = no_progress,
    **machine: Any,
) -> Segmentation:
    """Cut recordings into segments by `segment_corpus`; write them to the folder `out`."""
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
            progress=progress,
            **machine,
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
        output.write(
            lambda folder: write_segmentation(segmentation, folder, facts, categories),
            describe_segmentation(segmentation, stats, described, inputs),
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
    source = to_path(source)
    out = to_path(out)
    check_new_table(out)
    headers = {REJECTS_SUFFIX: REJECT_SCHEMA, DUPLICATES_SUFFIX: DUPLICATE_COLUMNS}
    for suffix, columns in headers.items():
        is_own = partial(has_header, columns=columns)
        check_new_file(out.with_suffix(suffix), "list of segments", is_own)
    write = None
    if sequences:
        check_new_table(sequences_path(out))
        write = partial(write_sequences, sequences_path(out))
    check_store(embedding.store or default_store())
    segments = read_segments(source)
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
    _write_or_remove(out.with_suffix(REJECTS_SUFFIX), rejects, write_rejects)
    _write_or_remove(out.with_suffix(DUPLICATES_SUFFIX), duplicates, write_duplicates)
    write_table(table, out, corpus=segments.metadata.get("corpus"))
    return table, rejects


def _write_or_remove(
    path: Path, entries: Sequence[Any], write: Callable[[Any, Path], object]
) -> None:
    """Write a file by `write(entries, path)`, or remove the earlier one if there are no entries."""
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
    """Split the segments that every table has into folds; write folds.csv to the folder `out`.

    Folds are those of `file`, of the segments, or built: `count`, or else `default` of them. With
    `group_duplicates`, recordings that share an equal vector are one recording.
    """
    with open_output_folder(out, (FOLDS,), FOLDS_INFO) as output:
        segments = read_segments(source)
        names = frozenset(segments["segment"])
        shared = segments.only(names.intersection(*map(table_segments, tables)))
        fold = None if file is None else read_folds(file, shared)
        if group_duplicates:
            kept = frozenset(shared["segment"])
            groups = [
                find_equal_vectors(read_table(path).only(kept)) for path in tables
            ]
            recordings = group_recordings(shared["recording"], groups)
            shared = shared.with_columns(recording=recordings)
        folds = choose_folds(shared, count, fold, file, default=default)
        classes = count_classes(shared["label"], folds, shared["recording"])
        evaluated_classes(classes)  # raises InputError if fewer than two are eligible
        missing = sorted(names.difference(shared["segment"]))
        output.write(
            lambda folder: [write_folds(shared, folds, folder / FOLDS)],
            describe_folds(folds, classes, missing=missing),
        )
    return folds


def evaluate_files(
    paths: Sequence[Path],
    out: Path,
    protocol: Protocol,
    *,
    queries: Sequence[Path] | None = None,
    choice: Mapping[str, Any] = NO_CHOICE,
    centre: bool = False,
    figure: bool = True,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    **machine: Any,
) -> Evaluation:
    """Read tables, evaluate them and write the results to a folder.

    `choice` are options of `read_dataset`: folds, categories and the name of the corpus; `machine`
    are further options of `pipeline.evaluate`. With `queries`, tables of another corpus, the tables
    in `paths` have only the examples; then the options of `choice` are about the queries.
    """
    running = {"threads": threads, "memory": memory, "device": device}
    options = {
        "folds": choice.get("folds"),
        "corpus": choice.get("corpus"),
        "group_duplicates": choice.get("group_duplicates", False),
        **running,
        "figure": figure,
    }
    target = None
    with open_results(out, transfer=bool(queries)) as output:
        if queries:
            no_files = {"fold_file": None, "categories": None, "corpus": None}
            dataset = read_dataset(paths, **{**choice, **no_files}, role="source")
            target = read_dataset(queries, **choice, role="target")
            # Two corpora of one name get those of the files; if these are equal, of their roles.
            names_of_files = (paths[0].stem, queries[0].stem)
            for source_name, target_name in (names_of_files, ("source", "target")):
                if dataset.corpus == target.corpus:
                    target_name = choice.get("corpus") or target_name
                    dataset = replace(dataset, corpus=source_name)
                    target = replace(target, corpus=target_name)
            files = [*dataset.files, *target.files]
            options["centre"] = centre
        else:
            dataset = read_dataset(paths, **choice)
            files = [*dataset.files]
        result = pipeline.evaluate(
            dataset, protocol, queries=target, centre=centre, **running, **machine
        )
        provenance = describe_evaluation(result, protocol, files, options)
        if isinstance(result, TransferEvaluation):
            draw = partial(draw_transfer, result)
            provenance |= _describe_corpora(result, protocol)
        else:
            draw = partial(draw_sweep, result.name_classifiers(protocol.reference))
        write_results(output, result, provenance, draw if figure else None)
    return result


def _describe_corpora(result: TransferEvaluation, protocol: Protocol) -> dict[str, Any]:
    """Return, for the provenance of a transfer, its corpora and the evaluations within them."""
    described: dict[str, Any] = {
        "source_corpus": result.source_corpus,
        "target_corpus": result.corpus,
    }
    for name in ("within_target", "within_source"):
        within = getattr(result, name)
        if within is not None:
            facts = describe_evaluation(within, protocol, (), {})
            described[name] = {"classes": within.eligible_labels}
            for fact in ("queries", "complete_shots", "folds"):
                described[name][fact] = facts[fact]
    return described


def train_baseline_files(
    paths: Sequence[Path],
    out: Path,
    options: BaselineOptions,
    protocol: Protocol,
    *,
    choice: Mapping[str, Any] = NO_CHOICE,
    sequences: Sequence[Path] = (),
    segments: Path | None = None,
    audio: Path | None = None,
    against: Path | None = None,
    device: str = "cpu",
    networks: Path | None = None,
    **machine: Any,
) -> BaselineResults:
    """Train baselines on tables of embeddings and write their scores to a folder.

    `choice` are the other arguments of `read_dataset`. Recurrent baselines read `sequences`, by
    default beside their table; end-to-end baselines read `segments` and their audio, by default in
    the folder that the table of segments names. `against` are results of `evaluate_files`: the same
    folds are taken, and crossovers are found. The folder `networks` stores networks, so that none
    is trained twice. `machine` are further fields of `TrainingContext`.
    """
    context = TrainingContext(protocol.seed, device, folder=networks, **machine)
    if not options.train and not options.per_k and not options.published:
        raise OptionError("train: nothing to train; name a baseline, or use per_k")
    check_device(device)
    used_device = network_device(device)
    check_trainable(options, used_device)
    if options.needs_torch and networks is not None:
        check_writable(networks)
    centroid = None
    if against is not None:
        centroid = read_centroid_results(against, paths, protocol, choice)
        folds = against / FOLDS
        choice = {**choice, "corpus": centroid.corpus, "fold_file": folds}
    with open_output_folder(out, ALL_FILES, PROVENANCE, owner=OWNER) as output:
        # Everything is read before anything is trained.
        dataset = read_dataset(paths, **choice)
        encoders = list(dataset.per_encoder())
        signals: list[Signal] = []
        all_sequences = []  # of each encoder
        if "recurrent" in options.train:
            files = sequences or [sequences_path(path) for path in paths]
            for encoder_data, path in zip(encoders, files, strict=True):
                all_sequences.append(read_sequences(path, encoder_data.segments))
        if options.reads_audio:
            signals = _read_signals(encoders[0], segments, audio, context.threads)

        results = pipeline.train(
            dataset,
            options,
            protocol,
            against=centroid,
            sequences=all_sequences,
            signals=signals,
            context=context,
        )
        per_k = merge_results(results.per_k) if results.per_k else None
        # A text, as JSON has no Path.
        training = asdict(options) | {"init": str(options.init or "")}
        facts: dict[str, Any] = {"training": training}
        if options.needs_torch or options.published:
            facts["device"] = used_device
            facts["torch"] = version("torch")
            facts["networks"] = list(results.networks)
        # Where nothing was trained at every k, its classes, folds and queries are the same.
        evaluation = per_k or encoders[0].empty_evaluation()
        provenance = describe_evaluation(evaluation, protocol, dataset.files, facts)

        output.write(partial(_write_baselines, results, per_k), provenance)
    return results


def _write_baselines(
    results: BaselineResults, per_k: Evaluation | None, folder: Path
) -> list[str]:
    """Write all results of baselines to a folder; return the names of the files.

    `per_k` are the curves of baselines that were trained at every k.
    """
    # Empty frames get no file, but baselines do.
    frames = {
        BASELINES_FILE: results.baselines.drop("samples", "mean_samples"),
        REFINEMENT_FILE: results.refinement,
        CROSSOVERS_FILE: results.crossovers,
    }
    write_parquet(results.baselines, folder / SAMPLES_FILE)
    names = [SAMPLES_FILE]
    for name, frame in frames.items():
        if name == BASELINES_FILE or len(frame) > 0:
            write_csv_frame(frame, folder / name)
            names.append(name)
    if per_k is not None:
        write_evaluation(per_k, folder)
        names += RESULT_FILES
    return names


def protocol_of_results(against: Path | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol of the results in a folder, or else the usual one, with changes."""
    if against is None:
        return Protocol(**changes)
    with open_provenance(against) as provenance:
        settings = protocol_settings(provenance)
    return Protocol(**{**settings, **changes})


def read_centroid_results(
    against: Path,
    paths: Sequence[Path],
    protocol: Protocol,
    choice: Mapping[str, Any],
) -> Evaluation:
    """Read the results of the centroid; check that baselines on some tables are of the same task.

    `against` is the folder of the results. Baselines need its seed, its tables and categories, and
    its folds. `choice` are the options that the baselines got.
    """
    with open_provenance(against) as provenance:
        evaluated = Protocol(**protocol_settings(provenance))
        files = provenance["inputs"]
        inputs = {(str(file["role"]), str(file["sha256"])) for file in files}
    centroid = read_results(against).select_classifiers(["centroid"])
    if centroid.curve.is_empty():
        raise InputError(
            f"{against}: has no curve of the centroid; pass a folder that callshot evaluate wrote"
        )
    if protocol.seed != evaluated.seed:
        raise OptionError(
            f"seed: expected {evaluated.seed} as in {against}, got {protocol.seed}; only results "
            "of the same draws can be compared; remove --seed"
        )
    used = [("table", path) for path in paths]
    used += [("categories", path) for path in optional(choice.get("categories"))]
    for role, path in used:
        if (role, sha256_file(path)) not in inputs:
            raise InputError(
                f"{path}: {against} was made from another file (the SHA-256 differs); "
                "evaluate this one first"
            )
    if choice.get("folds") or choice.get("fold_file"):
        raise OptionError(
            f"folds: the folds of {against} are used; remove --folds or --fold-file"
        )
    if choice.get("corpus") not in (None, centroid.corpus):
        raise OptionError(
            f"corpus: its name in {against} is {centroid.corpus!r}; remove --corpus"
        )
    return centroid


def read_baseline_results(folder: Path) -> BaselineResults:
    """Read what `train_baseline_files` wrote, without crossovers."""
    refinement = empty_frame(REFINEMENT)
    if (folder / REFINEMENT_FILE).exists():
        refinement = read_frame(folder / REFINEMENT_FILE, REFINEMENT)
    per_k = [read_results(folder)] if (folder / "curve.csv").exists() else []
    return BaselineResults(read_baselines(folder), refinement, per_k=per_k)


def read_baselines(folder: Path) -> pl.DataFrame:
    """Read what each baseline scored, with its samples."""
    try:
        return read_parquet(folder / SAMPLES_FILE, list(BASELINES))
    except InputError as error:
        raise InputError(f"{error}; train the baselines again") from None


def _read_signals(
    encoder_data: EncoderDataset,
    segments: Path | None,
    audio: Path | None,
    threads: int | None,
) -> list[Signal]:
    """Read the audio of every segment of a dataset, from the folder `audio` or of the table."""
    if segments is None:
        raise OptionError("end-to-end needs audio; pass --segments")
    table = read_segments(segments)
    missing = sorted(set(encoder_data.segments).difference(table["segment"]))
    if missing:
        source = encoder_data.table.source
        raise InputError(
            f"{segments}: has no segment {missing[0]!r}, which {source} has"
        )
    rows = table.only(encoder_data.segments).with_columns(rate_hz=AUDIO_RATE_HZ)
    frame = rows.frame.sort("path", "start_s")
    by_recording = replace(rows, frame=frame, root=audio or table.root)
    paths = by_recording.paths
    names_in_order = by_recording["segment"]
    signals = {}
    for row, signal in load_audio(by_recording, threads=threads):
        if isinstance(signal, InputError):
            raise InputError(f"{paths[row]}: its audio cannot be read ({signal})")
        signals[names_in_order[row]] = signal
    return [signals[name] for name in encoder_data.segments]


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What encoders get of calls: a CSV file and a picture.

COVERAGE = "band-coverage"
COVERAGE_FILES = (f"{COVERAGE}.csv", f"{COVERAGE}.pdf", f"{COVERAGE}.png")
COVERAGE_PROVENANCE = f"{COVERAGE}.json"
MAX_LABELS = 7  # lines that the eye can separate
ROW_IN = 0.16
SPECTRUM_IN = 2.4
RANGE_DB = 50.0


def open_coverage(folder: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for band-coverage.csv, .pdf and .png, before any work."""
    return open_output_folder(folder, COVERAGE_FILES, COVERAGE_PROVENANCE)


def write_coverage(
    output: OutputFolder,
    table: pl.DataFrame,
    edges_hz: FloatArray,
    power: FloatArray,
    label: Sequence[str],
) -> list[Path]:
    """Write the table of band coverage and its picture; return the paths.

    `power` is the share of the energy of each call in each bin of frequency, (calls, bins);
    `edges_hz`, (bins + 1), are the edges of the bins, and `label` is the label of each call.
    """
    page = FigurePage(COVERAGE, _compose_coverage, (table, edges_hz, power, label))

    def make_files(folder: Path) -> Sequence[str]:
        """Write all files to a folder; return their names."""
        write_csv_frame(table, folder / f"{COVERAGE}.csv")
        draw_page(page, folder)
        return COVERAGE_FILES

    return output.write(make_files, {"version": __version__})


def _compose_coverage(
    figure: "Figure",
    table: pl.DataFrame,
    edges_hz: FloatArray,
    power: FloatArray,
    label: Sequence[str],
) -> None:
    """Draw the mean spectrum of each call type; below, the band that each encoder gets.

    The arguments are those of `write_coverage`.
    """
    bands_in = ROW_IN * (table.height + 1)
    height_in = SPECTRUM_IN + bands_in + 0.6
    figure.set_size_inches(PAGE_WIDTH_IN, height_in)
    heights = (SPECTRUM_IN, bands_in)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    lower_hz = edges_hz[:-1]
    upper_hz = edges_hz[1:]
    _draw_spectra(upper, np.sqrt(lower_hz * upper_hz), power, np.asarray(label))
    _draw_bands(lower, table)
    is_used = power.sum(axis=0) > 0
    lower.set_xscale("log")
    lowest_hz = lower_hz[is_used].min()
    highest_hz = upper_hz[is_used].max()
    lower.set_xlim(lowest_hz, highest_hz)
    lower.xaxis.set_major_formatter(lambda hz, _: f"{hz:,.0f}")
    lower.xaxis.set_minor_formatter(lambda hz, _: "")
    lower.set_xlabel("frequency in the recording, Hz")


def _draw_spectra(
    ax: "Axes", centres_hz: FloatArray, power: FloatArray, labels: NDArray[Any]
) -> None:
    """Draw the mean spectrum of the calls of each type, the commonest types first.

    `power` is (calls, bins), `labels` is (calls,), and `centres_hz` are the centres of the bins.
    """
    names, counts = np.unique(labels, return_counts=True)
    falling = np.argsort(-counts, kind="stable")
    commonest = names[falling][:MAX_LABELS]
    for n, name in enumerate(commonest):
        mean = power[labels == name].mean(axis=0)
        not_zero = np.maximum(mean, 1e-12)
        ax.plot(
            centres_hz,
            10 * np.log10(not_zero),
            color=COLOURS[n],
            linestyle=DASHES[n % len(DASHES)],
            label=printable(str(name)),
        )
    top_db = ax.get_ylim()[1]
    ax.set_ylim(top_db - RANGE_DB, top_db)
    ax.set_ylabel("share of the energy\nper ⅙ octave, dB")
    ax.legend(fontsize=SMALL_PT, ncols=2)


def _draw_bands(ax: "Axes", table: pl.DataFrame) -> None:
    """Draw the band of each encoder and speed, from top to bottom; those of auto are dark."""
    ticks = []
    text: Style = {"va": "center", "fontsize": SMALL_PT, "color": GREY}
    for row, entry in enumerate(table.iter_rows(named=True)):
        low_hz, high_hz = entry["low_hz"], entry["high_hz"]
        colour = BLUE if entry["auto"] else SILVER
        width_hz = max(0.0, high_hz - low_hz)
        energy = entry["energy"]
        encoder = printable(entry["encoder"])
        speed = entry["speed"]
        ax.barh(row, width_hz, height=0.7, left=low_hz, color=colour)
        ax.text(high_hz, row, f" {energy:.0%}", **text)
        ticks.append(f"{encoder} × {speed:g}")
    ax.set_yticks(range(len(ticks)), ticks, fontsize=TICK_PT)
    ax.invert_yaxis()
