"""study.toml → a Study: every key known, every value of its kind, every place there, before any work begins.

title, out, store               how the study is called, where results go, where embeddings are kept
[corpus.NAME]                   recordings, what annotates them, and the rule by which segments are cut
[[encoder]]                     a name of the catalogue, and choices that it offers
[protocol]                      shots, draws, seed …
[rivals] [report]               what is trained, and reference results; which shots tables and figures show
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from callshot.baselines.run import BaselineOptions
from callshot.corpus.annotations import Hints
from callshot.corpus.known_corpora import CORPORA, Corpus, default_options, find_corpus
from callshot.corpus.options import SegmentationOptions
from callshot.encoders.availability import encoder_status
from callshot.encoders.catalogue import EncoderSpec, display_name, find_encoder
from callshot.errors import InputError, OptionError
from callshot.fewshot.protocol import Protocol, parse_shots
from callshot.records import SPREADS
from callshot.report.tables.shots import PAPER_SHOTS

TAKEN = ("tables", "report.html", "provenance.json")  # names that a study's own results have
RULE = {  # keys of a corpus → fields of its rule
    "min_length_s": "minimum_s",
    "collar_s": "collar_s",
    "with_collar": "with_collar",
    "channel": "channel_rule",
    "rate_hz": "rate_hz",
    "level_dbfs": "level_dbfs",
    "source_rate_hz": "source_rate_hz",
}
NUMBER, WHOLE, TEXT, FLAG, LIST, TABLE = (int, float), int, str, bool, list, dict
KEYS: Mapping[str, Mapping[str, Any]] = {
    "": {
        "title": TEXT,
        "out": TEXT,
        "store": TEXT,
        "corpus": TABLE,
        "encoder": LIST,
        "protocol": TABLE,
        "rivals": TABLE,
        "report": TABLE,
    },
    "corpus": {
        "audio": TEXT,
        "annotations": TEXT,
        "format": TEXT,
        "columns": TABLE,
        "tiers": LIST,
        "label": TEXT,
        "known": TEXT,
        "normalise": FLAG,
        "folds": WHOLE,
        "fold_file": TEXT,
        "categories": TEXT,
        "min_length_s": NUMBER,
        "collar_s": NUMBER,
        "with_collar": FLAG,
        "channel": (str, int),
        "rate_hz": WHOLE,
        "level_dbfs": NUMBER,
        "source_rate_hz": NUMBER,
    },
    "protocol": {
        "shots": (str, list),
        "draws": WHOLE,
        "bootstraps": WHOLE,
        "shared_draws": WHOLE,
        "seed": WHOLE,
        "sampler": TEXT,
        "score": TEXT,
        "spread": TEXT,
        "classifiers": LIST,
    },
    "rivals": {
        "references": TEXT,
        "train": LIST,
        "shots": FLAG,
        "draws": WHOLE,
        "spread": TEXT,
        "strength": NUMBER,
        "cell": TEXT,
        "seeds": WHOLE,
        "init": TEXT,
        "published": TEXT,
    },
    "report": {"shots": LIST, "confusion": LIST, "spread": TEXT, "figures": FLAG},
}


@dataclass(frozen=True)
class CorpusPart:
    """One corpus of a study: where it is, and how it is read, cut and folded."""

    name: str
    audio: Path
    annotations: Path | None
    rule: SegmentationOptions
    format: str = "auto"
    hints: Hints = field(default_factory=Hints)
    known: Corpus | None = None
    folds: int | None = None
    fold_file: Path | None = None
    categories: Path | None = None


@dataclass(frozen=True)
class EncoderPart:
    """One encoder of a study, with the choices that are made, and the name that results call it by."""

    name: str
    choices: Mapping[str, str]
    spec: EncoderSpec

    @property
    def told(self) -> str:
        """Its name in results."""
        return display_name(self.spec)


@dataclass(frozen=True)
class Study:
    """What a study file says, with places resolved against the folder it is in."""

    path: Path
    title: str
    out: Path
    corpora: Sequence[CorpusPart]
    encoders: Sequence[EncoderPart]
    protocol: Protocol
    store: Path | None = None
    references: Path | None = None
    training: BaselineOptions = field(default_factory=BaselineOptions)
    shots: tuple[int, ...] = PAPER_SHOTS
    confusion: tuple[int, ...] = (1, 5, 20)
    spread: str = "per-query"
    figures: bool = True
    text: str = ""

    @property
    def mark(self) -> str:
        """What its results say they are of."""
        return f"the study {self.path.name}"

    @property
    def work(self) -> Path:
        """The folder in which finished steps are kept."""
        return self.path.absolute().parent / ".callshot" / self.path.stem


def read_study(path: Path) -> Study:
    """Read a study file; an error names the key, and what would be right."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        given = tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); callshot init writes one"
        ) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or too deep
        raise InputError(f"{path}: not a study file in TOML ({error})") from error
    try:
        return _study(path, text, given)
    except (OptionError, InputError) as error:
        raise type(error)(f"{path}: {error}") from None


def _study(path: Path, text: str, given: Mapping[str, Any]) -> Study:
    _check("", given, "")
    base, progress, baselines = (
        path.absolute().parent,
        given.get("report", {}),
        given.get("rivals", {}),
    )
    for part, told in {"report": progress, "rivals": baselines}.items():
        _check(part, told, f"[{part}]")
    out, store = (
        _place(base, given.get("out", "results"), "out"),
        _maybe_place(base, given, "store"),
    )
    references, training = (
        _file(base, baselines, "references", "[rivals]"),
        _training(baselines, base),
    )
    ours = [path.absolute(), out, *(place for place in (store, references) if place is not None)]
    corpora = [_corpus(name, told, base, ours) for name, told in given.get("corpus", {}).items()]
    encoders = [
        _encoder(number, told, base) for number, told in enumerate(given.get("encoder", []), 1)
    ]
    _refuse_lack(corpora, encoders)
    protocol = _protocol(given.get("protocol", {}))
    _refuse_unseen(training, protocol)
    return Study(
        path,
        given.get("title") or path.absolute().parent.name,
        out,
        corpora,
        encoders,
        protocol,
        store,
        references,
        training,
        _shots(progress, "shots", PAPER_SHOTS),
        _shots(progress, "confusion", (1, 5, 20)),
        _one_of(progress.get("spread", protocol.spreads[0]), protocol.spreads, "[report] spread"),
        progress.get("figures", True),
        text,
    )


def _check(part: str, given: Any, where: str) -> None:
    """Refuse a key that is not known, with the nearest that is, and a value of another kind."""
    if not isinstance(given, dict):
        raise OptionError(f"{where}: wanted a table of keys, found {given!r}")
    known = KEYS[part]
    for key, value in given.items():
        if key not in known:
            near = get_close_matches(key, known, 1)
            mend = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise OptionError(f"{f'{where} ' if where else ''}{key}: no such key; {mend}")
        wrong = not isinstance(value, known[key]) or (
            isinstance(value, bool) and known[key] is not FLAG
        )
        if wrong:
            raise OptionError(
                f"{f'{where} ' if where else ''}{key}: wanted {_kind(known[key])}, found {value!r}"
            )


def _kind(kind: Any) -> str:
    names = {
        NUMBER: "a number",
        WHOLE: "a whole number",
        TEXT: "text in quotes",
        FLAG: "true or false",
        LIST: "a list in [brackets]",
        TABLE: "a table of keys",
    }
    return names[kind] if kind in names else " or ".join(_kind(one) for one in kind)


def _corpus(name: str, given: Any, base: Path, ours: Sequence[Path]) -> CorpusPart:
    """Read a corpus; `ours` are places of the study itself, which are no part of any corpus."""
    where = f"[corpus.{name}]"
    _check("corpus", given, where)
    if not re.fullmatch(r"\w[\w.-]*", name) or name.casefold() in TAKEN:
        raise OptionError(
            f"{where}: it names a folder of results; wanted letters, digits, '-', '_' and '.', "
            f"and not {', '.join(TAKEN)}"
        )
    if "audio" not in given:
        raise OptionError(f"{where} audio: missing; name the folder of the recordings")
    try:
        known = find_corpus(given["known"]) if "known" in given else CORPORA.get(name)
        rule = _rule(known, given)
    except OptionError as error:
        raise OptionError(f"{where} {error}") from None
    audio, folds = _there(base, given, "audio", where), _file(base, given, "fold_file", where)
    groups = _file(base, given, "categories", where)
    files = [*ours, *(file for file in (folds, groups) if file is not None)]
    exclude = tuple(
        place for place in files if not audio.absolute().is_relative_to(place.absolute())
    )
    columns, tiers = _texts(given, "columns", where), tuple(map(str, given.get("tiers", ())))
    if given.get("folds", 2) < 2:
        raise OptionError(f"{where} folds: at least 2, got {given['folds']}")
    return CorpusPart(
        name,
        audio,
        _file(base, given, "annotations", where),
        rule,
        given.get("format", "auto"),
        Hints(columns, tiers, None, given.get("label"), exclude),
        known,
        given.get("folds"),
        folds,
        groups,
    )


def _rule(known: Corpus | None, given: Mapping[str, Any]) -> SegmentationOptions:
    own = default_options(known)
    chosen = {one.name: getattr(own, one.name) for one in fields(SegmentationOptions)}
    chosen |= {ours: given[key] for key, ours in RULE.items() if key in given}
    chosen["channel_rule"] = str(chosen["channel_rule"])
    if not given.get("normalise", True):
        if "level_dbfs" in given:
            raise OptionError("level_dbfs: with normalise = false there is no level; leave one out")
        chosen["level_dbfs"] = None
    return SegmentationOptions(**chosen)


def _encoder(number: int, given: Any, base: Path) -> EncoderPart:
    where = f"[[encoder]] {number}"
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise OptionError(f'{where}: wanted name = "…"; callshot encoders lists them')
    name, choices = (
        given["name"],
        {key: _choice(value) for key, value in given.items() if key != "name"},
    )
    if name.startswith("onnx:"):
        name = f"onnx:{_place(base, name.removeprefix('onnx:'), where)}"
    try:
        spec = find_encoder(name, choices)
    except (OptionError, InputError) as error:
        raise type(error)(f"{where}: {error}") from None
    return EncoderPart(name, choices, spec)


def _choice(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_lack(corpora: Sequence[CorpusPart], encoders: Sequence[EncoderPart]) -> None:
    """Refuse a study without a corpus or an encoder, with one encoder twice, or with one that cannot run yet."""
    if not corpora:
        raise OptionError("no corpus; wanted a table [corpus.NAME] with the key audio")
    if not encoders:
        raise OptionError('no encoder; wanted [[encoder]] with name = "mfcc", say')
    names = [corpus.name.casefold() for corpus in corpora]
    if alike := [corpus.name for corpus in corpora if names.count(corpus.name.casefold()) > 1]:
        raise OptionError(
            f"[corpus.{alike[1]}]: {alike[0]} has that name but for case, and both name folders"
        )
    told = [encoder.told for encoder in encoders]
    if twice := [name for name in told if told.count(name) > 1]:
        raise OptionError(
            f"[[encoder]]: {twice[0]} is there twice; leave one out, or make another choice for it"
        )
    for encoder in encoders:
        if needs := encoder_status(encoder.spec).needs:
            raise InputError(
                f"encoder {encoder.name}: cannot run yet; first: {'; then: '.join(needs)}"
            )


def _training(given: Mapping[str, Any], base: Path) -> BaselineOptions:
    """Read which rivals are trained, and how."""
    chosen = {
        key: value for key, value in given.items() if key not in ("references", "train", "init")
    }
    if not all(isinstance(kind, str) for kind in given.get("train", ())):
        raise OptionError(f"[rivals] train: wanted names in quotes, found {given['train']!r}")
    try:
        return BaselineOptions(
            tuple(given.get("train", ())), init=_file(base, given, "init", "[rivals]"), **chosen
        )
    except OptionError as error:
        raise OptionError(f"[rivals] {str(error).replace('rival:', 'train:', 1)}") from None


def _refuse_unseen(training: BaselineOptions, protocol: Protocol) -> None:
    """Refuse rivals at every k on draws that the centroid does not meet."""
    asked = set(SPREADS) if training.spread == "both" else {training.spread}
    if training.shots and not asked <= set(protocol.spreads):
        raise OptionError(
            f"[rivals] shots: on the spread {training.spread}, and [protocol] spread has {protocol.spreads[0]} alone; "
            "set [rivals] spread, or leave one out"
        )


def _protocol(given: Any) -> Protocol:
    _check("protocol", given, "[protocol]")
    chosen = {
        key: value for key, value in given.items() if key not in ("shots", "spread", "classifiers")
    }
    rules = given.get("classifiers", [])
    try:
        if not all(isinstance(rule, str) for rule in rules):
            raise OptionError(f"classifiers: wanted names in quotes, found {rules!r}")
        chosen["classifiers"] = ("centroid", *(rule for rule in rules if rule != "centroid"))
        if "shots" in given:
            text = (
                given["shots"]
                if isinstance(given["shots"], str)
                else ",".join(map(str, given["shots"]))
            )
            chosen["shots"], chosen["whole_pool"] = parse_shots(text)
        spread = _one_of(given.get("spread", "both"), (*SPREADS, "both"), "spread")
        return Protocol(**chosen, spreads=SPREADS if spread == "both" else (spread,))
    except OptionError as error:
        raise OptionError(
            f"[protocol] {str(error).replace('classifier:', 'classifiers:', 1)}"
        ) from None


def _one_of(value: str, allowed: Sequence[str], where: str) -> str:
    if value not in allowed:
        raise OptionError(f"{where}: one of {', '.join(allowed)}, got {value!r}")
    return value


def _shots(given: Mapping[str, Any], key: str, default: tuple[int, ...]) -> tuple[int, ...]:
    shots = given.get(key, default)
    if any(not isinstance(k, int) or isinstance(k, bool) or k < 1 for k in shots):
        raise OptionError(f"[report] {key}: whole numbers from 1, got {shots!r}")
    return tuple(sorted(set(shots)))


def _texts(given: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    texts: dict[str, Any] = given.get(key, {})
    if wrong := [name for name, text in texts.items() if not isinstance(text, str)]:
        raise OptionError(
            f"{where} {key}.{wrong[0]}: wanted text in quotes, found {texts[wrong[0]]!r}"
        )
    return texts


def _place(base: Path, text: str, where: str) -> Path:
    try:
        if "\0" in text:
            raise ValueError("it has a NUL in it")
        return base / Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # a user who is none, after ~
        raise OptionError(f"{where}: {text!r} is no place ({error})") from None


def _maybe_place(base: Path, given: Mapping[str, Any], key: str) -> Path | None:
    return _place(base, given[key], key) if key in given else None


def _file(base: Path, given: Mapping[str, Any], key: str, where: str) -> Path | None:
    return _there(base, given, key, where) if key in given else None


def _there(base: Path, given: Mapping[str, Any], key: str, where: str) -> Path:
    path = _place(base, given[key], f"{where} {key}")
    try:
        path.stat()
    except OSError as error:
        why = (
            "is not there"
            if isinstance(error, FileNotFoundError)
            else f"cannot be reached ({error.strerror})"
        )
        raise InputError(
            f"{where} {key}: {path} {why}; places are relative to the study file"
        ) from None
    return path
