"""A folder of annotation files of six programs is read right without any option."""

import pytest

from callshot.corpus.segments import segment_corpus
from files_of_other_tools import ASCII, CALLS, FILES
from rows_of_spans import list_rows
from sounds import record


@pytest.fixture(scope="module")
def segmentation(tmp_path_factory):
    """Segment a recording for each annotation file."""
    folder = tmp_path_factory.mktemp("tools")
    for name, (suffix, encoding, make) in FILES.items():
        record(folder / f"{name}.wav", seconds=8, rate=1000)
        (folder / f"{name}{suffix}").write_bytes(make(f"{name}.wav").encode(encoding))
    return segment_corpus(folder, check=False)


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_read_without_options(name, segmentation):
    assert (segmentation.rejects, segmentation.skipped_files) == ([], [])
    rows = list_rows(segmentation.segments)
    segments = [one for one in rows if one.path == f"{name}.wav"]
    calls = ASCII if name == "excel_macintosh" else CALLS
    assert [(one.start_s, one.end_s, one.label) for one in segments] == list(calls)
