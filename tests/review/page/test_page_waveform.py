"""The waveform in Chromium: what is drawn is the sound of the card."""

import pytest

from review_pages import make_uneven_scan
from served_review import serve

# How many pixels the wave has in the first and in the last quarter of its canvas
COUNT_PIXELS = """(canvas) => {
    const { width, height } = canvas;
    const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
    const counts = [0, 0, 0, 0];
    for (let pixel = 0; pixel < width * height; pixel += 1) {
        const quarter = Math.floor((4 * (pixel % width)) / width);
        if (data[4 * pixel + 3] > 128) counts[quarter] += 1;
    }
    return [counts[0], counts[3]];
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a call that is loud at its start, and one that is loud at its end."""
    with serve(make_uneven_scan(tmp_path_factory.mktemp("uneven"))) as (client, _):
        yield client


def count_pixels(seen):
    return seen.page.locator("#wave canvas").first.evaluate(COUNT_PIXELS)


def test_the_waveform_is_that_of_the_card_even_after_many_quick_ones(visit):
    with visit() as seen:
        assert seen.shown() == 1  # of at_start.wav, whose score is higher
        first, last = count_pixels(seen)
        assert first > 3 * last
        seen.press("y")
        assert seen.shown() == 0
        first, last = count_pixels(seen)
        assert last > 3 * first
        seen.press("ArrowLeft")
        assert seen.shown() == 1
        first, last = count_pixels(seen)
        assert first > 3 * last
        seen.page.set_viewport_size({"width": 1000, "height": 700})
        seen.settle()
        seen.press("y")
        first, last = count_pixels(seen)
        assert last > 3 * first
        seen.press("ArrowLeft")
        # The last of many quick cards has its own waveform.
        for key in ("s", "ArrowLeft", "s", "ArrowLeft", "s"):
            seen.page.keyboard.press(key)
        seen.settle()
        counts = count_pixels(seen)
        if seen.shown() == 0:  # of at_end.wav
            counts.reverse()
        assert counts[0] > 3 * counts[1]
