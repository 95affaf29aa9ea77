"""Commands of a study: init, run, status."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import STUDY, Quiet, Threads, app, at_least, interruptible
from callshot.cli.options import (
    Annotations,
    Audio,
    Columns,
    CorpusName,
    Form,
    Label,
    Tiers,
    make_hints,
)
from callshot.errors import OptionError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callshot.study.run import StepStatus

MOST_NOTES, MOST_SENTENCES = 8, 3
StudyFile = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The study file; callshot init writes one.")
]
Device = Annotated[
    str, typer.Option(help="Where encoders run and networks are trained: cpu or cuda.")
]


@app.command(rich_help_panel=STUDY)
def init(
    audio: Audio,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The study file.")
    ] = Path("study.toml"),
    annotations: Annotations = None,
    corpus: CorpusName = None,
    format: Form = "auto",
    columns: Columns = None,
    tiers: Tiers = None,
    label: Label = None,
    quiet: Quiet = False,
) -> None:
    """Look at a folder and write a study of it: a commented file that runs as it is.

    What callshot inspect would find decides: the annotations, the folds, and the shortest call that is kept (the
    paper's 1 s, unless that would reject more than half). The encoders are those that can run here at once; how to get
    the others stands beside them.

    Example: callshot init recordings --annotations selection-tables && callshot run study.toml
    """
    from rich.console import Console

    from callshot.corpus.inspection import inspect_corpus
    from callshot.corpus.known_corpora import find_corpus
    from callshot.report.progress import show_progress
    from callshot.study.init import Given, write_study

    if out.exists():
        raise OptionError(f"{out}: is there already; remove it, or name another with --out")
    known, hints = (
        None if corpus is None else find_corpus(corpus),
        make_hints(columns, tiers, label),
    )
    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first="scanning folder") as progress,
    ):
        found = inspect_corpus(
            audio, annotations, format=format, hints=hints, corpus=known, progress=progress
        )
    write_study(out, found, Given(audio, annotations, format, hints, known))
    if not quiet:
        cut = found.segmentation
        print(f"{out}: a study of {len(cut.segments)} calls in {len(cut.recordings)} recordings")
        print(f"next: callshot run {out}")


@app.command(rich_help_panel=STUDY)
def run(
    study: StudyFile = Path("study.toml"),
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Tell what would run, what is there already, and how long it may take.",
        ),
    ] = False,
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Run a study: from recordings to tables, figures and a report, by one command.

    Does read → segment → embed → fold → evaluate → train rivals → report for every corpus and encoder. Each step is
    kept by its content: a changed line redoes only what depends on it, and an interrupted run goes on where it stopped.

    Example: callshot run study.toml --dry-run
    """
    from rich.console import Console

    from callshot.report.progress import show_progress
    from callshot.study.file import read_study
    from callshot.study.plan import plan
    from callshot.study.run import check_study, run_study, step_statuses
    from callshot.study.step_cache import Step
    from callshot.study.step_summary import describe_outcome

    named, workers = read_study(study), at_least("threads", threads, 1)
    if dry_run:
        steps = plan(named, device=device, threads=workers)
        check_study(named, steps, device)
        _show_standing(step_statuses(named, steps))
        return
    console = Console()

    def tell(step: Step, seconds: float | None) -> None:
        if not quiet:
            took = "there already" if seconds is None else f"{seconds:.1f} s"
            first, *notes = describe_outcome(step) or [""]
            for line in (
                f"{step.name}: {took}{'; ' * bool(first)}{first}",
                *(f"  {note}" for note in notes[:MOST_NOTES]),
            ):
                console.print(printable(line), markup=False, highlight=False, soft_wrap=True)

    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first="scanning folder") as progress,
    ):
        run_study(named, device=device, threads=workers, progress=progress, tell=tell)
    if not quiet:
        _show_answer(named.out, [corpus.name for corpus in named.corpora])


@app.command(rich_help_panel=STUDY)
def status(study: StudyFile = Path("study.toml")) -> None:
    """Where does a study stand? What is done, what would run, and how long it took or may take.

    Example: callshot status study.toml
    """
    from callshot.study.file import read_study
    from callshot.study.plan import plan
    from callshot.study.run import step_statuses

    named = read_study(study)
    found = step_statuses(named, plan(named))
    _show_standing(found)
    if (named.out / "report.html").exists():
        age = "" if all(one.state == "done" for one in found) else " (from before the changes)"
        print(f"report: {named.out / 'report.html'}{age}")


def _show_standing(found: "Sequence[StepStatus]") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "step", "corpus", "encoder", "state", box=None, pad_edge=False, header_style="dim"
    )
    table.add_column("time", justify="right")
    for one in found:
        time = f"took {one.seconds:.1f} s" if one.state == "done" else f"about {one.seconds:.0f} s"
        table.add_row(one.step.kind, one.step.corpus, one.step.encoder, one.state, time)
    console = Console(markup=False)
    console.print(table)
    left_s = sum(one.seconds for one in found if one.state != "done")
    console.print(
        f"about {left_s:.0f} s of work left" if left_s else "everything is done", highlight=False
    )


def _show_answer(out: Path, corpora: "Sequence[str]") -> None:
    """Print the sentences that matter most of every corpus, and where the report is."""
    import json

    told = json.loads((out / "provenance.json").read_text(encoding="utf-8"))["answers"]
    for corpus in corpora:
        print(f"\n{printable(corpus)}:" if len(corpora) > 1 else "")
        for sentence in told[corpus][:MOST_SENTENCES]:
            print(printable(sentence))
    print(f"report: {out / 'report.html'}")
