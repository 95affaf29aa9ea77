"""Tables of the explanation pages → pictures beside them: python docs/pictures.py.

The numbers are read from the pages, so that a picture cannot differ from its table.
"""

from pathlib import Path
from typing import Any

from callshot.report.figures.figure_io import FigurePage, draw_page
from callshot.report.figures.layout import legend_handle, series_style

DOCS = Path(__file__).parent
ENCODERS = ("BirdNET 2.4", "YAMNet", "MFCC")
SHOTS = (1, 2, 5, 10, 20)
Rows = list[list[str]]


def read_tables(page: str) -> list[Rows]:
    """Return the tables of a page, without headings."""
    tables: list[Rows] = []
    is_table = False
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            if not is_table:
                tables.append([])
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        is_table = line.startswith("|")
    return [rows[2:] for rows in tables]


def read_columns(rows: Rows, count: int) -> dict[str, dict[str, list[float]]]:
    """Return the numbers after the first two columns, by corpus and row name."""
    values: dict[str, dict[str, list[float]]] = {}
    corpus = ""
    for row in rows:
        corpus = row[0] or corpus
        cells = [cell.strip("()") for cell in row[2 : 2 + count]]
        name = row[1].replace("`", "")
        values.setdefault(corpus, {})[name] = [float(cell) for cell in cells]
    return values


def draw_speeds(figure: Any, rows: Rows) -> None:
    """Draw a panel for each corpus; a line at the right is two speeds joined."""
    figure.set_size_inches(7.2, 2.6)
    corpora = read_columns(rows, len(ENCODERS))
    axes = figure.subplots(1, len(corpora), sharey=True)
    for ax, (corpus, speeds) in zip(axes, corpora.items(), strict=True):
        fixed = [speed for speed in speeds if "+" not in speed]
        joined = next(speed for speed in speeds if "+" in speed)
        ends = [float(speed) for speed in joined.split("+")]
        for number in range(len(ENCODERS)):
            means = [speeds[speed][number] for speed in fixed]
            ax.plot([float(speed) for speed in fixed], means, **series_style(number))
            style = series_style(number) | {
                "marker": "",
                "linestyle": "-",
                "linewidth": 3,
                "alpha": 0.4,
            }
            ax.plot(ends, [speeds[joined][number]] * 2, **style)
        ax.set_title(corpus)
        ax.set_xscale("log", base=2)
        ax.set_xticks([0.5, 1, 2, 4, 8], ["½", "1", "2", "4", "8"])
        ax.minorticks_off()
    axes[0].set_ylabel("mAP, 5 examples")
    figure.supxlabel("speed of the calls; thick lines: two speeds joined")
    handles = [legend_handle(series_style(number)) for number in range(len(ENCODERS))]
    figure.legend(handles, ENCODERS, loc="outside upper center", ncols=3)


def draw_examples(figure: Any, rows: Rows) -> None:
    """Draw mAP against the number of examples: a panel for each corpus."""
    figure.set_size_inches(7.2, 2.8)
    corpora = read_columns(rows, len(SHOTS))
    names = list(dict.fromkeys(name for one in corpora.values() for name in one))
    axes = figure.subplots(1, len(corpora), sharey=True)
    for ax, (corpus, encoders) in zip(axes, corpora.items(), strict=True):
        for encoder, means in encoders.items():
            ax.plot(SHOTS, means, **series_style(names.index(encoder)))
        ax.set_title(corpus)
        ax.set_xscale("log", base=2)
        ax.set_xticks(SHOTS, [str(k) for k in SHOTS])
        ax.set_ylim(0, 1)
        ax.minorticks_off()
    axes[0].set_ylabel("mAP")
    figure.supxlabel("examples of each call type")
    handles = [legend_handle(series_style(number)) for number in range(len(names))]
    figure.legend(handles, names, loc="outside upper center", ncols=len(names))


def read_interval(cell: str) -> list[float]:
    """Return the mean and the ends of an interval, from a cell such as `0.78 [0.64, 0.89]`."""
    numbers = cell.replace("−", "-").translate(str.maketrans("[],", "   "))
    return [float(number) for number in numbers.split()]


def draw_questions(figure: Any, rows: Rows) -> None:
    """Draw the scores of two encoders, and their difference, by both questions."""
    figure.set_size_inches(7.2, 2.0)
    scores, difference = figure.subplots(1, 2, sharey=True)
    for place, (_, one, other, gap) in enumerate(reversed(rows)):
        for number, cell in enumerate((one, other)):
            mean, low, high = read_interval(cell)
            style = series_style(number)
            height = place + 0.12 - 0.24 * number
            scores.plot([low, high], [height] * 2, **(style | {"marker": ""}))
            scores.plot([mean], [height], **style)
        mean, low, high = read_interval(gap)
        style = {"color": "black", "linewidth": 1.5}
        difference.plot([low, high], [place] * 2, **style)
        difference.plot([mean], [place], marker="o", **style)
    difference.axvline(0.0, color="grey", linewidth=0.8)
    scores.set_yticks([0, 1], ["Which is better?", "What will I get?"])
    scores.set_ylim(-0.5, 1.5)
    scores.set_xlabel("mAP")
    difference.set_xlabel("difference of mAP")
    handles = [legend_handle(series_style(number)) for number in range(2)]
    names = ("BirdNET at the speed of auto", "BirdNET")
    figure.legend(handles, names, loc="outside upper center", ncols=2)


def main() -> None:
    """Draw all pictures."""
    questions = read_tables("explanation-certainty.md")[0]
    speeds = read_tables("explanation-encoders.md")[0]
    examples = read_tables("how-many-examples.md")[0]
    pages = [
        FigurePage("speeds", draw_speeds, (speeds,)),
        FigurePage("how-many", draw_examples, (examples,)),
        FigurePage("questions", draw_questions, (questions,)),
    ]
    for page in pages:
        draw_page(page, DOCS, ["png"])


if __name__ == "__main__":
    main()
