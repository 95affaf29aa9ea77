"""Annotation files, in every format people have: files come in, annotations and rejects go out.

formats     the table of formats; reads, recognises and writes
rows        what makes a row an annotation or a reject, the same for all formats
delimited, raven, audacity, textgrid, crows   one format each, and all that crowsetta reads beside them
"""

from callshot.corpus.annotations.formats import (
    FORMATS,
    Format,
    Reading,
    find_format,
    read_annotations,
    recognise,
    write_annotations,
)
from callshot.corpus.annotations.rows import Hints

__all__ = [
    "FORMATS",
    "Format",
    "Hints",
    "Reading",
    "find_format",
    "read_annotations",
    "recognise",
    "write_annotations",
]
