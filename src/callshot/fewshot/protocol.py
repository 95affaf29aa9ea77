"""The options that change the numbers, with the paper's values as defaults, checked once."""

from dataclasses import dataclass

from callshot.errors import OptionError
from callshot.fewshot.centroid import SCORES
from callshot.fewshot.classifiers import find_classifier

SAMPLERS = ("distinct", "replacement")
SPREADS = ("per-query", "shared")


@dataclass(frozen=True)
class Protocol:
    """How supports are drawn, scored and resampled; `docs/explanation.md` says why so.

    `shots` ascend; `whole_pool` adds the row `all`, in which every class gives all it has. `seed` starts every stream.

    >>> Protocol(shots=(1, 5)).spreads
    ('per-query', 'shared')
    >>> Protocol(shots=(0, 5))
    Traceback (most recent call last):
    callshot.errors.OptionError: shots: every k is at least 1, got 0
    """

    shots: tuple[int, ...] = tuple(range(1, 41))
    whole_pool: bool = False
    draws: int = 100
    bootstraps: int = 5000
    shared_draws: int = 1000
    seed: int = 0
    sampler: str = "distinct"
    score: str = "log"
    spreads: tuple[str, ...] = SPREADS
    classifiers: tuple[str, ...] = ("centroid",)

    def __post_init__(self) -> None:
        if isinstance(self.shots, str | int) or not all(isinstance(k, int) for k in self.shots):
            raise OptionError(
                f"shots: wanted whole numbers in a tuple, like (1, 2, 5), got {self.shots!r}"
            )
        if not self.shots and not self.whole_pool:
            raise OptionError("shots: at least one k, or all")
        if any(k < 1 for k in self.shots):
            raise OptionError(f"shots: every k is at least 1, got {min(self.shots)}")
        if list(self.shots) != sorted(set(self.shots)):
            raise OptionError("shots: ascending, each once")
        if self.whole_pool and self.sampler != "distinct":
            raise OptionError(
                "shots: all is the whole pool, which only the sampler distinct can draw"
            )
        for name, low, high in (
            ("draws", 1, 65535),
            ("bootstraps", 1, 10**8),
            ("shared_draws", 1, 10**8),
        ):
            if not low <= getattr(self, name) <= high:
                raise OptionError(
                    f"{name.replace('_', '-')}: {low} to {high}, got {getattr(self, name)}"
                )
        for name, allowed in (("sampler", SAMPLERS), ("score", SCORES)):
            if getattr(self, name) not in allowed:
                raise OptionError(
                    f"{name}: one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        if not self.spreads or not set(self.spreads) <= set(SPREADS):
            raise OptionError(f"spread: {', '.join(SPREADS)} or both, got {self.spreads!r}")
        if (
            isinstance(self.classifiers, str)
            or not self.classifiers
            or len(set(self.classifiers)) < len(self.classifiers)
        ):
            raise OptionError(
                f"classifier: wanted names in a tuple, each once, got {self.classifiers!r}"
            )
        for name in self.classifiers:
            find_classifier(name)

    @property
    def reference(self) -> str:
        """The classifier that others are held against, and that confusion and ties are told of."""
        return "centroid" if "centroid" in self.classifiers else self.classifiers[0]

    def supports(self, spread: str) -> int:
        """Return how many draws of support sets one spread has."""
        return self.draws if spread == "per-query" else self.shared_draws

    def samples(self, spread: str) -> int:
        """Return how many values one spread has at each k."""
        return self.bootstraps if spread == "per-query" else self.shared_draws


def parse_shots(text: str) -> tuple[tuple[int, ...], bool]:
    """Read `1-40`, `1,2,5,10`, `all`, or a mixture; return the shots and whether `all` is among them.

    >>> parse_shots("1-3,10,all")
    ((1, 2, 3, 10), True)
    """
    shots: set[int] = set()
    whole_pool = False
    for part in text.split(","):
        word = part.strip()
        if word == "all":
            whole_pool = True
            continue
        low, _, high = word.partition("-")
        if not low.isdecimal() or (_ and not high.isdecimal()):
            raise OptionError(f"shots: expected like 1-40, 1,2,5,10 or all, got {text!r}")
        first, last = int(low), int(high or low)
        if first < 1 or last < first or last > 10**6:
            raise OptionError(f"shots: every k is at least 1 and ranges ascend, got {word!r}")
        shots.update(range(first, last + 1))
    return tuple(sorted(shots)), whole_pool
