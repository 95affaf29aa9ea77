"""The command verify."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import OTHER, app, run_with_progress
from callshot.cli.options import Quiet
from callshot.errors import printable

if TYPE_CHECKING:
    from callshot.records import Finding


@app.command(rich_help_panel=OTHER)
def verify(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[STUDY|RESULTS|STORE|INDEX|TABLE]",
            help="What to verify.",
            show_default="study.toml here, or the user's store",
        ),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Set damaged files of a store or index aside; the next run makes them again.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Check every file against its checksum: what is whole, damaged, missing or foreign.

    Reads everything again: of a study, the recordings, annotations, steps, results and store. Each
    file that is not whole is named with the reason. The exit code is 1 if one is damaged or
    missing, 0 if not.

    Example: callshot verify study.toml
    """
    from callshot.records import FAILURES
    from callshot.study.verify import default_path, verify_path

    chosen = default_path() if path is None else path
    findings = []
    with run_with_progress("reading the checksums", quiet=quiet) as progress:
        for finding in verify_path(chosen, repair=repair):
            progress(0.0, f"verified {finding.path.name}")
            findings.append(finding)
    is_failure = any(finding.state in FAILURES for finding in findings)
    if is_failure or not quiet:
        _print_findings(chosen, findings)
    if is_failure:
        raise typer.Exit(1)


def _print_findings(path: Path, findings: "Sequence[Finding]") -> None:
    """Print a line for each file that is not whole, and the number of files in each state."""
    from callshot.records import STATES

    for finding in findings:
        if finding.state != "whole":
            reason = finding.reason or STATES[finding.state]
            print(printable(f"{finding.state}: {finding.path}: {reason}"))
    counts = Counter(finding.state for finding in findings)
    summary = [f"{counts[state]} {state}" for state in STATES if state in counts]
    print(printable(f"{path}: {', '.join(summary) or 'nothing to verify'}"))
