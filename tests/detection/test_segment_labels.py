"""Segments get the scores that the engine gives them for the same support set."""

import numpy as np
import polars as pl
import pytest

import callshot
from callshot import Protocol, rerun_episode
from callshot.detection.learn import learn
from callshot.detection.model import check_classes, load_model, write_model
from callshot.detection.scan_files import (
    SEGMENT_LABELS,
    label_segments,
    scan_segment_files,
)
from callshot.encoders.embed import EmbedOptions
from callshot.errors import InputError
from callshot.records.table_files import write_parquet
from field_recordings import write_site
from rows_of_spans import list_rows, model_of


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the segments of a small corpus, their vectors, and three folds."""
    folder = tmp_path_factory.mktemp("study")
    site = write_site(folder / "site", tuple("abcdef"))
    segmentation = callshot.segment(site, min_length_s=0.1, collar_s=0.1)
    table = callshot.embed(segmentation, "mfcc", store=folder / "store")
    folds = callshot.make_folds(table.label, table.recording, 3)
    return folder, segmentation, table, folds


def write_part(study, name, keep):
    folder, segmentation, _, _ = study
    path = folder / name
    segments = segmentation.segments.only(keep)
    write_parquet(segments.frame, path, {"audio": segmentation.audio})
    return path


def split_study(study, fold):
    _, _, table, folds = study
    pairs = list(zip(table.segment, folds.fold, strict=True))
    support = write_part(
        study,
        f"support{fold}.parquet",
        {one for one, number in pairs if number != fold},
    )
    queries = write_part(
        study,
        f"queries{fold}.parquet",
        {one for one, number in pairs if number == fold},
    )
    return support, queries


@pytest.mark.parametrize("fold", [0, 2])
def test_scores_are_those_of_the_engine_for_the_same_support_set(study, fold):
    folder, _, table, folds = study
    support, queries = split_study(study, fold)
    learn(support, "mfcc", store=folder / "store").write(folder / "model.npz")
    model = load_model(folder / "model.npz")
    options = EmbedOptions(store=folder / "store")
    result = label_segments(model, queries, options)
    protocol = Protocol(sampler="distinct", whole_pool=True)
    assert len(result.frame) > 0
    for row, name in enumerate(result.frame["segment"]):
        episode = rerun_episode(
            table, folds, name, k=100, draw=0, protocol=protocol, spread="shared"
        )
        assert sum(map(len, episode.support.values())) == len(model.examples)
        expected = [episode.scores[label] for label in model.classes]
        np.testing.assert_allclose(result.scores[row], expected, rtol=1e-9, atol=1e-9)
        best = max(episode.scores, key=episode.scores.__getitem__)
        assert result.frame["label"][row] == best


def test_scan_writes_the_same_rows_as_csv_and_parquet(study, tmp_path):
    folder, _, _, _ = study
    support, queries = split_study(study, 0)
    model = folder / "model.npz"
    learn(support, "mfcc", store=folder / "store").write(model)
    options = EmbedOptions(store=folder / "store")
    result = scan_segment_files(model, queries, tmp_path / "out", options)
    frame = pl.read_parquet(tmp_path / "out" / "labels.parquet")
    assert frame.columns == list(SEGMENT_LABELS)
    assert frame.equals(result.frame)
    csv = pl.read_csv(tmp_path / "out" / "labels.csv", schema_overrides=SEGMENT_LABELS)
    assert csv.equals(frame)
    assert (frame["score"] > frame["runner_up_score"]).all()
    assert (frame["label"] == frame["annotated"]).all()


def test_segments_are_embedded_with_the_sound_around_them_if_the_examples_were(study):
    folder, segmentation, _, _ = study
    _, queries = split_study(study, 0)
    model = learn(
        segmentation.audio, "mfcc", window_s=1.0, store=folder / "store"
    ).model
    result = label_segments(model, queries, EmbedOptions(store=folder / "store"))
    # The queries are examples too, so they have the same vectors, and the same distances.
    known = {
        (example.path, round(example.start_s, 6)): np.linalg.norm(
            vector - model.means[model.classes.index(example.label)]
        )
        for example, vector in zip(
            list_rows(model.examples.spans), model.examples.matrix, strict=True
        )
    }
    for row in result.frame.iter_rows(named=True):
        expected = known[row["path"], round(row["start_s"], 6)]
        assert row["label"] == row["annotated"]
        assert row["distance"] == pytest.approx(expected, rel=1e-9)


def test_segments_that_were_cut_in_another_way_are_refused(study, tmp_path):
    folder, segmentation, _, _ = study
    support, _ = split_study(study, 0)
    model = learn(support, "mfcc", store=folder / "store").model
    other = callshot.segment(segmentation.audio, min_length_s=0.1, collar_s=0.2)
    path = tmp_path / "segments.parquet"
    write_parquet(other.segments.frame, path, {"audio": other.audio})
    match = r"collar_s is 0.2, but memory was learned with 0.1; use --collar-s 0.1"
    with pytest.raises(InputError, match=match):
        label_segments(model, path, EmbedOptions(store=folder / "store"))


def make_small_model(labels, vectors):
    examples = [
        (label, f"{n}.wav", f"{n}.wav", 0.0, 1.0) for n, label in enumerate(labels)
    ]
    return model_of(examples, vectors)


def test_one_label_and_identical_labels_are_one_line():
    with pytest.raises(InputError, match=r"two labels or more, got only hoot; add"):
        check_classes(make_small_model(["hoot"], [[1.0]]))
    with pytest.raises(InputError, match=r"examples of bark and hoot are identical"):
        check_classes(make_small_model(["hoot", "bark"], [[1.0], [1.0]]))


def test_a_damaged_model_is_one_line(study, tmp_path):
    model = make_small_model(["hoot", "bark"], [[1.0], [2.0]])
    path = tmp_path / "model.npz"
    write_model(model, path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"expected a model of callshot learn"):
            load_model(path)
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            load_model(path)
        except InputError as error:
            messages.append(str(error))
    assert len(messages) > 30
    assert not any("\n" in message for message in messages)


def test_a_model_of_a_newer_callshot_is_named(tmp_path, monkeypatch):
    model = make_small_model(["hoot", "bark"], [[1.0], [2.0]])
    monkeypatch.setattr("callshot.detection.model.VERSION", 2)
    write_model(model, tmp_path / "model.npz")
    monkeypatch.undo()
    with pytest.raises(InputError, match="newer callshot"):
        load_model(tmp_path / "model.npz")
