"""Examples and an encoder → a model; or a model and more examples → a larger one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from callshot.corpus.options import Renames, make_annotation_options
from callshot.detection.examples import (
    BackgroundAudio,
    Calls,
    EmbeddedCalls,
    LearningOptions,
    check_unscaled,
    default_window_s,
    embed_background,
    embed_calls,
    find_grid,
    read_background,
    read_calls,
)
from callshot.detection.mix_examples import embed_mixed_examples, read_clips
from callshot.detection.model import (
    SEGMENT,
    AudioSettings,
    Clips,
    Model,
    Provenance,
    check_fingerprint,
    check_model_path,
    check_settings,
    load_model,
    make_model,
    merge_models,
    plain_fingerprint,
    write_model,
)
from callshot.detection.model_summary import describe_few_windows
from callshot.encoders.embed import EmbedOptions, replace_auto_speed
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
)
from callshot.encoders.spec import format_options
from callshot.errors import OptionError
from callshot.records import (
    Progress,
    Reject,
    no_progress,
    scale_progress,
)
from callshot.storage import to_path


@dataclass(frozen=True)
class LearningResult:
    """A model, how many examples are new, what was left out and why, and notes."""

    model: Model
    new: int
    rejects: Sequence[Reject]
    notes: Sequence[str]

    def write(self, path: Path | str) -> None:
        """Write the model, .npz."""
        write_model(self.model, to_path(path))


def learn(
    examples: Path | str,
    encoder: str | None = None,
    *,
    encoder_options: Mapping[str, object] | None = None,
    annotations: Path | str | None = None,
    add: Path | str | None = None,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    tiers: Sequence[str] = (),
    label: str | None = None,
    rename: Renames | None = None,
    time_unit: str | None = None,
    follow_links: bool = False,
    window_s: float | None = None,
    channel: str | None = None,
    source_rate_hz: float | None = None,
    background: Path | str = "auto",
    site: Path | str | None = None,
    store: Path | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Learn a model from labelled examples.

    Parameters
    ----------
    examples : path
        Folder of the recordings, one recording, a folder with one folder of clips per label, or a
        segments.parquet.
    encoder : str, optional
        Name of an encoder; needed unless `add` is given.
    encoder_options : mapping, optional
        Options of the encoder that differ from its defaults, e.g. {"speed": 2}.
    annotations : path, optional
        Annotation file or folder; found beside the recordings by default.
    add : path, optional
        A model to which the examples are added; its encoder and settings are used.
    format, columns, tiers, label, rename, time_unit, follow_links
        How annotations are read, as in `segment`.
    window_s : float, optional
        Length of a window, for encoders without one of their own; by default the median length of
        the examples.
    channel : str, optional
        "first" (the default), "mean" or the number of a channel.
    source_rate_hz : float, optional
        True rate of time-expanded recordings.
    background : "auto", "none" or path
        Windows without calls, from which thresholds are found: those of the annotated recordings
        that no annotation touches, none, or all windows of a folder of recordings without calls.
    site : path, optional
        Recordings of the site to be scanned. Examples, which come from elsewhere, are mixed into
        its background before they are embedded, and its windows are the background by default.
    store, device, threads, progress
        As in `embed`.

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
    annotation_options = make_annotation_options(
        columns=columns,
        tiers=tiers,
        label=label,
        rename=rename,
        time_unit=time_unit,
        follow_links=follow_links,
    )
    options = LearningOptions(
        annotations=None if annotations is None else to_path(annotations),
        format=format,
        annotation_options=annotation_options,
        window_s=window_s,
        channel=channel,
        source_rate_hz=source_rate_hz,
        background=str(background),
        site=None if site is None else to_path(site),
    )
    texts = format_options(encoder_options)
    return learn_examples(
        to_path(examples),
        encoder,
        options,
        EmbedOptions(texts, store, device, threads),
        add=None if add is None else to_path(add),
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
    examples = to_path(examples)
    out = to_path(out)
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
    earlier = None if add is None else load_model(add)
    requested_encoder = find_joined_encoder(
        _choose_encoder(encoder, earlier), embedding.encoder_options
    )
    if earlier is not None:
        options = options.on_top_of(earlier.settings)
    calls = read_calls(examples, options)
    joined_encoder = replace_auto_speed(requested_encoder, calls.spans)
    settings = _complete_settings(calls, joined_encoder, options)
    fingerprint = plain_fingerprint(joined_encoder, embedding.device)
    if earlier is not None:
        check_fingerprint(earlier, joined_encoder.name, fingerprint)
        check_settings(earlier, settings, str(examples))
    audio = read_background(calls, joined_encoder, settings, options)
    share = _share_of_calls(calls, audio)
    embedded = embed_calls(
        calls.spans,
        joined_encoder,
        settings,
        embedding,
        refuse_silence=True,
        progress=scale_progress(progress, share),
    )
    background = None
    if audio is not None:
        rest = scale_progress(progress, 1 - share)
        background = embed_background(audio, joined_encoder, settings, embedding, rest)
    clips = _read_clips(embedded, joined_encoder, settings)
    vectors = embedded.vectors
    if options.site is not None:
        vectors = embed_mixed_examples(
            embedded.calls, clips, joined_encoder, settings, options.site, embedding
        )
    model = make_model(
        embedded.calls,
        vectors,
        encoder=joined_encoder.name,
        fingerprint=fingerprint,
        settings=settings,
        provenance=Provenance(joined_encoder.licence, calls.inputs),
        background=background,
        clips=clips,
    )
    return _make_result(model, earlier, calls, embedded)


def _share_of_calls(calls: Calls, background: BackgroundAudio | None) -> float:
    """Return how much of the embedding is that of the calls."""
    count = len(calls.spans)
    if background is None:
        return 1.0
    return count / (count + background.windows)


def _make_result(
    model: Model, earlier: Model | None, calls: Calls, embedded_calls: EmbeddedCalls
) -> LearningResult:
    """Return a model, merged with an earlier one, and what became of the examples."""
    new = len(model.examples)
    if earlier is not None:
        model = merge_models(earlier, model)
        new = len(model.examples) - len(earlier.examples)
    rejects = [*calls.rejects, *embedded_calls.rejects]
    notes = [*embedded_calls.notes, *_describe_background(model)]
    if calls.segmentation is not None:
        notes = [*calls.segmentation.notes, *notes]
    return LearningResult(model, new, rejects, notes)


def _read_clips(
    embedded_calls: EmbeddedCalls,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
) -> Clips | None:
    """Return the audio of examples; None for models that cannot be used in a scan."""
    if settings.source == SEGMENT or len(joined_encoder.specs) > 1:
        return None
    grid = find_grid(joined_encoder.specs[0], settings)
    return read_clips(embedded_calls.calls, grid, settings)


def _describe_background(model: Model) -> list[str]:
    """Return a note if thresholds cannot come from background, or rest on little of it."""
    background = model.background
    if background is not None and len(background.vectors) > 0:
        return list(describe_few_windows(model))
    if model.settings.source == SEGMENT:
        return []
    return [
        "no windows without calls: scan mixes the examples into background of what it scans, and "
        "takes thresholds from there; --background names recordings without calls"
    ]


def _choose_encoder(name: str | None, earlier: Model | None) -> str:
    if name is not None:
        return name
    if earlier is not None:
        return earlier.encoder
    raise OptionError(
        "encoder: name one, such as --encoder mfcc; see callshot encoders"
    )


def _complete_settings(
    calls: Calls, joined_encoder: JoinedEncoder, options: LearningOptions
) -> AudioSettings:
    """Return the settings with the length of a window, if an encoder has none of its own."""
    check_unscaled(joined_encoder)
    if calls.settings.source == SEGMENT:
        return calls.settings
    window_s = options.window_s
    if all(spec.windowing is not None for spec in joined_encoder.specs):
        if window_s is not None:
            raise OptionError(
                f"window: {joined_encoder.name} has a fixed window; remove --window"
            )
        return calls.settings
    if window_s is None:
        window_s = default_window_s(calls.spans)
    return replace(calls.settings, window_s=window_s)
