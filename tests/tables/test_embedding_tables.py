"""Embedding tables: the same from every kind of file, unchanged round trips, one-line errors."""

import csv
import io
import json
import zipfile
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.errors import CallshotError, InputError
from callshot.tables.embedding_tables import (
    read_table,
    read_tables,
    verify_table,
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
    return {
        name: column
        for name, column in (COLUMNS | changes).items()
        if column is not None
    }


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
        {"labels": [json.dumps(names) for names in COLUMNS["labels"]]} | changes
    )
    vectors = columns.pop("embedding")
    columns |= {
        f"e{i}": [vector[i] for vector in vectors]
        for i in reversed(range(len(vectors[0])))
    }
    stream = io.StringIO(newline="")
    csv.writer(stream).writerows([columns, *zip(*columns.values(), strict=True)])
    return text_csv(folder, stream.getvalue())


def npz(folder, **changes):
    columns = change_columns(
        {"labels": [";".join(names) for names in COLUMNS["labels"]]} | changes
    )
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
    assert (one.fold is None) == (other.fold is None)
    np.testing.assert_array_equal(
        [] if one.fold is None else one.fold, [] if other.fold is None else other.fold
    )


# Reading


@every_kind
def test_every_kind_of_file_gives_the_same_embeddings(tmp_path, write):
    table = read_table(write(tmp_path))
    assert table.encoder == "mfcc"
    assert table.segment == ("s3", "s1", "s2", "007")
    assert table.recording == ("a.wav", "b.wav", "a.wav", "c.wav")
    assert table.label == ("rumble", "roar", "rumble", "trumpet")
    assert table.labels == (
        ("rumble", "roar"),
        ("roar",),
        ("rumble",),
        ("trumpet", "roar"),
    )
    assert table.fold is not None
    assert table.fold.dtype == np.int64
    assert table.fold.tolist() == [0, 1, 0, -1]
    assert table.matrix.dtype == np.float64
    assert table.matrix.tolist() == VECTORS
    assert table.matrix.flags.c_contiguous


@every_kind
def test_only_recording_label_and_embedding_must_be_there(tmp_path, write):
    table = read_table(write(tmp_path, segment=None, labels=None, fold=None))
    assert table.segment == ("a.wav#0", "b.wav#0", "a.wav#1", "c.wav#0")
    assert table.labels == (("rumble",), ("roar",), ("rumble",), ("trumpet",))
    assert table.fold is None


@every_kind
def test_integer_ids_are_read_as_text_and_other_columns_are_ignored(tmp_path, write):
    table = read_table(
        write(
            tmp_path,
            segment=[3, 1, 2, 40],
            recording=[7, 8, 7, 9],
            event=[0.5, 1.5, 2.5, 3.5],
        )
    )
    assert table.segment == ("3", "1", "2", "40")
    assert table.recording == ("7", "8", "7", "9")


def test_a_csv_may_have_a_byte_order_mark_windows_line_ends_and_empty_rows(tmp_path):
    table = read_table(
        text_csv(
            tmp_path, "\ufeffrecording,label,e0\r\na,x,1\r\n\r\nb,y,2\r\n,,\r\n\r\n"
        )
    )
    assert table.recording == ("a", "b")
    assert table.label == ("x", "y")


def test_ten_and_more_dimensions_of_a_csv_are_ordered_by_number(tmp_path):
    vectors = np.arange(48.0).reshape(4, 12)
    assert (
        read_table(rows_csv(tmp_path, embedding=vectors.tolist())).matrix.tolist()
        == vectors.tolist()
    )


@pytest.mark.parametrize("dtype", [np.float32, ">f4"])
def test_float32_stays_float32(tmp_path, dtype):
    single = np.array(VECTORS, np.float32)
    for path in (
        npz(tmp_path, embedding=single.astype(dtype)),
        parquet(tmp_path, embedding=list(single)),
    ):
        table = read_table(path)
        assert table.matrix.dtype == np.dtype(np.float32)
        np.testing.assert_array_equal(table.matrix, single)


@pytest.mark.parametrize("dtype", [np.float16, np.int16, np.longdouble])
def test_other_numbers_become_float64(tmp_path, dtype):
    numbers = np.arange(12).reshape(4, 3)
    table = read_table(
        npz(tmp_path, embedding=np.asfortranarray(numbers.astype(dtype)))
    )
    assert table.matrix.dtype == np.float64
    assert table.matrix.tolist() == numbers.tolist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float64(), 3),
        pa.large_list(pa.float64()),
        pa.list_(pa.int32()),
        pa.list_(pa.float32()),
    ],
)
def test_parquet_vectors_may_be_lists_or_arrays_of_any_number(tmp_path, kind):
    numbers = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    table = read_table(parquet(tmp_path, embedding=pa.array(numbers, kind)))
    assert table.matrix.tolist() == numbers
    assert table.matrix.dtype == (
        np.float32 if kind == pa.list_(pa.float32()) else np.float64
    )


def test_a_name_with_glob_characters_and_equals_signs_is_only_a_name(tmp_path):
    folder = tmp_path / "label=roar"
    folder.mkdir()
    for name in ("a[1]*?.parquet", "label=x.parquet", "b.PARQUET"):
        assert read_table(parquet(folder, name)).label == tuple(COLUMNS["label"])


# Labels


@pytest.mark.parametrize(
    "entry",
    ["", "[]", "rumble", "rumble;rumble", '["rumble", "rumble"]'],
)
def test_the_centre_label_is_always_among_the_labels_and_once(tmp_path, entry):
    assert read_table(npz(tmp_path, labels=[entry] * 4)).labels[0] == ("rumble",)


@pytest.mark.parametrize(
    "entry",
    ["roar;bark", " roar ; bark ", '["roar", "bark", "roar"]', ' ["roar","bark"]'],
)
def test_a_centre_label_that_is_not_among_the_labels_goes_in_front_and_order_is_kept(
    tmp_path, entry
):
    assert read_table(rows_csv(tmp_path, labels=[entry] * 4)).labels[0] == (
        "rumble",
        "roar",
        "bark",
    )


def test_parquet_labels_may_be_null_empty_doubled_integers_or_text(tmp_path):
    table = read_table(
        parquet(tmp_path, labels=[None, [], ["x", "rumble", "x"], ["trumpet"]])
    )
    assert table.labels == (("rumble",), ("roar",), ("x", "rumble"), ("trumpet",))
    assert read_table(
        parquet(tmp_path, label=[1, 2, 3, 4], labels=[[1, 2], [], [3], [3]])
    ).labels[3] == ("4", "3")
    assert read_table(
        rows_csv(tmp_path, label=[1, 2, 3, 4], labels=["[3, 1]"] * 4)
    ).labels[0] == ("3", "1")
    assert read_table(parquet(tmp_path, labels=["rumble;x", None, "", '["x"]'])).labels[
        0
    ] == ("rumble", "x")
    assert read_table(parquet(tmp_path, labels=[None] * 4)).labels[0] == ("rumble",)
    assert read_table(parquet(tmp_path, labels=[[]] * 4)).labels[0] == ("rumble",)


# Names


def test_the_encoder_and_the_corpus_are_named_in_the_metadata(tmp_path):
    path = parquet(tmp_path, metadata={"encoder": "perch", "corpus": "ldc"})
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")
    path = npz(tmp_path, encoder="perch", corpus=["ldc"])
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")


@every_kind
def test_without_metadata_the_encoder_is_the_stem_and_there_is_no_corpus(
    tmp_path, write
):
    path = write(tmp_path)
    assert (read_table(path).encoder, read_corpus(path)) == ("mfcc", None)


# Writing


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fold", [None, [0, 1, 0, -1]])
def test_a_written_table_reads_back_unchanged(tmp_path, dtype, fold):
    table = Vectors.from_columns(
        encoder="perch v2",
        matrix=np.asfortranarray(np.array(VECTORS, dtype)),
        segment=COLUMNS["segment"],
        recording=COLUMNS["recording"],
        label=COLUMNS["label"],
        labels=[tuple(names) for names in COLUMNS["labels"]],
        fold=None if fold is None else np.array(fold),
    )
    write_table(table, tmp_path / "x.parquet", corpus="ldc")
    check_same(read_table(tmp_path / "x.parquet"), table)
    assert read_table(tmp_path / "x.parquet").source == str(tmp_path / "x.parquet")
    assert read_corpus(tmp_path / "x.parquet") == "ldc"
    assert [path.name for path in tmp_path.iterdir()] == ["x.parquet"]
    arrow = pq.read_schema(tmp_path / "x.parquet")
    assert arrow.field("embedding").type.value_type == pa.from_numpy_dtype(dtype)


# Several tables


def other_order(folder, name="perch.parquet", **changes):
    columns = {key: column[::-1] for key, column in COLUMNS.items()} | {
        "embedding": [[4.0], [3.0], [2.0], [1.0]]
    }
    return parquet(folder, name, **(columns | changes))


def test_several_tables_keep_their_own_views_notes_and_fingerprints(tmp_path):
    facts = {"views": "1,2", "note": "made by hand", "fingerprint": "abc"}
    other = parquet(tmp_path, "other.parquet", {"encoder": "joined", **facts})
    first, second = read_tables([parquet(tmp_path), other])
    assert (first.joined_dimensions, first.note, first.fingerprint) == ((), "", "")
    kept = (second.joined_dimensions, second.note, second.fingerprint)
    assert kept == ((1, 2), "made by hand", "abc")


def test_several_tables_come_in_the_order_of_the_first(tmp_path):
    first, second = read_tables([parquet(tmp_path), other_order(tmp_path)])
    assert second.encoder == "perch"
    assert second.source.endswith("perch.parquet")
    assert second.matrix.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    for name in ("segment", "recording", "label", "labels"):
        assert getattr(first, name) == getattr(second, name)
    np.testing.assert_array_equal(first.fold, second.fold)


def test_labels_may_be_in_another_order_in_another_table(tmp_path):
    turned = other_order(
        tmp_path, labels=[names[::-1] for names in COLUMNS["labels"][::-1]]
    )
    assert len(read_tables([parquet(tmp_path), turned])) == 2


def check_error_together(paths, match):
    with pytest.raises(InputError, match=match) as caught:
        read_tables(paths)
    assert len(str(caught.value).splitlines()) == 1


def test_several_tables_need_segments_and_different_encoders(tmp_path):
    check_error_together(
        [parquet(tmp_path), other_order(tmp_path, segment=None)],
        r"perch.parquet: column segment is missing, by which several tables are matched",
    )
    check_error_together(
        [parquet(tmp_path), other_order(tmp_path), npz(tmp_path)],
        r"mfcc\.npz: its encoder is 'mfcc', as in .*mfcc\.parquet",
    )


@pytest.mark.parametrize("turned", [False, True])
def test_tables_with_different_segments_are_errors(tmp_path, turned):
    small = {name: column[:3] for name, column in COLUMNS.items()} | {"fold": [0, 1, 0]}
    paths = [parquet(tmp_path), parquet(tmp_path, "perch.parquet", **small)]
    match = (
        r"perch\.parquet: column segment: .* got no '007' of .*mfcc\.parquet "
        r"\(1 are not in both\)"
    )
    check_error_together(paths[::-1] if turned else paths, match)


@pytest.mark.parametrize(
    ("name", "column", "match"),
    [
        (
            "recording",
            ["c.wav", "a.wav", "x.wav", "a.wav"],
            r"row 3: expected 'b.wav' as in .*mfcc\.parquet, got 'x.wav'",
        ),
        (
            "label",
            ["trumpet", "rumble", "roar", "roar"],
            r"row 4: expected 'rumble' as in .*mfcc\.parquet, got 'roar'",
        ),
        (
            "labels",
            [["trumpet"], ["rumble"], ["roar"], ["roar", "rumble"]],
            r"row 1: expected \['roar', 'trumpet'\] as in .*mfcc\.parquet, got \['trumpet'\]",
        ),
        ("fold", [-1, 1, 1, 0], r"row 2: expected 0 as in .*mfcc\.parquet, got 1"),
        ("fold", None, r"row 4: expected 0 as in .*mfcc\.parquet, got None"),
    ],
)
def test_tables_that_disagree_about_a_segment_are_errors(tmp_path, name, column, match):
    paths = [parquet(tmp_path), other_order(tmp_path, **{name: column})]
    check_error_together(paths, rf"perch\.parquet: column {name}, {match}")


# Bad files


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


def test_a_panic_of_polars_is_an_input_error(tmp_path, monkeypatch):
    def panic(*_, **options):
        raise pl.exceptions.PanicException("index out of bounds\nsomewhere")

    monkeypatch.setattr(pl, "from_arrow", panic)
    check_error(rows_csv(tmp_path), r"cannot be read \(index out of bounds somewhere\)")


def test_pickles_are_errors(tmp_path):
    check_error(
        npz(tmp_path, label=np.array(COLUMNS["label"], object)),
        "it has pickled objects: save text",
    )
    check_error(tmp_path / "pickles.npz", "No such file")
    assert (
        len(read_table(npz(tmp_path, notes=np.array([{}], object)))) == 4
    )  # what is ignored is not even opened


def with_header(folder, shape, data=b""):
    """Write a .npz file whose embedding has a header of our own."""
    path = npz(folder, embedding=None)
    header = (
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117)
        + "\n"
    )
    with zipfile.ZipFile(path, "a") as archive:
        start = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
        archive.writestr("embedding.npy", start + header.encode() + data)
    return path


def test_a_npz_file_that_python_2_wrote_is_read_without_a_warning(tmp_path):
    assert (
        read_table(
            with_header(tmp_path, "(4L, 3L)", np.array(VECTORS).tobytes())
        ).matrix.tolist()
        == VECTORS
    )


@pytest.mark.parametrize(
    "shape", ["(4, 10000000000000)", "(4, 1000000000000000000000)", "(4, -3)"]
)
def test_a_npz_header_that_asks_for_absurd_memory_is_an_error(tmp_path, shape):
    refusals = r"cannot be read \(|arrays would take"
    check_error(with_header(tmp_path, shape), refusals)


def test_a_npz_file_that_would_fill_the_memory_is_refused_before_it_is_read(
    tmp_path, monkeypatch
):
    path = tmp_path / "bomb.npz"
    rows = 40_000
    names = np.array([f"{row}" for row in range(rows)])
    np.savez_compressed(
        path, embedding=np.zeros((rows, 600), np.float32), recording=names, label=names
    )
    assert path.stat().st_size < 2**20

    def read_nothing(*_):
        raise AssertionError("an array was read")

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", read_nothing)
    check_error(path, r"its arrays would take 9\d,\d\d\d,\d\d\d;")


def test_a_compressed_npz_file_of_real_sizes_is_read(tmp_path):
    path = tmp_path / "sparse.npz"
    rows = 2000
    vectors = np.zeros((rows, 1024), np.float32)
    vectors[:, ::16] = np.random.default_rng(1).random((rows, 64), np.float32)
    names = np.array(["a/long/path/to/a/recording.wav"] * rows)
    np.savez_compressed(path, embedding=vectors, recording=names, label=names)
    assert path.stat().st_size < vectors.nbytes / 10
    assert np.array_equal(read_table(path).matrix, vectors)


@pytest.mark.parametrize("row", ["b,y", "b,y,2,3", "b,y,2,3,4"])
def test_a_csv_with_ragged_rows_is_an_error(tmp_path, row):
    text = f'recording,label,e0,notes\n"a\nb",x,1,\n\n{row}\nc,z,3,\n'
    if row.count(",") == 3:
        assert len(read_table(text_csv(tmp_path, text))) == 3
    else:
        check_error(
            text_csv(tmp_path, text),
            rf"Row #3: Expected 4 columns, got {row.count(',') + 1}",
        )


# Bad columns


HEAD = "recording,label"
BAD_CSV = [
    (
        f"{HEAD},e0\na,rumble,1\nb,ör,2\n".encode("latin-1"),
        "not UTF-8",
    ),
    (f"{HEAD},e0\na,rumble,1\n".encode("utf-16"), "not UTF-8"),
    (f'{HEAD},e0\na,"x,1\nb,y,2\n', "cannot be read"),
    (f"{HEAD},embedding\na,x,1\n", "column e0 is missing"),
    (f"{HEAD},e0,e1,e3\na,x,1,2,3\n", "column e2 is missing"),
    (f"{HEAD},e0,e{'9' * 5000}\na,x,1,2\n", "column e1 is missing"),
    (f"{HEAD},e0,label\na,x,1,0\n", "column label is in the header 2 times"),
    (f"{HEAD},e0,e0\na,x,1,0\n", "column e0 is in the header 2 times"),
    *(
        (f'{HEAD},e0,e1\na,x,1,2\nb,y,1,"{value}"\n', f"row 2, dimension e1: .*{value}")
        for value in ("x", "", "1,5", "0x10", "1e999")
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
BAD_PARQUET: list[tuple[dict[str, Any], str]] = [
    (
        {"embedding": None, "embeddings": VECTORS},
        "embedding is missing; rename 'embeddi",
    ),
    ({"label": ["a", None, "b", "c"]}, "label, row 2: expected text, got None"),
    ({"label": [None] * 4}, "label, row 1: expected text, got None"),
    ({"recording": [1.0, 2.0, 3.0, 4.0]}, "recording: expected text or integers, got"),
    ({"recording": [True] * 4}, "recording: expected text or integers, got"),
    ({"recording": [b"a"] * 4}, "recording: expected text or integers, got"),
    ({"labels": [["x"], ["y"], ["x", ""], ["y"]]}, r"labels, row 3: .*got \['x', ''\]"),
    ({"labels": [["x"], ["y", None], ["x"], ["y"]]}, "labels, row 2: "),
    (
        {"labels": [[1.5]] * 4},
        r"labels: expected text or integers, got List\(Float64\)",
    ),
    (
        {"embedding": [*VECTORS[:2], [1.0], VECTORS[3]]},
        "embedding, row 3: expected 3 num",
    ),
    ({"embedding": [*VECTORS[:3], None]}, "embedding, row 4: expected a vector"),
    ({"embedding": [[], *VECTORS[1:]]}, "embedding, row 1: expected a vector"),
    ({"embedding": [[1.0], [None], [2.0], [3.0]]}, ".*row 2, dimension e0: .*got None"),
    *(
        ({"embedding": column}, LISTS)
        for column in ([1.0] * 4, ["x"] * 4, [[True]] * 4, [[[1.0]]] * 4)
    ),
]


@pytest.mark.parametrize(("changes", "match"), BAD_PARQUET)
def test_a_bad_column_of_parquet_is_an_error(tmp_path, changes, match):
    check_error(parquet(tmp_path, **changes), rf"column {match}")


NUMBERS = "embedding: expected numbers, segments × dimensions, got"
ONES = np.ones((4, 2))
BAD_NPZ: list[tuple[dict[str, Any], str]] = [
    ({"embedding": None}, "embedding is missing"),
    (
        {"label": np.array([["a", "b"]] * 4)},
        r"label: expected a row of text .*\(4, 2\)",
    ),
    ({"label": np.array([b"a"] * 4)}, r"label: .*text or integers, got \|S1"),
    ({"encoder": 1.5}, "encoder: expected a row of text"),
    ({"label": ["a", "b", "c", "\ud800"]}, "label: expected text, got broken text"),
    ({"embedding": np.empty((4, 0))}, ".*row 1: .*at least one dimension, got 0"),
    *(
        ({"embedding": array}, NUMBERS)
        for array in (ONES[:, 0], ONES[:, :, None], ONES.astype(complex), ONES > 0)
    ),
    *(
        ({"labels": ["roar", "x", entry, "x"]}, "labels, row 3: .*JSON array")
        for entry in ('["roar"', "[1.5]", "[[1]]", '["\\ud800"]', "[" * 100_000)
    ),
    *(
        ({"labels": ["roar", entry, "x", "x"]}, "labels, row 2: .*none empty")
        for entry in ("roar;;bark", "roar;", '["roar", " "]', '["roar", null]')
    ),
]


@pytest.mark.parametrize(("changes", "match"), BAD_NPZ, ids=range(len(BAD_NPZ)))
def test_a_bad_column_of_npz_is_an_error(tmp_path, changes, match):
    check_error(npz(tmp_path, **changes), rf"column {match}")


def test_npz_columns_of_different_lengths_are_an_error(tmp_path):
    check_error(npz(tmp_path, label=["a", "b", "c"]), r"label.*3")


def test_a_table_without_rows_is_an_error(tmp_path):
    nothing = pa.table(COLUMNS).slice(0, 0)
    pq.write_table(nothing, tmp_path / "x.parquet")
    check_error(tmp_path / "x.parquet", "the table has no rows")
    check_error(text_csv(tmp_path, "recording,label,e0\n"), "the table has no rows")
    empty = np.array([], str)
    path = npz(
        tmp_path,
        **dict.fromkeys(("segment", "recording", "label", "labels"), empty),
        fold=None,
        embedding=np.empty((0, 3)),
    )
    check_error(path, "the table has no rows")


# Folds


@every_kind
@pytest.mark.parametrize(
    ("fold", "numbers"),
    [
        ([1, 5, 1, -1], [1, 5, 1, -1]),
        ([-2, 0, 10**15, 0], [-2, 0, 10**15, 0]),
        ([-1] * 4, [-1] * 4),
    ],
)
def test_folds_are_any_integers(tmp_path, write, fold, numbers):
    table = read_table(write(tmp_path, fold=fold))
    assert table.fold is not None
    assert table.fold.tolist() == numbers


@pytest.mark.parametrize("write", [rows_csv, npz])
def test_folds_are_any_names_and_empty_ones_the_common_fold(tmp_path, write):
    table = read_table(write(tmp_path, fold=["site 10", "site 9", "", "site 10"]))
    assert table.fold is not None
    assert table.fold.tolist() == [1, 0, -1, 1]


def test_folds_of_pandas_are_whole_numbers_or_an_error(tmp_path):
    whole = read_table(parquet(tmp_path, fold=[1.0, None, 2.0, float("nan")]))
    assert whole.fold is not None
    assert whole.fold.tolist() == [1, -1, 2, -1]
    check_error(
        parquet(tmp_path, fold=[0.0, 1.5, 0.0, 1.0]),
        r"column fold, row 2: expected an integer or a name, got 1\.5",
    )


# Properties

words = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda text: text.strip() != "")
words |= st.sampled_from(
    [
        "a;b",
        '"',
        "a\nb",
        "a\r\nb",
        "🐘",
        " x ",
        "[",
        "null",
        "é,;",
        "e0",
        "#",
        "\\",
        "'",
    ]
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw):
    segment = draw(st.lists(words, min_size=1, max_size=6, unique=True))
    n, width = len(segment), draw(st.integers(1, 3))
    label = draw(st.lists(words, min_size=n, max_size=n))
    more = draw(st.lists(st.lists(words, max_size=3), min_size=n, max_size=n))
    return Vectors.from_columns(
        encoder="mfcc",
        matrix=np.array(
            draw(
                st.lists(
                    st.lists(numbers, min_size=width, max_size=width),
                    min_size=n,
                    max_size=n,
                )
            )
        ),
        segment=segment,
        recording=draw(st.lists(words, min_size=n, max_size=n)),
        label=label,
        labels=[
            tuple(dict.fromkeys([centre, *others]))
            for centre, others in zip(label, more, strict=True)
        ],
        fold=np.arange(n) % draw(st.integers(1, 3)),
    )


def columns_of(table):
    assert table.fold is not None
    names = ("segment", "recording", "label")
    columns = {name: list(getattr(table, name)) for name in names}
    return columns | {"fold": table.fold.tolist(), "embedding": table.matrix.tolist()}


@settings(max_examples=40, deadline=None)
@given(table=tables())
def test_any_text_and_any_number_survive_in_every_kind_of_file(tmp_path_factory, table):
    folder = tmp_path_factory.getbasetemp()
    lists = [list(names) for names in table.labels]
    arrays = [json.dumps(names, ensure_ascii=len(names) > 1) for names in lists]
    write_table(table, folder / "mfcc.parquet")
    check_same(read_table(folder / "mfcc.parquet"), table)
    check_same(read_table(parquet(folder, **columns_of(table), labels=lists)), table)
    check_same(read_table(rows_csv(folder, **columns_of(table), labels=arrays)), table)
    if not any(
        text.endswith("\0") for text in (*table.segment, *table.recording, *table.label)
    ):  # numpy drops these
        check_same(read_table(npz(folder, **columns_of(table), labels=arrays)), table)


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
    columns = {name: column * 5 for name, column in COLUMNS.items()} | {
        "segment": [f"s{i}" for i in range(20)]
    }
    return bytearray(write(folder, **(columns | changes)).read_bytes())


# polars 1.31 to 2.1 abort the process, beyond any `except`, if the count of values in a page header
# is negative. These are the counts of a table of 20 rows, with 2 labels and 3 dimensions (doubled).
COUNTS = (40, 80, 120)


@settings(max_examples=60, deadline=None)
@given(mutations=mutations, length=st.floats(0, 1) | st.just(1.0))
def test_a_damaged_parquet_file_raises_nothing_but_our_errors(
    tmp_path_factory, mutations, length
):
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(folder, parquet, labels=[["rumble", "roar"]] * 20)
    for place, value in mutations:
        at = int(place * len(content))
        content[at] = content[at] if content[at] in COUNTS else value
    (folder / "bad.parquet").write_bytes(content[: max(1, int(len(content) * length))])
    only_our_errors(folder / "bad.parquet")


@settings(max_examples=60, deadline=None)
@given(mutations=mutations, insert=st.booleans())
def test_a_damaged_csv_file_raises_nothing_but_our_errors(
    tmp_path_factory, mutations, insert
):
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(folder, rows_csv, labels=['["rumble", "roar"]', "a;b"] * 10)
    for place, value in mutations:
        at = int(place * len(content))
        content[at : at + (not insert)] = bytes([value])
    (folder / "bad.csv").write_bytes(content)
    only_our_errors(folder / "bad.csv")


@settings(max_examples=60, deadline=None)
@given(mutations=mutations, name=st.sampled_from([*COLUMNS, "encoder", None]))
def test_a_damaged_npz_file_raises_nothing_but_our_errors(
    tmp_path_factory, mutations, name
):
    """Damage the archive, or one array in a whole archive, which its checksum would else hide."""
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(
        folder, npz, labels=['["rumble", "roar"]', "a;b"] * 10, encoder="x"
    )
    whole = zipfile.ZipFile(io.BytesIO(content))
    arrays = {entry: whole.read(entry) for entry in whole.namelist()}
    damaged = content if name is None else bytearray(arrays[f"{name}.npy"])
    for place, value in mutations:
        damaged[int(place * len(damaged))] = value
    (folder / "bad.npz").write_bytes(content)
    if name is not None:
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
