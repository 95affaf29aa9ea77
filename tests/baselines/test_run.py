"""Baselines of one dataset: the cell of the paper, the outputs of networks, AERD as published."""

import enum
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from callshot.baselines.aerd_package import score_aerd_package
from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import find_cell, train_dataset
from callshot.baselines.scoring import find_outputs
from callshot.errors import InputError, LeakError
from callshot.fewshot.protocol import Protocol
from callshot.tables.embedding_tables import read_table, write_table
from callshot.tables.read_dataset import read_dataset
from studies import write_embeddings


def read_encoder_data(path, **options):
    """Return the dataset of a table of one encoder."""
    return next(read_dataset([path], **options).per_encoder())


def test_the_cell_of_the_paper_depends_on_the_known_corpus(tmp_path):
    path = write_embeddings(tmp_path / "mfcc.parquet", "mfcc")
    write_table(read_table(path), path, corpus="elephant-voices")
    encoder_data = read_encoder_data(path, corpus="ev")
    assert (encoder_data.dataset.corpus, encoder_data.dataset.known_corpus) == (
        "ev",
        "elephant-voices",
    )
    assert [find_cell(encoder_data, cell) for cell in ("paper", "chosen", "lstm")] == [
        "gru",
        "",
        "lstm",
    ]
    unknown = read_encoder_data(write_embeddings(tmp_path / "other.parquet"))
    assert find_cell(unknown, "paper") == ""


def test_with_categories_a_network_that_reads_audio_has_one_output_for_each(tmp_path):
    categories = tmp_path / "categories.csv"
    categories.write_text("label,category\nrumble,low\ngrowl,low\ntrumpet,high\n")
    encoder_data = read_encoder_data(
        write_embeddings(tmp_path / "one.parquet"), categories=categories
    )
    scoring, names, targets = find_outputs(encoder_data)
    assert (scoring, names) == ("reduced", ("high", "low"))
    relevant = encoder_data.episodes.relevant
    trumpet = encoder_data.episodes.classes.index("trumpet")
    np.testing.assert_array_equal(targets[:, 0], relevant[:, trumpet])
    low = np.delete(relevant, trumpet, axis=1).any(axis=1)
    np.testing.assert_array_equal(targets[:, 1], low)
    assert targets.sum(axis=1).max() == 2


@pytest.mark.parametrize("kind", ["logistic", "recurrent", "end-to-end"])
def test_a_recording_on_both_sides_of_a_split_is_an_error(tmp_path, kind):
    dataset = read_dataset([write_embeddings(tmp_path / "one.parquet")])
    fold = dataset.folds.fold.copy()
    fold[0] = (fold[0] + 1) % dataset.folds.count
    leaking = replace(dataset, folds=replace(dataset.folds, fold=fold))
    with pytest.raises(LeakError, match="is in folds"):
        train_dataset(leaking, BaselineOptions((kind,)), Protocol())


def test_each_row_of_the_episodes_has_its_segment_and_recording(tmp_path):
    encoder_data = read_encoder_data(write_embeddings(tmp_path / "one.parquet"))
    for row, name in enumerate(encoder_data.segments):
        position = encoder_data.table.segment.index(name)
        assert (
            encoder_data.table.label[position]
            == encoder_data.episodes.classes[encoder_data.episodes.label[row]]
        )
        assert encoder_data.groups[row] == int(
            encoder_data.table.recording[position][1:]
        )


class Weights(enum.Enum):
    """The weights of a package like AERD's, with two folds."""

    EV_CALL = "ev"
    num_classes = property(lambda self: 4)
    num_folds = property(lambda self: 2)
    class_labels = property(lambda self: ["not-call", "Rumble", "growl", "trum-pet"])


class OtherWeights(enum.Enum):
    """Weights without an output for rumbles."""

    EV_CALL = "ev"
    num_classes = property(lambda self: 4)
    num_folds = property(lambda self: 2)
    class_labels = property(lambda self: ["not-call", "roar", "growl", "trumpet"])


def predict_trumpets_by_level(waveform, output="tensor"):
    """Return a higher probability of a trumpet for a louder signal, 0.5 for other calls."""
    import torch

    level = waveform.mean().repeat(6)
    even = torch.full_like(level, 0.5)
    return torch.stack([torch.zeros_like(level), even, even, level], dim=-1)[None]


def test_published_networks_are_matched_with_labels_by_their_letters(
    tmp_path, monkeypatch
):
    pytest.importorskip(
        "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
    )
    package: Any = ModuleType("aerd")
    package.AERD_Weights = Weights
    package.aerd = lambda weights, fold: (
        SimpleNamespace(predict=predict_trumpets_by_level),
        None,
    )
    monkeypatch.setitem(sys.modules, "aerd", package)
    encoder_data = read_encoder_data(
        write_embeddings(tmp_path / "one.parquet"), folds=2
    )
    episodes = encoder_data.episodes
    is_trumpet = episodes.relevant[:, episodes.classes.index("trumpet")]
    levels = np.where(is_trumpet, 0.5, 0.05)
    signals = [np.full(16_000, level, np.float32) for level in levels]
    baselines = score_aerd_package(encoder_data, "EV_CALL", Protocol(), signals)
    assert set(baselines["name"]) == {"AERD"}
    assert set(baselines["encoder"]) == {""}
    assert set(baselines["kind"]) == {"end-to-end"}
    values = dict(baselines.select("metric", "value").rows())
    # The average precision of equal scores is the share of positives.
    positives = [episodes.relevant[episodes.fold == fold] for fold in (0, 1)]
    equal = np.mean([relevant.mean(axis=0)[:2].sum() for relevant in positives])
    assert values["map"] == pytest.approx((equal + 1.0) / 3)
    assert values["auroc"] == pytest.approx((0.5 + 0.5 + 1.0) / 3)
    package.AERD_Weights = OtherWeights
    with pytest.raises(InputError, match="AERD EV_CALL: has no output 'rumble'"):
        score_aerd_package(encoder_data, "EV_CALL", Protocol(), signals)
