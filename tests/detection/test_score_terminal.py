"""What a terminal of 80 columns shows of scores."""

import io

import polars as pl
from rich.console import Console

from callshot.detection.score import DetectionScores
from callshot.detection.terminal import show_scores
from callshot.records.frames import CALL_DENSITY


def test_the_call_density_of_long_labels_is_not_cut():
    row = dict.fromkeys(CALL_DENSITY, 0.5)
    row |= {"label": "greeting rumble", "lowest_score": 49.9, "highest_score": 579.0}
    row |= {"detections": 1591, "reviewed": 90, "confirmed": 50, "calls": 833.0}
    row |= {"calls_p01": 516.0, "calls_p99": 1241.0}
    rows = [row | {"bin": 0}, row | {"bin": None}]
    density = pl.DataFrame(rows, schema=dict(CALL_DENSITY))
    output = io.StringIO()
    show_scores(DetectionScores(density=density), Console(file=output, width=80))
    assert output.getvalue().count("833 (516–1241)") == 2
    assert "…" not in output.getvalue()
