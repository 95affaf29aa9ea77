"""Rivals and crossings → tables on a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from callshot.errors import printable
from callshot.records import Baseline, Crossover

METRICS = {"map": "mAP", "auroc": "AUROC"}


def show_baselines(baselines: Sequence[Baseline], console: Console) -> None:
    """Print what each rival scored, a row for each encoder and scoring."""
    if not baselines:
        return
    table = Table(
        "rival",
        "encoder",
        "scoring",
        *METRICS.values(),
        "how",
        box=None,
        pad_edge=False,
        header_style="dim",
    )
    values = {(r.name, r.encoder, r.scoring, r.metric): r.value for r in baselines}
    for key, how in {(r.name, r.encoder, r.scoring): r.how for r in baselines}.items():
        found = [
            f"{values[(*key, metric)]:.3f}" if (*key, metric) in values else ""
            for metric in METRICS
        ]
        table.add_row(*(printable(cell) for cell in (*key, *found, how)))
    console.print(table, markup=False, highlight=False)


def show_crossovers(crossovers: Sequence[Crossover], console: Console) -> None:
    """Print where curves cross, by mAP, a line for each."""
    for c in crossovers:
        if c.metric == "map":
            console.print(
                printable(tell_crossing(c)), markup=False, highlight=False, soft_wrap=True
            )


def tell_crossing(c: Crossover) -> str:
    """Say in words where curves cross.

    >>> tell_crossing(Crossing("herd", "mfcc", "LR", "all", "all", "map", "shared", 7, None))
    'mfcc: the class mean passes LR on all labels at k = 7 on average, nowhere for sure (mAP, shared)'
    >>> tell_crossing(Crossing("herd", "mfcc", "logistic", "k", "all", "map", "shared", None, None))
    'mfcc: logistic at the same k passes the class mean nowhere on average, nowhere for sure (mAP, shared)'
    """
    who = (
        f"the class mean passes {c.rival} on all labels"
        if c.labels == "all"
        else f"{c.rival} at the same k passes the class mean"
    )
    word = "at" if c.labels == "all" else "from"
    mean = "nowhere" if c.k is None else f"{word} k = {c.k}"
    k_clear = "nowhere" if c.k_clear is None else f"from k = {c.k_clear}"
    scoring = "" if c.scoring == "all" else f"{c.scoring} scoring, "
    return f"{c.encoder}: {who} {mean} on average, {k_clear} for sure ({scoring}{METRICS[c.metric]}, {c.spread})"
