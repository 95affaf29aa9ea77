"""Running a study: only what is missing or has changed runs, and a killed run resumes."""

import json
import os
import shutil

import polars as pl
import pytest

from callshot.encoders import encode
from callshot.errors import OutputError
from callshot.study.plan import plan
from callshot.study.run import run_study, step_statuses
from callshot.study.study_file import read_study
from callshot.tables.evaluation_files import read_results
from killed_runs import run_killed, run_until_step
from studies import (
    CATEGORIES,
    make_corpus,
    replace_text,
    run_steps,
    write_linear,
    write_study,
)

EVALUATION_STEPS = ["evaluate here mfcc", "evaluate here random", "report"]
ALL_STEPS = [
    "segment here",
    "embed here mfcc",
    "embed here random",
    "fold here",
    *EVALUATION_STEPS,
]
FOLD_FILE = "recording,fold\n" + "".join(f"r{n}.wav,{n % 3}\n" for n in range(6))


@pytest.fixture
def study(finished):
    """The file of the finished study, restored; recordings stay in place, as their times count."""
    folder = finished.parent
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path.suffix != ".wav":
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    saved = folder.with_name("saved")
    shutil.copytree(
        saved, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.wav")
    )
    return finished


def file_contents(folder):
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def make_study(folder):
    """Write a study with MFCC alone, and its recordings."""
    make_corpus(folder / "recordings")
    return write_study(folder / "study.toml", encoders=("mfcc",))


def curve_path(study):
    return study.parent / "results" / "here" / "curve.csv"


def test_a_study_writes_a_page_tables_and_all_numbers(study):
    names = set(file_contents(study.parent / "results"))
    assert {"report.html", "provenance.json"} <= names
    assert {"here/curve.csv", "here/budget.csv", "here/differences.csv"} <= names
    assert {"tables/results-here.tex", "tables/results-here.md"} <= names
    assert {"tables/corpora.csv", "tables/tables.tex"} <= names
    curve = pl.read_csv(curve_path(study))
    assert set(curve["encoder"]) == {"mfcc", "random"}
    assert set(curve["corpus"]) == {"here"}
    path = study.parent / "results" / "provenance.json"
    provenance = json.loads(path.read_text(encoding="utf-8"))
    assert provenance["study"] == study.read_text(encoding="utf-8")
    encoders = {step["inputs"][0]["encoder"] for step in provenance["steps"]}
    assert encoders == {"mfcc", "random"}
    assert set(provenance["files"]) == names - {"provenance.json"}


def test_a_second_run_does_nothing(study):
    before = file_contents(study.parent / "results")
    # The device does not matter to encoders without GPU support.
    assert run_study(read_study(study), device="cuda") == []
    assert run_steps(study) == []
    assert file_contents(study.parent / "results") == before
    content = read_study(study)
    states = [status.state for status in step_statuses(content, plan(content))]
    assert states == ["done"] * 7


def test_a_new_encoder_runs_its_own_steps_and_the_report(study):
    random = '[[encoder]]\nname = "random"'
    added = '[[encoder]]\nname = "mfcc"\nn_fft = 512\ntitle = "Cepstra, 40"'
    replace_text(study, random, f"{added}\n\n{random}")
    name = "Cepstra, 40"
    assert run_steps(study) == [f"embed here {name}", f"evaluate here {name}", "report"]
    encoders = set(pl.read_csv(curve_path(study))["encoder"])
    assert encoders == {"mfcc", name, "random"}
    assert run_steps(study) == []


def test_a_changed_label_runs_every_step_but_encodes_no_audio(study, monkeypatch):
    monkeypatch.setattr(
        encode.Encoder, "encode", lambda *_: pytest.fail("encoded again")
    )
    replace_text(study.parent / "recordings" / "r0.txt", "roar", "rumble")
    assert run_steps(study) == ALL_STEPS


def test_a_number_written_with_fewer_digits_changes_only_a_checksum_in_the_report(
    study,
):
    replace_text(study.parent / "recordings" / "r0.txt", "0.000000\t", "0.0\t")
    assert run_steps(study) == ["segment here", "report"]


def test_replaced_recordings_change_the_results_and_other_times_do_not(tmp_path):
    study = make_study(tmp_path)
    shares = []
    run_study(read_study(study), progress=lambda share, what: shares.append(share))
    assert sum(shares) == pytest.approx(1.0)
    before = curve_path(study).read_bytes()
    os.utime(tmp_path / "recordings" / "r0.wav", ns=(0, 0))
    steps = ["segment here", "embed here mfcc"]
    assert run_steps(study) == steps
    make_corpus(tmp_path / "others", seed=7)
    for path in (tmp_path / "others").glob("*.wav"):
        shutil.copy(path, tmp_path / "recordings" / path.name)
    assert run_steps(study) == [*steps, "evaluate here mfcc", "report"]
    assert curve_path(study).read_bytes() != before


def stale_steps(study):
    """Return the steps whose result does not belong to the study any more."""
    return [step.name for step in plan(read_study(study)) if not step.is_done()]


EVALUATIONS = EVALUATION_STEPS[:2]
MFCC = ["embed here mfcc[n_fft=512]", "evaluate here mfcc[n_fft=512]"]
CHANGES = {
    "folds = 3\nmin_length_s = 1.1": ["segment here"],
    "folds = 3\ncollar_s = 0.05": ["segment here"],
    "folds = 3\nformat = 'audacity'": ["segment here"],
    "folds = 3\nannotations = 'recordings'": ["segment here"],
    "folds = 2": ["fold here"],
    "folds = 3\nfold_file = 'folds.csv'": ["fold here"],
    "folds = 3\ncategories = 'categories.csv'": EVALUATIONS,
    "draws = 6": EVALUATIONS,
    "seed = 4": EVALUATIONS,
    'title = "another"': [],
    "figures = true": [],
    'name = "mfcc"\nn_fft = 512': MFCC,
    'store = "other"': [],
}


def test_a_changed_line_makes_stale_what_depends_on_it(study):
    (study.parent / "folds.csv").write_text(FOLD_FILE)
    (study.parent / "categories.csv").write_text(CATEGORIES)
    text = study.read_text()
    for line, steps in CHANGES.items():
        key = line.partition(" = ")[0]
        old = next(one for one in text.splitlines() if one.startswith(key))
        study.write_text(text.replace(old, line))
        assert stale_steps(study) == [*steps, "report"], line


def test_a_replaced_model_is_noticed(tmp_path):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    study = make_study(tmp_path)
    model = tmp_path / "model.onnx"
    write_linear(model, samples=8000, dimension=4, seed=0)
    choices = "rate_hz = 16000\nwindow_s = 0.5\ndimension = 4"
    replace_text(study, '"mfcc"', f'"onnx:model.onnx"\n{choices}')
    run_steps(study)
    write_linear(model, samples=8000, dimension=4, seed=1)
    assert stale_steps(study) == ["embed here onnx:model.onnx"]


def test_a_moved_study_reads_the_recordings_in_its_new_folder(study, tmp_path):
    old = tmp_path / "old"
    new = tmp_path / "new"
    run_steps(make_study(old))
    shutil.move(old, new)
    make_corpus(old / "recordings", seed=9)
    replace_text(new / "study.toml", '"mfcc"', '"mfcc"\n\n[[encoder]]\nname = "random"')
    run_steps(new / "study.toml")
    assert curve_path(new / "study.toml").read_bytes() == curve_path(study).read_bytes()


def test_a_study_among_its_recordings_reads_neither_its_folds_nor_its_results(tmp_path):
    folder = make_corpus(tmp_path / "recordings")
    (folder / "folds.csv").write_text(FOLD_FILE)
    keys = 'fold_file = "folds.csv"\n'
    study = write_study(folder / "study.toml", {"here": "."}, ("mfcc",), keys)
    assert len(run_steps(study)) == 5
    rejects = folder / "results" / "here" / "rejects.csv"
    assert rejects.read_text() == "file,row,reason\n"
    assert run_steps(study) == []


def test_damaged_segments_are_made_again(study):
    work = study.parent / ".callshot" / "study"
    segments = work / "segment" / "here" / "segments.parquet"
    segments.write_bytes(segments.read_bytes()[:100])
    shutil.rmtree(work / "embed" / "here" / "mfcc")
    content = read_study(study)
    states = [status.state for status in step_statuses(content, plan(content))]
    assert states == ["to run"] + ["waiting"] * 6
    assert run_steps(study) == ["segment here", "embed here mfcc"]


def test_lost_results_are_made_again(study):
    (study.parent / "results" / "report.html").unlink()
    assert run_steps(study) == ["report"]
    (study.parent / ".callshot" / "study" / "fold" / "here" / "folds.csv").unlink()
    assert run_steps(study) == ["fold here"]


def test_a_change_in_one_corpus_does_not_run_another(tmp_path):
    make_corpus(tmp_path / "one", recordings=3, seed=1)
    make_corpus(tmp_path / "two", recordings=3, seed=2)
    study = write_study(
        tmp_path / "study.toml", {"a": "one", "b": "two"}, encoders=("mfcc",)
    )
    assert len(run_steps(study)) == 9
    replace_text(tmp_path / "two" / "r0.txt", "roar", "rumble")
    steps = ["segment b", "embed b mfcc", "fold b", "evaluate b mfcc", "report"]
    assert run_steps(study) == steps


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_a_killed_run_resumes_at_the_same_step_and_gives_the_same_files(study):
    expected = file_contents(study.parent / "results")
    for name in ("results", ".callshot", "store"):
        shutil.rmtree(study.parent / name)
    run_killed(run_until_step, study, "embed", "during")
    assert run_steps(study) == ALL_STEPS[1:]
    assert file_contents(study.parent / "results") == expected


def test_a_second_run_at_the_same_time_is_an_error(study):
    fcntl = pytest.importorskip("fcntl", reason="this system has no such locks")
    with (study.parent / ".callshot" / "study" / "lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(
            OutputError, match="another run of this study is in progress"
        ):
            run_steps(study)


def test_reference_scores_are_in_the_tables(study):
    scores = "encoder,kind,name,metric,value\nmfcc,logistic,LR,map,0.1\n"
    (study.parent / "baselines.csv").write_text(scores)
    replace_text(
        study, "[report]", '[baselines]\nreferences = "baselines.csv"\n\n[report]'
    )
    assert run_steps(study) == ["report"]
    table = study.parent / "results" / "tables" / "results-here.md"
    assert "LR" in table.read_text(encoding="utf-8")


def test_recordings_with_the_same_audio_are_kept_together_if_the_study_says_so(
    tmp_path,
):
    folder = make_corpus(tmp_path / "recordings", recordings=9)
    for suffix in ("wav", "txt"):
        copy = (folder / f"r0.{suffix}").read_bytes()
        (folder / f"r8.{suffix}").write_bytes(copy)
    keys = "group_duplicates = true"
    study = write_study(tmp_path / "study.toml", encoders=("mfcc",), corpus_keys=keys)
    run_steps(study)
    provenance = json.loads((tmp_path / "results" / "provenance.json").read_text())
    assert provenance["licences"] == {"mfcc": "none needed"}
    work = tmp_path / ".callshot" / "study"
    folds = pl.read_csv(work / "fold" / "here" / "folds.csv")
    kept = folds.filter(recording="r0.wav and 1 more")
    assert kept["segment"].str.slice(0, 6).unique().sort().to_list() == [
        "r0.wav",
        "r8.wav",
    ]
    assert kept["fold"].n_unique() == 1
    results = read_results(work / "evaluate" / "here" / "mfcc")
    assert results.notes[0].startswith("2 recordings are kept together as 1")
    assert "r0.wav and 1 more" in results.segments["recording"]
    duplicates = work / "segment" / "here" / "duplicates.csv"
    assert duplicates.read_text().splitlines()[0] == "group,segment,recording,label"
    assert (work / "embed" / "here" / "mfcc" / "embeddings.duplicates.csv").exists()
    replace_text(study, "group_duplicates = true", "group_duplicates = false")
    assert "fold here" in run_steps(study)
    results = read_results(work / "evaluate" / "here" / "mfcc")
    assert results.duplicates["recording"].unique().sort().to_list() == [
        "r0.wav",
        "r8.wav",
    ]


def test_encoders_with_the_same_vectors_are_measured_once_and_both_are_named(tmp_path):
    make_corpus(tmp_path / "recordings")
    study = write_study(tmp_path / "study.toml")
    with study.open("a", encoding="utf-8") as file:
        file.write('\n[[encoder]]\nname = "mfcc"\ntitle = "twin"\n')
        file.write('\n[baselines]\ntrain = ["logistic"]\n')
    run_steps(study)
    results = tmp_path / "results"
    for name in ("curve.csv", "baselines.csv"):
        encoders = set(pl.read_csv(results / "here" / name)["encoder"])
        assert encoders == {"mfcc", "random"}
    differences = pl.read_csv(results / "here" / "differences.csv")
    assert "twin" not in {*differences["one"], *differences["other"]}
    note = "twin gives the same vectors as MFCC: both are measured once, as MFCC"
    assert note in (results / "report.html").read_text(encoding="utf-8")
    assert run_steps(study) == []
