"""Names of encoders for people: readable, different, and the user's own where there is one."""

from dataclasses import replace

import polars as pl
import pytest

from callshot.encoders.catalogue import ENCODERS
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.report.encoder_names import (
    explain_encoders,
    learn_options,
    name_encoders,
    with_names,
)
from summaries import RISING, baseline, make

NAMES = {
    "birdnet-v2.4": "BirdNET 2.4",
    "birdnet-v2.4[speed=2]": "BirdNET 2.4 (played 2 times as fast)",
    "birdnet-v2.4[speed=2+4]": "BirdNET 2.4 (played 2 and 4 times as fast)",
    "birdnet-v2.4[speed=auto]": "BirdNET 2.4 (at automatic speed)",
    "mfcc[n_fft=512,band=300-1000]": "MFCC (n_fft=512, 300–1000 Hz)",
    "birdnet-v2.4[speed=2]+mfcc": "BirdNET 2.4 (played 2 times as fast) + MFCC",
    "hubert-base-l7": "HuBERT base layer 7",
    "random": "random",
    "BirdNET × 2": "BirdNET × 2",
    "our + own": "our + own",
}


@pytest.mark.parametrize(("typed", "name"), NAMES.items())
def test_an_encoder_has_a_name_that_a_biologist_knows(typed, name):
    assert name_encoders([typed]) == {typed: name}


def test_every_encoder_has_a_short_name_of_its_own_and_says_what_it_was_trained_on():
    names = name_encoders([spec.name for spec in ENCODERS])
    assert len(set(names.values())) == len(ENCODERS)
    for spec in ENCODERS:
        name = names[spec.name]
        training, typed = explain_encoders([spec.name])[name]
        assert typed == spec.name
        assert spec.title == f"{name} ({training})"
        assert not set(name) & set("(),;")


def test_encoders_that_would_have_one_name_keep_those_of_the_study():
    typed = ["mfcc", "mfcc[scale=none]", "yamnet", "YAMNet"]
    names = name_encoders(typed)
    assert names["mfcc"] == "MFCC"
    assert (names["yamnet"], names["YAMNet"]) == ("yamnet", "YAMNet")
    assert len(set(names.values())) == len(typed)


@pytest.mark.parametrize("typed", [name for name in NAMES if "]+" not in name])
def test_the_options_of_learn_find_the_encoder_of_the_study(typed):
    words = learn_options(typed).split()
    if not words:
        assert typed in ("BirdNET × 2", "our + own")
        return
    options = dict(word.split("=", 1) for word in words[3::2])
    assert words[0] == "--encoder"
    assert set(words[2::2]) <= {"--set"}
    expected = typed.replace("speed=2+4", "speed=auto")
    assert find_joined_encoder(words[1], options).name == expected


def test_no_frame_and_no_table_keeps_an_old_name_and_numbers_stay():
    encoders = ("mfcc", "birdnet-v2.4[speed=2]")
    row = baseline(0.4, encoder=encoders[1])
    results = make(dict.fromkeys(encoders, RISING), baselines=[row])
    named = with_names(results)
    short = {"MFCC", "BirdNET 2.4 (played 2 times as fast)"}
    evaluation = named.evaluation
    assert (
        set(evaluation.encoders) == set(named.baselines["encoder"]) | {"MFCC"} == short
    )
    compared = {*evaluation.differences["one"], *evaluation.differences["other"]}
    assert compared == short | {"LR on BirdNET 2.4 (played 2 times as fast)"}
    for name, frame in vars(results.evaluation).items():
        if isinstance(frame, pl.DataFrame):
            others = ["encoder", "one", "other"]
            kept = [column for column in frame.columns if column not in others]
            assert vars(evaluation)[name].select(kept).equals(frame.select(kept))


def test_notes_have_the_names_that_the_page_shows():
    encoders = ("mfcc", "birdnet-v2.4[speed=auto]", "ours")
    results = make(dict.fromkeys(encoders, RISING))
    notes = [
        "mfcc, shared: scores tie; see mfcc.csv or mfcc/ties.csv",
        "birdnet-v2.4[speed=auto]: chosen: birdnet-v2.4[speed=2+4]",
        "ours: 'odd[call]' is in 2 folds",
    ]
    evaluation = replace(results.evaluation, notes=notes)
    named = with_names(replace(results, notes=notes, evaluation=evaluation))
    assert named.notes == named.evaluation.notes
    assert named.notes == [
        "MFCC, shared: scores tie; see mfcc.csv or mfcc/ties.csv",
        "BirdNET 2.4 (at automatic speed): chosen: "
        "BirdNET 2.4 (played 2 and 4 times as fast)",
        notes[2],
    ]
