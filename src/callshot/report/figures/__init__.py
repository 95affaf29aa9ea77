"""A chapter → its figures, as PDF and PNG: those of the paper, and those it does not have.

episode      one real query, what is drawn for it and what is left, class by fold                       the paper's 1
sweep        a metric against k for every encoder, with rivals, new exemplars and k*                    2 and 4
reduced      the same over categories, where there are any
inset        the few-shot regime, k = 1 to 7, with violins                                              3
classes      the curve of every class
spreads      `per-query` against `shared`
differences  encoders, and rivals, compared pair by pair over the same draws
training     the centroid against a rival that is trained on the same exemplars, at every k
rules        other rules without training beside the centroid
refinement   what gradient steps make of the centroid, on the way to logistic regression
confusion    labels against decisions at chosen k
map          the embeddings in the plane of largest variance, with the labels' centroids

Where a figure would not fit a page, it is several: confusion-1, confusion-2 and so on. How they look is in `style`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.figures.classes import classes_plates
from callshot.report.figures.classifiers import rules_plates
from callshot.report.figures.confusion import confusion_plates
from callshot.report.figures.differences import differences_plates
from callshot.report.figures.episode import episode_plates
from callshot.report.figures.figure_io import FigurePage, render
from callshot.report.figures.inset import inset_plates
from callshot.report.figures.projection import map_plates
from callshot.report.figures.refinement import refinement_plates
from callshot.report.figures.spreads import spreads_plates
from callshot.report.figures.sweep import draw_sweep, sweep_plates
from callshot.report.figures.training import training_plates

__all__ = ["draw_figures", "draw_sweep", "plan_figures"]


def draw_figures(
    corpus_results: CorpusResults,
    folder: Path,
    *,
    confusion_at: Sequence[int] = (1, 5, 20),
    metric: str = "map",
    protocol: Protocol | None = None,
) -> list[str]:
    """Draw every figure that makes sense for a chapter, and return the names of the files.

    `protocol` is the one of the evaluation: the episode is drawn and scored by it. Equal chapters give equal bytes.
    """
    plates = plan_figures(
        corpus_results, confusion_at=confusion_at, metric=metric, protocol=protocol
    )
    return [path.name for plate in plates for path in render(plate, folder)]


def plan_figures(
    corpus_results: CorpusResults,
    *,
    confusion_at: Sequence[int] = (1, 5, 20),
    metric: str = "map",
    protocol: Protocol | None = None,
) -> Iterator[FigurePage]:
    """Yield what `draw_figures` draws, figure by figure."""
    yield from episode_plates(corpus_results, protocol or Protocol())
    yield from sweep_plates(corpus_results, metric)
    yield from inset_plates(corpus_results, metric)
    yield from classes_plates(corpus_results, metric)
    yield from spreads_plates(corpus_results, metric)
    yield from differences_plates(corpus_results, metric)
    yield from training_plates(corpus_results, metric)
    yield from rules_plates(corpus_results, metric)
    yield from refinement_plates(corpus_results)
    yield from confusion_plates(corpus_results, confusion_at)
    yield from map_plates(corpus_results)
