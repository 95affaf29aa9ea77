"""Read and write annotation files: each row becomes an annotation or a reject.

formats     the table of formats; recognises, reads and writes files
rows        annotations, rejects and columns, the same for all formats
cells       parses and formats numbers, times and other single cells
text        decodes files, splits and escapes lines
table_text, time_columns    rows and times of tables with separators
tiers       chooses the tiers of a TextGrid
raven_headers               headers of selection tables in other languages

audacity, delimited, raven and textgrid read one format each, crowsetta_formats all that crowsetta
reads besides; mat_check checks MATLAB files first.
"""

from callshot.corpus.annotations.formats import (
    FORMATS,
    Format,
    find_format,
    read_annotations,
    recognise,
    write_annotations,
)
from callshot.corpus.annotations.rows import (
    NO_LABEL,
    AnnotationFile,
    AnnotationOptions,
    describe_annotation_options,
)

__all__ = [
    "FORMATS",
    "NO_LABEL",
    "AnnotationFile",
    "AnnotationOptions",
    "Format",
    "describe_annotation_options",
    "find_format",
    "read_annotations",
    "recognise",
    "write_annotations",
]
