"""A model and recordings, or an index of them → events with a label.

A window is active if it is not silent, and has a call by thresholds (`detector.py`) or by the
nearest mean (`nearest.py`). Active windows become events: see `edges.py`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from callshot.chunks import Rows
from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import read_rejects
from callshot.detection.background import WITHOUT_CALLS, Background
from callshot.detection.detector import (
    Detector,
    check_aim,
    find_curves,
    find_medians,
    limit_alarms,
    make_detector,
)
from callshot.detection.edges import Columns, Spacing, describe_calls, find_events
from callshot.detection.events import complete_events
from callshot.detection.examples import adapt_model, sample_index
from callshot.detection.index.index_files import (
    REJECTS,
    Index,
    IndexedRecording,
    IndexSettings,
    is_index,
    open_index,
    read_span,
    span_paths,
)
from callshot.detection.index.index_recordings import (
    IndexResult,
    group_notes,
    index_recordings,
)
from callshot.detection.index.windows import SILENCE_DBFS, find_spec
from callshot.detection.model import (
    SEGMENT,
    Model,
    check_different,
    check_fingerprint,
    check_has_encoder,
    load_model,
)
from callshot.detection.nearest import (
    BACKGROUND,
    NearestMeanDetector,
    make_nearest_detector,
    measure_site,
    select_rows,
)
from callshot.detection.verdicts import (
    check_precision,
    drop_rejected,
    find_probabilities,
)
from callshot.encoders.embed import EmbedOptions
from callshot.encoders.joined_encoder import find_joined_encoder, joined_fingerprint
from callshot.encoders.spec import EncoderSpec, find_differences, format_options
from callshot.encoders.workers import default_threads
from callshot.errors import InputError, OptionError, check_choice, count_text
from callshot.jobs import Cluster, Job, Pool
from callshot.records import Progress, Reject, no_progress, scale_progress
from callshot.records.frames import Frame
from callshot.storage import to_path

SOUND = "sound"
EDGES = ("windows", SOUND)
AUTO = "auto"
ALWAYS = "always"
ADAPT_MODES = (AUTO, ALWAYS, "none")
AnyDetector = Detector | NearestMeanDetector
DEFAULT_AIM = 1.0  # false alarms per hour and class
LIKELY_WRONG = 0.5  # below, with the whole interval: more likely wrong than right
# With an aim of false alarms, thresholds must find over this many times as many windows as the
# nearest mean: its false alarms are closer to the aim.
CLOSER = 2
MIN_QUIET_H = 0.5  # without calls, by which thresholds are found
MIN_QUIET = 3  # windows, of which the nearest mean needs the mean
FEW_QUIET = 30  # with fewer, much is missed: see the docs
NEAREST_MEAN = (
    "a call is what is more like the examples than like the quiet windows of these recordings "
    "(score 0: like quiet windows, 1: like the examples)"
)
LIMITED_MEAN = f"{NEAREST_MEAN}; sounds like those of the known background do not count"
INDEXING = 0.98  # of the work, where recordings are embedded first
CHOOSING = 0.5  # of the rest: examples may be embedded again
TOLERANCE_S = 1e-3  # windows and hops are whole numbers of samples


@dataclass(frozen=True, eq=False)
class ScanResult:
    """What was found.

    events         a frame with the columns of EVENTS
    detector       classes, thresholds, and what these were found from
    index          the windows that were scanned
    recordings     that could be scanned
    windows        how many were scanned, and how many were `active`: had a call
    rejects        recordings that could not be read, and why
    notes          what is unusual about recordings
    false_alarms   aim per hour and class of the thresholds; None if they have no aim
    adapted_model  the model as it was used, if it has other examples or background than `model`

    `gap_s`, `edges` and `best` are options of `scan`.
    """

    model: Model
    events: Frame
    detector: AnyDetector
    index: Index
    recordings: Sequence[IndexedRecording]
    windows: int
    active: int
    rejects: Sequence[Reject]
    notes: Sequence[str]
    false_alarms: float | None
    gap_s: float
    edges: str
    best: int | None
    adapted_model: Model | None = None

    @property
    def hours(self) -> float:
        """The length of all recordings that were scanned."""
        return sum(recording.duration_s for recording in self.recordings) / 3600

    @property
    def per_class(self) -> Frame:
        """A row for each class: label, threshold, events, events_per_hour."""
        counts = dict(self.events["label"].value_counts().iter_rows())
        classes = self.detector.classes
        events = [counts.get(name, 0) for name in classes]
        hours = max(self.hours, 1e-9)  # 0 cannot be divided by
        return pl.DataFrame(
            {
                "label": list(classes),
                "threshold": self.detector.thresholds,
                "events": events,
                "events_per_hour": [count / hours for count in events],
            }
        )


def scan(
    model: Path | str | Model,
    recordings: Path | str | Index,
    index: Path | str | None = None,
    *,
    false_alarms: float | None = None,
    gap_s: float = 0.0,
    precision: float | None = None,
    best: int | None = None,
    hop_s: float | None = None,
    edges: str = "windows",
    adapt: str = "auto",
    encoder: str | None = None,
    encoder_options: Mapping[str, object] | None = None,
    follow_links: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> ScanResult:
    """Find calls in recordings of any length with a model.

    Every window gets a score for each class. Its best class counts if the score reaches the
    threshold of that class; otherwise the window is none of the classes. Where nothing is known to
    be background, and calls seem to fill the recordings, a window belongs to the nearest mean
    instead, the mean of a class or of quiet windows. The sound of neighbouring windows with a
    call shows where calls begin and end: each is an event, named by the strongest of its windows.
    Where recordings cannot be read any more, neighbouring windows are one event.

    Parameters
    ----------
    model : path or Model
        The model that `learn` made, or the file that it was written to.
    recordings : path or Index
        Folder of the recordings, one recording, or an index of them.
    index : path, optional
        Folder in which the windows of recordings are stored; needed unless `recordings` is an
        index. What it has is not embedded again.
    false_alarms : float, optional
        Aim for each class, per hour, by which thresholds are chosen. By default 1, or none where
        windows belong to the nearest mean.
    precision : float, optional
        Least probability, from 0 to 1, that a detection is right. Needs a model with verdicts of a
        review, right and wrong ones. By default, such a model leaves out what is clearly more
        likely wrong than right (the whole interval of the probability is below 0.5).
    best : int, optional
        Find this many windows of each class, those with the highest scores, whatever the
        thresholds; most of them may be no calls.
    gap_s : float
        Pauses up to this, in seconds, do not end an event.
    hop_s : float, optional
        Seconds from the start of one window to the next; by default as the encoder has it,
        otherwise the window. Fewer calls are cut in two by windows that overlap.
    edges : str
        "windows": an event is a stretch of windows; "sound": the sound of these windows is read,
        and each call in them is an event, with its edges and band.
    adapt : str
        "auto": examples that are clips, without recordings around them, are mixed into background
        of what is scanned, and thresholds come from there; "always": all examples; "none".
    encoder, encoder_options
        Where the model cannot find its encoder by name, as with `onnx:PATH`.
    follow_links, device, threads, cluster, progress
        As in `index_recordings`.

    Returns
    -------
    ScanResult
        `.events`, `.per_class`, `.hours`, `.rejects`, `.notes`, `.detector`, `.index`.

    Raises
    ------
    InputError
        If no recording can be scanned, or if the index does not suit the model.
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> from callshot import learn
    >>> folder = Path(tempfile.mkdtemp())
    >>> noise = np.random.default_rng(0).normal(0, 0.01, 160000)
    >>> noise[32000:40000] += np.sin(np.arange(8000) / 9)
    >>> noise[96000:104000] += np.sin(np.arange(8000) / 9)
    >>> soundfile.write(folder / "a.wav", noise, 16000)
    >>> _ = (folder / "a.txt").write_text("2.0\\t2.5\\trumble\\n6.0\\t6.5\\trumble\\n")
    >>> model = learn(folder, "mfcc", store=folder / "store").model
    >>> result = scan(model, folder, folder / "index", hop_s=0.25)
    >>> result.events["label"].unique().to_list()
    ['rumble']
    """
    check_choice("adapt", adapt, ADAPT_MODES)
    check_choice("edges", edges, EDGES)
    _check_limits(gap_s, false_alarms, precision, best)
    if not isinstance(model, Model):
        model = load_model(model)
    _check_model(model)
    encoder = encoder or model.encoder
    options = format_options(encoder_options)
    if isinstance(recordings, Index) or is_index(to_path(recordings)):
        opened = recordings if isinstance(recordings, Index) else open_index(recordings)
        _check_index(model, opened, hop_s)
        rejects, notes = _read_earlier_rejects(opened)
    else:
        made = _make_index(
            recordings,
            index,
            model,
            encoder,
            options,
            hop_s=hop_s,
            follow_links=follow_links,
            device=device,
            threads=threads,
            cluster=cluster,
            progress=scale_progress(progress, INDEXING),
        )
        opened = made.index
        rejects = made.rejects
        notes = made.notes
        progress = scale_progress(progress, 1 - INDEXING)

    choice = choose_detector(
        model,
        opened,
        None if opened.settings.is_imported else find_spec(encoder, options),
        EmbedOptions(device=device, threads=threads),
        false_alarms=false_alarms,
        adapt=adapt,
    )
    progress(CHOOSING, "examples and background")
    if best is not None:
        note = f"at most {count_text(best, 'window')} of each class, with the highest scores; "
        notes.append(f"{note}many may be no calls")
        choice = choice._replace(false_alarms=None)  # thresholds follow from `best`
    notes += choice.notes
    notes += check_precision(choice.detector.classes, choice.detector.curves, precision)
    found = search_recordings(
        opened,
        choice.detector,
        model,
        best,
        threads=threads,
        cluster=cluster,
        progress=scale_progress(progress, 1 - CHOOSING),
    )
    detected, unread = _join_windows(
        found,
        model,
        opened.settings,
        gap_s=gap_s,
        by_sound=edges == SOUND,
        threads=threads,
    )
    events = drop_rejected(detected, model, found.recordings)
    if precision is not None:
        events = events.filter(pl.col("probability") >= precision)
    elif best is None:  # drop what is clearly more likely wrong than right
        is_wrong = pl.col("probability_high") < LIKELY_WRONG
        events = events.filter(is_wrong.not_() | is_wrong.is_null())
    if len(events) < len(detected) and precision is None:
        dropped = count_text(len(detected) - len(events), "event")
        notes.append(
            f"left out, because a review rejected them, or others like them: {dropped}"
        )
    return ScanResult(
        model=model,
        events=events,
        detector=found.detector,
        index=opened,
        recordings=found.recordings,
        windows=sum(recording.windows for recording in found.recordings),
        active=sum(len(columns["score"]) for columns in found.windows),
        rejects=[*rejects, *found.rejects],
        notes=[*notes, *group_notes(found.silent), *unread],
        false_alarms=choice.false_alarms,
        gap_s=gap_s,
        edges=edges,
        best=best,
        adapted_model=None if choice.model is model else choice.model,
    )


def _read_earlier_rejects(index: Index) -> tuple[list[Reject], list[str]]:
    """Return the recordings that an index lacks, and a note if their list cannot be read."""
    try:
        unread = read_rejects(index.folder / REJECTS)
    except InputError as error:
        return list(index.rejects), [str(error)]
    return [*unread, *index.rejects], []


def _check_limits(
    gap_s: float, false_alarms: float | None, precision: float | None, best: int | None
) -> None:
    """Raise OptionError if a number that `scan` gets is out of its range."""
    if not 0 <= gap_s < math.inf:
        raise OptionError(f"gap: expected 0 or more seconds, got {gap_s:g}")
    if false_alarms is not None:
        check_aim(false_alarms)
    if precision is not None and not 0 < precision < 1:
        raise OptionError(
            f"precision: expected a number between 0 and 1, got {precision:g}"
        )
    if best is not None and best < 1:
        raise OptionError(f"best: expected 1 or more windows, got {best}")
    if best is not None and false_alarms is not None:
        raise OptionError("best: cannot be combined with --false-alarms; remove one")


def _make_index(
    recordings: Path | str,
    folder: Path | str | None,
    model: Model,
    encoder: str,
    encoder_options: Mapping[str, str],
    **options: Any,
) -> IndexResult:
    """Index recordings with the settings of the model; `options` are of `index_recordings`.

    The result has only these recordings, not those of earlier runs that are gone, or failed now.
    """
    check_has_encoder(model)
    if folder is None:
        raise OptionError(
            "index: name the folder in which the windows of recordings are stored"
        )
    joined = find_joined_encoder(encoder, encoder_options)
    fingerprint = joined_fingerprint(joined, options["device"])
    check_fingerprint(model, joined.name, fingerprint)
    result = index_recordings(
        recordings,
        folder,
        encoder,
        encoder_options=encoder_options,
        window_s=model.settings.window_s,
        channel=model.settings.channel_rule,
        **options,
    )
    library = find_recordings(to_path(recordings), follow_links=options["follow_links"])
    readable = set(library.paths) - {reject.file for reject in result.rejects}
    indexed = result.index.recordings
    scanned = tuple(recording for recording in indexed if recording.path in readable)
    if not scanned:
        raise InputError(
            f"{recordings}: no recording could be scanned "
            f"(the first: {result.rejects[0].reason})"
        )
    return replace(result, index=replace(result.index, recordings=scanned))


class FoundWindows(NamedTuple):
    """The windows with a call of the recordings that could be scanned.

    windows   the columns of the windows with a call, for each of the recordings
    silent    a note for each recording that is silent from start to end
    rejects   recordings that could not be scanned
    """

    detector: AnyDetector
    recordings: list[IndexedRecording]
    windows: list[Columns]
    silent: list[str]
    rejects: list[Reject]


def search_recordings(
    index: Index,
    detector: AnyDetector,
    model: Model,
    best: int | None = None,
    *,
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> FoundWindows:
    """Find the windows with a call in each recording.

    With `best`, find so many windows of each class instead, those with the highest scores that no
    reviewer rejected; the detector of the result has thresholds just below them.
    """
    if best is not None:
        detector = _accept_all(detector)
    found = FoundWindows(detector, recordings=[], windows=[], silent=[], rejects=[])
    total_s = sum(recording.duration_s for recording in index.recordings)
    highest = pl.DataFrame()  # the best windows of all recordings so far
    for recording, windows in find_active_windows(
        index, detector, threads=threads, cluster=cluster
    ):
        progress(recording.duration_s / total_s, "scanning")
        if isinstance(windows, InputError):
            found.rejects.append(Reject(recording.path, row=None, reason=str(windows)))
            continue
        if windows.silent == recording.windows:
            found.silent.append(f"{recording.path}: silent from start to end")
        columns = windows.columns
        if best is not None:
            candidates = _list_candidates(columns, recording, model)
            both = pl.concat([highest, candidates], how="diagonal")
            highest = _take_best(both, best)
            # Others are not kept: all windows of all recordings would fill the memory. Later
            # recordings may have better ones: `_keep_best` selects again.
            columns = _select_starts(columns, highest.filter(recording=recording.path))
        found.recordings.append(recording)
        found.windows.append(columns)
    if not found.recordings:
        raise InputError(
            f"{index.folder}: no recording could be scanned "
            f"(the first: {found.rejects[0].reason})"
        )
    return found if best is None else _keep_best(found, highest)


def _accept_all(detector: AnyDetector) -> AnyDetector:
    """Return a detector for which every window has a call of its best class."""
    no_thresholds = np.full(len(detector.classes), -np.inf)
    detector = replace(detector, thresholds=no_thresholds)
    if isinstance(detector, NearestMeanDetector):
        # Where every window counts as found, means must not move to them.
        detector = replace(detector, passes=0)
    return detector


def _list_candidates(
    columns: Columns, recording: IndexedRecording, model: Model
) -> Frame:
    """Return the windows of a recording that no reviewer rejected, as rows for `_take_best`."""
    windows = pl.DataFrame(
        {name: columns[name] for name in ("start_s", "end_s", "score")}
    ).with_columns(
        recording=pl.lit(recording.path),
        label=pl.Series(columns["label"].tolist(), dtype=pl.String),
    )
    return drop_rejected(windows, model, [recording])


def _keep_best(found: FoundWindows, highest: Frame) -> FoundWindows:
    """Keep of all found windows those in `highest`, and set the thresholds just below them."""
    chosen = [
        _select_starts(columns, highest.filter(recording=recording.path))
        for recording, columns in zip(found.recordings, found.windows, strict=True)
    ]
    lowest = dict(highest.group_by("label").agg(pl.col("score").min()).iter_rows())
    # Infinite where a class has no window
    scores = np.array([lowest.get(label, np.inf) for label in found.detector.classes])
    # A score must exceed the threshold of a NearestMeanDetector: it is just below the lowest.
    below = np.nextafter(scores, -np.inf)
    thresholds = np.where(np.isinf(scores), scores, below)
    detector = replace(found.detector, thresholds=thresholds)
    return found._replace(detector=detector, windows=chosen)


def _take_best(windows: Frame, best: int) -> Frame:
    """Return the `best` windows of each class, of equal scores the first."""
    falling = windows.sort(
        "score", "recording", "start_s", descending=[True, False, False]
    )
    return falling.group_by("label", maintain_order=True).head(best)


def _select_starts(columns: Columns, windows: Frame) -> Columns:
    """Return the windows of a recording, `columns`, that start when one of `windows` does."""
    is_chosen = np.isin(columns["start_s"], windows["start_s"])
    return {name: column[is_chosen] for name, column in columns.items()}


def _join_windows(
    found: FoundWindows,
    model: Model,
    settings: IndexSettings,
    *,
    gap_s: float,
    by_sound: bool,
    threads: int | None,
) -> tuple[Frame, list[str]]:
    """Join neighbouring windows with a call to events; return also notes on unreadable audio."""
    lengths_s = find_medians(model, model.examples.spans.durations_s)
    call_s = dict(zip(model.classes, lengths_s, strict=True))
    labels = {label for columns in found.windows for label in columns["label"]}
    find = partial(
        find_events,
        spacing=Spacing(settings.window_s, settings.hop_s, call_s, gap_s),
        shapes=describe_calls(model, labels),
        by_sound=by_sound,
        channel=settings.channel,
    )
    with Pool(threads or default_threads()) as pool:
        outcomes = pool.map(find, found.recordings, found.windows)
        # The columns of the events of each recording, and its note or None
        tables, unread = zip(*outcomes, strict=True)
    lists = {
        name: np.concatenate([table[name] for table in tables]).tolist()
        for name in tables[0]
    }
    events = complete_events(pl.DataFrame(lists).fill_nan(None))
    return events, group_notes(filter(None, unread))


class _Choice(NamedTuple):
    """A detector, its aim (false alarms per hour and class; None if it has none), and its model."""

    detector: AnyDetector
    model: Model
    false_alarms: float | None
    notes: list[str]


def choose_detector(
    model: Model,
    index: Index,
    spec: EncoderSpec | None,
    embedding: EmbedOptions,
    *,
    false_alarms: float | None,
    adapt: str,
) -> _Choice:
    """Return a detector with thresholds, or one of nearest means if it finds more calls.

    They are compared by the windows of a sample in which they find calls, at the same number of
    false alarms in the known background. Without an aim (`false_alarms`, per hour and class), the
    nearest mean is then used as it is; with an aim and no known background, never. With an aim and
    recordings without calls, it is used unless thresholds find more than twice as much, for its
    false alarms are closer to the aim. It is also used where there is too little for thresholds: a
    folder of less than half an hour without calls, or too few windows in recordings of which
    nothing is known.

    `spec` is the encoder, None if the index has no audio; `adapt` is as for `scan`.
    """
    known = model.background
    if known is not None and len(known.vectors) <= 1:
        known = None
    sample = sample_index(index)

    # A detector with thresholds, of a model that may be adapted to the recordings.
    adapted = model
    notes: list[str] = []
    if adapt == ALWAYS or (adapt == AUTO and known is None):
        adapted, notes = adapt_model(model, sample, index, spec, embedding)
    aim = DEFAULT_AIM if false_alarms is None else false_alarms
    allowed = _scale_aim(aim, index, adapted.background)
    detector = make_detector(adapted, adapted.background, allowed)
    by_thresholds = _Choice(detector, adapted, aim, notes)
    if adapt != AUTO or (known is None and false_alarms is not None):
        return by_thresholds
    # A model with known background was not adapted: `allowed` is for this background.
    has_no_calls = False  # the known background
    is_too_short = False  # for thresholds
    if known is not None:
        has_no_calls = bool((known.origins == WITHOUT_CALLS).all())
        is_too_short = has_no_calls and known.hours < MIN_QUIET_H
        if sample is None and not is_too_short:
            return by_thresholds

    # The nearest mean; `limited` has no more false alarms in known background than are allowed.
    site = measure_site(index, model.examples.matrix)
    curves = find_curves(site.transform_model(model), site)
    nearest = replace(make_nearest_detector(model, site), curves=curves)
    if known is not None and false_alarms is not None:
        nearest = nearest.allow(known, allowed)
    limited = nearest
    if known is not None:
        limited = limit_alarms(nearest, model, known, allowed)

    if sample is not None:
        found_by_mean, found_by_threshold = _count_found(sample, limited, detector)
        if has_no_calls and false_alarms is not None:
            found_by_mean *= CLOSER
        if found_by_mean <= found_by_threshold and not is_too_short:
            return by_thresholds
    elif site.quiet < MIN_QUIET:
        return by_thresholds
    warnings = _describe_quiet(site.quiet)
    if false_alarms is None:
        notes = [NEAREST_MEAN, *warnings]
        return _Choice(nearest, model, false_alarms=None, notes=notes)
    assert known is not None  # otherwise thresholds decide
    assert limited.limits is not None  # by known background
    least_aim = 1 / known.hours
    reached_aim = max(aim, least_aim)
    aim_notes = _describe_aim(aim, reached_aim, known.hours, limited.limits.factor)
    notes = [LIMITED_MEAN, *warnings, *aim_notes]
    return _Choice(limited, model, reached_aim, notes)


def _count_found(
    sample: Background, nearest: NearestMeanDetector, detector: Detector
) -> tuple[int, int]:
    """Return in how many windows of a sample each of two detectors finds a call."""
    by_mean, _ = nearest.search_once([sample.vectors], nearest.means)
    by_threshold, *_ = detector.search([sample.vectors])
    found_by_mean = np.count_nonzero(by_mean != BACKGROUND)
    found_by_threshold = np.count_nonzero(by_threshold != BACKGROUND)
    return int(found_by_mean), int(found_by_threshold)


def _scale_aim(aim: float, index: Index, background: Background | None) -> float:
    """Return how many windows of background per hour may be false alarms, to meet an aim.

    Where windows of the index follow each other faster than those of the background, there are
    more of them in an hour, and each must be a false alarm less often.
    """
    if background is None:
        return aim
    return aim * min(1.0, index.settings.hop_s / background.hop_s)


def _describe_quiet(windows: int) -> list[str]:
    """Return a warning if a detector of nearest means knows few quiet windows."""
    if windows >= FEW_QUIET:
        return []
    return [
        f"{count_text(windows, 'quiet window')} show little of what is no call here, so "
        "calls may be missed; scan more recordings at once, also without these calls"
    ]


def _describe_aim(
    aim: float, reached_aim: float, hours: float, factor: float
) -> list[str]:
    """Return notes on how well an aim can be met, given `hours` of background.

    `reached_aim` is the lowest aim that so few hours can show, if that is higher.
    """
    notes = []
    if aim < reached_aim:
        notes.append(
            f"--false-alarms: {hours:.2g} hours of background cannot show fewer than "
            f"{reached_aim:.2g} false alarms per hour and class, so this is the aim; add "
            "background to ask for fewer"
        )
    low = reached_aim / factor
    high = reached_aim * factor
    notes.append(
        f"with {hours:.2g} hours of background the aim can be missed by a factor of "
        f"{factor:.2g}: expect {low:.2g} to {high:.2g} false alarms per hour and "
        "class where recordings are like it; more background, of more recordings, narrows this"
    )
    return notes


def _check_model(model: Model) -> None:
    """Check that a model can scan recordings."""
    check_different(model)
    if model.settings.source == SEGMENT:
        raise InputError(
            f"{model.source}: this model was made from a segments.parquet and can only label "
            "segments (--segments); to scan recordings, make it from recordings with annotations"
        )
    if model.settings.source_rate_hz is not None:
        raise InputError(
            f"{model.source}: learned with --source-rate-hz, and scan reads recordings only at "
            "their own rate; convert the recordings, and learn the model from these"
        )


def _check_index(model: Model, index: Index, hop_s: float | None) -> None:
    """Check that an index can be scanned with a model, and has windows `hop_s` apart if given."""
    settings = index.settings
    differing = find_differences(settings.fingerprint, model.fingerprint)
    channel = model.settings.channel_rule
    window_s = model.settings.window_s
    difference = ""
    if differing:
        difference = (
            f"{settings.name}, the model {model.encoder}: other {', '.join(differing)}"
        )
    elif settings.channel != channel:
        difference = f"channel {settings.channel}, the model channel {channel}"
    elif window_s is not None and abs(window_s - settings.window_s) > TOLERANCE_S:
        difference = f"windows of {settings.window_s:g} s, the model of {window_s:g} s"
    if difference:
        raise InputError(
            f"{index.folder}: cannot be scanned with {model.source}: the index has {difference}; "
            "index the recordings as the model was learned, or learn the model again"
        )
    if hop_s is not None and abs(hop_s - settings.hop_s) > TOLERANCE_S:
        raise OptionError(
            f"hop: {index.folder} has a window every {settings.hop_s:g} s; remove --hop, or index "
            "the recordings with this hop"
        )
    if not index.recordings:
        raise InputError(
            f"{index.folder}: the index has no recordings; run callshot index"
        )


Work = tuple[Index, AnyDetector]


class ActiveWindows(NamedTuple):
    """The active windows of a recording in order of time, and how many of all were silent.

    The columns are start_s, end_s and columns of events.csv: to add one there, add it in `decide`.
    They are arrays: a frame for each file would take a fifth of a scan.
    """

    columns: Columns
    silent: int


def find_active_windows(
    index: Index,
    detector: AnyDetector,
    *,
    threads: int | None = None,
    cluster: Cluster | None = None,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield each recording with its active windows, or why they cannot be read, in order."""
    recordings = index.recordings
    if cluster is None:

        def attempt(recording: IndexedRecording) -> ActiveWindows | InputError:
            try:
                return decide_recording((index, detector), recording)
            except InputError as error:
                return error

        # Threads inside each product would only wait for each other.
        with threadpool_limits(1, "blas"), Pool(threads or default_threads()) as pool:
            yield from zip(recordings, pool.map(attempt, recordings), strict=True)
        return
    # What workers get has no list of recordings: each item of the job is one.
    sent = replace(index, folder=index.folder.absolute(), recordings=(), rejects=())
    job = Job(
        kind="scan",
        prepare=open_scan_on_worker,
        function=decide_recording,
        common=(sent, detector),
        items=recordings,
        names=[recording.path for recording in recordings],
        sizes=[float(recording.windows) for recording in recordings],
    )
    for outcome in sorted(cluster.run(job), key=attrgetter("number")):
        windows = outcome.value
        if outcome.reason:  # with the folder as the user gave it
            reason = outcome.reason.replace(str(sent.folder), str(index.folder))
            windows = InputError(reason)
        yield recordings[outcome.number], windows


def open_scan_on_worker(work: Work, threads: int) -> Work:
    """Return the work as it was sent: a worker has nothing to open."""
    return work


def decide_recording(work: Work, recording: IndexedRecording) -> ActiveWindows:
    """Return the active windows of a recording."""
    index, detector = work
    paths = span_paths(index.folder, recording)
    return decide([read_span(path, index.settings) for path in paths], detector)


def decide(parts: Sequence[Rows], detector: AnyDetector) -> ActiveWindows:
    """Return the active windows of a recording with their class, score and second class.

    `parts` are the files of its windows, in order of time. An active window has a call by the
    detector, and is not silent.
    """
    vectors = [part["vector"] for part in parts]
    # A search may shift means to the recording; probabilities are of scores without the shift.
    class_of_window, scores, plain_scores = detector.search(vectors)
    levels = np.concatenate([part["rms_dbfs"] for part in parts])
    is_silent = levels <= SILENCE_DBFS
    active = np.flatnonzero((class_of_window != BACKGROUND) & ~is_silent)
    best = class_of_window[active]
    names = np.array(detector.classes, object)
    probability = find_probabilities(
        detector.curves, names[best], plain_scores[active, best]
    )
    rows = np.arange(len(active))
    distances = detector.distances(select_rows(vectors, active))
    columns = {
        "start_s": np.concatenate([part["start_s"] for part in parts])[active],
        "end_s": np.concatenate([part["end_s"] for part in parts])[active],
        "label": names[best],
        "score": scores[active, best],
        "probability": probability[:, 0],
        "probability_low": probability[:, 1],
        "probability_high": probability[:, 2],
        "distance": distances[rows, best],
    }
    if len(names) > 1:
        other_scores = scores[active]
        other_scores[rows, best] = -np.inf
        second = other_scores.argmax(axis=1)
        columns["runner_up"] = names[second]
        columns["runner_up_score"] = other_scores[rows, second]
    return ActiveWindows(columns, int(is_silent.sum()))
