"""Commands for vectors of windows (index, find, import), synth, batch files, verify and doctor."""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from callshot.cli.app import (
    FIELD,
    OTHER,
    Program,
    app,
    argument,
    echo,
    print_first,
    report_left_out,
    run_with_progress,
)
from callshot.cli.options import (
    Device,
    FollowLinks,
    Machine,
    Quiet,
    Seed,
    Threads,
    window_option,
)
from callshot.cli.steps import Choices
from callshot.errors import OptionError, count_text, join_names
from callshot.options import Given, SoundscapeOptions, flag, option
from callshot.storage import to_path


@app.command(rich_help_panel=FIELD)
def index(
    *,
    recordings: Path = argument(
        ..., "RECORDINGS", "Folder of the recordings, or one recording."
    ),
    encoder: str = option(
        ..., "NAME", "Name of the encoder. callshot encoders shows all names.", "-e"
    ),
    out: Path = option(
        ...,
        "INDEX",
        "Folder of the index. New recordings are added if it exists.",
        "-o",
    ),
    choices: Choices = None,
    window: float | None = window_option(),
    hop: float | None = option(
        None,
        "S",
        "Time from the start of one window to the start of the next, in seconds.",
        shown="the hop of the encoder, or the length of the window",
    ),
    channel: str = option(
        "first",
        "first|mean|N",
        "Audio channel: first, mean of all channels, or a number (1 is the first).",
    ),
    dtype: str = option(
        "float16",
        "float16|float32",
        "Number format of the stored vectors. float16 needs half the disk space.",
    ),
    follow_links: FollowLinks = False,
    machine: Machine,
) -> None:
    """Make an index of recordings: the embeddings of all their windows, for find and scan.

    The index has for each window the recording, start and end in seconds of the recording, the RMS
    level in dBFS, and date and time if the name or the header of the file has them. After a crash,
    or when there are new recordings, run the command again: only what is missing is embedded.
    Several processes can work on one index. A recording that cannot be read is left out and
    reported.

    Example: callshot index recordings --encoder birdnet-v2.4 --out index
    """
    from callshot.detection.index.index_files import REJECTS
    from callshot.detection.index.index_recordings import index_recordings

    out = to_path(out)
    with machine.open(f"opening {encoder}") as running:
        result = index_recordings(
            recordings,
            out,
            encoder,
            encoder_options=choices,
            window_s=window,
            hop_s=hop,
            channel=channel,
            dtype=dtype,
            follow_links=follow_links,
            **running,
        )
    if not machine.quiet:
        print_first([f"note: {note}" for note in result.notes], "more notes like these")
        found = result.index.recordings
        hours = sum(recording.duration_s for recording in found) / 3600
        print(
            f"{count_text(len(result.index), 'window')} of "
            f"{count_text(len(found), 'recording')} ({hours:.2f} h) in {out}; "
            f"{count_text(len(result.added), 'recording')} added, "
            f"{len(result.rejects):,} left out"
        )
        echo(f"next: callshot find EXAMPLE.wav@START-END {out}")
    report_left_out(result.rejects, "recording", out / REJECTS)


@app.command(rich_help_panel=FIELD)
def find(
    example: str = argument(
        ...,
        "EXAMPLE@START-END",
        "Sound to search for: a recording, or a part of one with its times in seconds, such as "
        "call.wav or night.wav@12.5-14.",
    ),
    index: Path = argument(
        ...,
        "INDEX",
        "Folder that callshot index made, or that callshot scan or callshot label wrote: these "
        "contain an index.",
    ),
    count: int = option(20, "N", "Largest number of windows to show."),
    per_recording: int | None = option(
        None, "N", "Largest number of windows from one recording.", shown="no limit"
    ),
    distance: str = option(
        "euclidean", "euclidean|cosine", "Distance between two vectors."
    ),
    out: Path | None = option(None, "FILE", "CSV file to write, too.", "-o"),
    device: Device = "cpu",
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Find the windows of an index that are most similar to one sound.

    The most similar window is the first. A sound that is shorter than a window is embedded together
    with the sound around it. A longer sound gets the mean of its windows. Of windows that overlap,
    only the most similar one is shown.

    Example: callshot find night.wav@12.5-14 index --out similar.csv
    """
    from rich.console import Console

    from callshot.cli.terminal import print_table
    from callshot.detection.index.find_windows import (
        check_window_list,
        find_windows,
        write_window_list,
    )

    if out is not None:
        out = to_path(out)
        check_window_list(out)
    with run_with_progress("opening the index", quiet=quiet) as progress:
        result = find_windows(
            example,
            index,
            count=count,
            per_recording=per_recording,
            distance=distance,
            device=device,
            threads=threads,
            progress=progress,
        )
    if out is not None:
        write_window_list(result.windows, out)
    if not quiet:
        rows = []
        for rank, name, start_s, end_s, clock, level, far in result.windows.rows():
            times = [f"{start_s:.2f}", f"{end_s:.2f}", clock or ""]
            rows.append([rank, name, *times, f"{level:.1f}", f"{far:.4g}"])
        print_table(Console(), result.windows.columns, rows)
    report_left_out(result.rejects, "recording", file="")


MAX_ROWS = 5  # shown for each reason


@app.command(name="import", rich_help_panel=OTHER)
def import_table(
    *,
    source: Path = argument(
        ...,
        "SOURCE",
        "Embeddings of another tool: a .npy or .npz file, a perch-hoplite database, or the "
        "embedding files of BirdNET-Analyzer (a folder, a .txt or a .csv file).",
    ),
    out: Path | None = option(
        None, "TABLE", "Table to write (.parquet).", "-o", shown="--index"
    ),
    index: Path | None = option(
        None,
        "INDEX",
        "Instead of a table: folder of an index to write, for learn, scan and find. Recordings "
        "are added if it exists.",
    ),
    segments: Path | None = option(
        None,
        "FILE",
        "Table of the calls: the segments.parquet of callshot segment, or a CSV file with the "
        "columns recording, start_s, end_s and label. For .npy and .npz files: one row per "
        "vector; with --index the label is not needed.",
        shown="the .csv file next to the .npy or .npz file, or the annotations in the database",
    ),
    kind: str = option(
        "auto",
        "NAME",
        "Kind of SOURCE: arrays, hoplite or birdnet-analyzer, or auto to recognise it.",
    ),
    encoder: str | None = option(
        None,
        "NAME",
        "Name of the encoder in the results.",
        "-e",
        shown="the file name of TABLE",
    ),
    window: float | None = option(
        None,
        "S",
        "With --index and a .npy or .npz file of one recording: length of a window in seconds.",
        shown="the times in --segments",
    ),
    hop: float | None = option(
        None,
        "S",
        "With --window: time from the start of one window to the start of the next, in seconds.",
        shown="the length of the window",
    ),
    quiet: Quiet = False,
) -> None:
    """Make a table for evaluate, or an index for scan, from the embeddings of another tool.

    Other tools embed windows. A segment gets the vector of the window with the same times. If there
    is none, it gets the mean of the windows whose centre is in the segment; if there is none, the
    vector of the window that overlaps it most. Segments without a label or a vector are left out
    and reported.

    With --index, all windows are written, without labels. learn, scan and find then work without
    audio. --encoder is needed: a model scans only indexes with the same name.

    Example: callshot import birdnet --segments segments/segments.parquet --out birdnet.parquet

    Example: callshot import aves.npy --window 0.64 --encoder aves --index night
    """
    from callshot.detection.index.import_index import import_index
    from callshot.tables.embedding_tables import check_new_table, write_table
    from callshot.tables.imports import import_embeddings

    if (out is None) == (index is None):
        raise OptionError("out: expected either --out TABLE or --index INDEX")
    if index is not None:
        if encoder is None:
            raise OptionError(
                "encoder: name the encoder that made the vectors (--encoder NAME)"
            )
        with run_with_progress(quiet=True):
            made, notes = import_index(
                source,
                index,
                encoder,
                times=segments,
                kind=kind,
                window_s=window,
                hop_s=hop,
            )
        if not quiet:
            for note in notes:
                echo(note)
            count = count_text(len(made.recordings), "recording")
            print(f"{count_text(len(made), 'window')} of {count} in {index}")
            print(f"next: callshot learn {index} -a ANNOTATIONS --out model.npz")
        return
    assert out is not None  # otherwise there is an index
    for name, value in {"window": window, "hop": hop}.items():
        if value is not None:
            raise OptionError(f"{name}: only for an index; give --index, not --out")
    check_new_table(out)
    with run_with_progress(quiet=True):
        imported = import_embeddings(
            source, segments, kind=kind, encoder=encoder or out.stem
        )
        write_table(imported.table, out, corpus=imported.corpus)
    if quiet:
        return
    for note in imported.notes:
        echo(note)
    rows_by_reason = defaultdict[str, list[str]](list)
    for reject in imported.rejects:
        rows_by_reason[reject.reason].append(str(reject.row))
    for reason, rows in rows_by_reason.items():
        echo(f"left out, {len(rows)} (row {join_names(rows, MAX_ROWS)}): {reason}")
    segment_count = count_text(len(imported.table), "segment")
    dimensions = count_text(imported.table.matrix.shape[1], "dimension")
    print(f"{segment_count} of {dimensions} in {out}")
    print(f"next: callshot evaluate {out} --out results")


@app.command(rich_help_panel=OTHER)
def synth(
    *,
    folder: Path = argument(
        ..., "DIR", "Folder for the corpus. It must be empty or not exist."
    ),
    site: Annotated[Given, SoundscapeOptions],
    soundscape: bool = flag(
        "Make long recordings of one site instead, with dates and times, to try scan and score."
    ),
    scale: float = option(
        1.0,
        "NUMBER",
        "Factor for the number of calls. 1 is the number in the paper. Every type has at least 5 "
        "calls.",
    ),
    seed: Seed = 0,
    rate_hz: int = option(16000, "HZ", "Sample rate of the recordings."),
    threads: Threads = None,
    quiet: Quiet = False,
) -> None:
    """Make synthetic recordings of elephant-like calls with annotations, to try callshot.

    The corpus has the 12 call types of the Elephant Voices corpus of the paper, with as many calls,
    and 3 rare types. The recordings have wind, birds, distance and reverberation; some calls
    overlap, and some are shorter than 1 s. Recordings are FLAC files, annotations are Raven
    selection tables and Praat TextGrids. The same seed makes the same files.

    With --soundscape: long recordings of one site with wind, rain, insects, birds and engines, and
    calls at known times and signal-to-noise ratios; annotations of all calls, and examples.

    Example: callshot synth corpus && callshot init corpus/recordings -a corpus/raven

    Example: callshot synth week --soundscape --recordings 168 --minutes 5
    """
    from callshot.corpus.synthetic import make_corpus
    from callshot.corpus.synthetic.site import synthesise_soundscape

    options: dict[str, Any] = {"seed": seed, "rate_hz": rate_hz, "threads": threads}
    if not soundscape:
        if site:
            raise OptionError(f"{next(iter(site))}: only with --soundscape")
        with run_with_progress("synthesising", quiet=quiet) as progress:
            corpus = make_corpus(folder, scale=scale, **options, progress=progress)
        if quiet:
            return
        minutes = corpus.duration_s / 60
        recordings = count_text(corpus.recordings, "recording")
        calls = count_text(corpus.calls, "call")
        print(f"{recordings}, {calls}, {minutes:.0f} minutes in {folder}")
        raven = folder / "raven"
        print(f"next: callshot inspect {folder / 'recordings'} --annotations {raven}")
        return

    if scale != 1.0:
        raise OptionError(
            "scale: not with --soundscape; give --recordings and --calls-per-hour"
        )
    with run_with_progress("synthesising", quiet=quiet) as progress:
        summary = synthesise_soundscape(folder, **site, **options, progress=progress)
    if quiet:
        return
    hours = summary.duration_s / 3600
    print(
        f"{count_text(summary.recordings, 'recording')}, "
        f"{count_text(summary.calls, 'call')}, {hours:.1f} hours in "
        f"{folder / 'recordings'}; the calls in {folder / 'raven'}"
    )
    if summary.clips:
        examples = folder / "examples"
        print(
            f"next: callshot learn {examples / 'recordings'} --annotations {examples / 'raven'} "
            f"--encoder mfcc --out {folder / 'calls.npz'}"
        )


batch = Program(
    help="Write a batch file that runs a command on a SLURM or PBS cluster.",
    no_args_is_help=True,
)
app.add_typer(batch, name="batch", rich_help_panel=OTHER)

Words = Annotated[
    list[str],
    argument(
        ...,
        "-- COMMAND...",
        "Command of callshot with its options: index, embed, scan, evaluate or run.",
    ),
]


@dataclass
class JobOptions:
    """What a batch file asks for, and where it is written."""

    workers: int = option(
        16, "N", "Number of workers (processes, each with its own encoder)."
    )
    threads: int = option(1, "N", "Number of threads of each worker.")
    memory: int = option(4, "GB", "Memory for each thread of a worker, in GB.")
    hours: int = option(24, "N", "Time limit of the job, in hours.")
    gpu: bool = flag("Give each worker one GPU.")
    out: Path | None = option(
        None, "FILE", "Batch file to write.", "-o", shown="print it"
    )

    def write(self, system: str, submit: str, command: list[str]) -> None:
        """Write or print the batch file of a command; `submit` is the program that starts it."""
        from callshot.distributed.batch_files import make_batch_file
        from callshot.files import check_new_file, write_atomic
        from callshot.storage import check_no_url

        mark = b"one command of callshot, which ends them all"  # in all batch files
        options = vars(self).copy()
        del options["out"]
        text = make_batch_file(system, command, **options)
        if self.out is None:
            print(text, end="")
            return
        check_no_url(self.out)
        check_new_file(
            self.out, "batch file", lambda path: mark in path.read_bytes()[:4096]
        )
        write_atomic(self.out, text)
        print(f"next: {submit} {self.out}")


@batch.command()
def slurm(command: Words, job: JobOptions) -> None:
    """Write a batch file for SLURM that starts workers and runs one command.

    Example: callshot batch slurm -o job.sh -- index recordings -e birdnet-v2.4 -o index
    """
    job.write("slurm", "sbatch", command)


@batch.command()
def pbs(command: Words, job: JobOptions) -> None:
    """Write a batch file for PBS that starts workers and runs one command.

    Example: callshot batch pbs -o job.sh -- scan calls.npz recordings -o detections
    """
    job.write("pbs", "qsub", command)


@app.command(rich_help_panel=OTHER)
def verify(
    path: Path | None = argument(
        None,
        "STUDY|RESULTS|REVIEW|STORE|INDEX|TABLE",
        "Study file, folder of results or of a review, stored embeddings, index or table to check.",
        show_default="study.toml in this folder, or the stored embeddings of the user",
    ),
    repair: bool = flag(
        "Rename damaged files of stored embeddings or of an index, so that they are not used. The "
        "next run makes them again."
    ),
    quiet: Quiet = False,
) -> None:
    """Check whether files are complete and unchanged, with their checksums.

    Reads everything again: of a study, the recordings, annotations, steps, results and stored
    embeddings. Prints every file that is damaged, missing or not from callshot, with the reason,
    and the number of files that are ok. The exit code is 1 if a file is damaged or missing.

    Example: callshot verify study.toml
    """
    from callshot.records import FAILURES, STATES
    from callshot.study.verify import default_path, verify_path

    target = default_path() if path is None else path
    findings = []
    with run_with_progress("reading the checksums", quiet=quiet) as progress:
        for finding in verify_path(target, repair=repair):
            progress(0.0, f"verified {finding.path.name}")
            findings.append(finding)
    is_failure = any(finding.state in FAILURES for finding in findings)
    if is_failure or not quiet:
        for finding in findings:
            if finding.state != "ok":
                reason = finding.reason or STATES[finding.state]
                echo(f"{finding.state}: {finding.path}: {reason}")
        counts = Counter(finding.state for finding in findings)
        summary = [f"{counts[state]} {state}" for state in STATES if state in counts]
        echo(f"{target}: {', '.join(summary) or 'nothing to verify'}")
    if is_failure:
        raise typer.Exit(1)


@app.command(rich_help_panel=OTHER)
def doctor() -> None:
    """Check this installation: packages, audio formats, encoders, GPU, folders and threads.

    Each line is one check. Where something is missing, the next line says what to do. The exit code
    is 1 if there is a problem. Things that only some users need are notes, not problems.

    Example: callshot doctor
    """
    from rich.console import Console

    from callshot.console import print_lines
    from callshot.study.doctor import GOOD, NOTE, PROBLEM, check_installation

    console = Console()
    states = []
    for check in check_installation():
        states.append(check.state)
        style = {GOOD: "", PROBLEM: "bold red"}.get(check.state, "yellow")
        line = f"{check.state:<8}{check.subject}: {check.result}"
        print_lines(console, [line], style)
        if check.advice:
            print_lines(console, [f"        {check.advice}"])
    problems = states.count(PROBLEM)
    notes = states.count(NOTE)
    counts = f"{count_text(problems, 'problem')}, {count_text(notes, 'note')}"
    print(f"{count_text(len(states), 'check')}: {counts}")
    if problems:
        raise typer.Exit(1)
