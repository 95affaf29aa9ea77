"""How segments are cut, the corpora of the paper, and new names of labels from a CSV file."""

import re
import tomllib
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from callshot.corpus.annotations.delimited import find_columns
from callshot.corpus.annotations.rows import (
    AnnotationOptions,
    read_table,
)
from callshot.corpus.audio_files import check_channel_rule
from callshot.errors import (
    InputError,
    OptionError,
    check_choice,
    count_text,
    quote,
    quote_names,
)
from callshot.options import (
    CuttingOptions,
    Given,
    ReadingOptions,
    check_values,
    document,
    select_options,
)

PAPER_MINIMUM_S = 1.0
Renames = Path | str | Mapping[str, str]
COLUMNS = {
    "label": ("label", "old_label", "old"),
    "new_label": ("new_label", "new", "name"),
}


@document
@dataclass(frozen=True)
class SegmentationOptions(CuttingOptions):
    """How segments are cut from recordings; the defaults are the paper's but for the minimum.

    Calls of any length are segments: the paper's minimum of 1 s would drop most calls of many
    birds. Known corpora have it. A `peak_dbfs` of None leaves the level as it is, like `normalise`
    False.

    Examples
    --------
    >>> SegmentationOptions(collar_s=-1)
    Traceback (most recent call last):
    callshot.errors.OptionError: collar_s: expected 0 to 1000000 s, got -1
    """

    def __post_init__(self) -> None:
        check_channel_rule(self.channel)
        check_values(self)
        if not self.normalise:
            object.__setattr__(self, "peak_dbfs", None)


@dataclass(frozen=True)
class Corpus:
    """One known corpus, as `corpora.toml` describes it."""

    name: str
    title: str
    folds: int
    options: SegmentationOptions
    labels: tuple[str, ...]
    categories: Mapping[str, str]
    joint: str

    @cached_property
    def _labels_by_key(self) -> dict[str, str]:
        return {label_key(name): name for name in self.labels}

    def has_label(self, label: str) -> bool:
        """Return whether the corpus has this label, in any spelling."""
        return label_key(label) in self._labels_by_key

    def categories_of(self, labels: Collection[str]) -> dict[str, str] | None:
        """Return the category of each of the labels that has one; None if none has."""
        return {
            label: name for label, name in self.categories.items() if label in labels
        } or None

    def spell(self, label: str) -> str:
        """Return a label as listed, or in lower case with the corpus's joint between words."""
        listed = self._labels_by_key.get(label_key(label))
        if listed is not None:
            return listed
        words = re.sub(r"[\W_]+", " ", label.casefold()).split()
        return self.joint.join(words) or label


def default_options(corpus: Corpus | None) -> SegmentationOptions:
    """Return the segmentation options of a corpus, or the defaults if there is no known corpus."""
    if corpus is None:
        return SegmentationOptions()
    return corpus.options


@lru_cache(maxsize=10_000)
def label_key(label: str) -> str:
    """Return only the letters of a label, for comparing spellings; "oestrous" equals "estrous"."""
    return re.sub(r"[\W\d_]+", "", label.casefold()).replace("oestr", "estr")


_CORPORA_FILE = files(__package__) / "corpora.toml"
CORPORA = {
    name: Corpus(
        name=name,
        options=SegmentationOptions(**values.pop("options")),
        labels=tuple(values.pop("labels")),
        **values,
    )
    for name, values in tomllib.loads(_CORPORA_FILE.read_text(encoding="utf-8")).items()
}


def read_renames(path: Path) -> dict[str, str]:
    """Read a table of labels and their new labels; labels that are left out have an empty one."""
    _, ((line, header), *rows) = read_table(path, [])
    columns = find_columns(header, COLUMNS)
    if len(columns) < len(COLUMNS):
        raise InputError(
            f"{path}: line {line}: expected the columns label and new_label, "
            f"got {quote_names(header)}"
        )
    renames: dict[str, str] = {}
    for line, cells in rows:
        if len(cells) < len(header):
            fields = count_text(len(header), "field")
            raise InputError(
                f"{path}: line {line}: expected {fields} as in the header, got {len(cells)}"
            )
        label = normalize_label(cells[columns["label"]])
        new_label = cells[columns["new_label"]].strip()
        first = renames.setdefault(label, new_label)
        if first != new_label:
            raise InputError(
                f"{path}: line {line}: {quote(label)} becomes {quote(new_label)} here "
                f"but {quote(first)} above; keep one"
            )
    return renames


def make_annotation_options(
    *,
    columns: Mapping[str, str] | None = None,
    tiers: Sequence[str] = (),
    rename: Renames | None = None,
    exclude: Sequence[Path] = (),
    **options: Any,
) -> AnnotationOptions:
    """Return AnnotationOptions; `rename` may be a file, which is then no annotation file."""
    excluded = tuple(exclude)
    if isinstance(rename, str | Path):
        excluded += (Path(rename),)
        rename = read_renames(Path(rename))
    return AnnotationOptions(
        columns=dict(columns or {}),
        tiers=tuple(tiers),
        exclude=excluded,
        rename=rename or {},
        **options,
    )


def read_source(given: Given, exclude: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the arguments of `segment_corpus` for options by name, with a corpus's defaults."""
    corpus = None
    if given.get("corpus") is not None:
        check_choice("corpus", given["corpus"], CORPORA)
        corpus = CORPORA[given["corpus"]]
    cutting = select_options(given, CuttingOptions)
    if "channel" in cutting:
        cutting["channel"] = str(cutting["channel"])
    if cutting.get("peak_dbfs") is not None and not cutting.get("normalise", True):
        raise OptionError(
            "peak_dbfs: has no effect without normalise; remove one of the two"
        )
    reading = select_options(given, ReadingOptions)
    return {
        "annotations": given.get("annotations"),
        "options": replace(default_options(corpus), **cutting),
        "format": given.get("format", "auto"),
        "annotation_options": make_annotation_options(**reading, exclude=exclude),
        "corpus": corpus,
    }


def normalize_label(label: str) -> str:
    """Return a label without space around it, and with composed accents."""
    return unicodedata.normalize("NFC", label.strip())


def rename_label(label: str, renames: Mapping[str, str]) -> str:
    """Return the new label, stripped; raise InputError if it is empty."""
    old = normalize_label(label)
    new = renames.get(old, label).strip()
    if not new and old in renames:
        raise InputError(f"left out: label {quote(old)} has no new label in --rename")
    return new


def describe_renaming(
    labels: Collection[str], renames: Mapping[str, str]
) -> Iterator[str]:
    """Yield notes on labels that are renamed, and on labels in `renames` that no call has."""
    used = renames.keys() & set(map(normalize_label, labels))
    if used:
        yield f"labels renamed: {quote_names(sorted(used))}"
    unused = sorted(renames.keys() - used)
    if unused:
        yield f"labels to rename that no call has: {quote_names(unused)}"
