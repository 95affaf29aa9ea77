"""Calls in recordings → headers, errors of calls that have no sound, and notes on recordings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from callshot.corpus.audio import load_audio, probe
from callshot.detection.learning.call_windows import find_grid, read_as
from callshot.detection.models.model import AudioSettings
from callshot.encoders.embed import SegmentAudio
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError, count_text
from callshot.records import Recording, Segment

Headers = dict[str, Recording]
Errors = dict[int, InputError]
"""By the row of the call."""

LOWEST_RATE_HZ = 10
HEARD_SHARE = 0.75  # of the highest frequency of an encoder that recordings should hold


@dataclass(frozen=True)
class CallAudio:
    """Calls, the folder of their recordings, and the name of their source in messages."""

    calls: Sequence[Segment]
    root: Path
    source: str

    def segment_audio(self, segments: Sequence[Segment]) -> SegmentAudio:
        """Return segments of these recordings, and how to read them."""
        load = partial(load_audio, self.root)
        return SegmentAudio(segments, self.root, load, self.source)


def read_headers(audio: CallAudio, settings: AudioSettings) -> tuple[Headers, Errors]:
    """Read the header of each recording once; return headers, and errors by row of call."""
    headers: Headers = {}
    failed: dict[str, InputError] = {}
    for path in dict.fromkeys(call.path for call in audio.calls):
        try:
            headers[path] = probe(audio.root / path, path, settings.source_rate_hz)
        except InputError as error:
            failed[path] = error
    errors = {}
    for row, call in enumerate(audio.calls):
        if call.path in failed:
            errors[row] = failed[call.path]
    return headers, errors


def find_silence(audio: CallAudio, settings: AudioSettings, headers: Headers) -> Errors:
    """Return an error for each call without any sound, and for each that cannot be read."""
    rows = [row for row, call in enumerate(audio.calls) if call.path in headers]
    spans = []
    for row in rows:
        call = audio.calls[row]
        rate_hz = max(LOWEST_RATE_HZ, round(headers[call.path].rate_hz))
        spans.append(read_as(call, rate_hz, settings))
    errors: Errors = {}
    for n, signal in load_audio(audio.root, spans):
        if isinstance(signal, InputError):
            errors[rows[n]] = signal
        elif signal.min() == signal.max():
            errors[rows[n]] = _silence_error(spans[n])
    return errors


def _silence_error(call: Segment) -> InputError:
    return InputError(
        f"{call.path}: silent from {call.start_s:.2f} to {call.end_s:.2f} s; "
        "correct the times, or leave the example out"
    )


def describe_recordings(
    recordings: Sequence[Recording], spec: EncoderSpec, settings: AudioSettings
) -> Iterator[str]:
    """Yield notes on recordings: wrong headers, shorter than a window, part of the band missing."""
    for recording in recordings:
        if note := recording.describe_length():
            yield f"{recording.path}: {note}"
    window_s = find_grid(spec, settings).window_s
    short = [recording for recording in recordings if recording.duration_s < window_s]
    if short:
        treatment = "used whole" if spec.windowing is None else "padded"
        yield (
            f"{_count(short)} shorter than the window of {window_s:.3g} s of {spec.name} "
            f"(first: {short[0].path}): {treatment}"
        )
    if spec.band_hz is not None:
        yield from _describe_band(recordings, spec, *spec.band_hz)


def _describe_band(
    recordings: Sequence[Recording], spec: EncoderSpec, low_hz: float, high_hz: float
) -> Iterator[str]:
    needed_hz = HEARD_SHARE * high_hz / spec.speed
    narrow = [
        recording for recording in recordings if recording.rate_hz / 2 < needed_hz
    ]
    if not narrow:
        return
    rate_hz = narrow[0].rate_hz
    yield (
        f"{_count(narrow)} with nothing above {rate_hz / 2:g} Hz, as sampled at {rate_hz:g} Hz "
        f"(first: {narrow[0].path}); {spec.name} uses {low_hz / spec.speed:g} to "
        f"{high_hz / spec.speed:g} Hz"
    )


def _count(recordings: Sequence[Recording]) -> str:
    return count_text(len(recordings), "recording")
