"""The synthetic corpus: the same bytes for a seed, the counts of the paper, realistic calls."""

import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from callshot.corpus.annotations import AnnotationOptions, read_annotations
from callshot.corpus.synthetic import COUNTS, RARE, make_corpus, plan_corpus
from callshot.corpus.synthetic.corpus import FOLDERS
from callshot.corpus.synthetic.sounds import draw_caller, synthesise_call
from callshot.errors import OptionError, OutputError
from callshot.files import sha256_file
from rows_of_spans import list_rows

RATE_HZ = 4000
CALL_RATE_HZ = 8000
SMALL = {"seed": 5, "scale": 0.1, "rate_hz": RATE_HZ}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    shares: list[float] = []
    summary = make_corpus(
        folder, **SMALL, threads=2, progress=lambda share, task: shares.append(share)
    )
    assert sum(shares) == pytest.approx(1)
    return folder, summary, plan_corpus(5, 0.1)


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): sha256_file(path)
        for path in folder.rglob("*")
        if path.is_file()
    }


def spans(plan):
    return [(call.start_s, call.end_s, call.label) for call in list_rows(plan.calls)]


def first_channel(folder, plan):
    audio, _ = soundfile.read(
        folder / "recordings" / f"{plan.name}.flac", always_2d=True
    )
    return np.asarray(audio[:, 0])


def test_the_same_seed_gives_the_same_bytes_in_one_thread_over_an_earlier_corpus(
    corpus, tmp_path
):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus[0], folder)
    for path in (folder / "recordings").iterdir():
        path.write_bytes(b"of an earlier version")
    make_corpus(folder, **SMALL, threads=1)
    assert digests(folder) == digests(corpus[0])
    message = "the folder has other files; give a new folder"
    with pytest.raises(OutputError, match=message):
        make_corpus(folder, **SMALL | {"seed": 1})
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=message):
        make_corpus(tmp_path, **SMALL)


def test_the_counts_at_scale_one_are_those_of_the_paper():
    calls = [span for plan in plan_corpus() for span in spans(plan)]
    long = Counter(label for start_s, end_s, label in calls if end_s - start_s >= 1)
    assert long == COUNTS | RARE
    assert sum(COUNTS.values()) == 258
    short = [label for start_s, end_s, label in calls if end_s - start_s < 1]
    assert len(short) == 26
    assert set(short) <= set(COUNTS)


@settings(max_examples=10)
@given(st.integers(0, 2**40), st.floats(0.01, 2))
def test_every_plan_has_enough_recordings_calls_and_room(seed, scale):
    plans = plan_corpus(seed, scale)
    recordings = defaultdict(list)
    for plan in plans:
        assert 3 <= len(plan.calls) <= 12
        assert plan.calls["start_s"] == sorted(plan.calls["start_s"])
        for start_s, end_s, label in spans(plan):
            assert 0 < start_s < end_s < plan.duration_s
            if end_s - start_s >= 1:
                recordings[label].append(plan.name)
    assert len({plan.name for plan in plans}) == len(plans)
    for label, count in COUNTS.items():
        assert len(set(recordings[label])) >= 5
        assert len(recordings[label]) == max(5, round(scale * count))
    for label, count in RARE.items():
        assert len(set(recordings[label])) < 5
        assert len(recordings[label]) == count


def test_about_eight_in_a_hundred_calls_overlap_another_never_three_at_once():
    counts = []
    for plan in plan_corpus(scale=4):
        calls = spans(plan)
        for call in calls:
            others = [one for one in calls if one[0] < call[1] and call[0] < one[1]]
            counts.append(len(others) - 1)  # without itself
    assert set(counts) == {0, 1}
    assert 0.07 <= np.mean(counts) <= 0.09


def test_both_annotation_formats_have_the_calls_of_the_plan(corpus):
    folder, _, plans = corpus
    for plan in plans:
        files = (
            f"raven/{plan.name}.Table.1.selections.txt",
            f"textgrid/{plan.name}.TextGrid",
        )
        for name in files:
            file = read_annotations(folder / name)
            assert not file.rejects
            found = [(row["start_s"], row["end_s"], row["label"]) for row in file.rows]
            assert sorted(found) == sorted(spans(plan))
            for row in file.rows if "raven" in name else []:
                assert 0 < row["low_freq_hz"] < row["high_freq_hz"] <= RATE_HZ / 2


def test_spoken_notes_are_no_calls_and_each_is_in_its_half_of_the_recording(corpus):
    folder, _, plans = corpus
    options = AnnotationOptions(tiers=("notes",))
    most = 0
    for plan in plans:
        path = folder / f"textgrid/{plan.name}.TextGrid"
        file = read_annotations(path, options=options)
        halves = []
        for row in file.rows:
            half = int(row["start_s"] // (plan.duration_s / 2))
            assert row["end_s"] <= (half + 1) * plan.duration_s / 2
            assert row["label"] not in COUNTS | RARE
            halves.append(half)
        assert halves == [0, 1][: len(halves)]
        most = max(most, len(halves))
    assert most == 2


def test_audio_is_as_long_as_planned_and_neither_clipped_nor_silent(corpus):
    folder, summary, plans = corpus
    for plan in plans:
        path = folder / "recordings" / f"{plan.name}.flac"
        assert soundfile.info(path).subtype == "PCM_16"
        audio, _ = soundfile.read(path, dtype="float32", always_2d=True)
        assert audio.shape == (round(plan.duration_s * RATE_HZ), plan.channels)
        assert 0.25 < np.abs(audio[:, 0]).max() < 0.95
    assert {plan.channels for plan in plans} == {1, 2}
    assert summary.recordings == len(plans)
    assert summary.calls == sum(len(plan.calls) for plan in plans)
    assert summary.duration_s == pytest.approx(sum(plan.duration_s for plan in plans))
    for name in FOLDERS:
        assert len(list((folder / name).iterdir())) == len(plans)


# Of two callers drawn from seed 3: the centre of the spectrum, in Hz, and how much the
# level of twentieths of the call varies.
CALLS_OF_SEED_3 = {
    "comment rumble": (167.34, 0.6169),
    "oestrous rumble": (271.06, 0.5950),
    "greeting rumble": (278.60, 0.5185),
    "female chorus": (133.54, 0.7341),
    "conflict roar": (596.45, 0.5412),
    "trumpet blast": (1840.22, 0.3397),
    "grumbling rumble": (234.07, 0.3993),
    "pulsated play trumpet": (1937.41, 0.3274),
    "separated rumble": (451.06, 0.4825),
    "lets-go rumble": (301.28, 1.0539),
    "musth rumble": (103.38, 0.6694),
    "begging rumble": (459.08, 0.4796),
    "cow-calf rumble": (188.51, 0.5959),
    "nasal trumpet": (1139.83, 0.4185),
    "baroo rumble": (512.46, 0.5112),
}


def test_the_calls_of_a_seed_keep_their_spectrum_and_have_unit_power():
    frequency_hz = np.fft.rfftfreq(24000, 1 / CALL_RATE_HZ)
    for label, expected in CALLS_OF_SEED_3.items():
        random = default_rng(3)
        callers = [draw_caller(random) for _ in range(2)]
        call = synthesise_call(label, callers, 3.0, CALL_RATE_HZ, random)
        assert (call.dtype, call.size) == (np.float32, 24000)
        assert np.abs(call[[0, -1]]).max() < 1e-3
        level = (call.astype(float) ** 2).reshape(20, -1).mean(axis=1)
        assert level.mean() == pytest.approx(1, rel=1e-3)
        power = np.abs(np.fft.rfft(call)) ** 2
        centre_hz = (frequency_hz * power).sum() / power.sum()
        assert (centre_hz, level.std()) == pytest.approx(expected, rel=1e-3), label


def test_the_recordings_of_a_seed_keep_their_levels(corpus):
    """Wind, insects, birds, distance and reverberation: the levels of bands, in dB."""
    folder, _, plans = corpus
    samples = first_channel(folder, plans[0])
    power = np.abs(np.fft.rfft(samples)) ** 2 * 2 / samples.size**2
    frequency_hz = np.fft.rfftfreq(samples.size, 1 / RATE_HZ)
    edges = np.searchsorted(frequency_hz, [20, 100, 400, 1600, 2000])
    levels_db = 10 * np.log10(np.add.reduceat(power[: edges[-1]], edges[:-1]))
    assert levels_db == pytest.approx([-35.10, -33.56, -39.46, -49.24], abs=0.02)
    two = next(plan for plan in plans if plan.channels == 2)
    path = folder / "recordings" / f"{two.name}.flac"
    first, second = soundfile.read(path)[0].T
    assert 0.2 < second.std() / first.std() < 0.7


def test_an_interruption_leaves_no_unfinished_files(tmp_path):
    def interrupt(share, task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_corpus(tmp_path, scale=1, rate_hz=4000, threads=1, progress=interrupt)
    assert len(list((tmp_path / "recordings").iterdir())) <= 5
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"scale": 0.0}, "scale: expected more than 0 and at most 100, got 0.0"),
        ({"scale": float("nan")}, "scale: .* got nan"),
        ({"scale": 1e9}, "scale: "),
        ({"seed": -1}, "seed: expected 0 or more, got -1"),
        ({"rate_hz": 100}, "rate_hz: expected 4000 to 192000 Hz, got 100"),
        ({"threads": 0}, "threads: expected 1 or more, got 0"),
    ],
)
def test_options_out_of_range_are_errors_before_anything_is_written(
    tmp_path, options, match
):
    with pytest.raises(OptionError, match=match):
        make_corpus(tmp_path / "corpus", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "corpus").exists()
