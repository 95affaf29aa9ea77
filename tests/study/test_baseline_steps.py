"""Baselines in a study: what is trained, what is not trained again, and what is in the results."""

import shutil
import sys

import polars as pl
import pytest

from callshot.errors import InputError
from callshot.study.plan import plan
from callshot.study.report_step import join_references
from callshot.study.run import describe_outcome
from callshot.study.study_file import read_study
from corpus_results import make_baselines
from studies import CATEGORIES, make_corpus, replace_text, run_steps, write_study

TRAINING = '\n[baselines]\ntrain = ["logistic"]\nper_k = true\ndraws = 4\n'
ALL_LABELS_STEPS = ["logistic here mfcc", "logistic here random"]
PER_K_STEPS = ["logistic-per-k here mfcc", "logistic-per-k here random"]
TRAINING_STEPS = [*ALL_LABELS_STEPS, *PER_K_STEPS]
EVALUATION_STEPS = ["evaluate here mfcc", "evaluate here random"]


def make_study(folder, baselines=TRAINING, classifiers='"cosine"'):
    """Write a study with baselines and a second classifier, and its recordings."""
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml")
    replace_text(path, "seed = 3", f"seed = 3\nclassifiers = [{classifiers}]")
    path.write_text(path.read_text(encoding="utf-8") + baselines, encoding="utf-8")
    return path


def training_steps(study):
    """Run a study; return the names of the training steps that ran."""
    return [name for name in run_steps(study) if name.startswith("logistic")]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The file of a study with baselines that has run once."""
    path = make_study(tmp_path_factory.mktemp("baselines") / "folder")
    assert training_steps(path) == TRAINING_STEPS
    shutil.copytree(path.parent, path.parent.with_name("saved"))
    return path


@pytest.fixture
def study(finished):
    """The file of the finished study, restored; recordings stay in place, as their times count."""
    folder = finished.parent
    saved = folder.with_name("saved")
    for name in ("results", ".callshot", "store"):
        shutil.rmtree(folder / name)
    shutil.copytree(
        saved, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.wav")
    )
    return finished


def results_folder(study):
    return study.parent / "results" / "here"


def test_scores_curves_crossovers_and_refinement_are_in_the_results(study):
    folder = results_folder(study)
    baselines = pl.read_csv(folder / "baselines.csv")
    assert set(baselines["name"]) == {"LR"}
    assert set(baselines["encoder"]) == {"mfcc", "random"}
    assert baselines["how"].str.starts_with("C").all()
    assert (baselines["p01"] <= baselines["value"]).all()
    assert (baselines["value"] <= baselines["p99"]).all()
    curve = pl.read_csv(folder / "curve.csv")
    assert set(curve["classifier"]) == {"centroid", "cosine", "logistic"}
    values = pl.read_parquet(folder / "values.parquet").filter(classifier="logistic")
    assert set(values["spread"]) == {"shared", "total"}
    assert values["index"].max() == 3
    crossovers = pl.read_csv(folder / "crossovers.csv")
    keys = crossovers.select("baseline", "labels").rows()
    assert set(keys) == {("LR", "all"), ("logistic", "k")}
    refinement = pl.read_csv(folder / "refinement.csv").filter(
        encoder="mfcc", metric="map"
    )
    trained = baselines.filter(encoder="mfcc", metric="map")["value"].item()
    assert refinement["step"][0] == 0
    assert refinement["value"][-1] == pytest.approx(trained, abs=0.02)


CHANGES = {
    "draws = 3": PER_K_STEPS,
    "draws = 4\nC = 0.5": TRAINING_STEPS,
    'shots = "1-2"': [*EVALUATION_STEPS, *PER_K_STEPS],
    'classifiers = ["medoid"]': EVALUATION_STEPS,
    "bootstraps = 21": EVALUATION_STEPS,
    "permutations = 0": EVALUATION_STEPS,
    "permutations = 9\nrepeat_folds = 2": EVALUATION_STEPS,
    "seed = 4": [*EVALUATION_STEPS, *TRAINING_STEPS],
    "total_samples = 7": [*EVALUATION_STEPS, *TRAINING_STEPS],
    "draws = 4\nnetworks = 2": [],
    "folds = 2": ["fold here"],
}


def test_a_changed_line_trains_only_what_depends_on_it(study):
    assert run_steps(study) == []
    text = study.read_text(encoding="utf-8")
    for line, steps in CHANGES.items():
        key = line.partition("=")[0]
        old = [one for one in text.splitlines() if one.startswith(key)][-1]
        before, _, after = text.rpartition(old)
        study.write_text(before + line + after, encoding="utf-8")
        planned = plan(read_study(study))
        stale = [step.name for step in planned if not step.is_done()]
        assert stale == [*steps, "report"], line


def test_the_outcome_of_a_training_step_has_its_scores_and_c(study):
    steps = {step.name: step for step in plan(read_study(study))}
    (line,) = describe_outcome(steps["logistic here mfcc"])
    assert line.startswith("LR: mAP ")
    assert "; C" in line


def test_networks_that_cannot_be_trained_are_an_error_before_any_audio_is_read(
    tmp_path, monkeypatch
):
    study = make_study(tmp_path, '\n[baselines]\ntrain = ["recurrent"]\n')
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        with pytest.raises(InputError, match=r"pip install 'callshot\[baselines\]'"):
            run_steps(study)
    # torch may not be installed
    monkeypatch.setattr("callshot.study.run.check_trainable", lambda *_: None)
    replace_text(study, "folds = 3", "folds = 2")
    for n in range(2, 6):
        replace_text(tmp_path / "recordings" / f"r{n}.txt", "trumpet", "roar")
    message = "recurrent: needs 2 exemplars .* 'trumpet' has 1; use more folds"
    with pytest.raises(InputError, match=message):
        run_steps(study)
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


def test_with_categories_logistic_regression_has_a_reduced_score(tmp_path):
    study = make_study(tmp_path)
    categories = tmp_path / "categories.csv"
    categories.write_text(CATEGORIES)
    replace_text(study, "folds = 3", "folds = 3\ncategories = 'categories.csv'")
    run_steps(study)
    folder = results_folder(study)
    curve = pl.read_csv(folder / "curve.csv").filter(classifier="logistic")
    assert set(curve["scoring"]) == {"all", "reduced"}
    for name in ("baselines.csv", "refinement.csv"):
        assert set(pl.read_csv(folder / name)["scoring"]) == {"all", "reduced"}
    replace_text(categories, "roar,low", "roar,high")
    planned = plan(read_study(study))
    stale = [step.name for step in planned if not step.is_done()]
    assert stale == [*EVALUATION_STEPS, *TRAINING_STEPS]


def test_a_reference_with_the_name_of_a_trained_baseline_is_marked_as_a_reference():
    row = ("here", "mfcc", "logistic", "LR", "all", "map", 0.5, "C: 1")
    other = ("here", "mfcc", "logistic", "SVM", "all", "map", 0.6, "")
    references = make_baselines((*row[:6], 0.6, ""), other)
    baselines = join_references(make_baselines(row), references)
    assert baselines["name"].to_list() == ["LR", "LR (reference)", "SVM"]
