"""A table → HTML that can be read without scripts and sorted with them."""

from collections.abc import Iterator, Sequence
from math import isfinite

from callshot.report.page.html import Markup, element, join
from callshot.report.tables.table import Cell, Table, column_groups, column_kinds

Classes = Sequence[str | None]  # the CSS class of each column


def show_table(table: Table, name: str) -> Markup:
    """Return a table in a box that scrolls, with its caption and notes; `name` is its id."""
    # A column with any number in it is aligned and sorted as numbers.
    classes = [None if kind == "text" else "n" for kind in column_kinds(table)]
    grid = element(
        "table",
        *_parts(table, classes),
        class_="sorts",
        aria_labelledby=name,
        data_testid=f"table-{table.name}",
    )
    box = element(
        "div", grid, class_="scroll", tabindex="0", role="region", aria_labelledby=name
    )
    caption = element("figcaption", table.title, id=name)
    return element("figure", caption, box, _notes(table), class_="grid")


def _parts(table: Table, classes: Classes) -> Iterator[Markup]:
    rows = [_row(cells, classes) for cells in table.rows]
    first_foot = len(rows) - table.foot
    yield element("thead", *_headings(table, classes))
    yield element("tbody", *rows[:first_foot])
    if table.foot:
        yield element("tfoot", *rows[first_foot:])


def _headings(table: Table, classes: Classes) -> Iterator[Markup]:
    """Yield one row of headings, or two if neighbours share a heading."""
    groups = list(column_groups(table.columns))
    is_grouped = any(name for name, _ in groups)
    first = []
    second = []
    for name, indices in groups:
        rowspan = "2" if is_grouped and not name else None
        headings = [_heading(table, index, classes, rowspan) for index in indices]
        if name:
            first.append(
                element("th", name, scope="colgroup", colspan=str(len(indices)))
            )
            second += headings
        else:
            first += headings
    yield element("tr", *first)
    if is_grouped:
        yield element("tr", *second)


def _heading(table: Table, index: int, classes: Classes, rowspan: str | None) -> Markup:
    return element(
        "th",
        table.columns[index].name,
        scope="col",
        rowspan=rowspan,
        data_column=str(index),
        class_=classes[index],
    )


def _row(cells: Sequence[Cell], classes: Classes) -> Markup:
    tags = ["td"] * len(cells)
    tags[0] = "th"
    return element("tr", *map(_cell, tags, cells, classes))


def _cell(tag: str, cell: Cell, class_: str | None) -> Markup:
    value = None
    if cell.value is not None and isfinite(cell.value):
        value = repr(float(cell.value))
    text = cell.text
    if cell.underline:
        text = element("u", text, class_=f"u{cell.underline}")
    mark = element("sup", cell.mark) if cell.mark else ""
    return element(
        tag,
        text,
        mark,
        scope="row" if tag == "th" else None,
        class_=class_,
        data_value=value,
    )


def _notes(table: Table) -> str:
    if not table.notes:
        return ""
    items = []
    for mark, text in table.notes:
        sign = join(element("sup", mark), " ") if mark else ""
        items.append(element("li", sign, text))
    return element("ul", *items, class_="notes")
