"""Audacity label tracks, with and without frequencies."""

import pytest

from callshot.corpus.annotations import recognise
from callshot.errors import OutputError
from rows_of_spans import Annotation, list_calls, read_annotations, write_annotations


def read(folder, text):
    path = folder / "labels.txt"
    path.write_text(text, newline="")
    return read_annotations(path, "audacity")


def test_the_label_follows_the_second_tab(tmp_path):
    file = read(tmp_path, "0.0\t1.5\troar\tand more\r\n\r\n2,5\t3\t rumble\n")
    calls = [(None, 0.0, 1.5, "roar\tand more"), (None, 2.5, 3.0, " rumble")]
    assert list_calls(file) == calls
    assert [one.row for one in file.annotations] == [1, 2]


def test_a_line_of_frequencies_belongs_to_the_label_before_it(tmp_path):
    bands = "0\t1\ta\n\\\t10.5\t200\n1\t2\tb\n\\\t-1\t-1.0\n2\t3\tc\n\\\t\t5\n3\t4\td\n"
    file = read(tmp_path, bands)
    found = [tuple(one.extra.values()) for one in file.annotations]
    assert found == [(10.5, 200.0), (None, None), (None, 5.0), ()]
    assert [one.row for one in file.annotations] == [1, 2, 3, 4]


def test_invalid_lines_are_rejects_and_the_track_is_recognised(tmp_path):
    lines = ["\\\t1\t2", "1\t1\tpoint", "\\\t1\t2", "\\\t1\t2", "2\t3", "2\t3\t"]
    lines += ["x\t3\troar", "2\t3\troar", "\\\tlow\t5", "2\t3\troar"]
    file = read(tmp_path, "\n".join(lines))
    reasons = [(one.row, one.reason.partition(",")[0]) for one in file.rejects]
    assert reasons == [
        (1, "frequencies without a label before them"),
        (2, "starts and ends at 1.0: a point in time; a segment needs a span"),
        (3, "frequencies without a label before them"),
        (4, "expected start"),
        (5, "no label"),
        (6, "start: expected a number"),
        (7, "low_freq_hz: expected a number"),
    ]
    assert [one.row for one in file.annotations] == [8]
    read(tmp_path, "0\t1\ta\n1\t2\tb\noops\n3\t4\tc\n")
    assert len(read_annotations(tmp_path / "labels.txt").rejects) == 1


def test_an_empty_track_is_read_but_not_recognised(tmp_path):
    assert read(tmp_path, "").annotations == []
    assert recognise(tmp_path / "labels.txt") is None


def test_a_track_holds_one_recording(tmp_path):
    calls = [
        Annotation(name, 0.1, 0.3, "roar", extra={"low_freq_hz": 5.0})
        for name in ("a.wav", "b.wav")
    ]
    path = tmp_path / "x.txt"
    with pytest.raises(OutputError, match=r"of one recording, but .* are of 2"):
        write_annotations(calls, path, "audacity")
    write_annotations(calls[:1], path, "audacity")
    assert path.read_text() == "0.1\t0.3\troar\n\\\t5.0\t-1\n"
