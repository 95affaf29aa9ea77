"""Spans of an open recording, as one channel at a given rate.

At another rate than that of the file, a span has the samples from round(start_s · rate_hz) up to
round(end_s · rate_hz) of the whole recording resampled, which has ceil(duration_s · rate_hz)
samples. Beyond its ends the recording is silent. The resampler is soxr at quality VHQ, which
computes in float64: a span read alone differs from the same span of a longer read by at most the
last bit of a float32 (6e-8 at full scale; quality HQ: 5e-7). For that, a span is read with a margin
of 256 periods of the lower rate on both sides (a margin of 128 gives 4e-9, 64 gives 5e-4), from a
frame that coincides with a sample. If there is none nearby, as with 44100.1 and 16000 Hz, the frame
nearest to a sample is used, and the span is off by at most half a frame.
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np
import soxr

from callshot.corpus.audio_files import DamagedAudio, FrameReader, Signal
from callshot.corpus.options import RATES_HZ, check_channel_rule
from callshot.errors import check_range, count_text

MARGIN = 256  # periods of the lower rate
GRID = 4096  # samples among which we look for one that coincides with a frame


class Reader(FrameReader):
    """An open recording, for one thread at a time."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def read(
        self, start_s: float, end_s: float, *, rate_hz: int, channel_rule: str = "first"
    ) -> Signal:
        """Return the part of a span inside the recording, as one channel at `rate_hz`.

        `channel_rule` is "first", "mean", or the number of a channel from "1".

        Raises
        ------
        InputError
            If the span has no samples, or if samples in it or in its margin are not finite.
        DamagedAudio
            If the file is damaged within it.
        """
        check_range("rate_hz", rate_hz, *RATES_HZ, "Hz")
        channel = self._find_channel(channel_rule)
        ratio = Fraction(self.recording.rate_hz) / rate_hz
        first, last = self._find_samples(start_s, end_s, rate_hz, ratio)
        if ratio != 1:
            return self._resample(first, last, rate_hz, ratio, channel)
        return np.concatenate(list(self._read_channel(first, last, channel)))

    def read_decodable(
        self, start_s: float, end_s: float, *, rate_hz: int, channel_rule: str = "first"
    ) -> Signal:
        """Return a span as `read` does; if the file is damaged within it, the part before that."""
        read = partial(
            self.read, start_s, end_s, rate_hz=rate_hz, channel_rule=channel_rule
        )
        try:
            return read()
        except DamagedAudio as damage:
            whole = self.recording
            if damage.end_frame <= start_s * whole.rate_hz:
                raise
            # For this span only: where a file can be sought, later ones may be decoded.
            self.recording = whole.shorten(damage.end_frame)
            try:
                return read()
            finally:
                self.recording = whole

    def _find_channel(self, rule: str) -> int | None:
        """Return the index of the channel to read, None for the mean of all."""
        check_channel_rule(rule)
        if rule == "mean":
            return None
        number = 1 if rule == "first" else int(rule)
        channels = self.recording.channels
        if number > channels:
            count = count_text(channels, "channel")
            raise self.error(f"expected a channel {number}, got {count}")
        return number - 1

    def _find_samples(
        self, start_s: float, end_s: float, rate_hz: int, ratio: Fraction
    ) -> tuple[int, int]:
        """Return the first sample of a span, and the one after its last."""
        if not -math.inf < start_s < end_s < math.inf:
            raise self.error(
                f"expected a span that ends after it starts, got {start_s} s to {end_s} s"
            )
        length_s = self.recording.duration_s
        length = math.ceil(self.recording.frames / ratio)
        first = max(0, round(start_s * rate_hz))
        last = round(end_s * rate_hz)
        last = min(last, length)
        if first >= last:
            reason = f"the recording is {length_s:.3f} s long"
            if note := self.recording.describe_length():
                reason += f" ({note})"
            raise self.error(
                f"nothing to read from {start_s:.3f} s to {end_s:.3f} s at {rate_hz} Hz: "
                f"{reason}"
            )
        return first, last

    def _resample(
        self, first: int, last: int, rate_hz: int, ratio: Fraction, channel: int | None
    ) -> Signal:
        """Return samples `first` to `last` at `rate_hz`, where a sample lasts `ratio` frames."""
        sample_margin = math.ceil(MARGIN * max(Fraction(1), 1 / ratio))
        frame_margin = math.ceil(MARGIN * max(Fraction(1), ratio))
        begin = _find_aligned_sample(first - sample_margin, ratio)
        stop = math.ceil(last * ratio) + frame_margin
        end = min(stop, self.recording.frames)
        stream = soxr.ResampleStream(
            self.recording.rate_hz, rate_hz, 1, dtype="float32", quality="VHQ"
        )
        blocks = self._read_channel(round(begin * ratio), end, channel)
        parts = [stream.resample_chunk(block) for block in blocks]
        silence = np.zeros(stop - end, np.float32)
        parts.append(stream.resample_chunk(silence, last=True))
        return np.concatenate(parts)[first - begin : last - begin]

    def _read_channel(
        self, first: int, last: int, channel: int | None
    ) -> Iterator[Signal]:
        """Yield frames `first` to `last` as one channel, in blocks."""
        for position, block in self.read_blocks(first, last):
            if channel is None:
                # In float64, so that the mean of equal channels is that channel.
                signal = block.mean(axis=1, dtype=np.float64).astype(np.float32)
            else:
                signal = np.ascontiguousarray(block[:, channel])
            self._check_finite(signal, position)
            yield signal

    def _check_finite(self, signal: Signal, position: int) -> None:
        finite = np.isfinite(signal)
        if finite.all():
            return
        bad = finite.argmin()
        time_s = (position + bad) / self.recording.rate_hz
        raise self.error(
            f"expected finite samples, got {signal[bad]} at {time_s:.3f} s"
        )


def _find_aligned_sample(sample: int, ratio: Fraction) -> int:
    """Return the last sample up to the given one that coincides with a frame, or nearly does."""
    if sample <= 0:
        return 0
    step = ratio.denominator
    if step <= GRID:
        return sample // step * step

    def distance(candidate: int) -> int:
        frames = candidate * ratio.numerator
        return min(frames % step, -frames % step)

    return min(range(max(0, sample - GRID), sample + 1), key=distance)
