"""The rule by which annotations become segments: how long, with what collar, and how their audio is read."""

from dataclasses import dataclass
from math import isfinite

from callshot.corpus.audio import check_channel_rule
from callshot.errors import OptionError

PEAK_DBFS = -3.0  # the paper's level


@dataclass(frozen=True)
class Rule:
    """How segments are cut; the defaults are the paper's.

    A segment is at least `minimum_s` long, measured without its collar unless `with_collar`. Its audio is reduced to
    one channel (`first`, `mean` or a number from 1), read at `rate_hz` and peak-normalised to `level_dbfs` (None: left
    as it is). `source_rate_hz` replaces the rate in the recordings' headers: that of time-expanded recordings before
    they were slowed down. All times, the annotations' too, are then in the time of that rate.

    >>> Rule(collar_s=-1)
    Traceback (most recent call last):
    callshot.errors.OptionError: collar: 0 s or more, got -1
    """

    collar_s: float = 0.0
    minimum_s: float = 1.0
    with_collar: bool = False
    channel_rule: str = "mean"
    rate_hz: int = 16000
    level_dbfs: float | None = PEAK_DBFS
    source_rate_hz: float | None = None

    def __post_init__(self) -> None:
        check_channel_rule(self.channel_rule)
        for name, value in {"collar": self.collar_s, "minimum length": self.minimum_s}.items():
            if not (isfinite(value) and value >= 0):
                raise OptionError(f"{name}: 0 s or more, got {value}")
        if not 1 <= self.rate_hz <= 10**7:
            raise OptionError(f"rate: 1 Hz to 10 MHz, got {self.rate_hz}")
        if self.source_rate_hz is not None and not 1 <= self.source_rate_hz <= 10**8:
            raise OptionError(f"source rate: 1 Hz to 100 MHz, got {self.source_rate_hz}")
        if self.level_dbfs is not None and not -200 <= self.level_dbfs <= 0:
            raise OptionError(f"level: −200 to 0 dBFS, got {self.level_dbfs}")
