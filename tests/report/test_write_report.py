import polars as pl
import pytest

from callshot.records.frames import BASELINES, CROSSOVERS, REFINEMENT
from callshot.report.results import read_frame
from callshot.report.write_report import write_numbers
from corpus_results import make_baselines, make_corpus_results, make_trained_results

CLASSIFIERS = [
    "centroid",
    "cosine",
    "cl2n",
    "whitened",
    "neighbour",
    "medoid",
    "logistic",
]


@pytest.fixture(scope="module")
def trained():
    row = ("corpus", "", "end-to-end", "AERD", "all", "map", 0.7)
    return make_trained_results(more_baselines=make_baselines(row))


def test_the_numbers_of_all_classifiers_are_in_one_file_the_reference_first(
    trained, tmp_path
):
    write_numbers(trained, tmp_path)
    folder = tmp_path / "corpus"
    curve = pl.read_csv(folder / "curve.csv")
    assert curve["classifier"].unique(maintain_order=True).to_list() == CLASSIFIERS
    assert len(curve) == len(trained.evaluation.curve) + len(trained.others.curve)
    values = pl.read_parquet(folder / "values.parquet")
    per_class = pl.read_csv(folder / "per_class.csv")
    for table in (pl.read_parquet(folder / "curve.parquet"), values, per_class):
        assert set(table["classifier"]) == set(CLASSIFIERS)
    trained_values = values.filter(classifier="logistic")
    assert set(trained_values["spread"]) == {"shared"}
    expected = trained.others.values.filter(classifier="logistic")["value"].explode()
    assert trained_values["value"].equals(expected)


def test_baselines_crossovers_and_refinement_are_written_if_there_are_any(
    trained, tmp_path
):
    names = write_numbers(trained, tmp_path)
    folder = tmp_path / "corpus"
    assert {f"corpus/{path.name}" for path in folder.iterdir()} == set(names)
    scalars = {name: dtype for name, dtype in BASELINES.items() if name != "samples"}
    for name, schema, frame in (
        ("crossovers.csv", CROSSOVERS, trained.evaluation.crossovers),
        ("refinement.csv", REFINEMENT, trained.refinement),
        ("baselines.csv", scalars, trained.baselines.drop("samples")),
    ):
        assert len(frame)
        assert read_frame(folder / name, schema).equals(frame)


def test_without_baselines_there_are_no_files_for_them(tmp_path):
    names = write_numbers(make_corpus_results(), tmp_path)
    names = [name.removeprefix("corpus/") for name in names]
    assert not {"baselines.csv", "crossovers.csv", "refinement.csv"} & set(names)
    assert {"differences.csv", "budget.csv", "rejects.csv"} <= set(names)
    assert set(pl.read_csv(tmp_path / "corpus/curve.csv")["classifier"]) == {"centroid"}
