"""study.toml → a Study, with every key, type and path checked before any work.

title, out, store, device the title, where results go, where embeddings are stored, what computes
[corpus.NAME]             recordings, their annotations, and how segments are cut
[[encoder]]               a name of the catalogue, and its options; lists of values compare;
                          `title` is its name in results
[protocol]                shots, draws, seed …
[baselines]               what is trained, and reference results
[report]                  which shots tables and figures show, and a target
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from callshot.baselines.options import BaselineOptions
from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.options import (
    CORPORA,
    Corpus,
    SegmentationOptions,
    default_options,
    find_corpus,
    make_annotation_options,
)
from callshot.encoders.install import encoder_status
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    check_title,
    find_joined_encoder,
)
from callshot.errors import (
    InputError,
    OptionError,
    check_choice,
    check_range,
    suggest_name,
)
from callshot.fewshot.gpu.device import DEVICES
from callshot.fewshot.label_budget import check_target
from callshot.fewshot.protocol import SPREAD_CHOICES, Protocol, make_protocol
from callshot.files import WORK_FOLDER, check_results_folder
from callshot.report.tables.scores import PAPER_SHOTS
from callshot.storage import check_no_url
from callshot.study.steps import optional

NUMBER = (int, float)
TYPE_NAMES: Mapping[Any, str] = {
    NUMBER: "a number",
    int: "a whole number",
    str: "text in quotes",
    bool: "true or false",
    list: "a list in [brackets]",
    dict: "a table of keys",
    (str, int): "text in quotes or a whole number",
    (str, list): "text in quotes or a list in [brackets]",
}
KEYS: Mapping[str, Mapping[str, Any]] = {
    "": {
        "title": str,
        "out": str,
        "store": str,
        "device": str,
        "corpus": dict,
        "encoder": list,
        "protocol": dict,
        "baselines": dict,
        "report": dict,
    },
    "corpus": {
        "audio": str,
        "annotations": str,
        "format": str,
        "columns": dict,
        "tiers": list,
        "label": str,
        "rename": str,
        "time_unit": str,
        "follow_links": bool,
        "known": str,
        "normalise": bool,
        "folds": int,
        "fold_file": str,
        "group_duplicates": bool,
        "categories": str,
        "min_length_s": NUMBER,
        "collar_s": NUMBER,
        "with_collar": bool,
        "channel": (str, int),
        "rate_hz": int,
        "peak_dbfs": NUMBER,
        "source_rate_hz": NUMBER,
    },
    "protocol": {
        "shots": (str, list),
        "draws": int,
        "bootstraps": int,
        "shared_draws": int,
        "total_samples": int,
        "seed": int,
        "sampler": str,
        "score": str,
        "spread": str,
        "classifiers": list,
        "permutations": int,
        "repeat_folds": int,
        "seeds": int,
    },
    "baselines": {
        "references": str,
        "train": list,
        "per_k": bool,
        "draws": int,
        "spread": str,
        "C": NUMBER,
        "cell": str,
        "seeds": int,
        "init": str,
        "published": str,
    },
    "report": {
        "shots": list,
        "confusion": list,
        "spread": str,
        "figures": bool,
        "pdf": bool,
        "sounds": bool,
        "target": NUMBER,
    },
}


@dataclass(frozen=True)
class Section:
    """A table of the study file, checked; `where` names it in errors."""

    content: Mapping[str, Any]
    where: str
    base: Path

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key."""
        return self.content.get(key, default)

    def without(self, *keys: str) -> dict[str, Any]:
        """Return the content without some keys."""
        return {key: value for key, value in self.content.items() if key not in keys}

    def section(self, name: str) -> "Section":
        """Return a table inside this one, checked; empty where there is none."""
        return read_section(name, self.content.get(name, {}), f"[{name}]", self.base)

    def name(self, key: str) -> str:
        """Return how errors name a key."""
        return f"{self.where} {key}" if self.where else key

    def path(self, key: str, default: str | None = None) -> Path | None:
        """Return a path, whether it exists or not."""
        text = self.content.get(key, default)
        return None if text is None else resolve_path(self.base, text, self.name(key))

    def existing(self, key: str) -> Path | None:
        """Return the path of a file or folder that must exist."""
        path = self.path(key)
        if path is None:
            return None
        try:
            path.stat()
        except FileNotFoundError:
            problem = "does not exist"
        except OSError as error:
            problem = f"cannot be reached ({error.strerror})"
        else:
            return path
        raise InputError(
            f"{self.name(key)}: {path} {problem}; paths are relative to the study file"
        )

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        """Return one of several words."""
        value = str(self.content.get(key, default))
        check_choice(self.name(key), value, choices)
        return value

    def shots(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a list of k, sorted."""
        shots = self.content.get(key, default)
        for k in shots:
            if type(k) is not int or k < 1:
                raise OptionError(
                    f"{self.name(key)}: expected whole numbers from 1, got {shots!r}"
                )
        return tuple(sorted(set(shots)))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of names."""
        values = self.content.get(key, [])
        if not all(isinstance(value, str) for value in values):
            raise OptionError(
                f"{self.name(key)}: expected names in quotes, got {values!r}"
            )
        return tuple(values)


def read_section(kind: str, content: Any, where: str, base: Path) -> Section:
    """Check the keys of a table and the types of their values."""
    if not isinstance(content, dict):
        raise OptionError(f"{where}: expected a table of keys, got {content!r}")
    section = Section(content, where, base)
    types = KEYS[kind]
    for key, value in content.items():
        name = section.name(key)
        if key not in types:
            raise OptionError(f"{name}: unknown key; {suggest_name(key, types)}")
        expected = types[key]
        is_stray_flag = isinstance(value, bool) and expected is not bool
        if is_stray_flag or not isinstance(value, expected):
            raise OptionError(f"{name}: expected {TYPE_NAMES[expected]}, got {value!r}")
    return section


@contextmanager
def name_errors(where: str) -> Iterator[None]:
    """Write in front of errors what they are about."""
    try:
        yield
    except (OptionError, InputError) as error:
        raise type(error)(f"{where} {error}") from None


def resolve_path(base: Path, text: str, where: str) -> Path:
    """Return a path of the study file, relative to its folder; `where` names it in errors."""
    check_no_url(Path(text))
    try:
        if "\0" in text:
            raise ValueError("it contains a NUL character")
        return base / Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # an unknown user after ~
        raise OptionError(f"{where}: {text!r} is not a path ({error})") from None


Table = Mapping[str, Any]

RESERVED_NAMES = ("tables", "report.html", "provenance.json")  # in a results folder
CONFUSION_SHOTS = (1, 5, 20)
SEGMENTATION_KEYS = (
    "min_length_s",
    "collar_s",
    "with_collar",
    "channel",
    "rate_hz",
    "peak_dbfs",
    "source_rate_hz",
)


@dataclass(frozen=True)
class StudyCorpus:
    """One corpus of a study: where it is, and how it is read, segmented and split into folds."""

    name: str
    audio: Path
    annotations: Path | None
    segmentation: SegmentationOptions
    format: str = "auto"
    annotation_options: AnnotationOptions = field(default_factory=AnnotationOptions)
    known_corpus: Corpus | None = None
    folds: int | None = None
    fold_file: Path | None = None
    categories: Path | None = None
    group_duplicates: bool = False

    @property
    def known_name(self) -> str | None:
        """The name of the known corpus, if it is one."""
        return None if self.known_corpus is None else self.known_corpus.name


@dataclass(frozen=True)
class StudyEncoder:
    """One encoder of a study, with its options; `title` is its name in results."""

    name: str
    choices: Mapping[str, str]
    joined_encoder: JoinedEncoder
    title: str


@dataclass(frozen=True)
class Study:
    """The content of a study file; paths are resolved against its folder."""

    path: Path
    title: str
    out: Path
    corpora: Sequence[StudyCorpus]
    encoders: Sequence[StudyEncoder]
    protocol: Protocol
    store: Path | None = None
    references: Path | None = None
    baselines: BaselineOptions = field(default_factory=BaselineOptions)
    shots: tuple[int, ...] = PAPER_SHOTS
    confusion: tuple[int, ...] = CONFUSION_SHOTS
    spread: str = "per-query"
    figures: bool = True
    pdf: bool = False
    sounds: bool = True
    target: float | None = None
    text: str = ""
    device: str = "auto"

    @property
    def owner(self) -> str:
        """How its results folder names the study."""
        return f"the study {self.path.name}"

    @property
    def work(self) -> Path:
        """The folder that stores finished steps."""
        return self.path.absolute().parent / WORK_FOLDER / self.path.stem

    @property
    def corpus_names(self) -> list[str]:
        """The names of its corpora."""
        return [corpus.name for corpus in self.corpora]

    @property
    def encoder_titles(self) -> list[str]:
        """The names of its encoders in results."""
        return [encoder.title for encoder in self.encoders]


def read_study(path: Path) -> Study:
    """Read a study file; an error names the key, and what is expected."""
    check_no_url(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
        content = tomllib.loads(text)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); callshot init writes one"
        ) from error
    # No TOML, no UTF-8, or nested too deeply.
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a study file in TOML ({error})") from error
    with name_errors(f"{path}:"):
        return _parse_study(path, text, content)


def _parse_study(path: Path, text: str, content: Table) -> Study:
    base = path.absolute().parent
    top = read_section("", content, "", base)
    report = top.section("report")
    training = top.section("baselines")
    out = top.path("out", "results") or base
    check_results_folder(str(out) if content.get("out", "results") else "")
    store = top.path("store")
    references = training.existing("references")
    baselines = _parse_baselines(training)
    own_paths = [path.absolute(), out, *optional(store), *optional(references)]
    corpora = [
        _parse_corpus(name, value, base, own_paths)
        for name, value in top.get("corpus", {}).items()
    ]
    encoders: list[StudyEncoder] = []
    for number, value in enumerate(top.get("encoder", []), 1):
        encoders += _parse_encoders(number, value, base)
    _check_corpora(corpora)
    _check_encoders(encoders)
    _check_sequences(encoders, baselines)
    protocol = _parse_protocol(top.section("protocol"))
    _check_spreads(baselines, protocol)
    return Study(
        path=path,
        title=top.get("title") or base.name,
        out=out,
        corpora=corpora,
        encoders=encoders,
        protocol=protocol,
        store=store,
        references=references,
        baselines=baselines,
        shots=report.shots("shots", PAPER_SHOTS),
        confusion=report.shots("confusion", CONFUSION_SHOTS),
        spread=report.choice("spread", protocol.spreads[0], protocol.spreads),
        figures=report.get("figures", True),
        pdf=report.get("pdf", False),
        sounds=report.get("sounds", True),
        target=_parse_target(report, protocol),
        text=text,
        device=top.choice("device", "auto", DEVICES),
    )


def _parse_target(report: Section, protocol: Protocol) -> float | None:
    target: float | None = report.get("target")
    if target is not None:
        with name_errors(report.where):
            check_target(target, protocol.spreads)
    return target


def _check_spreads(baselines: BaselineOptions, protocol: Protocol) -> None:
    is_evaluated = set(baselines.spreads(protocol)) <= set(protocol.spreads)
    if baselines.per_k and not is_evaluated:
        raise OptionError(
            f"[baselines] per_k: uses the spread {baselines.spread}, but [protocol] spread is "
            f"{', '.join(protocol.spreads)}; change spread in [baselines], or remove it"
        )


def _parse_corpus(
    name: str, content: Any, base: Path, own_paths: Sequence[Path]
) -> StudyCorpus:
    """Parse a corpus; `own_paths` of the study are not part of any corpus."""
    where = f"[corpus.{name}]"
    section = read_section("corpus", content, where, base)
    _check_corpus_name(name, where)
    audio = section.existing("audio")
    if audio is None:
        raise OptionError(f"{where} audio: missing; name the folder of the recordings")
    known_corpus = CORPORA.get(name)
    with name_errors(where):
        if section.get("known"):
            known_corpus = find_corpus(section.get("known"))
        segmentation = _parse_segmentation(known_corpus, section)
    check_range(f"{where} folds", section.get("folds", 2), 2)
    fold_file = section.existing("fold_file")
    categories = section.existing("categories")
    files = [*own_paths, *optional(fold_file), *optional(categories)]
    columns = _parse_columns(section)
    rename = section.existing("rename")
    with name_errors(where):
        annotation_options = make_annotation_options(
            columns=columns,
            tiers=[*map(str, section.get("tiers", ()))],
            label=section.get("label"),
            rename=rename,
            time_unit=section.get("time_unit"),
            follow_links=section.get("follow_links", False),
            exclude=[file for file in files if not _is_around(file, audio)],
        )
    return StudyCorpus(
        name=name,
        audio=audio,
        annotations=section.existing("annotations"),
        segmentation=segmentation,
        format=section.get("format", "auto"),
        annotation_options=annotation_options,
        known_corpus=known_corpus,
        folds=section.get("folds"),
        fold_file=fold_file,
        categories=categories,
        group_duplicates=section.get("group_duplicates", False),
    )


def _check_corpus_name(name: str, where: str) -> None:
    is_safe = re.fullmatch(r"\w[\w.-]*", name) is not None
    if not is_safe or name.casefold() in RESERVED_NAMES:
        raise OptionError(
            f"{where}: the name becomes a folder; use letters, digits, '-', '_' and '.', "
            f"and none of {', '.join(RESERVED_NAMES)}"
        )


def _is_around(folder: Path, path: Path) -> bool:
    return path.absolute().is_relative_to(folder.absolute())


def _parse_segmentation(
    known_corpus: Corpus | None, section: Section
) -> SegmentationOptions:
    options = default_options(known_corpus)
    changes = {
        key: section.get(key) for key in SEGMENTATION_KEYS if key in section.content
    }
    if "channel" in changes:
        changes["channel"] = str(changes["channel"])
    if not section.get("normalise", True):
        if "peak_dbfs" in changes:
            raise OptionError(
                "peak_dbfs: has no effect with normalise = false; remove one of the two"
            )
        changes["peak_dbfs"] = None
    return replace(options, **changes)


def _parse_columns(section: Section) -> dict[str, str]:
    columns: dict[str, Any] = section.get("columns", {})
    for name, value in columns.items():
        if not isinstance(value, str):
            key = section.name(f"columns.{name}")
            raise OptionError(f"{key}: expected text in quotes, got {value!r}")
    return columns


def _parse_encoders(number: int, content: Any, base: Path) -> Iterator[StudyEncoder]:
    """Yield an encoder; where an option has a list of values, one for each of them."""
    where = f"[[encoder]] {number}"
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise OptionError(f'{where}: expected name = "…"; callshot encoders lists them')
    options = {key: content[key] for key in content if key not in ("name", "title")}
    values = {key: _choice_texts(value) for key, value in options.items()}
    name = content["name"]
    if name.startswith("onnx:"):
        name = f"onnx:{resolve_path(base, name.removeprefix('onnx:'), where)}"
    combinations = [*product(*values.values())]
    titles = _parse_titles(content.get("title"), len(combinations), where)
    for combination, title in zip(combinations, titles, strict=True):
        choices = dict(zip(values, combination, strict=True))
        with name_errors(f"{where}:"):
            joined_encoder = find_joined_encoder(name, choices)
            yield StudyEncoder(
                name, choices, joined_encoder, title or joined_encoder.name
            )


def _parse_titles(value: Any, count: int, where: str) -> list[str | None]:
    """Return the names in results of so many encoders; None for those without one."""
    if value is None:
        return [None] * count
    titles = value if isinstance(value, list) else [value]
    if len(titles) != count:
        raise OptionError(
            f"{where} title: expected a list of {count} titles, one for each encoder "
            f"that the lists of options make, got {len(titles)}"
        )
    for title in titles:
        if not isinstance(title, str):
            raise OptionError(f"{where} title: expected text in quotes, got {title!r}")
        with name_errors(where):
            check_title(title)
    return titles


def _choice_texts(value: Any) -> list[str]:
    """Return the values to compare, as text: those of a list, or a single one."""
    if isinstance(value, list):
        return [text for entry in value for text in _choice_texts(entry)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


def _check_corpora(corpora: Sequence[StudyCorpus]) -> None:
    """Check that there is a corpus, and none twice."""
    if not corpora:
        raise OptionError("no corpus; add a table [corpus.NAME] with the key audio")
    names: dict[str, str] = {}
    for corpus in corpora:
        other = names.setdefault(corpus.name.casefold(), corpus.name)
        if other != corpus.name:
            raise OptionError(
                f"[corpus.{corpus.name}]: differs from {other} only in case, and both name folders"
            )


def _check_encoders(encoders: Sequence[StudyEncoder]) -> None:
    """Check that there is an encoder, none twice, and that every one can run."""
    if not encoders:
        raise OptionError('no encoder; add [[encoder]] with name = "mfcc", for example')
    titles = [encoder.title for encoder in encoders]
    for title in titles:
        if titles.count(title) > 1:
            raise OptionError(
                f"[[encoder]]: {title} is given twice; remove one, or change an option of it "
                "or its title"
            )
    for encoder in encoders:
        for spec in encoder.joined_encoder.specs:
            needs = encoder_status(spec).needs
            if needs:
                steps = "; then: ".join(needs)
                raise InputError(f"encoder {spec.name}: cannot run yet; first: {steps}")


def _check_sequences(
    encoders: Sequence[StudyEncoder], baselines: BaselineOptions
) -> None:
    """Check that every encoder has sequences, if a network is trained on them."""
    for encoder in encoders:
        if "recurrent" in baselines.train and encoder.joined_encoder.may_join:
            raise OptionError(
                f"[baselines] train: recurrent needs sequences, and {encoder.title} has none, "
                "because it joins encoders or speeds (speed=auto may); remove one of the two"
            )


def _parse_baselines(section: Section) -> BaselineOptions:
    kinds = section.texts("train")
    init = section.existing("init")
    options = section.without("references", "train", "init")
    with name_errors(section.where):
        return BaselineOptions(kinds, init=init, **options)


def _parse_protocol(section: Section) -> Protocol:
    section.choice("spread", "all", tuple(SPREAD_CHOICES))
    names = [name for name in section.texts("classifiers") if name != "centroid"]
    options = {**section.content, "classifiers": ("centroid", *names)}
    with name_errors(section.where):
        return make_protocol(**options)
