"""A synthetic site in a folder: options → long recordings, their calls, and examples of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import soundfile

from callshot.corpus.annotations import delimited, raven
from callshot.corpus.synthetic.corpus import prepare_folder
from callshot.corpus.synthetic.site_background import SyntheticSite, draw_site
from callshot.corpus.synthetic.site_plan import (
    SiteCall,
    SiteOptions,
    SiteRecording,
    plan_examples,
    plan_recordings,
)
from callshot.corpus.synthetic.site_recordings import (
    Pcm,
    generate_recording,
    make_clip,
)
from callshot.errors import OptionError, check_options
from callshot.files import atomic_path, make_folder, write_atomic
from callshot.jobs import Pool
from callshot.records import Progress, no_progress
from callshot.spans import Row

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


@dataclass(frozen=True, slots=True)
class SiteSummary:
    """What a synthetic site holds."""

    recordings: int
    calls: int
    duration_s: float
    example_recordings: int
    clips: int


def synthesise_soundscape(
    folder: Path | str,
    *,
    start: datetime | str | None = None,
    snr_db: float | Sequence[float] | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> SiteSummary:
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
    SiteSummary
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
    summary = _summarise(plans["."], plans["examples"])
    folder = Path(folder)
    readme = _format_readme(site_options, summary)
    prepare_folder(folder, readme, FOLDERS)
    write_atomic(folder / "README.md", readme)
    site = draw_site(site_options.seed, site_options.rate_hz)
    with Pool(threads) as pool:
        _write_recordings(folder, site, plans, pool, progress)
    _write_clips(folder / "clips", site, plans["examples"])
    return summary


def _write_recordings(
    folder: Path,
    site: SyntheticSite,
    plans: Mapping[str, Sequence[SiteRecording]],
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


def _summarise(
    recordings: Sequence[SiteRecording], examples: Sequence[SiteRecording]
) -> SiteSummary:
    return SiteSummary(
        recordings=len(recordings),
        calls=sum(len(plan.calls) for plan in recordings),
        duration_s=sum(plan.duration_s for plan in recordings),
        example_recordings=len(examples),
        clips=sum(len(plan.calls) for plan in examples),
    )


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


def _format_readme(options: SiteOptions, summary: SiteSummary) -> str:
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


def _write_annotations(folder: Path, plans: Sequence[SiteRecording]) -> None:
    """Write a Raven table for each recording, and one CSV file for all."""
    rows: list[Row] = []
    for plan in plans:
        annotations = [_to_annotation(plan, call) for call in plan.calls]
        path = folder / "raven" / f"{plan.name}{TABLE_SUFFIX}"
        write_atomic(path, raven.write(annotations, path))
        rows += annotations
    path = folder / "annotations.csv"
    write_atomic(path, delimited.write(rows, path))


def _to_annotation(plan: SiteRecording, call: SiteCall) -> Row:
    return {
        "path": f"{plan.name}.wav",
        "recording": None,
        "start_s": call.start_s,
        "end_s": call.end_s,
        "label": call.label,
        "low_freq_hz": call.low_freq_hz,
        "high_freq_hz": call.high_freq_hz,
        "snr_db": call.snr_db,
    }


def _write_audio(
    path: Path, pieces: Iterable[Pcm], plan: SiteRecording, rate_hz: int
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
    folder: Path, site: SyntheticSite, plans: Sequence[SiteRecording]
) -> None:
    """Write the clip of every example into a folder named by its label."""
    for plan in plans:
        for call in plan.calls:
            make_folder(folder / call.label)
            path = (
                folder
                / call.label
                / f"clip-{plan.number + 1}-{call.number + 1:02d}.wav"
            )
            clip = make_clip(site, plan, call)
            with atomic_path(path, errors=(soundfile.LibsndfileError,)) as temporary:
                soundfile.write(temporary, clip, site.rate_hz, "PCM_16", format="WAV")
