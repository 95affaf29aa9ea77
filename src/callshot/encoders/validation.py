"""Checks that all encoders share: signals and optional packages.

A signal or the name of a package comes in; nothing goes out, or one error that says what
to do.
"""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import CallshotError, InputError, printable
from callshot.files import error_reason

Float32Array = NDArray[np.float32]
Model = Callable[[Float32Array], Float32Array]

LOUDEST = 1e12  # larger samples are no audio, and their power overflows float32


def check_signal(signal: Float32Array, *, shortest: int = 1) -> None:
    """Check that a signal is one channel of float32, long enough, and finite."""
    dtype = getattr(signal, "dtype", type(signal).__name__)
    shape = np.shape(signal)
    if dtype != np.float32 or len(shape) != 1:
        raise InputError(
            f"signal: expected one channel of float32 samples, got {dtype} of shape {shape}; "
            "select a channel and convert it first"
        )
    if len(signal) < shortest:
        raise InputError(
            f"signal: expected at least {shortest} samples, got {len(signal)}; "
            "leave the segment out"
        )
    is_audio = np.abs(signal) <= LOUDEST  # False for NaN
    if not is_audio.all():
        position = int(np.argmin(is_audio))
        raise InputError(
            f"signal: sample {position}: expected a finite number within ±{LOUDEST:g}, "
            f"got {signal[position]}; repair the audio or leave the segment out"
        )


@contextmanager
def explain_errors(path: Path, action: str) -> Iterator[None]:
    """Turn any error of a library into one InputError: this file cannot be …, as `action` says."""
    try:
        yield
    except CallshotError:
        raise
    except Exception as error:  # libraries have dozens of classes without a common base
        if isinstance(error, OSError) and error.errno is not None:
            action = "read"
        reason = printable(error_reason(error))
        raise InputError(f"{path}: cannot be {action} ({reason})") from error


def import_package(name: str, extra: str) -> Any:
    """Import a package that only some encoders need; if it is missing, name the extra to install.

    >>> import_package("no_such_package", "onnx")
    Traceback (most recent call last):
    callshot.errors.InputError: the package no_such_package is missing; install it with: \
pip install 'callshot[onnx]'
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"the package {error.name} is missing; install it with: pip install 'callshot[{extra}]'"
        ) from error
    except ImportError as error:
        raise InputError(
            f"the package {name} cannot be loaded ({error_reason(error)})"
        ) from error
