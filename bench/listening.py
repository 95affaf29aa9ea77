"""What to listen to first: minutes of listening until each kind of call was met once.

Whole recordings are listened to in random order (the mean of 200), in the order "most to hear
first", and by the seconds in windows that are among the tenth farthest from the background. Or
single windows are: at random, by the list of kinds of sounds, and each the farthest from those
before. Recordings are of birds and of an owl; the synthetic site has a minute of each hour of a
week, with 8 kinds of rare calls. WORK keeps the site and the indexes.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from callshot.corpus.synthetic.site import synthesise_soundscape
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.ready_windows import (
    ReadyWindows,
    Sounds,
    choose_greedily,
    measure_cover,
    order_recordings,
    sample_windows,
)
from table import parser, show

DRAWS = 200
FAR = 0.9
SITE = {
    "recordings": 168,
    "minutes": 1,
    "every_minutes": 60,
    "calls_per_hour": 12,
    "types": 8,
    "examples": 1,
}
Calls = dict[str, list[tuple[float, float, str]]]


def main() -> None:
    """Measure, and print a table."""
    found = parser(__doc__)
    found.add_argument("--data", type=Path, default=Path("../shared/data"))
    found.add_argument("--work", type=Path, required=True)
    options = found.parse_args()
    site = options.work / "site"
    if not site.exists():
        synthesise_soundscape(site, **SITE)
    tables = {
        "birds": (options.data / "birds", options.data / "birds" / "annotations.csv"),
        "owl": (options.data / "boobook", options.data / "boobook" / "positive"),
        "site": (site / "recordings", site / "annotations.csv"),
    }
    rows = []
    for name, (folder, annotations) in tables.items():
        calls = read_calls(folder, annotations)
        index = options.work / f"{name}-index"
        index_recordings(folder, index, "birdnet-v2.4")
        rows += measure(name, folder, index, calls)
    show("Minutes until kinds of calls were met", rows, options.json)


def read_calls(folder: Path, annotations: Path) -> Calls:
    """Return the calls of recordings: start, end, label; those of unsure kind are left out."""
    calls: Calls = defaultdict(list)
    if annotations.is_dir():  # Raven tables without labels
        for path in annotations.glob("*.txt"):
            recording = annotations / f"{path.name.split('.Table')[0]}.flac"
            for row in csv.DictReader(path.open(), delimiter="\t"):
                span = float(row["Begin Time (s)"]), float(row["End Time (s)"])
                calls[recording.relative_to(folder).as_posix()].append((*span, "owl"))
        return calls
    for row in csv.DictReader(annotations.open()):
        if row["label"] != "bird":
            span = float(row["start_s"]), float(row["end_s"])
            calls[row["recording"]].append((*span, row["label"]))
    return calls


def measure(
    name: str, folder: Path, index: Path, calls: Calls
) -> list[dict[str, object]]:
    """Return a row for each order of recordings, and of windows."""
    files = [
        path for path in folder.rglob("*") if path.suffix in (".mp3", ".flac", ".wav")
    ]
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    windows = ReadyWindows(index, folder, names)
    windows.refresh()
    space, parts = windows.sketches
    assert space is not None
    sounds = sample_windows(space, parts, len(windows))
    cover = measure_cover(sounds)
    count = len(cover)
    nothing = np.zeros(count, np.float32)
    random = np.random.default_rng(0)
    is_far = sounds.distance > np.quantile(sounds.distance, FAR)
    far = {one: np.count_nonzero(is_far[sounds.recording == one]) for one in names}
    farthest = choose_farthest(cover, sounds)
    kinds, _ = choose_greedily(cover, nothing, count, sounds.distance)
    orders = {
        "recordings at random": [random.permutation(names) for _ in range(DRAWS)],
        "recordings, most to hear first": [[*order_recordings(sounds, cover)]],
        "recordings, most seconds far from the background": [
            sorted(names, key=lambda one: -far[one])
        ],
    }
    rows = []
    for what, tries in orders.items():
        times = [meet_in_recordings(order, sounds, calls) for order in tries]
        rows.append(summarise(f"{name}: {what}", np.array(times)))
    lists = {
        "windows at random": [random.permutation(count) for _ in range(DRAWS)],
        "kinds of sounds": [kinds],
        "windows, farthest first": [farthest],
    }
    for what, tries in lists.items():
        times = [meet_in_windows(order, sounds, calls) for order in tries]
        rows.append(summarise(f"{name}: {what}", np.array(times)))
    return rows


def choose_farthest(cover: np.ndarray, sounds: Sounds) -> list[int]:
    """Return windows, each next the one that is farthest from the background and all before."""
    left = sounds.distance.copy()
    order = []
    for _ in range(len(left)):
        row = int(left.argmax())
        order.append(row)
        left = np.minimum(left, sounds.distance - cover[row])
        left[order] = -1
    return order


def find_kinds(calls: Calls) -> list[str]:
    """Return the labels of all calls."""
    return sorted({label for own in calls.values() for _, _, label in own})


def meet_in_recordings(
    order: Iterable[str], sounds: Sounds, calls: Calls
) -> list[float]:
    """Return the minutes after which each kind was met, in whole recordings one after another."""
    met: dict[str, float] = {}
    passed_s = 0.0
    for name in order:
        for _, end_s, label in sorted(calls.get(str(name), [])):
            met.setdefault(label, passed_s + end_s)
        passed_s += sounds.end_s[sounds.recording == name].max(initial=0.0)
    return [met[kind] / 60 for kind in find_kinds(calls)]


def meet_in_windows(order: Iterable[int], sounds: Sounds, calls: Calls) -> list[float]:
    """Return the minutes after which each kind was met: half of a call, or half a second of it."""
    met: dict[str, float] = {}
    passed_s = 0.0
    for row in order:
        start_s, end_s = sounds.start_s[row], sounds.end_s[row]
        passed_s += end_s - start_s
        for first_s, last_s, label in calls.get(str(sounds.recording[row]), []):
            shared_s = min(end_s, last_s) - max(start_s, first_s)
            if shared_s >= 0.5 * min(last_s - first_s, 1.0):
                met.setdefault(label, passed_s)
    return [met.get(kind, np.inf) / 60 for kind in find_kinds(calls)]


def summarise(what: str, minutes: np.ndarray) -> dict[str, object]:
    """Return the minutes until half of the kinds, and all, were met; means over tries."""
    ordered = np.sort(minutes, axis=1)
    half = (ordered.shape[1] - 1) // 2
    return {
        "what": what,
        "half": float(ordered[:, half].mean()),
        "all": float(ordered[:, -1].mean()),
    }


if __name__ == "__main__":
    main()
