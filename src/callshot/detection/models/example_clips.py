"""The plain audio of examples, which a model keeps so that it can be adapted to other recordings.

Of each label the audio of at most 20 examples is kept, chosen by a hash of their places: so the
choice does not depend on the order in which examples are added. Of a long call only the middle 10 s
are kept. Samples are 16 bit, at the rate of the encoder, and their peak is full scale.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.kernels import streams

Pcm = NDArray[np.int16]

MAX_CLIPS = 20  # of a label
LONGEST_S = 10.0
FULL_SCALE = 32767


@dataclass(frozen=True, eq=False)
class Clips:
    """The audio of examples, one entry for each; None if it is not kept."""

    rate_hz: int
    samples: tuple[Pcm | None, ...]

    def select(self, rows: Sequence[int]) -> "Clips":
        """Return the clips of some examples, in that order."""
        return Clips(self.rate_hz, tuple(self.samples[row] for row in rows))


def to_pcm(signal: NDArray[np.float32]) -> Pcm:
    """Return a signal as 16 bit samples, with its peak at full scale.

    >>> to_pcm(np.array([0.5, -0.25], np.float32))
    array([ 32767, -16384], dtype=int16)
    """
    peak = float(np.abs(signal).max())
    scaled = signal * (FULL_SCALE / peak) if peak > 0 else signal
    return np.round(scaled).astype(np.int16)


def choose_clips(labels: Sequence[str], locations: Sequence[str]) -> list[bool]:
    """Return which examples keep their audio: of each label the 20 with the lowest hash.

    >>> sum(choose_clips(["hoot"] * 30, [f"a.wav {n}" for n in range(30)]))
    20
    """
    ranked: dict[str, list[tuple[int, int]]] = {}
    for row, (label, location) in enumerate(zip(labels, locations, strict=True)):
        key = int(streams.key(f"clip {location}"))
        ranked.setdefault(label, []).append((key, row))
    clip_rows = {row for rows in ranked.values() for _, row in sorted(rows)[:MAX_CLIPS]}
    return [row in clip_rows for row in range(len(labels))]


def bound_clips(
    clips: Clips | None, labels: Sequence[str], locations: Sequence[str]
) -> Clips | None:
    """Return clips without those that are too many."""
    if clips is None:
        return None
    has_clip = choose_clips(labels, locations)
    pairs = zip(clips.samples, has_clip, strict=True)
    return Clips(clips.rate_hz, tuple(clip if keep else None for clip, keep in pairs))


def join_clips(
    first: Clips | None, first_count: int, second: Clips | None, second_count: int
) -> Clips | None:
    """Return the clips of the examples of two models, one after the other."""
    rates_hz = [clips.rate_hz for clips in (first, second) if clips is not None]
    if not rates_hz:
        return None
    samples: list[Pcm | None] = []
    for clips, count in ((first, first_count), (second, second_count)):
        samples += [None] * count if clips is None else clips.samples
    return Clips(rates_hz[0], tuple(samples))
