"""A folder of annotation files of six programs is read right without any option."""

import pytest

from callshot.corpus.segment_table import inspect_corpus
from files_of_other_tools import ASCII, CALLS, FILES
from rows_of_spans import list_rows
from sounds import record
from test_cli import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a recording for each annotation file."""
    folder = tmp_path_factory.mktemp("tools")
    for make in FILES:
        name = make.__name__
        record(folder / f"{name}.wav", seconds=8, rate=1000)
        suffix, raw = make(f"{name}.wav")
        (folder / f"{name}{suffix}").write_bytes(raw)
    return folder


@pytest.fixture(scope="module")
def segmentation(folder):
    return inspect_corpus(folder).segmentation


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_every_file_is_read_without_options(make, segmentation):
    path = f"{make.__name__}.wav"
    segments = [one for one in list_rows(segmentation.segments) if one.path == path]
    calls = ASCII if make.__name__ == "excel_csv_macintosh" else CALLS
    assert [(one.start_s, one.end_s, one.label) for one in segments] == list(calls)


def test_inspect_reads_all_of_them(folder, segmentation, capsys):
    assert (segmentation.rejects, segmentation.skipped_files) == ([], [])
    run("inspect", folder)
    said = capsys.readouterr().out
    count = len(FILES)
    assert f"{count} of {count} recordings annotated" in said
    assert f"{3 * count} annotations read: {3 * count} segments, 0 rejects" in said
