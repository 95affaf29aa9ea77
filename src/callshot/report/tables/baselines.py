"""A chapter → its rivals: what each scored when trained on all labels, how it came about, and where it is passed."""

from collections.abc import Iterator, Sequence

from callshot.records import Baseline, CorpusResults, Crossover
from callshot.report.tables.file_names import safe_name
from callshot.report.tables.scores import METRICS
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

ORDER = ("map", "auroc")
ENDS = {"k": "mean", "k_clear": "k_clear"}
NOTES = (
    "Rivals are trained on all labelled data of the support side of each split.",
    "Columns of k: where the centroid passes a rival, its mean for the first time, and surely from where its 1–99 % "
    "interval stays above; – is nowhere in the sweep.",
)


def baselines(corpus_results: CorpusResults) -> Table | None:
    """Tell what the rivals scored, in a block for each rival and scoring, with a row for each encoder it meets."""
    if not corpus_results.baselines:
        return None
    corpus = corpus_results.evaluation.corpus
    spreads = list(dict.fromkeys(c.spread for c in corpus_results.evaluation.curve))
    crossed = [(spread, metric) for spread in spreads for metric in ORDER]
    columns = [
        Column("Rival"),
        Column("Encoder"),
        *(Column(METRICS[metric]) for metric in ORDER),
        Column("Chosen"),
        *(Column(head, f"k by {METRICS[m]}, {s}") for s, m in crossed for head in ENDS.values()),
    ]
    rows = [
        _row(corpus_results.crossovers, name, scoring, encoder, own, crossed)
        for scoring, name in sorted(
            dict.fromkeys((r.scoring, r.name) for r in corpus_results.baselines),
            key=lambda at: at[0],
        )
        for encoder, own in _met(corpus_results, name, scoring)
    ]
    title = f"{corpus}: rivals trained on all labels, and the k at which the centroid passes them"
    notes = [("", note) for note in NOTES]
    return Table(f"rivals-{safe_name(corpus)}", title, columns, rows, 0, notes, blocks=True)


def _met(
    corpus_results: CorpusResults, name: str, scoring: str
) -> Iterator[tuple[str, list[Baseline]]]:
    """Yield the encoders that meet a rival, with what it scored there: one without an encoder meets all of them."""
    mine = [r for r in corpus_results.baselines if (r.name, r.scoring) == (name, scoring)]
    for encoder in dict.fromkeys(c.encoder for c in corpus_results.evaluation.curve):
        own = [r for r in mine if r.encoder in ("", encoder)]
        if own:
            yield encoder, own


def _row(
    crossovers: Sequence[Crossover],
    name: str,
    scoring: str,
    encoder: str,
    own: Sequence[Baseline],
    crossed: Sequence[tuple[str, str]],
) -> list[Cell]:
    values = {r.metric: r.value for r in own}
    key = (encoder, name, "all", scoring)
    found = {
        (c.spread, c.metric): c
        for c in crossovers
        if (c.encoder, c.baseline, c.labels, c.scoring) == key
    }
    return [
        Cell(name if scoring == "all" else f"{name}, {scoring} scoring"),
        Cell(encoder),
        *(number(values[metric]) if metric in values else Cell(MISSING) for metric in ORDER),
        Cell(own[0].how or MISSING),
        *(_shots(found.get(place), end) for place in crossed for end in ENDS),
    ]


def _shots(crossing: Crossover | None, end: str) -> Cell:
    k = None if crossing is None else getattr(crossing, end)
    return Cell(MISSING) if k is None else number(k, 0)
