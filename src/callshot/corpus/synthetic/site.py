"""A synthetic site in a folder: options → long recordings, their calls, and examples of them.

Recordings are made a block at a time: memory is flat. The signal-to-noise ratio of a call is the
power of the call over the power of the background, both in the span and in the frequency band of
its annotation. It is met by the background at that very time, so a call beside a passing engine is
louder.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from scipy import fft

from callshot.corpus.annotations import delimited, raven
from callshot.corpus.annotations.formats import list_rows
from callshot.corpus.synthetic.call_synthesis import (
    Random,
    Samples,
    stream,
    synthesise_call,
)
from callshot.corpus.synthetic.corpus import CorpusSummary, Pcm, prepare_folder, to_pcm
from callshot.corpus.synthetic.plan import (
    RecordingPlan,
    SiteOptions,
    plan_examples,
    plan_recordings,
)
from callshot.corpus.synthetic.soundscape import (
    BLOCK_S,
    NOISES_DB,
    SyntheticSite,
    count_blocks,
    draw_conditions,
    draw_distance,
    draw_site,
    draw_soundscape,
    make_background,
    mix_soundscape,
    record_call,
)
from callshot.errors import OptionError, check_options
from callshot.files import atomic_path, make_folder, write_atomic
from callshot.jobs import Pool
from callshot.records import Progress, no_progress
from callshot.spans import Row

# A call, its first sample in the recording, and its sound as the microphone records it.
RecordedCall = tuple[Row, int, Samples]
# The background of a block with its fade, and the calls that begin in it.
Block = tuple[Samples, list[RecordedCall]]

TABLE_SUFFIX = ".Table.1.selections.txt"
FOLDERS = (
    "recordings",
    "raven",
    "examples/recordings",
    "examples/raven",
    "clips",
)
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
        The signal-to-noise ratios of calls, each equally often: the power of a call over that of
        the background, both in the span and the frequency band of its annotation. By default 0, 6
        and 12 dB.
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
    site_options = _make_options(start, snr_db, options)
    if threads is not None and threads < 1:
        raise OptionError(f"threads: expected 1 or more, got {threads}")
    plans = {
        "examples": plan_examples(site_options),
        ".": plan_recordings(site_options),
    }
    recordings = plans["."]
    examples = plans["examples"]
    summary = CorpusSummary(
        recordings=len(recordings),
        calls=sum(len(plan.calls) for plan in recordings),
        duration_s=sum(plan.duration_s for plan in recordings),
        example_recordings=len(examples),
        clips=sum(len(plan.calls) for plan in examples),
    )
    folder = Path(folder)
    readme = _format_readme(site_options, summary)
    prepare_folder(folder, readme, FOLDERS)
    write_atomic(folder / "README.md", readme)
    site = draw_site(site_options.seed, site_options.rate_hz)
    with Pool(threads) as pool:
        _write_recordings(folder, site, plans, pool, progress)
    _write_clips(folder / "clips", site, examples)
    return summary


def _write_recordings(
    folder: Path,
    site: SyntheticSite,
    plans: Mapping[str, Sequence[RecordingPlan]],
    pool: Pool,
    progress: Progress,
) -> None:
    """Write the annotations and the recordings of each part to its folder."""
    total_s = sum(plan.duration_s for part in plans.values() for plan in part)
    for name, part in plans.items():
        _write_annotations(folder / name, part)
        for plan in part:
            path = folder / name / "recordings" / f"{plan.name}.wav"
            pieces = generate_recording(site, plan, pool)
            _write_audio(path, pieces, plan, site.rate_hz)
            progress(plan.duration_s / total_s, plan.name)


def _make_options(
    start: datetime | str | None,
    snr_db: float | Sequence[float] | None,
    options: dict[str, Any],
) -> SiteOptions:
    check_options(options, SiteOptions)
    if isinstance(start, str):
        start = parse_start(start)
    if start is not None:
        options["start"] = start
    if isinstance(snr_db, int | float):
        snr_db = (snr_db,)
    if snr_db is not None:
        options["snr_db"] = tuple(float(value) for value in snr_db)
    return SiteOptions(**options)


def parse_start(text: str) -> datetime:
    """Return the clock time that a text says.

    >>> parse_start("2026-03-02T05:30")
    datetime.datetime(2026, 3, 2, 5, 30)
    """
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise OptionError(
            f"start: expected a date and time such as 2026-03-02T05:30, got {text!r}"
        ) from None


def _format_readme(options: SiteOptions, summary: CorpusSummary) -> str:
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


def _write_annotations(folder: Path, plans: Sequence[RecordingPlan]) -> None:
    """Write a Raven table for each recording, and one CSV file for all."""
    rows: list[Row] = []
    for plan in plans:
        calls = plan.calls
        if len(calls) > 0:
            calls = calls.without("number")
        annotations = list_rows(calls)
        path = folder / "raven" / f"{plan.name}{TABLE_SUFFIX}"
        write_atomic(path, raven.write(annotations, path))
        rows += annotations
    path = folder / "annotations.csv"
    write_atomic(path, delimited.write(rows, path))


def _write_audio(
    path: Path, pieces: Iterable[Pcm], plan: RecordingPlan, rate_hz: int
) -> None:
    """Write a recording piece by piece."""
    size = 2 * plan.duration_s * rate_hz
    format = "RF64" if size > MAX_WAV_BYTES else "WAV"
    errors = (soundfile.LibsndfileError,)
    with (
        atomic_path(path, errors=errors) as temporary,
        soundfile.SoundFile(
            temporary, "w", rate_hz, 1, "PCM_16", format=format
        ) as file,
    ):
        for samples in pieces:
            file.write(samples)


def _write_clips(
    folder: Path, site: SyntheticSite, plans: Sequence[RecordingPlan]
) -> None:
    """Write the clip of every example into a folder named by its label."""
    for plan in plans:
        for call in plan.calls.rows():
            make_folder(folder / call["label"])
            name = f"clip-{plan.number + 1}-{call['number'] + 1:02d}.wav"
            path = folder / call["label"] / name
            clip = make_clip(site, plan, call)
            with atomic_path(path, errors=(soundfile.LibsndfileError,)) as temporary:
                soundfile.write(temporary, clip, site.rate_hz, "PCM_16", format="WAV")


CLIP_MARGIN_S = 0.25
CLIP_NOISE_DB = -15.0  # against the recordings of `callshot synth`


def generate_recording(
    site: SyntheticSite, recording: RecordingPlan, pool: Pool
) -> Iterator[Pcm]:
    """Yield the samples of a recording in pieces; threads of the pool work ahead.

    A block fades into the next one. What a call that is not complete covers waits for its end.
    """
    conditions = draw_conditions(site.seed, recording)
    calls_by_block = defaultdict[int, list[Row]](list)
    for call in recording.calls.rows():
        calls_by_block[int(call["start_s"] // BLOCK_S)].append(call)

    def make_block(number: int) -> Block:
        background = make_background(site, recording, conditions, number)
        starting = calls_by_block.get(number, [])
        return background, [_record(site, recording, call) for call in starting]

    size = round(recording.duration_s * site.rate_hz)
    begin = 0  # the sample that the part being mixed begins with
    noise = np.zeros(0, np.float32)
    calls = np.zeros(0, np.float32)
    tail = np.zeros(site.fade_size, np.float32)
    waiting = deque[RecordedCall]()
    for background, recorded in _work_ahead(pool, make_block, count_blocks(recording)):
        block = background[: site.block_size]
        block[: tail.size] += tail
        tail = background[site.block_size :]
        block = block[: size - begin - noise.size]
        noise = np.concatenate([noise, block])
        calls = np.concatenate([calls, np.zeros_like(block)])
        end = begin + noise.size
        waiting.extend(recorded)
        while waiting and min(waiting[0][1] + waiting[0][2].size, size) <= end:
            call, first, samples = waiting.popleft()
            gain = _find_gain(call, noise[first - begin :], samples, site.rate_hz)
            covered = calls[first - begin :][: samples.size]
            covered += np.float32(gain) * samples[: covered.size]
        done = min(waiting[0][1] if waiting else size, end) - begin
        yield to_pcm(noise[:done] + calls[:done])
        noise = noise[done:]
        calls = calls[done:]
        begin += done


def _find_gain(call: Row, noise: Samples, samples: Samples, rate_hz: int) -> float:
    """Return the factor that gives a call its signal-to-noise ratio; `noise` begins with it."""
    size = round(call["end_s"] * rate_hz) - round(call["start_s"] * rate_hz)
    band_hz = (call["low_freq_hz"], call["high_freq_hz"])
    noise_power = band_power(noise[:size], rate_hz, band_hz)
    call_power = band_power(samples[:size], rate_hz, band_hz)
    return float(np.sqrt(10 ** (call["snr_db"] / 10) * noise_power / call_power))


def _work_ahead(
    pool: Pool, make: Callable[[int], Block], count: int
) -> Iterator[Block]:
    """Yield blocks in order, while threads make the next ones."""
    ahead = pool.threads + 1
    waiting = deque(pool.submit(make, number) for number in range(min(ahead, count)))
    for number in range(count):
        block = waiting.popleft().result()
        if number + ahead < count:
            waiting.append(pool.submit(make, number + ahead))
        yield block


def _record(site: SyntheticSite, recording: RecordingPlan, call: Row) -> RecordedCall:
    random = _call_stream(site, recording, call)
    dry = _synthesise(site, call, random)
    soundscape = draw_distance(site, random)
    samples = record_call(dry, soundscape, site.rate_hz, random)
    first = round(call["start_s"] * site.rate_hz)
    return call, first, samples


def _call_stream(site: SyntheticSite, recording: RecordingPlan, call: Row) -> Random:
    return stream(
        site.seed, f"{recording.part} voice", recording.number, call["number"]
    )


def _synthesise(site: SyntheticSite, call: Row, random: Random) -> Samples:
    """Make a call by one of the callers of the site; a chorus has several."""
    order = random.permutation(len(site.callers))[:4]
    callers = [site.callers[index] for index in order]
    duration_s = call["end_s"] - call["start_s"]
    return synthesise_call(call["label"], callers, duration_s, site.rate_hz, random)


def band_power(samples: Samples, rate_hz: int, band_hz: tuple[float, float]) -> float:
    """Return the mean power of samples between two frequencies, both included.

    >>> wave = np.sin(2 * np.pi * 100 * np.arange(8000) / 8000)
    >>> round(band_power(wave, 8000, (90, 110)), 6), round(band_power(wave, 8000, (200, 300)), 6)
    (0.5, 0.0)
    """
    frequency_hz = fft.rfftfreq(samples.size, 1 / rate_hz)
    inside = (frequency_hz >= band_hz[0]) & (frequency_hz <= band_hz[1])
    size = np.abs(fft.rfft(samples)[inside])
    energy = np.sum(size**2, dtype=np.float64)
    return float(2 * energy / samples.size**2)


def make_clip(site: SyntheticSite, recording: RecordingPlan, call: Row) -> Pcm:
    """Make the clean clip of an example: the same call at another place, by another microphone."""
    dry = _synthesise(site, call, _call_stream(site, recording, call))
    margin = round(CLIP_MARGIN_S * site.rate_hz)
    random = stream(site.seed, "clips", recording.number, call["number"])
    soundscape = draw_soundscape(random)
    noises_db = {name: getattr(soundscape, name) + CLIP_NOISE_DB for name in NOISES_DB}
    quiet = replace(soundscape, distance_m=10.0, birds_per_s=0.0, **noises_db)
    clip = mix_soundscape(np.pad(dry, margin), quiet, site.rate_hz, random)
    return to_pcm(clip)
