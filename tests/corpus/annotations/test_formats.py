"""The table of formats: one battery over every row, real annotations through all of them, and damaged files."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.corpus.annotations import (
    FORMATS,
    Format,
    Hints,
    read_annotations,
    recognise,
    write_annotations,
)
from callshot.errors import InputError, OptionError, OutputError
from callshot.records import Annotation
from mutations import LIMIT_S, Seed, damaged, seeds, try_to_read

DATA = Path(__file__).parents[3].parent / "shared" / "data"
SEEDS = seeds()
AWKWARD = (
    'say "roar"',
    "tab\there",
    "two\nlines",
    "carriage\rreturn\r\n",
    "🐘 trumpet",
    "זעקה",
    "x" * 10_000,
    "␉␊␍␛ pictures",
    "ends\u2028of\x85lines\x0bthat\x1care\u2029none",
    " space around ",
    "\\\t1\t2",
    "a,b;c",
    '"',
    "\ufeffmark",
    "=1+1",
)
every_format = pytest.mark.parametrize("form", FORMATS, ids=[form.name for form in FORMATS])
every_seed = pytest.mark.parametrize(
    "seed", SEEDS, ids=[f"{seed.format} {seed.name}" for seed in SEEDS]
)
every_writer = pytest.mark.parametrize(
    "format", [form.name for form in FORMATS if form.write is not None]
)


def put(folder: Path, seed: Seed) -> Path:
    (folder / seed.name).write_bytes(seed.raw)
    return folder / seed.name


def call(
    label: str = "rumble", start_s: float = 0.5, end_s: float | None = 2.5, **more: Any
) -> Annotation:
    return Annotation(more.pop("path", None), start_s, end_s, label, "", 1, **more)


def facts(annotations: list[Annotation]) -> list[tuple[object, ...]]:
    return [(one.path, one.start_s, one.end_s, one.label) for one in annotations]


def test_the_names_in_the_table_differ() -> None:
    assert len({form.name for form in FORMATS}) == len(FORMATS)


@every_format
def test_a_good_file_is_read_whole(form: Format, tmp_path: Path) -> None:
    mine = [seed for seed in SEEDS if seed.format == form.name]
    if form.extra is not None and not mine:
        pytest.skip("crowsetta is not installed")
    for seed in mine:
        path = put(tmp_path, seed)
        reading = read_annotations(path, form.name)
        assert (reading.format, reading.reason) == (form.name, "asked for")
        assert reading.annotations
        for one in [*reading.annotations, *reading.rejects]:
            assert one.file == str(path)
            assert one.row is not None
            assert one.row >= 1
        for one in reading.annotations:
            assert one.label.strip()
            assert one.end_s is None or 0 <= one.start_s < one.end_s


@every_format
def test_a_file_that_is_not_there_is_refused(form: Format, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.not\.mat"):
        read_annotations(tmp_path / "nowhere.not.mat", form.name)


@every_format
def test_a_folder_is_refused(form: Format, tmp_path: Path) -> None:
    (tmp_path / "x.not.mat").mkdir()
    with pytest.raises(InputError, match=r"x\.not\.mat"):
        read_annotations(tmp_path / "x.not.mat", form.name)


@every_format
def test_an_empty_file_is_no_calls_or_refused(form: Format, tmp_path: Path) -> None:
    (tmp_path / "x.txt").touch()
    assert try_to_read(tmp_path / "x.txt", form.name).seconds < LIMIT_S


@every_seed
def test_a_good_file_is_recognised_and_it_is_said_why(seed: Seed, tmp_path: Path) -> None:
    found = recognise(put(tmp_path, seed))
    wanted = {"generic-seq": "csv", "simple-seq": "csv", "yarden": None}.get(
        seed.format, seed.format
    )
    assert (found[0].name if found else None) == wanted
    assert found is None or found[1].startswith("it")


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
    ],
)
def test_what_is_no_annotation_file_is_not_recognised(text: str, tmp_path: Path) -> None:
    path = tmp_path / "README.txt"
    path.write_text(text, encoding="utf-8")
    assert recognise(path) is None
    with pytest.raises(InputError, match=r"README\.txt: line 1: "):
        read_annotations(path)


def test_columns_that_the_user_names_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("von,bis,was\n1,2,roar\n")
    assert recognise(path) is None
    hints = Hints(columns={"start_s": "von", "end_s": "bis", "label": "was"})
    assert facts(read_annotations(path, hints=hints).annotations) == [(None, 1.0, 2.0, "roar")]


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="did you mean 'raven'"):
        read_annotations(tmp_path / "a.txt", "ravn")
    with pytest.raises(OptionError, match="expected one of raven, audacity, csv"):
        write_annotations([], tmp_path / "a.TextGrid", "textgrid")


@every_writer
@pytest.mark.parametrize("label", AWKWARD, ids=[repr(label[:12]) for label in AWKWARD])
def test_an_awkward_label_survives(format: str, label: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_annotations([call(label), call("next", 3.0, 4.0)], path, format)
    reading = read_annotations(path, format)
    assert facts(reading.annotations) == [(None, 0.5, 2.5, label), (None, 3.0, 4.0, "next")]
    assert reading.rejects == []


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
label = text.filter(str.strip)
time = st.floats(min_value=0, allow_nan=False, allow_infinity=False)
span = st.tuples(time, time).map(sorted).filter(lambda pair: pair[0] < pair[1])
band = st.none() | st.floats(min_value=0, max_value=1e6)


@st.composite
def calls(draw: Callable[..., Any], paths: st.SearchStrategy[str | None]) -> Annotation:
    start_s, end_s = draw(span)
    more = {"low_freq_hz": draw(band), "high_freq_hz": draw(band)}
    return call(draw(label), start_s, end_s, path=draw(paths), extra=more)


def round_trip(folder: Path, annotations: list[Annotation], format: str) -> list[Annotation]:
    path = folder / f"round.{format}"
    write_annotations(annotations, path, format)
    reading = read_annotations(path, format)
    assert reading.rejects == []
    assert [one.row for one in reading.annotations] == list(range(1, len(annotations) + 1))
    return reading.annotations


@every_writer
@settings(max_examples=60)
@given(data=st.data())
def test_what_is_written_of_one_recording_is_read_back(
    format: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    annotations = data.draw(st.lists(calls(st.none()), max_size=5))
    back = round_trip(tmp_path_factory.mktemp("round"), annotations, format)
    assert facts(back) == facts(annotations)
    for one, two in zip(annotations, back, strict=True):
        for name, value in one.extra.items():
            assert two.extra.get(name) == value


@pytest.mark.parametrize("format", ["csv", "raven"])
@settings(max_examples=60)
@given(data=st.data())
def test_what_is_written_of_many_recordings_is_read_back(
    format: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    drawn = data.draw(st.lists(calls(label), min_size=1, max_size=5))
    annotations = [*drawn, replace(drawn[0], path=f"{drawn[0].path}!")]
    back = round_trip(tmp_path_factory.mktemp("round"), annotations, format)
    assert facts(back) == facts(annotations)


@every_writer
def test_what_no_reader_would_take_is_not_written(format: str, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for bad in (
        call(" "),
        call("x", -1.0),
        call("x", 2.0, 2.0),
        call("x", 3.0),
        call("x", 1.0, float("inf")),
    ):
        with pytest.raises(OutputError, match=r"a\.txt: annotation 2 cannot be written"):
            write_annotations([call(), bad], path, format)
    with pytest.raises(OutputError, match="surrogates"):
        write_annotations([call("\ud800")], path, format)
    with pytest.raises(
        OutputError, match=r"annotation 1 cannot be written: starts at 1\.0 and has no end"
    ):
        write_annotations([call("x", 1.0, None)], path, format)
    assert list(tmp_path.iterdir()) == []


@every_writer
def test_a_file_that_cannot_be_written_leaves_nothing(format: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        write_annotations([call()], tmp_path / "not" / "there.txt", format)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="cannot be written"):
        write_annotations([call()], tmp_path / "folder", format)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@every_writer
def test_what_was_there_stays_if_writing_fails(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a.txt").write_text("old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError, match=r"a\.txt: cannot be written \(No space left on device\)"):
        write_annotations([call()], tmp_path / "a.txt", format)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@every_writer
def test_no_calls_are_written_and_read_as_none(format: str, tmp_path: Path) -> None:
    write_annotations([], tmp_path / "a.txt", format)
    reading = read_annotations(tmp_path / "a.txt", format)
    assert (reading.annotations, reading.rejects) == ([], [])


@pytest.mark.parametrize("format", ["raven", "audacity"])
def test_lines_need_times_in_seconds(format: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="whole recording"):
        write_annotations([call("x", 0.0, None)], tmp_path / "a.txt", format)
    with pytest.raises(OutputError, match="counts frames"):
        write_annotations([call("x", 0.0, 5.0, in_frames=True)], tmp_path / "a.txt", format)


@pytest.fixture
def finch() -> list[Annotation]:
    path = DATA / "finch" / "annotations.csv"
    if not path.exists():
        pytest.skip("the finch songs of shared/data are not here")
    return read_annotations(path).annotations


def test_the_finch_songs_are_601_annotations_of_10_recordings(finch: list[Annotation]) -> None:
    assert len(finch) == 601
    assert len({one.path for one in finch}) == 10


@pytest.mark.parametrize("format", ["csv", "raven"])
def test_the_finch_songs_come_back_from_one_table(
    format: str, finch: list[Annotation], tmp_path: Path
) -> None:
    write_annotations(finch, tmp_path / "all.txt", format)
    reading = read_annotations(tmp_path / "all.txt")
    assert reading.format == format
    assert facts(reading.annotations) == facts(finch)


@every_writer
def test_the_finch_songs_come_back_from_a_file_each(
    format: str, finch: list[Annotation], tmp_path: Path
) -> None:
    back = []
    for recording in dict.fromkeys(one.path for one in finch):
        write_annotations(
            [one for one in finch if one.path == recording], tmp_path / "one.txt", format
        )
        reading = read_annotations(tmp_path / "one.txt")
        assert reading.format == format
        back += [replace(one, path=recording) for one in reading.annotations]
    assert facts(back) == facts(finch)


def test_400_damaged_files_end_in_a_reading_or_in_an_error_that_says_where(tmp_path: Path) -> None:
    ends = set()
    for seed, raw in damaged(400, SEEDS):
        path = put(tmp_path, Seed(seed.format, seed.name, raw))
        for format in (seed.format, "auto"):
            outcome = try_to_read(path, format)
            assert outcome.seconds < LIMIT_S
            ends.add(outcome.reading is None)
    assert ends == {True, False}


def test_damage_is_the_same_each_time() -> None:
    assert damaged(30, SEEDS) == damaged(30, SEEDS)


def test_without_crowsetta_its_formats_say_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("crowsetta", "crowsetta.formats"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it then fails
    (tmp_path / "a.phn").write_text("0 5 a\n")
    with pytest.raises(InputError, match=r"a\.phn: .*pip install 'callshot\[annotations\]'"):
        read_annotations(tmp_path / "a.phn")
    (tmp_path / "a.txt").write_text("0\t5\ta\n")
    assert len(read_annotations(tmp_path / "a.txt").annotations) == 1
