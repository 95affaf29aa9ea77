"""Errors of a command begin with the option as it is typed, those of Python with the parameter."""

import pytest

import callshot
from callshot.errors import OptionError
from sounds import record
from test_cli import run

COMMANDS = {
    "--collar-s": "segment audio --out o --collar-s -1",
    "--folds": "inspect audio --folds 1",
    "--columns": "segment audio --out o -c label",
    "--add": "learn --add nothing -e mfcc --out m.npz",
    "--set padding": "index audio -e mfcc --window 1 --set padding=foo --out i",
    "--max-hz": "scan m.npz audio --max-hz 500 --out o",
    "COMMAND": "batch slurm -- model m.npz",
}


def test_an_error_of_a_command_begins_with_the_option_as_typed(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "audio" / "roar" / "a.wav", seconds=2)
    for option, words in COMMANDS.items():
        run(*words.split(), code=2)
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith(f"callshot: {option}: ")


@pytest.mark.parametrize(
    ("option", "words"),
    {
        "--clips": "scan m.npz audio --out o --clips",
        "--max-hz": "scan m.npz audio --max-hz --out o",
        "--out": "convert events.csv --to raven --out --quiet",
        "--encoder": "learn audio --out m.npz -e",
    }.items(),
)
def test_an_option_without_its_value_is_named_and_nothing_is_done(
    option, words, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.csv").write_text("recording,start_s,end_s,label\na.wav,0,1,x\n")
    run(*words.split(), code=2)
    assert capsys.readouterr().err.startswith(f"callshot: {option}: give a value")
    assert [path.name for path in tmp_path.iterdir()] == ["events.csv"]


def test_words_that_are_no_options_may_look_like_some(capsys):
    run("batch", "slurm", "--", "scan", "m.npz", "--out")
    assert "callshot scan m.npz --out " in capsys.readouterr().out


def test_options_of_segments_and_of_recordings_are_told_apart(capsys):
    labelling = ("scan", "m.npz", "--segments", "s.parquet", "--out", "o")
    for words in ("--best 1", "--gap 0", "--follow-links", "--cluster local:1"):
        run(*labelling, *words.split(), code=2)
        option = words.partition(" ")[0]
        error = capsys.readouterr().err
        assert f"callshot: {option}: cannot be combined with --segments" in error
    for option in ("--audio", "--store"):
        run("scan", "m.npz", "audio", option, "folder", "--out", "o", code=2)
        error = capsys.readouterr().err
        assert f"callshot: {option}: only for --segments; remove it" in error


def test_a_file_that_is_called_like_an_option_is_not_taken_for_it(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audio").mkdir()
    run("segment", "audio", "--out", "o", code=2)
    assert capsys.readouterr().err.startswith("callshot: audio: ")


def test_an_error_of_a_function_begins_with_the_parameter(tmp_path):
    with pytest.raises(OptionError, match=r"^collar_s: "):
        callshot.segment(tmp_path, collar_s=-1)
