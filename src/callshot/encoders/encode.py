"""A spec of the table → an open encoder: the audio of segments comes in, their sequences and vectors go out.

    segment → windows, or whole → model → sequence (frames × dimension) → mean over frames: the vector
                                        ↘ windows × (1 + frames) × dimension, where windows have frames inside:
                                          a vector and then frames of each; `pool` and `unroll` take them apart

A segment's specs do not depend on the others in its batch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from callshot.encoders.catalogue import EncoderSpec, fingerprint
from callshot.encoders.loaders import Model, used_weights
from callshot.encoders.weights.weight_files import weight_sha256
from callshot.encoders.windows import cut_windows
from callshot.errors import InputError, OptionError

Signal = NDArray[np.float32]
DEVICES = ("cpu", "cuda")
MOST_WINDOWS = 64  # at once through a model: a long segment has more


@dataclass(frozen=True)
class Encoder:
    """An open encoder. `prepare` may run in other threads than `encode`."""

    spec: EncoderSpec
    model: Model
    fingerprint: dict[str, object]

    def prepare(self, signal: Signal, rate_hz: int) -> NDArray[np.float32]:
        """Return what the model is given of a segment: its windows, or all of it at the model's rate."""
        if self.spec.windowing is not None:
            return cut_windows(signal, rate_hz, self.spec.windowing)
        if rate_hz != self.spec.rate_hz:
            wanted = self.spec.rate_hz
            raise InputError(
                f"{self.spec.name}: wanted segments at {wanted} Hz, found {rate_hz}; cut them with --rate {wanted}"
            )
        return signal

    def encode(self, prepared: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        """Return what `pool` and `unroll` take, for each segment; all windows go through the model together."""
        if self.spec.windowing is None:
            return [self._checked(self.model(signal)) for signal in prepared]
        ends = np.cumsum([len(windows) for windows in prepared])[:-1]
        windows = np.concatenate(prepared)
        parts = [
            self._checked(self.model(windows[n : n + MOST_WINDOWS]))
            for n in range(0, len(windows), MOST_WINDOWS)
        ]
        return np.split(np.concatenate(parts), ends)

    def _checked(self, found: NDArray[np.float32]) -> NDArray[np.float32]:
        if found.ndim not in (2, 3) or found.shape[-1] != self.spec.dimension or len(found) == 0:
            raise InputError(
                f"{self.spec.name}: wanted vectors of {self.spec.dimension}, found shape {found.shape}"
            )
        if not np.isfinite(found).all():
            raise InputError(f"{self.spec.name}: the model returned values that are not finite")
        return found


def pool(encoded: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the vector of a segment: the mean over its frames or windows, summed in float64.

    >>> pool(np.array([[1, 2], [3, 6]], np.float32))
    array([2., 4.], dtype=float32)
    >>> pool(np.array([[[9], [1], [2]], [[7], [3], [4]]], np.float32))  # two windows: a vector and two frames each
    array([8.], dtype=float32)
    """
    vectors = encoded[:, 0] if encoded.ndim == 3 else encoded
    mean: NDArray[np.float32] = vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    return mean


def unroll(encoded: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sequence of a segment, frames × dimension: frames inside windows follow each other.

    >>> unroll(np.array([[[9], [1], [2]], [[7], [3], [4]]], np.float32)).ravel()
    array([1., 2., 3., 4.], dtype=float32)
    """
    return encoded[:, 1:].reshape(-1, encoded.shape[2]) if encoded.ndim == 3 else encoded


def check_device(device: str) -> None:
    """Refuse a device that is none."""
    if device not in DEVICES:
        raise OptionError(f"device: one of {', '.join(DEVICES)}, got {device!r}")


def encoder_fingerprint(spec: EncoderSpec, device: str = "cpu") -> dict[str, object]:
    """Return everything that decides the numbers of a spec, with the content of the files that it uses on a device."""
    digests = {
        weight.file: weight_sha256(spec.weights_name, weight)
        for weight in used_weights(spec, device)
    }
    own = spec.options.get("path")
    if isinstance(own, str):  # a file of the user's: its content decides, not its name
        try:
            with Path(own).open("rb") as stream:
                digests["path"] = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{own}: cannot be read ({error.strerror})") from error
    return fingerprint(spec, digests)


def open_encoder(
    spec: EncoderSpec, *, device: str = "cpu", threads: int = 1, sequences: bool = False
) -> Encoder:
    """Open an encoder, whose weights must be there.

    `sequences` asks for frames, where a model could give their mean alone.
    """
    check_device(device)
    if device != "cpu" and not spec.gpu:
        raise OptionError(f"device: {spec.name} runs on the cpu only")
    spec = replace(spec, weights=used_weights(spec, device))
    module, _, function = spec.load.partition(":")
    model = getattr(import_module(module), function)(
        spec, device=device, threads=threads, sequences=sequences
    )
    whole = encoder_fingerprint(spec, device)
    if (
        sequences and spec.windowing is None
    ):  # the mean of frames and the mean that comes at once differ in late digits
        whole["frames"] = True
    return Encoder(spec, model, whole)
