"""Raven selection tables: label columns, several views, and tables of many recordings."""

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OutputError
from rows_of_spans import Annotation, read_annotations, write_annotations

HEAD = (
    "Selection",
    "View",
    "Channel",
    "Begin Time (s)",
    "End Time (s)",
    "Low Freq (Hz)",
    "High Freq (Hz)",
)


def read(folder, names, *rows, **annotation_options):
    path = folder / "x.Table.1.selections.txt"
    path.write_text(
        "".join("\t".join(map(str, row)) + "\r\n" for row in (names, *rows)), newline=""
    )
    return read_annotations(path, "raven", AnnotationOptions(**annotation_options))


def row(selection, view="Spectrogram 1", begin=1.5, end=2.5):
    return (selection, view, 1, begin, end, 10, 200)


@pytest.mark.parametrize("name", ["Annotation", "call_type", "Whatever I like"])
def test_the_label_is_found(name, tmp_path):
    annotation_file = read(
        tmp_path,
        (*HEAD, "Peak Freq (Hz)", "Begin Path", name),
        (*row(1), 50, "a/b.wav", "roar"),
    )
    (annotation,) = annotation_file.annotations
    assert (
        annotation.path,
        annotation.start_s,
        annotation.end_s,
        annotation.label,
    ) == ("a/b.wav", 1.5, 2.5, "roar")
    known = {
        "Selection": "1",
        "View": "Spectrogram 1",
        "Channel": "1",
        "low_freq_hz": 10.0,
        "high_freq_hz": 200.0,
    }
    assert annotation.extra == known | {"Peak Freq (Hz)": "50"}
    assert annotation_file.notes == [f"labels from column {name!r}"]


def test_the_label_column_can_be_given(tmp_path):
    annotation_file = read(
        tmp_path,
        (*HEAD, "Annotation", "Caller"),
        (*row(1), "roar", "Echo"),
        columns={"label": "caller"},
    )
    assert annotation_file.annotations[0].label == "Echo"
    assert annotation_file.annotations[0].extra["Annotation"] == "roar"
    with pytest.raises(
        InputError, match=r"no column 'Callerx', .* did you mean Caller"
    ):
        read(
            tmp_path, (*HEAD, "Caller"), (*row(1), "Echo"), columns={"label": "Callerx"}
        )


def test_a_missing_label_column_is_an_error_unless_a_label_is_given(tmp_path):
    with pytest.raises(InputError, match="line 1: no column holds the label"):
        read(tmp_path, (*HEAD, "Mood", "Caller"), (*row(1), "good", "Echo"))
    assert read(tmp_path, HEAD, row(1), label="roar").annotations[0].label == "roar"


@pytest.mark.parametrize(
    "views",
    [("Waveform 1", "Spectrogram 1"), ("Spectrogram 1", "Waveform 1", "Spectrogram 2")],
)
def test_a_selection_in_several_views_counts_once(views, tmp_path):
    rows = [(*row(1, view), "roar") for view in views]
    annotation_file = read(
        tmp_path, (*HEAD, "Annotation"), *rows, (*row(2, "Waveform 1"), "rumble")
    )
    assert [
        (annotation.label, annotation.extra["View"])
        for annotation in annotation_file.annotations
    ] == [("roar", "Spectrogram 1"), ("rumble", "Waveform 1")]
    assert annotation_file.annotations[0].row == views.index("Spectrogram 1") + 1
    assert annotation_file.notes[1].startswith("rows left out: further views")


def test_selections_with_the_same_number_but_other_times_count(tmp_path):
    names = (*HEAD, "Begin File", "Annotation")
    annotation_file = read(
        tmp_path,
        names,
        (*row(1), "a.wav", "roar"),
        (*row(1, "Waveform 1"), "b.wav", "roar"),
        (*row(1, "Waveform 1", end=3), "a.wav", "roar"),
        (*row(1), "a.wav", "rumble"),
    )
    assert len(annotation_file.annotations) == 4


def test_a_file_offset_moves_the_times_into_the_recording(tmp_path):
    names = (*HEAD, "Begin File", "File Offset (s)", "Annotation")
    annotation_file = read(
        tmp_path,
        names,
        (*row(1, begin="3600.1", end="3600.4"), "b.wav", "0.1", "roar"),
        (*row(2, begin="0.25", end="0.3"), "a.wav", "0.25", "roar"),
        (*row(3, begin="7", end="8"), "a.wav", "x", "roar"),
    )
    assert [
        (annotation.path, annotation.start_s, annotation.end_s)
        for annotation in annotation_file.annotations
    ] == [("b.wav", 0.1, 0.4), ("a.wav", 0.25, 0.3)]
    assert annotation_file.rejects[0].reason == "offset_s: expected a number, got 'x'"


def test_times_that_run_on_over_many_files_are_an_error_and_over_few_a_note(tmp_path):
    names = (*HEAD, "Begin File", "Annotation")
    calls = [
        (n, "Spectrogram 1", 1, 10 * n, 10 * n + 2, 1, 2, f"{n}.wav", "roar")
        for n in range(6)
    ]
    with pytest.raises(
        InputError,
        match=r"line 1: times run on over 6 files, .* no column File Offset \(s\)",
    ):
        read(tmp_path, names, *calls)
    for subset in (
        calls[:4],
        [*calls, (9, "Spectrogram 1", 1, 0, 2, 1, 2, "9.wav", "roar")],
    ):
        annotation_file = read(tmp_path, names, *subset)
        assert len(annotation_file.annotations) == len(subset)
        assert (
            "no column File Offset (s): times are taken to start anew with each file"
            in annotation_file.notes
        )
    assert (
        len(
            read(
                tmp_path, names, *((*cells[:7], "one.wav", "roar") for cells in calls)
            ).annotations
        )
        == 6
    )


def test_the_path_column_can_be_given(tmp_path):
    names = (*HEAD, "Begin File", "Begin Path", "Annotation")
    cells = (*row(1), "a.wav", "D:\\far\\a.wav", "roar")
    assert read(tmp_path, names, cells).annotations[0].path == "D:\\far\\a.wav"
    assert (
        read(tmp_path, names, cells, columns={"path": "Begin File"}).annotations[0].path
        == "a.wav"
    )


def test_invalid_rows_are_rejects(tmp_path):
    names = (*HEAD, "Begin File", "Annotation")
    annotation_file = read(
        tmp_path,
        names,
        (*row(1), "", "roar"),
        (1, 2),
        (*row(2, end=1.5), "a.wav", "roar"),
        (*row(3), "a.wav", ""),
        (1, "View", 1, 0, 1, "low", 5, "a.wav", "roar"),
    )
    assert [
        (annotation.row, annotation.reason.partition(",")[0])
        for annotation in annotation_file.rejects
    ] == [
        (1, "no recording named"),
        (2, "expected 9 fields as in the header"),
        (3, "starts and ends at 1.5: a point in time; a segment needs a span"),
        (4, "no label"),
        (5, "low_freq_hz: expected a number"),
    ]
    assert annotation_file.annotations == []


def test_files_are_named_only_in_a_table_of_many_recordings(tmp_path):
    annotation = Annotation(
        "a.wav",
        0.1,
        0.3,
        "roar",
        "",
        1,
        extra={"low_freq_hz": 10.0, "Begin File": "old", "note": "x"},
    )
    other = Annotation(
        "b.wav", 0.1, 0.3, "roar", "", 1, extra={"View": "Waveform 1", "Channel": "2"}
    )
    path = tmp_path / "x.txt"
    write_annotations([annotation], path, "raven")
    assert path.read_text().splitlines() == [
        "\t".join([*HEAD, "Annotation", "note"]),
        "1\tSpectrogram 1\t1\t0.1\t0.3\t10.0\t\troar\tx",
    ]
    write_annotations([annotation, other], path, "raven")
    annotation_file = read_annotations(path)
    assert [
        (copy.path, copy.start_s, copy.end_s) for copy in annotation_file.annotations
    ] == [("a.wav", 0.1, 0.3), ("b.wav", 0.1, 0.3)]
    assert annotation_file.annotations[1].extra["Channel"] == "2"


def test_annotations_that_a_table_cannot_hold_are_an_error(tmp_path):
    annotation = Annotation("a.wav", 0.1, 0.3, "roar", "", 1)
    with pytest.raises(OutputError, match="of one recording"):
        write_annotations(
            [annotation, Annotation(None, 0.1, 0.3, "roar", "", 1)],
            tmp_path / "x.txt",
            "raven",
        )
    renamed = Annotation("a.wav", 0.1, 0.3, "roar", "", 1, extra={"Annotation": "x"})
    with pytest.raises(
        OutputError, match="extra column 'Annotation' has the name of another column"
    ):
        write_annotations([renamed], tmp_path / "x.txt", "raven")
    text = Annotation("a.wav", 0.1, 0.3, "roar", "", 1, extra={"low_freq_hz": "deep"})
    with pytest.raises(OutputError, match="deep"):
        write_annotations([text], tmp_path / "x.txt", "raven")


def test_a_length_gives_the_end_where_there_is_none(tmp_path):
    header = ("Selection", "Begin Time (s)", "Delta Time (s)", "Label")
    (one,) = read(tmp_path, header, (1, 0.1, 0.2, "roar")).annotations
    assert (one.start_s, one.end_s) == (0.1, 0.3)
    with pytest.raises(InputError, match=r"no column End Time \(s\)"):
        read(tmp_path, ("Selection", "Begin Time (s)", "Label"), (1, 0.1, "roar"))


def test_quotes_of_a_label_are_kept_unless_the_header_is_quoted(tmp_path):
    labels = read_labels(tmp_path, '"a"', 'b, "c"', end="\r\n")
    assert labels == ['"a"', 'b, "c"']
    assert read_labels(tmp_path, '"a, b"', end="\n") == ['"a, b"']
    header = '"Selection"\t"Begin Time (s)"\t"End Time (s)"\t"Label"'
    path = tmp_path / "y.txt"
    path.write_text(f'{header}\n1\t0\t1\t"a ""low"" call"\n2\t1\t2\t"C:\\"\n')
    labels = [one.label for one in read_annotations(path).annotations]
    assert labels == ['a "low" call', "C:\\"]


def read_labels(folder, *labels, end):
    lines = ["Selection\tBegin Time (s)\tEnd Time (s)\tLabel"]
    lines += [f"{n}\t{n}\t{n + 1}\t{label}" for n, label in enumerate(labels)]
    path = folder / "y.txt"
    path.write_bytes(end.join(lines).encode())
    return [one.label for one in read_annotations(path).annotations]
