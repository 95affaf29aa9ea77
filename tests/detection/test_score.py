"""Scores of detections, from files to tables, and the commands score and convert."""

import itertools

import numpy as np
import polars as pl
import pytest

import callshot
from callshot.detection.exports import export_events
from callshot.errors import InputError, OptionError
from recordings_with_events import DURATIONS_S, make_events, make_recordings
from test_cli import run

COLUMNS = ["recording", "start_s", "end_s", "label", "score"]
HOURS = {"a.wav": 3600.0, "b.wav": 7200.0, "silent.wav": 3600.0}


def score(*tables, samples=10, **options):
    return callshot.score_detections(*tables, samples=samples, **options)


def frame(*rows):
    return pl.DataFrame(rows, COLUMNS[: len(rows[0])], orient="row")


ANNOTATIONS = frame(
    ("a.wav", 10.0, 12.0, "roar"),
    ("a.wav", 20.0, 22.0, "rumble"),
    ("b.wav", 30.0, 33.0, "roar"),
    ("b.wav", 60.0, 61.0, "unclear"),
)
DETECTIONS = frame(
    ("a.wav", 10.5, 12.5, "roar", 0.9),  # correct
    ("a.wav", 10.0, 11.0, "roar", 0.8),  # misplaced: its call is taken
    ("a.wav", 20.0, 22.0, "roar", 0.7),  # a wrong name
    ("b.wav", 30.0, 33.0, "roar", 0.6),  # correct
    ("b.wav", 60.0, 61.0, "roar", 0.5),  # a wrong name, or unknown
    ("silent.wav", 1.0, 2.0, "rumble", 0.4),  # a false alarm
)


# Without the calls under what is called roar: three of the roars are false alarms.
QUIET = frame(("a.wav", 11.6, 12.6, "roar"), ("b.wav", 30.0, 33.0, "roar"))


def test_counts_and_metrics_of_each_class_are_as_counted_by_hand():
    result = score(DETECTIONS, ANNOTATIONS, recordings=HOURS)
    events = result.scores.filter(by="events")
    roar = events.filter(label="roar").row(0, named=True)
    assert (roar["annotated"], roar["detected"], roar["correct"]) == (2, 5, 2)
    assert roar["precision"] == pytest.approx(2 / 5)
    assert roar["recall"] == 1.0
    assert roar["f1"] == pytest.approx(4 / 7)
    assert roar["average_precision"] == pytest.approx(0.5 * 1 + 0.5 * 2 / 4)
    assert (roar["wrong_name"], roar["misplaced"], roar["false_alarms"]) == (2, 1, 0)
    assert roar["false_alarms_per_hour"] == 0
    rumble = events.filter(label="rumble").row(0, named=True)
    assert (rumble["precision"], rumble["recall"]) == (0.0, 0.0)
    assert rumble["false_alarms_per_hour"] == pytest.approx(1 / 4)
    total = events.filter(pl.col("label").is_null()).row(0, named=True)
    assert (total["annotated"], total["detected"], total["correct"]) == (4, 6, 2)
    assert total["average_precision"] == pytest.approx((0.75 + 0 + 0) / 3)


def test_detections_of_calls_without_a_name_are_not_false():
    result = score(DETECTIONS, ANNOTATIONS, recordings=HOURS, unknown="unclear")
    for by, detected in (("events", 4), ("windows", 5)):
        roar = result.scores.filter(by=by, label="roar").row(0, named=True)
        assert roar["detected"] == detected
    assert "unclear" not in set(result.scores["label"])
    assert result.outcomes.filter(start_s=60.0)["outcome"].to_list() == ["unknown"]


def test_every_detection_and_annotation_has_one_outcome():
    result = score(DETECTIONS, ANNOTATIONS, recordings=HOURS)
    counts = dict(result.outcomes["outcome"].value_counts().iter_rows())
    assert counts == {
        "correct": 2,
        "wrong_name": 2,
        "misplaced": 1,
        "false_alarm": 1,
        "missed": 2,
    }
    named = result.outcomes.filter(outcome="wrong_name")
    assert named["annotated_label"].to_list() == ["rumble", "unclear"]


def test_intervals_are_percentiles_over_all_samples_of_recordings():
    names = ["a.wav", "b.wav", "silent.wav"]
    result = score(DETECTIONS, QUIET, recordings=HOURS, samples=1000)
    false = {"a.wav": 2, "b.wav": 1, "silent.wav": 0}
    values = [
        sum(false[name] for name in sample) / sum(HOURS[name] / 3600 for name in sample)
        for sample in itertools.product(names, repeat=3)
    ]
    roar = result.scores.filter(by="events", label="roar").row(0, named=True)
    assert roar["false_alarms_per_hour_p01"] == np.percentile(values * 100, 1)
    assert roar["false_alarms_per_hour_p99"] == np.percentile(values * 100, 99)
    assert "intervals from 3 recordings are too narrow" in result.notes


def test_a_threshold_leaves_detections_out_but_not_from_average_precision():
    full, cut = [
        score(
            DETECTIONS, ANNOTATIONS, recordings=HOURS, threshold=threshold
        ).scores.filter(by="events", label="roar")
        for threshold in (None, 0.65)
    ]
    assert (full["detected"][0], cut["detected"][0]) == (5, 3)
    assert full["average_precision"].equals(cut["average_precision"])


def test_an_aim_gives_the_threshold_of_each_class():
    result = score(DETECTIONS, QUIET, recordings=HOURS, false_alarms_per_hour=0.5)
    rows = {row["label"]: row for row in result.thresholds.iter_rows(named=True)}
    assert rows["roar"]["threshold"] == 0.6
    assert rows["roar"]["recall"] == 1.0
    assert not rows["roar"]["is_lowest"]
    assert rows["rumble"]["is_lowest"]


def test_without_recordings_there_are_no_rates_and_a_note_says_so():
    result = score(DETECTIONS, ANNOTATIONS)
    assert set(result.scores["by"]) == {"events", "windows"}
    assert result.scores["false_alarms_per_hour"].null_count() == len(result.scores)
    assert any("--recordings" in note for note in result.notes)
    with pytest.raises(OptionError, match="needs the lengths of the recordings"):
        score(DETECTIONS, ANNOTATIONS, false_alarms_per_hour=1.0)


def test_detections_without_scores_have_no_average_precision():
    result = score(DETECTIONS.drop("score"), ANNOTATIONS)
    roar = result.scores.filter(label="roar").row(0, named=True)
    assert roar["recall"] == 1.0
    assert roar["average_precision"] is None
    assert result.curve.is_empty()
    some = DETECTIONS.with_columns(
        score=pl.when(pl.col("score") > 0.5).then(pl.col("score"))
    )
    with pytest.raises(InputError, match="2 of 6 detections have no score"):
        score(some, ANNOTATIONS)


def test_labels_that_never_meet_are_noted():
    other = DETECTIONS.with_columns(label=pl.lit("Rumble"))
    result = score(other, ANNOTATIONS)
    assert any("no label is both detected" in note for note in result.notes)


def test_a_recording_of_unknown_length_is_an_error():
    with pytest.raises(InputError, match=r"silent\.wav: not among the 1 recording "):
        score(DETECTIONS.tail(1), ANNOTATIONS.head(2), recordings={"a.wav": 3600.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iou": 0.0}, "iou: expected more than 0"),
        ({"window_s": 0.0}, "window_s: expected more than 0"),
        ({"false_alarms_per_hour": 0.0}, "false_alarms: expected more than 0"),
        ({"threshold": float("nan")}, "threshold: expected a number, got nan"),
        ({"bins": 0}, "bins: expected 1 or more"),
        ({"samples": 0}, "samples: expected 1 or more"),
    ],
)
def test_options_out_of_their_range_are_errors(options, message):
    with pytest.raises(OptionError, match=message):
        score(DETECTIONS, ANNOTATIONS, **options)


def test_neither_annotations_nor_reviewed_detections_is_an_error():
    with pytest.raises(OptionError, match="give annotations, or reviewed detections"):
        score(DETECTIONS)


def test_the_commands_convert_and_score_files(tmp_path, capsys):
    audio = make_recordings(tmp_path / "audio")
    detections, _ = export_events(make_events(), "csv", tmp_path / "found")
    options = ("--recordings", audio, "--out")
    raven = tmp_path / "raven"
    run("convert", detections, "--to", "raven", *options, raven)
    assert "4 events in 4 files" in capsys.readouterr().out
    words = (detections, raven, "--false-alarms", "1/h", "--reviewed", detections)
    run("score", *words, *options, tmp_path / "scores")
    assert "all labels" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "scores").iterdir()}
    tables = ("scores", "precision_recall", "thresholds", "outcomes", "call_density")
    pictures = {"precision_recall.png", "precision_recall.pdf"}
    assert names >= {f"{table}.csv" for table in (*tables, "rejects")} | pictures
    assert "provenance.json" in names
    table = pl.read_csv(tmp_path / "scores" / "scores.csv")
    assert set(table["f1"]) == {1.0}
    assert table["annotated"].sum() > 0
    assert set(DURATIONS_S) >= set(make_events()["recording"])
