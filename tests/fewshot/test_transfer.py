"""Examples of one table on the queries of another, against a slow literal twin."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import literal
from callshot import Vectors
from callshot.cli.terminal import describe_transfer
from callshot.errors import InputError, OptionError
from callshot.fewshot import reference
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.evaluate import evaluate_tables, rerun_episode
from callshot.fewshot.folds import check_tables, count_classes
from callshot.fewshot.sweep import small_sample_inflation, widen_to_prediction
from callshot.fewshot.transfer import evaluate_transfer, find_partner, plan_task
from callshot.records import Folds
from callshot.records.frames import value_matrix
from corpora import SMALL, random_corpus
from literal_total import total_values, weighted_centroids

SHARED = replace(SMALL, spreads=("shared",), permutations=0)


def make_table(seed, prefix="", **options):
    options = {"classes": 3, "folds": 3, "size": 3, "integers": False, **options}
    table = random_corpus(seed, **options)
    return table.with_columns(
        segment=[prefix + name for name in table.segment],
        recording=[prefix + name for name in table.recording],
    )


def corpus(*tables, name="herd"):
    return Dataset(name, tables, check_tables(tables, None))


def source_of(table):
    return corpus(table, name="source")


def target_of(table):
    return corpus(table, name="target")


def transfer_pair():
    return source_of(make_table(4, "lib ")), target_of(make_table(7, offset=0.5))


@cache
def shared_transfer():
    """The evaluation of the pair in the spread `shared`."""
    return evaluate_transfer(*transfer_pair(), SHARED)


def rename_labels(table, names):
    labels = [tuple(names.get(name, name) for name in row) for row in table.labels]
    label = [names.get(name, name) for name in table.label]
    return table.with_columns(label=label, labels=labels)


def classes_of(result):
    return {count.label for count in result.eligible_classes}


def joined_episodes(source, target, classes):
    """Episodes of both tables: rows of the source are the common fold, and all supports."""
    rows = []
    for table, fold in ((source.first, None), (target.first, target.first.fold)):
        columns = (table.matrix, table.segment, table.recording, table.label)
        for i, (*row, label) in enumerate(zip(*columns, strict=True)):
            is_example = fold is None
            if label in classes and (is_example or fold[i] >= 0):
                labels = () if is_example else table.labels[i]
                rows.append((*row, label, labels, -1 if is_example else fold[i]))
    *columns, fold = zip(*rows, strict=True)
    table = Vectors.from_columns("joined", *columns)
    count = int(max(fold)) + 1
    folds = Folds(np.array(fold), count, "given", only_common=True)
    return plan_episodes(table, folds, count_classes(table.label, folds))


@pytest.mark.parametrize(
    ("memory", "sampler"), [(0, "distinct"), (2**30, "replacement")]
)
@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_samples_are_those_of_the_reference(spread, sampler, memory):
    source, target = transfer_pair()
    protocol = replace(SMALL, sampler=sampler, permutations=0)
    result = evaluate_transfer(source, target, protocol, memory=memory)
    episodes = joined_episodes(source, target, classes_of(result))
    for k in protocol.shots:
        golden = reference.sample_values(episodes, protocol, spread, k)
        rows = result.values.filter(spread=spread, k=k, scoring="all")
        for n, metric in enumerate(reference.METRICS):
            samples = value_matrix(rows.filter(metric=metric))[0]
            assert samples == pytest.approx(golden[:, n], abs=1e-12)


def test_samples_of_total_are_those_of_the_literal_twin_stretched_for_few_recordings():
    source, target = transfer_pair()
    result = evaluate_transfer(source, target, SMALL)
    episodes = joined_episodes(source, target, classes_of(result))
    fewer = []
    for n in range(len(episodes.classes)):
        rows = np.flatnonzero(episodes.label == n)
        sides = (rows[episodes.fold[rows] < 0], rows[episodes.fold[rows] >= 0])
        fewer.append(min(len({episodes.recording[i] for i in side}) for side in sides))
    inflation = small_sample_inflation(np.array(fewer)).mean()
    for k in SMALL.shots:
        rows = result.values.filter(metric="map", k=k)
        shared = value_matrix(rows.filter(spread="shared"))[0]
        raw = total_values(episodes, SMALL, k, weighted_centroids)[:, 0]
        golden = widen_to_prediction(raw, shared, inflation=inflation)
        samples = value_matrix(rows.filter(spread="total"))[0]
        assert samples == pytest.approx(golden, abs=1e-9)


def test_all_is_the_whole_library_without_the_site():
    source, target = transfer_pair()
    protocol = replace(SHARED, shots=(1,), whole_pool=True)
    only_all = replace(SHARED, shots=(), whole_pool=True)
    result = evaluate_transfer(source, target, protocol)
    episodes = joined_episodes(source, target, classes_of(result))
    size = int(np.bincount(episodes.label[episodes.fold < 0]).max())
    golden = reference.sample_values(episodes, protocol, "shared", size)[:, 0]
    last = result.values.filter(metric="map", k=size)
    assert value_matrix(last)[0] == pytest.approx(golden, abs=1e-12)
    within_target = value_matrix(result.within_target.values.filter(metric="map"))[-1]
    cost = result.transfer_difference.filter(metric="map")["mean"][-1]
    assert cost == pytest.approx(float((golden - within_target).mean()), abs=1e-12)
    (sentence,) = describe_transfer(evaluate_transfer(source, target, only_all))
    assert sentence.startswith(f"With {size} examples")


def test_where_the_site_has_no_row_for_all_there_is_no_difference():
    source, target = transfer_pair()
    part = target.only(classes_of(shared_transfer()))
    folds = part.folds.fold
    label = np.array(part.first.label)
    pools = [
        np.sum((label == name) & (folds != fold)).item()
        for name in part.labels
        for fold in range(part.folds.count)
    ]
    protocol = replace(SHARED, shots=(1, max(pools)), whole_pool=True)
    result = evaluate_transfer(source, target, protocol)
    assert result.curve.filter(metric="map").height == 3
    shots = result.transfer_difference.filter(metric="map")["k"]
    assert shots.to_list() == [1, max(pools)]


@pytest.mark.parametrize(
    ("classifier", "transform"),
    [("cl2n", literal.centre_and_normalise), ("whitened", literal.whiten)],
)
def test_classifiers_are_fitted_to_the_library_alone(classifier, transform):
    source, target = transfer_pair()
    protocol = replace(SHARED, classifiers=("centroid", classifier))
    result = evaluate_transfer(source, target, protocol)
    support = source.only(classes_of(result)).first.matrix
    fitted = [
        replace(one.first, matrix=transform(one.first.matrix, support))
        for one in (source, target)
    ]
    golden = evaluate_transfer(source_of(fitted[0]), target_of(fitted[1]), SHARED)
    samples = value_matrix(result.values.filter(classifier=classifier, metric="map"))
    expected = value_matrix(golden.values.filter(metric="map"))
    np.testing.assert_allclose(samples, expected, atol=1e-9)
    names = result.transfer_difference["one"].unique(maintain_order=True).to_list()
    assert names == ["test", f"test, {classifier}"]


def test_the_curves_within_are_those_of_ordinary_evaluations():
    source, target = transfer_pair()
    (joined, *_), _, _ = plan_task(source, target, centre=False)
    query = joined.first.segment[-1]
    episode = rerun_episode(joined.first, joined.folds, query, 2, 0, SMALL, "shared")
    support = {name for names in episode.support.values() for name in names}
    assert all(name.startswith("lib ") for name in support)
    result = evaluate_transfer(source, target, SMALL)
    for corpus_tables, within in (
        (target, result.within_target),
        (source, result.within_source),
    ):
        part = corpus_tables.only(classes_of(result))
        alone = evaluate_tables(
            part.tables, SMALL, folds=part.folds, corpus=part.corpus
        )
        assert within.curve.equals(alone.curve)
    key = {"metric": "map", "spread": "total", "scoring": "all", "k": 2}
    transfer = value_matrix(result.values.filter(**key))
    within_target = value_matrix(result.within_target.values.filter(**key))
    row = result.transfer_difference.filter(**key).row(0, named=True)
    assert (row["one"], row["other"]) == ("test", "examples of target")
    difference = float((transfer - within_target).mean())
    assert row["mean"] == pytest.approx(difference, abs=1e-12)
    assert result.queries == result.within_target.queries


def test_centring_takes_the_mean_of_each_table_away_whatever_the_labels():
    source, target = transfer_pair()
    far = replace(target.first, matrix=target.first.matrix + 30.0)
    plain = evaluate_transfer(source, target, SHARED, centre=True)
    shifted = evaluate_transfer(source, target_of(far), SHARED, centre=True)
    for result in (plain, shifted):
        assert result.encoders == ["test", "test, centred"]
    samples = [
        value_matrix(result.values.filter(encoder="test, centred", metric="map"))
        for result in (plain, shifted)
    ]
    np.testing.assert_allclose(*samples, atol=1e-9)
    centred = []
    for one in (source, target):
        matrix = one.first.matrix
        centred.append(replace(one.first, matrix=matrix - matrix.mean(0)))
    golden = evaluate_transfer(source_of(centred[0]), target_of(centred[1]), SHARED)
    expected = value_matrix(golden.values.filter(metric="map"))
    np.testing.assert_allclose(samples[0], expected, atol=1e-9)


def test_several_tables_of_the_library_have_a_curve_each_against_one_of_the_site():
    first = replace(make_table(4, "lib "), fingerprint="abc")
    second = replace(first, encoder="test at site", matrix=first.matrix + 0.5)
    target = target_of(replace(make_table(7, offset=0.5), fingerprint="abc"))
    result = evaluate_transfer(corpus(first, second, name="source"), target, SHARED)
    assert result.encoders == ["test", "test at site"]
    assert result.within_target.encoders == ["test"]
    names = result.transfer_difference["one"].unique(maintain_order=True)
    assert names.to_list() == result.encoders
    pairs = result.differences.select("one", "other").unique().rows()
    assert ("test", "test at site") in pairs


def test_names_that_both_tables_have_stay_apart_and_are_noted():
    source = source_of(make_table(4))
    target = target_of(make_table(7))
    result = evaluate_transfer(source, target, SHARED)
    twin = shared_transfer()
    assert result.queries == twin.queries
    (note,) = [note for note in result.notes if "the same name" in note]
    assert "recordings have the same name in source and target" in note
    assert not any("the same name" in note for note in twin.notes)


def test_the_same_vector_in_both_tables_is_a_leak():
    target = make_table(7, dimensions=3)
    source = make_table(7, "lib ", dimensions=3).with_columns(fold=None)
    library = Dataset("source", [source], target_of(target).folds)
    result = evaluate_transfer(library, target_of(target), SHARED)
    (note,) = [note for note in result.notes if "same vector as an example" in note]
    assert f"{result.queries} queries have the same vector" in note
    leaks = result.duplicates
    assert set(leaks["fold"]) > {-1}


def test_vectors_that_the_site_alone_has_twice_are_no_leak_of_moved_examples():
    source, target = transfer_pair()
    vectors = target.first.matrix.copy()
    first, second = (np.flatnonzero(target.folds.fold == fold)[0] for fold in (0, 1))
    vectors[first] = vectors[second]
    moved = target_of(replace(target.first, matrix=vectors))
    notes = [n for n in evaluate_transfer(source, moved, SHARED).notes if "same v" in n]
    assert notes
    assert all(note.startswith("within target: ") for note in notes)


def test_what_cannot_be_evaluated_is_an_error():
    source, target = transfer_pair()
    with pytest.raises(OptionError, match="repeat-folds: expected 1"):
        evaluate_transfer(source, target, replace(SHARED, repeat_folds=2))
    one = rename_labels(source.first, {"c1": "roar", "c2": "bark"})
    with pytest.raises(InputError, match=r"expected two labels or more .* got 'c0'"):
        evaluate_transfer(source_of(one), target, SHARED)


def test_labels_of_one_table_alone_are_left_out_and_named():
    source, target = transfer_pair()
    two = rename_labels(source.first, {"c2": "roar"})
    result = evaluate_transfer(source_of(two), target, SHARED)
    assert classes_of(result) == {"c0", "c1"}
    assert "left out, because only source has them: 'roar'" in result.notes
    assert "left out, because only target has them: 'c2'" in result.notes
    assert set(result.within_target.segments["label"]) == {"c0", "c1"}


def test_a_library_that_has_each_label_in_one_recording_has_no_curve_of_its_own():
    source, target = transfer_pair()
    table = source.first.with_columns(recording=source.first.label, fold=None)
    result = evaluate_transfer(source_of(table), target, SHARED)
    assert result.within_source is None
    assert any(note.startswith("no curve within source: ") for note in result.notes)
    assert set(result.join_frames("curve")["source_corpus"]) == {"source", "target"}


def test_frames_say_where_examples_and_queries_are_from():
    result = shared_transfer()
    curve = result.join_frames("curve")
    assert curve.columns[:3] == ["source_corpus", "target_corpus", "encoder"]
    columns = ("source_corpus", "target_corpus")
    places = curve.select(columns).unique(maintain_order=True).rows()
    assert places == [("source", "target"), ("target", "target"), ("source", "source")]
    transfer = curve.filter(source_corpus="source", target_corpus="target")
    assert transfer.drop(columns).equals(result.curve.drop("corpus"))
    assert "examples from source, queries from target" in repr(result)


def test_a_table_has_a_partner_of_the_same_encoder_and_dimension():
    table = replace(make_table(4), fingerprint="abc")
    same = replace(table, encoder="test at site")  # another name, one fingerprint
    assert find_partner(table, [table]) is table
    assert find_partner(same, [table]) is table
    plain = make_table(4)
    files = [
        replace(plain, encoder=name, spans=replace(plain.spans, source=f"{name}.csv"))
        for name in ("here", "there")  # the name of a file is no name of an encoder
    ]
    assert find_partner(files[0], [files[1]]) is files[1]
    perch = replace(plain, encoder="perch")
    other_weights = replace(table, fingerprint="def")
    wide = make_table(4, dimensions=3)
    for one, other, message in (
        (plain, perch, r"encoder is 'test', the encoder of .* 'perch'"),
        (table, other_weights, "with other weights, speeds or opti"),
        (plain, wide, r"vectors of 3 dimensions.* got 2"),
    ):
        with pytest.raises(InputError, match=message):
            find_partner(one, [other])
