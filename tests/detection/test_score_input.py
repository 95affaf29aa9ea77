"""What is scored does not depend on the order of rows, nor on windows that stick out."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callshot
from literal_matching import literal_cut, literal_matching
from recordings_with_events import DURATIONS_S, make_recordings

COLUMNS = ["recording", "start_s", "end_s", "label", "score"]
LENGTH_S = 20.0
# Recording, start and length in quarters of a second, label, score: many are equal.
DETECTION = st.tuples(
    st.sampled_from(["a.wav", "b.wav"]),
    st.integers(-8, 84),
    st.integers(1, 12),
    st.sampled_from(["roar", "hoot"]),
    st.integers(0, 4),
)
ANNOTATION = st.tuples(
    st.sampled_from(["a.wav", "b.wav"]),
    st.integers(0, 76),
    st.integers(1, 4),
    st.sampled_from(["roar", "hoot", "unclear"]),
)


def make_frame(rows):
    filled = [
        (name, start / 4, (start + length) / 4, label, *score)
        for name, start, length, label, *score in rows
    ]
    columns = COLUMNS if len(rows[0]) == 5 else COLUMNS[:4]
    return pl.DataFrame(filled, columns, orient="row")


def score(detections, annotations, **options):
    return callshot.score_detections(
        make_frame(detections),
        make_frame(annotations),
        recordings=dict.fromkeys(("a.wav", "b.wav"), LENGTH_S),
        unknown="unclear",
        samples=10,
        **options,
    )


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    return make_recordings(tmp_path_factory.mktemp("order") / "audio")


@settings(max_examples=8)
@given(data=st.data())
def test_results_do_not_depend_on_the_order_of_rows(audio, data):
    detections = data.draw(st.lists(DETECTION, min_size=1, max_size=14))
    annotations = data.draw(st.lists(ANNOTATION, max_size=8))
    annotations.append(("a.wav", 8, 4, "roar"))
    # The same span and label with several scores, on a call and beside it.
    spans = [("a.wav", 8, 4, "roar"), ("a.wav", 20, 4, "roar")]
    scores = data.draw(st.lists(st.integers(0, 4), min_size=6, max_size=6))
    detections += [(*spans[n % 2], score) for n, score in enumerate(scores)]
    orders = [
        (detections, annotations),
        (
            data.draw(st.permutations(detections)),
            data.draw(st.permutations(annotations)),
        ),
    ]
    results = []
    for number, rows in enumerate(orders):
        files = []
        for kind, some in zip(("found", "calls"), rows, strict=True):
            named = [("z.flac", *row[1:]) if row[0] == "b.wav" else row for row in some]
            files.append(audio.parent / f"{kind}{number}.csv")
            make_frame(named).write_csv(files[-1])
        result = callshot.score_detections(
            *files,
            recordings=audio,
            unknown="unclear",
            samples=10,
            false_alarms_per_hour=200.0,
        )
        results.append(result)
    for name in ("scores", "curve", "thresholds", "outcomes"):
        assert getattr(results[0], name).equals(getattr(results[1], name)), name


@settings(max_examples=20)
@given(st.lists(DETECTION, min_size=1, max_size=14), st.lists(ANNOTATION, max_size=10))
def test_counts_are_those_of_a_maximum_matching_in_two_passes(detections, annotations):
    annotations.append(("a.wav", 40, 4, "roar"))  # something that can be scored
    result = score(detections, annotations)
    for label in result.scores["label"].drop_nulls().unique():
        correct = unknown = detected = 0
        for name in ("a.wav", "b.wav"):
            spans = {
                (start / 4, (start + length) / 4)
                for recording, start, length, one, _ in detections
                if (recording, one) == (name, label)
            }
            cut = [literal_cut(span, LENGTH_S) for span in spans]
            found = [span for span in cut if span is not None]
            calls = {
                kind: [
                    (start / 4, (start + length) / 4)
                    for recording, start, length, one in set(annotations)
                    if (recording, one) == (name, kind)
                ]
                for kind in (label, "unclear")
            }
            correct += sum(literal_matching(found, calls[label], 0.3))
            rows = result.outcomes.filter(recording=name, label=label)
            left = rows.filter(~pl.col("outcome").is_in(["correct", "missed"])).select(
                "start_s", "end_s"
            )
            unknown += sum(literal_matching(left.rows(), calls["unclear"], 0.3))
            detected += len(found)
        row = result.scores.filter(by="events", label=label).row(0, named=True)
        assert row["correct"] == correct
        assert row["detected"] == detected - unknown


@pytest.mark.parametrize("scores", [(0.2, 0.9), (0.9, 0.2)])
def test_of_detections_with_the_same_span_and_label_the_highest_score_counts(
    tmp_path, scores
):
    detections = tmp_path / "detections.csv"
    rows = [("a.wav", 1.0, 2.0, "roar", one) for one in scores]
    rows.append(("a.wav", 5.0, 6.0, "roar", 0.5))  # false, between the two scores
    pl.DataFrame(rows, COLUMNS, orient="row").write_csv(detections)
    annotations = tmp_path / "calls.csv"
    calls = pl.DataFrame(rows[:1], COLUMNS, orient="row").drop("score")
    calls.write_csv(annotations)
    result = callshot.score_detections(detections, annotations, samples=1)
    roar = result.scores.filter(by="events", label="roar").row(0, named=True)
    assert (roar["detected"], roar["average_precision"]) == (2, 1.0)
    rejects = [reject for reject in result.rejects if "same span" in reject.reason]
    assert [reject.row for reject in rejects] == [scores.index(0.2) + 1]


def test_detections_that_stick_out_are_cut_and_those_outside_are_named(tmp_path):
    end_s = DURATIONS_S["a.wav"]
    rows = [
        ("a.wav", -1.0, 1.0, "roar", 0.9),  # correct once it is cut
        ("a.wav", end_s - 1.0, end_s + 2.0, "roar", 0.8),  # wrong
        ("a.wav", -3.0, -1.0, "roar", 0.7),
        ("a.wav", end_s + 1.0, end_s + 2.0, "roar", 0.6),
    ]
    detections = tmp_path / "detections.csv"
    pl.DataFrame(rows, COLUMNS, orient="row").write_csv(detections)
    call = pl.DataFrame([("a.wav", 0.0, 0.5, "roar")], COLUMNS[:4], orient="row")
    annotations = tmp_path / "calls.csv"
    call.write_csv(annotations)
    audio = make_recordings(tmp_path / "audio")
    result = callshot.score_detections(
        detections, annotations, recordings=audio, samples=1
    )
    roar = result.scores.filter(by="events", label="roar").row(0, named=True)
    assert (roar["detected"], roar["correct"], roar["precision"]) == (2, 1, 0.5)
    spans = result.outcomes.filter(pl.col("outcome") != "missed")
    assert spans["start_s"].min() == 0.0
    assert spans["end_s"].max() == pytest.approx(end_s)
    assert [reject.row for reject in result.rejects] == [3, 4]
    assert any("2 of 2 detections" in note for note in result.notes)


def test_annotations_of_which_no_row_is_left_are_an_error(tmp_path):
    table = "recording,start_s,end_s,label\na.wav,1,2,\na.wav,3,4,\n"
    (tmp_path / "annotations.csv").write_text(table)
    detections = make_frame([("a.wav", 4, 4, "roar", 1)])
    with pytest.raises(callshot.CallshotError, match=r"no label.*no row is left"):
        callshot.score_detections(detections, tmp_path / "annotations.csv")


def test_a_threshold_has_no_precision_where_no_window_can_be_judged():
    detections = [("a.wav", 8, 40, "roar", 3), ("b.wav", 0, 12, "hoot", 2)]
    annotations = [("a.wav", 8, 1, "roar"), ("b.wav", 1, 1, "unclear")]
    result = score(detections, annotations, false_alarms_per_hour=200.0)
    assert result.scores["by"][0] == "windows"
    [row] = result.thresholds.filter(label="hoot").to_dicts()
    assert (row["threshold"], row["precision"], row["recall"]) == (2.0, None, None)
