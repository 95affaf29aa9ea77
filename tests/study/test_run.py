"""Running a study: what has to run does, what need not does not, and a killed run goes on."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from callshot.errors import InputError, OutputError
from callshot.study.file import read_study
from callshot.study.plan import plan
from callshot.study.run import run_study, stand
from sounds import spoil
from studies import make_corpus, write_study

ALL = [
    "segment here", "embed here mfcc", "embed here random", "fold here", "evaluate here mfcc", "evaluate here random",
    "report",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that has run once; tests work on copies of its folder."""
    folder = tmp_path_factory.mktemp("finished") / "folder"
    make_corpus(folder / "recordings")
    run_study(read_study(write_study(folder / "study.toml")))
    return folder


@pytest.fixture
def folder(finished: Path) -> Path:
    """Return the folder of the finished study, as it was: the same place, since places are part of what is kept."""
    saved = finished.with_name("saved")
    if not saved.exists():
        shutil.copytree(finished, saved)
    shutil.rmtree(finished)
    shutil.copytree(saved, finished)
    return finished


def run(folder: Path) -> list[str]:
    return [step.name for step in run_study(read_study(folder / "study.toml"))]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_study_leaves_everything_that_a_paper_needs(folder: Path) -> None:
    names = set(contents(folder / "results"))
    assert {"report.html", "provenance.json", "here/curve.csv", "here/budget.csv", "here/differences.csv"} <= names
    assert {"tables/results-here.tex", "tables/results-here.md", "tables/corpora.csv", "tables/tables.tex"} <= names
    curve = pl.read_csv(folder / "results" / "here" / "curve.csv")
    assert set(curve["encoder"]) == {"mfcc", "random"}
    assert set(curve["corpus"]) == {"here"}


def test_a_second_run_does_nothing(folder: Path) -> None:
    before = contents(folder / "results")
    assert run(folder) == []
    assert contents(folder / "results") == before
    assert [one.state for one in stand(read_study(folder / "study.toml"), plan(read_study(folder / "study.toml")))] == [
        "done"
    ] * 7


def test_another_seed_redoes_the_evaluation_and_the_report(folder: Path) -> None:
    change(folder / "study.toml", "seed = 3", "seed = 4")
    assert run(folder) == ["evaluate here mfcc", "evaluate here random", "report"]


def test_another_encoder_costs_its_own_steps_alone(folder: Path) -> None:
    change(
        folder / "study.toml",
        '[[encoder]]\nname = "random"',
        '[[encoder]]\nname = "mfcc"\nn_fft = 512\n\n[[encoder]]\nname = "random"',
    )
    assert run(folder) == ["embed here mfcc[n_fft=512]", "evaluate here mfcc[n_fft=512]", "report"]
    assert pl.read_csv(folder / "results" / "here" / "curve.csv")["encoder"].n_unique() == 3


def test_a_changed_label_redoes_what_depends_on_it_and_encodes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callshot.encoders import encode

    monkeypatch.setattr(encode.Encoder, "encode", lambda *_: pytest.fail("encoded again"))
    change(folder / "recordings" / "r0.txt", "roar", "rumble")
    assert run(folder) == ALL


def test_an_annotation_that_says_the_same_in_other_words_redoes_the_reading_alone(folder: Path) -> None:
    change(folder / "recordings" / "r0.txt", "0.000000\t", "0.0\t")
    assert run(folder) == ["segment here"]


def test_a_recording_that_is_touched_is_read_again_and_gives_the_same(folder: Path) -> None:
    os.utime(folder / "recordings" / "r0.wav", ns=(0, 0))
    assert run(folder) == ["segment here", "embed here mfcc", "embed here random"]


def test_tables_at_other_shots_redo_the_report(folder: Path) -> None:
    change(folder / "study.toml", "figures = false", "figures = false\nshots = [1, 2]")
    assert run(folder) == ["report"]


def test_an_outcome_that_was_lost_is_made_again(folder: Path) -> None:
    (folder / "results" / "report.html").unlink()
    assert run(folder) == ["report"]
    (folder / ".callshot" / "study" / "fold" / "here" / "folds.csv").unlink()
    assert run(folder) == ["fold here"]


def test_a_corpus_that_changes_leaves_the_other_alone(tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_corpus(tmp_path / name, seed=len(name))
    write_study(tmp_path / "study.toml", {"a": "one", "b": "two"}, encoders=("mfcc",))
    assert len(run(tmp_path)) == 9
    change(tmp_path / "two" / "r0.txt", "roar", "rumble")
    assert run(tmp_path) == ["segment b", "embed b mfcc", "fold b", "evaluate b mfcc", "report"]


def test_a_study_in_the_folder_of_its_recordings_does_not_read_its_own_results(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "recordings")
    write_study(folder / "study.toml", {"here": "."}, encoders=("mfcc",))
    assert len(run(folder)) == 5
    assert run(folder) == []


def test_a_recording_that_cannot_be_read_is_a_reject_and_the_study_goes_on(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "recordings")
    spoil(folder / "r5.wav", "text")
    write_study(tmp_path / "study.toml", encoders=("mfcc",))
    run(tmp_path)
    rejects = (tmp_path / "results" / "here" / "rejects.csv").read_text()
    assert rejects.count("r5.txt") == 3
    assert pl.read_csv(tmp_path / "results" / "here" / "folds.csv").height == 15


KILL = """
import os, signal, sys
from pathlib import Path
from callshot.study import steps
from callshot.study.file import read_study
from callshot.study.run import run_study
kind, moment = sys.argv[2:]
whole, seal = steps.Step.run, steps._replace

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def run(self, report):
    if self.kind == kind and moment == "before":
        die()
    def hear(share, what):
        report(share, what)
        if self.kind == kind and moment == "during":
            die()
    def note(path, text):
        if self.kind == kind and moment == "after":
            die()
        seal(path, text)
    steps._replace = note
    whole(self, hear)

steps.Step.run = run
run_study(read_study(Path(sys.argv[1])))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
@pytest.mark.parametrize(
    ("kind", "moment"),
    [("segment", "during"), ("embed", "during"), ("embed", "after"), ("fold", "after"), ("evaluate", "during"),
     ("report", "during"), ("report", "after")],
)  # fmt: skip
def test_killed_in_any_step_and_run_again_the_outcome_is_the_same(folder: Path, kind: str, moment: str) -> None:
    whole = contents(folder / "results")
    for name in ("results", ".callshot", "store"):
        shutil.rmtree(folder / name)
    child = subprocess.run([sys.executable, "-c", KILL, str(folder / "study.toml"), kind, moment], check=False)
    assert child.returncode == -signal.SIGKILL
    begun = next(n for n, name in enumerate(ALL) if name.startswith(kind))
    assert run(folder) == ALL[begun:]
    assert contents(folder / "results") == whole


def test_two_runs_at_once_do_not_mix(folder: Path) -> None:
    fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
    with (folder / ".callshot" / "study" / "lock").open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OutputError, match="another run of this study is at work"):
            run(folder)


def test_a_corpus_without_an_eligible_class_is_refused_before_its_audio_is_read(tmp_path: Path) -> None:
    for n, label in enumerate(("rumble", "roar", "bark", "trumpet")):
        make_corpus(tmp_path / f"x{n}", recordings=1, labels=(label,))
        for suffix in ("wav", "txt"):
            (tmp_path / "recordings").mkdir(exist_ok=True)
            shutil.move(tmp_path / f"x{n}" / f"r0.{suffix}", tmp_path / "recordings" / f"{label}.{suffix}")
    write_study(tmp_path / "study.toml")
    with pytest.raises(
        InputError, match=r"\[corpus.here\]: no eligible class: two at least .*in 1 recording, and 3 folds"
    ):
        run(tmp_path)
    assert not (tmp_path / ".callshot" / "study" / "segment" / "here" / "segments.parquet").exists()


def test_a_corpus_without_a_long_enough_call_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    write_study(tmp_path / "study.toml", more="min_length_s = 9.0\n")
    with pytest.raises(
        InputError, match=r"\[corpus.here\]: no annotation of .* became a segment; the first reason of 18"
    ):
        run(tmp_path)


def test_fewer_recordings_than_folds_are_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings", recordings=2)
    write_study(tmp_path / "study.toml")
    with pytest.raises(InputError, match=r"\[corpus.here\]: 2 recordings with calls are too few .*set folds = 2"):
        run(tmp_path)


def test_the_provenance_tells_the_study_and_every_number_can_be_traced(folder: Path) -> None:
    told = json.loads((folder / "results" / "provenance.json").read_text(encoding="utf-8"))
    assert told["study"] == (folder / "study.toml").read_text(encoding="utf-8")
    assert {step["inputs"][0]["encoder"] for step in told["steps"]} == {"mfcc", "random"}
    assert set(told["files"]) == set(contents(folder / "results")) - {"provenance.json"}


def test_references_become_rivals_of_tables_and_sentences(folder: Path) -> None:
    (folder / "rivals.csv").write_text("encoder,kind,name,metric,value\nmfcc,logistic,LR,map,0.1\n")
    change(folder / "study.toml", "[report]", '[rivals]\nreferences = "rivals.csv"\n\n[report]')
    assert run(folder) == ["report"]
    assert "LR" in (folder / "results" / "tables" / "results-here.md").read_text(encoding="utf-8")
