"""A transfer → what a terminal shows: the difference in sentences, a table per encoder, notes."""

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from callshot.errors import count_text, printable
from callshot.records import TransferEvaluation
from callshot.records.frames import Frame
from callshot.records.terms import preferred_spread
from callshot.report.terminal import (
    SPREAD_NOTES,
    choose_shots,
    make_table,
    print_lines,
)

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
