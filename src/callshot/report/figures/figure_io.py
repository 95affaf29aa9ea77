"""Pages that are still to be drawn → PDF and PNG files, in the style of callshot.

Equal pages give equal bytes: no date, no version. Pyplot and the settings of the user stay as they are.
"""

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.files import atomic_path
from callshot.report.figures.style import DPI, FONT, OTHER_FONTS, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CREATOR = "callshot"


@dataclass(frozen=True)
class FigurePage:
    """A figure that is still to be drawn, by `compose(figure, *arguments)`."""

    stem: str
    compose: Callable[..., None]
    arguments: tuple[Any, ...] = ()

    def draw(self, figure: "Figure") -> None:
        """Draw the page on an empty Figure."""
        self.compose(figure, *self.arguments)


def make_pages(
    stem: str, panels: Sequence[Any], most: int, compose: Callable[..., None], *options: Any
) -> Iterator[FigurePage]:
    """Yield pages of at most `most` panels; their stems are numbered if there are several.

    A page is drawn by `compose(figure, panels, *options)`.
    """
    count = ceil(len(panels) / most)
    for page in range(count):
        name = stem if count == 1 else f"{stem}-{page + 1}"
        page_panels = panels[page * most : (page + 1) * most]
        yield FigurePage(name, compose, (page_panels, *options))


def render(page: FigurePage, folder: Path) -> list[Path]:
    """Draw a page, write it to a folder as PDF and PNG, and return both paths."""
    pdf = folder / f"{page.stem}.pdf"
    png = folder / f"{page.stem}.png"
    with open_figure() as figure:
        page.draw(figure)
        freeze(figure)
        _write(pdf, _save(figure, "pdf", {"Creator": CREATOR, "CreationDate": None}))
        _write(png, _reduce_colours(_save(figure, "png", {})))
    return [pdf, png]


@contextmanager
def open_figure() -> Iterator["Figure"]:
    """Yield an empty Figure; the style of callshot holds while it is open."""
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings(), _quiet("matplotlib.font_manager"):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a script that no font has
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        installed = set(font_manager.get_font_names())
        fonts = [name for name in OTHER_FONTS if name in installed]
        matplotlib.rcParams["font.family"] = [FONT, *fonts]
        yield Figure(layout="constrained")


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a logger from warning, here about fonts without bold letters."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def freeze(figure: "Figure") -> None:
    """Lay a figure out once; later additions do not move what is there."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def _save(figure: "Figure", kind: str, metadata: dict[str, Any]) -> io.BytesIO:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=metadata)
    return content


def _reduce_colours(png: io.BytesIO) -> io.BytesIO:
    """Return a PNG with a palette of 256 colours, a third as large: an HTML page has a dozen."""
    from PIL import Image, PngImagePlugin

    metadata = PngImagePlugin.PngInfo()
    metadata.add_text("Software", CREATOR)
    image = Image.open(png).convert("RGB")
    reduced = image.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    content = io.BytesIO()
    reduced.save(content, "png", optimize=True, dpi=(DPI, DPI), pnginfo=metadata)
    return content


def _write(path: Path, content: io.BytesIO) -> None:
    with atomic_path(path) as temporary:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content.getbuffer())
