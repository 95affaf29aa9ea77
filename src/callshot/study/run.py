"""A study and its steps → results: what is missing or has changed is made, and nothing else.

A run that was interrupted, or killed, goes on where it stopped. Two runs of one study do not get in each other's way:
the second says so and stops.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from callshot.corpus.inspection import inspect_corpus
from callshot.errors import InputError, OutputError
from callshot.fewshot.evaluate import Report
from callshot.fewshot.folds import evaluated_classes
from callshot.study.estimate import estimate_s
from callshot.study.file import CorpusPart, Study
from callshot.study.plan import plan
from callshot.study.steps import Step

Tell = Callable[[Step, float | None], None]


@dataclass(frozen=True)
class Standing:
    """Where a step stands: done, to be run, or waiting for one that is; and how long it took or may take."""

    step: Step
    state: str
    seconds: float


def stand(study: Study, steps: Sequence[Step]) -> list[Standing]:
    """Tell where every step stands; what waits may turn out to be done, if what comes before it gives the same."""
    states: dict[int, str] = {}
    found = []
    for step in steps:
        open_before = any(states[id(one)] != "done" for one in step.after)
        states[id(step)] = "waits" if open_before else "done" if step.done() else "to run"
        took_s = step.note().get("seconds")
        seconds = took_s if took_s is not None else estimate_s(study, step)
        found.append(Standing(step, states[id(step)], float(seconds)))
    return found


def run_study(
    study: Study,
    *,
    device: str = "cpu",
    threads: int | None = None,
    report: Report = lambda share, what: None,
    tell: Tell = lambda step, seconds: None,
) -> list[Step]:
    """Run what has to run; return the steps that did. `tell` hears of each step, with its seconds if it ran."""
    steps, ran = plan(study, device=device, threads=threads), []
    with _alone(study.work):
        refuse_hopeless(study, steps)
        seconds = [one.seconds * (one.state != "done") for one in stand(study, steps)]
        for step, share in zip(steps, (s / (sum(seconds) or 1.0) for s in seconds), strict=True):
            if step.done():
                report(share, step.name)
                tell(step, None)
                continue
            step.run(partial(_pass_on, report, step, share))
            ran.append(step)
            tell(step, step.note()["seconds"])
    return ran


def _pass_on(report: Report, step: Step, share: float, part: float, what: str) -> None:
    """Turn shares of a step into shares of the study."""
    report(part * share, step.name if what in step.name else f"{step.name}: {what}")


def refuse_hopeless(study: Study, steps: Sequence[Step]) -> None:
    """Refuse a corpus of which nothing could be evaluated, before its audio is read."""
    for corpus, cut in zip(study.corpora, steps, strict=False):
        if not cut.done():
            _refuse_corpus(corpus)


def _refuse_corpus(corpus: CorpusPart) -> None:
    where = f"[corpus.{corpus.name}]"
    found = inspect_corpus(
        corpus.audio, corpus.annotations, corpus.rule, format=corpus.format, hints=corpus.hints, corpus=corpus.known,
        folds=corpus.folds, shorten=False,
    )  # fmt: skip
    if not found.segmentation.segments:
        reasons = [*found.segmentation.rejects, *found.segmentation.refused]
        why = f"; the first reason of {len(reasons)}: {reasons[0].reason}" if reasons else ""
        raise InputError(f"{where}: no annotation of {corpus.audio} became a segment{why}; callshot inspect tells more")
    if corpus.fold_file is None and found.folds is None:
        count = len({segment.recording for segment in found.segmentation.segments})
        raise InputError(
            f"{where}: {count} recordings with calls are too few for the folds; set folds = {max(count, 2)}"
        )
    if corpus.fold_file is None:
        try:
            evaluated_classes(found.classes)
        except InputError as error:
            raise InputError(f"{where}: {str(error).replace('(--folds)', '(folds = …)')}") from None


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Keep a second run of the same study out, where the system has such locks."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        handle = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(f"{work}: cannot keep the steps of the study there ({error.strerror})") from error
    try:
        _lock(handle, work)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, work: Path) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OutputError(f"{work}: another run of this study is at work; wait for it, or stop it") from None
