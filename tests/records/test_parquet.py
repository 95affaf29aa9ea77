"""Parquet files of any origin: frames come out, or one line of error; the process goes on."""

import base64
import errno
import random
import zlib
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.corpus.segment_table import read_segments
from callshot.errors import InputError
from callshot.records.table_files import describe_parquet, read_parquet, write_parquet

# Two rows of text and integers. Bit 0 of byte 38 is flipped, which makes a count in the header of
# a page negative. polars 2.1 aborts: "memory allocation of 2305843009213693952 bytes
# failed".
ABORTS = (
    "c-nPRJx{|h5VeD;7&;)tSq;jNrBM+TwBe%(Dnlp;5EUd95@HObY58hU!bkZx4Ez!%7FLGN{1EP(z=Al*_wM|j"
    "pHH%Vuh#?t3$V~dV2lY|X%eO!aSRORV6G0+FbgFpF{Y7%^C=C=`Z_Dk>J=UWlR^&V&}v&V3{6Zh3or7Z&<gyq"
    "6MyZ*kKMJh8_AJ1;noXhx*^-JCQ*phgy$t_dV61_NpcT@LAk2o7**Cah!WIYqls?lb?cQI|BWi&G?-`ByJq}<"
    "yZqEZV&+m<GYIoEMy2faddH`m*~PGb8&<yf3dP2Ohp|h^dBlDk6usIy^t{aLC=9$MANi*z+Q&nKLZ{9<l(s2#"
    "uTbP9zoxlvI|mH^1bH{FgPiXKBpu}aUWREWqtUuVca-u><zApJ*&U#sFvu_8DXdr2d;w8vl(WFwVwEF5xe3$E"
    "tld4|50lZN`Pfgh%VcEQ%gyD6Sv!BYyot<K>^AK4Xf=)_yA{Wd9W~eNmJ>GI(0143*p6FaKXUCwy^haCFZO}o"
    "#K&*=4One|d;"
)
FRAME = pl.DataFrame(
    {"label": ["roar", "rumble", "roar"], "vector": [[1.0, 2.0], [3.0, 4.0], None]}
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.parquet"
    FRAME.write_parquet(path, metadata={"corpus": "mine"})
    return path


def damaged_table(folder):
    path = folder / "aborts.parquet"
    path.write_bytes(zlib.decompress(base64.b85decode(ABORTS)))
    return path


def test_all_rows_or_some_come_back(table):
    assert read_parquet(table).equals(FRAME)
    assert read_parquet(table, ["vector"]).equals(FRAME.select("vector"))
    rows = read_parquet(table, where=("label", ["roar"]))
    assert rows.equals(FRAME.filter(label="roar"))
    assert read_parquet(table, where=("label", [])).equals(FRAME.clear())
    columns, metadata = describe_parquet(table)
    assert columns == ["label", "vector"]
    assert metadata["corpus"] == "mine"


def test_a_file_that_aborts_polars_is_an_error_and_the_next_is_read(
    tmp_path, table, capfd
):
    path = damaged_table(tmp_path)
    for read in (read_parquet, read_segments, read_parquet):
        with pytest.raises(InputError, match=r"aborts.parquet: cannot be read \(.*$"):
            read(path)
        assert read_parquet(table).equals(FRAME)
    assert capfd.readouterr() == ("", "")


def test_every_damaged_file_is_a_frame_or_an_error_of_one_line(table, capfd):
    whole = table.read_bytes()
    rng = random.Random(5)
    for _ in range(100):
        raw = bytearray(whole)
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        table.write_bytes(raw[: rng.choice((len(raw), rng.randrange(len(raw))))])
        message = ""
        try:
            read_parquet(table)
        except InputError as error:
            message = str(error)
        assert message.startswith(str(table)) or not message
        assert "\n" not in message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"label,e0\nroar,1\n"])
def test_a_file_of_another_kind_is_an_error(tmp_path, content):
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        read_parquet(path)
    path.unlink()
    with pytest.raises(InputError, match=r"cannot be read \(No such file"):
        read_parquet(path)
    with pytest.raises(InputError, match="expected a regular file"):
        read_parquet(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("rows", [FRAME, [FRAME, FRAME]], ids=["at once", "in parts"])
def test_a_full_disk_is_an_error_of_the_system(rows):
    with pytest.raises(OSError) as failure:
        write_parquet(rows, Path("/dev/full"))
    assert failure.value.errno == errno.ENOSPC


def test_frames_that_come_in_parts_are_one_table(tmp_path):
    path = tmp_path / "parts.parquet"
    write_parquet((FRAME for _ in range(3)), path, {"corpus": "mine"})
    assert read_parquet(path).equals(pl.concat([FRAME] * 3))
    assert pl.read_parquet(path).equals(pl.concat([FRAME] * 3))
    assert describe_parquet(path).metadata["corpus"] == "mine"


def test_a_table_without_rows_keeps_its_columns(tmp_path):
    path = tmp_path / "empty.parquet"
    for write in (write_parquet, pl.DataFrame.write_parquet):
        write(FRAME.clear(), path)
        assert read_parquet(path, where=("label", ["roar"])).equals(FRAME.clear())


def test_a_changed_byte_in_a_page_is_an_error(tmp_path):
    """Among numbers no other check finds it."""
    path = tmp_path / "numbers.parquet"
    write_parquet(pl.DataFrame({"x": np.random.default_rng(1).normal(size=99)}), path)
    content = bytearray(path.read_bytes())
    content[400] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="checksum verification failed"):
        read_parquet(path)
