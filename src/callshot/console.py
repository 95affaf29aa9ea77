"""What every command prints: lines without control characters, and progress."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from callshot.errors import printable
from callshot.records import Progress, Reject, no_progress

LINE_EVERY_S = 30.0
MAX_REASON = 100  # characters


def print_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines that are not empty, without control characters and markup."""
    for line in lines:
        if line:
            console.print(Text(printable(line), style), soft_wrap=True)


def describe_rejects(rejects: Sequence[Reject]) -> str:
    """Return a line about rejects with the same reason: their number, the reason, the first."""
    first = rejects[0]
    reason = first.reason
    if len(reason) > MAX_REASON:
        reason = f"{reason[: MAX_REASON - 1]}…"
    place = first.file if first.row is None else f"{first.file}, row {first.row}"
    return f"  {len(rejects):5d}  {reason}  ({place})"


@contextmanager
def show_progress(
    console: Console,
    *,
    quiet: bool,
    first: str = "preparing (the first run compiles, some seconds)",
) -> Iterator[Progress]:
    """Yield a function that threads may call with shares of the work, which add up to 1.

    `first` says what happens before the first call.
    """
    if quiet:
        yield no_progress
        return
    if not console.is_terminal:
        yield LineProgress(console)
        return
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


class LineProgress:
    """Prints a line every 30 s, with the time so far and an estimate of the time left."""

    def __init__(
        self, console: Console, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._clock = clock
        self._start_s = clock()
        self._last_line_s = self._start_s
        self._lock = Lock()
        self._done = 0.0

    def __call__(self, share: float, name: str) -> None:
        """Add a share of the work."""
        with self._lock:
            self._done += share
            now_s = self._clock()
            if now_s - self._last_line_s < LINE_EVERY_S:
                return
            self._last_line_s = now_s
            spent_s = now_s - self._start_s
            done = min(self._done, 1.0)
            left = "time left not known"
            if done > 0:
                left = f"{format_time(spent_s * (1 - done) / done)} left"
            line = f"{done:4.0%}  {printable(name)}  {format_time(spent_s)}, {left}"
            self._console.print(line, markup=False, highlight=False)


def format_time(seconds: float, digits: int = 0) -> str:
    """Return a time in a readable unit; `digits` are the decimals of seconds.

    >>> format_time(42), format_time(42, 1), format_time(150), format_time(9000)
    ('42 s', '42.0 s', '2.5 min', '2.5 h')
    """
    for unit_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.1f} {unit}"
    return f"{seconds:.{digits}f} s"
