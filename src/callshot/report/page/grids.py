"""A table → HTML that reads without scripts and sorts with them."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import isfinite

from callshot.report.page.html import Markup, element, join
from callshot.report.tables.table import Cell, Table


def show_table(table: Table, name: str) -> Markup:
    """Return a table with its caption and notes; `name` is its id on the page. It scrolls inside its own box."""
    grid = _Grid(table)
    shown = element(
        "table",
        *grid.parts(),
        class_="sorts",
        aria_labelledby=name,
        data_testid=f"table-{table.name}",
    )
    box = element("div", shown, class_="scroll", tabindex="0", role="region", aria_labelledby=name)
    return element(
        "figure", element("figcaption", table.title, id=name), box, _notes(table), class_="grid"
    )


class _Grid:
    """The parts of a table; a column is one of numbers if any of its cells is a number."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.numeric = [
            any(row[at].value is not None for row in table.rows) for at in range(len(table.columns))
        ]

    def parts(self) -> Iterator[Markup]:
        rows, cut = (
            [self.row(row) for row in self.table.rows],
            len(self.table.rows) - self.table.foot,
        )
        yield element("thead", *self.headings())
        yield element("tbody", *rows[:cut])
        if rows[cut:]:
            yield element("tfoot", *rows[cut:])

    def headings(self) -> Iterator[Markup]:
        """Yield one row of headings, or two where neighbours share a group."""
        columns = self.table.columns
        grouped = any(column.group for column in columns)
        first = [
            self.group(*part, grouped)
            for part in groupby(range(len(columns)), lambda at: columns[at].group)
        ]
        yield element("tr", *first)
        if grouped:
            yield element(
                "tr", *(self.heading(at) for at, column in enumerate(columns) if column.group)
            )

    def group(self, name: str, places: Iterator[int], grouped: bool) -> Markup:
        if name:
            return element("th", name, scope="colgroup", colspan=str(len(list(places))))
        return join(*(self.heading(at, "2" if grouped else None) for at in places))

    def heading(self, at: int, rowspan: str | None = None) -> Markup:
        name = self.table.columns[at].name
        return element(
            "th", name, scope="col", rowspan=rowspan, data_column=str(at), class_=self.look(at)
        )

    def row(self, cells: Sequence[Cell]) -> Markup:
        return element("tr", *(self.cell(at, cell) for at, cell in enumerate(cells)))

    def cell(self, at: int, cell: Cell) -> Markup:
        value = repr(float(cell.value)) if cell.value is not None and isfinite(cell.value) else None
        kind, scope = ("td", None) if at else ("th", "row")
        return element(kind, *_content(cell), scope=scope, class_=self.look(at), data_value=value)

    def look(self, at: int) -> str | None:
        return "n" if self.numeric[at] else None


def _content(cell: Cell) -> Iterator[str]:
    yield element("u", cell.text, class_=f"u{cell.underline}") if cell.underline else cell.text
    if cell.mark:
        yield element("sup", cell.mark)


def _notes(table: Table) -> str:
    lines = [
        element("li", join(element("sup", mark), " ") if mark else "", text)
        for mark, text in table.notes
    ]
    return element("ul", *lines, class_="notes") if lines else ""
