"""Windows of an index that is being made: which are ready, similar to examples, or different.

What is chosen is compared with slow literal twins.
"""

import shutil

import numpy as np
import pytest

from callshot.detection import ready_windows
from callshot.detection.index.index_files import (
    INDEX,
    RECORDING,
    open_index,
    recording_folder,
)
from callshot.detection.index.windows import SILENCE_DBFS
from callshot.detection.ready_windows import (
    BACKGROUND_WEIGHT,
    FoundWindow,
    ReadyWindows,
    choose_different,
    choose_greedily,
    measure_cover,
    measure_space,
    order_recordings,
    sample_windows,
)
from field_recordings import index_site, write_site

NAMES = ("a.wav", "b.wav", "c.wav")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=6)
    return folder, index_site(folder, hop_s=0.25)


@pytest.fixture(scope="module")
def sketches(site):
    """Return the space and the files of windows of the index."""
    windows = ReadyWindows(site[1], site[0], NAMES)
    windows.refresh()
    return windows.sketches


def read_all(index):
    """Return all windows of an index: recording, start and end, level, vector."""
    rows = []
    for block in open_index(index).read_blocks():
        frame = block.spans.frame
        for row, vector in zip(frame.rows(named=True), block.matrix, strict=True):
            place = (row["recording"], row["start_s"], row["end_s"])
            rows.append((place, row["rms_dbfs"], [float(value) for value in vector]))
    return rows


def rank_literally(rows, examples, others, answered):
    """Return places and scores of windows, the most similar first: one window after another."""

    def root(vector):
        return np.array(
            [np.sign(one) * np.sqrt(np.float32(abs(one))) for one in vector]
        )

    roots = [root(vector) for _, _, vector in rows]
    scale = np.array([np.std([one[n] for one in roots]) for n in range(len(roots[0]))])
    levels = {}
    for number, (place, level, _) in enumerate(rows):
        levels.setdefault(place[0], []).append((level, number))
    quiet = []
    for own in levels.values():
        quiet += [number for _, number in sorted(own)[: max(1, round(len(own) / 6))]]
    background = np.mean([roots[number] / scale for number in quiet], axis=0)
    mean = np.mean([root(one) / scale for one in examples], axis=0)
    unlike = [background] * BACKGROUND_WEIGHT + [root(one) / scale for one in others]
    other = np.mean(unlike, axis=0)
    scored = []
    for (place, _, _), one in zip(rows, roots, strict=True):
        spans = answered.get(place[0], ())
        if any(place[1] < end_s and place[2] > start_s for start_s, end_s in spans):
            continue
        z = one / scale
        score = sum((z - other) ** 2) - sum((z - mean) ** 2)
        share = sum((z - background) * (mean - background))
        share /= sum((mean - background) ** 2)
        scored.append((-score, place, share))
    return sorted(scored)


@pytest.mark.parametrize("with_others", [False, True])
def test_the_ranking_is_that_of_the_literal_one(site, with_others):
    folder, index = site
    windows = ReadyWindows(index, folder, NAMES)
    windows.refresh()
    rows = read_all(index)
    assert len(windows) == len(rows)
    examples = np.array([rows[n][2] for n in (5, 80)])
    others = np.array([rows[n][2] for n in (9, 30, 44)] if with_others else [])
    others = others.reshape(-1, examples.shape[1])
    answered = {"b.wav": [(3.1, 4.2), (9.0, 9.01)]}
    found = windows.rank(examples, others, answered)
    expected = rank_literally(rows, examples, others, answered)
    assert [one[:3] for one in found] == [place for _, place, _ in expected]
    np.testing.assert_allclose(
        [one.score for one in found],
        [-score for score, _, _ in expected],
        rtol=1e-3,
        atol=1e-2,
    )
    np.testing.assert_allclose(
        [one.share for one in found],
        [share for _, _, share in expected],
        rtol=1e-3,
        atol=1e-3,
    )


def test_few_components_choose_nearly_the_same_windows(site, monkeypatch):
    folder, index = site
    rows = read_all(index)
    examples = np.array([rows[5][2]])
    windows = ReadyWindows(index, folder, NAMES)
    windows.refresh()
    exact = windows.rank(examples, examples[:0], {})
    monkeypatch.setattr(ready_windows, "COMPONENTS", 8)
    monkeypatch.setattr(ready_windows, "CANDIDATES", 60)
    rough = ReadyWindows(index, folder, NAMES)
    rough.refresh()
    found = rough.rank(examples, examples[:0], {})
    assert len(found) == 60
    assert len({*found[:12]} & {*exact[:12]}) >= 11


def test_windows_are_ready_while_the_index_is_made(site, tmp_path):
    folder, whole = site
    index = tmp_path / "index"
    windows = ReadyWindows(index, folder, NAMES)
    windows.refresh()  # there is no index yet
    assert (len(windows), windows.rank(np.ones((1, 40)), np.ones((0, 40)), {})) == (
        0,
        [],
    )
    index.mkdir()
    shutil.copy(whole / INDEX, index)
    windows.refresh()
    assert len(windows) == 0
    counts = [0]
    for (
        name
    ) in NAMES:  # all windows of a recording are there, but it is not entered yet
        source = recording_folder(whole, name)
        target = recording_folder(index, name)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(RECORDING))
        windows.refresh()
        counts.append(len(windows))
        assert name not in windows.finished
        shutil.copy(source / RECORDING, target)
        windows.refresh()
        assert name in windows.finished
        assert len(windows) == counts[-1]
    assert sorted(counts) == counts
    assert counts[-1] == len(read_all(whole))
    complete = ReadyWindows(whole, folder, NAMES)
    complete.refresh()
    example = np.array([read_all(whole)[7][2]])
    first = [
        ready.rank(example, example[:0], {})[0][:3] for ready in (windows, complete)
    ]
    assert first[0] == first[1]


def test_a_recording_that_changed_is_not_searched(site, tmp_path):
    folder, index = site
    other = tmp_path / "recordings"
    shutil.copytree(folder, other)
    (other / "b.wav").write_bytes((folder / "a.wav").read_bytes())
    windows = ReadyWindows(index, other, NAMES)
    windows.refresh()
    assert windows.finished == {"a.wav", "c.wav"}


def test_a_span_has_the_window_that_has_most_of_it(site):
    folder, index = site
    windows = ReadyWindows(index, folder, NAMES)
    windows.refresh()
    rows = {place: vector for place, _, vector in read_all(index)}
    for start_s, end_s, window_s in (
        (3.3, 3.4, (3.0, 3.5)),  # two windows have all of it: the one around its middle
        (3.1, 3.2, (3.0, 3.5)),
        (2.8, 3.2, (2.75, 3.25)),
        (0.0, 0.1, (0.0, 0.5)),
        (1.0, 3.0, (1.75, 2.25)),  # longer than windows
    ):
        vector = windows.find_vector("a.wav", start_s, end_s)
        expected = rows["a.wav", *window_s]
        np.testing.assert_array_equal(vector, np.array(expected, np.float16))
    assert windows.find_vector("absent.wav", 1.0, 2.0) is None
    assert windows.find_vector("a.wav", 1e4, 1e4 + 1) is None
    last_s = max(end_s for name, _, end_s in rows if name == "a.wav")
    assert windows.find_vector("a.wav", last_s - 0.1, last_s + 0.4) is None  # a fifth


def test_sounds_of_a_list_are_apart():
    def make(recording, *starts_s):
        return [FoundWindow(recording, one, one + 3.0, 0.0, 0.0) for one in starts_s]

    windows = [*make("a", 9.0, 12.0, 4.0, 15.0), *make("b", 10.0, 10.0)]
    chosen = choose_different(windows, 9)
    assert [(one.recording, one.start_s) for one in chosen] == [
        ("a", 9.0),
        ("a", 4.0),
        ("a", 15.0),
        ("b", 10.0),
    ]
    assert len(choose_different(windows, 2)) == 2


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


def test_cover_and_the_order_of_recordings_are_those_of_a_literal_one(sketches):
    space, parts = sketches
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


def test_all_windows_are_sounds_if_they_are_few_and_silence_is_none(sketches):
    space, parts = sketches
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


def test_of_many_windows_the_rare_ones_are_sounds(sketches):
    space, parts = sketches
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


@pytest.mark.parametrize("damaged", [1, 40])
def test_damaged_windows_are_left_out(sketches, damaged):
    rows = np.array(sketches[1][0].rows[:40])
    rows["vector"][:damaged] = np.nan
    space = measure_space([rows])
    part = space.make_part("a.wav", rows)
    assert np.isfinite(part.sketch).all()
    assert len(sample_windows(space, [part]).start_s) == 40 - damaged
