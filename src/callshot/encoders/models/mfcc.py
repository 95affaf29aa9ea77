"""Encoders without weights: MFCC, and random vectors.

MFCC are as in `librosa.feature.mfcc`: a power mel spectrogram with filters of equal area, in dB,
and its DCT-II. No step uses BLAS, so the bits do not depend on its threads.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy  # which loads its parts when they are used
from numpy.typing import DTypeLike, NDArray

from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import audio_key
from callshot.encoders.windows import Float32Array, Model, check_signal
from callshot.errors import OptionError, check_range
from callshot.records import FloatArray
from callshot.records.terms import NO_LICENCE

POWER_FLOOR = 1e-10  # −100 dB: silence is finite
BLOCK_BYTES = 102_400  # frames that are transformed at once fit the processor's cache
MANY_FRAMES = 100  # rounding errors of float32 average out over so many
FLOAT32_DB = 80.0  # below the loudest band, where float32 has no correct digits left
MAX_SAMPLES = 2**20  # of a frame


@dataclass(frozen=True)
class MfccOptions:
    """How a signal becomes frames; every option changes the numbers. Defaults follow the paper.

    `window_s` and `hop_s` are rounded to samples. `n_fft` is in samples; the window is centred in
    it. `mel` htk leaves 4 of 128 filters empty at n_fft 400, and an empty filter adds a constant
    to every coefficient. `top_db` None does not clip. `padding` centre adds n_fft // 2 zeros at
    both ends.
    """

    rate_hz: int = 16000
    coefficients: int = 40
    bands: int = 128
    window_s: float = 0.025
    hop_s: float = 0.010
    n_fft: int = 400
    mel: str = "slaney"
    top_db: float | None = 80.0
    padding: str = "centre"

    def __post_init__(self) -> None:
        """Raise OptionError if values do not fit each other; `limits` has the range of each."""
        longest_s = MAX_SAMPLES / self.rate_hz
        check_range("window_s", self.window_s, 2 / self.rate_hz, longest_s, "s")
        check_range("hop_s", self.hop_s, 1 / self.rate_hz, longest_s, "s")
        if self.n_fft < self.window:
            raise OptionError(
                f"n_fft: expected at least the window of {self.window} samples, got {self.n_fft}"
            )
        if self.coefficients > self.bands:
            raise OptionError(
                f"coefficients: expected at most the {self.bands} bands, got {self.coefficients}"
            )

    @property
    def window(self) -> int:
        """Length of the window in samples."""
        return round(self.window_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.hop_s * self.rate_hz)

    @property
    def pad(self) -> int:
        """Zeros at each end of a signal."""
        return self.n_fft // 2 if self.padding == "centre" else 0

    @property
    def shortest(self) -> int:
        """Samples that the shortest signal must have."""
        return max(1, self.n_fft - 2 * self.pad)

    def count_frames(self, samples: int) -> int:
        """Return the number of frames of a signal."""
        return 1 + (samples + 2 * self.pad - self.n_fft) // self.hop


PAPER = MfccOptions()


def load_mfcc(spec: EncoderSpec, *, sequences: bool, **_: object) -> Model:
    """Return the MFCC model; where only the mean of frames is needed, it returns that."""
    values: dict[str, Any] = dict(spec.options)
    options = MfccOptions(rate_hz=spec.rate_hz, **values)
    if sequences or spec.pooling != "mean":
        return lambda signal: compute_mfcc(signal, options)
    return lambda signal: compute_mean_mfcc(signal, options)[np.newaxis]


def compute_mfcc(signal: Float32Array, options: MfccOptions = PAPER) -> Float32Array:
    """Return the MFCC of each frame, frames × coefficients.

    >>> compute_mfcc(np.zeros(16000, np.float32)).shape
    (101, 40)
    """
    check_signal(signal, shortest=options.shortest)
    log_mel = _log_mel(signal, options, np.float64)
    cepstrum = scipy.fft.dct(log_mel, axis=0, norm="ortho", overwrite_x=True)
    return np.ascontiguousarray(cepstrum[: options.coefficients].T)


def compute_mean_mfcc(
    signal: Float32Array, options: MfccOptions = PAPER
) -> Float32Array:
    """Return the mean MFCC over all frames, faster than the mean of `compute_mfcc`.

    They are equal up to 1e-6 of the largest coefficient; up to 3e-6 if a signal repeats itself
    exactly from frame to frame, because then rounding does not average out.
    """
    check_signal(signal, shortest=options.shortest)
    # An FFT in float32 is faster. It is exact enough if all levels that rounding would hide are
    # clipped, and if there are many frames.
    is_clipped = options.top_db is not None and options.top_db <= FLOAT32_DB
    frames = options.count_frames(len(signal))
    precision: DTypeLike = np.float64
    if is_clipped and frames >= MANY_FRAMES:
        precision = np.float32
    spectrogram = _log_mel(signal, options, precision)
    mean = spectrogram.mean(axis=1, dtype=np.float64)
    # The DCT is linear: the DCT of the mean is the mean of the DCTs.
    cepstrum: FloatArray = scipy.fft.dct(mean, norm="ortho")
    return cepstrum[: options.coefficients].astype(np.float32)


def _log_mel(
    signal: Float32Array, options: MfccOptions, precision: DTypeLike
) -> Float32Array:
    """Return the mel spectrogram in dB, bands × frames, clipped `top_db` below its maximum.

    `precision` is the float type of the FFT. With float32, rounding shows in bands 60 dB or more
    below the loudest: up to 4e-6 of the largest coefficient in one frame, and 2e-7 in the mean of
    100.
    """
    window = _hann_window(options).astype(precision)
    filters = _mel_filters(options)
    frame_count = options.count_frames(len(signal))
    mel = np.empty((options.bands, frame_count), np.float32)
    # A frame is as long as the window.
    block_frames = max(1, BLOCK_BYTES // window.nbytes)
    for start in range(0, frame_count, block_frames):
        block = mel[:, start : start + block_frames]
        count = block.shape[1]
        frames = _frame(signal, options, start, count, window.dtype)
        spectrum = scipy.fft.rfft(frames * window)
        power = np.square(spectrum.real) + np.square(spectrum.imag)  # (frames, bins)
        power_of_bins = power.T.astype(np.float32, order="C")
        block[:] = filters @ power_of_bins
    floor = POWER_FLOOR
    if options.top_db is not None:
        loudest = float(mel.max())
        clipping = loudest * 10 ** (-options.top_db / 10)
        floor = max(floor, clipping)
    np.maximum(mel, np.float32(floor), out=mel)
    np.log10(mel, out=mel)
    mel *= 10
    return mel


def _frame(
    signal: Float32Array,
    options: MfccOptions,
    first: int,
    count: int,
    dtype: np.dtype[Any],
) -> NDArray[Any]:
    """Return `count` overlapping frames from frame `first` on, (count, n_fft), of type `dtype`.

    They share the memory of a copy of the signal, which has zeros beyond its ends.
    """
    start = first * options.hop - options.pad  # in the signal; below 0 is padding
    length = (count - 1) * options.hop + options.n_fft
    samples = np.zeros(length, dtype)
    first_inside = max(0, start)
    inside = signal[first_inside : start + length]
    offset = first_inside - start  # zeros before the signal
    end = offset + len(inside)
    samples[offset:end] = inside
    # `sliding_window_view` would take as long as the product with the window.
    strides = (options.hop * dtype.itemsize, dtype.itemsize)
    return np.ndarray((count, options.n_fft), dtype, samples, strides=strides)


@lru_cache(maxsize=8)
def _hann_window(options: MfccOptions) -> FloatArray:
    """Return a periodic Hann window, centred in n_fft samples."""
    phase = 2 * np.pi * np.arange(options.window) / options.window
    hann = 0.5 - 0.5 * np.cos(phase)
    missing = options.n_fft - options.window
    before = missing // 2
    return np.pad(hann, (before, missing - before))


@lru_cache(maxsize=8)
def _mel_filters(options: MfccOptions) -> Any:
    """Return triangular mel filters of 1 Hz area as a sparse matrix, (bands, FFT bins)."""
    edges_hz = _band_edges_hz(options)
    bins_hz = np.fft.rfftfreq(options.n_fft, 1 / options.rate_hz)
    filters = np.empty((options.bands, len(bins_hz)), np.float32)
    for band in range(options.bands):
        corners_hz = edges_hz[band : band + 3]  # of a triangle: low, centre, high
        width_hz = corners_hz[2] - corners_hz[0]
        height = 2 / width_hz  # for an area of 1
        filters[band] = np.interp(bins_hz, corners_hz, (0, height, 0))
    return scipy.sparse.csr_array(filters)


def _band_edges_hz(options: MfccOptions) -> FloatArray:
    """Return the corners of the mel filters in Hz: bands + 2, at equal steps in mel.

    Filter n begins at corner n, has its centre at corner n + 1 and ends at corner n + 2.
    """
    top_hz = options.rate_hz / 2
    count = options.bands + 2
    if options.mel == "htk":  # mel = 2595 log₁₀(1 + f / 700)
        return 700 * (np.geomspace(1, 1 + top_hz / 700, count) - 1)
    # Slaney's scale: 200/3 Hz per mel up to 1 kHz (mel 15), then a factor of 6.4 in 27 mels.
    top_mel = top_hz * 3 / 200
    if top_hz >= 1000:
        top_mel = 15 + 27 * math.log(top_hz / 1000, 6.4)
    mels = np.linspace(0, top_mel, count)
    return np.where(mels < 15, mels * 200 / 3, 1000 * 6.4 ** ((mels - 15) / 27))


def load_random(spec: EncoderSpec, **_: object) -> Model:
    """Open one realisation of noise: the same audio always gets the same Gaussian vector."""

    def model(signal: Float32Array) -> Float32Array:
        """Return one vector, (1, dimension), from the hash of the signal."""
        entropy = int(audio_key(signal), 16)
        philox = np.random.Philox(np.random.SeedSequence(entropy))
        generator = np.random.Generator(philox)
        return generator.standard_normal((1, spec.dimension), np.float32)

    return model


ENCODERS = (
    EncoderSpec(
        name="mfcc",
        title="MFCC (a description of the spectrum, no training)",
        dimension=40,
        rate_hz=16000,
        band_hz=(100, 8000),
        load=f"{__name__}:load_mfcc",
        licence=NO_LICENCE,
        loudness_effect="changes the first coefficient",
        parallel=True,
        options={
            name: value for name, value in vars(PAPER).items() if name != "rate_hz"
        },
        limits={
            "coefficients": (1, math.inf),
            "bands": (1, 10_000),
            "n_fft": (1, MAX_SAMPLES),
            "mel": ("slaney", "htk"),
            "top_db": (0, 1000),
            "padding": ("centre", "none"),
        },
        dimension_option="coefficients",
        pace=0.001,
        citation=(
            "S. Davis, P. Mermelstein (1980): Comparison of Parametric Representations for "
            "Monosyllabic Word Recognition. IEEE Transactions on Acoustics, Speech, and "
            "Signal Processing 28(4)."
        ),
        comment="needs no weights",
        study_lines=(
            '# pooling = "max"               # often better than the mean, the paper\'s',
        ),
        order=1,
    ),
    EncoderSpec(
        name="random",
        title="random (numbers that know nothing of the sound)",
        dimension=40,
        rate_hz=16000,
        load=f"{__name__}:load_random",
        licence=NO_LICENCE,
        loudness_effect="gives an unrelated vector",
        parallel=True,
        options={"dimension": 40},
        limits={"dimension": (1, math.inf)},
        pace=0.0005,
        comment="one realisation of noise",
        order=9,
    ),
)
