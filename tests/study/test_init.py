"""The study that `callshot init` writes runs as it is."""

import shutil
import tomllib
from pathlib import Path

import pytest

from callshot.corpus.annotations import Hints
from callshot.corpus.inspection import inspect_corpus
from callshot.corpus.known_corpora import find_corpus
from callshot.errors import InputError, OptionError
from callshot.study.init import Given, write_study
from callshot.study.study_file import read_study
from studies import make_corpus

SHARED = Path(__file__).parents[3] / "shared" / "data"


def begin(folder: Path, audio: Path, annotations: Path | None = None, **more) -> Path:
    path, given = folder / "study.toml", Given(audio, annotations, **more)
    found = inspect_corpus(
        audio, annotations, format=given.format, hints=given.hints, corpus=given.corpus
    )
    write_study(path, found, given)
    return path


def test_it_reads_back_as_what_was_found(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "my recordings")
    study = read_study(begin(tmp_path, audio))
    assert [(c.name, c.audio, c.folds) for c in study.corpora] == [("my-recordings", audio, 5)]
    assert study.corpora[0].rule.min_length_s == 1.0
    assert "mfcc" in [e.name for e in study.encoders]
    assert "random" in [e.name for e in study.encoders]
    assert study.protocol.shots == tuple(range(1, 41))


def test_short_calls_set_the_minimum_and_the_file_says_so(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    for track in audio.glob("*.txt"):
        track.write_text("0.1\t0.35\trumble\n1.3\t1.55\troar\n")
    path = begin(tmp_path, audio)
    assert read_study(path).corpora[0].rule.min_length_s == 0.2
    assert "the paper's 1 s would reject 12 of 12 calls" in path.read_text(encoding="utf-8")


def test_few_recordings_set_fewer_folds_and_the_file_says_so(tmp_path: Path) -> None:
    path = begin(tmp_path, make_corpus(tmp_path / "recordings", recordings=3))
    assert read_study(path).corpora[0].folds == 3
    assert (
        "folds = 3                       # 5 would leave 0 call types to evaluate, 3 leave 3"
        in path.read_text()
    )


def test_what_was_said_of_annotations_is_kept(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    tables = tmp_path / 'the "tables"'
    tables.mkdir()
    for track in audio.glob("*.txt"):
        shutil.move(track, tables / track.name)
    rows = "".join(
        f"r{n}.wav,{1.2 * i},{1.2 * i + 1.2},{name}\n"
        for n in range(6)
        for i, name in enumerate("abc")
    )
    (tables / "calls.csv").write_text("path,start_s,end_s,Art \\ Spezies\n" + rows)
    path = begin(tmp_path, audio, tables, format="csv", hints=Hints({"label": "Art \\ Spezies"}))
    corpus = read_study(path).corpora[0]
    assert (corpus.annotations, corpus.format) == (tables, "csv")
    assert corpus.hints.columns == {"label": "Art \\ Spezies"}


def test_a_known_corpus_brings_its_rule(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    corpus = read_study(begin(tmp_path, audio, corpus=find_corpus("ldc2010s05"))).corpora[0]
    assert (corpus.name, corpus.rule.collar_s, corpus.folds) == ("ldc2010s05", 0.25, None)


def test_a_study_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    begin(tmp_path, audio)
    with pytest.raises(
        OptionError, match="is there already; remove it, or name another with --out"
    ):
        begin(tmp_path, audio)


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    for track in audio.glob("*.txt"):
        track.unlink()
    with pytest.raises(InputError):
        begin(tmp_path, audio)


def test_one_recording_of_each_type_is_refused_rather_than_written(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings", recordings=3)
    for n, label in enumerate("abc"):
        (audio / f"r{n}.txt").write_text(f"0\t1.2\t{label}\n")
    with pytest.raises(InputError, match="of 3 call types, 0 are in two recordings or more"):
        begin(tmp_path, audio)
    assert not (tmp_path / "study.toml").exists()


def test_every_commented_line_is_right_when_uncommented(tmp_path: Path) -> None:
    audio = make_corpus(tmp_path / "recordings")
    text = begin(tmp_path, audio).read_text(encoding="utf-8")
    for name in ("selection-tables", "categories.csv", "rivals.csv"):
        (tmp_path / name).touch()
    lines = [
        line.removeprefix("# ")
        if " = " in line or "[rivals]" in line or "[report]" in line
        else line
        for line in text.splitlines()
        if "[[encoder]]" not in line and "name = " not in line
    ]
    whole = "\n".join(lines) + '\n[[encoder]]\nname = "mfcc"\n'
    tomllib.loads(whole)
    (tmp_path / "study.toml").write_text(whole, encoding="utf-8")
    study = read_study(tmp_path / "study.toml")
    assert study.corpora[0].rule.collar_s == 0.25
    assert study.references == tmp_path / "rivals.csv"


@pytest.mark.parametrize(("name", "min_length_s"), [("elephants", 1.0), ("finch", 0.02)])
def test_real_recordings_begin_a_study(tmp_path: Path, name: str, min_length_s: float) -> None:
    if not (SHARED / name).exists():
        pytest.skip(
            f"needs the recordings in ../shared/data/{name}, which are not part of callshot"
        )
    assert read_study(begin(tmp_path, SHARED / name)).corpora[0].rule.min_length_s == min_length_s
