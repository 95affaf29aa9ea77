"""Which device evaluates, and what is said where it is not the GPU."""

import builtins
import sys
import types
import warnings
from dataclasses import replace

import pytest

from callshot.errors import OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.gpu import device
from callshot.fewshot.gpu.device import Choice, Gpu, choose_device, usable_gpu
from corpora import SMALL, episodes_of, folds_of, random_corpus

QUICK = replace(SMALL, permutations=0)


def fake_torch(
    monkeypatch, *, missing="", cuda="13.0", available=True, capability=(9, 0), error=""
):
    """Put a driver and a torch in place that find such a card."""

    def is_available():
        if not available:
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
    monkeypatch.setattr(device, "has_driver", lambda: True)
    monkeypatch.setattr(device, "find_spec", lambda name: name != missing or None)
    monkeypatch.setattr(device, "_triton_error", lambda: error)


def test_the_cpu_needs_no_reason_and_a_misspelt_device_is_an_error():
    assert choose_device("cpu") == Choice()
    assert choose_device("cpu").notes == []
    with pytest.raises(OptionError, match="device: expected one of auto, cpu, cuda"):
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


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"missing": "torch"}, "torch is not installed; pip install torch"),
        ({"missing": "triton"}, "triton is not installed; pip install triton"),
        ({"cuda": None}, "torch was installed without CUDA"),
        ({"available": False}, "The NVIDIA driver is too old"),
        ({"capability": (6, 1)}, "Card has compute capability 6.1; 7.0 is needed"),
        ({"error": "no C compiler"}, "Triton runs no kernel (no C compiler)"),
    ],
)
def test_why_a_card_cannot_be_used_is_noted(monkeypatch, options, reason):
    fake_torch(monkeypatch, **options)
    assert choose_device("auto").notes == [f"evaluated on the CPU: {reason}"]


def test_a_card_that_can_evaluates(monkeypatch):
    fake_torch(monkeypatch)
    choice = choose_device("auto")
    assert choice.gpu == Gpu("Card", ("cuda", 0), 2**30)
    assert choice.notes == ["evaluated on the GPU Card"]


def test_without_the_memory_or_a_kernel_the_cpu_evaluates_with_one_note():
    episodes = episodes_of(random_corpus(1))
    small = Gpu("Card", None, 2**20)
    gpu = Gpu("Card", None, 2**30)
    notes = []
    assert usable_gpu(gpu, episodes, notes, "mean", "log") is gpu
    for _ in range(2):
        assert usable_gpu(small, episodes, notes) is None
        assert usable_gpu(gpu, episodes, notes, "median", "log") is None
    assert notes == [
        "evaluated on the CPU: it needs 0.5 GiB, and the GPU Card has 0.0 GiB free",
        "evaluated on the CPU: there is no GPU kernel for median",
    ]


def test_running_out_of_memory_gives_the_numbers_of_the_cpu(monkeypatch):
    pytest.importorskip("triton")
    torch = pytest.importorskip("torch")

    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory")

    from callshot.fewshot import evaluate
    from callshot.fewshot.gpu import sweep as gpu_sweep

    table = random_corpus(3, size=2)
    folds = folds_of(table)
    expected = evaluate_tables([table], QUICK, folds=folds, device="cpu")
    gpu = Gpu("Card", torch.device("cpu"), 2**33)
    monkeypatch.setattr(evaluate, "choose_device", lambda name: Choice(gpu))
    monkeypatch.setattr(gpu_sweep, "sweep_fold", fail)
    found = evaluate_tables([table], QUICK, folds=folds)
    assert found.notes.count("evaluated on the CPU: Card ran out of memory") == 1
    assert found.curve.equals(expected.curve)
