"""What a corpus holds: labels, possible folds, known corpora, and its statistics."""

import pytest

from callshot.corpus.options import CORPORA, SegmentationOptions
from callshot.corpus.segment_table import inspect_corpus, measure_corpus, read_stats
from callshot.corpus.segments import segment_corpus
from callshot.errors import OptionError
from callshot.records import DurationStats
from callshot.study.file_steps import segment_files
from sounds import record


def write_corpus(folder, recordings, calls, length_s=1.5):
    """Write recordings, with each label in as many of them as `calls` says."""
    rows = ["recording,start_s,end_s,label"]
    for n in range(recordings):
        record(folder / f"r{n}.wav", seconds=8)
        rows += [
            f"r{n}.wav,{i * length_s},{(i + 1) * length_s},{label}"
            for i, (label, count) in enumerate(calls.items())
            if n < count
        ]
    (folder / "calls.csv").write_text("\n".join(rows))


def test_inspection_counts_the_labels_that_folds_would_evaluate_and_writes_nothing(
    tmp_path,
):
    write_corpus(tmp_path, 6, {"roar": 6, "rumble": 5, "blow": 2})
    before = sorted(tmp_path.iterdir())
    inspection = inspect_corpus(tmp_path)
    assert inspection.labels_by_folds == {2: 3, 3: 2, 4: 2, 5: 2, 6: 1}
    assert {c.label: (c.eligible, c.complete_to_k) for c in inspection.classes} == {
        "roar": (True, 4),
        "rumble": (True, 4),
        "blow": (False, 1),
    }
    assert inspection.complete_shots == 4
    assert inspection.folds is not None
    assert inspection.folds.count == 5
    assert sorted(tmp_path.iterdir()) == before


def test_folds_in_the_annotations_are_used(tmp_path):
    write_corpus(tmp_path, 4, {"roar": 4, "rumble": 4})
    header, *rows = (tmp_path / "calls.csv").read_text().splitlines()
    with_folds = [f"{header},fold", *(f"{row},{int(row[1]) % 2}" for row in rows)]
    (tmp_path / "calls.csv").write_text("\n".join(with_folds))
    inspection = inspect_corpus(tmp_path)
    assert (inspection.folds.origin, inspection.folds.count) == ("given", 2)
    assert inspection.complete_shots == 2


def test_too_few_recordings_for_the_folds_are_not_an_error(tmp_path):
    write_corpus(tmp_path, 3, {"roar": 3})
    inspection = inspect_corpus(tmp_path)
    found = (inspection.folds, inspection.classes, inspection.labels_by_folds)
    assert found == (None, [], {2: 1, 3: 1})
    assert inspect_corpus(tmp_path, folds=3).complete_shots == 2


def test_every_category_is_of_a_listed_label_and_listed_labels_keep_their_spelling():
    for corpus in CORPORA.values():
        assert set(corpus.categories) <= set(corpus.labels)
        shouted = [label.upper().replace(" ", "_") for label in corpus.labels]
        assert [*map(corpus.spell, shouted)] == list(corpus.labels)
    voices = CORPORA["elephant-voices"]
    assert (len(voices.labels), len(set(voices.categories.values()))) == (12, 7)
    four = {"rumble", "roar", "bark", "trumpet"}
    assert set(CORPORA["ldc2010s05"].categories.values()) == four


@pytest.mark.parametrize(
    ("label", "expected"),
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
def test_labels_of_ldc_get_one_spelling(label, expected):
    assert CORPORA["ldc2010s05"].spell(label) == expected


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"collar_s": -1}, "collar"),
        ({"min_length_s": float("nan")}, "min_length_s"),
        ({"rate_hz": 0}, "rate"),
        ({"channel": "left"}, "channel"),
        ({"peak_dbfs": 3.0}, "peak_dbfs"),
        ({"source_rate_hz": 0.5}, "source_rate_hz"),
    ],
)
def test_an_impossible_option_of_segmentation_is_an_error(options, match):
    with pytest.raises(OptionError, match=match):
        SegmentationOptions(**options)


@pytest.fixture
def small_corpus(tmp_path):
    for n, seconds in enumerate((4.0, 8.0, 6.0)):
        record(tmp_path / f"r{n}.wav", seconds=seconds, channels=1 + n % 2)
    (tmp_path / "r0.txt").write_text("0\t1\troar\n1\t1.5\tbark\n")
    (tmp_path / "r1.txt").write_text("0\t3\troar\n")
    return tmp_path


def test_statistics_equal_a_count_by_hand(small_corpus, tmp_path_factory):
    options = SegmentationOptions(min_length_s=1.0, collar_s=0.25)
    stats = measure_corpus(segment_corpus(small_corpus, options=options), options)
    assert (stats.rates_hz, stats.channels) == ((8000.0,), (1, 2))
    assert (stats.kinds, stats.labels) == (("WAV PCM_16",), 2)
    deviation_s = pytest.approx((8 / 3) ** 0.5)
    assert stats.recordings == DurationStats(3, 18.0, 6.0, 4.0, 8.0, deviation_s)
    assert (stats.annotated.count, stats.annotated.total_s) == (2, 12.0)
    assert (stats.calls.count, stats.calls.shortest_s) == (3, 0.5)
    assert stats.segments == DurationStats(2, 4.0, 2.0, 1.0, 3.0, 1.0)


def test_statistics_are_read_back_from_the_files_of_a_run(
    small_corpus, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("folder")
    segmentation = segment_files(small_corpus, folder)
    stats, notes = read_stats(folder / "segments.json")
    assert stats == measure_corpus(segmentation, SegmentationOptions())
    assert notes == list(segmentation.notes)
