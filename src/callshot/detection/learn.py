"""Examples and an encoder → a model; or a model and more examples → a larger one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from callshot.corpus.annotations import Hints
from callshot.corpus.input_files import describe_inputs
from callshot.corpus.notes import check_any_segments
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.renaming import Renames, make_hints
from callshot.corpus.segment_table import read_segments
from callshot.corpus.segments import segment_corpus
from callshot.detection.call_windows import default_window_s
from callshot.detection.embed_calls import EmbeddedCalls, check_views, embed_calls
from callshot.detection.model import (
    SEGMENT,
    AudioSettings,
    Example,
    Model,
    Provenance,
    check_fingerprint,
    check_settings,
    make_model,
    merge_models,
)
from callshot.detection.model_file import check_model_path, read_model, write_model
from callshot.detection.recording_checks import CallAudio
from callshot.encoders.embed import EmbedOptions, choose_views
from callshot.encoders.views import Views, find_views, views_fingerprint
from callshot.errors import InputError, OptionError
from callshot.files import explain_unreadable, sha256_file
from callshot.records import (
    Progress,
    Reject,
    Segment,
    Segmentation,
    no_progress,
)

TABLE_SUFFIX = ".parquet"
WINDOWS_S = (0.01, 3600.0)
Inputs = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class LearningOptions:
    """How annotations and audio are read; None means that of the model that is added to.

    annotations, format, hints  as in `callshot segment`
    window_s                    for encoders without a window; by default the median of the calls
    channel                     "first", "mean", or the number of a channel
    source_rate_hz              true rate of time-expanded recordings
    """

    annotations: Path | None = None
    format: str = "auto"
    hints: Hints | None = None
    window_s: float | None = None
    channel: str | None = None
    source_rate_hz: float | None = None

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
        given = {name: getattr(self, name) for name in inherited}
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(self, **inherited | chosen)


@dataclass(frozen=True)
class LearningResult:
    """A model, how many examples are new, what was left out and why, and notes."""

    model: Model
    new: int
    rejects: Sequence[Reject]
    notes: Sequence[str]

    def write(self, path: Path | str) -> None:
        """Write the model, .npz."""
        write_model(self.model, Path(path))


@dataclass(frozen=True)
class _Calls:
    """Labelled calls, how their audio is cut, and the files that they come from."""

    audio: CallAudio
    settings: AudioSettings
    rejects: Sequence[Reject]
    inputs: Inputs


def learn(
    examples: Path | str,
    encoder: str | None = None,
    *,
    annotations: Path | str | None = None,
    add: Path | str | None = None,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    tiers: Sequence[str] = (),
    label: str | None = None,
    rename: Renames | None = None,
    time_unit: str | None = None,
    window_s: float | None = None,
    channel: str | None = None,
    source_rate_hz: float | None = None,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress = no_progress,
    **choices: Any,
) -> LearningResult:
    """Learn a model from labelled examples.

    Parameters
    ----------
    examples : path
        Folder of the recordings, one recording, a folder with one folder of clips per label, or a
        segments.parquet.
    encoder : str, optional
        Name of an encoder; needed unless `add` is given.
    annotations : path, optional
        Annotation file or folder; found beside the recordings by default.
    add : path, optional
        A model to which the examples are added; its encoder and settings are used.
    format, columns, tiers, label, rename, time_unit
        How annotations are read, as in `segment`.
    window_s : float, optional
        Length of a window, for encoders without one of their own; by default the median length of
        the examples.
    channel : str, optional
        "first" (the default), "mean" or the number of a channel.
    source_rate_hz : float, optional
        True rate of time-expanded recordings.
    store, device, threads, progress
        As in `embed`.
    **choices
        Options of the encoder that differ from its defaults.

    Returns
    -------
    LearningResult
        `.model`, `.rejects`, `.notes`; `.write(path)` writes the model.

    Raises
    ------
    InputError
        If no example can be used, or if the model is of another encoder.
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.sin(np.arange(64000) / 9), 16000)
    >>> _ = (folder / "a.txt").write_text("0.5\\t1.0\\trumble\\n2.0\\t2.5\\troar\\n")
    >>> learn(folder, "mfcc", store=folder / "store").model.classes
    ('roar', 'rumble')
    """
    hints = make_hints(
        columns=columns, tiers=tiers, label=label, rename=rename, time_unit=time_unit
    )
    options = LearningOptions(
        None if annotations is None else Path(annotations),
        format,
        hints,
        window_s,
        channel,
        source_rate_hz,
    )
    texts = {name: str(value) for name, value in choices.items()}
    return learn_examples(
        Path(examples),
        encoder,
        options,
        EmbedOptions(texts, store, device, threads),
        add=None if add is None else Path(add),
        progress=progress,
    )


def learn_files(
    examples: Path,
    out: Path,
    encoder: str | None,
    options: LearningOptions,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Learn a model and write it."""
    check_model_path(out)
    result = learn_examples(
        examples, encoder, options, embedding, add=add, progress=progress
    )
    result.write(out)
    return result


def learn_examples(
    examples: Path,
    encoder: str | None,
    options: LearningOptions,
    embedding: EmbedOptions,
    *,
    add: Path | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Learn a model, or add examples to one; see `learn`."""
    earlier = None if add is None else read_model(add)
    asked = find_views(_choose_encoder(encoder, earlier), embedding.choices)
    if earlier is not None:
        options = options.on_top_of(earlier.settings)
    calls = _read_calls(examples, options)
    views = choose_views(asked, calls.audio.segment_audio(calls.audio.calls))
    settings = _complete_settings(calls, views, options)
    fingerprint = plain_fingerprint(views, embedding.device)
    if earlier is not None:
        check_fingerprint(earlier, views.name, fingerprint)
        check_settings(earlier, settings, str(examples))
    embedded = embed_calls(
        calls.audio, views, settings, embedding, refuse_silence=True, progress=progress
    )
    model = make_model(
        _make_examples(embedded),
        embedded.vectors,
        encoder=views.name,
        fingerprint=fingerprint,
        settings=settings,
        provenance=Provenance(views.licence, calls.inputs),
    )
    rejects = [*calls.rejects, *embedded.rejects]
    if earlier is None:
        return LearningResult(model, len(model.examples), rejects, embedded.notes)
    merged = merge_models(earlier, model)
    new = len(merged.examples) - len(earlier.examples)
    return LearningResult(merged, new, rejects, embedded.notes)


def _choose_encoder(name: str | None, earlier: Model | None) -> str:
    if name is not None:
        return name
    if earlier is not None:
        return earlier.encoder
    raise OptionError(
        "encoder: name one, such as --encoder mfcc; see callshot encoders"
    )


def plain_fingerprint(views: Views, device: str) -> dict[str, Any]:
    """Return the fingerprint of an encoder as a file gives it back."""
    fingerprint: dict[str, Any] = json.loads(
        json.dumps(views_fingerprint(views, device))
    )
    return fingerprint


def _read_calls(examples: Path, options: LearningOptions) -> _Calls:
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
        hints=options.hints,
        check=False,
    )
    check_any_segments(result)
    settings = AudioSettings(
        channel_rule=segmentation.channel, source_rate_hz=options.source_rate_hz
    )
    rejects = [*result.rejects, *result.skipped_files]
    audio = CallAudio(result.segments, Path(result.audio), str(examples))
    return _Calls(audio, settings, rejects, _input_files(result))


def _input_files(segmentation: Segmentation) -> Inputs:
    entries = describe_inputs(segmentation)
    return tuple(sorted((one["role"], one["file"], one["sha256"]) for one in entries))


def _read_table(path: Path, options: LearningOptions) -> _Calls:
    """Read the calls of a table of segments, which are embedded as they were cut."""
    given: dict[str, object] = {
        "--annotations": options.annotations,
        "--window": options.window_s,
        "--channel": options.channel,
        "--source-rate-hz": options.source_rate_hz,
    }
    for name, value in given.items():
        if value is not None:
            raise OptionError(
                f"{name}: {path} is a table of segments, which are used as they were cut; "
                "leave the option out"
            )
    audio = read_call_table(path)
    with explain_unreadable(path):
        inputs = (("segments", path.name, sha256_file(path)),)
    return _Calls(audio, segment_settings(audio), (), inputs)


def read_call_table(path: Path, root: Path | None = None) -> CallAudio:
    """Read a table of segments; `root` is the folder of the recordings, if it has moved."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    if root is None and table.audio is None:
        raise OptionError(f"audio: {path} does not name the folder of the recordings")
    folder = Path(table.audio or "") if root is None else root
    return CallAudio(table, folder, str(path))


def segment_settings(audio: CallAudio) -> AudioSettings:
    """Return how the segments of a table were cut, which must be the same for all of them."""
    settings = [_cut_settings(call) for call in audio.calls]
    for row, other in enumerate(settings, start=1):
        if other != settings[0]:
            raise InputError(
                f"{audio.source}: row {row}: expected segments cut as in row 1, got another "
                "rate_hz, collar_s, level_dbfs, channel_rule or source_rate_hz"
            )
    return settings[0]


def _cut_settings(call: Segment) -> AudioSettings:
    return AudioSettings(
        SEGMENT,
        None,
        call.channel_rule,
        call.source_rate_hz,
        call.rate_hz,
        call.collar_s,
        call.level_dbfs,
    )


def _complete_settings(
    calls: _Calls, views: Views, options: LearningOptions
) -> AudioSettings:
    """Return the settings with the length of a window, if an encoder has none of its own."""
    check_views(views)
    if calls.settings.source == SEGMENT:
        return calls.settings
    window_s = options.window_s
    if all(spec.windowing is not None for spec in views.specs):
        if window_s is not None:
            raise OptionError(
                f"window: {views.name} has a window of its own; leave --window out"
            )
        return calls.settings
    if window_s is None:
        window_s = default_window_s(calls.audio.calls)
    return replace(calls.settings, window_s=window_s)


def _make_examples(embedded: EmbeddedCalls) -> list[Example]:
    pairs = zip(embedded.calls, embedded.windows, strict=True)
    return [
        Example(
            call.label, call.recording, call.path, call.start_s, call.end_s, windows
        )
        for call, windows in pairs
    ]
