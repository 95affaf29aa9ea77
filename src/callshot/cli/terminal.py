"""What commands print of corpora, encoders, evaluations, baselines and transfers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console

from callshot.console import describe_rejects, format_time, print_lines
from callshot.corpus.segments import describe_minimum, group_rejects
from callshot.encoders.catalogue import PATTERNS, list_specs
from callshot.encoders.install import describe_weight, list_needs
from callshot.encoders.spec import RECOMMENDED, EncoderSpec
from callshot.errors import count_text
from callshot.records import (
    METRIC_NAMES,
    RANKING_METRICS,
    ClassCount,
    Evaluation,
    FloatArray,
    Inspection,
    Segmentation,
    TransferEvaluation,
)
from callshot.records.frames import Frame, Shots
from callshot.records.terms import comparison_spread, preferred_spread
from callshot.report.choices import (
    FEW_SHOTS,
    SPREAD_NOTES,
    largest_shot,
    turn_differences,
)
from callshot.report.summary.context import say
from callshot.report.summary.sentences import (
    describe_licences,
    describe_repetition,
    describe_sensitivity,
)
from callshot.report.tables.score_tables import mark_shots
from callshot.report.tables.table import (
    Cell,
    Column,
    Table,
    Value,
    make_rows,
    to_terminal,
)

MAX_EXCLUDED = 6
MAX_SHOTS = 12
ROUND_SHOTS = {1, 2, 3, 4, 5} | {
    number * 10**exponent
    for exponent in range(6)
    for number in (10, 15, 20, 30, 40, 60, 80)
}
ONLY_STANDINS = (
    "Tested on small models with the same inputs and outputs, not on published weights"
)


def print_table(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[Value]],
    title: str = "",
    foot: int = 0,
) -> None:
    """Print rows under their columns, with a title above; the last `foot` rows are pale."""
    table = Table(
        name="",
        title=title,
        columns=list(map(Column, columns)),
        rows=make_rows(rows),
        foot=foot,
    )
    if not console.is_terminal:
        console = Console(file=console.file, width=max(console.width, 240))
    if title:
        console.print()
        print_lines(console, [title], "bold")
    console.print(to_terminal(table))


def show_encoders(console: Console) -> None:
    """Print a row for each encoder, and what it still needs before it runs."""
    specs = list_specs()
    rows: list[list[Value]] = [
        [spec.name, spec.dimension, spec.input, _describe_needs(spec)] for spec in specs
    ]
    print_table(console, ("encoder", "values", "takes", "state"), rows)
    untried = [spec.name for spec in specs if not spec.tested_with_real_weights]
    lines = [
        "",
        *describe_licences({spec.name: spec.licence for spec in specs}),
        f"{ONLY_STANDINS}: {', '.join(untried)}" if untried else "",
        f"To begin with: {RECOMMENDED}",
        "callshot encoders show NAME prints the details of one encoder; "
        f"{' and '.join(PATTERNS)} are encoders too",
    ]
    print_lines(console, lines)


def format_band(low_hz: float, high_hz: float) -> str:
    """Return a band of frequencies as text.

    >>> format_band(62.5, 1875.0), format_band(4000, 3000)
    ('62 to 1,875 Hz', 'none')
    """
    return f"{low_hz:,.0f} to {high_hz:,.0f} Hz" if low_hz < high_hz else "none"


def show_coverage(coverage: Frame, console: Console) -> None:
    """Print a row for each encoder and speed; the ones that speed=auto would choose are marked."""
    rows = []
    for row in coverage.iter_rows(named=True):
        mark = " auto" if row["auto"] else ""
        band = format_band(row["low_hz"], row["high_hz"])
        speed = row["speed"]
        energy = row["energy"]
        windows = row["windows"]
        padding = row["padding"]
        cells = [row["encoder"], f"{speed:g}{mark}", band]
        cells += [f"{energy:.0%}", f"{windows:.1f}", f"{padding:.0%}"]
        rows.append(cells)
    columns = ("encoder", "speed", "band", "energy", "windows", "padding")
    print_table(console, columns, rows)


def show_encoder(spec: EncoderSpec, console: Console) -> None:
    """Print everything that affects the numbers of one encoder."""
    lines = say("encoder", spec).splitlines()
    for weight in (*spec.weights, *spec.alternatives):
        source = weight.source
        if weight in spec.alternatives:
            source += " (for torch, instead)" if weight.is_for_torch else " (instead)"
        trust = describe_weight(spec, weight)
        lines.append(f"weights: {weight.file} from {source}, {trust}")
    if not spec.tested_with_real_weights:
        lines.append(f"{ONLY_STANDINS}; callshot encoders check {spec.name}")
    print_lines(console, [*lines, _describe_needs(spec)])


def _describe_needs(spec: EncoderSpec) -> str:
    """Return what an encoder still needs before it runs, or that it is ready."""
    needs = list_needs(spec)
    return f"needs: {', then '.join(needs)}" if needs else "ready"


WITH_INTERVAL = "{mean:.3f} [{p01:.3f}–{p99:.3f}]"


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation: classes, curves, which encoder is better, and notes."""
    print_lines(console, [say("evaluation", evaluation)], "bold")
    excluded = evaluation.excluded_classes
    if excluded:
        counts = f"{len(excluded)} of {len(evaluation.classes)} classes"
        print_lines(console, [f"not eligible: {counts}"], "dim")
    reasons = list(map("  {0.label} ({0.exemplars}): {0.reason}".format, excluded))
    _show_first(console, reasons, MAX_EXCLUDED, "class", rest=", see classes.csv")
    _show_curves(evaluation, console)
    print_lines(console, describe_better(evaluation), "bold")
    shots = {*evaluation.partitions["k"], *evaluation.sensitivity["k"]}
    if shots:
        k = largest_shot(shots, evaluation.complete_shots)
        sources = (evaluation.sensitivity, evaluation.sensitivity_means)
        print_lines(console, describe_repetition(evaluation.partitions, k))
        print_lines(console, describe_sensitivity(*sources, k))
    notes = [f"note: {note}" for note in evaluation.notes]
    print_lines(console, notes, "yellow")


def _show_curves(evaluation: Evaluation, console: Console) -> None:
    """Print a table for each encoder and scoring: mAP in every spread, AUROC, and chance."""
    curve = evaluation.curve
    evaluated = sorted(set(curve["k"]))
    shots = choose_shots(evaluated)
    cells_of_k, (mark, note) = mark_shots(shots, evaluation.complete_shots)
    columns = {f"mAP {spread}": ("map", spread) for spread in evaluation.spreads}
    auroc_spread = preferred_spread(evaluation.spreads)
    columns["AUROC"] = ("auroc", auroc_spread)
    groups = curve.group_by(["encoder", "scoring"], maintain_order=True)
    for (encoder, scoring), points in groups:
        rows: dict[Any, list[Value]] = {k: [cells_of_k[k]] for k in shots}
        rows["chance"] = ["chance"]
        for metric, spread in columns.values():
            template = WITH_INTERVAL if metric == "map" else "{mean:.3f}"
            line = points.filter(metric=metric, spread=spread)
            by_k = line.rows_by_key("k", named=True, unique=True)
            for k in shots:
                cell = ""
                if k in by_k:
                    cell = template.format_map(by_k[k])
                rows[k].append(cell)
            chance = line["chance"][-1]  # at the last k
            rows["chance"].append(f"{chance:.3f}")
        title = str(encoder)
        if scoring != "all":
            title += f", {scoring}"
        print_table(console, ("k", *columns), rows.values(), title, foot=1)
    console.print()
    print_lines(console, [f"{mark} {note}".strip()], "dim")
    for spread in evaluation.spreads:
        spread_note = SPREAD_NOTES[spread]
        legend = f"{spread}: mean [1st–99th percentile], {spread_note}"
        print_lines(console, [legend], "dim")


def describe_better(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each encoder but the best: how far its mAP is behind, at one k."""
    spread = preferred_spread(evaluation.spreads)
    encoders = evaluation.encoders
    differences = evaluation.differences.filter(
        pl.col("one").is_in(encoders) & pl.col("other").is_in(encoders),
        scoring="all",
        metric="map",
        spread=comparison_spread({spread, *evaluation.differences["spread"]}),
    )
    if differences.is_empty():
        return
    k = largest_shot(differences["k"], min(FEW_SHOTS, evaluation.complete_shots))
    rows = differences.filter(k=k).with_row_index()  # the order of the sentences
    points = evaluation.curve.filter(scoring="all", metric="map", spread=spread, k=k)
    best = points.sort("mean", "encoder")["encoder"][-1]
    # Each pair is there once, in either direction.
    both_ways = pl.concat([rows, turn_differences(rows)])
    for row in both_ways.filter(one=best).sort("index").iter_rows(named=True):
        yield say("better", row)


def choose_shots(shots: Shots) -> list[int]:
    """Return the shots to show: all if they are few, else round numbers and both ends.

    >>> choose_shots(range(1, 38))
    [1, 2, 3, 4, 5, 10, 15, 20, 30, 37]
    """
    if len(shots) <= MAX_SHOTS:
        return list(shots)
    return [k for k in shots if k in ROUND_SHOTS | {shots[0], shots[-1]}]


MAX_LABELS = 40
MAX_REJECT_REASONS = 8
MAX_FILES = 3
MAX_NOTES = 8
BAR_LENGTH = 24
WIDE_TERMINAL = 130  # columns from which on everything is shown
DURATIONS = ("total", "mean", "min", "max", "std. dev.")


def show_segmentation(
    segmentation: Segmentation,
    console: Console,
    next_step: str = "",
    inspection: Inspection | None = None,
) -> None:
    """Print the sources, durations and labels of a corpus, and its rejects with reasons.

    With an inspection, print also which labels and folds the protocol could use.
    """
    for name, reason, number in segmentation.sources:
        noun_of_source = "folder" if name == "folders" else "file"
        files = count_text(number, noun_of_source)
        print_lines(console, [f"annotations: {name} in {files}, as {reason}"])
    recordings = segmentation.recordings
    annotated = [one for one in recordings if one.path in segmentation.annotated]
    summary = say("segmentation", segmentation, len(annotated))
    print_lines(console, [summary], "bold")
    print_lines(console, [describe_minimum(segmentation)])
    noun = segmentation.file_noun
    durations_s = {
        f"{noun}s": np.array([one.duration_s for one in recordings]),
        f"annotated {noun}s": np.array([one.duration_s for one in annotated]),
        "annotated calls": segmentation.calls.durations_s,
        "segments": segmentation.segments.durations_s,
    }
    rows: list[list[Value]] = [
        [name, len(values), *_format_durations(values)]
        for name, values in durations_s.items()
    ]
    console.print()
    print_table(console, ("", "number", *DURATIONS), rows)
    classes = inspection.classes if inspection else ()
    _show_labels(segmentation, console, classes)
    _show_left_out(segmentation, console)
    if inspection is not None:
        eligible = [one for one in inspection.classes if one.eligible]
        queries = sum(sum(one.per_fold) for one in eligible)
        folds = [say("possible_folds", inspection.labels_by_folds)]
        if inspection.folds is not None:
            folds.append(say("folds", inspection, len(eligible), queries))
        print_lines(console, folds, "bold")
    notes = [f"note: {note}" for note in segmentation.notes]
    _show_first(console, notes, MAX_NOTES, "note", style="yellow")
    print_lines(console, [next_step])


def _show_left_out(segmentation: Segmentation, console: Console) -> None:
    """Print the rejected annotations by reason, and the files that were skipped."""
    rejects = segmentation.rejects
    if rejects:
        count = count_text(len(rejects), "annotation")
        print_lines(console, [f"rejects: {count}; the first of each reason:"])
    reasons = [describe_rejects(group) for group in group_rejects(rejects)]
    rest = "; segment lists all in rejects.csv"
    _show_first(console, reasons, MAX_REJECT_REASONS, "reason", rest)
    skipped = segmentation.skipped_files
    if skipped:
        count = count_text(len(skipped), "file")
        print_lines(console, [f"left out: {count}"])
    files = [f"  {file.file}: {file.reason}" for file in skipped]
    rest = "; segment lists them in rejects.csv"
    _show_first(console, files, MAX_FILES, "file", rest)


def show_inspection(
    inspection: Inspection, console: Console, next_step: str = ""
) -> None:
    """Print what a folder has, how its files pair, and what the protocol could do with it."""
    formats = Counter(
        f"{one.kind} at {one.rate_hz:g} Hz, {count_text(one.channels, 'channel')}"
        for one in inspection.segmentation.recordings
    )
    counts = [f"{count} {name}" for name, count in formats.most_common()]
    print_lines(console, [f"audio: {'; '.join(counts) or 'no readable files'}"])
    show_segmentation(inspection.segmentation, console, next_step, inspection)


def _show_first(
    console: Console,
    lines: Sequence[str],
    most: int,
    noun: str,
    rest: str = "",
    style: str = "dim",
) -> None:
    """Print the first `most` lines, and how many more there are; `rest` ends the line on that.

    `noun` is what a line is about.
    """
    print_lines(console, lines[:most], style)
    if len(lines) > most:
        more = count_text(len(lines) - most, f"more {noun}")
        print_lines(console, [f"and {more}{rest}"], "dim")


def _format_durations(durations_s: FloatArray) -> list[Cell]:
    """Return the cells of DURATIONS, as in the tables of the paper; empty without durations."""
    if not len(durations_s):
        return [Cell("")] * len(DURATIONS)
    total_s = float(durations_s.sum())
    cells = [Cell(format_time(total_s, 1), total_s)]
    for measure in (np.mean, np.min, np.max, np.std):
        value_s = float(measure(durations_s))
        cells.append(Cell(f"{value_s:.2f} s", value_s))
    return cells


def _show_labels(
    segmentation: Segmentation, console: Console, classes: Sequence[ClassCount]
) -> None:
    """Print a row for each label, most segments first; with `classes`, whether it is eligible.

    A narrow terminal gets fewer columns.
    """
    columns = ["label", "calls", "segments", "recordings"]
    is_wide = not console.is_terminal or console.width >= WIDE_TERMINAL
    if is_wide:
        columns += [*DURATIONS, ""]  # "" is a bar of the number of segments
    else:
        columns += ["mean"] if classes else ["mean", "min", "max"]
    if classes:
        columns.append("eligible")
    eligibility = {}
    for count in classes:
        eligibility[count.label] = f"no: {count.reason}"
        if count.eligible:
            eligibility[count.label] = f"yes, to k = {count.complete_to_k}"
    segments = segmentation.segments
    segment_counts = Counter(segments["label"])
    most = max(segment_counts.values(), default=1)
    label_of_segment = np.array(segments["label"], object)
    call_counts = Counter(segmentation.calls["label"])
    labels = sorted(
        call_counts,
        key=lambda name: (-segment_counts[name], -call_counts[name], name),
    )
    name_length = 40 if is_wide else 24
    rows = []
    for label in labels[:MAX_LABELS]:
        members = segments.take(np.flatnonzero(label_of_segment == label))
        durations = _format_durations(members.durations_s)
        cells: dict[str, Value] = dict(zip(DURATIONS, durations, strict=True))
        name = label
        if len(label) > name_length:
            name = f"{label[: name_length - 1]}…"
        recordings = set(members["recording"])
        bar_length = round(BAR_LENGTH * len(members) / most)
        cells["label"] = name
        cells["calls"] = call_counts[label]
        cells["segments"] = len(members)
        cells["recordings"] = len(recordings)
        cells[""] = "━" * bar_length
        cells["eligible"] = eligibility.get(label, "no: no segments")
        rows.append([cells[column] for column in columns])
    console.print()
    print_table(console, columns, rows)
    console.print()
    if len(labels) > MAX_LABELS:
        more = count_text(len(labels) - MAX_LABELS, "more label")
        print_lines(console, [f"and {more}"], "dim")


SCORE_WITH_INTERVAL = "{value:.3f} [{p01:.2f}, {p99:.2f}]"


def show_baselines(baselines: Frame, console: Console) -> None:
    """Print the scores of each baseline with their intervals, by encoder and scoring."""
    if baselines.is_empty():
        return
    names = ("name", "encoder", "scoring")
    rows = []
    for lines in baselines.partition_by(names):
        scores = dict.fromkeys(RANKING_METRICS, "")
        for row in lines.iter_rows(named=True):
            has_interval = isfinite(row["p01"])
            template = SCORE_WITH_INTERVAL if has_interval else "{value:.3f}"
            scores[row["metric"]] = template.format_map(row)
        texts = [row[name] for name in names]
        rows.append([*texts, *scores.values(), row["how"]])
    metrics = [METRIC_NAMES[metric] for metric in RANKING_METRICS]
    print_table(console, ("baseline", "encoder", "scoring", *metrics, "how"), rows)


def show_crossovers(crossovers: Frame, console: Console) -> None:
    """Print where curves of mAP cross, a line for each."""
    rows = crossovers.filter(metric="map").iter_rows(named=True)
    print_lines(console, [say("crossover", row) for row in rows])


HEADINGS = ("transfer", "within target", "within source")  # of the curves
MEAN_WITH_INTERVAL = "{mean:.2f} [{p01:.2f}, {p99:.2f}]"
DIFFERENCE = "{mean:+.2f} [{p01:+.2f}, {p99:+.2f}]"


def show_transfer(result: TransferEvaluation, console: Console) -> None:
    """Print the difference from the target's own examples, the curves, and the notes."""
    print_lines(console, describe_transfer(result), "bold")
    spread = preferred_spread(result.spreads)
    compared = comparison_spread(result.transfer_difference["spread"])
    for encoder in result.encoders:
        curves = list(result.list_curves(encoder).values())
        differences = result.transfer_difference.filter(one=encoder)
        first_curve, *other_curves = curves
        # The texts of each column by k: mAP of the curves, and the difference.
        texts_of_columns = [_format_points(first_curve, spread, MEAN_WITH_INTERVAL)]
        texts_of_columns += [_format_points(curve, spread) for curve in other_curves]
        texts_of_difference = _format_points(differences, compared, DIFFERENCE)
        texts_of_columns.append(texts_of_difference)
        # The accuracies of the transfer and within the target share a column.
        accuracies = [
            _format_points(curve, spread, metric="accuracy") for curve in curves[:2]
        ]
        rows: list[list[Value]] = []
        for k in choose_shots(sorted(texts_of_difference)):
            cells = [texts.get(k, "") for texts in texts_of_columns]
            right_names = " / ".join(texts.get(k, "") for texts in accuracies)
            rows.append([k, *cells, right_names])
        columns = ("k", *HEADINGS[: len(curves)], "difference", "right names")
        print_table(console, columns, rows, encoder)
    legend = say("transfer_legend", result, spread, SPREAD_NOTES[spread])
    console.print()
    print_lines(console, legend.splitlines(), "dim")
    notes = [f"note: {note}" for note in result.notes]
    print_lines(console, notes, "yellow")


def _format_points(
    curve: Frame, spread: str, template: str = "{mean:.2f}", metric: str = "map"
) -> dict[int, str]:
    """Return the points of a curve as texts, by k; the template may use all its columns."""
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    return {row["k"]: template.format_map(row) for row in points.to_dicts()}


def describe_transfer(result: TransferEvaluation) -> Iterator[str]:
    """Yield a sentence for each encoder: how well examples of the source name calls of the target.

    It is about 5 examples, or the nearest k that both curves have in full.
    """
    last_k = min(result.complete_shots, result.within_target.complete_shots)
    shots = sorted(set(result.transfer_difference["k"]))
    complete = [k for k in shots if k <= last_k] or shots[:1]
    k = min(complete, key=lambda k: abs(k - FEW_SHOTS))
    spread = preferred_spread(result.spreads)
    compared = comparison_spread(result.transfer_difference["spread"])
    for encoder in result.encoders:
        differences = result.transfer_difference.filter(
            one=encoder, metric="map", spread=compared, scoring="all", k=k
        )
        transfer, within_target, *_ = result.list_curves(encoder).values()
        means = [
            _mean(transfer, "map", spread, k),
            _mean(transfer, "accuracy", spread, k),
            _mean(within_target, "accuracy", spread, k),
        ]
        yield say("transfer", result, differences.row(0, named=True), encoder, *means)


def _mean(curve: Frame, metric: str, spread: str, k: int) -> float:
    """Return the mean at k, or at the last shot of a curve that does not have this k."""
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    means = dict(points.select("k", "mean").iter_rows())
    return float(means.get(k, points["mean"][-1]))
