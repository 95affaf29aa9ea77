"""An evaluation or encoders → what a terminal shows: a headline, tables, and notes.

Of several encoders, it says which is better, if any is. A difference is clear where its
simultaneous 98 % interval excludes 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.errors import printable
from callshot.records import EncoderStatus, Evaluation
from callshot.records.frames import Frame, Shots, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.methods import describe_licences

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
    rows = differences.filter(k=k).to_dicts()
    compared = {name for row in rows for name in (row["one"], row["other"])}
    points = evaluation.curve.filter(scoring="all", metric="map", spread=spread, k=k)
    means = dict(points.select("encoder", "mean").iter_rows())
    best = max(compared, key=lambda name: (means[name], name))
    for row in rows:
        if best in (row["one"], row["other"]):
            yield _describe(row if row["one"] == best else _turn(row), k)


def _turn(row: Row) -> Row:
    """Return the other encoder less the one."""
    return row | {
        "one": row["other"],
        "other": row["one"],
        "mean": -row["mean"],
        "low": None if row["high"] is None else -row["high"],
        "high": None if row["low"] is None else -row["low"],
        "wins": 1.0 - row["wins"],
    }


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
    from callshot.fewshot.partitions import describe_repetition  # imports numba
    from callshot.fewshot.sensitivity import describe_sensitivity

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
        yield from _join_blocks(heads, blocks[start : start + per_row])
    yield EMPTY_LINE
    if star is not None:
        yield _describe_star(star, complete_shots), "dim"
    for spread in evaluation.spreads:
        yield f"{spread}: mean [1st–99th percentile], {SPREAD_NOTES[spread]}", "dim"


def _join_blocks(heads: Sequence[Line], blocks: Sequence[Block]) -> Iterator[Line]:
    """Yield the lines of blocks side by side, each after its head and in the style of that."""
    for (text, style), *cells in zip(heads, *blocks, strict=True):
        line = "  ".join([text, *cells])
        yield line.rstrip(), style


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


def _describe_star(star: int, complete_shots: int) -> str:
    place = "" if star == complete_shots else "the first row beyond "
    return f"⋆ {place}k* = {complete_shots}; beyond k*, support is partial"


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
