"""A chapter → its means by k, with the rivals below, and underlined where the centroid first passes one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from callshot.records import Baseline, CorpusResults, Curve
from callshot.report.tables.file_names import safe_name
from callshot.report.tables.shots import (
    PAPER_SHOTS,
    shot_cell,
    shown_shots,
    star_note,
    starred_shot,
)
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Place = tuple[str, str]  # an encoder and a metric
Note = tuple[str, str]

METRICS = {"auroc": "AUROC", "map": "mAP"}
KINDS = ("logistic", "recurrent", "end-to-end")
UNDERLINES = {"logistic": 1, "recurrent": 2}
TIMES = {1: "once", 2: "twice"}
SPREADS = {
    "per-query": "over bootstrap samples, in which every query has a support set of its own",
    "shared": "over sets of labelled exemplars that serve all queries; query sampling is not in it",
}


def results(
    corpus_results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS, spread: str = "per-query"
) -> Table:
    """Tell AUROC and mAP by k for each encoder, with rivals and chance: the paper's tables 4 and 5.

    Shots that were not evaluated are left out; if none was, all that were are told. A spread that was not evaluated
    gives way to the one that was.
    """
    sweep = _open_sweep(corpus_results, "all", shots, spread)
    title = "mean AUROC and mAP of the centroid with k exemplars per class"
    return _tell(corpus_results, sweep, "results", title, UNDERLINES)


def reduced(
    corpus_results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS, spread: str = "per-query"
) -> Table | None:
    """Tell the same under reduced scoring, where there are categories: the paper's table 6.

    An end-to-end rival is what the centroid is measured against here; without one, it is the rivals of `results`.
    """
    if not any(c.scoring == "reduced" for c in corpus_results.evaluation.curve):
        return None
    sweep = _open_sweep(corpus_results, "reduced", shots, spread)
    against = {"end-to-end": 1} if "end-to-end" in sweep.kinds() else UNDERLINES
    title = "mean AUROC and mAP of the centroid over categories (reduced scoring)"
    return _tell(corpus_results, sweep, "reduced", title, against)


@dataclass(frozen=True)
class _Sweep:
    """The points of one scoring and spread at the shots that are told, and the rivals they are measured against."""

    spread: str
    points: Mapping[tuple[str, str, int], Curve]
    shots: Sequence[int]
    baselines: Sequence[Baseline]

    def places(self) -> list[Place]:
        encoders = dict.fromkeys(encoder for encoder, _, _ in self.points)
        return [(encoder, metric) for encoder in encoders for metric in METRICS]

    def kinds(self) -> list[str]:
        """Return the kinds of rivals that there are, in the order of their rows."""
        there = dict.fromkeys(r.kind for r in self.baselines)
        return sorted(there, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS))

    def of_kind(self, kind: str, place: Place | None = None) -> list[Baseline]:
        """Return the rivals of a kind: all, or those on one encoder and metric. One without encoder is on each."""
        mine = [r for r in self.baselines if r.kind == kind]
        return (
            mine
            if place is None
            else [r for r in mine if r.encoder in ("", place[0]) and r.metric == place[1]]
        )

    def crossover(self, kind: str, place: Place) -> int | None:
        """Return the first k at which the mean is above every rival of a kind."""
        bars = [r.value for r in self.of_kind(kind, place)]
        there = [c for k in self.shots if (c := self.points.get((*place, k)))]
        return next((c.k for c in there if c.mean > max(bars)), None) if bars else None


def _open_sweep(
    corpus_results: CorpusResults, scoring: str, shots: Sequence[int], spread: str
) -> _Sweep:
    points = [
        c for c in corpus_results.evaluation.curve if c.scoring == scoring and c.metric in METRICS
    ]
    spread = spread if any(c.spread == spread for c in points) else points[0].spread
    points = [c for c in points if c.spread == spread]
    baselines = [r for r in corpus_results.baselines if r.scoring == scoring]
    at = {(c.encoder, c.metric, c.k): c for c in points}
    return _Sweep(spread, at, shown_shots((c.k for c in points), shots), baselines)


def _tell(
    corpus_results: CorpusResults, sweep: _Sweep, name: str, title: str, against: Mapping[str, int]
) -> Table:
    """Make the table: rows of k, then rivals, then chance; `against` says which kinds underline, and how often."""
    corpus, best = corpus_results.evaluation.corpus, corpus_results.evaluation.complete_shots
    star = starred_shot(sweep.shots, best)
    foot = [
        *(row for kind in sweep.kinds() for row in _rival_rows(sweep, kind)),
        _chance_row(sweep),
    ]
    notes = [
        star_note(star, best),
        *_underline_notes(sweep, against),
        *_rival_notes(sweep),
        (
            "",
            f"Chance: what a random ranking scores. Means are {SPREADS.get(sweep.spread, sweep.spread)}.",
        ),
    ]
    columns = [
        Column("k"),
        *(Column(METRICS[metric], encoder) for encoder, metric in sweep.places()),
    ]
    rows = [*_mean_rows(sweep, against, star), *foot]
    title = f"{corpus}: {title}, {sweep.spread}"
    return Table(f"{name}-{safe_name(corpus)}", title, columns, rows, len(foot), notes)


def _mean_rows(sweep: _Sweep, against: Mapping[str, int], star: int | None) -> Iterator[list[Cell]]:
    lines = _underlines(sweep, against)
    for k in sweep.shots:
        points = ((place, sweep.points.get((*place, k))) for place in sweep.places())
        means = (
            number(c.mean, underline=lines.get((place, k), 0)) if c else Cell(MISSING)
            for place, c in points
        )
        yield [shot_cell(k, star), *means]


def _underlines(sweep: _Sweep, against: Mapping[str, int]) -> dict[tuple[Place, int], int]:
    """Return the underlines of each crossover; where two fall together, the greater number of lines stands."""
    lines: dict[tuple[Place, int], int] = {}
    for kind, times in sorted(against.items(), key=lambda item: item[1]):
        for place in sweep.places():
            if (k := sweep.crossover(kind, place)) is not None:
                lines[place, k] = times
    return lines


def _underline_notes(sweep: _Sweep, against: Mapping[str, int]) -> Iterator[Note]:
    for kind, times in against.items():
        baselines = sweep.of_kind(kind)
        if any(sweep.crossover(kind, place) is not None for place in sweep.places()):
            both = "; it stands for both where the two fall together" if times == 2 else ""
            yield (
                "",
                f"Underlined {TIMES[times]}: the first k shown whose mean is above {_called(baselines)}{both}.",
            )
        elif baselines:
            yield "", f"No mean shown is above {_called(baselines)}."


def _name(baselines: Sequence[Baseline]) -> str:
    """Return how a row of rivals is called: by their name, or by their kind where names differ."""
    names = _names(baselines)
    return names[0] if len(names) == 1 else baselines[0].kind.capitalize()


def _called(baselines: Sequence[Baseline]) -> str:
    names, places = _names(baselines), [(r.encoder, r.metric) for r in baselines]
    if len(names) == 1:
        return names[0]
    return f"{'the' if len(set(places)) == len(places) else 'every'} {baselines[0].kind} rival"


def _rival_rows(sweep: _Sweep, kind: str) -> Iterator[list[Cell]]:
    """Yield one row for a kind; one for each name where an encoder has several."""
    baselines = sweep.of_kind(kind)
    alone = all(len(sweep.of_kind(kind, place)) <= 1 for place in sweep.places())
    for group in (
        [baselines]
        if alone
        else [[r for r in baselines if r.name == name] for name in _names(baselines)]
    ):
        values = (
            [r.value for r in sweep.of_kind(kind, place) if r in group] for place in sweep.places()
        )
        yield [
            Cell(_name(group)),
            *(number(value[0]) if value else Cell(MISSING) for value in values),
        ]


def _names(baselines: Sequence[Baseline]) -> list[str]:
    return list(dict.fromkeys(r.name for r in baselines))


def _rival_notes(sweep: _Sweep) -> Iterator[Note]:
    """Say what a row stands for whose name does not."""
    for kind in sweep.kinds():
        baselines = sweep.of_kind(kind)
        pairs = dict.fromkeys((r.name, r.encoder) for r in baselines)
        if len(_names(baselines)) > 1:
            told = "; ".join(f"{name} on {encoder}" if encoder else name for name, encoder in pairs)
            yield "", f"{kind.capitalize()}: {told}."
        if any(not r.encoder for r in baselines):
            yield (
                "",
                f"{_name(baselines)} hears the audio itself: its values are the same beside every encoder.",
            )
            if baselines[0].scoring == "reduced":
                told = "has one score for each category; of the centroid, AP of classes is averaged inside categories"
                yield (
                    "",
                    f"{_name(baselines)} {told}: two tasks, held side by side as in the paper.",
                )
    if sweep.baselines:
        yield "", "Rivals are trained on all labelled data of the support side of each split."


def _chance_row(sweep: _Sweep) -> list[Cell]:
    chances = {(c.encoder, c.metric): c.chance for c in sweep.points.values()}
    return [
        Cell("Chance"),
        *(
            number(chances[place]) if place in chances else Cell(MISSING)
            for place in sweep.places()
        ),
    ]
