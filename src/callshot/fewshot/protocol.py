"""The options that change the numbers, with the paper's values as defaults, checked once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from callshot.errors import OptionError, check_choice, check_names, check_range
from callshot.fewshot.classifiers import find_classifier
from callshot.options import ProtocolOptions, check_values, document
from callshot.records import SPREADS, reference_classifier

# What the option `spread` can be; total is computed with the help of shared.
SPREAD_CHOICES: dict[str, tuple[str, ...]] = {
    "all": SPREADS,
    "total": ("shared", "total"),
    "shared": ("shared",),
    "per-query": ("per-query",),
}
MAX_SHOTS = 10**6  # the largest k
MAX_SHOT_COUNT = 10_000


@document
@dataclass(frozen=True)
class Protocol(ProtocolOptions):
    """How supports are drawn, scored and resampled; `docs/explanation.md` says why.

    The parameters are the options of `callshot evaluate`. Here `shots` and `spreads` are tuples,
    and `whole_pool` adds the row `all`, in which every class gives all its exemplars. The spread
    `total` needs `shared`.

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

    whole_pool: bool = False

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
        check_values(self)
        spreads = self.spreads
        for spread in spreads or [""]:  # none at all is an error too
            check_choice("spread", spread, SPREADS)
        if "total" in spreads and "shared" not in spreads:
            raise OptionError(
                "spread: total is computed with shared; give shared, total"
            )
        names = self.classifiers
        has_repeats = len(set(names)) < len(names)
        if isinstance(names, str) or not names or has_repeats:
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

    def count_supports(self, spread: str) -> int:
        """Return how many support sets a query meets at each k in one spread."""
        return self.draws if spread == "per-query" else self.samples(spread)

    def samples(self, spread: str) -> int:
        """Return how many values of a metric one spread has at each k."""
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
        last = int(high or low)  # a single number is a range of one
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
    for name, instead in (("whole_pool", 'shots="1-40,all"'), ("spreads", "spread")):
        if name in options:
            raise OptionError(f"{name}: use {instead}")
    # On the command line, the field `spreads` is the option `spread`.
    names = [one.name for one in fields(ProtocolOptions) if one.name != "spreads"]
    check_names(options, [*names, "spread"])
    return Protocol(
        shots=numbers, whole_pool=whole_pool, spreads=SPREAD_CHOICES[spread], **options
    )
