"""The table of encoders: specs by name, choices by hand, and a fingerprint that nothing escapes."""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from callshot.encoders import catalogue
from callshot.encoders.availability import PACKAGES, encoder_status, list_status
from callshot.encoders.catalogue import (
    ENCODERS,
    EncoderSpec,
    apply_choices,
    find_encoder,
    fingerprint,
    list_encoders,
    match_files,
)
from callshot.encoders.hubert import TORCH_EXTRA
from callshot.encoders.perch import TENSORFLOW_EXTRA
from callshot.errors import InputError, OptionError

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
NAMES = [spec.name for spec in ENCODERS]


def test_names_are_unique_and_every_row_says_what_it_is():
    assert len(set(NAMES)) == len(NAMES)
    for spec in ENCODERS:
        assert spec.title
        assert spec.licence
        assert spec.level
        assert spec.dimension > 0
        assert (spec.windowing is None) or spec.windowing.rate_hz == spec.rate_hz


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("perch", "perch-v"),
        ("birdnet", "birdnet-v2.4"),
        ("mfc", "mfcc"),
        ("hubert-base-l13", "hubert-base-l2"),
        ("x" * 40, "lists"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name, said):
    with pytest.raises(OptionError, match=f"is not known; .*{said}"):
        find_encoder(name)


def test_any_layer_of_hubert_is_an_encoder_and_all_share_their_weights():
    specs = [find_encoder(f"hubert-base-l{n}") for n in range(1, 13)]
    assert [spec.options["layer"] for spec in specs] == list(range(1, 13))
    assert {spec.weights_name for spec in specs} == {
        "hubert-base-l2"
    }  # a name that `encoders get` knows
    assert len({json.dumps(fingerprint(spec, {})) for spec in specs}) == 12


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_of_a_row_can_be_made_and_changes_its_fingerprint(name):
    spec = find_encoder(name)
    others = {
        "padding": "none" if name == "mfcc" else "right",
        "remainder": "drop",
        "normalisation": "peak",
        "mel": "htk",
        "normalise": "false",
        "top_db": "none",
        "hop_s": "0.02" if name == "mfcc" else "1.5",
        "window_s": "2",
        "rate_hz": "24000",
        "layer": "3",
        "n_fft": "512",
        "bands": "64",
        "coefficients": "13",
        "dimension": "7",
        "sequence": "spatial",
    }
    for option in spec.choices():
        changed = apply_choices(spec, {option: others[option]})
        assert changed.choices()[option] != spec.choices()[option], option
        assert fingerprint(changed, {}) != fingerprint(spec, {})


def test_weights_and_version_are_in_the_fingerprint():
    spec = find_encoder("birdnet-v2.4")
    prints = [
        fingerprint(spec, {}),
        fingerprint(spec, {"a": "1"}),
        fingerprint(spec, {"a": "2"}),
        fingerprint(replace(spec, version=2), {}),
    ]
    assert len({json.dumps(found, sort_keys=True) for found in prints}) == 4


@pytest.mark.parametrize(
    ("name", "choices", "said"),
    [
        (
            "perch-v2",
            {"normalization": "peak"},
            "no option 'normalization'; did you mean normalisation",
        ),
        ("perch-v2", {"padding": "left"}, "padding: one of centre, right, wrap"),
        ("perch-v2", {"window_s": "long"}, "window_s: wanted a value like 5.0, got 'long'"),
        ("hubert-base-l2", {"normalise": "maybe"}, "wanted a value like True"),
        ("random", {"dimension": "1.5"}, "wanted a value like 40"),
        ("perch-v2", {"sequence": "frames"}, "sequence: one of windows, spatial, got 'frames'"),
        ("onnx:model.onnx", {}, "rate_hz must be given: --set rate_hz="),
    ],
)
def test_a_choice_that_cannot_be_is_refused(name, choices, said):
    with pytest.raises(OptionError, match=said):
        find_encoder(name, choices)


@pytest.mark.parametrize(
    ("name", "choice"),
    [("perch-v2", "normalisation"), ("birdnet-v2.4", "normalisation"), ("mfcc", "padding")],
)
def test_none_is_a_word_where_words_are_wanted(name, choice):
    assert apply_choices(find_encoder(name), {choice: "none"}).choices()[choice] == "none"


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("random", {"dimension": "0"}),
        ("random", {"dimension": "none"}),
        ("hubert-base-l2", {"layer": "13"}),
    ],
)
def test_sizes_and_layers_that_cannot_be_are_refused(name, choices):
    with pytest.raises(OptionError, match=r"dimension|layer"):
        find_encoder(name, choices)


def test_a_stranger_of_the_same_name_does_not_take_our_place(monkeypatch):
    entry = EntryPoint("mfcc", "callshot.encoders.catalogue:my_row", "callshot.encoders")
    monkeypatch.setattr(
        catalogue, "my_row", replace(find_encoder("random"), name="mfcc"), raising=False
    )
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [entry])
    assert find_encoder("mfcc").load.endswith("load_mfcc")
    with pytest.raises(InputError, match="two packages bring one of that name"):
        list_encoders()


def test_a_users_own_model_is_a_row_once_its_rate_window_and_size_are_given():
    spec = find_encoder(
        "onnx:dir/model.onnx",
        {"rate_hz": "22050", "window_s": "2.5", "dimension": "16", "padding": "right"},
    )
    assert spec.windowing is not None
    assert (spec.rate_hz, spec.windowing.window, spec.windowing.padding, spec.dimension) == (
        22050,
        55125,
        "right",
        16,
    )
    assert spec.options["path"].endswith("dir/model.onnx")  # type: ignore[union-attr]


def test_rows_of_other_packages_join_the_table(monkeypatch):
    mine = EncoderSpec(
        "mine",
        "my own",
        3,
        16000,
        "callshot.encoders.loaders:load_random",
        "MIT",
        "nothing",
        options={"dimension": 3},
    )
    monkeypatch.setattr(catalogue, "my_row", mine, raising=False)
    entry = EntryPoint("mine", "callshot.encoders.catalogue:my_row", "callshot.encoders")
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [entry])
    assert list_encoders()[-1] is mine
    assert find_encoder("mine").dimension == 3


def test_what_another_package_brings_must_be_a_row(monkeypatch):
    class Brought:
        name, dist = "broken", type("Dist", (), {"name": "stranger"})

        def load(self):
            return 3

    monkeypatch.setattr(catalogue, "entry_points", lambda group: [Brought()])
    with pytest.raises(
        InputError, match="encoder broken of package stranger: wanted an EncoderSpec, found int"
    ):
        list_encoders()


def test_what_an_encoder_needs_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    states = {state.name: state for state in list_status()}
    assert states["mfcc"].needs == states["random"].needs == ()
    assert "callshot encoders get birdnet-v2.4" in states["birdnet-v2.4"].needs
    monkeypatch.setattr("callshot.encoders.availability.find_spec", lambda name: None)
    assert encoder_status(find_encoder("perch-v2")).needs[0] == "pip install 'callshot[onnx]'"


def test_weights_for_torch_need_torch_to_be_exported_unless_the_others_are_there(
    monkeypatch, tmp_path
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    spec = find_encoder("hubert-base-l3")
    there: set[str] = set()
    monkeypatch.setattr(
        "callshot.encoders.availability.find_weight",
        lambda place, w: w.file if w.file in there else None,
    )
    monkeypatch.setattr(
        "callshot.encoders.availability.find_spec", lambda name: None if name == "torch" else name
    )
    assert encoder_status(spec).needs == ("callshot encoders get hubert-base-l3",)
    there.add("model.safetensors")
    assert encoder_status(spec).needs == ("pip install 'callshot[rivals]'",)
    there.add("model.onnx")
    assert encoder_status(spec).needs == ()
    assert [(file, is_there) for file, _, is_there in encoder_status(spec).weights] == [
        ("model.onnx", True),
        ("pytorch_model.bin", False),
        ("model.safetensors", True),
    ]


def test_a_users_own_model_is_not_ready_where_there_is_none(tmp_path):
    choices = {"rate_hz": "16000", "window_s": "1", "dimension": "3"}
    spec = find_encoder(f"onnx:{tmp_path / 'mine.onnx'}", choices)
    assert encoder_status(spec).needs == (f"the file {tmp_path / 'mine.onnx'}, which is not there",)
    (tmp_path / "mine.onnx").touch()
    assert encoder_status(spec).needs == ()


def test_a_users_files_are_told_by_their_suffix_or_come_in_order(tmp_path):
    hubert, perch = find_encoder("hubert-base-l2"), find_encoder("perch-v1")
    files = [Path("a.safetensors"), Path("b.onnx"), Path("c.bin")]
    assert [(weight.file, file) for weight, file in match_files(hubert, files)] == [
        ("model.safetensors", files[0]),
        ("model.onnx", files[1]),
        ("pytorch_model.bin", files[2]),
    ]
    (tmp_path / "model.safetensors").touch()
    assert [weight.file for weight, _ in match_files(hubert, [tmp_path])] == ["model.safetensors"]
    assert [file for _, file in match_files(perch, files[:2])] == [files[0], files[1], files[1]]
    for wrong in (Path("hubert.pt"), tmp_path / "nowhere"):
        with pytest.raises(
            InputError,
            match=r"wanted one of model\.onnx, pytorch_model\.bin, model\.safetensors, or a fol",
        ):
            match_files(hubert, [wrong])


def test_every_extra_that_is_named_can_be_installed():
    extras = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    assert {spec.extra for spec in ENCODERS if spec.extra} | set(PACKAGES) | {
        TORCH_EXTRA,
        TENSORFLOW_EXTRA,
    } <= set(extras)


def test_listing_imports_no_framework_and_writes_nothing(tmp_path):
    code = (
        "import sys; from callshot.encoders.availability import list_status; list_status();"
        "print(*{'onnxruntime', 'onnx', 'torch', 'tensorflow', 'ai_edge_litert', 'numba'} & set(sys.modules))"
    )
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    home["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=home, check=True
    )
    assert done.stdout.strip() == ""
    assert list(tmp_path.iterdir()) == []
