"""The command that makes synthetic recordings: synth."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from callshot.cli.app import (
    OTHER,
    app,
    argument,
    option,
    run_with_progress,
)
from callshot.cli.options import Quiet, Seed, Threads, parse_numbers
from callshot.errors import OptionError, count_text


@dataclass
class SoundscapeOptions:
    """What a synthetic site records; None is the default of `synthesise_soundscape`."""

    recordings: int | None = option(
        None, "N", "With --soundscape: number of recordings.", show_default="24"
    )
    minutes: float | None = option(
        None,
        "MIN",
        "With --soundscape: length of each recording, in minutes.",
        show_default="60",
    )
    every_minutes: float | None = option(
        None,
        "MIN",
        "With --soundscape: time from the start of one recording to the start of the "
        "next, in minutes.",
        show_default="60, or the length of a recording",
    )
    start: str | None = option(
        None,
        "TIME",
        "With --soundscape: start of the first recording.",
        show_default="2026-03-02T00:00",
    )
    snr_db: str | None = option(
        None,
        "DB",
        "With --soundscape: signal-to-noise ratios of the calls in dB, separated by "
        "commas. Each is used equally often.",
        show_default="0,6,12",
    )
    calls_per_hour: float | None = option(
        None,
        "N",
        "With --soundscape: mean number of calls per hour.",
        show_default="20",
    )
    types: int | None = option(
        None, "N", "With --soundscape: number of call types.", show_default="4"
    )
    examples: int | None = option(
        None,
        "N",
        "With --soundscape: number of examples of each type, in other recordings of the "
        "site and as clips.",
        show_default="20",
    )
    overlap: bool = option(
        False, "", "With --soundscape: let calls overlap.", "--overlap"
    )


@app.command(rich_help_panel=OTHER)
def synth(
    *,
    folder: Path = argument(
        ..., "DIR", "Folder for the corpus. It must be empty or not exist."
    ),
    soundscape_options: SoundscapeOptions,
    soundscape: bool = option(
        False,
        "",
        "Make long recordings of one site instead, with dates and times, to try scan and "
        "score.",
        "--soundscape",
    ),
    scale: float = option(
        1.0,
        "NUMBER",
        "Factor for the number of calls. 1 is the number in the paper. Every type has at "
        "least 5 calls.",
    ),
    seed: Seed = 0,
    rate_hz: int = option(16000, "HZ", "Sample rate of the recordings."),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make synthetic recordings of elephant-like calls with annotations, to try callshot.

    The corpus has the 12 call types of the Elephant Voices corpus of the paper, with as many calls,
    and 3 rare types. The recordings have wind, birds, distance and reverberation; some calls
    overlap, and some are shorter than 1 s. Recordings are FLAC files, annotations are Raven
    selection tables and Praat TextGrids. The same seed makes the same files.

    With --soundscape: long recordings of one site with wind, rain, insects, birds and engines, and
    calls at known times and signal-to-noise ratios; annotations of all calls, and examples.

    Example: callshot synth corpus && callshot init corpus/recordings -a corpus/raven

    Example: callshot synth week --soundscape --recordings 168 --minutes 5
    """
    from callshot.corpus.synthetic import make_corpus
    from callshot.corpus.synthetic.site import synthesise_soundscape

    options: dict[str, Any] = {"seed": seed, "rate_hz": rate_hz, "threads": threads}
    given = asdict(soundscape_options)
    if not soundscape_options.overlap:
        del given["overlap"]
    given = {name: value for name, value in given.items() if value is not None}
    if not soundscape:
        for name in given:
            raise OptionError(f"{name}: only with --soundscape")
        with run_with_progress("synthesising", quiet=quiet) as progress:
            corpus = make_corpus(folder, scale=scale, **options, progress=progress)
        if quiet:
            return
        minutes = corpus.duration_s / 60
        recordings = count_text(corpus.recordings, "recording")
        calls = count_text(corpus.calls, "call")
        print(f"{recordings}, {calls}, {minutes:.0f} minutes in {folder}")
        raven = folder / "raven"
        print(f"next: callshot inspect {folder / 'recordings'} --annotations {raven}")
        return

    if scale != 1.0:
        raise OptionError(
            "scale: not with --soundscape; give --recordings and --calls-per-hour"
        )
    if soundscape_options.snr_db is not None:
        given["snr_db"] = parse_numbers("snr_db", soundscape_options.snr_db)
    with run_with_progress("synthesising", quiet=quiet) as progress:
        summary = synthesise_soundscape(folder, **given, **options, progress=progress)
    if quiet:
        return
    hours = summary.duration_s / 3600
    print(
        f"{count_text(summary.recordings, 'recording')}, "
        f"{count_text(summary.calls, 'call')}, {hours:.1f} hours in "
        f"{folder / 'recordings'}; the calls in {folder / 'raven'}"
    )
    if summary.clips:
        examples = folder / "examples"
        print(
            f"next: callshot learn {examples / 'recordings'} --annotations {examples / 'raven'} "
            f"--encoder mfcc --out {folder / 'calls.npz'}"
        )
