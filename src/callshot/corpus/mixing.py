"""Calls mixed into background of other recordings, on the way from files to an encoder.

Mixed spans have the columns `background_path`, `background_start_s`, `background_end_s` and
`background_snr_db`; the folder of the background is in their metadata. The signal-to-noise ratio is
one of powers while the call lasts, in the band that has 90 % of its energy: wind below a call does
not count against it. Background is the quieter half of 256 spans, without silent ones.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # which loads its parts when they are used

from callshot.corpus.audio import LoadedAudio, load_audio, normalise_peak
from callshot.corpus.audio_files import Signal
from callshot.corpus.recordings import find_recordings, probe_recordings
from callshot.errors import InputError
from callshot.records import FloatArray
from callshot.spans import Row, Spans
from callshot.storage import to_path

BACKGROUND = "background"  # in the metadata: the folder of the background
MIXED = "background_snr_db"  # a column that only mixed spans have
BACKGROUND_COLUMNS = ("rate_hz", "channel_rule", "passband_hz")  # as those of the call
SPANS = 256  # from which the quieter half is taken
SPAN_S = 2.0
MIN_SPANS = 8

SNRS_DB = (0.0, 5.0, 10.0, 15.0)  # each example is mixed into background once at each
ENERGY_SHARES = (0.05, 0.95)
NARROWEST = 2 ** (1 / 6)  # from the centre of a band to its edges: a third of an octave
FADE_S = 0.01  # avoids clicks at the ends of a call


def mix_example(
    call: Signal,
    backgrounds: Sequence[Signal],
    name: str,
    rate_hz: int,
    snrs_db: Sequence[float] = SNRS_DB,
) -> list[Signal]:
    """Mix a call at each ratio into a background; which ones, its `name` alone decides."""
    numbers = choose_backgrounds(name, len(snrs_db), len(backgrounds))
    mixed = []
    for number, snr_db in zip(numbers, snrs_db, strict=True):
        mixed.append(mix_call(call, backgrounds[number], snr_db, rate_hz))
    return mixed


def choose_backgrounds(name: str, count: int, available: int) -> list[int]:
    """Draw `count` of the numbers of `available` backgrounds, for the call `name`.

    None is drawn twice while there are enough. The name is the seed: the same name always has the
    same backgrounds.

    >>> choose_backgrounds("a.wav at 1.00 s", 3, 100)
    [37, 34, 83]
    """
    from callshot.fewshot.kernels import streams  # numba takes long to load

    key = streams.make_stream(0, "site", streams.key(name))
    random = np.random.Generator(np.random.Philox(int(key)))
    order = random.permutation(available)
    return np.resize(order, count).tolist()


def mix_call(call: Signal, background: Signal, snr_db: float, rate_hz: int) -> Signal:
    """Mix a call into the middle of a background, repeated if shorter, at a ratio of powers."""
    size = max(len(call), len(background))
    window = np.resize(background, size)
    start = (len(window) - len(call)) // 2
    covered = slice(start, start + len(call))  # while the call lasts
    call_spectrum = _energy_spectrum(call)
    band = find_band(call_spectrum, rate_hz / len(call))
    call_energy = call_spectrum[band].sum()
    noise_spectrum = _energy_spectrum(window[covered])
    noise_energy = noise_spectrum[band].sum()
    if call_energy == 0:
        raise InputError(
            "a silent example cannot be mixed into the background of a site"
        )
    gain = 1.0
    if noise_energy != 0:
        ratio = 10 ** (snr_db / 10)
        gain = np.sqrt(ratio * noise_energy / call_energy)
    # Fade the call in and out.
    longest_fade = len(call) // 2
    fade = min(round(FADE_S * rate_hz), longest_fade)
    middles = np.arange(fade) + 0.5
    rising = middles / max(fade, 1)
    falling = rising[::-1]
    faded = call.astype(np.float32)
    faded[:fade] *= rising
    faded[len(call) - fade :] *= falling
    mixed = window.astype(np.float32)
    mixed[covered] += np.float32(gain) * faded
    return mixed


def _energy_spectrum(signal: Signal) -> FloatArray:
    """Return the energy of a signal in each bin of its Fourier transform, without its mean."""
    spectrum = scipy.fft.rfft(signal.astype(np.float64))
    energy = np.abs(spectrum) ** 2
    energy[0] = 0.0
    return np.asarray(energy)


def find_band(energy: FloatArray, step_hz: float) -> slice:
    """Return the bins in which the energy grows from 5 % to 95 %, at least a third of an octave.

    `energy` is that of each bin, `step_hz` the width of a bin.
    """
    cumulative = np.cumsum(energy)
    total = cumulative[-1]
    limits = np.array(ENERGY_SHARES) * total
    low_bin, high_bin = np.searchsorted(cumulative, limits)
    low_hz = max(int(low_bin), 1) * step_hz
    high_hz = max(int(high_bin), 1) * step_hz
    centre_hz = np.sqrt(low_hz * high_hz)
    lowest_hz = min(low_hz, centre_hz / NARROWEST)
    highest_hz = max(high_hz, centre_hz * NARROWEST)
    first = int(lowest_hz / step_hz)
    highest_bin = highest_hz / step_hz
    last = int(np.ceil(highest_bin))
    return slice(first, last + 1)


def load_spans(
    spans: Spans,
    *,
    threads: int | None = None,
    ahead: int = 32,
    prepare: Callable[[Row, Signal], Any] | None = None,
) -> LoadedAudio:
    """Load the audio of spans in order, as `load_audio` does; mix spans that have a background."""
    if MIXED not in spans.frame.columns:
        yield from load_audio(spans, threads=threads, ahead=ahead, prepare=prepare)
        return
    calls = load_audio(spans, threads=threads)
    backgrounds = load_audio(background_spans(spans), threads=threads)
    with closing(calls), closing(backgrounds):
        for span, (row, call), (_, noise) in zip(
            spans.rows(), calls, backgrounds, strict=True
        ):
            if isinstance(call, InputError) or isinstance(noise, InputError):
                yield row, call if isinstance(call, InputError) else noise
                continue
            try:
                mixed: Any = mix_call(call, noise, span[MIXED], span["rate_hz"])
                if span["peak_dbfs"] is not None:
                    mixed = normalise_peak(mixed, span["peak_dbfs"])
                if prepare is not None:
                    mixed = prepare(span, mixed)
            except InputError as error:
                mixed = error
            yield row, mixed


def background_spans(spans: Spans) -> Spans:
    """Return the background of each mixed span as spans; its level is not changed."""
    shared = [name for name in BACKGROUND_COLUMNS if name in spans.frame.columns]
    frame = spans.frame.select(shared).with_columns(
        recording=spans.frame["background_path"],
        start_s=spans.frame["background_start_s"],
        end_s=spans.frame["background_end_s"],
    )
    return Spans(frame, to_path(spans.metadata[BACKGROUND]))


def mix_spans(spans: Spans, folder: Path, snrs_db: Sequence[float]) -> Spans:
    """Return each span once for each ratio, with the background to mix it into.

    It is mixed when its audio is loaded. `mixed_from` is its row in `spans`.
    """
    quiet, durations_s = find_quiet_spans(folder, spans)
    starts = list(zip(quiet.paths, quiet["start_s"], strict=True))
    rows = []
    for number, span in enumerate(spans.rows()):
        # The background is as long as the call, and moved to an earlier time if the recording ends.
        length_s = span["end_s"] - span["start_s"] + 2 * span["collar_s"]
        chosen = choose_backgrounds(span["segment"], len(snrs_db), len(quiet))
        for background, snr_db in zip(chosen, snrs_db, strict=True):
            path, start_s = starts[background]
            last_s = durations_s[path]
            begin_s = max(0.0, min(start_s, last_s - length_s))
            mix = {
                "segment": f"{span['segment']} at {snr_db!r} dB",
                "background_path": path,
                "background_start_s": begin_s,
                "background_end_s": min(begin_s + length_s, last_s),
                MIXED: float(snr_db),
                "mixed_from": number,
            }
            rows.append(span | mix)
    metadata = {**spans.metadata, BACKGROUND: str(quiet.root)}
    return Spans.from_rows(
        rows, root=spans.root, metadata=metadata, source=spans.source
    )


def find_quiet_spans(folder: Path, calls: Spans) -> tuple[Spans, dict[str, float]]:
    """Return quiet spans of a folder, read like the `calls`, and the length of each recording."""
    library = find_recordings(folder)
    readable, errors = probe_recordings(library)
    durations_s = {
        path: recording.duration_s
        for path, recording in readable.items()
        if recording.duration_s >= SPAN_S
    }
    if not durations_s:
        reason = next(iter(errors.values()), f"no recording of at least {SPAN_S:g} s")
        raise InputError(f"--site: {folder}: {reason}")
    paths = sorted(durations_s)
    starts = distribute_spans([durations_s[path] for path in paths], SPAN_S)
    rows = [
        {"recording": paths[number], "start_s": start_s, "end_s": start_s + SPAN_S}
        for number, start_s in starts
    ]
    call = next(calls.rows())  # all calls are read in the same way
    spans = Spans.from_rows(rows, root=library.root).with_columns(
        rate_hz=call["rate_hz"], channel_rule=call["channel_rule"]
    )
    powers = {}  # of the spans that can be read and are not silent
    with closing(load_audio(spans)) as signals:
        for row, signal in signals:
            if not isinstance(signal, InputError) and signal.any():
                squares = np.square(signal, dtype=np.float64)
                powers[row] = float(np.mean(squares))
    if len(powers) < MIN_SPANS:
        raise InputError(
            f"--site: {folder}: {len(powers)} of {len(spans)} spans have sound that can be read; "
            "give recordings with background"
        )
    return spans.take(choose_quieter(powers)), durations_s


def distribute_spans(
    durations_s: Sequence[float], length_s: float
) -> list[tuple[int, float]]:
    """Spread 256 spans of a length evenly over recordings; return (recording, start_s) of each.

    `recording` is its number in `durations_s`. Recordings have spans in proportion to their
    lengths, none if they are shorter than a span. The spans of short recordings overlap.

    >>> spans = distribute_spans([60.0, 0.5, 180.0], 1.0)
    >>> [number for number, _ in spans].count(0)
    64
    >>> spans[0]
    (0, 0.4609375)
    """
    lengths_s = np.array(durations_s, np.float64)
    lengths_s[lengths_s < length_s] = 0.0
    if not lengths_s.any():
        return []
    # Times at equal steps through all recordings, one after the other.
    ends_s = np.cumsum(lengths_s)
    positions = (np.arange(SPANS) + 0.5) / SPANS
    times_s = positions * ends_s[-1]
    recordings = np.searchsorted(ends_s, times_s, side="right")
    # A time at a share of its recording becomes the start at that share of the possible starts.
    recording_s = lengths_s[recordings]
    shares = 1 - (ends_s[recordings] - times_s) / recording_s
    starts_s = shares * (recording_s - length_s)
    return list(zip(recordings.tolist(), starts_s.tolist(), strict=True))


def choose_quieter(powers: Mapping[int, float]) -> list[int]:
    """Return the sorted numbers of the quieter half of spans, from the power of each.

    >>> choose_quieter({0: 3.0, 4: 1.0, 7: 2.0})
    [4, 7]
    """
    ranked = sorted(powers, key=lambda number: powers[number])
    return sorted(ranked[: (len(powers) + 1) // 2])
