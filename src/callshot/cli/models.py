"""Commands for models and events: label, learn, model, export, scan, review, score, convert."""

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from callshot.cli.app import (
    FIELD,
    app,
    argument,
    echo,
    print_first,
    report_left_out,
    run_with_progress,
)
from callshot.cli.options import (
    AnnotationGroup,
    Clips,
    ClusterName,
    Columns,
    Device,
    FollowLinks,
    MaxFrequency,
    Out,
    Quiet,
    Seed,
    SourceRate,
    Store,
    Threads,
    use_cluster,
    window_option,
)
from callshot.cli.steps import Choices
from callshot.errors import InputError, OptionError, check_choice, count_text
from callshot.options import Given, ScoringOptions, flag, option
from callshot.storage import to_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callshot.detection.clips import ClipOptions
    from callshot.encoders.embed import EmbedOptions
    from callshot.records import Reject
    from callshot.review.results import ReviewResults

ModelFile = Annotated[
    Path, argument(..., "MODEL", "Model that callshot learn made (.npz).")
]


@dataclass
class EncoderOptions:
    """The encoder, and how it runs."""

    encoder: str | None = option(
        None,
        "NAME",
        "Name of the encoder. callshot encoders shows all names.",
        "-e",
        shown="the encoder of the model or the review, if it has one",
    )
    choices: Choices = None
    store: Store = None
    device: Device = "cpu"
    threads: Threads = None

    def embedding(self) -> "EmbedOptions":
        """Return how calls are embedded."""
        from callshot.encoders.embed import EmbedOptions

        return EmbedOptions(self.choices, self.store, self.device, self.threads)


@dataclass
class PageOptions:
    """Where a page is served, and who uses it."""

    reviewer: str | None = option(
        None,
        "NAME",
        "Your name. It is saved with everything that you do.",
        shown="your user name",
    )
    port: int | None = option(
        None,
        "N",
        "Network port of the page.",
        shown="the first free port from 8420",
        typer={"min": 1, "max": 65535},
    )
    host: str | None = option(
        None,
        "ADDRESS",
        "Network address of this machine at which other people can open the page too. 0.0.0.0 "
        "means all its addresses.",
        shown="only this machine",
    )
    no_browser: bool = flag(
        "Do not open a browser. Only print the address of the page."
    )


@app.command(rich_help_panel=FIELD)
def label(
    *,
    recordings: Path = argument(
        ...,
        "RECORDINGS",
        "Recordings to label: a folder, or one recording. They need no annotations. Or what has "
        "annotations to correct: recordings with annotation files, a segments.parquet, or a study "
        "file.",
    ),
    out: Path | None = option(
        None,
        "LABELS",
        "Folder where your calls are saved.",
        "-o",
        shown="the folder labels next to the recordings",
    ),
    encoder: str | None = option(
        None,
        "NAME",
        "Encoder by which similar sounds are found. none: no search.",
        "-e",
        shown="birdnet-v2.4, or the encoder of the index",
    ),
    choices: Choices = None,
    window: float | None = window_option("1"),
    index: Path | None = option(
        None,
        "INDEX",
        "Index of these recordings. What it does not have yet is added while you listen.",
        shown="the folder index in LABELS",
    ),
    page: PageOptions,
) -> None:
    """Look at recordings in the browser, mark a few calls, and find more of them.

    Scroll and zoom through the spectrogram, listen, and drag a box around each call. Type its name
    and press Enter. "More like this" shows similar sounds, to answer with yes or no. "Find all
    calls" learns from your calls and looks for more in all recordings. Press ? for all keys. Every
    change is saved at once in LABELS: stop with Ctrl-C, and go on later with the same command.
    callshot learn LABELS makes a model of the calls; what you listened to, and has no box, is its
    background. callshot convert LABELS writes the calls for other programs.

    Where recordings have annotations, or in a study, the page of callshot review opens to correct
    these: annotated twice, overlapping, cut off, or with a label that looks wrong. The annotations
    stay as they are; the page exports corrected ones.

    Example: callshot label recordings
    """
    from callshot.review.server import ServerOptions, serve_labelling
    from callshot.review.similar import SearchOptions

    options = ServerOptions(
        page.host, page.port, page.reviewer, browser=not page.no_browser
    )
    searching = SearchOptions(encoder, choices, window, index)
    serve_labelling(recordings, options, searching, out)


@app.command(rich_help_panel=FIELD)
def learn(
    *,
    out: Path = option(..., "MODEL", "Model to write (.npz).", "-o"),
    encoder: EncoderOptions,
    source: AnnotationGroup,
    window: float | None = window_option("the median length of the examples"),
    channel: str | None = option(
        None,
        "first|mean|N",
        "Audio channel: first, mean of all channels, or a number (1 is the first).",
        shown="first",
    ),
    source_rate_hz: SourceRate = None,
    background: str = option(
        "auto",
        "auto|none|DIR",
        "Sound without calls, to set thresholds for scan. auto: the parts of the annotated "
        "recordings that have no annotation. none: no background; scan then sets thresholds from "
        "the recordings that it scans, or, if these are too short, from the examples. DIR: a "
        "folder of recordings without calls.",
    ),
    site: Path | None = option(
        None,
        "RECORDINGS",
        "Recordings of the site where the model will be used. Examples from other places are "
        "mixed into their background sound.",
        shown="scan does this with the recordings that it scans",
    ),
    examples: Path | None = argument(
        None,
        "EXAMPLES",
        "Labelled examples: a folder of recordings with annotations, one recording, a folder with "
        "a subfolder of clips per label, a segments.parquet, a folder of callshot label or "
        "callshot review, or an index of callshot import with --annotations.",
    ),
    add: Path | None = option(
        None,
        "MODEL|REVIEW",
        "Model to which the examples are added. Or, without EXAMPLES, a folder of callshot "
        "review: its confirmed calls are added to the model that made the detections. EXAMPLES "
        "alone, also a folder of callshot review, make a new model.",
    ),
    quiet: Quiet = False,
) -> None:
    """Make a model from a few labelled examples, for scan.

    An example in a recording is embedded with the sound around it, in the middle of a window. A
    call that is longer than a window gets the mean of its windows. The segments of a
    segments.parquet are embedded without the sound around them. Where all annotations have a low
    and a high frequency, the encoder gets only the band of these, if that separates held-out
    examples from background better (--set band=none: all frequencies). With --add, the new model is
    the same as if it had been made from the old and the new examples together.

    Choose the encoder by the animal: birdnet-v2.4 for birds; birdnet-v2.4 with --set speed=2 or 4
    for elephants and other low calls; mfcc needs no download and finds fewer calls.

    Example: callshot learn recordings -a selections --encoder birdnet-v2.4 --out calls.npz
    """
    from callshot.corpus.options import read_source
    from callshot.detection.learn import LearningOptions, learn_examples
    from callshot.detection.model import check_model_path
    from callshot.detection.model_summary import describe_costly, describe_limits
    from callshot.review.learning import learn_review_files

    review, add = _find_review(examples, add)
    reading = read_source(source)
    options = LearningOptions(
        annotations=reading["annotations"],
        format=reading["format"],
        annotation_options=reading["annotation_options"],
        window_s=window,
        channel=channel,
        source_rate_hz=source_rate_hz,
        background=background,
        site=site,
    )
    # With a review and --add, none of these options may be given.
    defaults = LearningOptions(annotation_options=options.annotation_options)
    if review is not None and add is not None and options != defaults:
        raise OptionError(
            "add: calls of a review are read with the settings of its model; remove the options of "
            "annotations and audio"
        )
    if review is not None and options.annotations is not None:
        raise OptionError(
            f"annotations: {review} is a review, whose calls are the annotations; remove "
            "--annotations"
        )
    name = encoder.encoder
    with run_with_progress("reading examples", quiet=quiet) as progress:
        embedding = encoder.embedding()
        more: Any = {"add": add, "progress": progress}
        if review is not None:
            more["options"] = replace(options, annotation_options=None)
            result = learn_review_files(review, out, name, embedding, **more)
        else:
            assert examples is not None  # otherwise there is a review
            check_model_path(to_path(out))
            result = learn_examples(examples, name, options, embedding, **more)
            result.write(out)
    if not quiet:
        print_rejects(result.rejects)
        model = result.model
        limits = [*describe_costly(model), *describe_limits(model)]
        for note in [*result.notes, *limits]:
            echo(f"note: {note}")
        echo(
            f"{count_text(len(model.examples), 'example')} ({result.new} new) of "
            f"{count_text(len(model.classes), 'label')} "
            f"in {out}; licence of the weights: {model.licence}"
        )
        print(f"next, what to expect of it: callshot model {out}")
        print(f"then, to find calls: callshot scan {out} RECORDINGS --out DIR")
    report_left_out(result.rejects, "example", file="")


def _find_review(
    examples: Path | None, add: Path | None
) -> tuple[Path | None, Path | None]:
    """Return the review whose calls are learnt, and the model that examples are added to, or None.

    With `learn --add REVIEW`, the calls of a review are added to its own model, and both are it.
    """
    from callshot.review.journal import is_review

    if add is not None and is_review(add):
        if examples is not None:
            raise OptionError(
                "add: a review is added to its own model; remove EXAMPLES, or run learn once for "
                "the review and once for EXAMPLES"
            )
        return add, add
    if examples is None:
        raise OptionError("add: expected EXAMPLES, or the folder of a review in --add")
    if is_review(examples):
        return examples, add
    return None, add


def make_clip_options(
    clips: int | None, max_hz: float | None, seed: int
) -> "ClipOptions | None":
    """Return how clips are written; None if there are none to write."""
    from callshot.detection.clips import ClipOptions

    if clips is not None:
        return ClipOptions(clips, max_hz=max_hz, seed=seed)
    if max_hz is not None:
        raise OptionError(
            "max_hz: only for pictures of clips; give the number of clips, too (--clips N)"
        )
    return None


def print_rejects(rejects: "Sequence[Reject]") -> None:
    """Print the first of the examples or segments that were left out, and how many more."""
    lines = []
    for reject in rejects:
        location = reject.file if reject.row is None else f"{reject.file}, {reject.row}"
        lines.append(f"left out: {location}: {reject.reason}")
    print_first(lines, "more")


@app.command(rich_help_panel=FIELD)
def model(path: ModelFile) -> None:
    """Show the labels and examples of a model, and how often it is right.

    Prints the labels and the number of their examples; how many examples are classified correctly
    by the examples of other recordings; how much one more example of a label would help; the labels
    that are most similar; and unusual examples, with file and time.

    Example: callshot model calls.npz
    """
    from callshot.detection.model import load_model
    from callshot.detection.model_summary import describe_model

    for line in describe_model(load_model(path)):
        echo(line)


@app.command(rich_help_panel=FIELD)
def export(
    path: ModelFile,
    onnx: Path = option(..., "FILE", "ONNX file to write (.onnx)."),
) -> None:
    """Write the classifier of a model as an ONNX file, for other programs.

    The input `embedding` of the file takes vectors of the encoder of the model. The outputs are
    `label`, `scores` (log-odds of all labels) and `evidence` (the output of the linear layer). The
    file does not contain the encoder: run the encoder first.

    Example: callshot export calls.npz --onnx calls.onnx
    """
    from callshot.detection.model import check_onnx_path, export_onnx, load_model

    check_onnx_path(onnx)
    learned = load_model(path)
    export_onnx(learned, onnx)
    echo(f"{onnx}: takes vectors of {learned.encoder}, gives labels and scores")
    echo(f"licence of the encoder's weights: {learned.licence}")


@dataclass
class ScanOptions:
    """How calls are found in recordings; with --segments there is none of these."""

    false_alarms: str | None = option(
        None,
        "N/h",
        "Allowed false alarms of each label per hour or day, for example 1/h or 2/d. Sets the "
        "thresholds.",
        shown="1/h; none where calls are found by the nearest mean",
    )
    precision: float | None = option(
        None,
        "P",
        "Least probability that a detection is right, between 0 and 1, for example 0.9. Needs a "
        "model with verdicts of a review: callshot learn --add REVIEW.",
        shown="all, but what verdicts show to be more likely wrong than right",
    )
    best: int | None = option(
        None,
        "N",
        "Report the N windows of each label with the highest scores, whatever the thresholds. To "
        "find first calls where nothing was found: confirm or reject them with callshot review.",
    )
    gap: float = option(
        0.0,
        "S",
        "Longest pause inside an event, in seconds. Windows with a detection of the same label "
        "that are closer become one event.",
    )
    hop: float | None = option(
        None,
        "S",
        "Time from the start of one window to the start of the next, in seconds. A shorter time "
        "gives more exact starts and ends of events, and takes longer.",
        shown="the hop of the encoder, or the length of the window",
    )
    edges: str = option(
        "windows",
        "windows|sound",
        "Where events begin and end. windows: an event is a stretch of windows with calls. sound: "
        "each call in these windows is an event, by what is loud in the band of the examples.",
    )
    adapt: str = option(
        "auto",
        "auto|always|none",
        "Whether to mix the model's examples into background sound of these recordings (at most "
        "20 examples per label), and to set the thresholds from these recordings. auto: only if "
        "the model has no background of its own, for example one learned from clips. always: for "
        "any model. none: use the model as it is.",
    )
    to: tuple[str, ...] = option(
        ("raven",),
        "NAMES",
        "Programs for which tables of the events are written: {programs}; separated by commas. "
        "With raven, raven-all has one table of all recordings.",
        separated=True,
    )
    clips: Clips = None
    max_hz: MaxFrequency = None
    seed: Seed = 0
    follow_links: FollowLinks = False
    cluster: ClusterName = None


@app.command(rich_help_panel=FIELD)
def scan(
    *,
    path: ModelFile,
    out: Out,
    encoder: EncoderOptions,
    scanning: Annotated[Given, ScanOptions],
    recordings: Path | None = argument(
        None,
        "RECORDINGS|INDEX",
        "What to scan: a folder of recordings, one recording, or an index that callshot index or "
        "callshot import made.",
    ),
    segments: Path | None = option(
        None,
        "SEGMENTS",
        "Table of segments (segments.parquet of callshot segment), to label these calls instead "
        "of scanning recordings.",
    ),
    audio: Path | None = option(
        None,
        "DIR",
        "With --segments: folder of the recordings.",
        shown="the folder in the table of segments",
    ),
    quiet: Quiet = False,
) -> None:
    """Find calls in recordings with a model, or label the calls of a table of segments.

    Every window of the recordings gets a score for each label. If the highest score reaches the
    threshold of its label, the window is a detection of that label. Detections in neighbouring
    windows become one event, with the label of the highest score. Writes to DIR: events.csv,
    events.parquet, tables for other programs, rejects.csv (files that could not be read) and
    scan.json (settings and versions). The embeddings of all windows are stored in DIR/index. After
    a crash, or with new recordings, run the command again: only what is missing is embedded.

    Example: callshot scan calls.npz recordings --out detections
    """
    from rich.console import Console

    from callshot.detection.scan_files import scan_files, show_scan

    if (recordings is None) == (segments is None):
        raise OptionError(
            "segments: expected either RECORDINGS or an INDEX to scan, or --segments to label "
            "calls"
        )
    if segments is not None:
        for name in scanning:
            raise OptionError(f"{name}: cannot be combined with --segments; remove it")
        _scan_segments(path, segments, out, encoder, audio, quiet=quiet)
        return

    for name, value in {"audio": audio, "store": encoder.store}.items():
        if value is not None:
            raise OptionError(f"{name}: only for --segments; remove it")
    options = ScanOptions(**scanning)
    clips = make_clip_options(options.clips, options.max_hz, options.seed)
    with (
        use_cluster(options.cluster, encoder.threads, quiet=quiet) as workers,
        run_with_progress("opening the encoder", quiet=quiet) as progress,
    ):
        assert recordings is not None  # otherwise there are segments
        result = scan_files(
            path,
            recordings,
            out,
            formats=options.to,
            clips=clips,
            cluster=workers,
            progress=progress,
            false_alarms=parse_rate(options.false_alarms),
            precision=options.precision,
            best=options.best,
            gap_s=options.gap,
            hop_s=options.hop,
            edges=options.edges,
            adapt=options.adapt,
            encoder=encoder.encoder,
            encoder_options=encoder.choices,
            follow_links=options.follow_links,
            device=encoder.device,
            threads=encoder.threads,
        )
    if not quiet:
        show_scan(result, out, Console())
    report_left_out(result.rejects, "recording", out / "rejects.csv")


def _scan_segments(
    model: Path,
    segments: Path,
    out: Path,
    encoder: EncoderOptions,
    audio: Path | None,
    *,
    quiet: bool,
) -> None:
    """Label the calls of a table of segments, and print what was done: scan --segments."""
    from callshot.detection.scan_files import scan_segment_files

    with run_with_progress("opening the encoder", quiet=quiet) as progress:
        labelled = scan_segment_files(
            model,
            segments,
            out,
            encoder.embedding(),
            encoder=encoder.encoder,
            audio=audio,
            progress=progress,
        )
    if not quiet:
        print_rejects(labelled.rejects)
        for note in labelled.notes:
            echo(f"note: {note}")
        segment_count = count_text(len(labelled.frame), "segment")
        print(f"{segment_count} labelled, in {out / 'labels.csv'}")
    report_left_out(labelled.rejects, "segment", file="")


@app.command(rich_help_panel=FIELD)
def review(
    *,
    path: Path = argument(
        ...,
        "SCAN|SEGMENTS|STUDY",
        "What to review: a folder of callshot scan (also of scan --segments), a segments.parquet, "
        "a study file, or recordings with annotations.",
    ),
    out: Path | None = option(
        None,
        "REVIEW",
        "Folder where your decisions are saved.",
        "-o",
        shown="the folder review next to the files that are reviewed",
    ),
    recordings: Path | None = option(
        None,
        "DIR",
        "Folder of the recordings, if it was moved.",
        shown="the folder of the scan",
    ),
    model: Path | None = option(
        None,
        "MODEL",
        "Model of the scan, if it was moved.",
        shown="the path in the scan",
    ),
    index: Path | None = option(
        None,
        "INDEX",
        "Index of the scan, if it was moved.",
        shown="the path in the scan",
    ),
    blind: bool = flag("Hide the decisions of other reviewers."),
    page: PageOptions,
) -> None:
    """Listen to detections in the browser, and confirm, relabel or reject them.

    Every decision is one key, and is saved at once in REVIEW. callshot learn --add REVIEW adds the
    confirmed calls to the model. callshot convert REVIEW writes them for other programs.

    Example: callshot review detections
    """
    from callshot.review.server import ServerOptions, serve_review
    from callshot.review.sources import SourceOptions

    sources = SourceOptions(recordings, model, index)
    options = ServerOptions(
        page.host, page.port, page.reviewer, blind, browser=not page.no_browser
    )
    serve_review(path, sources, options, out)


RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(?:/\s*(h|d))?\s*")

Recordings = Annotated[
    Path | None,
    option(..., "DIR", "Folder of all recordings, also of those without events."),
]


@app.command(rich_help_panel=FIELD)
def score(
    *,
    detections: Path = argument(
        ...,
        "DETECTIONS",
        "Detections with scores: a folder of callshot scan, a CSV or Parquet file, or any "
        "annotation format.",
    ),
    out: Out,
    annotations: Path | None = argument(
        None,
        "ANNOTATIONS",
        "Annotations of all calls in the recordings, made by a person: a file or a folder.",
    ),
    recordings: Recordings = None,
    reviewed: Path | None = option(
        None,
        "REVIEW",
        "Folder of callshot review, or a table of some of the detections with a column confirmed "
        "(yes or no). Estimates the precision: how many of all detections are calls.",
    ),
    columns: Columns = None,
    scoring: Annotated[Given, ScoringOptions],
    figure: bool = flag("Draw the precision-recall curves.", default=True),
    quiet: Quiet = False,
) -> None:
    """Compare detections with annotations: precision, recall, F1, AP, false alarms per hour.

    A detection is correct if it matches a call with the same label. Each detection and each call is
    matched at most once. What is not correct is counted apart: calls with a wrong name, and false
    alarms, which are on no annotated call. All scores are per label, by events and by windows, with
    intervals from a bootstrap over recordings. If calls are too short to match any detection, the
    scores by windows come first. Writes to DIR: scores.csv, precision_recall.csv, outcomes.csv (the
    outcome of every detection and call), thresholds.csv, call_density.csv, rejects.csv and the
    precision-recall curves.

    Example: callshot score detections.csv selection-tables --recordings audio --out scores
    """
    from rich.console import Console

    from callshot.detection.score import (
        open_scores,
        score_detections,
        show_scores,
        write_scores,
    )

    aim = parse_rate(scoring.pop("false_alarms", None))
    options = asdict(ScoringOptions(**scoring, false_alarms_per_hour=aim))
    with run_with_progress("scoring", quiet=quiet), open_scores(out) as output:
        verdicts, review_notes = _read_verdicts(reviewed)
        result = score_detections(
            detections,
            annotations,
            recordings=recordings,
            reviewed=verdicts,
            columns=columns,
            **options,
        )
        result = replace(result, notes=[*result.notes, *review_notes])
        write_scores(output, result, options, figure=figure)
    if not quiet:
        show_scores(result, Console())
        print(f"results in {out}")


def _read_verdicts(reviewed: Path | None) -> tuple[Any, list[str]]:
    """Return the decisions of a review, with notes; the path of a table is returned as it is."""
    from callshot.review.journal import is_review
    from callshot.review.labels import LABELS
    from callshot.review.results import read_review

    if reviewed is None or not is_review(reviewed):
        return reviewed, []
    review = read_review(reviewed, rejected=True)
    if review.facts.get("kind") == LABELS:
        raise InputError(
            f"{reviewed}: has calls that were labelled, and no decisions on detections; "
            f"write them for ANNOTATIONS (callshot convert {reviewed} --to raven)"
        )
    if review.events.is_empty():
        raise InputError(f"{reviewed}: nothing was decided yet in this review")
    return review.events, _describe_conflicts(review)


def _describe_conflicts(results: "ReviewResults") -> list[str]:
    """Return a note on calls that are left out because reviewers disagree, if there are any."""
    if not results.conflicts:
        return []
    calls = count_text(results.conflicts, "call")
    return [f"{calls} left out, because reviewers disagree"]


@app.command(rich_help_panel=FIELD)
def convert(
    *,
    events: Path = argument(
        ...,
        "EVENTS",
        "Detections or annotations to convert: a file or folder in CSV, Parquet or any annotation "
        "format, or a folder of callshot scan, label or review.",
    ),
    out: Out,
    to: str = option(..., "NAME", "Format to write: {exports}."),
    recordings: Recordings = None,
    columns: Columns = None,
    clips: Clips = None,
    max_hz: MaxFrequency = None,
    seed: Seed = 0,
    activity: bool = flag(
        "Also count and draw the events by day and hour, if the recordings have dates and times."
    ),
    quiet: Quiet = False,
) -> None:
    """Convert detections or annotations to files for Raven, Audacity and other programs.

    raven-all needs --recordings, because its times are counted from the start of the first
    recording, as Raven does. --clips and --activity need --recordings too, and write to the folders
    clips and activity in DIR. Of a review, the confirmed calls are written, with the reviewer and
    the time.

    Example: callshot convert detections.csv --to raven --recordings audio --out raven
    """
    from rich.console import Console

    from callshot.corpus.options import make_annotation_options
    from callshot.detection.activity import write_activity
    from callshot.detection.clips import write_clips
    from callshot.detection.events import EventTable, open_recordings, read_events
    from callshot.detection.exports import EXPORTS, MANIFEST, export_events
    from callshot.detection.sentences import show_rejects
    from callshot.results import open_output_folder
    from callshot.review.journal import is_review
    from callshot.review.results import convert_review

    for name, is_asked in {"clips": clips, "activity": activity}.items():
        if is_asked and recordings is None:
            raise OptionError(
                f"{name}: give the folder of the recordings (--recordings)"
            )
    clip_options = make_clip_options(clips, max_hz, seed)
    annotation_options = make_annotation_options(columns=columns)
    check_choice("to", to, EXPORTS)
    with run_with_progress("converting", quiet=quiet) as progress:
        with open_output_folder(out, (), MANIFEST):  # refuse it before any work
            folder = None if recordings is None else open_recordings(recordings)
        if is_review(events):
            results, files = convert_review(events, to, out, recordings)
            conflicts = [f"note: {note}" for note in _describe_conflicts(results)]
            table = EventTable(results.events, notes=conflicts)
        else:
            table = read_events(events, folder, annotation_options)
            files = export_events(table.events, to, out, folder)
        notes = [*table.notes]
        if folder is not None and clip_options is not None:
            written, unread = write_clips(
                table.events, folder, out / "clips", clip_options, progress=progress
            )
            table.rejects.extend(unread)
            notes.append(f"{count_text(len(written), 'clip')} in {out / 'clips'}")
        if folder is not None and activity:
            undated = write_activity(table.events, folder, out / "activity")
            notes.append(f"detections by day and hour in {out / 'activity'}")
            if undated:
                count = count_text(undated, "event")
                notes.append(f"note: {count} without clock time")
    if quiet:
        return
    show_rejects(table.rejects, Console())
    event_count = count_text(len(table.events), "event")
    print(f"{event_count} in {count_text(len(files) - 1, 'file')} in {out}")
    for note in notes:
        print(note)


def parse_rate(text: str | None) -> float | None:
    """Return how many per hour a text such as 1/h or 2/d means; a number alone is per hour.

    >>> parse_rate("0.5/h"), parse_rate("12/d"), parse_rate("2")
    (0.5, 0.5, 2.0)
    """
    if text is None:
        return None
    match = RATE.fullmatch(text)
    if match is None:
        raise OptionError(
            f"false_alarms: expected a number per hour or day, such as 1/h, got {text!r}"
        )
    return float(match[1]) / (24 if match[2] == "d" else 1)
