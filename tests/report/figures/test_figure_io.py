import numpy as np
import pytest
from PIL import Image

from callshot.errors import OutputError
from callshot.report.figures.figure_io import (
    FigurePage,
    make_pages,
    open_figure,
    render,
    render_all,
)
from callshot.report.figures.projection import plan_projection
from callshot.report.figures.spreads import plan_spreads
from callshot.report.figures.style import series_style
from corpus_results import make_corpus_results


def split(panels: str, most: int) -> list[tuple[str, str]]:
    pages = make_pages("map", panels, most, print)
    return [(page.stem, page.arguments[0]) for page in pages]


def test_stems_are_numbered_if_there_are_several_pages():
    assert split("abc", 3) == [("map", "abc")]
    assert split("abc", 2) == [("map-1", "ab"), ("map-2", "c")]
    assert split("", 2) == []


def compose(figure) -> None:
    figure.set_size_inches(4, 3)
    ax = figure.subplots()
    for number in range(4):
        ax.plot(range(9), [number + i % 3 for i in range(9)], **series_style(number))
    shades = [[i / 99 for i in range(100)]]
    ax.imshow(shades, extent=(0, 8, 6, 8), cmap="Blues", aspect="auto")


def read_pixels(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).astype(int)


def test_a_png_is_small_and_looks_as_it_was_drawn(tmp_path):
    _, path = render(FigurePage("p", compose), tmp_path)
    original = tmp_path / "original.png"
    with open_figure() as figure:
        compose(figure)
        figure.savefig(original)
    pixels = read_pixels(path)
    distance = np.abs(pixels - read_pixels(original)).max(axis=2)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert distance.max() <= 24  # of 255
    assert np.mean(distance > 6) < 0.01
    assert path.stat().st_size < 0.6 * original.stat().st_size
    with Image.open(path) as image:
        assert image.info["Software"] == "callshot"


def test_a_full_disk_is_an_error_of_one_line_and_leaves_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        with pytest.raises(OutputError, match=r"p.pdf: cannot be written"):
            render(FigurePage("p", compose), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_figures_of_two_processes_have_the_same_bytes_and_order(tmp_path):
    results = make_corpus_results()
    pages = [*plan_projection(results), *plan_spreads(results)]
    alone = render_all(pages, tmp_path / "alone")
    together = render_all(pages, tmp_path / "together", 2)
    assert [path.name for path in together] == [path.name for path in alone]
    for one, other in zip(alone, together, strict=True):
        assert one.read_bytes() == other.read_bytes()
