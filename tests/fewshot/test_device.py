"""Which device evaluates, and what is said where it is not the GPU."""

import builtins
import dataclasses
import sys
import types

import numpy as np
import pytest

from callshot.errors import OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.gpu import device
from callshot.fewshot.gpu.device import Choice, Gpu, choose_device, usable_gpu
from callshot.fewshot.protocol import Protocol
from corpora import episodes_of, folds_of, random_corpus

QUICK = Protocol(
    shots=(1, 2), draws=3, bootstraps=5, shared_draws=4, total_samples=4, permutations=0
)


@pytest.fixture
def driver(monkeypatch):
    """A machine that has an NVIDIA driver."""
    monkeypatch.setattr(device, "has_driver", lambda: True)


def fake_torch(monkeypatch, *, cuda="13.0", available=True, capability=(9, 0)):
    """Put a torch in place that finds such a card."""

    def is_available():
        if not available:
            import warnings

            warnings.warn("The NVIDIA driver is too old. Update it.", stacklevel=1)
        return available

    torch = types.SimpleNamespace(
        version=types.SimpleNamespace(cuda=cuda),
        cuda=types.SimpleNamespace(
            is_available=is_available,
            get_device_capability=lambda number: capability,
            get_device_name=lambda number: "Card",
            mem_get_info=lambda number: (2**30, 2**31),
        ),
        device=lambda *where: where,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(device, "find_spec", lambda name: object())


def test_the_cpu_needs_no_reason():
    assert choose_device("cpu") == Choice()
    assert choose_device("cpu").notes == []


def test_a_misspelt_device_is_an_error():
    with pytest.raises(
        OptionError, match="device: expected one of auto, cpu, cuda, got"
    ):
        choose_device("gpu")


def test_without_a_driver_torch_is_not_imported(monkeypatch):
    monkeypatch.setattr(device, "has_driver", lambda: False)
    original = builtins.__import__

    def no_torch(name, *rest, **options):
        assert name != "torch"
        return original(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", no_torch)
    choice = choose_device("auto")
    assert choice.describe() == "evaluated on the CPU: no NVIDIA driver was found"
    assert choice.notes == []
    assert choose_device("cuda").notes == [choice.describe()]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("missing", ["torch", "triton"])
def test_a_missing_package_is_named(monkeypatch, missing):
    monkeypatch.setattr(
        device, "find_spec", lambda name: None if name == missing else object()
    )
    expected = f"{missing} is not installed; pip install {missing}"
    assert choose_device("auto").notes == [f"evaluated on the CPU: {expected}"]


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cuda": None}, "torch was installed without CUDA"),
        ({"available": False}, "The NVIDIA driver is too old"),
        ({"capability": (6, 1)}, "Card has compute capability 6.1; 7.0 is needed"),
    ],
)
def test_why_torch_cannot_use_the_card(monkeypatch, options, reason):
    fake_torch(monkeypatch, **options)
    assert choose_device("auto").notes == [f"evaluated on the CPU: {reason}"]


@pytest.mark.usefixtures("driver")
def test_a_compiler_that_fails_is_named(monkeypatch):
    fake_torch(monkeypatch)
    monkeypatch.setattr(device, "_triton_error", lambda: "RuntimeError: no C compiler")
    [note] = choose_device("cuda").notes
    assert note == (
        "evaluated on the CPU: Triton runs no kernel (RuntimeError: no C compiler)"
    )


@pytest.mark.usefixtures("driver")
def test_a_card_that_can_evaluates(monkeypatch):
    fake_torch(monkeypatch)
    monkeypatch.setattr(device, "_triton_error", lambda: "")
    choice = choose_device("auto")
    assert choice.gpu == Gpu("Card", ("cuda", 0), 2**30)
    assert choice.notes == ["evaluated on the GPU Card"]


def test_too_little_memory_is_noted_once():
    pytest.importorskip("triton")
    episodes = episodes_of(random_corpus(1))
    notes = []
    for _ in range(2):
        assert usable_gpu(Gpu("Card", None, 2**20), episodes, notes) is None
    assert notes == [
        "evaluated on the CPU: it needs 0.5 GiB, and the GPU Card has 0.0 GiB free"
    ]
    assert usable_gpu(Gpu("Card", None, 2**30), episodes, notes) is not None


def test_running_out_of_memory_gives_the_numbers_of_the_cpu(monkeypatch):
    pytest.importorskip("triton")
    torch = pytest.importorskip("torch")

    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    from callshot.fewshot import sweep_on_cluster
    from callshot.fewshot.gpu import sweep as gpu_sweep

    table = random_corpus(3, size=2)
    folds = folds_of(table)
    expected = evaluate_tables([table], QUICK, folds=folds, device="cpu")
    gpu = Gpu("Card", torch.device("cpu"), 2**33)
    monkeypatch.setattr(sweep_on_cluster, "choose_device", lambda name: Choice(gpu))
    monkeypatch.setattr(gpu_sweep, "sweep_fold", fail)
    found = evaluate_tables([table], QUICK, folds=folds)
    note = "evaluated on the CPU: Card ran out of memory"
    assert found.notes.count(note) == 1
    assert found.curve.equals(expected.curve)
    for field in dataclasses.fields(found.folds):
        mine = getattr(found.folds, field.name)
        assert np.array_equal(mine, getattr(expected.folds, field.name))


def test_a_rule_without_a_kernel_for_the_gpu_is_swept_on_the_cpu_with_one_note():
    episodes = episodes_of(random_corpus(1))
    gpu = Gpu("Card", None, 2**33)
    notes = []
    assert usable_gpu(gpu, episodes, notes, "mean", "log") is gpu
    for _ in range(2):
        assert usable_gpu(gpu, episodes, notes, "median", "log") is None
    assert notes == ["evaluated on the CPU: there is no GPU kernel for median"]
