"""Pages → files, drawn by this process and by others beside it.

    with open_workers(processes) as workers:        they start while results are read
        drawing = start_drawing(pages, root, folder, formats, workers)
        ...                                         anything else
        paths = drawing.finish()                    this process draws what nobody has begun

Figures of the earlier report whose content did not change are copied.
"""

import multiprocessing
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from callshot.report.figures.figure_io import (
    FigurePage,
    list_fonts,
    open_figure,
    render,
)
from callshot.results import EarlierFiles, content_key

MAX_WORKERS = 3  # a start takes as long as two figures, and there are a dozen


@contextmanager
def open_workers(
    processes: int, *, start_now: bool = True
) -> Iterator[Executor | None]:
    """Start the processes besides this one, at once or with the first page; None without any.

    They are new ones, which import the main module: a script that asks for several needs
    `if __name__ == "__main__"`.
    """
    count = min(processes - 1, MAX_WORKERS)
    if count < 1:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _ignore_interrupts) as workers:
        if start_now:
            workers.submit(_import_matplotlib)
        try:
            yield workers
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the main process, which then stops the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _import_matplotlib() -> None:
    with open_figure():
        pass


@dataclass(frozen=True)
class Drawing:
    """Files that pages become: those that are there, those that somebody draws, the rest."""

    pages: Sequence[FigurePage]
    folder: Path
    formats: Sequence[str]
    tasks: Mapping[str, "Future[list[Path]]"]  # by the stem of the page
    ready: frozenset[str]  # stems of pages that were copied

    def finish(self) -> list[Path]:
        """Draw the pages that nobody has begun, the last ones first; return all paths in order."""
        for page in reversed(self.pages):
            if page.stem in self.ready:
                continue
            task = self.tasks.get(page.stem)
            if task is None or task.cancel():
                render(page, self.folder, self.formats)
        for task in self.tasks.values():
            if not task.cancelled():
                task.result()
        return [
            self.folder / f"{page.stem}.{suffix}"
            for page in self.pages
            for suffix in self.formats
        ]


def start_drawing(
    pages: Iterable[FigurePage],
    root: Path,
    folder: str,
    formats: Sequence[str],
    workers: Executor | None = None,
    earlier: EarlierFiles | None = None,
) -> Drawing:
    """Copy pages that did not change, and hand the others to the workers, if there are any.

    `folder` is relative to `root`, as the names of earlier files are.
    """
    every = list(pages)
    ready = set()
    tasks = {}
    for page in every:
        if earlier is not None and _copy(page, root, folder, formats, earlier):
            ready.add(page.stem)
        elif workers is not None:
            task = workers.submit(render, page, root / folder, formats)
            tasks[page.stem] = task
    return Drawing(every, root / folder, formats, tasks, frozenset(ready))


def _copy(
    page: FigurePage,
    root: Path,
    folder: str,
    formats: Sequence[str],
    earlier: EarlierFiles,
) -> bool:
    """Copy all files of a page, if the earlier report has them; return whether it has."""
    key = content_key(page, list_fonts())
    names = [f"{folder}/{page.stem}.{suffix}" for suffix in formats]
    copied = [earlier.copy(name, key, root) for name in names]
    return all(copied)
