"""A folder of annotation files of six programs is read right without any option."""

from collections.abc import Callable
from pathlib import Path

import pytest

from callshot.corpus.inspection import inspect_corpus
from files_of_other_tools import ASCII, CALLS, FILES, File
from sounds import record
from test_cli import run


def write(folder: Path, make: Callable[[str], File]) -> None:
    """Write a recording and its annotation file."""
    name = make.__name__
    record(folder / f"{name}.wav", seconds=8, rate=1000)
    suffix, raw = make(f"{name}.wav")
    (folder / f"{name}{suffix}").write_bytes(raw)


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_every_file_is_read_without_options(
    make: Callable[[str], File], tmp_path: Path
) -> None:
    write(tmp_path, make)
    segmentation = inspect_corpus(tmp_path).segmentation
    calls = ASCII if make.__name__ == "excel_csv_macintosh" else CALLS
    found = [(one.start_s, one.end_s, one.label) for one in segmentation.segments]
    assert found == list(calls)
    assert segmentation.rejects == []
    assert segmentation.skipped_files == []


def test_inspect_reads_all_of_them_in_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for make in FILES:
        write(tmp_path, make)
    run("inspect", tmp_path)
    said = capsys.readouterr().out
    count = len(FILES)
    assert f"{count} of {count} recordings annotated" in said
    assert f"{3 * count} annotations read: {3 * count} segments, 0 rejects" in said
