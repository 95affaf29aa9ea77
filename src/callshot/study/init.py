"""A folder of recordings → a study file that runs as it is, with the reason for each choice beside it."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from callshot.corpus.annotations import Hints
from callshot.corpus.known_corpora import Corpus
from callshot.encoders.availability import encoder_status
from callshot.encoders.catalogue import find_encoder
from callshot.errors import InputError, OptionError, OutputError
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.records import Inspection

PLAIN_NAMES = frozenset(
    ("recordings", "audio", "sounds", "sound", "wav", "wavs", "flac", "data", "corpus", "files")
)
PRETRAINED = ("birdnet-v2.4", "perch-v2", "hubert-base-l2", "perch-v1")


PROTOCOL = """
[protocol]
shots = "1-40"                  # examples per call type; 1,2,5,10 or all are possible too
seed = 0                        # same seed, same numbers
# draws = 100                   # support sets drawn for each query
# bootstraps = 5000             # samples of the per-query spread
# shared_draws = 1000           # support sets of the shared spread

# classifiers = ["cosine", "cl2n", "whitened", "neighbour", "medoid"]    # other rules without training

[rivals]                        # would training have been better?
train = ["logistic"]            # on all labels; "recurrent" and "end-to-end" too, with pip install 'callshot[rivals]'
shots = true                    # and at every k, on the same examples
# references = "rivals.csv"     # what classifiers trained elsewhere scored: encoder,kind,name,metric,value

# [report]
# shots = [1, 2, 3, 4, 5, 10, 15, 20, 40]       # the rows of tables
# confusion = [1, 5, 20]
# figures = false               # saves most of the report's time
"""


@dataclass(frozen=True)
class Given:
    """What the user said of a corpus: where it is, what annotates it, and how that is read."""

    audio: Path
    annotations: Path | None = None
    format: str = "auto"
    hints: Hints = field(default_factory=Hints)
    corpus: Corpus | None = None


def write_study(path: Path, found: Inspection, given: Given) -> None:
    """Write a study of what was found in a folder; refuse to replace one, and what could not run."""
    if not found.segmentation.segments:
        raise InputError(
            f"{given.audio}: no annotation became a segment; callshot inspect {given.audio} tells why"
        )
    name = given.corpus.name if given.corpus is not None else _name(given.audio)
    lines = [
        f"# A study of {_told(found)}.",
        f"# Run it with: callshot run {path.name}      see what would run: callshot run {path.name} --dry-run",
        "",
        f"title = {_quoted(given.corpus.title if given.corpus is not None else _folder(given.audio))}",
        'out = "results"                 # report.html, tables, figures and all numbers go here',
        "",
        *_corpus(name, found, given, path.absolute().parent),
        "",
        *_encoders(),
    ]
    _write_new(path, "\n".join(lines) + "\n" + PROTOCOL)


def _corpus(name: str, found: Inspection, given: Given, base: Path) -> Iterator[str]:
    hints = given.hints
    yield f"[corpus.{name}]"
    yield f"audio = {_quoted(_relative(given.audio, base))}"
    yield from _annotations(given.annotations, base)
    if given.format != "auto":
        yield f"format = {_quoted(given.format)}"
    if hints.columns:
        yield f"columns = {{ {', '.join(f'{_quoted(a)} = {_quoted(b)}' for a, b in hints.columns.items())} }}"
    if hints.tiers:
        yield f"tiers = [{', '.join(map(_quoted, hints.tiers))}]"
    if hints.label is not None:
        yield f"label = {_quoted(hints.label)}"
    if given.corpus is not None:
        yield f"known = {_quoted(given.corpus.name)}        # its labels, folds and categories"
    yield from _minimum(found, given.corpus)
    yield from _folds(found, given.corpus)
    yield from _more(given.corpus)


def _told(found: Inspection) -> str:
    cut, labels = found.segmentation, len({s.label for s in found.segmentation.segments})
    return f"{len(cut.segments)} calls of {labels} types in {len(cut.recordings)} recordings"


def _name(audio: Path) -> str:
    """Name a corpus after its folder, or, where that is called as all of them are, after the one around it.

    >>> _name(Path("/field/Amboseli 2024/recordings")), _name(Path("/recordings"))
    ('Amboseli-2024', 'recordings')
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", _folder(audio)).strip("-") or "corpus"


def _folder(audio: Path) -> str:
    names = [folder.name for folder in (audio.absolute(), *audio.absolute().parents) if folder.name]
    return next(
        (name for name in names if name.casefold() not in PLAIN_NAMES),
        names[0] if names else "corpus",
    )


def _quoted(text: str) -> str:
    """Write text as TOML does."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'


def _relative(path: Path, base: Path) -> str:
    """Name a place from the study's folder, where it is in it or beside it; else by its whole path."""
    try:
        near = os.path.relpath(path.absolute(), base)
    except ValueError:  # another drive
        return str(path.absolute())
    return str(path.absolute()) if near.count("..") > 2 else Path(near).as_posix()


def _annotations(annotations: Path | None, base: Path) -> list[str]:
    if annotations is None:
        return ['# annotations = "selection-tables"   # without it: found beside the recordings']
    return [f"annotations = {_quoted(_relative(annotations, base))}"]


def _minimum(found: Inspection, corpus: Corpus | None) -> list[str]:
    if found.minimum_s is not None:
        calls = found.segmentation.calls
        short = sum(call.end_s - call.start_s < 1.0 for call in calls)
        told = f"the paper's 1 s would reject {short} of {len(calls)} calls; set from the data"
        return [f"min_length_s = {found.minimum_s:g}             # {told}"]
    return (
        ["min_length_s = 1.0              # shorter calls are left out, as in the paper"]
        if corpus is None
        else []
    )


def _folds(found: Inspection, corpus: Corpus | None) -> list[str]:
    """Choose the usual number of folds, or the fewer that let most call types be evaluated."""
    given = all("fold" in segment.extra for segment in found.segmentation.segments)
    if given or corpus is not None:
        return []
    most = max(found.possible.values(), default=0)
    usual = found.possible.get(DEFAULT_FOLDS, 0)
    if most < 2:
        labels = len({segment.label for segment in found.segmentation.segments})
        raise InputError(
            f"of {labels} call types, {most} are in two recordings or more, and no call type can be "
            "evaluated without another one: label more recordings"
        )
    if usual >= 2:
        return [
            f"folds = {DEFAULT_FOLDS}                       # no recording is on both sides of a fold"
        ]
    best = max(
        count
        for count, labels in found.possible.items()
        if labels == most and count <= DEFAULT_FOLDS
    )
    told = f"{DEFAULT_FOLDS} would leave {usual} call types to evaluate, {best} leave {most}"
    return [f"folds = {best}                       # {told}"]


def _more(corpus: Corpus | None) -> list[str]:
    own = (
        []
        if corpus is not None
        else [
            "# collar_s = 0.25               # audio added at each end",
            '# channel = "first"             # or "mean", or a number from 1',
        ]
    )
    return [*own, '# categories = "categories.csv"   # label,category: adds the reduced scoring']


def _encoders() -> list[str]:
    """List the baseline, the floor, and every pretrained encoder: those that run here, and how to get the others."""
    lines = ["[[encoder]]", 'name = "mfcc"                   # the baseline']
    for name in PRETRAINED:
        state = encoder_status(find_encoder(name))
        mark = "# " if state.needs else ""
        needs = (
            f"      # first: {' && '.join(state.needs)}"
            if state.needs
            else f"           # {state.licence}"
        )
        lines += ["", f"{mark}[[encoder]]", f'{mark}name = "{name}"{needs}']
    return [
        *lines,
        "",
        "[[encoder]]",
        'name = "random"                 # the floor: it carries nothing',
    ]


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise OptionError(
            f"{path}: is there already; remove it, or name another with --out"
        ) from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error
