"""The Python API: the same steps as on the command line, from arrays, tables and folders."""

import ast
from dataclasses import replace
from functools import partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

import callshot
from callshot import pipeline
from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.folds import check_folds
from callshot.options import AnnotationSource, KnownCorpus, ReadingOptions, list_options
from callshot.records.table_files import write_parquet
from rows_of_spans import list_rows
from sounds import record
from studies import make_corpus

Y = ["rumble", "roar"] * 20
GROUPS = [f"recording {i // 4}" for i in range(40)]
FEW: dict[str, Any] = {
    "shots": "1-3",
    "bootstraps": 50,
    "shared_draws": 120,
    "total_samples": 120,
}


def make_vectors(seed=0):
    return np.random.default_rng(seed).normal(size=(40, 8))


def evaluate(**options):
    return callshot.evaluate(make_vectors(), Y, groups=GROUPS, **{**FEW, **options})


def test_every_public_name_can_be_imported_and_is_documented():
    for name in callshot.__all__:
        assert getattr(callshot, name).__doc__


def test_type_checkers_see_the_public_names_where_they_are():
    stub = Path(callshot.__file__).with_suffix(".pyi")
    imported = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            imported |= dict.fromkeys([name.name for name in node.names], node.module)
    assert sorted(imported) == sorted(callshot.__all__)
    for name, module in imported.items():
        assert getattr(import_module(str(module)), name) is getattr(callshot, name)


def test_arrays_and_tables_give_the_same_curve():
    segment = [f"{i:08}" for i in range(40)]
    columns = (make_vectors(), segment, GROUPS, Y, [()] * 40)
    table = callshot.Vectors.from_columns("X", *columns)
    result = callshot.evaluate(table, **FEW)
    assert result.curve.equals(evaluate().curve)
    frame = callshot.Vectors.from_frame(table.to_frame(), encoder="X")
    assert callshot.evaluate(frame, **FEW).curve.equals(result.curve)
    with pytest.raises(InputError, match="two tables have the encoder name 'X'"):
        callshot.evaluate([table, table], **FEW)


def test_shots_may_be_a_number_a_list_or_text():
    for shots in (2, [2], "2", np.array([2])):
        assert evaluate(shots=shots).curve["k"].unique().to_list() == [2]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"seeed": 3}, r"seeed: unknown option; did you mean seed\?"),
        ({"random_state": 3}, "random_state: unknown option; known: shots"),
        ({"sprd": "shared"}, r"sprd: unknown option; did you mean spread\?"),
        ({"whole_pool": True}, 'whole_pool: use shots="1-40,all"'),
        ({"spreads": ("shared",)}, "spreads: use spread"),
        ({"spread": "foo"}, "spread: expected one of all, total, .*, got 'foo'"),
        ({"shots": "0"}, "shots"),
        ({"centre": True}, "centre: needs queries"),
    ],
)
def test_an_option_that_is_unknown_or_wrong_is_an_error(options, match):
    with pytest.raises(OptionError, match=match):
        evaluate(**options)


def test_a_missing_label_or_recording_is_an_error():
    for label in (None, float("nan"), "", "  "):
        with pytest.raises(InputError, match="y: row 1: expected a value"):
            callshot.evaluate(make_vectors(), [label, *Y[1:]], groups=GROUPS)
        with pytest.raises(InputError, match="groups: row 1: expected a value"):
            callshot.evaluate(make_vectors(), Y, groups=[label, *GROUPS[1:]])


def test_baselines_use_the_folds_and_the_draws_of_the_results():
    values = []
    for seed in (0, 5):
        few = {"shots": "1-2", "shared_draws": 20, "spread": "shared"}
        result = evaluate(seed=seed, classifiers=("centroid", "cosine"), **few)
        trained = callshot.train_baselines(
            make_vectors(), Y, groups=GROUPS, against=result, per_k=True, train=()
        )
        (per_k,) = trained.per_k
        assert per_k.curve["k"].unique().to_list() == [1, 2]
        keys = trained.crossovers.select("baseline", "metric", "spread").rows()
        assert len(set(keys)) == len(keys)  # of the centroid alone
        values.append(per_k.values)
    assert not values[0].equals(values[1])


def test_results_of_other_data_are_not_compared():
    result = evaluate()
    X = make_vectors()
    train = partial(callshot.train_baselines, against=result)
    with pytest.raises(InputError, match="against: column label differs"):
        train(X, Y[::-1], groups=GROUPS)
    with pytest.raises(InputError, match="against: column segment differs"):
        train(X[:20], Y[:20], groups=GROUPS[:20])
    with pytest.raises(InputError, match="against: has the encoders X"):
        train(callshot.Vectors(result.segments, X, "other"))
    with pytest.raises(OptionError, match="use callshot baselines"):
        train(X, Y, groups=GROUPS, train=("recurrent",))
    baselines = train(X, Y, groups=GROUPS, train="logistic")
    assert repr(baselines) == "BaselineResults(LR; 0 per k)"
    assert set(callshot.compare(result, baselines)["other"]) == {"LR on X"}
    assert callshot.compare(result).is_empty()


def test_a_plot_shows_every_curve_and_chance():
    mpl.use("Agg")
    result = evaluate()
    ax = result.plot()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["X", "chance"]
    only = evaluate(spread="per-query")
    assert only.plot("auroc").lines
    with pytest.raises(OptionError, match="metric: expected one of map, auroc, acc"):
        result.plot("mAP")
    with pytest.raises(OptionError, match="spread: expected one of per-query"):
        only.plot(spread="shared")


def test_the_repr_is_short_and_html_is_escaped():
    result = evaluate(corpus="<script>")
    assert repr(result).startswith(
        "Evaluation of <script>: 2 classes, 40 queries, 5 folds"
    )
    assert len(repr(result).splitlines()) == 3
    assert "<script>" not in result._repr_html_()
    assert "<script>" not in replace(result, curve=result.curve.clear())._repr_html_()


def test_the_pipeline_goes_from_recordings_to_crossovers(tmp_path):
    audio = make_corpus(tmp_path / "recordings")
    protocol = callshot.Protocol(
        shots=(1, 2), draws=3, bootstraps=20, shared_draws=20, total_samples=20
    )
    result = pipeline.run(
        audio, None, ("mfcc", "random"), protocol, store=tmp_path / "store"
    )
    assert result.encoders == ["mfcc", "random"]
    assert set(result.differences["other"]) == {"random", "LR on mfcc", "LR on random"}
    assert set(result.crossovers["baseline"]) == {"LR"}
    with pytest.raises(OptionError, match="encoders: name at least one"):
        pipeline.run(audio, None, ())


def test_segments_can_be_embedded_from_a_segmentation_spans_and_a_file(tmp_path):
    audio = make_corpus(tmp_path / "recordings", recordings=2)
    segmentation = callshot.segment(audio, min_length_s=0.5)
    assert len(repr(segmentation).splitlines()) == 1
    path = tmp_path / "segments.parquet"
    write_parquet(segmentation.segments.frame, path, {"audio": segmentation.audio})
    options = {"store": tmp_path / "store", "encoder_options": {"n_fft": 512}}
    table = callshot.embed(segmentation, "mfcc", **options)
    assert repr(table) == f"Vectors(mfcc[n_fft=512]: {len(table)} segments × 40)"
    for segments in (segmentation.segments, callshot.read_segments(path)):
        other = callshot.embed(segments, "mfcc", audio=audio, **options)
        assert np.array_equal(other.matrix, table.matrix)
    assert callshot.embed(segmentation, "mfcc", name="a", **options).encoder == "a"
    with pytest.raises(OptionError, match="name: expected printable text"):
        callshot.embed(segmentation, "mfcc", name=" ")
    with pytest.raises(OptionError, match="min_lenght_s: unknown option; did you mean"):
        callshot.segment(audio, min_lenght_s=1)


def test_equal_vectors_in_two_recordings_are_noted_and_can_be_kept_together():
    vectors = make_vectors()
    vectors[4] = vectors[0]  # of recordings 0 and 1
    vectors[38] = vectors[5]  # of recordings 1 and 9
    options: dict[str, Any] = {**FEW, "folds": 3, "groups": GROUPS}
    folds = check_folds(GROUPS, np.arange(40) // 4 % 3)
    result = callshot.evaluate(vectors, Y, **(options | {"folds": folds}))
    assert result.duplicates["group"].to_list() == [0, 0, 1, 1]
    (note,) = [note for note in result.notes if "same vector" in note]
    assert "4 segments have the same vector" in note
    options["group_duplicates"] = True
    grouped = callshot.evaluate(vectors, Y, **options)
    assert len(set(grouped.folds.fold[[0, 4, 38]])) == 1
    assert grouped.notes[0].startswith("3 recordings are kept together as 1")
    assert grouped.duplicates.is_empty()
    others = {f"recording {n}" for n in range(2, 9)}
    names = {"recording 0 and 2 more"} | others
    assert set(grouped.segments["recording"]) == names
    with pytest.raises(LeakError, match="recording 0 and 2 more"):
        callshot.evaluate(vectors, Y, **(options | {"folds": folds}))


def test_options_of_annotations_have_the_same_names_everywhere():
    names = {*list_options(AnnotationSource, ReadingOptions)}
    corpus = {*list_options(KnownCorpus)}
    assert names | corpus <= set(signature(callshot.segment).parameters)
    assert names <= set(signature(callshot.learn).parameters)


def test_segment_and_learn_take_the_options_of_the_command_line(tmp_path):
    record(tmp_path / "kept" / "a.wav", seconds=5)
    audio = tmp_path / "audio"
    audio.mkdir()
    (audio / "a.wav").symlink_to(tmp_path / "kept" / "a.wav")
    calls = "path,start,end,label\na.wav,1000,2000,Rmbl\na.wav,2000,3000,roar\n"
    (audio / "calls.csv").write_text(calls)
    options = {"rename": {"Rmbl": "rumble"}, "time_unit": "ms", "follow_links": True}
    one, _ = list_rows(callshot.segment(audio, **options).segments)
    assert (one.label, one.start_s, one.end_s) == ("rumble", 1.0, 2.0)
    result = callshot.learn(audio, "mfcc", store=tmp_path / "store", **options)
    assert result.model.classes == ("roar", "rumble")


def test_queries_of_another_corpus_have_the_difference_beside_the_curves():
    target = (make_vectors(1) + 1.0, Y, GROUPS)
    result = evaluate(queries=target, corpus="north", centre=True)
    assert isinstance(result, callshot.TransferEvaluation)
    assert result.encoders == ["X", "X, centred"]
    assert result.corpus == "north"
    assert set(result.transfer_difference["other"]) == {"examples of north"}
    assert result.queries == 40
    alone = callshot.evaluate(*target[:2], groups=GROUPS, **FEW)
    assert result.within_target.folds.fold.tolist() == alone.folds.fold.tolist()
    axes = result.plot()
    assert len(axes.get_legend().get_texts()) == 5


def test_wrong_queries_are_one_clear_line():
    with pytest.raises(InputError, match="queries: expected embeddings, or arrays"):
        evaluate(queries=make_vectors(1))
