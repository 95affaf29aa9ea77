"""Rules that decide whether a window has a call, on real recordings, from five clips alone.

    python bench/field_rules.py ../shared/data --folder vectors

Of 8 of the 10 species of birds, five boxes each are examples: clips, with zeros around. They come
from five recordings ("spread"), from as few as have five boxes ("few"), or are any five boxes
("random"). All other recordings of birds are scanned, and those of boobook, where none of these
birds lives. A window belongs to the nearest mean; background is one more class, whose mean is that
of the quietest sixth of the windows of each scanned recording. Neighbouring windows of a class are
an event. A call is found by an event of its name that shares 0.2 s with it; an event that only
touches a box `bird` does not count. All means are over the same draws.

root    signed square roots of the vectors
scaled  each dimension divided by its standard deviation over the scanned windows
again   in each recording, the mean of a class that was found there moves half-way to the windows
        that were found, and these are searched again with it, until nothing changes, or six times
0.45    the share of the way from background to class that a window must reach; otherwise 0.5

Vectors are kept in --folder. The rules were chosen while looking at these recordings. On synthetic
sites, where calls are rarer and wind and rain louder, thresholds find more and have fewer false
alarms than all of them; `callshot scan` takes the last rule only where it finds more.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.audio import load_audio
from callshot.detection.edges import Spacing, refine_edges
from callshot.detection.examples import split_call
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.index.windows import find_spec, make_grid
from callshot.encoders.workers import open_workers
from callshot.spans import Spans
from table import parser, show

Array = np.ndarray
Decide = Callable[[Array], tuple[Array, Array]]

HOP_S = 1.0
QUIET_SHARE = 1 / 6
SPECIES = 8
CLIPS = 5
OVERLAP_S = 0.2
OTHER = "bird"  # a box of another bird, or of one that could not be named
PASSES = 6
RULES = {
    "nearest mean": (),
    "root": ("root",),
    "root, again": ("root", "again"),
    "scaled": ("scaled",),
    "root, scaled": ("root", "scaled"),
    "root, scaled, again": ("root", "scaled", "again"),
    "root, scaled, again, 0.45": ("root", "scaled", "again", "0.45"),
}


@dataclass
class Windows:
    """Vectors of the windows of recordings, with their starts and levels."""

    vectors: Array
    recording: Array
    start_s: Array
    level: Array
    window_s: float

    def select(self, names: Sequence[str]) -> "Windows":
        """Return the windows of some recordings."""
        inside = np.isin(self.recording, names)
        return Windows(
            self.vectors[inside],
            self.recording[inside],
            self.start_s[inside],
            self.level[inside],
            self.window_s,
        )

    @property
    def hours(self) -> float:
        """The length that the windows stand for."""
        return len(self.vectors) * HOP_S / 3600

    def find_quiet(self) -> Array:
        """Return the rows of the quietest windows of each recording."""
        rows = []
        for name in np.unique(self.recording):
            own = np.flatnonzero(self.recording == name)
            count = max(1, round(len(own) * QUIET_SHARE))
            quiet = np.argsort(self.level[own], kind="stable")[:count]
            rows.append(own[quiet])
        return np.concatenate(rows)


def read_windows(folders: Sequence[Path], encoder: str, out: Path) -> Windows:
    """Embed the windows of recordings once, and return them."""
    parts = []
    for folder in folders:
        index = index_recordings(folder, out / folder.name, encoder, hop_s=HOP_S).index
        for recording in index.recordings:
            parts += [
                (recording.path, block) for block in index.read_recording(recording)
            ]
    frames = [block.spans.frame for _, block in parts]
    return Windows(
        np.concatenate([block.matrix for _, block in parts]).astype(np.float64),
        np.repeat([path for path, _ in parts], [len(block) for _, block in parts]),
        np.concatenate([frame["start_s"] for frame in frames]),
        np.concatenate([frame["rms_dbfs"] for frame in frames]),
        index.settings.window_s,
    )


def embed_clips(boxes: pl.DataFrame, root: Path, encoder: str, out: Path) -> Array:
    """Embed every named box alone, with zeros around it, once."""
    file = out / "clips.npy"
    if file.exists():
        return np.load(file)
    spec = find_spec(encoder, {})
    grid = make_grid(spec)
    spans = Spans(
        boxes.with_columns(
            path=pl.col("recording"),
            rate_hz=grid.rate_hz,
            collar_s=0.0,
            channel_rule=pl.lit("first"),
            peak_dbfs=pl.lit(None, pl.Float64),
            source_rate_hz=pl.lit(None, pl.Float64),
        ),
        root=root,
    )
    vectors = np.zeros((len(boxes), spec.dimension))
    with open_workers(spec, device="cpu", threads=None) as workers:
        for row, signal in load_audio(spans):
            if boxes["label"][row] == OTHER:
                continue
            missing = max(0, grid.window - len(signal))
            padded = np.pad(signal, (missing // 2, missing - missing // 2))
            windows = split_call(padded, grid.window)
            vectors[row] = workers.submit_windows(windows)().mean(axis=0)
    np.save(file, vectors)
    return vectors


def draw_examples(
    boxes: pl.DataFrame, draws: int, way: str
) -> Iterator[dict[str, list[int]]]:
    """Yield the rows of the examples of each species: spread, of few recordings, or random."""
    rng = np.random.default_rng(0)
    label = boxes["label"].to_numpy()
    recording = boxes["recording"].to_numpy()
    species = sorted({*label} - {OTHER})
    for _ in range(draws):
        examples = {}
        for name in sorted(rng.choice(species, SPECIES, replace=False)):
            own = np.flatnonzero(label == name)
            rows: list[int] = []
            if way == "random":
                rows = rng.permutation(own).tolist()
            for one in rng.permutation(np.unique(recording[own])):
                if len(rows) >= CLIPS:
                    break
                inside = rng.permutation(own[recording[own] == one])
                rows += inside[:1].tolist() if way == "spread" else inside.tolist()
            examples[str(name)] = rows[:CLIPS]
        yield examples


def make_rule(
    examples: Sequence[Array], windows: Windows, parts: Sequence[str]
) -> Decide:
    """Return a function from the vectors of a recording to the class and score of each.

    The class is −1 for background. The score is 0 at the mean of the background and 1 at the mean
    of the class.
    """

    def root(vectors: Array) -> Array:
        return (
            np.sign(vectors) * np.sqrt(np.abs(vectors)) if "root" in parts else vectors
        )

    scale = np.ones(windows.vectors.shape[1])
    if "scaled" in parts:
        scale = root(windows.vectors).std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
    threshold = 0.45 if "0.45" in parts else 0.5
    background = (root(windows.vectors[windows.find_quiet()]) / scale).mean(axis=0)
    means = np.array([(root(rows) / scale).mean(axis=0) for rows in examples])

    def assign(vectors: Array, means: Array) -> tuple[Array, Array]:
        towards = means - background
        squares = np.einsum("nd,nd->n", towards, towards)
        products = (vectors - background) @ towards.T
        best = (2 * products - squares).argmax(axis=1)
        scores = (products / squares)[np.arange(len(best)), best]
        return np.where(scores > threshold, best, -1), scores

    def decide(vectors: Array) -> tuple[Array, Array]:
        vectors = root(vectors) / scale
        first, first_scores = assign(vectors, means)
        found = first
        scores = first_scores
        for _ in range(PASSES if "again" in parts else 0):
            present = np.unique(found[found >= 0])
            moved = means.copy()
            for number in present:
                here = vectors[found == number].mean(axis=0)
                moved[number] = (means[number] + here) / 2
            again, new_scores = assign(vectors, moved)
            is_found = np.isin(again, present)
            before = found
            found = np.where(is_found, again, first)
            scores = np.where(is_found, new_scores, first_scores)
            if (found == before).all():
                break
        return found, scores

    return decide


def find_events(
    windows: Windows, decide: Decide, names: Sequence[str], lengths_s: Sequence[float]
) -> Iterator[tuple[str, float, float, str]]:
    """Yield recording, start, end and class of each event."""
    spacing = Spacing(windows.window_s, HOP_S, {})
    for recording in np.unique(windows.recording):
        rows = np.flatnonzero(windows.recording == recording)
        start_s = windows.start_s[rows]
        found, _ = decide(windows.vectors[rows])
        edges = np.flatnonzero(np.diff(found, prepend=-2, append=-2))
        for first, end in pairwise(edges):
            number = found[first]
            if number >= 0:
                last_s = float(start_s[end - 1])
                edges_s = refine_edges(
                    float(start_s[first]),
                    last_s,
                    last_s + windows.window_s,
                    lengths_s[number],
                    spacing,
                    np.inf,
                )
                yield (str(recording), *edges_s, names[number])


def judge(
    events: Sequence[tuple[str, float, float, str]], boxes: pl.DataFrame
) -> Array:
    """Return calls, calls that were found, right events, wrong events."""
    rows = boxes.rows()
    counts = np.zeros(4)

    def is_met(event: tuple[str, float, float, str], box: tuple) -> bool:
        shared_s = min(event[2], box[2]) - max(event[1], box[1])
        return event[0] == box[0] and shared_s >= min(
            OVERLAP_S, 0.99 * (box[2] - box[1])
        )

    for box in rows:
        if box[3] != OTHER:
            counts[0] += 1
            counts[1] += any(is_met(one, box) and one[3] == box[3] for one in events)
    for event in events:
        labels = [box[3] for box in rows if is_met(event, box)]
        if event[3] in labels:
            counts[2] += 1
        elif OTHER not in labels:
            counts[3] += 1
    return counts


def main() -> None:
    """Measure all rules on the same draws."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--draws", type=int, default=10)
    options = arguments.parse_args()
    out = options.folder / options.encoder
    out.mkdir(parents=True, exist_ok=True)
    boxes = pl.read_csv(options.data / "birds" / "annotations.csv")
    clips = embed_clips(boxes, options.data / "birds", options.encoder, out)
    birds = read_windows([options.data / "birds"], options.encoder, out)
    boobook = options.data / "boobook"
    others = [boobook / name for name in ("positive", "negative")]
    elsewhere = read_windows(others, options.encoder, out)
    lengths_s = (boxes["end_s"] - boxes["start_s"]).to_numpy()
    table = []
    for draw in ("spread", "few", "random"):
        drawn = list(draw_examples(boxes, options.draws, draw))
        for rule, parts in RULES.items():
            recalls, precisions, alarms = [], [], []
            for examples in drawn:
                names = list(examples)
                rows = list(chain(*examples.values()))
                used = boxes["recording"][rows].unique()
                scanned = birds.select(np.setdiff1d(birds.recording, used))
                vectors = [clips[rows] for rows in examples.values()]
                typical_s = [
                    float(np.median(lengths_s[rows])) for rows in examples.values()
                ]
                events = find_events(
                    scanned, make_rule(vectors, scanned, parts), names, typical_s
                )
                wanted = boxes.filter(
                    pl.col("label").is_in([*names, OTHER])
                    & pl.col("recording").is_in(np.unique(scanned.recording).tolist())
                )
                calls, found, right, wrong = judge(list(events), wanted)
                recalls.append(found / calls)
                precisions.append(right / max(1, right + wrong))
                events = find_events(
                    elsewhere, make_rule(vectors, elsewhere, parts), names, typical_s
                )
                alarms.append(len(list(events)) / elsewhere.hours / len(names))
            table.append(
                {
                    "rule": rule,
                    "examples": draw,
                    "recall": float(np.mean(recalls)),
                    "lowest": float(np.min(recalls)),
                    "precision": float(np.mean(precisions)),
                    "lowest ": float(np.min(precisions)),
                    "false alarms / h / class elsewhere": float(np.mean(alarms)),
                }
            )
    title = f"{options.encoder}, {CLIPS} clips of each of {SPECIES} species, {options.draws} draws"
    show(title, table, options.json)


if __name__ == "__main__":
    main()
