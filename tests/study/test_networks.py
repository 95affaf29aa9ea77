"""Networks in a study are trained once and named in the results.

Trainings are cut to a few epochs: how well networks learn is a matter of the tests of baselines.
"""

import shutil

import polars as pl
import pytest

from callshot.errors import InputError
from callshot.study.plan import plan
from callshot.study.run import describe_outcome
from callshot.study.study_file import read_study
from networks import short_training
from studies import CATEGORIES, make_corpus, replace_text, run_steps, write_study

pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)

RECURRENT = '\n[baselines]\ntrain = ["recurrent"]\ncell = "gru"\nnetworks = 1\n'
END_TO_END = '\n[baselines]\ntrain = ["end-to-end"]\n'
RECURRENT_STEPS = [
    "segment here",
    "sequence here mfcc",
    "embed here mfcc",
    "fold here",
    "evaluate here mfcc",
    "recurrent here mfcc",
    "report",
]


@pytest.fixture(scope="module", autouse=True)
def few_epochs():
    with short_training():
        yield


def make_study(folder, baselines=RECURRENT):
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml", encoders=("mfcc",))
    path.write_text(path.read_text(encoding="utf-8") + baselines, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The file of a study with recurrent networks that has run once."""
    path = make_study(tmp_path_factory.mktemp("networks") / "folder")
    assert run_steps(path) == RECURRENT_STEPS
    return path


def network_weights(study):
    networks = study.parent / ".callshot" / "study" / "networks"
    paths = networks.rglob("*[0-9a-f].safetensors")
    return {path.name: path.read_bytes() for path in paths}


def baselines_path(study):
    return study.parent / "results" / "here" / "baselines.csv"


def test_recurrent_networks_are_in_the_results_and_are_trained_once(finished):
    baselines = pl.read_csv(baselines_path(finished))
    assert set(baselines["name"]) == {"GRU"}
    assert baselines["how"][0].startswith("GRU; 2")
    steps = {step.kind: step for step in plan(read_study(finished))}
    assert describe_outcome(steps["recurrent"])[0].startswith("GRU: mAP ")
    before = network_weights(finished)
    assert len(before) == 3
    shutil.rmtree(finished.parent / ".callshot" / "study" / "recurrent")
    assert run_steps(finished) == ["recurrent here mfcc"]
    assert network_weights(finished) == before
    assert pl.read_csv(baselines_path(finished)).equals(baselines)


def test_with_categories_the_end_to_end_baseline_is_in_the_reduced_scoring_alone(
    tmp_path,
):
    study = make_study(tmp_path, END_TO_END)
    (tmp_path / "categories.csv").write_text(CATEGORIES)
    replace_text(study, "folds = 3", 'folds = 3\ncategories = "categories.csv"')
    assert run_steps(study)[-2:] == ["end-to-end here", "report"]
    baselines = pl.read_csv(baselines_path(study))
    assert set(baselines["scoring"]) == {"reduced"}
    assert set(baselines["encoder"]) == {""}
    assert baselines["how"][0].startswith("from scratch; ")
    table = tmp_path / "results" / "tables" / "reduced-here.md"
    assert "AST-seq" in table.read_text(encoding="utf-8")
    assert run_steps(study) == []


def test_a_weight_file_that_could_run_code_is_an_error_before_any_audio_is_read(
    tmp_path,
):
    study = make_study(tmp_path, f'{END_TO_END}init = "other.pt"\n')
    pickle = b"cos\nsystem\n(S'true'\ntR."  # would run a command
    (tmp_path / "other.pt").write_bytes(pickle)
    with pytest.raises(InputError, match="expected weights of AST or BEATs"):
        run_steps(study)
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()
