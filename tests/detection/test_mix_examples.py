"""Clips are kept in models, and mixed into background of the site that is scanned."""

import shutil

import numpy as np
import pytest
import soundfile as sf

import callshot
from callshot.corpus.mixing import mix_example
from callshot.detection.background import MAX_WINDOWS
from callshot.detection.examples import read_quiet_windows, sample_index
from callshot.detection.index.windows import find_spec, make_grid
from callshot.detection.learn import learn
from callshot.detection.model import (
    describe_locations,
    from_pcm,
    load_model,
    merge_models,
    to_pcm,
    write_model,
)
from callshot.detection.nearest import NearestMeanDetector
from callshot.detection.scan import scan
from callshot.encoders.workers import open_workers
from callshot.errors import InputError, OptionError
from field_recordings import RATE_HZ, add_tone, write_site

LABELS = ("hoot", "bark", "trill")


def write_clips(folder, count=4):
    """Clean tones, one folder for each label."""
    rng = np.random.default_rng(5)
    for label in LABELS:
        (folder / label).mkdir(parents=True)
        for n in range(count):
            signal = rng.normal(0, 1e-4, RATE_HZ // 2)
            add_tone(signal, label, 0.0, 0.5, RATE_HZ, rng)
            sf.write(folder / label / f"{n}.wav", signal, RATE_HZ, subtype="FLOAT")
    return folder


def write_noisy_site(folder):
    """Recordings with loud low noise and few calls, without annotations."""
    rng = np.random.default_rng(6)
    folder.mkdir()
    calls = []
    for name in ("x", "y"):
        white = rng.normal(0, 0.02, 60 * RATE_HZ)
        signal = white + 0.5 * np.convolve(white, np.ones(8), "same")
        for n, label in enumerate(LABELS):
            start_s = 10.25 + 15 * n
            add_tone(signal, label, start_s, 0.5, RATE_HZ, rng)
            calls.append((f"{name}.wav", start_s, label))
        sf.write(folder / f"{name}.wav", signal, RATE_HZ, subtype="FLOAT")
    return calls


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    folder = tmp_path_factory.mktemp("field")
    write_clips(folder / "clips")
    calls = write_noisy_site(folder / "site")
    return folder, calls


@pytest.fixture(scope="module")
def model(field):
    folder, _ = field
    return learn(folder / "clips", "mfcc", store=folder / "store").model


def test_a_model_keeps_the_audio_of_its_examples(tmp_path, field, model):
    folder, _ = field
    write_model(model, tmp_path / "model.npz")
    loaded = load_model(tmp_path / "model.npz")
    assert loaded.clip_rate_hz == 16000
    clips = loaded.examples.spans["clip"]
    for path, clip in zip(model.examples.spans.paths, clips, strict=True):
        samples = np.frombuffer(clip, np.int16)
        signal, _ = sf.read(folder / "clips" / path, dtype="float32")
        expected = np.round(signal / np.abs(signal).max() * 32767)
        np.testing.assert_allclose(samples, expected, atol=1)


def test_a_call_in_a_recording_is_kept_without_what_is_around_it(tmp_path):
    site = write_site(tmp_path / "site", ("a",))
    model = learn(site, "mfcc", window_s=1.0, store=tmp_path / "store").model
    for start_s, clip in model.examples.spans.frame["start_s", "clip"].iter_rows():
        samples = np.frombuffer(clip, np.int16)
        signal, _ = sf.read(site / "a.wav", dtype="float32")
        first = round(start_s * RATE_HZ)
        call = signal[first : first + len(samples)]
        np.testing.assert_array_equal(samples, to_pcm(call))
        assert len(samples) == pytest.approx(0.5 * RATE_HZ, abs=1)


def test_the_audio_of_some_examples_is_kept_whatever_the_order(tmp_path, monkeypatch):
    monkeypatch.setattr("callshot.detection.model.MAX_CLIPS", 3)
    write_clips(tmp_path / "clips", count=6)
    parts = []
    for half in (0, 1):
        part = tmp_path / str(half) / "clips"
        for path in sorted((tmp_path / "clips").glob("*/*.wav"))[half::2]:
            place = part / path.parent.name
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        parts.append(learn(part, "mfcc", window_s=0.5, store=tmp_path / "s").model)
    whole = learn(tmp_path / "clips", "mfcc", window_s=0.5, store=tmp_path / "s").model
    kept = [one is not None for one in whole.examples.spans["clip"]]
    assert sum(kept) == 3 * 3
    for first, second in (parts, parts[::-1]):
        merged = merge_models(first, second)
        assert [one is not None for one in merged.examples.spans["clip"]] == kept
        write_model(merged, tmp_path / "merged.npz")
        merged_examples = load_model(tmp_path / "merged.npz").examples.spans.frame
        assert merged_examples.equals(whole.examples.spans.frame)


def test_site_windows_are_the_quieter_half_spread_over_the_recordings(field):
    folder, _ = field
    spec = find_spec("mfcc")
    grid = make_grid(spec, 0.5)
    files = [(folder / "site", f"{name}.wav") for name in "xy"]
    windows = read_quiet_windows(files, spec, grid, "first")
    signals = [sf.read(root / path, dtype="float32")[0] for root, path in files]
    lengths = [len(signal) for signal in signals]
    count = 256
    levels = []
    for place in range(
        count
    ):  # at the same share of a recording and of its first samples
        sample = (place + 0.5) / count * sum(lengths)
        number = int(sample >= lengths[0])
        share = (sample - number * lengths[0]) / lengths[number]
        start = round(share * (lengths[number] - 8000))
        levels.append(np.square(signals[number][start : start + 8000]).mean())
    found = [float(np.square(window).mean()) for window in windows]
    assert len(found) == 128
    np.testing.assert_allclose(sorted(found), sorted(levels)[: len(found)], rtol=1e-4)


def test_silent_windows_of_a_site_do_not_count(field, tmp_path):
    folder, _ = field
    spec = find_spec("mfcc")
    grid = make_grid(spec, 0.5)
    sf.write(tmp_path / "silent.wav", np.zeros(8 * 16000), 16000)
    silent = (tmp_path, "silent.wav")
    for unusable in (silent, (tmp_path, "missing.wav")):
        with pytest.raises(InputError, match=r"no window with a sound .* 1 rec"):
            read_quiet_windows([unusable], spec, grid, "first")
    files = [(folder / "site", "x.wav"), *3 * [silent]]
    windows = read_quiet_windows(files, spec, grid, "first")
    assert windows
    assert all(window.any() for window in windows)


def test_learning_for_a_site_embeds_mixtures(field, model):
    """The literal way: mix each clip at four ratios, embed each mixture, take the mean."""
    folder, _ = field
    result = learn(
        folder / "clips", "mfcc", site=folder / "site", store=folder / "store"
    )
    spec = find_spec("mfcc")
    files = [(folder / "site", f"{name}.wav") for name in "xy"]
    windows = read_quiet_windows(files, spec, make_grid(spec, 0.5), "first")
    with open_workers(spec, threads=1) as encoder:
        for row in (0, 5, 11):
            location = describe_locations(model.examples.spans)[row]
            clip = from_pcm(model.examples.spans["clip"][row])
            mixtures = mix_example(clip, windows, location, 16000)
            vectors = [encoder.submit_windows([one])()[0] for one in mixtures]
            expected = np.mean(vectors, axis=0)
            found_row = describe_locations(result.model.examples.spans).index(location)
            found = result.model.examples.matrix[found_row]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert set(result.model.background.origins) == {"unlabelled"}


def find_names(result, calls):
    """Return the label of the event at each call, None if there is none."""
    names = []
    for path, start_s, _ in calls:
        found = [
            label
            for recording, start, end, label in result.events.select(
                "recording", "start_s", "end_s", "label"
            ).iter_rows()
            if recording == path and start < start_s + 0.5 and end > start_s
        ]
        names.append(found[0] if found else None)
    return names


def test_clips_find_calls_in_noise_when_they_are_laid_into_it(field, model, tmp_path):
    folder, calls = field
    labels = [label for *_, label in calls]
    options = {"hop_s": 0.25, "false_alarms": 10.0}
    moved = scan(model, folder / "site", tmp_path / "index", **options)
    assert find_names(moved, calls) == labels
    assert len(moved.events) < 2 * len(calls)
    assert any("12 examples mixed into background" in one for one in moved.notes)
    assert any("recordings without labels" in one for one in moved.notes)
    assert "windows without labels" in moved.detector.origin
    plain = scan(model, folder / "site", tmp_path / "index", adapt="none", **options)
    assert find_names(plain, calls) != labels
    again = scan(model, tmp_path / "index", false_alarms=10.0)
    assert again.events.equals(moved.events)


def test_a_model_with_background_is_used_as_it_is(field, tmp_path):
    folder, _ = field
    site = write_site(tmp_path / "own")
    own = learn(site, "mfcc", window_s=0.5, store=tmp_path / "store").model
    index = callshot.index_recordings(
        folder / "site", tmp_path / "index", "mfcc", window_s=0.5
    ).index
    assert scan(own, index).notes == []
    assert "mixed into" in scan(own, index, adapt="always").notes[0]
    with pytest.raises(OptionError, match="adapt: expected one of auto, always, none"):
        scan(own, index, adapt="elsewhere")


def test_few_windows_are_no_background(model, tmp_path):
    site = write_site(tmp_path / "site", ("a",))
    index = tmp_path / "index"
    assert isinstance(scan(model, site, index).detector, NearestMeanDetector)
    result = scan(model, site, index, false_alarms=1.0)
    assert any("too few to find background" in note for note in result.notes)


def test_a_large_index_is_sampled_evenly(field, tmp_path, monkeypatch):
    folder, _ = field
    index = callshot.index_recordings(
        folder / "site", tmp_path / "index", "mfcc", window_s=0.5, dtype="float32"
    ).index
    background = sample_index(index)
    assert len(background.vectors) == len(index) == 240 <= MAX_WINDOWS
    monkeypatch.setattr("callshot.detection.examples.MAX_WINDOWS", 120)
    sampled = sample_index(index)
    np.testing.assert_array_equal(sampled.vectors, background.vectors[::2])
    assert sampled.hours == pytest.approx(120 * 0.5 / 3600)
    monkeypatch.setattr("callshot.detection.examples.MAX_WINDOWS", 50)
    assert sample_index(index) is None
