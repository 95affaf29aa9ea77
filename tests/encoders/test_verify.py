"""An encoder is held to its reference vectors, and one that differs is refused."""

import numpy as np
import pytest

from callshot.encoders import verify
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.verify import check_encoder, fixed_sounds, references
from callshot.encoders.weights.weight_files import find_weight
from callshot.errors import InputError


@pytest.mark.parametrize("name", ["mfcc", "birdnet-v2.4"])
def test_an_encoder_gives_its_reference_vectors(name):
    spec = find_encoder(name)
    if any(find_weight(spec.weights_name, weight) is None for weight in spec.weights):
        pytest.skip(f"the weights of {name} are not here: callshot encoders get {name}")
    lines = list(check_encoder(spec))
    assert [line.partition(":")[0] for line in lines] == [name, *fixed_sounds()]


def test_other_choices_and_other_models_have_no_references():
    assert references(find_encoder("mfcc", {"mel": "htk"})) == {}
    assert references(find_encoder("perch-v2")) == {}
    assert "no reference vectors" in list(check_encoder(find_encoder("mfcc", {"mel": "htk"})))[-1]


def test_a_vector_that_is_another_is_refused(monkeypatch):
    wrong = {
        name: vector + np.float32(1) for name, vector in references(find_encoder("mfcc")).items()
    }
    monkeypatch.setattr(verify, "references", lambda spec: wrong)
    with pytest.raises(InputError, match=r"its vector for tone is .* away from the reference"):
        list(check_encoder(find_encoder("mfcc")))


def test_the_sounds_are_what_they_were():
    sums = {name: round(float(np.abs(sound).sum()), 1) for name, sound in fixed_sounds().items()}
    assert sums == {"tone": 20371.4, "sweep": 20367.7, "clicks": 8.0, "noise": 20283.0}
