"""Calls are embedded as they would sound in the background of a site."""

from dataclasses import replace

import numpy as np
import pytest
import soundfile

import callshot
from callshot.corpus.audio import load_audio, normalise_peak
from callshot.corpus.mixing import (
    SNRS_DB,
    SPAN_S,
    background_spans,
    choose_backgrounds,
    find_quiet_spans,
    load_spans,
    mix_call,
    mix_spans,
)
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import (
    BackgroundMix,
    EmbedOptions,
    embed,
    embed_mixed_segments,
)
from callshot.encoders.encode import open_encoder
from callshot.errors import InputError, OptionError
from callshot.spans import concat_spans
from rows_of_spans import list_rows, make_row, make_spans
from sounds import record, record_badly

RATE_HZ = 16000


def make_segment(name, start_s=0.5, end_s=1.75, peak_dbfs=-3.0):
    return make_row(
        name,
        start_s,
        end_s,
        segment=f"{name}@{start_s}",
        channel_rule="mean",
        peak_dbfs=peak_dbfs,
    )


@pytest.fixture
def calls(tmp_path):
    for seed, name in enumerate(("a.wav", "b.wav")):
        record(tmp_path / "calls" / name, 3.0, RATE_HZ, seed=seed)
    segments = [
        make_segment("a.wav"),
        make_segment("a.wav", 1.25, 2.5),
        make_segment("b.wav"),
    ]
    root = tmp_path / "calls"
    return replace(make_spans(segments, root), source="calls")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Weak noise; its second half has loud sounds."""
    random = np.random.default_rng(5)
    quiet = random.normal(0, 0.01, 30 * RATE_HZ)
    loud = random.normal(0, 0.2, 30 * RATE_HZ)
    folder = tmp_path_factory.mktemp("site")
    soundfile.write(folder / "night.wav", np.concatenate([quiet, loud]), RATE_HZ)
    return folder


def options(tmp_path):
    return EmbedOptions(store=tmp_path / "store")


def embed_mfcc(calls, site, folder):
    return embed_mixed_segments(calls, BackgroundMix(site), "mfcc", options(folder))


def literal_vector(calls, site, row):
    """The mean vector of the call in four backgrounds, one after the other."""
    segment = list_rows(calls)[row]
    quiet, _ = find_quiet_spans(site, calls)
    places = list(zip(quiet.paths, quiet["start_s"], strict=True))
    numbers = choose_backgrounds(segment.segment, len(SNRS_DB), len(quiet))
    encoder = open_encoder(find_encoder("mfcc"))
    vectors = []
    for number, snr_db in zip(numbers, SNRS_DB, strict=True):
        path, start_s = places[number]
        samples, _ = soundfile.read(site / path, dtype="float32")
        first = round(start_s * RATE_HZ)
        length = round((segment.end_s - segment.start_s) * RATE_HZ)
        ((_, call),) = load_audio(calls.take([row]))
        mixed = mix_call(call, samples[first : first + length], snr_db, RATE_HZ)
        prepared = encoder.prepare(normalise_peak(mixed, -3.0), RATE_HZ)
        (output,) = encoder.encode([prepared])
        vectors.append(encoder.pool(prepared, output))
    return np.mean(vectors, axis=0)


def test_a_vector_is_the_mean_of_the_call_in_several_backgrounds(calls, site, tmp_path):
    table = callshot.embed(calls, "mfcc", site=site, store=tmp_path)
    plain = callshot.embed(calls, "mfcc", store=tmp_path)
    assert table.encoder == "mfcc, at site"
    assert table.fingerprint == plain.fingerprint != ""
    assert f"background of {site} at 0, 5, 10, 15 dB" in table.note
    assert list(table.segment) == calls["segment"]
    for row, vector in enumerate(table.matrix):
        golden = literal_vector(calls, site, row)
        np.testing.assert_allclose(vector, golden, rtol=1e-3, atol=1e-3)


def test_background_is_quiet_and_as_long_as_the_call(calls, site):
    quiet, _ = find_quiet_spans(site, calls)
    assert len(quiet) == 128
    assert max(quiet["start_s"]) < 30 - SPAN_S / 2
    background = background_spans(mix_spans(calls, site, SNRS_DB))
    assert background.durations_s == pytest.approx(np.full(12, 1.25))


def test_levels_are_those_of_the_segments(calls, site):
    for peak_dbfs, peak in ((-3.0, 0.70795), (None, 0.2)):
        segment = calls.take([0]).with_columns(peak_dbfs=peak_dbfs)
        ((_, signal),) = load_spans(mix_spans(segment, site, (0.0,)))
        found = float(np.abs(signal).max())
        if peak_dbfs is None:
            assert found < peak
        else:
            assert found == pytest.approx(peak, abs=1e-4)


def test_the_store_keeps_calls_and_their_copies_apart(
    calls, site, tmp_path, monkeypatch
):
    plain, _ = embed(calls, "mfcc", options(tmp_path))
    moved, _ = embed_mfcc(calls, site, tmp_path)
    again, _ = embed(calls, "mfcc", options(tmp_path))
    assert np.array_equal(plain.matrix, again.matrix)
    assert not np.allclose(plain.matrix, moved.matrix, atol=0.1)

    def fail(spans, **options):
        assert not spans, "everything is in the store"
        return ()

    monkeypatch.setattr("callshot.encoders.embed.load_spans", fail)
    repeated, _ = embed_mfcc(calls, site, tmp_path)
    assert np.array_equal(moved.matrix, repeated.matrix)


def test_a_call_that_cannot_be_mixed_is_one_reject(calls, site, tmp_path):
    record_badly(calls.root / "c.wav", "text")
    soundfile.write(calls.root / "d.wav", np.zeros(3 * RATE_HZ), RATE_HZ)
    bad = [make_spans([make_segment(name)]) for name in ("c.wav", "d.wav")]
    segments = concat_spans([calls.take([0]), *bad, calls.take([1, 2])])
    table, rejects = embed_mfcc(segments, site, tmp_path)
    assert len(table) == 3
    assert [(one.file, one.row) for one in rejects] == [("c.wav", 2), ("d.wav", 3)]
    assert "a silent example cannot be mixed into the background" in rejects[1].reason


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "no recording of at least 2 s"),
        ("short", "no recording of at least 2 s"),
        ("silent", "0 of 256 spans have sound that can be read"),
        ("text", "x.wav"),
    ],
)
def test_a_site_without_background_is_one_clear_line(kind, message, calls, tmp_path):
    folder = tmp_path / kind
    folder.mkdir()
    if kind == "text":
        record_badly(folder / "x.wav", "text")
    elif kind != "empty":
        seconds = 1 if kind == "short" else 10
        soundfile.write(folder / "x.wav", np.zeros(seconds * RATE_HZ), RATE_HZ)
    with pytest.raises(InputError, match=f"^--site: .*{message}"):
        embed_mfcc(calls, folder, tmp_path)


@pytest.mark.parametrize("ratios", [(), (5.0, 5.0), (100.0,)])
def test_signal_to_noise_ratios_are_different_numbers_in_their_range(ratios, site):
    with pytest.raises(OptionError, match=r"^snr_db: expected"):
        BackgroundMix(site, ratios)
