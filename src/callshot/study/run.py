"""A study and its steps → results: what is missing or has changed runs, and nothing else.

A run that was interrupted or killed resumes. A second run of the same study stops with an error.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.baselines.options import check_trainable
from callshot.corpus.segment_table import inspect_corpus
from callshot.corpus.segments import check_any_segments
from callshot.encoders.embed import (
    check_rates,
    check_store,
    default_store,
    make_table,
)
from callshot.errors import InputError, OptionError, OutputError, count_text
from callshot.fewshot.folds import check_folds, count_classes, evaluated_classes
from callshot.fewshot.gpu.device import check_device, network_device
from callshot.fewshot.sweep_on_cluster import choose_sweep_device
from callshot.files import LockBusy, check_own_folder, hold_lock
from callshot.jobs import Cluster
from callshot.records import ClassCount, Inspection, Progress, no_progress
from callshot.report.results import PROVENANCE
from callshot.report.write_report import certain_names
from callshot.results import open_output_folder
from callshot.study.estimate import estimate_s
from callshot.study.plan import plan
from callshot.study.steps import Step
from callshot.study.study_file import Study, StudyCorpus
from callshot.tables.fold_files import read_categories, read_folds, read_references

MIN_EXEMPLARS = 2  # of a class, for networks, which hold some out
ReportStep = Callable[[Step, float | None], None]
OPTION_TO_KEY = {"(--folds)": "(folds = …)", "with --rate-hz": "with rate_hz ="}


@dataclass(frozen=True)
class StepStatus:
    """The state of a step, and how long it took or may take.

    States: done, to run, or waiting (for a step before it; its result may then turn out the same).
    """

    step: Step
    state: str
    seconds: float

    @property
    def seconds_left(self) -> float:
        """How long it may still take."""
        return 0.0 if self.state == "done" else self.seconds


def step_statuses(study: Study, steps: Sequence[Step]) -> list[StepStatus]:
    """Return the status of each step."""
    states: dict[int, str] = {}
    statuses = []
    for step in steps:
        if any(states[id(earlier)] != "done" for earlier in step.after):
            state = "waiting"
        else:
            state = "done" if step.is_done() else "to run"
        states[id(step)] = state
        seconds = step.read_record().get("seconds")
        if seconds is None:
            seconds = estimate_s(study, step)
        statuses.append(StepStatus(step, state, float(seconds)))
    return statuses


def run_study(
    study: Study,
    *,
    device: str | None = None,
    threads: int | None = None,
    processes: int = 1,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
    report_step: ReportStep = lambda step, seconds: None,
) -> list[Step]:
    """Run what has to run; return the steps that did.

    `report_step` is called after each step, with its seconds if it ran. `processes` draw figures.
    The workers of a cluster embed and evaluate, with the same results.
    """
    choose_sweep_device(device or study.device, cluster)
    steps = plan(
        study, device=device, threads=threads, processes=processes, cluster=cluster
    )
    completed = []
    with _study_lock(study.work):
        check_study(study, steps, device)
        statuses = step_statuses(study, steps)
        total_s = sum(status.seconds_left for status in statuses) or 1.0
        for status in statuses:
            step = status.step
            share = status.seconds_left / total_s
            if step.is_done():
                progress(share, step.name)
                report_step(step, None)
                continue
            step_progress = _StepProgress(progress, step.name, share)
            step.run(step_progress)
            step_progress.complete()
            completed.append(step)
            report_step(step, step.read_record()["seconds"])
    return completed


@dataclass
class _StepProgress:
    """Turns shares of a step into shares of the study, which add up whatever the step reports."""

    progress: Progress
    name: str
    share: float
    done: float = 0.0

    def __call__(self, part: float, what: str) -> None:
        self.done += part
        text = self.name if what in self.name else f"{self.name}: {what}"
        self.progress(part * self.share, text)

    def complete(self) -> None:
        """Report what the step did not report."""
        self(max(1.0 - self.done, 0.0), self.name)


def check_study(study: Study, steps: Sequence[Step], device: str | None = None) -> None:
    """Check, before any audio is read, what would stop the study later."""
    device = device or study.device
    check_device(device)
    check_trainable(study.baselines, network_device(device))
    check_store(study.store or default_store())
    names = certain_names(study.corpus_names)
    check_own_folder(study.out)
    with open_output_folder(study.out, names, PROVENANCE, owner=study.owner):
        pass
    if study.references is not None:
        read_references(study.references, study.corpus_names, study.encoder_titles)
    for corpus, segment_step in zip(study.corpora, steps, strict=False):
        has_files = corpus.fold_file is not None or corpus.categories is not None
        if segment_step.is_done() and not has_files:
            continue
        try:
            _check_corpus(study, corpus)
        except (InputError, OptionError) as error:
            message = str(error)
            for option, key in OPTION_TO_KEY.items():
                message = message.replace(option, key)
            raise type(error)(f"[corpus.{corpus.name}]: {message}") from None


def _check_corpus(study: Study, corpus: StudyCorpus) -> None:
    inspection = _inspect(corpus)
    segments = inspection.segmentation.segments
    classes = inspection.classes
    vectors = np.zeros((len(segments), 1), np.float32)
    segments = replace(segments, source=str(corpus.audio))
    table = make_table("segments", segments, vectors)
    for encoder in study.encoders:
        for spec in encoder.joined_encoder.specs:
            check_rates(spec, segments)
    if corpus.categories is not None:
        read_categories(corpus.categories, table)
    if corpus.fold_file is not None:
        folds = check_folds(table.recording, read_folds(corpus.fold_file, table))
        classes = count_classes(table.label, folds, table.recording)
    evaluated_classes(classes)
    _check_networks(study, corpus, classes)


def _check_networks(
    study: Study, corpus: StudyCorpus, classes: Sequence[ClassCount]
) -> None:
    """Check that every class has enough exemplars for networks."""
    networks = [kind for kind in study.baselines.train if kind != "logistic"]
    if not networks or corpus.categories is not None:
        return
    for count in classes:
        if count.eligible and count.complete_to_k < MIN_EXEMPLARS:
            raise InputError(
                f"[baselines] {networks[0]}: needs {MIN_EXEMPLARS} exemplars of every class in "
                f"every split, but '{count.label}' has {count.complete_to_k}; use more folds, "
                f"or remove {networks[0]}"
            )


def _inspect(corpus: StudyCorpus) -> Inspection:
    """Return what a corpus holds, and check that it has segments and enough recordings."""
    inspection = inspect_corpus(
        corpus.audio,
        corpus.annotations,
        options=corpus.segmentation,
        format=corpus.format,
        annotation_options=corpus.annotation_options,
        corpus=corpus.known_corpus,
        folds=corpus.folds,
    )
    segmentation = inspection.segmentation
    check_any_segments(segmentation)
    if inspection.folds is None and corpus.fold_file is None:
        count = len(set(segmentation.segments["recording"]))
        advice = f"set folds = {count}" if count > 1 else "at least two are needed"
        raise InputError(
            f"{count_text(count, 'recording')} with calls: too few for the folds; {advice}"
        )
    return inspection


@contextmanager
def _study_lock(work: Path) -> Iterator[None]:
    """Hold the lock of a study, so that it runs once at a time."""
    try:
        work.mkdir(parents=True, exist_ok=True)
        with hold_lock(work / "lock", timeout_s=0.0):
            yield
    except LockBusy:
        raise OutputError(
            f"{work}: another run of this study is in progress; wait for it, or stop it"
        ) from None
    except PermissionError as error:
        raise OutputError(
            f"{work}: cannot store the steps of the study ({error.strerror})"
        ) from error
