"""An `EncoderSpec` comes in, an open encoder goes out that turns segments into vectors.

    segment → resampled → windows, or whole → model → sequence (frames × dimension) → pooled: vector

A model of windows maps float32 (n, samples) to (n, dimension). A model of whole segments maps
(samples,) to (frames, dimension); on a GPU its method `encode_batch`, if it has one, gets several
segments of one length: (n, samples) to (n, frames, dimension). Several threads may call a model at
once, if its spec is `parallel`. The rows of a segment do not depend on the others in its batch.

Pooling makes one vector of those of windows or frames:

    mean     the mean of all windows, also of those with padding: the paper's
    audio    the mean, where the weight of a window is the share of it that is audio
    max      the maximum of each dimension; a window with padding is first moved towards the
             mean `audio`, by the share of it that is padding
    energy   the mean, weighted by the energy of the audio in each window
    norm     the mean, weighted by the squared length of each vector, times its share of audio
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np

from callshot.encoders.spec import EncoderSpec, check_no_auto, fingerprint
from callshot.encoders.weights import (
    Weight,
    find_weight,
    require_weight,
    torch_has_cuda,
    weight_sha256,
)
from callshot.encoders.windows import (
    Float32Array,
    Model,
    check_signal,
    find_spans,
    resample,
    split_windows,
)
from callshot.errors import InputError, OptionError, check_choice
from callshot.files import check_regular_file, explain_unreadable, sha256_file
from callshot.records import FloatArray

DEVICES = ("cpu", "cuda")
GPU_WORKERS = 2  # one prepares and copies while the GPU works for the other
MAX_WINDOWS = 64  # in one call of a model; a long segment has more


@dataclass(frozen=True)
class PreparedSegment:
    """What a model gets of one segment, and what pooling has to know of it.

    input   windows × samples, or the samples of the whole segment
    share   share of each window that is audio, not padding; None for a whole segment
    energy  energy of the audio in each window; None if not needed, or not known yet
    """

    input: Float32Array
    share: FloatArray | None = None
    energy: FloatArray | None = None

    @property
    def windows(self) -> int:
        """The number of windows; a whole segment counts as one."""
        return 1 if self.share is None else len(self.share)


@dataclass(frozen=True)
class Encoder:
    """An open encoder. `prepare` may run in other threads than `encode`.

    `workers` threads may call the model at once. `sequences`: frames are wanted too.
    """

    spec: EncoderSpec
    model: Model
    fingerprint: dict[str, object]
    workers: int = 1
    device: str = "cpu"
    sequences: bool = False

    @property
    def runs_in_parallel(self) -> bool:
        """Whether several threads may call the model at once."""
        return self.spec.parallel and self.device == "cpu"

    @property
    def batches_segments(self) -> bool:
        """Whether whole segments of one length go into the model together."""
        if self.spec.windowing is not None or self.device == "cpu":
            return False
        return hasattr(self.model, "encode_batch")

    def prepare(self, signal: Float32Array, rate_hz: int) -> PreparedSegment:
        """Return a segment as the model takes it: at its rate and speed, whole or in windows.

        `signal` is one channel at `rate_hz`, read in the spec's band already.
        """
        check_signal(signal)
        resampled = resample(signal, rate_hz * self.spec.speed, self.spec.rate_hz)
        options = self.spec.windowing
        if options is None:
            return PreparedSegment(resampled)
        windows = split_windows(resampled, options)
        spans = find_spans(len(resampled), options)
        lengths = np.array([span.stop - span.start for span in spans])
        energy = None
        if self.spec.pooling == "energy":
            squares = np.square(resampled, dtype=np.float64)
            energy = np.array([squares[span].sum() for span in spans])
        return PreparedSegment(windows, lengths / options.window, energy)

    def encode(self, prepared: Sequence[PreparedSegment]) -> list[Float32Array]:
        """Return the output for each segment: vectors of its windows or frames, (n, dimension).

        Windows of all segments go into the model together, and so do whole segments of one length
        where it allows that.
        """
        if self.batches_segments:
            lengths = np.array([len(segment.input) for segment in prepared])
            outputs: dict[int, Float32Array] = {}  # by position in `prepared`
            for length in np.unique(lengths):
                has_length = lengths == length
                rows = np.flatnonzero(has_length).tolist()
                batch = np.stack([prepared[row].input for row in rows])
                raw_frames = self.model.encode_batch(batch)  # type: ignore[attr-defined]
                frames = self._check(raw_frames)
                outputs |= dict(zip(rows, frames, strict=True))
            return [outputs[row] for row in range(len(prepared))]
        if self.spec.windowing is None:
            return [self.run(segment.input) for segment in prepared]
        windows = np.concatenate([segment.input for segment in prepared])
        vectors = []
        for start in range(0, len(windows), MAX_WINDOWS):
            batch = windows[start : start + MAX_WINDOWS]
            vectors.append(self.run(batch))
        window_counts = [segment.windows for segment in prepared]
        ends = np.cumsum(window_counts)
        joined = np.concatenate(vectors)
        return np.split(joined, ends[:-1])

    def pool(self, prepared: PreparedSegment, output: Float32Array) -> Float32Array:
        """Return the vector of a segment, (dimension,), from the output of the model for it."""
        energy = prepared.energy
        pooling = self.spec.pooling
        if pooling == "energy" and energy is None:
            # A whole segment: how many frames it has is known only from the output.
            energy = frame_energies(prepared.input, len(output))
        return pool(output, pooling, prepared.share, energy)

    def run(self, batch: Float32Array) -> Float32Array:
        """Run the model on windows, or on a whole segment; check what it returns."""
        return self._check(self.model(batch))

    def _check(self, output: Float32Array) -> Float32Array:
        """Return the output of the model; raise InputError unless it is finite vectors.

        It is (n, dimension), or of several whole segments (n, frames, dimension).
        """
        dimension = self.spec.dimension
        has_vectors = output.ndim in (2, 3) and len(output) > 0
        if not has_vectors or output.shape[-1] != dimension:
            raise InputError(
                f"{self.spec.name}: expected vectors of {dimension} dimensions, "
                f"got shape {output.shape}"
            )
        if not np.isfinite(output).all():
            raise InputError(f"{self.spec.name}: the model returned NaN or infinity")
        return output


def check_runs_on(spec: EncoderSpec, device: str) -> None:
    """Raise OptionError unless an encoder can run on a device."""
    check_choice("device", device, DEVICES)
    if device != "cpu" and not spec.gpu:
        raise OptionError(f"device: {spec.name} runs on the cpu only")


def used_weights(spec: EncoderSpec, device: str) -> tuple[Weight, ...]:
    """Return the weights that an encoder is opened with; raise InputError if they are missing.

    An alternative is used if the encoder's own weights are missing, and one for torch also if
    torch finds a GPU.
    """
    name = spec.weights_name
    missing = [weight for weight in spec.weights if find_weight(name, weight) is None]
    for weight in spec.alternatives:
        if find_weight(name, weight) is None:
            continue
        is_for_gpu = weight.is_for_torch and device == "cuda"
        if missing or (is_for_gpu and torch_has_cuda()):
            return (weight,)
    for weight in missing:
        require_weight(name, weight)  # raises the error that names the command
    return spec.weights


def encoder_fingerprint(
    spec: EncoderSpec, device: str = "cpu", *, sequences: bool = False
) -> dict[str, object]:
    """Return everything that decides the vectors of an encoder, as the store is keyed by it.

    It has the checksums of the weights that are used on this device.
    """
    checksums = {}
    for weight in used_weights(spec, device):
        checksums[weight.file] = weight_sha256(spec.weights_name, weight)
    path = spec.options.get("path")
    if isinstance(path, str):  # a file of the user: its content decides, not its name
        with explain_unreadable(path):
            check_regular_file(Path(path))
            checksums["path"] = sha256_file(Path(path))
    content = fingerprint(spec, checksums)
    # With windows, vectors are the same in either case. A model that takes a segment whole may have
    # a faster way to the mean if no frames are wanted, and that differs in late digits.
    if sequences and spec.windowing is None:
        content["frames"] = True
    return content


def open_encoder(
    spec: EncoderSpec, *, device: str = "cpu", threads: int = 1, sequences: bool = False
) -> Encoder:
    """Open an encoder; its weights must be on this machine.

    `threads` are those that may call the model at once, or if the model does not allow that, those
    that it uses itself. `sequences` requests frames from models that could return their mean alone.
    """
    check_runs_on(spec, device)
    check_no_auto(spec)
    spec = replace(spec, weights=used_weights(spec, device))
    module, _, function = spec.load.partition(":")
    load = getattr(import_module(module), function)
    model = load(spec, device=device, threads=threads, sequences=sequences)
    fingerprint = encoder_fingerprint(spec, device, sequences=sequences)
    workers = 1
    if spec.parallel:
        workers = threads if device == "cpu" else GPU_WORKERS
    return Encoder(
        spec, model, fingerprint, workers=workers, device=device, sequences=sequences
    )


# Pooling


def pool(
    encoded: Float32Array,
    pooling: str = "mean",
    share: FloatArray | None = None,
    energy: FloatArray | None = None,
) -> Float32Array:
    """Pool the vectors of windows or frames, (n, dimension), to one, (dimension,), in float64.

    `share` is the share of each window that is audio, `energy` the energy of the audio in it; by
    default all are equal.

    >>> windows = np.array([[1, 2], [3, 6]], np.float32)
    >>> pool(windows, "audio", share=np.array([1.0, 0.0]))
    array([1., 2.], dtype=float32)
    """
    if pooling == "mean":
        return np.asarray(encoded.mean(axis=0, dtype=np.float64), np.float32)
    vectors = encoded.astype(np.float64)
    ones = np.ones(len(vectors))
    # Relative to the fullest window, so that a single short one counts in full.
    share = ones if share is None else share / share.max()
    if pooling == "max":
        # A window with padding counts less: it moves towards the mean by its share of padding.
        mean = _weighted_mean(vectors, share)
        nearer_to_mean = mean + share[:, np.newaxis] * (vectors - mean)
        pooled = np.asarray(nearer_to_mean.max(axis=0))
    elif pooling == "energy":
        pooled = _weighted_mean(vectors, ones if energy is None else energy)
    elif pooling == "norm":
        squares = np.einsum("wd,wd->w", vectors, vectors)
        pooled = _weighted_mean(vectors, share * squares)
    else:
        pooled = _weighted_mean(vectors, share)
    return pooled.astype(np.float32)


def _weighted_mean(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted mean of vectors, (n, dimension); if all weights are 0, the plain mean."""
    if not weights.any():
        weights = np.ones(len(vectors))
    shares = weights / weights.sum()
    return np.asarray(shares @ vectors)


def frame_energies(signal: Float32Array, frames: int) -> FloatArray:
    """Return the energy in each of `frames` equal parts of a signal."""
    squares = np.square(signal, dtype=np.float64)
    starts = np.arange(frames) * len(signal) // frames
    return np.asarray(np.add.reduceat(squares, starts))
