"""Labelled examples in files → calls: their places, how their audio is cut, and the files."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.input_files import describe_inputs
from callshot.corpus.notes import check_any_segments
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segment_table import read_segments
from callshot.corpus.segments import segment_corpus
from callshot.detection.models.model import SEGMENT, AudioSettings
from callshot.errors import InputError, OptionError
from callshot.files import explain_unreadable, sha256_file
from callshot.records import Reject, Segmentation
from callshot.spans import Row, Spans
from callshot.storage import know_files, to_path

TABLE_SUFFIX = ".parquet"
AUTO = "auto"
NONE = "none"
WINDOWS_S = (0.01, 3600.0)
Inputs = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class LearningOptions:
    """How annotations and audio are read; None means that of the model that is added to.

    annotations, format, annotation_options  as in `callshot segment`
    window_s                    for encoders without a window; by default the median of the calls
    channel                     "first", "mean", or the number of a channel
    source_rate_hz              true rate of time-expanded recordings
    background                  "auto": windows of annotated recordings that no annotation touches;
                                "none"; or a folder of recordings without calls
    site                        recordings in whose background examples are mixed
    """

    annotations: Path | None = None
    format: str = "auto"
    annotation_options: AnnotationOptions | None = None
    window_s: float | None = None
    channel: str | None = None
    source_rate_hz: float | None = None
    background: str = AUTO
    site: Path | None = None

    def __post_init__(self) -> None:
        shortest, longest = WINDOWS_S
        if self.window_s is not None and not shortest <= self.window_s <= longest:
            raise OptionError(
                f"window: expected {shortest:g} to {longest:g} s, got {self.window_s}"
            )

    def on_top_of(self, settings: AudioSettings) -> "LearningOptions":
        """Return the options, with the settings of a model where none is given."""
        if settings.source == SEGMENT:
            return self
        names = ("window_s", "source_rate_hz")
        inherited = {name: getattr(settings, name) for name in names}
        inherited["channel"] = settings.channel_rule
        values = {name: getattr(self, name) for name in inherited}
        changes = {name: value for name, value in values.items() if value is not None}
        return replace(self, **inherited | changes)


@dataclass(frozen=True)
class Calls:
    """Labelled calls, how their audio is cut, and the files that they come from.

    `segmentation` has all annotations, also those that are no examples; None for a table.
    """

    spans: Spans
    settings: AudioSettings
    rejects: Sequence[Reject]
    inputs: Inputs
    segmentation: Segmentation | None = None


def read_calls(examples: Path, options: LearningOptions) -> Calls:
    """Read the examples of recordings with annotations, of a folder per label, or of a table."""
    if examples.suffix == TABLE_SUFFIX:
        return _read_table(examples, options)
    segmentation = SegmentationOptions(
        min_length_s=0.0,
        channel=options.channel or "first",
        source_rate_hz=options.source_rate_hz,
    )
    result = segment_corpus(
        examples,
        options.annotations,
        options=segmentation,
        format=options.format,
        annotation_options=options.annotation_options,
        check=False,
    )
    check_any_segments(result)
    settings = AudioSettings(
        channel_rule=segmentation.channel, source_rate_hz=options.source_rate_hz
    )
    rejects = [*result.rejects, *result.skipped_files]
    paths = {*result.segments.paths, *result.annotated}
    root = know_files(to_path(result.audio), sorted(paths))
    spans = replace(result.segments, root=root, source=str(examples))
    return Calls(spans, settings, rejects, _input_files(result, root), result)


def _input_files(segmentation: Segmentation, root: Path) -> Inputs:
    entries = describe_inputs(segmentation, root=root)
    return tuple(
        sorted((entry["role"], entry["file"], entry["sha256"]) for entry in entries)
    )


def _read_table(path: Path, options: LearningOptions) -> Calls:
    """Read the calls of a table of segments, which are embedded as they were cut."""
    unused_options: dict[str, object] = {
        "--annotations": options.annotations,
        "--window": options.window_s,
        "--channel": options.channel,
        "--source-rate-hz": options.source_rate_hz,
    }
    for name, value in unused_options.items():
        if value is not None:
            raise OptionError(
                f"{name}: {path} is a table of segments, for which this option has no effect; "
                f"remove {name}"
            )
    spans = read_call_table(path)
    with explain_unreadable(path):
        inputs = (("segments", path.name, sha256_file(path)),)
    return Calls(spans, segment_settings(spans), (), inputs)


def read_call_table(path: Path, root: Path | None = None) -> Spans:
    """Read a table of segments; `root` is the folder of the recordings, if it has moved."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    if root is None and "audio" not in table.metadata:
        raise OptionError(f"audio: {path} does not name the folder of the recordings")
    folder = table.root if root is None else root
    return replace(table, root=know_files(folder, table.paths))


def segment_settings(spans: Spans) -> AudioSettings:
    """Return how the segments of a table were cut, which must be the same for all of them."""
    settings = [_cut_settings(row) for row in spans.rows()]
    for row, other in enumerate(settings, start=1):
        if other != settings[0]:
            raise InputError(
                f"{spans.source}: row {row}: expected segments cut as in row 1, got another "
                "rate_hz, collar_s, peak_dbfs, channel_rule or source_rate_hz"
            )
    return settings[0]


def _cut_settings(call: Row) -> AudioSettings:
    return AudioSettings(
        source=SEGMENT,
        window_s=None,
        channel_rule=call["channel_rule"],
        source_rate_hz=call["source_rate_hz"],
        rate_hz=call["rate_hz"],
        collar_s=call["collar_s"],
        peak_dbfs=call["peak_dbfs"],
    )
