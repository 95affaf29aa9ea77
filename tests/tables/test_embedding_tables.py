"""Embedding tables: the same from every kind of file, unchanged round trips, one-line errors."""

import csv
import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.errors import CallshotError, InputError, OutputError
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


def change_columns(changes: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a good table with changes; columns that become None are left out."""
    return {
        name: column
        for name, column in (COLUMNS | changes).items()
        if column is not None
    }


def parquet(
    folder: Path,
    name: str = "mfcc.parquet",
    metadata: dict[str, str] | None = None,
    **changes: Any,
) -> Path:
    arrow = pa.table(change_columns(changes))
    pq.write_table(arrow.replace_schema_metadata(metadata), folder / name)
    return folder / name


def text_csv(folder: Path, text: str | bytes) -> Path:
    path = folder / "mfcc.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def rows_csv(folder: Path, **changes: Any) -> Path:
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


def npz(folder: Path, **changes: Any) -> Path:
    columns = change_columns(
        {"labels": [";".join(names) for names in COLUMNS["labels"]]} | changes
    )
    np.savez(folder / "mfcc.npz", **columns)
    return folder / "mfcc.npz"


WRITERS = {"parquet": parquet, "csv": rows_csv, "npz": npz}
every_kind = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


def check_error(path: Path, match: str) -> None:
    """Expect one line that begins with the file."""
    with pytest.raises(InputError, match=match) as caught:
        read_table(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) == 1


def read_corpus(path: Path) -> str | None:
    """Return the corpus that a table names."""
    return read_table(path).spans.metadata.get("corpus")


def check_same(one: Vectors, other: Vectors) -> None:
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
def test_every_kind_of_file_gives_the_same_embeddings(
    tmp_path: Path, write: Any
) -> None:
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
def test_only_recording_label_and_embedding_must_be_there(
    tmp_path: Path, write: Any
) -> None:
    table = read_table(write(tmp_path, segment=None, labels=None, fold=None))
    assert table.segment == ("a.wav#0", "b.wav#0", "a.wav#1", "c.wav#0")
    assert table.labels == (("rumble",), ("roar",), ("rumble",), ("trumpet",))
    assert table.fold is None


@every_kind
def test_integer_ids_are_read_as_text_and_other_columns_are_ignored(
    tmp_path: Path, write: Any
) -> None:
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


def test_text_of_a_csv_is_kept_as_it_is_written(tmp_path: Path) -> None:
    table = read_table(
        text_csv(
            tmp_path,
            'recording,label,segment,e0\n007, roar ,1e3,1\n7,"a ""b"", c",1000, 2.5 \n',
        )
    )
    assert table.recording == ("007", "7")
    assert table.label == (" roar ", 'a "b", c')
    assert table.segment == ("1e3", "1000")
    assert table.matrix.tolist() == [[1.0], [2.5]]


def test_a_csv_may_have_a_byte_order_mark_windows_line_ends_and_empty_rows(
    tmp_path: Path,
) -> None:
    table = read_table(
        text_csv(
            tmp_path, "\ufeffrecording,label,e0\r\na,x,1\r\n\r\nb,y,2\r\n,,\r\n\r\n"
        )
    )
    assert table.recording == ("a", "b")
    assert table.label == ("x", "y")


def test_a_csv_may_end_its_rows_in_an_empty_field(tmp_path: Path) -> None:
    table = read_table(
        text_csv(tmp_path, "recording,e0,label,labels\na,1,x,\nb,2,y,x;y\n")
    )
    assert table.labels == (("x",), ("x", "y"))


def test_ten_and_more_dimensions_of_a_csv_are_ordered_by_number(tmp_path: Path) -> None:
    vectors = np.arange(48.0).reshape(4, 12)
    assert (
        read_table(rows_csv(tmp_path, embedding=vectors.tolist())).matrix.tolist()
        == vectors.tolist()
    )


@pytest.mark.parametrize("dtype", [np.float32, ">f4"])
def test_float32_stays_float32(tmp_path: Path, dtype: Any) -> None:
    single = np.array(VECTORS, np.float32)
    for path in (
        npz(tmp_path, embedding=single.astype(dtype)),
        parquet(tmp_path, embedding=list(single)),
    ):
        table = read_table(path)
        assert table.matrix.dtype == np.dtype(np.float32)
        np.testing.assert_array_equal(table.matrix, single)


@pytest.mark.parametrize(
    "dtype", [np.float16, np.float64, np.int16, np.uint8, np.longdouble]
)
def test_other_numbers_become_float64(tmp_path: Path, dtype: Any) -> None:
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
def test_parquet_vectors_may_be_lists_or_arrays_of_any_number(
    tmp_path: Path, kind: Any
) -> None:
    numbers = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    table = read_table(parquet(tmp_path, embedding=pa.array(numbers, kind)))
    assert table.matrix.tolist() == numbers
    assert table.matrix.dtype == (
        np.float32 if kind == pa.list_(pa.float32()) else np.float64
    )


def test_parquet_text_may_be_a_dictionary_and_rows_may_come_in_groups(
    tmp_path: Path,
) -> None:
    columns = COLUMNS | {"label": pa.array(COLUMNS["label"]).dictionary_encode()}
    pq.write_table(pa.table(columns), tmp_path / "mfcc.parquet", row_group_size=1)
    check_same(read_table(tmp_path / "mfcc.parquet"), read_table(npz(tmp_path)))


def test_a_name_with_glob_characters_and_equals_signs_is_only_a_name(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "label=roar"
    folder.mkdir()
    for name in ("a[1]*?.parquet", "label=x.parquet", "b.PARQUET"):
        assert read_table(parquet(folder, name)).label == tuple(COLUMNS["label"])


# Labels


@pytest.mark.parametrize(
    "entry",
    ["", "  ", "[]", "rumble", '["rumble"]', "rumble;rumble", '["rumble", "rumble"]'],
)
def test_the_centre_label_is_always_among_the_labels_and_once(
    tmp_path: Path, entry: str
) -> None:
    assert read_table(npz(tmp_path, labels=[entry] * 4)).labels[0] == ("rumble",)


@pytest.mark.parametrize(
    "entry",
    ["roar;bark", " roar ; bark ", '["roar", "bark", "roar"]', ' ["roar","bark"]'],
)
def test_a_centre_label_that_is_not_among_the_labels_goes_in_front_and_order_is_kept(
    tmp_path: Path, entry: str
) -> None:
    assert read_table(rows_csv(tmp_path, labels=[entry] * 4)).labels[0] == (
        "rumble",
        "roar",
        "bark",
    )


def test_parquet_labels_may_be_null_empty_doubled_integers_or_text(
    tmp_path: Path,
) -> None:
    table = read_table(
        parquet(tmp_path, labels=[None, [], ["x", "rumble", "x"], ["trumpet"]])
    )
    assert table.labels == (("rumble",), ("roar",), ("x", "rumble"), ("trumpet",))
    assert read_table(
        parquet(tmp_path, label=[1, 2, 3, 4], labels=[[1, 2], [], [3], [3]])
    ).labels[3] == ("4", "3")
    assert read_table(
        rows_csv(tmp_path, label=[1, 2, 3, 4], labels=["[3, 1]"] * 4)
    ).labels[0] == (
        "3",
        "1",
    )
    assert read_table(parquet(tmp_path, labels=["rumble;x", None, "", '["x"]'])).labels[
        0
    ] == (
        "rumble",
        "x",
    )
    assert read_table(parquet(tmp_path, labels=[None] * 4)).labels[0] == ("rumble",)
    assert read_table(parquet(tmp_path, labels=[[]] * 4)).labels[0] == ("rumble",)


@pytest.mark.parametrize(
    "entry",
    ["roar;;bark", "roar;", ";", '["roar", ""]', '["roar", " "]', '["roar", null]'],
)
def test_an_empty_label_among_the_labels_is_an_error(
    tmp_path: Path, entry: str
) -> None:
    check_error(
        rows_csv(tmp_path, labels=["roar", entry, "x", "x"]),
        r"column labels, row 2: expected labels, none empty",
    )


def test_an_empty_or_null_label_in_a_list_is_an_error(tmp_path: Path) -> None:
    check_error(
        parquet(tmp_path, labels=[["x"], ["y"], ["x", ""], ["y"]]),
        r"column labels, row 3: .*got \['x', ''\]",
    )
    check_error(
        parquet(tmp_path, labels=[["x"], ["y", None], ["x"], ["y"]]),
        r"column labels, row 2: ",
    )


@pytest.mark.parametrize(
    "entry",
    [
        '["roar"',
        "[roar]",
        "[1.5]",
        "[[1]]",
        "[true]",
        '["\\ud800"]',
        "[" * 100_000,
        "[" + "9" * 5000 + "]",
    ],
)
def test_labels_that_are_not_an_array_of_text_are_errors(
    tmp_path: Path, entry: str
) -> None:
    check_error(
        npz(tmp_path, labels=["roar", "x", entry, "x"]),
        r"column labels, row 3: .*JSON array",
    )


def test_labels_of_another_kind_are_errors(tmp_path: Path) -> None:
    check_error(
        parquet(tmp_path, labels=[[1.5]] * 4),
        r"column labels: expected text or integers, got List\(Float64\)",
    )


# Names


def test_the_encoder_and_the_corpus_are_named_in_the_metadata(tmp_path: Path) -> None:
    path = parquet(tmp_path, metadata={"encoder": "perch", "corpus": "ldc"})
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")
    path = npz(tmp_path, encoder="perch", corpus=["ldc"])
    assert (read_table(path).encoder, read_corpus(path)) == ("perch", "ldc")


@every_kind
def test_without_metadata_the_encoder_is_the_stem_and_there_is_no_corpus(
    tmp_path: Path, write: Any
) -> None:
    path = write(tmp_path)
    assert (read_table(path).encoder, read_corpus(path)) == ("mfcc", None)


def test_a_blank_name_in_the_metadata_counts_as_none(tmp_path: Path) -> None:
    assert read_table(parquet(tmp_path, metadata={"encoder": " "})).encoder == "mfcc"
    assert read_table(npz(tmp_path, encoder="")).encoder == "mfcc"


def test_a_damaged_or_absent_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1PAR1")
    for name in ("x.parquet", "absent.npz", "absent.csv"):
        with pytest.raises(InputError, match=name):
            read_table(tmp_path / name)


# Writing


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fold", [None, [0, 1, 0, -1]])
def test_a_written_table_reads_back_unchanged(
    tmp_path: Path, dtype: Any, fold: list[int] | None
) -> None:
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


def test_an_interrupted_write_leaves_the_previous_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = parquet(tmp_path)
    before = path.read_bytes()

    def interrupted(*_: object) -> None:
        assert len(list(tmp_path.iterdir())) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(pq.ParquetWriter, "write_table", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_table(read_table(path), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    table = read_table(npz(tmp_path))
    (tmp_path / "folder.parquet").mkdir()
    for name in ("mfcc.npz/a/x.parquet", "mfcc.npz/x.parquet", "folder.parquet"):
        with pytest.raises(OutputError, match=r"cannot be (made|written)"):
            write_table(table, tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "folder.parquet",
        "mfcc.npz",
    ]


# Several tables


def other_order(folder: Path, name: str = "perch.parquet", **changes: Any) -> Path:
    columns = {key: column[::-1] for key, column in COLUMNS.items()} | {
        "embedding": [[4.0], [3.0], [2.0], [1.0]]
    }
    return parquet(folder, name, **(columns | changes))


def test_several_tables_keep_their_own_views_notes_and_fingerprints(
    tmp_path: Path,
) -> None:
    facts = {"views": "1,2", "note": "made by hand", "fingerprint": "abc"}
    other = parquet(tmp_path, "other.parquet", {"encoder": "joined", **facts})
    first, second = read_tables([parquet(tmp_path), other])
    assert (first.joined_dimensions, first.note, first.fingerprint) == ((), "", "")
    kept = (second.joined_dimensions, second.note, second.fingerprint)
    assert kept == ((1, 2), "made by hand", "abc")


def test_the_fingerprint_of_an_encoder_is_in_its_table(tmp_path: Path) -> None:
    path = tmp_path / "new.parquet"
    table = read_table(parquet(tmp_path))
    write_table(replace(table, fingerprint="abc"), path)
    assert read_table(path).fingerprint == "abc"


def test_several_tables_come_in_the_order_of_the_first(tmp_path: Path) -> None:
    first, second = read_tables([parquet(tmp_path), other_order(tmp_path)])
    assert second.encoder == "perch"
    assert second.source.endswith("perch.parquet")
    assert second.matrix.tolist() == [[1.0], [2.0], [3.0], [4.0]]
    for name in ("segment", "recording", "label", "labels"):
        assert getattr(first, name) == getattr(second, name)
    np.testing.assert_array_equal(first.fold, second.fold)


def test_labels_may_be_in_another_order_in_another_table(tmp_path: Path) -> None:
    turned = other_order(
        tmp_path, labels=[names[::-1] for names in COLUMNS["labels"][::-1]]
    )
    assert len(read_tables([parquet(tmp_path), turned])) == 2


def test_one_table_needs_no_segments_and_no_table_gives_none(tmp_path: Path) -> None:
    assert len(read_tables([parquet(tmp_path, segment=None)])) == 1
    assert read_tables([]) == []


def check_error_together(paths: Sequence[Path], match: str) -> None:
    with pytest.raises(InputError, match=match) as caught:
        read_tables(paths)
    assert len(str(caught.value).splitlines()) == 1


def test_several_tables_need_segments(tmp_path: Path) -> None:
    paths = [parquet(tmp_path), other_order(tmp_path, segment=None)]
    check_error_together(
        paths,
        r"perch.parquet: column segment is missing, by which several tables are matched",
    )


def test_two_tables_of_one_encoder_are_errors(tmp_path: Path) -> None:
    paths = [parquet(tmp_path), other_order(tmp_path), npz(tmp_path)]
    check_error_together(
        paths, r"mfcc\.npz: its encoder is 'mfcc', as in .*mfcc\.parquet"
    )


@pytest.mark.parametrize("turned", [False, True])
def test_tables_with_different_segments_are_errors(
    tmp_path: Path, turned: bool
) -> None:
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
def test_tables_that_disagree_about_a_segment_are_errors(
    tmp_path: Path, name: str, column: Any, match: str
) -> None:
    paths = [parquet(tmp_path), other_order(tmp_path, **{name: column})]
    check_error_together(paths, rf"perch\.parquet: column {name}, {match}")


# Bad files


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    check_error(tmp_path / "absent.parquet", "No such file")


def test_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").mkdir()
    check_error(tmp_path / "x.parquet", "Is a directory")
    check_error(tmp_path, "Is a directory")


def test_an_unknown_suffix_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.xlsx").write_bytes(b"PK")
    check_error(
        tmp_path / "x.xlsx",
        r"expected a name that ends in \.parquet, \.csv, \.npz, got '\.xlsx'",
    )


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
def test_an_empty_file_is_an_error(tmp_path: Path, suffix: str) -> None:
    (tmp_path / f"x.{suffix}").touch()
    check_error(tmp_path / f"x.{suffix}", "the file is empty")


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
@pytest.mark.parametrize("write", [parquet, npz])
def test_a_truncated_file_is_an_error(tmp_path: Path, write: Any, share: float) -> None:
    path = write(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    check_error(path, rf"cannot be read \(.+\); expected a complete {path.suffix} file")


@pytest.mark.parametrize("suffix", ["parquet", "npz"])
def test_a_file_of_another_kind_is_an_error(tmp_path: Path, suffix: str) -> None:
    rows_csv(tmp_path).rename(tmp_path / f"x.{suffix}")
    check_error(tmp_path / f"x.{suffix}", r"cannot be read \(")


def test_a_panic_of_polars_is_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panic(*_: Any, **options: Any) -> None:
        raise pl.exceptions.PanicException("index out of bounds\nsomewhere")

    monkeypatch.setattr(pl, "read_csv", panic)
    check_error(rows_csv(tmp_path), r"cannot be read \(index out of bounds somewhere\)")


def test_an_interrupt_is_not_an_input_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pl, "read_csv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        read_table(rows_csv(tmp_path))


def test_pickles_are_errors(tmp_path: Path) -> None:
    check_error(
        npz(tmp_path, label=np.array(COLUMNS["label"], object)),
        "it has pickled objects: save text",
    )
    check_error(tmp_path / "pickles.npz", "No such file")
    assert (
        len(read_table(npz(tmp_path, notes=np.array([{}], object)))) == 4
    )  # what is ignored is not even opened


def with_header(folder: Path, shape: str, data: bytes = b"") -> Path:
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


def test_a_npz_file_that_python_2_wrote_is_read_without_a_warning(
    tmp_path: Path,
) -> None:
    assert (
        read_table(
            with_header(tmp_path, "(4L, 3L)", np.array(VECTORS).tobytes())
        ).matrix.tolist()
        == VECTORS
    )


@pytest.mark.parametrize(
    "shape", ["(4, 10000000000000)", "(4, 1000000000000000000000)", "(4, -3)"]
)
def test_a_npz_header_that_asks_for_absurd_memory_is_an_error(
    tmp_path: Path, shape: str
) -> None:
    refusals = r"cannot be read \(|arrays would take"
    check_error(with_header(tmp_path, shape), refusals)


def test_a_npz_file_that_would_fill_the_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.npz"
    rows = 40_000
    names = np.array([f"{row}" for row in range(rows)])
    np.savez_compressed(
        path,
        embedding=np.zeros((rows, 600), np.float32),
        recording=names,
        label=names,
    )
    assert path.stat().st_size < 2**20

    def read_nothing(*_: Any) -> None:
        raise AssertionError("an array was read")

    monkeypatch.setattr(np.lib.npyio.NpzFile, "__getitem__", read_nothing)
    check_error(path, r"its arrays would take 9\d,\d\d\d,\d\d\d;")


def test_a_npz_header_that_announces_more_than_the_file_can_hold_is_an_error(
    tmp_path: Path,
) -> None:
    check_error(with_header(tmp_path, "(4, 100000000)"), r"cannot be read \(")


def test_a_compressed_npz_file_of_real_sizes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.npz"
    rows = 2000
    vectors = np.zeros((rows, 1024), np.float32)
    vectors[:, ::16] = np.random.default_rng(1).random((rows, 64), np.float32)
    names = np.array(["a/long/path/to/a/recording.wav"] * rows)
    np.savez_compressed(path, embedding=vectors, recording=names, label=names)
    assert path.stat().st_size < vectors.nbytes / 10
    assert np.array_equal(read_table(path).matrix, vectors)


def test_a_csv_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    check_error(
        text_csv(
            tmp_path, "recording,label,e0\na,rumble,1\nb,ör,2\n".encode("latin-1")
        ),
        r"row 2 .*not UTF-8",
    )
    check_error(
        text_csv(tmp_path, "recording,label,e0\na,rumble,1\n".encode("utf-16")),
        r"row 0 .*not UTF-8",
    )


@pytest.mark.parametrize("row", ["b,y", "b,y,2,3", "b,y,2,3,4"])
def test_a_csv_with_ragged_rows_is_an_error(tmp_path: Path, row: str) -> None:
    text = f'recording,label,e0,notes\n"a\nb",x,1,\n\n{row}\nc,z,3,\n'
    if row.count(",") == 3:
        assert len(read_table(text_csv(tmp_path, text))) == 3
    else:
        check_error(
            text_csv(tmp_path, text),
            rf"row 2: expected 4 fields as in the header, got {row.count(',') + 1}",
        )


def test_a_csv_with_a_quote_that_never_ends_is_an_error(tmp_path: Path) -> None:
    check_error(
        text_csv(tmp_path, 'recording,label,e0\na,"x,1\nb,y,2\n'),
        "row 1: expected 3 fields|cannot be read",
    )


# Bad columns


@every_kind
@pytest.mark.parametrize("name", ["recording", "label"])
def test_a_missing_column_is_an_error(tmp_path: Path, write: Any, name: str) -> None:
    check_error(write(tmp_path, **{name: None}), rf"column {name} is missing; add it")


@every_kind
def test_a_column_with_nearly_the_right_name_is_suggested(
    tmp_path: Path, write: Any
) -> None:
    check_error(
        write(tmp_path, recording=None, Recordings=["a"] * 4),
        r"column recording is missing; rename 'Recordings'",
    )


def test_missing_vectors_are_errors(tmp_path: Path) -> None:
    check_error(
        parquet(tmp_path, embedding=None, embeddings=VECTORS),
        r"column embedding is missing; rename 'embeddings'",
    )
    check_error(npz(tmp_path, embedding=None), r"column embedding is missing")
    check_error(
        text_csv(tmp_path, "recording,label,embedding\na,x,1\n"),
        r"column e0 is missing",
    )


def test_a_gap_in_the_dimensions_of_a_csv_is_an_error(tmp_path: Path) -> None:
    check_error(
        text_csv(tmp_path, "recording,label,e0,e1,e3\na,x,1,2,3\n"),
        r"column e2 is missing",
    )
    check_error(
        text_csv(tmp_path, "recording,label,e1,e2\na,x,1,2\n"), r"column e0 is missing"
    )
    check_error(
        text_csv(tmp_path, f"recording,label,e0,e{'9' * 5000}\na,x,1,2\n"),
        r"column e1 is missing",
    )


@pytest.mark.parametrize("name", ["label", "fold", "e0"])
def test_a_column_that_is_twice_in_a_csv_is_an_error(tmp_path: Path, name: str) -> None:
    check_error(
        text_csv(tmp_path, f"recording,label,fold,e0,{name}\na,x,0,1,0\n"),
        rf"column {name} is in the header 2 times",
    )


def test_a_table_without_rows_is_an_error(tmp_path: Path) -> None:
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


@every_kind
@pytest.mark.parametrize("name", ["recording", "label", "segment"])
@pytest.mark.parametrize("blank", ["", " \t"])
def test_blank_text_is_an_error(
    tmp_path: Path, write: Any, name: str, blank: str
) -> None:
    check_error(
        write(tmp_path, **{name: ["a", "b", blank, "c"]}),
        rf"column {name}, row 3: expected text, got ",
    )


@pytest.mark.parametrize("name", ["recording", "label", "segment"])
def test_a_null_is_an_error(tmp_path: Path, name: str) -> None:
    some: dict[str, Any] = {name: ["a", None, "b", "c"]}
    check_error(
        parquet(tmp_path, **some), rf"column {name}, row 2: expected text, got None"
    )
    every: dict[str, Any] = {name: [None] * 4}
    check_error(
        parquet(tmp_path, **every), rf"column {name}, row 1: expected text, got None"
    )


@pytest.mark.parametrize(
    "column", [[1.0, 2.0, 3.0, 4.0], [True, False, True, True], [["a"]] * 4, [b"a"] * 4]
)
def test_columns_that_are_neither_text_nor_integers_are_errors(
    tmp_path: Path, column: list[Any]
) -> None:
    check_error(
        parquet(tmp_path, recording=column),
        "column recording: expected text or integers, got",
    )


def test_npz_columns_of_the_wrong_shape_or_kind_are_errors(tmp_path: Path) -> None:
    check_error(
        npz(tmp_path, label=np.array([["a", "b"]] * 4)),
        r"column label: expected a row of text .*shape \(4, 2\)",
    )
    check_error(
        npz(tmp_path, label=np.array([b"a"] * 4)),
        r"column label: expected a row of text or integers, got \|S1",
    )
    check_error(npz(tmp_path, encoder=1.5), r"column encoder: expected a row of text")
    check_error(npz(tmp_path, label=["a", "b", "c"]), r"label.*3")
    check_error(
        npz(tmp_path, label=np.array(["a", "b", "c", "\ud800"])),
        r"column label: expected text, got broken text",
    )


@every_kind
def test_two_segments_with_one_id_are_errors(tmp_path: Path, write: Any) -> None:
    path = write(tmp_path, segment=["a", "b", "c", "b"])
    check_error(path, r"column segment, row 4: expected ids that differ, got .b.")


# Bad vectors


def test_ragged_vectors_are_errors(tmp_path: Path) -> None:
    ragged = [*VECTORS[:2], [1.0, 2.0], VECTORS[3]]
    check_error(
        parquet(tmp_path, embedding=ragged),
        r"column embedding, row 3: expected 3 numbers as in row 1, got 2",
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@every_kind
def test_numbers_that_are_not_finite_are_errors(
    tmp_path: Path, write: Any, value: float
) -> None:
    vectors = [*VECTORS[:2], [4.0, value, 6.0], VECTORS[3]]
    check_error(
        write(tmp_path, embedding=vectors),
        rf"column embedding, row 3, dimension e1: .*finite.*got '?{value}'?;",
    )
    single = np.array(vectors, np.float32)
    check_error(
        npz(tmp_path, embedding=single),
        rf"row 3, dimension e1: expected a finite number, got {value}",
    )


@pytest.mark.parametrize("value", ["x", "", "1,5", "0x10", "1e999"])
def test_a_csv_value_that_is_not_a_number_is_an_error(
    tmp_path: Path, value: str
) -> None:
    path = text_csv(tmp_path, f'recording,label,e0,e1\na,x,1,2\nb,y,1,"{value}"\n')
    check_error(path, rf"row 2, dimension e1: expected a finite number, got '{value}'")


def test_a_null_or_empty_vector_and_a_null_in_one_are_errors(tmp_path: Path) -> None:
    check_error(
        parquet(tmp_path, embedding=[*VECTORS[:3], None]),
        r"column embedding, row 4: expected a vector",
    )
    check_error(
        parquet(tmp_path, embedding=[[], *VECTORS[1:]]),
        r"column embedding, row 1: expected a vector",
    )
    check_error(
        parquet(tmp_path, embedding=[[1.0], [None], [2.0], [3.0]]),
        r"row 2, dimension e0: .*got None",
    )


def test_vectors_of_dimension_0_are_errors(tmp_path: Path) -> None:
    check_error(
        parquet(tmp_path, embedding=pa.array([[]] * 4, pa.list_(pa.float64()))),
        r"row 1: expected a vector with at least one dimension, got 0",
    )
    check_error(
        npz(tmp_path, embedding=np.empty((4, 0))),
        r"row 1: expected a vector with at least one dimension, got 0",
    )


def test_vectors_that_are_not_numbers_are_errors(tmp_path: Path) -> None:
    for column in ([1.0] * 4, ["x"] * 4, [[True]] * 4, [[[1.0]]] * 4, [["1", "x"]] * 4):
        check_error(
            parquet(tmp_path, embedding=column),
            r"column embedding: expected lists of numbers, got",
        )
    numbers = np.ones((4, 2))
    for array in (
        numbers[:, 0],
        numbers[:, :, None],
        numbers.astype(complex),
        numbers > 0,
        numbers.astype(str),
    ):
        check_error(
            npz(tmp_path, embedding=array),
            r"column embedding: expected numbers, segments × dimensions, got",
        )


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
def test_folds_are_any_integers(
    tmp_path: Path, write: Any, fold: list[int], numbers: list[int]
) -> None:
    table = read_table(write(tmp_path, fold=fold))
    assert table.fold is not None
    assert table.fold.tolist() == numbers


@pytest.mark.parametrize("write", [rows_csv, npz])
def test_folds_are_any_names_and_empty_ones_the_common_fold(
    tmp_path: Path, write: Any
) -> None:
    table = read_table(write(tmp_path, fold=["site 10", "site 9", "", "site 10"]))
    assert table.fold is not None
    assert table.fold.tolist() == [1, 0, -1, 1]


def test_folds_of_pandas_are_whole_numbers_or_an_error(tmp_path: Path) -> None:
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
def tables(draw: st.DrawFn) -> Vectors:
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


def columns_of(table: Vectors) -> dict[str, Any]:
    assert table.fold is not None
    names = ("segment", "recording", "label")
    columns = {name: list(getattr(table, name)) for name in names}
    return columns | {"fold": table.fold.tolist(), "embedding": table.matrix.tolist()}


@settings(max_examples=100, deadline=None)
@given(table=tables())
def test_any_text_and_any_number_survive_in_every_kind_of_file(
    tmp_path_factory: pytest.TempPathFactory, table: Vectors
) -> None:
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


def only_our_errors(path: Path) -> None:
    message = f"{path}: "
    try:
        read_table(path)
    except CallshotError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message


def twenty_rows(folder: Path, write: Any, **changes: Any) -> bytearray:
    columns = {name: column * 5 for name, column in COLUMNS.items()} | {
        "segment": [f"s{i}" for i in range(20)]
    }
    return bytearray(write(folder, **(columns | changes)).read_bytes())


# polars 1.31 to 2.1 abort the process, beyond any `except`, if the count of values in a page header
# is negative. These are the counts of a table of 20 rows, with 2 labels and 3 dimensions (doubled).
COUNTS = (40, 80, 120)


@settings(max_examples=150, deadline=None)
@given(mutations=mutations, length=st.floats(0, 1) | st.just(1.0))
def test_a_damaged_parquet_file_raises_nothing_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory,
    mutations: list[tuple[float, int]],
    length: float,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(folder, parquet, labels=[["rumble", "roar"]] * 20)
    for place, value in mutations:
        at = int(place * len(content))
        content[at] = content[at] if content[at] in COUNTS else value
    (folder / "bad.parquet").write_bytes(content[: max(1, int(len(content) * length))])
    only_our_errors(folder / "bad.parquet")


@settings(max_examples=150, deadline=None)
@given(mutations=mutations, insert=st.booleans())
def test_a_damaged_csv_file_raises_nothing_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory,
    mutations: list[tuple[float, int]],
    insert: bool,
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = twenty_rows(folder, rows_csv, labels=['["rumble", "roar"]', "a;b"] * 10)
    for place, value in mutations:
        at = int(place * len(content))
        content[at : at + (not insert)] = bytes([value])
    (folder / "bad.csv").write_bytes(content)
    only_our_errors(folder / "bad.csv")


@settings(max_examples=150, deadline=None)
@given(mutations=mutations, name=st.sampled_from([*COLUMNS, "encoder", None]))
def test_a_damaged_npz_file_raises_nothing_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory,
    mutations: list[tuple[float, int]],
    name: str | None,
) -> None:
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


def test_a_changed_byte_in_the_metadata_of_a_table_is_found(tmp_path: Path) -> None:
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
