"""Windows of an index that is being made: which are ready, and which are similar to examples."""

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
from callshot.detection.ready_windows import (
    BACKGROUND_WEIGHT,
    FoundWindow,
    ReadyWindows,
    choose_different,
)
from field_recordings import index_site, write_site

NAMES = ("a.wav", "b.wav", "c.wav")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = write_site(tmp_path_factory.mktemp("site") / "recordings", calls=6)
    return folder, index_site(folder, hop_s=0.25)


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
