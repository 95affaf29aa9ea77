"""An index that may still be made: the windows that are in whole files so far, and a quick search.

Windows are compared as a scan compares them by the nearest mean (`nearest.py`): by the signed
square roots of their values, each divided by its standard deviation over the windows.

A month of windows of 3 s has 1.8 GB of vectors, which take ten seconds to transform. So the first
principal components of each window stay in memory (`sketch`). They choose CANDIDATES windows, which
are then compared by their whole vectors, read from the disk. Up to CANDIDATES windows, the result
is exact. Of birds (BirdNET) and a day of elephants (AVES), 64 components and 0.5 % of the windows
as candidates give 99 and 100 % of the exact first twelve.

What to listen to first are sounds, and recordings, that together are like all the others. A sound
covers another one as far as it is nearer to it than the background is. Each next recording is the
one whose sounds cover most of what is not covered yet (greedy facility location). Of sounds, every
second one is chosen so: it stands for many others. The one between them is farthest from the
background and from all before it: rare sounds cover little. `bench/listening.py` compares it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callshot.chunks import Rows
from callshot.detection.index.index_files import (
    SPAN_NAME,
    IndexSettings,
    is_index,
    list_files,
    read_indexed,
    read_settings,
    read_span,
    recording_folder,
)
from callshot.detection.index.index_recordings import find_stamp
from callshot.detection.index.windows import SILENCE_DBFS
from callshot.detection.nearest import find_quiet, find_roots
from callshot.encoders.windows import Float32Array
from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

COMPONENTS = 64
CANDIDATES = 4096
MAX_SOUNDS = 3000
MAX_SAMPLE = 16384  # windows that scale and components are measured on
GROWTH = 1.5  # times as many windows as were measured: measure again
BACKGROUND_WEIGHT = 2  # chosen on recordings of birds and of an owl
TOUCH_S = 1e-3  # windows that are closer touch
TINY = np.finfo(np.float64).tiny

FloatMatrix = NDArray[np.floating]
# By recording: start and end, in seconds, of spans that somebody has answered already
Answered = Mapping[str, Sequence[tuple[float, float]]]


class Part(NamedTuple):
    """A file of windows: its rows on the disk, and what is kept of them in memory.

    sketch  principal components of scaled roots, windows × components
    """

    recording: str
    rows: Rows
    start_s: FloatArray
    end_s: FloatArray
    rms_dbfs: Float32Array
    sketch: Float32Array


class FoundWindow(NamedTuple):
    """A window that is similar to examples.

    score  log-odds of the nearest mean: above 0 where the examples are nearer than all else
    share  how far it is on the way from the background, 0, to the mean of the examples, 1
    """

    recording: str
    start_s: float
    end_s: float
    score: float
    share: float


@dataclass(frozen=True, eq=False)
class Space:
    """How windows are compared, as measured on `count` of them.

    scale       standard deviation of the root of each value
    background  mean of the scaled roots of quiet windows
    components  principal components of scaled roots, components × dimensions
    """

    scale: FloatArray
    background: FloatArray
    components: Float32Array
    count: int

    def transform(self, vectors: FloatMatrix) -> Float32Array:
        """Return the scaled roots of vectors."""
        return np.asarray(find_roots(vectors) / self.scale, np.float32)

    def make_part(self, recording: str, rows: Rows) -> Part:
        """Return windows with their sketch; those whose values are damaged count as silent."""
        sketch = self.transform(rows["vector"]) @ self.components.T
        rms_dbfs = np.array(rows["rms_dbfs"])  # a copy, in memory
        is_damaged = ~np.isfinite(sketch).all(axis=1)
        sketch[is_damaged] = 0.0
        rms_dbfs[is_damaged] = -np.inf
        return Part(
            recording=recording,
            rows=rows,
            start_s=np.array(rows["start_s"]),
            end_s=np.array(rows["end_s"]),
            rms_dbfs=rms_dbfs,
            sketch=sketch,
        )


def measure_space(parts: Sequence[Rows]) -> Space:
    """Measure scale, background and principal components on a sample of the windows of all files.

    Background is the mean of the quietest windows of each file, as in a scan.
    """
    count = sum(map(len, parts))
    step = ceil(count / MAX_SAMPLE)  # the sample has every n-th window
    samples = []
    quiet = []
    for rows in parts:
        levels = np.array(rows["rms_dbfs"])
        audible = np.flatnonzero(~(levels <= SILENCE_DBFS))[::step]  # also NaN
        vectors = rows["vector"]
        quiet_rows = find_quiet(levels, audible)
        samples.append(vectors[audible])
        quiet.append(vectors[quiet_rows])
    if not any(map(len, samples)):  # all is silent
        samples = [rows["vector"][::step] for rows in parts]
        quiet = samples
    roots = _find_finite_roots(samples)
    spread = roots.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    background = _find_finite_roots(quiet).mean(axis=0)
    centred = (roots - roots.mean(axis=0)) / scale
    covariance = centred.T @ centred
    _, rising = np.linalg.eigh(covariance)  # columns, by rising variance
    falling = rising.T[::-1]
    components = np.ascontiguousarray(falling[:COMPONENTS], np.float32)
    return Space(scale, background / scale, components, count)


def _find_finite_roots(parts: Sequence[FloatMatrix]) -> FloatArray:
    """Return the roots of vectors, without those that are damaged, unless all are."""
    roots = find_roots(np.concatenate(parts))
    is_finite = np.isfinite(roots).all(axis=1)
    return roots[is_finite] if is_finite.any() else np.zeros_like(roots)


class ReadyWindows:
    """The windows of some recordings that an index has so far; `refresh` looks for new ones.

    root      the folder of the recordings
    finished  recordings of which all windows are there
    """

    def __init__(self, folder: Path, root: Path, names: Collection[str]) -> None:
        self.folder = folder
        self.root = root
        self.names = names
        self.finished: set[str] = set()
        # Replaced together: a sketch says something only in its own space.
        self._state: tuple[Space | None, dict[str, Part]] = (None, {})

    @property
    def parts(self) -> list[Part]:
        """All files of windows that are ready."""
        return list(self._state[1].values())

    @property
    def sketches(self) -> tuple[Space | None, list[Part]]:
        """The space, and all files of windows in it."""
        space, parts = self._state
        return space, list(parts.values())

    def __len__(self) -> int:
        return sum(len(part.start_s) for part in self.parts)

    def refresh(self) -> None:
        """Add windows that are new, a file at a time; for one thread, while others search.

        Files are not compared with their checksums, which would read all of them.
        """
        if not is_index(self.folder):
            return
        settings = read_settings(self.folder)
        new: dict[str, tuple[str, Rows]] = {}  # by file: its recording and rows
        for name in self.names:
            if name not in self.finished:
                # The process that makes the index reports errors.
                with suppress(InputError):
                    new |= self._find_new(name, settings)
        space, parts = self._state
        total = len(self) + sum(len(rows) for _, rows in new.values())
        if total and (space is None or total >= GROWTH * space.count):
            # Many windows are new: measure the space again, and sketch the known ones in it.
            rows_of_all = [part.rows for part in parts.values()]
            rows_of_all += [rows for _, rows in new.values()]
            space = measure_space(rows_of_all)
            sketched_again = {
                file: space.make_part(part.recording, part.rows)
                for file, part in parts.items()
            }
            self._state = (space, sketched_again)
        for file, (name, rows) in new.items():
            assert space is not None  # there are windows
            self._state[1][file] = space.make_part(name, rows)

    def _find_new(
        self, name: str, settings: IndexSettings
    ) -> dict[str, tuple[str, Rows]]:
        """Return the new files of windows of a recording: by file name, the recording and its rows.

        A recording of which the index has all windows is then finished.
        """
        folder = recording_folder(self.folder, name)
        if not folder.is_dir():
            return {}
        paths = list_files(self.folder, name)
        stamp = find_stamp(self.root / name)
        entry = read_indexed(self.folder, name, paths)
        known = self._state[1]
        if entry is not None and entry.stamp == stamp:
            self.finished.add(name)
            files = list(entry.spans)
            own = {file for file, part in known.items() if part.recording == name}
            # A damaged recording was first read whole; its files are then others.
            for file in own - {*files}:
                del known[file]
        else:
            files = []
            for path in paths:
                match = SPAN_NAME.fullmatch(path.name)
                if match and match["stamp"] == stamp:
                    files.append(path.name)
        new = [file for file in files if file not in known]
        return {
            file: (name, read_span(folder / file, settings, verify=False))
            for file in new
        }

    def find_vector(
        self, name: str, start_s: float, end_s: float
    ) -> FloatMatrix | None:
        """Return the vector of the window that shares most time with a span of a recording.

        Return None if no window shares half of the span, or half of itself if the span is longer.
        Of windows that share as much, it is the one whose middle is nearest to that of the span.
        """
        best = None
        highest_rank = (0.0, 0.0)
        for part in self.parts:
            if part.recording != name:
                continue
            earliest_end_s = np.minimum(part.end_s, end_s)
            latest_start_s = np.maximum(part.start_s, start_s)
            # Rounded, so that rounding errors do not decide
            shared_s = (earliest_end_s - latest_start_s).round(6)
            # Twice the distance from the middle of each window to that of the span.
            away_s = np.abs(part.start_s + part.end_s - start_s - end_s)
            # Most shared time first, then the nearest middle: lexsort takes the last key first.
            row = int(np.lexsort((away_s, -shared_s))[0])
            rank = (float(shared_s[row]), -float(away_s[row]))
            window_s = float(part.end_s[row] - part.start_s[row])
            shorter_s = min(end_s - start_s, window_s)
            has_half = 2 * shared_s[row] >= shorter_s
            if has_half and rank > highest_rank:
                best = part.rows["vector"][row]
                highest_rank = rank
        return best

    def rank(
        self,
        examples: FloatMatrix,
        other_sounds: FloatMatrix,
        answered: Answered,
    ) -> list[FoundWindow]:
        """Return windows by falling similarity to examples.

        `other_sounds` are not what is looked for; both are (vectors, dimensions). The score of a
        window z is |z − o|² − |z − c|²: c is the mean of the examples, o that of the other sounds
        and of the background of the recordings, which counts like BACKGROUND_WEIGHT sounds. The
        share of a window is how far it is on the way from the background to c. Windows that overlap
        a span in `answered` are left out.
        """
        space, parts = self.sketches
        if space is None or not parts:
            return []
        example_mean = space.transform(examples).mean(axis=0, dtype=np.float64)
        other_sum = BACKGROUND_WEIGHT * space.background
        other_sum += space.transform(other_sounds).sum(axis=0, dtype=np.float64)
        other_mean = other_sum / (BACKGROUND_WEIGHT + len(other_sounds))
        # |z − o|² − |z − c|² = 2 z · (c − o) + |o|² − |c|²
        direction = 2 * (example_mean - other_mean)
        offset = other_mean @ other_mean - example_mean @ example_mean
        # The offset is the same for all windows, so candidates do not depend on it.
        candidates = _choose_candidates(space, parts, direction, answered)
        found = _score_exactly(
            space, parts, candidates, direction, offset, example_mean
        )
        return sorted(
            found, key=lambda window: (-window.score, window.recording, window.start_s)
        )


def _choose_candidates(
    space: Space, parts: Sequence[Part], direction: FloatArray, answered: Answered
) -> IntArray:
    """Return at most CANDIDATES windows whose sketches are farthest in a direction.

    Windows are numbered through all parts one after another; the result is in this order. Silent
    windows, and those that overlap a span in `answered`, are left out.
    """
    sketch_direction = np.asarray(space.components @ direction, np.float32)
    scores_of_parts = []
    for part in parts:
        scores = part.sketch @ sketch_direction
        for start_s, end_s in answered.get(part.recording, ()):
            overlaps = (part.start_s < end_s) & (part.end_s > start_s)
            scores[overlaps] = -np.inf
        is_silent = part.rms_dbfs <= SILENCE_DBFS
        scores[is_silent] = -np.inf
        scores_of_parts.append(scores)
    approximate = np.concatenate(scores_of_parts)
    candidates = np.flatnonzero(approximate > -np.inf)
    if len(candidates) > CANDIDATES:
        highest = np.argpartition(-approximate, CANDIDATES)[:CANDIDATES]
        candidates = np.sort(highest)
    return candidates


def _score_exactly(
    space: Space,
    parts: Sequence[Part],
    candidates: IntArray,
    direction: FloatArray,
    offset: float,
    example_mean: FloatArray,
) -> list[FoundWindow]:
    """Return candidates, as `_choose_candidates` numbers them, with score and share.

    Whole vectors are read from the disk. The score of one is its product with the direction, plus
    the offset; its share is 0 at the background and 1 at the mean of the examples.
    """
    lengths = [len(part.start_s) for part in parts]
    first_numbers = np.cumsum([0, *lengths])
    part_of_candidate = np.searchsorted(first_numbers, candidates, "right") - 1
    towards_mean = example_mean - space.background
    square_length = max(float(towards_mean @ towards_mean), TINY)
    found = []
    for number in np.unique(part_of_candidate):
        part = parts[number]
        candidates_of_part = candidates[part_of_candidate == number]
        rows = candidates_of_part - first_numbers[number]
        scaled = space.transform(part.rows["vector"][rows])
        scores = scaled @ direction + offset
        above_background = scaled - space.background
        shares = above_background @ towards_mean / square_length
        for row, score, share in zip(rows, scores, shares, strict=True):
            window = FoundWindow(
                recording=part.recording,
                start_s=float(part.start_s[row]),
                end_s=float(part.end_s[row]),
                score=float(score),
                share=float(share),
            )
            found.append(window)
    return found


def choose_different(windows: Iterable[FoundWindow], count: int) -> list[FoundWindow]:
    """Return the first `count` windows that do not overlap or touch an earlier one.

    >>> starts_s = (6.0, 3.0, 0.0)
    >>> windows = [FoundWindow("a.wav", start_s, start_s + 3, 1.0, 1.0) for start_s in starts_s]
    >>> [one.start_s for one in choose_different(windows, 5)]
    [6.0, 0.0]
    """
    chosen: list[FoundWindow] = []
    for window in windows:
        if len(chosen) == count:
            break
        touches_chosen = any(
            earlier.recording == window.recording
            and window.start_s <= earlier.end_s + TOUCH_S
            and window.end_s >= earlier.start_s - TOUCH_S
            for earlier in chosen
        )
        if not touches_chosen:
            chosen.append(window)
    return chosen


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
    total = sum(len(part.start_s) for part in parts)
    names = []
    starts_s = []
    ends_s = []
    sketches = []
    for part in sorted(parts, key=lambda part: (part.recording, part.start_s[0])):
        # Imported windows have no level (NaN): they count as not silent.
        rows = np.flatnonzero(~(part.rms_dbfs <= SILENCE_DBFS))
        quota = ceil(len(rows) * count / total)
        if quota < len(rows):
            sketch = part.sketch[rows]
            distance = np.linalg.norm(sketch - sketch.mean(axis=0), axis=1)
            farthest_first = rows[np.argsort(-distance, kind="stable")]
            far = farthest_first[: quota // 2]
            remaining = np.setdiff1d(rows, far)
            spaced = np.linspace(0, len(remaining) - 1, quota - len(far)).round()
            positions = spaced.astype(int)
            rows = np.union1d(far, remaining[positions])
        names += [part.recording] * len(rows)
        starts_s.append(part.start_s[rows])
        ends_s.append(part.end_s[rows])
        sketches.append(part.sketch[rows])
    background = np.asarray(space.components @ space.background, np.float32)
    sketch = np.concatenate(sketches) - background
    return Sounds(
        recording=np.array(names, np.str_),
        start_s=np.concatenate(starts_s),
        end_s=np.concatenate(ends_s),
        sketch=sketch,
        distance=np.linalg.norm(sketch, axis=1),
    )


def measure_cover(sounds: Sounds) -> Float32Array:
    """Return how much each sound (row) covers of every sound (column).

    This is how much nearer the sound of the row is to that of the column than the background is.
    """
    squares = sounds.distance**2
    products = sounds.sketch @ sounds.sketch.T
    between = np.sqrt(np.maximum(squares[:, None] + squares - 2 * products, 0.0))
    np.fill_diagonal(between, 0.0)  # a sound from itself, without rounding errors
    return np.maximum(sounds.distance - between, 0.0)


def choose_greedily(
    cover: Float32Array,
    covered: Float32Array,
    count: int,
    distance: Float32Array | None = None,
) -> tuple[list[int], list[float]]:
    """Choose rows of `cover`, each next the one that adds most; return them and what each adds.

    cover     how much a row covers of each thing, rows × things
    covered   how much of each thing is covered at the start; it is not changed
    distance  of each thing, how much there is to cover; rows and things must be the same. If given,
              every second row is the one that is covered least so far

    >>> cover = np.array([[3.0, 0.0], [2.0, 2.0], [0.0, 1.0]], np.float32)
    >>> choose_greedily(cover, np.zeros(2, np.float32), 3)
    ([1, 0, 2], [4.0, 1.0, 0.0])
    """
    rows: list[int] = []
    gains: list[float] = []
    # Lazy greedy search: `limits` has the most that a row can add, which is what it added when it
    # was last measured, for that only falls. Only the row with the highest limit is measured again;
    # if its limit stays the highest, no other row adds more. Chosen rows have −1.
    limits = np.full(len(cover), np.inf)
    while len(rows) < min(count, len(cover)):
        row = int(limits.argmax())
        is_least_covered = False
        if distance is not None and len(rows) % 2 == 1:
            not_covered = distance - covered
            row = int(np.where(limits >= 0, not_covered, -np.inf).argmax())
            is_least_covered = True
        added = np.maximum(cover[row] - covered, 0.0)
        limits[row] = added.sum(dtype=np.float64)
        if is_least_covered or row == limits.argmax():
            rows.append(row)
            gains.append(float(limits[row]))
            covered = np.maximum(covered, cover[row])
            limits[row] = -1.0
    return rows, gains


def order_recordings(sounds: Sounds, cover: Float32Array) -> dict[str, float]:
    """Return recordings in the order to listen to them, and the share of all that each adds.

    `cover` is that of `measure_cover`. Each next recording is the one that adds most.
    """
    # Sounds are sorted by recording; the cover of a recording is that of its best sound.
    names, first_sounds = np.unique(sounds.recording, return_index=True)
    cover_of_recording = np.maximum.reduceat(cover, first_sounds, axis=0)
    nothing = np.zeros(cover.shape[1], np.float32)
    rows, gains = choose_greedily(cover_of_recording, nothing, len(names))
    total = max(sum(gains), TINY)
    return {
        str(names[row]): gain / total for row, gain in zip(rows, gains, strict=True)
    }
