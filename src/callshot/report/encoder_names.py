"""Encoders as a study calls them → names for people, and what each encoder is.

Files of numbers have the name that is typed, birdnet-v2.4[speed=2]; the page has "BirdNET 2.4
(played 2 times as fast)". A title of study.toml stays.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.joined_encoder import (
    JOIN,
    JOIN_OUTSIDE_BRACKETS,
    find_joined_encoder,
    parse_encoder,
)
from callshot.errors import CallshotError
from callshot.fewshot.differences import baseline_name
from callshot.records import CorpusResults, Evaluation

PART = r"[\w.-]*\w(?:\[[^\]\s]*\])?"
ENCODER_IN_TEXT = re.compile(rf"(?<![\w/.-]){PART}(?:\+{PART})*(?![\w/-])")


def name_encoders(encoders: Sequence[str]) -> dict[str, str]:
    """Return the names for people, by the names in the study. All are different.

    >>> name_encoders(["birdnet-v2.4[speed=1+2]", "mfcc", "ours"])
    {'birdnet-v2.4[speed=1+2]': 'BirdNET 2.4 (played 1 and 2 times as fast)', \
'mfcc': 'MFCC', 'ours': 'ours'}
    """
    names = {encoder: _name_encoder(encoder) for encoder in encoders}
    uses = Counter(names.values())
    return {
        encoder: name if uses[name] == 1 else encoder for encoder, name in names.items()
    }


def _name_encoder(encoder: str) -> str:
    """Return the name of an encoder for people; a name that the user gave is returned as it is."""
    if not _is_in_catalogue(encoder):
        return encoder
    names = []
    for title, options in _split(encoder):
        name = title.partition(" (")[0]  # how it was trained follows, in brackets
        if options:
            name += f" ({', '.join(map(_describe_option, options, options.values()))})"
        names.append(name)
    return " + ".join(names)


def explain_encoders(encoders: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the training of encoders and their names in the study, by their names for people.

    Names that a user gave are left out.

    >>> explain_encoders(["mfcc[speed=2]"])
    {'MFCC (played 2 times as fast)': ('a description of the spectrum, no training', \
'mfcc[speed=2]')}
    """
    explanations = {}
    for encoder, name in name_encoders(encoders).items():
        if _is_in_catalogue(encoder):
            # A title is a name, and in brackets how the encoder was trained.
            parts = [title.partition(" (")[2] for title, _ in _split(encoder)]
            training = "; ".join(part.removesuffix(")") for part in parts)
            explanations[name] = training, encoder
    return explanations


def learn_options(encoder: str) -> str:
    """Return the options of `callshot learn` for an encoder of a study; "" if there are none.

    A model has one encoder at one speed, which `learn` chooses.

    >>> learn_options("mfcc[speed=1+2]"), learn_options("ours"), learn_options("mfcc+yamnet")
    ('--encoder mfcc --set speed=auto', '', '')
    """
    if not _is_in_catalogue(encoder) or len(_split(encoder)) > 1:
        return ""
    name, options = parse_encoder(encoder)
    if JOIN in options.get("speed", ""):
        options["speed"] = "auto"
    choices = [f" --set {option}={value}" for option, value in options.items()]
    return f"--encoder {name}{''.join(choices)}"


def _is_in_catalogue(encoder: str) -> bool:
    """Return whether a name in a study is that of encoders of the catalogue."""
    try:
        find_joined_encoder(encoder)
    except CallshotError:
        return False
    return True


def _split(encoder: str) -> list[tuple[str, dict[str, str]]]:
    """Return the title and the options of each of the encoders that are joined in a name."""
    parts = map(parse_encoder, JOIN_OUTSIDE_BRACKETS.split(encoder))
    return [(find_encoder(name).title, options) for name, options in parts]


def _describe_option(option: str, value: str) -> str:
    """Return an option of an encoder in words where there are any."""
    if option == "speed" and value == "auto":
        return "at automatic speed"
    if option == "speed":
        return f"played {value.replace(JOIN, ' and ')} times as fast"
    if option == "band" and value != "auto":
        return f"{value.replace('-', '–')} Hz"
    return f"{option}={value}"


def name_encoders_in(note: str, names: Mapping[str, str]) -> str:
    """Return a note in which encoders have their names for people.

    `names` are those of the encoders of a study. A name with options may be of another encoder.

    >>> name_encoders_in("mfcc[speed=auto]: chosen: mfcc[speed=2]; see mfcc.csv", {"mfcc": "MFCC"})
    'MFCC (at automatic speed): chosen: MFCC (played 2 times as fast); see mfcc.csv'
    """

    def find_name(match: re.Match[str]) -> str:
        word = match[0]
        if "[" in word:
            return names.get(word, _name_encoder(word))
        return names.get(word, word)

    return ENCODER_IN_TEXT.sub(find_name, note)


def with_names(results: CorpusResults) -> CorpusResults:
    """Return results whose encoders have names for people, in all frames, tables and notes."""
    names = name_encoders(results.evaluation.encoders)
    notes_of_study = [name_encoders_in(note, names) for note in results.notes]
    notes = [name_encoders_in(note, names) for note in results.evaluation.notes]
    # Differences name baselines, too.
    for baseline in results.baselines.iter_rows(named=True):
        encoder = names.get(baseline["encoder"], "")
        names[baseline_name(baseline)] = baseline_name(baseline | {"encoder": encoder})

    def rename(frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame with other names in the columns that have names of encoders."""
        columns = [
            name for name in ("encoder", "one", "other") if name in frame.columns
        ]
        return frame.with_columns(pl.col(columns).replace(names))

    def rename_all(evaluation: Evaluation) -> Evaluation:
        """Return an evaluation with other names in all its frames."""
        frames: dict[str, Any] = {
            name: rename(value)
            for name, value in vars(evaluation).items()
            if isinstance(value, pl.DataFrame)
        }
        return replace(evaluation, **frames)

    others = results.other_classifiers
    return replace(
        results,
        notes=notes_of_study,
        evaluation=replace(rename_all(results.evaluation), notes=notes),
        other_classifiers=None if others is None else rename_all(others),
        tables=[replace(one, encoder=names[one.encoder]) for one in results.tables],
        baselines=rename(results.baselines),
        refinement=rename(results.refinement),
    )
