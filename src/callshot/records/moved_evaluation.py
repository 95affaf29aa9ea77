"""The result of an evaluation whose examples come from another corpus than its queries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import polars as pl

from callshot.records import notebook
from callshot.records.evaluation import Evaluation
from callshot.records.frames import Frame, unique_values
from callshot.records.terms import preferred_spread

SITE_EXAMPLES = "examples of {}"  # what moved examples are compared with


@dataclass(frozen=True, eq=False, repr=False)
class MovedEvaluation(Evaluation):
    """The k-shot curve with examples from a library and queries from a site.

    Its frames are those of the moved examples; `differences` also has `costs`.

    Attributes
    ----------
    library, corpus : str
        The names of both corpora; queries are from `corpus`, the site.
    at_site : Evaluation
        The curve inside the site: examples from its other folds.
    in_library : Evaluation or None
        The curve inside the library; None where it allows none.
    sources : mapping
        The encoders of the library and of the site by that of the moved curve: names may differ.
    """

    library: str = "library"
    at_site: Evaluation = field(kw_only=True)
    in_library: Evaluation | None = None
    sources: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def costs(self) -> Frame:
        """What moving examples costs: moved curves less those with examples of the site."""
        return self.differences.filter(other=SITE_EXAMPLES.format(self.corpus))

    def evaluations(self) -> list[tuple[str, Evaluation]]:
        """Return every evaluation after the name of the corpus that its examples are from."""
        pairs = [(self.library, self), (self.corpus, self.at_site)]
        if self.in_library is not None:
            pairs.append((self.library, self.in_library))
        return pairs

    def join_frames(self, frame: str | Callable[[Evaluation], Frame]) -> Frame:
        """Return a frame of all evaluations, with where examples and queries are from.

        Parameters
        ----------
        frame : str or callable
            The name of a frame, such as "curve" or "per_class", or a function that makes it.

        Returns
        -------
        polars.DataFrame
            With the columns `supports` and `queries` first, in place of `corpus`.
        """
        get = attrgetter(frame) if isinstance(frame, str) else frame
        parts = []
        for library, evaluation in self.evaluations():
            supports = pl.lit(library).alias("supports")
            queries = pl.lit(evaluation.corpus).alias("queries")
            rows: Frame = get(evaluation)
            others = pl.selectors.exclude("corpus")
            parts.append(rows.select(supports, queries, others))
        return pl.concat(parts)

    def list_curves(self, encoder: str) -> dict[str, Frame]:
        """Return the moved curve of an encoder and those inside both corpora, by their names.

        The classifier is the centroid, or the first one where that was not evaluated.
        """
        in_library, at_site = self.sources[encoder]
        curves = {
            f"{self.library} → {self.corpus}": self.curve.filter(encoder=encoder),
            f"inside {self.corpus}": self.at_site.curve.filter(encoder=at_site),
        }
        if self.in_library is not None:
            rows = self.in_library.curve.filter(encoder=in_library)
            curves[f"inside {self.library}"] = rows
        classifier = self.reference
        return {
            name: rows.filter(classifier=classifier) for name, rows in curves.items()
        }

    @property
    def reference(self) -> str:
        """The classifier of tables and figures."""
        classifiers: list[str] = unique_values(self.curve, "classifier")
        return "centroid" if "centroid" in classifiers else classifiers[0]

    def plot(
        self, metric: str = "map", *, spread: str | None = None, ax: Any = None
    ) -> Any:
        """Draw the curves of moved examples, and those inside both corpora; see `Evaluation`."""
        spread = spread or preferred_spread(self.curve["spread"])
        name = pl.format("{}, {} → {}", "encoder", "supports", "queries")
        curve = self.join_frames("curve").with_columns(encoder=name)
        return notebook.plot_curves(curve, metric, spread, ax)

    def _describe(self) -> str:
        return f"examples from {self.library}, queries from {super()._describe()}"
