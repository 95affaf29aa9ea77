"""CSV, TSV and semicolons: columns, rejects, errors, and tables that are read back."""

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OptionError, OutputError
from rows_of_spans import Annotation, list_calls, read_annotations, write_annotations

HEADER = "recording,start_s,end_s,label"


def read(folder, text, **options):
    path = folder / "calls.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_annotations(path, "csv", AnnotationOptions(**options))


def reasons(file):
    return [(one.row, one.reason) for one in file.rejects]


@pytest.mark.parametrize(
    "header",
    [
        "recording,start_s,end_s,label",
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
    assert list_calls(read(tmp_path, text)) == [("a.wav", 0.5, 1.5, "rumble")]


ROAR = ("a.wav", 0.5, 1.25, "roar")
LENGTH = {"columns": {"duration_s": "len"}}
WHOLE = ("a.wav", 0.0, None, "roar")
# The text of a table, options, and its calls.
TABLES = [
    (
        f"{HEADER}\na.wav,0.5,1.25,roar\nb.wav,1e-3,2,y\n",
        {},
        [ROAR, ("b.wav", 0.001, 2, "y")],
    ),
    ("path,label\na.wav,roar\n", {}, [WHOLE]),
    ("start_s,end_s,label\n0,1,roar\n", {}, [(None, 0, 1, "roar")]),
    ("path,start_s,end_s,len,label\na.wav,0.5,9,0.75,roar\n", LENGTH, [ROAR]),
    (f"{HEADER}\na.wav,0.5,1.25,roar,,\n", {}, [ROAR]),
    (f'{HEADER}\na.wav,0.5,1.25,"roar\\"\n', {}, [("a.wav", 0.5, 1.25, "roar\\")]),
    # decimal commas
    (HEADER.replace(",", "\t") + "\na.wav\t0,5\t1,25\troar\n", {}, [ROAR]),
    (HEADER.replace(",", ";") + "\na.wav;0,5;1,25;roar\n", {}, [ROAR]),
    (f'{HEADER}\na.wav,"0,5","1,25",roar\n', {}, [ROAR]),
    # clock times and milliseconds
    (f"{HEADER}\na.wav,00:01:02.345,1:03,x\n", {}, [("a.wav", 62.345, 63, "x")]),
    (f"{HEADER}\na.wav,90:00,01:30:00.1,x\n", {}, [("a.wav", 5400, 5400.1, "x")]),
    (f'{HEADER}\na.wav,"0:00:00,5",00:01.25,roar\n', {}, [ROAR]),
    ("path,start_ms,end_ms,label\na.wav,500,1250,roar\n", {}, [ROAR]),
    ("path,Start (ms),End (ms),label\na.wav,500,1250,roar\n", {}, [ROAR]),
    ("path,onset_ms,offset_ms,label\na.wav,500,1250,roar\n", {}, [ROAR]),
    (f"{HEADER}\na.wav,500,0:01.25,roar\n", {"time_unit": "ms"}, [ROAR]),
    ("path,start_ms,end_ms,label\na.wav,0.5,1.25,roar\n", {"time_unit": "s"}, [ROAR]),
    # durations
    (
        "path,start_s,duration_s,label\na.wav,0.1,0.2,x\n",
        {},
        [("a.wav", 0.1, 0.3, "x")],
    ),
    ("path,start,Duration (s),label\na.wav,0.5,0.75,roar\n", {}, [ROAR]),
    ("path,onset,dur_ms,label\na.wav,0.5,750,roar\n", {}, [ROAR]),
    ("IN FILE,OFFSET,DURATION,MANUAL ID\na.wav,0.5,0.75,roar\n", {}, [ROAR]),
    ("path,start_s,end_s,duration,label\na.wav,0.5,1.25,99,roar\n", {}, [ROAR]),
]


@pytest.mark.parametrize(("text", "options", "calls"), TABLES)
def test_a_table_is_read(text, options, calls, tmp_path):
    file = read(tmp_path, text, **options)
    assert list_calls(file) == calls
    assert not file.rejects


def test_what_was_guessed_is_noted(tmp_path):
    table = "Selection,Sound_file,Start_time,End_time,Call_type\n7,a.wav,1,2,Rumble\n"
    file = read(tmp_path, table)
    assert file.annotations[0].extra == {"Selection": "7"}
    assert file.notes == ["labels from column 'Call_type'"]
    whole = read(tmp_path, "path,label\na.wav,roar\n")
    assert whole.notes == ["no time columns: each row is a whole audio file"]
    milliseconds = read(tmp_path, "path,start_ms,end_ms,label\na.wav,1,2,x\n")
    assert milliseconds.notes[-1].startswith("times in milliseconds: ")
    assert read(tmp_path, f"{HEADER}\na.wav,0,1,x\n").notes == []


def test_hinted_columns_take_precedence(tmp_path):
    text = "recording,start_s,end_s,label,Species\na.wav,0,1,x,EATO\n"
    (one,) = read(tmp_path, text, columns={"label": "species"}).annotations
    assert (one.label, one.extra) == ("EATO", {"label_annotated": "x"})


def test_with_a_path_the_recording_is_the_group(tmp_path):
    file = read(tmp_path, "path,label,recording\na/b.wav,roar,g1\nc.wav,roar,\n")
    groups = [(one.path, one.recording) for one in file.annotations]
    assert groups == [("a/b.wav", "g1"), ("c.wav", None)]


def test_rows_without_times_are_whole_recordings_and_with_one_time_rejects(tmp_path):
    text = f"{HEADER}\na.wav,,,roar\na.wav,1,,roar\na.wav,,1,roar\n"
    file = read(tmp_path, text)
    assert list_calls(file) == [WHOLE]
    assert reasons(file) == [
        (2, "end_s: expected a number, got ''"),
        (3, "start_s: expected a number, got ''"),
    ]


def test_samples_are_frames(tmp_path):
    file = read(tmp_path, "label,onset_sample,offset_sample\nroar,100,200\n")
    assert list_calls(file) == [(None, 100.0, 200.0, "roar")]
    assert file.annotations[0].in_frames
    header = "label,onset_s,offset_s,onset_sample,offset_sample"
    (both,) = read(tmp_path, f"{header}\nroar,1,2,100,200\n").annotations
    found = (both.in_frames, both.start_s, both.extra["onset_sample"])
    assert found == (False, 1.0, "100")


def test_times_that_the_user_gave_go_before_those_with_a_known_name(tmp_path):
    frames = {"start_frame": "sf", "end_frame": "ef"}
    for header in ("sf,ef,start,end", "sf,ef,stop,x"):
        text = f"label,{header}\nroar,100,200,1,2\n"
        (one,) = read(tmp_path, text, columns=frames).annotations
        assert (one.in_frames, one.start_s, one.end_s) == (True, 100.0, 200.0)
    (one,) = read(
        tmp_path, "label,start_frame,end_frame,stop\nroar,100,200,2\n"
    ).annotations
    assert one.in_frames
    text = "label,offset,duration\nroar,3,1\n"
    with pytest.raises(InputError, match="'offset' is end_s, but no column is start_s"):
        read(tmp_path, text, columns={"end_s": "offset"})
    for columns, message in (
        ({"end_s": "x"}, "'x' is end_s, but no column is start_s"),
        ({"start_s": "x"}, "'x' is start_s, but no column is end_s"),
    ):
        with pytest.raises(InputError, match=message):
            read(tmp_path, "label,start_frame,end_frame,x\n", columns=columns)
    text = "label,start_s,end_s,x{}\nroar,1,2,200,100\n"
    columns = {"end_frame": "x"}
    (one,) = read(tmp_path, text.format(",start_frame"), columns=columns).annotations
    assert (one.in_frames, one.start_s, one.end_s) == (True, 100.0, 200.0)
    with pytest.raises(
        InputError, match="'x' is end_frame, but no column is start_fra"
    ):
        read(tmp_path, text.format(",y"), columns=columns)


def test_other_columns_become_extra_cells(tmp_path):
    header = f"{HEADER},low_freq_hz,High Freq (Hz),fold,rain,\n"
    rows = "a.wav,0,1,roar,10,20.5,-1,007,x\na.wav,0,1,roar,NA,,,,\n"
    expected = {"low_freq_hz": 10.0, "high_freq_hz": 20.5, "fold": -1}
    expected |= {"rain": "007", "column 9": "x"}
    found = [one.extra for one in read(tmp_path, header + rows).annotations]
    assert found == [expected, dict.fromkeys(expected)]


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
        ("a.wav,1,2,", "no label"),
        (",1,2,roar", "no recording named"),
        ("a.wav,1,2", "expected 4 fields as in the header, got 3"),
        ("a.wav,1,2,roar,x", "expected 4 fields as in the header, got 5"),
        ("a.wav,1,2,roar\0", ""),
    ],
)
def test_an_invalid_row_is_a_reject_with_a_reason(row, reason, tmp_path):
    file = read(tmp_path, f"{HEADER}\n{row}\n\n,,,\na.wav,0,1,roar\n")
    assert reasons(file) == ([(1, reason)] if reason else [])
    assert file.annotations[-1].row == 2


def test_a_fold_is_an_integer_or_a_name(tmp_path):
    folds = ("2", "2.0", "north", "-1", "", "NA")
    rows = "".join(f"{n}.wav,roar,{fold}\n" for n, fold in enumerate(folds))
    file = read(tmp_path, f"path,label,fold\n{rows}")
    found = [one.extra["fold"] for one in file.annotations]
    assert found == [2, 2, "north", -1, None, None]


def test_a_comma_beside_points_is_a_reject(tmp_path):
    rows = "\na.wav\t1,250\t2\troar\nb.wav\t1.5\t2\troar\n"
    file = read(tmp_path, HEADER.replace(",", "\t") + rows)
    assert reasons(file) == [(1, "start_s: expected a number, got '1,250'")]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "line 1: no column holds the label"),
        ("a,b\n1,2\n", "line 1: no column holds the label; .* available: 'a', 'b'"),
        ("\n\nlabel,x,x\n", "line 3: column 'x' appears twice"),
        ("path,start_s,label\n", "column 'start_s' is start_s, but no column is end_s"),
        ("path,Stop,label\n", "column 'Stop' is end_s, but no column is start_s"),
        ("label,path,low_freq_hz,Low Freq (Hz)\n", "are both low_freq_hz"),
        (f'{HEADER}\na.wav,0,1,x\na.wav,0,1,"x\n\n', "line 3: the row that begins"),
        (f'{HEADER}\na.wav,0,1,"ro"ar\n', "line 2: the row that begins here"),
        ('"label,path\n', "line 1: the row that begins here"),
        (f"{HEADER}\nx".encode("utf-16") + b"y", "line 2: damaged UTF-16"),
        ("Spesies,path\n", "no column 'Species', .* did you mean Spesies"),
    ],
)
def test_an_unusable_table_is_an_error(text, match, tmp_path):
    columns = {"label": "Species"} if "Spesies" in str(text) else {}
    with pytest.raises(InputError, match=match) as caught:
        read(tmp_path, text, columns=columns)
    assert str(caught.value).startswith(f"{tmp_path / 'calls.csv'}: line ")
    assert "\n" not in str(caught.value)


def test_a_wrong_option_is_an_error():
    with pytest.raises(OptionError, match="time_unit: expected one of s, ms, got 'h'"):
        AnnotationOptions(time_unit="h")
    with pytest.raises(OptionError, match="unknown column 'xlabel'; did you mean"):
        AnnotationOptions(columns={"xlabel": "Species"})
    with pytest.raises(OptionError, match="label"):
        AnnotationOptions(label=" ")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_every_encoding_gives_the_same_labels(encoding, tmp_path):
    label = "“rügen” – Œuf €"  # not in Latin-1
    file = read(tmp_path, f"{HEADER}\na.wav,0,1,{label}\n".encode(encoding))
    assert file.annotations[0].label == label
    is_guessed = "not UTF-8: read as Windows-1252" in file.notes
    assert is_guessed == (encoding == "cp1252")
    undefined = read(tmp_path, f"{HEADER}\na.wav,0,1,x\x81\n".encode("latin-1"))
    assert undefined.annotations[0].label == "x\ufffd"


def call(path="a.wav", start_s=0.1, end_s=0.3, **facts):
    return Annotation(path, start_s, end_s, "roar", **facts)


def write_and_read(folder, *annotations):
    write_annotations(annotations, folder / "out.csv", "csv")
    return read_annotations(folder / "out.csv").annotations


def test_the_path_column_is_called_recording_unless_groups_are_given(tmp_path):
    assert write_and_read(tmp_path, call())[0].path == "a.wav"
    assert (tmp_path / "out.csv").read_text() == f"{HEADER}\na.wav,0.1,0.3,roar\n"
    grouped = write_and_read(tmp_path, call(recording="g"), call())
    groups = [(one.path, one.recording) for one in grouped]
    assert groups == [("a.wav", "g"), ("a.wav", None)]
    assert (tmp_path / "out.csv").read_text().startswith("path,recording,start_s")


def test_whole_recordings_frames_and_extra_cells_are_read_back(tmp_path):
    whole = write_and_read(tmp_path, call(start_s=0.0, end_s=None), call())
    assert [(one.start_s, one.end_s) for one in whole] == [(0.0, None), (0.1, 0.3)]
    (one,) = write_and_read(tmp_path, call(start_s=5.0, end_s=9.0, in_frames=True))
    assert (one.start_s, one.end_s, one.in_frames) == (5.0, 9.0, True)
    more = {"fold": 3, "low_freq_hz": 1 / 3, "rain": 'a "b"\r\n', "none": None}
    more["Begin File"] = "x.wav"
    assert write_and_read(tmp_path, call(extra=more), call())[0].extra == more
    assert write_and_read(tmp_path, call(extra=more))[0].path == "a.wav"


@pytest.mark.parametrize(
    ("annotations", "match"),
    [
        ([call(), call(path=None)], "some annotations name their recording or count"),
        ([call(path=None, recording="g")], "some annotations name their recording"),
        ([call(), call(in_frames=True)], "or count frames, and some do not"),
        (
            [
                call(
                    start_s=5.0,
                    end_s=9.0,
                    in_frames=True,
                    extra={"begin": 1, "stop": 2},
                )
            ],
            r"count frames, but would be read as seconds, .* \('begin', 'stop'\)",
        ),
        ([call(extra={" ": "x"})], "extra column ' ' has the name of another column"),
    ],
)
def test_annotations_that_would_not_be_read_back_are_an_error(
    annotations, match, tmp_path
):
    with pytest.raises(OutputError, match=match):
        write_and_read(tmp_path, *annotations)
