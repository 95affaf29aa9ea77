"""Sounds and recordings that together are like all the others, beside slow literal twins."""

import numpy as np
import pytest

from callshot.detection.different import (
    choose_greedily,
    measure_cover,
    order_recordings,
    sample_windows,
)
from callshot.detection.index.windows import SILENCE_DBFS
from callshot.detection.ready_windows import ReadyWindows, measure_space
from field_recordings import index_site, write_site

NAMES = ("a.wav", "b.wav", "c.wav")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the space and the files of windows of an index."""
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=6)
    windows = ReadyWindows(index_site(folder, hop_s=0.25), folder, NAMES)
    windows.refresh()
    return windows.sketches


def choose_literally(cover, covered, count, distance=None):
    """Try every row each time; of rows that are as good, take the first."""
    covered = [float(one) for one in covered]
    rows = []
    gains = []
    while len(rows) < min(count, len(cover)):
        best = None
        for row in range(len(cover)):
            pairs = zip(cover[row], covered, strict=True)
            gain = sum(max(float(value) - old, 0.0) for value, old in pairs)
            merit = gain
            if distance is not None and len(rows) % 2 == 1:
                merit = float(distance[row]) - covered[row]
            if row not in rows and (best is None or merit > best[0] + 1e-9):
                best = (merit, row, gain)
        rows.append(best[1])
        gains.append(best[2])
        pairs = zip(cover[best[1]], covered, strict=True)
        covered = [max(float(value), old) for value, old in pairs]
    return rows, gains


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_rows_are_those_of_the_literal_choice(seed, in_turn):
    generator = np.random.default_rng(seed)
    columns = 30 if in_turn else 20
    cover = generator.integers(0, 9, (30, columns)).astype(np.float32)  # with ties
    covered = generator.integers(0, 5, columns).astype(np.float32)
    distance = generator.integers(4, 9, 30).astype(np.float32) if in_turn else None
    before = covered.copy()
    rows, gains = choose_greedily(cover, covered, 25, distance)
    expected_rows, expected_gains = choose_literally(cover, covered, 25, distance)
    assert rows == expected_rows
    np.testing.assert_allclose(gains, expected_gains)
    assert (covered == before).all()
    assert len(choose_greedily(cover, covered, 99, distance)[0]) == 30


@pytest.mark.parametrize("damaged", [1, 40])
def test_damaged_windows_are_left_out(site, damaged):
    rows = np.array(site[1][0].rows[:40])
    rows["vector"][:damaged] = np.nan
    space = measure_space([rows])
    part = space.make_part("a.wav", rows)
    assert np.isfinite(part.sketch).all()
    assert len(sample_windows(space, [part]).start_s) == 40 - damaged


def test_cover_and_the_order_of_recordings_are_those_of_a_literal_one(site):
    space, parts = site
    sounds = sample_windows(space, parts)
    cover = measure_cover(sounds)
    count = len(sounds.start_s)
    for one in range(0, count, 7):
        for other in range(0, count, 5):
            between = np.linalg.norm(
                sounds.sketch[one].astype(float) - sounds.sketch[other]
            )
            away = np.linalg.norm(sounds.sketch[other].astype(float))
            expected = max(away - between, 0.0)
            assert cover[one, other] == pytest.approx(expected, abs=2e-2)
    merged = [
        [max(cover[sounds.recording == name, other]) for other in range(count)]
        for name in NAMES
    ]
    rows, gains = choose_literally(merged, np.zeros(count), 3)
    order = order_recordings(sounds, cover)
    assert [*order] == [NAMES[row] for row in rows]
    np.testing.assert_allclose([*order.values()], np.array(gains) / sum(gains), 1e-4)


def test_all_windows_are_sounds_if_they_are_few_and_silence_is_none(site):
    space, parts = site
    sounds = sample_windows(space, parts)
    assert len(sounds.start_s) == sum(len(part.start_s) for part in parts)
    assert sorted(set(sounds.recording)) == list(
        sounds.recording[np.sort(np.unique(sounds.recording, return_index=True)[1])]
    )
    part = parts[0]
    levels = part.rms_dbfs.copy()
    levels[3:9] = SILENCE_DBFS
    fewer = sample_windows(space, [part._replace(rms_dbfs=levels)])
    assert len(fewer.start_s) == len(part.start_s) - 6
    assert not {*part.start_s[3:9]} & {*fewer.start_s}


def test_of_many_windows_the_rare_ones_are_sounds(site):
    space, parts = site
    generator = np.random.default_rng(0)
    part = parts[0]
    rows = generator.integers(0, 8, 5000)
    sketch = part.sketch[rows] + generator.normal(0, 0.01, (5000, part.sketch.shape[1]))
    sketch[[17, 4444]] += 30
    start_s = np.arange(5000.0)
    many = part._replace(
        start_s=start_s,
        end_s=start_s + 1,
        rms_dbfs=np.full(5000, -40.0, np.float32),
        sketch=sketch.astype(np.float32),
    )
    sounds = sample_windows(space, [many], 200)
    assert len(sounds.start_s) == 200
    assert {17.0, 4444.0} <= {*sounds.start_s}
    assert (np.diff(sounds.start_s) > 0).all()
    gaps = np.diff([0.0, *sounds.start_s, 5000.0])
    assert gaps.max() <= 60  # the others are all over the file
