"""Calls to play: which ones are chosen, how they sound, how large they are."""

import base64
import io
from importlib import util

import numpy as np
import pytest
import soundfile

from callshot.jobs import Pool
from callshot.report.calls import (
    choose_sounds,
    find_calls,
    make_call_clip,
    pick_calls,
    place_calls,
    rank_confused,
    score_calls,
    start_clips,
)
from corpus_results import make_corpus_results, make_tables
from rows_of_spans import make_row, make_spans

RATE_HZ = 16000
LABELS = ("rumble", "roar", "trumpet")


def tone(frequency_hz, seconds=1.0, rate_hz=RATE_HZ):
    times_s = np.arange(int(seconds * rate_hz)) / rate_hz
    return 0.2 * np.sin(2 * np.pi * frequency_hz * times_s)


def decode(text):
    return soundfile.read(io.BytesIO(base64.b64decode(text)))


def loudest_hz(text):
    signal, rate_hz = decode(text)
    spectrum = np.abs(np.fft.rfft(signal))
    return float(spectrum.argmax() * rate_hz / len(signal))


def test_a_sound_is_an_mp3_of_the_same_length_and_pitch():
    clip = make_call_clip(tone(440), RATE_HZ)
    signal, rate_hz = decode(clip.sound)
    assert rate_hz == RATE_HZ
    assert len(signal) / rate_hz == pytest.approx(1.0, abs=0.15)  # MP3 pads
    assert loudest_hz(clip.sound) == pytest.approx(440, abs=5)
    assert (clip.fast, clip.speed) == ("", 1)
    assert base64.b64decode(clip.picture).startswith(b"\x89PNG")


@pytest.mark.parametrize(("frequency_hz", "speed"), [(100, 4), (40, 8), (20, 16)])
def test_a_low_call_is_also_there_sped_up(frequency_hz, speed):
    clip = make_call_clip(tone(frequency_hz, 2.0), RATE_HZ)
    assert clip.speed == speed
    assert loudest_hz(clip.fast) == pytest.approx(speed * frequency_hz, rel=0.05)
    assert len(decode(clip.fast)[0]) < len(decode(clip.sound)[0])


def test_equal_signals_give_equal_bytes_and_silence_is_no_error():
    assert make_call_clip(tone(300), RATE_HZ) == make_call_clip(tone(300), RATE_HZ)
    make_call_clip(np.zeros(2000), RATE_HZ)
    make_call_clip(np.zeros(3), RATE_HZ)


def test_other_rates_become_one_that_every_browser_plays():
    clip = make_call_clip(tone(3000, 0.5, 44100), 44100)
    assert decode(clip.sound)[1] == 32000
    assert loudest_hz(clip.sound) == pytest.approx(3000, rel=0.02)


def make_audio(folder, count=4):
    signal = np.concatenate([tone(300 + 100 * number) for number in range(count)])
    soundfile.write(folder / "a.wav", signal, RATE_HZ)
    segments = [
        make_row("a.wav", number, number + 1, segment=f"a@{number}", rate_hz=RATE_HZ)
        for number in range(count)
    ]
    return make_spans(segments, folder)


def make_clips(segments, names, **options):
    """Return the clips of segments, made in the threads of a pool."""
    with Pool() as pool:
        finish = start_clips(segments, names, pool, **options)
        return finish()


def test_clips_are_those_of_the_segments(tmp_path):
    clips = make_clips(make_audio(tmp_path), ["a@3", "a@1", "unknown"])
    assert list(clips) == ["a@3", "a@1"]
    assert loudest_hz(clips["a@3"].sound) == pytest.approx(600, abs=5)


def test_calls_of_a_label_are_drawn_up_to_the_same_frequency(tmp_path):
    audio = make_audio(tmp_path)
    same = audio.with_columns(label=["roar"] * len(audio))
    tops = {clip.top_hz for clip in make_clips(same, same["segment"]).values()}
    assert len(tops) == 1
    other = audio.with_columns(label=[f"label {row}" for row in range(len(audio))])
    assert (
        len({clip.top_hz for clip in make_clips(other, same["segment"]).values()}) > 1
    )


def test_the_size_of_all_clips_is_bounded_and_the_first_ones_are_kept(tmp_path):
    audio = make_audio(tmp_path)
    whole = make_clips(audio, ["a@2", "a@0", "a@1"])
    sizes = [len(one.sound) + len(one.picture) for one in whole.values()]
    most_bytes = 0.75 * (sizes[0] + sizes[1]) + 1
    kept = make_clips(audio, ["a@2", "a@0", "a@1"], most_bytes=most_bytes)
    assert list(kept) == ["a@2", "a@0"]


def literal_scores(table, folds, labels):
    """Return the scores call by call, label by label."""
    scores = []
    for z, fold in zip(table.matrix, folds.fold, strict=True):
        row = []
        for name in labels:
            support = [
                vector
                for vector, label, other in zip(
                    table.matrix, table.label, folds.fold, strict=True
                )
                if label == name and (other != fold or other < 0)
            ]
            c = np.mean(support, axis=0, dtype=np.float64)
            row.append(2 * c @ z - c @ c)
        scores.append(row)
    return np.array(scores)


def test_calls_are_scored_by_the_mean_of_all_examples_in_other_folds():
    results = make_corpus_results(make_tables(LABELS))
    table = results.tables[0]
    folds = results.evaluation.folds
    expected = literal_scores(table, folds, LABELS)
    assert score_calls(table, folds, LABELS) == pytest.approx(expected, rel=1e-9)


def test_picks_are_the_nearest_the_most_confused_and_the_farthest():
    results = make_corpus_results(make_tables(LABELS))
    table = results.tables[0]
    scores = score_calls(table, results.evaluation.folds, LABELS)
    vectors = np.asarray(table.matrix, np.float64)
    distances = (vectors**2).sum(axis=1)[:, None] - scores
    for number, pick in enumerate(pick_calls(table, scores, LABELS)):
        rows = [row for row, name in enumerate(table.label) if name == LABELS[number]]
        assert pick.typical == min(rows, key=lambda row: distances[row, number])
        assert pick.farthest == max(rows, key=lambda row: distances[row, number])
        others = [n for n in range(len(LABELS)) if n != number]
        margins = {
            (row, n): scores[row, n] - scores[row, number]
            for row in rows
            for n in others
        }
        assert (pick.nearest, pick.other) == max(margins, key=margins.get)


def test_calls_behind_a_confusion_are_ranked_by_their_margin():
    results = make_corpus_results(make_tables(LABELS))
    table = results.tables[0]
    scores = score_calls(table, results.evaluation.folds, LABELS)
    ranked = rank_confused(scores, table.label, LABELS)
    margins = [scores[row, 1] - scores[row, 0] for row in ranked[0][1]]
    assert margins == sorted(margins, reverse=True)
    assert {table.label[row] for row in ranked[0][1]} == {"rumble"}


def test_every_label_is_played_and_random_vectors_choose_nothing():
    results = make_corpus_results(make_tables(LABELS, {"mfcc": 1.0, "random": 0.0}))
    calls = find_calls(results)
    names = choose_sounds(calls, results)
    assert len(names) == len(set(names))
    segments = results.evaluation.segments
    label = dict(zip(segments["segment"], segments["label"], strict=True))
    assert {label[name] for name in names} == set(LABELS)
    picks = calls["encoder_calls"][0]["picks"]
    first = [segments["segment"][pick.typical] for pick in picks]
    assert set(first) <= set(names[:9])


def test_the_map_has_every_call_inside_its_frame():
    results = make_corpus_results(make_tables(LABELS))
    calls = find_calls(results)
    points = np.array(calls["encoder_calls"][0]["map"])
    assert points.shape == (len(results.tables[0]), 2)
    assert points.min() == 0
    assert points.max() == 1000


def test_umap_is_used_where_it_is_installed(monkeypatch):
    class Umap:
        def __init__(self, random_state, n_jobs):
            assert (random_state, n_jobs) == (0, 1)

        def fit_transform(self, vectors):
            return np.full((len(vectors), 2), 7.0)

    fake = type("module", (), {"UMAP": Umap})
    monkeypatch.setitem(__import__("sys").modules, "umap", fake)
    monkeypatch.setattr(
        "callshot.report.calls.find_spec", lambda name: util.find_spec("io")
    )
    table = make_tables(LABELS)[0]
    assert (place_calls(table) == 7.0).all()
    few = table.take(range(5))
    assert not (place_calls(few) == 7.0).any()
