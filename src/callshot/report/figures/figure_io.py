"""A plate, what is to be drawn → PDF and PNG, in our style and nobody else's.

Equal plates give equal bytes: no date, no version, no order of a set. Pyplot and the user's settings stay untouched.
"""

import io
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from callshot.report.figures.style import DPI, FONT, OTHER_FONTS, STYLE
from callshot.report.output_folder import explain_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
METADATA: dict[str, Any] = {
    "pdf": {"Creator": "callshot", "CreationDate": None},
    "png": {"Software": "callshot"},
}


@dataclass(frozen=True)
class FigurePage:
    """A figure that is still to be drawn: the stem of its files, and what draws it on an empty Figure."""

    stem: str
    compose: Callable[["Figure"], None]


def render(plate: FigurePage, folder: Path) -> list[Path]:
    """Draw a plate, write it to a folder as .pdf and .png, and return both paths."""
    with blank() as figure:
        plate.compose(figure)
        freeze(figure)
        return [_save(figure, folder / f"{plate.stem}.{kind}") for kind in ("pdf", "png")]


@contextmanager
def blank() -> Iterator["Figure"]:
    """Give an empty Figure in our style, which holds as long as the figure is open."""
    import matplotlib
    from matplotlib import font_manager
    from matplotlib.figure import Figure

    with matplotlib.rc_context(), warnings.catch_warnings(), _quiet("matplotlib.font_manager"):
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script that no font has
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        installed = set(font_manager.get_font_names())
        matplotlib.rcParams["font.family"] = [
            FONT,
            *(name for name in OTHER_FONTS if name in installed),
        ]
        yield Figure(layout="constrained")


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Keep a logger from telling that a font has no bold letters."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def freeze(figure: "Figure") -> None:
    """Lay a figure out, once: what is placed by the layout stays in its place."""
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")


def pages(stem: str, panels: Sequence[T], most: int) -> Iterator[tuple[str, Sequence[T]]]:
    """Share panels out to figures of `most` at most, each with a stem: numbered, where there are several."""
    count = -(-len(panels) // most)
    for i in range(count):
        yield f"{stem}-{i + 1}" if count > 1 else stem, panels[i * most : (i + 1) * most]


def _save(figure: "Figure", path: Path) -> Path:
    """Write a figure beside its place, then move it there: an interrupt leaves no half of one."""
    picture, kind = io.BytesIO(), path.suffix[1:]
    figure.savefig(picture, format=kind, metadata=METADATA[kind])
    if kind == "png":
        picture = _shrink(picture)
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".callshot-", dir=path.parent) as folder:
            (Path(folder) / path.name).write_bytes(picture.getvalue())
            os.replace(Path(folder) / path.name, path)  # noqa: PTH105
    return path


def _shrink(picture: io.BytesIO) -> io.BytesIO:
    """Return a PNG in a palette of 256 colours, a third as large: a page holds a dozen of them."""
    from PIL import Image, PngImagePlugin

    small, told = io.BytesIO(), PngImagePlugin.PngInfo()
    for name, text in METADATA["png"].items():
        told.add_text(name, text)
    whole = Image.open(picture).convert("RGB")
    few = whole.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    few.save(small, "png", optimize=True, dpi=(DPI, DPI), pnginfo=told)
    return small
