"""The option --cluster: open the cluster, show its dashboard, and a table of what was used."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from callshot.errors import count_text, printable

if TYPE_CHECKING:
    from callshot.distributed import DaskCluster
    from callshot.distributed.run_job import Usage


@contextmanager
def use_cluster(
    where: str | None, threads: int | None, *, quiet: bool
) -> "Iterator[DaskCluster | None]":
    """Open a cluster while a command runs, if one is named; then print what was used."""
    if where is None:
        yield None
        return
    from callshot.distributed import open_cluster

    with open_cluster(where, threads=threads) as cluster:
        if not quiet:
            line = f"cluster: {count_text(cluster.workers, 'worker')}"
            if cluster.dashboard:
                line = f"{line}; dashboard: {cluster.dashboard}"
            print(printable(line), file=sys.stderr)
        yield cluster
    if not quiet:
        _print_usage(cluster.usage)


def _print_usage(usage: "Usage") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold")
    cells = {
        "hours of audio": f"{usage.audio_s / 3600:,.2f}",
        "failures": f"{usage.failures:,}",
        "retries": f"{usage.retries:,}",
        "CPU hours": f"{usage.cpu_s / 3600:,.3f}",
        "GB read": f"{usage.bytes_read / 1e9:,.3f}",
    }
    for name in cells:
        table.add_column(name, justify="right")
    table.add_row(*cells.values())
    Console(stderr=True).print(table)
    for address, reason in usage.given_up.items():
        line = f"worker {address} did nothing: it could not begin ({reason})"
        print(printable(line), file=sys.stderr)
