"""A study and its steps → results: what is missing or has changed runs, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callshot.baselines.options import check_trainable
from callshot.corpus.recordings import AUDIO_SUFFIXES, find_files
from callshot.corpus.segment_table import inspect_corpus, read_rejects
from callshot.corpus.segments import check_any_segments
from callshot.encoders.embed import check_rates, check_store, default_store
from callshot.errors import InputError, OptionError, OutputError, count_text
from callshot.fewshot.evaluate import choose_sweep_device
from callshot.fewshot.folds import check_folds, count_classes, evaluated_classes
from callshot.fewshot.gpu.device import check_device, network_device
from callshot.files import LockBusy, check_own_folder, hold_lock
from callshot.jobs import Cluster
from callshot.records import BASELINE_KINDS, Progress, no_progress
from callshot.report.summary.context import say
from callshot.report.write_report import certain_names
from callshot.results import open_output_folder
from callshot.study.file_steps import REJECTS_SUFFIX, SEGMENTS_INFO, read_baselines
from callshot.study.plan import PER_K, PUBLISHED, plan
from callshot.study.steps import Step, describe_equal_encoders, is_measured, read_json
from callshot.study.study_file import Study, StudyCorpus
from callshot.tables.evaluation_files import PROVENANCE
from callshot.tables.fold_files import (
    FOLDS_INFO,
    read_categories,
    read_folds,
    read_reference_scores,
)

MIN_EXEMPLARS = 2  # of a class, for networks, which hold some out
ReportStep = Callable[[Step, float | None], None]
OPTION_TO_KEY = {"(--folds)": "(folds = …)", "with --rate-hz": "with rate_hz ="}

# Seconds of work for a second of audio; of evaluate and PER_K, for each draw and k.
PACE = {
    "segment": 0.0001,
    "fold": 0.0001,
    "evaluate": 6e-9,
    "logistic": 0.003,
    PER_K: 6e-6,
    "recurrent": 0.15,
    "end-to-end": 0.75,
    "report": 0.01,
}
OTHER_PACE = 0.1
BYTES_S = 64_000  # of a second of audio


@dataclass(frozen=True)
class StepStatus:
    """The state of a step (done, to run, waiting for another), and how long it took or may take."""

    step: Step
    state: str
    seconds: float

    @property
    def seconds_left(self) -> float:
        """How long it may still take."""
        return 0.0 if self.state == "done" else self.seconds


def step_statuses(study: Study, steps: Sequence[Step]) -> list[StepStatus]:
    """Return the status of each step: whether it is done, and how long it took or may take."""
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
            seconds = max(1.0, estimate_s(study, step))
        statuses.append(StepStatus(step, state, seconds))
    return statuses


def run_study(
    study: Study,
    *,
    device: str | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
    report_step: ReportStep = lambda step, seconds: None,
    **machine: Any,
) -> list[Step]:
    """Run the steps of a study that have to run; return those that ran.

    `report_step(step, seconds)` is called after each step; seconds are None if it did not run. The
    workers of a cluster embed and evaluate, with the same results. `machine` are the other options
    of `plan`.
    """
    choose_sweep_device(device or study.device, cluster)
    steps = plan(study, device=device, cluster=cluster, **machine)
    work = study.work
    try:
        work.mkdir(parents=True, exist_ok=True)
        with hold_lock(work / "lock", timeout_s=0.0):
            check_study(study, steps, device)
            return _run_steps(step_statuses(study, steps), progress, report_step)
    except LockBusy:
        raise OutputError(
            f"{work}: another run of this study is in progress; wait for it, or stop it"
        ) from None
    except PermissionError as error:
        raise OutputError(
            f"{work}: cannot store the steps of the study ({error.strerror})"
        ) from error


def _run_steps(
    statuses: Sequence[StepStatus], progress: Progress, report_step: ReportStep
) -> list[Step]:
    """Run steps that are not done; progress is by the time that each may take."""
    total_s = sum(status.seconds_left for status in statuses) or 1.0
    completed = []
    for status in statuses:
        step = status.step
        share = status.seconds_left / total_s
        if step.is_done():  # asked again, because earlier steps have run since
            progress(share, step.name)
            report_step(step, None)
            continue
        _run_step(step, share, progress)
        completed.append(step)
        report_step(step, step.read_record()["seconds"])
    return completed


def _run_step(step: Step, share: float, progress: Progress) -> None:
    """Run a step, which is a share of the study, and report its progress as that of the study."""
    left = 1.0  # of the step

    def report(part: float, what: str) -> None:
        """Report part of the step, and count what is left of it."""
        nonlocal left
        left -= part
        text = step.name if what in step.name else f"{step.name}: {what}"
        progress(part * share, text)

    step.run(report)
    report(max(left, 0.0), step.name)  # what the step did not report


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
        read_reference_scores(
            study.references, study.corpus_names, study.encoder_titles
        )
    # The first steps cut the segments of each corpus.
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
    """Check segments, folds, rates and exemplars of a corpus, by headers and annotations alone."""
    inspection = inspect_corpus(corpus.audio, **corpus.reading, folds=corpus.folds)
    check_any_segments(inspection.segmentation)
    segments = inspection.segmentation.segments
    if inspection.folds is None and corpus.fold_file is None:
        found = len(set(segments["recording"]))
        advice = f"set folds = {found}" if found > 1 else "at least two are needed"
        raise InputError(
            f"{count_text(found, 'recording')} with calls: too few for the folds; {advice}"
        )

    segments = replace(segments, source=str(corpus.audio))
    for encoder in study.encoders:
        for spec in encoder.joined_encoder.specs:
            check_rates(spec, segments)
    if corpus.categories is not None:
        read_categories(corpus.categories, segments)
    classes = inspection.classes
    if corpus.fold_file is not None:
        recordings = segments["recording"]
        folds = check_folds(recordings, read_folds(corpus.fold_file, segments))
        classes = count_classes(segments["label"], folds, recordings)
    evaluated_classes(classes)  # raises InputError if fewer than two are eligible

    # Logistic regression needs one exemplar. With categories, a network learns these instead of the
    # classes, and its training counts their exemplars.
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


def estimate_s(study: Study, step: Step) -> float:
    """Return the seconds that a step may take: a rough guess, from the size of the recordings."""
    size = 0
    for corpus in study.corpora:
        if step.corpus in ("", corpus.name):
            follow_links = corpus.reading["annotation_options"].follow_links
            files = [corpus.audio]
            if not corpus.audio.is_file():
                files = [*find_files(corpus.audio, follow_links=follow_links)]
            audio = [path for path in files if path.suffix.lower() in AUDIO_SUFFIXES]
            size += sum(path.stat().st_size for path in audio if path.is_file())
    pace = PACE.get(step.kind, OTHER_PACE)
    protocol = study.protocol
    if step.kind == "embed":
        encoder = study.encoders[study.encoder_titles.index(step.encoder)]
        pace = sum(spec.pace for spec in encoder.joined_encoder.specs)
    elif step.kind == "evaluate":
        # A bootstrap sample counts as a quarter of a draw.
        draws = protocol.draws + protocol.shared_draws + protocol.bootstraps / 4
        pace *= draws * len(protocol.shots)
    elif step.kind == PER_K:
        pace *= study.baselines.draws * len(protocol.shots)
    return pace * size / BYTES_S


def describe_outcome(step: Step) -> list[str]:
    """Return a line on the outcome of a step, then notes; nothing where there is nothing to say."""
    if not is_measured(step.folder):
        return describe_equal_encoders([step.folder])
    lines = []
    if step.kind == "segment":
        facts = read_json(step.folder / SEGMENTS_INFO)
        lines = [say("cut_segments", facts), *facts["notes"]]
    elif step.kind == "embed":
        path = step.table.with_suffix(REJECTS_SUFFIX)
        if path.exists():
            left_out = read_rejects(path)
            count = count_text(len(left_out), "reject")
            lines.append(f"{count}, the first: {left_out[0].reason}")
    elif step.kind == "fold":
        facts = read_json(step.folder / FOLDS_INFO)
        excluded = [row for row in facts["classes"] if row["reason"]]
        lines = say("made_folds", facts, excluded).splitlines()
    elif step.kind in (*BASELINE_KINDS, PUBLISHED):
        # What each baseline scored, and what was chosen for it on inner folds.
        for rows in read_baselines(step.folder).partition_by("name", "scoring"):
            lines.append(say("scored_baseline", rows.to_dicts()))
    return lines
