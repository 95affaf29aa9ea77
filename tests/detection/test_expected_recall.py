"""Examples are searched with those of other recordings, at the thresholds of a scan."""

from dataclasses import replace

import numpy as np
import pytest

from callshot.detection.detector import make_detector
from callshot.detection.learn import learn
from callshot.detection.model_summary import describe_model, expect_recall
from field_recordings import write_site
from rows_of_spans import list_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall")
    site = write_site(folder / "site", calls=3)
    return learn(site, "mfcc", window_s=0.5, store=folder / "store").model


def test_recall_is_what_leaving_one_recording_out_gives(model):
    expected = expect_recall(model, 60.0)
    found = dict.fromkeys(model.classes, 0)
    for row, example in enumerate(list_rows(model.examples.spans)):
        others = [
            n
            for n, other in enumerate(model.examples.spans["recording"])
            if other != example.recording
        ]
        part = replace(
            model,
            examples=model.examples.take(others),
        )
        detector = make_detector(part, model.background, 60.0)
        [scores] = detector.score(model.examples.matrix[row : row + 1])
        best = int(np.argmax(scores))
        if scores[best] >= detector.thresholds[best]:
            found[example.label] += detector.classes[best] == example.label
    assert expected.hits.tolist() == [found[name] for name in model.classes]
    assert expected.testable.tolist() == model.counts.tolist()
    assert expected.recall.max() > 0


def test_a_class_of_one_recording_is_not_tested(model):
    rows = [
        n
        for n, example in enumerate(list_rows(model.examples.spans))
        if example.label != "hoot" or example.path == "a.wav"
    ]
    part = replace(
        model,
        examples=model.examples.take(rows),
    )
    expected = expect_recall(part, 60.0)
    hoot = part.classes.index("hoot")
    assert expected.testable[hoot] == 0
    assert np.isnan(expected.recall[hoot])


def test_the_summary_shows_thresholds_and_their_origin(model):
    text = "\n".join(describe_model(model))
    assert "thresholds at 1 false alarm per hour and label, from " in text
    assert "extrapolated beyond the highest score" in text
    assert "expected recall of a scan at these thresholds: " in text
    without = replace(model, background=None)
    text = "\n".join(describe_model(without))
    assert "from distances of the examples" in text
