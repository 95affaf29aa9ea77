from dataclasses import replace

import polars as pl
import pytest

from callshot.report.choices import join_classifiers
from callshot.report.tables.score_tables import classifier_table
from corpus_results import (
    SMALL,
    make_corpus_results,
    make_tables,
    make_trained_results,
    replace_frames,
)

NAMES = [
    "centroid",
    "cosine",
    "CL2N",
    "whitened",
    "neighbour",
    "medoid",
    "logistic at k",
]


@pytest.fixture(scope="module")
def trained():
    return make_trained_results(
        protocol=replace(SMALL, shared_draws=120, total_samples=120)
    )


def test_every_encoder_has_a_block_with_the_reference_first_and_trained_classifiers_last(
    trained,
):
    table = classifier_table(trained, (1, 5, 7))
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        (encoder, name) for encoder in ("one", "two") for name in NAMES
    ]
    assert [column.whole for column in table.columns[2:]] == [
        f"{metric} at k {k}" for metric in ("mAP", "AUROC") for k in (1, 5)
    ]


def test_the_cells_are_means_over_the_shared_draws_that_all_classifiers_have(trained):
    table = classifier_table(trained)
    names = {"CL2N": "cl2n", "logistic at k": "logistic"}
    values = join_classifiers(trained).values.filter(scoring="all", spread="shared")
    key = ["encoder", "classifier", "metric", "k"]
    samples = values.select(*key, "value").rows_by_key(key, unique=True)
    lengths = set()
    for row in table.rows:
        for column, cell in zip(table.columns[2:], row[2:], strict=True):
            metric = column.group.split()[0].lower()
            name = names.get(row[1].text, row[1].text)
            (value,) = samples[row[0].text, name, metric, int(column.name)]
            lengths.add(len(value))
            assert cell.value == pytest.approx(sum(value[:100]) / 100, rel=1e-12)
    assert lengths == {100, 120}


def test_the_best_of_an_encoder_is_underlined_in_every_column(trained):
    rows = classifier_table(trained).rows
    for block in (rows[: len(NAMES)], rows[len(NAMES) :]):
        for column in range(2, len(block[0])):
            cells = [row[column] for row in block]
            best = max(cell.value for cell in cells)
            assert [cell.underline for cell in cells] == [
                int(cell.value == best) for cell in cells
            ]


def test_undefined_means_are_missing_and_never_the_best(trained):
    is_cosine = pl.col("classifier") == "cosine"
    undefined = pl.lit([float("nan")] * 120)
    value = pl.when(is_cosine).then(undefined).otherwise("value").alias("value")
    others = replace(
        trained.other_classifiers,
        values=trained.other_classifiers.values.with_columns(value),
    )
    for row in classifier_table(replace(trained, other_classifiers=others)).rows:
        assert (row[1].text == "cosine") == (row[2].text == "–")
        assert row[2].underline == 0 or row[2].value > 0


def test_a_classifier_without_a_k_has_a_missing_cell_there(trained):
    is_shown = (pl.col("classifier") != "medoid") | (pl.col("k") < 5)
    fewer = replace(
        trained.other_classifiers,
        values=trained.other_classifiers.values.filter(is_shown),
    )
    table = classifier_table(replace(trained, other_classifiers=fewer), (1, 5))
    (row, _) = [row for row in table.rows if row[1].text == "medoid"]
    assert [cell.text == "–" for cell in row[2:]] == [False, True, False, True]


def test_without_the_spread_shared_the_other_one_is_shown():
    results = make_trained_results(make_tables(encoders=["one"]))
    evaluation = results.evaluation
    others = results.other_classifiers.select_classifiers(["cosine"])
    others = replace(others, values=others.values.filter(spread="per-query"))
    alone = replace_frames(
        replace(results, other_classifiers=others),
        curve=evaluation.curve.filter(spread="per-query"),
        values=evaluation.values.filter(spread="per-query"),
        crossovers=evaluation.crossovers.clear(),
    )
    table = classifier_table(alone)
    assert table.title.endswith("per-query")
    assert [row[1].text for row in table.rows] == ["centroid", "cosine"]


def test_with_the_reference_alone_there_is_no_table():
    assert classifier_table(make_corpus_results()) is None
