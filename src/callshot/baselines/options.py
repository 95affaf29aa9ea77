"""Which baselines are trained, and how; checked once."""

from dataclasses import dataclass

from callshot.baselines.logistic import check_c
from callshot.baselines.training import require_torch
from callshot.errors import OptionError, check_choice
from callshot.fewshot.protocol import SPREAD_CHOICES, Protocol
from callshot.options import TrainingOptions, check_values, document
from callshot.records import BASELINE_KINDS

CHOSEN_CELL = "chosen"  # by inner folds
PAPER_CELL = "paper"  # as the paper pairs encoders and cells
NETWORK_KINDS = {"recurrent", "end-to-end"}


@document
@dataclass(frozen=True)
class BaselineOptions(TrainingOptions):
    """Which baselines are trained, and how: the options of `callshot baselines`.

    Examples
    --------
    >>> BaselineOptions(("logistic",), cell="gpt")
    Traceback (most recent call last):
    callshot.errors.OptionError: cell: expected one of chosen, paper, elman, gru, lstm, got 'gpt'
    """

    def __post_init__(self) -> None:
        for kind in self.train:
            check_choice("train", kind, BASELINE_KINDS)
            if self.train.count(kind) > 1:
                raise OptionError(f"train: {kind} is given twice; remove one")
        check_values(self)
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
        from callshot.baselines.transformer import read_pretrained

        read_pretrained(options.init)
    if options.published:
        from callshot.baselines.aerd_package import load_aerd

        load_aerd(options.published)
