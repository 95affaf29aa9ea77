"""Pages that are still to be drawn → PDF and PNG files, by this process and by others beside it.

    with open_drawing_workers(processes) as workers:        they start while results are read
        finish = start_drawing(pages, root, folder, formats, workers, earlier)
        ...                                         anything else
        paths = finish()                            this process draws the pages that are left

Equal pages give equal bytes: no date, no version. Pyplot and the user's settings do not change.
Figures of the earlier report whose content did not change are copied.
"""

import io
import logging
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np

from callshot.files import make_folder, write_atomic
from callshot.results import EarlierFiles, content_key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CREATOR = "callshot"
DPI = 160
STYLE = Path(__file__).with_name("callshot.mplstyle")
LABEL_SIDES = ("labelbottom", "labeltop", "labelleft", "labelright")  # of ticks
TYPESETTING_TABLES = ("GSUB", "GPOS", "GDEF")


@dataclass(frozen=True)
class FigurePage:
    """A figure that is still to be drawn, by `compose(figure, *arguments)`."""

    stem: str
    compose: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def draw(self, figure: "Figure") -> None:
        """Draw the page on an empty Figure."""
        self.compose(figure, *self.arguments)


Pages = Iterator[FigurePage]


ON_CHART = ""  # in place of a section


@dataclass(frozen=True)
class FigureKind:
    """A figure of a report: its caption, the section of the page that shows it, and its pages.

    A figure is ON_CHART if a chart of the page shows the same: it is only drawn for a paper.
    `plan(results, confusion_shots, protocol)` yields the pages that the results have data for.
    """

    section: str
    caption: str
    plan: Callable[..., Pages]


FIGURES: dict[str, FigureKind] = {}  # by name, which the stems of the pages begin with

Plan = TypeVar("Plan", bound=Callable[..., Pages])


def figure_of_report(name: str, section: str, caption: str) -> Callable[[Plan], Plan]:
    """Return a decorator that registers a function as the plan of a figure; see FigureKind."""
    if "-" in name:  # what follows in the name of a page is its number
        raise ValueError(f"figure {name}: a name without hyphen is needed")

    def register(plan: Plan) -> Plan:
        FIGURES[name] = FigureKind(section, caption, plan)
        return plan

    return register


def make_pages(
    stem: str,
    panels: Sequence[Any],
    per_page: int,
    compose: Callable[..., None],
    *options: Any,
) -> Pages:
    """Yield pages of panels; their stems are numbered if there are several.

    A page is drawn by `compose(figure, panels, *options)`.
    """
    starts = range(0, len(panels), per_page)
    for number, start in enumerate(starts, 1):
        name = f"{stem}-{number}" if len(starts) > 1 else stem
        page_panels = panels[start : start + per_page]
        yield FigurePage(name, compose, (page_panels, *options))


def draw_page(
    page: FigurePage, folder: Path, formats: Sequence[str] = ("pdf", "png")
) -> list[Path]:
    """Draw a page once, write it to a folder in some formats, and return their paths."""
    paths = []
    with open_figure() as figure:
        page.draw(figure)
        freeze(figure)
        for suffix in formats:
            path = folder / f"{page.stem}.{suffix}"
            content = io.BytesIO()  # matplotlib raises errors of its own on a full disk
            SAVERS[suffix](figure, content)
            make_folder(folder)
            write_atomic(path, content.getbuffer())
            paths.append(path)
    return paths


@contextmanager
def open_figure() -> Iterator["Figure"]:
    """Yield an empty Figure; the style of callshot holds while it is open."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.font_manager import get_font_names

    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    with matplotlib.rc_context(), warnings.catch_warnings():
        # No font has a script, or a font has no bold letters.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        logger.setLevel(logging.ERROR)
        matplotlib.rc_file(STYLE)
        installed = get_font_names()
        families = matplotlib.rcParams["font.family"]
        fonts = [name for name in families if name in installed]
        matplotlib.rcParams["font.family"] = fonts
        try:
            yield Figure(layout="constrained")
        finally:
            logger.setLevel(level)


def freeze(figure: "Figure") -> None:
    """Lay a figure out once, without drawing it; later additions do not move what is there."""
    engine = figure.get_layout_engine()
    if engine is None:
        return
    # matplotlib measures all ticks to lay out a frame, and to place a label that has no text. That
    # takes half the time of the layout.
    for ax in figure.axes:
        ax.spines[:].set_in_layout(False)
        for axis in (ax.xaxis, ax.yaxis):
            if not axis.label.get_text():
                axis.set_label_coords(0.5, 0.5)
                is_shown = axis.get_tick_params()
                axis.set_in_layout(any(is_shown.get(side) for side in LABEL_SIDES))
    engine.execute(figure)
    figure.set_layout_engine("none")


def _save_pdf(figure: "Figure", file: BinaryIO) -> None:
    """Save a PDF; unlike `savefig`, this draws once, because the layout is fixed already."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    metadata = {"Creator": CREATOR, "CreationDate": None}
    dpi = figure.dpi  # which `print_pdf` changes
    canvas: Any = FigureCanvasPdf(figure)
    with _small_fonts():
        canvas.print_pdf(file, metadata=metadata)
    figure.dpi = dpi


@contextmanager
def _small_fonts() -> Iterator[None]:
    """Embed fonts without their tables for typesetting: a PDF places every letter itself.

    To cut these tables takes half the time of a figure. If a later fontTools has no such list,
    nothing changes but the time.
    """
    from fontTools.subset import Options

    dropped = getattr(Options, "_drop_tables_default", None)
    if dropped is None:  # another version of fontTools
        yield
        return
    Options._drop_tables_default = [*dropped, *TYPESETTING_TABLES]
    try:
        yield
    finally:
        Options._drop_tables_default = dropped


def _save_png(figure: "Figure", file: BinaryIO) -> None:
    """Save a PNG with a palette of 256 colours, a third as large: an HTML page has a dozen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, PngImagePlugin

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    palette_image = image.quantize(
        256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("Software", CREATOR)
    # The highest compression takes seven times as long, for 7 % of the size.
    palette_image.save(file, "PNG", compress_level=6, dpi=(DPI, DPI), pnginfo=metadata)


SAVERS: dict[str, Callable[["Figure", BinaryIO], None]] = {
    "pdf": _save_pdf,
    "png": _save_png,
}


MAX_WORKERS = 3  # a start takes as long as two figures, and there are a dozen


@contextmanager
def open_drawing_workers(
    processes: int, *, start_now: bool = True
) -> Iterator[Executor | None]:
    """Open workers that draw pages; yield None if one process, this one, is to draw them all.

    `processes` counts this process too. With `start_now`, workers start at once, otherwise with the
    first page. New processes import the main module: a script that asks for several needs
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
        except BaseException:  # Ctrl-C too must not wait for pages
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the main process, which then stops the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _import_matplotlib() -> None:
    """Import in a new process what takes long, before there is a page to draw."""
    with open_figure():
        pass


def start_drawing(
    pages: Iterable[FigurePage],
    root: Path,
    folder: str,
    formats: Sequence[str],
    workers: Executor | None,
    earlier: EarlierFiles,
) -> Callable[[], list[Path]]:
    """Copy pages that did not change, and hand the others to the workers, if there are any.

    `folder` is relative to `root`, as the names of earlier files are. Return a function that draws
    the pages that no worker has begun, the last first, and returns all paths in order.
    """
    from matplotlib.font_manager import get_font_names

    fonts = sorted(get_font_names())
    paths = []
    undrawn = []
    tasks: dict[str, Future[list[Path]]] = {}
    for page in pages:
        key = content_key(page, fonts)
        names = [f"{folder}/{page.stem}.{suffix}" for suffix in formats]
        paths += [root / name for name in names]
        copied = [earlier.copy(name, key, root) for name in names]
        if not all(copied):
            undrawn.append(page)
            if workers is not None:
                task = workers.submit(draw_page, page, root / folder, formats)
                tasks[page.stem] = task

    def finish() -> list[Path]:
        """Draw pages that no worker has begun, wait for the others, and return all paths."""
        for page in reversed(undrawn):
            if workers is None or tasks[page.stem].cancel():
                draw_page(page, root / folder, formats)
        for task in tasks.values():
            if not task.cancelled():
                task.result()
        return paths

    return finish
