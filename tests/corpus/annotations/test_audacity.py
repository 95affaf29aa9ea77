"""Audacity label tracks, with and without frequencies."""

import pytest

from callshot.corpus.annotations import recognise
from callshot.errors import OutputError
from rows_of_spans import Annotation, read_annotations, write_annotations


def read(folder, text):
    path = folder / "labels.txt"
    path.write_text(text, newline="")
    return read_annotations(path, "audacity")


def test_the_label_follows_the_second_tab(tmp_path):
    annotation_file = read(
        tmp_path, "0.0\t1.5\troar\tand more\r\n\r\n2,5\t3\t rumble\n"
    )
    annotations = [
        (
            annotation.path,
            annotation.start_s,
            annotation.end_s,
            annotation.label,
            annotation.row,
        )
        for annotation in annotation_file.annotations
    ]
    assert annotations == [
        (None, 0.0, 1.5, "roar\tand more", 1),
        (None, 2.5, 3.0, " rumble", 2),
    ]


def test_a_line_of_frequencies_belongs_to_the_label_before_it(tmp_path):
    annotation_file = read(
        tmp_path,
        "0\t1\ta\n\\\t10.5\t200\n1\t2\tb\n\\\t-1\t-1.0\n2\t3\tc\n\\\t\t5\n3\t4\td\n",
    )
    bands = [
        tuple(annotation.extra.values()) for annotation in annotation_file.annotations
    ]
    assert bands == [(10.5, 200.0), (None, None), (None, 5.0), ()]
    assert [annotation.row for annotation in annotation_file.annotations] == [
        1,
        2,
        3,
        4,
    ]


def test_invalid_lines_are_rejects(tmp_path):
    lines = [
        "\\\t1\t2",
        "1\t1\tpoint",
        "\\\t1\t2",
        "\\\t1\t2",
        "2\t3",
        "2\t3\t",
        "x\t3\troar",
        "2\t3\troar",
        "\\\tlow\t5",
        "2\t3\troar",
    ]
    annotation_file = read(tmp_path, "\n".join(lines))
    assert [
        (annotation.row, annotation.reason.partition(",")[0])
        for annotation in annotation_file.rejects
    ] == [
        (1, "frequencies without a label before them"),
        (2, "starts and ends at 1.0: a point in time; a segment needs a span"),
        (3, "frequencies without a label before them"),
        (4, "expected start"),
        (5, "no label"),
        (6, "start: expected a number"),
        (7, "low_freq_hz: expected a number"),
    ]
    assert [annotation.row for annotation in annotation_file.annotations] == [8]


def test_an_empty_track_is_read_but_not_recognised(tmp_path):
    assert read(tmp_path, "").annotations == []
    assert recognise(tmp_path / "labels.txt") is None


def test_a_track_with_one_invalid_line_is_recognised(tmp_path):
    read(tmp_path, "0\t1\ta\n1\t2\tb\noops\n3\t4\tc\n")
    assert len(read_annotations(tmp_path / "labels.txt").rejects) == 1


def test_a_track_holds_one_recording(tmp_path):
    calls = [
        Annotation(name, 0.1, 0.3, "roar", "", 1, extra={"low_freq_hz": 5.0})
        for name in ("a.wav", "b.wav")
    ]
    with pytest.raises(
        OutputError, match="of one recording, but the annotations are of 2"
    ):
        write_annotations(calls, tmp_path / "x.txt", "audacity")
    write_annotations(calls[:1], tmp_path / "x.txt", "audacity")
    assert (tmp_path / "x.txt").read_text() == "0.1\t0.3\troar\n\\\t5.0\t-1\n"
