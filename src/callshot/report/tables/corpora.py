"""Chapters → tables of what was evaluated: the corpora, their segments, and the classes of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from callshot.records import ClassCount, CorpusResults, CorpusStats, DurationStats
from callshot.report.tables.file_names import safe_name
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Row = list[Cell]
Read = Callable[[CorpusResults], Cell]

UNITS = ((3600.0, "h"), (60.0, "min"))


def corpora(all_results: Sequence[CorpusResults]) -> Table:
    """Tell what the recordings of each corpus are, before anything is cut: the paper's table 1."""
    formats: dict[str, Read] = {
        "Sampling rate (kHz)": _of_facts(lambda f: _several([rate / 1000 for rate in f.rates_hz])),
        "Channels": _of_facts(lambda f: _several(f.channels)),
        "Format": _of_facts(lambda f: Cell(", ".join(f.kinds) or MISSING)),
        "Call types annotated": _of_facts(lambda f: number(f.labels, 0)),
    }
    unit_s, unit = _unit([c.facts.recordings for c in all_results])
    counts: dict[str, Read] = {
        "Recordings": _of_facts(lambda f: number(f.recordings.count, 0)),
        "Annotated recordings": _of_facts(lambda f: number(f.annotated.count, 0)),
        f"Total duration ({unit})": _of_facts(lambda f: number(f.recordings.total_s / unit_s, 2)),
        f"Annotated duration ({unit})": _of_facts(
            lambda f: number(f.annotated.total_s / unit_s, 2)
        ),
        **_spread_rows(lambda c: c.facts.recordings),
        "Cross-validation folds": lambda c: number(c.evaluation.folds.count, 0),
    }
    rows = [*_rows(formats, all_results), *_rows(counts, all_results)]
    return Table(
        "corpora",
        "Corpora: their recordings, before cutting",
        _columns(all_results),
        rows,
        foot=len(counts),
    )


def segments(all_results: Sequence[CorpusResults]) -> Table:
    """Tell what was annotated, and what of it was evaluated: the paper's table 2."""
    unit_s, unit = _unit([c.facts.calls for c in all_results])
    annotated: dict[str, Read] = {
        "Call types annotated": _of_facts(lambda f: number(f.labels, 0)),
        "Segments annotated": _of_facts(lambda f: number(f.calls.count, 0)),
        f"Annotated duration ({unit})": _of_facts(lambda f: number(f.calls.total_s / unit_s, 2)),
        **_spread_rows(lambda c: c.facts.calls),
    }
    evaluated: dict[str, Read] = {
        **_minimum_rows(all_results),
        "Call types evaluated, C": lambda c: number(len(_eligible(c)), 0),
        "Query segments, Q": lambda c: number(c.evaluation.queries, 0),
        "Eligible support exemplars": lambda c: number(
            sum(one.exemplars for one in _eligible(c)), 0
        ),
        f"Evaluated duration ({unit})": lambda c: number(c.evaluated.total_s / unit_s, 2),
        **_spread_rows(lambda c: c.evaluated, ", evaluated"),
        "Complete shot count": lambda c: number(c.evaluation.complete_shots, 0),
    }
    rows = [*_rows(annotated, all_results), *_rows(evaluated, all_results)]
    title, note = (
        "Segments annotated, and the evaluated subset of them",
        (
            "The eligible support exemplars include the common fold, which never queries. The complete shot count, "
            "k*, is the largest k at which every call type evaluated can give k exemplars in every split."
        ),
    )
    return Table("segments", title, _columns(all_results), rows, len(evaluated), [("", note)])


def classes(corpus_results: CorpusResults) -> Table:
    """Tell each class: its exemplars, and how far it is complete; below, those that are not eligible, and why."""
    evaluation = corpus_results.evaluation
    counted = sorted(evaluation.classes, key=lambda c: (-c.exemplars, c.label))
    left_out = [c for c in counted if not c.eligible]
    columns = [
        "Call type",
        "Exemplars",
        "Complete to k",
        *(["Not evaluated because"] if left_out else []),
    ]
    categories = corpus_results.categories or {}
    rows = [
        _class_row(c, categories, len(columns)) for c in (*_eligible(corpus_results), *left_out)
    ]
    notes = [
        (
            "",
            "Complete to k: the class can give k exemplars in every split, and no more in at least one.",
        )
    ]
    if marked := [row[0].text for row in rows if row[0].mark]:
        notes.append(("†", _tell_categories(marked, categories)))
    title = f"{evaluation.corpus}: call types evaluated, by their number of exemplars"
    name = f"classes-{safe_name(evaluation.corpus)}"
    return Table(name, title, [Column(text) for text in columns], rows, len(left_out), notes)


def _of_facts(read: Callable[[CorpusStats], Cell]) -> Read:
    return lambda corpus_results: read(corpus_results.facts)


def _columns(all_results: Sequence[CorpusResults]) -> list[Column]:
    return [Column(""), *(Column(c.evaluation.corpus) for c in all_results)]


def _rows(reads: Mapping[str, Read], all_results: Sequence[CorpusResults]) -> Iterator[Row]:
    for label, read in reads.items():
        yield [Cell(label), *(read(corpus_results) for corpus_results in all_results)]


def _several(values: Sequence[float]) -> Cell:
    """Return a number, or the text of several."""
    text = ", ".join(f"{value:g}" for value in values)
    return Cell(text or MISSING, values[0] if len(values) == 1 else None)


def _unit(lengths: Sequence[DurationStats]) -> tuple[float, str]:
    """Choose the unit in which people would tell the longest total: one for all, so that they compare.

    >>> _unit([Lengths(226, 3336.0, 14.75, 0.49, 296.53, 31.55)])
    (60.0, 'min')
    """
    most_s = max((one.total_s for one in lengths), default=0.0)
    return next(((unit_s, unit) for unit_s, unit in UNITS if most_s >= 2 * unit_s), (1.0, "s"))


def _spread_rows(
    read: Callable[[CorpusResults], DurationStats], which: str = ""
) -> dict[str, Read]:
    """Return the rows for mean, ends and standard deviation of lengths; without a span, there is nothing to tell."""

    def tell(field: str) -> Read:
        return lambda c: number(getattr(read(c), field), 2) if read(c).count else Cell(MISSING)

    fields = {
        "Average length": "mean_s",
        "Shortest": "shortest_s",
        "Longest": "longest_s",
        "Std. dev.": "deviation_s",
    }
    return {f"{name}{which} (s)": tell(field) for name, field in fields.items()}


def _minimum_rows(all_results: Sequence[CorpusResults]) -> dict[str, Read]:
    """Return the rows that count what is long enough; a minimum that differs between corpora has its own row."""
    minima = {c.facts.minimum_s for c in all_results}
    count = _of_facts(lambda f: number(f.segments.count, 0))
    if len(minima) == 1:
        return {f"Segments of at least {minima.pop():g} s": count}
    minimum = _of_facts(lambda f: Cell(f"{f.minimum_s:g}", f.minimum_s))
    return {"Minimum length (s)": minimum, "Segments of at least that length": count}


def _eligible(corpus_results: CorpusResults) -> list[ClassCount]:
    eligible = [c for c in corpus_results.evaluation.classes if c.eligible]
    return sorted(eligible, key=lambda c: (-c.exemplars, c.label))


def _class_row(one: ClassCount, categories: Mapping[str, str], width: int) -> Row:
    mark = "†" if one.eligible and one.label in categories else ""
    complete = number(one.complete_to_k, 0) if one.eligible else Cell(MISSING)
    return [Cell(one.label, mark=mark), number(one.exemplars, 0), complete, Cell(one.reason)][
        :width
    ]


def _tell_categories(labels: Sequence[str], categories: Mapping[str, str]) -> str:
    """Say what each category holds, unless every class is a category of its own."""
    members: dict[str, list[str]] = {}
    for label in labels:
        members.setdefault(categories[label], []).append(label)
    told = "; ".join(f"{name} ({', '.join(inside)})" for name, inside in members.items())
    own = all(len(inside) == 1 for inside in members.values())
    return f"In the reduced scoring, {'a category of its own.' if own else f'under its category: {told}.'}"
