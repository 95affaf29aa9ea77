"""Detections and annotations → precision, recall and false alarms, with intervals.

`score_detections` is the whole of it: read, match, measure; and call density from reviewed events.
`write_scores` writes CSV files and pictures to a folder, all of them or none.

Of several events with the same span and label, the one with the highest score counts. What begins
before its recording or ends after it is cut to the recording; what lies wholly outside is a reject.
So scores do not depend on the order of rows, nor on whether a detector pads its windows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.corpus.options import make_annotation_options
from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.call_density import (
    Verdicts,
    estimate_density,
    find_verdicts,
)
from callshot.detection.events import (
    PLACE,
    EventTable,
    complete_events,
    open_recordings,
    read_events,
    rename_recordings,
)
from callshot.detection.matching import (
    RankedDetections,
    Task,
    find_threshold,
    measure,
    precision_recall_curve,
    rank_events,
    rank_windows,
    sample_weights,
    sort_outcomes,
    sum_counts,
)
from callshot.errors import InputError, OptionError, count_text
from callshot.records import FloatArray, Reject
from callshot.records.frames import (
    AIM_THRESHOLDS,
    CALL_DENSITY,
    DETECTED,
    DETECTION_SCORES,
    EVENTS,
    OUTCOMES,
    PRECISION_RECALL,
    Frame,
    concat_frames,
    empty_default,
    make_frame,
    unique_values,
)
from callshot.records.table_files import write_csv_frame
from callshot.report.figures.figure_io import Pages, make_pages, render
from callshot.report.figures.layout import (
    PageLayout,
    add_legend,
    line_handle,
    set_titles,
)
from callshot.report.figures.style import FIRST_LINE, SECOND_LINE, Style
from callshot.results import OutputFolder, open_output_folder
from callshot.storage import to_path
from callshot.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Events = Frame | Path | str
Recordings = Mapping[str, float] | Path | str
Ranked = Mapping[str, Sequence[RankedDetections]]  # by events and by windows

DIGITS = 6  # of times in seconds: spans that differ by less are the same
FEW_RECORDINGS = 5
# If more of the annotated calls cannot be matched by events, scores by windows come first.
MAX_UNREACHABLE = 0.1
INTERVAL = {"_p01": 1, "_p99": 99}
NO_LENGTHS = (
    "without the recordings (--recordings) there are no false alarms per hour, and "
    "recordings without any event are not counted"
)
PROVENANCE = "provenance.json"
SET = "callshot score"
FRAMES = {
    "scores.csv": "scores",
    "precision_recall.csv": "curve",
    "thresholds.csv": "thresholds",
    "outcomes.csv": "outcomes",
    "call_density.csv": "density",
}
LAYOUT = PageLayout(columns=3, rows=3, row_in=2.2, left_in=0.5, above_in=0.5)
LINES: dict[str, Style] = {"events": FIRST_LINE, "windows": SECOND_LINE}
TITLE_MARGIN_IN = 0.4

Panel = tuple[str, Frame, Frame]  # a label, its curves and its scores


@dataclass(frozen=True)
class DetectionScores:
    """The scores of detections: frames (see `callshot.records.frames`), rejected rows and notes.

    The scores to believe come first in `scores` and `curve`; `warnings` say why.
    """

    scores: Frame = empty_default(DETECTION_SCORES)
    curve: Frame = empty_default(PRECISION_RECALL)
    thresholds: Frame = empty_default(AIM_THRESHOLDS)
    outcomes: Frame = empty_default(OUTCOMES)
    density: Frame = empty_default(CALL_DENSITY)
    rejects: Sequence[Reject] = ()
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()


def score_detections(
    detections: Events,
    annotations: Events | None = None,
    *,
    recordings: Recordings | None = None,
    reviewed: Events | None = None,
    columns: Mapping[str, str] | None = None,
    iou: float = 0.3,
    window_s: float = 3.0,
    threshold: float | None = None,
    false_alarms_per_hour: float | None = None,
    unknown: str | None = None,
    bins: int = 4,
    samples: int = 1000,
    seed: int = 0,
) -> DetectionScores:
    """Score detections against annotations, or estimate how many of them are calls.

    Parameters
    ----------
    detections, annotations : frame or path
        Events: a frame, file or folder with recording, start_s, end_s, label and, for detections,
        score. Files are CSV, Parquet, or in any format that `callshot.segment` reads.
    recordings : path or mapping, optional
        The folder of all recordings that were annotated in full, also of those without any call;
        or the length in seconds by name. False alarms per hour need it. Events are cut to it.
    reviewed : frame or path, optional
        Some of the detections, with a column `confirmed`; gives the call density. Of a review:
        `callshot.read_review(folder, rejected=True).events`.
    columns : mapping, optional
        Our name of a column of the annotations → its name in the file, e.g. {"label": "Species"}.
    iou : float
        How much of the time that a detection and an annotation cover together they must share.
    window_s : float
        The length of windows in the scores by windows.
    threshold : float, optional
        Detections with a lower score do not count; average precision uses all.
    false_alarms_per_hour : float, optional
        Also find the threshold that would have met this aim, for each class.
    unknown : str, optional
        The label of annotations that nobody could name: detections on them are not wrong.
    bins : int
        Bins of scores in the call density.
    samples, seed : int
        Samples of recordings from which the intervals come, and their seed.

    Returns
    -------
    DetectionScores
        `.scores`, `.curve`, `.thresholds`, `.outcomes`, `.density`: data frames.

    Raises
    ------
    InputError
        If a file cannot be read, or detections are on no recording that is known.
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> import polars as pl
    >>> columns = ["recording", "start_s", "end_s", "label", "score"]
    >>> found = [("a.wav", 10.0, 12.0, "roar", 0.9), ("a.wav", 51.0, 53.0, "roar", 0.4)]
    >>> detections = pl.DataFrame(found, columns, orient="row")
    >>> annotations = pl.DataFrame([("a.wav", 10.2, 11.9, "roar")], columns[:4], orient="row")
    >>> result = score_detections(detections, annotations, recordings={"a.wav": 3600.0})
    >>> names = ["by", "precision", "recall", "average_precision", "false_alarms_per_hour"]
    >>> result.scores.filter(label="roar").select(names).rows()
    [('events', 0.5, 1.0, 1.0, 1.0), ('windows', 0.5, 1.0, 1.0, 1.0)]
    """
    _check_options(iou, window_s, threshold, false_alarms_per_hour, bins, samples)
    if annotations is None and reviewed is None:
        raise OptionError("give annotations, or reviewed detections (--reviewed)")
    folder = None
    durations_s: dict[str, float] = {}
    rejects: list[Reject] = []
    if isinstance(recordings, Mapping):
        durations_s = dict(recordings)
    elif recordings is not None:
        folder = open_recordings(to_path(recordings))
        durations_s = folder.durations_s
        rejects += [Reject(path, None, str(one)) for path, one in folder.errors.items()]
    notes: list[str] = []
    warnings: list[str] = []
    frames: dict[str, Frame] = {}

    def read(
        source: Events, check: bool, columns: Mapping[str, str] | None = None
    ) -> Frame:
        """Return the events of a file or frame, by the names of the recordings."""
        if isinstance(source, pl.DataFrame):
            empty = {name: pl.lit(None, dtype) for name, dtype in PLACE.items()}
            table = EventTable(complete_events(source).with_columns(**empty))
        else:
            options = make_annotation_options(columns=columns or {})
            table = read_events(to_path(source), folder, options, check=check)
        _check_any(table)
        rejects.extend(table.rejects)
        notes.extend(table.notes)
        if durations_s:
            return rename_recordings(table.events, durations_s)
        return table.events

    def read_once(
        source: Events, kind: str, columns: Mapping[str, str] | None = None
    ) -> Frame:
        """Return events cut to their recordings, each of them once."""
        rows = keep_best(read(source, False, columns), rejects)
        rows = cut_to_recordings(rows, durations_s, kind, rejects, notes)
        return complete_events(rows.select(*EVENTS))

    found = read_once(detections, "detections")
    if annotations is not None:
        truth = read_once(annotations, "annotations", columns)
        names = {*truth["recording"], *durations_s}
        named = rename_recordings(found, names)
        task = Task(
            detections=named,
            annotations=truth,
            recordings=sorted(names | set(named["recording"])),
            durations_s=durations_s,
            min_iou=iou,
            unknown=unknown,
        )
        needs_scores = (threshold, false_alarms_per_hour) != (None, None)
        notes += _check_task(task, needs_scores=needs_scores)
        ranked, outcomes = _rank(task, window_s)
        curves = [
            precision_recall_curve(ranked_class, by)
            for by, classes in ranked.items()
            for ranked_class in classes
            if ranked_class.has_scores
        ]
        frames["curve"] = concat_frames(curves, PRECISION_RECALL)
        frames["outcomes"] = outcomes
        weights = sample_weights(len(task.recordings), samples, seed)
        scores = []
        for by, classes in ranked.items():
            scores += [
                _score_row(by, one.label, [one], weights, threshold) for one in classes
            ]
            scores.append(_score_row(by, None, classes, weights, threshold))
        frames["scores"] = concat_frames(scores, DETECTION_SCORES)
        if false_alarms_per_hour is not None:
            frames["thresholds"] = _find_thresholds(
                frames["curve"], next(iter(ranked)), task, false_alarms_per_hour
            )
        warnings += warn_unreachable(frames["scores"], task)
    if reviewed is not None:
        # Reviewed events are taken as they are: several people may have reviewed one.
        verdicts = find_verdicts(found, read(reviewed, True))
        notes += _describe_verdicts(verdicts)
        frames["density"] = estimate_density(found, verdicts, bins, seed)
    return DetectionScores(
        **frames, rejects=rejects, notes=list(dict.fromkeys(notes)), warnings=warnings
    )


def _check_options(
    iou: float,
    window_s: float,
    threshold: float | None,
    aim: float | None,
    bins: int,
    samples: int,
) -> None:
    if not 0 < iou <= 1:
        raise OptionError(f"iou: expected above 0 and at most 1, got {iou}")
    if not 0 < window_s < np.inf:
        raise OptionError(f"window_s: expected above 0 s, got {window_s}")
    if aim is not None and not 0 < aim < np.inf:
        raise OptionError(
            f"false_alarms: expected more than 0 per hour, got {aim}; no threshold "
            "promises none at all"
        )
    if threshold is not None and np.isnan(threshold):
        raise OptionError("threshold: expected a number, got nan")
    if bins < 1:
        raise OptionError(f"bins: expected 1 or more, got {bins}")
    if samples < 1:
        raise OptionError(f"samples: expected 1 or more, got {samples}")


def _check_any(table: EventTable) -> None:
    """Raise InputError if a file has only rejects."""
    if len(table.events) == 0 and table.rejects:
        first = table.rejects[0]
        place = first.file if first.row is None else f"{first.file}, row {first.row}"
        raise InputError(
            f"{place}: {first.reason}; no row is left to score "
            f"({count_text(len(table.rejects), 'reject')})"
        )


def keep_best(events: Frame, rejects: list[Reject]) -> Frame:
    """Return the event with the highest score of those with the same span and label."""
    times = [pl.col(name).round(DIGITS) for name in ("start_s", "end_s")]
    key = pl.struct("recording", "label", *times)
    ordered = events.sort(
        "score", descending=True, nulls_last=True, maintain_order=True
    )
    is_first = ordered.select(key.is_first_distinct()).to_series()
    reason = "the same span and label as another row, which counts instead"
    others = ordered.filter(~is_first).iter_rows(named=True)
    rejects += [_reject(row, reason) for row in others]
    return ordered.filter(is_first)


def cut_to_recordings(
    events: Frame,
    durations_s: Mapping[str, float],
    kind: str,
    rejects: list[Reject],
    notes: list[str],
) -> Frame:
    """Return events cut to their recordings, without those wholly outside.

    `kind` is what they are called in notes.
    """
    lengths = [durations_s.get(name) for name in events["recording"]]
    events = events.with_columns(duration_s=pl.Series(lengths, dtype=pl.Float64))
    is_outside = (pl.col("end_s") <= 0) | (pl.col("start_s") >= pl.col("duration_s"))
    has_no_span = pl.col("end_s") <= pl.col("start_s")
    is_left_out = (is_outside | has_no_span).fill_null(False)
    outside = events.filter(is_left_out).iter_rows(named=True)
    rejects += [_reject(row, _describe_outside(row)) for row in outside]
    kept = events.filter(~is_left_out)
    end_s = pl.col("end_s").round(DIGITS)
    overhangs = (pl.col("start_s") < 0) | (end_s > pl.col("duration_s").round(DIGITS))
    count = kept.filter(overhangs).height
    if count:
        notes.append(
            f"{count} of {len(kept)} {kind} begin before their recording or end after it; "
            "they are cut to it"
        )
    # min_horizontal leaves out the lengths that are not known.
    return kept.with_columns(
        start_s=pl.max_horizontal("start_s", pl.lit(0.0)),
        end_s=pl.min_horizontal("end_s", "duration_s"),
    )


def _reject(row: Mapping[str, Any], reason: str) -> Reject:
    if row["file"] is None:
        place = f"{row['recording']}, {row['start_s']:.6g} to {row['end_s']:.6g} s"
        return Reject("memory", None, f"{place}: {reason}")
    return Reject(row["file"], row["row"], reason)


def _describe_outside(row: Mapping[str, Any]) -> str:
    span = f"{row['start_s']:.6g} to {row['end_s']:.6g} s"
    if row["end_s"] <= row["start_s"]:
        return f"{span} is no span"
    if row["end_s"] <= 0:
        return f"{span} is before the start of {row['recording']}"
    duration = f"{row['duration_s']:.6g} s"
    return f"{span} is beyond the end of {row['recording']}, which is {duration} long"


def _check_task(task: Task, *, needs_scores: bool) -> Iterator[str]:
    """Check that detections can be scored; yield what to know before scores are believed."""
    durations_s = task.durations_s
    known = count_text(len(durations_s), "recording")
    if durations_s:
        unannotated = len(durations_s.keys() - set(task.annotations["recording"]))
        yield (
            f"{unannotated} of {known} without an annotated call; detections there are false "
            "alarms"
        )
    else:
        yield NO_LENGTHS
    for events in (task.detections, task.annotations):
        for name in events["recording"].unique().sort():
            if durations_s and name not in durations_s:
                raise InputError(
                    f"{name}: not among the {known} whose length is known; add it"
                )
    if not task.labels:
        raise InputError("there are no detections and no annotations to score")
    missing = task.detections["score"].null_count()
    if 0 < missing < len(task.detections):
        raise InputError(
            f"{missing} of {len(task.detections)} detections have no score; give all of them one, "
            "or none"
        )
    if missing and needs_scores:
        raise InputError("detections have no scores; a threshold needs them")
    detected = {*task.detections["label"]}
    annotated = {*task.annotations["label"]}
    if detected and annotated and detected.isdisjoint(annotated):
        yield (
            f"no label is both detected ({', '.join(sorted(detected))}) "
            f"and annotated ({', '.join(sorted(annotated))})"
        )
    if len(task.recordings) < FEW_RECORDINGS:
        recordings = count_text(len(task.recordings), "recording")
        yield f"intervals from {recordings} are too narrow"


def _rank(task: Task, window_s: float) -> tuple[Ranked, Frame]:
    """Rank all classes by events and by windows, what to believe first; return outcomes too."""
    events = []
    windows = []
    outcomes = []
    for label in task.labels:
        detections, outcome = rank_events(task, label)
        events.append(detections)
        windows.append(rank_windows(task, label, outcome, window_s))
        outcomes.append(outcome)
    unreachable = sum(detections.unreachable for detections in events)
    annotated = sum(int(detections.annotated.sum()) for detections in events)
    ranked = {"events": events, "windows": windows}
    if unreachable > MAX_UNREACHABLE * annotated:
        ranked = {"windows": windows, "events": events}
    return ranked, sort_outcomes(outcomes)


def warn_unreachable(scores: Frame, task: Task) -> Iterator[str]:
    """Say how many calls are too short to be matched by events, and what to believe."""
    total = scores.filter(pl.col("label").is_null(), by="events").row(0, named=True)
    unreachable = total["unreachable"]
    if unreachable == 0:
        return
    annotated = total["annotated"]
    lengths = [task.find_shortest(label) for label in task.labels]
    texts = dict.fromkeys([f"{min(lengths):.3g}", f"{max(lengths):.3g}"])
    shortest = " to ".join(texts)
    least = f"{task.min_iou:g}"
    warning = (
        f"{unreachable} of {annotated} annotated calls ({unreachable / annotated:.0%}) are too "
        f"short to be matched by events: the shortest detections last {shortest} s, and one that "
        f"contains such a call has an IoU below {least} with it"
    )
    if scores["by"][0] == "windows":
        yield f"{warning}; believe the scores by windows, not those by events"
    else:
        yield f"{warning}; by events they count as missed"


def _describe_verdicts(verdicts: Verdicts) -> Iterator[str]:
    if verdicts.elsewhere:
        yield f"{verdicts.elsewhere} reviewed events are on no detection; they do not count"
    if verdicts.detections["confirmed"].all():
        yield (
            "reviewed: all verdicts are yes; if only confirmed detections were kept, the call "
            "density is too high: give the folder of the review, or its table with those rejected"
        )


def _score_row(
    by: str,
    label: str | None,
    classes: Sequence[RankedDetections],
    weights: FloatArray,
    threshold: float | None,
) -> Frame:
    """Return the scores of some classes together, with the percentiles of the samples."""
    once = np.ones((1, weights.shape[1]))
    values = measure(classes, once, threshold)
    samples = measure(classes, weights, threshold)
    counts = sum_counts([detections.above(threshold) for detections in classes], once)
    columns = {name: counts[name] for name in ("annotated", *DETECTED)}
    unreachable = sum(detections.unreachable for detections in classes)
    columns["unreachable"] = np.array([unreachable])
    for metric, value in values.items():
        columns[metric] = value
        defined = samples[metric][~np.isnan(samples[metric])]
        is_defined = not np.isnan(value).any() and len(defined) > 0
        for suffix, percent in INTERVAL.items():
            limit = np.array([np.nan])
            if is_defined:
                limit = np.percentile(defined, [percent])
            columns[metric + suffix] = limit
    frame = make_frame(DETECTION_SCORES, columns, {"by": by, "label": label})
    return frame.fill_nan(None)


def _find_thresholds(curve: Frame, by: str, task: Task, aim: float) -> Frame:
    """Return the threshold of each class that would have met the aim, by events.

    Its precision and recall are by `by`.
    """
    if not task.durations_s:
        raise OptionError(
            "false_alarms: an aim per hour needs the lengths of the recordings (--recordings)"
        )
    rows = [find_threshold(curve, label, aim, by) for label in task.labels]
    return concat_frames(rows, AIM_THRESHOLDS)


def open_scores(out: Path) -> AbstractContextManager[OutputFolder]:
    """Open a folder for scores, before any work."""
    return open_output_folder(out, [*FRAMES, REJECTS], PROVENANCE, owner=SET)


def write_scores(
    output: OutputFolder,
    result: DetectionScores,
    options: Mapping[str, Any],
    *,
    figure: bool,
) -> list[Path]:
    """Write the frames that have rows, rejects, and curves as PDF and PNG; return the paths."""

    def make(folder: Path) -> list[str]:
        names = []
        for name, attribute in FRAMES.items():
            frame = getattr(result, attribute)
            if not frame.is_empty():
                write_csv_frame(frame, folder / name)
                names.append(name)
        write_rejects(result.rejects, folder / REJECTS)
        names.append(REJECTS)
        if figure:
            for page in plan_curves(result):
                names += [path.name for path in render(page, folder)]
        return names

    facts = {
        "version": __version__,
        "options": dict(options),
        "totals": _sum_up(result.scores),
        "warnings": result.warnings,
        "notes": result.notes,
    }
    return output.write(make, facts)


def _sum_up(scores: Frame) -> dict[str, dict[str, int]]:
    """Return the counts of all classes together, by events and by windows."""
    totals = scores.filter(scores["label"].is_null())
    names = ("annotated", "unreachable", *DETECTED)
    return {
        row["by"]: {name: row[name] for name in names}
        for row in totals.iter_rows(named=True)
    }


def plan_curves(result: DetectionScores) -> Pages:
    """Yield pages of precision over recall, a panel for each class that has annotations."""
    panels: list[Panel] = []
    for label in unique_values(result.curve, "label"):
        scores = result.scores.filter(label=label)
        curve = result.curve.filter(label=label)
        if scores["average_precision"].is_not_null().any():
            panels.append((label, curve, scores))
    return make_pages("precision_recall", panels, LAYOUT.capacity, _compose)


def _compose(figure: "Figure", panels: Sequence[Panel]) -> None:
    stacks, width_in = LAYOUT.add_panels(figure, len(panels), ("precision",))
    axes = stacks[:, 0]
    titles = []
    for ax, (label, curve, scores) in zip(axes, panels, strict=True):
        _draw_curves(ax, curve)
        precision = scores["average_precision"][0]
        titles.append(f"{label}, AP {precision:.2f}")
    set_titles(axes, titles, width_in - TITLE_MARGIN_IN)
    ways = unique_values(panels[0][1], "by")
    legend = {f"by {by}": line_handle(LINES[by]) for by in ways}
    add_legend(figure, legend, "recall")


def _draw_curves(ax: "Axes", curve: Frame) -> None:
    for by in unique_values(curve, "by"):
        points = curve.filter(by=by)
        step = max(1, len(points) // 8)
        ax.plot(points["recall"], points["precision"], markevery=step, **LINES[by])
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.02, 1.04)
    ax.tick_params(labelbottom=True, labelleft=True)
