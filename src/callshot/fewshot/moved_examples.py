"""Tables of a library and of a site → what examples of the library are worth at the site.

Three evaluations: examples of the library on queries of the site, examples of the site itself on
the same queries in the same folds, and the library by itself. The first two are paired.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import polars as pl

from callshot.errors import InputError, OptionError, quote_names
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.differences import Comparison, summarise_comparisons
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.finished_sweeps import SweepStore
from callshot.fewshot.joined_corpora import (
    add_centred,
    common_labels,
    join_corpora,
    pair_tables,
)
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Cluster
from callshot.records import Evaluation, MovedEvaluation, Progress, no_progress
from callshot.records.evaluation import SITE_EXAMPLES
from callshot.records.frames import Frame, split_curves, value_matrix

EVALUATIONS = 3  # for progress

Sources = Mapping[str, tuple[str, str]]


def evaluate_moved(
    library: Dataset,
    site: Dataset,
    protocol: Protocol | None = None,
    *,
    centre: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    device: str = "auto",
    cluster: Cluster | None = None,
    store: SweepStore | None = None,
    progress: Progress = no_progress,
) -> MovedEvaluation:
    """Evaluate examples of a library on the queries of a site, and both corpora by themselves.

    Parameters
    ----------
    library, site : Dataset
        Each table of the library needs one of the site by the same encoder. Categories are those of
        the site.
    protocol : Protocol, optional
        The paper's by default.
    centre : bool
        Whether to add curves on vectors minus the mean of their own table.
    threads, memory, device, cluster, store, progress
        As in `evaluate_tables`.

    Returns
    -------
    MovedEvaluation

    Raises
    ------
    InputError
        If encoders differ, or if fewer than two labels can be evaluated.
    """
    protocol = protocol or Protocol()
    if protocol.repeat_folds > 1:
        raise OptionError("repeat-folds: expected 1 with queries of another table")
    if protocol.seeds > 1:
        raise OptionError("seeds: expected 1 with queries of another table")
    task = plan_task(library, site, centre)
    run = partial(
        evaluate_tables,
        protocol=protocol,
        categories=site.categories,
        threads=threads,
        memory=memory,
        device=device,
        cluster=cluster,
        store=store,
        progress=lambda share, what: progress(share / EVALUATIONS, what),
    )
    moved = _run(run, task.joined)
    at_site = _run(run, task.site)
    notes = list(task.notes)
    in_library = None
    try:
        in_library = _run(run, task.library)
        notes += describe_classes(in_library)
    except InputError as error:
        notes.append(f"no curve inside {library.corpus}: {error}")
    return _make_result(task, moved, at_site, in_library, notes)


def _make_result(
    task: "MovedTask",
    moved: Evaluation,
    at_site: Evaluation,
    in_library: Evaluation | None,
    notes: list[str],
) -> MovedEvaluation:
    results = {one.name: getattr(moved, one.name) for one in fields(Evaluation)}
    inside = [at_site] if in_library is None else [at_site, in_library]
    results["notes"] = _join_notes([*notes, *moved.notes], inside)
    reference = Protocol(**moved.settings).reference
    costs = compare_with_site(moved, at_site, task.sources, reference)
    results["differences"] = pl.concat([costs, moved.differences])
    return MovedEvaluation(
        **results,
        library=task.library.corpus,
        at_site=at_site,
        in_library=in_library,
        sources=task.sources,
    )


def _run(run: Any, dataset: Dataset) -> Evaluation:
    result: Evaluation = run(dataset.tables, folds=dataset.folds, corpus=dataset.corpus)
    return result


@dataclass(frozen=True)
class MovedTask:
    """What is evaluated: both corpora with the same labels, and joined.

    `sources` are the encoders of the library and of the site by those of the joined tables.
    """

    joined: Dataset
    site: Dataset
    library: Dataset
    sources: Sources
    notes: list[str]


def plan_task(library: Dataset, site: Dataset, centre: bool) -> MovedTask:
    """Find partners by encoder, leave out labels that one corpus alone has, and join the rest."""
    matched = pair_tables(library, site)
    notes = [*describe_left_out(library, site), *describe_recordings(library, site)]
    different = {table.encoder: table for table in matched.tables}
    site_part = replace(site, tables=list(different.values()))
    site_part = site_part.only(common_labels(library, site))
    classes = site_part.eligible_labels
    pairs = list(zip(library.encoders, matched.encoders, strict=True))
    examples = library
    if centre:
        examples = add_centred(library, library)
        matched = add_centred(matched, library)
        pairs *= 2
    return MovedTask(
        join_corpora(examples.only(classes), matched.only(classes)),
        site_part,
        library.only(classes),
        dict(zip(examples.encoders, pairs, strict=True)),
        notes,
    )


def describe_left_out(library: Dataset, site: Dataset) -> Iterator[str]:
    """Yield a note on the labels that one corpus alone has."""
    for one, other in ((library, site), (site, library)):
        names = sorted(one.labels - other.labels)
        if names:
            yield f"left out, because only {one.corpus} has them: {quote_names(names)}"


def describe_recordings(library: Dataset, site: Dataset) -> Iterator[str]:
    """Yield a note on recordings that have the same name in both corpora."""
    names = sorted(set(library.first.recording) & set(site.first.recording))
    if names:
        count = f"{len(names)} recordings have"
        if len(names) == 1:
            count = "1 recording has"
        yield (
            f"{count} the same name in {library.corpus} and {site.corpus} "
            f"(the first: {names[0]!r}); if they are the same recordings, queries meet "
            "examples of their own recording and "
            "the scores are too high: remove them from one of the tables"
        )


def describe_classes(in_library: Evaluation) -> Iterator[str]:
    """Yield a note if the curve inside the library has fewer classes than the others."""
    names = [count.label for count in in_library.excluded_classes]
    if names:
        yield (
            f"the curve inside {in_library.corpus} is without {quote_names(names)}: too few "
            "recordings; it is not comparable with the others"
        )


def compare_with_site(
    moved: Evaluation, at_site: Evaluation, sources: Sources, reference: str
) -> Frame:
    """Return every moved curve minus the curve with examples of the site, as DIFFERENCES.

    Both have the same queries in the same folds, with the same weights in `total`. Classifiers
    other than the reference are named beside the encoder.
    """
    curves = {_curve_key(curve): curve for curve in split_curves(at_site.values)}
    other_name = SITE_EXAMPLES.format(at_site.corpus)
    comparisons = []
    for curve in split_curves(moved.values):
        encoder, classifier, *key = _curve_key(curve)
        _, partner = sources[encoder]
        other = curves[(partner, classifier, *key)]
        name = encoder if classifier == reference else f"{encoder}, {classifier}"
        # The row `all`, the last, has the sizes of different pools as k; one may not have it.
        common = min(len(curve), len(other))
        shown = curve.head(common).with_columns(encoder=pl.lit(name))
        difference = value_matrix(shown) - value_matrix(other.head(common))
        comparisons.append(Comparison(shown, other_name, difference))
    last = min(moved.complete_shots, at_site.complete_shots)
    return pl.concat(summarise_comparisons(comparisons, last))


def _curve_key(curve: Frame) -> tuple[str, ...]:
    columns = ("encoder", "classifier", "scoring", "metric", "spread")
    return curve.select(columns).row(0)


def _join_notes(notes: list[str], inside: Sequence[Evaluation]) -> list[str]:
    """Return all notes, each once; those of the curves inside a corpus name it."""
    joined = list(notes)
    for evaluation in inside:
        for note in evaluation.notes:
            if note not in joined:
                joined.append(f"inside {evaluation.corpus}: {note}")
    return joined
