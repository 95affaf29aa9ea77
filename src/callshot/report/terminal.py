"""What a terminal shows of corpora, encoders, evaluations, baselines and transfers."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

import polars as pl
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.corpus.segments import describe_minimum, group_rejects
from callshot.errors import count_text, printable
from callshot.records import (
    METRIC_NAMES,
    RANKING_METRICS,
    ClassCount,
    DurationStats,
    EncoderStatus,
    Evaluation,
    Folds,
    Inspection,
    Recording,
    Reject,
    Segmentation,
    TransferEvaluation,
)
from callshot.records.frames import Frame, Shots, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.classifiers import turn_differences
from callshot.report.methods import describe_licences
from callshot.report.progress import format_time
from callshot.spans import Spans

FEW_SHOTS = 5  # the largest k that counts as a few examples
Row = dict[str, Any]


def describe_better(evaluation: Evaluation) -> Iterator[str]:
    """Yield a sentence for each encoder but the best: how far it is behind, and if it is clear."""
    if evaluation.differences.is_empty():
        return
    spread = preferred_spread(evaluation.spreads)
    differences = evaluation.differences.filter(
        scoring="all", metric="map", spread=spread
    )
    shots = differences["k"].unique().sort().to_list()
    most = min(FEW_SHOTS, evaluation.complete_shots)
    k = max((shot for shot in shots if shot <= most), default=shots[0])
    rows = differences.filter(k=k).with_row_index()
    compared = {*rows["one"], *rows["other"]}
    points = evaluation.curve.filter(scoring="all", metric="map", spread=spread, k=k)
    means = dict(points.select("encoder", "mean").iter_rows())
    best = max(compared, key=lambda name: (means[name], name))
    both = pl.concat([rows, turn_differences(rows)])
    for row in both.filter(one=best).sort("index").iter_rows(named=True):
        yield _describe(row, k)


def _describe(row: Row, k: int) -> str:
    """Return by how much the first encoder of a row is ahead of the other."""
    examples = "1 example" if k == 1 else f"{k} examples"
    few = f"With {examples} per class"
    lead = f"mAP is {row['mean']:.3f} higher"
    if row["low"] is None:
        wins = f"in {100 * row['wins']:.0f} % of samples"
        return (
            f"{few}, {row['one']} is ahead of {row['other']}: {lead}, and higher {wins}; whether "
            "that is clear is not known."
        )
    interval = f"98 % interval: {row['low']:.3f} to {row['high']:.3f}"
    if row["low"] > 0:
        return f"{few}, {row['one']} is clearly better than {row['other']}: {lead} ({interval})."
    return (
        f"{few}, it is not clear whether {row['one']} is better than {row['other']}: {lead} "
        f"({interval})."
    )


SPREAD_NOTES = {
    "per-query": "the paper's, over bootstrap samples",
    "shared": "the luck of which examples were labelled",
    "total": "one labelled set on other recordings",
}
MAX_REASONS = 6
MAX_SHOTS = 12
NARROWEST = 40
ROUND_SHOTS = {1, 2, 3, 4, 5} | {
    number * 10**exponent
    for exponent in range(6)
    for number in (10, 15, 20, 30, 40, 60, 80)
}
ASCII = str.maketrans("⋆–…", "*-.")

Line = tuple[str, str]  # text and style
Block = list[str]  # lines of equal width, from the heading down to chance

EMPTY_LINE = ("", "")
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
    left = (columns[0], "", "takes", "state", "eligible")
    for name in columns:
        table.add_column(
            name,
            justify="left" if name in left else "right",
            no_wrap=name not in ("state", "eligible"),
        )
    return table


def show_encoders(encoders: Sequence[EncoderStatus], console: Console) -> None:
    """Print a row for each encoder, and what it still needs before it runs."""
    table = make_table("encoder", "values", "takes", "state")
    for encoder in encoders:
        table.add_row(
            Text(printable(encoder.name)),
            str(encoder.dimension),
            encoder.input,
            Text(_describe_needs(encoder)),
        )
    console.print(table)
    licences = {encoder.name: encoder.licence for encoder in encoders}
    print_lines(console, describe_licences(licences))
    untried = [
        encoder.name for encoder in encoders if not encoder.tested_with_real_weights
    ]
    if untried:
        print_lines(console, [f"{ONLY_STANDINS}: {', '.join(untried)}"])
    advice = (
        "callshot encoders show NAME prints the details of one encoder; "
        "onnx:PATH and hubert-base-lN are encoders too"
    )
    console.print(Text(advice))


def show_encoder(
    options: Mapping[str, object],
    encoder: EncoderStatus,
    console: Console,
) -> None:
    """Print everything that affects the numbers of one encoder."""
    settings = [f"{name}={value}" for name, value in options.items()]
    shown_settings = ", ".join(settings) or "none"
    lines = [
        f"{encoder.name}: {encoder.title}",
        f"{encoder.dimension} values, {encoder.input}; licence {encoder.licence}",
        f"a louder segment: {encoder.loudness_effect}",
        f"options (--set): {shown_settings}",
    ]
    for file, source, state in encoder.weights:
        lines.append(f"weights: {file} from {source}, {state}")
    if not encoder.tested_with_real_weights:
        lines.append(f"{ONLY_STANDINS}; callshot encoders check {encoder.name}")
    lines.append(_describe_needs(encoder))
    print_lines(console, lines)


def _describe_needs(encoder: EncoderStatus) -> str:
    if not encoder.needs:
        return "ready"
    return "needs: " + ", then ".join(encoder.needs)


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation, in ASCII if the terminal has no other characters."""
    needs_ascii = _needs_ascii(console)
    width = max(console.width, NARROWEST)
    for line, style in _describe_evaluation(evaluation, width):
        text = Text(line, style)
        if needs_ascii:
            encoded = line.translate(ASCII).encode(console.encoding, "replace")
            text.plain = encoded.decode(console.encoding)
        console.print(text, soft_wrap=not console.is_terminal)


def _needs_ascii(console: Console) -> bool:
    try:
        "⋆–…".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return console.legacy_windows


def _describe_evaluation(evaluation: Evaluation, width: int) -> Iterator[Line]:
    yield printable(_headline(evaluation)), "bold"
    for line in _describe_excluded(evaluation):
        yield printable(line), "dim"
    yield from _describe_curves(evaluation, width)
    for line in describe_better(evaluation):
        yield printable(line), "bold"
    for line in _describe_repetition(evaluation):
        yield printable(line), ""
    for note in evaluation.notes:
        yield printable(f"note: {note}"), "yellow"


def _describe_repetition(evaluation: Evaluation) -> list[str]:
    """Return how much mAP depends on folds, examples and queries, at the largest complete k."""
    from callshot.fewshot.variation import (
        describe_repetition,  # imports numba
        describe_sensitivity,
    )

    shots = {*evaluation.partitions["k"], *evaluation.sensitivity["k"]}
    complete = [k for k in shots if k <= evaluation.complete_shots]
    k = max(complete, default=min(shots, default=0))
    sources = (evaluation.sensitivity, evaluation.sensitivity_means)
    return [
        *describe_repetition(evaluation.partitions, k),
        *describe_sensitivity(*sources, k),
    ]


def _headline(evaluation: Evaluation) -> str:
    folds = evaluation.folds
    classes = len(evaluation.eligible_classes)
    headline = (
        f"{evaluation.corpus}: {classes} classes, {evaluation.queries} queries, "
        f"{folds.count} folds {folds.origin}"
    )
    if folds.origin == "built":
        headline += f" ({folds.proof})"
    return f"{headline}, k* = {evaluation.complete_shots}"


def _describe_excluded(evaluation: Evaluation) -> Iterator[str]:
    excluded = evaluation.excluded_classes
    if excluded:
        yield f"not eligible: {len(excluded)} of {len(evaluation.classes)} classes"
    for count in excluded[:MAX_REASONS]:
        yield f"  {count.label} ({count.exemplars}): {count.reason}"
    rest = len(excluded) - MAX_REASONS
    if rest > 0:
        yield f"  and {rest} more, see classes.csv"


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
    round_shots = ROUND_SHOTS | {shots[0], shots[-1]}
    return [k for k in shots if k in round_shots]


def _describe_curves(evaluation: Evaluation, width: int) -> Iterator[Line]:
    """Yield the table of the curves, as many encoders side by side as fit, and its legend."""
    curve = evaluation.curve
    complete_shots = evaluation.complete_shots
    shots = choose_shots(sorted(set(curve["k"])))
    star = starred_shot(shots, complete_shots)
    heads = _make_heads(shots, star)
    blocks = list(_make_blocks(curve, shots, width - 8))
    block_width = cell_len(blocks[0][0])
    per_row = max((width - 6) // (2 + block_width), 1)
    for start in range(0, len(blocks), per_row):
        yield EMPTY_LINE
        beside = blocks[start : start + per_row]
        for (text, style), *cells in zip(heads, *beside, strict=True):
            yield "  ".join([text, *cells]).rstrip(), style
    yield EMPTY_LINE
    if star is not None:
        place = "" if star == complete_shots else "the first row beyond "
        note = f"⋆ {place}k* = {complete_shots}; beyond k*, support is partial"
        yield note, "dim"
    for spread in evaluation.spreads:
        yield f"{spread}: mean [1st–99th percentile], {SPREAD_NOTES[spread]}", "dim"


def _make_heads(shots: Shots, star: int | None) -> list[Line]:
    """Return the first column of the table, and the style of each of its lines."""
    heads = [("", "bold"), ("k  ", "dim")]
    for k in shots:
        if k == star:
            heads.append((f"{k} ⋆", "bold"))
        else:
            heads.append((f"{k}  ", ""))
    heads.append(("chance", "dim"))
    return [(text.rjust(6), style) for text, style in heads]


def _make_blocks(curve: Frame, shots: Shots, width: int) -> Iterator[Block]:
    """Yield a block for each encoder and scoring, or for each of its columns if it is too wide."""
    groups = curve.group_by(["encoder", "scoring"], maintain_order=True)
    for (encoder, scoring), points in groups:
        name = printable(str(encoder))
        if scoring != "all":
            name += f", {scoring}"
        columns = list(_make_columns(points, shots))
        rows = ["  ".join(row) for row in zip(*columns, strict=True)]
        blocks = [rows] if len(rows[0]) <= width else columns
        for block in blocks:
            heading = _crop(name, len(block[0]))
            yield [heading, *block]


def _make_columns(points: Frame, shots: Shots) -> Iterator[Block]:
    """Yield mAP for each spread, and the mean of AUROC in the preferred one."""
    spreads = unique_values(points, "spread")
    for spread in spreads:
        scores = points.filter(metric="map", spread=spread)
        yield _make_column(scores, shots, f"mAP {spread}")
    scores = points.filter(metric="auroc", spread=preferred_spread(spreads))
    yield _make_column(scores, shots, "AUROC")


def _make_column(points: Frame, shots: Shots, heading: str) -> Block:
    texts = {}
    for point in points.iter_rows(named=True):
        texts[point["k"]] = _format_point(**point)
    chance = points["chance"][0]
    values = [texts.get(k, "") for k in shots]
    cells = [heading, *values, f"{chance:.3f}"]
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]


def _format_point(metric: str, mean: float, p01: float, p99: float, **_: object) -> str:
    if metric != "map":
        return f"{mean:.3f}"
    return f"{mean:.3f} [{p01:.3f}–{p99:.3f}]"


def _crop(text: str, width: int) -> str:
    """Return a text of this width on a terminal, where some letters take two columns."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)


Classes = Sequence[ClassCount]
Rejects = Sequence[Reject]

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
    _show_sources(segmentation, console)
    _show_durations(segmentation, console)
    _show_labels(segmentation, console, inspection.classes if inspection else ())
    _show_rejects(segmentation.rejects, console)
    _show_skipped_files(segmentation.skipped_files, console)
    if inspection is not None:
        print_lines(console, _describe_folds(inspection), style="bold")
    notes = segmentation.notes
    lines = [f"note: {note}" for note in notes[:MAX_NOTES]]
    print_lines(console, lines, style="yellow")
    _show_rest(console, len(notes) - MAX_NOTES, "note")
    print_lines(console, [next_step])


def show_inspection(
    inspection: Inspection, console: Console, next_step: str = ""
) -> None:
    """Print what a folder has, how its files pair, and what the protocol could do with it."""
    formats: Counter[str] = Counter()
    for recording in inspection.segmentation.recordings:
        channels = count_text(recording.channels, "channel")
        formats[f"{recording.kind} at {recording.rate_hz:g} Hz, {channels}"] += 1
    counts = [f"{count} {name}" for name, count in formats.most_common()]
    print_lines(console, [f"audio: {'; '.join(counts) or 'no readable files'}"])
    show_segmentation(inspection.segmentation, console, next_step, inspection)


def _show_rest(console: Console, count: int, noun: str, rest: str = "") -> None:
    if count > 0:
        text = f"and {count_text(count, f'more {noun}')}{rest}"
        print_lines(console, [text], style="dim")


def _show_sources(segmentation: Segmentation, console: Console) -> None:
    for name, reason, count in segmentation.sources:
        noun = "folder" if name == "folders" else "file"
        line = f"annotations: {name} in {count_text(count, noun)}, as {reason}"
        print_lines(console, [line])
    print_lines(console, [_describe_counts(segmentation)], style="bold")
    print_lines(console, [describe_minimum(segmentation)])


def _describe_counts(segmentation: Segmentation) -> str:
    annotated = len(_annotated_recordings(segmentation))
    recordings = count_text(len(segmentation.recordings), "recording")
    annotations = count_text(segmentation.annotation_count, "annotation")
    segments = count_text(len(segmentation.segments), "segment")
    rejects = count_text(len(segmentation.rejects), "reject")
    return f"{annotated} of {recordings} annotated; {annotations} read: {segments}, {rejects}"


def _annotated_recordings(segmentation: Segmentation) -> list[Recording]:
    annotated = segmentation.annotated
    return [
        recording
        for recording in segmentation.recordings
        if recording.path in annotated
    ]


def _show_durations(segmentation: Segmentation, console: Console) -> None:
    """Print the durations of recordings, of those with annotations, of calls and of segments."""
    from callshot.corpus.segment_table import measure_durations  # imports numba

    recordings = segmentation.recordings
    annotated = _annotated_recordings(segmentation)
    all_durations_s = {
        "recordings": [recording.duration_s for recording in recordings],
        "annotated recordings": [recording.duration_s for recording in annotated],
        "annotated calls": segmentation.calls.durations_s.tolist(),
        "segments": segmentation.segments.durations_s.tolist(),
    }
    table = make_table("", "number", *DURATIONS)
    for name, durations_s in all_durations_s.items():
        durations = measure_durations(durations_s)
        table.add_row(name, str(durations.count), *_format_durations(durations))
    _print_table(table, console)


def _format_durations(durations: DurationStats) -> list[str]:
    """Return total, mean, minimum, maximum and standard deviation, as in the paper."""
    if not durations.count:
        return [""] * len(DURATIONS)
    values = (
        durations.mean_s,
        durations.shortest_s,
        durations.longest_s,
        durations.deviation_s,
    )
    total = format_time(durations.total_s, 1)
    return [total, *(f"{value:.2f} s" for value in values)]


def _show_labels(
    segmentation: Segmentation, console: Console, classes: Classes
) -> None:
    """Print a row for each label, most segments first; with `classes`, whether it is eligible."""
    columns = _choose_columns(console, classes)
    label_length = 40 if "" in columns else 24
    eligibility = {count.label: _describe_class(count) for count in classes}
    labels = _count_labels(segmentation)
    most = max((len(segments) for _, _, segments in labels), default=0)
    table = make_table(*columns)
    for label, calls, segments in labels[:MAX_LABELS]:
        cells = _segment_cells(segments, most)
        cells["label"] = _crop_label(label, label_length)
        cells["calls"] = str(calls)
        cells["eligible"] = eligibility.get(label, "no: no segments")
        row = [Text(cells[column]) for column in columns]
        table.add_row(*row)
    _print_table(table, console)
    _show_rest(console, len(labels) - MAX_LABELS, "label")


def _count_labels(segmentation: Segmentation) -> list[tuple[str, int, Spans]]:
    """Return each label with its number of calls and its segments, most segments first."""
    calls = Counter(sorted(segmentation.calls["label"]))
    rows = defaultdict(list)
    for row, label in enumerate(segmentation.segments["label"]):
        rows[label].append(row)
    labels = [
        (label, count, segmentation.segments.take(rows[label]))
        for label, count in calls.most_common()
    ]
    return sorted(labels, key=lambda row: -len(row[2]))


def _describe_class(count: ClassCount) -> str:
    if count.eligible:
        return f"yes, to k = {count.complete_to_k}"
    return f"no: {count.reason}"


def _choose_columns(console: Console, classes: Classes) -> list[str]:
    """Return the columns of the table of labels for which there is room; "" is a bar."""
    columns = ["label", "calls", "segments", "recordings"]
    if not console.is_terminal or console.width >= WIDE_TERMINAL:
        columns += [*DURATIONS, ""]
    elif classes:
        columns += ["mean"]
    else:
        columns += ["mean", "min", "max"]
    if classes:
        columns += ["eligible"]
    return columns


def _segment_cells(segments: Spans, most: int) -> dict[str, str]:
    """Return the cells, by column, that describe the segments of a label."""
    from callshot.corpus.segment_table import measure_durations  # imports numba

    bar_length = round(BAR_LENGTH * len(segments) / max(most, 1))
    recordings = set(segments["recording"])
    durations = _format_durations(measure_durations(segments.durations_s.tolist()))
    cells = dict(zip(DURATIONS, durations, strict=True))
    cells[""] = "━" * bar_length
    cells["segments"] = str(len(segments))
    cells["recordings"] = str(len(recordings))
    return cells


def _crop_label(text: str, length: int) -> str:
    if len(text) > length:
        text = text[: length - 1] + "…"
    return printable(text)


def _show_rejects(rejects: Rejects, console: Console) -> None:
    """Print each reason with its count, and the place of the first reject for it."""
    if not rejects:
        return
    count = count_text(len(rejects), "annotation")
    print_lines(console, [f"rejects: {count}; the first of each reason:"])
    groups = group_rejects(rejects)
    lines = map(describe_rejects, groups[:MAX_REJECT_REASONS])
    print_lines(console, lines, style="dim")
    rest = "; segment lists all in rejects.csv"
    _show_rest(console, len(groups) - MAX_REJECT_REASONS, "reason", rest)


def describe_rejects(rejects: Rejects) -> str:
    """Return how many rejects have one reason, and the first of them."""
    first = rejects[0]
    place = first.file
    if first.row is not None:
        place += f", row {first.row}"
    reason = _crop_label(first.reason, 100)
    return f"  {len(rejects):5d}  {reason}  ({place})"


def _show_skipped_files(files: Rejects, console: Console) -> None:
    if not files:
        return
    count = count_text(len(files), "file")
    print_lines(console, [f"left out: {count}"])
    lines = [f"  {skipped.file}: {skipped.reason}" for skipped in files[:MAX_FILES]]
    print_lines(console, lines, style="dim")
    rest = "; segment lists them in rejects.csv"
    _show_rest(console, len(files) - MAX_FILES, "file", rest)


def _describe_folds(inspection: Inspection) -> Iterator[str]:
    counts = [f"{folds}: {labels}" for folds, labels in inspection.possible.items()]
    if counts:
        yield f"labels in enough recordings, by number of folds: {', '.join(counts)}"
    else:
        yield "too few recordings for folds"
    if inspection.folds is not None:
        yield _describe_eligible(inspection, inspection.folds)


def _describe_eligible(inspection: Inspection, folds: Folds) -> str:
    eligible = [count for count in inspection.classes if count.eligible]
    queries = sum(sum(count.per_fold) for count in eligible)
    labels = count_text(len(inspection.classes), "label")
    examples = "example" if inspection.complete_shots == 1 else "examples"
    return (
        f"with {folds.count} folds ({folds.proof}): "
        f"{len(eligible)} of {labels} can be evaluated, "
        f"with {count_text(queries, 'query')} and up to k* = {inspection.complete_shots} "
        f"{examples} of each"
    )


def _print_table(table: Table, console: Console) -> None:
    """Print a table; a file or a pipe has as much room as it needs."""
    output = console
    if not console.is_terminal:
        output = Console(file=console.file, width=240, no_color=True)
    with output.capture() as captured:
        output.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    text = "\n".join(lines)
    console.file.write(f"\n{text}\n\n")


# By the labels of the baseline: which curve passes which, and the words before the k of means.
EVENTS = {
    "all": ("the centroid passes {baseline} on all labels", "at k = {k_mean}"),
    "k": ("{baseline} at the same k passes the centroid", "from k = {k_mean}"),
}


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
            scores[row["metric"]] = _format_score(row)
        name, encoder, scoring, how = rows.select(
            "name", "encoder", "scoring", "how"
        ).row(-1)
        cells = [name, encoder, scoring, *scores.values(), how]
        table.add_row(*map(printable, cells))
    console.print(table, markup=False, highlight=False)


def _format_score(row: dict[str, Any]) -> str:
    """Return the value of a baseline, and the 98 % interval of the spread `total` if it has one."""
    if not isfinite(row["p01"]):
        return f"{row['value']:.3f}"
    return f"{row['value']:.3f} [{row['p01']:.2f}, {row['p99']:.2f}]"


def show_crossovers(crossovers: Frame, console: Console) -> None:
    """Print where curves of mAP cross, a line for each."""
    for row in crossovers.filter(metric="map").iter_rows(named=True):
        line = printable(describe_crossover(row))
        console.print(line, markup=False, highlight=False, soft_wrap=True)


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


USUAL_SHOTS = 5
HEADINGS = ("transfer", "within target", "within source")  # of the curves


def show_transfer(result: TransferEvaluation, console: Console) -> None:
    """Print the difference from the target's own examples, the curves, and the notes."""
    print_lines(console, describe_transfer(result), "bold")
    spread = preferred_spread(result.spreads)
    for encoder in result.encoders:
        console.print()
        console.print(Text(printable(encoder), "bold"))
        _show_curves(result, encoder, spread, console)
    console.print()
    print_lines(console, _legend(result, spread), "dim")
    print_lines(console, [f"note: {note}" for note in result.notes], "yellow")


def describe_transfer(result: TransferEvaluation) -> Iterator[str]:
    """Yield a sentence for each encoder: the score, and its difference from the target's own."""
    k = sentence_shots(result)
    spread = preferred_spread(result.spreads)
    examples = count_text(k, "example")
    for encoder in result.encoders:
        transfer, within_target, *_ = result.list_curves(encoder).values()
        score = _mean(transfer, "map", spread, k)
        difference = _describe_difference(
            _differences(result, encoder, spread), result.corpus, k
        )
        right = _mean(transfer, "accuracy", spread, k)
        own_right = _mean(within_target, "accuracy", spread, k)
        begin = "With" if len(result.encoders) == 1 else f"{encoder}: with"
        yield (
            f"{begin} {examples} per call type from {result.source_corpus}, mAP on "
            f"{result.corpus} is {score:.2f}, {difference}; {100 * right:.0f} % of the calls "
            f"get the right name, {100 * own_right:.0f} % with examples of {result.corpus}."
        )


def sentence_shots(result: TransferEvaluation) -> int:
    """Return the k of the sentences: 5, or the nearest that both curves have in full."""
    last = min(result.complete_shots, result.within_target.complete_shots)
    shots = sorted(set(result.transfer_difference["k"]))
    complete = [k for k in shots if k <= last] or shots[:1]
    return int(min(complete, key=lambda k: abs(k - USUAL_SHOTS)))


def _mean(curve: Frame, metric: str, spread: str, k: int) -> float:
    """Return the mean at k, or at the last shot of a curve that does not have this k."""
    points = curve.filter(metric=metric, spread=spread, scoring="all")
    at_k = points.filter(k=k)
    return float((points if at_k.is_empty() else at_k)["mean"][-1])


def _differences(result: TransferEvaluation, encoder: str, spread: str) -> Frame:
    """Return the differences of mAP that an encoder's table shows."""
    return result.transfer_difference.filter(
        one=encoder, metric="map", scoring="all", spread=spread
    )


def _describe_difference(differences: Frame, target: str, k: int) -> str:
    mean, low, high = differences.filter(k=k).select("mean", "p01", "p99").row(0)
    interval = f"98 % interval of the difference: {low:+.2f} to {high:+.2f}"
    if round(abs(mean), 2) == 0:
        return f"the same as with examples of {target} itself ({interval})"
    word = "lower" if mean < 0 else "higher"
    return f"{abs(mean):.2f} {word} than with examples of {target} itself ({interval})"


def _show_curves(
    result: TransferEvaluation, encoder: str, spread: str, console: Console
) -> None:
    """Print a row for each k: mAP of the curves, its difference, and the share of right names."""
    curves = {}
    for name, curve in result.list_curves(encoder).items():
        curves[name] = curve.filter(scoring="all", spread=spread)
    transfer, within_target, *_ = curves.values()
    differences = _differences(result, encoder, spread)
    headings = HEADINGS[: len(curves)]
    table = make_table("k", *headings, "difference", "right names")
    for k in choose_shots(sorted(set(differences["k"]))):
        cells = [_format_mean(rows, "map", k) for rows in curves.values()]
        cells[0] += _format_interval(transfer.filter(metric="map", k=k))
        at_k = differences.filter(k=k)
        difference = f"{at_k['mean'][0]:+.2f}{_format_interval(at_k, '+')}"
        right = [
            _format_mean(rows, "accuracy", k) for rows in (transfer, within_target)
        ]
        table.add_row(str(k), *cells, difference, " / ".join(right))
    console.print(table)


def _format_mean(curve: Frame, metric: str, k: int) -> str:
    means = curve.filter(metric=metric, k=k)["mean"].to_list()
    return f"{means[0]:.2f}" if means else ""


def _format_interval(point: Frame, sign: str = "") -> str:
    low, high = point.select("p01", "p99").row(0)
    return f" [{low:{sign}.2f}, {high:{sign}.2f}]"


def _legend(result: TransferEvaluation, spread: str) -> Iterator[str]:
    classes = len(result.eligible_classes)
    yield (
        f"mAP of {classes} call types, {result.queries} queries; mean [1st, 99th percentile], "
        f"{spread}: {SPREAD_NOTES[spread]}"
    )
    yield (
        f"transfer: examples from {result.source_corpus}, queries from {result.corpus}; "
        f"within target: both from {result.corpus}; within source: both from {result.source_corpus}"
    )
    yield (
        "difference: transfer minus within target; "
        "right names: accuracy, transfer / within target"
    )
