"""Encoders are found by name, their options can be changed, and all of it is in the fingerprint."""

import json
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from callshot.encoders import catalogue
from callshot.encoders.catalogue import (
    ENCODERS,
    find_encoder,
    list_citations,
    list_specs,
)
from callshot.encoders.install import match_files
from callshot.encoders.spec import apply_options, fingerprint
from callshot.errors import InputError, OptionError

NAMES = [spec.name for spec in ENCODERS]


def test_names_are_unique_and_every_encoder_is_described():
    assert len(set(NAMES)) == len(NAMES)
    for spec in ENCODERS:
        assert spec.title
        assert spec.licence
        assert spec.loudness_effect
        assert spec.dimension > 0
        assert (spec.windowing is None) or spec.windowing.rate_hz == spec.rate_hz


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("perch", r"did you mean perch-v1 or perch-v2\?"),
        ("BirdNET", r"did you mean birdnet-v2.4 or .*birdnet-v3.0\?"),
        ("mfc", "did you mean mfcc"),
        ("hubert-base-l13", "did you mean hubert-base-l2"),
        ("x" * 40, "`callshot encoders` lists all"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_name(name, message):
    with pytest.raises(OptionError, match=f"unknown name '{name}'; {message}"):
        find_encoder(name)


def test_every_layer_of_hubert_is_an_encoder_and_all_share_their_weights():
    specs = [find_encoder(f"hubert-base-l{n}") for n in range(1, 13)]
    assert [spec.options["layer"] for spec in specs] == list(range(1, 13))
    # A name that `encoders get` knows
    assert {spec.weights_name for spec in specs} == {"hubert-base-l2"}
    assert len({json.dumps(fingerprint(spec, {})) for spec in specs}) == 12


VALUES = (
    "remainder=drop normalisation=peak mel=htk normalise=false precision=bfloat16 "
    "top_db=none window_s=2 rate_hz=24000 layer=3 n_fft=512 bands=64 coefficients=13 "
    "dimension=7 pooling=max speed=2 band=300-1000 padding=right hop_s=0.5"
)
OTHER_VALUES = dict(pair.split("=") for pair in VALUES.split())


@pytest.mark.parametrize("name", NAMES)
def test_every_option_can_be_changed_and_changes_the_fingerprint(name):
    spec = find_encoder(name)
    of_mfcc = {"padding": "none", "hop_s": "0.02"} if name == "mfcc" else {}
    values = OTHER_VALUES | of_mfcc
    for option in spec.all_options():
        changed = apply_options(spec, {option: values[option]})
        assert changed.all_options()[option] != spec.all_options()[option], option
        assert fingerprint(changed, {}) != fingerprint(spec, {})


def test_weights_and_version_are_in_the_fingerprint():
    spec = find_encoder("birdnet-v2.4")
    fingerprints = [
        fingerprint(spec, {}),
        fingerprint(spec, {"a": "1"}),
        fingerprint(spec, {"a": "2"}),
        fingerprint(replace(spec, version=2), {}),
    ]
    assert len({json.dumps(entry, sort_keys=True) for entry in fingerprints}) == 4


def test_the_fingerprint_of_an_encoder_keeps_its_text():
    """Stores on users' disks are keyed by this text."""
    assert fingerprint(find_encoder("random"), {}) == {
        "encoder": "random",
        "version": 1,
        "rate_hz": 16000,
        "dimension": 40,
        "options": {"speed": 1.0, "band": None, "dimension": 40},
        "pooling": "mean",
        "resampler": "soxr HQ",
        "weights": {},
    }


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("perch-v2", {"normalization": "x"}, "no option 'normalization'; did you mean"),
        ("perch-v2", {"padding": "left"}, "padding: expected one of centre, right, w"),
        ("perch-v2", {"window_s": "long"}, "expected a value like 5.0, got 'long'"),
        ("perch-v2", {"window_s": "none"}, "expected a value like 5.0, got 'none'"),
        ("hubert-base-l2", {"normalise": "maybe"}, "expected a value like True"),
        ("random", {"dimension": "1.5"}, "expected a value like 40"),
        ("random", {"dimension": "0"}, "dimension: expected 1 or more, got 0"),
        ("random", {"dimension": "none"}, "dimension: expected a value like 40"),
        ("hubert-base-l2", {"layer": "13"}, "layer: expected 1 to 12, got 13"),
        ("onnx:model.onnx", {}, "rate_hz is required: --set rate_hz="),
    ],
)
def test_a_bad_option_is_an_error(name, choices, message):
    with pytest.raises(OptionError, match=message):
        find_encoder(name, choices)


def test_adjacent_windows_stay_adjacent_if_the_window_changes():
    spec = find_encoder("perch-v2", {"window_s": "2"})
    assert (spec.windowing.window_s, spec.windowing.hop_s) == (2.0, 2.0)
    overlapping = apply_options(
        find_encoder("perch-v2", {"hop_s": "1"}), {"window_s": "2"}
    )
    assert (overlapping.windowing.window_s, overlapping.windowing.hop_s) == (2.0, 1.0)


def test_an_option_set_to_auto_stays_so_until_it_gets_a_value():
    spec = find_encoder("perch-v2", {"speed": "auto", "band": "auto"})
    padded = apply_options(spec, {"padding": "right"})
    assert (padded.auto, padded.windowing.padding) == (("speed", "band"), "right")
    fast = apply_options(spec, {"speed": "2"})
    assert (fast.auto, fast.speed, fast.band) == (("band",), 2.0, None)


def test_the_papers_of_all_encoders_in_a_joined_name_are_listed():
    alone = list_citations(["birdnet-v2.4", "yamnet", "mine"])
    joined = list_citations(["birdnet-v2.4[speed=2+4]+yamnet", "mine"])
    assert len(alone) == 2
    assert joined == alone


def test_an_onnx_model_of_the_user_needs_rate_window_and_dimension():
    choices = {"rate_hz": "22050", "window_s": "2.5", "dimension": "16"}
    spec = find_encoder("onnx:dir/model.onnx", choices | {"padding": "right"})
    windowing = spec.windowing
    assert (spec.rate_hz, spec.dimension) == (22050, 16)
    assert (windowing.window, windowing.hop) == (55125, 55125)
    assert windowing.padding == "right"
    assert spec.options["path"] == str(Path("dir/model.onnx").absolute())


def test_encoders_of_other_packages_join_the_catalogue_and_replace_none(monkeypatch):
    for name in ("mine", "mfcc"):
        spec = replace(find_encoder("random"), name=name, dimension=3)
        monkeypatch.setattr(catalogue, "my_spec", spec, raising=False)
        place = "callshot.encoders.catalogue:my_spec"
        entry = EntryPoint(name, place, "callshot.encoders")
        monkeypatch.setattr(catalogue, "entry_points", lambda group, one=entry: [one])
        if name == "mine":
            assert list_specs()[-1] is spec
            assert find_encoder("mine").load == spec.load
    assert find_encoder("mfcc").load.endswith("load_mfcc")
    with pytest.raises(InputError, match="two packages define this name"):
        list_specs()


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: 3, r"cannot be loaded \(expected an EncoderSpec, got int"),
        (lambda: 1 / 0, r"cannot be loaded \(division by zero\)"),
    ],
)
def test_a_broken_entry_point_is_an_error_with_its_package(monkeypatch, load, message):
    class Entry:
        name = "broken"
        dist = type("Dist", (), {"name": "other-package"})

        def load(self):
            return load()

    monkeypatch.setattr(catalogue, "entry_points", lambda group: [Entry()])
    with pytest.raises(
        InputError, match=f"encoder broken of package other-package: {message}"
    ):
        list_specs()


def test_files_are_matched_to_weights_by_suffix_content_or_order(tmp_path):
    hubert = find_encoder("hubert-base-l2")
    files = [Path("a.safetensors"), Path("b.onnx"), Path("c.bin")]
    names = ["model.safetensors", "model.onnx", "pytorch_model.bin"]
    pairs = [(weight.file, file) for weight, file in match_files(hubert, files)]
    assert pairs == list(zip(names, files, strict=True))
    (tmp_path / "model.safetensors").touch()
    assert [one.file for one, _ in match_files(hubert, [tmp_path])] == names[:1]
    perch = [file for _, file in match_files(find_encoder("perch-v1"), files[:2])]
    assert perch == [files[0], files[1], files[1]]
    for wrong in (Path("hubert.pt"), tmp_path / "missing"):
        with pytest.raises(InputError, match=r"expected one of .*, or a folder with"):
            match_files(hubert, [wrong])
