"""Other commands: synth; cluster slurm and cluster pbs, which write batch files; verify, doctor."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from callshot.cli.app import (
    OTHER,
    Program,
    app,
    argument,
    echo,
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


cluster = Program(
    help="Write a batch file that runs a command on a SLURM or PBS cluster.",
    no_args_is_help=True,
)
app.add_typer(cluster, name="cluster", rich_help_panel=OTHER)

Words = Annotated[
    list[str],
    argument(
        ...,
        "-- COMMAND...",
        "Command of callshot with its options: index, embed, scan, evaluate or run.",
    ),
]


@dataclass
class JobOptions:
    """What a batch file asks for, and where it is written."""

    workers: int = option(
        16, "N", "Number of workers (processes, each with its own encoder)."
    )
    threads: int = option(1, "N", "Number of threads of each worker.")
    memory: int = option(4, "GB", "Memory for each thread of a worker, in GB.")
    hours: int = option(24, "N", "Time limit of the job, in hours.")
    gpu: bool = option(False, "", "Give each worker one GPU.", "--gpu")
    out: Path | None = option(
        None, "FILE", "Batch file to write.", "--out", "-o", shown="print it"
    )

    def write(self, system: str, submit: str, command: list[str]) -> None:
        """Write or print the batch file of a command."""
        from callshot.distributed.batch_files import make_batch_file
        from callshot.files import check_new_file, write_atomic
        from callshot.storage import check_no_url

        mark = b"one command of callshot, which ends them all"
        options = vars(self).copy()
        del options["out"]
        text = make_batch_file(system, command, **options)
        if self.out is None:
            print(text, end="")
            return
        check_no_url(self.out)
        check_new_file(
            self.out, "batch file", lambda path: mark in path.read_bytes()[:4096]
        )
        write_atomic(self.out, text)
        print(f"next: {submit} {self.out}")


@cluster.command()
def slurm(command: Words, job: JobOptions) -> None:
    """Write a batch file for SLURM that starts workers and runs one command.

    Example: callshot cluster slurm -o job.sh -- index recordings -e birdnet-v2.4 -o index
    """
    job.write("slurm", "sbatch", command)


@cluster.command()
def pbs(command: Words, job: JobOptions) -> None:
    """Write a batch file for PBS that starts workers and runs one command.

    Example: callshot cluster pbs -o job.sh -- scan calls.npz recordings -o detections
    """
    job.write("pbs", "qsub", command)


@app.command(rich_help_panel=OTHER)
def verify(
    path: Path | None = argument(
        None,
        "STUDY|RESULTS|REVIEW|STORE|INDEX|TABLE",
        "Study file, folder of results or of a review, stored embeddings, index or "
        "table to check.",
        show_default="study.toml in this folder, or the stored embeddings of the user",
    ),
    repair: bool = option(
        False,
        "",
        "Rename damaged files of stored embeddings or of an index, so that they are not "
        "used. The next run makes them again.",
        "--repair",
    ),
    quiet: Quiet = False,
) -> None:
    """Check whether files are complete and unchanged, with their checksums.

    Reads everything again: of a study, the recordings, annotations, steps, results and stored
    embeddings. Prints every file that is damaged, missing or not from callshot, with the reason,
    and the number of files that are ok. The exit code is 1 if a file is damaged or missing.

    Example: callshot verify study.toml
    """
    from callshot.records import FAILURES, STATES
    from callshot.study.verify import default_path, verify_path

    target = default_path() if path is None else path
    findings = []
    with run_with_progress("reading the checksums", quiet=quiet) as progress:
        for finding in verify_path(target, repair=repair):
            progress(0.0, f"verified {finding.path.name}")
            findings.append(finding)
    is_failure = any(finding.state in FAILURES for finding in findings)
    if is_failure or not quiet:
        for finding in findings:
            if finding.state != "ok":
                reason = finding.reason or STATES[finding.state]
                echo(f"{finding.state}: {finding.path}: {reason}")
        counts = Counter(finding.state for finding in findings)
        summary = [f"{counts[state]} {state}" for state in STATES if state in counts]
        echo(f"{target}: {', '.join(summary) or 'nothing to verify'}")
    if is_failure:
        raise typer.Exit(1)


@app.command(rich_help_panel=OTHER)
def doctor() -> None:
    """Check this installation: packages, audio formats, encoders, GPU, folders and threads.

    Each line is one check. Where something is missing, the next line says what to do. The exit code
    is 1 if there is a problem. Things that only some users need are notes, not problems.

    Example: callshot doctor
    """
    from rich.console import Console

    from callshot.console import print_lines
    from callshot.study.doctor import GOOD, NOTE, PROBLEM, check_installation

    console = Console()
    states = []
    for check in check_installation():
        states.append(check.state)
        style = {GOOD: "", PROBLEM: "bold red"}.get(check.state, "yellow")
        line = f"{check.state:<8}{check.subject}: {check.result}"
        print_lines(console, [line], style)
        if check.advice:
            print_lines(console, [f"        {check.advice}"])
    problems = states.count(PROBLEM)
    notes = states.count(NOTE)
    counts = f"{count_text(problems, 'problem')}, {count_text(notes, 'note')}"
    print(f"{count_text(len(states), 'check')}: {counts}")
    if problems:
        raise typer.Exit(1)
