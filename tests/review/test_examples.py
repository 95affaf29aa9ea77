"""Examples of a model are played as they sounded, whatever speed its encoder gets them at."""

import numpy as np
import pytest

from callshot.detection.model import AudioSettings, Clips, Provenance, make_model
from callshot.review.session import make_example_clip
from rows_of_spans import make_examples


@pytest.mark.parametrize("speed", [1.0, 2.0, 0.5])
def test_the_sound_of_an_example_lasts_as_long_as_the_call(speed):
    samples = np.arange(round(16000 * 1.5 / speed), dtype=np.int16)
    model = make_model(
        make_examples([("hoot", "a.wav", "a.wav", 2.0, 3.5)]),
        np.ones((1, 4), np.float32),
        encoder="mfcc",
        fingerprint={"encoder": "mfcc", "options": {"speed": speed}},
        settings=AudioSettings(),
        provenance=Provenance("none"),
        clips=Clips(16000, (samples,)),
    )
    clip = make_example_clip(model, 0)
    assert len(clip.signal) / clip.rate_hz == pytest.approx(1.5)
    assert clip.start_s == pytest.approx(2.0)
