"""All formats: contract tests, round trips of annotations, and damaged files."""

import re
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.corpus.annotations import FORMATS, AnnotationOptions, recognise
from callshot.errors import InputError, OptionError, OutputError
from mutations import TEXT, Seed, damaged, seeds, try_to_read
from rows_of_spans import Annotation, read_annotations, write_annotations

SEEDS = seeds()
UNUSUAL_LABELS = [
    *('say "roar"', "tab\there", "two\nlines", "carriage\rreturn\r\n", "🐘 trumpet"),
    *("זעקה", "x" * 200_000, "ends\u2028of\x85lines\x0bthat\x1care\u2029none"),
    *(" space around ", "\\\t1\t2", "a,b;c", '"', "\ufeffmark", "=1+1"),
]
every_format = pytest.mark.parametrize(
    "form", FORMATS, ids=[form.name for form in FORMATS]
)
every_seed = pytest.mark.parametrize(
    "seed", SEEDS, ids=[f"{seed.format} {seed.name}" for seed in SEEDS]
)
every_writer = pytest.mark.parametrize(
    "format", [form.name for form in FORMATS if form.write is not None]
)


def write_seed(folder, seed):
    (folder / seed.name).write_bytes(seed.raw)
    return folder / seed.name


def call(label="rumble", start_s=0.5, end_s=2.5, **extra):
    return Annotation(extra.pop("path", None), start_s, end_s, label, "", 1, **extra)


@every_format
def test_every_row_of_a_good_file_is_read(form, tmp_path):
    format_seeds = [seed for seed in SEEDS if seed.format == form.name]
    if form.name not in TEXT and not format_seeds:
        pytest.skip("crowsetta is not installed")
    assert [other.name for other in FORMATS].count(form.name) == 1
    for seed in format_seeds:
        path = write_seed(tmp_path, seed)
        file = read_annotations(path, form.name)
        assert (file.format, file.reason) == (form.name, "asked for")
        assert file.annotations
        for one in [*file.annotations, *file.rejects]:
            assert one.file == str(path)
            assert one.row >= 1
        for one in file.annotations:
            assert one.label.strip()
            assert one.end_s is None or 0 <= one.start_s < one.end_s


@every_format
def test_a_missing_file_and_a_folder_are_errors_and_an_empty_file_may_be(
    form, tmp_path
):
    (tmp_path / "x.not.mat").mkdir()
    for name in ("nowhere.not.mat", "x.not.mat"):
        with pytest.raises(InputError, match=re.escape(name)):
            read_annotations(tmp_path / name, form.name)
    (tmp_path / "x.txt").touch()
    try_to_read(tmp_path / "x.txt", form.name)


@every_seed
def test_a_good_file_is_recognised_with_a_reason(seed, tmp_path):
    recognised = recognise(write_seed(tmp_path, seed))
    others = {"generic-seq": "csv", "simple-seq": "csv", "yarden": None}
    name = recognised[0].name if recognised else None
    assert name == others.get(seed.format, seed.format)
    assert recognised is None or recognised[1].startswith("it")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "This folder holds recordings.\nEach has a label and a path.\n",
        "date,weather\n2020,fine\n",
        "label\nrumble\n",
        "1\t2\n3\t4\n",
        "\x00\xff\x80",
        "<Sequences/>",
        '"start_s,end_s',
        "von,bis,was\n1,2,roar\n",
    ],
)
def test_other_text_files_are_not_recognised(text, tmp_path):
    path = tmp_path / "README.txt"
    path.write_text(text, encoding="utf-8")
    assert recognise(path) is None
    with pytest.raises(InputError, match=r"README\.txt: line 1: "):
        read_annotations(path)
    columns = {"start_s": "von", "end_s": "bis", "label": "was"}
    is_recognised = recognise(path, AnnotationOptions(columns=columns)) is not None
    assert is_recognised == text.startswith("von")


def test_an_unknown_format_is_an_error_with_the_closest_name(tmp_path):
    with pytest.raises(OptionError, match="did you mean raven"):
        read_annotations(tmp_path / "a.txt", "ravn")
    with pytest.raises(OptionError, match="expected one of audacity, raven, csv"):
        write_annotations([], tmp_path / "a.TextGrid", "textgrid")


@every_writer
def test_unusual_labels_and_no_calls_are_read_back(format, tmp_path):
    path = tmp_path / "a.txt"
    for labels in (UNUSUAL_LABELS, []):
        write_annotations([call(label) for label in labels], path, format)
        file = read_annotations(path, format)
        expected = labels
        if format != "csv":  # lines between tabs hold no tabs and line ends
            expected = [re.sub("[\t\r\n]", " ", label) for label in labels]
        assert [one.label for one in file.annotations] == expected
        assert file.rejects == []


text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\r\n"), min_size=1
)
label = text.filter(str.strip)
time = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
span = st.tuples(time, time).map(sorted).filter(lambda pair: pair[0] < pair[1])
band = st.none() | st.floats(min_value=0, max_value=1e6)


@st.composite
def calls(draw, paths):
    start_s, end_s = draw(span)
    extra = {"low_freq_hz": draw(band), "high_freq_hz": draw(band)}
    return call(draw(label), start_s, end_s, path=draw(paths), extra=extra)


def round_trip(folder, annotations, format):
    path = folder / f"round.{format}"
    write_annotations(annotations, path, format)
    file = read_annotations(path, format)
    assert file.rejects == []
    assert [one.row for one in file.annotations] == [*range(1, len(annotations) + 1)]
    for one, copy in zip(annotations, file.annotations, strict=True):
        for name in ("path", "start_s", "end_s", "label"):
            assert getattr(copy, name) == getattr(one, name)
        for name, value in one.extra.items():
            assert copy.extra.get(name) == value


@every_writer
@settings(max_examples=15)
@given(data=st.data())
def test_annotations_of_one_recording_are_read_back(format, data, tmp_path_factory):
    annotations = data.draw(st.lists(calls(st.none()), max_size=5))
    round_trip(tmp_path_factory.mktemp("round"), annotations, format)


@pytest.mark.parametrize("format", ["csv", "raven"])
@settings(max_examples=15)
@given(data=st.data())
def test_annotations_of_many_recordings_are_read_back(format, data, tmp_path_factory):
    drawn = data.draw(st.lists(calls(label), min_size=1, max_size=5))
    annotations = [*drawn, replace(drawn[0], path=f"{drawn[0].path}!")]
    round_trip(tmp_path_factory.mktemp("round"), annotations, format)


@every_writer
def test_invalid_annotations_are_not_written(format, tmp_path):
    path = tmp_path / "a.txt"
    times = [(-1.0, 2.5), (2.0, 2.0), (3.0, 2.5), (1.0, float("inf")), (1.0, None)]
    for invalid in (call(" "), *(call("x", *pair) for pair in times)):
        with pytest.raises(OutputError, match="annotation 2 cannot be written"):
            write_annotations([call(), invalid], path, format)
    if format != "csv":
        with pytest.raises(OutputError, match="whole recording"):
            write_annotations([call("x", 0.0, None)], path, format)
        with pytest.raises(OutputError, match="counts frames"):
            write_annotations([call("x", 0.0, 5.0, in_frames=True)], path, format)
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_read_or_raise_an_error_with_a_line(tmp_path):
    outcomes = set()
    for seed, raw in damaged(100, SEEDS):
        path = write_seed(tmp_path, Seed(seed.format, seed.name, raw))
        for format in (seed.format, "auto"):
            outcome = try_to_read(path, format)
            outcomes.add(outcome.annotation_file is None)
    assert outcomes == {True, False}


def test_without_crowsetta_an_error_shows_how_to_install_it(tmp_path, monkeypatch):
    for name in ("crowsetta", "crowsetta.formats"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it then fails
    (tmp_path / "a.phn").write_text("0 5 a\n")
    message = r"a\.phn: .*pip install 'callshot\[annotations\]'"
    with pytest.raises(InputError, match=message):
        read_annotations(tmp_path / "a.phn")
    (tmp_path / "a.txt").write_text("0\t5\ta\n")
    assert len(read_annotations(tmp_path / "a.txt").annotations) == 1


HEAD = "Selection\tBegin Time (s)\tEnd Time (s)\tAnnotation\n"
UNLABELLED = {
    "raven": HEAD + "1\t0\t1\t\n2\t1\t2\t \n3\t2\t3\troar\n",
    "csv": "start_s,end_s,label\n0,1,\n1,2,NA\n2,3,roar\n",
    "audacity": "0\t1\t\n1\t2\n2\t3\troar\n",
}


@pytest.mark.parametrize("format", UNLABELLED)
def test_a_given_label_fills_empty_labels_and_a_note_says_so(tmp_path, format):
    path = tmp_path / "labels.txt"
    path.write_text(UNLABELLED[format])
    file = read_annotations(path, format, AnnotationOptions(label="owl"))
    assert [one.label for one in file.annotations] == ["owl", "owl", "roar"]
    assert not file.rejects
    assert file.notes[-1] == "rows without a label: labelled owl (--label)"
    assert len(read_annotations(path, format).rejects) == 2
