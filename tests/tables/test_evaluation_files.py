import csv
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callshot.errors import InputError
from callshot.fewshot.differences import compare_encoders
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.records.frames import (
    CROSSOVERS,
    CURVE_KEY,
    REFINEMENT,
)
from callshot.records.table_files import write_csv_frame
from callshot.tables import evaluation_files as results
from callshot.tables.evaluation_files import (
    describe_evaluation,
    merge_results,
    open_results,
    read_frame,
    read_results,
    write_results,
)
from corpora import random_corpus
from corpus_results import make_baselines, make_rows, make_tables

LABELS = ['say "roar",\ntwice', "carriage\rreturn", " spaced ", "=1+1", "Grollen·象"]
FEW = Protocol(
    shots=(1, 2), draws=3, bootstraps=5, shared_draws=4, total_samples=4, permutations=9
)


def evaluate_few(tables, **options):
    return evaluate_tables(tables, FEW, corpus='herd, "north"', **options)


@pytest.fixture(scope="module")
def evaluation():
    return evaluate_few([make_strange_table(LABELS[:3])])


def write(folder, evaluation):
    provenance = {"seed": 0, "options": {"folds": 5, "draws": 100}}
    with open_results(folder) as output:
        return write_results(output, evaluation, provenance)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_all_files_are_written_with_their_checksums_and_no_others(tmp_path, evaluation):
    folder = tmp_path / "new" / "deep"
    paths = write(folder, evaluation)
    assert sorted(paths) == sorted(folder.iterdir())
    assert paths[-1].name == "provenance.json"
    text = paths[-1].read_text(encoding="utf-8")
    provenance = json.loads(text)
    assert text == json.dumps(provenance, indent=2, sort_keys=True) + "\n"
    assert provenance["options"] == {"draws": 100, "folds": 5}
    assert provenance["files"] == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths[:-1]
    }
    write(tmp_path / "again", evaluation)
    assert contents(tmp_path / "again") == contents(folder)


def test_values_have_one_row_per_shot_and_sample_and_join_with_their_curves(
    tmp_path, evaluation
):
    write(tmp_path, evaluation)
    table = pl.read_parquet(tmp_path / "values.parquet")
    assert table.columns == [*CURVE_KEY, "k", "index", "value"]
    expected = []
    for *key, k, values in evaluation.values.iter_rows():
        expected += [(*key, k, *sample) for sample in enumerate(values)]
    assert list(map(repr, table.rows())) == list(map(repr, expected))  # also NaN
    curve = pl.read_parquet(tmp_path / "curve.parquet")
    assert curve.schema["complete"] == pl.Boolean
    assert curve.equals(pl.read_csv(tmp_path / "curve.csv", schema=curve.schema))
    points = evaluation.curve.select(*CURVE_KEY, "k")
    joined = table.join(curve, on=[*CURVE_KEY, "k"])
    assert joined.select(points.columns).unique().height == points.height


def test_a_write_that_fails_leaves_the_earlier_files(tmp_path, monkeypatch, evaluation):
    write(tmp_path, evaluation)
    before = contents(tmp_path)

    def fail(*arguments):
        arguments[-1].write_text("half")
        raise ZeroDivisionError

    monkeypatch.setattr(results, "write_values", fail)
    with pytest.raises(ZeroDivisionError):
        write(tmp_path, replace(evaluation, corpus="another"))
    assert contents(tmp_path) == before


def write_with_provenance(folder, evaluation):
    with open_results(folder) as output:
        write_results(output, evaluation, describe_evaluation(evaluation, FEW, [], {}))


FRAMES = "curve per_class confusion ties chance_test partitions values"


def assert_same(one, other):
    """Compare everything but the vectors and overlapping labels of segments; NaN equals NaN."""
    for name in ("corpus", "complete_shots", "queries", "classes", "notes"):
        assert getattr(one, name) == getattr(other, name), name
    for name in FRAMES.split():
        frame = getattr(one, name)
        assert frame.schema == getattr(other, name).schema
        assert frame.equals(getattr(other, name)), name
    assert np.array_equal(one.folds.fold, other.folds.fold)
    assert replace(one.folds, fold=None) == replace(other.folds, fold=None)
    for name in ("segment", "recording", "label"):
        assert one.segments[name] == other.segments[name]


def make_strange_table(labels=("a", "b", "c"), seed=3, encoder="mfcc"):
    """Return a small corpus with names that a CSV file has to quote."""
    table = random_corpus(seed, classes=len(labels), size=2, integers=False)
    names = {f"c{i}": name for i, name in enumerate(labels)}
    renamed = table.with_columns(
        label=[names[name] for name in table.label],
        labels=[tuple(names[name] for name in row) for row in table.labels],
        segment=[f'{name}, "take\n{i % 3}"' for i, name in enumerate(table.segment)],
    )
    return replace(renamed, encoder=encoder)


words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, min_size=3, max_size=3, unique=True), st.integers(0, 50), words)
def test_an_evaluation_reads_back_as_it_was_written(tmp_path, labels, seed, encoder):
    table = make_strange_table(labels, seed, encoder)
    evaluation = evaluate_few([table], categories={labels[0]: "low", labels[1]: "high"})
    write_with_provenance(tmp_path / "out[1]*", evaluation)
    assert_same(read_results(tmp_path / "out[1]*"), evaluation)


def test_every_kind_of_evaluation_reads_back(tmp_path):
    labels = ['say "roar",\ntwice', " roar", "ROAR"]
    tables = make_tables(labels, each=1, encoders={"mfcc": 1.0, "per,ch": 0.5})
    whole = replace(FEW, whole_pool=True, score="softmax")
    two_encoders = evaluate_tables(tables, whole, corpus="herd")
    assert two_encoders.notes
    assert two_encoders.folds.proof
    table = random_corpus(3, classes=3, size=3, integers=False)
    more = replace(FEW, repeat_folds=3, permutations=0)
    repeated = evaluate_tables([table], more, corpus="herd")
    assert not repeated.partitions.is_empty()
    assert repeated.chance_test.is_empty()
    table = make_strange_table(["x", "y"])
    undefined = evaluate_few([table.with_columns(labels=[("x", "y")] * len(table))])
    assert undefined.curve["mean"].is_nan().any()
    for number, one in enumerate((two_encoders, repeated, undefined)):
        write_with_provenance(tmp_path / f"{number}", one)
        assert_same(read_results(tmp_path / f"{number}"), one)


def test_a_file_that_was_changed_or_removed_is_an_error(tmp_path, evaluation):
    def draw(path):
        path.with_suffix(".png").write_bytes(b"a picture")
        return [path.with_suffix(".png")]

    facts = describe_evaluation(evaluation, FEW, [], {})
    with open_results(tmp_path) as output:
        write_results(output, evaluation, facts, draw)
    segments = read_results(tmp_path).segments
    assert segments["labels"] == [[]] * len(segments)
    assert segments.source == str(tmp_path / "folds.csv")
    for path in sorted(tmp_path.iterdir()):
        if path.name == "provenance.json":
            continue
        name = re.escape(path.name)
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
        with pytest.raises(InputError, match=f"{name}: damaged, by its SHA-256"):
            read_results(tmp_path)
        path.unlink()
        with pytest.raises(InputError, match=f"{name}: missing, by its SHA-256 in pro"):
            read_results(tmp_path)
        path.write_bytes(content)


def test_a_folder_without_results_is_an_error(tmp_path, evaluation):
    message = r"nowhere/provenance\.json: No such file or directory; pass a folder that"
    with pytest.raises(InputError, match=message):
        read_results(tmp_path / "nowhere")
    write(
        tmp_path, evaluation
    )  # as another command would: its provenance has no evaluation
    message = r"provenance\.json: not the provenance of an evaluation; evaluate again"
    with pytest.raises(InputError, match=message):
        read_results(tmp_path)
    for text in ("[" * 100_000, "{", "[]", '{"files": 3}', "\xff"):
        (tmp_path / "provenance.json").write_text(text, encoding="latin-1")
        with pytest.raises(InputError, match="not the provenance of an evaluation"):
            read_results(tmp_path)


def test_a_table_of_another_version_is_an_error_that_names_its_columns(
    tmp_path, evaluation
):
    write_with_provenance(tmp_path, evaluation)
    text = (tmp_path / "ties.csv").read_bytes().replace(b"cost_map", b"price", 1)
    (tmp_path / "ties.csv").write_bytes(text)
    provenance = json.loads((tmp_path / "provenance.json").read_text())
    provenance["files"]["ties.csv"] = hashlib.sha256(text).hexdigest()
    (tmp_path / "provenance.json").write_text(json.dumps(provenance))
    message = (
        r"ties\.csv: expected the columns encoder, .* got encoder, .*, price, .*again"
    )
    with pytest.raises(InputError, match=message):
        read_results(tmp_path)


def test_merged_evaluations_equal_a_joint_one_to_the_byte(tmp_path):
    one = make_strange_table()
    tables = [one, replace(one, encoder="other", matrix=one.matrix[:, ::-1] ** 3)]
    together = evaluate_few(tables)
    write_with_provenance(tmp_path / "together", together)
    for table in tables:
        write_with_provenance(tmp_path / table.encoder, evaluate_few([table]))
    merged = merge_results([read_results(tmp_path / table.encoder) for table in tables])
    assert_same(merged, together)
    differences = compare_encoders(merged.values, merged.complete_shots)
    compared = replace(merged, differences=differences)
    write_with_provenance(tmp_path / "merged", compared)
    assert contents(tmp_path / "merged") == contents(tmp_path / "together")
    assert_same(merge_results([merged]), merged)


def test_frames_read_back_as_they_were(tmp_path):
    row = ("herd", "a, b", "logistic", LABELS[0], "all", "map", 0.1 + 0.2, "C = 1; 'x'")
    other = ("herd", "", "end-to-end", "AERD", "reduced", "auroc", 1.0)
    baselines = make_baselines(row, other).drop("samples", "mean_samples")
    schema = dict(baselines.schema)
    key = ("herd", "a", "all", "map")
    steps = [(*key, step, 1 / 3, 1e22) for step in (0, 1, 100_000)]
    key = ("herd", "a", "LR", "all", "all", "map", "shared")
    crossovers = make_rows(CROSSOVERS, (*key, 3, None), (*key, 0, 7))
    path = tmp_path / "table.csv"
    for frame, columns in (
        (baselines, schema),
        (make_rows(REFINEMENT, *steps), REFINEMENT),
        (baselines.clear(), schema),
        (crossovers, CROSSOVERS),
    ):
        write_csv_frame(frame, path)
        assert read_frame(path, columns).equals(frame)
    ends = [cells[-2:] for cells in rows(path)]
    assert ends == [["k_mean", "k_clear"], ["3", ""], ["0", "7"]]
