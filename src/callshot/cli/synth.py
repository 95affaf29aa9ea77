"""The command that makes synthetic recordings: synth."""

from pathlib import Path
from typing import Annotated, Any

from callshot.cli.app import (
    OTHER,
    app,
    argument,
    run_with_progress,
)
from callshot.cli.options import Quiet, Seed, Threads
from callshot.errors import OptionError, count_text
from callshot.options import Given, SoundscapeOptions, option


@app.command(rich_help_panel=OTHER)
def synth(
    *,
    folder: Path = argument(
        ..., "DIR", "Folder for the corpus. It must be empty or not exist."
    ),
    site: Annotated[Given, SoundscapeOptions],
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
    if not soundscape:
        for name in site:
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
    with run_with_progress("synthesising", quiet=quiet) as progress:
        summary = synthesise_soundscape(folder, **site, **options, progress=progress)
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
