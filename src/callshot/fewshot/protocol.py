"""The options that change the numbers, with the paper's values as defaults, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from callshot.errors import OptionError, check_choice, check_options, check_range
from callshot.fewshot.classifiers import find_classifier
from callshot.records import SPREADS, reference_classifier

# What the option `spread` can be; total is computed with the help of shared.
SPREAD_CHOICES: dict[str, tuple[str, ...]] = {
    "all": SPREADS,
    "total": ("shared", "total"),
    "shared": ("shared",),
    "per-query": ("per-query",),
}
SAMPLERS = ("distinct", "replacement")
SCORES = ("log", "softmax")
MAX_SAMPLES = 10**8
RANGES = {
    "draws": (1, 65535),  # picks are stored in 16 bits
    "bootstraps": (1, MAX_SAMPLES),
    "shared_draws": (1, MAX_SAMPLES),
    "permutations": (0, MAX_SAMPLES),
    "repeat_folds": (1, 1000),
    "seeds": (1, 50),  # their square is the number of samples
    "total_samples": (1, MAX_SAMPLES),
}
MAX_SHOTS = 10**6  # the largest k
MAX_SHOT_COUNT = 10_000


@dataclass(frozen=True)
class Protocol:
    """How supports are drawn, scored and resampled; `docs/explanation.md` says why.

    Parameters
    ----------
    shots : tuple of int
        The k of the sweep, ascending.
    whole_pool : bool
        Whether to add the row `all`, in which every class gives all its exemplars.
    draws : int
        Support sets drawn for each query, in the spread `per-query`.
    bootstraps : int
        Bootstrap samples of the spread `per-query`.
    shared_draws : int
        Support sets of the spread `shared`.
    total_samples : int
        Samples of the spread `total`.
    seed : int
        Starts every random stream: same seed, same numbers.
    sampler : {"distinct", "replacement"}
        Whether the exemplars of a draw differ, or are independent picks.
    score : {"log", "softmax"}
        Log-odds, or the literal softmax, which saturates.
    spreads : tuple of {"per-query", "shared", "total"}
        The spreads to evaluate. `total` needs `shared`.
    classifiers : tuple of str
        The rules to evaluate, by name.
    permutations : int
        Permutations of labels in the test against chance; 0 leaves it out.
    repeat_folds : int
        Partitions of the recordings into folds that are evaluated; 1 is the folds alone.
    seeds : int
        Labelled sets, and samples of recordings, that are crossed with each other and with the
        partitions, to find where the spread of mAP comes from; 1 leaves it out.

    Raises
    ------
    OptionError
        If a value is out of its range.

    Examples
    --------
    >>> Protocol(shots=(1, 5)).spreads
    ('per-query', 'shared', 'total')
    >>> Protocol(shots=(0, 5))
    Traceback (most recent call last):
    callshot.errors.OptionError: shots: expected 1 or more, got 0
    """

    shots: tuple[int, ...] = tuple(range(1, 41))
    whole_pool: bool = False
    draws: int = 100
    bootstraps: int = 5000
    shared_draws: int = 1000
    total_samples: int = 1000
    seed: int = 0
    sampler: str = "distinct"
    score: str = "log"
    spreads: tuple[str, ...] = SPREADS
    classifiers: tuple[str, ...] = ("centroid",)
    permutations: int = 199
    repeat_folds: int = 1
    seeds: int = 1

    def __post_init__(self) -> None:
        shots = self.shots
        is_list = not isinstance(shots, str | int)
        if not is_list or not all(isinstance(k, int) for k in shots):
            raise OptionError(
                f"shots: expected whole numbers in a tuple, like (1, 2, 5), got {shots!r}"
            )
        for k in shots:
            check_range("shots", k, 1)
        is_ascending = list(shots) == sorted(set(shots))
        if not is_ascending or not (shots or self.whole_pool):
            raise OptionError(
                f"shots: expected ascending values of k, each once, or all; got {shots}"
            )
        if self.whole_pool and self.sampler != "distinct":
            raise OptionError(
                "shots: all is the whole pool, which needs the sampler distinct"
            )
        for name, (low, high) in RANGES.items():
            check_range(name, getattr(self, name), low, high)
        check_choice("sampler", self.sampler, SAMPLERS)
        check_choice("score", self.score, SCORES)
        spreads = self.spreads
        for spread in spreads or [""]:
            check_choice("spread", spread, SPREADS)
        if "total" in spreads and "shared" not in spreads:
            raise OptionError(
                "spread: total is computed with shared; give shared, total"
            )
        names = self.classifiers
        if isinstance(names, str) or not names or len(set(names)) < len(names):
            raise OptionError(
                f"classifiers: expected names in a tuple, each once, got {names!r}"
            )
        for name in names:
            find_classifier(name)

    @property
    def distinct(self) -> bool:
        """Whether no exemplar is drawn twice."""
        return self.sampler == "distinct"

    @property
    def reference(self) -> str:
        """The classifier that others are compared with; confusion and ties are its own."""
        return reference_classifier(self.classifiers)

    @property
    def partition_spread(self) -> str:
        """The spread whose means are compared between partitions into folds."""
        return "shared" if "shared" in self.spreads else self.spreads[0]

    def supports(self, spread: str) -> int:
        """Return how many draws of support sets one spread has."""
        return self.draws if spread == "per-query" else self.samples(spread)

    def samples(self, spread: str) -> int:
        """Return how many values one spread has at each k."""
        samples = {"shared": self.shared_draws, "total": self.total_samples}
        return samples.get(spread, self.bootstraps)


def parse_shots(text: str) -> tuple[tuple[int, ...], bool]:
    """Read `1-40`, `1,2,5,10`, `all`, or a mixture; return the shots and whether `all` is there.

    >>> parse_shots("1-3,10,all")
    ((1, 2, 3, 10), True)
    """
    words = [word.strip() for word in text.split(",")]
    shots: set[int] = set()
    for word in words:
        if word == "all":
            continue
        low, dash, high = word.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise OptionError(
                f"shots: expected like 1-40, 1,2,5,10 or all, got {text!r}"
            )
        first = int(low)
        last = int(high or low)
        if not 1 <= first <= last:
            raise OptionError(
                f"shots: expected 1 or more, and ranges that ascend, such as 1-5; got {word!r}"
            )
        if last > MAX_SHOTS or len(shots) + last - first >= MAX_SHOT_COUNT:
            raise OptionError(
                f"shots: expected up to {MAX_SHOT_COUNT:,} values of k, none above "
                f"{MAX_SHOTS:,}, got {word!r}; for the whole pool of each class, use all"
            )
        shots.update(range(first, last + 1))
    return tuple(sorted(shots)), "all" in words


def make_protocol(
    *, shots: str | int | Sequence[int] = "1-40", spread: str = "all", **options: Any
) -> Protocol:
    """Return a protocol from options named as on the command line.

    >>> make_protocol(shots=[1, 5], spread="shared").shots
    (1, 5)
    """
    if isinstance(shots, int):
        shots = [shots]
    text = shots if isinstance(shots, str) else ",".join(str(k) for k in shots)
    numbers, whole_pool = parse_shots(text)
    check_choice("spread", spread, tuple(SPREAD_CHOICES))
    check_options(options, Protocol)
    return Protocol(
        shots=numbers, whole_pool=whole_pool, spreads=SPREAD_CHOICES[spread], **options
    )
