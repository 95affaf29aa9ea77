"""Options of segmentation, and the checks of values that people choose."""

import re
from dataclasses import dataclass

from callshot.errors import OptionError, check_range

Limits = tuple[float, float]

RATES_HZ: Limits = (10.0, 1e7)
PEAKS_DBFS: Limits = (-200.0, 0.0)
DURATIONS_S: Limits = (0.0, 1e6)
PAPER_PEAK_DBFS = -3.0
PAPER_MINIMUM_S = 1.0
CHANNEL_RULE = re.compile("first|mean|0{0,8}[1-9][0-9]*")


@dataclass(frozen=True)
class SegmentationOptions:
    """How segments are cut from recordings; the defaults are the paper's but for the minimum.

    Calls of any length are segments: the paper's minimum of 1 s would drop most calls of many
    birds. Known corpora have it.

    Parameters
    ----------
    collar_s
        Audio added before and after each call.
    min_length_s
        Shorter calls do not become segments; 0 keeps all.
    with_collar
        Measure the length of a call with its collar.
    channel
        `first`, `mean`, or the number of a channel from 1.
    rate_hz
        Sample rate of the segments.
    peak_dbfs
        Peak level of each segment; None leaves the level as it is.
    source_rate_hz
        True rate of time-expanded recordings, instead of the one in their headers. All times,
        also those of the annotations, are then true times.

    Examples
    --------
    >>> SegmentationOptions(collar_s=-1)
    Traceback (most recent call last):
    callshot.errors.OptionError: collar_s: expected 0 to 1000000 s, got -1
    """

    collar_s: float = 0.0
    min_length_s: float = 0.0
    with_collar: bool = False
    channel: str = "mean"
    rate_hz: int = 16000
    peak_dbfs: float | None = PAPER_PEAK_DBFS
    source_rate_hz: float | None = None

    def __post_init__(self) -> None:
        check_channel_rule(self.channel)
        check_range("collar_s", self.collar_s, *DURATIONS_S, "s")
        check_range("min_length_s", self.min_length_s, *DURATIONS_S, "s")
        check_range("rate_hz", self.rate_hz, *RATES_HZ, "Hz")
        if self.source_rate_hz is not None:
            check_range("source_rate_hz", self.source_rate_hz, *RATES_HZ, "Hz")
        if self.peak_dbfs is not None:
            check_range("peak_dbfs", self.peak_dbfs, *PEAKS_DBFS, "dBFS")


def check_channel_rule(rule: str) -> None:
    """Raise OptionError unless a rule is "first", "mean" or the number of a channel from 1.

    >>> check_channel_rule("2")
    """
    if CHANNEL_RULE.fullmatch(rule) is None:
        raise OptionError(
            f'channel: expected "first", "mean" or the number of a channel, got {rule!r}'
        )
