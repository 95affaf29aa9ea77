"""Commands that write batch files: cluster slurm, cluster pbs."""

from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import OTHER, app

cluster = typer.Typer(
    help="Batch files that run a command on the nodes of a SLURM or PBS cluster.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(cluster, name="cluster", rich_help_panel=OTHER)

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="-- COMMAND...",
        help="The command and its options, as after callshot: index, embed, scan, evaluate or run.",
    ),
]
Workers = Annotated[int, typer.Option(help="Workers: processes with a model each.")]
WorkerThreads = Annotated[
    int, typer.Option("--threads", help="Threads of each worker.")
]
Memory = Annotated[
    int, typer.Option(metavar="GB", help="Memory for each thread of a worker.")
]
Hours = Annotated[int, typer.Option(help="The most hours that the job may take.")]
Gpu = Annotated[bool, typer.Option("--gpu", help="One GPU for each worker.")]
File = Annotated[
    Path | None,
    typer.Option(
        "--out", "-o", metavar="FILE", help="The file.", show_default="printed"
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
    """Write a batch file for SLURM: a scheduler, workers, and one command.

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
    """Write a batch file for PBS: a scheduler, workers, and one command.

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

    job = BatchJob(workers, threads, memory, hours, gpu)
    text = make_batch_file(system, job, command)
    if out is None:
        print(text, end="")
        return
    check_new_file(out, "batch file", _is_batch_file)
    write_atomic(out, text)
    submit = {"slurm": "sbatch", "pbs": "qsub"}[system]
    print(f"next: {submit} {out}")


def _is_batch_file(path: Path) -> bool:
    return b"one command of callshot, which ends them all" in path.read_bytes()[:4096]
