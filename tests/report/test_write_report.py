import csv

import polars as pl
import pytest
from callshot.report.csv_records import read_records

from callshot.errors import InputError
from callshot.records import Baseline, Crossover, RefinementStep
from callshot.report.results import (
    read_baselines,
    read_refinement,
    write_baselines,
    write_crossovers,
    write_refinement,
)
from callshot.report.write_report import write_numbers
from corpus_results import make_corpus_results, make_trained_results

STRANGE = 'say "LR",\ntwice'


@pytest.fixture(scope="module")
def trained():
    return make_trained_results(
        more=[Baseline("corpus", "", "end-to-end", "AERD", "all", "map", 0.7)]
    )


def cells(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_the_numbers_of_every_classifier_stand_in_one_file_the_reference_first(trained, tmp_path):
    write_numbers(trained, tmp_path)
    curve = pl.read_csv(tmp_path / "curve.csv")
    assert curve["classifier"].unique(maintain_order=True).to_list() == [
        "centroid",
        "cosine",
        "cl2n",
        "whitened",
        "neighbour",
        "medoid",
        "logistic",
    ]
    assert len(curve) == len(trained.evaluation.curve) + len(trained.others.curve)
    for name in ("curve.parquet", "values.parquet", "per_class.csv"):
        read = pl.read_csv if name.endswith(".csv") else pl.read_parquet
        assert set(read(tmp_path / name)["classifier"]) == set(curve["classifier"])
    at_k = pl.read_parquet(tmp_path / "values.parquet").filter(pl.col("classifier") == "logistic")
    assert set(at_k["spread"]) == {"shared"}
    assert at_k["value"].to_list() == [
        x
        for v in trained.others.values
        if v.classifier == "logistic"
        for x in v.value.ravel().tolist()
    ]


def test_what_rivals_did_is_written_where_there_are_any(trained, tmp_path):
    names = write_numbers(trained, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert read_records(tmp_path / "crossings.csv", Crossover) == trained.crossovers
    assert read_refinement(tmp_path / "refinement.csv") == trained.refinement
    assert read_baselines(tmp_path / "rivals.csv") == trained.baselines


def test_without_rivals_there_are_no_files_of_them(tmp_path):
    names = write_numbers(make_corpus_results(), tmp_path)
    assert not {"rivals.csv", "crossings.csv", "refinement.csv"} & set(names)
    assert set(pl.read_csv(tmp_path / "curve.csv")["classifier"]) == {"centroid"}


def test_rivals_and_refinement_come_back_as_they_were(tmp_path):
    baselines = [
        Baseline("herd", "a, b", "logistic", STRANGE, "all", "map", 0.1 + 0.2, "C = 1, 10; 'x'"),
        Baseline("herd", "", "end-to-end", "AERD", "reduced", "auroc", 1.0),
    ]
    steps = [
        RefinementStep("herd", "a", "all", "map", step, 1 / 3, 1e22) for step in (0, 1, 100_000)
    ]
    write_baselines(baselines, tmp_path / "rivals.csv")
    write_refinement(steps, tmp_path / "refinement.csv")
    assert read_baselines(tmp_path / "rivals.csv") == baselines
    assert read_refinement(tmp_path / "refinement.csv") == steps
    write_baselines([], tmp_path / "none.csv")
    assert read_baselines(tmp_path / "none.csv") == []


def test_a_crossing_that_is_nowhere_is_an_empty_cell(tmp_path):
    crossovers = [
        Crossover("herd", "a", "LR", "all", "all", "map", "shared", k, k_clear)
        for k, k_clear in ((3, None), (0, 7))
    ]
    write_crossovers(crossovers, tmp_path / "crossings.csv")
    assert [row[-2:] for row in cells(tmp_path / "crossings.csv")] == [
        ["k", "k_clear"],
        ["3", ""],
        ["0", "7"],
    ]
    assert read_records(tmp_path / "crossings.csv", Crossover) == crossovers


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "wanted the columns corpus, encoder, scoring, metric, step, value, temperature, found ;",
        ),
        ("corpus,value\n", "found corpus, value;"),
        (
            "corpus,encoder,scoring,metric,step,value,temperature\nherd,a,all,map,one,0.5,1.0\n",
            "row 1: not as it was",
        ),
        (
            "corpus,encoder,scoring,metric,step,value,temperature\nherd,a,all,map,1\n",
            "row 1: not as it was",
        ),
        (
            "corpus,encoder,scoring,metric,step,value,temperature\nh\0,a,all,map,1,\xff",
            "row 1: not as it was",
        ),
    ],
)
def test_a_file_that_callshot_did_not_write_is_refused(tmp_path, text, said):
    (tmp_path / "r.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_refinement(tmp_path / "r.csv")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe")
    for name in ("r.csv", "nothing.csv"):
        with pytest.raises(InputError, match=f"{name}: cannot be read"):
            read_baselines(tmp_path / name)
