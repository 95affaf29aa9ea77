"""Tables of embeddings, sequences or audio → a folder with the scores of baselines.

baselines.csv       what each scored, trained on all labels of the support side of every split
baselines.parquet   the same, with its samples of the spread total
refinement.csv      what gradient steps from the centroid add, up to logistic regression
crossovers.csv      where the centroid passes a baseline, and training at every k the centroid
curve.csv …         logistic regression at every k, as callshot evaluate writes it
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from callshot.fewshot.dataset import Dataset, EncoderDataset
from callshot.fewshot.gpu.device import check_device, network_device
from callshot.fewshot.protocol import Protocol
from callshot.files import check_writable, sha256_file
from callshot.records import Evaluation
from callshot.records.frames import BASELINES, REFINEMENT
from callshot.records.table_files import read_parquet, write_parquet
from callshot.report.results import (
    PROVENANCE,
    RESULT_FILES,
    describe_evaluation,
    merge_results,
    open_provenance,
    protocol_settings,
    read_frame,
    read_results,
    write_evaluation,
    write_frame,
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


@dataclass(frozen=True)
class TrainingInputs:
    """What baselines read beside vectors.

    By default, sequences lie beside their table, and the table of segments names its audio folder.
    """

    sequences: Sequence[Path] | None = None
    segments: Path | None = None
    audio: Path | None = None


def train_baseline_files(
    paths: Sequence[Path],
    out: Path,
    options: BaselineOptions,
    protocol: Protocol,
    *,
    choice: DatasetChoice | None = None,
    inputs: TrainingInputs | None = None,
    against: Path | None = None,
    context: TrainingContext | None = None,
) -> BaselineResults:
    """Train baselines on tables of embeddings and write their scores to a folder.

    `against` are results of `evaluate_files`: the same folds are taken, and crossovers are found.
    The folder of the context stores networks, so that none is trained twice.
    """
    choice = choice or DatasetChoice()
    context = context or TrainingContext(protocol.seed)
    if not options.train and not options.per_k and not options.published:
        raise OptionError("train: nothing to train; name a baseline, or use per_k")
    check_device(context.device)
    check_trainable(options, network_device(context.device))
    if options.needs_torch and context.folder is not None:
        check_writable(context.folder)
    centroid = None
    if against is not None:
        centroid = read_centroid_results(against, paths, protocol, choice.categories)
        choice = _take_folds(choice, against, centroid.corpus)
    with open_output_folder(out, ALL_FILES, PROVENANCE, owner=OWNER) as output:
        dataset = choice.read(paths)
        sequences, signals = _read_inputs(
            dataset, paths, options, inputs, context.threads
        )
        results = pipeline.train(
            dataset,
            options,
            protocol,
            against=centroid,
            sequences=sequences,
            signals=signals,
            context=context,
        )
        per_k = merge_results(results.per_k) if results.per_k else None
        described = per_k or next(dataset.per_encoder()).empty_evaluation()
        device = network_device(context.device)
        facts = _describe_options(options, device, results.networks)
        provenance = describe_evaluation(described, protocol, dataset.files, facts)
        output.write(lambda folder: _write_files(results, per_k, folder), provenance)
    return results


def protocol_of_results(against: Path | None, changes: Mapping[str, Any]) -> Protocol:
    """Return the protocol of earlier results, with changes."""
    if against is None:
        return Protocol(**changes)
    protocol, _ = _read_protocol(against)
    return replace(protocol, **changes)


def read_centroid_results(
    against: Path, paths: Sequence[Path], protocol: Protocol, categories: Path | None
) -> Evaluation:
    """Return the results of the centroid, after a check that they come from the same task.

    The tables and categories must be the files that were evaluated, with the same seed and sampler.
    """
    evaluated, inputs = _read_protocol(against)
    centroid = read_results(against).select_classifiers(["centroid"])
    if centroid.curve.is_empty():
        raise InputError(
            f"{against}: has no curve of the centroid; pass a folder that callshot evaluate wrote"
        )
    _check_same_draws(protocol, evaluated, against)
    files = [("table", path) for path in paths]
    files += [("categories", path) for path in optional(categories)]
    for role, path in files:
        if (role, sha256_file(path)) not in inputs:
            raise InputError(
                f"{path}: {against} was made from another file (the SHA-256 differs); "
                "evaluate this one first"
            )
    return centroid


def _check_same_draws(protocol: Protocol, evaluated: Protocol, against: Path) -> None:
    for name in ("seed", "sampler"):
        value = getattr(protocol, name)
        expected = getattr(evaluated, name)
        if value != expected:
            raise OptionError(
                f"{name}: expected {expected} as in {against}, got {value}; only results of the "
                f"same draws can be compared; remove --{name}"
            )


def _take_folds(choice: DatasetChoice, against: Path, corpus: str) -> DatasetChoice:
    """Return the choice of earlier results; check that no option contradicts it."""
    if (choice.folds, choice.fold_file, choice.folds_dir) != (None, None, None):
        raise OptionError(
            f"folds: the folds of {against} are used; remove --folds or --fold-file"
        )
    if choice.corpus not in (None, corpus):
        raise OptionError(
            f"corpus: its name in {against} is {corpus!r}; remove --corpus"
        )
    return replace(choice, corpus=corpus, fold_file=against / "folds.csv")


def _read_protocol(against: Path) -> tuple[Protocol, set[tuple[str, str]]]:
    """Return the protocol of earlier results, and the role and SHA-256 of each input."""
    with open_provenance(against) as provenance:
        protocol = Protocol(**protocol_settings(provenance))
        files = provenance["inputs"]
        inputs = {(str(file["role"]), str(file["sha256"])) for file in files}
    return protocol, inputs


def read_baseline_results(folder: Path) -> BaselineResults:
    """Read what `train_baseline_files` wrote, without crossovers."""
    refinement = BaselineResults().refinement
    if (folder / REFINEMENT_FILE).exists():
        refinement = read_frame(folder / REFINEMENT_FILE, REFINEMENT)
    per_k = [read_results(folder)] if (folder / "curve.csv").exists() else []
    baselines = read_baselines(folder)
    return BaselineResults(baselines, refinement, per_k=per_k)


def read_baselines(folder: Path) -> pl.DataFrame:
    """Read what each baseline scored, with its samples."""
    path = folder / SAMPLES_FILE
    try:
        return read_parquet(path, list(BASELINES))
    except InputError as error:
        raise InputError(f"{error}; train the baselines again") from None


def _read_inputs(
    dataset: Dataset,
    paths: Sequence[Path],
    options: BaselineOptions,
    inputs: TrainingInputs | None,
    threads: int | None,
) -> tuple[list[list[Signal]], list[Signal]]:
    """Read the sequences of each encoder, and the audio, before anything is trained."""
    inputs = inputs or TrainingInputs()
    encoders = list(dataset.per_encoder())
    sequences = []
    if "recurrent" in options.train:
        files = inputs.sequences or [sequences_path(path) for path in paths]
        for encoder_data, path in zip(encoders, files, strict=True):
            sequences.append(read_sequences(path, encoder_data.segments))
    signals = _read_signals(encoders[0], inputs, threads) if options.reads_audio else []
    return sequences, signals


def _read_signals(
    encoder_data: EncoderDataset, inputs: TrainingInputs, threads: int | None
) -> list[Signal]:
    """Read the audio of every row of the episodes, recording by recording."""
    if inputs.segments is None:
        raise OptionError("end-to-end needs audio; pass --segments")
    table = read_segments(inputs.segments)
    names = set(table["segment"])
    for name in encoder_data.segments:
        if name not in names:
            raise InputError(
                f"{inputs.segments}: has no segment {name!r}, which {encoder_data.table.source} has"
            )
    rows = table.only(encoder_data.segments).with_columns(rate_hz=AUDIO_RATE_HZ)
    frame = rows.frame.sort("path", "start_s")
    by_recording = replace(rows, frame=frame, root=inputs.audio or table.root)
    paths = by_recording.paths
    names_in_order = by_recording["segment"]
    signals: dict[str, Signal] = {}
    for row, signal in load_audio(by_recording, threads=threads):
        if isinstance(signal, InputError):
            raise InputError(f"{paths[row]}: its audio cannot be read ({signal})")
        signals[names_in_order[row]] = signal
    return [signals[name] for name in encoder_data.segments]


def _describe_options(
    options: BaselineOptions, device: str, networks: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    training = asdict(options) | {"init": str(options.init or "")}
    facts: dict[str, Any] = {"training": training}
    if options.needs_torch or options.published:
        facts["device"] = device
        facts["torch"] = version("torch")
        facts["networks"] = list(networks)
    return facts


def baseline_files(results: BaselineResults) -> list[str]:
    """Return the names of the files that describe some results."""
    names = [*_result_frames(results), SAMPLES_FILE, PROVENANCE]
    return [*names, *RESULT_FILES] if results.per_k else names


def _result_frames(results: BaselineResults) -> dict[str, pl.DataFrame]:
    """Return the frames of some results by file name; empty ones get no file, but baselines do."""
    frames = {BASELINES_FILE: results.baselines.drop("samples")}
    if not results.refinement.is_empty():
        frames[REFINEMENT_FILE] = results.refinement
    if not results.crossovers.is_empty():
        frames[CROSSOVERS_FILE] = results.crossovers
    return frames


def _write_files(
    results: BaselineResults, per_k: Evaluation | None, folder: Path
) -> list[str]:
    """Write the files of some results to a folder; return their names."""
    for name, frame in _result_frames(results).items():
        write_frame(frame, folder / name)
    write_parquet(results.baselines, folder / SAMPLES_FILE)
    if per_k is not None:
        write_evaluation(per_k, folder)
    return [name for name in baseline_files(results) if name != PROVENANCE]
