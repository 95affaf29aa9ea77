"""Events → files that other programs open; a format is a function under `output_format`."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from callshot.corpus.annotations import FORMATS, Format, raven
from callshot.corpus.annotations.rows import add_times
from callshot.corpus.audio import SUFFIXES
from callshot.detection.events import EVENTS_CSV, EVENTS_FILE, RecordingFolder
from callshot.detection.index.clock import find_clock_time, parse_clock, shift_clock
from callshot.errors import InputError, OptionError, check_choice
from callshot.files import is_inside
from callshot.records.frames import Frame
from callshot.records.table_files import format_csv
from callshot.results import open_output_folder
from callshot.spans import Row

MANIFEST = "export.json"  # readers of annotations do not skip the files that it lists
TABLE_SUFFIX = ".Table.1.selections.txt"
COLUMNS = (
    "INDIR,FOLDER,IN FILE,CHANNEL,OFFSET,DURATION,DATE,TIME,HOUR,TOP1MATCH*,TOP1DIST"
)
VERDICTS = {True: "yes", False: "no"}
DIGITS = 6  # of the times at which files begin in a sound: microseconds

Files = Iterator[tuple[str, bytes]]  # name and content
WriteEvents = Callable[[Frame, RecordingFolder | None], Files]


@dataclass(frozen=True)
class OutputFormat:
    """A format of events.

    write           yields the files of a frame of events
    help            what it writes, where the name does not say it
    for_programs    whether scan writes it for another program; it is then an option of --to
    beside          format of --to with which scan writes it too
    on_page         whether the page of a review offers it
    suffix          of the only file, if there is one only
    needs_folder    whether it needs the recordings without events too
    """

    write: WriteEvents
    help: str = ""
    for_programs: bool = False
    beside: str = ""
    on_page: bool = False
    suffix: str = ""
    needs_folder: bool = False


EXPORTS: dict[str, OutputFormat] = {}


def output_format(name: str, **facts: Any) -> Callable[[WriteEvents], WriteEvents]:
    """Register a function as an output format; `facts` are the other fields of OutputFormat."""

    def register(write: WriteEvents) -> WriteEvents:
        EXPORTS[name] = OutputFormat(write, **facts)
        return write

    return register


def formats_for_programs() -> list[str]:
    """Return the formats that scan writes for other programs."""
    return [name for name, export in EXPORTS.items() if export.for_programs]


def describe_exports() -> str:
    """Return the names of all formats as the help lists them."""
    names = [
        f"{name} ({export.help})" if export.help else name
        for name, export in EXPORTS.items()
    ]
    return f"{', '.join(names[:-1])} or {names[-1]}"


def export_events(
    events: Frame, format: str, out: Path, recordings: RecordingFolder | None = None
) -> list[Path]:
    """Write events to a folder in one of EXPORTS: all files, or none; return their paths.

    Files that an earlier export wrote there are replaced; others are an error.
    """
    check_choice("to", format, EXPORTS)

    with open_output_folder(out, (), MANIFEST) as output:
        return output.write(
            lambda folder: write_files(events, format, folder, recordings),
            {"format": format},
        )


def write_files(
    events: Frame, format: str, folder: Path, recordings: RecordingFolder | None
) -> list[str]:
    """Write events to a folder in one of EXPORTS; return the names of the files."""
    names = []
    for name, content in EXPORTS[format].write(events, recordings):
        if not is_inside(folder, name):
            raise InputError(
                f"{name}: a recording outside the folder of recordings; "
                "give that folder (--recordings)"
            )
        if name in names:
            raise InputError(
                f"{name}: two recordings would share this file; export them apart"
            )
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        names.append(name)
    return names


def to_annotations(events: Frame) -> list[Row]:
    """Return events as rows of annotations, without empty cells.

    Annotations name their file in `path`; their `recording` is a group of files: here none.
    """
    rows = []
    for event in events.iter_rows(named=True):
        event["confirmed"] = VERDICTS.get(event["confirmed"])
        row = {name: value for name, value in event.items() if value is not None}
        row["path"] = row.pop("recording")
        rows.append(row | {"recording": None})
    return rows


@output_format("raven", help="a table per recording", for_programs=True, on_page=True)
def _export_raven(events: Frame, recordings: RecordingFolder | None) -> Files:
    """Yield the table of each recording; one without rows where a recording has no events."""
    events = _fill_band(events, recordings)
    names = set(events["recording"])
    if recordings is not None:
        names |= recordings.recordings.keys()
    for name, stem in _find_stems(names).items():
        file = f"{stem}{TABLE_SUFFIX}"
        annotations = to_annotations(events.filter(recording=name))
        yield file, raven.write(annotations, Path(file)).encode()


@output_format(
    "raven-all", help="one table for all recordings", beside="raven", needs_folder=True
)
def _export_raven_all(events: Frame, recordings: RecordingFolder | None) -> Files:
    """Yield one table; its times run on over all recordings, by name, also over silent ones."""
    if recordings is None:
        raise OptionError(
            "to: raven-all is one table for all recordings and needs their lengths; "
            "give their folder (--recordings)"
        )
    sound = {}  # the file of each recording, and when it begins in the sequence of all
    begin_s = 0.0
    for name, recording in sorted(recordings.recordings.items()):
        path = str(recordings.find_file(name))
        sound[name] = (path, round(begin_s, DIGITS))
        begin_s += recording.duration_s
    file = f"all{TABLE_SUFFIX}"
    annotations = to_annotations(_fill_band(events, recordings))
    yield file, raven.write(annotations, Path(file), sound).encode()


def _fill_band(events: Frame, recordings: RecordingFolder | None) -> Frame:
    """Give events without frequencies the whole band: Raven draws a selection as a box."""
    if recordings is None:
        return events
    tops_hz = {
        name: recording.rate_hz / 2 for name, recording in recordings.recordings.items()
    }
    top_hz = pl.col("recording").replace_strict(
        tops_hz, default=None, return_dtype=pl.Float64
    )
    return events.with_columns(
        pl.col("low_freq_hz").fill_null(0.0), pl.col("high_freq_hz").fill_null(top_hz)
    )


@output_format(
    "kaleidoscope", for_programs=True, on_page=True, suffix="-kaleidoscope.csv"
)
def _export_kaleidoscope(events: Frame, recordings: RecordingFolder | None) -> Files:
    """Yield one table; date, time and hour are those of the start of the event."""
    folder = ""
    if recordings is not None:
        folder = str(recordings.library.root.absolute())
    starts = {}
    for name in set(events["recording"]):
        file = Path(name) if recordings is None else recordings.find_file(name)
        starts[name] = find_clock_time(file, name)
    rows: list[Any] = [COLUMNS.split(",")]
    for event in events.iter_rows(named=True):
        path = PurePosixPath(event["recording"])
        parent = path.parent.as_posix()
        shifted = shift_clock(starts[event["recording"]], event["start_s"])
        time = parse_clock(event["clock"]) or parse_clock(shifted)
        clock = [""] * 3  # date, time, hour
        if time is not None:
            clock = f"{time:%Y-%m-%d %H:%M:%S %H}".split()
        rows.append(
            (
                folder,
                "" if parent == "." else parent,
                path.name,
                0,  # channel
                event["start_s"],
                add_times(event["end_s"], -event["start_s"]),  # the exact duration
                *clock,
                event["label"],
                event["distance"],
            )
        )
    yield "kaleidoscope.csv", format_csv(rows).encode()


@output_format("csv", on_page=True, suffix=".csv")
def _export_csv(events: Frame, recordings: RecordingFolder | None) -> Files:
    """Yield one file with all columns."""
    verdicts = pl.col("confirmed").replace_strict(
        VERDICTS, default=None, return_dtype=pl.String
    )
    rows = events.with_columns(confirmed=verdicts).rows()
    yield EVENTS_CSV, format_csv([tuple(events.columns), *rows]).encode()


@output_format("parquet", on_page=True, suffix=".parquet")
def _export_parquet(events: Frame, recordings: RecordingFolder | None) -> Files:
    """Yield one file with all columns."""
    buffer = BytesIO()
    events.write_parquet(buffer, compression="zstd")
    yield EVENTS_FILE, buffer.getvalue()


def _find_stems(names: Iterable[str]) -> dict[str, str]:
    """Return, by name of recording, the name without suffix, or whole if two would be the same.

    Names that differ only in case are the same file on some systems.
    """
    stems = {}
    for name in sorted(names):
        path = PurePosixPath(name)
        is_audio = path.suffix.lower() in SUFFIXES
        stems[name] = path.with_suffix("").as_posix() if is_audio else name
    counts = Counter(stem.casefold() for stem in stems.values())
    return {
        name: stem if counts[stem.casefold()] == 1 else name
        for name, stem in stems.items()
    }


def _export_annotations(format: Format, events: Frame, *_: object) -> Files:
    """Yield a file of an annotation format for each recording that has events."""
    assert format.write is not None
    for name, stem in _find_stems(set(events["recording"])).items():
        file = f"{stem}{format.suffixes[0]}"
        annotations = to_annotations(events.filter(recording=name))
        yield file, format.write(annotations, Path(file)).encode()


# The annotation formats that have no function of their own here, such as Audacity's.
for _format in FORMATS:
    if _format.write is not None and _format.name not in EXPORTS:
        _register = output_format(_format.name, for_programs=True, on_page=True)
        _register(partial(_export_annotations, _format))
