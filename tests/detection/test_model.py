"""Model files: what is damaged or made by hand is one line, whatever it contains."""

import json
import warnings
from typing import Any

import numpy as np
import pytest

from callshot.detection.learn import learn
from callshot.detection.model import load_model, write_model
from callshot.errors import InputError
from sounds import record

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    record(folder / "site" / "a.wav", seconds=4, rate=16000)
    (folder / "site" / "a.txt").write_text("0.5\t1.0\troar\n2.0\t2.5\trumble\n")
    site = folder / "site"
    model = learn(site, "mfcc", window_s=0.5, store=folder / "store").model
    assert model.background is not None
    write_model(model, folder / "model.npz")
    return folder / "model.npz"


def change_file(path, change):
    """Write a copy of a model after `change` of its facts and arrays."""
    arrays = dict(np.load(path))
    facts = json.loads(arrays["facts"].tobytes())
    change(facts, arrays)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    copy = path.with_name("changed.npz")
    np.savez(copy, **arrays)
    return copy


def test_a_file_that_was_not_changed_is_read(path):
    copy = change_file(path, lambda facts, arrays: None)
    assert load_model(copy).classes == ("roar", "rumble")


@pytest.mark.parametrize(
    "change",
    [
        lambda facts, arrays: facts.update(classes=[1, 2]),
        lambda facts, arrays: facts["settings"].update(speed=1),
        lambda facts, arrays: facts.pop("encoder"),
        lambda facts, arrays: facts["background"].pop("hop_s"),
        lambda facts, arrays: facts["background"].update(recordings=[]),
        lambda facts, arrays: arrays.update(vectors=arrays["vectors"][1:]),
        lambda facts, arrays: arrays.update(vectors=arrays["vectors"] * np.nan),
        lambda facts, arrays: arrays.update(vectors=arrays["vectors"].astype(float)),
        lambda facts, arrays: arrays.update(
            background_vectors=arrays["background_vectors"][1:]
        ),
        lambda facts, arrays: arrays.update(label=arrays["label"] + 5),
        lambda facts, arrays: arrays.update(clip_length=arrays["clip_length"] + 1),
    ],
)
def test_parts_that_do_not_fit_each_other_are_one_line(path, change):
    with pytest.raises(InputError, match="expected a model of callshot learn"):
        load_model(change_file(path, change))


def test_many_labels_with_one_example_each_give_no_warning(path):
    def change(facts, arrays):
        count = 30
        facts["classes"] = [f"label {number}" for number in range(count)]
        facts["path"] = facts["recording"] = count * ["a.wav"]
        del facts["clip_rate_hz"]
        arrays["vectors"] = np.eye(count, 40, dtype=np.float32)
        arrays["label"] = np.arange(count)
        arrays["start_s"] = arrays["end_s"] = np.arange(count, dtype=float)
        arrays["windows"] = np.ones(count, np.int64)
        arrays["reviewed"] = np.zeros(count, bool)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_model(change_file(path, change)).means) == 30
