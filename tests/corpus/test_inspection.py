"""A look at a folder tells what the protocol could do with it, and writes nothing."""

import pytest

from callshot.corpus.inspection import inspect_corpus
from callshot.corpus.known_corpora import CORPORA, find_corpus
from callshot.corpus.options import SegmentationOptions
from callshot.errors import OptionError
from sounds import record


def sing(folder, recordings: int, calls: dict[str, int], length_s: float = 1.5) -> None:
    """Record, and put `calls` labels in as many recordings as they say."""
    rows = ["recording,start_s,end_s,label"]
    for n in range(recordings):
        record(folder / f"r{n}.wav", seconds=8)
        rows += [
            f"r{n}.wav,{i * length_s},{(i + 1) * length_s},{label}"
            for i, (label, count) in enumerate(calls.items())
            if n < count
        ]
    (folder / "calls.csv").write_text("\n".join(rows))


def test_it_tells_which_labels_folds_would_evaluate_and_how_far_they_are_complete(tmp_path):
    sing(tmp_path, 6, {"roar": 6, "rumble": 5, "blow": 2})
    before = sorted(tmp_path.iterdir())
    found = inspect_corpus(tmp_path)
    assert found.possible == {2: 3, 3: 2, 4: 2, 5: 2, 6: 1}
    assert {c.label: (c.eligible, c.complete_to_k) for c in found.classes} == {
        "roar": (True, 4),
        "rumble": (True, 4),
        "blow": (False, 1),
    }
    assert found.complete_shots == 4
    assert found.folds is not None
    assert found.folds.count == 5
    assert found.minimum_s is None
    assert sorted(tmp_path.iterdir()) == before


def test_it_tries_a_shorter_minimum_where_most_calls_are_short(tmp_path):
    sing(tmp_path, 5, {"peep": 5}, length_s=0.06)
    found = inspect_corpus(tmp_path)
    assert found.minimum_s == 0.05
    assert len(found.segmentation.segments) == 5
    assert inspect_corpus(tmp_path, options=SegmentationOptions(minimum_s=0.01)).minimum_s is None


def test_folds_that_the_annotations_give_are_taken(tmp_path):
    sing(tmp_path, 4, {"roar": 4, "rumble": 4})
    table = (tmp_path / "calls.csv").read_text().splitlines()
    folded = [f"{table[0]},fold", *(f"{row},{int(row[1]) % 2}" for row in table[1:])]
    (tmp_path / "calls.csv").write_text("\n".join(folded))
    found = inspect_corpus(tmp_path)
    assert found.folds is not None
    assert (found.folds.origin, found.folds.count, found.complete_shots) == ("given", 2, 2)


def test_too_few_recordings_for_the_folds_are_no_error(tmp_path):
    sing(tmp_path, 3, {"roar": 3})
    found = inspect_corpus(tmp_path)
    assert (found.folds, found.classes, found.possible) == (None, [], {2: 1, 3: 1})
    assert inspect_corpus(tmp_path, folds=3).complete_shots == 2


def test_a_corpus_brings_its_own_number_of_folds(tmp_path):
    sing(tmp_path, 10, {"roar": 10})
    folds = inspect_corpus(tmp_path, corpus=CORPORA["ldc2010s05"]).folds
    assert folds is not None
    assert folds.count == 10


def test_an_unknown_corpus_is_answered_with_the_nearest():
    assert find_corpus("elephant-voices").folds == 5
    with pytest.raises(
        OptionError,
        match=r"'ldc2010' is unknown; did you mean ldc2010s05\? Known: ldc2010s05, elephant",
    ):
        find_corpus("ldc2010")


def test_every_category_is_of_a_known_label_and_labels_keep_their_own_spelling():
    for corpus in CORPORA.values():
        assert set(corpus.categories) <= set(corpus.labels)
        assert [corpus.spell(label.upper().replace(" ", "_")) for label in corpus.labels] == list(
            corpus.labels
        )
    assert len(CORPORA["elephant-voices"].labels) == 12
    assert len(set(CORPORA["elephant-voices"].categories.values())) == 7
    assert set(CORPORA["ldc2010s05"].categories.values()) == {"rumble", "roar", "bark", "trumpet"}


@pytest.mark.parametrize(
    ("written", "spelt"),
    [
        ("Long Roar", "longroar"),
        ("longroar rumble", "longroar-rumble"),
        ("TRUNK_BOUNCE?", "trunk-bounce"),
        ("Musth_Chirp 3", "musth-chirp-3"),
        ("Roar 2?", "roar"),
        ("?", "?"),
        ("象 ", "象"),
        ("12", "12"),
    ],
)
def test_labels_of_ldc_are_spelt_one_way(written, spelt):
    assert CORPORA["ldc2010s05"].spell(written) == spelt


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"collar_s": -1}, "collar"),
        ({"minimum_s": float("nan")}, "minimum length"),
        ({"rate_hz": 0}, "rate"),
        ({"channel_rule": "left"}, "channel"),
        ({"level_dbfs": 3.0}, "level"),
        ({"source_rate_hz": 0.5}, "source rate"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(options, said):
    with pytest.raises(OptionError, match=said):
        SegmentationOptions(**options)
