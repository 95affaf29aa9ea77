"""Tables of the explanation pages → pictures beside them: python docs/pictures.py.

The numbers are read from the pages, so that a picture cannot differ from its table.
"""

from pathlib import Path
from typing import Any

from callshot.report.figures.figure_io import FigurePage, draw_page
from callshot.report.figures.layout import legend_handle, series_style

DOCS = Path(__file__).parent
ENCODERS = ("BirdNET 2.4", "YAMNet", "MFCC")
RATIOS_DB = (0, 6, 12)
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


def read_speeds(rows: Rows) -> dict[str, dict[str, float]]:
    """Return the mAP at k = 5 by corpus and speed."""
    speeds: dict[str, dict[str, float]] = {}
    corpus = ""
    for row in rows:
        corpus = row[0] or corpus
        value = float(row[3].split()[0])
        speeds.setdefault(corpus, {})[row[1].split()[0]] = value
    return speeds


def draw_speeds(figure: Any, tables: list[Rows]) -> None:
    """Draw a panel for each corpus; a line at the right is two speeds joined."""
    figure.set_size_inches(7.2, 2.6)
    every = [read_speeds(rows) for rows in tables[:3]]
    corpora = list(every[0])
    axes = figure.subplots(1, len(corpora), sharey=True)
    for ax, corpus in zip(axes, corpora, strict=True):
        for number, speeds in enumerate(every):
            values = speeds[corpus]
            fixed = sorted(float(speed) for speed in values if "+" not in speed)
            means = [values[f"{speed:g}"] for speed in fixed]
            ax.plot(fixed, means, **series_style(number))
            joined = next(speed for speed in values if "+" in speed)
            ends = [float(speed) for speed in joined.split("+")]
            style = series_style(number) | {
                "marker": "",
                "linestyle": "-",
                "linewidth": 3,
                "alpha": 0.4,
            }
            ax.plot(ends, [values[joined]] * 2, **style)
        ax.set_title(corpus)
        ax.set_xscale("log", base=2)
        ax.set_xticks([0.5, 1, 2, 4, 8], ["½", "1", "2", "4", "8"])
        ax.minorticks_off()
    axes[0].set_ylabel("mAP, 5 examples")
    figure.supxlabel("speed of the calls; thick lines: two speeds joined")
    handles = [legend_handle(series_style(number)) for number in range(len(every))]
    figure.legend(handles, ENCODERS, loc="outside upper center", ncols=3)


def draw_detection(figure: Any, tables: list[Rows]) -> None:
    """Draw precision and recall against the signal-to-noise ratio."""
    figure.set_size_inches(7.2, 3.0)
    wanted = [
        (tables[0], "5 clips", "scanned", "MFCC, 5 clips, no labels"),
        (tables[0], "5 clips", "quiet", "MFCC, 5 clips, quiet hours"),
        (tables[1], "5 clips", "scanned", "YAMNet, 5 clips, no labels"),
        (tables[1], "5 clips", "quiet", "YAMNet, 5 clips, quiet hours"),
        (tables[2], "5 clips", "scanned", "BirdNET, 5 clips, no labels"),
        (tables[2], "5 clips", "quiet", "BirdNET, 5 clips, quiet hours"),
    ]
    axes = figure.subplots(1, 2, sharey=True)
    for number, (rows, examples, background, _) in enumerate(wanted):
        row = next(one for one in rows if one[:2] == [examples, background])
        scores = [[float(part) for part in cell.split(" / ")] for cell in row[2:5]]
        for ax, column in zip(axes, (1, 0), strict=True):
            ax.plot(RATIOS_DB, [one[column] for one in scores], **series_style(number))
    for ax, title in zip(axes, ("recall", "precision"), strict=True):
        ax.set_title(title)
        ax.set_xticks(RATIOS_DB)
        ax.set_ylim(0, 1)
    figure.supxlabel("signal-to-noise ratio of the calls, dB")
    handles = [legend_handle(series_style(number)) for number in range(len(wanted))]
    names = [name for *_, name in wanted]
    figure.legend(handles, names, loc="outside upper center", ncols=3)


def main() -> None:
    """Draw all pictures."""
    encoders = read_tables("explanation-encoders.md")
    detection = read_tables("explanation-detection.md")
    pages = [
        FigurePage("speeds", draw_speeds, (encoders,)),
        FigurePage("detection", draw_detection, (detection,)),
    ]
    for page in pages:
        draw_page(page, DOCS, ["png"])


if __name__ == "__main__":
    main()
