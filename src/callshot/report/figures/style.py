"""How every figure looks: sizes, colours, lines and markers, in one place.

The colours are those of Okabe and Ito. None carries a meaning alone: series differ in dashes and markers, areas in
lightness, so that all can be told apart in grey.
"""

from typing import Any

FigureStyle = dict[str, Any]

WIDE_IN, TALL_IN = 7.2, 9.2  # the text of a page
TITLE_PT, TEXT_PT, SMALL_PT = 8.0, 7.5, 6.5  # no letter is smaller
DPI = 160

INK, GREY, SILVER, MIST = "#1F1F1F", "#6E6E6E", "#C4C4C4", "#EBEBEB"
BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY = "#E69F00", "#56B4E9"
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
DASHES = (
    (0, ()),
    (0, (4, 1.5)),
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (1.2, 1.2)),
    (0, (7, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
SHADES = (
    "#FFFFFF",
    "#CFE3F0",
    "#97C4E0",
    "#5BA2CE",
    "#2079B4",
    "#003F66",
)  # of shares 0 to 1: lightness falls evenly

BOX: FigureStyle = {"facecolor": "#B9DAEC", "edgecolor": BLUE, "linewidth": 0.6, "zorder": 3}
WHISKER: FigureStyle = {"color": BLUE, "linewidth": 0.7, "zorder": 2.5}
MEDIAN: FigureStyle = {"color": BLUE, "linewidth": 0.9, "zorder": 4}
MEAN: FigureStyle = {
    "color": INK,
    "linestyle": "none",
    "marker": "o",
    "markeredgewidth": 0,
    "zorder": 5,
}
VIOLIN: FigureStyle = {"facecolor": "#DCEDF6", "edgecolor": SKY, "linewidth": 0.5, "zorder": 2.4}
CHANCE: FigureStyle = {"color": INK, "linewidth": 0.9, "linestyle": (0, (1, 1.6)), "zorder": 2}
EDGE: FigureStyle = {
    "color": GREY,
    "linewidth": 0.7,
    "linestyle": (0, (4, 2)),
    "zorder": 1,
}  # where support is partial
ZERO: FigureStyle = {"color": INK, "linewidth": 0.7, "zorder": 2.2}
BAND = {"per-query": "#CFE4F1", "shared": "#FBE7C0"}
LINE: dict[str, FigureStyle] = {
    "per-query": {
        "color": BLUE,
        "linewidth": 0.9,
        "linestyle": DASHES[0],
        "marker": "o",
        "zorder": 3,
    },
    "shared": {
        "color": VERMILION,
        "linewidth": 0.9,
        "linestyle": DASHES[1],
        "marker": "s",
        "zorder": 3,
    },
}
BAND_OF = {"centroid": "#CFE4F1", "trained": "#F8DCCB"}
LINE_OF: dict[str, FigureStyle] = {
    "centroid": {
        "color": BLUE,
        "linewidth": 1.0,
        "linestyle": DASHES[0],
        "marker": "o",
        "zorder": 3.2,
    },
    "trained": {
        "color": VERMILION,
        "linewidth": 1.0,
        "linestyle": DASHES[1],
        "marker": "s",
        "zorder": 3.1,
    },
}
MARK: dict[str, FigureStyle] = {  # where one curve passes another: on average, and surely
    "k": {"color": INK, "linewidth": 0.8, "linestyle": (0, (1, 1.6)), "zorder": 1.8},
    "k_clear": {"color": INK, "linewidth": 0.8, "linestyle": "solid", "zorder": 1.8},
}
BASELINE: dict[str, FigureStyle] = {
    "logistic": {"color": "#00714F", "linewidth": 1.0, "linestyle": (0, (6, 1.5)), "zorder": 2.7},
    "recurrent": {
        "color": "#A3487A",
        "linewidth": 1.0,
        "linestyle": (0, (5, 1.2, 1.2, 1.2)),
        "zorder": 2.7,
    },
    "end-to-end": {"color": INK, "linewidth": 1.0, "linestyle": (0, (2.5, 1.2)), "zorder": 2.7},
}

STYLE: dict[Any, Any] = {
    "font.size": TEXT_PT,
    "text.parse_math": False,  # a label may have a dollar
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.03,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": MIST,
    "grid.linewidth": 0.5,
    "axes.titlesize": TITLE_PT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 4,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 2.2,
    "legend.columnspacing": 1.8,
    "pdf.fonttype": 42,
}

# DejaVu Sans, which matplotlib brings, has no Chinese, Japanese, Korean or Indic letters; what a system has, helps.
FONT = "DejaVu Sans"
OTHER_FONTS = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Source Han Sans",
    "WenQuanYi Zen Hei",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Apple SD Gothic Neo",
    "Noto Sans Devanagari",
    "Nirmala UI",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Noto Sans Ethiopic",
    "Arial Unicode MS",
)


def series(number: int) -> FigureStyle:
    """Return the look of the n-th line of several: colours, dashes and markers go round at different speeds."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }
