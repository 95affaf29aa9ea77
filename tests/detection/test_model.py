"""Model files: what is damaged or made by hand is one line, whatever it contains."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.detection.learn import learn
from callshot.detection.model import load_model, write_model
from callshot.errors import InputError
from sounds import record

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    record(folder / "site" / "a.wav", seconds=4, rate=16000)
    (folder / "site" / "a.txt").write_text("0.5\t1.0\troar\n2.0\t2.5\trumble\n")
    site = folder / "site"
    model = learn(site, "mfcc", window_s=0.5, store=folder / "store").model
    assert model.background is not None
    write_model(model, folder / "model.npz")
    return folder / "model.npz"


def change_file(path: Path, change: Callable[[Facts, Facts], None]) -> Path:
    """Write a copy of a model after `change` of its facts and arrays."""
    arrays = dict(np.load(path))
    facts = json.loads(arrays["facts"].tobytes())
    change(facts, arrays)
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    copy = path.with_name("changed.npz")
    np.savez(copy, **arrays)
    return copy


def test_a_file_that_was_not_changed_is_read(path: Path) -> None:
    copy = change_file(path, lambda facts, arrays: None)
    assert load_model(copy).classes == ("roar", "rumble")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window_s", "x"),
        ("window_s", [1]),
        ("window_s", 0),
        ("window_s", float("nan")),
        ("window_s", 1e400),
        ("channel_rule", 1),
        ("source_rate_hz", -1),
        ("rate_hz", {}),
        ("collar_s", True),
        ("peak_dbfs", float("nan")),
    ],
)
def test_settings_that_cannot_be_are_one_line(
    path: Path, name: str, value: Any
) -> None:
    copy = change_file(path, lambda facts, _: facts["settings"].update({name: value}))
    with pytest.raises(InputError, match=f"expected a model of callshot learn.*{name}"):
        load_model(copy)


@pytest.mark.parametrize("classes", [[1, 2], ["roar", None], ["roar", "\ud800"]])
def test_labels_that_are_no_text_are_one_line(path: Path, classes: list[Any]) -> None:
    copy = change_file(path, lambda facts, _: facts.update(classes=classes))
    with pytest.raises(InputError, match="expected a model of callshot learn"):
        load_model(copy)


@pytest.mark.parametrize("name", ["window_s", "hop_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "1"])
def test_background_of_no_length_is_one_line(path: Path, name: str, value: Any) -> None:
    copy = change_file(path, lambda facts, _: facts["background"].update({name: value}))
    with pytest.raises(InputError, match=name):
        load_model(copy)


@pytest.mark.parametrize("rate_hz", [0, -1, "16000"])
def test_clips_without_a_rate_are_one_line(path: Path, rate_hz: Any) -> None:
    copy = change_file(path, lambda facts, _: facts.update(clip_rate_hz=rate_hz))
    with pytest.raises(InputError, match="clip_rate_hz"):
        load_model(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [("start_s", np.nan), ("end_s", np.inf), ("end_s", -1), ("label", -1)],
)
def test_examples_at_no_time_or_of_no_class_are_one_line(
    path: Path, name: str, value: float
) -> None:
    def change(facts: Facts, arrays: Facts) -> None:
        arrays[name] = np.full_like(arrays[name], value)

    with pytest.raises(InputError, match=name):
        load_model(change_file(path, change))


def test_many_labels_with_one_example_each_give_no_warning(path: Path) -> None:
    def change(facts: Facts, arrays: Facts) -> None:
        count = 30
        facts["classes"] = [f"label {number}" for number in range(count)]
        facts["path"] = facts["recording"] = count * ["a.wav"]
        del facts["clip_rate_hz"]
        arrays["vectors"] = np.eye(count, 40, dtype=np.float32)
        arrays["label"] = np.arange(count)
        arrays["start_s"] = arrays["end_s"] = np.arange(count, dtype=float)
        arrays["windows"] = np.ones(count, np.int64)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_model(change_file(path, change)).means) == 30
