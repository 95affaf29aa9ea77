"""How far a long computation is: a bar with the time left on a terminal, a line for every tenth elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.markup import escape

from callshot.errors import printable
from callshot.records import Progress


@contextmanager
def show_progress(
    console: Console,
    *,
    quiet: bool,
    first: str = "preparing (the first run compiles, some seconds)",
) -> Iterator[Progress]:
    """Hand out what hears shares of the work, which add up to 1, and what they belong to; threads may call it.

    `first` is shown until something is heard.
    """
    if quiet:
        yield lambda share, what: None
    elif console.is_terminal:
        with _bar(console, first) as report:
            yield report
    else:
        yield _lines(console)


@contextmanager
def _bar(console: Console, first: str) -> Iterator[Progress]:
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import (
        Progress as RichProgress,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(first, total=1.0)

        def report(share: float, what: str) -> None:
            progress.update(task, advance=share, description=escape(printable(what)))

        yield report


def _lines(console: Console) -> Progress:
    """Print a line at each tenth, with the seconds so far and those that are left at this pace."""
    done, told, lock, start = 0.0, 0, Lock(), time.monotonic()

    def report(share: float, what: str) -> None:
        nonlocal done, told
        with lock:
            done += share
            if int(done * 10 + 1e-6) > told and done > 0:
                told = int(done * 10 + 1e-6)
                spent = time.monotonic() - start
                left = max(spent * (1 - done) / done, 0.0)
                console.print(
                    f"{min(done, 1.0):4.0%}  {printable(what)}  {spent:.0f} s, {left:.0f} s left",
                    markup=False,
                    highlight=False,
                )

    return report
