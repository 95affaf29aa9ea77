"""A study and its steps → results: what is missing or has changed is made, and nothing else.

A run that was interrupted, or killed, goes on where it stopped. Two runs of one study do not get in each other's way:
the second says so and stops.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from callshot.baselines.run import check_trainable
from callshot.corpus.inspection import inspect_corpus
from callshot.encoders.embed import check_segments, check_store, default_store, make_table
from callshot.encoders.encode import check_device
from callshot.errors import InputError, OptionError, OutputError
from callshot.fewshot.folds import check_folds, count_classes, evaluated_classes
from callshot.records import ClassCount, Progress, Segment, no_progress
from callshot.report.output_folder import open_output_folder
from callshot.report.results import PROVENANCE
from callshot.study.estimate import estimate_s
from callshot.study.file import CorpusPart, Study
from callshot.study.plan import plan
from callshot.study.step_cache import Step
from callshot.tables.fold_files import read_categories, read_folds, read_references

FEWEST = 2  # exemplars of a class that networks need
Tell = Callable[[Step, float | None], None]


@dataclass(frozen=True)
class StepStatus:
    """Where a step stands: done, to be run, or waiting for one that is; and how long it took or may take."""

    step: Step
    state: str
    seconds: float


def step_statuses(study: Study, steps: Sequence[Step]) -> list[StepStatus]:
    """Tell where every step stands; what waits may turn out to be done, if what comes before it gives the same."""
    states: dict[int, str] = {}
    found = []
    for step in steps:
        open_before = any(states[id(one)] != "done" for one in step.after)
        states[id(step)] = "waits" if open_before else "done" if step.done() else "to run"
        took_s = step.note().get("seconds")
        seconds = took_s if took_s is not None else estimate_s(study, step)
        found.append(StepStatus(step, states[id(step)], float(seconds)))
    return found


def run_study(
    study: Study,
    *,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress = no_progress,
    tell: Tell = lambda step, seconds: None,
) -> list[Step]:
    """Run what has to run; return the steps that did. `tell` hears of each step, with its seconds if it ran."""
    steps, ran = plan(study, device=device, threads=threads), []
    with _alone(study.work):
        check_study(study, steps, device)
        seconds = [one.seconds * (one.state != "done") for one in step_statuses(study, steps)]
        for step, share in zip(steps, (s / (sum(seconds) or 1.0) for s in seconds), strict=True):
            if step.done():
                progress(share, step.name)
                tell(step, None)
                continue
            heard = _Share(progress, step, share)
            step.run(heard)
            heard.complete()
            ran.append(step)
            tell(step, step.note()["seconds"])
    return ran


class _Share:
    """Turns shares of a step into shares of the study, which add up whatever the step tells."""

    def __init__(self, progress: Progress, step: Step, share: float) -> None:
        self.progress, self.step, self.share, self.told = progress, step, share, 0.0

    def __call__(self, part: float, what: str) -> None:
        """Pass on a part of the step."""
        self.told += part
        self.progress(
            part * self.share,
            self.step.name if what in self.step.name else f"{self.step.name}: {what}",
        )

    def complete(self) -> None:
        """Pass on what the step did not tell."""
        self(max(1.0 - self.told, 0.0), self.step.name)


def check_study(study: Study, steps: Sequence[Step], device: str = "cpu") -> None:
    """Refuse what could not come to an end, before any audio is read: places, small files, rates, folds, classes."""
    check_device(device)
    check_trainable(study.training, device)
    check_store(study.store or default_store())
    with open_output_folder(study.out, (), PROVENANCE, mark=study.mark):
        pass
    encoders = [encoder.told for encoder in study.encoders]
    if study.references is not None:
        read_references(study.references, [corpus.name for corpus in study.corpora], encoders)
    for corpus, cut in zip(study.corpora, steps, strict=False):
        try:
            if not cut.done() or corpus.fold_file is not None or corpus.categories is not None:
                _refuse_corpus(study, corpus)
        except (InputError, OptionError) as error:
            told = (
                str(error)
                .replace("(--folds)", "(folds = …)")
                .replace("with --rate", "with rate_hz =")
            )
            raise type(error)(f"[corpus.{corpus.name}]: {told}") from None


def _refuse_corpus(study: Study, corpus: CorpusPart) -> None:
    segments, classes = _foresee(corpus)
    whole = make_table("segments", segments, np.zeros((len(segments), 1), np.float32), corpus.audio)
    for encoder in study.encoders:
        check_segments(encoder.spec, segments, corpus.audio)
    if corpus.categories is not None:
        read_categories(corpus.categories, whole)
    if corpus.fold_file is not None:
        folds = check_folds(whole.recording, read_folds(corpus.fold_file, whole))
        classes = count_classes(whole.label, folds, whole.recording)
    evaluated_classes(classes)
    _refuse_few(study, corpus, classes)


def _refuse_few(study: Study, corpus: CorpusPart, classes: Sequence[ClassCount]) -> None:
    """Refuse networks where a class has one exemplar on a support side: they hold some out."""
    networks = [kind for kind in study.training.kinds if kind != "logistic"]
    few = next((c for c in classes if c.eligible and c.complete_to_k < FEWEST), None)
    if networks and few is not None and corpus.categories is None:
        raise InputError(
            f"[rivals] {networks[0]}: needs {FEWEST} exemplars of every class in every split, and '{few.label}' can "
            f"give {few.complete_to_k}; take more folds, or leave {networks[0]} out"
        )


def _foresee(corpus: CorpusPart) -> tuple[Sequence[Segment], Sequence[ClassCount]]:
    """Return the segments that a corpus has, or will have but for audio that cannot be read, and their classes."""
    found = inspect_corpus(
        corpus.audio,
        corpus.annotations,
        options=corpus.rule,
        format=corpus.format,
        hints=corpus.hints,
        corpus=corpus.known,
        folds=corpus.folds,
        shorten=False,
    )
    segments = found.segmentation.segments
    if not segments:
        reasons = [*found.segmentation.rejects, *found.segmentation.skipped_files]
        why = f"; the first reason of {len(reasons)}: {reasons[0].reason}" if reasons else ""
        raise InputError(
            f"no annotation of {corpus.audio} became a segment{why}; callshot inspect tells more"
        )
    if found.folds is None and corpus.fold_file is None:
        count = len({segment.recording for segment in segments})
        mend = f"set folds = {count}" if count > 1 else "two at least are needed"
        raise InputError(f"{count} recordings with calls are too few for the folds; {mend}")
    return segments, found.classes


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Keep a second run of the same study out, where the system has such locks."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        handle = os.open(work / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise OutputError(
            f"{work}: cannot keep the steps of the study there ({error.strerror})"
        ) from error
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
        raise OutputError(
            f"{work}: another run of this study is at work; wait for it, or stop it"
        ) from None
