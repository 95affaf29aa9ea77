"""Audacity's label tracks, with frequencies and without."""

from pathlib import Path

import pytest

from callshot.corpus.annotations import Reading, read_annotations, recognise, write_annotations
from callshot.errors import OutputError
from callshot.records import Annotation


def read(folder: Path, text: str) -> Reading:
    path = folder / "labels.txt"
    path.write_text(text, newline="")
    return read_annotations(path, "audacity")


def test_labels_are_what_follows_the_second_tab(tmp_path: Path) -> None:
    reading = read(tmp_path, "0.0\t1.5\troar\tand more\r\n\r\n2,5\t3\t rumble\n")
    found = [(one.path, one.start_s, one.end_s, one.label, one.row) for one in reading.annotations]
    assert found == [(None, 0.0, 1.5, "roar\tand more", 1), (None, 2.5, 3.0, " rumble", 2)]


def test_a_line_of_frequencies_belongs_to_the_label_before_it(tmp_path: Path) -> None:
    reading = read(
        tmp_path, "0\t1\ta\n\\\t10.5\t200\n1\t2\tb\n\\\t-1\t-1.0\n2\t3\tc\n\\\t\t5\n3\t4\td\n"
    )
    bands = [tuple(one.extra.values()) for one in reading.annotations]
    assert bands == [(10.5, 200.0), (None, None), (None, 5.0), ()]
    assert [one.row for one in reading.annotations] == [1, 2, 3, 4]


def test_what_is_no_label_is_a_reject(tmp_path: Path) -> None:
    text = "\\\t1\t2\n1\t1\tpoint\n\\\t1\t2\n\\\t1\t2\n2\t3\n2\t3\t\nx\t3\troar\n2\t3\troar\n\\\tlow\t5\n2\t3\troar\n"
    reading = read(tmp_path, text)
    assert [(one.row, one.reason.partition(",")[0]) for one in reading.rejects] == [
        (1, "frequencies without a label before them"),
        (2, "starts and ends at 1.0: a point in time; a segment needs a span"),
        (3, "frequencies without a label before them"),
        (4, "expected start"),
        (5, "no label"),
        (6, "start: expected a number"),
        (7, "low_freq_hz: expected a number"),
    ]
    assert [one.row for one in reading.annotations] == [8]


def test_an_empty_track_is_only_read_when_asked_for(tmp_path: Path) -> None:
    assert read(tmp_path, "").annotations == []
    assert recognise(tmp_path / "labels.txt") is None


def test_one_bad_line_does_not_hide_a_track(tmp_path: Path) -> None:
    read(tmp_path, "0\t1\ta\n1\t2\tb\noops\n3\t4\tc\n")
    assert len(read_annotations(tmp_path / "labels.txt").rejects) == 1


def test_a_track_is_of_one_recording(tmp_path: Path) -> None:
    calls = [
        Annotation(name, 0.1, 0.3, "roar", "", 1, extra={"low_freq_hz": 5.0})
        for name in ("a.wav", "b.wav")
    ]
    with pytest.raises(OutputError, match="of one recording, but the annotations are of 2"):
        write_annotations(calls, tmp_path / "x.txt", "audacity")
    write_annotations(calls[:1], tmp_path / "x.txt", "audacity")
    assert (tmp_path / "x.txt").read_text() == "0.1\t0.3\troar\n\\\t5.0\t-1\n"
