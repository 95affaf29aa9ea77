"""Sequences beside a table: round trips in any order, and one-line errors."""

import numpy as np
import polars as pl
import pytest

from callshot.errors import InputError
from callshot.tables.embedding_tables import (
    read_sequences,
    sequences_path,
    write_sequences,
)

RNG = np.random.default_rng(0)
FRAMES = {
    f"s{n:03}": RNG.normal(size=(1 + n % 5, 3)).astype(np.float32) for n in range(150)
}


@pytest.fixture
def path(tmp_path):
    """Sequences of 150 segments, more than are written at once."""
    place = sequences_path(tmp_path / "mfcc.parquet")
    write_sequences(place, list(FRAMES), iter(FRAMES.values()))
    return place


def test_sequences_come_back_unchanged_in_the_requested_order(path):
    segments = ["s140", "s002", "s007"]
    sequences = read_sequences(path, segments)
    for name, sequence in zip(segments, sequences, strict=True):
        assert sequence.dtype == np.float32
        np.testing.assert_array_equal(sequence, FRAMES[name])


def test_a_missing_file_of_sequences_is_an_error_with_a_hint(tmp_path):
    with pytest.raises(
        InputError, match="no such file; embed the segments again with --sequence"
    ):
        read_sequences(tmp_path / "no.sequences.parquet", ["a"])


def test_a_segment_without_a_sequence_is_an_error_with_its_name(path):
    with pytest.raises(InputError, match="no sequence of the segment 'other'"):
        read_sequences(path, ["s001", "other"])


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (
            {"segment": ["a"], "frames": [2], "sequence": [[1.0, 2.0, 3.0]]},
            "3 values do not make 2 frames",
        ),
        (
            {"segment": ["a"], "frames": [0], "sequence": [[]]},
            "0 values do not make 0 frames",
        ),
        (
            {"segment": ["a"], "frames": [1], "sequence": [None]},
            "0 values do not make 1 frames",
        ),
        ({"segment": ["a"], "frames": [1]}, "column sequence is missing"),
        ({"name": ["a"]}, "column segment is missing.*embed the segments again"),
    ],
)
def test_a_damaged_table_is_an_error(tmp_path, rows, match):
    pl.DataFrame(rows).write_parquet(path := tmp_path / "x.parquet")
    with pytest.raises(InputError, match=match):
        read_sequences(path, ["a"])


def test_a_file_that_is_not_a_table_is_an_error(tmp_path):
    (path := tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match=r"cannot be read .*embed the segments again"):
        read_sequences(path, ["a"])
