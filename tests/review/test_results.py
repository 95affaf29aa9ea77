import io
import zipfile

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from callshot.cli import app
from callshot.detection.model import load_model
from callshot.review.results import read_review
from rows_of_spans import read_annotations
from served_review import serve


@pytest.fixture
def reviewed(scan, tmp_path):
    """A review with a confirmed, a relabelled, a moved, a rejected and a split call."""
    out = tmp_path / "review"
    with serve(scan, out) as (client, review):
        client.post("/api/labels", {"name": "<script>growl"})
        client.decide(0, "confirm")
        client.decide(1, "relabel", label="<script>growl")
        span = review.decisions.find_span(2, "ada")
        client.decide(2, "confirm", start_s=span[0] + 0.1, end_s=span[1])
        client.decide(3, "reject")
        middle = sum(review.decisions.find_span(4, "ada")) / 2
        parts = client.decide(4, "split", at_s=middle)["items"]
        assert [one["parent"] for one in parts] == [None, 4, 4]
        client.decide(parts[1]["id"], "confirm")
        yield out, client, review


def test_the_journal_alone_gives_the_calls(reviewed):
    out, _, review = reviewed
    events = read_review(out).events
    start_s = review.items["start_s"]
    assert len(events) == 4
    assert set(events["reviewer"]) == {"ada"}
    assert events["confirmed"].all()
    assert "<script>growl" in set(events["label"])
    starts = {start_s[0], start_s[1], start_s[2] + 0.1, start_s[4]}
    assert set(events["start_s"]) == starts
    assert len(read_review(out, rejected=True).events) == 5
    assert len(read_review(out, reviewer="bob").events) == 0


def test_the_files_of_an_export_are_read_back_and_say_who_and_when(reviewed, tmp_path):
    out, client, _ = reviewed
    for format in ("raven", "audacity"):
        status, headers, content = client.ask("GET", f"/api/export/{format}")
        name = f'attachment; filename="review-{format}.zip"'
        assert (status, headers["content-disposition"]) == (200, name)
        archive = zipfile.ZipFile(io.BytesIO(content))
        archive.extractall(tmp_path / format)
        labels = []
        for path in (tmp_path / format).rglob("*.txt"):
            labels += [one.label for one in read_annotations(path).annotations]
        assert sorted(labels) == sorted(read_review(out).events["label"])
    events = read_review(out, rejected=True).events
    content = client.export("parquet?rejected=1")
    assert pl.read_parquet(io.BytesIO(content)).equals(events)
    assert client.table().columns[-3:] == ["reviewer", "reviewed_at", "added"]
    client.get("/api/export/exe", 404)


def run(*arguments):
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_a_review_is_converted_and_learned_from_by_commands(reviewed, scan, tmp_path):
    out, *_ = reviewed
    to = ("convert", out, "--to", "raven-all", "--out", tmp_path / "raven", "-q")
    with pytest.raises(ValueError, match="give their folder"):
        run(*to)
    run(*to, "--recordings", scan.parent / "recordings")
    assert len(list((tmp_path / "raven").glob("*.txt"))) == 1
    better = tmp_path / "better.npz"
    store = tmp_path / "store"
    run("learn", "--add", out, "--out", better, "--store", store, "-q")
    before = load_model(scan.parent / "calls.npz")
    after = load_model(better)
    assert len(after.examples) == len(before.examples) + 4
    assert set(after.classes) == {*before.classes, "<script>growl"}
    np.testing.assert_array_equal(after.background.vectors, before.background.vectors)
    assert sum(after.examples.spans["reviewed"]) == 4
    assert len(after.rejected) == 1
    assert before.rejected is None
    words = ("scan", better, scan / "index", "--out", tmp_path / "again", "-q")
    run(*words)
    events = pl.read_parquet(tmp_path / "again" / "events.parquet")
    assert events["probability"].null_count() < len(events)
    run(*words[:-2], tmp_path / "sure", "--precision", "0.6", "-q")
    sure = pl.read_parquet(tmp_path / "sure" / "events.parquet")
    assert len(sure) < len(events)
    assert (sure["probability"] >= 0.6).all()
    assert (sure["probability_low"] <= sure["probability"]).all()
    words = ("scan", scan.parent / "calls.npz", scan / "index", "--precision", "0.9")
    with pytest.raises(ValueError, match="known only from verdicts"):
        run(*words, "--out", tmp_path / "none", "-q")
    other = tmp_path / "other.npz"
    model = scan.parent / "calls.npz"
    run("learn", out, "--add", model, "--out", other, "--store", store, "-q")
    assert other.read_bytes() == better.read_bytes()


def test_commands_that_contradict_a_review_are_refused(reviewed):
    out, *_ = reviewed
    to = ("--out", "x.npz")
    for words, reason in (
        (("learn", *to), "expected EXAMPLES"),
        (("learn", "x", "--add", out, *to), "remove EXAMPLES"),
        (("learn", out, *to, "--annotations", "x.csv"), "remove --annotations"),
        (("learn", "--add", out, *to, "--window", "1"), "remove the options"),
    ):
        with pytest.raises(ValueError, match=reason):
            run(*words)


def test_the_decisions_of_a_review_give_the_call_density(reviewed, scan, tmp_path):
    folder, client, session = reviewed
    table = tmp_path / "review.csv"
    table.write_bytes(client.export("csv?rejected=1"))
    for review in (folder, table):
        out = tmp_path / f"scores of {review.name}"
        run("score", scan / "events.parquet", "--reviewed", review, "--out", out)
        density = pl.read_csv(out / "call_density.csv").filter(pl.col("bin").is_null())
        totals = {row["label"]: row for row in density.iter_rows(named=True)}
        growl = totals.pop("<script>growl")
        assert (growl["relabelled"], growl["reviewed"], growl["calls"]) == (1, 0, 1.0)
        assert sum(row["reviewed"] for row in totals.values()) == 5
        assert sum(row["confirmed"] for row in totals.values()) == 3
        assert set(totals) == set(session.items["label"][:5])


def test_a_review_without_decisions_is_refused(scan, tmp_path):
    with serve(scan, tmp_path / "review"):
        pass
    words = ("score", scan / "events.parquet", "--reviewed", tmp_path / "review")
    with pytest.raises(ValueError, match="nothing was decided"):
        run(*words, "--out", tmp_path / "scores")


def test_calls_on_which_reviewers_disagree_wait_until_they_are_settled(scan, tmp_path):
    out = tmp_path / "review"
    with serve(scan, out) as (client, _):
        other = client.as_person("bob")
        client.decide(0, "confirm")
        other.decide(0, "reject")
        assert client.get("/api/progress")["agreement"]["conflicts"] == [0]
        assert client.queue(state="conflict") == [0]
        assert len(read_review(out).events) == 0
        client.settle(0, "hoot")
        assert client.get("/api/progress")["agreement"]["conflicts"] == []
        assert read_review(out).events["label"].to_list() == ["hoot"]
        assert client.items(0)[0]["settled"]


def test_the_span_of_a_verdict_is_that_of_the_last_reviewer_who_changed_it(
    scan, tmp_path
):
    out = tmp_path / "review"

    def find_span():
        return read_review(out).events.select("start_s", "end_s").row(0)

    with serve(scan, out) as (client, review):
        bob = client.as_person("bob")
        start_s, end_s = review.decisions.find_span(0, "ada")
        spans = [(start_s + shift, end_s) for shift in (0.1, 0.2)]
        client.decide(0, "confirm", start_s=spans[0][0], end_s=end_s)
        bob.decide(0, "confirm")  # without a span
        assert find_span() == spans[0]
        client.decide(0, "confirm")
        bob.decide(0, "confirm", start_s=spans[0][0], end_s=end_s)
        client.decide(0, "span", start_s=spans[1][0], end_s=end_s)
        assert find_span() == spans[1]
        bob.decide(0, "confirm")
        assert find_span() == spans[0]
        bob.decide(0, "reject")
        client.settle(0, "hoot")
        assert find_span() == spans[0]
