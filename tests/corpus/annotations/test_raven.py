"""Raven selection tables: label columns, several views, and tables of many recordings."""

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OutputError
from rows_of_spans import Annotation, list_calls, read_annotations, write_annotations

TIMES = ("Begin Time (s)", "End Time (s)")
BAND = ("Low Freq (Hz)", "High Freq (Hz)")
HEAD = ("Selection", "View", "Channel", *TIMES, *BAND)


def read(folder, names, *rows, **options):
    path = folder / "x.Table.1.selections.txt"
    lines = ["\t".join(map(str, cells)) + "\r\n" for cells in (names, *rows)]
    path.write_text("".join(lines), newline="")
    return read_annotations(path, "raven", AnnotationOptions(**options))


def row(selection, view="Spectrogram 1", begin=1.5, end=2.5):
    return (selection, view, 1, begin, end, 10, 200)


@pytest.mark.parametrize("name", ["Annotation", "call_type", "Whatever I like"])
def test_the_label_is_found(name, tmp_path):
    names = (*HEAD, "Peak Freq (Hz)", "Begin Path", name)
    file = read(tmp_path, names, (*row(1), 50, "a/b.wav", "roar"))
    assert list_calls(file) == [("a/b.wav", 1.5, 2.5, "roar")]
    known = {"Selection": "1", "View": "Spectrogram 1", "Channel": "1"}
    known |= {"low_freq_hz": 10.0, "high_freq_hz": 200.0, "Peak Freq (Hz)": "50"}
    assert file.annotations[0].extra == known
    assert file.notes == [f"labels from column {name!r}"]


def test_the_label_column_can_be_given_and_without_one_a_label(tmp_path):
    names = (*HEAD, "Annotation", "Caller")
    cells = (*row(1), "roar", "Echo")
    (one,) = read(tmp_path, names, cells, columns={"label": "caller"}).annotations
    assert (one.label, one.extra["Annotation"]) == ("Echo", "roar")
    with pytest.raises(InputError, match=r"no column 'Callerx', .* did you mean Call"):
        read(tmp_path, names, cells, columns={"label": "Callerx"})
    with pytest.raises(InputError, match="line 1: no column holds the label"):
        read(tmp_path, (*HEAD, "Mood", "Caller"), (*row(1), "good", "Echo"))
    assert read(tmp_path, HEAD, row(1), label="roar").annotations[0].label == "roar"


@pytest.mark.parametrize(
    "views",
    [("Waveform 1", "Spectrogram 1"), ("Spectrogram 1", "Waveform 1", "Spectrogram 2")],
)
def test_a_selection_in_several_views_counts_once(views, tmp_path):
    rows = [(*row(1, view), "roar") for view in views]
    rows.append((*row(2, "Waveform 1"), "rumble"))
    file = read(tmp_path, (*HEAD, "Annotation"), *rows)
    found = [(one.label, one.extra["View"]) for one in file.annotations]
    assert found == [("roar", "Spectrogram 1"), ("rumble", "Waveform 1")]
    assert file.annotations[0].row == views.index("Spectrogram 1") + 1
    assert file.notes[1].startswith("rows left out: further views")


def test_selections_with_the_same_number_but_other_times_count(tmp_path):
    rows = [
        (*row(1), "a.wav", "roar"),
        (*row(1, "Waveform 1"), "b.wav", "roar"),
        (*row(1, "Waveform 1", end=3), "a.wav", "roar"),
        (*row(1), "a.wav", "rumble"),
    ]
    file = read(tmp_path, (*HEAD, "Begin File", "Annotation"), *rows)
    assert len(file.annotations) == 4


def test_a_file_offset_moves_the_times_into_the_recording(tmp_path):
    rows = [
        (*row(1, begin="3600.1", end="3600.4"), "b.wav", "0.1", "roar"),
        (*row(2, begin="0.25", end="0.3"), "a.wav", "0.25", "roar"),
        (*row(3, begin="7", end="8"), "a.wav", "x", "roar"),
    ]
    names = (*HEAD, "Begin File", "File Offset (s)", "Annotation")
    file = read(tmp_path, names, *rows)
    assert list_calls(file) == [
        ("b.wav", 0.1, 0.4, "roar"),
        ("a.wav", 0.25, 0.3, "roar"),
    ]
    assert file.rejects[0].reason == "offset_s: expected a number, got 'x'"


def test_times_that_run_on_over_many_files_are_an_error_and_over_few_a_note(tmp_path):
    names = (*HEAD, "Begin File", "Annotation")
    starts = [(n, 10 * n) for n in range(6)]
    calls = [(*row(n, begin=s, end=s + 2), f"{n}.wav", "roar") for n, s in starts]
    message = r"line 1: times run on over 6 files, .* no column File Offset \(s\)"
    with pytest.raises(InputError, match=message):
        read(tmp_path, names, *calls)
    anew = (*row(9, begin=0, end=2), "9.wav", "roar")
    for subset in (calls[:4], [*calls, anew]):
        file = read(tmp_path, names, *subset)
        assert len(file.annotations) == len(subset)
        assert any("times are taken to start anew" in note for note in file.notes)
    one_file = [(*cells[:7], "one.wav", "roar") for cells in calls]
    assert len(read(tmp_path, names, *one_file).annotations) == 6


def test_the_path_column_can_be_given(tmp_path):
    names = (*HEAD, "Begin File", "Begin Path", "Annotation")
    cells = (*row(1), "a.wav", "D:\\far\\a.wav", "roar")
    assert read(tmp_path, names, cells).annotations[0].path == "D:\\far\\a.wav"
    given = read(tmp_path, names, cells, columns={"path": "Begin File"})
    assert given.annotations[0].path == "a.wav"


def test_invalid_rows_are_rejects(tmp_path):
    rows = [
        (*row(1), "", "roar"),
        (1, 2),
        (*row(2, end=1.5), "a.wav", "roar"),
        (*row(3), "a.wav", ""),
        (1, "View", 1, 0, 1, "low", 5, "a.wav", "roar"),
    ]
    file = read(tmp_path, (*HEAD, "Begin File", "Annotation"), *rows)
    assert [(one.row, one.reason.partition(",")[0]) for one in file.rejects] == [
        (1, "no recording named"),
        (2, "expected 9 fields as in the header"),
        (3, "starts and ends at 1.5: a point in time; a segment needs a span"),
        (4, "no label"),
        (5, "low_freq_hz: expected a number"),
    ]
    assert file.annotations == []


def call(path="a.wav", **extra):
    return Annotation(path, 0.1, 0.3, "roar", extra=extra)


def test_files_are_named_only_in_a_table_of_many_recordings(tmp_path):
    one = call(**{"low_freq_hz": 10.0, "Begin File": "old", "note": "x"})
    other = call("b.wav", View="Waveform 1", Channel="2")
    path = tmp_path / "x.txt"
    write_annotations([one], path, "raven")
    assert path.read_text().splitlines() == [
        "\t".join([*HEAD, "Annotation", "note"]),
        "1\tSpectrogram 1\t1\t0.1\t0.3\t10.0\t\troar\tx",
    ]
    write_annotations([one, other], path, "raven")
    file = read_annotations(path)
    assert list_calls(file) == [
        ("a.wav", 0.1, 0.3, "roar"),
        ("b.wav", 0.1, 0.3, "roar"),
    ]
    assert file.annotations[1].extra["Channel"] == "2"


@pytest.mark.parametrize(
    ("calls", "match"),
    [
        ([call(), call(None)], "of one recording"),
        ([call(Annotation="x")], "extra column 'Annotation' has the name of another"),
        ([call(low_freq_hz="deep")], "deep"),
    ],
)
def test_annotations_that_a_table_cannot_hold_are_an_error(calls, match, tmp_path):
    with pytest.raises(OutputError, match=match):
        write_annotations(calls, tmp_path / "x.txt", "raven")


def test_a_length_gives_the_end_where_there_is_none(tmp_path):
    header = ("Selection", "Begin Time (s)", "Delta Time (s)", "Label")
    (one,) = read(tmp_path, header, (1, 0.1, 0.2, "roar")).annotations
    assert (one.start_s, one.end_s) == (0.1, 0.3)
    with pytest.raises(InputError, match=r"no column End Time \(s\)"):
        read(tmp_path, ("Selection", "Begin Time (s)", "Label"), (1, 0.1, "roar"))


def test_quotes_of_a_label_are_kept_unless_the_header_is_quoted(tmp_path):
    header = ("Selection", *TIMES, "Label")
    labels = ['"a"', 'b, "c"', '"a, b"']
    rows = [(n, n, n + 1, label) for n, label in enumerate(labels)]
    assert [one.label for one in read(tmp_path, header, *rows).annotations] == labels
    quoted = [f'"{name}"' for name in header]
    rows = [(1, 0, 1, '"a ""low"" call"'), (2, 1, 2, '"C:\\"')]
    labels = [one.label for one in read(tmp_path, quoted, *rows).annotations]
    assert labels == ['a "low" call', "C:\\"]
