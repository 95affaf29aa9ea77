"""Windows without calls: which they are, how many are kept, and what merging gives."""

import shutil

import numpy as np
import pytest
import soundfile as sf

import callshot
from callshot.detection import background as background_module
from callshot.detection.background import choose_event_threshold, find_sampled
from callshot.detection.learn import learn
from callshot.detection.model import load_model, merge_models, write_model
from callshot.errors import InputError


def learn_site(site, store, **options):
    return learn(site, "mfcc", window_s=0.5, store=store, **options).model


def read_spans(path):
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    return [(float(start), float(end)) for start, end, _ in lines]


def test_background_is_every_window_that_no_annotation_touches(site, store):
    """The literal way: every window of an index, beside every annotation."""
    model = learn_site(site, store)
    index = callshot.index_recordings(
        site, store / "index", "mfcc", window_s=0.5, dtype="float32"
    ).index
    expected = []
    for block in index.read_blocks():
        spans = read_spans((site / block.recording[0]).with_suffix(".txt"))
        for start_s, end_s, vector in zip(
            block.spans["start_s"], block.spans["end_s"], block.matrix, strict=True
        ):
            if all(end_s <= start or end <= start_s for start, end in spans):
                expected.append(vector)
    found = model.background.vectors
    assert len(found) == len(expected) > 20
    np.testing.assert_allclose(
        np.sort(found, axis=0), np.sort(expected, axis=0), rtol=1e-4, atol=1e-4
    )
    assert model.background.hours == pytest.approx(len(found) * 0.5 / 3600)


def test_labels_that_are_no_examples_count_too(tmp_path, site, store):
    other = tmp_path / "site"
    shutil.copytree(site, other)
    sf.write(other / "a.wav", np.zeros(13 * 16000), 16000, subtype="FLOAT")
    model = learn_site(other, store)
    silent = set(model.examples.spans.paths)
    assert silent == {"b.wav", "c.wav"}
    plain = learn_site(site, store)
    assert len(model.background.vectors) == len(plain.background.vectors)


def test_a_folder_without_calls_is_background_from_start_to_end(tmp_path, site, store):
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    noise = np.random.default_rng(0).normal(0, 0.01, 16000 * 5)
    sf.write(quiet / "q.wav", noise, 16000, subtype="FLOAT")
    model = learn_site(site, store, background=quiet)
    assert len(model.background.vectors) == 10
    assert set(model.background.origins) == {"without calls"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"background: .*: no recordings"):
        learn_site(site, store, background=tmp_path / "empty")


def test_none_and_clips_have_no_background(tmp_path, site, store):
    assert learn_site(site, store, background="none").background is None
    clips = tmp_path / "clips"
    for label in ("hoot", "bark"):
        (clips / label).mkdir(parents=True)
        noise = np.random.default_rng(0).normal(0, 0.1, 16000)
        sf.write(clips / label / "1.wav", noise, 16000)
    result = learn(clips, "mfcc", store=store)
    assert len(result.model.background.vectors) == 0
    assert any("no windows without calls" in note for note in result.notes)


def test_the_file_of_a_model_keeps_its_background(tmp_path, site, store):
    model = learn_site(site, store)
    write_model(model, tmp_path / "model.npz")
    read = load_model(tmp_path / "model.npz").background
    assert read.recordings == model.background.recordings
    expected = model.background.windows
    np.testing.assert_array_equal(read.windows.matrix, expected.matrix)
    assert read.windows.spans.frame.equals(expected.spans.frame)
    assert read.hours == model.background.hours


def test_an_annotation_that_is_added_later_removes_its_windows(tmp_path, site, store):
    """The same recordings, annotated in two halves, give what all annotations give."""
    halves = []
    for half in (0, 1):
        part = tmp_path / str(half) / "site"
        shutil.copytree(site, part)
        for path in part.glob("*.txt"):
            lines = path.read_text().splitlines(keepends=True)
            path.write_text("".join(lines[half::2]))
        halves.append(learn_site(part, store))
    assert len(halves[0].background.vectors) > len(halves[1].background.vectors) - 30
    whole = learn_site(site, store)
    for first, second in (halves, halves[::-1]):
        merged = merge_models(first, second).background
        assert merged.recordings == whole.background.recordings
        np.testing.assert_array_equal(merged.vectors, whole.background.vectors)
        assert merged.windows.spans.frame.equals(whole.background.windows.spans.frame)


def test_a_sample_is_the_same_in_whatever_order_parts_come(site, store, monkeypatch):
    monkeypatch.setattr(background_module, "MAX_WINDOWS", 20)
    monkeypatch.setattr(background_module, "SAMPLED_S", 1.0)
    whole = learn_site(site, store)
    assert 5 < len(whole.background.vectors) < 40
    parts = [learn_site(site / f"{name}.wav", store) for name in "abc"]
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        first, second, third = (parts[n] for n in order)
        merged = merge_models(merge_models(first, second), third).background
        np.testing.assert_array_equal(merged.vectors, whole.background.vectors)


def test_a_larger_corpus_keeps_a_subset_of_the_sample_of_a_smaller_one():
    start_s = np.arange(100000) * 3.0
    previous = find_sampled("abc", start_s, 8192)
    assert previous.all()
    for total in (10000, 20000, 80000, 10**6):
        sampled = find_sampled("abc", start_s, total)
        assert not (sampled & ~previous).any()
        share = 1 / 2 ** np.ceil(np.log2(total / 8192))
        assert sampled.mean() == pytest.approx(share, rel=0.5)
        assert len({*zip(start_s // 60, sampled, strict=True)}) == 5000  # whole minutes
        previous = sampled


def test_no_threshold_is_needed_for_as_many_events_as_are_allowed():
    for count in (1, 2, 20):
        events = np.arange(count, 0, -1.0)
        assert choose_event_threshold(events, count) == -np.inf
        assert choose_event_threshold(events, count - 0.5) > -np.inf


def test_the_place_of_a_recording_is_kept_in_the_model(site, store, tmp_path):
    quiet = tmp_path / "quiet"
    for name in ("north/A1_20260314_053000", "north/A2_20260314_053000", "south/b"):
        (quiet / f"{name}.wav").parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng([*name.encode()]).normal(0, 0.01, 16000)
        sf.write(quiet / f"{name}.wav", noise, 16000)
    write_model(learn_site(site, store, background=quiet), tmp_path / "model.npz")
    read = load_model(tmp_path / "model.npz").background
    places = sorted(recording.place for recording in read.recordings)
    assert places == ["north/A1", "north/A2", "south"]
