"""The summary of a model finds a planted mistake, and says what to expect."""

import numpy as np

from callshot.detection.model_summary import (
    class_table,
    describe_limits,
    describe_model,
    doubtful_examples,
    similar_pairs,
)
from rows_of_spans import model_of


def make_planted_model(wrong=True, per_class=6, spread=1.0):
    """Return three classes far apart; one bark is labelled hoot."""
    rng = np.random.default_rng(0)
    centres = {"bark": [0, 0, 0], "growl": [0, 6, 0], "hoot": [30, 0, 0]}
    examples = []
    vectors = []
    for label, centre in centres.items():
        for n in range(per_class):
            examples.append((label, f"r{n}", f"r{n}.wav", 10.0 * n, 10.0 * n + 1))
            vectors.append(rng.normal(centre, spread))
    if wrong:
        examples.append(("hoot", "r9", "r9.wav", 12.5, 13.5))
        vectors.append(rng.normal(centres["bark"], spread))
    return model_of(examples, vectors)


def test_a_mislabelled_example_is_listed_with_file_and_time():
    [row] = doubtful_examples(make_planted_model()).rows(named=True)
    assert (row["path"], row["start_s"], row["label"]) == ("r9.wav", 12.5, "hoot")
    assert row["nearer_to"] == "bark"
    text = "\n".join(describe_model(make_planted_model()))
    assert "r9.wav 12.50–13.50 s: hoot, nearer to bark" in text


def test_without_mistakes_none_is_listed():
    assert len(doubtful_examples(make_planted_model(wrong=False))) == 0


def test_the_most_similar_classes_come_first():
    pairs = similar_pairs(make_planted_model(wrong=False))
    assert pairs.select("label", "other_label").row(0) == ("bark", "growl")
    assert pairs["distance"][0] < pairs["distance"][1]


def test_recall_leaves_out_the_recording_of_the_example():
    """Examples of one recording are alike; only other recordings count."""
    vectors = np.array([[0.0], [0.1], [9.0], [9.1], [9.2], [0.2]], np.float32)
    places = [("hoot", "a"), ("hoot", "a"), ("hoot", "b"), ("bark", "b")]
    places += [("bark", "c"), ("bark", "a")]
    examples = [
        (label, name, f"{name}.wav", float(n), n + 1.0)
        for n, (label, name) in enumerate(places)
    ]
    model = model_of(examples, vectors)
    table = class_table(model)
    assert table["testable"].to_list() == [3, 3]
    # bark: 9.1 | mean of 9.2, 0.2 = 4.7, hoot 0.05 → right; 9.2 | 4.65, 3.03 → right;
    # 0.2 | 9.15, 9.0 → wrong. hoot: 0.0, 0.1 | 9.0, bark 9.15 → right; 9.0 | 0.05, 4.7 → wrong.
    assert table["recall"].to_list() == [2 / 3, 2 / 3]


def test_distances_leave_the_example_itself_out():
    model = make_planted_model()
    for row, vector in enumerate(model.examples.matrix):
        others = (model.label == model.label[row]) & (
            np.arange(len(model.examples.matrix)) != row
        )
        mean = model.examples.matrix[others].astype(float).mean(axis=0)
        expected = np.linalg.norm(vector - mean)
        np.testing.assert_allclose(model.distances[row], expected, rtol=1e-6)


def test_single_and_identical_examples_are_named():
    examples = [
        ("hoot", "a", "a.wav", 0.0, 1.0),
        ("hoot", "b", "b.wav", 0.0, 1.0),
        ("bark", "c", "c.wav", 0.0, 1.0),
    ]
    model = model_of(examples, [[1.0], [1.0], [2.0]])
    assert list(describe_limits(model)) == [
        "one example only: bark; two or more are safer",
        "2 identical examples (a.wav at 0.00 s, b.wav at 0.00 s): the same sound counts several "
        "times; keep one of them",
    ]
    assert list(describe_model(model))
