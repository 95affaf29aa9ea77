"""How well examples from elsewhere work, and what site matching wins back, on synthetic corpora.

    python bench/transfer.py --encoders mfcc,yamnet --changes all,noise

A source and a target corpus have the same call types by other callers. The target's recordings, or
with --reverse those of the source, are changed: noise (wind, rain and a hum), response (of another
recorder: low and high cut, and a peak), level (15 dB less), or all of these. The examples are used
as they are, centred (each table less its mean), mixed into background of the target before they
are embedded, or both. mAP, right names (accuracy) and their costs against examples of the target
are means of the spread total at --k; `won back` is the share of the cost that matching saves.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from scipy import fft

import callshot
from callshot.corpus.mixing import SNRS_DB
from callshot.corpus.synthetic import make_corpus
from callshot.encoders.embed import (
    BackgroundMix,
    EmbedOptions,
    embed_mixed_segments,
)
from callshot.records import Segmentation, TransferEvaluation
from callshot.spans import Spans
from table import parser, show

CHANGES = {
    "none": (),
    "level": ("level",),
    "response": ("response",),
    "noise": ("noise",),
    "all": ("noise", "response", "level"),
}
MIN_CALLS = 12  # of a call type, on either side
NOISE_DB = -3.0  # relative to the recording
LEVEL_DB = -15.0
MATCHING = {
    "{}": "none",
    "{}, centred": "centred",
    "{}, at site": "mixed",
    "{}, at site, centred": "mixed and centred",
}


def change_recording(path: Path, target: Path, names: tuple[str, ...]) -> None:
    """Write a recording as another site or recorder would have it."""
    samples, rate_hz = soundfile.read(path, dtype="float64", always_2d=True)
    signal = samples[:, 0]
    random = np.random.default_rng(len(signal))
    if "noise" in names:
        signal = signal + make_noise(signal, rate_hz, random)
    if "response" in names:
        signal = apply_response(signal, rate_hz)
    peak = np.abs(signal).max()
    signal = 0.9 * signal / peak
    if "level" in names:
        signal = signal * 10 ** (LEVEL_DB / 20)
    soundfile.write(target, signal, rate_hz, "PCM_16", format="FLAC")


def make_noise(
    signal: np.ndarray, rate_hz: int, random: np.random.Generator
) -> np.ndarray:
    """Return wind below 200 Hz, rain above 1 kHz, and the hum of a generator."""
    size = len(signal)
    frequency_hz = fft.rfftfreq(size, 1 / rate_hz)
    wind = 1 / (1 + (frequency_hz / 120) ** 2)
    rain = 0.15 * frequency_hz / (1000 + frequency_hz)
    spectrum = fft.rfft(random.normal(size=size)) * (wind + rain)
    noise = fft.irfft(spectrum, size)
    noise /= np.sqrt(np.mean(noise**2))
    time_s = np.arange(size) / rate_hz
    for harmonic in range(1, 8):
        noise += 0.3 / harmonic * np.sin(2 * np.pi * 87 * harmonic * time_s)
    level = np.sqrt(np.mean(signal**2) / np.mean(noise**2))
    return noise * level * 10 ** (NOISE_DB / 20)


def apply_response(signal: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return a signal with a low cut at 60 Hz, a high cut at 2.5 kHz, and a peak at 400 Hz."""
    size = len(signal)
    frequency_hz = np.maximum(fft.rfftfreq(size, 1 / rate_hz), 1e-3)
    low_cut = 1 / (1 + (60 / frequency_hz) ** 2)
    high_cut = 1 / (1 + (frequency_hz / 2500) ** 2)
    octaves = np.log2(frequency_hz / 400)
    peak = 10 ** (8 / 20 * np.exp(-2 * octaves**2))
    return fft.irfft(fft.rfft(signal) * low_cut * high_cut * peak, size)


def change_corpus(corpus: Path, folder: Path, change: str) -> Path:
    """Write a changed copy of a corpus."""
    (folder / "recordings").mkdir(parents=True)
    shutil.copytree(corpus / "raven", folder / "raven")
    for path in sorted((corpus / "recordings").iterdir()):
        change_recording(path, folder / "recordings" / path.name, CHANGES[change])
    return folder


def frequent_labels(segmentation: Segmentation) -> set[str]:
    """Return the labels with enough calls."""
    labels = segmentation.segments["label"]
    return {name for name in labels if labels.count(name) >= MIN_CALLS}


def select_segments(segmentation: Segmentation, labels: set[str]) -> Spans:
    """Return the segments with some labels."""
    segments = segmentation.segments
    rows = [row for row, label in enumerate(segments["label"]) if label in labels]
    return segments.take(rows)


def describe(
    result: TransferEvaluation, encoder: str, change: str, k: int
) -> list[dict[str, object]]:
    """Return a row for each kind of matching."""
    rows: list[dict[str, object]] = []
    plain: dict[str, float] = {}
    for pattern, matching in MATCHING.items():
        name = pattern.format(encoder)
        row: dict[str, object] = {
            "encoder": encoder,
            "change": change,
            "matching": matching,
        }
        for metric, title in (("map", "mAP"), ("accuracy", "right")):
            key = {"metric": metric, "spread": "total", "k": k, "scoring": "all"}
            transfer = result.curve.filter(encoder=name, **key)["mean"][0]
            own = result.within_target.curve.filter(**key)["mean"][0]
            cost = result.transfer_difference.filter(one=name, **key).row(0, named=True)
            plain.setdefault(metric, cost["mean"])
            row[title] = f"{transfer:.2f}"
            row[f"{title} within target"] = f"{own:.2f}"
            interval = f"[{cost['p01']:+.2f}, {cost['p99']:+.2f}]"
            row[f"{title} cost"] = f"{cost['mean']:+.2f} {interval}"
            won = 1 - cost["mean"] / plain[metric] if plain[metric] < -0.005 else np.nan
            is_first = matching == "none" or np.isnan(won)
            row[f"{title} won back"] = "" if is_first else f"{won:.0%}"
        rows.append(row)
    return rows


def measure(
    source: Spans,
    target: Spans,
    encoder: str,
    store: Path,
    shots: str,
    snr_db: tuple[float, ...] = SNRS_DB,
) -> TransferEvaluation:
    """Evaluate examples of the source on the target, as they are and in its background."""
    plain = callshot.embed(source, encoder, store=store)
    options = EmbedOptions(store=store)
    mix = BackgroundMix(target.root, snr_db)
    mixed, _ = embed_mixed_segments(source, mix, encoder, options)
    result = callshot.evaluate(
        [plain, mixed],
        queries=callshot.embed(target, encoder, store=store),
        centre=True,
        shots=shots,
        spread="total",
        permutations=0,
    )
    assert isinstance(result, TransferEvaluation)
    return result


def main() -> None:
    """Make the corpora, measure all of them, and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument("--encoders", default="mfcc,yamnet,birdnet-v2.4")
    arguments.add_argument("--changes", default="all", help=", ".join(CHANGES))
    arguments.add_argument("--reverse", action="store_true")
    arguments.add_argument("--scale", type=float, default=1.0)
    arguments.add_argument("--k", type=int, default=5)
    arguments.add_argument("--snr-db", default=",".join(f"{x:g}" for x in SNRS_DB))
    options = arguments.parse_args()
    snr_db = tuple(map(float, options.snr_db.split(",")))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, part in enumerate(("source", "target"), 1):
            make_corpus(folder / part, seed=seed, scale=options.scale)
        changed = "source" if options.reverse else "target"
        for change in options.changes.split(","):
            places = {part: folder / part for part in ("source", "target")}
            places[changed] = change_corpus(folder / changed, folder / change, change)
            clips, calls = (
                callshot.segment(
                    place / "recordings", place / "raven", min_length_s=1.0
                )
                for place in places.values()
            )
            labels = frequent_labels(clips) & frequent_labels(calls)
            source = select_segments(clips, labels)
            target = select_segments(calls, labels)
            for encoder in options.encoders.split(","):
                store = folder / "store"
                shots = f"1,{options.k}"
                result = measure(source, target, encoder, store, shots, snr_db)
                rows += describe(result, encoder, change, options.k)
                print(encoder, change, rows[-len(MATCHING) :], file=sys.stderr)
    title = (
        f"bench/transfer: {changed} changed, {len(labels)} call types, "
        f"{len(source)} calls in the source, {len(target)} in the target, "
        f"k = {options.k}"
    )
    show(title, rows, options.json)


if __name__ == "__main__":
    main()
