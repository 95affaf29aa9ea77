"""Tables of embeddings, sequences or audio → a folder with the scores of baselines.

baselines.csv       what each scored, trained on all labels of the support side of every split
baselines.parquet   the same, with its samples of the spread total
refinement.csv      what gradient steps from the centroid add, up to logistic regression
crossovers.csv      where the centroid passes a baseline, and training at every k the centroid
curve.csv …         logistic regression at every k, as callshot evaluate writes it
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

from callshot import pipeline
from callshot.baselines.options import BaselineOptions, check_trainable
from callshot.baselines.run import (
    BaselineResults,
    Signal,
    TrainingContext,
)
from callshot.corpus.audio import load_audio
from callshot.corpus.segment_table import read_segments
from callshot.errors import InputError, OptionError
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.gpu.device import check_device, network_device
from callshot.fewshot.protocol import Protocol
from callshot.files import check_writable, sha256_file
from callshot.records import Evaluation
from callshot.records.frames import BASELINES, REFINEMENT
from callshot.records.table_files import read_parquet, write_csv_frame, write_parquet
from callshot.report.evaluation_files import (
    PROVENANCE,
    RESULT_FILES,
    describe_evaluation,
    merge_results,
    open_provenance,
    protocol_settings,
    read_frame,
    read_results,
    write_evaluation,
)
from callshot.results import open_output_folder
from callshot.study.file_steps import DatasetChoice
from callshot.study.steps import optional
from callshot.tables.embedding_tables import read_sequences, sequences_path

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


def train_baseline_files(
    paths: Sequence[Path],
    out: Path,
    options: BaselineOptions,
    protocol: Protocol,
    *,
    choice: DatasetChoice | None = None,
    sequences: Sequence[Path] | None = None,
    segments: Path | None = None,
    audio: Path | None = None,
    against: Path | None = None,
    context: TrainingContext | None = None,
) -> BaselineResults:
    """Train baselines on tables of embeddings and write their scores to a folder.

    By default, sequences lie beside their table, and the table of segments names its audio folder.
    `against` are results of `evaluate_files`: the same folds are taken, and crossovers are found.
    The folder of the context stores networks, so that none is trained twice.
    """
    choice = choice or DatasetChoice()
    context = context or TrainingContext(protocol.seed)
    if not options.train and not options.per_k and not options.published:
        raise OptionError("train: nothing to train; name a baseline, or use per_k")
    check_device(context.device)
    device = network_device(context.device)
    check_trainable(options, device)
    if options.needs_torch and context.folder is not None:
        check_writable(context.folder)
    centroid = None
    if against is not None:
        centroid = read_centroid_results(against, paths, protocol, choice.categories)
        if (choice.folds, choice.fold_file, choice.folds_dir) != (None, None, None):
            raise OptionError(
                f"folds: the folds of {against} are used; remove --folds or --fold-file"
            )
        if choice.corpus not in (None, centroid.corpus):
            raise OptionError(
                f"corpus: its name in {against} is {centroid.corpus!r}; remove --corpus"
            )
        folds = against / "folds.csv"
        choice = replace(choice, corpus=centroid.corpus, fold_file=folds)
    with open_output_folder(out, ALL_FILES, PROVENANCE, owner=OWNER) as output:
        # Everything is read before anything is trained.
        dataset = choice.read(paths)
        encoders = list(dataset.per_encoder())
        signals: list[Signal] = []
        of_encoders = []
        if "recurrent" in options.train:
            files = sequences or [sequences_path(path) for path in paths]
            for encoder_data, path in zip(encoders, files, strict=True):
                of_encoders.append(read_sequences(path, encoder_data.segments))
        if options.reads_audio:
            signals = _read_signals(encoders[0], segments, audio, context.threads)

        results = pipeline.train(
            dataset,
            options,
            protocol,
            against=centroid,
            sequences=of_encoders,
            signals=signals,
            context=context,
        )
        per_k = merge_results(results.per_k) if results.per_k else None
        training = asdict(options) | {"init": str(options.init or "")}
        facts: dict[str, Any] = {"training": training}
        if options.needs_torch or options.published:
            facts["device"] = device
            facts["torch"] = version("torch")
            facts["networks"] = list(results.networks)
        provenance = describe_evaluation(
            per_k or encoders[0].empty_evaluation(), protocol, dataset.files, facts
        )

        def write(folder: Path) -> list[str]:
            # Empty frames get no file, but baselines do.
            frames = {BASELINES_FILE: results.baselines.drop("samples")}
            if not results.refinement.is_empty():
                frames[REFINEMENT_FILE] = results.refinement
            if not results.crossovers.is_empty():
                frames[CROSSOVERS_FILE] = results.crossovers
            for name, frame in frames.items():
                write_csv_frame(frame, folder / name)
            write_parquet(results.baselines, folder / SAMPLES_FILE)
            names = [*frames, SAMPLES_FILE]
            if per_k is not None:
                write_evaluation(per_k, folder)
                names += RESULT_FILES
            return names

        output.write(write, provenance)
    return results


def protocol_of_results(against: Path | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol of earlier results, with changes."""
    if against is None:
        return Protocol(**changes)
    with open_provenance(against) as provenance:
        protocol = Protocol(**protocol_settings(provenance))
    return replace(protocol, **changes)


def read_centroid_results(
    against: Path, paths: Sequence[Path], protocol: Protocol, categories: Path | None
) -> Evaluation:
    """Return the results of the centroid, after a check that they come from the same task.

    The tables and categories must be the files that were evaluated, with the same seed and sampler.
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
    for name in ("seed", "sampler"):
        value = getattr(protocol, name)
        expected = getattr(evaluated, name)
        if value != expected:
            raise OptionError(
                f"{name}: expected {expected} as in {against}, got {value}; only results of the "
                f"same draws can be compared; remove --{name}"
            )
    used = [("table", path) for path in paths]
    used += [("categories", path) for path in optional(categories)]
    for role, path in used:
        if (role, sha256_file(path)) not in inputs:
            raise InputError(
                f"{path}: {against} was made from another file (the SHA-256 differs); "
                "evaluate this one first"
            )
    return centroid


def read_baseline_results(folder: Path) -> BaselineResults:
    """Read what `train_baseline_files` wrote, without crossovers."""
    refinement = BaselineResults().refinement
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
    """Read the audio of every row of the episodes, recording by recording."""
    if segments is None:
        raise OptionError("end-to-end needs audio; pass --segments")
    table = read_segments(segments)
    names = set(table["segment"])
    for name in encoder_data.segments:
        if name not in names:
            raise InputError(
                f"{segments}: has no segment {name!r}, which {encoder_data.table.source} has"
            )
    rows = table.only(encoder_data.segments).with_columns(rate_hz=AUDIO_RATE_HZ)
    frame = rows.frame.sort("path", "start_s")
    by_recording = replace(rows, frame=frame, root=audio or table.root)
    paths = by_recording.paths
    names_in_order = by_recording["segment"]
    signals: dict[str, Signal] = {}
    for row, signal in load_audio(by_recording, threads=threads):
        if isinstance(signal, InputError):
            raise InputError(f"{paths[row]}: its audio cannot be read ({signal})")
        signals[names_in_order[row]] = signal
    return [signals[name] for name in encoder_data.segments]
