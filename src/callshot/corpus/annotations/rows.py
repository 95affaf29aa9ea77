r"""Rows of annotation files, the same for all formats: text, numbers and times, rows, rejects.

Lines end at \n, \r\n or \r and nowhere else: a label may hold other Unicode line separators.
Numbers have a point before their decimals, or a comma where no number of the table has a point.
A row of annotations has these columns, and any others:

path             audio file as the row names it; empty if the file belongs to one recording
recording        group of files that must stay together, if one is given
start_s, end_s   seconds, or frames of the recording if `in_frames`; no end: the whole recording
label
annotation_file, annotation_row   where the row stands, from 1
"""

import codecs
import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

from callshot.errors import InputError, OptionError, OutputError, quote, suggest
from callshot.files import error_reason
from callshot.options import ReadingOptions, check_values, document, list_options
from callshot.records import Reject
from callshot.records.table_files import restore_text
from callshot.spans import Row, Spans

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""

HEAD_BYTES = 65536
DELIMITERS = ("\t", ";", ",")
# No two parts of it match the same digits: a long run of them is tried in one way only.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0{1,18})?")  # 2.0: pandas, beside NaN
MISSING = ("", "na", "nan")  # as R and pandas write it
FREQUENCIES = ("low_freq_hz", "high_freq_hz")
csv.field_size_limit(2**31 - 1)
CLOCK = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,2}(?:[.,][0-9]{0,30})?)")


class RowError(Exception):
    """A row is not an annotation; the message is the reason."""


def read_text(path: Path, notes: list[str], size: int = -1) -> str:
    """Read a text file, or its first bytes: UTF-16 by its mark, UTF-8, or else Windows-1252.

    The last of these adds a note to `notes`.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait forever
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            raw = stream.read(size)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from None
    has_mark = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if has_mark else "utf-8-sig"
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        # The first bytes of a file may end within a character.
        return decoder.decode(raw, final=size < 0)
    except UnicodeDecodeError as error:
        if has_mark:
            before = raw[: error.start].decode(encoding, "replace")
            line = before.count("\n") + 1
            raise InputError(
                f"{path}: line {line}: damaged UTF-16 ({error.reason}); save the file as UTF-8"
            ) from None
    notes.append("not UTF-8: read as Windows-1252")
    return raw.decode("cp1252", "replace")  # five values of a byte are undefined in it


def split_lines(text: str) -> list[str]:
    r"""Split text at \n, \r\n and \r only, without blank lines."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line for line in lines if line.strip()]


def join_cells(cells: Sequence[object]) -> str:
    r"""Return a line of cells between tabs; tabs and line ends in them become spaces."""
    texts = ["" if cell is None else str(cell) for cell in cells]
    plain = [re.sub(r"[\t\r\n]", " ", text) for text in texts]
    return "\t".join(plain) + "\n"


def find_delimiter(text: str) -> tuple[str, list[str]]:
    """Return the delimiter that splits the first row into most cells, and these cells."""
    headers = {}
    for delimiter in DELIMITERS:
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            headers[delimiter] = next(filter(any, reader), [])
        except csv.Error:
            headers[delimiter] = []
    best = max(headers, key=lambda delimiter: len(headers[delimiter]))
    return best, headers[best]


def read_table(path: Path, notes: list[str]) -> tuple[str, list[tuple[int, list[str]]]]:
    """Read a table: its delimiter, and rows that are not empty as (line from 1, cells).

    Of an empty file there is one row without cells, as its header.
    """
    text = read_text(path, notes)
    delimiter, _ = find_delimiter(text)
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    rows = []
    try:
        for cells in reader:
            if any(cells):
                rows.append((line, [restore_text(cell) for cell in cells]))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}: line {line}: the row that begins here has a wrong quote ({error}); "
            "close every quote, and double those inside a quoted field"
        ) from None
    return delimiter, rows or [(1, [])]


def parse_number(text: str, name: str, *, allow_comma: bool = True) -> float:
    """Parse the number in column `name`; raise RowError if there is none."""
    digits = text.strip()
    if allow_comma and "." not in digits:
        digits = digits.replace(",", ".", 1)
    if NUMBER.fullmatch(digits) is None or math.isinf(float(digits)):
        raise RowError(f"{name}: expected a number, got {quote(text)}")
    return float(digits)


def parse_time(
    text: str, name: str, *, allow_comma: bool = True, in_milliseconds: bool = False
) -> float:
    """Parse a time, and return it in seconds.

    A number is in seconds, or with `in_milliseconds` in milliseconds; hh:mm:ss and mm:ss are
    accepted either way. `name` is the column, for the RowError.

    >>> parse_time("01:02:03.5", "start_s"), parse_time("1500", "start_s", in_milliseconds=True)
    (3723.5, 1.5)
    """
    match = CLOCK.fullmatch(text.strip())
    if match is None:
        number = parse_number(text, name, allow_comma=allow_comma)
        return number / 1000 if in_milliseconds else number
    hours_text, minutes_text, seconds_text = match.groups(default="0")
    has_hours = match[1] is not None
    minutes = int(minutes_text)
    seconds = Decimal(seconds_text.replace(",", "."))
    if seconds >= 60 or (has_hours and minutes >= 60):
        raise RowError(f"{name}: expected hh:mm:ss or mm:ss, got {quote(text)}")
    return float(3600 * int(hours_text) + 60 * minutes + seconds)


def add_times(*times_s: float) -> float:
    """Add times as decimals, so that 0.1 s and 0.2 s are 0.3 s."""
    return float(sum(Decimal(repr(time_s)) for time_s in times_s))


def parse_cell(text: str, name: str, *, allow_comma: bool = True) -> Cell:
    """Return a cell that is only copied: a frequency, a fold or a text; None if it is missing."""
    if name not in (*FREQUENCIES, "fold"):
        return text or None
    value = text.strip()
    if value.lower() in MISSING:
        return None
    if name in FREQUENCIES:
        return parse_number(text, name, allow_comma=allow_comma)
    if INTEGER.fullmatch(value):
        return int(value.partition(".")[0])
    return value


Rows = Sequence[Row]

# Columns, and what other tools call them.
# In the order of preference; case, spaces and punctuation do not matter.
SYNONYMS = {
    name: names.split()
    for name, names in {
        "path": """
            path notated_path begin_path begin_file sound_file sound_files
            source_file audio_file audio_path audio_filename file filename
            file_path wav_file audio in_file datei fichier archivo arquivo
            ficheiro
        """,
        "recording": "recording recording_id recording_name",
        "start_s": """
            start_s start_time_s start_time start_seconds start_sec start begin_s
            begin_time_s begin_time begin_seconds begin onset_s onset_time
            onset_seconds onset tmin xmin start_ms start_time_ms begin_ms
            begin_time_ms onset_ms onset_time_ms start_msec start_milliseconds
            anfang_s anfang beginn_s beginn debut_s debut inicio_s inicio
        """,
        "end_s": """
            end_s end_time_s end_time end_seconds end_sec end stop_s stop_time
            stop_seconds stop offset_s offset_time offset_seconds offset tmax xmax
            end_ms end_time_ms stop_ms stop_time_ms offset_ms offset_time_ms
            end_msec end_milliseconds ende_s ende fin_s fin fim_s fim
        """,
        "duration_s": """
            duration_s duration_seconds duration_sec duration dur_s dur length_s
            length delta_time_s delta_time duration_ms dur_ms length_ms
            duration_msec duration_milliseconds dauer_s dauer duree_s duree
            duracion_s duracion duracao_s duracao
        """,
        "start_frame": "start_frame start_sample begin_sample onset_sample onset_frame",
        "end_frame": "end_frame end_sample stop_sample offset_sample offset_frame",
        "label": """
            label call_type call annotation species species_code common_name
            scientific_name ebird_code primary_label class category type tag text
            name manual_id top1match auto_id ruftyp art espece especie
        """,
        "low_freq_hz": "low_freq_hz",
        "high_freq_hz": "high_freq_hz",
        "fold": "fold",
    }.items()
}
NO_LABEL = "no label"  # a reason of a reject
# Columns of a row that have a meaning here; those of the file with the same name are renamed.
COLUMNS = ("path", "recording", "start_s", "end_s", "label")
ORIGIN = ("annotation_file", "annotation_row")
OWN_COLUMNS = (*COLUMNS, "path_written", "in_frames", *ORIGIN)


@document
@dataclass(frozen=True)
class AnnotationOptions(ReadingOptions):
    """How annotation files are read: their columns, tiers, units and labels, and files to skip.

    `rename` has new labels by old ones. With `is_known_label`, which returns whether a text is one
    of the labels of the corpus, the tiers of TextGrids are chosen by their labels. `exclude` has
    files and folders to skip. With `keep_early`, rows that start before their recording are no
    rejects.

    Examples
    --------
    >>> AnnotationOptions(columns={"label": "Species"}).columns["label"]
    'Species'
    """

    is_known_label: Callable[[str], bool] | None = None
    exclude: tuple[Path, ...] = ()
    keep_early: bool = False

    def __post_init__(self) -> None:
        if self.label is not None and not self.label.strip():
            raise OptionError("label: expected a text, got nothing but white space")
        check_values(self)
        for name in self.columns:
            if name not in SYNONYMS:
                nearest = suggest(name, SYNONYMS)
                raise OptionError(
                    f"unknown column {name!r}{nearest}; available: {', '.join(SYNONYMS)}"
                )


def describe_annotation_options(options: AnnotationOptions) -> dict[str, object]:
    """Return the options that change what is read, by their names."""
    return {name: getattr(options, name) for name in list_options(ReadingOptions)}


@dataclass
class AnnotationFile:
    """The content of a file; `has_filled`: rows without a label got the one of the options."""

    path: Path
    format: str
    reason: str
    options: AnnotationOptions
    has_filled: bool = False
    rows: list[Row] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def spans(self) -> Spans:
        """The annotations, with all columns of the file."""
        columns = (*COLUMNS, *ORIGIN)
        return Spans.from_rows(self.rows, columns, source=str(self.path))

    @contextmanager
    def rejecting(self, number: int) -> Iterator[None]:
        """Make row `number` a reject if a RowError is raised in the block."""
        try:
            yield
        except RowError as error:
            reject = Reject(str(self.path), number, str(error))
            self.rejects.append(reject)

    def add(
        self,
        number: int,
        label: str,
        start_s: float,
        end_s: float | None,
        extra: Mapping[str, Cell] = MappingProxyType({}),
        *,
        path: str | None = None,
        recording: str | None = None,
        in_frames: bool = False,
    ) -> None:
        """Add a row; raise RowError if it is not valid. `number` is its row or line in the file."""
        is_filled = self.options.label is not None and not label.strip()
        row = {
            "path": path,
            "recording": recording,
            "start_s": start_s,
            "end_s": end_s,
            "label": self.options.label if is_filled else label,
            "annotation_file": str(self.path),
            "annotation_row": number,
        }
        if in_frames:
            row["in_frames"] = True
        check_row(row, keep_early=self.options.keep_early)
        for name, value in extra.items():
            while name in OWN_COLUMNS:
                name += "_annotated"
            row[name] = value
        self.rows.append(row)
        self.has_filled |= is_filled


@dataclass(frozen=True)
class Format:
    """An annotation format, with everything that is known about it.

    `suffixes` are the usual ones of its files. `recognise` returns why a file with this name
    and head is in the format, None if it is not. `read` adds the rows of a file to it. `write`, if
    there is one, returns the text of a file. `program` and `package` say in the help which program
    writes it, and which package reads it. Formats are tried by their `order`.
    """

    name: str
    suffixes: tuple[str, ...]
    recognise: Callable[[Path, str, AnnotationOptions], str | None]
    read: Callable[[AnnotationFile], None]
    write: Callable[[Rows, Path], str] | None = None
    program: str = ""
    package: str = ""
    order: int = 5


def reject_row(row: Row, reason: object) -> Reject:
    """Return the reject of a row."""
    return Reject(row["annotation_file"], row["annotation_row"], str(reason))


def other_cells(row: Row) -> dict[str, Cell]:
    """Return the cells of a row in columns that are not callshot's own."""
    return {name: cell for name, cell in row.items() if name not in OWN_COLUMNS}


def check_row(row: Row, *, keep_early: bool = False) -> None:
    """Raise RowError if a row has impossible times or no label; without an end it starts at 0."""
    start_s = row["start_s"]
    end_s = row["end_s"]
    if not math.isfinite(start_s) or not math.isfinite(end_s or 0.0):
        raise RowError(f"expected finite times, got {start_s!r} and {end_s!r}")
    if start_s < 0 and not keep_early:
        raise RowError(f"starts at {start_s!r}; a time cannot be negative")
    if end_s is None:
        if start_s != 0:
            raise RowError(f"starts at {start_s!r} and has no end")
    elif start_s > end_s:
        raise RowError(f"starts at {start_s!r}, after its end at {end_s!r}")
    elif start_s == end_s:
        raise RowError(
            f"starts and ends at {start_s!r}: a point in time; a segment needs a span"
        )
    if not row["label"].strip():
        raise RowError(NO_LABEL)


def check_writable(rows: Rows, path: Path, *, is_one_recording: bool) -> None:
    """Raise OutputError unless a format with start and end in seconds can hold all rows."""
    for number, row in enumerate(rows, start=1):
        if row["end_s"] is None or row.get("in_frames"):
            raise OutputError(
                f"{path}: annotation {number} is on a whole recording or counts frames; "
                "the format needs start and end in seconds; write CSV instead"
            )
    count = len({row["path"] for row in rows})
    if is_one_recording and count > 1:
        raise OutputError(
            f"{path}: the file is of one recording, but the annotations are of {count}; "
            "write one file for each"
        )


def extra_columns(
    rows: Rows, names: Sequence[str], path: Path, ignored: Collection[str] = ()
) -> list[str]:
    """Return the columns of rows that are neither callshot's nor `ignored`.

    `names` are the other columns of the file to write: OutputError if an extra one is among them.
    """
    excluded = (*OWN_COLUMNS, *ignored)
    extra: dict[str, None] = {}
    for row in rows:
        extra |= {name: None for name in row if name not in excluded}
    for name in extra:
        if name in names or not name.strip():
            raise OutputError(
                f"{path}: extra column {name!r} has the name of another column or none; rename it"
            )
    return list(extra)
