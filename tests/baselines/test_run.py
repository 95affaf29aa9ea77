"""Baselines of one dataset: the cell of the paper, the outputs of networks, AERD as published."""

from dataclasses import replace

import numpy as np
import pytest

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import find_cell, train_dataset
from callshot.baselines.scoring import find_outputs
from callshot.errors import LeakError
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
        None,
        "lstm",
    ]
    unknown = read_encoder_data(write_embeddings(tmp_path / "other.parquet"))
    assert find_cell(unknown, "paper") is None


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
