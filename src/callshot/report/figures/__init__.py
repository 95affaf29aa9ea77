"""Results of a corpus → its figures, as PDF and PNG: the figures of the paper, and more.

Each figure is declared beside the function that plans its pages: `@figure_of_report(name, section,
caption)`, in any module of this package. A figure that does not fit a page becomes several:
confusion-1, confusion-2, …
"""

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.figures.figure_io import FIGURES, ON_CHART, Pages

CONFUSION_SHOTS = (1, 5, 20)

for _module in iter_modules(__path__):  # each declares its figures
    import_module(f"{__name__}.{_module.name}")


def plan_figures(
    results: CorpusResults,
    confusion_shots: Sequence[int] = CONFUSION_SHOTS,
    protocol: Protocol | None = None,
    *,
    charts: bool = True,
) -> Pages:
    """Yield a page for every figure that the results have data for.

    Without `charts`, those that a chart of the page shows are left out. The example episode is
    rerun with `protocol`, the protocol of the evaluation.
    """
    for figure in FIGURES.values():
        if charts or figure.section != ON_CHART:
            yield from figure.plan(results, confusion_shots, protocol or Protocol())
