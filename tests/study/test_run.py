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

from callshot.errors import InputError, OptionError, OutputError
from callshot.study.plan import plan
from callshot.study.run import run_study, step_statuses
from callshot.study.study_file import read_study
from sounds import record_badly
from studies import make_corpus, write_linear, write_study

ALL = [
    "segment here",
    "embed here mfcc",
    "embed here random",
    "fold here",
    "evaluate here mfcc",
    "evaluate here random",
    "report",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that has run once; tests work on copies of its folder."""
    folder = tmp_path_factory.mktemp("finished") / "folder"
    make_corpus(folder / "recordings")
    run_study(read_study(write_study(folder / "study.toml")))
    return folder


@pytest.fixture
def folder(finished: Path) -> Path:
    """Return the folder of the finished study, as it was; recordings stay where they are, as their times count."""
    saved = finished.with_name("saved")
    if not saved.exists():
        shutil.copytree(finished, saved)
    for path in sorted(finished.rglob("*"), reverse=True):
        if path.suffix != ".wav" and (path.is_file() or not any(path.iterdir())):
            path.unlink() if path.is_file() else path.rmdir()
    shutil.copytree(saved, finished, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.wav"))
    return finished


def run(folder: Path) -> list[str]:
    return [step.name for step in run_study(read_study(folder / "study.toml"))]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()
    }


def test_a_study_leaves_everything_that_a_paper_needs(folder: Path) -> None:
    names = set(contents(folder / "results"))
    assert {
        "report.html",
        "provenance.json",
        "here/curve.csv",
        "here/budget.csv",
        "here/differences.csv",
    } <= names
    assert {
        "tables/results-here.tex",
        "tables/results-here.md",
        "tables/corpora.csv",
        "tables/tables.tex",
    } <= names
    curve = pl.read_csv(folder / "results" / "here" / "curve.csv")
    assert set(curve["encoder"]) == {"mfcc", "random"}
    assert set(curve["corpus"]) == {"here"}


def test_a_second_run_does_nothing(folder: Path) -> None:
    before = contents(folder / "results")
    assert run(folder) == []
    assert contents(folder / "results") == before
    assert [
        one.state
        for one in step_statuses(
            read_study(folder / "study.toml"), plan(read_study(folder / "study.toml"))
        )
    ] == ["done"] * 7


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


def test_an_annotation_that_says_the_same_in_other_words_redoes_the_reading_alone(
    folder: Path,
) -> None:
    change(folder / "recordings" / "r0.txt", "0.000000\t", "0.0\t")
    assert run(folder) == ["segment here"]


def test_a_recording_that_is_touched_is_read_again_and_gives_the_same(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    write_study(tmp_path / "study.toml")
    assert run(tmp_path) == ALL
    os.utime(tmp_path / "recordings" / "r0.wav", ns=(0, 0))
    assert run(tmp_path) == ["segment here", "embed here mfcc", "embed here random"]


def test_a_recording_that_is_replaced_gives_other_numbers(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    write_study(tmp_path / "study.toml", encoders=("mfcc",))
    run(tmp_path)
    before = (tmp_path / "results" / "here" / "curve.csv").read_bytes()
    make_corpus(tmp_path / "others", seed=7)
    for n in range(6):
        shutil.copy(tmp_path / "others" / f"r{n}.wav", tmp_path / "recordings" / f"r{n}.wav")
    assert run(tmp_path) == ["segment here", "embed here mfcc", "evaluate here mfcc", "report"]
    assert (tmp_path / "results" / "here" / "curve.csv").read_bytes() != before


EVALUATED = ["evaluate here mfcc", "evaluate here random", "report"]


@pytest.mark.parametrize(
    ("old", "new", "ran"),
    [
        ("folds = 3", "folds = 3\nmin_length_s = 1.1", ["segment here", "report"]),
        ("folds = 3", "folds = 3\ncollar_s = 0.05", ALL),
        ("folds = 3", "folds = 3\nformat = 'audacity'", ["segment here", "report"]),
        ("folds = 3", "folds = 3\nannotations = 'recordings'", ["segment here", "report"]),
        ("folds = 3", "folds = 2", ["fold here", *EVALUATED]),
        ("folds = 3", "folds = 3\nfold_file = 'given.csv'", ["fold here", *EVALUATED]),
        ("folds = 3", "folds = 3\ncategories = 'groups.csv'", EVALUATED),
        ("draws = 5", "draws = 6", EVALUATED),
        ('title = "a small study"', 'title = "another"', ["report"]),
        (
            '"random"',
            '"random"\ndimension = 8',
            ["embed here random[dimension=8]", "evaluate here random[dimension=8]", "report"],
        ),
        ('store = "store"', 'store = "kept"', ["report"]),
    ],
)
def test_a_changed_line_redoes_what_depends_on_it_and_nothing_else(
    folder: Path, old: str, new: str, ran: list[str]
) -> None:
    names = [f"r{n}.wav" for n in range(6)]
    (folder / "given.csv").write_text(
        "recording,fold\n" + "".join(f"{name},{n % 3}\n" for n, name in enumerate(names))
    )
    (folder / "groups.csv").write_text("label,category\nrumble,low\nroar,low\ntrumpet,high\n")
    change(folder / "study.toml", old, new)
    assert run(folder) == ran


def test_a_changed_sidecar_redoes_what_reads_it(folder: Path) -> None:
    (folder / "groups.csv").write_text("label,category\nrumble,low\nroar,low\ntrumpet,high\n")
    change(folder / "study.toml", "folds = 3", "folds = 3\ncategories = 'groups.csv'")
    run(folder)
    change(folder / "groups.csv", "roar,low", "roar,high")
    assert run(folder) == EVALUATED


def test_results_in_or_around_the_recordings_hide_no_change(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    path = write_study(tmp_path / "study.toml", encoders=("mfcc",))
    change(path, 'out = "results"', 'out = "."')
    run(tmp_path)
    change(tmp_path / "recordings" / "r0.txt", "roar", "rumble")
    assert "segment here" in run(tmp_path)


def test_a_model_that_is_replaced_is_run_anew(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    make_corpus(tmp_path / "recordings")
    for n in range(2):
        write_linear(tmp_path / f"{n}.onnx", samples=8000, dimension=4, seed=n)
    shutil.copy(tmp_path / "0.onnx", tmp_path / "mine.onnx")
    choices = '"onnx:mine.onnx"\nrate_hz = 16000\nwindow_s = 0.5\ndimension = 4'
    path = write_study(tmp_path / "study.toml", encoders=("mfcc",))
    change(path, '"mfcc"', choices)
    run(tmp_path)
    shutil.copy(tmp_path / "1.onnx", tmp_path / "mine.onnx")
    assert run(tmp_path) == ["embed here onnx:mine.onnx", "evaluate here onnx:mine.onnx", "report"]


def test_a_study_that_was_moved_reads_the_recordings_where_they_are_now(tmp_path: Path) -> None:
    make_corpus(tmp_path / "a" / "recordings")
    write_study(tmp_path / "a" / "study.toml", encoders=("mfcc",))
    run(tmp_path / "a")
    shutil.move(tmp_path / "a", tmp_path / "b")
    make_corpus(tmp_path / "a" / "recordings", seed=9)  # others, at the old place
    change(tmp_path / "b" / "study.toml", '"mfcc"', '"mfcc"\n\n[[encoder]]\nname = "random"')
    run(tmp_path / "b")
    fresh = tmp_path / "fresh"
    shutil.copytree(tmp_path / "b" / "recordings", fresh / "recordings")
    write_study(fresh / "study.toml")
    run(fresh)
    curves = [
        (place / "results" / "here" / "curve.csv").read_bytes() for place in (tmp_path / "b", fresh)
    ]
    assert curves[0] == curves[1]


def test_sidecars_among_the_recordings_are_no_annotations(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "recordings")
    (folder / "given.csv").write_text(
        "recording,fold\n" + "".join(f"r{n}.wav,{n % 3}\n" for n in range(6))
    )
    path = write_study(
        folder / "study.toml", {"here": "."}, encoders=("mfcc",), more='fold_file = "given.csv"\n'
    )
    run(folder)
    assert (folder / "results" / "here" / "rejects.csv").read_text() == "file,row,reason\n"
    assert path.exists()


def test_two_studies_do_not_take_each_others_results_away(folder: Path) -> None:
    shutil.copy(folder / "study.toml", folder / "other.toml")
    with pytest.raises(OutputError, match=r"the study study\.toml"):
        run_study(read_study(folder / "other.toml"))
    assert run(folder) == []


def test_a_gpu_is_for_those_that_can_use_one(folder: Path) -> None:
    assert run_study(read_study(folder / "study.toml"), device="cuda") == []


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("folds = 3", "folds = 3\ncategories = 'bad.csv'", r"\[corpus.here\]: .*bad.csv: column"),
        ("folds = 3", "folds = 3\nfold_file = 'bad.csv'", r"\[corpus.here\]: .*bad.csv: column"),
        (
            "folds = 3",
            "folds = 3\nrate_hz = 8000",
            r"\[corpus.here\]: .*mfcc wants 16000; .* with rate_hz = 16000",
        ),
        ("[report]", "[rivals]\nreferences = 'bad.csv'\n[report]", r"bad.csv: column"),
        ('out = "results"', 'out = "bad.csv"', r"bad.csv is not a directory"),
        ('store = "store"', 'store = "bad.csv"', r"bad.csv: cannot store embeddings there"),
    ],
)
def test_what_cannot_come_to_an_end_does_not_begin(
    tmp_path: Path, old: str, new: str, match: str
) -> None:
    make_corpus(tmp_path / "recordings")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    change(write_study(tmp_path / "study.toml"), old, new)
    with pytest.raises((InputError, OptionError, OutputError), match=match):
        run(tmp_path)
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


def test_a_device_that_is_none_is_told_at_once(folder: Path) -> None:
    with pytest.raises(OptionError, match="device: one of cpu, cuda, got 'gpu'"):
        run_study(read_study(folder / "study.toml"), device="gpu")


def test_damaged_segments_are_made_anew(folder: Path) -> None:
    path = folder / ".callshot" / "study" / "segment" / "here" / "segments.parquet"
    path.write_bytes(path.read_bytes()[:100])
    shutil.rmtree(folder / ".callshot" / "study" / "embed" / "here" / "mfcc")
    study = read_study(folder / "study.toml")
    assert [one.state for one in step_statuses(study, plan(study))] == ["to run"] + ["waits"] * 6
    assert run(folder) == ["segment here", "embed here mfcc"]


def test_shares_of_the_work_add_up_to_one(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    shares: list[float] = []
    study = read_study(write_study(tmp_path / "study.toml"))
    run_study(study, progress=lambda share, what: shares.append(share))
    assert sum(shares) == pytest.approx(1.0)


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


def test_a_study_in_the_folder_of_its_recordings_does_not_read_its_own_results(
    tmp_path: Path,
) -> None:
    folder = make_corpus(tmp_path / "recordings")
    write_study(folder / "study.toml", {"here": "."}, encoders=("mfcc",))
    assert len(run(folder)) == 5
    assert run(folder) == []


def test_a_recording_that_cannot_be_read_is_a_reject_and_the_study_goes_on(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path / "recordings")
    record_badly(folder / "r5.wav", "text")
    write_study(tmp_path / "study.toml", encoders=("mfcc",))
    run(tmp_path)
    rejects = (tmp_path / "results" / "here" / "rejects.csv").read_text()
    assert rejects.count("r5.txt") == 3
    assert pl.read_csv(tmp_path / "results" / "here" / "folds.csv").height == 15


KILL = """
import os, signal, sys
from pathlib import Path
from callshot.study import steps
from callshot.study.study_file import read_study
from callshot.study.run import run_study
kind, moment = sys.argv[2:]
whole, seal = steps.Step.run, step_cache._replace

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
    [
        ("segment", "during"),
        ("embed", "during"),
        ("embed", "after"),
        ("fold", "after"),
        ("evaluate", "during"),
        ("report", "during"),
        ("report", "after"),
    ],
)
def test_killed_in_any_step_and_run_again_the_outcome_is_the_same(
    folder: Path, kind: str, moment: str
) -> None:
    whole = contents(folder / "results")
    for name in ("results", ".callshot", "store"):
        shutil.rmtree(folder / name)
    child = subprocess.run(
        [sys.executable, "-c", KILL, str(folder / "study.toml"), kind, moment], check=False
    )
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


def test_a_corpus_without_an_eligible_class_is_refused_before_its_audio_is_read(
    tmp_path: Path,
) -> None:
    for n, label in enumerate(("rumble", "roar", "bark", "trumpet")):
        make_corpus(tmp_path / f"x{n}", recordings=1, labels=(label,))
        for suffix in ("wav", "txt"):
            (tmp_path / "recordings").mkdir(exist_ok=True)
            shutil.move(
                tmp_path / f"x{n}" / f"r0.{suffix}", tmp_path / "recordings" / f"{label}.{suffix}"
            )
    write_study(tmp_path / "study.toml")
    with pytest.raises(
        InputError,
        match=r"\[corpus.here\]: no eligible class: at least two .*in 1 recording, and 3 folds",
    ):
        run(tmp_path)
    assert not (tmp_path / ".callshot" / "study" / "segment" / "here" / "segments.parquet").exists()


def test_a_corpus_without_a_long_enough_call_is_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    write_study(tmp_path / "study.toml", more="min_length_s = 9.0\n")
    with pytest.raises(
        InputError,
        match=r"\[corpus.here\]: no annotation of .* became a segment; the first reason of 18",
    ):
        run(tmp_path)


def test_a_corpus_of_which_no_audio_can_be_read_is_told_with_the_reason(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings")
    write_study(tmp_path / "study.toml", more="channel = 2\n")
    with pytest.raises(
        InputError, match=r"\[corpus.here\]: no segment is left; the first reason: .*channel"
    ):
        run(tmp_path)


def test_fewer_recordings_than_folds_are_refused(tmp_path: Path) -> None:
    make_corpus(tmp_path / "recordings", recordings=2)
    write_study(tmp_path / "study.toml")
    with pytest.raises(
        InputError, match=r"\[corpus.here\]: 2 recordings with calls are too few .*set folds = 2"
    ):
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
