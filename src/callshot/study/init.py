"""A folder of recordings → a study file that runs as it is, with the reason beside each choice."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from callshot.corpus.options import PAPER_MINIMUM_S, Corpus
from callshot.corpus.segments import check_any_segments
from callshot.encoders.catalogue import ENCODERS
from callshot.encoders.install import list_needs
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError, OptionError, count_text
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.files import write_atomic
from callshot.options import (
    STUDY_TABLES,
    ReadingOptions,
    default_value,
    list_options,
)
from callshot.records import Inspection, given_folds

GENERIC_NAMES = frozenset(
    [
        "recordings",
        "audio",
        "sounds",
        "sound",
        "wav",
        "wavs",
        "flac",
        "data",
        "corpus",
        "files",
    ]
)
DEFAULT_SHOTS = "1-40"
COMMENTS_AT = 31  # the column before a comment

# Values that differ from the defaults, or that users often change, by table
ACTIVE: Mapping[str, Mapping[str, Any]] = {
    "protocol": {"shots": DEFAULT_SHOTS, "seed": 0},
    "baselines": {"train": ["logistic"], "per_k": True},
    "report": {},
}
OTHER_CLASSIFIERS = [name for name in CLASSIFIERS if name != "centroid"]


def write_study(
    path: Path,
    inspection: Inspection,
    audio: Path,
    shots: str = DEFAULT_SHOTS,
    *,
    corpus: Corpus | None = None,
    **reading: Any,
) -> None:
    """Write a study file for a folder; an existing file is not replaced.

    `reading` are the keys of a corpus that say what annotates it, and how that is read.
    """
    segmentation = inspection.segmentation
    check_any_segments(segmentation)
    # A corpus is named after its folder, or after the one around it where the name is generic.
    place = audio.absolute()
    names = [folder.name for folder in (place, *place.parents) if folder.name]
    telling = [name for name in names if name.casefold() not in GENERIC_NAMES]
    title = next(iter([*telling, *names]), "corpus")
    name = re.sub(r"[^A-Za-z0-9_]+", "-", title).strip("-") or "corpus"
    if corpus is not None:
        name = corpus.name
        title = corpus.title
    base = path.absolute().parent
    calls = count_text(len(segmentation.segments), "call")
    recordings = count_text(len(segmentation.recordings), "recording")
    types = count_text(len(set(segmentation.segments["label"])), "type")
    lines = [
        f"# A study of {calls} of {types} in {recordings}.",
        f"# Run it:               callshot run {path.name}",
        f"# See what would run:   callshot run {path.name} --dry-run",
        "",
        f"title = {_quote(title)}",
        'out = "results"                 # report.html, tables, figures and all numbers go here',
        "",
        f"[corpus.{name}]",
        *_corpus_lines(inspection, corpus, {"audio": audio, **reading}, base),
    ]
    for spec in ENCODERS:
        if spec.in_study:
            lines += _encoder_lines(spec)
    for table, active in ACTIVE.items():
        lines += ["", f"[{table}]" if active else f"# [{table}]"]
        values = {key: shots if key == "shots" else active[key] for key in active}
        lines += _option_lines(table, values, base)
    lines.append("")
    if os.path.lexists(path):
        raise OptionError(
            f"{path}: already exists; remove it, or choose another name with --out"
        )
    write_atomic(path, "\n".join(lines))


def _corpus_lines(
    inspection: Inspection,
    corpus: Corpus | None,
    reading: Mapping[str, Any],
    base: Path,
) -> Iterator[str]:
    for key in ("audio", "annotations", "format", *list_options(ReadingOptions)):
        value = reading.get(key)
        if value and (key, value) != ("format", "auto"):
            yield f"{key} = {_format_value(value, base)}"
        elif key == "annotations":
            yield '# annotations = "selection-tables"   # by default: found beside the recordings'
    if corpus is None:
        yield _minimum_line(inspection)
        if given_folds(inspection.segmentation.segments) is None:
            yield _fold_line(inspection)
        yield "# collar_s = 0.25               # audio added at each end"
        yield '# channel = "first"             # or "mean", or a number from 1'
    else:
        yield f"known = {_quote(corpus.name)}        # its labels, folds and categories"
        if inspection.segmentation.min_length_s != corpus.options.min_length_s:
            yield _minimum_line(inspection)
    yield '# categories = "categories.csv"   # label,category: adds the reduced scoring'


def _encoder_lines(spec: EncoderSpec) -> Iterator[str]:
    """Yield the table of an encoder, as a comment if it is not ready."""
    needs = list_needs(spec)
    comment = spec.comment or spec.licence
    mark = ""
    if needs:
        mark = "# "
        comment = f"first: {' && '.join(needs)}"
    line = f'{mark}name = "{spec.name}"'
    yield ""
    yield f"{mark}[[encoder]]"
    yield f"{line.ljust(COMMENTS_AT)} # {comment}"
    yield from (f"{mark}{more}" for more in spec.study_lines)


def _option_lines(table: str, active: Mapping[str, Any], base: Path) -> Iterator[str]:
    """Yield the keys of a table: those with a value, then the others as comments."""
    options = list_options(*STUDY_TABLES[table])
    for key in dict.fromkeys([*active, *options]):
        option = options[key].metadata["option"]
        value = option.shown if option.kind is str else default_value(options[key])
        if key == "classifiers":
            value = OTHER_CLASSIFIERS
        if value in (None, "", ()):
            value = option.example
        value = active.get(key, value)
        if value == "":
            continue
        mark = "" if key in active else "# "
        line = f"{mark}{key} = {_format_value(value, base)}"
        text = re.split(r"(?<!per-k)[:;] |[.] |[.]$|, separated", option.help)[0]
        yield f"{line.ljust(COMMENTS_AT)} # {text}"


def _format_value(value: Any, base: Path) -> str:
    """Return a value in TOML; a path relative to the study's folder where it is near."""
    if isinstance(value, bool | int | float):
        return str(value).lower()
    if isinstance(value, Mapping):
        pairs = [f"{_quote(key)} = {_quote(text)}" for key, text in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_format_value(one, base) for one in value)}]"
    if isinstance(value, Path):
        whole = value.absolute()
        value = str(whole)
        with suppress(ValueError):  # another drive
            relative = os.path.relpath(whole, base)
            if relative.count("..") <= 2:
                value = Path(relative).as_posix()
    return _quote(value)


def _quote(text: str) -> str:
    """Return text as a TOML string."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")


def _minimum_line(inspection: Inspection) -> str:
    calls = inspection.segmentation.calls
    short = int((calls.durations_s < PAPER_MINIMUM_S).sum())
    share = f"{short:,} of {count_text(len(calls), 'call')}"
    min_length_s = inspection.segmentation.min_length_s
    reason = "shorter calls are left out"
    if min_length_s == 0:
        reason = f"all calls; the paper's minimum, 1.0, would leave out {share}"
    line = f"min_length_s = {min_length_s:.6}"
    return f"{line.ljust(COMMENTS_AT)} # {reason}"


def _fold_line(inspection: Inspection) -> str:
    """Choose the usual number of folds, or fewer where that evaluates more call types."""
    most = max(inspection.possible.values(), default=0)
    usual = inspection.possible.get(DEFAULT_FOLDS, 0)
    if most < 2:
        labels = set(inspection.segmentation.segments["label"])
        verb = "is" if most == 1 else "are"
        raise InputError(
            f"only {most} of {count_text(len(labels), 'call type')} {verb} in two recordings or "
            "more, and an evaluation needs two such call types: label more recordings"
        )
    best = DEFAULT_FOLDS
    reason = "no recording is on both sides of a fold"
    if usual < 2:
        counts = [
            count for count, found in inspection.possible.items() if found == most
        ]
        best = max(count for count in counts if count <= DEFAULT_FOLDS)
        reason = f"{DEFAULT_FOLDS} would leave {usual} call types to evaluate, {best} leave {most}"
    return f"folds = {best}                       # {reason}"
