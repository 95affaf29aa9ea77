"""Calls are mixed into background at the signal-to-noise ratio that is asked for."""

import numpy as np
import pytest

from callshot.corpus.mixing import choose_backgrounds, mix_call, mix_example
from callshot.errors import InputError

RATE_HZ = 8000


def make_tone(frequency_hz, length, rng):
    time_s = np.arange(length) / RATE_HZ
    tone = np.sin(2 * np.pi * frequency_hz * time_s)
    return (tone + rng.normal(0, 0.05, length)).astype(np.float32)


def literal_mix(call, background, snr_db):
    """Sums over a discrete Fourier transform written out, sample by sample."""
    length = max(len(call), len(background))
    window = [background[n % len(background)] for n in range(length)]
    start = (length - len(call)) // 2
    noise = np.array(window[start : start + len(call)], np.float64)
    time = np.arange(len(call))

    def energy(signal, k):
        phase = 2 * np.pi * k * time / len(call)
        return (signal * np.cos(phase)).sum() ** 2 + (signal * np.sin(phase)).sum() ** 2

    bins = range(1, len(call) // 2 + 1)
    energies = {k: energy(call.astype(np.float64), k) for k in bins}
    total = sum(energies.values())
    low = min(
        k for k in bins if sum(energies[i] for i in range(1, k + 1)) >= 0.05 * total
    )
    high = min(
        k for k in bins if sum(energies[i] for i in range(1, k + 1)) >= 0.95 * total
    )
    centre = (low * high) ** 0.5
    first = int(min(low, centre / 2 ** (1 / 6)))
    last = int(np.ceil(max(high, centre * 2 ** (1 / 6))))
    band = [k for k in bins if first <= k <= last]
    call_energy = sum(energies[k] for k in band)
    noise_energy = sum(energy(noise, k) for k in band)
    gain = (10 ** (snr_db / 10) * noise_energy / call_energy) ** 0.5
    fade = RATE_HZ // 100
    mixed = np.array(window, np.float64)
    for n in range(len(call)):
        rise = min(1.0, (n + 0.5) / fade, (len(call) - n - 0.5) / fade)
        mixed[start + n] += gain * rise * call[n]
    return mixed


@pytest.mark.parametrize(
    ("background_length", "snr_db"), [(1000, -5.0), (701, 12.0), (300, 12.0)]
)
def test_mixing_is_the_sum_written_out(background_length, snr_db):
    rng = np.random.default_rng(background_length)
    call = make_tone(900, 480, rng)
    background = rng.normal(0, 0.02, background_length).astype(np.float32)
    mixed = mix_call(call, background, snr_db, RATE_HZ)
    expected = literal_mix(call, background, snr_db)
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_noise_outside_the_band_of_the_call_does_not_count():
    rng = np.random.default_rng(2)
    call = make_tone(2000, 4000, rng)
    background = rng.normal(0, 0.02, 8000).astype(np.float32)
    hum = np.sin(2 * np.pi * 50 * np.arange(8000) / RATE_HZ).astype(np.float32)
    plain = mix_call(call, background, 10.0, RATE_HZ) - background
    with_hum = mix_call(call, background + hum, 10.0, RATE_HZ) - background - hum
    np.testing.assert_allclose(with_hum, plain, atol=1e-3)


def test_a_call_keeps_its_level_in_digital_silence_and_a_silent_one_is_an_error():
    call = make_tone(900, 800, np.random.default_rng(3))
    mixed = mix_call(call, np.zeros(1600, np.float32), 6.0, RATE_HZ)
    np.testing.assert_array_equal(mixed[480:1120], call[80:720])
    assert not mixed[:400].any()
    with pytest.raises(InputError, match="silent example"):
        mix_call(np.zeros(100, np.float32), call, 6.0, RATE_HZ)
    assert sorted(choose_backgrounds("a", 6, 3)) == [0, 0, 1, 1, 2, 2]


def test_an_example_is_mixed_once_for_each_ratio_with_other_backgrounds():
    rng = np.random.default_rng(4)
    call = make_tone(900, 800, rng)
    backgrounds = list(rng.normal(0, 0.02, (5, 1600)).astype(np.float32))
    mixed = mix_example(call, backgrounds, "a", RATE_HZ, (0.0, 10.0, 20.0))
    chosen = choose_backgrounds("a", 3, 5)
    assert len(set(chosen)) == 3
    for window, number, snr_db in zip(mixed, chosen, (0.0, 10.0, 20.0), strict=True):
        expected = mix_call(call, backgrounds[number], snr_db, RATE_HZ)
        np.testing.assert_array_equal(window, expected)
