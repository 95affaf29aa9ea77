"""Progress in a log: a line every 30 s with the time left."""

import io

from rich.console import Console

from callshot.console import LineProgress
from callshot.review.children import PROGRESS


class Clock:
    """A clock that a test moves."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def run_job(shares, share_takes_s):
    """Return the lines of a job of equal shares."""
    clock = Clock()
    output = io.StringIO()
    progress = LineProgress(Console(file=output, width=200), clock)
    for _ in range(shares):
        clock.now_s += share_takes_s
        progress(1 / shares, "embedding")
    return output.getvalue().splitlines()


def test_a_job_of_seconds_prints_nothing():
    assert run_job(shares=100, share_takes_s=0.1) == []


def test_a_long_job_prints_a_line_every_30_seconds_from_the_start_on():
    lines = run_job(shares=20_000, share_takes_s=0.5)
    assert len(lines) == 20_000 * 0.5 / 30 // 1
    assert "embedding" in lines[0]
    assert "30 s" in lines[0]
    assert "2.8 h left" in lines[0]


def test_slow_shares_print_a_line_each():
    lines = run_job(shares=4, share_takes_s=60)
    assert [line.split()[0] for line in lines] == ["25%", "50%", "75%", "100%"]


def test_a_page_shows_no_time_left_where_it_is_not_known():
    output = io.StringIO()
    clock = Clock()
    progress = LineProgress(Console(file=output, width=200), clock)
    for share in (0.0, 0.5):
        clock.now_s += 60
        progress(share, "a, b left.wav")
    matches = [PROGRESS.match(line) for line in output.getvalue().splitlines()]
    assert [match.groups() for match in matches] == [("0", None), ("50", "2.0 min")]
