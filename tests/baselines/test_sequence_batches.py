"""What recurrent networks are fed: frames in a row, their scale, batches, inner folds; and what is refused."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines.recurrent import PAPER_CELLS, choose_cell, score_recurrent
from callshot.baselines.sequence_batches import (
    deal_batches,
    frame_scale,
    hold_out,
    inner_folds,
    lay_out,
    line_up,
)
from callshot.baselines.torch_arrays import BatchData, tell_rows
from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.records import Embeddings, IntArray

Sequences = list[np.ndarray]


@st.composite
def sequences(draw: Any) -> Sequences:
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    dimension = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [rng.normal(3.0, 2.0, (length, dimension)).astype(np.float32) for length in lengths]


@st.composite
def labelled(draw: Any) -> tuple[IntArray, IntArray]:
    """Labels without a gap, and the recording of each row."""
    _, label = np.unique(
        draw(st.lists(st.integers(0, 4), min_size=2, max_size=40)), return_inverse=True
    )
    groups = draw(st.lists(st.integers(0, 12), min_size=len(label), max_size=len(label)))
    return label, np.array(groups)


# Rows


@pytest.mark.parametrize(
    "label", [np.array([2, 0, 1, 1, 0]), np.array([[True, False]] * 3 + [[False, True]] * 2)]
)
def test_rows_are_told_by_frames_labels_and_the_first_row_of_their_recording(
    label: np.ndarray,
) -> None:
    table = lay_out([np.full((n + 1, 2), float(n)) for n in range(5)])
    rows, groups = np.array([4, 1, 3, 2]), np.array([9, 7, 8, 7, 8])
    found = tell_rows(BatchData(table, None, label), rows, groups)
    assert found == [
        (table.hashes[row], label[row].tolist(), at)
        for row, at in zip([4, 1, 3, 2], [0, 1, 1, 0], strict=True)
    ]
    assert found == tell_rows(BatchData(table, None, label), rows, 20 - groups)


# Frames


@given(sequences())
def test_the_scale_is_that_of_all_frames_together(given_: Sequences) -> None:
    rows = np.arange(0, len(given_), 2)
    whole = np.concatenate([given_[row] for row in rows]).astype(np.float64)
    mean, scale = frame_scale(lay_out(given_), rows)
    assert np.allclose(mean, whole.mean(axis=0), rtol=1e-12, atol=1e-12)
    moves = whole.std(axis=0) > 0
    assert np.allclose(scale[moves] * whole.std(axis=0)[moves], 1.0, rtol=1e-9)
    assert (scale[~moves] == 0).all()


def test_a_dimension_that_stands_still_in_training_counts_for_nothing() -> None:
    table = lay_out(
        [np.array([[0.0, 7.3], [1.0, 7.3]]), np.array([[0.0, 7.3]]), np.array([[0.0, 1e6]])]
    )
    _, scale = frame_scale(table, np.array([0, 1]))
    assert scale[1] == 0.0
    assert scale[0] == pytest.approx(1 / np.std([0, 1, 0]))


@given(sequences(), st.integers(1, 5))
def test_frames_are_averaged_in_runs(given_: Sequences, step: int) -> None:
    table = lay_out(given_, step)
    for row, sequence in enumerate(given_):
        wanted = [sequence[at : at + step].mean(axis=0) for at in range(0, len(sequence), step)]
        assert np.allclose(
            table.frames[table.start[row] : table.start[row + 1]], wanted, rtol=1e-5, atol=1e-5
        )


@given(sequences())
def test_rows_are_lined_up_frame_by_frame(given_: Sequences) -> None:
    table, rows = lay_out(given_), np.arange(len(given_))[::-1]
    places, there = line_up(table, rows)
    assert len(places) == max(map(len, given_))
    for column, row in enumerate(rows):
        assert np.array_equal(table.frames[places[there[:, column], column]], given_[row])
        assert (table.frames[places[~there[:, column], column]] == given_[row][-1]).all()


@given(sequences(), st.integers(1, 4), st.integers(0, 9))
def test_an_epoch_has_every_row_once(given_: Sequences, size: int, seed: int) -> None:
    batches = [
        *deal_batches(lay_out(given_), np.arange(len(given_)), size, np.random.default_rng(seed))
    ]
    assert sorted(np.concatenate(batches).tolist()) == [*range(len(given_))]
    assert max(map(len, batches)) <= size


def test_batches_are_of_like_lengths() -> None:
    rng = np.random.default_rng(0)
    table = lay_out([np.zeros((length, 1), np.float32) for length in rng.integers(1, 500, 256)])
    spread = [
        np.ptp(table.lengths[batch]) for batch in deal_batches(table, np.arange(256), 32, rng)
    ]
    assert np.mean(spread) < 150


def test_a_hash_tells_frames_and_their_number_apart() -> None:
    one = lay_out(
        [np.zeros((2, 1), np.float32), np.zeros((1, 1), np.float32), np.zeros((2, 1), np.float32)]
    ).hashes
    assert one[0] == one[2] != one[1]


# Inner folds


@given(labelled(), st.integers(2, 5))
def test_no_recording_is_on_both_sides_and_every_class_stays_in_training(
    given_: tuple[IntArray, IntArray], count: int
) -> None:
    label, groups = given_
    fold = inner_folds(label, groups, count)
    for number in range(count):
        held = hold_out(label, groups, count, number)
        assert not set(groups[held]) & set(groups[~held])
        assert set(label[~held]) == set(label)
        assert (fold[held] == number).all()


@given(labelled())
def test_neither_numbers_of_recordings_nor_those_of_others_matter(
    given_: tuple[IntArray, IntArray],
) -> None:
    label, groups = given_
    assert np.array_equal(inner_folds(label, groups, 4), inner_folds(label, 1000 - 7 * groups, 4))


def test_a_class_of_one_recording_stays_in_training() -> None:
    label, groups = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 1, 2, 3, 4, 4])
    assert not any(hold_out(label, groups, 4, number)[4:].any() for number in range(4))


def test_inner_folds_are_even() -> None:
    label = np.repeat([0, 1, 2], [400, 40, 8])
    fold = inner_folds(label, np.arange(448), 4)
    assert [np.bincount(fold[label == n]).tolist() for n in range(3)] == [
        [100] * 4,
        [10] * 4,
        [2] * 4,
    ]


# What is refused before torch is even imported


def made(folds: int = 2, each: int = 2) -> tuple[Episodes, IntArray, Sequences]:
    """Two classes, each with so many segments of own recordings in every fold."""
    fold = np.tile(np.repeat(np.arange(folds), each), 2)
    label = ["bark"] * folds * each + ["roar"] * folds * each
    names = [f"s{n:02d}" for n in range(len(label))]
    given_folds = check_folds(names, fold)
    table = Embeddings("made", np.zeros((len(label), 1)), names, names, label, [()] * len(label))
    episodes = plan_episodes(table, given_folds, count_classes(label, given_folds))
    rng = np.random.default_rng(1)
    return episodes, np.arange(len(label)), [rng.normal(size=(3, 2)) for _ in label]


@pytest.mark.parametrize("found", ["score", "choose"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: s.__setitem__(3, None),
            "sequence of row 3: wanted frames × dimensions, found none; embed",
        ),
        (
            lambda s: s.__setitem__(3, np.zeros((0, 2))),
            r"row 3: wanted .* one frame at least, found shape \(0, 2\)",
        ),
        (
            lambda s: s.__setitem__(3, np.zeros(2)),
            r"row 3: wanted .* of floats, found \(2,\) of float64",
        ),
        (
            lambda s: s.__setitem__(3, [[1.0, 2.0]]),
            r"row 3: wanted .* of floats, found \(1, 2\) of list",
        ),
        (
            lambda s: s.__setitem__(3, np.zeros((1, 2), int)),
            "row 3: wanted .* of floats, found .* of int64",
        ),
        (
            lambda s: s.__setitem__(3, np.zeros((4, 3))),
            "row 3: wanted frames × 2 dimensions as before it, found 3",
        ),
        (
            lambda s: s.__setitem__(3, np.array([[0.0, np.nan]])),
            "row 3: wanted .* finite, found NaN or infinity",
        ),
        (
            lambda s: s.__setitem__(3, np.array([[0.0, 1e39]])),
            "row 3: wanted .* finite, found NaN or infinity",
        ),
        (lambda s: s.pop(), "sequences: wanted one for each of 8 rows, found 7"),
        (lambda s: s.clear(), "sequences: wanted one for each of 8 rows, found 0"),
    ],
)
def test_a_sequence_that_cannot_be_learnt_from_is_refused(
    found: str, change: Callable[[list[Any]], None], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    episodes, groups, rows = made()
    change(rows)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=message):
        (score_recurrent if found == "score" else choose_cell)(episodes, groups, rows)


def test_a_class_of_one_exemplar_in_a_split_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"class 'bark' has 1 .*side of fold 0, .*needs 2 exemplars at least"
    ):
        score_recurrent(*made(folds=2, each=1))


def test_a_recording_on_both_sides_is_refused() -> None:
    episodes, groups, rows = made()
    groups[3] = groups[0]
    with pytest.raises(LeakError, match="recording '0' is in folds 0 and 1"):
        score_recurrent(episodes, groups, rows)
    with pytest.raises(InputError, match="groups: wanted one for each of 8 rows, found 2"):
        score_recurrent(episodes, groups[:2], rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cell": "rnn"}, "cell: one of elman, gru, lstm, got 'rnn'"),
        ({"cell": ["gru"] * 3}, "cell: one, or one for each of 2 splits, got 3"),
        ({"seeds": 0}, "seeds: a whole number from 1, got 0"),
        ({"hidden": 0}, "hidden: a whole number from 1, got 0"),
        ({"threads": -1}, "threads: a whole number from 1, got -1"),
        ({"device": "tpu"}, "device: cpu or cuda, got 'tpu'"),
    ],
)
def test_an_option_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        score_recurrent(*made(), **options)


def test_what_is_missing_is_told_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(
        InputError, match=r"safetensors is missing; pip install 'callshot\[rivals\]'"
    ):
        score_recurrent(*made())


def test_torch_is_not_imported_before_it_is_used() -> None:
    code = "import sys, callshot.baselines.recurrent; sys.exit('torch' in sys.modules)"
    where = str(Path(__file__).parents[2] / "src")
    assert (
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONPATH": where}, check=False
        ).returncode
        == 0
    )


def test_the_papers_pairs_are_there() -> None:
    wanted = {"mfcc": ("gru", "gru"), "perch-v1": ("gru", "lstm"), "perch-v2": ("elman", "gru")}
    assert {
        e: (PAPER_CELLS[e, "elephant-voices"], PAPER_CELLS[e, "ldc2010s05"]) for e in wanted
    } == wanted
    assert len(PAPER_CELLS) == 6
