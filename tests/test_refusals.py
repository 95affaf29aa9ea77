"""What cannot be written is refused before anything is read: no input of these commands exists."""

from itertools import cycle

import numpy as np
import polars as pl
import pytest

from callshot.detection import (
    activity,
    clips,
    exports,
    scan_files,
    score,
)
from callshot.errors import OutputError
from callshot.files import WORK_FOLDER, check_own_folder
from callshot.results import open_output_folder
from callshot.study import file_steps
from callshot.tables import evaluation_files, fold_files
from studies import make_corpus, replace_text, write_study
from test_cli import run

FILE = {
    "embed": "embed missing.parquet -e mfcc --out OUT.parquet",
    "import": "import missing.npy --out OUT.parquet",
    "learn": "learn missing -e mfcc --out OUT.npz",
    "export": "export missing.npz --onnx OUT.onnx",
    "find": "find missing.wav missing --out OUT.csv",
    "init": "init missing --out OUT.toml",
}
FOLDER = {
    "segment": ("segment missing --out OUT", "segments.parquet"),
    "evaluate": ("evaluate missing.parquet --out OUT", "curve.csv"),
    "baselines": ("baselines missing.parquet --out OUT", "baselines.csv"),
    "index": ("index missing -e mfcc --window 1 --out OUT", "rejects.csv"),
    "index, index.json": ("index missing -e mfcc --window 1 --out OUT", "index.json"),
    "scan": ("scan missing.npz missing --out OUT", "events.csv"),
    "scan --segments": (
        "scan missing.npz --segments missing.parquet --out OUT",
        "labels.csv",
    ),
    "evaluate --queries": (
        "evaluate missing.parquet --queries missing.parquet --out OUT",
        "curve.csv",
    ),
    "score": ("score missing.csv missing --out OUT", "scores.csv"),
    "convert": ("convert missing.csv --to csv --out OUT", "export.json"),
    "convert --clips": (
        "convert missing.csv --to csv --recordings missing --clips 1 --out OUT",
        "export.json",
    ),
    "coverage": ("encoders coverage missing.parquet --out OUT", "band-coverage.csv"),
    "synth": ("synth OUT", "mine.txt"),
    "synth --soundscape": ("synth OUT --soundscape", "mine.txt"),
}


def try_command(words, out):
    run(*words.replace("OUT", str(out)).split(), code=2)


def test_files_of_others_are_not_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in FILE.values():
        suffix = words.rpartition("OUT")[2]
        mine = tmp_path / f"mine{suffix}"
        mine.write_text("mine")
        try_command(words, tmp_path / "mine")
        said = capsys.readouterr().err
        assert f"mine{suffix}: " in said
        assert "exists" in said
        assert mine.read_text() == "mine"
    for suffix in (".rejects.csv", ".duplicates.csv", ".sequences.parquet"):
        mine = tmp_path / f"table{suffix}"
        mine.write_text("mine")
        try_command(f"{FILE['embed']} --sequence", tmp_path / "table")
        assert f"table{suffix}: exists" in capsys.readouterr().err
        assert mine.read_text() == "mine"
        mine.unlink()


def test_arrays_and_tables_of_others_are_not_replaced(tmp_path, capsys):
    array = tmp_path / "mine.npz"
    np.savez(array, np.zeros(3))
    table = tmp_path / "mine.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(table)
    for path, name, kind in ((array, "learn", "model"), (table, "import", "table")):
        before = path.read_bytes()
        try_command(FILE[name], tmp_path / "mine")
        assert f"is no {kind} that callshot wrote" in capsys.readouterr().err
        assert path.read_bytes() == before


def test_a_file_of_others_in_a_folder_is_not_replaced(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, (words, file) in enumerate(FOLDER.values()):
        mine = tmp_path / f"out{number}" / file
        mine.parent.mkdir()
        mine.write_text("mine")
        try_command(words, mine.parent)
        assert str(mine.parent) in capsys.readouterr().err
        assert mine.read_text() == "mine"
        assert [path.name for path in mine.parent.iterdir()] == [file]


def test_a_place_that_cannot_be_written_to_is_refused_first(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    for words in (*FILE.values(), *(words for words, _ in FOLDER.values())):
        try_command(words, tmp_path / "file" / "out")
        said = capsys.readouterr().err
        assert str(tmp_path / "file") in said
        assert len(said.splitlines()) == 1


def test_a_file_of_others_among_clips_is_found_before_the_scan(tmp_path, capsys):
    write_results(tmp_path / "out", scan_files.SCAN_FACTS)
    mine = tmp_path / "out" / "clips" / "clips.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    try_command("scan missing.npz missing --clips 3 --out OUT", tmp_path / "out")
    assert "clips.csv exists and was not written by callshot" in capsys.readouterr().err
    assert mine.read_text() == "mine"


# Folders of others


COMMANDS = {name: words for name, (words, _) in FOLDER.items()}
COMMANDS["review"] = "review missing --out OUT"
COMMANDS["label"] = "label missing --out OUT"
RESULTS = [name for name in COMMANDS if not name.startswith("synth")]


def list_tree(folder):
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    return [path for path in paths if path.parts[0] != WORK_FOLDER]


def test_a_folder_with_files_of_others_is_refused(tmp_path, monkeypatch, capsys):
    (tmp_path / "work").mkdir()
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/notes.txt").write_text("mine")
    (tmp_path / "out/provenance.json").write_text('{"who": "another program"}')
    monkeypatch.chdir(tmp_path / "work")
    before = list_tree(tmp_path)
    places = cycle(["..", "../out", "../out/deep/.."])
    for words, place in zip(COMMANDS.values(), places, strict=False):
        try_command(words, place)
        said = capsys.readouterr().err
        assert said.startswith(f"callshot: {place}: ")
        assert "new folder" in said
        assert len(said.splitlines()) == 1
        assert list_tree(tmp_path) == before


def test_an_empty_folder_and_a_folder_with_results_take_results(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(RESULTS):
        empty = tmp_path / f"empty{number}"
        empty.mkdir()
        (empty / ".DS_Store").write_text("of a program that shows folders")
        full = tmp_path / f"full{number}"
        write_results(full, "band-coverage.json")
        (full / "notes.txt").write_text("mine")
        for out in (empty, full):
            try_command(COMMANDS[name], out.name)
            assert "missing" in capsys.readouterr().err  # the input
        assert (full / "notes.txt").read_text() == "mine"


def write_results(folder, provenance):
    with open_output_folder(folder, [], provenance) as output:

        def make(staging):
            (staging / "result.txt").write_text("a result")
            return ["result.txt"]

        output.write(make, {})


@pytest.mark.parametrize(
    "provenance",
    [
        evaluation_files.PROVENANCE,
        score.PROVENANCE,
        scan_files.SCAN_FACTS,
        activity.PROVENANCE,
        clips.PROVENANCE,
        file_steps.COVERAGE_PROVENANCE,
        exports.MANIFEST,
        file_steps.SEGMENTS_INFO,
        fold_files.FOLDS_INFO,
    ],
)
def test_results_of_every_kind_are_known_by_their_provenance(provenance, tmp_path):
    write_results(tmp_path, provenance)
    check_own_folder(tmp_path)
    (tmp_path / provenance).unlink()
    with pytest.raises(OutputError, match=r"has result\.txt, not written by callshot"):
        check_own_folder(tmp_path)


def test_a_folder_that_a_killed_run_left_takes_its_results(tmp_path):
    (tmp_path / ".callshot-unfinished").mkdir()
    (tmp_path / ".lock").touch()
    (tmp_path / ".index.12-0123abcd.part.json").touch()
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks/recurrent-0123456789abcdef.safetensors").touch()
    (tmp_path / "index").mkdir()
    (tmp_path / "index/index.json").write_text('{"fingerprint": {}}')
    (tmp_path / "clips/.callshot-unfinished").mkdir(parents=True)
    check_own_folder(tmp_path)
    (tmp_path / "clips/mine.wav").touch()
    with pytest.raises(OutputError, match="has clips, not written by callshot"):
        check_own_folder(tmp_path)


def test_a_study_is_not_run_into_a_folder_of_others(tmp_path, capsys):
    make_corpus(tmp_path / "recordings", recordings=3)
    study = write_study(tmp_path / "study.toml")
    replace_text(study, 'out = "results"', 'out = "."')
    before = list_tree(tmp_path)
    run("run", study, code=2)
    assert "name a new folder" in capsys.readouterr().err
    assert list_tree(tmp_path) == before
