"""A folder of recordings → a study file that runs as it is, with the reason beside each choice."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from callshot.corpus.options import PAPER_MINIMUM_S, Corpus
from callshot.corpus.segments import check_any_segments
from callshot.encoders.catalogue import ENCODERS
from callshot.encoders.install import list_needs
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
    folds = None
    if corpus is None and given_folds(segmentation.segments) is None:
        folds = _choose_folds(inspection)
    keys = ("audio", "annotations", "format", *list_options(ReadingOptions))
    given = {"audio": audio, **reading}
    base = path.absolute().parent
    environment = Environment(
        loader=PackageLoader("callshot.study"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["count"] = count_text
    environment.filters["toml"] = partial(_format_value, base=base)
    environment.filters["comment"] = lambda line, text: f"{line:{COMMENTS_AT}} # {text}"
    short = int((segmentation.calls.durations_s < PAPER_MINIMUM_S).sum())
    tables = []
    for table, active in ACTIVE.items():
        values = {key: shots if key == "shots" else active[key] for key in active}
        tables.append((table, active, _list_values(table, values)))
    text = environment.get_template("study.toml").render(
        vars(segmentation),
        path=path,
        name=name,
        title=title,
        types=len(set(segmentation.segments["label"])),
        reading={key: given.get(key) for key in keys},
        corpus=corpus,
        short=short,
        folds=folds,
        encoders=[(spec, list_needs(spec)) for spec in ENCODERS if spec.in_study],
        tables=tables,
    )
    if os.path.lexists(path):
        raise OptionError(
            f"{path}: already exists; remove it, or choose another name with --out"
        )
    write_atomic(path, text)


def _list_values(
    table: str, active: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str]]:
    """Yield the keys of a table with value and help: those with a value, then the others."""
    options = list_options(*STUDY_TABLES[table])
    for key in dict.fromkeys([*active, *options]):
        option = options[key].metadata["option"]
        value = option.shown if option.kind is str else default_value(options[key])
        if key == "classifiers":
            value = OTHER_CLASSIFIERS
        if value in (None, "", ()):
            value = option.example
        value = active.get(key, value)
        if value != "":
            help = re.split(r"(?<!per-k)[:;] |[.] |[.]$|, separated", option.help)[0]
            yield key, value, help


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


def _choose_folds(inspection: Inspection) -> tuple[int, str]:
    """Choose the usual number of folds, or fewer where that evaluates more; say why."""
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
    return best, reason
