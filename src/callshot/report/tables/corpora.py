"""Results of corpora → tables of what was evaluated: recordings, segments, and classes."""

from collections.abc import Mapping, Sequence

from callshot.records import ClassCount, CorpusResults, DurationStats
from callshot.report.tables.scores import Note, Row
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Cells = dict[str, Cell]  # by the name of the row

UNITS = ((3600.0, "h"), (60.0, "min"))
DURATIONS = {
    "Average length": "mean_s",
    "Shortest": "shortest_s",
    "Longest": "longest_s",
    "Std. dev.": "deviation_s",
}
FORMAT_ROWS = 4  # of the table of corpora; the others are its foot
ANNOTATED_ROWS = 7  # of the table of segments; the others are its foot
COMPLETE_NOTE = (
    "Complete to k: the class can give k exemplars in every split, and no more in at least one."
)
SEGMENT_NOTE = (
    "The eligible support exemplars include the common fold, which has no queries. The complete "
    "shot count, k*, is the largest k at which every evaluated call type can give k exemplars in "
    "every split."
)


def corpus_table(all_results: Sequence[CorpusResults]) -> Table:
    """Return the recordings of each corpus, before segmentation: the paper's table 1."""
    unit_s, unit = _choose_unit([results.stats.recordings for results in all_results])
    columns = []
    for results in all_results:
        stats = results.stats
        rates_khz = [rate / 1000 for rate in stats.rates_hz]
        cells = {
            "Sampling rate (kHz)": _list_cell(rates_khz),
            "Channels": _list_cell(stats.channels),
            "Format": Cell(", ".join(stats.kinds) or MISSING),
            "Call types annotated": number(stats.labels, 0),
            "Recordings": number(stats.recordings.count, 0),
            "Annotated recordings": number(stats.annotated.count, 0),
            f"Total duration ({unit})": number(stats.recordings.total_s / unit_s, 2),
            f"Annotated duration ({unit})": number(stats.annotated.total_s / unit_s, 2),
            **_duration_cells(stats.recordings),
            "Cross-validation folds": number(results.evaluation.folds.count, 0),
        }
        columns.append(cells)
    title = "Corpora: their recordings, before segmentation"
    return _make_table("corpora", title, all_results, columns, FORMAT_ROWS)


def segment_table(all_results: Sequence[CorpusResults]) -> Table:
    """Return what was annotated, and what was evaluated: the paper's table 2."""
    unit_s, unit = _choose_unit([results.stats.calls for results in all_results])
    minima = {results.stats.minimum_s for results in all_results}
    columns = []
    for results in all_results:
        stats = results.stats
        evaluation = results.evaluation
        exemplars = [count.exemplars for count in evaluation.classes if count.eligible]
        cells = {
            "Call types annotated": number(stats.labels, 0),
            "Segments annotated": number(stats.calls.count, 0),
            f"Annotated duration ({unit})": number(stats.calls.total_s / unit_s, 2),
            **_duration_cells(stats.calls),
        }
        minimum = f"{stats.minimum_s:g}"
        length = f"{minimum} s"
        if len(minima) > 1:
            cells["Minimum length (s)"] = Cell(minimum, stats.minimum_s)
            length = "that length"
        cells |= {
            f"Segments of at least {length}": number(stats.segments.count, 0),
            "Call types evaluated, C": number(len(exemplars), 0),
            "Query segments, Q": number(evaluation.queries, 0),
            "Eligible support exemplars": number(sum(exemplars), 0),
            f"Evaluated duration ({unit})": number(results.evaluated.total_s / unit_s, 2),
            **_duration_cells(results.evaluated, ", evaluated"),
            "Complete shot count": number(evaluation.complete_shots, 0),
        }
        columns.append(cells)
    title = "Segments annotated, and those of them evaluated"
    notes = [("", SEGMENT_NOTE)]
    return _make_table("segments", title, all_results, columns, ANNOTATED_ROWS, notes)


def class_table(results: CorpusResults) -> Table:
    """Return the exemplars of each class and its complete shots; below, the classes left out."""
    evaluation = results.evaluation
    classes = sorted(evaluation.classes, key=_class_order)
    excluded = [count for count in classes if not count.eligible]
    categories = results.categories or {}
    names = ["Call type", "Exemplars", "Complete to k"]
    rows = [_class_row(count, categories) for count in classes]
    if excluded:
        names.append("Not evaluated because")
        rows = [[*row, Cell(count.reason)] for row, count in zip(rows, classes, strict=True)]
    notes = [("", COMPLETE_NOTE)]
    marked = [row[0].text for row in rows if row[0].mark]
    if marked:
        notes.append(("†", _describe_categories(marked, categories)))
    title = f"{evaluation.corpus}: call types evaluated, by their number of exemplars"
    columns = [Column(name) for name in names]
    return Table("classes", title, columns, rows, len(excluded), notes)


def _make_table(
    name: str,
    title: str,
    all_results: Sequence[CorpusResults],
    columns: Sequence[Cells],
    head: int,
    notes: Sequence[Note] = (),
) -> Table:
    """Return a table with a column per corpus; the rows below the first `head` are its foot."""
    rows = [[Cell(label), *(cells[label] for cells in columns)] for label in columns[0]]
    corpora = [Column(results.evaluation.corpus) for results in all_results]
    return Table(name, title, [Column(""), *corpora], rows, len(rows) - head, notes)


def _list_cell(values: Sequence[float]) -> Cell:
    """Return a cell with one number, or the text of several."""
    text = ", ".join(f"{value:g}" for value in values)
    if len(values) == 1:
        return Cell(text, values[0])
    return Cell(text or MISSING)


def _choose_unit(durations: Sequence[DurationStats]) -> tuple[float, str]:
    """Return the unit for the longest total, in seconds and by name; all corpora share it.

    >>> _choose_unit([DurationStats(226, 3336.0, 14.75, 0.49, 296.53, 31.55)])
    (60.0, 'min')
    """
    longest_s = max((stats.total_s for stats in durations), default=0.0)
    for unit_s, unit in UNITS:
        if longest_s >= 2 * unit_s:
            return unit_s, unit
    return 1.0, "s"


def _duration_cells(stats: DurationStats, subset: str = "") -> Cells:
    """Return the rows for mean, extremes and deviation; they are missing without any duration."""
    cells = {}
    for name, field in DURATIONS.items():
        cell = number(getattr(stats, field), 2) if stats.count else Cell(MISSING)
        cells[f"{name}{subset} (s)"] = cell
    return cells


def _class_order(count: ClassCount) -> tuple[bool, int, str]:
    return not count.eligible, -count.exemplars, count.label


def _class_row(count: ClassCount, categories: Mapping[str, str]) -> Row:
    exemplars = number(count.exemplars, 0)
    if not count.eligible:
        return [Cell(count.label), exemplars, Cell(MISSING)]
    mark = "†" if count.label in categories else ""
    return [Cell(count.label, mark=mark), exemplars, number(count.complete_to_k, 0)]


def _describe_categories(labels: Sequence[str], categories: Mapping[str, str]) -> str:
    """Return which classes each category has, unless every class is its own category."""
    members: dict[str, list[str]] = {}
    for label in labels:
        members.setdefault(categories[label], []).append(label)
    if len(members) == len(labels):
        return "In the reduced scoring, a category of its own."
    texts = [f"{name} ({', '.join(inside)})" for name, inside in members.items()]
    return f"In the reduced scoring, part of a category: {'; '.join(texts)}."
