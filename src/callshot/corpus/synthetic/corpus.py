"""A synthetic corpus in a folder: a seed, a scale and a rate → recordings, annotations, README."""

import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.synthetic.plan import RATES_HZ, plan_corpus
from callshot.corpus.synthetic.sounds import (
    CALL_TYPES,
    Caller,
    RecordingPlan,
    Samples,
    draw_band_hz,
    draw_caller,
    draw_soundscape,
    mix_soundscape,
    stream,
    synthesise_call,
)
from callshot.errors import OutputError, check_range
from callshot.files import error_reason, make_folder, write_atomic
from callshot.jobs import Pool
from callshot.records import Progress, no_progress
from callshot.storage import check_no_url

Pcm = NDArray[np.int16]
Interval = tuple[float, float, str]

FOLDERS = ("recordings", "raven", "textgrid")
LEVEL_SPREAD_DB = 2.5  # standard deviation of the level of calls of one type
NOTES = (
    "wind is picking up",
    "two cows and a calf, forty metres",
    'matriarch looks up, "listening"',
    "out of sight now, calls go on",
    "car on the road, engine off",
    "family moves to the water",
)
README = """# A synthetic corpus of elephant-like calls

Made by callshot with seed {seed}, scale {scale}, at {rate_hz} Hz:
{recordings} recordings, {calls} calls, {minutes:.0f} min.
No elephant was recorded: every call is synthesised. The corpus is for learning and testing
callshot; results on it say nothing about elephants.

    recordings/   FLAC, 16 bit, some with two channels (the second is a weaker, later copy)
    raven/        the calls as Raven selection tables, some with two views of each selection
    textgrid/     the same calls as Praat TextGrids: tiers `call` and, if calls overlap, `call 2`;
                  the tier `notes` holds spoken notes, which are not calls

Segment it with

    callshot segment FOLDER/recordings --annotations FOLDER/raven --out SEGMENTS

where FOLDER is the folder of this file. The same seed, scale and rate give the same files again.
"""
RAVEN_HEADER = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)"
    "\tLow Freq (Hz)\tHigh Freq (Hz)\tAnnotation\n"
)
TEXTGRID_HEADER = """File type = "ooTextFile"
Object class = "TextGrid"

xmin = 0
xmax = {duration_s!r}
tiers? <exists>
size = {tiers}
item []:
"""
TIER_HEADER = """    item [{number}]:
        class = "IntervalTier"
        name = "{name}"
        xmin = 0
        xmax = {duration_s!r}
        intervals: size = {intervals}
"""
TIER_INTERVAL = """        intervals [{number}]:
            xmin = {start_s!r}
            xmax = {end_s!r}
            text = "{text}"
"""


@dataclass(frozen=True, slots=True)
class CorpusSummary:
    """What a synthetic corpus or site holds; a site also has clips of examples."""

    recordings: int
    calls: int
    duration_s: float
    clips: int = 0


def make_corpus(
    folder: Path,
    *,
    seed: int = 0,
    scale: float = 1.0,
    rate_hz: int = 16000,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> CorpusSummary:
    """Write a corpus: the same seed, scale and rate give the same bytes with any number of threads.

    `scale` multiplies the paper's counts of calls, but each of the 12 types has at least five calls
    in five recordings, and rare types stay rare. The folder must be new, empty, or hold the same
    corpus, which is then written again.
    """
    check_range("rate_hz", rate_hz, *RATES_HZ, "Hz")
    if threads is not None:
        check_range("threads", threads, 1)
    folder = Path(folder)
    plans = plan_corpus(seed, scale)
    summary = CorpusSummary(
        recordings=len(plans),
        calls=sum(len(plan.calls) for plan in plans),
        duration_s=sum(plan.duration_s for plan in plans),
    )
    readme = README.format(
        seed=seed,
        scale=float(scale),
        rate_hz=rate_hz,
        minutes=summary.duration_s / 60,
        recordings=summary.recordings,
        calls=summary.calls,
    )
    prepare_folder(folder, readme, FOLDERS)

    def make_files(plan: RecordingPlan) -> dict[str, bytes]:
        """Return the content of a recording and of its annotations, by file name."""
        audio = io.BytesIO()
        samples = make_recording(plan, seed=seed, rate_hz=rate_hz)
        soundfile.write(audio, samples, rate_hz, "PCM_16", format="FLAC")
        textgrid = make_textgrid(plan, seed)
        content = textgrid.encode()
        if plan.number % 4 == 3:
            # Praat writes UTF-16 if a text is not ASCII; every fourth file stands for those.
            content = b"\xfe\xff" + textgrid.encode("utf-16-be")
        table = make_raven_table(plan, seed, rate_hz).encode()
        return {
            f"recordings/{plan.name}.flac": audio.getvalue(),
            f"raven/{plan.name}.Table.1.selections.txt": table,
            f"textgrid/{plan.name}.TextGrid": content,
        }

    with Pool(threads) as pool:
        for plan, files in zip(plans, pool.map(make_files, plans), strict=True):
            for name, content in files.items():
                write_atomic(folder / name, content)
            progress(1 / len(plans), plan.name)
    return summary


def prepare_folder(folder: Path, readme: str, names: Iterable[str]) -> None:
    """Make folders and the README; OutputError unless empty or of the same corpus."""
    check_no_url(folder)
    path = folder / "README.md"
    try:
        is_used = folder.is_dir() and any(folder.iterdir())
        is_same = path.is_file() and path.read_bytes() == readme.encode()
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be used ({error_reason(error)})"
        ) from error
    if is_used and not is_same:
        raise OutputError(f"{folder}: the folder has other files; give a new folder")
    for name in names:
        make_folder(folder / name)
    write_atomic(path, readme)


def make_recording(plan: RecordingPlan, *, seed: int = 0, rate_hz: int = 16000) -> Pcm:
    """Synthesise a recording as 16 bit samples, (frames, channels)."""
    random = stream(seed, "scene", plan.number)
    soundscape = draw_soundscape(random)
    caller_count = random.integers(1, 4)
    callers = [draw_caller(random) for _ in range(caller_count)]
    choirs = {}  # by label: all callers, the usual caller of such calls first
    for label in sorted(set(plan.calls["label"])):
        usual = random.integers(len(callers))
        choirs[label] = callers[usual:] + callers[:usual]
    calls = _make_calls(plan, choirs, seed, rate_hz)
    mixture = mix_soundscape(calls, soundscape, rate_hz, random)
    first_channel = to_pcm(mixture)
    # A weaker copy, 2 to 15 ms later: a second microphone some steps away.
    delay_s = random.uniform(0.002, 0.015)
    delay = round(delay_s * rate_hz)
    second_channel = np.zeros_like(first_channel)
    second_gain = random.uniform(0.2, 0.6)
    earlier = first_channel[: mixture.size - delay]
    second_channel[delay:] = np.round(second_gain * earlier)
    channels = [first_channel, second_channel]
    return np.stack(channels[: plan.channels], axis=1)


def _make_calls(
    plan: RecordingPlan, choirs: Mapping[str, list[Caller]], seed: int, rate_hz: int
) -> Samples:
    """Make all calls of a recording, at their times and levels and without any noise.

    `choirs` has the callers of each label; calls but for choruses are by the first one.
    """
    size = round(plan.duration_s * rate_hz)
    calls = np.zeros(size, np.float32)
    for number, call in enumerate(plan.calls.rows()):
        random = stream(seed, "voice", plan.number, number)
        label = call["label"]
        deviation_db = LEVEL_SPREAD_DB * random.standard_normal()
        gain_db = CALL_TYPES[label]["level_db"] + deviation_db
        start_s = call["start_s"]
        length_s = call["end_s"] - start_s
        dry = synthesise_call(label, choirs[label], length_s, rate_hz, random)
        gain = 10 ** (gain_db / 20)
        first = round(start_s * rate_hz)
        end = first + dry.size
        calls[first:end] += gain * dry
    return calls


def to_pcm(samples: Samples) -> Pcm:
    """Return samples as 16 bit, clipped as a recorder clips them."""
    scaled = np.round(samples * np.float32(32767))
    return scaled.clip(-32768, 32767).astype(np.int16)


def make_raven_table(plan: RecordingPlan, seed: int, rate_hz: int) -> str:
    """Return the calls as a Raven selection table; every second table has two views of a call."""
    views = ["Spectrogram 1"]
    if plan.number % 2 == 1:
        views.insert(0, "Waveform 1")
    text = RAVEN_HEADER
    for number, call in enumerate(plan.calls.rows()):
        random = stream(seed, "band", plan.number, number)
        low_hz, high_hz = draw_band_hz(call["label"], random)
        high_hz = min(high_hz, rate_hz / 2)
        times = f"{call['start_s']:.9f}\t{call['end_s']:.9f}"
        band = f"{low_hz:.3f}\t{high_hz:.3f}"
        selection = number + 1
        label = call["label"]
        for view in views:
            text += f"{selection}\t{view}\t1\t{times}\t{band}\t{label}\n"
    return text


def make_textgrid(plan: RecordingPlan, seed: int) -> str:
    """Return calls and spoken notes as a long TextGrid; overlapping calls are on `call 2`."""
    first_tier = []
    second_tier = []
    free_s = 0.0  # the first tier is free from here on
    for call in plan.calls.rows():  # at most two overlap
        interval = (call["start_s"], call["end_s"], call["label"])
        if call["start_s"] < free_s:
            second_tier.append(interval)
        else:
            first_tier.append(interval)
            free_s = call["end_s"]
    # Up to two spoken notes, each in its half of the recording.
    random = stream(seed, "notes", plan.number)
    notes = []
    for half in range(random.integers(0, 3)):
        position = half + random.uniform(0, 0.6)
        start_s = round(position * plan.duration_s / 2, 3)
        end_s = round(start_s + 0.15 * plan.duration_s, 3)
        note = NOTES[random.integers(len(NOTES))]
        notes.append((start_s, end_s, note))
    tiers = {"call": first_tier, "call 2": second_tier, "notes": notes}
    if not second_tier:
        del tiers["call 2"]
    return _format_textgrid(tiers, plan.duration_s)


def _format_textgrid(tiers: Mapping[str, list[Interval]], duration_s: float) -> str:
    """Return the text of a long TextGrid, from the labelled intervals of each tier by its name."""
    text = TEXTGRID_HEADER.format(duration_s=duration_s, tiers=len(tiers))
    for number, (name, spans) in enumerate(tiers.items(), start=1):
        # Empty intervals fill the gaps between the spans, and after the last one.
        intervals = []
        free_s = 0.0
        for start_s, end_s, label in [*spans, (duration_s, duration_s, "")]:
            if start_s > free_s:
                intervals.append((free_s, start_s, ""))
            if end_s > start_s:
                intervals.append((start_s, end_s, label.replace('"', '""')))
            free_s = end_s
        text += TIER_HEADER.format(
            number=number, name=name, duration_s=duration_s, intervals=len(intervals)
        )
        for row, (start_s, end_s, label) in enumerate(intervals, start=1):
            text += TIER_INTERVAL.format(
                number=row, start_s=start_s, end_s=end_s, text=label
            )
    return text
