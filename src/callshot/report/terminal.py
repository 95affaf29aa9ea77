"""An evaluation or encoders → what a terminal shows: a headline, tables, and notes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.errors import printable
from callshot.records import Curve, EncoderStatus, Evaluation

SPREAD_NOTES = {
    "per-query": "over bootstrap samples",
    "shared": "over labelled sets; query sampling is not in it",
}
MOST_REASONS = 6
MOST_SHOTS = 12
NARROWEST = 40
ROUND_SHOTS = {1, 2, 3, 4, 5} | {
    number * 10**exponent for exponent in range(6) for number in (10, 15, 20, 30, 40, 60, 80)
}
ASCII = str.maketrans("⋆–…", "*-.")

Line = tuple[str, str]  # text and style
Block = list[str]  # lines of equal width, from the heading down to chance


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
    advice = (
        "callshot encoders show NAME prints the details of one encoder; "
        "onnx:PATH and hubert-base-lN are encoders too"
    )
    console.print(Text(advice))


def show_encoder(
    choices: Mapping[str, object],
    encoder: EncoderStatus,
    console: Console,
) -> None:
    """Print everything that affects the numbers of one encoder."""
    settings = [f"{name}={value}" for name, value in choices.items()]
    lines = [
        f"{encoder.name}: {encoder.title}",
        f"{encoder.dimension} values, {encoder.input}; licence {encoder.licence}",
        f"a louder segment: {encoder.level}",
        f"choices (--set): {', '.join(settings) or 'none'}",
    ]
    for file, source, is_installed in encoder.weights:
        state = "installed" if is_installed else "missing"
        lines.append(f"weights: {file} from {source}, {state}")
    print_lines(console, [*lines, _describe_needs(encoder)])


def _describe_needs(encoder: EncoderStatus) -> str:
    if not encoder.needs:
        return "ready"
    return "needs: " + ", then ".join(encoder.needs)


def show_evaluation(evaluation: Evaluation, console: Console) -> None:
    """Print an evaluation, in ASCII if the terminal has no other characters."""
    needs_ascii = _needs_ascii(console)
    for line, style in _describe_evaluation(evaluation, max(console.width, NARROWEST)):
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
    folds = evaluation.folds
    classes = sum(count.eligible for count in evaluation.classes)
    headline = (
        f"{evaluation.corpus}: {classes} classes, {evaluation.queries} queries, "
        f"{folds.count} folds {folds.origin}"
    )
    if folds.origin == "built":
        headline += f" ({folds.proof})"
    yield printable(f"{headline}, k* = {evaluation.complete_shots}"), "bold"
    for line in _describe_ineligible(evaluation):
        yield printable(line), "dim"
    yield from _describe_curves(evaluation, width)
    for note in evaluation.notes:
        yield printable(f"note: {note}"), "yellow"


def _describe_ineligible(evaluation: Evaluation) -> Iterator[str]:
    ineligible = [count for count in evaluation.classes if not count.eligible]
    if ineligible:
        yield f"not eligible: {len(ineligible)} of {len(evaluation.classes)} classes"
    for count in ineligible[:MOST_REASONS]:
        yield f"  {count.label} ({count.exemplars}): {count.reason}"
    if len(ineligible) > MOST_REASONS:
        yield f"  and {len(ineligible) - MOST_REASONS} more, see classes.csv"


def choose_shots(shots: Sequence[int]) -> list[int]:
    """Return the shots to show: all if they are few, else round numbers and both ends.

    >>> choose_shots(range(1, 38))
    [1, 2, 3, 4, 5, 10, 15, 20, 30, 37]
    """
    if len(shots) <= MOST_SHOTS:
        return list(shots)
    chosen = ROUND_SHOTS | {shots[0], shots[-1]}
    return [k for k in shots if k in chosen]


def _describe_curves(evaluation: Evaluation, width: int) -> Iterator[Line]:
    """Yield the table of the curves, as many encoders side by side as fit, and its legend."""
    complete_shots = evaluation.complete_shots
    shots = choose_shots(sorted({point.k for point in evaluation.curve}))
    star = min((k for k in shots if k >= complete_shots), default=None)
    marks = [f"{k} ⋆" if k == star else f"{k}  " for k in shots]
    heads = [text.rjust(6) for text in ("", "k  ", *marks, "chance")]
    styles = ["bold", "dim", *("bold" if "⋆" in mark else "" for mark in marks), "dim"]
    blocks = list(_make_blocks(evaluation.curve, shots, width - 8))
    per_row = max((width - 6) // (2 + cell_len(blocks[0][0])), 1)
    for start in range(0, len(blocks), per_row):
        yield "", ""
        rows = zip(heads, *blocks[start : start + per_row], strict=True)
        for row, style in zip(rows, styles, strict=True):
            yield "  ".join(row).rstrip(), style
    yield "", ""
    if star is not None:
        place = "" if star == complete_shots else "the first row beyond "
        yield f"⋆ {place}k* = {complete_shots}; beyond k*, support is partial", "dim"
    for spread in dict.fromkeys(point.spread for point in evaluation.curve):
        yield f"{spread}: mean [1st–99th percentile] {SPREAD_NOTES.get(spread, '')}", "dim"


def _make_blocks(curve: Sequence[Curve], shots: Sequence[int], width: int) -> Iterator[Block]:
    """Yield a block for each encoder and scoring, or for each of its columns if it is too wide."""
    groups: dict[str, list[Curve]] = defaultdict(list)
    for point in curve:
        name = point.encoder
        if point.scoring != "all":
            name += f", {point.scoring}"
        groups[printable(name)].append(point)
    for name, points in groups.items():
        columns = list(_make_columns(points, shots))
        rows = ["  ".join(row) for row in zip(*columns, strict=True)]
        blocks = [rows] if len(rows[0]) <= width else columns
        for block in blocks:
            yield [_crop(name, len(block[0])), *block]


def _make_columns(points: Sequence[Curve], shots: Sequence[int]) -> Iterator[Block]:
    """Yield mAP for each spread, and AUROC for the first."""
    spreads = list(dict.fromkeys(point.spread for point in points))
    for spread in spreads:
        yield _make_column(points, shots, "map", spread, f"mAP {spread}")
    yield _make_column(points, shots, "auroc", spreads[0], "AUROC")


def _make_column(
    points: Sequence[Curve],
    shots: Sequence[int],
    metric: str,
    spread: str,
    heading: str,
) -> Block:
    by_k = {p.k: p for p in points if p.metric == metric and p.spread == spread}
    cells = [heading]
    for k in shots:
        text = ""
        if k in by_k:
            point = by_k[k]
            text = f"{point.mean:.3f}"
            if metric == "map":
                text += f" [{point.p01:.3f}–{point.p99:.3f}]"
        cells.append(text)
    chance = next(iter(by_k.values())).chance
    cells.append(f"{chance:.3f}")
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]


def _crop(text: str, width: int) -> str:
    """Return a text of this width on a terminal, where some letters take two columns."""
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    return set_cell_size(text, width)
