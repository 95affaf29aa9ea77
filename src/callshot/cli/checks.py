"""Commands about the machine: cluster slurm and cluster pbs write batch files; verify, doctor."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import OTHER, Program, app, run_with_progress
from callshot.cli.options import Quiet
from callshot.errors import count_text, printable

if TYPE_CHECKING:
    from rich.console import Console

    from callshot.records import Finding
    from callshot.study.doctor import Check

cluster = Program(
    help="Write a batch file that runs a command on a SLURM or PBS cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(cluster, name="cluster", rich_help_panel=OTHER)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND...",
        help="Command of callshot with its options: index, embed, scan, evaluate or run.",
    ),
]
Workers = Annotated[
    int,
    typer.Option(
        metavar="N", help="Number of workers (processes, each with its own encoder)."
    ),
]
WorkerThreads = Annotated[
    int,
    typer.Option("--threads", metavar="N", help="Number of threads of each worker."),
]
Memory = Annotated[
    int, typer.Option(metavar="GB", help="Memory for each thread of a worker, in GB.")
]
Hours = Annotated[
    int, typer.Option(metavar="N", help="Time limit of the job, in hours.")
]
Gpu = Annotated[bool, typer.Option("--gpu", help="Give each worker one GPU.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="FILE",
        help="Batch file to write.",
        show_default="print it",
    ),
]


@cluster.command()
def slurm(
    command: Words,
    workers: Workers = 16,
    threads: WorkerThreads = 1,
    memory: Memory = 4,
    hours: Hours = 24,
    gpu: Gpu = False,
    out: File = None,
) -> None:
    """Write a batch file for SLURM that starts workers and runs one command.

    Example: callshot cluster slurm -o job.sh -- index recordings -e birdnet-v2.4 -o index
    """
    _write("slurm", command, workers, threads, memory, hours, gpu, out)


@cluster.command()
def pbs(
    command: Words,
    workers: Workers = 16,
    threads: WorkerThreads = 1,
    memory: Memory = 4,
    hours: Hours = 24,
    gpu: Gpu = False,
    out: File = None,
) -> None:
    """Write a batch file for PBS that starts workers and runs one command.

    Example: callshot cluster pbs -o job.sh -- scan calls.npz recordings -o detections
    """
    _write("pbs", command, workers, threads, memory, hours, gpu, out)


def _write(
    system: str,
    command: list[str],
    workers: int,
    threads: int,
    memory: int,
    hours: int,
    gpu: bool,
    out: Path | None,
) -> None:
    from callshot.distributed.batch_files import BatchJob, make_batch_file
    from callshot.files import check_new_file, write_atomic
    from callshot.storage import check_no_url

    job = BatchJob(workers, threads, memory, hours, gpu)
    text = make_batch_file(system, job, command)
    if out is None:
        print(text, end="")
        return
    check_no_url(out)
    check_new_file(out, "batch file", _is_batch_file)
    write_atomic(out, text)
    submit = {"slurm": "sbatch", "pbs": "qsub"}[system]
    print(f"next: {submit} {out}")


def _is_batch_file(path: Path) -> bool:
    return b"one command of callshot, which ends them all" in path.read_bytes()[:4096]


@app.command(rich_help_panel=OTHER)
def verify(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="STUDY|RESULTS|REVIEW|STORE|INDEX|TABLE",
            help="Study file, folder of results or of a review, stored embeddings, index or "
            "table to check.",
            show_default="study.toml in this folder, or the stored embeddings of the user",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Rename damaged files of stored embeddings or of an index, so that they are not "
            "used. The next run makes them again.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Check whether files are complete and unchanged, with their checksums.

    Reads everything again: of a study, the recordings, annotations, steps, results and stored
    embeddings. Prints every file that is damaged, missing or not from callshot, with the reason,
    and the number of files that are ok. The exit code is 1 if a file is damaged or missing.

    Example: callshot verify study.toml
    """
    from callshot.records import FAILURES
    from callshot.study.verify import default_path, verify_path

    target = default_path() if path is None else path
    findings = []
    with run_with_progress("reading the checksums", quiet=quiet) as progress:
        for finding in verify_path(target, repair=repair):
            progress(0.0, f"verified {finding.path.name}")
            findings.append(finding)
    is_failure = any(finding.state in FAILURES for finding in findings)
    if is_failure or not quiet:
        _print_findings(target, findings)
    if is_failure:
        raise typer.Exit(1)


def _print_findings(path: Path, findings: "Sequence[Finding]") -> None:
    """Print a line for each file that is not ok, and the number of files in each state."""
    from callshot.records import STATES

    for finding in findings:
        if finding.state != "ok":
            reason = finding.reason or STATES[finding.state]
            print(printable(f"{finding.state}: {finding.path}: {reason}"))
    counts = Counter(finding.state for finding in findings)
    summary = [f"{counts[state]} {state}" for state in STATES if state in counts]
    print(printable(f"{path}: {', '.join(summary) or 'nothing to verify'}"))


@app.command(rich_help_panel=OTHER)
def doctor() -> None:
    """Check this installation: packages, audio formats, encoders, GPU, folders and threads.

    Each line is one check. Where something is missing, the next line says what to do. The exit code
    is 1 if there is a problem. Things that only some users need are notes, not problems.

    Example: callshot doctor
    """
    from rich.console import Console

    from callshot.study.doctor import NOTE, PROBLEM, check_installation

    console = Console()
    states = []
    for check in check_installation():
        _print_check(check, console)
        states.append(check.state)
    problems = states.count(PROBLEM)
    notes = states.count(NOTE)
    counts = f"{count_text(problems, 'problem')}, {count_text(notes, 'note')}"
    print(f"{count_text(len(states), 'check')}: {counts}")
    if problems:
        raise typer.Exit(1)


def _print_check(check: "Check", console: "Console") -> None:
    """Print what was found, and on the next line what to do."""
    from callshot.report.terminal import print_lines
    from callshot.study.doctor import GOOD, PROBLEM

    style = {GOOD: "", PROBLEM: "bold red"}.get(check.state, "yellow")
    print_lines(console, [f"{check.state:<8}{check.subject}: {check.result}"], style)
    if check.advice:
        print_lines(console, [f"        {check.advice}"])
