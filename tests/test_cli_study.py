"""init, run and status from the command line, as a person would use them."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from studies import make_corpus, replace_text, write_study
from test_cli import run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    make_corpus(tmp_path / "recordings")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    return tmp_path


def test_files_that_the_annotations_group_count_as_one_recording(tmp_path, capsys):
    lines = ["path,label,recording"]
    for number in range(6):
        sound = np.random.default_rng(number).normal(0, 0.1, 16000)
        soundfile.write(tmp_path / f"{number}.wav", sound, 16000)
        lines.append(f"{number}.wav,{'ab'[number % 2]},g{number // 2}")
    (tmp_path / "clips.csv").write_text("\n".join(lines))
    run("inspect", tmp_path)
    said = capsys.readouterr().out
    assert "6 of 6 files annotated" in said
    assert "6 files into 3 recordings" in said
    study = tmp_path / "study.toml"
    run("init", tmp_path, "--out", study)
    assert "a study of 6 calls in 3 recordings" in capsys.readouterr().out
    assert "6 calls of 2 types in 3 recordings" in study.read_text()


def test_init_and_run_alone_make_a_report(folder, capsys):
    run("init", "recordings", "--shots", "1-2")
    assert "study.toml: a study of 18 calls in 6 recordings" in capsys.readouterr().out
    shots = 'shots = "1-2"'
    replace_text(
        Path("study.toml"), shots, f"{shots}\nbootstraps = 50\nrepeat_samples = 2"
    )
    with Path("study.toml").open("a") as file:
        file.write("\n[report]\nfigures = false\n")
    run("run")
    said, errors = capsys.readouterr()
    assert "; encoders and networks run on the CPU" in errors
    (sources,) = folder.glob("results/*/sensitivity.csv")
    assert ",queries," in sources.read_text(encoding="utf-8")
    page = (folder / "results" / "report.html").read_text(encoding="utf-8")
    assert "Standard deviation of mAP at k = " in page
    assert re.search(r"evaluate \S+ mfcc: ", said)
    assert said.splitlines()[-1] == f"report: {folder / 'results' / 'report.html'}"
    encoder, training, call_type = said.splitlines()[-4:-1]
    assert encoder.startswith("Which encoder? MFCC")
    assert training.startswith("Is training worth it? ")
    assert call_type.startswith("Which call type needs examples most? ")
    assert re.search("With 2 examples per call type, MFCC reaches mAP", said)
    assert "MFCC names the right type" in said
    assert (folder / "results" / "report.html").exists()


def test_a_dry_run_tells_what_would_run_and_writes_nothing(folder, capsys):
    write_study(folder / "study.toml")
    run("run", "study.toml", "--dry-run")
    said = capsys.readouterr().out
    kinds = ["segment", "embed", "embed", "fold", "evaluate", "evaluate", "report"]
    assert [line.split()[0] for line in said.splitlines()[1:8]] == kinds
    assert "s of work left" in said
    assert not (folder / "results").exists()
    assert not (folder / ".callshot").exists()


def test_status_tells_what_is_done_and_what_is_not(folder, capsys):
    write_study(folder / "study.toml", encoders=("mfcc",))
    run("run", "study.toml", "--quiet")
    assert capsys.readouterr().out == ""
    run("run", "study.toml")
    assert capsys.readouterr().out.count("already done") == 5
    run("status", "study.toml")
    said = capsys.readouterr().out
    assert "everything is done" in said
    assert f"report: {folder / 'results' / 'report.html'}" in said
    text = (folder / "study.toml").read_text()
    (folder / "study.toml").write_text(text.replace("seed = 3", "seed = 4"))
    run("status", "study.toml")
    lines = capsys.readouterr().out.splitlines()[1:6]
    states = re.findall(r"done|to run|waiting", "\n".join(lines))
    assert states == ["done", "done", "done", "to run", "waiting"]
    assert all(line.endswith(" s") for line in lines)  # times stand at the right


def test_a_study_that_cannot_work_is_one_line_and_exit_code_2(folder, capsys):
    path = write_study(folder / "study.toml")
    path.write_text(path.read_text().replace("folds = 3", "folds = 7"))
    for words in (["run", path], ["run", path, "--dry-run"]):
        run(*words, code=2)
        said = capsys.readouterr().err.splitlines()
        assert len([line for line in said if line.startswith("callshot: ")]) == 1
        assert "[corpus.here]: 6 recordings with calls: too few" in said[-1]
    assert not (folder / "results").exists()
