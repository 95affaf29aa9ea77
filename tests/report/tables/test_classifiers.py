from dataclasses import replace

import pytest

from callshot.report.tables.classifiers import classifiers
from corpus_results import SMALL, make_corpus_results, make_tables, make_trained_results

RULES = ["centroid", "cosine", "CL2N", "whitened", "neighbour", "medoid", "logistic at k"]


@pytest.fixture(scope="module")
def trained():
    return make_trained_results(protocol=replace(SMALL, shared_draws=120))


def test_every_encoder_has_a_block_with_the_reference_first_and_the_trained_last(trained):
    table = classifiers(trained, (1, 5, 7))
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        (e, rule) for e in ("one", "two") for rule in RULES
    ]
    assert [column.whole for column in table.columns[2:]] == [
        f"{m} at k {k}" for m in ("mAP", "AUROC") for k in (1, 5)
    ]


def test_the_cells_are_means_of_the_spread_that_all_have(trained):
    table = classifiers(trained)
    names = {"CL2N": "cl2n", "logistic at k": "logistic"}
    curve = [*trained.evaluation.curve, *trained.others.curve]
    means = {
        (c.encoder, c.classifier, c.metric, str(c.k)): c.mean
        for c in curve
        if (c.scoring, c.spread) == ("all", "shared")
    }
    for row in table.rows:
        for column, cell in zip(table.columns[2:], row[2:], strict=True):
            metric = column.group.split()[0].lower()
            rule = names.get(row[1].text, row[1].text)
            assert cell.value == means[row[0].text, rule, metric, column.name]


def test_the_best_of_an_encoder_is_underlined_in_every_column(trained):
    rows = classifiers(trained).rows
    for block in (rows[: len(RULES)], rows[len(RULES) :]):
        for n in range(2, len(block[0])):
            best = max(row[n].value for row in block)
            assert [row[n].underline for row in block] == [
                int(row[n].value == best) for row in block
            ]


def test_the_notes_say_what_each_is_over_how_many_draws_and_where_training_is_ahead(trained):
    notes = [text for _, text in classifiers(trained).notes]
    assert notes[0].startswith("centroid: squared distance to the class mean; cosine: ")
    assert "logistic at k: means are over the first 100 of the 120 sets." in notes
    (crossing,) = [
        c for c in trained.crossovers if (c.labels, c.metric, c.encoder) == ("k", "map", "one")
    ]
    (by_map,) = [note for note in notes if "by mAP: " in note]
    assert ("from k =" in by_map.split("; two")[0]) == (crossing.k is not None)


def test_a_classifier_that_was_not_evaluated_at_a_k_is_missing_there(trained):
    fewer = [c for c in trained.others.curve if c.classifier != "medoid" or c.k < 5]
    table = classifiers(replace(trained, others=replace(trained.others, curve=fewer)), (1, 5))
    (row, _) = [row for row in table.rows if row[1].text == "medoid"]
    assert [cell.text == "–" for cell in row[2:]] == [False, True, False, True]


def test_without_the_spread_shared_the_other_one_is_told():
    found = make_trained_results(make_tables(encoders=["one"]))
    alone = [c for c in found.evaluation.curve if c.spread == "per-query"]
    others = found.others.under(["cosine"])
    kept = [c for c in others.curve if c.spread == "per-query"]
    corpus_results = replace(
        found,
        evaluation=replace(found.evaluation, curve=alone),
        others=replace(others, curve=kept),
        crossovers=(),
    )
    table = classifiers(corpus_results)
    assert table.title.endswith("per-query")
    assert [row[1].text for row in table.rows] == ["centroid", "cosine"]


def test_with_the_reference_alone_there_is_no_table():
    assert classifiers(make_corpus_results()) is None
