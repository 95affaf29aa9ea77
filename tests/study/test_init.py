"""`callshot init`: it writes a study file that runs as it is."""

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from callshot.corpus.options import CORPORA, make_annotation_options
from callshot.corpus.segment_table import inspect_corpus
from callshot.encoders.catalogue import ENCODERS
from callshot.errors import InputError, OptionError
from callshot.study.study_file import read_study, write_study
from studies import make_corpus

SHARED = Path(__file__).parents[3] / "shared" / "data"


def init_study(folder, audio, annotations=None, format="auto", corpus=None, **keys):
    path = folder / "study.toml"
    source: Any = {"annotations": annotations, "format": format, "corpus": corpus}
    annotation_options = make_annotation_options(**keys)
    inspection = inspect_corpus(audio, **source, annotation_options=annotation_options)
    write_study(path, inspection, audio, **source, **keys)
    return path


def test_the_written_study_names_the_corpus_encoders_and_shots(tmp_path):
    audio = make_corpus(tmp_path / "my recordings")
    study = read_study(init_study(tmp_path, audio))
    (corpus,) = study.corpora
    assert (corpus.name, corpus.audio, corpus.folds) == ("my-recordings", audio, 5)
    assert corpus.reading["options"].min_length_s == 0.0
    assert {"mfcc", "random"} <= {encoder.name for encoder in study.encoders}
    for spec in ENCODERS:
        is_again = spec.name == "birdnet-v2.4-onnx"  # the model of birdnet-v2.4
        assert is_again or f'name = "{spec.name}"' in study.text
    assert study.protocol.shots == tuple(range(1, 41))


def test_short_calls_are_used_and_a_comment_counts_what_the_paper_would_leave_out(
    tmp_path,
):
    audio = make_corpus(tmp_path / "recordings")
    for track in audio.glob("*.txt"):
        track.write_text("0.1\t0.35\trumble\n1.3\t1.55\troar\n")
    path = init_study(tmp_path, audio)
    assert read_study(path).corpora[0].reading["options"].min_length_s == 0.0
    assert "12 of 12 calls" in path.read_text(encoding="utf-8")


def test_few_recordings_lower_the_folds_and_a_comment_gives_the_reason(tmp_path):
    path = init_study(tmp_path, make_corpus(tmp_path / "recordings", recordings=3))
    assert read_study(path).corpora[0].folds == 3
    reason = "5 would leave 0 call types to evaluate, 3 leave 3"
    assert f"folds = 3                       # {reason}" in path.read_text(
        encoding="utf-8"
    )


def test_annotation_options_are_written_to_the_study(tmp_path):
    audio = make_corpus(tmp_path / "recordings")
    tables = tmp_path / 'the "tables"'
    tables.mkdir()
    for track in audio.glob("*.txt"):
        shutil.move(track, tables / track.name)
    lines = ["path,start_s,end_s,Art \\ Spezies"]
    for number in range(6):
        for position, label in enumerate("abc"):
            start_s = 1.2 * position
            lines.append(f"r{number}.wav,{start_s},{start_s + 1.2},{label}")
    (tables / "calls.csv").write_text("\n".join(lines) + "\n")
    columns = {"label": "Art \\ Spezies"}
    path = init_study(tmp_path, audio, tables, "csv", columns=columns)
    corpus = read_study(path).corpora[0]
    assert (corpus.reading["annotations"], corpus.reading["format"]) == (tables, "csv")
    assert corpus.reading["annotation_options"].columns == {"label": "Art \\ Spezies"}


def test_a_known_corpus_brings_its_name_and_collar(tmp_path):
    audio = make_corpus(tmp_path / "recordings")
    path = init_study(tmp_path, audio, corpus=CORPORA["ldc2010s05"])
    corpus = read_study(path).corpora[0]
    assert (corpus.name, corpus.folds) == ("ldc2010s05", None)
    assert corpus.reading["options"].collar_s == 0.25


def test_an_existing_study_is_not_replaced(tmp_path):
    audio = make_corpus(tmp_path / "recordings")
    init_study(tmp_path, audio)
    with pytest.raises(
        OptionError, match="already exists; remove it, or choose another name"
    ):
        init_study(tmp_path, audio)


def test_call_types_in_one_recording_each_are_an_error_and_no_study_is_written(
    tmp_path,
):
    audio = make_corpus(tmp_path / "recordings", recordings=3)
    for number, label in enumerate("abc"):
        (audio / f"r{number}.txt").write_text(f"0\t1.2\t{label}\n")
    with pytest.raises(
        InputError, match="only 0 of 3 call types are in two recordings or more"
    ):
        init_study(tmp_path, audio)
    assert not (tmp_path / "study.toml").exists()


def uncomment(line):
    """Return a line of a study without the mark of a comment, where the comment is a key."""
    is_key = " = " in line or line.startswith("# [report]")
    return line.removeprefix("# ") if is_key else line


def test_every_commented_key_is_valid_when_uncommented(tmp_path):
    path = init_study(tmp_path, make_corpus(tmp_path / "recordings"))
    for name in ("selection-tables", "categories.csv", "baselines.csv"):
        (tmp_path / name).touch()
    lines = path.read_text(encoding="utf-8").splitlines()
    # Without the encoders, some of which need weights.
    keys = ("[[encoder]]", "name = ", "pooling = ", "speed = ")
    lines = [line for line in lines if not any(key in line for key in keys)]
    text = (
        "\n".join(uncomment(line) for line in lines) + '\n[[encoder]]\nname = "mfcc"\n'
    )
    tomllib.loads(text)
    path.write_text(text, encoding="utf-8")
    study = read_study(path)
    assert study.corpora[0].reading["options"].collar_s == 0.25
    assert study.references == tmp_path / "baselines.csv"
    assert study.report.target == 0.8
