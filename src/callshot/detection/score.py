"""Detections and annotations → precision, recall and false alarms, with intervals.

Of several events with the same span and label, the one with the highest score counts. What begins
before its recording or ends after it is cut to the recording; what lies wholly outside is a reject.

Call density: detections of a class are split into bins of equal numbers by their scores, listeners
review a few of each bin, and the share of calls in a bin has a Beta distribution. Its sum over
bins, each by its size, is the number of calls with its uncertainty (Navine et al. 2024, "All
thresholds barred"). Detections of other labels that reviewers gave the label of a class are added
to its total as they are.

Reviewers may have given an event another label, another span, or cut it into parts. So every
reviewed event is first brought back to its detection (`find_verdicts`), which is a call of its
label if a reviewer said so of any part of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from scipy import stats

from callshot.console import print_lines
from callshot.corpus.options import make_annotation_options
from callshot.corpus.segment_table import REJECTS, write_rejects
from callshot.detection.events import (
    PLACE,
    EventTable,
    RecordingFolder,
    complete_events,
    find_event_table,
    open_recordings,
    read_events,
    rename_recordings,
)
from callshot.detection.matching import (
    ANY_OVERLAP,
    RankedDetections,
    Task,
    find_partners,
    find_threshold,
    measure,
    precision_recall_curve,
    rank_events,
    rank_windows,
    sample_weights,
)
from callshot.detection.sentences import say, show_rejects
from callshot.errors import InputError, OptionError, count_text
from callshot.fewshot.kernels import streams
from callshot.files import SCAN_FACTS
from callshot.options import ScoringOptions, check_values
from callshot.records import FloatArray, Reject
from callshot.records.frames import (
    AIM_THRESHOLDS,
    CALL_DENSITY,
    DETECTED,
    DETECTION_METRICS,
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
from callshot.report.figures.figure_io import Pages, draw_page, make_pages
from callshot.report.figures.layout import (
    FIRST_LINE,
    SECOND_LINE,
    PageLayout,
    Style,
    add_legend,
    set_titles,
)
from callshot.results import OutputFolder, open_output_folder, read_intact_provenance
from callshot.storage import to_path
from callshot.version import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Events = Frame | Path | str
Recordings = Mapping[str, float] | Path | str

DIGITS = 6  # of times in seconds: spans that differ by less are the same
# If more of the annotated calls cannot be matched by events, scores by windows come first.
MAX_UNREACHABLE = 0.3
INTERVAL = {"_p01": 1, "_p99": 99}
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

Panel = tuple[str, Frame]  # a title and the curves of a class


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
    iou: float = ScoringOptions.iou,
    window_s: float = ScoringOptions.window_s,
    threshold: float | None = None,
    false_alarms_per_hour: float | None = None,
    unknown: str | None = None,
    bins: int = ScoringOptions.bins,
    samples: int = ScoringOptions.samples,
    seed: int = ScoringOptions.seed,
) -> DetectionScores:
    """Score detections against annotations, or estimate how many of them are calls.

    Parameters
    ----------
    detections, annotations : frame or path
        Events: a frame, file or folder with recording, start_s, end_s, label and, for detections,
        score. Files are CSV, Parquet, or in any format that `callshot.segment` reads. Of the files
        of a scan, annotated calls whose label the model does not have are not missed.
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
        The label of annotations without a name: detections on them are not wrong.
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
    aim = false_alarms_per_hour
    positive = {"iou": iou, "window_s": window_s, "false_alarms": aim}
    for name, value in positive.items():
        if value is not None and not 0 < value < np.inf:
            raise OptionError(f"{name}: expected more than 0, got {value}")
    check_values(ScoringOptions(iou=iou, bins=bins, samples=samples))
    if threshold is not None and np.isnan(threshold):
        raise OptionError("threshold: expected a number, got nan")
    if annotations is None and reviewed is None:
        raise OptionError("give annotations, or reviewed detections (--reviewed)")
    inputs = _open_inputs(recordings)
    frames: dict[str, Frame] = {}
    warnings: list[str] = []
    events = inputs.read_once(detections, "detections")
    if annotations is not None:
        truth = inputs.read_once(annotations, "annotations", columns)
        known_names = {*truth["recording"], *inputs.durations_s}
        renamed = rename_recordings(events, known_names)
        task = Task(
            detections=renamed,
            annotations=truth,
            recordings=sorted({*known_names, *renamed["recording"]}),
            durations_s=inputs.durations_s,
            min_iou=iou,
            unknown=unknown,
            searched=_read_classes(detections),
        )
        needs_scores = threshold is not None or aim is not None
        inputs.notes += _check_task(task, needs_scores=needs_scores)
        weights = sample_weights(len(task.recordings), samples, seed)
        frames |= _score_task(task, weights, window_s, threshold, aim)
        lengths_s = [task.find_shortest(label) for label in task.labels]
        total = frames["scores"].filter(pl.col("label").is_null(), by="events")
        by = frames["scores"]["by"][0]
        warnings += say("unreachable", total.row(0, named=True), lengths_s, iou, by)
    if reviewed is not None:
        # Reviewed events are taken as they are: several people may have reviewed one.
        verdicts = find_verdicts(events, inputs.read(reviewed, check=True))
        inputs.notes += _describe_verdicts(verdicts)
        frames["density"] = estimate_density(events, verdicts, bins, seed)
    notes = list(dict.fromkeys(inputs.notes))
    return DetectionScores(
        **frames, rejects=inputs.rejects, notes=notes, warnings=warnings
    )


def _describe_verdicts(verdicts: "Verdicts") -> list[str]:
    """Return notes on reviewed events that do not count, and on verdicts that are all yes."""
    notes = []
    if verdicts.elsewhere:
        notes.append(
            f"{verdicts.elsewhere} reviewed events are on no detection; they do not count"
        )
    if verdicts.detections["confirmed"].all():
        notes.append(
            "reviewed: all verdicts are yes; if only confirmed detections were kept, the call "
            "density is too high: give the folder of the review, or its table with those "
            "rejected"
        )
    return notes


def _score_task(
    task: Task,
    weights: FloatArray,
    window_s: float,
    threshold: float | None,
    aim: float | None,
) -> dict[str, Frame]:
    """Score detections against annotations; return frames by the fields of DetectionScores.

    `weights` are (samples, recordings), `aim` is in false alarms per hour and class. Scores by
    windows come first if too many annotated calls cannot be matched by events.
    """
    by_events = []  # detections of each class
    by_windows = []
    outcomes = []
    for label in task.labels:
        detections, outcome = rank_events(task, label)
        by_events.append(detections)
        by_windows.append(rank_windows(task, label, outcome, window_s))
        outcomes.append(outcome)
    unreachable = sum(detections.unreachable for detections in by_events)
    annotated = sum(int(detections.annotated.sum()) for detections in by_events)
    ranked = {"events": by_events, "windows": by_windows}
    if unreachable > MAX_UNREACHABLE * annotated:
        ranked = {"windows": by_windows, "events": by_events}
    order = ("recording", "start_s", "end_s", "label", "score", "outcome")
    frames = {"outcomes": pl.concat(outcomes).sort(order)}
    curves = []
    scores = []
    for by, classes in ranked.items():
        for detections in classes:
            label = detections.label
            scores.append(_score_row(by, label, [detections], weights, threshold))
            if detections.has_scores:
                curves.append(precision_recall_curve(detections, by))
        all_labels = None
        scores.append(_score_row(by, all_labels, classes, weights, threshold))
    frames["curve"] = concat_frames(curves, PRECISION_RECALL)
    frames["scores"] = concat_frames(scores, DETECTION_SCORES)
    if aim is not None:
        if not task.durations_s:
            raise OptionError(
                "false_alarms: an aim per hour needs the lengths of the recordings "
                "(--recordings)"
            )
        by = next(iter(ranked))  # what comes first in the scores
        thresholds = [
            find_threshold(frames["curve"], label, aim, by) for label in task.labels
        ]
        frames["thresholds"] = concat_frames(thresholds, AIM_THRESHOLDS)
    return frames


def _read_classes(detections: Events) -> list[str] | None:
    """Return the classes of the model that found the detections, None if it is not known."""
    if isinstance(detections, pl.DataFrame):
        return None
    path = find_event_table(to_path(detections))
    scan = path.parent / SCAN_FACTS
    if not scan.is_file():
        return None
    facts = read_intact_provenance(scan)
    if path.name not in facts["files"] or "classes" not in facts:
        return None
    return [row["label"] for row in facts["classes"]]


@dataclass
class _Inputs:
    """Events as they are read: the recordings that they are on, rejects and notes."""

    folder: RecordingFolder | None = None
    durations_s: dict[str, float] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(
        self, source: Events, columns: Mapping[str, str] | None = None, *, check: bool
    ) -> Frame:
        """Return the events of a file or frame, with the names that the recordings have.

        They have the columns of PLACE too, empty for those of a frame. `check` is as for
        `read_events`.
        """
        if isinstance(source, pl.DataFrame):
            # Empty cells: the rows of a frame are in no file.
            places = pl.DataFrame(schema=PLACE).clear(len(source))
            events = complete_events(source).drop(PLACE, strict=False)
            table = EventTable(events.hstack(places))
        else:
            options = make_annotation_options(columns=columns or {})
            table = read_events(to_path(source), self.folder, options, check=check)
        if len(table.events) == 0 and table.rejects:
            first = table.rejects[0]
            row = "" if first.row is None else f", row {first.row}"
            raise InputError(
                f"{first.file}{row}: {first.reason}; no row is left to score "
                f"({count_text(len(table.rejects), 'reject')})"
            )
        self.rejects += table.rejects
        self.notes += table.notes
        if self.durations_s:
            return rename_recordings(table.events, self.durations_s)
        return table.events

    def read_once(
        self, source: Events, kind: str, columns: Mapping[str, str] | None = None
    ) -> Frame:
        """Read events, cut them to their recordings, and reject repeated ones.

        `kind` is what they are, for notes. Of events that are the same, that with the highest score
        comes first and counts.
        """
        events = self.read(source, columns, check=False)
        events = events.sort(
            "score", descending=True, nulls_last=True, maintain_order=True
        )
        lengths = [self.durations_s.get(name) for name in events["recording"]]
        start_s = pl.col("start_s")
        end_s = pl.col("end_s")
        duration_s = pl.col("duration_s")
        same = pl.struct(
            "recording", "label", start_s.round(DIGITS), end_s.round(DIGITS)
        )
        events = events.with_columns(duration_s=pl.Series(lengths, dtype=pl.Float64))
        events = events.with_columns(
            is_repeated=~same.is_first_distinct(),
            # Where a length is not known, the last comparison is null, which counts as False.
            is_outside=(end_s <= start_s) | (end_s <= 0) | (start_s >= duration_s),
        )
        is_reject = pl.col("is_repeated") | pl.col("is_outside").fill_null(False)
        for row in events.filter(is_reject).iter_rows(named=True):
            span = f"{row['start_s']:.6g} to {row['end_s']:.6g} s"
            reason = f"{span} is no span inside {row['recording']}"
            if row["is_repeated"]:
                reason = "the same span and label as another row, which counts instead"
            is_in_file = row["file"] is not None
            if not is_in_file:  # a frame has no row numbers to find it by
                reason = f"{row['recording']}, {span}: {reason}"
            file = row["file"] if is_in_file else "memory"
            self.rejects.append(Reject(file, row["row"], reason))
        kept = events.filter(~is_reject)
        ends_after = end_s.round(DIGITS) > duration_s.round(DIGITS)
        count = len(kept.filter((start_s < 0) | ends_after))
        if count:
            self.notes.append(
                f"{count} of {len(kept)} {kind} begin before their recording or end after it; "
                "they are cut to it"
            )
        # min_horizontal leaves out the lengths that are not known.
        kept = kept.with_columns(
            start_s=pl.max_horizontal("start_s", pl.lit(0.0)),
            end_s=pl.min_horizontal("end_s", "duration_s"),
        )
        return complete_events(kept.select(*EVENTS))


def _open_inputs(recordings: Recordings | None) -> _Inputs:
    """Return inputs without events, on recordings as `score_detections` takes them."""
    inputs = _Inputs()
    if isinstance(recordings, Mapping):
        inputs.durations_s = dict(recordings)
    elif recordings is not None:
        inputs.folder = open_recordings(to_path(recordings))
        inputs.durations_s = inputs.folder.durations_s
        for path, error in inputs.folder.errors.items():
            inputs.rejects.append(Reject(path, row=None, reason=str(error)))
    return inputs


def _check_task(task: Task, *, needs_scores: bool) -> list[str]:
    """Check that detections can be scored; return what to know before scores are believed."""
    durations_s = task.durations_s
    known = count_text(len(durations_s), "recording")
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
    unannotated = durations_s.keys() - set(task.annotations["recording"])
    detected = sorted(set(task.detections["label"]))
    annotated = sorted(set(task.annotations["label"]))
    return say("task", task, unannotated, detected, annotated)


def _score_row(
    by: str,
    label: str | None,
    classes: Sequence[RankedDetections],
    weights: FloatArray,
    threshold: float | None,
) -> Frame:
    """Return a row of DETECTION_SCORES: some classes together, with percentiles of the samples.

    `by` and `label` (None for all) are cells of the row; `weights` are (samples, recordings).
    """
    equal_weights = np.ones((1, weights.shape[1]))
    values = measure(classes, equal_weights, threshold)
    samples = measure(classes, weights, threshold)
    for metric in DETECTION_METRICS:
        sampled = samples[metric]
        defined = sampled[~np.isnan(sampled)]
        is_undefined = np.isnan(values[metric]).any()
        if is_undefined or len(defined) == 0:
            defined = np.array([np.nan])
        for suffix, percent in INTERVAL.items():
            # A list of one percentage gives an array, as the other values are.
            values[metric + suffix] = np.percentile(defined, [percent])
    unreachable = sum(detections.unreachable for detections in classes)
    constants = {"by": by, "label": label, "unreachable": unreachable}
    return make_frame(DETECTION_SCORES, values, constants).fill_nan(None)


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
    """Write the frames that have rows, and rejects; with `figure`, also curves as PDF and PNG.

    Return the paths. `options` are kept in provenance.json.
    """

    def make(folder: Path) -> list[str]:
        """Write the files to a folder; return their names."""
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
                names += [path.name for path in draw_page(page, folder)]
        return names

    totals = result.scores.filter(result.scores["label"].is_null())
    names = ("by", "annotated", "unreachable", *DETECTED)
    rows = totals.select(names).iter_rows(named=True)
    facts = {
        "version": __version__,
        "options": dict(options),
        "totals": {row.pop("by"): row for row in rows},
        "warnings": result.warnings,
        "notes": result.notes,
    }
    return output.write(make, facts)


def plan_curves(result: DetectionScores) -> Pages:
    """Return pages of precision over recall, a panel for each class that has annotations.

    The title has the average precision of the first way of counting, which is the one to believe.
    """
    panels = []
    for label in unique_values(result.curve, "label"):
        rows = result.scores.filter(label=label)
        average_precision = rows["average_precision"].drop_nulls()
        if len(average_precision):
            title = f"{label}, AP {average_precision[0]:.2f}"
            panels.append((title, result.curve.filter(label=label)))
    return make_pages("precision_recall", panels, LAYOUT.capacity, _compose)


def _compose(figure: "Figure", panels: Sequence[Panel]) -> None:
    """Draw precision over recall, by events and by windows, one panel for each class."""
    stacks, width_in = LAYOUT.add_panels(figure, len(panels), ("precision",))
    axes = stacks[:, 0]
    for ax, (_, curve) in zip(axes, panels, strict=True):
        ways = unique_values(curve, "by")
        for by in ways:
            points = curve.filter(by=by)
            points_per_mark = max(1, len(points) // 8)  # 8 marks on a curve
            style = {**LINES[by], "markevery": points_per_mark}
            ax.plot(points["recall"], points["precision"], **style)
        ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.04))
        ax.tick_params(labelbottom=True, labelleft=True)
    titles = [title for title, _ in panels]
    set_titles(axes, titles, width_in - TITLE_MARGIN_IN)
    legend = {f"by {by}": LINES[by] for by in ways}  # as in the last panel
    add_legend(figure, legend, "recall")


SAME_S = 1e-6  # times that differ by less are the same
PRIOR = 0.5  # of calls and of others in each bin: Jeffreys'
SAMPLES = 10_000
PERCENTILES = (1, 99)


@dataclass(frozen=True)
class Verdicts:
    """What reviewers said of detections.

    detections  the reviewed ones, with `confirmed`: whether they are calls of their label
    relabelled  how many calls of each label are among detections of other labels
    elsewhere   how many reviewed events are on no detection
    """

    detections: Frame
    relabelled: Counter[str]
    elsewhere: int


def find_verdicts(detections: Frame, reviewed: Frame) -> Verdicts:
    """Return the verdict on every detection that was reviewed.

    A reviewed event belongs to the detection with the same span, else to one of the same label that
    shares time with it, else to the one that fits it best. Rows of `reviewed` without a verdict in
    `confirmed` do not count.
    """
    rows = reviewed.filter(pl.col("confirmed").is_not_null())
    if rows.is_empty():
        raise InputError("reviewed: no row has yes or no in its column confirmed")
    rows = rename_recordings(rows, detections["recording"].unique())
    labels = detections["label"].to_list()
    spans = detections.select("start_s", "end_s").to_numpy()
    partners = find_partners(rows, detections, ANY_OVERLAP)
    is_call: dict[int, bool] = {}  # by the row of a detection
    new_labels = set()  # pairs of the row of a detection and a label that it was given
    elsewhere = 0
    verdicts = rows.select("start_s", "end_s", "label", "confirmed").rows()
    for (*span, label, confirmed), near in zip(verdicts, partners, strict=True):
        # A rejected roar says nothing about a detection with another label.
        candidates = [row for row in near if confirmed or labels[row] == label]
        if not candidates:
            elsewhere += 1
            continue
        differences_s = np.abs(spans[candidates] - span)
        has_other_span = differences_s.max(axis=1) >= SAME_S
        has_other_label = [labels[row] != label for row in candidates]
        # The same span first, then the same label; candidates come with the best fit first.
        order = np.lexsort((has_other_label, has_other_span))
        best = candidates[order[0]]
        is_own = confirmed and label == labels[best]
        # A detection is a call if any of its parts was confirmed.
        is_call[best] = is_call.get(best, False) or is_own
        if confirmed and not is_own:
            new_labels.add((best, label))
    if not is_call:
        raise InputError(
            f"reviewed: none of the {len(rows)} reviewed events is on one of the "
            f"{len(detections)} detections; give the detections that were reviewed"
        )
    reviewed_rows = sorted(is_call)
    confirmed_calls = pl.Series([is_call[row] for row in reviewed_rows])
    return Verdicts(
        detections=detections[reviewed_rows].with_columns(confirmed=confirmed_calls),
        relabelled=Counter(label for _, label in new_labels),
        elsewhere=elsewhere,
    )


def estimate_density(
    detections: Frame, verdicts: Verdicts, bins: int, seed: int
) -> Frame:
    """Estimate the number of calls of each class with reviewed or relabelled detections."""
    if detections["score"].has_nulls():
        raise InputError("reviewed: every detection needs a score, to know its bin")
    reviewed = verdicts.detections
    parts = []
    for label in sorted({*reviewed["label"], *verdicts.relabelled}):
        scores = detections.filter(label=label)["score"].to_numpy()
        if len(scores) > 0:
            own = reviewed.filter(label=label)
            rows = _estimate_class(label, scores, own, bins, seed)
        else:  # only a total, of calls that were relabelled
            rows = pl.DataFrame([{"label": label}], dict(CALL_DENSITY)).with_columns(
                pl.col("detections", "reviewed", "confirmed").fill_null(0),
                pl.col("calls", "calls_p01", "calls_p99").fill_null(0.0),
            )
        is_total = pl.col("bin").is_null()
        relabelled = pl.when(is_total).then(verdicts.relabelled[label]).otherwise(0)
        rows = rows.with_columns(
            pl.col("calls", "calls_p01", "calls_p99") + relabelled,
            relabelled=relabelled.cast(pl.Int64),
        )
        parts.append(rows)
    return concat_frames(parts, CALL_DENSITY)


def _estimate_class(
    label: str, scores: FloatArray, verdicts: Frame, bins: int, seed: int
) -> Frame:
    """Return rows of CALL_DENSITY: one for each bin of the scores of a class, and the total.

    `scores` are of all detections of the class, `verdicts` are those of them that were reviewed.
    """
    edges = quantile_edges(scores, bins)
    reviewed_scores = verdicts["score"].to_numpy()
    is_confirmed = verdicts["confirmed"].to_numpy()
    counts = {
        "detections": _count_in_bins(scores, edges),
        "reviewed": _count_in_bins(reviewed_scores, edges),
        "confirmed": _count_in_bins(reviewed_scores[is_confirmed], edges),
    }
    sizes = counts["detections"]
    # The share of calls in each bin has a Beta distribution.
    rejected = counts["reviewed"] - counts["confirmed"]
    alpha = counts["confirmed"] + PRIOR
    beta = rejected + PRIOR
    shares = stats.beta(alpha, beta)
    quantiles = np.array(PERCENTILES) / 100
    low, high = shares.ppf(quantiles[:, None])
    # The total has no distribution of its own: it is sampled.
    sampled_shares = shares.ppf(_draw_uniform(label, len(sizes), seed))
    calls = (sampled_shares * sizes).sum(axis=1)  # of each sample
    total_shares = calls / len(scores)
    total_low, total_high = np.percentile(total_shares, PERCENTILES)
    # In each column, the last value is the total.
    columns = {
        "bin": [*range(1, len(sizes) + 1), None],
        "lowest_score": [*edges[:-1], edges[0]],
        "highest_score": [*edges[1:], edges[-1]],
    }
    for name, count in counts.items():
        columns[name] = [*count, count.sum()]
    means = shares.mean()
    total_mean = means @ sizes / len(scores)
    estimates = {
        "": [*means, total_mean],
        "_p01": [*low, total_low],
        "_p99": [*high, total_high],
    }
    detections = np.array(columns["detections"])
    for suffix, share in estimates.items():
        columns[f"share{suffix}"] = share
        columns[f"calls{suffix}"] = share * detections
    return make_frame(CALL_DENSITY, columns, {"label": label, "relabelled": 0})


def _count_in_bins(scores: FloatArray, edges: FloatArray) -> FloatArray:
    """Return how many scores are in each bin; those beyond the edges are in the first or last."""
    bin_of_score = np.searchsorted(edges[1:-1], scores, side="right")
    counts = np.bincount(bin_of_score, minlength=len(edges) - 1)
    return counts.astype(np.float64)


def _draw_uniform(label: str, bins: int, seed: int) -> FloatArray:
    """Return random numbers in (0, 1), (SAMPLES, bins), that depend on seed and label only."""
    picks = np.empty((bins, SAMPLES), np.uint32)
    stream = streams.make_stream(seed, "call density", streams.key(label))
    largest = 2**32 - 1
    bin_numbers = np.arange(bins, dtype=np.uint64)
    streams.bootstrap_picks(stream, bin_numbers, largest, picks)
    return (picks.T + 0.5) / largest


def quantile_edges(scores: FloatArray, bins: int) -> FloatArray:
    """Return the scores between which bins lie; equal scores are in one bin.

    >>> quantile_edges(np.array([1.0, 2.0, 3.0, 4.0]), 2).tolist()
    [1.0, 2.5, 4.0]
    """
    shares = np.linspace(0, 1, bins + 1)
    edges = np.unique(np.quantile(scores, shares))
    if len(edges) == 1:  # all scores are equal: one bin begins and ends there
        return np.repeat(edges, 2)
    return edges


def show_scores(result: DetectionScores, console: Console) -> None:
    """Print the scores of every class, thresholds and call density, then rejects and notes."""
    warnings = [f"note: {line}" for line in result.warnings]
    print_lines(console, warnings, "yellow")
    for by in unique_values(result.scores, "by"):
        scores = result.scores.filter(by=by).to_dicts()
        print_lines(console, say("scores", by, scores))
    if len(result.scores) > 0:
        print_lines(console, say("columns"), "dim")
    thresholds = result.thresholds.to_dicts()
    print_lines(console, say("thresholds", thresholds))
    if len(result.density) > 0:
        density = result.density.to_dicts()
        print_lines(console, say("density", density))
    show_rejects(result.rejects, console)
    notes = [f"note: {note}" for note in result.notes]
    print_lines(console, notes, "yellow")
