"""Commands that write batch files: cluster slurm, cluster pbs."""

from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import OTHER, Program, app

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
