"""Options: each has its name, type, default, range and help here, and nowhere else.

An option is a field of a dataclass, made with `option`:

    draws: int = option(100, "N", "Number of support sets …", low=1, high=65535)

callshot.cli makes the options of commands from these fields, study_file the keys of study.toml, and
docs/generated_pages.py a page. Packages derive their own classes (`Protocol` from
`ProtocolOptions`), with checks that need more than a range. What a user gave is a mapping without
the defaults (`Given`). This module imports nothing heavy: --help reads it.
"""

import inspect
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import datetime
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from callshot.errors import OptionError, check_choice, check_range

Given = dict[str, Any]
Record = TypeVar("Record")
# In place of a default: the user must give a value. Typer's convention.
REQUIRED: Any = ...


@dataclass(frozen=True)
class Option:
    """What is known about an option besides its name, type and default.

    metavar    what stands for its value in the help; empty for flags
    help       sentences; `{formats}` and the like are filled in by the command line
    names      other names, such as -o; if one begins with --, it replaces the name of the field
    key        its name for users, if not that of the field
    shown      whether the help shows the default; a text is shown in place of the value
    low, high, unit, choices
               what the value may be
    kind       the type that users give, if not that of the field
    also       another type that study.toml allows
    separated  several values are separated by commas; otherwise the option is repeated
    example    of NAME=VALUE, or of a value for a study file
    typer      further arguments of typer.Option
    """

    metavar: str
    help: str
    names: tuple[str, ...] = ()
    key: str = ""
    shown: str | bool = True
    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    choices: Sequence[str] = ()
    kind: Any = None
    also: type | None = None
    separated: bool = False
    example: Any = ""
    typer: Mapping[str, Any] = field(default_factory=dict)

    def check(self, name: str, value: Any) -> None:
        """Check the range, or that a word is one of the choices; None is no value."""
        if value is None:
            return
        if self.choices:
            check_choice(name, value, self.choices)
        if self.low > -math.inf or self.high < math.inf:
            check_range(name, value, self.low, self.high, self.unit)


def option(default: Any, metavar: str, help: str, *names: str, **more: Any) -> Any:
    """Return an option: a field of a dataclass, or a parameter of a command."""
    metadata = {"option": Option(metavar, help, names, **more)}
    if default is REQUIRED:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def flag(help: str, *names: str, default: bool = False, **more: Any) -> Any:
    """Return an option that takes no value."""
    return option(default, "", help, *names, **more)


def find_option(kind: Any, default: Any) -> Field[Any] | None:
    """Return the option of a parameter, with the type of its values; None without an option.

    The option is the default of the parameter, or it stands in the type: Annotated[int, option(…)].
    Then the default of the parameter is that of the option.
    """
    entry = default if isinstance(default, Field) else None
    for note in getattr(kind, "__metadata__", ()):  # what Annotated adds to a type
        if isinstance(note, Field):
            entry = field(default=default, metadata=note.metadata)
            kind = kind.__origin__
    if entry is not None:
        entry.type = kind
    return entry


def list_options(*classes: type[Any]) -> dict[str, Field[Any]]:
    """Return the fields of classes that are options, by their names for users."""
    options = {}
    for owner in classes:
        for entry in fields(owner):
            known: Field[Any] | None = entry
            if "option" not in entry.metadata:  # it may be in the type
                known = find_option(entry.type, entry.default)
            if known is not None:
                name = known.metadata["option"].key or entry.name
                options[name] = known
    return options


def select_options(given: Given, *classes: type[Any]) -> dict[str, Any]:
    """Select the given options that belong to some classes."""
    names = list_options(*classes)
    return {name: value for name, value in given.items() if name in names}


def check_values(record: Any) -> None:
    """Check the ranges and choices of all options of a dataclass."""
    for name, entry in list_options(type(record)).items():
        known: Option = entry.metadata["option"]
        if known.kind is None:  # else the field has another value than the user gave
            known.check(name, getattr(record, entry.name))


def document(record: type[Record]) -> type[Record]:
    """Add the options of a class to its docstring; a decorator."""
    lines = ["", "Parameters", "----------"]
    for entry in list_options(record).values():
        # Without words that only the command line fills in
        text = re.sub(r" \{\w+\}\.", "", entry.metadata["option"].help)
        default = default_text(entry)
        lines += [
            entry.name,
            f"    {text}" + (f" Default: {default}." if default else ""),
        ]
    record.__doc__ = inspect.cleandoc(record.__doc__ or "") + "\n".join(["", *lines])
    return record


def user_type(entry: Field[Any]) -> tuple[Any, Any]:
    """Return the type of an option for users, without None, and the type of its items, or None."""
    kind = entry.metadata["option"].kind or entry.type
    if isinstance(kind, UnionType):
        kind = next(one for one in get_args(kind) if one is not type(None))
    items = get_args(kind)
    return get_origin(kind) or kind, items[0] if items else None


def default_value(entry: Field[Any]) -> Any:
    """Return the default of an option; REQUIRED if it has none."""
    if entry.default_factory is not MISSING:
        return entry.default_factory()
    return REQUIRED if entry.default is MISSING else entry.default


def default_text(entry: Field[Any]) -> str:
    """Return the default as the help shows it; empty if it shows none."""
    shown = entry.metadata["option"].shown
    if isinstance(shown, str):
        return shown
    value = default_value(entry)
    is_empty = value is None or value in ("", (), {}, REQUIRED)
    if not shown or is_empty or value is False:
        return ""
    return join_values(value) if isinstance(value, tuple) else str(value)


def join_values(values: Sequence[str | float]) -> str:
    """Return values as users separate them: '0.5,6' or 'raven,audacity'."""
    return ",".join(one if isinstance(one, str) else f"{one:g}" for one in values)


def parse_names(text: str) -> tuple[str, ...]:
    """Return names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_numbers(option: str, text: str) -> list[float]:
    """Return numbers that are separated by commas."""
    try:
        return [float(name) for name in parse_names(text)]
    except ValueError:
        raise OptionError(
            f"{option}: expected numbers that are separated by commas, got {text!r}"
        ) from None


def parse_pairs(option: str, entries: Sequence[str], example: str) -> dict[str, str]:
    """Return entries like NAME=VALUE as a mapping."""
    pairs = {}
    for entry in entries:
        name, equals, value = (part.strip() for part in entry.partition("="))
        if not (name and equals and value):
            raise OptionError(
                f"{option}: expected NAME=VALUE, such as {example}, got {entry!r}"
            )
        pairs[name] = value
    return pairs


# Corpora


@dataclass(frozen=True)
class AnnotationSource:
    """What annotates the recordings."""

    annotations: Path | None = option(
        None,
        "FILE_OR_DIR",
        "Annotation file, or folder of annotation files.",
        "-a",
        shown="files found next to the recordings",
    )
    format: str = option("auto", "NAME", "Format of the annotations: {formats}.")


@dataclass(frozen=True)
class ReadingOptions:
    """How annotation files are read."""

    columns: Mapping[str, str] = option(
        {},
        "NAME=COLUMN",
        "Name of a column in your files: label=Species reads the labels from the column Species. "
        "Can be repeated.",
        "-c",
        example="label=Species",
    )
    tiers: tuple[str, ...] = option(
        (),
        "NAME",
        "Tier of Praat TextGrid files that contains the calls. Can be repeated.",
        shown="recognised by its name and labels",
    )
    label: str | None = option(
        None,
        "TEXT",
        "Label of the rows that have none: their label is empty, or the file has no column of "
        "labels.",
    )
    rename: Mapping[str, str] = option(
        {},
        "FILE",
        "CSV file with the columns label and new_label, to rename labels. Calls whose new_label "
        "is empty are left out.",
        kind=Path,
    )
    time_unit: str | None = option(
        None,
        "UNIT",
        "Unit of the times in tables: s or ms.",
        choices=("s", "ms"),
        shown="s, or the unit in the names of columns",
    )
    follow_links: bool = flag(
        "Also read files through links that point outside the folder. Data managed with "
        "git-annex, DataLad or DVC has such links."
    )


@dataclass(frozen=True)
class KnownCorpus:
    """A corpus of the paper."""

    corpus: str | None = option(
        None,
        "NAME",
        "Name of a known corpus, ldc2010s05 or elephant-voices. Its settings are then the "
        "defaults.",
    )


RATES_HZ = (10.0, 1e7)
DURATIONS_S = {"low": 0.0, "high": 1e6, "unit": "s"}


@dataclass(frozen=True)
class CuttingOptions:
    """How segments are cut, and how their audio is read."""

    min_length_s: float = option(
        0.0,
        "S",
        "Shortest call, in seconds, as annotated. Shorter calls are left out. The paper's is 1.",
        shown="0, or 1 for a known corpus",
        **DURATIONS_S,
    )
    with_collar: bool = flag("Include the collar in the length for --min-length-s.")
    collar_s: float = option(
        0.0,
        "S",
        "Collar: audio added at each end of a call, in seconds.",
        shown="0, or the value of a known corpus",
        **DURATIONS_S,
    )
    channel: str = option(
        "mean",
        "first|mean|N",
        "Audio channel: first, mean of all channels, or a number (1 is the first).",
        shown="mean, or the channel of a known corpus",
        also=int,
    )
    rate_hz: int = option(
        16000,
        "HZ",
        "Sample rate of the segments.",
        low=RATES_HZ[0],
        high=RATES_HZ[1],
        unit="Hz",
    )
    peak_dbfs: float | None = option(
        -3.0, "DBFS", "Peak level of the segments.", low=-200.0, high=0.0, unit="dBFS"
    )
    normalise: bool = flag(
        "Scale each segment to the peak of --peak-dbfs.",
        default=True,
        shown="--normalise",
    )
    source_rate_hz: float | None = option(
        None,
        "HZ",
        "True sample rate, if recordings are time-expanded (slowed down). The times of "
        "annotations are then true times too.",
        low=RATES_HZ[0],
        high=RATES_HZ[1],
        unit="Hz",
        shown="the sample rate in the file",
    )


@dataclass(frozen=True)
class FoldOptions:
    """The folds and the categories of a corpus."""

    folds: int | None = option(
        None,
        "N",
        "Number of folds to build. All calls of a recording are in the same fold.",
        low=2,
        shown="5, or the number of a known corpus",
    )
    fold_file: Path | None = option(
        None,
        "FILE",
        "CSV file with your own folds: the columns segment and fold, or recording and fold. The "
        "file folds.csv of earlier results can be used.",
    )
    categories: Path | None = option(
        None,
        "FILE",
        "CSV file with the columns label and category. Adds scores that are averaged over "
        "categories (reduced scoring).",
    )
    group_duplicates: bool = flag(
        "Put recordings that contain the same call into one fold. Calls are the same if their "
        "embeddings are equal."
    )


# Evaluation

MAX_SAMPLES = 10**8


@dataclass(frozen=True)
class ProtocolOptions:
    """How support sets are drawn, scored and resampled; the defaults are the paper's."""

    shots: tuple[int, ...] = option(
        tuple(range(1, 41)),
        "K",
        "Values of k, the number of examples per class: 1-40, or 1,2,5,10; all takes every "
        "example.",
        kind=str,
        also=list,
        shown="1-40",
    )
    draws: int = option(
        100,
        "N",
        "Number of support sets (random sets of k examples per class) for each query.",
        low=1,
        high=65535,  # picks are stored in 16 bits
    )
    bootstraps: int = option(
        5000,
        "N",
        "Number of bootstrap samples, for --spread per-query.",
        low=1,
        high=MAX_SAMPLES,
    )
    shared_draws: int = option(
        1000,
        "N",
        "Number of support sets that all queries share, for --spread shared.",
        low=1,
        high=MAX_SAMPLES,
    )
    total_samples: int = option(
        1000,
        "N",
        "Number of random samples of recordings, for --spread total.",
        low=1,
        high=MAX_SAMPLES,
    )
    seed: int = option(0, "N", "Random seed. The same seed gives the same results.")
    sampler: str = option(
        "distinct",
        "distinct|replacement",
        "How the k examples of a class are drawn. distinct: without replacement. replacement: "
        "with replacement, so an example can be drawn twice.",
        choices=("distinct", "replacement"),
    )
    score: str = option(
        "log",
        "log|softmax",
        "Score that ranks the queries. log: the log-odds. softmax: the probability, as in the "
        "paper; it rounds to 0 and 1, and the effect of such ties is measured, which takes twice "
        "the time.",
        choices=("log", "softmax"),
    )
    classifiers: tuple[str, ...] = option(
        ("centroid",),
        "NAMES",
        "Classifiers without training, separated by commas. {classifiers}.",
        separated=True,
    )
    spreads: tuple[str, ...] = option(
        ("per-query", "shared", "total"),
        "NAME",
        "What the intervals account for. total: other calls could have been labelled, and other "
        "recordings made. shared: other calls could have been labelled. per-query: the bootstrap "
        "of the paper. all: all three.",
        key="spread",
        kind=str,
        shown="all",
    )
    permutations: int = option(
        199,
        "N",
        "Number of permutations of the labels, for the test against chance. 0: no test.",
        low=0,
        high=MAX_SAMPLES,
    )
    repeat_folds: int = option(
        1,
        "N",
        "Number of different divisions into folds. With 2 or more, partitions.csv shows how much "
        "mAP depends on the folds.",
        low=1,
        high=1000,
    )
    repeat_samples: int = option(
        1,
        "N",
        "Number of labelled sets, and of samples of recordings, for the sources of variation. "
        "With 2 or more, sensitivity.csv shows how much of the variation of mAP comes from folds, "
        "from examples and from queries.",
        low=1,
        high=50,  # their square is the number of samples
    )


@dataclass(frozen=True)
class TrainingOptions:
    """Which baselines are trained, and how."""

    train: tuple[str, ...] = option(
        (),
        "KINDS",
        "Baselines to train on all labelled calls, separated by commas: logistic (logistic "
        "regression), recurrent (RNN, GRU, LSTM), end-to-end (a transformer on the audio).",
        separated=True,
        shown="logistic",
    )
    per_k: bool = flag(
        "Also train logistic regression with k examples per class, for every k, on the same "
        "support sets as evaluate."
    )
    draws: int = option(
        100,
        "N",
        "With --per-k: number of support sets, the first ones of evaluate.",
        low=1,
        high=10**6,
    )
    spread: str = option(
        "total",
        "NAME",
        "With --per-k: what the intervals account for, as in evaluate. shared; total (also "
        "computes shared, twice the time); per-query (trains for every query, support set and k, "
        "which takes very long); all.",
        choices=("all", "total", "shared", "per-query"),
    )
    C: float | None = option(
        None,
        "NUMBER",
        "Inverse regularisation strength of logistic regression, as in scikit-learn.",
        shown="chosen by cross-validation in the training data; 0.1 with --per-k",
    )
    cell: str = option(
        "chosen",
        "NAME",
        "Kind of recurrent network: elman, gru or lstm; chosen: the best of the three by "
        "cross-validation in the training data; paper: the one that the paper used with the "
        "encoder.",
        choices=("chosen", "paper", "elman", "gru", "lstm"),
    )
    networks: int = option(
        3,
        "N",
        "Number of recurrent networks for each fold. Their scores are averaged.",
        low=1,
        high=10**6,
    )
    init: Path | None = option(
        None,
        "FILE",
        "Pretrained weights (AST or BEATs) from which the training of end-to-end starts.",
    )
    published: str = option(
        "",
        "VARIANT",
        "Variant of the published AERD networks to score too, such as EV_SUBCALL or LDC_POOLE. "
        "Needs the package aerd.",
    )


# Detections


@dataclass(frozen=True)
class ScoringOptions:
    """How detections are matched with calls, and scored."""

    iou: float = option(
        0.3,
        "SHARE",
        "Smallest overlap (intersection over union of their times) at which a detection and a "
        "call match.",
        low=0,
        high=1,
    )
    window_s: float = option(
        3.0, "S", "Length of the windows for scores by windows, in seconds."
    )
    threshold: float | None = option(
        None,
        "SCORE",
        "Lowest score. Detections with lower scores are left out.",
        shown="all detections",
    )
    false_alarms_per_hour: float | None = option(
        None,
        "N/h",
        "Allowed false alarms of each label per hour or day, for example 1/h or 2/d. Writes the "
        "thresholds that keep to it.",
        key="false_alarms",
        kind=str,
    )
    unknown: str | None = option(
        None,
        "LABEL",
        "Label of calls that nobody could identify. Detections of such calls are not counted as "
        "false.",
    )
    bins: int = option(4, "N", "With --reviewed: number of bins of scores.", low=1)
    samples: int = option(
        1000,
        "N",
        "Number of bootstrap samples of recordings, for the intervals.",
        low=1,
    )
    seed: int = option(0, "N", "Random seed. The same seed gives the same results.")


# Synthetic recordings


@dataclass(frozen=True)
class SoundscapeOptions:
    """What a recorder at a synthetic site records."""

    recordings: int = option(
        24,
        "N",
        "With --soundscape: number of recordings.",
        low=1,
        high=100_000,
        unit="recordings",
    )
    minutes: float = option(
        60.0,
        "MIN",
        "With --soundscape: length of each recording, in minutes.",
        low=1,
        high=1440,
        unit="minutes",
        shown="60",
    )
    every_minutes: float | None = option(
        None,
        "MIN",
        "With --soundscape: time from the start of one recording to the start of the next, in "
        "minutes.",
        low=1,
        high=10_000,
        unit="minutes",
        shown="60, or the length of a recording",
    )
    start: datetime = option(
        datetime(2026, 3, 2),  # a Monday
        "TIME",
        "With --soundscape: start of the first recording.",
        kind=str,
        shown="2026-03-02T00:00",
    )
    snr_db: tuple[float, ...] = option(
        (0.0, 6.0, 12.0),
        "DB",
        "With --soundscape: signal-to-noise ratios of the calls in dB, separated by commas. Each "
        "is used equally often.",
        separated=True,
    )
    calls_per_hour: float = option(
        20.0,
        "N",
        "With --soundscape: mean number of calls per hour.",
        low=0,
        high=3600,
        unit="calls",
        shown="20",
    )
    types: int = option(
        4, "N", "With --soundscape: number of call types.", low=1, high=15, unit="types"
    )
    examples: int = option(
        20,
        "N",
        "With --soundscape: number of examples of each type, in other recordings of the site and "
        "as clips.",
        low=0,
        high=1000,
        unit="examples",
    )
    overlap: bool = flag("With --soundscape: let calls overlap.")


# Only in study.toml


@dataclass(frozen=True)
class StudyOptions:
    """The keys at the top of a study file."""

    title: str | None = option(
        None, "", "Heading of the report.", shown="the name of the folder"
    )
    out: Path = option(Path("results"), "", "Folder of the results.")
    store: Path | None = option(
        None, "", "Folder of stored embeddings.", shown="the cache of the user"
    )
    device: str = option(
        "auto",
        "",
        "Processor, as --device of callshot run, which overrides it.",
        choices=("auto", "cpu", "cuda"),
    )


@dataclass(frozen=True)
class CorpusOptions:
    """The keys of a corpus that commands have as arguments."""

    audio: Path | None = option(None, "", "Folder of the recordings, or one recording.")
    known: str | None = option(
        None,
        "",
        "Known corpus, ldc2010s05 or elephant-voices: its settings, spellings, folds and "
        "categories.",
        shown="the name of the table, if that is one",
    )


@dataclass(frozen=True)
class ReferenceOptions:
    """Scores of others."""

    references: Path | None = option(
        None,
        "",
        "CSV file with scores of classifiers that were trained elsewhere.",
        example="baselines.csv",
    )


@dataclass(frozen=True)
class DisplayOptions:
    """What a report shows."""

    shots: tuple[int, ...] = option(
        (1, 2, 3, 4, 5, 10, 15, 20, 40), "", "Values of k in the rows of tables."
    )
    confusion: tuple[int, ...] = option(
        (1, 5, 20), "", "Values of k in the figures of confusions."
    )
    spread: str = option(
        "", "", "Spread in the tables of the paper.", shown="the first of the protocol"
    )
    figures: bool = flag(
        "Draw what no chart of the report shows.", default=True, shown="true"
    )
    pdf: bool = flag("Draw all figures, also as PDF, for a paper.")
    sounds: bool = flag(
        "Put sounds and spectrograms of calls into the report.",
        default=True,
        shown="true",
    )
    target: float | None = option(
        None,
        "",
        "Mean average precision, such as 0.8: the summary says how many examples per call type "
        "reach it.",
        example=0.8,
    )


# Table of a study file → the classes that have its keys
STUDY_TABLES: Mapping[str, Sequence[type[Any]]] = {
    "": (StudyOptions,),
    "corpus": (
        CorpusOptions,
        AnnotationSource,
        ReadingOptions,
        CuttingOptions,
        FoldOptions,
    ),
    "protocol": (ProtocolOptions,),
    "baselines": (ReferenceOptions, TrainingOptions),
    "report": (DisplayOptions,),
}
