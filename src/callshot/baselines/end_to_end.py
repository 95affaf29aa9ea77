"""Signals and targets → scores of the end-to-end baseline, trained on the support side of splits.

AERD's system AST-seq: log-mel frames, patches of 16 × 16, a transformer, a linear layer for each
token, the mean over the eight patches of a column, a sigmoid for each output and frame of 160 ms.
Every frame of a segment is trained with all labels of the segment; both sides of every output count
the same. Without `init` it is a small transformer; `init` starts from public weights of AST or
BEATs.

For each split and seed a network is trained twice, like the recurrent ones: first without an inner
fold of recordings, to find the number of epochs, then on all rows. `epochs` skips the first: useful
for a pretrained network where the search costs too much, unfair in comparisons. A segment longer
than 10.24 s is trained by random crops of that length and scored whole, in consecutive windows. Its
score is the mean of its frames' log-odds, averaged over the seeds.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.baselines.executor import (
    DEFAULT_OPTIONS,
    TrainingOptions,
    check_examples,
    check_lengths,
    check_positive,
    require_torch,
)
from callshot.baselines.sequence_batches import BatchData, BoolArray
from callshot.baselines.spectrogram import (
    COLUMN_S,
    HOP_SAMPLES,
    MAX_COLUMNS,
    RATE_HZ,
    Signal,
    log_mel_table,
)
from callshot.baselines.train_loop import (
    UNSEARCHED_EPOCHS,
    Metadata,
    TrainingJob,
    plan_job,
    run_trainings,
)
from callshot.errors import InputError
from callshot.fewshot.folds import check_folds
from callshot.records import FloatArray, IntArray, Progress, no_progress

if TYPE_CHECKING:
    from callshot.baselines.frame_classifier import FrameTask
    from callshot.baselines.pretrained import Pretrained

PRETRAINED = {  # smaller steps, because the weights are good already
    "learning_rate": 5e-5,
    "warmup_steps": 100,
    "epochs": 30,
    "patience": 5,
}


def score_end_to_end(
    signals: Sequence[Signal],
    targets: BoolArray,
    fold: IntArray,
    groups: IntArray,
    names: Sequence[str],
    *,
    init: Path | None = None,
    epochs: int | None = None,
    options: TrainingOptions = DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> tuple[FloatArray, Metadata]:
    """Train on every split and score its queries.

    Return log-odds (rows, outputs), NaN in the common fold, and metadata. `signals` are at 16 kHz,
    one channel; each is read once. `targets` is (rows, outputs), `groups` the recording of each
    row, `names` those of the outputs. `progress` is also called from other threads.
    """
    check_positive("epochs", epochs)
    _check_input(len(signals), targets, fold, groups, names)
    require_torch(options.device)
    encoder, pretrained = _choose_encoder(init)
    table = log_mel_table(signals, encoder.front_end)
    data = BatchData.load(table, targets, options.device)
    jobs = _plan_jobs(data, fold, groups, names, encoder, pretrained, epochs, options)
    means, training = run_trainings(jobs, options, progress)
    scores = np.full(targets.shape, np.nan)
    for number, mean in means.items():
        scores[fold == number] = mean
    metadata = {
        **_describe_encoder(encoder, pretrained),
        "parameters": jobs[0].task.parameters,
        "pooling": "mean of the frames' log-odds",
        "frame_s": COLUMN_S,
        "window_s": COLUMN_S * MAX_COLUMNS,
        "searched": epochs is None,
        "audio_s": len(table.frames) * HOP_SAMPLES / RATE_HZ,
    }
    return scores, metadata | training


def _choose_encoder(init: Path | None) -> tuple[Any, "Pretrained | None"]:
    from callshot.baselines.frame_classifier import DEFAULT_ENCODER
    from callshot.baselines.pretrained import read_pretrained

    if init is None:
        return DEFAULT_ENCODER, None
    pretrained = read_pretrained(init)
    return pretrained.encoder, pretrained


def _describe_encoder(encoder: Any, pretrained: "Pretrained | None") -> Metadata:
    metadata = {
        "title": encoder.title,
        "text": encoder.title,
        "encoder": asdict(encoder),
        "init": None,
    }
    if pretrained is not None:
        file_name = pretrained.path.name
        metadata["text"] = f"{encoder.title} from {file_name}"
        metadata["init"] = {
            "file": file_name,
            "sha256": pretrained.digest,
            "unused": pretrained.unused,
        }
    return metadata


def _check_input(
    signals: int,
    targets: BoolArray,
    fold: IntArray,
    groups: IntArray,
    names: Sequence[str],
) -> None:
    rows = len(targets)
    outputs = len(names)
    is_table = outputs > 0 and targets.shape == (rows, outputs)
    if not is_table or targets.dtype != np.bool_:
        raise InputError(
            f"targets: expected true or false for each row and each of {outputs} outputs, "
            f"got shape {targets.shape} of {targets.dtype}"
        )
    check_lengths(rows, signals=signals, fold=len(fold), groups=len(groups))
    folds = check_folds([str(group) for group in groups], fold)
    for number in range(folds.count):
        counts = targets[fold != number].sum(axis=0)
        check_examples(counts, names, number)


def _plan_jobs(
    data: BatchData,
    fold: IntArray,
    groups: IntArray,
    names: Sequence[str],
    encoder: Any,
    pretrained: "Pretrained | None",
    epochs: int | None,
    options: TrainingOptions,
) -> list[TrainingJob]:
    """Plan the trainings of each split with all seeds, and read what earlier runs saved."""
    jobs = []
    for number in range(int(fold.max()) + 1):
        rows = np.flatnonzero(fold != number)
        key = {
            "outputs": list(names),
            "rows": data.fingerprint(rows, groups),
            "epochs": epochs,
        }
        for member in range(options.seeds):
            task = _make_task(data, encoder, pretrained, options.seed, member)
            held_out = np.zeros(len(rows), np.bool_)
            if epochs is None:
                label = _rarest_output(data.label[rows])
                held_out = task.config.held_out(label, groups[rows])
            job = plan_job(
                task=task,
                name="aerd",
                title=encoder.title,
                fold=fold,
                number=number,
                held_out=held_out,
                key=key,
                options=options,
                unsearched_epochs=epochs or UNSEARCHED_EPOCHS,
            )
            jobs.append(job)
    return jobs


def _make_task(
    data: BatchData,
    encoder: Any,
    pretrained: "Pretrained | None",
    seed: int,
    member: int,
) -> "FrameTask":
    from callshot.baselines.frame_classifier import FrameConfig, FrameTask

    settings: dict[str, Any] = {}
    weights = None
    if pretrained is not None:
        settings = {"init": pretrained.digest, **PRETRAINED}
        weights = pretrained.weights
    config = FrameConfig(
        encoder=encoder,
        outputs=data.label.shape[1],
        seed=seed,
        member=member,
        **settings,
    )
    return FrameTask(data, config, weights)


def _rarest_output(truth: BoolArray) -> IntArray:
    """Return a class for each row: the rarest of its outputs, or one more for rows without any."""
    counts = np.where(truth, truth.sum(axis=0), len(truth) + 1)
    rarest = counts.argmin(axis=1)
    rarest[~truth.any(axis=1)] = truth.shape[1]
    _, label = np.unique(rarest, return_inverse=True)
    return label
