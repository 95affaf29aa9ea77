"""A table of segments → what every encoder, at every speed, gets of the calls; nothing is embedded.

Recordings are read at their own rate, so that energy which the segments no longer have is seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.audio import probe
from callshot.corpus.segment_table import read_segments
from callshot.encoders.band_coverage import (
    CallSpectra,
    choose_speeds,
    count_windows,
    measure_spectra,
    sample_spans,
)
from callshot.encoders.catalogue import list_specs
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.encoders.spec import EncoderSpec
from callshot.errors import CallshotError, count_text

WORTH_A_NOTE = 0.01  # a share of the energy
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
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
class BandCoverage:
    """What encoders get of calls.

    table     a row for each encoder and speed: `auto` where speed=auto would choose it; the band
              that it gets, in frequencies of the recording; the share of the calls' `energy` in
              that band; `windows` per call; the share of them that is `padding`
    spectra   of the calls
    lost      share of the energy above half the rate of the segments, which no encoder gets
    rate_hz   the lowest rate of the segments
    """

    table: pl.DataFrame
    spectra: CallSpectra
    lost: float
    rate_hz: int

    def describe(self) -> Iterator[str]:
        """Yield lines for people: where the calls are, and what the segments lost."""
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
    speeds: Sequence[float] = SPEEDS,
    *,
    audio: Path | None = None,
    threads: int | None = None,
) -> BandCoverage:
    """Measure calls, and what encoders get of them; by default all encoders with a known band."""
    segments = read_segments(source)
    if audio is not None:
        segments = replace(segments, root=audio)
    specs: list[EncoderSpec] = []
    for name in encoders:
        specs += find_joined_encoder(name).specs
    specs = specs or [spec for spec in list_specs() if spec.band_hz is not None]

    sample = sample_spans(segments)
    rates_hz = {}
    sources = dict(zip(sample.paths, sample["source_rate_hz"], strict=True))
    for path, source_rate_hz in sources.items():
        with suppress(CallshotError):  # a reject, which reading reports
            recording = probe(sample.root / path, path, source_rate_hz)
            rates_hz[path] = round(recording.rate_hz)
    pairs = zip(sample.paths, sample["rate_hz"], strict=True)
    own_rates_hz = [rates_hz.get(path, rate_hz) for path, rate_hz in pairs]
    spectra = measure_spectra(sample.with_columns(rate_hz=own_rates_hz), threads)

    rate_hz = min(segments["rate_hz"])
    rows: list[Mapping[str, object]] = []
    for spec in specs:
        rows += _coverage_rows(spec, speeds, spectra, rate_hz)
    highest_hz = max(rates_hz.values(), default=rate_hz)
    lost = 0.0
    if highest_hz > rate_hz:
        lost = spectra.share(rate_hz / 2, highest_hz)
    return BandCoverage(pl.DataFrame(rows, SCHEMA), spectra, lost, rate_hz)


def _coverage_rows(
    spec: EncoderSpec, speeds: Sequence[float], spectra: CallSpectra, rate_hz: int
) -> Iterator[dict[str, object]]:
    """Yield a row for each speed of an encoder, and for those that auto would choose."""
    auto_speeds = []
    if spec.band_hz is not None:
        auto_speeds = choose_speeds(spec, spectra.up_to(rate_hz / 2).middle_hz())
    low_hz, high_hz = spec.band_hz or (1.0, spec.rate_hz / 2)
    if spec.top_hz is not None:
        high_hz = min(high_hz, spec.top_hz)
    for speed in sorted({*speeds, *auto_speeds}):
        # The band that the encoder gets, in frequencies of the recording.
        low = low_hz / speed
        high = min(high_hz / speed, rate_hz / 2)
        spec_at_speed = replace(spec, speed=speed, auto_speed=False)
        windows, padding = count_windows(spec_at_speed, spectra.duration_s)
        yield {
            "encoder": spec.name,
            "speed": speed,
            "auto": speed in auto_speeds,
            "low_hz": low,
            "high_hz": high,
            "energy": spectra.share(low, high),
            "windows": windows,
            "padding": padding,
        }
