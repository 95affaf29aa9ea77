"""Rivals in a study: what trains, what need not, and what reaches the results."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from callshot.errors import InputError, OptionError
from callshot.records import Baseline
from callshot.study.corpus_results import _rivals
from callshot.study.plan import plan
from callshot.study.run import run_study
from callshot.study.step_summary import describe_outcome
from callshot.study.study_file import read_study
from studies import make_corpus, write_study

BASELINES = '\n[rivals]\ntrain = ["logistic"]\nshots = true\ndraws = 4\n'
TRAINED = [
    "logistic here mfcc",
    "logistic here random",
    "logistic-shots here mfcc",
    "logistic-shots here random",
]


def begin(folder: Path, baselines: str = BASELINES, rules: str = '"cosine"') -> Path:
    """Make a corpus and a study with rivals and another rule."""
    make_corpus(folder / "recordings")
    path = write_study(folder / "study.toml")
    text = path.read_text(encoding="utf-8").replace(
        "seed = 3", f"seed = 3\nclassifiers = [{rules}]"
    )
    path.write_text(text + baselines, encoding="utf-8")
    return path


def run(folder: Path) -> list[str]:
    return [step.name for step in run_study(read_study(folder / "study.toml"))]


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with rivals that has run once."""
    folder = tmp_path_factory.mktemp("baselines") / "folder"
    begin(folder)
    assert [name for name in run(folder) if name.startswith("logistic")] == TRAINED
    return folder


@pytest.fixture
def folder(finished: Path) -> Path:
    """Return the folder of the finished study, with its file as it was."""
    kept = finished / "study.kept"
    if not kept.exists():
        shutil.copy(finished / "study.toml", kept)
    shutil.copy(kept, finished / "study.toml")
    run(finished)
    return finished


def test_every_number_of_the_rivals_is_in_the_results(folder: Path) -> None:
    here = folder / "results" / "here"
    baselines = pl.read_csv(here / "rivals.csv")
    assert set(baselines["name"]) == {"LR"}
    assert set(baselines["encoder"]) == {"mfcc", "random"}
    assert baselines["how"].str.starts_with("C").all()
    curve = pl.read_csv(here / "curve.csv")
    assert set(curve["classifier"]) == {"centroid", "cosine", "logistic"}
    at_k = pl.read_parquet(here / "values.parquet").filter(pl.col("classifier") == "logistic")
    assert set(at_k["spread"]) == {"shared"}
    assert at_k["index"].max() == 3
    crossovers = pl.read_csv(here / "crossings.csv")
    assert {("LR", "all"), ("logistic", "k")} == set(
        crossovers.select("baseline", "labels").iter_rows()
    )
    steps = pl.read_csv(here / "refinement.csv").filter(
        (pl.col("encoder") == "mfcc") & (pl.col("metric") == "map")
    )
    last = baselines.filter((pl.col("encoder") == "mfcc") & (pl.col("metric") == "map"))["value"][0]
    assert steps["step"][0] == 0
    assert steps["value"][-1] == pytest.approx(last, abs=0.02)


def test_the_centroid_has_the_numbers_that_it_has_without_rivals(
    folder: Path, tmp_path: Path
) -> None:
    begin(tmp_path, "", "")
    run(tmp_path)
    alone = pl.read_csv(tmp_path / "results" / "here" / "curve.csv")
    beside = pl.read_csv(folder / "results" / "here" / "curve.csv").filter(
        pl.col("classifier") == "centroid"
    )
    assert alone.equals(beside)


def test_a_second_run_trains_nothing(folder: Path) -> None:
    assert run(folder) == []


@pytest.mark.parametrize(
    ("old", "new", "ran"),
    [
        ("draws = 4", "draws = 3", [*TRAINED[2:], "report"]),
        ("draws = 4", "draws = 4\nstrength = 0.5", [*TRAINED, "report"]),
        (
            'shots = "1-3"',
            'shots = "1-2"',
            ["evaluate here mfcc", "evaluate here random", *TRAINED[2:], "report"],
        ),
        ('"cosine"', '"medoid"', ["evaluate here mfcc", "evaluate here random", "report"]),
        (
            "bootstraps = 20",
            "bootstraps = 21",
            ["evaluate here mfcc", "evaluate here random", "report"],
        ),
        ("seeds = 2", "seeds = 3", ["report"]),
    ],
)
def test_a_changed_line_trains_what_depends_on_it(
    folder: Path, old: str, new: str, ran: list[str]
) -> None:
    if old == "seeds = 2":
        change(folder / "study.toml", "draws = 4", "draws = 4\nseeds = 2")
        run(folder)
    change(folder / "study.toml", old, new)
    assert run(folder) == ran


def test_what_was_chosen_is_told_after_its_step(folder: Path) -> None:
    steps = {step.name: step for step in plan(read_study(folder / "study.toml"))}
    (told,) = describe_outcome(steps["logistic here mfcc"])
    assert told.startswith("LR: mAP ")
    assert "; C" in told


@pytest.mark.parametrize(
    ("baselines", "match"),
    [
        ('train = ["svm"]', r"\[rivals\] train: one of logistic, recurrent, end-to-end, got 'svm'"),
        ('train = ["logistic", "logistic"]', "twice"),
        ("train = [1]", r"\[rivals\] train: wanted names in quotes"),
        ('cell = "gpt"', "cell: one of chosen, paper"),
        ("draws = 0", "draws: 1 to 1000000, got 0"),
        ("strength = -1", "strength"),
        ('init = "no.pt"', "no.pt is not there"),
        ('trian = ["logistic"]', "did you mean train"),
        ('init = "study.toml"', "init: weights for the rival end-to-end, which is not asked for"),
    ],
)
def test_what_cannot_be_trained_is_refused_when_the_study_is_read(
    tmp_path: Path, baselines: str, match: str
) -> None:
    path = begin(tmp_path, f"\n[rivals]\n{baselines}\n")
    with pytest.raises((OptionError, InputError), match=match):
        read_study(path)


def test_rivals_at_every_k_on_draws_that_the_centroid_does_not_meet_are_refused(
    tmp_path: Path,
) -> None:
    path = begin(tmp_path)
    change(path, "seed = 3", 'seed = 3\nspread = "per-query"')
    with pytest.raises(
        OptionError, match=r"on the spread shared, and .protocol. spread has per-query alone"
    ):
        read_study(path)
    change(path, "draws = 4", 'draws = 4\nspread = "per-query"')
    assert read_study(path).training.spread == "per-query"


def test_networks_on_a_class_with_one_exemplar_are_refused_before_any_audio_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "callshot.study.run.refuse_training", lambda training, device: None
    )  # torch may be missing
    path = begin(tmp_path, '\n[rivals]\ntrain = ["recurrent"]\n')
    change(path, "folds = 3", "folds = 2")
    for n in range(2, 6):
        change(tmp_path / "recordings" / f"r{n}.txt", "trumpet", "roar")
    with pytest.raises(
        InputError, match=r"recurrent: needs 2 exemplars .* 'trumpet' can give 1; take more folds"
    ):
        run_study(read_study(path))
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


def test_with_categories_logistic_regression_has_a_reduced_score_too(tmp_path: Path) -> None:
    path = begin(tmp_path)
    (tmp_path / "groups.csv").write_text("label,category\nrumble,low\nroar,low\ntrumpet,high\n")
    change(path, "folds = 3", "folds = 3\ncategories = 'groups.csv'")
    run(tmp_path)
    here = tmp_path / "results" / "here"
    baselines, curve = pl.read_csv(here / "rivals.csv"), pl.read_csv(here / "curve.csv")
    assert set(baselines["scoring"]) == {"all", "reduced"}
    assert set(curve.filter(pl.col("classifier") == "logistic")["scoring"]) == {"all", "reduced"}
    assert set(pl.read_csv(here / "refinement.csv")["scoring"]) == {"all", "reduced"}
    change(tmp_path / "groups.csv", "roar,low", "roar,high")
    assert [name for name in run(tmp_path) if name.startswith("logistic")] == TRAINED


def test_another_seed_trains_at_every_k_anew_and_all_labels_not(folder: Path) -> None:
    change(folder / "study.toml", "seed = 3", "seed = 4")
    assert [name for name in run(folder) if name.startswith("logistic")] == TRAINED[2:]


def test_other_folds_train_everything_anew(folder: Path) -> None:
    change(folder / "study.toml", "folds = 3", "folds = 2")
    assert [name for name in run(folder) if name.startswith("logistic")] == TRAINED


def test_networks_without_torch_are_refused_before_any_audio_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    path = begin(tmp_path, '\n[rivals]\ntrain = ["recurrent"]\n')
    with pytest.raises(InputError, match=r"pip install 'callshot\[rivals\]'"):
        run_study(read_study(path))
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


def test_a_reference_with_the_name_of_what_was_trained_is_called_one() -> None:
    trained = [Baseline("here", "mfcc", "logistic", "LR", "all", "map", 0.5, "C: 1")]
    told = [Baseline("here", "mfcc", "logistic", name, "all", "map", 0.6) for name in ("LR", "SVM")]
    assert [
        r.name
        for r in _rivals(trained, [*told, Baseline("there", "", "x", "y", "", "", 0)], "here")
    ] == [
        "LR",
        "LR (reference)",
        "SVM",
    ]
