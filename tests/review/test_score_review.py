"""Detections scored by the decisions of a review: its folder, and its tables."""

import polars as pl
import pytest
from typer.testing import CliRunner

from callshot.cli import app
from served_review import serve


@pytest.fixture
def reviewed(scan, tmp_path):
    """A review with a confirmed, two relabelled, a rejected and a split detection."""
    out = tmp_path / "review"
    with serve(scan, out) as (client, review):
        client.post("/api/labels", {"name": "growl"})
        client.decide(0, "confirm")
        client.decide(1, "relabel", label="growl")
        span = review.decisions.find_span(2, "ada")
        client.decide(2, "relabel", label="growl", start_s=span[0] + 0.1, end_s=span[1])
        client.decide(3, "reject")
        middle = sum(review.decisions.find_span(4, "ada")) / 2
        parts = client.decide(4, "split", at_s=middle)["items"]
        client.decide(parts[1]["id"], "confirm")
        yield out, client, review.items


def run(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def read_totals(folder):
    density = pl.read_csv(folder / "call_density.csv")
    totals = density.filter(pl.col("bin").is_null())
    return {row["label"]: row for row in totals.iter_rows(named=True)}


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_the_decisions_of_a_review_give_the_call_density(
    reviewed, scan, tmp_path, kind
):
    review, client, items = reviewed
    if kind == "table":
        _, _, content = client.ask("GET", "/api/export/csv?rejected=1")
        review = tmp_path / "review.csv"
        review.write_bytes(content)
    out = tmp_path / "scores"
    result = run("score", scan / "events.parquet", "--reviewed", review, "--out", out)
    assert result.exit_code == 0, result.output
    totals = read_totals(out)
    growl = totals.pop("growl")
    assert (growl["relabelled"], growl["reviewed"], growl["calls"]) == (2, 0, 2.0)
    assert sum(row["reviewed"] for row in totals.values()) == 5
    assert sum(row["confirmed"] for row in totals.values()) == 2
    assert set(totals) == set(items["label"][:5])


def test_a_review_without_decisions_is_refused(scan, tmp_path):
    out = tmp_path / "review"
    with serve(scan, out):
        pass
    with pytest.raises(ValueError, match="nothing was decided"):
        run(
            "score",
            scan / "events.parquet",
            "--reviewed",
            out,
            "--out",
            tmp_path / "scores",
        )
