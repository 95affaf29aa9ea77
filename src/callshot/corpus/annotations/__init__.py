"""Read and write annotation files: each row becomes a span or a reject.

formats     the table of formats; recognises, reads and writes files
rows        options, rows and rejects, the same for all formats
text        decodes files, splits lines and tables, parses numbers and times

audacity, delimited (CSV), raven and textgrid read one format each, crowsetta_formats all that
crowsetta reads besides.
"""

from callshot.corpus.annotations.formats import (
    ANNOTATION_SUFFIXES,
    FORMATS,
    describe_formats,
    find_format,
    read_annotations,
    recognise,
    write_annotations,
)
from callshot.corpus.annotations.rows import (
    NO_LABEL,
    AnnotationFile,
    AnnotationOptions,
    Format,
    describe_annotation_options,
)

__all__ = [
    "ANNOTATION_SUFFIXES",
    "FORMATS",
    "NO_LABEL",
    "AnnotationFile",
    "AnnotationOptions",
    "Format",
    "describe_annotation_options",
    "describe_formats",
    "find_format",
    "read_annotations",
    "recognise",
    "write_annotations",
]
