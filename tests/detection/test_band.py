"""An encoder gets the band of the boxes, where held-out examples stand out better in it."""

import numpy as np
import pytest
import soundfile as sf

import callshot
from callshot.detection.background import (
    BackgroundRecording,
    make_windows,
    measure_covariance,
    select_windows,
    split_background,
)
from callshot.detection.band import find_band, measure_overlap
from callshot.detection.learn import learn
from callshot.detection.model import write_model
from callshot.detection.model_summary import describe_model
from callshot.encoders.catalogue import find_encoder
from callshot.errors import OptionError
from callshot.spans import Spans
from callshot.vectors import Vectors

RATE_HZ = 16000
ENCODER = "mfcc[top_db=20]"  # faint sounds beside loud ones vanish
LINE = "{0}\t{1}\thoot\n\\\t420\t580\n"


def write_owls(folder, *, loud, boxes=True):
    """Write recordings with a call at 500 Hz every 4 s, and noise that comes and goes above it."""
    folder.mkdir()
    time_s = np.arange(24 * RATE_HZ) / RATE_HZ
    for number in range(3):
        rng = np.random.default_rng(number)
        signal = rng.normal(0, 0.01, len(time_s))
        spectrum = np.fft.rfft(rng.normal(0, 1, len(time_s)))
        spectrum[: len(spectrum) // 4] = 0  # below 2 kHz
        levels = rng.uniform(0, 1, 80).repeat(RATE_HZ * 3 // 10) ** 3
        signal += 0.3 * loud * levels * np.fft.irfft(spectrum)
        lines = []
        for start_s in range(2, 24, 4):
            inside = (time_s >= start_s) & (time_s < start_s + 0.5)
            tone_hz = rng.uniform(460, 540)
            signal[inside] += 0.01 * np.sin(2 * np.pi * tone_hz * time_s[inside])
            line = LINE if boxes else "{0}\t{1}\thoot\n"
            lines.append(line.format(start_s, start_s + 0.5))
        sf.write(folder / f"{number}.wav", signal / 10, RATE_HZ, subtype="FLOAT")
        (folder / f"{number}.txt").write_text("".join(lines))
    return folder


def test_a_band_that_tells_calls_apart_is_used_and_everything_works_in_it(tmp_path):
    site = write_owls(tmp_path / "site", loud=1)
    store = tmp_path / "store"
    result = learn(site, ENCODER, window_s=1.0, store=store)
    model = result.model
    assert model.encoder == "mfcc[top_db=20,band=370-660]"
    assert model.fingerprint["options"]["band"] == "370-660"
    [note] = [note for note in result.notes if "370-660" in note]
    assert "where the boxes are" in note
    assert "band=none" in note
    assert any("370-660 Hz" in line for line in describe_model(model))
    found = callshot.scan(model, site, tmp_path / "index", hop_s=0.5).events
    assert len(found) == 18
    plain = learn(
        site, ENCODER, encoder_options={"band": "none"}, window_s=1.0, store=store
    ).model
    assert plain.encoder == ENCODER
    # Examples that are added later are embedded in the band of the model.
    more = write_owls(tmp_path / "more", loud=0)
    write_model(model, tmp_path / "model.npz")
    larger = learn(more, add=tmp_path / "model.npz", store=store).model
    assert larger.encoder == model.encoder
    write_model(plain, tmp_path / "plain.npz")
    with pytest.raises(OptionError, match="band=auto is chosen when a new model"):
        learn(more, add=tmp_path / "plain.npz", encoder_options={"band": "auto"})


@pytest.mark.parametrize("choice", [{}, {"band": "auto"}])
def test_without_frequencies_nothing_is_filtered_and_who_asked_is_told(
    tmp_path, choice
):
    site = write_owls(tmp_path / "site", loud=1, boxes=False)
    result = learn(
        site, "mfcc", encoder_options=choice, window_s=1.0, store=tmp_path / "store"
    )
    assert result.model.encoder == "mfcc"
    assert any("band=auto needs" in note for note in result.notes) == bool(choice)


def test_the_band_holds_nine_tenths_of_the_boxes_of_every_label():
    low_hz = [400.0] * 19 + [20.0] + [100.0]  # one box of owls is wrong
    high_hz = [800.0] * 19 + [7000.0] + [200.0]
    labels = ["owl"] * 20 + ["bittern"]
    rows = [
        {"recording": "a", "start_s": 0.0, "end_s": 1.0, "label": label}
        | {"low_freq_hz": low, "high_freq_hz": high}
        for label, low, high in zip(labels, low_hz, high_hz, strict=True)
    ]
    spec = find_encoder("mfcc")
    assert find_band(Spans.from_rows(rows), spec) == "89-900"
    assert find_band(Spans.from_rows(rows), find_encoder("mfcc", {"speed": "10"})) == (
        "89-800"
    )
    assert find_band(Spans.from_rows(rows), spec, source_rate_hz=8000.0) is None
    rows[3]["low_freq_hz"] = None
    assert find_band(Spans.from_rows(rows), spec) is None
    everything = [rows[0] | {"low_freq_hz": 0.0, "high_freq_hz": 8000.0}]
    assert find_band(Spans.from_rows(everything), spec) is None


def literal_overlap(vectors, label, recording, background):
    """Score each example by itself, and count the windows that score as high."""
    parts = list(split_background(background))
    shares = []
    for row in range(len(vectors)):
        is_same = (label == label[row]) & (recording != recording[row])
        if not is_same.any():
            continue
        mean = vectors[is_same].mean(axis=0, keepdims=True)

        def score(windows, known, mean=mean):
            return measure_covariance(known).find_discriminants(mean)(windows)[:, 0]

        own = score(vectors[[row]], background.vectors)[0]
        others = [score(vectors[label != label[row]], background.vectors)]
        for inside in parts:
            known = background.vectors[~inside]
            others.append(score(background.vectors[inside], known))
        shares.append(np.mean(np.concatenate(others) >= own))
    return np.mean(shares)


def test_the_overlap_is_that_of_scoring_examples_one_by_one():
    rng = np.random.default_rng(0)
    names = ["x"] * 15 + ["y"] * 15
    windows = make_windows(names, np.arange(30.0), 1.0, rng.normal(size=(30, 4)))
    recordings = [BackgroundRecording("x", 15), BackgroundRecording("y", 30)]
    background = select_windows(recordings, windows, 1.0, 1.0)
    vectors = rng.normal(0.5, 1.0, (12, 4)).astype(np.float32)
    label = np.array(list("aaaaabbbbbbc"))
    recording = np.array(list("112233112213"))
    frame = [
        {"recording": recording, "start_s": 0.0, "end_s": 1.0, "label": label}
        for recording, label in zip(recording, label, strict=True)
    ]
    examples = Vectors(Spans.from_rows(frame), vectors)
    expected = literal_overlap(vectors.astype(float), label, recording, background)
    assert measure_overlap(examples, background) == pytest.approx(expected, abs=1e-9)
    assert 0.05 < expected < 0.95
    assert measure_overlap(examples, None) is None
    assert measure_overlap(examples.take([0, 6]), background) is None
