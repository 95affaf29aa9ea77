"""Formats that crowsetta reads: same annotations as crowsetta's, and errors for damaged files."""

import warnings
from pathlib import Path

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OptionError
from mutations import XML, yarden_mat
from rows_of_spans import read_annotations

crowsetta = pytest.importorskip("crowsetta")
EXAMPLES = Path(crowsetta.__file__).parent / "examples"


def read_with_crowsetta(name, format, **options):
    with warnings.catch_warnings(action="ignore"):  # of its own, about pandas
        return crowsetta.formats.by_name(format).from_file(EXAMPLES / name, **options)


def read_example(name, format="auto", **annotation_options):
    annotation_file = read_annotations(
        EXAMPLES / name, format, AnnotationOptions(**annotation_options)
    )
    assert [
        annotation.row
        for annotation in annotation_file.rejects
        if "point in time" not in annotation.reason
    ] == []
    return annotation_file


def facts(annotation_file):
    return [
        (annotation.start_s, annotation.end_s, annotation.label)
        for annotation in annotation_file.annotations
    ]


def boxes(annotation_file):
    bands = [
        (annotation.extra["low_freq_hz"], annotation.extra["high_freq_hz"])
        for annotation in annotation_file.annotations
    ]
    return [
        (*fact, *band) for fact, band in zip(facts(annotation_file), bands, strict=True)
    ]


def test_raven_reads_as_crowsetta_reads_it():
    name = "Recording_1_Segment_02.Table.1.selections.txt"
    expected = read_with_crowsetta(name, "raven", annot_col="Species").to_bbox()
    assert boxes(read_example(name)) == [
        (b.onset, b.offset, b.label, b.low_freq, b.high_freq) for b in expected
    ]


def test_textgrid_reads_as_crowsetta_reads_it():
    expected = read_with_crowsetta("AVO-maea-basic.TextGrid", "textgrid")
    names = tuple(tier.name for tier in expected.tiers)
    annotation_file = read_example("AVO-maea-basic.TextGrid", tiers=names)
    intervals = [
        (annotation.xmin, annotation.xmax, annotation.text)
        for tier in expected.tiers[1:]
        for annotation in tier.intervals
    ]
    assert facts(annotation_file) == intervals
    assert len(annotation_file.rejects) == len(expected.tiers[0].points)
    with pytest.raises(OptionError, match="not clear which are call types: 'Samoan'"):
        read_example("AVO-maea-basic.TextGrid")


@pytest.mark.parametrize("format", ["auto", "generic-seq"])
def test_generic_seq_reads_as_crowsetta_reads_it(format):
    expected = read_with_crowsetta("bird1.csv", "generic-seq").annots
    annotation_file = read_example("bird1.csv", format)
    assert facts(annotation_file) == [
        (s.onset_s, s.offset_s, s.label)
        for annot in expected
        for s in annot.seq.segments
    ]
    assert [annotation.path for annotation in annotation_file.annotations] == [
        str(annot.notated_path) for annot in expected for _ in annot.seq.segments
    ]


def test_notmat_reads_as_crowsetta_reads_it():
    name = "gy6or6_baseline_230312_0808.138.cbin.not.mat"
    expected = read_with_crowsetta(name, "notmat")
    assert facts(read_example(name)) == list(
        zip(expected.onsets, expected.offsets, expected.labels, strict=True)
    )


def test_timit_reads_as_crowsetta_reads_it_in_frames():
    expected = read_with_crowsetta("sa1.phn", "timit")
    annotation_file = read_example("sa1.phn")
    assert facts(annotation_file) == list(
        zip(expected.begin_samples, expected.end_samples, expected.text, strict=True)
    )
    assert all(annotation.in_frames for annotation in annotation_file.annotations)


def test_birdsong_reads_as_crowsetta_reads_it_in_frames():
    songs = read_with_crowsetta("Annotation.xml", "birdsong-recognition-dataset")
    expected = [
        (song.wav_file, s.position, s.position + s.length, s.label)
        for song in songs.sequences
        for s in song.syls
    ]
    annotation_file = read_example("Annotation.xml")
    assert [
        (annotation.path, annotation.start_s, annotation.end_s, annotation.label)
        for annotation in annotation_file.annotations
    ] == expected
    assert all(annotation.in_frames for annotation in annotation_file.annotations)


def test_yarden_reads_as_crowsetta_reads_it(tmp_path):
    path = tmp_path / "annotation.mat"
    path.write_bytes(yarden_mat())
    annotations = read_annotations(path, "yarden").annotations
    expected = (
        crowsetta.formats.by_name("yarden").from_file(path).to_annot(round_times=False)
    )
    assert [
        (annotation.path, annotation.start_s, annotation.end_s, annotation.label)
        for annotation in annotations
    ] == [
        (str(annot.notated_path), s.onset_s, s.offset_s, s.label)
        for annot in expected
        for s in annot.seq.segments
    ]
    assert len(annotations) == 4


def test_a_crowsetta_failure_is_an_error_in_one_line(tmp_path):
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


def test_xml_entities_are_an_error(tmp_path):
    lines = [
        '<!ENTITY a0 "ha">',
        *(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)),
    ]
    text = XML.replace(
        "\n<Sequences>", f"\n<!DOCTYPE Sequences [{' '.join(lines)}]>\n<Sequences>"
    )
    text = text.replace("<Label>0<", "<Label>&a11;<")
    for encoding in ("utf-8", "utf-16", "cp037"):
        raw = text.replace("UTF-8", encoding).encode(encoding)
        (tmp_path / "Annotation.xml").write_bytes(raw)
        with pytest.raises(
            InputError, match=r"Annotation\.xml: crowsetta cannot read it"
        ):
            read_annotations(
                tmp_path / "Annotation.xml", "birdsong-recognition-dataset"
            )
