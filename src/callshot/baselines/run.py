"""The rivals on one page: the ground that the centroid stands on → what trained classifiers score there.

    train_logistic      on all labels of the support side of every split, and the way to it from the centroid
    sweep_logistic_at   on the first shared draws, at every k: as few labels as the centroid has
    train_recurrent     on the sequences behind the vectors
    train_end_to_end    on the audio itself
    ask_published       AERD as its authors published it, where its package is installed

Each is trained on the support side of a split, and scored on its queries by the metrics of the centroid. What is chosen
on the way is chosen on inner folds, and told.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.centroid_to_logistic import refine_centroid
from callshot.baselines.executor import TrainingOptions, require_torch
from callshot.baselines.logistic import DEFAULT_C, check_c, score_logistic
from callshot.baselines.logistic_per_k import DRAWS, sweep_logistic
from callshot.baselines.scoring import measure, measure_outputs
from callshot.corpus.known_corpora import label_key
from callshot.errors import InputError, OptionError
from callshot.fewshot.accumulate import group_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.summary import Summary
from callshot.records import (
    SPREADS,
    Baseline,
    Evaluation,
    Progress,
    RefinementStep,
    no_progress,
)
from callshot.tables.dataset import EncoderDataset

Signal = NDArray[np.float32]

KINDS = ("logistic", "recurrent", "end-to-end")
METRICS = ("map", "auroc")
CHOSEN, PAPER = (
    "chosen",
    "paper",
)  # cells of recurrent networks: by inner folds, or as the paper pairs them
CELLS = (CHOSEN, PAPER, "elman", "gru", "lstm")


@dataclass(frozen=True)
class BaselineOptions:
    """Which rivals are trained, and how.

    `shots` adds logistic regression at every k, on the first `draws` of the shared spread; `spread` may be per-query or
    both instead, which is a fit for every query, draw and k. `strength` is C of logistic
    regression, chosen on inner folds where it is None (0.1 at every k). `cell` is that of the recurrent network;
    `seeds` is how many networks are averaged. `init` is a file of weights that the end-to-end rival starts from.
    `published` is a variant of AERD, as its package names them, that is asked besides.

    >>> Training(("logistic",), cell="gpt")
    Traceback (most recent call last):
    callshot.errors.OptionError: cell: one of chosen, paper, elman, gru, lstm, got 'gpt'
    """

    kinds: tuple[str, ...] = ()
    shots: bool = False
    draws: int = DRAWS
    spread: str = "shared"
    strength: float | None = None
    cell: str = CHOSEN
    seeds: int = 3
    init: Path | None = None
    published: str = ""

    def __post_init__(self) -> None:
        words = (("cell", self.cell, CELLS), ("spread", self.spread, (*SPREADS, "both")))
        for name, value, allowed in (*(("rival", kind, KINDS) for kind in self.kinds), *words):
            if value not in allowed:
                raise OptionError(f"{name}: one of {', '.join(allowed)}, got {value!r}")
        if twice := [kind for kind in self.kinds if self.kinds.count(kind) > 1]:
            raise OptionError(f"rival: {twice[0]} is there twice; leave one out")
        for name, number in (("draws", self.draws), ("seeds", self.seeds)):
            if not 1 <= number <= 10**6:
                raise OptionError(f"{name}: 1 to 1000000, got {number}")
        if self.strength is not None:
            check_c(self.strength)
        if self.init is not None and "end-to-end" not in self.kinds:
            raise OptionError(
                "init: weights for the rival end-to-end, which is not asked for; ask, or leave it out"
            )


def check_trainable(training: BaselineOptions, device: str = "cpu") -> None:
    """Refuse what could not be trained, before anything is read: without torch, or from a file of other weights."""
    if set(training.kinds) - {"logistic"}:
        require_torch(device)
    if training.init is not None:
        from callshot.baselines.pretrained import read_pretrained

        read_pretrained(training.init)
    if training.published:
        from callshot.baselines.aerd_package import load_aerd

        load_aerd(training.published)


def train_logistic(
    plot: EncoderDataset,
    training: BaselineOptions,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Baseline], list[RefinementStep]]:
    """Train logistic regression on all labels, and go there from the centroid by gradient steps."""
    scores, c_values = score_logistic(
        plot.episodes,
        plot.groups,
        strength=training.strength,
        threads=threads,
        progress=_part(progress, 0.7),
    )
    chosen = training.strength is None and plot.episodes.folds > 2
    how = f"C{' by inner folds' if chosen else ''}: {format_c(c_values)}"
    baselines = list(
        _rivals(
            plot, "logistic", "LR", measure(plot.episodes, scores, plot.dataset.categories), how
        )
    )
    way = refine_centroid(
        plot.episodes,
        c_values,
        categories=plot.dataset.categories,
        threads=threads,
        progress=_part(progress, 0.3),
    )
    temperature = float(np.mean(way.temperature))
    refined = [
        RefinementStep(
            plot.dataset.corpus, plot.table.encoder, scoring, metric, step, value, temperature
        )
        for (scoring, metric), values in way.values.items()
        if metric in METRICS
        for step, value in zip(way.steps.tolist(), values.tolist(), strict=True)
    ]
    return baselines, refined


def format_c(c_values: Sequence[float]) -> str:
    """Say the C of every split; once where all are one.

    >>> tell_strengths((0.1, 0.1)), tell_strengths((0.3, 0.01, 0.3))
    ('0.1', '0.3, 0.01, 0.3')
    """
    return ", ".join(f"{c:g}" for c in (c_values if len(set(c_values)) > 1 else c_values[:1]))


def sweep_logistic_per_k(
    plot: EncoderDataset,
    training: BaselineOptions,
    protocol: Protocol,
    *,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Evaluation:
    """Train logistic regression at every k of a protocol, on the draws that the centroid meets."""
    dataset, spreads = plot.dataset, SPREADS if training.spread == "both" else (training.spread,)
    strength, found = (
        DEFAULT_C if training.strength is None else training.strength,
        plot.empty_evaluation(),
    )
    for spread in spreads:
        k, tally = sweep_logistic(
            plot.episodes,
            protocol,
            spread,
            strength=strength,
            draws=training.draws,
            categories=dataset.categories,
            threads=threads,
            progress=_part(progress, 1 / len(spreads)),
        )
        key = (
            dataset.corpus,
            plot.table.encoder,
            spread,
            k,
            tally,
            plot.episodes,
            dataset.classes,
            "logistic",
        )
        Summary(*key).tell(found)
    return found


def train_recurrent(
    plot: EncoderDataset,
    training: BaselineOptions,
    sequences: Sequence[Signal],
    *,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Baseline], dict[str, Any]]:
    """Train recurrent networks on sequences, one for each row of the episodes; also tell what was done.

    `folder` keeps what was trained.
    """
    from callshot.baselines.recurrent import choose_cell, describe_cells, score_recurrent

    cell = named_cell(plot, training.cell)
    options = TrainingOptions(
        seeds=training.seeds,
        device=device,
        threads=threads or os.cpu_count() or 1,
        folder=folder,
        seed=seed,
    )
    cells: str | Sequence[str] = (
        cell
        or choose_cell(
            plot.episodes, plot.groups, sequences, options=options, progress=_part(progress, 0.7)
        )[0]
    )
    scores, told = score_recurrent(
        plot.episodes,
        plot.groups,
        sequences,
        cell=cells,
        options=options,
        progress=_part(progress, 1.0 if cell else 0.3),
    )
    names = [cells] * plot.episodes.folds if isinstance(cells, str) else cells
    titles = describe_cells(names)
    name = titles if len(set(names)) == 1 else "RNN"
    size = " to ".join(
        f"{n:,}"
        for n in sorted({min(told["parameters"].values()), max(told["parameters"].values())})
    )
    seeds = f"{training.seeds} seed{'s' * (training.seeds > 1)}"
    how = f"{titles}{'' if cell else ', by inner folds'}; {size} parameters, {seeds}"
    found = measure(plot.episodes, scores, plot.dataset.categories)
    return list(_rivals(plot, "recurrent", name, found, how)), _lasting(plot.table.encoder, told)


def named_cell(plot: EncoderDataset, cell: str) -> str:
    """Return the cell that is named, by itself or by the paper's pairing; empty where inner folds choose."""
    from callshot.baselines.recurrent import PAPER_CELLS

    encoder = plot.table.encoder.partition("[")[0]
    return (
        PAPER_CELLS.get((encoder, plot.dataset.known_corpus), "")
        if cell == PAPER
        else ""
        if cell == CHOSEN
        else cell
    )


def train_end_to_end(
    plot: EncoderDataset,
    training: BaselineOptions,
    signals: Sequence[Signal],
    *,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    folder: Path | None = None,
    progress: Progress = no_progress,
) -> tuple[list[Baseline], dict[str, Any]]:
    """Train the end-to-end rival on audio at 16 kHz, one signal for each row of the episodes; also tell what was done.

    With categories, it has one score for each of these, and stands in the reduced scoring alone.
    """
    from callshot.baselines.end_to_end import score_end_to_end

    scoring, names, targets = outputs(plot)
    scores, told = score_end_to_end(
        signals,
        targets,
        plot.episodes.fold,
        plot.groups,
        names,
        init=training.init,
        options=TrainingOptions(
            device=device,
            threads=threads or os.cpu_count() or 1,
            folder=folder,
            seed=seed,
        ),
        progress=progress,
    )
    how = f"{told['text'] if training.init else 'from scratch'}; {told['parameters']:,} parameters"
    found = measure_outputs(targets, plot.episodes.fold, scores)
    return _heard(plot, told["title"], scoring, found, how), _lasting("", told)


def _lasting(encoder: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is told of networks, but for what another run of the same would tell otherwise."""
    return {
        "encoder": encoder,
        **{name: x for name, x in told.items() if name not in ("seconds", "trained")},
    }


def score_aerd_package(
    plot: EncoderDataset, variant: str, signals: Sequence[Signal]
) -> list[Baseline]:
    """Ask AERD's published networks for the score of each row of the episodes, whose folds must be those of AERD.

    Outputs are found by their letters, whatever stands between words.
    """
    from callshot.baselines.aerd_package import load_aerd, score_published

    scoring, names, targets = outputs(plot)
    published = load_aerd(variant)
    called = {label_key(name): name for name in published.names}
    if unknown := [name for name in names if label_key(name) not in called]:
        raise InputError(
            f"AERD {variant}: knows no {unknown[0]!r}, but {', '.join(published.names)}"
        )
    scores = score_published(
        published, signals, plot.episodes.fold, [called[label_key(name)] for name in names]
    )
    found = measure_outputs(targets, plot.episodes.fold, scores)
    return _heard(plot, "AERD", scoring, found, f"as published, {variant}")


def _heard(
    plot: EncoderDataset, name: str, scoring: str, found: Mapping[str, float], how: str
) -> list[Baseline]:
    """Return the rows of a rival that hears the audio, whatever the encoder."""
    values = {(scoring, metric): found[metric] for metric in METRICS}
    return [
        replace(baseline, encoder="") for baseline in _rivals(plot, "end-to-end", name, values, how)
    ]


def outputs(plot: EncoderDataset) -> tuple[str, tuple[str, ...], NDArray[np.bool_]]:
    """Return what the end-to-end rival tells apart: the scoring, the names, and which rows are positive for each."""
    episodes, categories = plot.episodes, plot.dataset.categories
    if categories is None:
        return "all", episodes.classes, episodes.relevant
    groups = group_classes(episodes.classes, categories)
    names = tuple(categories[episodes.classes[group[0]]] for group in groups)
    return (
        "reduced",
        names,
        np.stack([episodes.relevant[:, group].any(axis=1) for group in groups], axis=1),
    )


def _rivals(
    plot: EncoderDataset, kind: str, name: str, values: Mapping[tuple[str, str], float], how: str
) -> Iterator[Baseline]:
    """Yield a row for every scoring and metric."""
    for (scoring, metric), value in values.items():
        if metric in METRICS:
            yield Baseline(
                plot.dataset.corpus, plot.table.encoder, kind, name, scoring, metric, value, how
            )


def _part(progress: Progress, share: float) -> Progress:
    return lambda done, what: progress(share * done, what)
