"""Template matching: normalised cross-correlation of spectrograms (scikit-image).

The score of a window is the highest correlation of any example whose middle is there.
"""

import numpy as np
from scipy.signal import ShortTimeFFT
from skimage.feature import match_template

Array = np.ndarray
FFT_S = 0.128
HOP_S = 0.064
BANDS = 32
TOP_HZ = 4000.0


def make_spectrogram(signal: Array, rate_hz: int, scale: float) -> Array:
    """Return bands × frames in dB; `scale` shortens windows for short calls."""
    length = max(32, round(FFT_S * scale * rate_hz))
    hop = max(1, round(HOP_S * scale * rate_hz))
    transform = ShortTimeFFT(np.hanning(length), hop, rate_hz)
    power = np.abs(transform.stft(signal)) ** 2
    top_hz = TOP_HZ if scale == 1.0 else rate_hz / 2
    rows = power[transform.f <= top_hz]
    edges = np.linspace(0, len(rows), min(BANDS, len(rows)) + 1).astype(int)
    bands = np.add.reduceat(rows, edges[:-1], axis=0)
    return np.asarray(10 * np.log10(bands + 1e-10), np.float32)


def match_class(templates: list[Array], spectrogram: Array) -> Array:
    """Return the highest correlation of any template whose middle is at each frame."""
    best = np.zeros(spectrogram.shape[1])
    for template in templates:
        length = template.shape[1]
        if length > spectrogram.shape[1]:
            continue
        found = match_template(spectrogram, template)[0]
        middle = slice(length // 2, length // 2 + len(found))
        best[middle] = np.maximum(best[middle], found)
    return best
