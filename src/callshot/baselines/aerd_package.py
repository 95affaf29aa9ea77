"""Score segments with the networks that AERD's authors published, through their package.

The package is GPL-3 and not part of callshot: it is imported if the user has installed it. Its
folds count from 1. A network may score only the fold that it was not trained on, so the corpus must
have AERD's folds, fold 0 here being fold 1 there. No file can prove that.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl

from callshot.baselines.scoring import baseline_frame, find_outputs
from callshot.baselines.sequence_batches import Signal, check_signal, pad_signal
from callshot.baselines.training import check_length
from callshot.corpus.options import label_key
from callshot.errors import InputError, check_choice
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

VARIANTS = ("EV_CALL", "EV_SUBCALL", "EV_BINARY", "LDC_POOLE", "LDC_BINARY")
SATURATION = 1e-7  # distance from 0 or 1 where a float32 probability has no more digits


def load_aerd(variant: str) -> tuple[Callable[..., Any], Any]:
    """Return the package's function that opens networks, and the weights of a variant."""
    check_choice("published", variant, VARIANTS)
    try:
        import aerd
    except ImportError as error:
        message = (
            f"{error.name} is not installed; pip install aerd (GPL-3, Python 3.11)"
        )
        raise InputError(f"AERD as published: {message}") from error
    return aerd.aerd, getattr(aerd.AERD_Weights, variant)


def score_aerd_package(
    encoder_data: EncoderDataset,
    variant: str,
    protocol: Protocol,
    signals: Sequence[Signal],
) -> pl.DataFrame:
    """Score each row of the episodes by its signal at 16 kHz; return rows of BASELINES."""
    outputs = find_outputs(encoder_data)
    scores = score_published(
        variant, signals, encoder_data.episodes.fold, outputs.names
    )
    how = f"as published, {variant}"
    baseline = {"kind": "end-to-end", "name": "AERD", "how": how}
    return baseline_frame(encoder_data, scores, protocol, baseline, outputs)


def score_published(
    variant: str,
    signals: Sequence[Signal],
    fold: IntArray,
    names: Sequence[str],
) -> FloatArray:
    """Score each segment with its fold's network: log-odds (rows, names), averaged over frames.

    `names` are matched with the outputs of the network by their letters, whatever separates their
    words. Rows with a negative fold, common to all folds, are NaN.
    """
    import torch

    title = f"AERD {variant}"
    open_network, weights = load_aerd(variant)
    numbers = range(int(weights.num_classes))
    published = [str(weights.class_labels[number]) for number in numbers]
    keys = [label_key(name) for name in published]
    for name in names:
        if label_key(name) not in keys:
            listed = ", ".join(published)
            raise InputError(f"{title}: has no output {name!r}; it has {listed}")
    check_length("signals", len(signals), len(fold))
    is_query = fold >= 0
    our_folds = np.unique(fold[is_query])
    folds = int(weights.num_folds)
    if not np.array_equal(our_folds, np.arange(folds)):
        expected = f"the authors' {folds} folds, 0 to {folds - 1}"
        first_numbers = our_folds[:12].tolist()
        listed = ", ".join(map(str, first_numbers)) or "none"
        raise InputError(f"{title}: expected {expected}, got {listed}")

    outputs = [keys.index(label_key(name)) for name in names]  # of the network
    scores = np.full((len(signals), len(names)), np.nan)
    for number in range(folds):
        model, _ = open_network(weights=weights, fold=number + 1)  # it counts from 1
        is_in_fold = fold == number
        for row in np.flatnonzero(is_in_fold).tolist():
            signal = check_signal(row, signals[row])
            padded = pad_signal(signal.astype(np.float32))
            waveform = torch.from_numpy(padded)
            with torch.inference_mode():
                output = model.predict(waveform[None], output="tensor")
                output = output.double().cpu()
            frames = output.flatten(0, -2).numpy()  # (frames, outputs of the network)
            raw_probability = frames[:, outputs]
            probability = np.clip(raw_probability, SATURATION, 1.0 - SATURATION)
            log_odds = np.log(probability) - np.log1p(-probability)
            scores[row] = log_odds.mean(axis=0)
    return scores
