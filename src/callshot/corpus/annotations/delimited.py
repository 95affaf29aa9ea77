"""Tables with a header, separated by commas, tabs or semicolons; written as CSV.

    path        the audio file; without this column, `recording` names it
    recording   the group of recordings that must stay together, beside `path`
    start_s     seconds; without times, in a row or in the table, the label is on a whole recording
    end_s       or duration_s
    label
    fold        an integer or a name, optional

Other columns are kept as extra cells. `SYNONYMS` lists the names that other tools give to columns.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

from callshot.corpus.annotations.rows import (
    SYNONYMS,
    TYPED,
    AnnotationFile,
    AnnotationOptions,
    Annotations,
    Table,
    check_extra_columns,
    extra_columns,
    find_column,
    find_columns,
)
from callshot.corpus.annotations.text import (
    RowError,
    first_row,
    has_row_names,
    list_names,
    quote,
    read_table,
    read_text,
    split_off_separator,
)
from callshot.corpus.annotations.time_columns import (
    FRAMES,
    SECONDS,
    TIMES,
    TimeColumns,
    choose_time_columns,
    find_table_style,
)
from callshot.errors import OutputError
from callshot.records import Annotation, Cell
from callshot.records.csv_cells import format_csv

TIME = re.compile(r"\s*\d[\d.,:]*\s*")
MISSING_LABEL = "NA"  # as R writes it
NO_OPTIONS = AnnotationOptions()


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise a header with at least two of: times, labels, recordings."""
    delimiter, body, _ = split_off_separator(head)
    header = first_row(body, delimiter)
    columns = _find_columns(header, options)
    has_end = "end_s" in columns or "duration_s" in columns
    has_seconds = "start_s" in columns and has_end
    has_times = has_seconds or columns.keys() >= {*FRAMES}
    has_label = "label" in columns or options.label is not None
    has_recording = "path" in columns or "recording" in columns
    if has_times + has_label + has_recording < 2:
        return None
    names = [header[column].strip() for column in sorted(columns.values())]
    return f"its header has {' and '.join(names)}"


def _find_columns(names: Sequence[str], options: AnnotationOptions) -> dict[str, int]:
    """Find callshot's columns: those that the user gave, then those with a known name."""
    user_columns = {name: [column] for name, column in options.columns.items()}
    columns = find_columns(names, user_columns)
    for name, synonyms in SYNONYMS.items():
        if name not in columns:
            column = find_column(names, synonyms, columns.values())
            if column is not None:
                columns[name] = column
    choose_time_columns(columns, names, options)
    return columns


def read(annotation_file: AnnotationFile, options: AnnotationOptions) -> None:
    """Read a table; each row becomes an annotation or a reject."""
    table, rows = _open_table(annotation_file, options)
    times = TimeColumns(table, options)
    annotation_file.notes += _describe_columns(table)
    annotation_file.notes += times.describe(rows)
    for row, cells in enumerate(rows, start=1):
        with annotation_file.rejecting(row):
            _add(annotation_file, row, table, times, cells)
    if table.columns.keys().isdisjoint(TIMES):
        _check_clips(annotation_file, table)


def _open_table(
    annotation_file: AnnotationFile, options: AnnotationOptions
) -> tuple[Table, list[list[str]]]:
    """Return the header, with its columns and its style of numbers, and the rows."""
    text = read_text(annotation_file.path, annotation_file.notes)
    delimiter, body, first_line = split_off_separator(text)
    lines = read_table(annotation_file.path, body, delimiter, first_line)
    line, header = next(lines, (1, []))
    rows = [cells for _, cells in lines]
    if has_row_names(header, rows):
        header = ["", *header]
    table = Table(annotation_file.path, line, header)
    _assign_columns(table, options)
    table.style = find_table_style(table, rows, TIMES, delimiter)
    return table, rows


def _assign_columns(table: Table, options: AnnotationOptions) -> None:
    for name, column in options.columns.items():
        table.find_given(name, column)
    columns = _find_columns(table.names, options)
    _check_times(table, columns)
    if "label" not in columns and options.label is None:
        raise table.missing_label()
    for name in TYPED.values():
        if name in columns:
            table.names[columns.pop(name)] = name
    table.assign(columns)


def _check_times(table: Table, columns: Mapping[str, int]) -> None:
    """Raise InputError if a table has starts without ends, or ends without starts."""
    if "duration_s" in columns:
        return
    for name, other in (*permutations(SECONDS), *permutations(FRAMES)):
        if name in columns and other not in columns:
            column = table.names[columns[name]]
            option_names = f"--columns {other}=…"
            if other == "end_s":
                option_names += " or --columns duration_s=…"
            raise table.error(
                f"column {quote(column)} is {name}, but no column is {other}; "
                f"give it ({option_names}); available: {list_names(table.names)}"
            )


def _describe_columns(table: Table) -> Iterator[str]:
    """Describe what was decided for the user."""
    label = table.columns.get("label")
    if label is not None and table.names[label] != "label":
        yield f"labels from column {quote(table.names[label])}"
    if table.columns.keys().isdisjoint(TIMES):
        yield "no time columns: each row is a whole recording"


def _add(
    annotation_file: AnnotationFile,
    row: int,
    table: Table,
    times: TimeColumns,
    cells: Sequence[str],
) -> None:
    named_cells = table.split(cells)
    path = named_cells.get("path")
    group = named_cells.get("recording") or None
    if "path" not in named_cells:
        path = named_cells.get("recording")
        group = None
    if path is not None and not path.strip():
        raise RowError("no recording named")
    label = named_cells.get("label", "")
    if label == MISSING_LABEL:
        if annotation_file.label is None:
            raise RowError(f"no label, got {label}")
        label = ""
    start_s, end_s = times.parse(named_cells)
    annotation_file.add(
        row,
        label,
        start_s,
        end_s,
        path=path,
        recording=group,
        in_frames="start_frame" in named_cells,
        extra=table.parse_extra(cells),
    )


def _check_clips(annotation_file: AnnotationFile, table: Table) -> None:
    """Raise InputError if a list of clips repeats a clip and has columns that look like times."""
    paths = {annotation.path for annotation in annotation_file.annotations}
    if len(paths) == len(annotation_file.annotations):
        return
    times = []
    for name in table.extra:
        texts = [annotation.extra[name] for annotation in annotation_file.annotations]
        if all(isinstance(text, str) and TIME.fullmatch(text) for text in texts):
            times.append(name)
    if len(times) > 1:
        raise table.error(
            "recordings appear twice, but no column is start_s or end_s; give them in seconds "
            f"(--columns start_s=… --columns end_s=…); {list_names(times)} may be times"
        )


def write(annotations: Annotations, path: Path) -> str:
    """Return a CSV table; extra cells get a column each."""
    extra = extra_columns(annotations)
    path_columns = _choose_path_columns(annotations, path, extra)
    names = [*path_columns, *_choose_time_columns(annotations, path), "label"]
    _check_columns(names, extra, path)
    table: list[list[Cell]] = [[*names, *extra]]
    for annotation in annotations:
        paths = (annotation.path, annotation.recording)
        table.append(
            [
                *paths[: len(path_columns)],
                *_times(annotation),
                annotation.label,
                *map(annotation.extra.get, extra),
            ]
        )
    return format_csv(table)


def _times(annotation: Annotation) -> tuple[float | None, float | None]:
    """Return start and end, both None for a whole recording."""
    if annotation.end_s is None:
        return None, None
    return float(annotation.start_s), float(annotation.end_s)


def _check_columns(names: Sequence[str], extra: Sequence[str], path: Path) -> None:
    """Raise OutputError if an extra column would be read back as another one."""
    check_extra_columns(names, extra, path)
    header = [*names, *extra]
    for name, column in _find_columns(header, NO_OPTIONS).items():
        if column >= len(names) and name not in TYPED.values():
            raise OutputError(
                f"{path}: extra column {header[column]!r} would be read as {name}; rename it"
            )


def _choose_path_columns(
    annotations: Annotations, path: Path, extra: Sequence[str]
) -> list[str]:
    """Return the columns that name the recording: `recording`, or `path` with it as the group.

    The path is called `path` too if an extra column could be mistaken for it.
    """
    has_path = {annotation.path is not None for annotation in annotations}
    has_group = any(annotation.recording is not None for annotation in annotations)
    if len(has_path) > 1 or (has_group and False in has_path):
        raise OutputError(
            f"{path}: some annotations name their recording and some do not; name all or none"
        )
    if has_group:
        return ["path", "recording"]
    if True not in has_path:
        return []
    if "path" in _find_columns(extra, NO_OPTIONS):
        return ["path"]
    return ["recording"]


def _choose_time_columns(annotations: Annotations, path: Path) -> tuple[str, str]:
    in_frames = {annotation.in_frames for annotation in annotations}
    if len(in_frames) > 1:
        raise OutputError(
            f"{path}: some annotations count frames and some seconds; write them to two files"
        )
    if True in in_frames:
        return FRAMES
    return SECONDS
