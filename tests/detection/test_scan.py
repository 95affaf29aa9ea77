"""A model finds calls in recordings and indexes, whatever happens to files and processes."""

import json
import os
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import soundfile as sf

import callshot
from callshot.detection import scan as scanning
from callshot.detection.clips import ClipOptions
from callshot.detection.detector import find_medians
from callshot.detection.events import open_recordings, read_events
from callshot.detection.index import index_recordings as indexing
from callshot.detection.index.index_files import open_index, read_span, span_paths
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import load_model
from callshot.detection.nearest import make_nearest_detector, measure_site
from callshot.detection.scan import decide, scan, search_recordings
from callshot.detection.scan_files import scan_files
from callshot.errors import InputError, OptionError
from callshot.records import FAILURES, Finding
from callshot.study.verify import verify_path
from cluster_jobs import list_files
from field_recordings import write_site
from literal_events import literal_events
from sounds import record_badly

HOP_S = 0.25


@pytest.fixture(scope="module")
def field(tmp_path_factory):
    """Return a folder with a model, recordings, and an index of these."""
    folder = tmp_path_factory.mktemp("field")
    examples = write_site(folder / "examples", names=("a", "b"))
    result = learn(examples, "mfcc", window_s=0.5, store=folder / "store")
    result.write(folder / "model.npz")
    write_site(folder / "site", names=("x", "y", "z"), seed=8)
    index_recordings(
        folder / "site",
        folder / "index",
        "mfcc",
        window_s=0.5,
        hop_s=HOP_S,
        dtype="float32",
    )
    return folder


def run_scan(folder, source, out, **options):
    """Scan as the command does, with all files."""
    return scan_files(
        folder / "model.npz",
        source,
        out,
        formats=("raven", "audacity", "kaleidoscope"),
        **{"hop_s": HOP_S} | options,
    )


# Numbers


def literal_decisions(rows, detector):
    """Return label and score of each window, one by one; −1 is none of the classes."""
    labels = []
    scores = []
    for row in rows:
        (values,) = detector.score(row["vector"][None]).tolist()
        best = values.index(max(values))
        is_call = values[best] >= detector.thresholds[best]
        labels.append(best if is_call and row["rms_dbfs"] > -120 else -1)
        scores.append(values[best])
    return labels, scores


def read_rows(index, recording):
    """Return the rows of a recording with one file of windows."""
    (path,) = span_paths(index.folder, recording)
    return read_span(path, index.settings)


def test_events_begin_and_end_with_windows_where_the_audio_is_gone(field):
    index = open_index(field / "index")
    gone = tuple(replace(one, root=str(field / "gone")) for one in index.recordings)
    model = field / "model.npz"
    result = scan(model, replace(index, recordings=gone), edges="sound")
    assert sum("begin and end with windows" in note for note in result.notes) == 1
    by_windows = scan(model, index).events
    assert result.events.select("start_s", "end_s", "label").equals(
        by_windows.select("start_s", "end_s", "label")
    )
    calls = scan(model, index, edges="sound").events
    assert calls["low_freq_hz"].null_count() == 0
    lengths_s = calls["end_s"] - calls["start_s"]
    assert lengths_s.median() < (by_windows["end_s"] - by_windows["start_s"]).median()


@pytest.mark.parametrize("by_nearest_mean", [False, True])
def test_the_best_windows_of_each_class_are_found_without_thresholds(
    field, by_nearest_mean
):
    index = open_index(field / "index")
    detector = scan(field / "model.npz", index).detector
    if by_nearest_mean:
        model = load_model(field / "model.npz")
        site = measure_site(index, model.examples.matrix)
        detector = make_nearest_detector(model, site)
    found = []
    for recording in index.recordings:
        rows = read_rows(index, recording)
        if by_nearest_mean:
            all_classes = replace(detector, thresholds=np.full(3, -np.inf), passes=0)
            labels, scores, _ = all_classes.search([rows["vector"]])
        else:
            scores = detector.score(rows["vector"])
            labels = scores.argmax(axis=1)
        found += [
            (int(label), float(values[label]))
            for label, values in zip(labels, scores, strict=True)
            if label >= 0
        ]
    best = search_recordings(index, detector, load_model(field / "model.npz"), 4)
    assert sum(len(one["score"]) for one in best.windows) == 4 * len(detector.classes)
    for number, threshold in enumerate(best.detector.thresholds):
        falling = sorted((score for label, score in found if label == number))[::-1]
        assert sum(score > threshold for score in falling) == 4
    result = scan(field / "model.npz", index, best=4)
    assert result.active == 4 * len(detector.classes)
    assert "with the highest scores" in result.notes[0]
    for wrong in ({"best": 0}, {"best": 1, "false_alarms": 1.0}):
        with pytest.raises(OptionError, match="best: "):
            scan(field / "model.npz", index, **wrong)


def test_only_windows_that_may_be_the_best_are_kept_in_memory(field, monkeypatch):
    count = 5000
    index = open_index(field / "index")
    model = load_model(field / "model.npz")
    detector = make_nearest_detector(model, measure_site(index, model.examples.matrix))

    def find_worse_and_worse(index, detector, **_):
        """Yield windows that score lower in each recording than in the one before."""
        for number, recording in enumerate(index.recordings):
            start_s = np.arange(float(count))
            label = np.full(count, detector.classes[0], object)
            times = {"start_s": start_s, "end_s": start_s + 1}
            columns = {**times, "label": label, "score": np.full(count, -number)}
            yield recording, scanning.ActiveWindows(columns, silent=0)

    monkeypatch.setattr(scanning, "find_active_windows", find_worse_and_worse)
    peaks = []
    for recordings in (4, 4, 60):  # the first time, libraries are loaded
        copies = [
            replace(index.recordings[0], path=f"{number:02}.wav")
            for number in range(recordings)
        ]
        tracemalloc.start()
        found = search_recordings(
            replace(index, recordings=tuple(copies)), detector, model, count
        )
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert [len(one["score"]) for one in found.windows[:2]] == [count, 0]
    assert peaks[2] < 1.5 * peaks[1]


def test_the_first_of_equally_good_windows_are_the_best(field, tmp_path):
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    original = field / "site" / "x.wav"
    for name in "abcd":
        shutil.copy2(original, recordings / f"{name}.wav")
    model = field / "model.npz"
    scanned = scan(model, recordings, tmp_path / "index", best=2, hop_s=HOP_S)
    assert scanned.active == 2 * len(scanned.detector.classes)
    assert set(scanned.events["recording"]) == {"a.wav", "b.wav"}


def test_calls_whose_label_the_model_does_not_have_are_not_missed(field, tmp_path):
    result = scan_files(field / "model.npz", field / "index", tmp_path / "out")
    calls = result.events.select("recording", "start_s", "end_s", "label")
    other = calls.head(1).with_columns(end_s=pl.col("start_s") + 0.1, label=pl.lit("x"))
    annotations = pl.concat([calls, other])
    found = tmp_path / "out" / "events.csv"
    scores = callshot.score_detections(found, annotations, samples=10)
    assert set(scores.scores["label"].drop_nulls()) == set(calls["label"])
    assert set(scores.scores.filter(by="events")["recall"]) == {1.0}
    assert any(note.endswith("the model has no such label: x") for note in scores.notes)
    copy = shutil.copy2(found, tmp_path / "events.csv")  # of a model that is not known
    of_copy = callshot.score_detections(copy, annotations, samples=10)
    assert "x" in set(of_copy.scores["label"])


def test_events_are_those_of_literal_loops(field):
    result = scan(field / "model.npz", field / "index")
    call_s = find_medians(result.model, result.model.examples.spans.durations_s)
    expected = []
    for recording in result.index.recordings:
        labels, scores = literal_decisions(
            read_rows(result.index, recording), result.detector
        )
        duration_s = recording.duration_s
        events = literal_events(labels, scores, 0.5, HOP_S, 0.0, duration_s, call_s)
        expected += [(recording.path, *event) for event in events]
    names = ("recording", "start_s", "end_s", "label", "score")
    events = list(result.events.select(names).iter_rows())
    assert len(events) == len(expected) > 5
    for event, (path, start_s, end_s, label, score) in zip(
        events, expected, strict=True
    ):
        assert event[0] == path
        assert event[1:3] == pytest.approx((start_s, end_s), abs=1e-6)
        assert event[3] == result.detector.classes[label]
        assert event[4] == pytest.approx(score, rel=1e-9)


def test_distance_and_runner_up_are_those_of_the_strongest_window(field):
    result = scan(field / "model.npz", field / "index")
    index = result.index
    for event in result.events.iter_rows(named=True):
        (recording,) = [r for r in index.recordings if r.path == event["recording"]]
        (block,) = index.read_recording(recording)
        scores = result.detector.score(block.matrix)
        row = int(np.argmin(np.abs(scores.max(axis=1) - event["score"])))
        order = np.argsort(-scores[row])
        assert event["label"] == result.detector.classes[order[0]]
        assert event["runner_up"] == result.detector.classes[order[1]]
        assert event["runner_up_score"] == pytest.approx(scores[row, order[1]])
        mean = result.model.means[order[0]]
        distance = np.linalg.norm(block.matrix[row].astype(float) - mean)
        assert event["distance"] == pytest.approx(distance)


def test_events_depend_neither_on_threads_nor_on_how_the_model_is_given(field):
    model = callshot.load_model(str(field / "model.npz"))
    assert isinstance(model, callshot.Model)
    assert repr(model) == "Model(12 examples of 3 classes, mfcc)"
    index = callshot.open_index(field / "index")
    one = callshot.scan(model, index, threads=1)
    two = callshot.scan(field / "model.npz", field / "index", threads=2)
    assert one.events.height > 0
    assert one.events.equals(two.events)
    assert isinstance(one, callshot.ScanResult)
    assert one.per_class["events"].sum() == len(one.events)


def test_a_column_added_to_windows_is_a_column_of_all_tables(
    field, tmp_path, monkeypatch
):
    def decide_with_margin(rows, detector):
        windows = decide(rows, detector)
        margin = windows.columns["score"] - windows.columns["runner_up_score"]
        return windows._replace(columns={**windows.columns, "margin": margin})

    monkeypatch.setattr(scanning, "decide", decide_with_margin)
    run_scan(field, field / "index", tmp_path / "out")
    text = pl.read_csv(tmp_path / "out" / "events.csv")
    assert (
        text["margin"].to_list() == (text["score"] - text["runner_up_score"]).to_list()
    )
    parquet = pl.read_parquet(tmp_path / "out" / "events.parquet")
    assert parquet["margin"].dtype == pl.Float64
    table = tmp_path / "out" / "raven" / "x.Table.1.selections.txt"
    assert "margin" in table.read_text().splitlines()[0].lower()


def test_recordings_and_their_index_give_the_same_events(field, tmp_path):
    """At an aim at which no score lies so near a threshold that float16 decides."""
    aim = 10.0
    model = field / "model.npz"
    indexed = scan(model, field / "index", false_alarms=aim)
    direct = scan(model, field / "site", tmp_path / "i", hop_s=HOP_S, false_alarms=aim)
    names = ("recording", "start_s", "end_s", "label", "runner_up")
    assert direct.events.select(names).equals(indexed.events.select(names))


def test_windows_that_overlap_are_false_alarms_less_often(field, tmp_path):
    site = field / "site" / "x.wav"
    model = field / "model.npz"
    apart = scan(model, site, tmp_path / "apart", false_alarms=10)
    overlapping = scan(
        model, site, tmp_path / "overlapping", hop_s=0.25, false_alarms=20
    )
    background = apart.model.background
    assert background is not None
    assert background.hop_s == apart.index.settings.hop_s == 0.5
    assert (apart.detector.thresholds == overlapping.detector.thresholds).all()


def test_clock_times_are_those_of_events(tmp_path, field):
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(field / "site" / "x.wav", site / "20260314_053000.wav")
    result = run_scan(field, site, tmp_path / "out")
    for start_s, clock in result.events.select("start_s", "clock").iter_rows():
        seconds = np.datetime64(clock) - np.datetime64("2026-03-14T05:30:00.000")
        assert seconds / np.timedelta64(1, "s") == pytest.approx(start_s, abs=1e-3)
    activity = pl.read_csv(tmp_path / "out" / "activity" / "activity.csv")
    assert activity["hour"].unique().to_list() == [5]
    assert activity["detections"].sum() == len(result.events)
    assert set(activity["label"]) == set(result.detector.classes)


# Files


def test_all_files_are_written_verified_and_read_back_to_the_same_events(
    field, tmp_path, monkeypatch
):
    out = tmp_path / "out"
    result = run_scan(field, field / "site", out)
    facts = json.loads((out / "scan.json").read_text())
    assert facts["events"] == len(result.events)
    assert facts["recordings"] == 3
    assert facts["hours"] == pytest.approx(result.hours)
    assert {one["label"] for one in facts["classes"]} == {"hoot", "bark", "trill"}
    expected = result.events
    for name in ("events.csv", "events.parquet", "raven", "audacity"):
        events = read_events(out / name, open_recordings(field / "site")).events
        span = ("recording", "start_s", "end_s", "label")
        assert events.select(span).equals(expected.select(span)), name
        assert not name.startswith("events") or events.equals(expected)
    assert len(list((out / "raven").iterdir())) == 3
    table = pl.read_csv(out / "kaleidoscope" / "kaleidoscope.csv")
    assert len(table) == len(expected)
    first = list_files(out)
    with monkeypatch.context() as patch:
        patch.setattr(indexing, "write_span", None)
        run_scan(field, field / "site", out)  # embeds nothing
    assert list_files(out) == first
    assert {one.state for one in verify_path(out)} == {"ok"}
    (out / "events.csv").write_text("edited")
    next((out / "index").rglob("*.npy")).write_bytes(b"")
    (out / "mine.txt").write_text("mine")
    findings = list(verify_path(out))
    failed = sorted(one.path.suffix for one in findings if one.state in FAILURES)
    assert failed == [".csv", ".npy"]
    assert Finding(out / "mine.txt", "not from callshot") in findings


def test_recordings_that_are_gone_are_not_scanned(field, tmp_path):
    site = shutil.copytree(field / "site", tmp_path / "site")
    run_scan(field, site, tmp_path / "out")
    (site / "y.wav").unlink()
    result = run_scan(field, site, tmp_path / "out")
    assert [one.path for one in result.recordings] == ["x.wav", "z.wav"]


@pytest.mark.usefixtures("no_pictures")
def test_clips_are_cut_and_not_scanned(field, tmp_path):
    options = {"formats": (), "clips": ClipOptions(1)}
    model = field / "model.npz"
    scan_files(model, field / "index", tmp_path / "out", **options)
    table = pl.read_csv(tmp_path / "out" / "clips" / "clips.csv")
    assert {"best", "uncertain"} <= {why.split(",")[0] for why in table["why"]}
    with pytest.raises(OptionError, match="the next scan would take clips for record"):
        scan_files(model, field / "site", field / "site" / "out", **options)


@pytest.mark.usefixtures("no_pictures")
def test_clips_of_recordings_that_changed_or_are_gone_are_rejects(field, tmp_path):
    site = shutil.copytree(field / "site", tmp_path / "site")
    run_scan(field, site, tmp_path / "first")
    options = {"formats": (), "clips": ClipOptions(50)}
    out = tmp_path / "out"
    os.utime(site / "x.wav", ns=(0, 0))
    (site / "y.wav").unlink()
    result = scan_files(field / "model.npz", tmp_path / "first/index", out, **options)
    assert {"x.wav", "y.wav"} <= set(result.events["recording"])
    assert {reject.file for reject in result.rejects} == {"x.wav", "y.wav"}
    table = pl.read_csv(out / "clips" / "clips.csv")
    assert set(table["recording"]) == {"z.wav"}
    rejects = (out / "rejects.csv").read_text()
    assert "changed since it was indexed" in rejects
    assert "no clip: y.wav: cannot be opened" in rejects
    assert json.loads((out / "scan.json").read_text())["rejects"] == len(result.rejects)


# What goes wrong


def test_a_corrupt_recording_is_a_reject_of_a_scan_and_of_its_index(field, tmp_path):
    site = shutil.copytree(field / "site", tmp_path / "site")
    record_badly(site / "bad.wav", "text")
    result = run_scan(field, site, tmp_path / "out")
    assert [reject.file for reject in result.rejects] == ["bad.wav"]
    assert len(result.recordings) == 3
    assert "bad.wav" in (tmp_path / "out" / "rejects.csv").read_text()
    again = scan(field / "model.npz", tmp_path / "out" / "index")
    assert again.rejects == result.rejects


@pytest.mark.parametrize("speed", [2, 0.5])
def test_times_are_real_seconds_at_any_speed_and_one_class_is_enough(tmp_path, speed):
    examples = write_site(tmp_path / "examples", names=("a", "b"), labels=("hoot",))
    model = learn(
        examples,
        "mfcc",
        encoder_options={"speed": speed},
        window_s=0.5,
        store=tmp_path / "store",
    ).model
    result = scan(model, examples, tmp_path / "index", hop_s=0.1)
    assert result.index.settings.window_s == pytest.approx(0.5, abs=1e-3)
    lines = (examples / "a.txt").read_text().splitlines()
    events = result.events.filter(recording="a.wav")
    for line in lines:
        start_s, end_s, _ = line.split("\t")
        centre_s = (float(start_s) + float(end_s)) / 2
        distance_s = (events["start_s"] + events["end_s"]) / 2 - centre_s
        assert distance_s.abs().min() < 0.15
    assert events["end_s"].max() <= result.recordings[0].duration_s
    assert set(events["label"]) == {"hoot"}
    assert events["runner_up"].is_null().all()


def test_a_damaged_file_of_an_index_is_a_reject_and_the_scan_goes_on(field, tmp_path):
    folder = shutil.copytree(field / "index", tmp_path / "index")
    path = next(folder.rglob("*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    result = scan(field / "model.npz", folder)
    assert len(result.rejects) == 1
    assert "differs from the checksum" in result.rejects[0].reason
    assert len(result.recordings) == 2


def test_silent_windows_have_no_call(field, tmp_path):
    sf.write(tmp_path / "silent.wav", np.zeros(4000), 16000)
    result = scan(field / "model.npz", tmp_path, tmp_path / "index")
    assert result.events.is_empty()
    assert result.notes[0] == (
        "silent.wav: shorter than the window of 0.5 s; used whole"
    )
    assert "silent.wav: silent from start to end" in result.notes


def test_a_silent_window_is_none_of_the_classes_whatever_its_score(field):
    result = scan(field / "model.npz", field / "index")
    detector = replace(result.detector, thresholds=np.full(3, -np.inf))
    rows = read_rows(result.index, result.recordings[0]).copy()
    rows["rms_dbfs"][4:9] = -120
    windows = decide([rows], detector)
    assert windows.silent == 5
    assert (
        windows.columns["start_s"].tolist()
        == np.delete(rows["start_s"], range(4, 9)).tolist()
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fingerprint": {}}, "the index has mfcc, the model mfcc: other"),
        ({"window_s": 1.0}, "the index has windows of 1 s, the model of 0.5 s; index"),
        ({"channel": "mean"}, "has channel mean, the model channel first; index"),
    ],
)
def test_an_index_must_be_made_as_the_model_was_learned(field, settings, message):
    index = open_index(field / "index")
    other = replace(index, settings=replace(index.settings, **settings))
    with pytest.raises(InputError, match=message):
        scan(field / "model.npz", other)


def test_options_that_do_not_fit_are_one_line(field, tmp_path):
    model = field / "model.npz"
    index = field / "index"
    examples = load_model(model).examples
    alike = replace(examples, matrix=np.ones_like(examples.matrix))
    with pytest.raises(InputError, match="examples of bark and hoot are identical"):
        scan(replace(load_model(model), examples=alike), index)
    for aim in (0.0, -1.0, float("nan")):
        with pytest.raises(OptionError, match="false_alarms: expected more than 0"):
            scan(model, index, false_alarms=aim)
    with pytest.raises(OptionError, match="gap: expected 0 or more seconds, got -1"):
        scan(model, index, gap_s=-1)
    with pytest.raises(OptionError, match="index: name the folder"):
        scan(model, field / "site")
    with pytest.raises(OptionError, match=r"has a window every 0.25 s; remove --hop"):
        scan(model, index, hop_s=0.1)
    with pytest.raises(InputError, match="learned with mfcc, got random"):
        scan(model, field / "site", tmp_path / "i", encoder="random")
    assert not (tmp_path / "i").exists()
