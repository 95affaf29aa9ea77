"""A synthetic site: calls at known times and ratios, clock times, flat memory, the same bytes."""

import re
import tracemalloc
from collections import Counter
from concurrent.futures import Future
from datetime import datetime
from itertools import pairwise
from math import log10
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import soundfile

from callshot import score_detections, segment, synthesise_soundscape
from callshot.corpus.synthetic.plan import ACTIVITY, GAP_S, SiteOptions, plan_recordings
from callshot.corpus.synthetic.site import generate_recording
from callshot.corpus.synthetic.sounds import (
    BLOCK_S,
    Conditions,
    Engine,
    RecordingPlan,
    draw_site,
    make_background,
)
from callshot.detection.index.clock import find_clock_time
from callshot.errors import OptionError
from callshot.files import sha256_file
from callshot.spans import Spans
from rows_of_spans import list_rows
from test_cli import run

RATE_HZ = 4000
SMALL = {
    "recordings": 2,
    "minutes": 2,
    "calls_per_hour": 240,
    "snr_db": (0, 10),
    "examples": 2,
    "rate_hz": RATE_HZ,
    "seed": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("site")
    synthesise_soundscape(path, **SMALL, threads=2)
    return path


@pytest.fixture(scope="module")
def background(tmp_path_factory):
    """The same site without calls."""
    path = tmp_path_factory.mktemp("background")
    synthesise_soundscape(path, **SMALL | {"calls_per_hour": 0}, threads=2)
    return path


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def read(folder, name):
    samples, rate_hz = soundfile.read(folder / "recordings" / name)
    assert rate_hz == RATE_HZ
    return np.asarray(samples)


def literal_band_power(samples, low_hz, high_hz):
    """Sum the squares of every Fourier coefficient whose frequency is in the band."""
    spectrum = np.fft.fft(samples)
    power = 0.0
    for number, value in enumerate(spectrum):
        hz = min(number, samples.size - number) * RATE_HZ / samples.size
        if low_hz <= hz <= high_hz:
            power += abs(value / samples.size) ** 2
    return power


def test_every_call_has_its_signal_to_noise_ratio_in_the_written_files(
    folder, background
):
    calls = pl.read_csv(folder / "annotations.csv")
    assert set(calls["snr_db"]) == {0.0, 10.0}
    for call in calls.iter_rows(named=True):
        noise = read(background, call["recording"])
        difference = read(folder, call["recording"]) - noise
        span = slice(round(call["start_s"] * RATE_HZ), round(call["end_s"] * RATE_HZ))
        band = (call["low_freq_hz"], call["high_freq_hz"])
        ratio = literal_band_power(difference[span], *band)
        ratio /= literal_band_power(noise[span], *band)
        assert 10 * log10(ratio) == pytest.approx(call["snr_db"], abs=0.15)


def test_between_calls_there_is_background_only(folder, background):
    for plan in plan_recordings(SiteOptions(**SMALL)):
        name = f"{plan.name}.wav"
        is_call = np.zeros(round(plan.duration_s * RATE_HZ), bool)
        for call in list_rows(plan.calls):  # and its reverberation
            first = round(call.start_s * RATE_HZ)
            is_call[first : round((call.end_s + 1.5) * RATE_HZ)] = True
        difference = read(folder, name) - read(background, name)
        assert not difference[~is_call].any()
        assert difference[is_call].any()


def test_an_engine_passes_from_block_to_block_without_a_step():
    site = draw_site(0, RATE_HZ)
    start = datetime(2026, 3, 2, 6)
    plan = RecordingPlan(0, "SITE", 2.0 * BLOCK_S, Spans.from_rows([]), start=start)
    silent = np.zeros(3 * BLOCK_S, np.float32)
    engine = Engine(BLOCK_S + 3.0, 20.0, 40.0, 0.04, 0.1)
    quiet = Conditions({"rain": silent}, silent)
    loud = Conditions({"rain": silent}, silent, (engine,))
    size = BLOCK_S * RATE_HZ
    parts = []
    for block in range(2):
        samples = make_background(site, plan, loud, block)
        samples -= make_background(site, plan, quiet, block)
        parts.append(samples[:size])
    sound = np.concatenate(parts)
    time_s = np.arange(sound.size) / RATE_HZ - engine.peak_s
    share = time_s / engine.length_s
    pitch_hz = engine.pitch_hz * (1 - engine.drift * np.tanh(share))
    cycles = np.cumsum(pitch_hz) / RATE_HZ
    fundamental = np.exp(-(share**2) / 2) * np.exp(-2j * np.pi * cycles)
    # A step of the phase between the blocks would lower what both have in common.
    whole = abs(np.sum(sound * fundamental))
    first = abs(np.sum((sound * fundamental)[:size]))
    second = abs(np.sum((sound * fundamental)[size:]))
    assert whole == pytest.approx(first + second, rel=1e-3)
    around = np.abs(np.diff(sound[size - 2000 : size + 2000]))
    assert np.abs(sound[size] - sound[size - 1]) <= around.max()


@pytest.mark.parametrize("overlap", [False, True])
def test_calls_are_apart_unless_asked_and_inside_their_recordings(overlap):
    often = {"minutes": 20, "calls_per_hour": 120, "every_minutes": 47}
    overlaps = []
    for plan in plan_recordings(SiteOptions(recordings=30, overlap=overlap, **often)):
        calls = list_rows(plan.calls)
        starts_s = [call.start_s for call in calls]
        assert starts_s == sorted(starts_s)
        assert max([call.end_s for call in calls], default=0) <= plan.duration_s
        gaps_s = [two.start_s - one.end_s for one, two in pairwise(calls)]
        overlaps += [gap_s < GAP_S - 0.002 for gap_s in gaps_s]
    assert any(overlaps) == overlap


def test_the_number_of_calls_follows_the_hour_of_the_day():
    options = SiteOptions(recordings=7, minutes=1440, calls_per_hour=30)
    plans = plan_recordings(options)
    hours = Counter(
        int(call.start_s // 3600) for plan in plans for call in list_rows(plan.calls)
    )
    assert sum(hours.values()) == 7 * 24 * 30
    for hour, activity in enumerate(ACTIVITY):
        expected = 7 * 24 * 30 * activity / sum(ACTIVITY)
        assert hours[hour] == pytest.approx(expected, abs=5 * expected**0.5)
    assert hours[12] == 0


def test_names_have_the_clock_times_of_the_starts():
    plans = plan_recordings(SiteOptions(recordings=3, minutes=10, every_minutes=720))
    clocks = [find_clock_time(Path("absent"), plan.name) for plan in plans]
    assert clocks == [plan.start.isoformat() for plan in plans]
    assert clocks[2] == "2026-03-03T00:00:00"


def test_score_reads_the_annotations(folder):
    places = (folder / "annotations.csv", folder / "raven")
    scores = score_detections(*places, recordings=folder / "recordings").scores
    assert set(scores.filter(by="events")["f1"]) == {1.0}


def test_examples_are_in_other_recordings_and_again_as_clips(folder):
    examples = segment(folder / "examples/recordings", folder / "examples/raven")
    clips = segment(folder / "clips", format="folders")
    expected = dict.fromkeys(SiteOptions(**SMALL).labels, 2)
    for part in (examples, clips):
        assert Counter(part.segments["label"]) == expected
    names = [
        {*(folder / place).iterdir()} for place in ("recordings", "examples/recordings")
    ]
    assert {path.name for path in names[0]}.isdisjoint(path.name for path in names[1])


class PoolWithoutThreads:
    """A pool that works when it is asked: the peak of the memory is the same each time."""

    threads = 1

    def submit(self, work, *arguments):
        future = Future()
        future.set_result(work(*arguments))
        return future


def test_memory_does_not_grow_with_the_length_of_a_recording():
    site = draw_site(0, RATE_HZ)
    peaks = []
    for minutes in (3, 9):
        plan = plan_recordings(SiteOptions(recordings=1, minutes=minutes))[0]
        tracemalloc.start()
        for _ in generate_recording(site, plan, PoolWithoutThreads()):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], peaks


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recordings": 0}, "recordings: expected 1 to 100000 recordings, got 0"),
        ({"minutes": 90, "every_minutes": 60}, "every_minutes: recordings of 90"),
        ({"snr_db": ()}, "snr_db: expected one or more values"),
        ({"snr_db": float("nan")}, "snr_db: expected -40 to 60 dB, got nan"),
        ({"calls_per_hour": 3000}, r"calls do not fit into .*overlap"),
        ({"calls_per_hours": 30}, "calls_per_hours: unknown option; did you mean"),
        ({"start": "noon"}, "start: expected a date and time such as"),
    ],
)
def test_options_out_of_range_are_one_line(options, message, tmp_path):
    with pytest.raises(OptionError, match=message) as error:
        synthesise_soundscape(tmp_path / "site", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "site").exists()


def test_the_command_makes_the_same_bytes_with_another_number_of_threads(
    folder, tmp_path, capsys
):
    options = ["--recordings", 2, "--minutes", 2, "--calls-per-hour", 240]
    options += ["--snr-db", "0,10", "--examples", 2, "--rate-hz", RATE_HZ, "--seed", 3]
    run("synth", tmp_path / "site", "--soundscape", "--threads", 1, *options)
    assert digests(tmp_path / "site") == digests(folder)
    assert re.search("2 recordings, 16 calls, 0.1 hours in", capsys.readouterr().out)
