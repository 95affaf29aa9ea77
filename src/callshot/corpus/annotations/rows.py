"""Rows and columns of annotation files, the same for all formats.

`AnnotationFile` collects the annotations and rejects of a file. `Table` finds out which column of
a table holds what. The checks of writers are here too: what one format writes, its reader takes.
"""

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from callshot.corpus.annotations.cells import ANY_STYLE, parse_cell
from callshot.corpus.annotations.text import RowError, list_names, quote, suggest_name
from callshot.errors import (
    InputError,
    OptionError,
    OutputError,
    check_choice,
    count_text,
)
from callshot.records import Annotation, Cell, Reject

Annotations = Sequence[Annotation]
Cells = Sequence[str]
Extra = dict[str, Cell]

# Columns, and what other tools call them.
# In the order of preference; case, spaces and punctuation do not matter.
# fmt: off
SYNONYMS = {
    "path": (
        "path", "notated_path", "begin_path", "begin_file", "sound_file", "sound_files",
        "source_file", "audio_file", "audio_path", "audio_filename", "file", "filename",
        "file_path", "wav_file", "audio", "in_file", "datei", "fichier", "archivo", "arquivo",
        "ficheiro",
    ),
    "recording": ("recording", "recording_id", "recording_name"),
    "start_s": (
        "start_s", "start_time_s", "start_time", "start_seconds", "start_sec", "start", "begin_s",
        "begin_time_s", "begin_time", "begin_seconds", "begin", "onset_s", "onset_time",
        "onset_seconds", "onset", "tmin", "xmin", "start_ms", "start_time_ms", "begin_ms",
        "begin_time_ms", "onset_ms", "onset_time_ms", "start_msec", "start_milliseconds",
        "anfang_s", "anfang", "beginn_s", "beginn", "debut_s", "debut", "inicio_s", "inicio",
    ),
    "end_s": (
        "end_s", "end_time_s", "end_time", "end_seconds", "end_sec", "end", "stop_s", "stop_time",
        "stop_seconds", "stop", "offset_s", "offset_time", "offset_seconds", "offset", "tmax",
        "xmax", "end_ms", "end_time_ms", "stop_ms", "stop_time_ms", "offset_ms", "offset_time_ms",
        "end_msec", "end_milliseconds", "ende_s", "ende", "fin_s", "fin", "fim_s", "fim",
    ),
    "duration_s": (
        "duration_s", "duration_seconds", "duration_sec", "duration", "dur_s", "dur", "length_s",
        "length", "delta_time_s", "delta_time", "duration_ms", "dur_ms", "length_ms",
        "duration_msec", "duration_milliseconds", "dauer_s", "dauer", "duree_s", "duree",
        "duracion_s", "duracion", "duracao_s", "duracao",
    ),
    "start_frame": ("start_frame", "start_sample", "begin_sample", "onset_sample", "onset_frame"),
    "end_frame": ("end_frame", "end_sample", "stop_sample", "offset_sample", "offset_frame"),
    "label": (
        "label", "call_type", "call", "annotation", "species", "species_code", "common_name",
        "scientific_name", "ebird_code", "primary_label", "class", "category", "type", "tag",
        "text", "name", "manual_id", "top1match", "auto_id", "ruftyp", "art", "espece",
        "especie",
    ),
    "low_freq_hz": ("low_freq_hz",),
    "high_freq_hz": ("high_freq_hz",),
    "fold": ("fold",),
}
# fmt: on
TIME_UNITS = ("s", "ms")
NO_LABEL = "no label"  # a reason of a reject
TYPED = {"lowfreqhz": "low_freq_hz", "highfreqhz": "high_freq_hz", "fold": "fold"}


@dataclass(frozen=True)
class AnnotationOptions:
    """How annotation files are read: their columns, tiers, units and labels, and files to skip.

    Parameters
    ----------
    columns
        Columns of a table by callshot's names, such as `{"label": "Species"}`.
    tiers
        Names of the TextGrid tiers that hold calls.
    is_known_label
        Function that returns whether a text is one of the labels of the corpus. Without `tiers`,
        it chooses the tiers to read.
    label
        Label of the rows that have none.
    time_unit
        Unit of times in tables, "s" or "ms"; without it, columns such as `start_ms` are in
        milliseconds and all others in seconds.
    rename
        New labels by old ones; calls whose new label is empty are left out.
    follow_links
        Whether to read files behind links that lead outside the folder.
    exclude
        Files and folders to skip.
    keep_early
        Whether to keep rows that start before their recording; they are rejects otherwise.

    Examples
    --------
    >>> AnnotationOptions(columns={"label": "Species"}).columns["label"]
    'Species'
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    tiers: tuple[str, ...] = ()
    is_known_label: Callable[[str], bool] | None = None
    label: str | None = None
    exclude: tuple[Path, ...] = ()
    time_unit: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    follow_links: bool = False
    keep_early: bool = False

    def __post_init__(self) -> None:
        if self.label is not None and not self.label.strip():
            raise OptionError("label: expected a text, got nothing but white space")
        if self.time_unit is not None:
            check_choice("time_unit", self.time_unit, TIME_UNITS)
        for name in self.columns:
            if name not in SYNONYMS:
                suggestion = suggest_name(name, [*SYNONYMS])
                raise OptionError(f"unknown column {name!r}; {suggestion}")


def describe_annotation_options(options: AnnotationOptions) -> dict[str, object]:
    """Return the options that change what is read, by their names."""
    return {
        "columns": dict(options.columns),
        "tiers": list(options.tiers),
        "label": options.label,
        "rename": dict(options.rename),
        "time_unit": options.time_unit,
        "follow_links": options.follow_links,
    }


@dataclass
class AnnotationFile:
    """The content of one annotation file: each row is an annotation or a reject.

    `reason` is how the format was recognised, `notes` are decisions that the user should know.
    `label` is the label of rows that have none, `filled` the number of these rows.
    `keep_early` keeps rows that start before their recording.
    """

    path: Path
    format: str
    reason: str
    label: str | None = None
    filled: int = 0
    annotations: list[Annotation] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    keep_early: bool = False

    @contextmanager
    def rejecting(self, row: int) -> Iterator[None]:
        """Turn a RowError into a reject."""
        try:
            yield
        except RowError as error:
            self.rejects.append(Reject(str(self.path), row, str(error)))

    def add(
        self,
        row: int,
        label: str,
        start_s: float,
        end_s: float | None,
        *,
        path: str | None = None,
        recording: str | None = None,
        in_frames: bool = False,
        extra: Extra | None = None,
    ) -> None:
        """Add an annotation; raise RowError if it is not valid."""
        is_filled = self.label is not None and not label.strip()
        if self.label is not None and is_filled:
            label = self.label
        annotation = Annotation(
            path=path,
            start_s=start_s,
            end_s=end_s,
            label=label,
            file=str(self.path),
            row=row,
            recording=recording,
            in_frames=in_frames,
            extra=extra or {},
        )
        check_annotation(annotation, keep_early=self.keep_early)
        self.annotations.append(annotation)
        self.filled += is_filled

    def describe_filled(self) -> Iterator[str]:
        """Describe the rows without a label that got one."""
        if self.label is not None and self.filled > 0:
            rows = count_text(self.filled, "row")
            yield f"{rows} without a label: labelled {self.label} (--label)"


def check_annotation(annotation: Annotation, *, keep_early: bool = False) -> None:
    """Raise RowError if an annotation has impossible times or no label."""
    start_s = annotation.start_s
    end_s = annotation.end_s
    for time in (start_s, end_s):
        if time is not None and not math.isfinite(time):
            raise RowError(f"expected a finite time, got {time!r}")
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
    if not annotation.label.strip():
        raise RowError(NO_LABEL)


def check_annotations(annotations: Annotations, path: Path) -> None:
    """Raise OutputError for the first annotation that no reader would accept."""
    for number, annotation in enumerate(annotations, start=1):
        try:
            check_annotation(annotation)
        except RowError as error:
            raise OutputError(
                f"{path}: annotation {number} cannot be written: {error}"
            ) from None


def check_spans(annotations: Annotations, path: Path, kind: str) -> None:
    """Raise OutputError unless all annotations have a start and end in seconds."""
    for number, annotation in enumerate(annotations, start=1):
        if annotation.end_s is None:
            raise OutputError(
                f"{path}: annotation {number} is on a whole recording; "
                f"{kind} needs start and end; write CSV instead"
            )
        if annotation.in_frames:
            raise OutputError(
                f"{path}: annotation {number} counts frames; {kind} needs seconds"
            )


def check_one_recording(annotations: Annotations, path: Path, kind: str) -> None:
    """Raise OutputError if annotations are on several recordings."""
    count = len({annotation.path for annotation in annotations})
    if count > 1:
        raise OutputError(
            f"{path}: {kind} is of one recording, but the annotations are of {count}; "
            "write one file for each"
        )


def extra_columns(annotations: Annotations) -> list[str]:
    """Return the names of all extra cells, in the order of their first use."""
    names: dict[str, None] = {}
    for annotation in annotations:
        names |= dict.fromkeys(annotation.extra)
    return list(names)


def check_extra_columns(
    names: Collection[str], extra: Iterable[str], path: Path
) -> None:
    """Raise OutputError if an extra column has no name, or that of a column of the format."""
    for name in extra:
        if name in names or not name.strip():
            raise OutputError(
                f"{path}: extra column {name!r} has the name of another column or none; rename it"
            )


def normalize_name(name: str) -> str:
    """Reduce the name of a column to its letters and digits, without accents.

    >>> normalize_name("Begin Time (s)"), normalize_name("Début")
    ('begintimes', 'debut')
    """
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name)
    return "".join(filter(str.isalnum, name.casefold()))


def find_column(
    names: Cells, synonyms: Iterable[str], exclude: Collection[int] = ()
) -> int | None:
    """Return the index of the first wanted column, by exact or else by normalized name."""
    columns = {name: index for index, name in enumerate(names) if index not in exclude}
    normalized = {
        normalize_name(name): index for name, index in reversed(columns.items())
    }
    for name in synonyms:
        column = columns.get(name, normalized.get(normalize_name(name)))
        if column is not None:
            return column
    return None


def find_columns(
    names: Cells, synonyms_by_key: Mapping[str, Iterable[str]]
) -> dict[str, int]:
    """Find several columns, each by any of its names; missing ones are left out."""
    columns = {
        key: find_column(names, synonyms) for key, synonyms in synonyms_by_key.items()
    }
    return {key: column for key, column in columns.items() if column is not None}


class Table:
    """The header of a table. `columns` and `extra` are numbers of columns by name.

    `style` is how its numbers are written. Extra columns are kept as text, except frequencies and
    the numbers of folds.
    """

    def __init__(
        self,
        path: Path,
        line: int,
        header: Iterable[str],
    ) -> None:
        self.path = path
        self.line = line
        self.style = ANY_STYLE
        self.columns: dict[str, int] = {}
        self.extra: dict[str, int] = {}
        self.names = [
            name.strip() or f"column {i}" for i, name in enumerate(header, start=1)
        ]
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise self.error(
                f"column {quote(repeated[0])} appears twice; rename or remove one"
            )

    def error(self, text: str) -> InputError:
        """Return an error about the header."""
        return InputError(f"{self.path}: line {self.line}: {text}")

    def find_given(self, name: str, hint: str) -> int:
        """Return the column that the user gave for one of callshot's."""
        column = find_column(self.names, [hint])
        if column is None:
            suggestion = suggest_name(hint, self.names)
            raise self.error(f"no column {quote(hint)}, given for {name}; {suggestion}")
        return column

    def missing_label(self) -> InputError:
        """Return the error that no column holds the label."""
        return self.error(
            "no column holds the label; give it (--columns label=…), "
            f"or one label for all rows (--label …); available: {list_names(self.names)}"
        )

    def assign(self, columns: Mapping[str, int]) -> None:
        """Set the columns that hold something; all others are extra."""
        self.columns = dict(columns)
        for index, name in enumerate(self.names):
            if index not in columns.values():
                self._add_extra(index, TYPED.get(normalize_name(name), name))

    def _add_extra(self, index: int, name: str) -> None:
        if name in self.extra:
            twin = self.names[self.extra[name]]
            names = list_names([twin, self.names[index]])
            raise self.error(f"columns {names} are both {name}; remove one")
        self.extra[name] = index

    def split(self, cells: Cells) -> dict[str, str]:
        """Return the cells of a row by callshot's names; surplus cells must be empty."""
        width = len(self.names)
        if len(cells) < width or any(cells[width:]):
            raise RowError(
                f"expected {count_text(width, 'field')} as in the header, got {len(cells)}"
            )
        return self.select(cells)

    def select(self, cells: Cells) -> dict[str, str]:
        """Return the cells of a complete row by callshot's names."""
        return {name: cells[column] for name, column in self.columns.items()}

    def parse_extra(self, cells: Cells) -> Extra:
        """Return the cells of the extra columns of a row; None for empty ones."""
        return {
            name: parse_cell(cells[column], name, self.style)
            for name, column in self.extra.items()
        }
