"""Embedding tables: the same from every kind of file, unchanged round trips, one-line errors."""

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.errors import CallshotError, InputError
from callshot.records import table_files
from callshot.tables.embedding_tables import (
    read_sequences,
    read_table,
    read_tables,
    sequences_path,
    verify_table,
    write_sequences,
    write_table,
)
from callshot.vectors import Vectors

VECTORS = [[0.1, 2.0, -3.5], [1e-30, 0.0, 7.25], [4.0, 5.0, 6.0], [-1.0, 1 / 3, 2.5]]
COLUMNS: dict[str, Any] = {
    "segment": ["s3", "s1", "s2", "007"],
    "recording": ["a.wav", "b.wav", "a.wav", "c.wav"],
    "label": ["rumble", "roar", "rumble", "trumpet"],
    "labels": [["rumble", "roar"], ["roar"], ["rumble"], ["trumpet", "roar"]],
    "fold": [0, 1, 0, -1],
    "embedding": VECTORS,
}


def change_columns(changes):
    """Return the columns of a good table with changes; columns that become None are left out."""
    columns = (COLUMNS | changes).items()
    return {name: column for name, column in columns if column is not None}


def parquet(folder, name="mfcc.parquet", metadata=None, **changes):
    arrow = pa.table(change_columns(changes))
    pq.write_table(arrow.replace_schema_metadata(metadata), folder / name)
    return folder / name


def text_csv(folder, text):
    path = folder / "mfcc.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_csv(folder, **changes):
    columns = change_columns(
        {"labels": [*map(json.dumps, COLUMNS["labels"])]} | changes
    )
    vectors = np.array(columns.pop("embedding"), object)
    for i in reversed(range(vectors.shape[1])):
        columns[f"e{i}"] = vectors[:, i].tolist()
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([columns, *zip(*columns.values(), strict=True)])
    return text_csv(folder, stream.getvalue())


def npz(folder, **changes):
    columns = change_columns({"labels": [*map(";".join, COLUMNS["labels"])]} | changes)
    np.savez(folder / "mfcc.npz", **columns)
    return folder / "mfcc.npz"


WRITERS = {"parquet": parquet, "csv": rows_csv, "npz": npz}
every_kind = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def check_error(path, match):
    """Expect one line that begins with the file."""
    with pytest.raises(InputError, match=match) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


def read_corpus(path):
    """Return the corpus that a table names."""
    return read_table(path).spans.metadata.get("corpus")


def check_same(one, other):
    for name in ("encoder", "segment", "recording", "label", "labels"):
        assert list(getattr(one, name)) == list(getattr(other, name)), name
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert one.matrix.dtype == other.matrix.dtype
    np.testing.assert_array_equal(one.fold, other.fold)


@every_kind
def test_every_kind_of_file_gives_the_same_embeddings(tmp_path, write):
    path = write(tmp_path)
    table = read_table(path)
    assert (table.encoder, read_corpus(path)) == ("mfcc", None)
    assert list(table.segment) == COLUMNS["segment"]
    assert list(table.recording) == COLUMNS["recording"]
    assert list(table.label) == COLUMNS["label"]
    assert [*map(list, table.labels)] == COLUMNS["labels"]
    assert table.fold.dtype == np.int64
    assert table.fold.tolist() == [0, 1, 0, -1]
    assert table.matrix.dtype == np.float64
    assert table.matrix.tolist() == VECTORS
    assert table.matrix.flags.c_contiguous
    wide = np.arange(48.0).reshape(4, 12).tolist()  # e10 comes after e9
    assert read_table(write(tmp_path, embedding=wide)).matrix.tolist() == wide


@every_kind
def test_only_recording_label_and_embedding_must_be_there(tmp_path, write):
    table = read_table(write(tmp_path, segment=None, labels=None, fold=None))
    assert table.segment == ("a.wav#0", "b.wav#0", "a.wav#1", "c.wav#0")
    assert table.labels == (("rumble",), ("roar",), ("rumble",), ("trumpet",))
    assert table.fold is None


@every_kind
def test_integer_ids_are_read_as_text_and_other_columns_are_ignored(tmp_path, write):
    ids = {"segment": [3, 1, 2, 40], "recording": [7, 8, 7, 9]}
    table = read_table(write(tmp_path, **ids, event=[0.5, 1.5, 2.5, 3.5]))
    assert table.segment == ("3", "1", "2", "40")
    assert table.recording == ("7", "8", "7", "9")


def test_a_csv_may_have_a_byte_order_mark_windows_line_ends_and_empty_rows(tmp_path):
    text = "\ufeffrecording,label,e0\r\na,x,1\r\n\r\nb,y,2\r\n,,\r\n\r\n"
    table = read_table(text_csv(tmp_path, text))
    assert (table.recording, table.label) == (("a", "b"), ("x", "y"))


@pytest.mark.parametrize("dtype", ["<f4", ">f4", np.float16, np.int16, np.longdouble])
def test_float32_stays_float32_and_other_numbers_become_float64(tmp_path, dtype):
    numbers = np.asfortranarray(np.arange(12).reshape(4, 3).astype(dtype))
    matrix = read_table(npz(tmp_path, embedding=numbers)).matrix
    is_single = np.dtype(dtype).itemsize == 4
    assert matrix.dtype == (np.float32 if is_single else np.float64)
    assert matrix.tolist() == numbers.tolist()


KINDS = [pa.list_(pa.float64(), 3), pa.large_list(pa.float64()), pa.list_(pa.int32())]


@pytest.mark.parametrize("kind", [*KINDS, pa.list_(pa.float32())])
def test_parquet_vectors_may_be_lists_or_arrays_of_any_number(tmp_path, kind):
    numbers = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    table = read_table(parquet(tmp_path, embedding=pa.array(numbers, kind)))
    assert table.matrix.tolist() == numbers
    is_single = kind == pa.list_(pa.float32())
    assert table.matrix.dtype == (np.float32 if is_single else np.float64)


THREE = ("rumble", "roar", "bark")
CENTRE = ("rumble",)


@pytest.mark.parametrize(
    ("write", "entry", "labels"),
    [
        *((npz, text, CENTRE) for text in ("", "[]", "rumble;rumble")),
        (rows_csv, " roar ; bark ", THREE),
        (rows_csv, '["roar", "bark", "roar"]', THREE),
        (parquet, None, CENTRE),
        (parquet, [], CENTRE),
        (parquet, ["roar", "rumble", "roar"], ("roar", "rumble")),
        (parquet, [1, 2], ("rumble", "1", "2")),
        (parquet, "rumble;x", ("rumble", "x")),
        (rows_csv, "[3, 1]", ("rumble", "3", "1")),
    ],
)
def test_the_centre_label_is_among_the_labels_once(tmp_path, write, entry, labels):
    assert read_table(write(tmp_path, labels=[entry] * 4)).labels[0] == labels


def test_the_encoder_and_the_corpus_are_named_in_the_metadata(tmp_path):
    path = parquet(tmp_path, metadata={"encoder": "perch", "corpus": "ldc"})
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")
    path = npz(tmp_path, encoder="perch", corpus=["ldc"])
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")


def other_order(folder, name="perch.parquet", **changes):
    columns = {key: column[::-1] for key, column in COLUMNS.items()}
    columns["embedding"] = [[4.0], [3.0], [2.0], [1.0]]
    return parquet(folder, name, **(columns | changes))


def test_several_tables_keep_their_own_views_notes_and_fingerprints(tmp_path):
    facts = {"views": "1,2", "note": "made by hand", "fingerprint": "abc"}
    other = parquet(tmp_path, "other.parquet", {"encoder": "joined", **facts})
    first, second = read_tables([parquet(tmp_path), other])
    assert (first.joined_dimensions, first.note, first.fingerprint) == ((), "", "")
    kept = (second.joined_dimensions, second.note, second.fingerprint)
    assert kept == ((1, 2), "made by hand", "abc")


def test_several_tables_come_in_the_order_of_the_first(tmp_path):
    turned = [names[::-1] for names in COLUMNS["labels"][::-1]]  # labels have no order
    for changes in ({}, {"labels": turned}):
        paths = [parquet(tmp_path), other_order(tmp_path, **changes)]
        first, second = read_tables(paths)
        assert second.encoder == "perch"
        assert second.source.endswith("perch.parquet")
        assert second.matrix.tolist() == [[1.0], [2.0], [3.0], [4.0]]
        for name in ("segment", "recording", "label", "labels"):
            assert getattr(first, name) == getattr(second, name)
        np.testing.assert_array_equal(first.fold, second.fold)


def check_error_together(paths, match):
    with pytest.raises(InputError, match=match) as caught:
        read_tables(paths)
    assert len(str(caught.value).splitlines()) == 1


def test_several_tables_need_segments_and_different_encoders(tmp_path):
    paths = [parquet(tmp_path), other_order(tmp_path, segment=None)]
    check_error_together(paths, r"perch.parquet: column segment is missing, by which")
    paths = [parquet(tmp_path), other_order(tmp_path), npz(tmp_path)]
    message = r"mfcc\.npz: its encoder is 'mfcc', as in .*mfcc\.parquet"
    check_error_together(paths, message)


@pytest.mark.parametrize("turned", [False, True])
def test_tables_with_different_segments_are_errors(tmp_path, turned):
    small = {name: column[:3] for name, column in COLUMNS.items()}
    paths = [parquet(tmp_path), parquet(tmp_path, "perch.parquet", **small)]
    match = r"perch\.parquet: column segment: .* got no '007' of .*\(1 are not in both"
    check_error_together(paths[::-1] if turned else paths, match)


OTHER_LABELS = [["trumpet"], ["rumble"], ["roar"], ["roar", "rumble"]]


@pytest.mark.parametrize(
    ("name", "column", "row", "values"),
    [
        ("recording", ["c.wav", "a.wav", "x.wav", "a.wav"], 3, ("b.wav", "x.wav")),
        ("label", ["trumpet", "rumble", "roar", "roar"], 4, ("rumble", "roar")),
        ("labels", OTHER_LABELS, 1, (["roar", "trumpet"], ["trumpet"])),
        ("fold", [-1, 1, 1, 0], 2, (0, 1)),
        ("fold", None, 4, (0, None)),
    ],
)
def test_tables_that_disagree_about_a_segment_are_errors(
    tmp_path, name, column, row, values
):
    paths = [parquet(tmp_path), other_order(tmp_path, **{name: column})]
    expected, found = (re.escape(repr(value)) for value in values)
    match = rf"row {row}: expected {expected} as in .*mfcc\.parquet, got {found}"
    check_error_together(paths, rf"perch\.parquet: column {name}, {match}")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("absent.parquet", None, "No such file"),
        ("x.xlsx", b"PK", r"expected a name that ends in \.parquet, \.csv, \.npz, got"),
        ("x.parquet", b"", "the file is empty"),
        ("x.csv", b"", "the file is empty"),
        ("x.npz", b"", "the file is empty"),
        ("x.parquet", b"recording,label,e0\na,x,1\n", r"cannot be read \("),
        ("x.npz", b"recording,label,e0\na,x,1\n", r"cannot be read \("),
    ],
)
def test_a_file_that_is_no_table_is_an_error(tmp_path, name, content, match):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    check_error(tmp_path / name, match)
    check_error(tmp_path, "Is a directory")


def test_pickles_are_errors(tmp_path):
    pickled = npz(tmp_path, label=np.array(COLUMNS["label"], object))
    check_error(pickled, "it has pickled objects: save text")
    # What is ignored is not even opened.
    assert len(read_table(npz(tmp_path, notes=np.array([{}], object)))) == 4


def test_a_npz_file_that_would_fill_the_memory_is_refused_before_it_is_read(
    tmp_path, monkeypatch
):
    path = tmp_path / "bomb.npz"
    names = np.array([f"{row}" for row in range(2_000)])
    zeros = np.zeros((2_000, 600), np.float32)
    np.savez_compressed(path, embedding=zeros, recording=names, label=names)
    assert path.stat().st_size < 2**15
    monkeypatch.setattr(table_files, "ALWAYS_BYTES", 2**20)
    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", None)  # nothing is read
    check_error(path, r"its arrays would take 4,\d\d\d,\d\d\d;")


@pytest.mark.parametrize("row", ["b,y", "b,y,2,3", "b,y,2,3,4"])
def test_a_csv_with_ragged_rows_is_an_error(tmp_path, row):
    text = f'recording,label,e0,notes\n"a\nb",x,1,\n\n{row}\nc,z,3,\n'
    path = text_csv(tmp_path, text)
    count = row.count(",") + 1
    if count == 4:
        assert len(read_table(path)) == 3
    else:
        check_error(path, rf"Row #3: Expected 4 columns, got {count}")


BAD_CSV = [
    ("recording,label,e0\na,x,1\nb,ör,2\n".encode("latin-1"), "not UTF-8"),
    ("recording,label,e0\na,x,1\n".encode("utf-16"), "not UTF-8"),
    ('recording,label,e0\na,"x,1\nb,y,2\n', "cannot be read"),
    ("recording,label,embedding\na,x,1\n", "column e0 is missing"),
    ("recording,label,e0,e1,e3\na,x,1,2,3\n", "column e2 is missing"),
    (f"recording,label,e0,e{'9' * 5000}\na,x,1,2\n", "column e1 is missing"),
    ("recording,label,e0,label\na,x,1,0\n", "column label is in the header 2 times"),
    ("recording,label,e0,e0\na,x,1,0\n", "column e0 is in the header 2 times"),
    *(
        (f'recording,label,e0\na,x,1\nb,y,"{text}"\n', f"row 2, dimension e0: .*{text}")
        for text in ("", "1,5", "1e999")
    ),
]


@pytest.mark.parametrize(("text", "match"), BAD_CSV)
def test_a_bad_csv_is_an_error_with_its_row_and_column(tmp_path, text, match):
    check_error(text_csv(tmp_path, text), match)


BAD_COLUMNS: dict[str, list[Any]] = {
    "label is missing; add it": [{"label": None}],
    "recording is missing; rename 'Recordings'": [
        {"recording": None, "Recordings": ["a"] * 4}
    ],
    "segment, row 3: expected text, got ": [{"segment": ["a", "b", " \t", "c"]}],
    "segment, row 4: expected ids that differ, got .b.": [
        {"segment": ["a", "b", "c", "b"]}
    ],
    r"embedding, row 3, dimension e1: .*finite.*got '?(nan|inf|-inf)'?;": [
        {"embedding": [*VECTORS[:2], [4.0, float(value), 6.0], VECTORS[3]]}
        for value in ("nan", "inf", "-inf")
    ],
}


@every_kind
@pytest.mark.parametrize("match", BAD_COLUMNS)
def test_a_bad_column_is_an_error_in_every_kind_of_file(tmp_path, write, match):
    for changes in BAD_COLUMNS[match]:
        check_error(write(tmp_path, **changes), rf"column {match}")


LISTS = "embedding: expected lists of numbers, got"
TEXT = "expected text or integers, got"
BAD_PARQUET: list[tuple[dict[str, Any], str]] = [
    ({"embedding": None, "embeddings": VECTORS}, "embedding is missing; rename 'embe"),
    ({"label": ["a", None, "b", "c"]}, "label, row 2: expected text, got None"),
    ({"label": [None] * 4}, "label, row 1: expected text, got None"),
    ({"recording": [1.0, 2.0, 3.0, 4.0]}, f"recording: {TEXT}"),
    ({"recording": [b"a"] * 4}, f"recording: {TEXT}"),
    ({"labels": [["x"], ["y"], ["x", ""], ["y"]]}, r"labels, row 3: .*got \['x', ''\]"),
    ({"labels": [["x"], ["y", None], ["x"], ["y"]]}, "labels, row 2: "),
    ({"labels": [[1.5]] * 4}, rf"labels: {TEXT} List\(Float64\)"),
    (
        {"embedding": [*VECTORS[:2], [1.0], VECTORS[3]]},
        "embedding, row 3: expected 3 n",
    ),
    ({"embedding": [*VECTORS[:3], None]}, "embedding, row 4: expected a vector"),
    ({"embedding": [[], *VECTORS[1:]]}, "embedding, row 1: expected a vector"),
    ({"embedding": [[1.0], [None], [2.0], [3.0]]}, ".*row 2, dimension e0: .*got None"),
    *(
        ({"embedding": column}, LISTS)
        for column in ([1.0] * 4, [[True]] * 4, [[[1.0]]] * 4)
    ),
]


@pytest.mark.parametrize(("changes", "match"), BAD_PARQUET)
def test_a_bad_column_of_parquet_is_an_error(tmp_path, changes, match):
    check_error(parquet(tmp_path, **changes), rf"column {match}")


NUMBERS = "embedding: expected numbers, segments × dimensions, got"
ONES = np.ones((4, 2))
BAD_NPZ: list[tuple[dict[str, Any], str]] = [
    ({"embedding": None}, "embedding is missing"),
    ({"label": [["a", "b"]] * 4}, r"label: expected a row of text .*\(4, 2\)"),
    ({"label": np.array([b"a"] * 4)}, r"label: .*text or integers, got \|S1"),
    ({"encoder": 1.5}, "encoder: expected a row of text"),
    ({"label": ["a", "b", "c", "\ud800"]}, "label: expected text, got broken text"),
    ({"label": ["a", "b", "c"]}, ".*label.*3"),
    ({"embedding": np.empty((4, 0))}, ".*row 1: .*at least one dimension, got 0"),
    *(
        ({"embedding": array}, NUMBERS)
        for array in (ONES[:, 0], ONES.astype(complex), ONES > 0)
    ),
    *(
        ({"labels": ["roar", "x", entry, "x"]}, "labels, row 3: .*JSON array")
        for entry in ('["roar"', "[1.5]", '["\\ud800"]', "[" * 100_000)
    ),
    *(
        ({"labels": ["roar", entry, "x", "x"]}, "labels, row 2: .*none empty")
        for entry in ("roar;;bark", '["roar", " "]', '["roar", null]')
    ),
]


@pytest.mark.parametrize(("changes", "match"), BAD_NPZ, ids=range(len(BAD_NPZ)))
def test_a_bad_column_of_npz_is_an_error(tmp_path, changes, match):
    check_error(npz(tmp_path, **changes), rf"column {match}")


def test_a_table_without_rows_is_an_error(tmp_path):
    pq.write_table(pa.table(COLUMNS).slice(0, 0), tmp_path / "x.parquet")
    check_error(tmp_path / "x.parquet", "the table has no rows")
    check_error(text_csv(tmp_path, "recording,label,e0\n"), "the table has no rows")
    names = ("segment", "recording", "label", "labels")
    columns = dict.fromkeys(names, np.array([], str))
    path = npz(tmp_path, **columns, fold=None, embedding=np.empty((0, 3)))
    check_error(path, "the table has no rows")


NAMED = ["site 10", "site 9", "", "site 10"]


@pytest.mark.parametrize(
    ("write", "fold", "numbers"),
    [
        *(
            (write, [-2, 0, 10**15, 5], [-2, 0, 10**15, 5])
            for write in WRITERS.values()
        ),
        *((write, NAMED, [1, 0, -1, 1]) for write in (rows_csv, npz)),
    ],
)
def test_folds_are_any_integers_or_names_and_empty_ones_the_common_fold(
    tmp_path, write, fold, numbers
):
    assert read_table(write(tmp_path, fold=fold)).fold.tolist() == numbers


def test_folds_of_pandas_are_whole_numbers_or_an_error(tmp_path):
    whole = read_table(parquet(tmp_path, fold=[1.0, None, 2.0, float("nan")]))
    assert whole.fold.tolist() == [1, -1, 2, -1]
    path = parquet(tmp_path, fold=[0.0, 1.5, 0.0, 1.0])
    check_error(path, r"column fold, row 2: expected an integer or a name, got 1\.5")
    for number, written in [(float("inf"), "inf"), (-1e300, r"-1e\+300")]:
        path = parquet(tmp_path, fold=[0.0, None, number, 1.0])
        check_error(path, f"fold, row 3: expected an integer or a name, got {written}")


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
ODD = ["a;b", '"', "a\nb", "a\r\nb", "🐘", " x ", "[", "null", "é,;", "e0", "#", "\\'"]
words = words.filter(str.strip) | st.sampled_from(ODD)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
dtypes = st.sampled_from([np.float32, np.float64])


@st.composite
def tables(draw):
    segment = draw(st.lists(words, min_size=1, max_size=6, unique=True))
    n, width = len(segment), draw(st.integers(1, 3))
    label = draw(st.lists(words, min_size=n, max_size=n))
    more = draw(st.lists(st.lists(words, max_size=3), min_size=n, max_size=n))
    vector = st.lists(numbers, min_size=width, max_size=width)
    pairs = zip(label, more, strict=True)
    return Vectors.from_columns(
        "mfcc",
        np.array(draw(st.lists(vector, min_size=n, max_size=n)), draw(dtypes)),
        segment,
        draw(st.lists(words, min_size=n, max_size=n)),
        label,
        [tuple(dict.fromkeys([centre, *others])) for centre, others in pairs],
        np.arange(n) % draw(st.integers(1, 3)),
    )


def columns_of(table):
    assert table.fold is not None
    names = ("segment", "recording", "label")
    columns = {name: list(getattr(table, name)) for name in names}
    return columns | {"fold": table.fold.tolist(), "embedding": table.matrix.tolist()}


@settings(max_examples=15)
@given(table=tables())
def test_any_text_and_any_number_survive_in_every_kind_of_file(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("any [1]*?")
    lists = [list(names) for names in table.labels]
    arrays = [json.dumps(names, ensure_ascii=len(names) > 1) for names in lists]
    written = folder / "label=x.parquet"
    write_table(table, written, corpus="ldc")
    check_same(read_table(written), table)
    assert read_corpus(written) == "ldc"
    assert [path.name for path in folder.iterdir()] == [written.name]
    double = replace(table, matrix=table.matrix.astype(np.float64))
    columns = columns_of(table)
    check_same(read_table(parquet(folder, **columns, labels=lists)), double)
    check_same(read_table(rows_csv(folder, **columns, labels=arrays)), double)
    texts = (*table.segment, *table.recording, *table.label)
    if not any(text.endswith("\0") for text in texts):  # numpy drops these
        check_same(read_table(npz(folder, **columns, labels=arrays)), double)


mutations = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)),
    min_size=1,
    max_size=5,
)


def only_our_errors(path):
    message = f"{path}: "
    try:
        read_table(path)
    except CallshotError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def twenty_rows(folder, write, **changes):
    columns = {name: column * 5 for name, column in COLUMNS.items()}
    columns["segment"] = [f"s{i}" for i in range(20)]
    return bytearray(write(folder, **(columns | changes)).read_bytes())


TWO = ['["rumble", "roar"]', "a;b"] * 10


@every_kind
@settings(max_examples=20)
@given(mutations=mutations, length=st.floats(0, 1) | st.just(1.0), insert=st.booleans())
def test_a_damaged_file_raises_nothing_but_our_errors(
    tmp_path_factory, write, mutations, length, insert
):
    folder = tmp_path_factory.getbasetemp()
    labels = [["rumble", "roar"]] * 20 if write is parquet else TWO
    content = twenty_rows(folder, write, labels=labels)
    for place, value in mutations:
        at = int(place * len(content))
        content[at : at + (not insert)] = bytes([value])
    path = folder / write(folder).with_stem("bad").name
    path.write_bytes(content[: max(1, int(len(content) * length))])
    only_our_errors(path)


@settings(max_examples=20)
@given(mutations=mutations, name=st.sampled_from([*COLUMNS, "encoder"]))
def test_a_damaged_array_raises_nothing_but_our_errors(
    tmp_path_factory, mutations, name
):
    """In a whole archive, whose checksum would else hide it."""
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(folder, npz, labels=TWO, encoder="x")
    whole = zipfile.ZipFile(io.BytesIO(content))
    arrays = {entry: whole.read(entry) for entry in whole.namelist()}
    damaged = bytearray(arrays[f"{name}.npy"])
    for place, value in mutations:
        damaged[int(place * len(damaged))] = value
    with zipfile.ZipFile(folder / "bad.npz", "w") as archive:
        for entry, array in (arrays | {f"{name}.npy": bytes(damaged)}).items():
            archive.writestr(entry, array)
    only_our_errors(folder / "bad.npz")


def test_a_changed_byte_in_the_metadata_of_a_table_is_found(tmp_path):
    columns = [["a.wav#0", "a.wav#1"], ["a.wav", "a.wav"], ["roar", "rumble"]]
    labels = [("roar",), ("rumble",)]
    table = Vectors.from_columns("encoder-one", [[1, 2], [3, 4]], *columns, labels)
    path = tmp_path / "table.parquet"
    write_table(table, path)
    assert verify_table(path).state == "ok"
    content = path.read_bytes()
    assert content.count(b"encoder-one") == 1
    path.write_bytes(content.replace(b"encoder-one", b"encoder-two"))
    assert read_table(path).encoder == "encoder-two"
    assert verify_table(path).state == "damaged"


RNG = np.random.default_rng(0)
FRAMES = {
    f"s{n:03}": RNG.normal(size=(1 + n % 5, 3)).astype(np.float32) for n in range(150)
}


@pytest.fixture
def path(tmp_path):
    """Sequences of 150 segments, more than are written at once."""
    place = sequences_path(tmp_path / "mfcc.parquet")
    write_sequences(place, list(FRAMES), iter(FRAMES.values()))
    return place


def test_sequences_come_back_unchanged_in_the_requested_order(path):
    segments = ["s140", "s002", "s007"]
    sequences = read_sequences(path, segments)
    for name, sequence in zip(segments, sequences, strict=True):
        assert sequence.dtype == np.float32
        np.testing.assert_array_equal(sequence, FRAMES[name])


def test_a_segment_without_a_sequence_is_an_error_with_its_name(path):
    with pytest.raises(InputError, match="no sequence of the segment 'other'"):
        read_sequences(path, ["s001", "other"])


SEQUENCE_COLUMNS = ("segment", "frames", "sequence")


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (("a", 2, [1.0, 2.0, 3.0]), "3 values do not make 2 frames"),
        (("a", 0, []), "0 values do not make 0 frames"),
        (("a", 1, None), "0 values do not make 1 frames"),
        (("a", 1), "column sequence is missing"),
        ((), "no such file; embed the segments again with --sequence"),
    ],
)
def test_a_damaged_table_is_an_error(tmp_path, row, match):
    path = tmp_path / "x.parquet"
    if row:
        columns = zip(SEQUENCE_COLUMNS, row, strict=False)
        pl.DataFrame({name: [cell] for name, cell in columns}).write_parquet(path)
    with pytest.raises(InputError, match=match):
        read_sequences(path, ["a"])
