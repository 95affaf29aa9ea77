"""The rule by which annotations become segments: how long, with what collar, and how their audio is read."""

from dataclasses import dataclass

from callshot.corpus.audio import check_channel_rule
from callshot.corpus.audio_files import RATES_HZ
from callshot.errors import OptionError

LONGEST_S = 1e6
PEAK_DBFS = -3.0  # the paper's level


@dataclass(frozen=True)
class SegmentationOptions:
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
            if not 0 <= value <= LONGEST_S:
                raise OptionError(f"{name}: 0 s or more, got {value}")
        for name, rate in {"rate": self.rate_hz, "source rate": self.source_rate_hz}.items():
            if rate is not None and not RATES_HZ[0] <= rate <= RATES_HZ[1]:
                raise OptionError(f"{name}: {RATES_HZ[0]:g} Hz to {RATES_HZ[1]:g} Hz, got {rate}")
        if self.level_dbfs is not None and not -200 <= self.level_dbfs <= 0:
            raise OptionError(f"level: −200 to 0 dBFS, got {self.level_dbfs}")
