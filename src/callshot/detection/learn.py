"""Examples and an encoder → a model; or a model and more examples → a larger one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.options import (
    Renames,
    SegmentationOptions,
    make_annotation_options,
)
from callshot.corpus.recordings import find_recordings, probe_recordings
from callshot.corpus.segment_table import describe_inputs, read_segments
from callshot.corpus.segments import check_any_segments, segment_corpus
from callshot.detection.background import (
    ANNOTATED,
    UNLABELLED,
    WITHOUT_CALLS,
    Background,
    BackgroundRecording,
    Span,
    find_kept,
    make_windows,
    select_windows,
)
from callshot.detection.band import (
    describe_choice,
    find_band,
    is_better,
    measure_overlap,
)
from callshot.detection.examples import (
    default_window_s,
    embed_calls,
    find_grid,
    mix_examples,
    read_clips,
)
from callshot.detection.index.clock import find_place
from callshot.detection.index.import_index import pool_windows
from callshot.detection.index.index_files import (
    Index,
    IndexedRecording,
    is_index,
    open_index,
)
from callshot.detection.index.windows import WindowGrid
from callshot.detection.model import (
    RECORDING,
    SEGMENT,
    AudioSettings,
    Model,
    check_fingerprint,
    check_has_encoder,
    check_settings,
    describe_locations,
    load_model,
    make_model,
    merge_models,
    write_model,
)
from callshot.detection.sentences import say
from callshot.encoders.embed import EmbedOptions, embed_rows, replace_auto_speed
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    find_joined_encoder,
    joined_fingerprint,
)
from callshot.encoders.spec import (
    RECOMMENDED,
    EncoderSpec,
    check_no_auto,
    format_options,
    read_at_speed,
)
from callshot.errors import InputError, OptionError, check_range
from callshot.files import explain_unreadable, sha256_file, sha256_text
from callshot.records import (
    Progress,
    Recording,
    Reject,
    Segmentation,
    no_progress,
    scale_progress,
)
from callshot.spans import Spans
from callshot.storage import know_files, to_path
from callshot.vectors import Vectors, concat_vectors

TABLE_SUFFIX = ".parquet"
AUTO = "auto"
NONE = "none"
NO_BACKGROUND = "no windows without calls: scan looks for background in what it scans"
WINDOWS_S = (0.01, 3600.0)


@dataclass(frozen=True)
class LearningOptions:
    """How annotations and audio are read; None means as in the model that is added to.

    unknown_s  with background "auto": the only recordings that have background, and their parts
               that may have calls beside the annotations

    The others are those of `learn`.
    """

    annotations: Path | str | None = None
    format: str = "auto"
    annotation_options: AnnotationOptions | None = None
    window_s: float | None = None
    channel: str | None = None
    source_rate_hz: float | None = None
    background: str = AUTO
    site: Path | str | None = None
    unknown_s: Mapping[str, Sequence[Span]] | None = None

    def __post_init__(self) -> None:
        if self.window_s is not None:
            check_range("window", self.window_s, *WINDOWS_S, "s")

    @property
    def about_audio(self) -> dict[str, object]:
        """The options about audio, by their names on the command line."""
        return {
            "--window": self.window_s,
            "--channel": self.channel,
            "--source-rate-hz": self.source_rate_hz,
        }

    def on_top_of(self, settings: AudioSettings) -> "LearningOptions":
        """Return the options, with the settings of a model where none is given."""
        if settings.source == SEGMENT:
            return self
        return replace(
            self,
            window_s=self.window_s or settings.window_s,
            source_rate_hz=(
                settings.source_rate_hz
                if self.source_rate_hz is None
                else self.source_rate_hz
            ),
            channel=self.channel or settings.channel_rule,
        )


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
        Folder of the recordings, one recording, a folder with one folder of clips per label, a
        segments.parquet, or an index that `import_index` made.
    encoder : str, optional
        Name of an encoder; needed unless `add` is given.
    encoder_options : mapping, optional
        Options of the encoder that differ from its defaults, e.g. {"speed": 2}. The `band` of a
        new model is "auto" by default: the boxes, where annotations have frequencies and
        it is better than all frequencies; None for all.
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
        that no annotation touches, none, or all windows of a folder of recordings without calls
        (of another index, if `examples` is one).
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
    options = LearningOptions(
        annotations=annotations,
        format=format,
        annotation_options=make_annotation_options(
            columns=columns,
            tiers=tiers,
            label=label,
            rename=rename,
            time_unit=time_unit,
            follow_links=follow_links,
        ),
        window_s=window_s,
        channel=channel,
        source_rate_hz=source_rate_hz,
        background=str(background),
        site=site,
    )
    embedding = EmbedOptions(format_options(encoder_options), store, device, threads)
    return learn_examples(
        examples, encoder, options, embedding, add=add, progress=progress
    )


def learn_examples(
    examples: Path | str,
    encoder: str | None,
    options: LearningOptions,
    embedding: EmbedOptions,
    *,
    add: Path | str | None = None,
    progress: Progress = no_progress,
) -> LearningResult:
    """Learn a model, or add examples to one; see `learn`."""
    earlier = None if add is None else load_model(add)
    if is_index(to_path(examples)):
        result = learn_index(to_path(examples), encoder, options)
        return result if earlier is None else add_to_model(earlier, result)
    encoder_options = dict(embedding.encoder_options or {})
    if earlier is None:
        # By default the band of a new model is chosen, where annotations have frequencies.
        encoder_options = {"band": AUTO, **encoder_options}
    else:
        check_has_encoder(earlier)
        encoder = encoder or earlier.encoder
        options = options.on_top_of(earlier.settings)
    if encoder is None:
        raise OptionError(f"encoder: name one: {RECOMMENDED}; see callshot encoders")
    requested_encoder = find_joined_encoder(encoder, encoder_options)
    calls = read_calls(to_path(examples), options)
    # A scan searches windows at one speed.
    can_join = calls.settings.source != RECORDING
    encoder_at_speed = replace_auto_speed(
        requested_encoder, calls.spans, can_join=can_join
    )
    if earlier is not None:
        for spec in encoder_at_speed.specs:
            check_no_auto(spec)
    unfiltered_encoder = encoder_at_speed.at_band(band=None)
    settings = _choose_window(calls, unfiltered_encoder, options)
    calls = replace(calls, settings=settings)
    fingerprint = joined_fingerprint(unfiltered_encoder, embedding.device)
    if earlier is not None:
        check_fingerprint(earlier, unfiltered_encoder.name, fingerprint)
        check_settings(earlier, settings, str(examples))

    embedded = _embed_in_better_band(
        calls, options, embedding, encoder_at_speed, progress
    )
    joined_encoder = embedded.joined_encoder
    vectors = embedded.vectors
    clip_rate_hz = None
    if can_be_scanned(joined_encoder, settings):
        spec = joined_encoder.specs[0]
        vectors, clip_rate_hz = _add_clips(vectors, spec, settings)
        if options.site is not None:
            vectors = _mix_into_site(vectors, options.site, spec, settings, embedding)
    elif options.site is not None:
        raise OptionError(
            "site: examples of a segments.parquet or of joined encoders cannot be mixed into "
            "background; remove --site"
        )
    model = make_model(
        vectors,
        encoder=joined_encoder.name,
        fingerprint=joined_fingerprint(joined_encoder, embedding.device),
        settings=settings,
        licence=joined_encoder.licence,
        inputs=calls.inputs,
        background=embedded.background,
        clip_rate_hz=clip_rate_hz,
    )
    notes = [] if calls.segmentation is None else list(calls.segmentation.notes)
    notes += embedded.notes
    rejects = [*calls.rejects, *embedded.rejects]
    result = LearningResult(model, len(model.examples), rejects, notes)
    if earlier is not None:
        result = add_to_model(earlier, result)
    if settings.source == RECORDING:
        advice = f"{NO_BACKGROUND}; --background names recordings without calls"
        doubts = _describe_background(result.model.background, advice)
        result = replace(result, notes=[*notes, *doubts])
    return result


def _add_clips(
    examples: Vectors, spec: EncoderSpec, settings: AudioSettings
) -> tuple[Vectors, int]:
    """Return examples with their audio in the column `clip`, and the rate of that in Hz."""
    grid = find_grid(spec, settings)
    spans = read_clips(examples.spans, spec, grid, settings)
    return replace(examples, spans=spans), grid.rate_hz


def _mix_into_site(
    examples: Vectors,
    site: Path | str,
    spec: EncoderSpec,
    settings: AudioSettings,
    embedding: EmbedOptions,
) -> Vectors:
    """Return examples, all of which must have their audio, embedded in background of a site."""
    lost = examples.spans.frame["clip"].is_null().arg_true().to_numpy()
    if len(lost) > 0:
        [location, *_] = describe_locations(examples.spans.take(lost))
        raise InputError(f"{location}: could not be read again")
    library = find_recordings(to_path(site))
    files = [(library.root, path) for path in library.paths]
    return mix_examples(examples, files, spec, settings, embedding)


def add_to_model(earlier: Model, result: LearningResult) -> LearningResult:
    """Return a result whose model has also the examples of an earlier one; count what is new."""
    model = merge_models(earlier, result.model)
    new = len(model.examples) - len(earlier.examples)
    return replace(result, model=model, new=new)


def learn_index(
    folder: Path, encoder: str | None, options: LearningOptions
) -> LearningResult:
    """Learn a model from annotated spans of an index of another tool, without audio.

    The vector of an example is the mean of its windows (`choose_windows`).
    """
    index = open_index(folder)
    if not index.settings.is_imported:
        raise InputError(
            f"{folder}: an index of recordings; examples are learned from the recordings, so give "
            "their folder"
        )
    unused = {"--site": options.site} | options.about_audio
    _refuse_options(unused, f"{folder} has no audio")
    name = index.settings.name
    if encoder not in (None, name):
        raise OptionError(f"encoder: {folder} has vectors of {name}; remove --encoder")
    if options.annotations is None:
        raise OptionError(f"annotations: name those of {folder} (--annotations FILE)")
    # Lengths to a millisecond are enough for annotations.
    headers = {
        recording.path: Recording(
            path=recording.path,
            frames=round(recording.duration_s * 1000),
            rate_hz=1000.0,
            channels=1,
            kind="",
        )
        for recording in index.recordings
    }
    segmentation = segment_corpus(
        folder,
        options.annotations,
        options=SegmentationOptions(min_length_s=0.0),
        format=options.format,
        annotation_options=options.annotation_options,
        known=headers,
        check=False,
    )
    check_any_segments(segmentation)
    annotated = [
        recording
        for recording in index.recordings
        if recording.path in segmentation.annotated
    ]
    vectors, unpooled = _pool_examples(index, annotated, segmentation.segments)
    rejects = [*segmentation.rejects, *segmentation.skipped_files, *unpooled]
    calls = segmentation.calls
    background = _choose_index_background(index, annotated, calls, options)
    files = {to_path(name).absolute() for name in calls["annotation_file"]}
    inputs = [("annotations", file.as_posix(), sha256_file(file)) for file in files]
    model = make_model(
        vectors,
        encoder=name,
        fingerprint=index.settings.fingerprint,
        settings=AudioSettings(window_s=index.settings.window_s),
        licence="not known: vectors of another tool",
        inputs=tuple(sorted(inputs)),
        background=background,
    )
    notes = [*segmentation.notes, *_describe_background(background, NO_BACKGROUND)]
    return LearningResult(model, len(model.examples), rejects, notes)


def _choose_index_background(
    index: Index,
    annotated: Sequence[IndexedRecording],
    calls: Spans,
    options: LearningOptions,
) -> Background | None:
    """Return the background that options ask for: of annotated recordings, or of another index."""
    if options.background == NONE:
        return None
    if options.background == AUTO:
        return read_index_background(index, annotated, calls, ANNOTATED)
    quiet = open_index(options.background)
    if quiet.settings != index.settings:
        raise InputError(
            f"background: {quiet.folder}: expected an index of {index.settings.name} with the same "
            f"windows as {index.folder}, got one of {quiet.settings.name}"
        )
    no_calls = calls.take([])
    return read_index_background(quiet, quiet.recordings, no_calls, WITHOUT_CALLS)


def _describe_background(
    background: Background | None, no_background: str
) -> list[str]:
    """Return what is doubtful about the background; the text `no_background` if there is none."""
    if background is None or len(background.vectors) == 0:
        return [no_background]
    return say("doubts_of_background", background)


def _pool_examples(
    index: Index, recordings: Sequence[IndexedRecording], segments: Spans
) -> tuple[Vectors, list[Reject]]:
    """Return the mean vector of the windows of each segment; segments without any are rejects.

    The column `windows` of the result is how many windows each has.
    """
    windows = {recording.path: index.read_rows(recording) for recording in recordings}
    matrix = []
    counts = []
    kept = []
    rejects = []
    for row, call in enumerate(segments.rows()):
        path = call["path"]
        try:
            vector, count = pool_windows(windows[path], call["start_s"], call["end_s"])
        except InputError as error:
            rejects.append(Reject(path, row + 1, str(error)))
            continue
        matrix.append(vector)
        counts.append(count)
        kept.append(row)
    if not kept:
        raise InputError(
            f"{index.folder}: no example has windows (the first: {rejects[-1].reason})"
        )
    spans = segments.take(kept).with_columns(windows=counts)
    return Vectors(spans, np.array(matrix), index.settings.name), rejects


def read_index_background(
    index: Index, recordings: Sequence[IndexedRecording], calls: Spans, origin: str
) -> Background:
    """Return the windows of some recordings of an index that no call touches.

    `calls` are calls of any recordings; `origin` is that of a BackgroundRecording.
    """
    descriptions = []
    windows = []
    window_s = index.settings.window_s
    for recording in recordings:
        # The names of its files of windows contain checksums: they identify the recording.
        sha256 = sha256_text("\n".join(recording.spans))
        own_calls = calls.frame.filter(path=recording.path)
        times_s = own_calls.select("start_s", "end_s").iter_rows()
        place = find_place(recording.path)
        description = BackgroundRecording(
            sha256=sha256,
            windows=recording.windows,
            calls_s=tuple(sorted(set(times_s))),
            origin=origin,
            place=place,
        )
        descriptions.append(description)
        rows = index.read_rows(recording)
        names = [sha256] * len(rows)
        windows.append(make_windows(names, rows["start_s"], window_s, rows["vector"]))
    # Drops the windows that a call touches.
    return select_windows(
        sorted(descriptions), concat_vectors(windows), window_s, index.settings.hop_s
    )


@dataclass(frozen=True)
class Calls:
    """Labelled calls, how their audio is cut, and the files that they come from.

    inputs        role, file and sha256 of each file
    segmentation  all annotations, also of calls that are no examples; None for a table
    """

    spans: Spans
    settings: AudioSettings
    rejects: Sequence[Reject]
    inputs: tuple[tuple[str, str, str], ...]
    segmentation: Segmentation | None = None


@dataclass(frozen=True)
class EmbeddedExamples:
    """Vectors of examples and of windows without calls, examples without a vector, and notes."""

    joined_encoder: JoinedEncoder
    vectors: Vectors
    background: Background | None
    rejects: Sequence[Reject]
    notes: Sequence[str]


def can_be_scanned(joined_encoder: JoinedEncoder, settings: AudioSettings) -> bool:
    """Return whether a model can scan: not with segments as they were cut, or joined encoders."""
    return settings.source == RECORDING and len(joined_encoder.specs) == 1


def embed_examples(
    calls: Calls,
    options: LearningOptions,
    embedding: EmbedOptions,
    joined_encoder: JoinedEncoder,
    progress: Progress,
) -> EmbeddedExamples:
    """Embed calls, and the windows without calls that options ask for."""
    recordings: list[BackgroundRecording] = []
    background = None
    windows = Spans.from_rows([])
    spec = joined_encoder.specs[0]
    settings = calls.settings
    if can_be_scanned(joined_encoder, settings):  # background has no use otherwise
        recordings, windows = find_background(calls, spec, options)
    share_of_calls = len(calls.spans) / (len(calls.spans) + len(windows))
    vectors, rejects, notes = embed_calls(
        calls.spans,
        joined_encoder,
        settings,
        embedding,
        refuse_silence=True,
        progress=scale_progress(progress, share_of_calls),
    )
    if recordings:
        # Windows that cannot be read are left out: an example from there is a reject already.
        embedded_rows, matrix, _ = embed_rows(
            windows,
            read_at_speed(spec),  # as windows are cut
            embedding,
            progress=scale_progress(progress, 1 - share_of_calls),
        )
        grid = find_grid(spec, settings)
        checksums, starts_s = windows.frame[embedded_rows]["sha256", "window_start_s"]
        embedded = make_windows(
            checksums.to_list(), starts_s.to_numpy(), grid.window_s, matrix
        )
        background = select_windows(
            sorted(recordings), embedded, grid.window_s, grid.hop_s
        )
    return EmbeddedExamples(joined_encoder, vectors, background, rejects, notes)


def _embed_in_better_band(
    calls: Calls,
    options: LearningOptions,
    embedding: EmbedOptions,
    joined_encoder: JoinedEncoder,
    progress: Progress,
) -> EmbeddedExamples:
    """Embed calls and background; with band=auto, in the band of the boxes if that is better.

    Both are then embedded twice, to compare. The encoder of the result has the chosen band, or all
    frequencies.
    """
    embed = partial(embed_examples, calls, options, embedding)
    unfiltered_encoder = joined_encoder.at_band(band=None)
    has_auto_band = joined_encoder != unfiltered_encoder
    band = None
    if has_auto_band and can_be_scanned(joined_encoder, calls.settings):
        spec = unfiltered_encoder.specs[0]
        band = find_band(calls.spans, spec, calls.settings.source_rate_hz)
    if band is not None:
        half_progress = scale_progress(progress, 0.5)
        unfiltered = embed(unfiltered_encoder, half_progress)
        in_band = embed(joined_encoder.at_band(band), half_progress)
        overlap = measure_overlap(unfiltered.vectors, unfiltered.background)
        overlap_in_band = measure_overlap(in_band.vectors, in_band.background)
        better = in_band if is_better(overlap, overlap_in_band) else unfiltered
        note = describe_choice(band, overlap, overlap_in_band)
        return replace(better, notes=[*better.notes, note])
    unfiltered = embed(unfiltered_encoder, progress)
    is_auto_given = (embedding.encoder_options or {}).get("band") == AUTO
    if not is_auto_given:  # the default, which needs no note
        return unfiltered
    note = (
        "band=auto needs one encoder, and recordings whose annotations all have a low and a "
        "high frequency; all frequencies are used"
    )
    return replace(unfiltered, notes=[*unfiltered.notes, note])


def _refuse_options(values: Mapping[str, object], reason: str) -> None:
    """Raise OptionError if an option is given, for a reason; `values` are by name."""
    for name, value in values.items():
        if value is not None:
            raise OptionError(f"{name}: {reason}; remove {name}")


def read_calls(examples: Path, options: LearningOptions) -> Calls:
    """Read the examples of recordings with annotations, of a folder per label, or of a table."""
    if examples.suffix == TABLE_SUFFIX:  # whose segments are embedded as they were cut
        unused = {"--annotations": options.annotations} | options.about_audio
        reason = (
            f"{examples} is a table of segments, for which this option has no effect"
        )
        _refuse_options(unused, reason)
        table = read_call_table(examples)
        with explain_unreadable(examples):
            origin = ("segments", examples.name, sha256_file(examples))
        settings = segment_settings(table)
        return Calls(spans=table, settings=settings, rejects=(), inputs=(origin,))
    cutting = SegmentationOptions(
        min_length_s=0.0,
        channel=options.channel or "first",
        source_rate_hz=options.source_rate_hz,
    )
    segmentation = segment_corpus(
        examples,
        options.annotations,
        options=cutting,
        format=options.format,
        annotation_options=options.annotation_options,
        check=False,
    )
    check_any_segments(segmentation)
    settings = AudioSettings(
        channel_rule=cutting.channel, source_rate_hz=options.source_rate_hz
    )
    rejects = [*segmentation.rejects, *segmentation.skipped_files]
    paths = {*segmentation.segments.paths, *segmentation.annotated}
    # In S3, sizes and versions of all files are asked for at once.
    root = know_files(to_path(segmentation.audio), sorted(paths))
    spans = replace(segmentation.segments, root=root, source=str(examples))
    files = describe_inputs(segmentation, root=root)
    inputs = sorted((file["role"], file["file"], file["sha256"]) for file in files)
    return Calls(spans, settings, rejects, tuple(inputs), segmentation)


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
    names = ("rate_hz", "collar_s", "peak_dbfs", "channel_rule", "source_rate_hz")
    first = next(spans.rows())
    for number, row in enumerate(spans.rows(), start=1):
        for name in names:
            if row[name] != first[name]:
                raise InputError(
                    f"{spans.source}: row {number}: expected segments cut as in row 1, got another "
                    f"{name}"
                )
    return AudioSettings(source=SEGMENT, **{name: first[name] for name in names})


def _choose_window(
    calls: Calls, joined_encoder: JoinedEncoder, options: LearningOptions
) -> AudioSettings:
    """Return the settings of calls in recordings with a window, unless the encoder has its own."""
    settings = calls.settings
    if settings.source != RECORDING:
        return settings
    if all(spec.windowing is not None for spec in joined_encoder.specs):
        if options.window_s is not None:
            raise OptionError(
                f"window: {joined_encoder.name} has a fixed window; remove --window"
            )
        return settings
    window_s = options.window_s or default_window_s(calls.spans)
    return replace(settings, window_s=window_s)


@dataclass(frozen=True)
class _BackgroundSource:
    """Recordings in whose windows background is looked for.

    origin     that of a BackgroundRecording
    calls_s    starts and ends of what may be a call, by the path of the recording
    checksums  those that are known already, by the path of the recording
    """

    origin: str
    root: Path
    recordings: Sequence[Recording]
    calls_s: Mapping[str, Collection[Span]] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)


def _choose_background_source(
    calls: Calls, options: LearningOptions
) -> _BackgroundSource | None:
    """Return the recordings that options ask for: annotated ones, or those of a folder."""
    is_automatic = options.background == AUTO
    folder = options.site if is_automatic else options.background
    if options.background == NONE:
        return None
    if folder is not None:
        library = find_recordings(to_path(folder))
        readable, errors = probe_recordings(library, calls.settings.source_rate_hz)
        if not readable:
            reason = next(iter(errors.values()), "no recordings in this folder")
            raise InputError(f"background: {folder}: {reason}")
        origin = UNLABELLED if is_automatic else WITHOUT_CALLS
        return _BackgroundSource(origin, library.root, list(readable.values()))
    if calls.segmentation is None:
        return None
    calls_s = _list_call_times(calls.segmentation, options)
    known = calls.segmentation.recordings
    return _BackgroundSource(
        origin=ANNOTATED,
        root=calls.spans.root,
        recordings=[recording for recording in known if recording.path in calls_s],
        calls_s=calls_s,
        checksums={file: sha256 for _, file, sha256 in calls.inputs},
    )


def find_background(
    calls: Calls, spec: EncoderSpec, options: LearningOptions
) -> tuple[list[BackgroundRecording], Spans]:
    """Return the recordings that options ask for, and their windows to embed as background.

    These windows are spans at the encoder's speed, with two columns more: `sha256` is the checksum
    of their recording, `window_start_s` the real time at which they start.
    """
    source = _choose_background_source(calls, options)
    if source is None:
        return [], Spans.from_rows([])
    root = source.root
    grid = find_grid(spec, calls.settings)
    descriptions = []
    tables = []  # windows of each recording
    for recording in source.recordings:
        path = recording.path
        sha256 = source.checksums.get(path)
        if sha256 is None:
            with explain_unreadable(root / path):
                sha256 = sha256_file(root / path)
        table = _list_windows(recording, grid, sha256)
        description = BackgroundRecording(
            sha256=sha256,
            windows=len(table),
            calls_s=tuple(sorted(source.calls_s.get(path, ()))),
            origin=source.origin,
            place=find_place(path),
        )
        descriptions.append(description)
        tables.append(table)

    windows_of_all = sum(map(len, tables))
    kept = []
    for description, table in zip(descriptions, tables, strict=True):
        starts_s = table["window_start_s"].to_numpy()
        is_kept = find_kept(description, starts_s, grid.window_s, windows_of_all)
        kept.append(table.filter(is_kept))
    windows = Spans(pl.concat(kept), root, source=str(root)).with_columns(
        rate_hz=grid.rate_hz, channel_rule=calls.settings.channel_rule
    )
    return descriptions, windows


def _list_call_times(
    segmentation: Segmentation, options: LearningOptions
) -> Mapping[str, set[Span]]:
    """Return start and end of all that may be a call, for each recording that has background.

    These are the annotations, and the parts of recordings that are `unknown_s`.
    """
    calls_s: dict[str, set[Span]] = {path: set() for path in segmentation.annotated}
    annotated = segmentation.calls.frame.select("path", "start_s", "end_s")
    for path, start_s, end_s in annotated.iter_rows():
        calls_s.setdefault(path, set()).add((start_s, end_s))
    if options.unknown_s is None:
        return calls_s
    # No recording but those in `unknown_s` has background.
    return {
        path: {*calls_s.get(path, ()), *unknown}
        for path, unknown in options.unknown_s.items()
    }


def _list_windows(recording: Recording, grid: WindowGrid, sha256: str) -> pl.DataFrame:
    """Return the windows of a recording as rows; see `find_background`."""
    last_start = grid.to_samples(recording.duration_s) - grid.window
    start = np.arange(0, last_start + 1, grid.hop)
    times = {
        "start_s": start / grid.rate_hz,
        "end_s": (start + grid.window) / grid.rate_hz,
        "window_start_s": grid.to_seconds(start),
    }
    # With lit, columns have a type also where there are no rows.
    return pl.DataFrame(times).with_columns(
        recording=pl.lit(recording.path),
        source_rate_hz=pl.lit(recording.rate_hz * grid.speed),
        sha256=pl.lit(sha256),
    )
