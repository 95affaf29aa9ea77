"""The program itself: its options and errors, and what all commands share."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from callshot.errors import CallshotError, OptionError, printable
from callshot.version import __version__

app = typer.Typer(
    help="Few-shot classification of animal calls: k-shot curves with honest intervals, from a handful of labels.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


# Headings of the commands in --help, in this order: see the order of imports in `callshot.cli`.
STUDY, STEPS, BESIDE = "A study, from recordings to a report", "Step by step", "Beside them"

Out = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where the results go.")]
Seed = Annotated[int, typer.Option(help="Same seed, same numbers.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Errors only.")]
Threads = Annotated[
    int | None, typer.Option(help="Changes the time, never the numbers.", show_default="all cores")
]


def main() -> None:
    """Run a command; an error of ours is one line and exit code 2."""
    _keep_kernels()
    try:
        app()
    except CallshotError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"the output cannot be written ({error.strerror or error})")
    except MemoryError as error:
        _fail(
            f"not enough memory ({error}); for evaluate, try fewer --shots, --draws or --bootstraps"
        )


def _keep_kernels() -> None:
    """Keep compiled kernels in our own folder where the installed ones' cannot be written; numba would use another."""
    if not os.access(Path(__file__).parents[1] / "fewshot" / "kernels", os.W_OK):
        from callshot.encoders.weights.weight_files import home

        os.environ.setdefault("NUMBA_CACHE_DIR", str(home() / "numba"))


def _fail(message: str) -> NoReturn:
    """Say what is wrong in one line, without the control characters that a file may have brought, and stop."""
    print(f"callshot: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"callshot {__version__}")
        raise typer.Exit


@app.callback()
def _callshot(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print("callshot: interrupted; earlier results are as they were", file=sys.stderr)
        raise typer.Exit(130) from None


def at_least(name: str, value: int | None, least: int) -> int | None:
    """Refuse a number that is given and too small."""
    if value is not None and value < least:
        raise OptionError(f"{name}: at least {least}, got {value}")
    return value
