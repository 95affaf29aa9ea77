import shutil

import numpy as np
import polars as pl
import pytest
from PIL import Image

from callshot.report.figures import figure_io as drawing
from callshot.report.figures.against_k import plan_spreads
from callshot.report.figures.figure_io import (
    FigurePage,
    draw_page,
    make_pages,
    open_drawing_workers,
    open_figure,
    start_drawing,
)
from callshot.report.figures.layout import series_style
from callshot.report.figures.projection import plan_projection
from callshot.results import EarlierFiles, content_key
from corpus_results import make_corpus_results


def split(panels, most):
    pages = make_pages("map", panels, most, print)
    return [(page.stem, page.arguments[0]) for page in pages]


def test_stems_are_numbered_if_there_are_several_pages():
    assert split("abc", 3) == [("map", "abc")]
    assert split("abc", 2) == [("map-1", "ab"), ("map-2", "c")]
    assert split("", 2) == []


def compose(figure):
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
    _, path = draw_page(FigurePage("p", compose), tmp_path)
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


def test_figures_of_two_processes_have_the_same_bytes_and_order(tmp_path):
    results = make_corpus_results()
    pages = [*plan_projection(results), *plan_spreads(results)]
    formats = ("pdf", "png")
    alone = start_drawing(pages, tmp_path, "alone", formats, None, EarlierFiles())()
    with open_drawing_workers(2) as workers:
        together = start_drawing(
            pages, tmp_path, "together", formats, workers, EarlierFiles()
        )()
    assert [path.name for path in together] == [path.name for path in alone]
    for one, other in zip(alone, together, strict=True):
        assert one.read_bytes() == other.read_bytes()


def draw_twice(tmp_path, first, second):
    """Draw a page, then another one where files of the first may serve again."""
    notes = tmp_path / "work/keys.json"
    for page in (first, second):
        earlier = EarlierFiles(tmp_path / "out", notes)
        staging = tmp_path / "staging"
        paths = start_drawing([page], staging, "corpus", ["png"], None, earlier)()
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        staging.rename(tmp_path / "out")
        earlier.save()
    return [tmp_path / "out/corpus" / path.name for path in paths]


def compose_title(figure, values, title):
    figure.subplots().plot(values)
    figure.suptitle(title)


@pytest.fixture
def only_once(monkeypatch):
    """Let the first page be drawn and no other."""
    drawn = []

    def render_once(page, folder, formats):
        drawn.append(page.stem)
        return draw_page(page, folder, formats)

    monkeypatch.setattr(drawing, "draw_page", render_once)
    return drawn


def test_a_figure_whose_content_did_not_change_is_copied(tmp_path, only_once):
    pages = [FigurePage("p", compose_title, (np.arange(3), "a")) for _ in range(2)]
    (path,) = draw_twice(tmp_path, *pages)
    assert only_once == ["p"]
    alone = draw_page(pages[0], tmp_path / "alone", ["png"])
    assert path.read_bytes() == alone[0].read_bytes()


def test_a_figure_that_was_edited_is_drawn_again(tmp_path, only_once):
    page = FigurePage("p", compose_title, (np.arange(3), "a"))
    (path,) = draw_twice(tmp_path, page, page)
    path.write_bytes(b"edited")
    earlier = EarlierFiles(tmp_path / "out", tmp_path / "work/keys.json")
    start_drawing([page], tmp_path / "new", "corpus", ["png"], None, earlier)()
    assert only_once == ["p", "p"]
    assert path.read_bytes() == b"edited"


def test_damaged_keys_are_ignored(tmp_path, only_once):
    page = FigurePage("p", compose_title, (np.arange(3), "a"))
    damages = ("", "[]", "{", '{"corpus/p.png": 3}', "[" * 5000)
    for number, notes in enumerate(damages):
        draw_twice(tmp_path, page, page)
        assert only_once == ["p"] * (number + 1)
        (tmp_path / "work/keys.json").write_text(notes)


FRAMES = ({"a": [1, 2]}, {"b": [1, 2]}, {"a": [1, None]}, {"a": ["1", "2"]})
FRAMES += ({"a": [[1], [2]]}, {"a": [[1, 2], []]})
VALUES = [
    (),
    [],
    "ab",
    ["a", "b"],
    1,
    1.0,
    True,
    None,
    float("nan"),
    {"a": 1},
    {1: "a"},
]
VALUES += [np.zeros(2), np.zeros((1, 2)), np.zeros(2, np.float32)]
VALUES += map(pl.DataFrame, FRAMES)
VALUES += [FigurePage("p", compose), FigurePage("q", compose)]
DIFFERENT = [(), ("a", "b"), (FigurePage("p", compose_title),)]
DIFFERENT += [(value,) for value in VALUES]


def test_different_contents_have_different_keys_and_equal_ones_the_same():
    keys = [content_key(*values) for values in DIFFERENT]
    assert len(set(keys)) == len(keys)
    frame = pl.DataFrame({"a": [1, 2, 3], "b": ["x", "y", None]})
    parts = pl.concat([frame[:1], frame[1:]], rechunk=False)
    assert content_key(parts) == content_key(frame)
    assert content_key(frame[1:]) == content_key(frame.clone()[1:])
    assert content_key({"b", "a"}) == content_key({"a", "b"})
