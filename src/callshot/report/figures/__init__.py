"""Results of a corpus → its figures, as PDF and PNG: those of the paper, and more.

episode      one real query, its support set and the decision           figure 1 of the paper
sweep        mAP against k for every encoder, with baselines       figures 2 and 4
reduced      the same over categories, if there are any
inset        the few-shot regime, k = 1 to 7, with violins              figure 3
classes      the curve of every class
spreads      `per-query`, `shared` and `total`, and how wide they are
differences  encoders and baselines, compared in pairs on the same draws
training     the centroid and a baseline trained on the same exemplars, at every k
classifiers  other classifiers without training beside the centroid
refinement   gradient steps from the centroid to logistic regression
sensitivity  where the spread of mAP comes from, against k
confusion    labels against decisions at chosen k
map          the embeddings in the plane of largest variance

A figure that does not fit a page becomes several: confusion-1, confusion-2, …
"""

from collections.abc import Sequence

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.figures.confusion import plan_confusion
from callshot.report.figures.curves import (
    draw_sweep,
    plan_classes,
    plan_classifiers,
    plan_inset,
    plan_spreads,
    plan_sweep,
)
from callshot.report.figures.differences import plan_differences, plan_sensitivity
from callshot.report.figures.episode import plan_episode
from callshot.report.figures.figure_io import Pages
from callshot.report.figures.projection import plan_projection
from callshot.report.figures.training import plan_refinement, plan_training

__all__ = ["draw_sweep", "plan_figures"]

CONFUSION_SHOTS = (1, 5, 20)


def plan_figures(
    results: CorpusResults,
    confusion_shots: Sequence[int] = CONFUSION_SHOTS,
    protocol: Protocol | None = None,
) -> Pages:
    """Yield a page for every figure that the results have data for.

    `protocol` is that of the evaluation; the example episode is rerun by it.
    """
    yield from plan_episode(results, protocol or Protocol())
    yield from plan_sweep(results)
    yield from plan_inset(results)
    yield from plan_classes(results)
    yield from plan_spreads(results)
    yield from plan_differences(results)
    yield from plan_training(results)
    yield from plan_classifiers(results)
    yield from plan_refinement(results)
    yield from plan_sensitivity(results)
    yield from plan_confusion(results, confusion_shots)
    yield from plan_projection(results)
