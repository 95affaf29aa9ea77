"""Segments by the rules of section 1 of the method; every annotation is a segment or a reject."""

import csv
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf
from hypothesis import given, settings
from hypothesis import strategies as st
from paper_shapes import ELEPHANT_VOICES, spread_over_folds

from callshot.corpus.audio import open_recording, read_span
from callshot.corpus.options import (
    CORPORA,
    SegmentationOptions,
    make_annotation_options,
    read_renames,
)
from callshot.corpus.recordings import find_input_files
from callshot.corpus.segments import (
    check_any_segments,
    overlapping_labels,
    segment_corpus,
)
from callshot.errors import InputError
from callshot.fewshot.folds import check_folds, complete_shots, count_classes
from callshot.storage import to_path
from files_of_other_tools import textgrid
from rows_of_spans import list_rows, make_row, make_spans
from sounds import BAD_KINDS, record, record_badly

SHARED = Path(__file__).parents[3] / "shared" / "data"
ONE_SECOND = SegmentationOptions(min_length_s=1.0)


def annotate(folder, *rows, name="calls.csv"):
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("recording", "start_s", "end_s", "label"), *rows])
    return folder / name


def segment_rows(folder, *rows, options=None, **arguments):
    """Write a recording of 10 s with annotations, and segment it."""
    if not (folder / "x.wav").exists():
        record(folder / "x.wav", seconds=10)
    table = annotate(folder, *rows)
    return segment_corpus(folder, table, options=options, **arguments)  # type: ignore[arg-type]


def reasons(result):
    return [reject.reason for reject in result.rejects]


def list_calls(result):
    return [(s.start_s, s.end_s, s.label) for s in list_rows(result.segments)]


def audio_of(folder, result, n=0):
    row = list(result.segments.rows())[n]
    with open_recording(folder / row["path"]) as reader:
        return read_span(reader, row)


def test_calls_of_any_length_are_segments_unless_a_minimum_or_a_corpus_is_given(
    tmp_path,
):
    rows = [("x.wav", 1, 1.05, "blow"), ("x.wav", 2, 3.5, "roar")]
    result = segment_rows(tmp_path, *rows)
    assert result.segments["label"] == ["blow", "roar"]
    assert result.min_length_s == 0
    for corpus in CORPORA.values():
        result = segment_rows(tmp_path, *rows, corpus=corpus)
        assert result.segments["label"] == ["roar"]
        assert result.min_length_s == 1


def test_a_call_of_at_least_the_minimum_is_a_segment_and_a_shorter_one_a_reject(
    tmp_path,
):
    result = segment_rows(
        tmp_path,
        ("x.wav", 1, 2, "roar"),
        ("x.wav", 3, 3.999, "roar"),
        ("x.wav", 5.1, 6.1, "blow"),
        options=ONE_SECOND,
    )
    assert list_calls(result) == [(1, 2, "roar"), (5.1, 6.1, "blow")]
    assert reasons(result) == ["shorter than 1 s: 0.999 s"]
    assert [(Path(r.file).name, r.row) for r in result.rejects] == [("calls.csv", 2)]


def test_the_length_is_measured_without_the_collar_unless_asked(tmp_path):
    rows = [("x.wav", 3, 3.6, "roar")]
    options = replace(ONE_SECOND, collar_s=0.25)
    assert not segment_rows(tmp_path, *rows, options=options).segments
    options = replace(options, with_collar=True)
    (segment,) = list_rows(segment_rows(tmp_path, *rows, options=options).segments)
    assert (segment.start_s, segment.end_s, segment.collar_s) == (3, 3.6, 0.25)
    beyond = [("x.wav", 0, 0.6, "roar")]  # half of the collar is outside the recording
    assert not segment_rows(tmp_path, *beyond, options=options).segments


def test_a_segment_has_the_label_of_its_call_and_the_labels_of_all_that_overlap_it(
    tmp_path,
):
    rows = [
        ("x.wav", 0, 4, "rumble"),
        ("x.wav", 1.5, 2.6, "roar"),  # at the centre of the rumble
        ("x.wav", 3.9, 6, "trumpet"),
        ("x.wav", 6, 8, "blow"),  # touches the trumpet, overlaps nothing but its collar
        ("x.wav", 0.5, 0.9, "bark"),  # too short for a segment, and yet it overlaps one
    ]
    options = replace(ONE_SECOND, collar_s=0.25)
    result = segment_rows(tmp_path, *rows, options=options)
    assert {s.label: s.labels for s in list_rows(result.segments)} == {
        "rumble": ("bark", "roar", "rumble", "trumpet"),
        "roar": ("roar", "rumble"),
        "trumpet": ("rumble", "trumpet"),
        "blow": ("blow",),
    }


def test_a_segment_gets_a_peak_of_minus_3_dbfs_and_silence_stays_silence(tmp_path):
    tone = np.sin(np.arange(16000) / 9)
    signal = np.concatenate([0 * tone, 0.01 * tone, 4 * tone]).astype(np.float32)
    sf.write(tmp_path / "x.wav", signal, 8000, subtype="FLOAT")
    rows = [("x.wav", 2 * n + 0.2, 2 * n + 1.8, "roar") for n in range(3)]
    result = segment_rows(tmp_path, *rows)
    peaks = [float(np.abs(audio_of(tmp_path, result, n)).max()) for n in range(3)]
    assert peaks == pytest.approx([0, 0.70795, 0.70795], abs=1e-5)
    assert set(result.notes) == {
        "1 of 3 segments silent",
        "1 of 3 segments at full scale: may be clipped",
    }


@pytest.mark.parametrize(("start", "end"), [(9, 10.2), (90, 92)])
def test_a_call_beyond_the_end_is_a_reject(tmp_path, start, end):
    rows = [("x.wav", start, end, "roar"), ("x.wav", 1, 3, "blow")]
    result = segment_rows(tmp_path, *rows)
    assert result.segments["label"] == ["blow"]
    assert "beyond the end of x.wav, which is 10 s long" in reasons(result)[0]


def test_a_call_that_ends_a_little_late_keeps_its_time_and_is_read_to_the_end(tmp_path):
    options = SegmentationOptions(rate_hz=8000)
    result = segment_rows(tmp_path, ("x.wav", 8.95, 10.05, "roar"), options=options)
    assert result.segments["end_s"][0] == 10.05
    assert len(audio_of(tmp_path, result)) == round(1.05 * 8000)


def test_calls_on_a_truncated_recording_are_shortened_or_rejected(tmp_path):
    path = record(tmp_path / "x.wav", seconds=10)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    rows = [("x.wav", 1, 3, "roar"), ("x.wav", 3, 6, "roar"), ("x.wav", 7, 9, "roar")]
    result = segment_corpus(tmp_path, annotate(tmp_path, *rows))
    assert result.segments["end_s"] == [3, pytest.approx(5, abs=0.01)]
    (reason,) = reasons(result)
    assert "beyond the end" in reason
    assert "cut short" in reason
    assert any("x.wav: used 5.0 of 10.0 s: " in note for note in result.notes)


def test_a_duplicate_row_is_a_reject(tmp_path):
    result = segment_rows(
        tmp_path,
        ("x.wav", 1, 3, "roar"),
        ("x.wav", 1, 3, "blow"),
        ("x.wav", 1.0, 3.0, "roar"),
    )
    assert result.segments["segment"] == ["x.wav@1-3 blow", "x.wav@1-3 roar"]
    assert reasons(result)[0].endswith("calls.csv, row 1")


def test_a_file_belongs_to_the_recording_that_most_rows_name_in_any_order(tmp_path):
    record(tmp_path / "x.wav", seconds=10)
    rows = [
        "x.wav,b,1,3,roar",
        "x.wav,,4,6,roar",
        "x.wav,a,6,8,roar",
        "x.wav,b,8,9,roar",
    ]
    for order in (rows, rows[::-1]):
        text = "\n".join(["path,recording,start_s,end_s,label", *order])
        (tmp_path / "calls.csv").write_text(text)
        segments = segment_corpus(tmp_path, tmp_path / "calls.csv").segments
        assert segments["start_s"] == [1, 4, 8]
        assert segments["recording"] == ["b"] * 3


def test_names_with_other_folders_are_rejects_if_another_name_fits_better(tmp_path):
    record(tmp_path / "site1" / "x.wav", seconds=10)
    names = ("site1/x.wav", "site2/x.wav", "D:\\site3\\x.wav", "x.wav")
    rows = [(name, 2 * n, 2 * n + 2, "abcd"[n]) for n, name in enumerate(names)]
    result = segment_corpus(tmp_path / "site1", annotate(tmp_path, *rows))
    assert result.segments["label"] == ["a", "d"]
    for reason in reasons(result):
        assert "may be another recording than x.wav" in reason
    single = segment_corpus(tmp_path / "site1", annotate(tmp_path, rows[1]))
    note = "1 recording found by file name only, the first from site2/x.wav"
    assert note in single.notes
    assert not segment_corpus(tmp_path / "site1", annotate(tmp_path, rows[0])).notes


def test_a_name_with_fewer_folders_than_the_path_is_that_recording(tmp_path):
    record(tmp_path / "2026" / "site1" / "x.wav", seconds=10)
    names = ("site1/x.wav", "2026/site1/x.wav")
    rows = [(name, 2 * n, 2 * n + 2, "roar") for n, name in enumerate(names)]
    result = segment_corpus(tmp_path, annotate(tmp_path, *rows))
    assert (len(result.segments), result.rejects, result.notes) == (2, [], [])


def test_names_of_segments_are_unique_to_microseconds(tmp_path):
    for name in ("x.wav", "x.wav@0-2 b.wav"):
        record(tmp_path / name, seconds=5)
    rows = [("x.wav", 0, 2, label) for label in ("b.wav", "b.wav #2", "c")]
    rows += [("x.wav@0-2 b.wav", "", "", "c")]
    rows += [("x.wav", 1.000001, 3, "c"), ("x.wav", 1.000002, 3, "c")]
    names = segment_corpus(tmp_path, annotate(tmp_path, *rows)).segments["segment"]
    assert len(set(names)) == len(names) == 6
    assert "x.wav@1.000001-3" in names


def test_annotation_files_behind_links_that_lead_outside_are_not_read(tmp_path):
    record(tmp_path / "audio" / "x.wav")
    record(tmp_path / "audio" / "y.wav")
    (tmp_path / "audio" / "y.txt").write_text("0\t1.5\troar\n")
    (tmp_path / "secret.txt").write_text("0\t1.5\tsecret\n")
    (tmp_path / "audio" / "x.txt").symlink_to(tmp_path / "secret.txt")
    result = segment_corpus(tmp_path / "audio")
    assert result.segments["label"] == ["roar"]
    assert "leads outside" in result.skipped_files[0].reason


@pytest.mark.parametrize("kind", [*BAD_KINDS, "gone"])
def test_bad_audio_is_a_reject_and_other_recordings_are_segmented(tmp_path, kind):
    record_badly(tmp_path / "bad.wav", kind)  # the truncated one has less than 1 s
    start_s = 1.5 if kind == "truncated" else 0.5
    good = ("x.wav", 1, 3, "blow")
    result = segment_rows(tmp_path, ("bad.wav", start_s, 2.5, "roar"), good)
    assert result.segments["label"] == ["blow"]
    assert result.annotation_count == 2
    assert "bad.wav" in reasons(result)[0]
    if kind == "text":
        unread = segment_rows(tmp_path, good).skipped_files
        assert [Path(one.file).name for one in unread] == ["bad.wav"]


def test_a_path_in_annotations_cannot_leave_the_folder(tmp_path):
    record(tmp_path / "secret.wav", seconds=10)
    (tmp_path / "audio").mkdir()
    names = ("../secret.wav", str(tmp_path / "secret.wav"), "x.wav")
    result = segment_rows(tmp_path / "audio", *((name, 1, 3, "a") for name in names))
    assert result.segments.paths == ["x.wav"]
    assert all("no recording" in reason for reason in reasons(result))


def test_annotations_in_frames_are_converted_by_the_rate_of_the_recording(tmp_path):
    record(tmp_path / "x.wav", seconds=10)
    (tmp_path / "x.phn").write_text("8000 24000 roar\n24000 32000 blow\n")
    result = segment_corpus(tmp_path)
    assert list_calls(result) == [(1, 3, "roar"), (3, 4, "blow")]


def test_a_time_expanded_recording_is_read_at_its_true_rate(tmp_path):
    options = SegmentationOptions(source_rate_hz=80000, rate_hz=80000)
    result = segment_rows(tmp_path, ("x.wav", 0.1, 0.5, "bat"), options=options)
    assert result.recordings[0].duration_s == 1
    assert result.segments["source_rate_hz"][0] == 80000
    late = segment_rows(tmp_path, ("x.wav", 1, 5, "bat"), options=options)
    assert "time-expanded" in reasons(late)[0]


def test_a_recording_with_an_empty_table_is_annotated_without_calls(tmp_path):
    record(tmp_path / "quiet.wav")
    (tmp_path / "quiet.Table.1.selections.txt").write_text(
        "Selection\tView\tBegin Time (s)\tEnd Time (s)\tAnnotation\n"
    )
    result = segment_corpus(tmp_path)
    assert result.annotated == {"quiet.wav"}
    assert (result.annotation_count, len(result.segments), result.rejects) == (0, 0, [])


def test_folders_named_by_label_make_a_segment_of_each_recording(tmp_path):
    for name in ("roar/a.wav", "roar/b.wav", "old/blow/a.wav", "loose.wav"):
        record(tmp_path / name)
    result = segment_corpus(tmp_path)
    names = ["old/blow/a.wav", "roar/a.wav", "roar/b.wav"]
    assert result.segments["segment"] == names
    assert result.segments["label"] == ["blow", "roar", "roar"]
    assert [(Path(r.file).name, r.row) for r in result.rejects] == [("loose.wav", None)]
    assert result.annotation_count == 4


def test_annotations_of_a_recording_in_two_formats_are_an_error(tmp_path):
    record(tmp_path / "x.wav")
    (tmp_path / "x.txt").write_text("0\t1.5\troar\n")
    annotate(tmp_path, ("x.wav", 0, 1.5, "roar"), name="x.csv")
    message = r"x\.wav is annotated in two formats, csv \(.*x\.csv\) and audacity"
    with pytest.raises(InputError, match=message):
        segment_corpus(tmp_path)
    assert len(segment_corpus(tmp_path, format="audacity").segments) == 1


def test_files_that_are_not_annotations_are_reported_and_skipped(tmp_path):
    (tmp_path / "README.txt").write_text("Recordings of 2019.\n")
    (tmp_path / "broken.TextGrid").write_text(
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n'
    )
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    record(tmp_path / "x.wav")
    annotate(tmp_path, ("x.wav", 0, 1.5, "roar"))
    result = segment_corpus(tmp_path)
    assert len(result.segments) == 1
    names = {Path(one.file).name for one in result.skipped_files}
    assert names == {"README.txt", "broken.TextGrid"}


def test_outputs_of_callshot_are_not_read_as_annotations(tmp_path):
    record(tmp_path / "x.wav")
    annotate(tmp_path, ("x.wav", 0, 1.5, "roar"))
    (tmp_path / "out").mkdir()
    folds = tmp_path / "out" / "folds.csv"
    folds.write_text("segment,recording,label,fold\na,x.wav,blow,0\n")
    assert len(segment_corpus(tmp_path).segments) == 2
    digest = hashlib.sha256(folds.read_bytes()).hexdigest()
    for checksum, count in (("0", 2), (digest, 1)):  # "0": it is another file
        files = {"deleted.csv": "0", "no\0name": "0", "folds.csv": checksum}
        content = json.dumps({"files": files})
        (tmp_path / "out" / "provenance.json").write_text(content)
        result = segment_corpus(tmp_path)
        assert len(result.segments) == count
    assert result.segments["label"] == ["roar"]
    assert not result.skipped_files


def test_detections_of_a_scan_are_annotations_only_where_its_folder_is_given(tmp_path):
    record(tmp_path / "x.wav")
    annotate(tmp_path, ("x.wav", 0, 1.5, "roar"))
    scan = tmp_path / "detections"
    scan.mkdir()
    events = scan / "events.csv"
    events.write_text("recording,start_s,end_s,label\nx.wav,0,1.5,blow\n")
    files = {"events.csv": hashlib.sha256(events.read_bytes()).hexdigest()}
    (scan / "scan.json").write_text(json.dumps({"files": files}))
    assert segment_corpus(tmp_path).segments["label"] == ["roar"]
    assert segment_corpus(tmp_path, annotations=scan).segments["label"] == ["blow"]
    # A folder of several scans.
    scan.rename(tmp_path / "first")
    scans = tmp_path / "scans"
    scans.mkdir()
    (tmp_path / "first").rename(scans / "first")
    assert segment_corpus(tmp_path, annotations=scans).segments["label"] == ["blow"]


def test_input_files_are_without_those_that_a_folder_above_lists(tmp_path):
    inner = tmp_path / "scans" / "a" / "audacity"
    inner.mkdir(parents=True)
    files = {}
    for name in ("events.csv", "audacity/x.txt"):
        (inner.parent / name).write_text(name)
        files[name] = hashlib.sha256(name.encode()).hexdigest()
    facts = inner.parent / "scan.json"
    facts.write_text(json.dumps({"files": files}))
    found = {*find_input_files(tmp_path / "scans")}
    assert found == {facts, inner / "x.txt", inner.parent / "events.csv"}
    for folder in (tmp_path, tmp_path / "scans", inner.parent):
        assert not [*find_input_files(folder, detections=False)]
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path / "scans"), "/seasons", recursive=True)
    try:
        remote = to_path("memory://seasons")
        assert len([*find_input_files(remote)]) == 3
        assert not [*find_input_files(remote, detections=False)]
    finally:
        store.rm("/seasons", recursive=True)


@pytest.mark.parametrize("check", [True, False])
def test_progress_adds_up_to_one(tmp_path, check):
    shares: list[float] = []
    annotated = ("x.wav", 1, 3, "roar")
    segment_rows(
        tmp_path,
        annotated,
        check=check,
        progress=lambda share, what: shares.append(share),
    )
    assert sum(shares) == pytest.approx(1)


def test_a_single_recording_is_annotated_by_the_file_of_its_name(tmp_path):
    for n in range(2):
        record(tmp_path / f"n{n}.wav")
        (tmp_path / f"n{n}.txt").write_text(f"0\t1.5\tcall {n}\n")
    result = segment_corpus(tmp_path / "n1.wav")
    assert result.segments["label"] == ["call 1"]
    assert (result.annotation_count, result.skipped_files) == (1, [])


def test_spaces_around_labels_are_dropped_and_similar_labels_are_noted(tmp_path):
    labels = ("rumble", " rumble ", "Rumble", "roar")
    rows = [("x.wav", 2 * n, 2 * n + 2, label) for n, label in enumerate(labels)]
    result = segment_rows(tmp_path, *rows)
    assert result.segments["label"] == [label.strip() for label in labels]
    assert result.segments["label_written"][1] == " rumble "
    (note,) = [note for note in result.notes if "differ only" in note]
    assert "'Rumble' (1 call) and 'rumble' (2 calls)" in note


def test_a_note_suggests_a_minimum_if_most_calls_are_too_short(tmp_path):
    for length_s, minimum in ((0.3, "0.2"), (0.0005, "0")):
        rows = [("x.wav", n, n + length_s, "peep") for n in range(9)]
        result = segment_rows(tmp_path, *rows, options=ONE_SECOND)
        assert not result.segments
        advice = f"--min-length-s {minimum} would keep nearly all"
        assert any(advice in note for note in result.notes)


def test_without_any_annotations_the_error_says_what_to_do(tmp_path):
    record(tmp_path / "x.wav")
    with pytest.raises(InputError, match="no annotations found; give them with --ann"):
        segment_corpus(tmp_path)
    with pytest.raises(InputError, match=r"No such file .* folder of annotations"):
        segment_corpus(tmp_path, tmp_path / "nothing.csv")
    (tmp_path / "x.wav").unlink()
    with pytest.raises(InputError, match="no recordings found"):
        segment_corpus(tmp_path)


@pytest.mark.parametrize("name", ["x.wav", "day/x.wav"])
def test_without_annotations_the_error_names_the_labels_of_the_recordings(
    tmp_path, name
):
    record(tmp_path / name)
    labels = tmp_path / "labels"
    labels.mkdir()
    (labels / "decisions.jsonl").write_text("{}\n")
    found = labels / "found" / "1" / "detections"  # which nobody confirmed
    found.mkdir(parents=True)
    rows = f"recording,start_s,end_s,label\n{name},0,1,call\n"
    (found / "events.csv").write_text(rows)
    said = f"calls of callshot label are in {labels}: callshot learn {labels},"
    for annotations in (None, labels):
        with pytest.raises(InputError, match=re.escape(said)):
            segment_corpus(tmp_path, annotations)
    (tmp_path / name).with_suffix(".txt").write_text("0\t1.5\tcall\n")
    assert segment_corpus(tmp_path).segments["label"] == ["call"]


# Corpora


def test_ldc_has_its_own_tier_channel_and_collar(tmp_path):
    record(tmp_path / "disc1" / "R01.wav", seconds=10, channels=2)
    calls = [
        (1.0, 3.0, "Growl?"),
        (4.0, 6.0, "Long Roar_Rumble 2"),
        (7.0, 9.0, "squelch"),
    ]
    speech = [(0.0, 2.0, "elephants at the tank")]
    text = textgrid({"speech": speech, "vocalization": calls}, short=True)
    (tmp_path / "disc1" / "r01_final.TextGrid").write_text(text, encoding="utf-16")
    result = segment_corpus(tmp_path, corpus=CORPORA["ldc2010s05"])
    segments = result.segments
    assert segments["label"] == ["growl", "longroar-rumble", "squelch"]
    reading = {*zip(segments["channel_rule"], segments["collar_s"], strict=True)}
    assert reading == {("first", 0.25)}
    assert segments["tier speech"][0] == "elephants at the tank"
    assert segments["label_written"][0] == "Growl?"
    note = "labels that are not in the list of ldc2010s05 are kept: 'squelch' (1)"
    assert note in result.notes


def test_elephant_voices_has_labels_from_folders_or_a_sheet_in_one_spelling(tmp_path):
    corpus = CORPORA["elephant-voices"]
    names = ["estrous-rumble/70_file_1.mp3", "Oestrous_Rumble/71.wav"]
    for name in (*names, "Let's-Go-rumble/2.wav", "Sad-rumble/3.wav"):
        record(tmp_path / name, rate=16000, channels=2)
    result = segment_corpus(tmp_path, corpus=corpus)
    segments = result.segments
    counts = {"oestrous rumble": 2, "lets-go rumble": 1, "sad rumble": 1}
    assert Counter(segments["label"]) == counts
    reading = {*zip(segments["channel_rule"], segments["collar_s"], strict=True)}
    assert reading == {("mean", 0.0)}
    assert any("are kept: 'sad rumble' (1)" in note for note in result.notes)
    sheet = tmp_path / "sheet.csv"
    sheet.write_text(
        "Selection,Sound_file,Start_time,End_time,Call_type\n"
        "1,70_file_1,0.5,2.5,Estrous rumble\n2,71.wav,1,1.5,X\n"
    )
    segments = segment_corpus(tmp_path, sheet, corpus=corpus).segments
    assert segments.paths == [names[0]]
    assert (segments["start_s"], segments["label"]) == ([0.5], ["oestrous rumble"])


def manifest(folder, shape):
    """Write a manifest with eligible calls, calls of rare types, and calls under a second."""
    counts, folds, common, others, short, rare = shape
    label, fold = spread_over_folds(counts, folds, common)
    rows = [(n, f, 1.5) for n, f in zip(label, fold, strict=True)]
    rows += [
        (f"rare {n % rare}", -1 if n % rare == 0 else n % rare % folds, 1.0)
        for n in range(others)
    ]
    rows += [(label[n % len(label)], fold[n % len(label)], 0.5) for n in range(short)]
    next_start_s = Counter[int]()
    with (folder / "manifest.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("recording", "start_s", "end_s", "label", "fold"))
        for name, number, length in rows:
            start = next_start_s[number]
            next_start_s[number] += 2
            out.writerow((f"fold{number}.flac", start, start + length, name, number))
    for number, seconds in next_start_s.items():
        sf.write(folder / f"fold{number}.flac", np.zeros(seconds * 100), 100)
    return folder / "manifest.csv"


def test_a_manifest_with_the_counts_of_the_paper_gives_its_numbers_of_segments_and_classes(
    tmp_path,
):
    shape = (ELEPHANT_VOICES, 5, ("comment rumble",), 118, 46, 15)
    table = manifest(tmp_path, shape)
    result = segment_corpus(tmp_path, table, options=ONE_SECOND, check=False)
    segments = result.segments
    assert (result.annotation_count, len(segments)) == (422, 376)
    assert len(result.rejects) == 422 - 376
    folds = check_folds(segments["recording"], np.array(segments["fold"]))
    counts = count_classes(segments["label"], folds)
    eligible = [count for count in counts if count.eligible]
    queries = sum(sum(count.per_fold) for count in eligible)
    exemplars = sum(count.exemplars for count in eligible)
    found = (len(eligible), queries, exemplars, complete_shots(counts))
    assert found == (12, 257, 258, 4)
    assert {c.label: (c.exemplars, c.complete_to_k) for c in eligible} == shape[0]


# Every annotation is a segment or a reject

TIMES = st.sampled_from(
    ["0", "0.5", "1", "2.5", "3", "3.05", "7", "-1", "nan", "", "x", "1e400", "2,5"]
)
NAMES = st.sampled_from(
    ["good.wav", "good", "sub/good.wav", "gone.wav", "../good.wav", ""]
    + [f"{kind}.wav" for kind in BAD_KINDS]
)
LABELS = st.sampled_from(["roar", "rumble", "", " ", "a\tb", 'say "roar"', "象🐘"])
ROWS = st.lists(st.tuples(NAMES, TIMES, TIMES, LABELS), max_size=12)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    for kind in BAD_KINDS:
        record_badly(folder / f"{kind}.wav", kind)
    record(folder / "good.wav")
    record(folder / "sub" / "other.wav")
    return folder


@given(ROWS)
@settings(max_examples=40)
def test_every_annotation_is_a_segment_or_a_reject(library, rows):
    table = annotate(library, *rows, name="random.csv")
    options = SegmentationOptions(collar_s=0.1)
    result = segment_corpus(library, table, options=options, threads=1)
    assert result.annotation_count == len(result.segments) + len(result.rejects)
    assert result.annotation_count == sum(any(row) for row in rows)
    assert len(set(result.segments["segment"])) == len(result.segments)
    assert all(reject.row is not None and reject.reason for reject in result.rejects)


calls = st.tuples(
    st.sampled_from("ab"), st.integers(0, 8), st.integers(1, 5), st.sampled_from("xyz")
)


@given(st.lists(calls))
def test_overlapping_labels_equal_a_comparison_of_all_pairs(spans):
    ordered = [(path, s, s + n, label) for path, s, n, label in sorted(spans)]
    rows = [make_row(path, s, e, label=label) for path, s, e, label in ordered]
    expected = []
    for path, start, end, _ in ordered:
        inside = [one for one in ordered if one[0] == path and one[1] < end]
        labels = {label for _, _, last, label in inside if last > start}
        expected.append(tuple(sorted(labels)))
    assert overlapping_labels(make_spans(rows)) == expected


@pytest.mark.skipif(
    not SHARED.exists(), reason="the real recordings in ../shared/data are not here"
)
def test_the_real_elephants_become_241_segments_by_sheet_and_by_folder():
    for format, count in (("auto", 203), ("folders", 241)):
        result = segment_corpus(SHARED / "elephants", format=format, check=False)
        counts = {"rumble": 91, "roar": 81, "trumpet": 69}
        assert Counter(result.segments["label"]) == counts
        assert not result.rejects
        assert len(set(result.segments["recording"])) == count


# The same audio in several recordings


def test_audio_that_is_in_two_recordings_is_noted_and_listed(tmp_path):
    record(tmp_path / "x.wav", seconds=10)
    record(tmp_path / "z.wav", seconds=10, seed=7)
    (tmp_path / "copy.wav").write_bytes((tmp_path / "x.wav").read_bytes())
    rows = [
        ("x.wav", 1, 3, "roar"),
        ("x.wav", 5, 7, "roar"),
        ("copy.wav", 1, 3, "rumble"),
        ("copy.wav", 5.5, 7.5, "roar"),
        ("z.wav", 1, 3, "roar"),
    ]
    result = segment_rows(tmp_path, *rows)
    listed = [row[:2] for row in result.duplicates]
    assert listed == [(0, "copy.wav@1-3"), (0, "x.wav@1-3")]
    (note,) = [note for note in result.notes if "same audio" in note]
    assert note.startswith("2 segments have the same audio as a segment of another")
    assert "copy.wav@1-3 and x.wav@1-3" in note


def test_rows_without_a_label_are_an_error_that_names_the_option(tmp_path):
    result = segment_rows(tmp_path, ("x.wav", 1, 3, ""), ("x.wav", 5, 7, ""))
    with pytest.raises(InputError, match=r"no label; --label NAME"):
        check_any_segments(result)


def write(folder, text, encoding="utf-8"):
    path = folder / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


def test_the_file_is_read_as_spreadsheets_write_it(tmp_path):
    text = "note;Old;New\r\nx;Rmbl;rumble\r\n;Bröll;roar\r\n;wind;\r\n"
    renames = read_renames(write(tmp_path, text, "cp1252"))
    assert renames == {"Rmbl": "rumble", "Bröll": "roar", "wind": ""}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: expected the columns label and new_label, got none"),
        ("label,x\na,b\n", "line 1: expected the columns label and new_label"),
        ("label,new_label\na\n", "line 2: expected 2 fields as in the header, got 1"),
        ("label,new_label\na,b\na,c\n", "line 3: 'a' becomes 'c' here but 'b' above"),
    ],
)
def test_a_mistake_in_the_file_is_an_error_with_its_line(text, match, tmp_path):
    with pytest.raises(InputError, match=match):
        read_renames(write(tmp_path, text))


def test_calls_are_renamed_left_out_or_kept_as_they_are(tmp_path):
    record(tmp_path / "a.wav", seconds=9)
    rows = "0\t2\t Rmbl\n2\t4\troar\n4\t6\tw\u00ednd\n6\t8\trumble\n"
    (tmp_path / "a.txt").write_text(rows)
    path = write(tmp_path, "label,new_label\nRmbl,rumble\nwi\u0301nd,\nbark,x\n")
    result = segment_corpus(
        tmp_path, annotation_options=make_annotation_options(rename=path), check=False
    )
    assert result.segments["label"] == ["rumble", "roar", "rumble"]
    assert result.segments["label_written"][0] == " Rmbl"
    assert [one.reason for one in result.rejects] == [
        "left out: label 'w\u00ednd' has no new label in --rename"
    ]
    assert result.notes == [
        "labels renamed: 'Rmbl', 'w\u00ednd'",
        "labels to rename that no call has: 'bark'",
    ]
    assert result.skipped_files == []
