"""Options of an evaluation: the folds of a corpus, and the protocol."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.options import FoldCount, Seed, Shots, parse_names

if TYPE_CHECKING:
    from callshot.fewshot.protocol import Protocol
    from callshot.study.file_steps import DatasetChoice


@dataclass
class DatasetOptions:
    """The folds, the categories and the name of a corpus."""

    folds: FoldCount = None
    fold_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with your own folds: the columns segment and fold, or recording and "
            "fold. The file folds.csv of earlier results can be used.",
        ),
    ] = None
    categories: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV file with the columns label and category. Adds scores that are averaged "
            "over categories (reduced scoring).",
        ),
    ] = None
    group_duplicates: Annotated[
        bool,
        typer.Option(
            "--group-duplicates",
            help="Put recordings that contain the same call into one fold. Calls are the same if "
            "their embeddings are equal.",
        ),
    ] = False
    corpus: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the corpus in the results.",
            show_default="the name in the table, or the name of its folder",
        ),
    ] = None

    def choice(self) -> "DatasetChoice":
        """Return how folds and categories are chosen."""
        from callshot.study.file_steps import DatasetChoice

        return DatasetChoice(**vars(self))


@dataclass
class ProtocolOptions:
    """How support sets are drawn, scored and resampled."""

    shots: Shots = "1-40"
    draws: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of support sets (random sets of k examples per class) for each query.",
        ),
    ] = 100
    bootstraps: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of bootstrap samples, for --spread per-query.",
        ),
    ] = 5000
    shared_draws: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of support sets that all queries share, for --spread shared.",
        ),
    ] = 1000
    total_samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of random samples of recordings, for --spread total.",
        ),
    ] = 1000
    seed: Seed = 0
    sampler: Annotated[
        str,
        typer.Option(
            metavar="distinct|replacement",
            help="How the k examples of a class are drawn. distinct: without replacement. "
            "replacement: with replacement, so an example can be drawn twice.",
        ),
    ] = "distinct"
    score: Annotated[
        str,
        typer.Option(
            metavar="log|softmax",
            help="Score that ranks the queries. log: the log-odds. softmax: the probability, as in "
            "the paper; it rounds to 0 and 1, and the effect of such ties is measured, which "
            "takes twice the time.",
        ),
    ] = "log"
    classifiers: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="Classifiers without training, separated by commas. centroid: nearest class mean. "
            "cosine: the same with cosine similarity. cl2n: centroid on centred vectors of length "
            "1. whitened: centroid on whitened vectors. neighbour: nearest example. medoid: "
            "nearest central example.",
        ),
    ] = "centroid"
    spread: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What the intervals account for. total: other calls could have been labelled, and "
            "other recordings made. shared: other calls could have been labelled. per-query: the "
            "bootstrap of the paper. all: all three.",
        ),
    ] = "all"

    permutations: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of permutations of the labels, for the test against chance. 0: no test.",
        ),
    ] = 199

    repeat_folds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of different divisions into folds. With 2 or more, partitions.csv shows "
            "how much mAP depends on the folds.",
        ),
    ] = 1

    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of labelled sets, and of samples of recordings, to evaluate. With 2 or "
            "more, sensitivity.csv shows how much of the variation of mAP comes from folds, from "
            "examples and from queries.",
        ),
    ] = 1

    def protocol(self) -> "Protocol":
        """Return the protocol, checked."""
        from callshot.fewshot.protocol import make_protocol

        classifiers = parse_names(self.classifiers)
        return make_protocol(**vars(self) | {"classifiers": classifiers})
