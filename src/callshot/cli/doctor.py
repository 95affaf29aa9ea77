"""The command doctor."""

from typing import TYPE_CHECKING

import typer

from callshot.cli.app import OTHER, app

if TYPE_CHECKING:
    from rich.console import Console

    from callshot.study.doctor import Check


@app.command(rich_help_panel=OTHER)
def doctor() -> None:
    """Check this installation: packages, audio files, encoders, GPU, folders and threads.

    Each line says what was found. Where something is missing, the next line says what to do. The
    exit code is 1 if there is a problem; what only some users need is a note.

    Example: callshot doctor
    """
    from rich.console import Console

    from callshot.study.doctor import NOTE, PROBLEM, check_installation

    console = Console()
    states = []
    for check in check_installation():
        _print_check(check, console)
        states.append(check.state)
    problems = states.count(PROBLEM)
    notes = states.count(NOTE)
    print(f"{len(states)} checks: {problems} problems, {notes} notes")
    if problems:
        raise typer.Exit(1)


def _print_check(check: "Check", console: "Console") -> None:
    """Print what was found, and on the next line what to do."""
    from callshot.report.terminal import print_lines
    from callshot.study.doctor import GOOD, PROBLEM

    style = {GOOD: "", PROBLEM: "bold red"}.get(check.state, "yellow")
    print_lines(console, [f"{check.state:<8}{check.subject}: {check.found}"], style)
    if check.advice:
        print_lines(console, [f"        {check.advice}"])
