"""What a terminal shows of corpora, encoders, evaluations, baselines and transfers."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.corpus.segments import describe_minimum, group_rejects
from callshot.encoders.catalogue import PATTERNS, list_specs
from callshot.encoders.install import describe_weight, list_needs
from callshot.encoders.spec import EncoderSpec
from callshot.errors import count_text, printable
from callshot.records import (
    METRIC_NAMES,
    RANKING_METRICS,
    ClassCount,
    Evaluation,
    FloatArray,
    Inspection,
    Reject,
    Segmentation,
    TransferEvaluation,
)
from callshot.records.frames import Frame, Shots
from callshot.records.terms import NO_LICENCE, preferred_spread
from callshot.report.classifiers import SPREAD_NOTES, turn_differences
from callshot.report.progress import format_time

FEW_SHOTS = 5  # the largest k that counts as a few examples
MAX_EXCLUDED = 6
MAX_SHOTS = 12
ROUND_SHOTS = {1, 2, 3, 4, 5} | {
    number * 10**exponent
    for exponent in range(6)
    for number in (10, 15, 20, 30, 40, 60, 80)
}
LEFT = ("", "takes", "state", "eligible")  # columns of texts
ONLY_STANDINS = (
    "Tested on small models with the same inputs and outputs, not on published weights"
)


def print_lines(console: Console, lines: Iterable[str], style: str = "") -> None:
    """Print lines that are not empty, without control characters and markup."""
    for line in lines:
        if line:
            console.print(Text(printable(line), style), soft_wrap=True)


def make_table(*columns: str) -> Table:
    """Return a table without lines; columns of texts are aligned left, the others right."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(
            name,
            justify="left" if name in (columns[0], *LEFT) else "right",
            no_wrap=name not in ("state", "eligible"),
        )
    return table


def show_encoders(console: Console) -> None:
    """Print a row for each encoder, and what it still needs before it runs."""
    table = make_table("encoder", "values", "takes", "state")
    specs = list_specs()
    for spec in specs:
        name = Text(printable(spec.name))
        state = Text(_describe_needs(spec))
        table.add_row(name, str(spec.dimension), spec.input, state)
    console.print(table)
    untried = [spec.name for spec in specs if not spec.tested_with_real_weights]
    lines = [
        *describe_licences({spec.name: spec.licence for spec in specs}),
        f"{ONLY_STANDINS}: {', '.join(untried)}" if untried else "",
        "callshot encoders show NAME prints the details of one encoder; "
        f"{' and '.join(PATTERNS)} are encoders too",
    ]
    print_lines(console, lines)


def describe_licences(licences: Mapping[str, str]) -> Iterator[str]:
    """Yield the licences of the weights of encoders, if any have one.

    >>> list(describe_licences({"a": "Apache-2.0", "b": "CC BY-NC 4.0", "c": "Apache-2.0"}))
    ['Licences of weights: Apache-2.0 (a, c); CC BY-NC 4.0 (b).']
    """
    encoders: dict[str, list[str]] = {}
    for encoder, licence in licences.items():
        if licence != NO_LICENCE:
            encoders.setdefault(licence, []).append(encoder)
    texts = [f"{licence} ({', '.join(names)})" for licence, names in encoders.items()]
    if texts:
        yield printable(f"Licences of weights: {'; '.join(texts)}.")


ENCODER = """\
{0.name}: {0.title}
{0.dimension} values, {0.input}; licence {0.licence}
a louder segment: {0.loudness_effect}"""


def show_encoder(spec: EncoderSpec, console: Console) -> None:
    """Print everything that affects the numbers of one encoder."""
    settings = [f"{name}={value}" for name, value in spec.all_options().items()]
    lines = ENCODER.format(spec).splitlines()
    lines.append(f"options (--set): {', '.join(settings)}")
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
    needs = list_needs(spec)
    return f"needs: {', then '.join(needs)}" if needs else "ready"


HEADLINE = (
    "{0.corpus}: {classes} classes, {0.queries} queries, {0.folds.count} folds "
    "{0.folds.origin}{proof}, k* = {0.complete_shots}"
)
CELLS = {"map": "{mean:.3f} [{p01:.3f}–{p99:.3f}]"}  # by metric
HIGHER = "mAP is {mean:.3f} higher"
INTERVAL = f"{HIGHER} (98 % interval: {{low:.3f}} to {{high:.3f}})."
CLEAR = f"{{one}} is clearly better than {{other}}: {INTERVAL}"
NOT_CLEAR = f"it is not clear whether {{one}} is better than {{other}}: {INTERVAL}"
NOT_KNOWN = (
    f"{{one}} is ahead of {{other}}: {HIGHER}, and higher in {{percent:.0f}} % of samples; "
    "whether that is clear is not known."
)


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation: classes, curves, which encoder is better, and notes."""
    from callshot.fewshot.variation import (  # imports numba
        describe_repetition,
        describe_sensitivity,
    )

    folds = evaluation.folds
    headline = HEADLINE.format(
        evaluation,
        classes=len(evaluation.eligible_classes),
        proof=f" ({folds.proof})" if folds.origin == "built" else "",
    )
    excluded = evaluation.excluded_classes
    reasons = list(map("  {0.label} ({0.exemplars}): {0.reason}".format, excluded))
    repetition = []
    shots = {*evaluation.partitions["k"], *evaluation.sensitivity["k"]}
    if shots:
        k = largest_shot(shots, evaluation.complete_shots)
        sources = (evaluation.sensitivity, evaluation.sensitivity_means)
        repetition += describe_repetition(evaluation.partitions, k)
        repetition += describe_sensitivity(*sources, k)

    print_lines(console, [headline], "bold")
    if excluded:
        counts = f"{len(excluded)} of {len(evaluation.classes)} classes"
        print_lines(console, [f"not eligible: {counts}"], "dim")
    _show_first(console, reasons, MAX_EXCLUDED, "class", ", see classes.csv")
    _show_curves(evaluation, console)
    print_lines(console, describe_better(evaluation), "bold")
    print_lines(console, repetition)
    print_lines(console, [f"note: {note}" for note in evaluation.notes], "yellow")


def _show_curves(evaluation: Evaluation, console: Console) -> None:
    """Print a table for each encoder and scoring, and a legend."""
    curve = evaluation.curve
    shots = choose_shots(sorted(set(curve["k"])))
    star = starred_shot(shots, evaluation.complete_shots)
    styles: dict[object, str] = {star: "bold", "chance": "dim"}
    columns = {f"mAP {spread}": ("map", spread) for spread in evaluation.spreads}
    columns["AUROC"] = ("auroc", preferred_spread(evaluation.spreads))
    groups = curve.group_by(["encoder", "scoring"], maintain_order=True)
    for (encoder, scoring), points in groups:
        cells = {}
        for row in points.iter_rows(named=True):
            column = (row["metric"], row["spread"])
            template = CELLS.get(row["metric"], "{mean:.3f}")
            cells[*column, row["k"]] = template.format_map(row)
            cells[*column, "chance"] = "{chance:.3f}".format_map(row)
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
        table.add_column("k", justify="right")
        for heading in columns:
            table.add_column(heading, overflow="fold")
        for k in (*shots, "chance"):
            values = [cells.get((*key, k), "") for key in columns.values()]
            name = f"{k} ⋆" if k == star else str(k)
            table.add_row(name, *values, style=styles.get(k))
        console.print()
        title = encoder if scoring == "all" else f"{encoder}, {scoring}"
        print_lines(console, [str(title)], "bold")
        console.print(table)
    console.print()
    if star is not None:
        place = "" if star == evaluation.complete_shots else "the first row beyond "
        note = (
            f"⋆ {place}k* = {evaluation.complete_shots}; beyond k*, support is partial"
        )
        print_lines(console, [note], "dim")
    for spread in evaluation.spreads:
        line = f"{spread}: mean [1st–99th percentile], {SPREAD_NOTES[spread]}"
        print_lines(console, [line], "dim")


def describe_better(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each encoder but the best: how far it is behind, and if it is clear."""
    spread = preferred_spread(evaluation.spreads)
    encoders = evaluation.encoders
    differences = evaluation.differences.filter(
        pl.col("one").is_in(encoders) & pl.col("other").is_in(encoders),
        scoring="all",
        metric="map",
        spread=spread,
    )
    if differences.is_empty():
        return
    most = min(FEW_SHOTS, evaluation.complete_shots)
    k = largest_shot(differences["k"], most)
    rows = differences.filter(k=k).with_row_index()
    points = evaluation.curve.filter(scoring="all", metric="map", spread=spread, k=k)
    best = points.sort("mean", "encoder")["encoder"][-1]
    both = pl.concat([rows, turn_differences(rows)])
    for row in both.filter(one=best).sort("index").iter_rows(named=True):
        template = NOT_CLEAR
        if row["low"] is None:
            template = NOT_KNOWN
        elif row["low"] > 0:
            template = CLEAR
        answer = template.format(**row, percent=100 * row["wins"])
        yield f"With {count_text(k, 'example')} per class, {answer}"


def largest_shot(shots: Iterable[int], most: int) -> int:
    """Return the largest evaluated shot up to `most`, or the smallest if all are larger.

    >>> largest_shot((1, 5, 20), 4), largest_shot((8, 20), 4)
    (1, 8)
    """
    evaluated = set(shots)
    return max((k for k in evaluated if k <= most), default=min(evaluated))


def starred_shot(shots: Shots, complete_shots: int) -> int | None:
    """Return the k to mark: k* if it is shown, else the first beyond it.

    >>> [starred_shot((1, 5, 10), k) for k in (5, 7, 31)]
    [5, 10, None]
    """
    return min((k for k in shots if k >= complete_shots), default=None)


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
        files = count_text(number, "folder" if name == "folders" else "file")
        print_lines(console, [f"annotations: {name} in {files}, as {reason}"])
    recordings = segmentation.recordings
    annotated = [one for one in recordings if one.path in segmentation.annotated]
    counts = (
        f"{len(annotated)} of {count_text(len(recordings), 'recording')} annotated; "
        f"{count_text(segmentation.annotation_count, 'annotation')} read: "
        f"{count_text(len(segmentation.segments), 'segment')}, "
        f"{count_text(len(segmentation.rejects), 'reject')}"
    )
    print_lines(console, [counts], "bold")
    print_lines(console, [describe_minimum(segmentation)])

    durations_s = {
        "recordings": np.array([one.duration_s for one in recordings]),
        "annotated recordings": np.array([one.duration_s for one in annotated]),
        "annotated calls": segmentation.calls.durations_s,
        "segments": segmentation.segments.durations_s,
    }
    table = make_table("", "number", *DURATIONS)
    for name, values in durations_s.items():
        table.add_row(name, str(len(values)), *_format_durations(values))
    _print_table(table, console)
    _show_labels(segmentation, console, inspection.classes if inspection else ())

    rejects = segmentation.rejects
    groups = group_rejects(rejects)
    if rejects:
        count = count_text(len(rejects), "annotation")
        print_lines(console, [f"rejects: {count}; the first of each reason:"])
    lines = list(map(describe_rejects, groups))
    rest = "; segment lists all in rejects.csv"
    _show_first(console, lines, MAX_REJECT_REASONS, "reason", rest)
    skipped = segmentation.skipped_files
    if skipped:
        print_lines(console, [f"left out: {count_text(len(skipped), 'file')}"])
    lines = [f"  {file.file}: {file.reason}" for file in skipped]
    rest = "; segment lists them in rejects.csv"
    _show_first(console, lines, MAX_FILES, "file", rest)
    if inspection is not None:
        print_lines(console, _describe_folds(inspection), "bold")
    lines = [f"note: {note}" for note in segmentation.notes]
    _show_first(console, lines, MAX_NOTES, "note", style="yellow")
    print_lines(console, [next_step])


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
    """Print the first lines, and how many more there are."""
    print_lines(console, lines[:most], style)
    if len(lines) > most:
        more = count_text(len(lines) - most, f"more {noun}")
        print_lines(console, [f"and {more}{rest}"], "dim")


def _format_durations(durations_s: FloatArray) -> list[str]:
    """Return total, mean, minimum, maximum and standard deviation, as in the paper."""
    if not len(durations_s):
        return [""] * len(DURATIONS)
    total = format_time(float(durations_s.sum()), 1)
    measures = (np.mean, np.min, np.max, np.std)
    return [total, *(f"{measure(durations_s):.2f} s" for measure in measures)]


def _show_labels(
    segmentation: Segmentation, console: Console, classes: Sequence[ClassCount]
) -> None:
    """Print a row for each label, most segments first; with `classes`, whether it is eligible."""
    columns = ["label", "calls", "segments", "recordings"]
    is_wide = not console.is_terminal or console.width >= WIDE_TERMINAL
    if is_wide:
        columns += [*DURATIONS, ""]  # "" is a bar
    else:
        columns += ["mean"] if classes else ["mean", "min", "max"]
    if classes:
        columns.append("eligible")
    eligibility = {
        one.label: f"yes, to k = {one.complete_to_k}"
        if one.eligible
        else f"no: {one.reason}"
        for one in classes
    }
    segments = segmentation.segments
    numbers = Counter(segments["label"])
    most = max(numbers.values(), default=1)
    label_of_segment = np.array(segments["label"], object)
    calls = Counter(segmentation.calls["label"])
    labels = sorted(calls, key=lambda name: (-numbers[name], -calls[name], name))
    table = make_table(*columns)
    for label in labels[:MAX_LABELS]:
        members = segments.take(np.flatnonzero(label_of_segment == label))
        durations = _format_durations(members.durations_s)
        cells = dict(zip(DURATIONS, durations, strict=True))
        cells["label"] = _crop(label, 40 if is_wide else 24)
        cells["calls"] = str(calls[label])
        cells["segments"] = str(len(members))
        cells["recordings"] = str(len(set(members["recording"])))
        cells[""] = "━" * round(BAR_LENGTH * len(members) / most)
        cells["eligible"] = eligibility.get(label, "no: no segments")
        table.add_row(*(Text(cells[column]) for column in columns))
    _print_table(table, console)
    if len(labels) > MAX_LABELS:
        more = count_text(len(labels) - MAX_LABELS, "more label")
        print_lines(console, [f"and {more}"], "dim")


def _crop(text: str, length: int) -> str:
    return printable(text if len(text) <= length else f"{text[: length - 1]}…")


def describe_rejects(rejects: Sequence[Reject]) -> str:
    """Return how many rejects have one reason, and the first of them."""
    first = rejects[0]
    place = first.file if first.row is None else f"{first.file}, row {first.row}"
    return f"  {len(rejects):5d}  {_crop(first.reason, 100)}  ({place})"


def _describe_folds(inspection: Inspection) -> Iterator[str]:
    counts = [f"{folds}: {labels}" for folds, labels in inspection.possible.items()]
    if counts:
        yield f"labels in enough recordings, by number of folds: {', '.join(counts)}"
    else:
        yield "too few recordings for folds"
    folds = inspection.folds
    if folds is not None:
        eligible = [count for count in inspection.classes if count.eligible]
        queries = sum(sum(count.per_fold) for count in eligible)
        shots = inspection.complete_shots
        yield (
            f"with {folds.count} folds ({folds.proof}): {len(eligible)} of "
            f"{count_text(len(inspection.classes), 'label')} can be evaluated, "
            f"with {count_text(queries, 'query')} and up to k* = "
            f"{count_text(shots, 'example')} of each"
        )


def _print_table(table: Table, console: Console) -> None:
    """Print a table; a file or a pipe has as much room as it needs."""
    if not console.is_terminal:
        console = Console(file=console.file, width=240)
    console.print("", table, "", sep="\n")


# By the labels of the baseline: which curve passes which, and the words before the k of means.
EVENTS = {
    "all": ("the centroid passes {baseline} on all labels", "at k = {k_mean}"),
    "k": ("{baseline} at the same k passes the centroid", "from k = {k_mean}"),
}


SCORE_WITH_INTERVAL = "{value:.3f} [{p01:.2f}, {p99:.2f}]"


def show_baselines(baselines: Frame, console: Console) -> None:
    """Print the scores of each baseline with their intervals, by encoder and scoring."""
    if baselines.is_empty():
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    metric_names = [METRIC_NAMES[metric] for metric in RANKING_METRICS]
    for heading in ("baseline", "encoder", "scoring", *metric_names, "how"):
        table.add_column(heading, no_wrap=heading in metric_names)
    for rows in baselines.partition_by("name", "encoder", "scoring"):
        scores = dict.fromkeys(RANKING_METRICS, "")
        for row in rows.iter_rows(named=True):
            has_interval = isfinite(row["p01"])
            template = SCORE_WITH_INTERVAL if has_interval else "{value:.3f}"
            scores[row["metric"]] = template.format_map(row)
        cells = [row["name"], row["encoder"], row["scoring"], *scores.values()]
        table.add_row(*map(printable, [*cells, row["how"]]))
    console.print(table, markup=False, highlight=False)


def show_crossovers(crossovers: Frame, console: Console) -> None:
    """Print where curves of mAP cross, a line for each."""
    rows = crossovers.filter(metric="map").iter_rows(named=True)
    print_lines(console, map(describe_crossover, rows))


def describe_crossover(row: dict[str, Any]) -> str:
    """Return where one curve passes another, from a row of the CROSSOVERS schema.

    >>> row = {"encoder": "mfcc", "baseline": "LR", "labels": "all", "scoring": "all"}
    >>> row |= {"metric": "map", "spread": "shared", "k_mean": 7, "k_clear": None}
    >>> describe_crossover(row)
    'mfcc: the centroid passes LR on all labels at k = 7 on average, never clearly (mAP, shared)'
    >>> describe_crossover(row | {"labels": "k", "k_mean": None})
    'mfcc: LR at the same k passes the centroid at no k on average, never clearly (mAP, shared)'
    """
    event, mean = EVENTS[row["labels"]]
    if row["k_mean"] is None:
        mean = "at no k"
    clear = "never clearly" if row["k_clear"] is None else "clearly from k = {k_clear}"
    basis = METRIC_NAMES[row["metric"]]
    if row["scoring"] != "all":
        basis = f"{row['scoring']} scoring, {basis}"
    template = f"{{encoder}}: {event} {mean} on average, {clear} ({basis}, {{spread}})"
    return template.format(**row)


HEADINGS = ("transfer", "within target", "within source")  # of the curves
MEAN_WITH_INTERVAL = "{mean:.2f} [{p01:.2f}, {p99:.2f}]"
DIFFERENCE = "{mean:+.2f} [{p01:+.2f}, {p99:+.2f}]"
LEGEND = """\
mAP of {1} call types, {0.queries} queries; mean [1st, 99th percentile], {2}: {3}
transfer: examples from {0.source_corpus}, queries from {0.corpus}; within target: both from \
{0.corpus}; within source: both from {0.source_corpus}
difference: transfer minus within target; right names: accuracy, transfer / within target"""
TRANSFER = (
    "{begin} {examples} per call type from {0.source_corpus}, mAP on {0.corpus} is "
    "{transfer:.2f}, {difference} with examples of {0.corpus} itself (98 % interval of the "
    "difference: {p01:+.2f} to {p99:+.2f}); {right:.0f} % of the calls get the right name, "
    "{own:.0f} % with examples of {0.corpus}."
)


def show_transfer(result: TransferEvaluation, console: Console) -> None:
    """Print the difference from the target's own examples, the curves, and the notes."""
    print_lines(console, describe_transfer(result), "bold")
    spread = preferred_spread(result.spreads)
    for encoder in result.encoders:
        curves = list(result.list_curves(encoder).values())
        differences = _select(result.transfer_difference, "map", spread, one=encoder)
        headings = HEADINGS[: len(curves)]
        table = make_table("k", *headings, "difference", "right names")
        for k in choose_shots(sorted(set(differences["k"]))):
            cells = [
                _format_point(curves[0], "map", spread, k, MEAN_WITH_INTERVAL),
                *(_format_point(curve, "map", spread, k) for curve in curves[1:]),
                _format_point(differences, "map", spread, k, DIFFERENCE),
            ]
            right = [
                _format_point(curve, "accuracy", spread, k) for curve in curves[:2]
            ]
            table.add_row(str(k), *cells, " / ".join(right))
        console.print()
        print_lines(console, [encoder], "bold")
        console.print(table)
    legend = LEGEND.format(
        result, len(result.eligible_classes), spread, SPREAD_NOTES[spread]
    )
    console.print()
    print_lines(console, legend.splitlines(), "dim")
    print_lines(console, [f"note: {note}" for note in result.notes], "yellow")


def _select(curve: Frame, metric: str, spread: str, **key: object) -> Frame:
    return curve.filter(metric=metric, spread=spread, scoring="all", **key)


def _format_point(
    curve: Frame, metric: str, spread: str, k: int, template: str = "{mean:.2f}"
) -> str:
    """Return the point at k as text, or nothing if the curve does not have this k."""
    points = _select(curve, metric, spread, k=k)
    return "".join(map(template.format_map, points.iter_rows(named=True)))


def describe_transfer(result: TransferEvaluation) -> Iterator[str]:
    """Yield a sentence for each encoder: the score, and its difference from the target's own.

    It is about 5 examples, or the nearest k that both curves have in full.
    """
    last = min(result.complete_shots, result.within_target.complete_shots)
    shots = sorted(set(result.transfer_difference["k"]))
    complete = [k for k in shots if k <= last] or shots[:1]
    k = min(complete, key=lambda k: abs(k - FEW_SHOTS))
    spread = preferred_spread(result.spreads)
    for encoder in result.encoders:
        transfer, within_target, *_ = result.list_curves(encoder).values()
        differences = _select(result.transfer_difference, "map", spread, one=encoder)
        row = differences.filter(k=k).row(0, named=True)
        side = "lower" if row["mean"] < 0 else "higher"
        difference = f"{abs(row['mean']):.2f} {side} than"
        if round(abs(row["mean"]), 2) == 0:
            difference = "the same as"
        yield TRANSFER.format(
            result,
            **row,
            begin="With" if len(result.encoders) == 1 else f"{encoder}: with",
            examples=count_text(k, "example"),
            transfer=_mean(transfer, "map", spread, k),
            difference=difference,
            right=100 * _mean(transfer, "accuracy", spread, k),
            own=100 * _mean(within_target, "accuracy", spread, k),
        )


def _mean(curve: Frame, metric: str, spread: str, k: int) -> float:
    """Return the mean at k, or at the last shot of a curve that does not have this k."""
    points = _select(curve, metric, spread)
    at_k = points.filter(k=k)
    return float((points if at_k.is_empty() else at_k)["mean"][-1])
