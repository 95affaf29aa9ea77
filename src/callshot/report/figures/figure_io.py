"""Pages that are still to be drawn → PDF and PNG files, in the style of callshot.

Equal pages give equal bytes: no date, no version. Pyplot and the user's settings do not change.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from callshot.files import make_folder, write_atomic
from callshot.report.figures.style import DPI, FONT, OTHER_FONTS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CREATOR = "callshot"
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


def make_pages(
    stem: str,
    panels: Sequence[Any],
    most: int,
    compose: Callable[..., None],
    *options: Any,
) -> Pages:
    """Yield pages of at most `most` panels; their stems are numbered if there are several.

    A page is drawn by `compose(figure, panels, *options)`.
    """
    for number, start in enumerate(range(0, len(panels), most), 1):
        name = f"{stem}-{number}" if len(panels) > most else stem
        page_panels = panels[start : start + most]
        yield FigurePage(name, compose, (page_panels, *options))


def render(
    page: FigurePage, folder: Path, formats: Sequence[str] = ("pdf", "png")
) -> list[Path]:
    """Draw a page once, write it to a folder in some formats, and return their paths."""
    with open_figure() as figure:
        page.draw(figure)
        freeze(figure)
        return [
            _write(figure, folder / f"{page.stem}.{suffix}", SAVERS[suffix])
            for suffix in formats
        ]


@contextmanager
def open_figure() -> Iterator["Figure"]:
    """Yield an empty Figure; the style of callshot holds while it is open."""
    import matplotlib
    from matplotlib.figure import Figure

    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    with matplotlib.rc_context(), warnings.catch_warnings():
        # No font has a script, or a font has no bold letters.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        logger.setLevel(logging.ERROR)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        matplotlib.rcParams["font.family"] = list_fonts()
        try:
            yield Figure(layout="constrained")
        finally:
            logger.setLevel(level)


def list_fonts() -> list[str]:
    """Return the fonts of figures that the system has, the first choice first."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return [FONT, *(name for name in OTHER_FONTS if name in installed)]


def freeze(figure: "Figure") -> None:
    """Lay a figure out once, without drawing it; later additions do not move what is there."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def _write(
    figure: "Figure", path: Path, save: Callable[["Figure", BinaryIO], None]
) -> Path:
    """Write a figure through memory: on a full disk, matplotlib has errors of its own."""
    content = io.BytesIO()
    save(figure, content)
    make_folder(path.parent)
    write_atomic(path, content.getbuffer())
    return path


def _save_pdf(figure: "Figure", file: BinaryIO) -> None:
    """Save a PDF; unlike `savefig`, this draws once, because the layout is fixed already."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    metadata = {"Creator": CREATOR, "CreationDate": None}
    dpi = figure.dpi
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
    if dropped is None:
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
        256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
    )
    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("Software", CREATOR)
    # The highest compression takes seven times as long, for 7 % of the size.
    palette_image.save(file, "PNG", compress_level=6, dpi=(DPI, DPI), pnginfo=metadata)


SAVERS: dict[str, Callable[["Figure", BinaryIO], None]] = {
    "pdf": _save_pdf,
    "png": _save_png,
}
