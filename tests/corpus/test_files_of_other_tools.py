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
    for name, (suffix, encoding, make) in FILES.items():
        record(folder / f"{name}.wav", seconds=8, rate=1000)
        (folder / f"{name}{suffix}").write_bytes(make(f"{name}.wav").encode(encoding))
    return folder


@pytest.fixture(scope="module")
def segmentation(folder):
    return inspect_corpus(folder).segmentation


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_without_options(name, segmentation):
    rows = list_rows(segmentation.segments)
    segments = [one for one in rows if one.path == f"{name}.wav"]
    calls = ASCII if name == "excel_macintosh" else CALLS
    assert [(one.start_s, one.end_s, one.label) for one in segments] == list(calls)


def test_inspect_reads_all_of_them(folder, segmentation, capsys):
    assert (segmentation.rejects, segmentation.skipped_files) == ([], [])
    run("inspect", folder)
    said = capsys.readouterr().out
    count = len(FILES)
    assert f"{count} of {count} recordings annotated" in said
    assert f"{3 * count} annotations read: {3 * count} segments, 0 rejects" in said
