"""A dataset → what trained classifiers score on the same folds and queries, as data frames.

train_logistic         on all labels of the support side of every split; steps from the centroid
sweep_logistic_per_k   on the first shared draws, at every k: with as few labels as the centroid
train_recurrent        on the sequences behind the vectors
train_end_to_end       on the audio; AERD as published is scored by `aerd_package`

Each is trained on the support side of a split and scored on its queries with the metrics of the
centroid. Choices are made on inner folds, and reported.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.baselines.aerd_package import score_aerd_package
from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.logistic import DEFAULT_C, score_logistic, sweep_logistic
from callshot.baselines.options import CHOSEN_CELL, PAPER_CELL, BaselineOptions
from callshot.baselines.scoring import baseline_frame, find_outputs
from callshot.baselines.training import Metadata, TrainingContext
from callshot.fewshot.dataset import Dataset, EncoderDataset, equal_tables
from callshot.fewshot.differences import find_crossovers
from callshot.fewshot.folds import check_no_leak
from callshot.fewshot.gpu.device import choose_device, usable_gpu
from callshot.fewshot.mean_interval import mean_frame
from callshot.fewshot.metrics import summarise_sweep
from callshot.fewshot.protocol import Protocol
from callshot.records import RANKING_METRICS, Evaluation
from callshot.records.frames import (
    BASELINES,
    CROSSOVERS,
    REFINEMENT,
    concat_frames,
    empty_frame,
    make_frame,
)

Signal = NDArray[np.float32]

# Of the work, for progress.
FIT_SHARE = 0.7  # logistic regression; the rest are the steps from the centroid
SEARCH_SHARE = 0.7  # the choice of a cell; the rest is the training of the chosen ones


@dataclass(frozen=True, eq=False)
class BaselineResults:
    """The results of baselines; frames have the schemas of `callshot.records.frames`.

    `per_k` are evaluations of logistic regression at every k, one per encoder; `networks` describe
    the trained networks.
    """

    baselines: pl.DataFrame = field(default_factory=partial(empty_frame, BASELINES))
    refinement: pl.DataFrame = field(default_factory=partial(empty_frame, REFINEMENT))
    crossovers: pl.DataFrame = field(default_factory=partial(empty_frame, CROSSOVERS))
    per_k: Sequence[Evaluation] = ()
    networks: Sequence[Metadata] = ()

    def __repr__(self) -> str:
        names = ", ".join(self.baselines["name"].unique(maintain_order=True))
        return f"BaselineResults({names or 'none'}; {len(self.per_k)} per k)"

    def with_crossovers(self, centroid: Evaluation) -> "BaselineResults":
        """Return the same results, with the crossovers of the centroid and each baseline."""
        per_k = None
        if self.per_k:
            per_k = pl.concat([evaluation.values for evaluation in self.per_k])
        crossovers = find_crossovers(
            centroid.values, self.baselines, per_k, centroid.complete_shots
        )
        return replace(self, crossovers=crossovers)


def train_dataset(
    dataset: Dataset,
    options: BaselineOptions,
    protocol: Protocol,
    *,
    sequences: Sequence[Sequence[Signal]] = (),
    signals: Sequence[Signal] = (),
    context: TrainingContext | None = None,
) -> BaselineResults:
    """Train every baseline of the options: on every encoder, or, if it reads audio, once.

    Encoders with the same vectors as an earlier one are left out. `sequences` has, for each
    encoder, one array per row of its episodes, `signals` audio at 16 kHz for each row. The protocol
    gives the spreads, and the shots and the sampler of logistic regression at every k.
    """
    check_no_leak(dataset.first.recording, dataset.folds.fold)
    equal = equal_tables(dataset.tables)  # numbers of encoders that repeat another
    encoders = list(dataset.per_encoder())
    context = context or TrainingContext(protocol.seed)
    tasks: list[Callable[[TrainingContext], BaselineResults]] = []
    for number, encoder_data in enumerate(encoders):
        if number in equal:
            continue
        inputs = (encoder_data, options, protocol)
        if "logistic" in options.train:
            tasks.append(partial(train_logistic, *inputs))
        if options.per_k:
            tasks.append(partial(sweep_logistic_per_k, *inputs))
        if "recurrent" in options.train:
            tasks.append(partial(train_recurrent, *inputs, sequences[number]))
    # Baselines that read audio are trained once.
    inputs = (encoders[0], options, protocol)
    if "end-to-end" in options.train:
        tasks.append(partial(train_end_to_end, *inputs, signals))
    if options.published:
        published = partial(score_aerd_package, encoders[0], options.published)
        # It trains nothing, so it needs no context.
        tasks.append(lambda _: BaselineResults(published(protocol, signals)))
    context = context.for_share(1 / max(1, len(tasks)))
    results = [task(context) for task in tasks]
    return BaselineResults(
        baselines=concat_frames([result.baselines for result in results], BASELINES),
        refinement=concat_frames([result.refinement for result in results], REFINEMENT),
        per_k=[evaluation for result in results for evaluation in result.per_k],
        networks=[network for result in results for network in result.networks],
    )


def train_logistic(
    encoder_data: EncoderDataset,
    options: BaselineOptions,
    protocol: Protocol,
    context: TrainingContext,
) -> BaselineResults:
    """Train logistic regression on all labels; also report the gradient steps from the centroid."""
    scores, c_values = score_logistic(
        encoder_data.episodes,
        c=options.C,
        threads=context.threads,
        progress=context.for_share(FIT_SHARE).progress,
    )
    refinement = refine_centroid(
        encoder_data.episodes,
        c_values,
        categories=encoder_data.dataset.categories,
        threads=context.threads,
        progress=context.for_share(1 - FIT_SHARE).progress,
    )
    is_chosen = options.C is None and encoder_data.episodes.folds > 2
    choice = " by inner folds" if is_chosen else ""
    # One C if it is the same in all splits.
    shown = c_values[:1] if len(set(c_values)) == 1 else c_values
    listed = ", ".join(f"{c:g}" for c in shown)
    how = f"C{choice}: {listed}"
    baseline = {"kind": "logistic", "name": "LR", "how": how}
    baselines = baseline_frame(encoder_data, scores, protocol, baseline)
    frames = []
    key = {
        "corpus": encoder_data.dataset.corpus,
        "encoder": encoder_data.table.encoder,
        "temperature": float(refinement.temperatures.mean()),
    }
    for (scoring, metric), values in refinement.values.items():
        if metric in RANKING_METRICS:
            columns = {"step": refinement.steps, "value": values}
            constants = {**key, "scoring": scoring, "metric": metric}
            frames.append(make_frame(REFINEMENT, columns, constants))
    return BaselineResults(baselines, pl.concat(frames))


def sweep_logistic_per_k(
    encoder_data: EncoderDataset,
    options: BaselineOptions,
    protocol: Protocol,
    context: TrainingContext,
) -> BaselineResults:
    """Train logistic regression at every k of a protocol, on the draws that the centroid sees."""
    choice = choose_device(context.device)
    notes = choice.notes
    episodes = encoder_data.episodes
    gpu = usable_gpu(choice.gpu, episodes, notes)
    spreads = options.spreads(protocol)
    progress = context.for_share(1 / len(spreads)).progress

    parts = defaultdict[str, list[pl.DataFrame]](list)  # of each frame, by spread
    shared = None
    for spread in spreads:  # shared comes before total, which is computed with it
        k, sums = sweep_logistic(
            episodes,
            protocol,
            spread,
            c=DEFAULT_C if options.C is None else options.C,
            draws=options.draws,
            categories=encoder_data.dataset.categories,
            shared=shared,
            threads=context.threads,
            gpu=gpu,
            notes=notes,
            progress=progress,
        )
        if spread == "shared":
            shared = sums
        key = {
            "corpus": encoder_data.dataset.corpus,
            "encoder": encoder_data.table.encoder,
            "classifier": "logistic",
            "spread": spread,
        }
        summary = summarise_sweep(key, k, sums, encoder_data.dataset.classes)
        summary["values"].extend(mean_frame(key, protocol.shots, sums.means))
        for name, frame in summary.items():
            parts[name].append(frame)
    frames: dict[str, Any] = {name: pl.concat(part) for name, part in parts.items()}
    evaluation = replace(
        encoder_data.empty_evaluation(),
        **frames,
        notes=[f"logistic regression at every k was {note}" for note in notes],
    )
    return BaselineResults(per_k=[evaluation])


def train_recurrent(
    encoder_data: EncoderDataset,
    options: BaselineOptions,
    protocol: Protocol,
    sequences: Sequence[Signal],
    context: TrainingContext,
) -> BaselineResults:
    """Train recurrent networks, and score them; `sequences` has one for each row of the episodes.

    Where neither the options nor the paper name a cell, inner folds choose one for each split.
    """
    from callshot.baselines.recurrent import choose_cell, score_recurrent

    inputs = (encoder_data.episodes, encoder_data.groups, sequences)
    cell = find_cell(encoder_data, options.cell)
    cells: Sequence[str]
    if cell is None:
        search = context.for_share(SEARCH_SHARE)
        cells, _ = choose_cell(*inputs, networks=options.networks, context=search)
        context = context.for_share(1 - SEARCH_SHARE)
        choice = ", by inner folds"
    else:
        cells = [cell] * encoder_data.episodes.folds
        choice = ""
    scores, metadata = score_recurrent(
        *inputs, cell=cells, networks=options.networks, context=context
    )
    title = metadata["text"]
    counts = sorted(set(metadata["parameters"].values()))
    parameters = f"{counts[0]:,}"
    if len(counts) > 1:
        parameters += f" to {counts[-1]:,}"
    plural = "s" if options.networks > 1 else ""
    size = f"{parameters} parameters, {options.networks} network{plural}"
    baseline = {
        "kind": "recurrent",
        "name": title if len(set(cells)) == 1 else "RNN",
        "how": f"{title}{choice}; {size}",
    }
    baselines = baseline_frame(encoder_data, scores, protocol, baseline)
    del metadata["trained"]  # differs between runs
    network = {"encoder": encoder_data.table.encoder, **metadata}
    return BaselineResults(baselines, networks=[network])


def find_cell(encoder_data: EncoderDataset, cell: str) -> str | None:
    """Return the cell of the recurrent network by the option; None where inner folds choose it."""
    from callshot.baselines.recurrent import PAPER_CELLS

    if cell == CHOSEN_CELL:
        return None
    if cell != PAPER_CELL:
        return cell
    encoder = encoder_data.table.encoder.partition("[")[0]  # without [options]
    return PAPER_CELLS.get((encoder, encoder_data.dataset.known_corpus))


def train_end_to_end(
    encoder_data: EncoderDataset,
    options: BaselineOptions,
    protocol: Protocol,
    signals: Sequence[Signal],
    context: TrainingContext,
) -> BaselineResults:
    """Train the end-to-end baseline on audio at 16 kHz; with categories it scores these alone."""
    from callshot.baselines.end_to_end import score_end_to_end

    # The categories, or the classes if there are none.
    outputs = find_outputs(encoder_data)
    scores, metadata = score_end_to_end(
        signals,
        outputs.targets,
        encoder_data.episodes.fold,
        encoder_data.groups,
        outputs.names,
        init=options.init,
        context=context,
    )
    start = "from scratch"
    if options.init:
        start = metadata["text"]  # which weights it started from
    how = f"{start}; {metadata['parameters']:,} parameters"
    baseline = {"kind": "end-to-end", "name": metadata["title"], "how": how}
    baselines = baseline_frame(encoder_data, scores, protocol, baseline, outputs)
    del metadata["trained"]  # differs between runs
    return BaselineResults(baselines, networks=[metadata])
