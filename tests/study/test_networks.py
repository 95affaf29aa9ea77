"""Networks in a study: trained once, told by name, and kept through a kill."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from callshot.errors import InputError
from callshot.study.study_file import read_study
from callshot.study.plan import plan
from callshot.study.run import run_study
from callshot.study.step_summary import describe_outcome
from studies import make_corpus, write_study

pytest.importorskip("torch", reason="torch is not here: make test-torch")

BASELINES = '\n[rivals]\ntrain = ["recurrent"]\ncell = "gru"\nseeds = 1\n'
KILLER = """
import os, signal, sys
from pathlib import Path
from callshot.baselines import checkpoints
from callshot.errors import InputError
from callshot.study.study_file import read_study
from callshot.study.run import run_study
save, times = checkpoints.Shelf.save_checkpoint, []
def dying(self, checkpoint):
    save(self, checkpoint)
    times.append(1)
    if len(times) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
checkpoints.Shelf.save_checkpoint = dying
run_study(read_study(Path(sys.argv[1])), threads=1)
"""


def begin(folder: Path, baselines: str = BASELINES) -> Path:
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml", encoders=("mfcc",))
    path.write_text(path.read_text(encoding="utf-8") + baselines, encoding="utf-8")
    return path


def weights(folder: Path) -> dict[str, bytes]:
    kept = folder / ".callshot" / "study" / "networks"
    return {
        path.name: path.read_bytes()
        for path in kept.rglob("*.safetensors")
        if "checkpoint" not in path.name
    }


def test_recurrent_networks_reach_the_results_and_are_trained_once(tmp_path: Path) -> None:
    path = begin(tmp_path)
    ran = [step.name for step in run_study(read_study(path))]
    assert ran == [
        "segment here",
        "sequence here mfcc",
        "embed here mfcc",
        "fold here",
        "evaluate here mfcc",
        "recurrent here mfcc",
        "report",
    ]
    baselines = pl.read_csv(tmp_path / "results" / "here" / "rivals.csv")
    assert set(baselines["name"]) == {"GRU"}
    assert baselines["how"][0].startswith("GRU; 2")
    steps = {step.kind: step for step in plan(read_study(path))}
    assert describe_outcome(steps["recurrent"])[0].startswith("GRU: mAP ")
    before = weights(tmp_path)
    assert len(before) == 3
    shutil.rmtree(tmp_path / ".callshot" / "study" / "recurrent")
    assert [step.name for step in run_study(read_study(path))] == ["recurrent here mfcc"]
    assert weights(tmp_path) == before
    assert pl.read_csv(tmp_path / "results" / "here" / "rivals.csv").equals(baselines)


def test_a_study_that_is_killed_in_training_ends_in_the_same_weights(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_study(read_study(begin(whole)))
    path = begin(killed)
    for moment in ("3", "2"):
        done = subprocess.run(
            [sys.executable, "-c", KILLER, str(path), moment], env=os.environ, check=False
        )
        assert done.returncode == -signal.SIGKILL
    run_study(read_study(path))
    assert weights(killed) == weights(whole)
    name = Path("results") / "here" / "rivals.csv"
    assert (killed / name).read_bytes() == (whole / name).read_bytes()


def test_the_end_to_end_rival_hears_the_study_and_stands_in_the_reduced_scoring(
    tmp_path: Path,
) -> None:
    path = begin(tmp_path, '\n[rivals]\ntrain = ["end-to-end"]\n')
    (tmp_path / "groups.csv").write_text("label,category\nrumble,low\nroar,low\ntrumpet,high\n")
    path.write_text(
        path.read_text(encoding="utf-8").replace(
            "folds = 3", 'folds = 3\ncategories = "groups.csv"'
        )
    )
    ran = [step.name for step in run_study(read_study(path))]
    assert ran[-2:] == ["end-to-end here", "report"]
    baselines = pl.read_csv(tmp_path / "results" / "here" / "rivals.csv")
    assert set(baselines["scoring"]) == {"reduced"}
    assert baselines["encoder"].is_null().all()
    assert baselines["how"][0].startswith("from scratch; ")
    table = (tmp_path / "results" / "tables" / "reduced-here.md").read_text(encoding="utf-8")
    assert "AST-seq" in table
    assert [step.name for step in run_study(read_study(path))] == []


def test_weights_of_something_else_are_refused_before_any_audio_is_read(tmp_path: Path) -> None:
    path = begin(tmp_path, '\n[rivals]\ntrain = ["end-to-end"]\ninit = "other.pt"\n')
    (tmp_path / "other.pt").write_bytes(
        b"cos\nsystem\n(S'true'\ntR."
    )  # a pickle that would run a command
    with pytest.raises(InputError, match="cannot be read as weights alone"):
        run_study(read_study(path))
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()
