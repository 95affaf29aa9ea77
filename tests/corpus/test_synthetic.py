"""The synthetic corpus: the same bytes for a seed, the counts of the paper, realistic calls."""

import hashlib
import re
import shutil
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from callshot.corpus.synthetic import (
    COUNTS,
    RARE,
    CorpusSummary,
    RecordingPlan,
    make_corpus,
    make_recording,
    plan_corpus,
)
from callshot.corpus.synthetic.call_synthesis import (
    CALL_TYPES,
    CHORUS,
    Caller,
    draw_caller,
    stream,
    synthesise_call,
)
from callshot.corpus.synthetic.corpus import FOLDERS, NOTES
from callshot.corpus.synthetic.soundscape import draw_soundscape, mix_soundscape
from callshot.errors import OptionError, OutputError
from rows_of_spans import list_rows

RATE_HZ = 8000
RUMBLES = [name for name in CALL_TYPES if name.endswith("rumble")]
Span = tuple[float, float, str]


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, CorpusSummary, list[RecordingPlan]]:
    folder = tmp_path_factory.mktemp("corpus")
    return (
        folder,
        make_corpus(folder, seed=5, scale=0.1, rate_hz=RATE_HZ, threads=2),
        plan_corpus(5, 0.1),
    )


@pytest.fixture(scope="module")
def small_corpus(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, list[tuple[float, str]]]:
    """A corpus of seed 0, and the progress of making it."""
    folder = tmp_path_factory.mktemp("small")
    shares: list[tuple[float, str]] = []
    make_corpus(
        folder,
        scale=0.1,
        rate_hz=4000,
        progress=lambda share, task: shares.append((share, task)),
    )
    return folder, shares


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in files
    }


def length_s(call: Span) -> float:
    return call[1] - call[0]


def spans(plan: RecordingPlan) -> list[Span]:
    return [(call.start_s, call.end_s, call.label) for call in list_rows(plan.calls)]


def first_channel(folder: Path, plan: RecordingPlan) -> np.ndarray:
    audio, _ = soundfile.read(
        folder / "recordings" / f"{plan.name}.flac", always_2d=True
    )
    return np.asarray(audio[:, 0])


def raven_spans(path: Path) -> list[Span]:
    """Read a Raven table by its definition: one selection may have a row for each view."""
    header, *rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
    selections = {}
    for row in rows:
        cell = dict(zip(header, row, strict=True))
        span = (
            float(cell["Begin Time (s)"]),
            float(cell["End Time (s)"]),
            cell["Annotation"],
        )
        assert selections.setdefault(cell["Selection"], span) == span
        assert (
            0
            < float(cell["Low Freq (Hz)"])
            < float(cell["High Freq (Hz)"])
            <= RATE_HZ / 2
        )
    return list(selections.values())


def grid_tiers(path: Path) -> dict[str, list[Span]]:
    """Read the intervals of each tier of a long TextGrid, empty ones too."""
    data = path.read_bytes()
    text = data.decode("utf-16" if data[:2] == b"\xfe\xff" else "utf-8")
    interval = (
        r'intervals \[\d+\]:\s+xmin = (\S+)\s+xmax = (\S+)\s+text = "((?:[^"]|"")*)"'
    )
    tiers = {}
    for part in text.split("class = ")[2:]:  # the first is the class of the object
        name = re.search(r'name = "(.*)"', part)
        assert name is not None
        intervals = re.findall(interval, part)
        assert f"intervals: size = {len(intervals)}\n" in part
        tiers[name[1]] = [
            (float(low), float(high), words.replace('""', '"'))
            for low, high, words in intervals
        ]
    return tiers


def test_the_same_seed_gives_the_same_bytes_with_any_number_of_threads(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]], tmp_path: Path
) -> None:
    make_corpus(tmp_path, seed=5, scale=0.1, rate_hz=RATE_HZ, threads=1)
    assert digests(tmp_path) == digests(corpus[0])


def test_another_seed_gives_other_bytes(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    _, _, plans = corpus
    assert plan_corpus(6, 0.1) != plans
    audio = [make_recording(plans[0], seed=seed, rate_hz=4000) for seed in (5, 6)]
    assert not np.array_equal(*audio)


def test_a_recording_made_alone_equals_that_of_the_corpus(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    folder, _, plans = corpus
    for plan in plans[2:4]:
        written, rate_hz = soundfile.read(
            folder / "recordings" / f"{plan.name}.flac", dtype="int16", always_2d=True
        )
        assert rate_hz == RATE_HZ
        assert np.array_equal(written, make_recording(plan, seed=5, rate_hz=RATE_HZ))


def test_streams_of_different_keys_differ() -> None:
    keys = [
        (0, "voice", 0, 1),
        (0, "voice", 1, 0),
        (0, "voice", 1),
        (1, "voice", 0, 1),
        (0, "scene", 0, 1),
    ]
    assert len({stream(*key).random() for key in keys}) == len(keys)


def test_the_counts_at_scale_one_are_those_of_the_paper() -> None:
    calls = [span for plan in plan_corpus() for span in spans(plan)]
    assert Counter(call[2] for call in calls if length_s(call) >= 1) == COUNTS | RARE
    assert sum(COUNTS.values()) == 258
    short = [call for call in calls if length_s(call) < 1]
    assert len(short) == 26
    assert {call[2] for call in short} <= set(COUNTS)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.floats(0.01, 2))
def test_every_plan_has_enough_recordings_calls_and_room(
    seed: int, scale: float
) -> None:
    plans = plan_corpus(seed, scale)
    recordings = defaultdict(set)
    for plan in plans:
        assert 3 <= len(plan.calls) <= 12
        assert plan.calls["start_s"] == sorted(plan.calls["start_s"])
        for call in list_rows(plan.calls):
            assert 0 < call.start_s < call.end_s < plan.duration_s
            if call.end_s - call.start_s >= 1:
                recordings[call.label].add(plan.name)
    assert len({plan.name for plan in plans}) == len(plans)
    assert all(len(recordings[label]) >= 5 for label in COUNTS)
    assert all(len(recordings[label]) < 5 for label in RARE)
    calls = Counter(
        span[2] for plan in plans for span in spans(plan) if length_s(span) >= 1
    )
    assert (
        calls
        == {label: max(5, round(scale * count)) for label, count in COUNTS.items()}
        | RARE
    )


def test_one_rare_type_is_alone_in_its_recording() -> None:
    alone = [
        {call.label for call in list_rows(plan.calls)}
        for plan in plan_corpus()
        if {c.label for c in list_rows(plan.calls)} <= set(RARE)
    ]
    assert alone == [{"baroo rumble"}]
    assert (
        sum(
            "baroo rumble" in {call.label for call in list_rows(plan.calls)}
            for plan in plan_corpus()
        )
        == 1
    )


def test_about_eight_in_a_hundred_calls_overlap_another_and_never_three_at_once() -> (
    None
):
    overlapping = total = 0
    for plan in plan_corpus(scale=4):
        calls = list_rows(plan.calls)
        for call in calls:
            others = [
                c
                for c in calls
                if c is not call and c.start_s < call.end_s and call.start_s < c.end_s
            ]
            assert len(others) <= 1
            overlapping += len(others)
            total += 1
    assert 0.07 <= overlapping / total <= 0.09


def test_both_annotation_formats_have_the_calls_of_the_plan(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    folder, _, plans = corpus
    for plan in plans:
        assert raven_spans(
            folder / "raven" / f"{plan.name}.Table.1.selections.txt"
        ) == spans(plan)
        tiers = grid_tiers(folder / "textgrid" / f"{plan.name}.TextGrid")
        calls = [
            span for name in tiers if name != "notes" for span in tiers[name] if span[2]
        ]
        assert sorted(calls) == sorted(spans(plan))


def test_the_intervals_of_a_tier_fill_the_recording_and_notes_have_their_own_tier(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    folder, _, plans = corpus
    names = Counter[str]()
    notes = Counter[str]()
    for plan in plans:
        tiers = grid_tiers(folder / "textgrid" / f"{plan.name}.TextGrid")
        names.update(list(tiers))
        notes.update(text for _, _, text in tiers["notes"] if text)
        for intervals in tiers.values():
            assert [low for low, _, _ in intervals] == [
                0.0,
                *(high for _, high, _ in intervals[:-1]),
            ]
            assert intervals[-1][1] == plan.duration_s
            assert all(low < high for low, high, _ in intervals)
    assert names["call"] == names["notes"] == len(plans)
    assert 0 < names["call 2"] < len(plans)
    assert notes
    assert set(notes) <= set(NOTES)


@pytest.mark.filterwarnings("ignore::Warning")  # its own, about the pandas that it uses
def test_crowsetta_reads_both_annotation_formats(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    formats = pytest.importorskip("crowsetta").formats
    folder, _, plans = corpus
    for plan in plans[:3]:
        table = formats.by_name("raven").from_file(
            folder / "raven" / f"{plan.name}.Table.1.selections.txt",
            annot_col="Annotation",
        )
        boxes = {(box.onset, box.offset, box.label) for box in table.to_bbox()}
        assert boxes == set(spans(plan))
        grid = formats.by_name("textgrid").from_file(
            folder / "textgrid" / f"{plan.name}.TextGrid"
        )
        read = [
            (s.onset_s, s.offset_s, s.label)
            for seq in grid.to_seq(round_times=False)
            for s in seq.segments
        ]
        assert set(spans(plan)) <= set(read)


def test_some_tables_have_two_views_and_some_grids_are_utf_16(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    folder, _, plans = corpus
    tables = [path.read_text() for path in (folder / "raven").iterdir()]
    assert 0 < sum("Waveform 1" in text for text in tables) < len(plans)
    grids = [path.read_bytes()[:2] for path in (folder / "textgrid").iterdir()]
    assert 0 < grids.count(b"\xfe\xff") < len(plans)


def test_audio_is_as_long_as_planned_and_neither_clipped_nor_silent(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    folder, summary, plans = corpus
    channels = Counter[int]()
    for plan in plans:
        audio, _ = soundfile.read(
            folder / "recordings" / f"{plan.name}.flac", dtype="float32", always_2d=True
        )
        assert audio.shape == (round(plan.duration_s * RATE_HZ), plan.channels)
        assert 0.25 < np.abs(audio[:, 0]).max() < 0.95
        channels[plan.channels] += 1
    assert set(channels) == {1, 2}
    assert (
        soundfile.info(folder / "recordings" / f"{plans[0].name}.flac").subtype
        == "PCM_16"
    )
    assert summary.recordings == len(plans)
    assert summary.calls == sum(len(plan.calls) for plan in plans)
    assert summary.duration_s == pytest.approx(sum(plan.duration_s for plan in plans))
    for name in FOLDERS:
        assert len(list((folder / name).iterdir())) == len(plans)


def test_the_second_channel_is_a_weaker_later_copy(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    plan = next(plan for plan in corpus[2] if plan.channels == 2)
    path = corpus[0] / "recordings" / f"{plan.name}.flac"
    audio, _ = soundfile.read(path, frames=20 * RATE_HZ)
    first, second = np.ascontiguousarray(audio.T)
    products = [
        first[: first.size - lag] @ second[lag:] for lag in range(int(0.02 * RATE_HZ))
    ]
    lag = int(np.argmax(products))
    assert 0.002 <= lag / RATE_HZ <= 0.0151
    assert 0.2 <= products[lag] / (first @ first) <= 0.61


def test_calls_are_louder_than_the_rest_of_their_recording(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    """In the band of the calls, on the whole: some are faint, as some are in the field."""
    ratios = []
    for plan in corpus[2]:
        audio = first_channel(corpus[0], plan)
        busy = np.zeros(audio.size, bool)
        for call in list_rows(plan.calls):
            busy[round(call.start_s * RATE_HZ) : round((call.end_s + 1) * RATE_HZ)] = (
                True
            )
        ratios.append(
            10 * np.log10((audio[busy] ** 2).mean() / (audio[~busy] ** 2).mean())
        )
    assert 3 < np.median(ratios) < 30


def fundamental_hz(call: np.ndarray, rate_hz: int) -> float:
    """Return the median over half-second windows of the first high autocorrelation peak."""
    estimates = []
    size = rate_hz // 2
    shortest = rate_hz // 45
    longest = rate_hz // 8
    for begin in range(0, call.size - size, size // 2):
        spectrum = np.abs(
            np.fft.rfft(call[begin : begin + size] * np.hanning(size), 8 * size)
        )
        echo = np.fft.irfft(spectrum)[shortest:longest]
        peaks = 1 + np.flatnonzero((echo[1:-1] >= echo[:-2]) & (echo[1:-1] >= echo[2:]))
        if peaks.size > 0:
            estimates.append(
                rate_hz
                / (shortest + peaks[np.argmax(echo[peaks] > 0.7 * echo[peaks].max())])
            )
    return float(np.median(estimates))


@pytest.mark.parametrize("label", RUMBLES)
def test_the_fundamental_of_a_rumble_lies_in_the_range_of_its_type(label: str) -> None:
    """The sweep moves the median, and breath and pulses can hide it: most calls must be right."""
    low_hz, high_hz = CALL_TYPES[label].f0_hz
    margin = 0.03 + CALL_TYPES[label].sweep
    random = default_rng(7)
    callers = [Caller(pitch) for pitch in (0.8, 1.0, 1.2)] * 4
    calls = [
        synthesise_call(label, [caller], 3.0, 4000, random).astype(float)
        for caller in callers
    ]
    measured = [fundamental_hz(call, 4000) for call in calls]
    hits = [
        low_hz * (1 - margin) <= f0_hz <= high_hz * (1 + margin) for f0_hz in measured
    ]
    assert np.mean(hits) >= (
        0.5 if label in ("grumbling rumble", "musth rumble") else 0.9
    ), measured


@pytest.mark.parametrize("label", [*COUNTS, *RARE])
@pytest.mark.parametrize("duration_s", [0.35, 3.0])
def test_a_call_is_finite_has_unit_power_and_begins_and_ends_in_silence(
    label: str, duration_s: float
) -> None:
    random = default_rng(3)
    call = synthesise_call(
        label, [draw_caller(random) for _ in range(2)], duration_s, 16000, random
    )
    assert call.dtype == np.float32
    assert call.size == round(duration_s * 16000)
    assert np.isfinite(call).all()
    assert (call.astype(float) ** 2).mean() == pytest.approx(1, rel=1e-3)
    assert abs(call[0]) < 1e-3
    assert abs(call[-1]) < 1e-3


def test_rumbles_are_lower_than_roars_and_roars_lower_than_trumpets() -> None:
    def centre_hz(label: str) -> float:
        calls = [
            synthesise_call(label, [Caller()], 2.0, 16000, default_rng(i))
            for i in range(6)
        ]
        power = np.mean([np.abs(np.fft.rfft(call)) ** 2 for call in calls], axis=0)
        return float((np.fft.rfftfreq(32000, 1 / 16000) * power).sum() / power.sum())

    assert (
        np.mean([*map(centre_hz, RUMBLES)])
        < centre_hz("conflict roar")
        < centre_hz("trumpet blast")
    )


def test_a_pulsated_trumpet_pulses_five_to_twelve_times_a_second() -> None:
    for number in range(5):
        call = synthesise_call(
            "pulsated play trumpet", [Caller()], 3.0, 16000, default_rng(number)
        ).astype(float)
        loudness = (call**2).reshape(-1, 160).mean(axis=1)
        strength = np.abs(np.fft.rfft(loudness - loudness.mean(), 4000))
        assert 4.5 <= np.argmax(strength[60:]) * 0.025 + 1.5 <= 12.5


def test_a_distant_call_is_duller_and_more_reverberant() -> None:
    def distant_click(distance_m: float) -> np.ndarray:
        soundscape = draw_soundscape(default_rng(0))
        quiet = dict.fromkeys(("wind_db", "floor_db", "insects_db"), -200.0)
        fields = {
            name: getattr(soundscape, name) for name in soundscape.__slots__
        } | quiet
        far = type(soundscape)(
            **fields
            | {"distance_m": distance_m, "birds_per_s": 0.0, "reverberation_s": 0.5}
        )
        click = np.zeros(RATE_HZ, np.float32)
        click[800] = 1
        return mix_soundscape(click, far, RATE_HZ, default_rng(1)).astype(float)

    def treble(samples: np.ndarray) -> float:
        power = np.abs(np.fft.rfft(samples)) ** 2
        return float(power[2000:].sum() / power[:1000].sum())

    def tail(samples: np.ndarray) -> float:
        return float((samples[1200:] ** 2).sum() / (samples**2).sum())

    near = distant_click(10)
    far = distant_click(100)
    assert treble(far) < 0.7 * treble(near)
    assert tail(far) > 2 * tail(near)


def test_call_types_are_learnable_but_not_trivial(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    """A nearest centroid of band levels, tested on other recordings, is better than chance."""
    rows = []
    labels = []
    groups = []
    for plan in corpus[2]:
        audio = first_channel(corpus[0], plan)
        for call in list_rows(plan.calls):
            cut = audio[round(call.start_s * RATE_HZ) : round(call.end_s * RATE_HZ)]
            power = np.abs(np.fft.rfft(cut, 8 * RATE_HZ)) ** 2
            bands = np.add.reduceat(power, np.geomspace(80, 30000, 25).astype(int))
            rows.append(np.log(bands / bands.sum()))
            labels.append(call.label)
            groups.append(plan.number)
    table = np.array(rows)
    label = np.array(labels)
    group = np.array(groups)
    hits = []
    for row in np.flatnonzero(np.isin(label, list(COUNTS))):
        others = group != group[row]
        means = {name: table[others & (label == name)].mean(axis=0) for name in COUNTS}
        hits.append(
            min(means, key=lambda name: np.linalg.norm(table[row] - means[name]))
            == label[row]
        )
    assert 1.8 / 12 < np.mean(hits) < 0.8


def test_the_readme_has_the_options_and_the_command_to_segment_it(
    corpus: tuple[Path, CorpusSummary, list[RecordingPlan]],
) -> None:
    text = (corpus[0] / "README.md").read_text()
    assert "seed 5, scale 0.1, at 8000 Hz" in text
    assert (
        "callshot segment FOLDER/recordings --annotations FOLDER/raven --out SEGMENTS"
        in text
    )


def test_progress_adds_up_to_one_and_names_the_recordings(
    small_corpus: tuple[Path, list[tuple[float, str]]],
) -> None:
    _, shares = small_corpus
    assert sum(share for share, _ in shares) == pytest.approx(1)
    assert [task for _, task in shares] == [plan.name for plan in plan_corpus(0, 0.1)]


def test_an_interruption_leaves_no_unfinished_files(tmp_path: Path) -> None:
    def interrupt(share: float, task: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_corpus(tmp_path, scale=1, rate_hz=4000, threads=1, progress=interrupt)
    assert len(list((tmp_path / "recordings").iterdir())) <= 5
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(OutputError, match=r"taken: cannot be used \(Not a directory\)"):
        make_corpus(tmp_path / "taken", scale=0.1)


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_no_unfinished_files(
    small_corpus: tuple[Path, list[tuple[float, str]]], tmp_path: Path
) -> None:
    name = plan_corpus(0, 0.1)[0].name
    shutil.copytree(small_corpus[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "recordings" / f"{name}.flac").unlink()
    (tmp_path / "recordings" / f"{name}.flac").mkdir()
    with pytest.raises(
        OutputError, match=rf"{name}\.flac: cannot be written \(Is a directory\)"
    ):
        make_corpus(tmp_path, scale=0.1, rate_hz=4000, threads=1)
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_with_other_files_is_an_error_and_the_same_corpus_is_written_again(
    small_corpus: tuple[Path, list[tuple[float, str]]], tmp_path: Path
) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(small_corpus[0], folder)
    before = digests(folder)
    make_corpus(folder, scale=0.1, rate_hz=4000)
    assert digests(folder) == before
    with pytest.raises(
        OutputError, match="the folder has other files; give a new folder"
    ):
        make_corpus(folder, scale=0.1, rate_hz=4000, seed=1)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="the folder has other files"):
        make_corpus(tmp_path, scale=0.1, rate_hz=4000)


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
    tmp_path: Path, options: dict[str, float], match: str
) -> None:
    with pytest.raises(OptionError, match=match):
        make_corpus(tmp_path / "corpus", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "corpus").exists()


def test_a_chorus_is_never_silent() -> None:
    for number in range(5):
        random = default_rng(number)
        call = synthesise_call(CHORUS, [draw_caller(random)], 6.0, 8000, random).astype(
            float
        )
        assert (call**2).reshape(12, -1).mean(axis=1).min() > 1e-3
