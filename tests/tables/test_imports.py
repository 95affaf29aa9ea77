"""Embeddings of other tools: the same table from each kind, rejects counted, one-line errors."""

import base64
import random
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from callshot.errors import CallshotError, InputError, OptionError
from callshot.tables.embedding_tables import read_table
from callshot.tables.imports import (
    choose_windows,
    import_embeddings,
    match_recordings,
    pool_spans,
    read_windows,
)
from callshot.tables.tool_windows import make_windows, open_usearch
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


@pytest.mark.parametrize("name", ["", "embedding", "arr_0", "anything"])
def test_an_array_and_its_rows_make_a_table(tmp_path, name):
    source = arrays(tmp_path)
    if name:
        source = tmp_path / "x.npz"
        np.savez(source, **{name: VECTORS, "rate": np.array([16000])})
    result = load(source)
    assert result.table.matrix.dtype == np.float32
    np.testing.assert_array_equal(result.table.matrix, VECTORS)
    assert result.table.segment == ("s0", "s1", "s2", "s3")
    assert result.table.labels == (("roar", "bark"), ("bark",), ("roar",), ("bark",))
    assert result.table.fold.tolist() == [0, 0, 1, 1]
    assert result.rejects == []
    for dtype, expected in ((np.float16, np.float32), (np.int64, np.float64)):
        matrix = load(arrays(tmp_path, (4 * VECTORS).astype(dtype))).table.matrix
        assert matrix.dtype == expected


def test_rows_without_a_label_are_rejects_and_the_rest_keeps_its_place(tmp_path):
    result = load(arrays(tmp_path, rows="recording,label\na,x\na, \nb,\nb,y\n"))
    rejects = [(reject.row, reject.reason) for reject in result.rejects]
    assert rejects == [(2, "no label"), (3, "no label")]
    np.testing.assert_array_equal(result.table.matrix, VECTORS[[0, 3]])
    assert result.table.segment == ("a#0", "b#1")


NAN = VECTORS * [[1], [1], [np.nan], [1]]
REPEATED = "segment,recording,label\n" + "s,a,x\n" * 4


@pytest.mark.parametrize(
    ("match", "content"),
    [
        (
            r"x\.npy: .*4 vectors and 1 row in .*x\.csv",
            {"rows": "recording,label\na,x\n"},
        ),
        (r"x\.npy: row 3: expected finite", {"vectors": NAN}),
        (r"expected numbers.*\(2, 2, 3\)", {"vectors": VECTORS.reshape(2, 2, 3)}),
        (r"expected numbers.*<U1", {"vectors": np.full((4, 2), "a")}),
        (r"expected numbers.*\(4, 0\)", {"vectors": VECTORS[:, :0]}),
        (r"it has pickled objects", {"vectors": np.array([[{}]] * 4, object)}),
        ("column label is missing", {"rows": "recording\n" + "a\n" * 4}),
        ("column segment, row 2: expected ids that differ", {"rows": REPEATED}),
        ("no vector has a label", {"rows": "recording,label\n" + "a,\n" * 4}),
    ],
)
def test_an_array_that_does_not_fit_its_rows_is_an_error(tmp_path, match, content):
    check_error(match, arrays(tmp_path, **content))


def test_an_array_needs_its_rows_and_one_matrix(tmp_path):
    np.savez(tmp_path / "two.npz", a=VECTORS, b=VECTORS)
    check_error(r"two\.npz: expected one matrix", tmp_path / "two.npz")
    np.save(tmp_path / "x.npy", VECTORS)
    check_error(r"x\.csv: cannot be read \(No such file", tmp_path / "x.npy")


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


def windows(*times, dimensions=2):
    start_s, end_s = np.array(times, np.float64).reshape(-1, 2).T
    numbers = np.arange(len(times) * dimensions, dtype=np.float32)
    return make_windows(start_s, end_s, numbers.reshape(-1, dimensions))


def choose_slowly(windows, start_s, end_s):
    """Choose windows for a span, one at a time."""
    times = [(float(row["start_s"]), float(row["end_s"])) for row in windows]
    same = [n for n, time in enumerate(times) if time == (start_s, end_s)]
    inside = [n for n, (a, b) in enumerate(times) if start_s <= (a + b) / 2 < end_s]
    overlaps = [min(b, end_s) - max(a, start_s) for a, b in times]
    most = max(overlaps, default=0)
    best = [overlaps.index(most)] if most > 0 else []
    return same or inside or best


halves = st.integers(0, 40).map(lambda n: n / 2)
lengths = st.integers(1, 12).map(lambda n: n / 2)


@given(st.lists(st.tuples(halves, lengths), max_size=12), halves, lengths)
@example([(0.5, 1.0), (0.0, 4.0)], 0.0, 2.0)  # the second has its centre at the end
def test_the_windows_of_a_span_are_those_of_a_plain_loop(times, start_s, length_s):
    some = windows(*((a, a + b) for a, b in times))
    chosen = choose_windows(some, start_s, start_s + length_s)
    assert chosen.tolist() == choose_slowly(some, start_s, start_s + length_s)


def test_the_vector_of_a_span_is_the_plain_mean_of_its_windows():
    spans = {"path": ["x.wav"] * 3, "start_s": [1.0, 3, 9], "end_s": [5.0, 6, 12]}
    readers = {"x": lambda: windows((0, 3), (3, 6), (6, 9)), "other": None}
    (vector, exact, none), note = pool_spans(pl.DataFrame(spans), readers, Path("x"))
    assert vector.tolist() == [1.0, 2.0]
    assert vector.dtype == np.float32
    assert exact.tolist() == [2.0, 3.0]
    assert none == "no window overlaps it"
    assert note == "labelled: 1 of 2 recordings; used: 2 of their 3 windows"


def test_two_names_of_one_recording_are_ambiguous_unless_one_is_exact():
    result = match_recordings(["a/x.wav", "b/x.wav"], ["x"], Path("x"))
    assert [source for source, _ in result.values()] == ["", ""]
    result = match_recordings(["x.wav", "b/x.wav"], ["x"], Path("x"))
    assert [source for source, _ in result.values()] == ["x", ""]


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


def test_spans_are_joined_with_the_text_files_of_a_folder(tmp_path):
    birdnet(tmp_path / "e", *LINES)
    birdnet(tmp_path / "e", *LINES, name="sub/unlabelled")
    more = "x.wav,9,2,roar\nx.wav,4,5,bark\nx.wav,-1,3,roar\nx.wav,0,3,\nx.wav,0,1,a\n"
    spans = spans_csv(tmp_path, SPANS + more)
    result = load(tmp_path / "e", spans)
    assert result.table.matrix.tolist()[:2] == [[1.25, 2.75], [2.0, 4.0]]
    assert result.table.segment[:2] == ("x.wav@0-6", "x.wav@4-5 bark")
    assert set(result.table.labels[1]) == {"bark", "roar"}
    reasons = {reject.row: reject.reason for reject in result.rejects}
    assert reasons[3] == "no window overlaps it"
    assert reasons[4].startswith("no windows of its recording (no recording z.wav und")
    assert reasons[6] == "the same span and label are there already"
    assert reasons[5] == reasons[7] != reasons[8] == "no label"
    assert result.notes == ["labelled: 1 of 2 recordings; used: 2 of their 3 windows"]
    whole = load(tmp_path / "e", spans_csv(tmp_path, "recording,label\nx.wav,roar\n"))
    assert whole.table.matrix.tolist() == [[3.5, 4.5]]
    assert whole.table.segment == ("x.wav",)


def test_all_file_formats_of_the_analyzer_give_the_same_vectors(tmp_path):
    spans = spans_csv(tmp_path, SPANS)
    expected = load(birdnet(tmp_path, *LINES), spans).table
    rows = ["file_path,start,end,embedding"]
    for start, end, numbers in (line.split("\t") for line in LINES):
        birdnet(tmp_path / "single", numbers, name=f"x_{start}_{end}")
        rows.append(f'/data/x.wav,{start},{end},"{numbers}"')
    (tmp_path / "all.csv").write_text("\n".join(rows))
    for source in (tmp_path / "single", tmp_path / "all.csv"):
        np.testing.assert_array_equal(load(source, spans).table.matrix, expected.matrix)


def test_one_file_of_the_analyzer_may_end_in_txt_only(tmp_path):
    spans = spans_csv(tmp_path, "recording,start_s,end_s,label\nx.wav,0,3,roar\n")
    for name, line in {"x": LINES[0], "x_0.0_3.0": "0.5,1.5"}.items():
        path = tmp_path / f"{name}.txt"
        path.write_text(f"{line}\n")
        assert load(path, spans).table.matrix.tolist() == [[0.5, 1.5]]


def test_a_segment_table_gives_its_ids_groups_folds_and_corpus(tmp_path):
    columns = {
        "segment": ["p", "q"],
        "recording": ["herd"] * 2,
        "path": ["a/x.wav"] * 2,
    }
    columns |= {"start_s": [0.0, 6.0], "end_s": [6.0, 9.0], "label": ["roar", "bark"]}
    columns |= {"labels": [["roar", "bark"], ["bark"]], "fold": [0, 0]}
    path = tmp_path / "segments.parquet"
    pl.DataFrame(columns).write_parquet(path, metadata={"corpus": "mine"})
    birdnet(tmp_path / "e", *LINES, name="a/x")
    result = load(tmp_path / "e", path)
    assert result.corpus == "mine"
    assert result.table.segment == ("p", "q")
    assert result.table.recording == ("herd", "herd")
    assert result.table.labels == (("roar", "bark"), ("bark",))
    assert result.table.matrix.tolist() == [[1.25, 2.75], [8.0, 8.0]]


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


COMMA = 'recording,start_s,end_s,label\nx,"1,5",2,a\n'


@pytest.mark.parametrize(
    ("match", "text"),
    [
        ("column start_s, row 1: expected seconds, got '1,5'", COMMA),
        ("column end_s is missing", "recording,start_s,label\nx,1,a\n"),
        ("column recording is missing", "label\na\n"),
        ("column recording, row 1: expected text", "recording,label\n,a\n"),
        ("no vector has a label; .*no windows of its rec", "recording,label\nz,a\n"),
        ("the file has no rows", "recording,label\n"),
        ("vectors of one length, 2 as the first, got 3", "recording,label\nx,a\ny,b\n"),
    ],
)
def test_bad_spans_are_errors(tmp_path, match, text):
    birdnet(tmp_path / "e", *LINES)
    birdnet(tmp_path / "e", "0\t3\t1,2,3", name="y")
    check_error(match, tmp_path / "e", spans_csv(tmp_path, text))


def test_bad_sources_are_errors(tmp_path):
    source = birdnet(tmp_path, *LINES)
    spans = spans_csv(tmp_path, SPANS)
    (tmp_path / "segments.parquet").write_bytes(b"PAR1 not")
    check_error("cannot be read", source, tmp_path / "segments.parquet")
    check_error("got no such file", tmp_path / "gone")
    empty = tmp_path / "empty"
    empty.mkdir()
    check_error("got none in it", empty)
    check_error("got none", empty, spans, kind="birdnet-analyzer")
    (tmp_path / "all.csv").write_text("file_path,start,end\nx,0,3\n")
    check_error("column embedding is missing", tmp_path / "all.csv", spans)
    with pytest.raises(OptionError, match=r"segments: .* has no labels"):
        load(source)
    with pytest.raises(OptionError, match="kind: expected auto, arrays"):
        load(source, kind="perch")


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
    keys = [8, 7, 6, 5, 4, 3, 2, 1]
    usearch(folder, keys, [[key, key / 2] for key in keys])
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


def test_all_windows_of_a_database_are_read_without_labels(tmp_path):
    folder = new_database(tmp_path / "db")
    readers, _ = read_windows(folder)
    assert list(readers) == ["a/x.wav", "a/y.wav"]
    windows = readers["a/y.wav"]()
    assert windows["start_s"].tolist() == [0.0, 2.5, 5.0, 7.5]
    assert windows["vector"][:, 0].tolist() == [5.0, 6.0, 7.0, 8.0]
    with pytest.raises(OptionError, match="has times of its own; remove --window"):
        read_windows(folder, window_s=5.0)


def test_annotations_of_a_database_become_segments(tmp_path):
    folder = new_database(tmp_path / "db")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = load(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    names = ("a/x.wav@2.5-7.5", "a/x.wav@5-10", "a/y.wav@0-5 roar")
    assert result.table.segment == names
    assert result.table.label == ("roar", "bark", "roar")
    assert result.table.labels == (("roar", "bark"), ("bark", "roar"), ("roar",))
    assert result.table.recording == ("a/x.wav", "a/x.wav", "a/y.wav")
    assert result.table.matrix.tolist() == [[2.0, 1.0], [3.0, 1.5], [5.0, 2.5]]
    rejects = [(reject.row, reject.reason) for reject in result.rejects]
    assert rejects == [(4, "the same span and label are there already")]
    assert result.notes[0] == "2 negative or uncertain annotations ignored"
    spans = spans_csv(tmp_path, "recording,start_s,end_s,label\nx.wav,0,6,rumble\n")
    other = load(folder / "hoplite.sqlite", spans)
    assert other.table.matrix.tolist() == [[1.5, 0.75]]
    assert any("4 annotations of the database ignored" in note for note in other.notes)
    usearch(folder, [1, 2, 3, 4], np.full((4, 2), 0.1), "f32")
    part = load(folder)
    assert part.table.matrix.tolist() == [[np.float32(0.1)] * 2] * 2
    assert part.rejects[0].reason.startswith("no windows of its recording")
    assert "4 windows without a vector in usearch.index" in part.notes


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
    sites = [(1, "pan", "herd", None, None), (2, "river", "herd", None, None)]
    recordings = [(1, "x.wav", None, 1), (2, "x.wav", None, 2)]
    folder = new_database(tmp_path / "db", deployments=sites, recordings=recordings)
    assert load(folder).table.recording == (
        "herd/pan/x.wav",
        "herd/pan/x.wav",
        "herd/river/x.wav",
    )


@pytest.mark.parametrize(
    ("match", "rows"),
    [
        (
            "annotation 7: expected a start and an end in seconds, got b'12345'",
            {"annotations": [(7, 1, b"12345", "x", 1, "me")]},
        ),
        (
            "window 3: expected a start and an end .* got 'no'",
            {"windows": [(3, 1, "no")]},
        ),
        ("window 3: expected finite", {"windows": [(3, 1, floats(np.nan, 1))]}),
        ("window 3: its recording 9 is not", {"windows": [(3, 9, floats(0, 1))]}),
        ("annotation 1: its recording 9", {"annotations": [(1, 9, b"", "x", 1, "")]}),
        ("the database has no annotations; .*--segments", {"annotations": []}),
    ],
)
def test_bad_rows_of_a_database_are_errors_with_their_id(tmp_path, match, rows):
    check_error(match, new_database(tmp_path / "a", **rows))


def test_other_databases_and_indexes_are_errors(tmp_path):
    other = write_database(tmp_path / "g", "CREATE TABLE other (id)")
    check_error("expected the tables of perch-hoplite.*got other", other)
    old = write_database(tmp_path / "i", "CREATE TABLE hoplite_embeddings (id)")
    check_error(r"perch-hoplite 0\.1; migrate it .*99_migrate_db\.ipynb", old)
    folder = new_database(tmp_path / "h")
    usearch(folder, range(1, 9), np.full((8, 2), 1e30))  # infinite as float16
    check_error("window 1: its vector is not finite", folder)
    usearch(folder, range(1, 9), np.ones((8, 2)), "i8")
    check_error(r"usearch\.index: expected .* float16 or float32", folder)
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


READ_INDEXES = """
import sys
from pathlib import Path
import numpy as np
from callshot.errors import InputError
from callshot.tables.tool_windows import open_usearch
for name in sys.argv[1:]:
    try:
        index = open_usearch(Path(name))
        keys = np.arange(1, 301, dtype=np.uint64)
        found = keys[index.contains(keys)]
        print(name, "read", len(index.get(found)))
    except InputError as error:
        print(name, "refused", error)
"""


def test_a_damaged_index_does_not_end_the_process(tmp_path):
    path = usearch(tmp_path, range(1, 301), np.full((300, 8), 0.5))
    content = path.read_bytes()
    header = content.index(b"usearch")
    dimensions = header + 33
    assert content[dimensions : dimensions + 8] == (8).to_bytes(8, "little")
    damaged = {"cut": content[: len(content) // 2], "empty": b""}
    damaged["random"] = random.Random(0).randbytes(len(content))
    for place in [*range(8), *range(header, header + 64)]:
        changed = bytearray(content)
        changed[place] ^= 64
        damaged[f"byte-{place}"] = bytes(changed)
    names = []
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        names.append(str(tmp_path / name))
    command = [sys.executable, "-c", READ_INDEXES, *names]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, (child.returncode, child.stderr[-500:])
    lines = child.stdout.splitlines()
    assert len(lines) == len(names)
    for place in range(dimensions, dimensions + 8):
        (line,) = [one for one in lines if f"byte-{place} " in one]
        assert "refused" in line


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


def test_the_command_writes_a_readable_table_and_prints_what_is_not_in_it(
    tmp_path, capsys
):
    birdnet(tmp_path / "e", *LINES)
    out = tmp_path / "birdnet.parquet"
    spans = spans_csv(tmp_path, SPANS)
    run("import", tmp_path / "e", "--segments", spans, "--out", out)
    output = capsys.readouterr().out
    assert "left out, 1 (row 3): no window overlaps it" in output
    assert "2 segments of 2 dimensions" in output
    table = read_table(out)
    assert table.encoder == "birdnet"
    assert table.matrix.dtype == np.float32
    assert table.matrix.tolist() == [[1.25, 2.75], [2.0, 4.0]]
    out = tmp_path / "t.parquet"
    run("import", arrays(tmp_path), "--out", out, "--encoder", "perch", "--quiet")
    assert capsys.readouterr().out == ""
    assert read_table(out).encoder == "perch"
