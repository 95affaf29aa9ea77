"""What cannot be written is refused before anything is read: no input of these commands exists."""

import numpy as np
import pytest

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
    "score": ("score missing.csv --out OUT", "scores.csv"),
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


@pytest.mark.parametrize("name", FILE)
def test_a_file_of_others_is_not_replaced(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suffix = FILE[name].rpartition("OUT")[2]
    mine = tmp_path / f"mine{suffix}"
    mine.write_text("mine")
    try_command(FILE[name], tmp_path / "mine")
    said = capsys.readouterr().err
    assert f"mine{suffix}: " in said
    assert "exists" in said
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", FOLDER)
def test_a_file_of_others_in_a_folder_is_not_replaced(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words, file = FOLDER[name]
    mine = tmp_path / "out" / file
    mine.parent.mkdir()
    mine.write_text("mine")
    try_command(words, tmp_path / "out")
    said = capsys.readouterr().err
    assert f"{tmp_path / 'out'}" in said
    assert mine.read_text() == "mine"
    assert [path.name for path in mine.parent.iterdir()] == [file]


@pytest.mark.parametrize("name", [*FILE, *FOLDER])
def test_a_place_that_cannot_be_written_to_is_refused_first(
    name, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("in the way")
    words = FILE[name] if name in FILE else FOLDER[name][0]
    try_command(words, tmp_path / "file" / "out")
    said = capsys.readouterr().err
    assert str(tmp_path / "file") in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "suffix", [".rejects.csv", ".duplicates.csv", ".sequences.parquet"]
)
def test_files_of_others_beside_a_table_are_not_replaced(suffix, tmp_path, capsys):
    mine = tmp_path / f"table{suffix}"
    mine.write_text("mine")
    try_command(f"{FILE['embed']} --sequence", tmp_path / "table")
    assert f"table{suffix}: exists" in capsys.readouterr().err
    assert mine.read_text() == "mine"


def test_a_file_of_others_among_clips_is_found_before_the_scan(tmp_path, capsys):
    mine = tmp_path / "out" / "clips" / "clips.csv"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    try_command("scan missing.npz missing --clips 3 --out OUT", tmp_path / "out")
    assert "clips.csv exists and was not written by callshot" in capsys.readouterr().err
    assert mine.read_text() == "mine"


def test_an_array_of_others_is_not_replaced_by_a_model(tmp_path, capsys):
    mine = tmp_path / "mine.npz"
    np.savez(mine, np.zeros(3))
    before = mine.read_bytes()
    try_command(FILE["learn"], tmp_path / "mine")
    assert "is no model that callshot wrote" in capsys.readouterr().err
    assert mine.read_bytes() == before
