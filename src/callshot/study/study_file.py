"""study.toml → a Study, with every key, type and path checked; recordings → a new study.toml.

`options.STUDY_TABLES` has its tables and keys. [[encoder]] has a name of the catalogue and its
options, of which lists of values compare; `title` is its name in results.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import Field, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from callshot.baselines.options import BaselineOptions
from callshot.corpus.options import CORPORA, PAPER_MINIMUM_S, Corpus, read_source
from callshot.corpus.segments import check_any_segments
from callshot.encoders.catalogue import ENCODERS
from callshot.encoders.install import list_needs
from callshot.encoders.joined_encoder import (
    JoinedEncoder,
    check_title,
    find_joined_encoder,
)
from callshot.errors import (
    InputError,
    OptionError,
    check_choice,
    count_text,
    suggest_name,
)
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.folds import DEFAULT_FOLDS
from callshot.fewshot.label_budget import check_target
from callshot.fewshot.protocol import Protocol, make_protocol
from callshot.files import WORK_FOLDER, check_results_folder, write_atomic
from callshot.options import (
    STUDY_TABLES,
    FoldOptions,
    ReadingOptions,
    default_value,
    list_options,
    select_options,
    user_type,
)
from callshot.records import Inspection, given_folds
from callshot.report.write_report import ReportOptions
from callshot.storage import check_no_url
from callshot.study.steps import optional

# The type of an option and of its items → how errors call it, and the types in TOML
TYPES: Mapping[Any, tuple[str, tuple[type, ...]]] = {
    (int, None): ("a whole number", (int,)),
    (float, None): ("a number", (int, float)),
    (bool, None): ("true or false", (bool,)),
    (str, None): ("text in quotes", (str,)),
    (Path, None): ("the path of a file or folder in quotes", (str,)),
    (list, None): ("a list in [brackets]", (list,)),
    (dict, None): ("a table of keys", (dict,)),
    (tuple, str): ("names in quotes, in [brackets]", (list,)),
    (tuple, int): ("whole numbers from 1, in [brackets]", (list,)),
    (Mapping, str): ("a table of names in quotes", (dict,)),
}
# Tables and lists of tables inside the file
INNER = {
    "corpus": dict,
    "encoder": list,
    "protocol": dict,
    "baselines": dict,
    "report": dict,
}
RESERVED_NAMES = ("tables", "report.html", "provenance.json")  # in a results folder


@dataclass(frozen=True, kw_only=True)
class StudyCorpus(FoldOptions):
    """One corpus of a study; `reading` are arguments of `segment_corpus`."""

    name: str
    audio: Path
    reading: Mapping[str, Any]

    @property
    def known_name(self) -> str | None:
        """The name of the known corpus, if it is one."""
        corpus: Corpus | None = self.reading["corpus"]
        return None if corpus is None else corpus.name


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
    out: Path
    corpora: Sequence[StudyCorpus]
    encoders: Sequence[StudyEncoder]
    protocol: Protocol
    baselines: BaselineOptions
    report: ReportOptions
    store: Path | None = None
    references: Path | None = None
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


@contextmanager
def name_errors(where: str) -> Iterator[None]:
    """Write in front of errors what they are about."""
    try:
        yield
    except (OptionError, InputError) as error:
        raise type(error)(f"{where} {error}") from None


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


def _parse_study(path: Path, text: str, content: Mapping[str, Any]) -> Study:
    """Return the study of a file with a text, of which `content` is the TOML; check everything."""
    base = path.absolute().parent
    top = _read_section("", {"out": "results", **content}, where="", base=base)
    out = top["out"]
    # An empty name, which is refused, would have become the folder of the study file.
    check_results_folder(str(out) if content.get("out", "results") else "")
    sections = {}
    for name in ("protocol", "baselines", "report"):
        sections[name] = _read_section(name, top.get(name, {}), f"[{name}]", base)

    options = sections["protocol"]
    names = [name for name in options.get("classifiers", ()) if name != "centroid"]
    with name_errors("[protocol]"):
        protocol = make_protocol(**options | {"classifiers": ("centroid", *names)})

    training = sections["baselines"]
    references = training.pop("references", None)
    with name_errors("[baselines]"):
        baselines = BaselineOptions(**training)
    spreads = baselines.spreads(protocol)
    if baselines.per_k and not set(spreads) <= set(protocol.spreads):
        raise OptionError(
            f"[baselines] per_k: uses the spread {baselines.spread}, but [protocol] spread is "
            f"{', '.join(protocol.spreads)}; change spread in [baselines], or remove it"
        )

    store = top.get("store")
    own_paths = [path.absolute(), out, *optional(store), *optional(references)]
    corpora = _parse_corpora(top.get("corpus", {}), base, own_paths)
    report = {"spread": protocol.spreads[0], **sections["report"]}
    check_choice("[report] spread", report["spread"], protocol.spreads)
    if "target" in report:
        with name_errors("[report]"):
            check_target(report["target"], protocol.spreads)
    return Study(
        path=path,
        out=out,
        corpora=corpora,
        encoders=_parse_encoders(top.get("encoder", []), base, baselines),
        protocol=protocol,
        baselines=baselines,
        report=ReportOptions(
            title=top.get("title") or base.name,
            protocol=protocol,
            commands=[f"callshot run {path.name}"],
            **report,
        ),
        store=store,
        references=references,
        text=text,
        device=top.get("device", "auto"),
    )


def _read_section(table: str, content: Any, where: str, base: Path) -> dict[str, Any]:
    """Return a table of the study file with its keys and values checked, and paths resolved.

    `table` is its name in STUDY_TABLES, "" for the whole file; `where` is how errors name it. Paths
    are relative to `base`. Tables inside are checked only for their type.
    """
    if not isinstance(content, dict):
        raise OptionError(f"{where}: expected a table of keys, got {content!r}")
    options = list_options(*STUDY_TABLES[table])
    inner = {} if table else INNER
    section = {}
    for key, value in content.items():
        name = f"{where} {key}".lstrip()
        if key in inner:
            _check_type(value, name, *TYPES[inner[key], None])
            section[key] = value
        elif key in options:
            section[key] = _read_value(options[key], value, name, base)
            if isinstance(section[key], Path) and table:
                _check_reachable(section[key], name)
        else:
            known = [*options, *inner]
            raise OptionError(f"{name}: unknown key; {suggest_name(key, known)}")
    return section


def _check_type(
    value: Any,
    name: str,
    expected: str,
    types: Sequence[type],
    item_kind: type | None = None,
) -> None:
    """Raise OptionError for a value or item of another type, or a number below 1 in a list."""
    is_valid = type(value) in types
    if is_valid and item_kind is not None:
        items = value.values() if isinstance(value, dict) else value
        is_valid = all(type(item) is item_kind for item in items)
        if is_valid and item_kind is int:
            is_valid = min(items, default=1) >= 1
    if not is_valid:
        raise OptionError(f"{name}: expected {expected}, got {value!r}")


def _read_value(entry: Field[Any], value: Any, name: str, base: Path) -> Any:
    """Return the value of a key, checked against its option.

    Lists become tuples, lists of numbers are sorted, each number once, and paths are resolved
    relative to `base`. `entry` is the option, `name` is how errors name the key.
    """
    kind, item_kind = user_type(entry)
    expected, types = TYPES[kind, item_kind]
    option = entry.metadata["option"]
    if option.also is not None:  # a second type
        also_expected, also_types = TYPES[option.also, None]
        expected = f"{expected} or {also_expected}"
        types += also_types

    _check_type(value, name, expected, types, item_kind)
    if kind is Path:
        return _resolve_path(base, value, name)
    if item_kind is int:
        return tuple(sorted(set(value)))
    if kind is tuple:
        return tuple(value)
    option.check(name, value)
    return value


def _check_reachable(path: Path, name: str) -> None:
    """Raise InputError if there is no file or folder at the path of the key `name`."""
    try:
        path.stat()
    except OSError as error:
        problem = f"cannot be reached ({error.strerror})"
        if isinstance(error, FileNotFoundError):
            problem = "does not exist"
        raise InputError(
            f"{name}: {path} {problem}; paths are relative to the study file"
        ) from None


def _resolve_path(base: Path, text: str, name: str) -> Path:
    """Return a path of the key `name`, relative to `base`; raise OptionError if it is none."""
    check_no_url(Path(text))
    try:
        if "\0" in text:
            raise ValueError("it contains a NUL character")
        return base / Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # an unknown user after ~
        raise OptionError(f"{name}: {text!r} is not a path ({error})") from None


def _parse_corpora(
    contents: Mapping[str, Any], base: Path, own_paths: Sequence[Path]
) -> list[StudyCorpus]:
    """Return the corpora of the tables [corpus.NAME], with names that differ as folders."""
    corpora: dict[str, StudyCorpus] = {}
    for name, content in contents.items():
        corpus = _parse_corpus(name, content, base, own_paths)
        other = corpora.setdefault(name.casefold(), corpus)
        if other is not corpus:
            raise OptionError(
                f"[corpus.{name}]: differs from {other.name} only in case, and both name folders"
            )
    if not corpora:
        raise OptionError("no corpus; add a table [corpus.NAME] with the key audio")
    return [*corpora.values()]


def _parse_corpus(
    name: str, content: Any, base: Path, own_paths: Sequence[Path]
) -> StudyCorpus:
    """Return the corpus of a table [corpus.NAME].

    `own_paths`, the files and folders of the study, are left out where recordings and annotations
    are looked for; so are the corpus's own files of folds and categories.
    """
    where = f"[corpus.{name}]"
    section = _read_section("corpus", content, where, base)
    is_safe = re.fullmatch(r"\w[\w.-]*", name) is not None
    if not is_safe or name.casefold() in RESERVED_NAMES:
        raise OptionError(
            f"{where}: the name becomes a folder; use letters, digits, '-', '_' and '.', "
            f"and none of {', '.join(RESERVED_NAMES)}"
        )
    if "audio" not in section:
        raise OptionError(f"{where} audio: missing; name the folder of the recordings")
    own = select_options(section, FoldOptions)
    known = section.get("known") or (name if name in CORPORA else None)
    place = section["audio"].absolute()
    files = [own[key] for key in ("fold_file", "categories") if key in own]
    # Not a folder of the study that the recordings are in.
    excluded = [
        file
        for file in (*own_paths, *files)
        if not place.is_relative_to(file.absolute())
    ]
    with name_errors(where):
        reading = read_source(section | {"corpus": known}, excluded)
    return StudyCorpus(name=name, audio=section["audio"], reading=reading, **own)


def _parse_encoders(
    contents: Sequence[Any], base: Path, baselines: BaselineOptions
) -> list[StudyEncoder]:
    """Return the encoders of the tables [[encoder]], ready to run and with different titles."""
    encoders: dict[str, StudyEncoder] = {}
    for number, content in enumerate(contents, 1):
        for encoder in _parse_encoder(content, f"[[encoder]] {number}", base):
            title = encoder.title
            if title in encoders:
                raise OptionError(
                    f"[[encoder]]: {title} is given twice; remove one, or change an option of "
                    "it or its title"
                )
            if "recurrent" in baselines.train and encoder.joined_encoder.may_join:
                raise OptionError(
                    f"[baselines] train: recurrent needs sequences, and {title} has none, "
                    "because it joins encoders or speeds (speed=auto may); remove one of the two"
                )
            encoders[title] = encoder

    if not encoders:
        raise OptionError('no encoder; add [[encoder]] with name = "mfcc", for example')
    for encoder in encoders.values():
        for spec in encoder.joined_encoder.specs:
            needs = list_needs(spec)
            if needs:
                steps = "; then: ".join(needs)
                raise InputError(f"encoder {spec.name}: cannot run yet; first: {steps}")
    return [*encoders.values()]


def _parse_encoder(content: Any, where: str, base: Path) -> Iterator[StudyEncoder]:
    """Yield the encoders of one table, which errors call `where`: one for each combination."""
    if not isinstance(content, dict) or not isinstance(content.get("name"), str):
        raise OptionError(f'{where}: expected name = "…"; callshot encoders lists them')
    name = content["name"]
    if name.startswith("onnx:"):
        name = f"onnx:{_resolve_path(base, name.removeprefix('onnx:'), where)}"
    texts_of_option = {  # the values to combine with those of other options
        key: _choice_texts(value)
        for key, value in content.items()
        if key not in ("name", "title")
    }
    combinations = [*product(*texts_of_option.values())]
    titles = content.get("title", [None] * len(combinations))
    if not isinstance(titles, list):
        titles = [titles]
    if len(titles) != len(combinations):
        raise OptionError(
            f"{where} title: expected a list of {len(combinations)} titles, one for each "
            f"encoder that the lists of options make, got {len(titles)}"
        )
    for combination, title in zip(combinations, titles, strict=True):
        choices = dict(zip(texts_of_option, combination, strict=True))
        if title is not None:
            _check_type(title, f"{where} title", "text in quotes", (str,))
        with name_errors(f"{where}:"):
            joined_encoder = find_joined_encoder(name, choices)
            if title is not None:
                check_title(title)
        yield StudyEncoder(name, choices, joined_encoder, title or joined_encoder.name)


def _choice_texts(value: Any) -> list[str]:
    """Return the values to compare as text: the items of a list, or a single value."""
    if isinstance(value, list):
        return [text for entry in value for text in _choice_texts(entry)]
    return [str(value).lower() if isinstance(value, bool) else str(value)]


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
# The first words of a help end at a colon, semicolon or full stop, or where it says how values are
# separated; "per-k: " belongs to the words ("With --per-k: …").
END_OF_FIRST_WORDS = re.compile(r"(?<!per-k)[:;] |[.] |[.]$|, separated")
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
    """Write a new study file; `reading` has annotations, `format` and fields of ReadingOptions."""
    segmentation = inspection.segmentation
    check_any_segments(segmentation)
    title = _name_corpus(audio) if corpus is None else corpus.title
    name = re.sub(r"[^A-Za-z0-9_]+", "-", title).strip("-") or "corpus"
    if corpus is not None:
        name = corpus.name
    folds = None  # those of a known corpus, or of the segments
    if corpus is None and given_folds(segmentation.segments) is None:
        folds = _choose_folds(inspection)
    keys = ("audio", "annotations", "format", *list_options(ReadingOptions))
    given = {"audio": audio, **reading}
    environment = Environment(
        loader=PackageLoader("callshot.study"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    environment.filters["count"] = count_text
    environment.filters["toml"] = partial(_format_value, base=path.absolute().parent)
    environment.filters["comment"] = lambda line, text: f"{line:{COMMENTS_AT}} # {text}"
    tables = []
    for table, active in ACTIVE.items():
        values = {key: shots if key == "shots" else active[key] for key in active}
        tables.append((table, active, _list_values(table, values)))
    text = environment.get_template("study.toml").render(
        vars(segmentation),
        recording_count=segmentation.recording_count,
        path=path,
        name=name,
        title=title,
        types=len(set(segmentation.segments["label"])),
        reading={key: given.get(key) for key in keys},
        corpus=corpus,
        short=int((segmentation.calls.durations_s < PAPER_MINIMUM_S).sum()),
        folds=folds,
        encoders=[(spec, list_needs(spec)) for spec in ENCODERS if spec.in_study],
        tables=tables,
    )
    if os.path.lexists(path):
        raise OptionError(
            f"{path}: already exists; remove it, or choose another name with --out"
        )
    write_atomic(path, text)


def _name_corpus(audio: Path) -> str:
    """Return the name of the folder of recordings, or of one around it where that is generic."""
    place = audio.absolute()
    names = [folder.name for folder in (place, *place.parents) if folder.name]
    telling = [name for name in names if name.casefold() not in GENERIC_NAMES]
    return next(iter([*telling, *names]), "corpus")


def _list_values(
    table: str, active: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str]]:
    """Yield each key of a new table, its value and the first words of its help.

    The values are those of `active`, which come first, then defaults, or examples where the default
    is none. Keys without any value are left out. A text is shown as the command line shows it.
    """
    options = list_options(*STUDY_TABLES[table])
    for key in dict.fromkeys([*active, *options]):
        option = options[key].metadata["option"]
        if key in active:
            value = active[key]
        elif key == "classifiers":
            value = OTHER_CLASSIFIERS
        else:
            value = option.shown if option.kind is str else default_value(options[key])
            if value in (None, "", ()):
                value = option.example
        if value != "":
            yield key, value, END_OF_FIRST_WORDS.split(option.help)[0]


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
            if relative.count("..") <= 2:  # else it is not near
                value = Path(relative).as_posix()
    return _quote(value)


def _quote(text: str) -> str:
    """Return text as a TOML string: that of JSON, in which DEL must be escaped too."""
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted.replace("\x7f", "\\u007f")


def _choose_folds(inspection: Inspection) -> tuple[int, str]:
    """Return how many folds a new study has, and why.

    That is the usual number, or the largest that evaluates most call types if the usual one
    evaluates fewer than two.
    """
    # By the number of folds: how many labels these evaluate.
    labels_by_folds = inspection.labels_by_folds
    usual = labels_by_folds.get(DEFAULT_FOLDS, 0)
    if usual >= 2:
        return DEFAULT_FOLDS, "no recording is on both sides of a fold"
    most = max(labels_by_folds.values(), default=0)
    if most < 2:
        labels = set(inspection.segmentation.segments["label"])
        verb = "is" if most == 1 else "are"
        raise InputError(
            f"only {most} of {count_text(len(labels), 'call type')} {verb} in two recordings or "
            "more, and an evaluation needs two such call types: label more recordings"
        )
    # No number of folds evaluates more labels than two do, so there is at least one.
    numbers = [n for n, labels in labels_by_folds.items() if labels == most]
    best = max(n for n in numbers if n <= DEFAULT_FOLDS)
    reason = f"{DEFAULT_FOLDS} would leave {usual} call types to evaluate, {best} leave {most}"
    return best, reason
