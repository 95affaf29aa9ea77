"""Commands of a study: init, run, status."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from callshot.cli.app import (
    STUDY,
    app,
    argument,
    echo,
    run_with_progress,
)
from callshot.cli.options import (
    Audio,
    CorpusGroup,
    Machine,
    MinLength,
    Quiet,
    Shots,
)
from callshot.errors import OptionError, count_text, printable
from callshot.files import check_writable
from callshot.options import flag, option

if TYPE_CHECKING:
    from callshot.study.run import StepStatus
    from callshot.study.steps import Step

MAX_NOTES = 8


@dataclass
class StudyMachine(Machine):
    """What does the work of a study, and whether it prints."""

    device: str | None = option(  # type: ignore[assignment]
        None,
        "auto|cpu|cuda",
        "Processor for all steps: cpu, or cuda for the GPU. auto: the evaluation on the "
        "GPU if there is one, encoders and networks on the CPU.",
        shown="auto, or the device in the study file",
    )


StudyFile = Annotated[
    Path, argument(..., "STUDY", "Study file. The command callshot init makes one.")
]


@app.command(rich_help_panel=STUDY)
def init(
    audio: Audio,
    source: CorpusGroup,
    out: Path = option(Path("study.toml"), "FILE", "Study file to write.", "-o"),
    shots: Shots = "1-40",
    min_length_s: MinLength = None,
    quiet: Quiet = False,
) -> None:
    """Make a study file (all settings, with comments) from recordings and annotations.

    Inspects the folder as callshot inspect does. Chooses the annotations and the folds from what is
    there. Lists the encoders that can run on this machine, and how to get the others. callshot run
    can run the file without changes.

    Example: callshot init recordings --annotations selection-tables && callshot run study.toml
    """
    from callshot.corpus.options import read_source
    from callshot.corpus.segment_table import inspect_corpus
    from callshot.corpus.segments import describe_minimum
    from callshot.fewshot.protocol import parse_shots
    from callshot.storage import check_no_url
    from callshot.study.study_file import write_study

    check_no_url(audio)
    check_no_url(out)
    if out.exists():
        raise OptionError(
            f"{out}: already exists; remove it, or choose another name with --out"
        )
    parse_shots(shots)
    check_writable(out.absolute().parent)
    lengths = {} if min_length_s is None else {"min_length_s": min_length_s}
    reading = read_source(source | lengths)
    with run_with_progress("scanning the folder", quiet=quiet) as progress:
        inspection = inspect_corpus(audio, **reading, progress=progress)
    keys = source | {"corpus": reading["corpus"]}
    write_study(out, inspection, audio, shots, **keys)
    if not quiet:
        calls = count_text(len(inspection.segmentation.segments), "call")
        recordings = count_text(inspection.segmentation.recording_count, "recording")
        for note in inspection.segmentation.notes:
            echo(f"note: {note}")
        print(describe_minimum(inspection.segmentation))
        print(f"{out}: a study of {calls} in {recordings}")
        print(f"next: callshot run {out}")


@app.command(rich_help_panel=STUDY)
def run(
    *,
    study: StudyFile = Path("study.toml"),
    dry_run: bool = flag(
        "Show which steps would run and about how long they take. Runs nothing."
    ),
    machine: StudyMachine,
) -> None:
    """Run a study file: make tables, figures and a report.

    The steps for every corpus and encoder: make segments, embed them, build folds, evaluate, train
    baselines, and write the report. Steps whose inputs have not changed are not run again. After an
    interruption, run the same command again: it continues. The workers of a cluster (--cluster)
    embed and evaluate; the other steps run on this machine.

    Example: callshot run study.toml --dry-run
    """
    from rich.console import Console

    from callshot.console import print_lines
    from callshot.encoders.workers import default_threads
    from callshot.fewshot.gpu.device import describe_device
    from callshot.study.plan import plan
    from callshot.study.run import (
        check_study,
        describe_outcome,
        run_study,
        step_statuses,
    )
    from callshot.study.steps import read_json
    from callshot.study.study_file import read_study

    content = read_study(study)
    if dry_run:
        steps = plan(content, device=machine.device)
        check_study(content, steps, machine.device)
        _show_statuses(step_statuses(content, steps))
        return

    def report_step(step: "Step", seconds: float | None) -> None:
        if machine.quiet:
            return
        time = "already done" if seconds is None else f"{seconds:.1f} s"
        outcome = describe_outcome(step)
        first = "; ".join([f"{step.name}: {time}", *outcome[:1]])
        notes = [f"  {note}" for note in outcome[1 : MAX_NOTES + 1]]
        print_lines(Console(), [first, *notes])

    with machine.open("scanning the folder") as running:
        completed = run_study(
            content,
            processes=machine.threads or default_threads(),
            report_step=report_step,
            **running,
        )
    if machine.quiet:
        return
    if completed:
        print(describe_device(machine.device or content.device), file=sys.stderr)
    # The first screen of the report on every corpus.
    answers = read_json(content.out / "provenance.json")["answers"]
    for corpus in content.corpus_names:
        print(f"\n{printable(corpus)}:" if len(content.corpora) > 1 else "")
        headline = answers[corpus]["headline"]
        for line in (headline["sentence"], *headline["details"]):
            echo(line)
        for card in answers[corpus]["cards"]:
            echo("{question} {answer}. {text} {advice}".format(**card).rstrip())
    print(f"report: {content.out / 'report.html'}")


@app.command(rich_help_panel=STUDY)
def status(study: StudyFile = Path("study.toml")) -> None:
    """Show which steps of a study are done, which have to run, and how long they take.

    Example: callshot status study.toml
    """
    from callshot.study.plan import plan
    from callshot.study.run import step_statuses
    from callshot.study.study_file import read_study

    content = read_study(study)
    statuses = step_statuses(content, plan(content))
    _show_statuses(statuses)
    report = content.out / "report.html"
    if report.exists():
        is_current = all(status.state == "done" for status in statuses)
        print(f"report: {report}{'' if is_current else ' (from before the changes)'}")


def _show_statuses(statuses: "Sequence[StepStatus]") -> None:
    """Print a row for each step of a study, and how much work is left."""
    from rich.console import Console

    from callshot.cli.terminal import print_table
    from callshot.report.tables.table import Cell

    rows = []
    for status in statuses:
        time = f"took {status.seconds:.1f} s"
        if status.state != "done":
            time = f"about {status.seconds:.0f} s"
        step = status.step
        cell = Cell(time, status.seconds)  # a number is at the right
        rows.append((step.kind, step.corpus, step.encoder, status.state, cell))
    print_table(Console(), ("step", "corpus", "encoder", "state", "time"), rows)
    seconds_left = sum(status.seconds_left for status in statuses)
    left = "everything is done"
    if seconds_left:
        left = f"about {seconds_left:.0f} s of work left"
    print(left)
