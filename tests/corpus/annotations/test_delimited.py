"""CSV, TSV and semicolons: columns, rejects, errors, and tables that are read back."""

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OptionError, OutputError
from rows_of_spans import Annotation, read_annotations, write_annotations

HEADER = "recording,start_s,end_s,label"


def read(folder, text, **annotation_options):
    path = folder / "calls.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_annotations(path, "csv", AnnotationOptions(**annotation_options))


def facts(annotation_file):
    return [
        (annotation.path, annotation.start_s, annotation.end_s, annotation.label)
        for annotation in annotation_file.annotations
    ]


def reasons(annotation_file):
    return [
        (annotation.row, annotation.reason) for annotation in annotation_file.rejects
    ]


def check_error(folder, text, match, **annotation_options):
    with pytest.raises(InputError, match=match) as caught:
        read(folder, text, **annotation_options)
    assert str(caught.value).startswith(f"{folder / 'calls.csv'}: line ")
    assert "\n" not in str(caught.value)


def test_the_default_columns_are_read(tmp_path):
    annotation_file = read(
        tmp_path, f"{HEADER}\na.wav,0,1.5,rumble\nb.wav,1e-3,2,roar\n"
    )
    assert facts(annotation_file) == [
        ("a.wav", 0.0, 1.5, "rumble"),
        ("b.wav", 0.001, 2.0, "roar"),
    ]
    assert [annotation.row for annotation in annotation_file.annotations] == [1, 2]
    assert annotation_file.notes == []


@pytest.mark.parametrize(
    "header",
    [
        "Sound_file,Start_time,End_time,Call_type",
        "notated_path,onset_s,offset_s,label",
        "path,start_seconds,stop_seconds,name",
        "Begin File,Begin Time (s),End Time (s),Species",
        "filename,BEGIN TIME,End Time,Common Name",
        "sound.files,start,end,call",
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_column_names_of_other_tools_are_known(header, delimiter, tmp_path):
    text = f"{header}\na.wav,0.5,1.5,rumble\n".replace(",", delimiter)
    assert facts(read(tmp_path, text)) == [("a.wav", 0.5, 1.5, "rumble")]


def test_the_table_of_elephant_voices_is_read(tmp_path):
    annotation_file = read(
        tmp_path,
        "Selection,Sound_file,Start_time,End_time,Call_type\n7,a.wav,1,2,Rumble\n",
    )
    assert facts(annotation_file) == [("a.wav", 1.0, 2.0, "Rumble")]
    assert annotation_file.annotations[0].extra == {"Selection": "7"}
    assert annotation_file.notes == ["labels from column 'Call_type'"]


def test_hinted_columns_take_precedence(tmp_path):
    text = "recording,start_s,end_s,label,Species\na.wav,0,1,x,EATO\n"
    annotation_file = read(tmp_path, text, columns={"label": "species"})
    assert annotation_file.annotations[0].label == "EATO"
    assert annotation_file.annotations[0].extra == {"label_annotated": "x"}


def test_with_a_path_the_recording_is_the_group(tmp_path):
    annotation_file = read(
        tmp_path, "path,label,recording\na/b.wav,roar,g1\nc.wav,roar,\n"
    )
    assert [
        (annotation.path, annotation.recording)
        for annotation in annotation_file.annotations
    ] == [("a/b.wav", "g1"), ("c.wav", None)]


def test_without_times_each_row_is_a_whole_recording(tmp_path):
    annotation_file = read(tmp_path, "path,label\na.wav,roar\n")
    assert facts(annotation_file) == [("a.wav", 0.0, None, "roar")]
    assert annotation_file.notes == ["no time columns: each row is a whole recording"]


def test_rows_without_times_are_whole_recordings_and_with_one_time_rejects(tmp_path):
    annotation_file = read(
        tmp_path, f"{HEADER}\na.wav,,,roar\na.wav,1,,roar\na.wav,,1,roar\n"
    )
    assert facts(annotation_file) == [("a.wav", 0.0, None, "roar")]
    assert reasons(annotation_file) == [
        (2, "end_s: expected a number, got ''"),
        (3, "start_s: expected a number, got ''"),
    ]


def test_without_a_path_column_the_file_belongs_to_one_recording(tmp_path):
    assert facts(read(tmp_path, "start_s,end_s,label\n0,1,roar\n")) == [
        (None, 0.0, 1.0, "roar")
    ]


def test_samples_are_frames(tmp_path):
    annotation_file = read(tmp_path, "label,onset_sample,offset_sample\nroar,100,200\n")
    assert facts(annotation_file) == [(None, 100.0, 200.0, "roar")]
    assert annotation_file.annotations[0].in_frames
    both = read(
        tmp_path,
        "label,onset_s,offset_s,onset_sample,offset_sample\nroar,1,2,100,200\n",
    ).annotations[0]
    assert (both.in_frames, both.start_s, both.extra["onset_sample"]) == (
        False,
        1.0,
        "100",
    )


def test_other_columns_become_extra_cells(tmp_path):
    header = f"{HEADER},low_freq_hz,High Freq (Hz),fold,rain,\n"
    annotation_file = read(
        tmp_path, f"{header}a.wav,0,1,roar,10,20.5,-1,007,x\na.wav,0,1,roar,NA,,,,\n"
    )
    expected = {
        "low_freq_hz": 10.0,
        "high_freq_hz": 20.5,
        "fold": -1,
        "rain": "007",
        "column 9": "x",
    }
    assert [annotation.extra for annotation in annotation_file.annotations] == [
        expected,
        dict.fromkeys(expected),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a.wav,x,1,roar", "start_s: expected a number, got 'x'"),
        ("a.wav,0,inf,roar", "end_s: expected a number, got 'inf'"),
        ("a.wav,1_0,20,roar", "start_s: expected a number, got '1_0'"),
        ('a.wav,"1,500",2,roar', "start_s: expected a number, got '1,500'"),
        ("a.wav,1:75,2,roar", "start_s: expected hh:mm:ss or mm:ss, got '1:75'"),
        ("a.wav,1:2:3:4,2,roar", "start_s: expected a number, got '1:2:3:4'"),
        ("a.wav,0,1,NA", "no label, got NA"),
        ("a.wav,-1,1,roar", "starts at -1.0; a time cannot be negative"),
        ("a.wav,2,1,roar", "starts at 2.0, after its end at 1.0"),
        (
            "a.wav,2,2,roar",
            "starts and ends at 2.0: a point in time; a segment needs a span",
        ),
        ("a.wav,1,2,", "no label"),
        (",1,2,roar", "no recording named"),
        ("a.wav,1,2", "expected 4 fields as in the header, got 3"),
        ("a.wav,1,2,roar\0", ""),
    ],
)
def test_an_invalid_row_is_a_reject_with_a_reason(row, reason, tmp_path):
    annotation_file = read(tmp_path, f"{HEADER}\n{row}\n\n,,,\na.wav,0,1,roar\n")
    assert reasons(annotation_file) == ([(1, reason)] if reason else [])
    assert annotation_file.annotations[-1].row == 2


def test_a_fold_is_an_integer_or_a_name(tmp_path):
    folds = ("2", "2.0", "north", "-1", "", "NA")
    rows = "".join(f"{n}.wav,roar,{fold}\n" for n, fold in enumerate(folds))
    annotation_file = read(tmp_path, f"path,label,fold\n{rows}")
    assert [one.extra["fold"] for one in annotation_file.annotations] == [
        2,
        2,
        "north",
        -1,
        None,
        None,
    ]


def test_decimal_commas_are_read_between_tabs_and_semicolons(tmp_path):
    for delimiter in "\t;":
        text = f"{HEADER},low_freq_hz\na.wav,0!5,1!25,roar,9!5\n".replace(
            ",", delimiter
        ).replace("!", ",")
        annotation_file = read(tmp_path, text)
        assert facts(annotation_file) == [("a.wav", 0.5, 1.25, "roar")]
        assert annotation_file.annotations[0].extra == {"low_freq_hz": 9.5}


def test_commas_in_numbers_are_rejects_beside_points_or_between_commas(tmp_path):
    for text in (
        f'{HEADER}\na.wav,"1,250",2,roar\n',
        HEADER.replace(",", "\t") + "\na.wav\t1,250\t2\troar\nb.wav\t1.5\t2\troar\n",
    ):
        annotation_file = read(tmp_path, text)
        reason = "start_s: expected a number, got '1,250'"
        assert reasons(annotation_file) == [(1, reason)]


def test_a_backslash_at_the_end_of_a_quoted_cell_stays(tmp_path):
    annotation_file = read(
        tmp_path, f'{HEADER}\na.wav,0,1,"roar\\"\n"a.wav",1,2,"bark"\n'
    )
    assert [one.label for one in annotation_file.annotations] == ["roar\\", "bark"]


def test_quoted_decimal_commas_are_read_between_commas(tmp_path):
    text = f'{HEADER},low_freq_hz\na.wav,"0,5","1,250",roar,"9,5"\nb.wav,1,2,roar,\n'
    annotation_file = read(tmp_path, text)
    assert facts(annotation_file) == [
        ("a.wav", 0.5, 1.25, "roar"),
        ("b.wav", 1.0, 2.0, "roar"),
    ]
    assert annotation_file.annotations[0].extra == {"low_freq_hz": 9.5}


def test_clock_times_are_hours_minutes_and_seconds(tmp_path):
    rows = ["a.wav,00:01:02.345,1:03,x", "a.wav,90:00,01:30:00.1,y"]
    annotation_file = read(tmp_path, "\n".join([HEADER, *rows]))
    assert facts(annotation_file) == [
        ("a.wav", 62.345, 63.0, "x"),
        ("a.wav", 5400.0, 5400.1, "y"),
    ]
    assert annotation_file.notes == []
    commas = read(tmp_path, f'{HEADER}\na.wav,"0:00:01,5",00:02,x\n')
    assert facts(commas) == [("a.wav", 1.5, 2.0, "x")]


@pytest.mark.parametrize(
    "header",
    [
        "path,start_ms,end_ms,label",
        "path,Start (ms),End (ms),label",
        "path,onset_ms,offset_ms,label",
    ],
)
def test_milliseconds_are_known_by_the_name_of_the_column(header, tmp_path):
    annotation_file = read(tmp_path, f"{header}\na.wav,1234,2500.5,roar\n")
    assert facts(annotation_file) == [("a.wav", 1.234, 2.5005, "roar")]
    assert annotation_file.notes[-1].startswith("times in milliseconds: ")


def test_the_unit_of_times_can_be_given(tmp_path):
    milliseconds = read(tmp_path, f"{HEADER}\na.wav,500,0:02,roar\n", time_unit="ms")
    assert facts(milliseconds) == [("a.wav", 0.5, 2.0, "roar")]
    seconds = read(tmp_path, "path,start_ms,end_ms,label\na.wav,5,6,x\n", time_unit="s")
    assert facts(seconds) == [("a.wav", 5.0, 6.0, "x")]
    with pytest.raises(OptionError, match="time_unit: expected one of s, ms, got 'h'"):
        AnnotationOptions(time_unit="h")


@pytest.mark.parametrize(
    ("header", "row", "end_s"),
    [
        ("path,start_s,duration_s,label", "a.wav,0.1,0.2,roar", 0.3),
        ("path,start,Duration (s),label", "a.wav,0.1,0.2,roar", 0.3),
        ("path,onset,dur_ms,label", "a.wav,0.1,200,roar", 0.3),
        ("IN FILE,OFFSET,DURATION,MANUAL ID", "a.wav,0.1,0.2,roar", 0.3),
        ("path,start_s,end_s,duration,label", "a.wav,0.1,0.5,99,roar", 0.5),
    ],
)
def test_a_duration_gives_the_end_where_there_is_none(header, row, end_s, tmp_path):
    annotation_file = read(tmp_path, f"{header}\n{row}\n")
    assert facts(annotation_file) == [("a.wav", 0.1, end_s, "roar")]


def test_a_given_duration_column_replaces_the_end(tmp_path):
    text = "path,start_s,end_s,len,label\na.wav,1,9,0.5,roar\n"
    annotation_file = read(tmp_path, text, columns={"duration_s": "len"})
    assert facts(annotation_file) == [("a.wav", 1.0, 1.5, "roar")]


def test_a_surplus_field_in_all_rows_is_not_taken_for_their_names(tmp_path):
    annotation_file = read(tmp_path, f"{HEADER}\na.wav,0,1,roar,x\na.wav,1,2,roar,y\n")
    reason = "expected 4 fields as in the header, got 5"
    assert reasons(annotation_file) == [(1, reason), (2, reason)]


def test_empty_surplus_fields_are_ignored(tmp_path):
    assert facts(read(tmp_path, f"{HEADER}\na.wav,0,1,roar,,\n")) == [
        ("a.wav", 0.0, 1.0, "roar")
    ]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: no column holds the label"),
        ("a,b\n1,2\n", "line 1: no column holds the label; .* available: 'a', 'b'"),
        ("\n\nlabel,x,x\n", "line 3: column 'x' appears twice"),
        ("path,start_s,label\n", "column 'start_s' is start_s, but no column is end_s"),
        ("path,Stop,label\n", "column 'Stop' is end_s, but no column is start_s"),
        (
            "label,path,low_freq_hz,Low Freq (Hz)\n",
            "columns 'low_freq_hz', 'Low Freq.* are both low_freq_hz",
        ),
        (
            f'{HEADER}\na.wav,0,1,roar\na.wav,0,1,"roar\n\n',
            "line 3: the row that begins here",
        ),
        (f'{HEADER}\na.wav,0,1,"ro"ar\n', "line 2: the row that begins here"),
        ('"label,path\n', "line 1: the row that begins here"),
    ],
)
def test_an_unusable_table_is_an_error(text, match, tmp_path):
    check_error(tmp_path, text, match)


def test_a_missing_column_is_an_error_with_the_closest_name(tmp_path):
    check_error(
        tmp_path,
        "Species,path\n",
        "no column 'Speceis', .* did you mean Species",
        columns={"label": "Speceis"},
    )
    with pytest.raises(
        OptionError, match="unknown column 'xlabel'; did you mean label"
    ):
        read(tmp_path, "Species,path\n", columns={"xlabel": "Species"})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_every_encoding_gives_the_same_labels(encoding, tmp_path):
    text = f"{HEADER}\na.wav,0,1,rügen\n"
    annotation_file = read(tmp_path, text.encode(encoding))
    assert annotation_file.annotations[0].label == "rügen"
    is_guessed = "not UTF-8: read as Windows-1252" in annotation_file.notes
    assert is_guessed == (encoding == "cp1252")


def test_bytes_of_windows_are_read_as_windows_and_not_as_latin_1(tmp_path):
    annotation_file = read(
        tmp_path, f"{HEADER}\na.wav,0,1,“roar” – Œuf €\n".encode("cp1252")
    )
    assert annotation_file.annotations[0].label == "“roar” – Œuf €"
    undefined = read(tmp_path, f"{HEADER}\na.wav,0,1,x\x81\n".encode("latin-1"))
    assert undefined.annotations[0].label == "x\ufffd"


def test_damaged_utf_16_is_an_error_with_its_line(tmp_path):
    with pytest.raises(InputError, match="line 2: damaged UTF-16"):
        read(tmp_path, f"{HEADER}\nx".encode("utf-16") + b"y")


def call(**facts):
    return Annotation(
        **{
            "path": "a.wav",
            "start_s": 0.1,
            "end_s": 0.3,
            "label": "roar",
            "file": "",
            "row": 1,
        }
        | facts
    )


def write_and_read(folder, *annotations):
    write_annotations(annotations, folder / "out.csv", "csv")
    return read_annotations(folder / "out.csv").annotations


def test_the_path_column_is_called_recording_unless_groups_are_given(tmp_path):
    assert write_and_read(tmp_path, call())[0].path == "a.wav"
    assert (tmp_path / "out.csv").read_text() == f"{HEADER}\na.wav,0.1,0.3,roar\n"
    grouped = write_and_read(tmp_path, call(recording="g"), call())
    assert [(annotation.path, annotation.recording) for annotation in grouped] == [
        ("a.wav", "g"),
        ("a.wav", None),
    ]
    assert (tmp_path / "out.csv").read_text().startswith("path,recording,start_s")


def test_whole_recordings_frames_and_extra_cells_are_read_back(tmp_path):
    whole = write_and_read(tmp_path, call(start_s=0.0, end_s=None), call())
    assert [(annotation.start_s, annotation.end_s) for annotation in whole] == [
        (0.0, None),
        (0.1, 0.3),
    ]
    frames = write_and_read(tmp_path, call(start_s=5.0, end_s=9.0, in_frames=True))
    assert [
        (annotation.start_s, annotation.end_s, annotation.in_frames)
        for annotation in frames
    ] == [(5.0, 9.0, True)]
    more = {
        "fold": 3,
        "low_freq_hz": 1 / 3,
        "rain": 'a "b"\r\n',
        "none": None,
        "Begin File": "x.wav",
    }
    assert write_and_read(tmp_path, call(extra=more), call())[0].extra == more
    assert write_and_read(tmp_path, call(extra=more))[0].path == "a.wav"


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        (
            [call(), call(path=None)],
            "some annotations name their recording or count frames, and some do not",
        ),
        (
            [call(path=None, recording="g")],
            "some annotations name their recording or count frames, and some do not",
        ),
        ([call(), call(in_frames=True)], "or count frames, and some do not"),
        (
            [call(extra={" ": "x"})],
            "extra column ' ' has the name of another column or none",
        ),
    ],
)
def test_annotations_that_would_not_be_read_back_are_an_error(
    annotations, match, tmp_path
):
    with pytest.raises(OutputError, match=match):
        write_and_read(tmp_path, *annotations)
