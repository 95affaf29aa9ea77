"""Networks in a study are trained once, named in the results, and resumed after a kill."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from callshot.errors import InputError
from callshot.study.plan import plan
from callshot.study.run import run_study
from callshot.study.step_summary import describe_outcome
from callshot.study.study_file import read_study
from studies import make_corpus, write_study

pytest.importorskip("torch", reason="torch is not installed: pip install 'callshot[baselines]'")

RECURRENT = '\n[baselines]\ntrain = ["recurrent"]\ncell = "gru"\nseeds = 1\n'
END_TO_END = '\n[baselines]\ntrain = ["end-to-end"]\n'
CHILD = """
import os, signal, sys
from pathlib import Path
from callshot.baselines.checkpoints import CheckpointStore
from callshot.study.study_file import read_study
from callshot.study.run import run_study

save = CheckpointStore.save
saved = []

def save_and_die(self, checkpoint, tensors):
    save(self, checkpoint, tensors)
    saved.append(checkpoint)
    if len(saved) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

CheckpointStore.save = save_and_die
run_study(read_study(Path(sys.argv[1])), threads=1)
"""


def make_study(folder: Path, baselines: str = RECURRENT) -> Path:
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml", encoders=("mfcc",))
    path.write_text(path.read_text(encoding="utf-8") + baselines, encoding="utf-8")
    return path


def run_steps(path: Path) -> list[str]:
    """Run a study and return the names of the steps that ran."""
    return [step.name for step in run_study(read_study(path))]


def network_weights(folder: Path) -> dict[str, bytes]:
    networks = folder / ".callshot" / "study" / "networks"
    paths = networks.rglob("*.safetensors")
    return {path.name: path.read_bytes() for path in paths}


def baseline_table(folder: Path) -> Path:
    return folder / "results" / "here" / "rivals.csv"


def test_recurrent_networks_reach_the_results_and_are_trained_once(tmp_path: Path) -> None:
    path = make_study(tmp_path)
    assert run_steps(path) == [
        "segment here",
        "sequence here mfcc",
        "embed here mfcc",
        "fold here",
        "evaluate here mfcc",
        "recurrent here mfcc",
        "report",
    ]
    baselines = pl.read_csv(baseline_table(tmp_path))
    assert set(baselines["name"]) == {"GRU"}
    assert baselines["how"][0].startswith("GRU; 2")
    steps = {step.kind: step for step in plan(read_study(path))}
    assert describe_outcome(steps["recurrent"])[0].startswith("GRU: mAP ")
    before = network_weights(tmp_path)
    assert len(before) == 3
    shutil.rmtree(tmp_path / ".callshot" / "study" / "recurrent")
    assert run_steps(path) == ["recurrent here mfcc"]
    assert network_weights(tmp_path) == before
    assert pl.read_csv(baseline_table(tmp_path)).equals(baselines)


def test_a_study_that_is_killed_in_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    killed = tmp_path / "killed"
    run_study(read_study(make_study(whole)))
    path = make_study(killed)
    for checkpoints in ("3", "2"):
        command = [sys.executable, "-c", CHILD, str(path), checkpoints]
        child = subprocess.run(command, env=os.environ, check=False)
        assert child.returncode == -signal.SIGKILL
    run_study(read_study(path))
    assert network_weights(killed) == network_weights(whole)
    assert baseline_table(killed).read_bytes() == baseline_table(whole).read_bytes()


def test_the_end_to_end_baseline_is_in_the_reduced_scoring(tmp_path: Path) -> None:
    path = make_study(tmp_path, END_TO_END)
    (tmp_path / "groups.csv").write_text("label,category\nrumble,low\nroar,low\ntrumpet,high\n")
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("folds = 3", 'folds = 3\ncategories = "groups.csv"'))
    assert run_steps(path)[-2:] == ["end-to-end here", "report"]
    baselines = pl.read_csv(baseline_table(tmp_path))
    assert set(baselines["scoring"]) == {"reduced"}
    assert baselines["encoder"].is_null().all()
    assert baselines["how"][0].startswith("from scratch; ")
    table = (tmp_path / "results" / "tables" / "reduced-here.md").read_text(encoding="utf-8")
    assert "AST-seq" in table
    assert run_steps(path) == []


def test_other_weights_are_an_error_before_any_audio_is_read(tmp_path: Path) -> None:
    path = make_study(tmp_path, f'{END_TO_END}init = "other.pt"\n')
    pickle = b"cos\nsystem\n(S'true'\ntR."  # would run a command
    (tmp_path / "other.pt").write_bytes(pickle)
    with pytest.raises(InputError, match="cannot be read as weights alone"):
        run_study(read_study(path))
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()
