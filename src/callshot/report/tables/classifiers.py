"""A chapter → its classifiers side by side by k: rules without training, and rivals trained on the same exemplars."""

from collections.abc import Iterator, Mapping, Sequence

from callshot.records import CorpusResults, Crossover, Curve
from callshot.report.classifiers import (
    every_curve,
    is_trained,
    rule_name,
    rule_told,
    rules_of,
    samples_of,
)
from callshot.report.tables.file_names import safe_name
from callshot.report.tables.scores import METRICS, SPREADS
from callshot.report.tables.shots import PAPER_SHOTS, shown_shots
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Points = Mapping[tuple[str, str, str, int], Curve]  # by encoder, classifier, metric and k
Note = tuple[str, str]


def classifiers(corpus_results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table | None:
    """Tell mAP and AUROC of every classifier by k, for each encoder, where there is more than the reference.

    Of the spreads it is `shared`, the only one that rivals at every k have, where it was evaluated.
    """
    if corpus_results.others is None or not corpus_results.others.curve:
        return None
    corpus, spread = corpus_results.evaluation.corpus, _spread(corpus_results)
    curve = [
        c
        for c in every_curve(corpus_results)
        if (c.scoring, c.spread) == ("all", spread) and c.metric in METRICS
    ]
    points = {(c.encoder, c.classifier, c.metric, c.k): c for c in curve}
    places = [
        (metric, k) for metric in ("map", "auroc") for k in shown_shots((c.k for c in curve), shots)
    ]
    rules = [rule for rule in rules_of(corpus_results) if any(c.classifier == rule for c in curve)]
    columns = [
        Column("Encoder"),
        Column("Classifier"),
        *(Column(str(k), f"{METRICS[m]} at k") for m, k in places),
    ]
    rows = [
        [Cell(encoder), Cell(rule_name(rule)), *_cells(points, encoder, rule, rules, places)]
        for encoder in dict.fromkeys(c.encoder for c in curve)
        for rule in rules
    ]
    title = f"{corpus}: classifiers with k exemplars per class, {spread}"
    notes = [
        *_notes(rules, spread, samples_of(corpus_results, spread)),
        *_crossing_notes(corpus_results.crossovers, spread),
    ]
    return Table(f"classifiers-{safe_name(corpus)}", title, columns, rows, 0, notes, blocks=True)


def _spread(corpus_results: CorpusResults) -> str:
    there = dict.fromkeys(c.spread for c in corpus_results.evaluation.curve)
    return "shared" if "shared" in there else next(iter(there))


def _cells(
    points: Points, encoder: str, rule: str, rules: Sequence[str], places: Sequence[tuple[str, int]]
) -> Iterator[Cell]:
    """Yield the means of a classifier; the best of an encoder is underlined."""
    for metric, k in places:
        means = {
            name: p.mean
            for name in rules
            if (p := points.get((encoder, name, metric, k))) is not None
        }
        best = max((x for x in means.values() if x == x), default=None)
        yield number(means[rule], 3, int(means[rule] == best)) if rule in means else Cell(MISSING)


def _notes(rules: Sequence[str], spread: str, samples: Mapping[str, int]) -> Iterator[Note]:
    yield "", "; ".join(f"{rule_name(rule)}: {rule_told(rule)}" for rule in rules) + "."
    yield "", "Underlined: the best of an encoder at that k."
    yield "", f"Means are {SPREADS.get(spread, spread)}."
    most = max(samples.values())
    for rule in rules:
        if is_trained(rule) and samples[rule] < most:
            yield (
                "",
                f"{rule_name(rule)}: means are over the first {samples[rule]} of the {most} sets.",
            )


def _crossing_notes(crossovers: Sequence[Crossover], spread: str) -> Iterator[Note]:
    """Say from where on training on the same exemplars is ahead."""
    mine = [
        c
        for c in crossovers
        if (c.labels, c.scoring, c.spread) == ("k", "all", spread) and c.metric in METRICS
    ]
    for metric in ("map", "auroc"):
        for baseline in dict.fromkeys(c.baseline for c in mine):
            told = [
                f"{c.encoder} {_told(c)}"
                for c in mine
                if (c.metric, c.baseline) == (metric, baseline)
            ]
            if told:
                head = f"{rule_name(baseline)} is ahead of the centroid on the same draws, by {METRICS[metric]}"
                yield "", f"{head}: {'; '.join(told)}."


def _told(crossing: Crossover) -> str:
    if crossing.k is None:
        return "at no k to the end"
    k_clear = "nowhere" if crossing.k_clear is None else f"from k = {crossing.k_clear} on"
    return f"from k = {crossing.k} on, surely {k_clear}"
