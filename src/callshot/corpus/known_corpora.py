"""The corpora of the paper, so that a user who has one types one line.

    callshot segment AUDIO_DIR --corpus ldc2010s05 --out DIR

A corpus has its own number of folds, segmentation options, labels with their spellings, and the
categories of the AERD comparison. Labels outside its list are kept, in the same spelling.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from callshot.corpus.options import PAPER_MINIMUM_S, SegmentationOptions
from callshot.errors import check_choice


@dataclass(frozen=True)
class Corpus:
    """One known corpus. `joint` goes between the words of a label that is not in `labels`."""

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
        """Return the categories of the labels; None if no label has one."""
        return {
            label: name for label, name in self.categories.items() if label in labels
        } or None

    def spell(self, label: str) -> str:
        """Return a label as the corpus spells it: lower case, no `?`, one joint between words.

        Digits are dropped if that gives a label in the list.

        >>> CORPORA["ldc2010s05"].spell("Long_Roar-Rumble ?2")
        'longroar-rumble'
        >>> CORPORA["elephant-voices"].spell("Estrous-Rumble")
        'oestrous rumble'
        """
        listed = self._labels_by_key.get(label_key(label))
        words = re.sub(r"[\W_]+", " ", label.casefold()).split()
        return listed or self.joint.join(words) or label


def find_corpus(name: str) -> Corpus:
    """Return a corpus by its name; the error for an unknown name suggests the nearest one."""
    check_choice("corpus", name, CORPORA)
    return CORPORA[name]


def default_options(corpus: Corpus | None) -> SegmentationOptions:
    """Return the segmentation options of a corpus, or the defaults if there is no known corpus."""
    if corpus is None:
        return SegmentationOptions()
    return corpus.options


@lru_cache(maxsize=10_000)
def label_key(label: str) -> str:
    """Return only the letters of a label, for comparing spellings; "oestrous" equals "estrous"."""
    return re.sub(r"[\W\d_]+", "", label.casefold()).replace("oestr", "estr")


LDC = Corpus(
    name="ldc2010s05",
    title="Asian Elephant Vocalizations (LDC2010S05)",
    folds=10,
    # The second channel holds spoken notes.
    options=SegmentationOptions(
        channel="first", collar_s=0.25, min_length_s=PAPER_MINIMUM_S
    ),
    # The ten types that the paper evaluates; it does not name the other six.
    labels=(
        "growl",
        "longroar-rumble",
        "rumble",
        "longroar",
        "bark-rumble",
        "trumpet",
        "blow",
        "roar-rumble",
        "trunk-bounce",
        "roar",
    ),
    categories={
        "growl": "rumble",
        "rumble": "rumble",
        "longroar-rumble": "roar",
        "longroar": "roar",
        "roar-rumble": "roar",
        "roar": "roar",
        "bark-rumble": "bark",
        "trumpet": "trumpet",
    },
    joint="-",
)

AERD_SUBCALLS = (
    "comment rumble",
    "oestrous rumble",
    "female chorus",
    "conflict roar",
    "trumpet blast",
    "grumbling rumble",
    "pulsated play trumpet",
)

ELEPHANT_VOICES = Corpus(
    name="elephant-voices",
    title="Elephant Voices",
    folds=5,
    options=SegmentationOptions(
        channel="mean", collar_s=0.0, min_length_s=PAPER_MINIMUM_S
    ),
    # The twelve subcall types that the paper evaluates; it does not name the other fifteen.
    labels=(
        *AERD_SUBCALLS,
        "greeting rumble",
        "separated rumble",
        "lets-go rumble",
        "musth rumble",
        "begging rumble",
    ),
    categories={label: label for label in AERD_SUBCALLS},
    joint=" ",
)

CORPORA = {corpus.name: corpus for corpus in (LDC, ELEPHANT_VOICES)}
