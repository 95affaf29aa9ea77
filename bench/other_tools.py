"""callshot beside other ways to find calls by five clips of each class, on the same recordings.

    python bench/other_tools.py ../shared/data --folder vectors --birdnet-analyzer VENV/bin/python

Recordings, examples and figures are those of bench/field.py: five random clips of each of 8 birds,
windows of 3 s without overlap. All but template matching read the same BirdNET vectors. A window
whose score of a class is at least a threshold has it, and neighbouring windows of a class are one
event. A threshold that was "chosen afterwards" is the one with the highest mean F1 of all draws:
the best that a tool could do, which nobody knows before the calls are known.

callshot            `learn` and `scan`, by default. Its rule was chosen on these recordings.
BirdNET-Analyzer    its own training of a custom classifier, in its own environment (see
                    bench/birdnet_analyzer_child.py); without --birdnet-analyzer it is left out
linear probe        the training of perch-hoplite's notebook of agile modelling, written here with
                    NumPy: Adam, 128 steps, all other windows as weak negatives; all five clips
                    are learned, the notebook keeps one to test
template matching   bench/template_matching.py, spectrograms up to 12 kHz

Background is what is not boxed in the recordings of the examples. Seconds are CPU time of learning
and scanning; embedding the recordings, or making their spectrograms, is not counted.
"""

import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.encoders.weights import weight_folder
from field import find_free, measure, read_clips, write_clips
from field_rules import CLIPS, OTHER, SPECIES, draw_examples, judge
from table import parser, show
from template_matching import HOP_S, make_spectrogram, match_class

Array = np.ndarray
Event = tuple[str, float, float, str]

ENCODER = "birdnet-v2.4"
WEIGHTS = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"
BACKGROUND = "Background"  # a folder that BirdNET-Analyzer learns as "no class"
MIN_CONFIDENCE = 0.25  # BirdNET-Analyzer's default
QUANTILES = np.linspace(0.6, 0.999, 40)
STEPS = 128
BATCH = 128
RATE = 1e-3
WEAK_WEIGHT = 0.05
TEMPLATE_RATE_HZ = 24000
TEMPLATE_SCALE = 0.5


@dataclass
class Windows:
    """Places and vectors of windows."""

    place: pl.DataFrame
    vectors: Array

    def select(self, inside: Array) -> "Windows":
        """Return some of the windows."""
        return Windows(self.place.filter(inside), self.vectors[inside])


@dataclass
class Draw:
    """One draw of examples, and what is scanned with it."""

    examples: dict[str, list[int]]
    boxes: pl.DataFrame
    birds: Windows
    elsewhere: Windows
    clips: Path
    clips_and_background: Path

    @property
    def names(self) -> list[str]:
        """The classes."""
        return list(self.examples)

    @property
    def rows(self) -> list[int]:
        """The rows of the boxes that are examples."""
        return list(chain(*self.examples.values()))

    @property
    def is_scanned(self) -> Array:
        """Whether each window of birds is in a recording without examples."""
        used = self.boxes["recording"][self.rows]
        return ~self.birds.place["recording"].is_in(used.to_list()).to_numpy()


@dataclass
class Way:
    """A way to score windows, and what a person does to use it."""

    score: Callable[[Draw], tuple[Array, Array]]  # scanned windows of birds, elsewhere
    threshold: float | None
    steps: str
    decisions: str


def read_windows(indexes: Sequence[Index]) -> Windows:
    """Return all windows of indexes."""
    recordings = [(index, one) for index in indexes for one in index.recordings]
    blocks = [block for index, one in recordings for block in index.read_recording(one)]
    place = pl.concat(
        [block.spans.frame.select("recording", "start_s", "end_s") for block in blocks]
    )
    matrix = np.concatenate([block.matrix for block in blocks])
    return Windows(place, matrix.astype(np.float32))


def find_events(
    place: pl.DataFrame, scores: Array, threshold: float, names: Sequence[str]
) -> Iterator[Event]:
    """Yield an event for each run of windows whose score reaches the threshold."""
    recording = place["recording"].to_numpy()
    start_s = place["start_s"].to_numpy()
    end_s = place["end_s"].to_numpy()
    _, number = np.unique(recording, return_inverse=True)
    for name, column in zip(names, scores.T, strict=True):
        state = np.where(column >= threshold, number, -1)
        edges = np.flatnonzero(np.diff(state, prepend=-2, append=-2))
        for first, end in pairwise(edges):
            if state[first] >= 0:
                yield str(recording[first]), start_s[first], end_s[end - 1], name


def judge_draw(
    draw: Draw, scores: tuple[Array, Array], threshold: float, hours: float
) -> list[float]:
    """Return recall, precision, and false alarms per hour and class elsewhere."""
    place = draw.birds.place.filter(draw.is_scanned)
    events: dict[str, list[Event]] = {name: [] for name in place["recording"].unique()}
    for event in find_events(place, scores[0], threshold, draw.names):
        events[event[0]].append(event)
    wanted = draw.boxes.filter(pl.col("label").is_in([*draw.names, OTHER]))
    counts = [judge(own, wanted.filter(recording=name)) for name, own in events.items()]
    calls, found, right, wrong = np.sum(counts, axis=0)
    alarms = find_events(draw.elsewhere.place, scores[1], threshold, draw.names)
    return [
        found / calls,
        right / max(1.0, right + wrong),
        len(list(alarms)) / hours / len(draw.names),
    ]


def score_by_birdnet_analyzer(
    draw: Draw, python: Path, background: bool, options: Sequence[str] = ()
) -> tuple[Array, Array]:
    """Train a custom classifier, and return its confidences."""
    vectors = draw.birds.vectors[draw.is_scanned]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "vectors.npy"
        out = Path(folder) / "scores.npz"
        np.save(file, np.concatenate([vectors, draw.elsewhere.vectors]))
        clips = draw.clips_and_background if background else draw.clips
        script = Path(__file__).parent / "birdnet_analyzer_child.py"
        weights = weight_folder(ENCODER) / WEIGHTS
        subprocess.run(
            [python, script, clips, weights, file, out, *options],
            check=True,
            capture_output=True,
        )
        with np.load(out) as found:
            order = [found["labels"].tolist().index(name) for name in draw.names]
            scores = found["scores"][:, order]
    return scores[: len(vectors)], scores[len(vectors) :]


def score_by_probe(
    draw: Draw, in_recordings: bool, scanned_too: bool = True
) -> tuple[Array, Array]:
    """Train a linear layer with weak negatives, and return its logits.

    Its examples are the clips, or the windows of their recordings that touch them; then weak
    negatives may be of these recordings only.
    """
    rng = np.random.default_rng(0)
    scanned = draw.birds.select(draw.is_scanned)
    if in_recordings:
        target = np.zeros((len(draw.birds.vectors), len(draw.names)), bool)
        place = draw.birds.place
        for column, rows in enumerate(draw.examples.values()):
            for name, start_s, end_s, _ in draw.boxes[rows].rows():
                touches = (pl.col("end_s") > start_s) & (pl.col("start_s") < end_s)
                inside = (pl.col("recording") == name) & touches
                target[:, column] |= place.select(inside).to_series().to_numpy()
        is_example = target.any(axis=1)
        vectors = draw.birds.vectors[is_example]
        target = target[is_example]
        is_weak = ~is_example if scanned_too else ~is_example & ~draw.is_scanned
        weak = draw.birds.vectors[is_weak]
    else:
        with TemporaryDirectory() as folder:
            store = Path(folder) / "store"
            model = learn(draw.clips, ENCODER, background="none", store=store).model
        vectors = model.examples.matrix
        label = model.examples.spans.frame["label"].to_numpy()
        target = label[:, None] == np.array(draw.names)
        weak = scanned.vectors
    weights = _train_probe(vectors, target, weak, rng)
    return tuple(
        windows.vectors @ weights[:-1] + weights[-1]
        for windows in (scanned, draw.elsewhere)
    )


def _train_probe(
    vectors: Array, target: Array, weak: Array, rng: np.random.Generator
) -> Array:
    """Return weights and, in the last row, biases that Adam finds."""
    size = (vectors.shape[1], target.shape[1])
    limit = np.sqrt(6 / sum(size))
    weights = np.vstack([rng.uniform(-limit, limit, size), np.zeros(size[1])])
    first = np.zeros_like(weights)
    second = np.zeros_like(weights)
    for step in range(1, STEPS + 1):
        own = np.resize(rng.permutation(len(vectors)), BATCH)
        other = rng.choice(len(weak), BATCH)
        inputs = np.vstack([vectors[own], weak[other]])
        inputs = np.hstack([inputs, np.ones((len(inputs), 1))])
        wanted = np.vstack([target[own], np.zeros((BATCH, size[1]), bool)])
        chance = 1 / (1 + np.exp(-inputs @ weights))
        error = (chance - wanted) * np.where(wanted, 1.0, WEAK_WEIGHT)
        gradient = inputs.T @ error / error.size
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        scale = np.sqrt(second / (1 - 0.999**step)) + 1e-7
        weights -= RATE * first / (1 - 0.9**step) / scale
    return weights


def score_by_templates(
    draw: Draw, root: Path, spectrograms: dict[str, Array]
) -> tuple[Array, Array]:
    """Return the highest correlation with an example of each class in each window."""
    examples = draw.boxes[draw.rows]
    templates: dict[str, list[Array]] = {name: [] for name in draw.names}
    for row, signal in read_clips(root, examples, TEMPLATE_RATE_HZ):
        template = make_spectrogram(signal, TEMPLATE_RATE_HZ, TEMPLATE_SCALE)
        templates[examples["label"][row]].append(template)
    hop_s = HOP_S * TEMPLATE_SCALE

    def score(place: pl.DataFrame) -> Array:
        scores = np.zeros((len(place), len(draw.names)))
        recording = place["recording"].to_numpy()
        for name in np.unique(recording):
            matches = [
                match_class(one, spectrograms[name]) for one in templates.values()
            ]
            for row in np.flatnonzero(recording == name):
                first = int(place["start_s"][int(row)] / hop_s)
                last = int(place["end_s"][int(row)] / hop_s)
                scores[row] = [one[first:last].max() for one in matches]
        return scores

    return score(draw.birds.place.filter(draw.is_scanned)), score(draw.elsewhere.place)


def read_spectrograms(folders: dict[Path, Index]) -> dict[str, Array]:
    """Return the spectrogram of each recording."""
    found = {}
    for root, index in folders.items():
        rows = [(one.path, 0.0, one.duration_s) for one in index.recordings]
        spans = pl.DataFrame(rows, ("recording", "start_s", "end_s"), orient="row")
        for row, signal in read_clips(root, spans, TEMPLATE_RATE_HZ):
            found[rows[row][0]] = make_spectrogram(
                signal, TEMPLATE_RATE_HZ, TEMPLATE_SCALE
            )
    return found


def read_cpu_s() -> float:
    """Return the CPU time of this process and of those that it started and that ended."""
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def make_draws(
    boxes: pl.DataFrame, folders: dict[Path, Index], draws: int, out: Path
) -> Iterator[Draw]:
    """Yield draws of examples, with their clips in files."""
    root, *_ = folders
    birds, *others = folders.values()
    windows = [read_windows([birds]), read_windows(others)]
    for number, examples in enumerate(draw_examples(boxes, draws, "random")):
        draw = Draw(examples, boxes, *windows, out / f"{number}", out / f"{number}b")
        used = boxes["recording"][draw.rows].unique().to_list()
        lengths_s = {
            one.path: one.duration_s for one in birds.recordings if one.path in used
        }
        free = find_free(boxes, lengths_s).with_columns(label=pl.lit(BACKGROUND))
        write_clips(root, boxes[draw.rows], draw.clips)
        write_clips(root, boxes[draw.rows], draw.clips_and_background)
        write_clips(root, free, draw.clips_and_background)
        yield draw


def list_ways(options: Namespace, folders: dict[Path, Index]) -> dict[str, Way]:
    """Return the other ways by name."""
    clips = partial(score_by_probe, in_recordings=False)
    windows = partial(score_by_probe, in_recordings=True)
    elsewhere = partial(windows, scanned_too=False)
    spectrograms = read_spectrograms(folders)
    templates = partial(
        score_by_templates, root=options.data / "birds", spectrograms=spectrograms
    )
    ways = {
        "linear probe, clips": Way(clips, 0.0, "2 notebooks", "logit"),
        "linear probe, windows": Way(windows, 0.0, "2 notebooks", "logit"),
        "linear probe, windows, negatives of their recordings": Way(
            elsewhere, 0.0, "2 notebooks", "logit, negatives"
        ),
        "template matching": Way(templates, None, "a program", "correlation, bands"),
    }
    if options.birdnet_analyzer is None:
        print("BirdNET-Analyzer is left out: --birdnet-analyzer names no Python")
        return ways
    train = partial(score_by_birdnet_analyzer, python=options.birdnet_analyzer)
    plain = partial(train, background=False)
    known = partial(train, background=True)
    longer = partial(known, options=("epochs=500", "learning_rate=0.001"))
    commands = "2 commands"
    return ways | {
        "BirdNET-Analyzer": Way(plain, MIN_CONFIDENCE, commands, "confidence"),
        "BirdNET-Analyzer, background": Way(
            known, MIN_CONFIDENCE, commands, "confidence, background"
        ),
        "BirdNET-Analyzer, background, 500 epochs, rate 0.001": Way(
            longer, MIN_CONFIDENCE, commands, "confidence, background, training"
        ),
    }


def main() -> None:
    """Measure all ways on the same draws."""
    arguments = parser(__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("--folder", type=Path, required=True)
    arguments.add_argument("--birdnet-analyzer", type=Path, metavar="PYTHON")
    arguments.add_argument("--draws", type=int, default=5)
    options = arguments.parse_args()
    options.encoder = ENCODER
    boobook = options.data / "boobook"
    folders = {}
    for root in (options.data / "birds", boobook / "positive", boobook / "negative"):
        out = options.folder / f"{ENCODER}-hop" / root.name
        folders[root] = index_recordings(root, out, ENCODER).index
    indexes = {root.name: index for root, index in folders.items()}
    boxes = pl.read_csv(options.data / "birds" / "annotations.csv")
    others = [*folders.values()][1:]
    hours = sum(one.duration_s for index in others for one in index.recordings) / 3600
    table: list[dict[str, object]] = []

    def add(
        name: str, threshold: str, figures: Array, seconds: float, way: Way
    ) -> None:
        recall, precision, alarms = np.mean(figures, axis=0)
        table.append(
            {
                "tool": name,
                "threshold": threshold,
                "recall": recall,
                "precision": precision,
                "false alarms / h / class elsewhere": alarms,
                "CPU s": seconds,
                "steps": way.steps,
                "to decide": way.decisions,
            }
        )
        print(table[-1], flush=True)

    with TemporaryDirectory() as folder:
        draws = list(make_draws(boxes, folders, options.draws, Path(folder)))
        for background in (False, True):
            start_s = read_cpu_s()
            found = [
                measure(draw.examples, background, boxes, indexes, options)[:3]
                for draw in draws
            ]
            seconds = (read_cpu_s() - start_s) / len(draws)
            name = "callshot, background" if background else "callshot"
            decisions = "background" if background else "nothing"
            way = Way(score_by_probe, None, "2 commands", decisions)
            add(name, "its own", found, seconds, way)
        for name, way in list_ways(options, folders).items():
            start_s = read_cpu_s()
            scores = [way.score(draw) for draw in draws]
            seconds = (read_cpu_s() - start_s) / len(draws)

            def judge_all(threshold: float, scores: list = scores) -> Array:
                both = zip(draws, scores, strict=True)
                return [judge_draw(*one, threshold, hours) for one in both]

            if way.threshold is not None:
                found = judge_all(way.threshold)
                add(name, f"{way.threshold:g}", found, seconds, way)
            pooled = np.concatenate([one.ravel() for one, _ in scores])
            tried = [(float(t), judge_all(t)) for t in np.quantile(pooled, QUANTILES)]
            f1s = [_mean_f1(found) for _, found in tried]
            threshold, found = tried[int(np.argmax(f1s))]
            add(name, f"{threshold:.3g}, chosen afterwards", found, seconds, way)
    title = f"{CLIPS} clips of each of {SPECIES} species, {options.draws} draws"
    show(title, table, options.json)


def _mean_f1(figures: Sequence[Sequence[float]]) -> float:
    """Return the mean F1 of draws."""
    recall, precision, _ = np.transpose(figures)
    both = np.maximum(recall + precision, 1e-9)
    return float(np.mean(2 * recall * precision / both))


if __name__ == "__main__":
    main()
