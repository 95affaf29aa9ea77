"""Embeddings and data frames: the same rows both ways, from polars and pandas, one-line errors."""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pytest

from callshot.errors import InputError
from callshot.vectors import Vectors

COLUMNS: dict[str, Any] = {
    "segment": ["s1", "s2", "s3"],
    "recording": ["a.wav", "a.wav", "b.wav"],
    "label": ["rumble", "roar", "rumble"],
    "labels": [["rumble", "roar"], ["roar"], ["bark"]],
    "fold": [0, 0, 1],
    "embedding": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
}
NUMBERED = {"e0": [1.0, 3.0, 5.0], "e1": [2.0, 4.0, 6.0]}
FRAMES = {"polars": pl.DataFrame, "pandas": pd.DataFrame}

every_frame = pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)


def change_columns(**changes):
    """Return the columns of a good frame with changes; columns that become None are left out."""
    columns = (COLUMNS | changes).items()
    return {name: values for name, values in columns if values is not None}


def check_error(frame, match):
    with pytest.raises(InputError, match=match) as caught:
        Vectors.from_frame(frame, encoder="mfcc", source="herd")
    assert str(caught.value).startswith("herd: ")
    assert len(str(caught.value).splitlines()) == 1


@every_frame
@pytest.mark.parametrize(
    "vectors", [{}, {"embedding": None, **NUMBERED}], ids=["lists", "columns"]
)
def test_a_frame_gives_its_columns_and_vectors(make, vectors):
    frame = make(change_columns(**vectors, notes=[1.5, None, 2.5]))
    table = Vectors.from_frame(frame, encoder="mfcc", source="herd")
    assert (table.encoder, table.source) == ("mfcc", "herd")
    assert table.segment == ("s1", "s2", "s3")
    assert table.recording == ("a.wav", "a.wav", "b.wav")
    assert table.label == ("rumble", "roar", "rumble")
    assert table.labels == (("rumble", "roar"), ("roar",), ("rumble", "bark"))
    assert table.fold.tolist() == [0, 0, 1]
    assert table.matrix.tolist() == COLUMNS["embedding"]
    assert table.matrix.dtype == np.float64


def test_float32_columns_stay_float32_and_a_mixture_becomes_float64():
    single = {name: np.array(values, np.float32) for name, values in NUMBERED.items()}
    frame = pl.DataFrame(change_columns(embedding=None, **single))
    assert Vectors.from_frame(frame, encoder="mfcc").matrix.dtype == np.float32
    mixed = frame.with_columns(e1=pl.col("e1").cast(pl.Float64))
    assert Vectors.from_frame(mixed, encoder="mfcc").matrix.dtype == np.float64


def test_arrays_in_a_pandas_column_are_vectors():
    vectors = list(np.array(COLUMNS["embedding"], np.float32))
    frame = pd.DataFrame(change_columns(embedding=None)).assign(embedding=vectors)
    table = Vectors.from_frame(frame, encoder="mfcc")
    assert table.matrix.tolist() == COLUMNS["embedding"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fold", [None, np.array([0, 0, 1])])
def test_a_round_trip_through_a_frame_changes_nothing(dtype, fold):
    names = ("segment", "recording", "label")
    columns = [COLUMNS[name] for name in names]
    labels = (("rumble", "roar"), ("roar",), ("rumble",))
    matrix = np.array(COLUMNS["embedding"], dtype)
    table = Vectors.from_columns("mfcc", matrix, *columns, labels, fold)
    frame = table.to_frame()
    assert ("fold" in frame.columns) == (fold is not None)
    again = Vectors.from_frame(frame, encoder="mfcc")
    for name in (*names, "labels"):
        assert getattr(again, name) == getattr(table, name)
    np.testing.assert_array_equal(again.matrix, table.matrix)
    assert again.matrix.dtype == dtype
    np.testing.assert_array_equal(again.fold, table.fold)


@pytest.mark.parametrize(
    "frame", [None, [[1, 2]], {"recording": ["a"]}, np.ones((2, 2))]
)
def test_what_is_not_a_data_frame_is_an_error(frame):
    check_error(frame, "expected a polars or pandas data frame, got ")
