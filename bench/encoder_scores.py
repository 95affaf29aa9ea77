"""Tables of embeddings of one corpus → rows of a benchmark: mAP, and paired differences."""

from collections.abc import Sequence

import polars as pl

from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.records import Evaluation
from callshot.vectors import Vectors

SHOTS = (1, 5, 20)
TableRow = dict[str, object]


def compare_tables(
    corpus: str, tables: Sequence[Vectors], samples: int = 1000
) -> list[TableRow]:
    """Evaluate tables; return a row for each, with its gain over the first."""
    protocol = Protocol(
        shots=SHOTS,
        spreads=("shared", "total"),
        shared_draws=samples,
        total_samples=samples,
        permutations=0,
    )
    names = frozenset(tables[0].segment).intersection(*(one.segment for one in tables))
    shared = [table.only(names) for table in tables]
    result = evaluate_tables(shared, protocol, corpus=corpus)
    return [describe_encoder(result, table.encoder) for table in tables]


def describe_encoder(result: Evaluation, encoder: str) -> TableRow:
    """Return the mAP of an encoder, its interval, and its paired gain over the first encoder."""
    row: TableRow = {"corpus": result.corpus, "encoder": encoder}
    curve = result.curve.filter(metric="map", scoring="all", encoder=encoder)
    for k, mean in curve.filter(spread="shared").select("k", "mean").rows():
        row[f"mAP {k}"] = f"{mean:.3f}"
    for spread in ("shared", "total"):
        intervals = curve.filter(spread=spread).select("k", "p01", "p99")
        for k, low, high in intervals.rows():
            row[f"{spread} {k}"] = f"{low:.2f} to {high:.2f}"
    gains = result.differences.filter(metric="map", scoring="all", spread="total")
    gains = gains.filter(pl.col("one") == result.curve["encoder"][0], other=encoder)
    # A difference is that of the first encoder from this one.
    for k, loss, low, high in gains.select("k", "mean", "p01", "p99").rows():
        row[f"gain {k}"] = f"{-loss:+.3f} ({-high:+.3f} to {-low:+.3f})"
    return row
