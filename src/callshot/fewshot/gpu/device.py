"""Which processor evaluates: the GPU where there is one that can, else the CPU, and why.

torch is only imported where a driver answers: its import takes seconds.
"""

import ctypes
import sys
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from callshot.errors import check_choice
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.kernels.ranks import ClassTables

# The rules, scores and tables of metrics that have kernels for a GPU.
KERNELS = ("mean", "cosine", "log", "ap", "auroc", "hits", "correct", "decided")
DEVICES = ("auto", "cpu", "cuda")
DRIVER_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
MIN_CAPABILITY = 7  # major version, of a card that Triton compiles for
LARGEST_SCORE_BYTES = 2**32
MIN_SCORE_BYTES = 2**28
WORK_BYTES = 3 * 2**30  # of draws, products and ties at a time, at most


@dataclass(frozen=True)
class Gpu:
    """A card that evaluates; `memory` is what is free on it, in bytes."""

    name: str
    torch_device: Any
    memory: int

    @property
    def score_bytes(self) -> int:
        """How many bytes of scores are on the card at a time."""
        free = (self.memory - WORK_BYTES) // 4  # the rest is for what is measured
        return max(min(free, LARGEST_SCORE_BYTES), MIN_SCORE_BYTES)


@dataclass(frozen=True)
class Choice:
    """The device that evaluates: a GPU, or the CPU where it is None.

    `reason` is why no GPU evaluates; it is noted if one was asked for, or is there.
    """

    gpu: Gpu | None = None
    reason: str = ""
    is_noted: bool = False

    @property
    def notes(self) -> list[str]:
        """The line for the results: none for the CPU of a machine without a GPU."""
        return [self.describe()] if self.gpu is not None or self.is_noted else []

    def describe(self) -> str:
        """Return one line that says which device evaluates, and why not the GPU.

        >>> Choice(None, "no NVIDIA driver was found").describe()
        'evaluated on the CPU: no NVIDIA driver was found'
        """
        if self.gpu is not None:
            return f"evaluated on the GPU {self.gpu.name}"
        because = f": {self.reason}" if self.reason else ""
        return f"evaluated on the CPU{because}"


def check_device(name: str) -> None:
    """Check the name of a device for sweeps."""
    check_choice("device", name, DEVICES)


def choose_device(name: str) -> Choice:
    """Return the device of an option: auto, cpu or cuda.

    >>> choose_device("cpu").describe()
    'evaluated on the CPU'
    """
    check_device(name)
    if name == "cpu":
        return Choice()
    found = find_gpu()
    if isinstance(found, Gpu):
        return Choice(found)
    return Choice(None, found, is_noted=name == "cuda" or has_driver())


def describe_device(name: str) -> str:
    """Return one line that says on which devices the steps of a study run; `name` is the option.

    >>> describe_device("cpu")
    'evaluated on the CPU; encoders and networks run on the CPU'
    """
    networks = "GPU" if network_device(name) == "cuda" else "CPU"
    evaluated = choose_device(name).describe()
    return f"{evaluated}; encoders and networks run on the {networks}"


def usable_gpu(
    gpu: Gpu | None, episodes: Episodes, notes: list[str], *needed: str
) -> Gpu | None:
    """Return the GPU if it has memory and kernels for all metrics; else None, with a note.

    `needed` are names of other kernels, such as a rule and a score.
    """
    if gpu is None:
        return None
    # The fields are what is measured of each class
    names = (*needed, *ClassTables._fields)
    missing = ", ".join(name for name in names if name not in KERNELS)
    # Products of the rows of each class, those of one class once more, and all vectors.
    products = np.square(np.diff(episodes.class_start))
    entries = products.sum() + products.max() + episodes.vectors.size
    size = (8 * entries + 2 * MIN_SCORE_BYTES) / 2**30  # GiB; numbers are float64
    free = gpu.memory / 2**30
    if missing:
        reason = f"there is no GPU kernel for {missing}"
    elif size > free:
        reason = (
            f"it needs {size:.1f} GiB, and the GPU {gpu.name} has {free:.1f} GiB free"
        )
    else:
        return gpu
    add_note(notes, f"evaluated on the CPU: {reason}")
    return None


def network_device(device: str) -> str:
    """Return where encoders and networks run: on a GPU only if it is asked for.

    The last digits of vectors and trained weights depend on it.
    """
    return "cuda" if device == "cuda" else "cpu"


def add_note(notes: list[str], note: str) -> None:
    """Add a note that is not there yet."""
    if note not in notes:
        notes.append(note)


def has_driver() -> bool:
    """Return whether an NVIDIA driver is installed."""
    try:
        ctypes.CDLL(DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def find_gpu() -> Gpu | str:
    """Return the first GPU if it can evaluate, else one line that says why there is none."""
    if not has_driver():
        return "no NVIDIA driver was found"
    for package in ("torch", "triton"):
        if find_spec(package) is None:
            return f"{package} is not installed; pip install {package}"
    import torch

    if torch.version.cuda is None:
        return "torch was installed without CUDA"
    # torch warns why a card cannot be used: that becomes the reason.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        text = str(caught[0].message) if caught else "torch finds no GPU"
        return _first_sentence(text)
    name = torch.cuda.get_device_name(0)
    major, minor = torch.cuda.get_device_capability(0)
    if major < MIN_CAPABILITY:
        return f"{name} has compute capability {major}.{minor}; {MIN_CAPABILITY}.0 is needed"
    error = _triton_error()
    if error:
        return f"Triton runs no kernel ({error})"
    free, _ = torch.cuda.mem_get_info(0)
    return Gpu(name, torch.device("cuda", 0), int(free))


@cache
def _triton_error() -> str:
    """Run one small kernel, and return the error (no C compiler, for example), or an empty text."""
    try:
        import torch

        from callshot.fewshot.gpu.supports import to_scores

        # One shot, two classes, one query.
        table = torch.zeros((1, 2, 1), dtype=torch.float64, device="cuda")
        relevant = torch.zeros((2, 1), dtype=torch.int8, device="cuda")
        to_scores(table, relevant, 1, ranking=False).cpu()
    except Exception as error:  # whatever a compiler or driver raises
        return _first_sentence(f"{type(error).__name__}: {error}")
    return ""


def _first_sentence(text: str) -> str:
    """Return the first line of a message, up to its first sentence."""
    line = text.strip().split("\n")[0]
    return line.split(". ")[0].rstrip(".")[:150]
