"""Results of a corpus → its figures, as PDF and PNG: those of the paper, and more.

Each figure is declared beside the function that plans its pages: `@figure_of_report(name, section,
caption)`. They are drawn and shown in the order of these modules. A figure that does not fit a page
becomes several: confusion-1, confusion-2, …
"""

from collections.abc import Sequence

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults

# Figures are drawn and shown in the order of these modules, which declare them.
# isort: off
from callshot.report.figures import episode  # noqa: F401
from callshot.report.figures.curves import draw_sweep
from callshot.report.figures import differences  # noqa: F401
from callshot.report.figures import confusion  # noqa: F401
from callshot.report.figures import projection  # noqa: F401

# isort: on
from callshot.report.figures.figure_io import FIGURES, Pages

__all__ = ["FIGURES", "draw_sweep", "plan_figures"]

CONFUSION_SHOTS = (1, 5, 20)


def plan_figures(
    results: CorpusResults,
    confusion_shots: Sequence[int] = CONFUSION_SHOTS,
    protocol: Protocol | None = None,
) -> Pages:
    """Yield a page for every figure that the results have data for.

    `protocol` is that of the evaluation; the example episode is rerun by it.
    """
    for figure in FIGURES.values():
        yield from figure.plan(results, confusion_shots, protocol or Protocol())
