"""Files of a scan at rest: every reader notices a damage, but people may edit a CSV file."""

import shutil

import pytest
from typer.testing import CliRunner

from byte_damage import damage_bytes
from callshot.cli import app
from callshot.detection.events import read_events
from callshot.errors import InputError
from callshot.review.sources import SourceOptions, open_source
from callshot.study.verify import verify_path

DAMAGES = 20


@pytest.fixture
def folder(scan, tmp_path):
    copy = tmp_path / "scan"
    shutil.copytree(scan, copy)
    return copy


def find_state(folder, name):
    return {finding.path.name: finding.state for finding in verify_path(folder)}[name]


def check_refused(read, *arguments):
    with pytest.raises(InputError):
        read(*arguments)


@pytest.mark.parametrize(
    "name", ["scan.json", "events.parquet", "events.csv", "rejects.csv"]
)
def test_no_damage_of_a_byte_is_silent(folder, name):
    shutil.rmtree(folder / "index")
    path = folder / name
    assert find_state(folder, name) == "ok"
    for place, content in damage_bytes(path.read_bytes(), DAMAGES):
        path.write_bytes(content)
        assert find_state(folder, name) == "damaged", place
        if name in ("scan.json", "events.parquet"):  # what the folder is read from
            check_refused(read_events, folder)
            check_refused(read_events, folder / "events.parquet")
            check_refused(open_source, folder, SourceOptions())


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_commands_refuse_a_damaged_table_of_events(folder, tmp_path):
    path = folder / "events.parquet"
    content = path.read_bytes()
    middle = len(content) // 2
    other = bytes([content[middle] ^ 0xFF])
    path.write_bytes(content[:middle] + other + content[middle + 1 :])
    for words in (
        ("convert", path, "--to", "csv"),
        ("score", path, folder / "events.csv"),
        ("review", folder, "--no-browser"),
    ):
        result = run(*words, "--out", tmp_path / words[0])
        assert isinstance(result.exception, InputError)
        assert str(path) in str(result.exception)


def test_an_edited_csv_file_is_used_by_its_path(folder, tmp_path):
    path = folder / "events.csv"
    count = len(read_events(path).events)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert len(read_events(path).events) == count - 1
    out = tmp_path / "out"
    assert run("convert", path, "--to", "csv", "--out", out).exit_code == 0


def test_a_copy_of_the_events_elsewhere_is_the_users(folder, tmp_path):
    copy = tmp_path / "mine.parquet"
    shutil.copy(folder / "events.parquet", copy)
    assert read_events(copy).events.equals(
        read_events(folder / "events.parquet").events
    )
