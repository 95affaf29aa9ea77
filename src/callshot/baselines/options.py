"""Which baselines are trained, and how; checked once."""

from dataclasses import dataclass
from pathlib import Path

from callshot.baselines.logistic import check_c
from callshot.baselines.logistic_per_k import DRAWS
from callshot.baselines.training import require_torch
from callshot.errors import OptionError, check_choice, check_range
from callshot.fewshot.protocol import SPREAD_CHOICES, Protocol
from callshot.records import BASELINE_KINDS

CHOSEN_CELL = "chosen"  # by inner folds
PAPER_CELL = "paper"  # as the paper pairs encoders and cells
CELLS = (CHOSEN_CELL, PAPER_CELL, "elman", "gru", "lstm")
NETWORK_KINDS = {"recurrent", "end-to-end"}


@dataclass(frozen=True)
class BaselineOptions:
    """Which baselines are trained, and how.

    Parameters
    ----------
    train : tuple of str
        Baselines trained on all labels: logistic, recurrent, end-to-end.
    per_k : bool
        Also train logistic regression at every k.
    draws : int
        For `per_k`: the first draws of the spread shared, and the first samples of total.
    spread : str
        For `per_k`: shared, total (with shared, and only if the protocol has total), per-query or
        all. per-query needs a fit per query, draw and k.
    C : float, optional
        Inverse regularisation strength of logistic regression, as in scikit-learn. Chosen on inner
        folds by default; 0.1 at every k.
    cell : str
        The recurrent network: chosen (on inner folds), paper, elman, gru or lstm.
    seeds : int
        How many recurrent networks are averaged in each split.
    init : Path, optional
        Pretrained weights that the end-to-end baseline starts from.
    published : str
        A variant of AERD, as its package names them, that is scored as published.

    Examples
    --------
    >>> BaselineOptions(("logistic",), cell="gpt")
    Traceback (most recent call last):
    callshot.errors.OptionError: cell: expected one of chosen, paper, elman, gru, lstm, got 'gpt'
    """

    train: tuple[str, ...] = ()
    per_k: bool = False
    draws: int = DRAWS
    spread: str = "total"
    C: float | None = None
    cell: str = CHOSEN_CELL
    seeds: int = 3
    init: Path | None = None
    published: str = ""

    def __post_init__(self) -> None:
        for kind in self.train:
            check_choice("train", kind, BASELINE_KINDS)
            if self.train.count(kind) > 1:
                raise OptionError(f"train: {kind} is given twice; remove one")
        check_choice("cell", self.cell, CELLS)
        check_choice("spread", self.spread, tuple(SPREAD_CHOICES))
        for name, number in {"draws": self.draws, "seeds": self.seeds}.items():
            check_range(name, number, 1, 10**6)
        if self.C is not None:
            check_c(self.C)
        if self.init is not None and "end-to-end" not in self.train:
            raise OptionError(
                "init: weights for the end-to-end baseline, which is not trained; "
                "add end-to-end to train, or remove init"
            )

    @property
    def needs_torch(self) -> bool:
        """Whether a neural network is trained."""
        return bool(NETWORK_KINDS.intersection(self.train))

    @property
    def reads_audio(self) -> bool:
        """Whether a baseline reads the audio of segments."""
        return "end-to-end" in self.train or bool(self.published)

    def spreads(self, protocol: Protocol) -> tuple[str, ...]:
        """Return the spreads of logistic regression at every k; total if the protocol has it."""
        spreads = SPREAD_CHOICES[self.spread]
        if "total" in protocol.spreads:
            return spreads
        return tuple(spread for spread in spreads if spread != "total")


def check_trainable(options: BaselineOptions, device: str = "cpu") -> None:
    """Check, before anything is read, that torch is installed and that weight files can be used."""
    if options.needs_torch:
        require_torch(device)
    if options.init is not None:
        from callshot.baselines.pretrained import read_pretrained

        read_pretrained(options.init)
    if options.published:
        from callshot.baselines.aerd_package import load_aerd

        load_aerd(options.published)
