"""Embeddings of other tools: the same table from each kind, rejects counted, one-line errors."""

import base64
import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.errors import CallshotError, InputError, OptionError
from callshot.tables.embedding_tables import read_table
from callshot.tables.hoplite import open_usearch, read_hoplite
from callshot.tables.imports import import_embeddings
from callshot.tables.window_pooling import (
    choose_windows,
    make_windows,
    match_recordings,
    pool_spans,
)
from test_cli import run

# An index that USearch 2.26.6 saved: float16, four dimensions, keys 1 to 6, of which 4 was removed.
GOLDEN_INDEX = (
    "c-qC1I}QRN5I`R+5DTN$Rvy8^7(e@gqZni2wi<hmwl~vcorcv|8TK{9X9nI795A70&4w*I_8d4;#*!*l)Ul?C4c`0cJ5TT-hAuqr"
    "m(%Th)huze)7jj<4?#&Z{KQFINL&rdizHhmdthazCDX`SPIO|!$Tr2t+c2WdQ&9cQdhjiB+x!EYjEX^5xjS-+jrn4flNTGG7S;"
)
GOLDEN_VECTORS = np.arange(24).reshape(6, 4) / 8

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) / 4
ROWS = """segment,recording,label,labels,fold
s0,a.wav,roar,roar;bark,0
s1,a.wav,bark,,0
s2,b.wav,roar,,1
s3,b.wav,bark,,1
"""


def load(source, segments=None, **options):
    return import_embeddings(source, segments, encoder="mine", **options)


def check_error(match, source, segments=None, **options):
    """Expect one line."""
    with pytest.raises(InputError, match=match) as caught:
        load(source, segments, **options)
    assert len(str(caught.value).splitlines()) == 1


def load_or_error(source, **options):
    """Expect a table, or an error of ours in one line."""
    message = ""
    try:
        load(source, **options)
    except CallshotError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1


def arrays(folder, vectors=VECTORS, rows=ROWS):
    np.save(folder / "x.npy", vectors)
    (folder / "x.csv").write_text(rows)
    return folder / "x.npy"


def spans_csv(folder, text):
    path = folder / "spans.csv"
    path.write_text(text)
    return path


# Arrays


def test_an_array_and_its_rows_make_a_table(tmp_path):
    result = load(arrays(tmp_path))
    assert result.table.matrix.dtype == np.float32
    np.testing.assert_array_equal(result.table.matrix, VECTORS)
    assert result.table.segment == ("s0", "s1", "s2", "s3")
    assert result.table.labels == (("roar", "bark"), ("bark",), ("roar",), ("bark",))
    assert result.table.fold is not None
    assert result.table.fold.tolist() == [0, 0, 1, 1]
    assert result.rejects == []


@pytest.mark.parametrize("name", ["embedding", "embeddings", "arr_0", "anything"])
def test_an_npz_file_with_one_matrix_gives_the_same_table(tmp_path, name):
    arrays(tmp_path)
    columns: dict[str, Any] = {name: VECTORS, "rate": np.array([16000])}
    np.savez(tmp_path / "x.npz", **columns)
    np.testing.assert_array_equal(load(tmp_path / "x.npz").table.matrix, VECTORS)


def test_half_precision_becomes_single_and_integers_double(tmp_path):
    assert (
        load(arrays(tmp_path, VECTORS.astype(np.float16))).table.matrix.dtype
        == np.float32
    )
    assert (
        load(arrays(tmp_path, np.arange(8).reshape(4, 2))).table.matrix.dtype
        == np.float64
    )


def test_rows_without_a_label_are_rejects_and_the_rest_keeps_its_place(tmp_path):
    result = load(arrays(tmp_path, rows="recording,label\na,x\na, \nb,\nb,y\n"))
    assert [(reject.row, reject.reason) for reject in result.rejects] == [
        (2, "no label"),
        (3, "no label"),
    ]
    np.testing.assert_array_equal(result.table.matrix, VECTORS[[0, 3]])
    assert result.table.segment == ("a#0", "b#1")


def test_an_array_that_does_not_fit_its_rows_is_an_error(tmp_path):
    check_error(
        r"x\.npy: .*4 vectors and 1 row in .*x\.csv",
        arrays(tmp_path, rows="recording,label\na,x\n"),
    )
    nan = VECTORS.copy()
    nan[2, 1] = np.nan
    check_error(r"x\.npy: row 3: expected finite", arrays(tmp_path, nan))
    check_error(
        r"x\.npy: expected numbers.*\(2, 2, 3\)",
        arrays(tmp_path, VECTORS.reshape(2, 2, 3)),
    )
    check_error(
        r"x\.npy: expected numbers.*<U1", arrays(tmp_path, np.full((4, 2), "a"))
    )
    check_error(r"x\.npy: expected numbers.*\(4, 0\)", arrays(tmp_path, VECTORS[:, :0]))
    np.save(tmp_path / "x.npy", np.array([[{}]] * 4, object), allow_pickle=True)
    check_error(r"x\.npy: cannot be read \(it has pickled objects", tmp_path / "x.npy")
    check_error(
        r"column label is missing", arrays(tmp_path, rows="recording\na\na\na\na\n")
    )
    check_error(
        r"column segment, row 2: expected ids that differ, got .s.",
        arrays(tmp_path, rows="segment,recording,label\n" + "s,a,x\n" * 4),
    )
    check_error(
        r"no vector has a label",
        arrays(tmp_path, rows="recording,label\n" + "a,\n" * 4),
    )
    (tmp_path / "x.csv").unlink()
    check_error(r"x\.csv: cannot be read \(No such file", tmp_path / "x.npy")
    np.savez(tmp_path / "two.npz", a=VECTORS, b=VECTORS)
    check_error(r"two\.npz: expected one matrix", tmp_path / "two.npz")


@given(
    cut=st.integers(0, 400),
    flip=st.integers(0, 399),
    bits=st.integers(1, 255),
    packed=st.booleans(),
)
def test_damaged_arrays_end_in_a_table_or_one_error(
    tmp_path_factory, cut, flip, bits, packed
):
    folder = tmp_path_factory.mktemp("damaged")
    path = arrays(folder)
    if packed:
        path = path.with_suffix(".npz")
        np.savez(path, embedding=VECTORS)
    data = bytearray(path.read_bytes())
    data[flip % len(data)] ^= bits
    path.write_bytes(bytes(data[: max(0, len(data) - (cut if cut < 200 else 0))]))
    load_or_error(path)


# Spans and windows


def windows(*times, dimensions=2):
    start_s, end_s = np.array(times, np.float64).reshape(-1, 2).T
    return make_windows(
        start_s,
        end_s,
        np.arange(len(times) * dimensions, dtype=np.float32).reshape(-1, dimensions),
    )


def make_frame(spans):
    schema = {
        "path": pl.String,
        "start_s": pl.Float64,
        "end_s": pl.Float64,
        "label": pl.String,
    }
    return pl.DataFrame(spans, schema, orient="row")


def choose_slowly(windows, start_s, end_s):
    """Choose windows for a span, one at a time."""
    times = list(
        zip(windows["start_s"].tolist(), windows["end_s"].tolist(), strict=True)
    )
    same = [n for n, time in enumerate(times) if time == (start_s, end_s)]
    inside = [n for n, (a, b) in enumerate(times) if start_s <= (a + b) / 2 < end_s]
    best, most = [], 0.0
    for n, (a, b) in enumerate(times):
        overlap = min(b, end_s) - max(a, start_s)
        if overlap > most:
            best, most = [n], overlap
    return same or inside or best


halves = st.integers(0, 40).map(lambda n: n / 2)
lengths = st.integers(1, 12).map(lambda n: n / 2)


@given(st.lists(st.tuples(halves, lengths), max_size=12), halves, lengths)
def test_the_windows_of_a_span_are_those_of_a_plain_loop(times, start_s, length_s):
    some = windows(*((a, a + b) for a, b in times))
    chosen = choose_windows(some, start_s, start_s + length_s)
    assert chosen.tolist() == choose_slowly(some, start_s, start_s + length_s)


def test_the_vector_of_a_span_is_the_plain_mean_of_its_windows():
    some = windows((0, 3), (3, 6), (6, 9))
    (vector, exact, none), note = pool_spans(
        make_frame([("x.wav", 1, 5, "a"), ("x.wav", 3, 6, "a"), ("x.wav", 9, 12, "a")]),
        {"x": lambda: some},
        Path("x"),
    )
    assert isinstance(vector, np.ndarray)
    assert vector.tolist() == [1.0, 2.0]
    assert vector.dtype == np.float32
    assert isinstance(exact, np.ndarray)
    assert exact.tolist() == [2.0, 3.0]
    assert none == "no window overlaps it"
    assert note == "labelled: 1 of 1 recording; used: 2 of their 3 windows"


@pytest.mark.parametrize(
    ("name", "sources", "expected"),
    [
        ("a/x.wav", ["a/x", "b/x"], "a/x"),
        ("/media/card/a/x.wav", ["a/x", "x"], "a/x"),
        ("x.wav", ["a/x.flac"], "a/x.flac"),
        ("D:\\field\\a\\X.WAV", ["a/x.wav"], "a/x.wav"),
        ("x.wav", ["x.wav", "x.mp3"], "x.wav"),
        ("a/x.mp3", ["x.wav", "x.mp3"], "x.mp3"),
        ("X.wav", ["x.wav", "X.wav"], "X.wav"),
        ("2024.05.01.wav", ["2024.05.01", "2024.05"], "2024.05.01"),
        ("Cafe\u0301.wav", ["Caf\u00e9"], "Caf\u00e9"),
        ("x.wav", ["a/x", "b/x"], None),
        ("c/x.wav", ["a/x"], None),
        ("ax.wav", ["x"], None),
    ],
)
def test_a_name_means_the_recording_with_the_same_end_of_the_path(
    name, sources, expected
):
    source, reason = match_recordings([name], sources, Path("x"))[name]
    assert source == (expected or "")
    assert bool(reason) == (expected is None)


def test_two_names_of_one_recording_are_ambiguous_unless_one_is_exact():
    result = match_recordings(["a/x.wav", "b/x.wav"], ["x"], Path("x"))
    assert [source for source, _ in result.values()] == ["", ""]
    result = match_recordings(["x.wav", "b/x.wav"], ["x"], Path("x"))
    assert [source for source, _ in result.values()] == ["x", ""]


# BirdNET-Analyzer


def birdnet(folder, *lines, name="x"):
    path = folder / f"{name}.birdnet.embeddings.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


LINES = ("0.0\t3.0\t0.5,1.5", "3.0\t6.0\t2.0,4.0", "6.0\t9.0\t8.0,8.0")
SPANS = (
    "recording,start_s,end_s,label\n"
    "x.wav,0,6,roar\nx.wav,4,5,bark\nx.wav,20,21,roar\nz.wav,0,3,roar\n"
)


def test_a_row_with_impossible_times_leaves_the_labels_of_others(tmp_path):
    birdnet(tmp_path / "e", *LINES)
    spans = SPANS.partition("x.wav,20")[0] + "x.wav,9,2,roar\n"
    result = load(tmp_path / "e", spans_csv(tmp_path, spans))
    assert result.table.labels == (("roar", "bark"), ("bark", "roar"))
    assert len(result.rejects) == 1


def test_text_files_of_a_folder_are_joined_with_spans(tmp_path):
    birdnet(tmp_path / "e", *LINES)
    birdnet(tmp_path / "e", *LINES, name="sub/unlabelled")
    result = load(tmp_path / "e", spans_csv(tmp_path, SPANS))
    assert result.table.matrix.tolist() == [[1.25, 2.75], [2.0, 4.0]]
    assert result.table.segment == ("x.wav@0-6", "x.wav@4-5")
    assert result.table.recording == ("x.wav", "x.wav")
    assert result.table.labels == (("roar", "bark"), ("bark", "roar"))
    assert [(reject.row, reject.reason) for reject in result.rejects] == [
        (3, "no window overlaps it"),
        (
            4,
            f"no windows of its recording (no recording z.wav under {tmp_path / 'e'})",
        ),
    ]
    assert result.notes == ["labelled: 1 of 2 recordings; used: 2 of their 3 windows"]


def test_all_file_formats_of_the_analyzer_give_the_same_vectors(tmp_path):
    spans = spans_csv(tmp_path, SPANS)
    expected = load(birdnet(tmp_path, *LINES), spans).table
    for line in LINES:
        start, end, numbers = line.split("\t")
        birdnet(tmp_path / "single", numbers, name=f"x_{start}_{end}")
    rows = [
        f'/data/x.wav,{start},{end},"{numbers}"\n'
        for start, end, numbers in (line.split("\t") for line in LINES)
    ]
    (tmp_path / "all.csv").write_text("file_path,start,end,embedding\n" + "".join(rows))
    for source in (tmp_path / "single", tmp_path / "all.csv"):
        np.testing.assert_array_equal(load(source, spans).table.matrix, expected.matrix)


def test_a_segment_table_gives_its_ids_groups_folds_and_corpus(tmp_path):
    frame = pl.DataFrame(
        {
            "segment": ["p", "q"],
            "recording": ["herd", "herd"],
            "path": ["a/x.wav", "a/x.wav"],
            "start_s": [0.0, 6.0],
            "end_s": [6.0, 9.0],
            "label": ["roar", "bark"],
            "labels": [["roar", "bark"], ["bark"]],
            "fold": [0, 0],
        }
    )
    frame.write_parquet(tmp_path / "segments.parquet", metadata={"corpus": "mine"})
    birdnet(tmp_path / "e", *LINES, name="a/x")
    result = load(tmp_path / "e", tmp_path / "segments.parquet")
    assert result.corpus == "mine"
    assert result.table.segment == ("p", "q")
    assert result.table.recording == ("herd", "herd")
    assert result.table.labels == (("roar", "bark"), ("bark",))
    assert result.table.matrix.tolist() == [[1.25, 2.75], [8.0, 8.0]]


def test_without_times_a_row_is_a_whole_recording(tmp_path):
    result = load(
        birdnet(tmp_path, *LINES), spans_csv(tmp_path, "recording,label\nx.wav,roar\n")
    )
    assert result.table.matrix.tolist() == [[3.5, 4.5]]
    assert result.table.segment == ("x.wav",)


def test_empty_and_repeated_spans_are_rejects(tmp_path):
    text = (
        "recording,start_s,end_s,label\n"
        "x,0,3,roar\nx,0,3,roar\nx,3,3,roar\nx,-1,3,roar\nx,0,3,\nx,0,3,bark\n"
    )
    result = load(birdnet(tmp_path, *LINES), spans_csv(tmp_path, text))
    assert [reject.row for reject in result.rejects] == [2, 3, 4, 5]
    assert len({reject.reason for reject in result.rejects}) == 3
    assert result.table.labels == (("roar", "bark"), ("bark", "roar"))


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("0.0\t3.0\t0.5,x", r"x\.birdnet\.embeddings\.txt: line 2: .*'x'"),
        ("0.0\t3.0", "line 2: expected start, end and the numbers"),
        ("0.0\tthree\t0.5,1.5", "line 2: .*'three'"),
        ("0.0\t3.0\t0.5", "line 2: expected 2 numbers as in the first line, got 1"),
        ("0.0\t3.0\t0.5,nan", "line 2: expected finite numbers"),
        ("0.0\tinf\t0.5,1.5", "line 2: expected finite numbers"),
    ],
)
def test_a_bad_line_is_an_error_with_its_number(tmp_path, line, match):
    check_error(match, birdnet(tmp_path, LINES[0], line), spans_csv(tmp_path, SPANS))


def test_bad_spans_and_sources_are_errors(tmp_path):
    source = birdnet(tmp_path, *LINES)
    check_error(
        "column start_s, row 1: expected seconds, got '1,5'",
        source,
        spans_csv(tmp_path, 'recording,start_s,end_s,label\nx,"1,5",2,a\n'),
    )
    check_error(
        "column end_s is missing",
        source,
        spans_csv(tmp_path, "recording,start_s,label\nx,1,a\n"),
    )
    check_error(
        "column recording is missing", source, spans_csv(tmp_path, "label\na\n")
    )
    check_error(
        "column recording, row 1: expected text",
        source,
        spans_csv(tmp_path, "recording,label\n,a\n"),
    )
    check_error(
        "no vector has a label; .*no windows of its recording",
        source,
        spans_csv(tmp_path, "recording,label\nz,a\n"),
    )
    check_error(
        "the file has no rows", source, spans_csv(tmp_path, "recording,label\n")
    )
    (tmp_path / "segments.parquet").write_bytes(b"PAR1 not")
    check_error(
        r"segments\.parquet: cannot be read", source, tmp_path / "segments.parquet"
    )
    check_error("got no such file", tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    check_error("got none in it", tmp_path / "empty")
    check_error(
        "got none",
        tmp_path / "empty",
        spans_csv(tmp_path, SPANS),
        kind="birdnet-analyzer",
    )
    (tmp_path / "all.csv").write_text("file_path,start,end\nx,0,3\n")
    check_error(
        "column embedding is missing", tmp_path / "all.csv", spans_csv(tmp_path, SPANS)
    )
    with pytest.raises(OptionError, match=r"segments: .* has no labels"):
        load(source)
    with pytest.raises(OptionError, match="kind: expected auto, arrays"):
        load(source, kind="perch")


def test_recordings_with_vectors_of_other_lengths_are_errors(tmp_path):
    birdnet(tmp_path / "e", *LINES)
    birdnet(tmp_path / "e", "0\t3\t1,2,3", name="y")
    spans = spans_csv(tmp_path, "recording,label\nx,a\ny,b\n")
    check_error(
        "vectors of one length, 2 as the first, got 3 for row 2", tmp_path / "e", spans
    )


# perch-hoplite

NEW_TABLES = """
CREATE TABLE hoplite_metadata (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE deployments (id INTEGER PRIMARY KEY, name TEXT, project TEXT, latitude REAL,
    longitude REAL);
CREATE TABLE recordings (id INTEGER PRIMARY KEY, filename TEXT NOT NULL, datetime TEXT,
    deployment_id INTEGER);
CREATE TABLE windows (id INTEGER PRIMARY KEY, recording_id INTEGER NOT NULL,
    offsets FLOAT_LIST NOT NULL);
CREATE TABLE annotations (id INTEGER PRIMARY KEY, recording_id INTEGER NOT NULL,
    offsets FLOAT_LIST NOT NULL,
    label TEXT NOT NULL, label_type INTEGER NOT NULL, provenance TEXT NOT NULL);
"""


def usearch(folder, keys, vectors, dtype="f16"):
    """Write an index with USearch, as perch-hoplite does."""
    library = pytest.importorskip("usearch.index", reason="usearch is not installed")
    matrix = np.asarray(vectors, np.float32)
    index = library.Index(ndim=matrix.shape[1], metric="ip", dtype=dtype)
    index.add(np.array(keys, np.uint64), matrix)
    index.save(str(folder / "usearch.index"))
    return folder / "usearch.index"


def floats(*numbers, kind="<f8"):
    return np.array(numbers, kind).tobytes()


def write_database(folder, script, **rows):
    folder.mkdir(exist_ok=True)
    with closing(sqlite3.connect(folder / "hoplite.sqlite")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(script)
        for table, entries in rows.items():
            for row in entries:
                database.execute(
                    f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row
                )
        database.commit()
    return folder


def new_database(folder, **rows):
    """Write a database of version 1: two recordings, four windows each, three labels."""
    offsets = [floats(2.5 * n, 2.5 * n + 5) for n in range(4)]
    tables: dict[str, Sequence[Sequence[Any]]] = {
        "deployments": [(1, "pan", "herd", None, None)],
        "recordings": [(1, "a/x.wav", None, 1), (2, "a/y.wav", None, 1)],
        "windows": [(1 + n, 1 + n // 4, offsets[n % 4]) for n in range(8)],
        "annotations": [
            (1, 1, offsets[1], "roar", 1, "me"),
            (2, 1, offsets[2], "bark", 1, "me"),
            (3, 2, offsets[0], "roar", 1, "me"),
            (4, 2, offsets[0], "roar", 1, "you"),
            (5, 2, offsets[1], "bark", 0, "me"),
            (6, 2, offsets[1], "bark", 2, "me"),
        ],
    }
    write_database(folder, NEW_TABLES, **(tables | rows))
    usearch(
        folder, [8, 7, 6, 5, 4, 3, 2, 1], [[key, key / 2] for key in range(8, 0, -1)]
    )
    return folder


def test_an_index_that_usearch_saved_is_read(tmp_path):
    pytest.importorskip("usearch.index", reason="usearch is not installed")
    path = tmp_path / "usearch.index"
    path.write_bytes(zlib.decompress(base64.b85decode(GOLDEN_INDEX)))
    index = open_usearch(path)
    keys = np.arange(1, 7, dtype=np.uint64)
    has_vector = index.contains(keys)
    assert has_vector.tolist() == [True, True, True, False, True, True]
    vectors = np.stack(index.get(keys[has_vector]))
    np.testing.assert_array_equal(vectors, GOLDEN_VECTORS[has_vector])


def test_annotations_of_a_database_become_segments(tmp_path):
    result = load(new_database(tmp_path / "db"))
    assert result.table.segment == (
        "a/x.wav@2.5-7.5",
        "a/x.wav@5-10",
        "a/y.wav@0-5 roar",
    )
    assert result.table.label == ("roar", "bark", "roar")
    assert result.table.labels == (("roar", "bark"), ("bark", "roar"), ("roar",))
    assert result.table.recording == ("a/x.wav", "a/x.wav", "a/y.wav")
    assert result.table.matrix.tolist() == [[2.0, 1.0], [3.0, 1.5], [5.0, 2.5]]
    assert [(reject.row, reject.reason) for reject in result.rejects] == [
        (4, "the same span and label are there already")
    ]
    assert result.notes[0] == "2 negative or uncertain annotations ignored"


def test_a_file_of_spans_replaces_the_annotations_with_a_note(tmp_path):
    spans = spans_csv(tmp_path, "recording,start_s,end_s,label\nx.wav,0,6,rumble\n")
    result = load(new_database(tmp_path / "db") / "hoplite.sqlite", spans)
    assert result.table.matrix.tolist() == [[1.5, 0.75]]
    assert any("4 annotations of the database ignored" in note for note in result.notes)


def test_reading_a_database_changes_no_file(tmp_path):
    folder = new_database(tmp_path / "db")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_rows_in_the_write_ahead_log_are_read(tmp_path):
    folder = new_database(tmp_path / "db")
    with closing(sqlite3.connect(folder / "hoplite.sqlite")) as other:
        other.execute(
            "INSERT INTO annotations VALUES (9, 2, ?, 'trumpet', 1, 'me')",
            (floats(7.5, 12.5),),
        )
        other.commit()
        assert "trumpet" in load(folder).table.label


def test_recordings_of_the_same_name_at_two_sites_are_two_recordings(tmp_path):
    folder = new_database(
        tmp_path / "db",
        deployments=[(1, "pan", "herd", None, None), (2, "river", "herd", None, None)],
        recordings=[(1, "x.wav", None, 1), (2, "x.wav", None, 2)],
    )
    assert load(folder).table.recording == (
        "herd/pan/x.wav",
        "herd/pan/x.wav",
        "herd/river/x.wav",
    )


def test_windows_without_a_vector_are_counted_and_their_labels_rejected(tmp_path):
    folder = new_database(
        tmp_path / "db",
        annotations=[
            (1, 1, floats(0, 5), "a", 1, "me"),
            (2, 2, floats(0, 5), "b", 1, "me"),
        ],
    )
    usearch(folder, [1, 2, 3, 4], np.ones((4, 2)))
    result = load(folder)
    assert result.table.label == ("a",)
    (reject,) = result.rejects
    assert reject.row == 2
    assert reject.reason.startswith("no windows of its recording")
    assert "4 windows without a vector in usearch.index" in result.notes


def test_indexes_of_single_precision_are_read_and_other_types_are_errors(tmp_path):
    folder = new_database(tmp_path / "db")
    usearch(folder, range(1, 9), np.full((8, 2), 0.1), "f32")
    assert load(folder).table.matrix[0].tolist() == [np.float32(0.1)] * 2
    usearch(folder, range(1, 9), np.ones((8, 2)), "i8")
    check_error(r"usearch\.index: expected .* float16 or float32", folder)


def test_bad_rows_of_a_database_are_errors_with_their_id(tmp_path):
    check_error(
        "annotation 7: expected a start and an end in seconds, got b'12345'",
        new_database(tmp_path / "a", annotations=[(7, 1, b"12345", "x", 1, "me")]),
    )
    check_error(
        "window 3: expected a start and an end in seconds, got 'no'",
        new_database(tmp_path / "b", windows=[(3, 1, "no")]),
    )
    check_error(
        "window 3: expected finite times",
        new_database(tmp_path / "c", windows=[(3, 1, floats(np.nan, 1))]),
    )
    check_error(
        "window 3: its recording 9 is not",
        new_database(tmp_path / "d", windows=[(3, 9, floats(0, 1))]),
    )
    check_error(
        "annotation 1: its recording 9 is not",
        new_database(tmp_path / "e", annotations=[(1, 9, b"", "x", 1, "")]),
    )
    check_error(
        "the database has no annotations; .*--segments",
        new_database(tmp_path / "f", annotations=[]),
    )
    check_error(
        "expected the tables of perch-hoplite.*got other",
        write_database(tmp_path / "g", "CREATE TABLE other (id)"),
    )
    check_error(
        r"perch-hoplite 0\.1; migrate it .*99_migrate_db\.ipynb",
        write_database(tmp_path / "i", "CREATE TABLE hoplite_embeddings (id)"),
    )
    folder = new_database(tmp_path / "h")
    usearch(folder, range(1, 9), np.full((8, 2), 1e30))  # infinite as float16
    check_error("window 1: its vector is not finite", folder)
    (folder / "usearch.index").unlink()
    check_error(r"usearch\.index: cannot be read \(No such file", folder)


def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path):
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
        "SELECT i AS id, 1, 1 FROM n"
    )
    folder = new_database(tmp_path / "db")
    write_database(folder, f"DROP TABLE windows; CREATE VIEW windows AS {endless}")
    check_error("expected the tables of perch-hoplite", folder)


@settings(max_examples=25)
@given(
    share=st.floats(0, 1),
    flip=st.integers(0, 10**6),
    index=st.booleans(),
    cut=st.booleans(),
)
def test_damaged_databases_end_in_a_table_or_one_error(
    tmp_path_factory, share, flip, index, cut
):
    folder = new_database(tmp_path_factory.mktemp("damaged") / "db")
    path = folder / ("usearch.index" if index else "hoplite.sqlite")
    data = bytearray(path.read_bytes())
    data[flip % len(data)] ^= 1 + flip % 255
    path.write_bytes(bytes(data[: int(share * len(data))] if cut else data))
    load_or_error(folder, kind="hoplite")


def test_only_the_recordings_that_are_labelled_are_read(tmp_path):
    readers, *_ = read_hoplite(new_database(tmp_path / "db"))

    def never():
        raise AssertionError

    outcomes, _ = pool_spans(
        make_frame([("a/x.wav", 0, 5, "a")]),
        {**readers, "a/y.wav": never},
        tmp_path,
    )
    assert isinstance(outcomes[0], np.ndarray)


# The command


def test_the_command_writes_a_readable_table_and_prints_what_is_not_in_it(
    tmp_path, capsys
):
    birdnet(tmp_path / "e", *LINES)
    run(
        "import",
        tmp_path / "e",
        "--segments",
        spans_csv(tmp_path, SPANS),
        "--out",
        tmp_path / "birdnet.parquet",
    )
    output = capsys.readouterr().out
    assert "left out, 1 (row 3): no window overlaps it" in output
    assert "2 segments of 2 dimensions" in output
    table = read_table(tmp_path / "birdnet.parquet")
    assert table.encoder == "birdnet"
    assert table.matrix.dtype == np.float32
    assert table.matrix.tolist() == [[1.25, 2.75], [2.0, 4.0]]
    run(
        "import",
        arrays(tmp_path),
        "--out",
        tmp_path / "t.parquet",
        "--encoder",
        "perch",
        "--quiet",
    )
    assert capsys.readouterr().out == ""
    assert read_table(tmp_path / "t.parquet").encoder == "perch"
