"""Results of a corpus → its figures, as PDF and PNG: the figures of the paper, and more.

Each is declared beside the function that plans its pages, in any module of this package.
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
    """Yield a page for every figure with data; without `charts`, those that no chart shows."""
    for figure in FIGURES.values():
        if charts or figure.section != ON_CHART:
            yield from figure.plan(results, confusion_shots, protocol or Protocol())
