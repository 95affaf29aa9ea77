"""A folder of recordings → a study file that runs as it is, with the reason for each choice beside it."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from callshot.corpus.corpora import Corpus
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.state import tell_encoder
from callshot.errors import InputError, OptionError, OutputError
from callshot.records import Inspection

DEFAULT_FOLDS = 5
PLAIN_NAMES = frozenset(("recordings", "audio", "sounds", "sound", "wav", "wavs", "flac", "data", "corpus", "files"))
PRETRAINED = ("birdnet-v2.4", "perch-v2", "hubert-base-l2", "perch-v1")


def write_study(
    path: Path,
    found: Inspection,
    audio: Path,
    annotations: Path | None = None,
    *,
    format: str = "auto",
    columns: Sequence[tuple[str, str]] = (),
    tiers: Sequence[str] = (),
    label: str | None = None,
    corpus: Corpus | None = None,
) -> None:
    """Write a study of what was found in a folder; refuse to replace one."""
    if not found.segmentation.segments:
        raise InputError(f"{audio}: no annotation became a segment; callshot inspect {audio} tells why")
    base = path.absolute().parent
    name = corpus.name if corpus is not None else _name(audio)
    lines = [
        f"# A study of {_told(found)}.",
        f"# Run it with: callshot run {path.name}      see what would run: callshot run {path.name} --dry-run",
        "",
        f"title = {_quoted(name)}",
        'out = "results"                 # report.html, tables, figures and all numbers go here',
        "",
        f"[corpus.{name}]",
        f"audio = {_quoted(_relative(audio, base))}",
        *_annotations(annotations, base),
        *([f"format = {_quoted(format)}"] if format != "auto" else []),
        *([f"columns = {{ {', '.join(f'{_quoted(a)} = {_quoted(b)}' for a, b in columns)} }}"] if columns else []),
        *([f"tiers = [{', '.join(map(_quoted, tiers))}]"] if tiers else []),
        *([f"label = {_quoted(label)}"] if label is not None else []),
        *([f"known = {_quoted(corpus.name)}        # its labels, folds and categories"] if corpus else []),
        *_minimum(found, corpus),
        *_folds(found, corpus),
        *_more(corpus),
        "",
        *_encoders(),
        "",
        "[protocol]",
        'shots = "1-40"                  # examples per call type; 1,2,5,10 or all are possible too',
        "seed = 0                        # same seed, same numbers",
        "# draws = 100                   # support sets drawn for each query",
        "# bootstraps = 5000             # samples of the per-query spread",
        "# shared_draws = 1000           # support sets of the shared spread",
        "",
        "# [rivals]",
        '# references = "rivals.csv"     # what trained classifiers scored: encoder,kind,name,metric,value',
        "",
        "# [report]",
        "# shots = [1, 2, 3, 4, 5, 10, 15, 20, 40]       # the rows of tables",
        "# confusion = [1, 5, 20]",
    ]
    _write_new(path, "\n".join(lines) + "\n")


def _told(found: Inspection) -> str:
    cut, labels = found.segmentation, len({s.label for s in found.segmentation.segments})
    return f"{len(cut.segments)} calls of {labels} types in {len(cut.recordings)} recordings"


def _name(audio: Path) -> str:
    """Name a corpus after its folder, or, where that is called as all of them are, after the one around it.

    >>> _name(Path("/field/Amboseli 2024/recordings")), _name(Path("/recordings"))
    ('Amboseli-2024', 'recordings')
    """
    names = [folder.name for folder in (audio.absolute(), *audio.absolute().parents) if folder.name]
    name = next((name for name in names if name.casefold() not in PLAIN_NAMES), names[0] if names else "")
    plain = re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")
    return plain or "corpus"


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
    return ["min_length_s = 1.0              # shorter calls are left out, as in the paper"] if corpus is None else []


def _folds(found: Inspection, corpus: Corpus | None) -> list[str]:
    """Choose the usual number of folds, or the fewer that let most call types be evaluated."""
    given = all("fold" in segment.more for segment in found.segmentation.segments)
    if given or corpus is not None:
        return []
    most = max(found.possible.values(), default=0)
    usual = found.possible.get(DEFAULT_FOLDS, 0)
    if usual >= 2 or not most:
        return [f"folds = {DEFAULT_FOLDS}                       # no recording is on both sides of a fold"]
    best = max(count for count, labels in found.possible.items() if labels == most and count <= DEFAULT_FOLDS)
    told = f"{DEFAULT_FOLDS} would leave {usual} call types to evaluate, {best} leave {most}"
    return [f"folds = {best}                       # {told}"]


def _more(corpus: Corpus | None) -> list[str]:
    own = [] if corpus is not None else [
        "# collar_s = 0.25               # audio added at each end",
        '# channel = "first"             # or "mean", or a number from 1',
    ]  # fmt: skip
    return [*own, '# categories = "categories.csv"   # label,category: adds the reduced scoring']


def _encoders() -> list[str]:
    """List the baseline, the floor, and every pretrained encoder: those that run here, and how to get the others."""
    lines = ["[[encoder]]", 'name = "mfcc"                   # the baseline']
    for name in PRETRAINED:
        state = tell_encoder(find_encoder(name))
        mark = "# " if state.needs else ""
        needs = f"      # first: {' && '.join(state.needs)}" if state.needs else f"           # {state.licence}"
        lines += ["", f"{mark}[[encoder]]", f'{mark}name = "{name}"{needs}']
    return [*lines, "", "[[encoder]]", 'name = "random"                 # the floor: it carries nothing']


def _write_new(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise OptionError(f"{path}: is there already; remove it, or name another with --out") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error
