"""Signals and targets → scores of the end-to-end baseline, trained on the support side of splits.

AERD's system AST-seq: log-mel frames, patches of 16 × 16, a transformer, a linear layer for each
token, the mean over the eight patches of a column (160 ms, AERD's frame), a sigmoid for each output
and column. Every frame of a segment is trained with all labels of the segment; both sides of every
output count the same. Without `init` it is a small transformer; `init` starts from public weights
of AST or BEATs. A segment longer than 10.24 s is trained by random crops of that length and scored
whole, in consecutive windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from callshot.baselines.sequence_batches import (
    COLUMN_PATCHES,
    COLUMN_S,
    HOP_SAMPLES,
    MAX_COLUMNS,
    PATCH,
    RATE_HZ,
    BatchData,
    BoolArray,
    Crops,
    FrameTable,
    FrontEnd,
    Signal,
    batch_crops,
    check_signal,
    log_mel,
    padded_index,
    random_crops,
    stack_sequences,
    window_crops,
)
from callshot.baselines.training import (
    DEFAULT_CONTEXT,
    Dropout,
    Metadata,
    TrainingConfig,
    TrainingContext,
    TrainingJob,
    check_examples,
    check_length,
    no_dropout,
    require_torch,
    run_trainings,
)
from callshot.baselines.transformer import AstConfig, BeatsConfig, Mask, read_pretrained
from callshot.records import FloatArray, IntArray

SCORING_BATCH = 32  # crops
DEFAULT_ENCODER = AstConfig()  # of networks that are trained from scratch
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
    context: TrainingContext = DEFAULT_CONTEXT,
) -> tuple[FloatArray, Metadata]:
    """Train a transformer outside each fold, and score its queries.

    Return log-odds (rows, outputs), averaged over frames, NaN in the common fold, and metadata.
    `signals` are at 16 kHz, one per row. `targets` (rows, outputs) says which outputs are true,
    `names` are of the outputs, `groups` is the recording of each row, `init` a file with weights to
    start from.
    """
    check_length("signals", len(signals), len(targets))
    check_examples(targets, fold, names)
    require_torch(context.network_device)
    encoder: AstConfig | BeatsConfig = DEFAULT_ENCODER
    settings: Metadata = {}  # of the training, where they are not the defaults
    weights = None
    text = encoder.title
    source = None
    if init is not None:
        pretrained = read_pretrained(init)
        encoder = pretrained.encoder
        settings = {"init": pretrained.digest, **PRETRAINED}
        weights = pretrained.weights
        text = f"{encoder.title} from {init.name}"
        source = {
            "file": init.name,
            "sha256": pretrained.digest,
            "unused": pretrained.unused,
        }
    table = _load_frames(signals, encoder.front_end)
    data = BatchData.load(table, targets, groups, context.network_device)
    config = FrameConfig(
        encoder=encoder, outputs=len(names), seed=context.seed, **settings
    )
    make = partial(FrameClassifier, weights=weights)
    jobs = []
    for number in range(int(fold.max()) + 1):
        rows = np.flatnonzero(fold != number)
        # What else decides the weights: a saved training with other facts is not continued.
        facts = {"outputs": list(names), "rows": data.fingerprint(rows)}
        job = TrainingJob(
            make,
            data,
            config,
            name="aerd",
            kind=encoder.title,
            fold=fold,
            query_fold=number,
            facts=facts,
            context=context,
        )
        jobs.append(job)
    scores, training = run_trainings(jobs, context)
    metadata = {
        "title": encoder.title,
        "text": text,
        "encoder": asdict(encoder),
        "init": source,
        "parameters": jobs[0].parameters,
        "pooling": "mean of the frames' log-odds",
        "frame_s": COLUMN_S,
        "window_s": COLUMN_S * MAX_COLUMNS,
        "audio_s": len(table.frames) * HOP_SAMPLES / RATE_HZ,
    }
    return scores, metadata | training


def _load_frames(signals: Sequence[Signal], front_end: FrontEnd) -> FrameTable:
    """Return the log-mel frames of all signals in one table."""
    frames = []
    for row in range(len(signals)):  # each is read once
        signal = check_signal(row, signals[row])
        frames.append(log_mel(signal, front_end))
    return stack_sequences(frames)


@dataclass(frozen=True, kw_only=True)
class FrameConfig(TrainingConfig):
    """What decides a training except the rows; `init` is the hash of pretrained weights."""

    encoder: AstConfig | BeatsConfig
    outputs: int
    init: str | None = None
    batch_size: int = 16
    learning_rate: float = 5e-4
    warmup_steps: int = 20
    weight_decay: float = 5e-2
    dropout: float = 0.1
    epochs: int = 60
    patience: int = 8


class FrameClassifier(nn.Module):
    """An encoder of patches and a linear layer; `weights` are pretrained ones of the encoder."""

    def __init__(
        self,
        data: BatchData,
        config: FrameConfig,
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.data = data
        self.config = config
        self.weights = weights
        self.encoder = config.encoder.build()
        self.head = nn.Linear(config.encoder.width, config.outputs)

    def forward(
        self, frames: Tensor, mask: Mask = None, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return log-odds (crops, columns, outputs) of frames (crops, 16 × columns, 128).

        A column is 16 frames, cut into 8 patches of 16 frames × 16 bands. On a GPU the encoder
        computes in bfloat16.
        """
        columns = frames.unflatten(1, (-1, PATCH))  # (crops, columns, 16, 128)
        bands = columns.unflatten(-1, (COLUMN_PATCHES, PATCH))
        patches = bands.transpose(2, 3).flatten(-2)  # (crops, columns, 8, 256)
        with torch.autocast("cuda", torch.bfloat16, enabled=frames.is_cuda):
            tokens = self.encoder(patches, mask, dropout)  # (crops, columns, 8, width)
        column_means = tokens.float().mean(dim=2)
        return self.head(column_means)

    def initialize(self, rows: IntArray) -> None:
        """Load or draw the first weights of the encoder; the head starts with zeros."""
        if self.weights is None:
            generator = torch.Generator()
            generator.manual_seed(self.config.stream_seed("weights"))
            self.encoder.initialize(generator)
        else:
            self.encoder.load_state_dict(self.weights)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def log_odds(
        self, crops: Crops, dropout: Dropout = no_dropout
    ) -> tuple[Tensor, Mask]:
        """Return the log-odds of crops, (crops, columns, outputs), and a mask of real columns.

        The mask (crops, columns) is None if no crop is shorter than the others.
        """
        start = self.data.table.start[crops.row] + crops.first
        length = crops.columns * PATCH
        index, is_real = padded_index(start, length)  # both (frames, crops)
        by_crop = np.ascontiguousarray(index.T)
        frames = self.data.frames[self.data.tensor(by_crop)]
        is_real_column = is_real[::PATCH].T  # a column is PATCH frames wide
        mask = None
        if not is_real_column.all():
            mask = self.data.tensor(is_real_column)
        return self(frames, mask, dropout), mask

    def losses(
        self,
        rows: IntArray,
        batches: Sequence[IntArray],
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Iterator[Tensor]:
        """Yield the loss of each batch, by one random crop per row.

        `rows` are all rows of the training: weights make the positives and the negatives of each
        output among them count the same.
        """
        data = self.data
        targets = data.label.astype(np.float32)
        weights = balanced_weights(data.label[rows], data.label).astype(np.float32)
        for batch in batches:
            crops = random_crops(data.table.lengths, batch, rng)
            log_odds, mask = self.log_odds(crops, dropout)
            truth = data.tensor(targets[batch])
            batch_weights = data.tensor(weights[batch])
            yield frame_loss(log_odds, mask, truth, batch_weights)

    def predict(self, rows: IntArray) -> FloatArray:
        """Return the log-odds of some rows, (rows, outputs), averaged over all of their columns."""
        # Of all rows of the data, at first 0: the sum over columns, and their number.
        total = np.zeros(self.data.label.shape)
        count = np.zeros((len(total), 1))
        crops = window_crops(self.data.table.lengths, rows)
        for batch in batch_crops(crops, SCORING_BATCH):  # a long row has several crops
            with torch.inference_mode():
                log_odds, mask = self.log_odds(batch)
                log_odds = log_odds.double()
                if mask is not None:  # columns that are padding count as 0
                    log_odds = log_odds * mask[:, :, None]
                sums = log_odds.sum(dim=1).cpu().numpy()
            columns = batch.columns[:, None]
            np.add.at(total, batch.row, sums)
            np.add.at(count, batch.row, columns)
        return total[rows] / count[rows]

    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the cross-entropy of log-odds; both sides of each output count the same."""
        truth = self.data.label[rows]
        # log(1 + exp(∓score)) is −log of the probability of the true side.
        losses = np.logaddexp(0.0, np.where(truth, -scores, scores))
        weights = balanced_weights(truth, truth)
        return float(np.average(losses, weights=weights))


def balanced_weights(truth: BoolArray, label: BoolArray) -> FloatArray:
    """Return a weight for each entry of `label` (…, outputs) that balances positives and negatives.

    They are counted in `truth` (rows, outputs): there, the weights of the positives of an output
    have the same sum as those of its negatives. Both arrays are true where an output is.
    """
    rows = len(truth)
    positives = truth.sum(axis=0)
    negatives = rows - positives
    counts = np.where(label, positives, negatives)
    return rows / 2.0 / np.maximum(counts, 1)


def frame_loss(log_odds: Tensor, mask: Mask, truth: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted cross-entropy of log-odds (crops, columns, outputs).

    `truth` and `weights` are (crops, outputs). The mean is over the real columns of each crop
    first, then over crops and outputs.
    """
    target = truth[:, None].expand_as(log_odds)  # the same in every column of a crop
    losses = nn.functional.binary_cross_entropy_with_logits(
        log_odds, target, reduction="none"
    )
    if mask is None:
        means = losses.mean(dim=1)
    else:
        total = (losses * mask[:, :, None]).sum(dim=1)
        count = mask.sum(dim=1)
        means = total / count[:, None]
    return (means * weights).mean()
