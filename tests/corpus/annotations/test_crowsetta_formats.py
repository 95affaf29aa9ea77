"""What crowsetta reads: its own examples give the same annotations through callshot, and damaged files are refused."""

import struct
import time
import warnings
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from callshot.corpus.annotations import Hints, Reading, read_annotations
from callshot.corpus.annotations.mat_check import check_mat
from callshot.errors import InputError
from mutations import XML, yarden_mat

crowsetta = pytest.importorskip("crowsetta")
EXAMPLES = Path(crowsetta.__file__).parent / "examples"


def theirs(name: str, format: str, **options: Any) -> Any:
    with warnings.catch_warnings(action="ignore"):  # of its own, about pandas
        return crowsetta.formats.by_name(format).from_file(EXAMPLES / name, **options)


def ours(name: str, format: str = "auto", **hints: Any) -> Reading:
    reading = read_annotations(EXAMPLES / name, format, Hints(**hints))
    assert [one.row for one in reading.rejects if "point in time" not in one.reason] == []
    return reading


def facts(reading: Reading) -> list[tuple[object, ...]]:
    return [(one.start_s, one.end_s, one.label) for one in reading.annotations]


def boxes(reading: Reading) -> list[tuple[object, ...]]:
    bands = [(one.extra["low_freq_hz"], one.extra["high_freq_hz"]) for one in reading.annotations]
    return [(*fact, *band) for fact, band in zip(facts(reading), bands, strict=True)]


def test_raven_reads_as_crowsetta_reads_it() -> None:
    name = "Recording_1_Segment_02.Table.1.selections.txt"
    wanted = theirs(name, "raven", annot_col="Species").to_bbox()
    assert boxes(ours(name)) == [
        (b.onset, b.offset, b.label, b.low_freq, b.high_freq) for b in wanted
    ]


def test_audacity_with_frequencies_reads_as_crowsetta_reads_it() -> None:
    wanted = theirs("spinetail.txt", "aud-bbox").to_bbox()
    assert boxes(ours("spinetail.txt")) == [
        (b.onset, b.offset, b.label, b.low_freq, b.high_freq) for b in wanted
    ]


def test_audacity_reads_as_crowsetta_reads_it() -> None:
    name = "405_marron1_June_14_2016_69640887.audacity.txt"
    wanted = theirs(name, "aud-seq")
    assert facts(ours(name)) == list(
        zip(wanted.start_times, wanted.end_times, wanted.labels, strict=True)
    )


def test_textgrid_reads_as_crowsetta_reads_it() -> None:
    wanted = theirs("AVO-maea-basic.TextGrid", "textgrid")
    reading = ours("AVO-maea-basic.TextGrid")
    intervals = [
        (one.xmin, one.xmax, one.text) for tier in wanted.tiers[1:] for one in tier.intervals
    ]
    assert facts(reading) == intervals
    assert len(reading.rejects) == len(wanted.tiers[0].points)


@pytest.mark.parametrize("format", ["auto", "generic-seq"])
def test_generic_seq_reads_as_crowsetta_reads_it(format: str) -> None:
    wanted = theirs("bird1.csv", "generic-seq").annots
    reading = ours("bird1.csv", format)
    assert facts(reading) == [
        (s.onset_s, s.offset_s, s.label) for annot in wanted for s in annot.seq.segments
    ]
    assert [one.path for one in reading.annotations] == [
        str(annot.notated_path) for annot in wanted for _ in annot.seq.segments
    ]


@pytest.mark.parametrize("format", ["auto", "simple-seq"])
def test_simple_seq_reads_as_crowsetta_reads_it(format: str) -> None:
    columns = {"start_seconds": "onset_s", "stop_seconds": "offset_s"}
    named = {"start_s": "start_seconds", "end_s": "stop_seconds"}
    das, mouse = "bl26lb16_190412_0721.20144_annotations.csv", next(EXAMPLES.glob("GO_*.csv")).name
    wanted = theirs(das, "simple-seq", columns_map=columns | {"name": "label"})
    reading = ours(das, format, columns=named | {"label": "name"})
    np.testing.assert_allclose(
        [one.start_s for one in reading.annotations], wanted.onsets_s, rtol=1e-15
    )
    np.testing.assert_allclose(
        [one.end_s for one in reading.annotations], wanted.offsets_s, rtol=1e-15
    )
    assert [one.label for one in reading.annotations] == list(wanted.labels)
    wanted = theirs(mouse, "simple-seq", columns_map=columns, default_label="pup")
    reading = ours(mouse, format, columns=named, label="pup")
    np.testing.assert_allclose(
        [one.start_s for one in reading.annotations], wanted.onsets_s, rtol=1e-15
    )
    np.testing.assert_allclose(
        [one.end_s for one in reading.annotations], wanted.offsets_s, rtol=1e-15
    )
    assert [one.label for one in reading.annotations] == list(wanted.labels)


def test_notmat_reads_as_crowsetta_reads_it() -> None:
    name = "gy6or6_baseline_230312_0808.138.cbin.not.mat"
    wanted = theirs(name, "notmat")
    assert facts(ours(name)) == list(zip(wanted.onsets, wanted.offsets, wanted.labels, strict=True))


def test_timit_reads_as_crowsetta_reads_it_in_frames() -> None:
    wanted = theirs("sa1.phn", "timit")
    reading = ours("sa1.phn")
    assert facts(reading) == list(
        zip(wanted.begin_samples, wanted.end_samples, wanted.text, strict=True)
    )
    assert all(one.in_frames for one in reading.annotations)


def test_birdsong_reads_as_crowsetta_reads_it_in_frames() -> None:
    songs = theirs("Annotation.xml", "birdsong-recognition-dataset")
    wanted = [
        (song.wav_file, s.position, s.position + s.length, s.label)
        for song in songs.sequences
        for s in song.syls
    ]
    reading = ours("Annotation.xml")
    assert [(one.path, one.start_s, one.end_s, one.label) for one in reading.annotations] == wanted
    assert all(one.in_frames for one in reading.annotations)


def test_yarden_reads_as_crowsetta_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "annotation.mat"
    path.write_bytes(yarden_mat())
    found = read_annotations(path, "yarden").annotations
    wanted = crowsetta.formats.by_name("yarden").from_file(path).to_annot(round_times=False)
    assert [(one.path, one.start_s, one.end_s, one.label) for one in found] == [
        (str(annot.notated_path), s.onset_s, s.offset_s, s.label)
        for annot in wanted
        for s in annot.seq.segments
    ]
    assert len(found) == 4


def test_what_crowsetta_cannot_read_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, format in (
        ("a.phn", "timit"),
        ("a.csv", "generic-seq"),
        ("a.txt", "timit"),
        ("a.csv", "simple-seq"),
    ):
        (tmp_path / name).write_text("1 2\n3\n")
        with pytest.raises(
            InputError, match=f"{name}: crowsetta cannot read it as {format}"
        ) as caught:
            read_annotations(tmp_path / name, format)
        assert "\n" not in str(caught.value)


def test_rows_with_too_many_fields_are_not_shifted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("onset_s,offset_s,label\n9.5,0.5,1.5,a\n9.5,2.5,3.5,b\n")
    with pytest.raises(
        InputError, match=r"a\.csv: line 2: expected 3 fields as in the header, got 4"
    ):
        read_annotations(tmp_path / "a.csv", "simple-seq")


def test_a_bomb_of_entities_is_refused(tmp_path: Path) -> None:
    lines = ['<!ENTITY a0 "ha">', *(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))]
    text = XML.replace("\n<Sequences>", f"\n<!DOCTYPE Sequences [{' '.join(lines)}]>\n<Sequences>")
    text = text.replace("<Label>0<", "<Label>&a11;<")
    for encoding in ("utf-8", "utf-16", "cp037"):
        raw = text.replace("UTF-8", encoding).encode(encoding)
        (tmp_path / "Annotation.xml").write_bytes(raw)
        start = time.perf_counter()
        with pytest.raises(
            InputError,
            match=r"Annotation\.xml: line 2: a DOCTYPE is not allowed|line 1: expected well",
        ):
            read_annotations(tmp_path / "Annotation.xml", "birdsong-recognition-dataset")
        assert time.perf_counter() - start < 2


def test_broken_xml_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "Annotation.xml").write_text(XML.replace("</Note>\n<Note>", "</Nope>\n<Note>"))
    with pytest.raises(InputError, match=r"Annotation\.xml: line 4: expected well-formed XML"):
        read_annotations(tmp_path / "Annotation.xml")


def mat(**variables: Any) -> bytes:
    savemat(stream := BytesIO(), variables)
    return stream.getvalue()


GOOD = {
    "number": 1.5,
    "complex": np.array([1 + 2j]),
    "empty": np.zeros((0, 0)),
    "text": "rumble",
    "bytes": np.arange(5, dtype=np.uint8),
    "structure": {"a": 1, "b": {"c": "x"}},
    "cells": np.array(["a", 1.0, {"d": 2}], dtype=object),
    "flag": np.array([True, False]),
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_whole_matlab_file_passes(name: str, compressed: bool, tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {name: GOOD[name]}, do_compression=compressed)
    check_mat(tmp_path / "a.mat")


def test_a_matlab_file_with_a_type_that_cannot_be_is_refused_and_ends_nothing(
    tmp_path: Path,
) -> None:
    raw = mat(onsets=np.arange(3.0), offsets=np.arange(3.0) + 1, labels="abc")
    at = raw.index(struct.pack("<II", 9, 24))
    for kind in (0, 8, 10, 14, 19, 20, 255):
        (tmp_path / "a.not.mat").write_bytes(raw[:at] + struct.pack("<I", kind) + raw[at + 4 :])
        with pytest.raises(InputError, match=r"a\.not\.mat: .*type .* of 24 bytes"):
            read_annotations(tmp_path / "a.not.mat")


@pytest.mark.parametrize("change", ["cut", "shape", "size", "header", "deep", "bomb", "class"])
def test_a_damaged_matlab_file_is_refused(change: str, tmp_path: Path) -> None:
    raw = mat(onsets=np.arange(3.0))
    header = raw[:128]
    if change == "cut":
        raw = raw[:-5]
    elif change == "shape":
        raw = raw.replace(
            struct.pack("<IIii", 5, 8, 1, 3), struct.pack("<IIii", 5, 8, 2**30, 2**30)
        )
    elif change == "size":
        raw = raw.replace(struct.pack("<II", 9, 24), struct.pack("<II", 9, 16))
    elif change == "header":
        raw = b"MATLAB 7.3" + raw[10:]
    elif change == "deep":
        inner: Any = 1.0
        for _ in range(40):
            inner = {"a": inner}
        raw = mat(onsets=inner)
    elif change == "bomb":
        packed = zlib.compress(bytes(2**27), 1)
        raw = header + struct.pack("<II", 15, len(packed)) + packed
    else:
        raw = raw.replace(struct.pack("<III", 6, 8, 6), struct.pack("<III", 6, 8, 3))
    (tmp_path / "a.not.mat").write_bytes(raw)
    with pytest.raises(InputError, match=r"a\.not\.mat: not a MATLAB file that crowsetta can read"):
        read_annotations(tmp_path / "a.not.mat", "notmat")
