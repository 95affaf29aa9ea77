"""A synthetic site in a folder: options → long recordings, their calls, and examples of them.

The signal-to-noise ratio of a call is met by the background at that very time, so a call beside a
passing engine is louder.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from scipy import fft

from callshot.corpus.annotations import delimited, list_rows, raven
from callshot.corpus.synthetic.corpus import CorpusSummary, Pcm, prepare_folder, to_pcm
from callshot.corpus.synthetic.plan import SiteOptions, plan_examples, plan_recordings
from callshot.corpus.synthetic.sounds import (
    BLOCK_S,
    DISTANCES_M,
    FADE_S,
    NOISES_DB,
    Random,
    RecordingPlan,
    Samples,
    SyntheticSite,
    count_blocks,
    draw_conditions,
    draw_site,
    draw_soundscape,
    make_background,
    mix_soundscape,
    record_call,
    stream,
    synthesise_call,
)
from callshot.errors import OptionError, check_options, check_range
from callshot.files import atomic_path, make_folder, write_atomic
from callshot.jobs import Pool
from callshot.records import Progress, no_progress
from callshot.spans import Row

# A call, its first sample in the recording, and its sound as the microphone records it.
RecordedCall = tuple[Row, int, Samples]
# The background of a block with its fade, and the calls that begin in it.
Block = tuple[Samples, list[RecordedCall]]

TABLE_SUFFIX = ".Table.1.selections.txt"
FOLDERS = ("recordings", "raven", "examples/recordings", "examples/raven", "clips")
MAX_WAV_BYTES = 2**32 - 2**16  # a WAV file cannot be longer, an RF64 file can
README = """# A synthetic site

Made by callshot: {recordings} recordings, {hours:.1f} hours, {calls} calls.
No animal was recorded: every sound is synthesised.

    recordings/          16 bit WAV; the names have the clock time of the start
    raven/               all calls as Raven selection tables, also of recordings without calls
    annotations.csv      the same calls in one table
    examples/            other recordings of the same site, with {examples} calls of each type
    clips/LABEL/         the calls of examples/, recorded elsewhere: another microphone, less noise

The column snr_db is the signal-to-noise ratio: the power of the call over the power of the
background, both in the span and in the frequency band of the annotation.

The same options make the same files again:

{options}
"""


def synthesise_soundscape(
    folder: Path | str,
    *,
    start: datetime | str | None = None,
    snr_db: float | Sequence[float] | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> CorpusSummary:
    """Make long recordings of a site, with calls at known times and signal-to-noise ratios.

    Wind, rain, insects, birds and engines follow the hour of the day, as do the calls. The same
    options make the same bytes with any number of threads, and memory does not grow with the
    length of recordings.

    Parameters
    ----------
    folder : path
        Where the files go; it must be new, empty, or hold the same site.
    start : datetime or str, optional
        When the first recording begins, e.g. "2026-03-02T05:30"; by default midnight of that day.
    snr_db : float or sequence of float, optional
        The signal-to-noise ratios of calls, each equally often: the power of a call over the power
        of the background, both in the span and the frequency band of its annotation. By default
        0, 6 and 12 dB.
    threads, progress
        Threads, all cores by default; a function that gets shares of the work.
    **options
        Fields of `SiteOptions`: recordings (24), minutes (60, the length of each), every_minutes
        (from one start to the next; 60, or the length), calls_per_hour (20, on average over all
        recordings), types (4 call types), examples (20 of each type), overlap (False), rate_hz
        (16000), seed (0).

    Returns
    -------
    CorpusSummary
        How many recordings, calls and clips there are.

    Raises
    ------
    OptionError
        If an option is unknown or out of its range, or the calls do not fit.
    OutputError
        If the folder has other files, or cannot be written to.

    Examples
    --------
    >>> import tempfile
    >>> summary = synthesise_soundscape(
    ...     tempfile.mkdtemp(), recordings=1, minutes=1, calls_per_hour=120, examples=1,
    ...     types=2, rate_hz=4000,
    ... )
    >>> summary.calls, summary.clips
    (2, 2)
    """
    check_options(options, SiteOptions)
    try:
        if isinstance(start, str):
            start = datetime.fromisoformat(start).replace(tzinfo=None)
    except ValueError:
        raise OptionError(
            f"start: expected a date and time such as 2026-03-02T05:30, got {start!r}"
        ) from None
    if start is not None:
        options["start"] = start
    if isinstance(snr_db, int | float):
        snr_db = (snr_db,)
    if snr_db is not None:
        options["snr_db"] = tuple(float(value) for value in snr_db)
    site_options = SiteOptions(**options)
    if threads is not None:
        check_range("threads", threads, 1)
    examples = plan_examples(site_options)
    recordings = plan_recordings(site_options)
    summary = CorpusSummary(
        recordings=len(recordings),
        calls=sum(len(plan.calls) for plan in recordings),
        duration_s=sum(plan.duration_s for plan in recordings),
        clips=sum(len(plan.calls) for plan in examples),
    )
    folder = Path(folder)
    prepare_folder(folder, _format_readme(site_options, summary), FOLDERS)
    site = draw_site(site_options.seed, site_options.rate_hz)
    _write_annotations(folder, recordings)
    _write_annotations(folder / "examples", examples)
    total_s = sum(plan.duration_s for plan in [*examples, *recordings])
    with Pool(threads) as pool:
        for target, plans in ((folder / "examples", examples), (folder, recordings)):
            for plan in plans:
                path = target / "recordings" / f"{plan.name}.wav"
                size = 2 * plan.duration_s * site.rate_hz
                format = "RF64" if size > MAX_WAV_BYTES else "WAV"
                _write_audio(path, generate_recording(site, plan, pool), site, format)
                progress(plan.duration_s / total_s, plan.name)
    _write_clips(folder / "clips", site, examples)
    return summary


def _format_readme(options: SiteOptions, summary: CorpusSummary) -> str:
    """Return the README of a site, which has all options."""
    lines = []
    for name, value in asdict(options).items():
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        lines.append(f"    {name} = {value}")
    return README.format(
        recordings=summary.recordings,
        hours=summary.duration_s / 3600,
        calls=summary.calls,
        examples=options.examples,
        options="\n".join(lines),
    )


def _write_clips(
    folder: Path, site: SyntheticSite, plans: Sequence[RecordingPlan]
) -> None:
    """Write a clip of each call in the plans, in a folder for each label."""
    for plan in plans:
        for call in plan.calls.rows():
            clips = folder / call["label"]
            make_folder(clips)
            number = call["number"] + 1
            path = clips / f"clip-{plan.number + 1}-{number:02d}.wav"
            clip = make_clip(site, plan, call)
            _write_audio(path, [clip], site, "WAV")


def _write_annotations(folder: Path, plans: Sequence[RecordingPlan]) -> None:
    """Write a Raven table for each recording, and a table of the calls of all recordings."""
    rows = []
    for plan in plans:
        calls = plan.calls.without("number") if len(plan.calls) else plan.calls
        annotations = list_rows(calls)
        path = folder / "raven" / f"{plan.name}{TABLE_SUFFIX}"
        write_atomic(path, raven.write(annotations, path))
        rows += annotations
    path = folder / "annotations.csv"
    write_atomic(path, delimited.write(rows, path))


def _write_audio(
    path: Path, pieces: Iterable[Pcm], site: SyntheticSite, format: str
) -> None:
    """Write pieces of audio one after the other to one file, so that memory stays small."""
    with (
        atomic_path(path, errors=(soundfile.LibsndfileError,)) as temporary,
        soundfile.SoundFile(
            temporary, "w", site.rate_hz, 1, "PCM_16", format=format
        ) as file,
    ):
        for samples in pieces:
            file.write(samples)


CLIP_MARGIN_S = 0.25
CLIP_NOISE_DB = -15.0  # against the recordings of `callshot synth`


def generate_recording(
    site: SyntheticSite, recording: RecordingPlan, pool: Pool
) -> Iterator[Pcm]:
    """Yield the samples of a recording in pieces; threads of the pool work ahead.

    Background is made in blocks, each of which fades into the next. A call is added when all of its
    background is known, which decides its level; samples are held back until all calls that cover
    them are added.
    """
    rate_hz = site.rate_hz
    block_size = BLOCK_S * rate_hz
    size = round(recording.duration_s * rate_hz)
    # The first sample that has not been yielded; `noise` and `calls` begin there.
    begin = 0
    noise = np.zeros(0, np.float32)
    calls = np.zeros(0, np.float32)
    tail = np.zeros(FADE_S * rate_hz, np.float32)  # the fade of the block before
    waiting = deque[RecordedCall]()  # calls that are not added yet, by their starts
    for background, recorded in _make_blocks(site, recording, pool):
        # Append the block, with the fade of the one before, up to the end of the recording.
        block = background[:block_size]
        block[: tail.size] += tail
        tail = background[block_size:]
        missing = size - begin - noise.size
        block = block[:missing]
        noise = np.concatenate([noise, block])
        calls = np.concatenate([calls, np.zeros_like(block)])
        end = begin + noise.size
        waiting.extend(recorded)
        while waiting:
            _, first, samples = waiting[0]
            last = min(first + samples.size, size)
            if last > end:  # its background is not complete
                break
            _add_call(waiting.popleft(), calls, noise, begin, rate_hz)
        # No waiting call covers the samples before the first one of the next call.
        next_first = waiting[0][1] if waiting else size
        ready = min(next_first, end) - begin
        yield to_pcm(noise[:ready] + calls[:ready])
        noise = noise[ready:]
        calls = calls[ready:]
        begin += ready


def _make_blocks(
    site: SyntheticSite, recording: RecordingPlan, pool: Pool
) -> Iterator[Block]:
    """Yield the blocks of a recording in order, a few of which threads make ahead."""
    conditions = draw_conditions(site.seed, recording)
    calls_by_block = defaultdict[int, list[Row]](list)
    for call in recording.calls.rows():
        number = int(call["start_s"] // BLOCK_S)
        calls_by_block[number].append(call)

    def make_block(number: int) -> Block:
        """Return the background of a block, and the calls that begin in it."""
        background = make_background(site, recording, conditions, number)
        recorded = []
        for call in calls_by_block.get(number, []):
            random, dry = _synthesise(site, recording, call)
            distance_m = random.uniform(*DISTANCES_M)
            soundscape = {**site.soundscape, "distance_m": distance_m}
            samples = record_call(dry, soundscape, site.rate_hz, random)
            first = round(call["start_s"] * site.rate_hz)
            recorded.append((call, first, samples))
        return background, recorded

    count = count_blocks(recording)
    ahead = pool.threads + 1
    first_numbers = range(min(ahead, count))
    futures = deque(pool.submit(make_block, number) for number in first_numbers)
    for number in range(count):
        block = futures.popleft().result()
        next_number = number + ahead
        if next_number < count:
            futures.append(pool.submit(make_block, next_number))
        yield block


def _add_call(
    recorded: RecordedCall, calls: Samples, noise: Samples, begin: int, rate_hz: int
) -> None:
    """Add a call to `calls`, at its level against `noise`; both begin at the sample `begin`."""
    call, first, samples = recorded
    length = round(call["end_s"] * rate_hz) - first
    sound = samples[:length]  # without its reverberation
    offset = first - begin  # in `noise` and `calls`
    background_of_call = noise[offset : offset + length]
    gain = _find_gain(call, sound, background_of_call, rate_hz)
    covered = calls[offset : offset + samples.size]  # ends where the recording does
    covered += np.float32(gain) * samples[: covered.size]


def _find_gain(call: Row, samples: Samples, background: Samples, rate_hz: int) -> float:
    """Return the gain that gives a call its signal-to-noise ratio, in the band of the call."""
    band_hz = (call["low_freq_hz"], call["high_freq_hz"])
    noise_power = band_power(background, rate_hz, band_hz)
    call_power = band_power(samples, rate_hz, band_hz)
    ratio = 10 ** (call["snr_db"] / 10)
    return float(np.sqrt(ratio * noise_power / call_power))


def _synthesise(
    site: SyntheticSite, recording: RecordingPlan, call: Row
) -> tuple[Random, Samples]:
    """Return the random stream of a call, and its sound before any distance and noise."""
    purpose = f"{recording.part} voice"
    random = stream(site.seed, purpose, recording.number, call["number"])
    order = random.permutation(len(site.callers))
    # A call is by the first of them, a chorus by all four.
    callers = [site.callers[index] for index in order[:4]]
    label = call["label"]
    duration_s = call["end_s"] - call["start_s"]
    dry = synthesise_call(label, callers, duration_s, site.rate_hz, random)
    return random, dry


def band_power(samples: Samples, rate_hz: int, band_hz: tuple[float, float]) -> float:
    """Return the mean power of samples between two frequencies, both included."""
    low_hz, high_hz = band_hz
    frequency_hz = fft.rfftfreq(samples.size, 1 / rate_hz)
    inside = (frequency_hz >= low_hz) & (frequency_hz <= high_hz)
    spectrum = fft.rfft(samples)
    magnitude = np.abs(spectrum[inside])
    energy = np.sum(magnitude**2, dtype=np.float64)
    # By Parseval's theorem; the negative frequencies have as much energy again.
    return float(2 * energy / samples.size**2)


def make_clip(site: SyntheticSite, recording: RecordingPlan, call: Row) -> Pcm:
    """Make the clean clip of an example: the same call near another microphone, with less noise."""
    _, dry = _synthesise(site, recording, call)
    margin = round(CLIP_MARGIN_S * site.rate_hz)
    random = stream(site.seed, "clips", recording.number, call["number"])
    soundscape = draw_soundscape(random)
    quiet = {**soundscape, "distance_m": 10.0, "birds_per_s": 0.0}
    for name in NOISES_DB:
        quiet[name] += CLIP_NOISE_DB
    padded = np.pad(dry, margin)
    clip = mix_soundscape(padded, quiet, site.rate_hz, random)
    return to_pcm(clip)
