"""Formats that crowsetta reads: same annotations as crowsetta's, and errors for damaged files."""

import warnings
from pathlib import Path

import pytest

from callshot.corpus.annotations import AnnotationOptions
from callshot.errors import InputError, OptionError
from mutations import XML, yarden_mat
from rows_of_spans import list_calls, read_annotations

crowsetta = pytest.importorskip("crowsetta")
EXAMPLES = Path(crowsetta.__file__).parent / "examples"


def read_with_crowsetta(path, format, **options):
    with warnings.catch_warnings(action="ignore"):  # of its own, about pandas
        return crowsetta.formats.by_name(format).from_file(path, **options)


def list_boxes(raven):
    return [(None, one.onset, one.offset, one.label) for one in raven.to_bbox()]


def list_segments(annots):
    return [
        (str(one.notated_path), segment.onset_s, segment.offset_s, segment.label)
        for one in annots
        for segment in one.seq.segments
    ]


def list_notes(songs):
    return [
        (song.wav_file, note.position, note.position + note.length, note.label)
        for song in songs.sequences
        for note in song.syls
    ]


def zip_columns(names):
    def list_rows(file):
        starts, ends, labels = (getattr(file, name) for name in names.split())
        return [(None, *row) for row in zip(starts, ends, labels, strict=True)]

    return list_rows


RAVEN = "Recording_1_Segment_02.Table.1.selections.txt"
NOTMAT = "gy6or6_baseline_230312_0808.138.cbin.not.mat"
# The file, crowsetta's name of the format, and how its own calls are listed.
FILES = [
    (RAVEN, "raven", list_boxes),
    ("bird1.csv", "generic-seq", lambda songs: list_segments(songs.annots)),
    (NOTMAT, "notmat", zip_columns("onsets offsets labels")),
    ("sa1.phn", "timit", zip_columns("begin_samples end_samples text")),
    ("Annotation.xml", "birdsong-recognition-dataset", list_notes),
]


@pytest.mark.parametrize(("name", "format", "list_expected"), FILES)
def test_a_file_is_read_as_crowsetta_reads_it(name, format, list_expected):
    options = {"annot_col": "Species"} if format == "raven" else {}
    expected = read_with_crowsetta(EXAMPLES / name, format, **options)
    for asked in ("auto", format):
        file = read_annotations(EXAMPLES / name, asked)
        assert list_calls(file) == list_expected(expected)
        assert not file.rejects
        in_frames = format in ("timit", "birdsong-recognition-dataset")
        assert {one.in_frames for one in file.annotations} == {in_frames}
    if format == "raven":
        bands = [(one.low_freq, one.high_freq) for one in expected.to_bbox()]
        names = ("low_freq_hz", "high_freq_hz")
        assert bands == [tuple(map(one.extra.get, names)) for one in file.annotations]


def test_a_textgrid_is_read_as_crowsetta_reads_it():
    path = EXAMPLES / "AVO-maea-basic.TextGrid"
    points, *tiers = read_with_crowsetta(path, "textgrid").tiers
    names = tuple(tier.name for tier in (points, *tiers))
    file = read_annotations(path, "auto", AnnotationOptions(tiers=names))
    assert list_calls(file) == [
        (None, one.xmin, one.xmax, one.text) for tier in tiers for one in tier.intervals
    ]
    assert len(file.rejects) == len(points.points)
    with pytest.raises(OptionError, match="not clear which are call types: 'Samoan'"):
        read_annotations(path)


def test_yarden_is_read_as_crowsetta_reads_it(tmp_path):
    path = tmp_path / "annotation.mat"
    path.write_bytes(yarden_mat())
    expected = read_with_crowsetta(path, "yarden").to_annot(round_times=False)
    calls = list_calls(read_annotations(path, "yarden"))
    assert calls == list_segments(expected)
    assert len(calls) == 4


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.phn", "timit"), ("a.csv", "generic-seq"), ("a.csv", "simple-seq")],
)
def test_a_crowsetta_failure_is_an_error_in_one_line(tmp_path, name, format):
    (tmp_path / name).write_text("1 2\n3\n")
    message = f"{name}: crowsetta cannot read it as {format}"
    with pytest.raises(InputError, match=message) as caught:
        read_annotations(tmp_path / name, format)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_xml_entities_are_an_error(tmp_path, encoding):
    entities = ['<!ENTITY a0 "ha">']
    entities += [f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12)]
    doctype = f"\n<!DOCTYPE Sequences [{' '.join(entities)}]>\n<Sequences>"
    text = XML.replace("\n<Sequences>", doctype).replace("UTF-8", encoding)
    text = text.replace("<Label>0<", "<Label>&a11;<")
    path = tmp_path / "Annotation.xml"
    path.write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match="crowsetta cannot read it"):
        read_annotations(path, "birdsong-recognition-dataset")
