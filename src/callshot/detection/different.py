"""What to listen to first: sounds, and recordings, that together are like all the others.

A sound covers another one as far as it is nearer to it than the background is. Each next recording
is the one whose sounds cover most of what is not covered yet (greedy facility location). Of sounds,
every second one is chosen so: it stands for many others. The one between them is farthest from the
background and from all before it: rare sounds cover little. `bench/listening.py` compares it.
"""

from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callshot.detection.index.windows import SILENCE_DBFS
from callshot.detection.ready_windows import TINY, Part, Space
from callshot.encoders.windows import Float32Array
from callshot.records import FloatArray

MAX_SOUNDS = 3000


class Sounds(NamedTuple):
    """Some windows of all recordings, sorted by recording.

    sketch    difference from the background, windows × components
    distance  from the background
    """

    recording: NDArray[np.str_]
    start_s: FloatArray
    end_s: FloatArray
    sketch: Float32Array
    distance: Float32Array


def sample_windows(space: Space, parts: list[Part], count: int = MAX_SOUNDS) -> Sounds:
    """Sample about `count` windows that are not silent; each part gives its share.

    Half of the windows of a part are those farthest from its mean, for rare sounds. The others are
    even in time.
    """
    background = np.asarray(space.components @ space.background, np.float32)
    total = sum(len(part.start_s) for part in parts)
    chosen = []
    for part in sorted(parts, key=lambda part: (part.recording, part.start_s[0])):
        # Imported windows have no level (NaN): they count as not silent.
        rows = np.flatnonzero(~(part.rms_dbfs <= SILENCE_DBFS))
        quota = ceil(len(rows) * count / total)
        if quota < len(rows):
            sketch = part.sketch[rows]
            away = np.linalg.norm(sketch - sketch.mean(axis=0), axis=1)
            far = rows[np.argsort(-away, kind="stable")[: quota // 2]]
            others = np.setdiff1d(rows, far)
            places = np.linspace(0, len(others) - 1, quota - len(far)).round()
            rows = np.union1d(far, others[places.astype(int)])
        chosen.append((part, rows))
    sketch = np.concatenate([part.sketch[rows] for part, rows in chosen]) - background
    names = [part.recording for part, _ in chosen]
    return Sounds(
        recording=np.repeat(names, [len(rows) for _, rows in chosen]),
        start_s=np.concatenate([part.start_s[rows] for part, rows in chosen]),
        end_s=np.concatenate([part.end_s[rows] for part, rows in chosen]),
        sketch=sketch,
        distance=np.linalg.norm(sketch, axis=1),
    )


def measure_cover(sounds: Sounds) -> Float32Array:
    """Return how much each sound covers of every other one, sounds × sounds."""
    squares = sounds.distance**2
    products = sounds.sketch @ sounds.sketch.T
    between = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0.0))
    np.fill_diagonal(between, 0.0)
    return np.maximum(sounds.distance - between, 0.0)


def choose_greedily(
    cover: Float32Array,
    covered: Float32Array,
    count: int,
    distance: Float32Array | None = None,
) -> tuple[list[int], list[float]]:
    """Choose rows of `cover`, each next the one that adds most; return them and what each adds.

    cover     how much a row covers of each thing, rows × things
    covered   how much of each thing is covered at the start
    distance  of each thing, how much there is to cover; rows and things must be the same. If given,
              every second row is the one that is covered least so far

    >>> cover = np.array([[3.0, 0.0], [2.0, 2.0], [0.0, 1.0]], np.float32)
    >>> choose_greedily(cover, np.zeros(2, np.float32), 3)
    ([1, 0, 2], [4.0, 1.0, 0.0])
    """
    rows: list[int] = []
    gains: list[float] = []
    # The most that a row can add: what it added when it was last measured, for that only falls.
    # Chosen rows have −1.
    limits = np.full(len(cover), np.inf)
    while len(rows) < min(count, len(cover)):
        is_far = distance is not None and len(rows) % 2 == 1
        if distance is not None and is_far:
            row = int(np.where(limits >= 0, distance - covered, -np.inf).argmax())
        else:
            row = int(limits.argmax())
        more = np.maximum(cover[row] - covered, 0.0)
        limits[row] = more.sum(dtype=np.float64)
        if is_far or row == limits.argmax():
            rows.append(row)
            gains.append(float(limits[row]))
            covered = np.maximum(covered, cover[row])
            limits[row] = -1.0
    return rows, gains


def order_recordings(sounds: Sounds, cover: Float32Array) -> dict[str, float]:
    """Return recordings, each next the one that adds most, and the share of all that it adds."""
    names, firsts = np.unique(sounds.recording, return_index=True)
    by_recording = np.maximum.reduceat(cover, firsts, axis=0)
    nothing = np.zeros(cover.shape[1], np.float32)
    rows, gains = choose_greedily(by_recording, nothing, len(names))
    total = max(sum(gains), TINY)
    return {
        str(names[row]): gain / total for row, gain in zip(rows, gains, strict=True)
    }
