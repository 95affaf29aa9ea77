"""The paper end to end, on one page: recordings and annotations → k-shot curves with intervals.

    segmentation = segment(audio, annotations)      recordings and annotations → segments
    tables = [embed(segmentation, name) …]          audio of segments → vectors of frozen encoders
    result = evaluate(tables)                       folds, support sets, centroids, intervals
    baselines = train_baselines(tables)             would training be better?

Read this first; `callshot.fewshot.reference` has the evaluation itself, slow and literal.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from callshot.api import compare, embed, segment, train_baselines
from callshot.errors import OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol, make_protocol
from callshot.records import Embeddings, Evaluation


def run(
    audio: Path | str,
    annotations: Path | str | None = None,
    encoders: Sequence[str] = ("mfcc",),
    protocol: Protocol | None = None,
    *,
    store: Path | None = None,
    **segmentation: Any,
) -> Evaluation:
    """Run the paper's method on a folder of recordings.

    Parameters
    ----------
    audio, annotations : path
        Recordings and their annotations, as in `callshot.segment`.
    encoders : sequence of str
        Names of encoders; `callshot.list_encoders` lists them.
    protocol : Protocol, optional
        The paper's by default.
    store : Path, optional
        Folder that stores embeddings; the user's cache by default.
    **segmentation
        Further options of `callshot.segment`.

    Returns
    -------
    Evaluation
        With `.differences` between encoders and from baselines, and `.crossovers`.
    """
    if not encoders:
        raise OptionError(
            "encoders: name at least one; callshot.list_encoders lists them"
        )
    segments = segment(audio, annotations, **segmentation)
    tables = shared_segments([embed(segments, name, store=store) for name in encoders])
    result = evaluate_tables(tables, protocol or make_protocol())
    baselines = train_baselines(tables, against=result)
    return replace(
        result,
        differences=compare(result, baselines),
        crossovers=baselines.crossovers,
    )


def shared_segments(tables: Sequence[Embeddings]) -> list[Embeddings]:
    """Return the rows of the segments that every encoder could embed."""
    names = frozenset(tables[0].segment).intersection(
        *(table.segment for table in tables)
    )
    return [table.only(names) for table in tables]
