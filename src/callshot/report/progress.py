"""Progress of a long computation: a bar on a terminal, a line for every tenth elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.markup import escape

from callshot.errors import printable
from callshot.records import Progress, no_progress


@contextmanager
def show_progress(
    console: Console,
    *,
    quiet: bool,
    first: str = "preparing (the first run compiles, some seconds)",
) -> Iterator[Progress]:
    """Yield a function that threads may call with shares of the work, which add up to 1.

    `first` is shown until the first call.
    """
    if quiet:
        yield no_progress
    elif console.is_terminal:
        with _show_bar(console, first) as progress:
            yield progress
    else:
        yield _LineProgress(console)


@contextmanager
def _show_bar(console: Console, first: str) -> Iterator[Progress]:
    from rich import progress as rich_progress

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.TaskProgressColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(first, total=1.0)

        def progress(share: float, name: str) -> None:
            description = escape(printable(name))
            bar.update(task, advance=share, description=description)

        yield progress


class _LineProgress:
    """Prints a line at each tenth, with the seconds so far and an estimate of those left."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.start = time.monotonic()
        self.lock = Lock()
        self.done = 0.0
        self.tenths = 0

    def __call__(self, share: float, name: str) -> None:
        with self.lock:
            self.done += share
            tenths = int(self.done * 10 + 1e-6)
            if tenths > self.tenths:
                self.tenths = tenths
                self._print_line(name)

    def _print_line(self, name: str) -> None:
        done = min(self.done, 1.0)
        spent_s = time.monotonic() - self.start
        left_s = spent_s * (1 - done) / done
        self.console.print(
            f"{done:4.0%}  {printable(name)}  {spent_s:.0f} s, {left_s:.0f} s left",
            markup=False,
            highlight=False,
        )
