"""Recordings without annotations → spans that are probably without calls.

Nobody says where these have calls, so background is the quieter half of 256 spans, which are
spread evenly over all recordings. Silence is none.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from callshot.corpus.audio import load_audio
from callshot.corpus.recordings import find_recordings, probe_recordings
from callshot.errors import InputError
from callshot.records import Recording, Segment, no_progress

SPANS = 256  # from which the quieter half is taken
SPAN_S = 2.0
FEWEST_SPANS = 8


@dataclass(frozen=True)
class UnlabelledBackground:
    """Spans of recordings that are probably without calls, and these recordings."""

    root: Path
    recordings: Mapping[str, Recording]
    spans: Sequence[tuple[str, float]]  # path and start

    def cut(self, number: int, call: Segment) -> Segment:
        """Return the background of one call: from a span on, as long as the call."""
        path, start_s = self.spans[number]
        duration_s = self.recordings[path].duration_s
        length_s = call.end_s - call.start_s + 2 * call.collar_s
        start_s = max(0.0, min(start_s, duration_s - length_s))
        end_s = min(start_s + length_s, duration_s)
        return make_span(path, start_s, end_s, call.rate_hz, call.channel_rule)


def find_background(folder: Path, segment: Segment) -> UnlabelledBackground:
    """Return the quieter half of spans; audio is read as that of a segment."""
    library = find_recordings(folder)
    readable, errors = probe_recordings(library, None, no_progress)
    recordings = {
        path: recording
        for path, recording in readable.items()
        if recording.duration_s >= SPAN_S
    }
    if not recordings:
        reason = next(iter(errors.values()), f"no recording of at least {SPAN_S:g} s")
        raise InputError(f"site: {folder}: {reason}")
    paths = sorted(recordings)
    durations_s = [recordings[path].duration_s for path in paths]
    starts = [
        (paths[number], start_s)
        for number, start_s in distribute_spans(durations_s, SPAN_S)
    ]
    powers = measure_spans(library.root, starts, segment)
    if len(powers) < FEWEST_SPANS:
        raise InputError(
            f"site: {folder}: {len(powers)} of {len(starts)} spans have sound that can be read; "
            "give recordings with background"
        )
    quieter = choose_quieter(powers)
    return UnlabelledBackground(
        library.root, recordings, [starts[number] for number in quieter]
    )


def measure_spans(
    root: Path, starts: Sequence[tuple[str, float]], segment: Segment
) -> dict[int, float]:
    """Return the mean power of the spans that can be read and are not silent, by number."""
    spans = [
        make_span(
            path, start_s, start_s + SPAN_S, segment.rate_hz, segment.channel_rule
        )
        for path, start_s in starts
    ]
    powers = {}
    with closing(load_audio(root, spans)) as signals:
        for number, signal in signals:
            if not isinstance(signal, InputError) and signal.any():
                powers[number] = float(np.mean(np.square(signal, dtype=np.float64)))
    return powers


def distribute_spans(
    durations_s: Sequence[float], length_s: float
) -> list[tuple[int, float]]:
    """Return the number of a recording and the start of each of 256 spans.

    Recordings have spans by their lengths, none if they are shorter than a span. The spans of short
    recordings overlap.

    >>> spans = distribute_spans([60.0, 0.5, 180.0], 1.0)
    >>> [number for number, _ in spans].count(0)
    64
    >>> spans[0]
    (0, 0.4609375)
    """
    lengths_s = np.array(durations_s, np.float64)
    lengths_s[lengths_s < length_s] = 0.0
    ends_s = np.cumsum(lengths_s)
    spans = []
    for step in range(SPANS if lengths_s.any() else 0):
        time_s = (step + 0.5) / SPANS * ends_s[-1]
        number = int(np.searchsorted(ends_s, time_s, side="right"))
        share = 1 - (ends_s[number] - time_s) / lengths_s[number]
        spans.append((number, float(share * (lengths_s[number] - length_s))))
    return spans


def choose_quieter(powers: Mapping[int, float]) -> list[int]:
    """Return the quieter half of spans, by number, in order.

    >>> choose_quieter({0: 3.0, 4: 1.0, 7: 2.0})
    [4, 7]
    """
    ranked = sorted(powers, key=lambda number: powers[number])
    return sorted(ranked[: (len(powers) + 1) // 2])


def make_span(
    path: str, start_s: float, end_s: float, rate_hz: int, channel_rule: str
) -> Segment:
    """Return background as a segment, at the level of the recording."""
    return Segment(
        segment=f"{path}@{start_s:.3f}",
        recording=path,
        path=path,
        start_s=start_s,
        end_s=end_s,
        collar_s=0.0,
        label="background",
        labels=("background",),
        rate_hz=rate_hz,
        channel_rule=channel_rule,
        peak_dbfs=None,
    )
