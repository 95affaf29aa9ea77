"""Where the energy of calls lies, and what an encoder gets of it: audio comes in, shares go out.

`choose_speeds` is the rule behind speed=auto, without labels: half of the way, in octaves, from the
middle of the calls (half of their energy is below it) to the middle of the encoder's band, rounded
to whole octaves, is the speed; only half, because sped up, calls also become shorter. The vector at
that speed is joined with the one an octave nearer to 1. `measure_coverage` shows what encoders get
at several speeds, with recordings at their own rate.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.audio import parse_band, probe
from callshot.corpus.mixing import load_spans
from callshot.corpus.segment_table import read_segments
from callshot.encoders.catalogue import list_specs
from callshot.encoders.joined_encoder import JoinedEncoder, find_joined_encoder
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.windows import Float32Array, find_spans
from callshot.errors import CallshotError, InputError, OptionError, count_text
from callshot.records import FloatArray
from callshot.spans import Spans

LOWEST_HZ = 5.0  # below it is wind, and the offset of a recorder
FFT_SAMPLES = 4096
BINS_PER_OCTAVE = 6
EDGES_HZ = LOWEST_HZ * 2 ** (np.arange(17 * BINS_PER_OCTAVE + 1) / BINS_PER_OCTAVE)
MAX_SPANS = 500  # that a speed is chosen from
FASTEST_OCTAVE = 6  # a speed of 64
WORTH_A_NOTE = 0.01  # a share of the energy
COMPARED_SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
SCHEMA = {
    "encoder": pl.String,
    "speed": pl.Float64,
    "auto": pl.Boolean,
    "low_hz": pl.Float64,
    "high_hz": pl.Float64,
    "energy": pl.Float64,
    "windows": pl.Float64,
    "padding": pl.Float64,
}


@dataclass(frozen=True)
class CallSpectra:
    """The power of calls by frequency.

    power       calls × bins between `EDGES_HZ`; each call has a sum of 1, or 0 if it is silent
    duration_s  of each call
    """

    power: FloatArray
    duration_s: FloatArray
    label: Sequence[str]

    def middle_hz(self) -> float:
        """Return the frequency below which calls have half of their energy: the geometric mean."""
        log_middles = []
        for power in self.power[self.power.any(axis=1)]:
            power_below = np.concatenate([[0.0], np.cumsum(power)])  # each edge
            log_middles.append(np.interp(0.5, power_below, np.log(EDGES_HZ)))
        if not log_middles:
            raise InputError("segments: all are silent; give a speed instead of auto")
        return float(np.exp(np.mean(log_middles)))

    def up_to(self, high_hz: float) -> "CallSpectra":
        """Return the spectra without the bins above a frequency, scaled to a sum of 1 again."""
        power = np.where(EDGES_HZ[1:] <= high_hz, self.power, 0.0)
        total = power.sum(axis=1, keepdims=True)
        return replace(self, power=power / np.where(total > 0, total, 1.0))

    def share(self, low_hz: float, high_hz: float) -> float:
        """Return the mean share of the power of calls between two frequencies."""
        log_edges = np.log(EDGES_HZ)
        log_limits = np.log([low_hz, high_hz]).clip(log_edges[0], log_edges[-1])
        mean_power = self.power.mean(axis=0)
        power_below = np.concatenate([[0.0], np.cumsum(mean_power)])  # each edge
        below_low, below_high = np.interp(log_limits, log_edges, power_below)
        return float(max(0.0, below_high - below_low))


def measure_spectra(spans: Spans, threads: int | None = None) -> CallSpectra:
    """Read spans, and return the spectra of those that can be read."""
    powers = []
    durations_s = []
    labels = []
    errors = []
    rates_hz = spans["rate_hz"]
    all_labels = spans["label"]
    for row, signal in load_spans(spans, threads=threads):
        if isinstance(signal, InputError):
            errors.append(signal)
            continue
        powers.append(call_spectrum(signal, rates_hz[row]))
        durations_s.append(len(signal) / rates_hz[row])
        labels.append(all_labels[row])
    if not powers:
        raise InputError(f"segments: none could be read (the first: {errors[0]})")
    return CallSpectra(np.stack(powers), np.array(durations_s), labels)


def call_spectrum(signal: Float32Array, rate_hz: int) -> FloatArray:
    """Return the share of the power of a signal in each bin between `EDGES_HZ`.

    >>> tone = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000).astype(np.float32)
    >>> power = call_spectrum(tone, 16000)
    >>> bin = int(power.argmax())
    >>> bool(EDGES_HZ[bin] <= 440 < EDGES_HZ[bin + 1])
    True
    """
    from scipy.signal import welch

    length = min(len(signal), FFT_SAMPLES)
    frequency_hz, density = welch(
        signal.astype(np.float64), rate_hz, nperseg=length, nfft=FFT_SAMPLES
    )
    density[0] = 0  # the offset of the recorder
    # Interpolate the cumulative energy at the upper edges of FFT bins to the edges of our bins.
    step_hz = frequency_hz[1]
    upper_hz = np.append(0.0, frequency_hz + step_hz / 2)
    energy_below = np.append(0.0, np.cumsum(density))
    power = np.diff(np.interp(EDGES_HZ, upper_hz, energy_below))
    total = power.sum()
    return np.asarray(power / total if total > 0 else power)


def choose_speeds(spec: EncoderSpec, middle_hz: float) -> list[float]:
    """Return the one or two speeds that speed=auto stands for (see the top), slowest first.

    `middle_hz` is the frequency below which the calls have half of their energy.

    >>> from callshot.encoders.catalogue import find_encoder
    >>> birdnet = find_encoder("birdnet-v2.4")
    >>> for hz in (20, 150, 2700, 6800, 40_000): print(choose_speeds(birdnet, hz))
    [8.0, 16.0]
    [2.0, 4.0]
    [1.0]
    [0.5, 1.0]
    [0.25, 0.5]
    """
    if spec.band_hz is None:
        raise OptionError(
            f"{spec.name}: speed=auto needs the band that it was trained on, which is not known; "
            "give a number"
        )
    low_hz, high_hz = spec.band_hz
    distance = math.log2(math.sqrt(low_hz * high_hz) / middle_hz)  # in octaves
    octave = round(distance / 2)  # half of the way: faster calls are also shorter
    octave = max(-FASTEST_OCTAVE, min(FASTEST_OCTAVE, octave))
    nearer = octave - int(np.sign(octave))  # by one octave to speed 1
    return sorted({2.0**octave, 2.0**nearer})


def sample_spans(spans: Spans) -> Spans:
    """Return 500 of the spans, at equal steps, or all if there are no more."""
    count = min(len(spans), MAX_SPANS)
    rows = np.linspace(0, len(spans) - 1, count).round()
    return spans.take(rows.astype(int))


def resolve_speeds(
    joined_encoder: JoinedEncoder, spectra: CallSpectra, *, can_join: bool = True
) -> JoinedEncoder:
    """Replace speed=auto by speeds chosen for these calls; a spec becomes one for each speed.

    Without `can_join`, it gets one speed, the one farther from 1.
    """
    specs = []
    for spec in joined_encoder.specs:
        specs_at_speeds = [spec]
        if "speed" in spec.auto:
            speeds = choose_speeds(spec, spectra.middle_hz())
            if not can_join:
                speeds = [max(speeds, key=lambda speed: abs(math.log2(speed)))]
            specs_at_speeds = [spec.at_speed(speed) for speed in speeds]
        # A chosen speed may also have been given as a number, as in speed=2+auto.
        specs += [encoder for encoder in specs_at_speeds if encoder not in specs]
    return JoinedEncoder(tuple(specs), joined_encoder.scale)


def count_windows(spec: EncoderSpec, duration_s: FloatArray) -> tuple[float, float]:
    """Return the mean number of windows of a call, and the share of them that is padding."""
    options = spec.windowing
    if options is None:
        return 1.0, 0.0
    spans = []
    for input_s in duration_s / spec.speed:  # the lengths that the model gets
        samples = max(1, round(input_s * options.rate_hz))
        spans += find_spans(samples, options)
    audio = sum(span.stop - span.start for span in spans)
    share = audio / (len(spans) * options.window)
    return len(spans) / len(duration_s), 1 - share


# A table of segments → what every encoder, at every speed, gets of the calls


@dataclass(frozen=True)
class BandCoverage:
    """What encoders get of calls.

    table     a row for each encoder and speed: `auto` where speed=auto would choose it; the band
              that it gets, in frequencies of the recording; the share of the calls' `energy` in
              that band; `windows` per call; the share of them that is `padding`
    lost      share of the energy above half the rate of the segments, which no encoder gets
    rate_hz   the lowest rate of the segments
    """

    table: pl.DataFrame
    spectra: CallSpectra
    lost: float
    rate_hz: int

    def describe(self) -> Iterator[str]:
        """Yield lines to print: where the calls are, and what the segments lost."""
        middle_hz = self.spectra.up_to(self.rate_hz / 2).middle_hz()
        median_s = float(np.median(self.spectra.duration_s))
        yield (
            f"{count_text(len(self.spectra.power), 'call')}, of {median_s:.2g} s (median); "
            f"the middle of their energy is at {middle_hz:,.0f} Hz"
        )
        if self.lost >= WORTH_A_NOTE:
            yield (
                f"{self.lost:.0%} of the energy is above {self.rate_hz // 2:,} Hz, which segments "
                f"at {self.rate_hz:,} Hz do not have: cut them with a higher --rate-hz"
            )


def measure_coverage(
    source: Path,
    encoders: Sequence[str] = (),
    speeds: Sequence[float] = COMPARED_SPEEDS,
    *,
    audio: Path | None = None,
    threads: int | None = None,
) -> BandCoverage:
    """Measure which share of the energy of calls encoders get at several speeds.

    `source` is a table of segments, `audio` the folder of its recordings if they were moved. By
    default all encoders with a known band are compared.
    """
    segments = read_segments(source)
    if audio is not None:
        segments = replace(segments, root=audio)
    specs: list[EncoderSpec] = []
    for name in encoders:
        specs += find_joined_encoder(name).specs
    if not specs:
        specs = [spec for spec in list_specs() if spec.band_hz is not None]

    # Read some segments at the full rate of their recordings, to see what the rate of the segments
    # loses.
    sample = sample_spans(segments)
    recording_rates_hz = _find_rates_hz(sample)
    pairs = zip(sample.paths, sample["rate_hz"], strict=True)
    full_rates_hz = [recording_rates_hz.get(path, rate_hz) for path, rate_hz in pairs]
    spectra = measure_spectra(sample.with_columns(rate_hz=full_rates_hz), threads)

    rate_hz = min(segments["rate_hz"])
    rows: list[Mapping[str, object]] = []
    for spec in specs:
        rows += _coverage_rows(spec, speeds, spectra, rate_hz)
    highest_hz = max(recording_rates_hz.values(), default=rate_hz)
    lost = 0.0
    if highest_hz > rate_hz:
        lost = spectra.share(rate_hz / 2, highest_hz)
    return BandCoverage(pl.DataFrame(rows, SCHEMA), spectra, lost, rate_hz)


def _find_rates_hz(spans: Spans) -> dict[str, int]:
    """Return the sample rate of each recording of some spans, by path, if it can be read."""
    rates_hz = {}
    sources = dict(zip(spans.paths, spans["source_rate_hz"], strict=True))
    for path, source_rate_hz in sources.items():
        with suppress(CallshotError):  # a reject, which reading reports
            recording = probe(spans.root / path, path, source_rate_hz)
            rates_hz[path] = round(recording.rate_hz)
    return rates_hz


def _coverage_rows(
    spec: EncoderSpec, speeds: Sequence[float], spectra: CallSpectra, rate_hz: int
) -> Iterator[dict[str, object]]:
    """Yield a row of the coverage table for each speed, and for those that auto would choose."""
    auto_speeds = []
    if spec.band_hz is not None:
        auto_speeds = choose_speeds(spec, spectra.up_to(rate_hz / 2).middle_hz())
    # What the model was trained on, at its speed; if that is not known, all that it gets.
    low_hz, high_hz = spec.band_hz or (1.0, spec.rate_hz / 2)
    band_low_hz, band_high_hz = parse_band(spec.band or f"0-{rate_hz / 2}")
    for speed in sorted({*speeds, *auto_speeds}):
        # The band that the encoder gets, in frequencies of the recording.
        lowest_hz = max(low_hz / speed, band_low_hz)
        highest_hz = min(high_hz / speed, band_high_hz, rate_hz / 2)
        windows, padding = count_windows(spec.at_speed(speed), spectra.duration_s)
        yield {
            "encoder": spec.name,
            "speed": speed,
            "auto": speed in auto_speeds,
            "low_hz": lowest_hz,
            "high_hz": highest_hz,
            "energy": spectra.share(lowest_hz, highest_hz),
            "windows": windows,
            "padding": padding,
        }
