"""What a report tells of a corpus: measured on small corpora by hand, and read back from the files of a run."""

from pathlib import Path

import pytest

from callshot.corpus.inspection import measure_corpus, measure_durations, read_stats
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segments import segment_corpus
from callshot.errors import InputError
from callshot.records import DurationStats
from callshot.study.file_steps import segment_files
from sounds import record


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for n, seconds in enumerate((4.0, 8.0, 6.0)):
        record(tmp_path / f"r{n}.wav", seconds=seconds, channels=1 + n % 2)
    (tmp_path / "r0.txt").write_text("0\t1\troar\n1\t1.5\tbark\n")
    (tmp_path / "r1.txt").write_text("0\t3\troar\n")
    return tmp_path


def test_facts_are_what_a_hand_would_count(corpus: Path) -> None:
    options = SegmentationOptions(minimum_s=1.0, collar_s=0.25)
    facts = measure_corpus(segment_corpus(corpus, options=options), options)
    assert (facts.rates_hz, facts.channels, facts.kinds, facts.labels) == (
        (8000.0,),
        (1, 2),
        ("WAV PCM_16",),
        2,
    )
    assert facts.recordings == DurationStats(3, 18.0, 6.0, 4.0, 8.0, pytest.approx((8 / 3) ** 0.5))
    assert (facts.annotated.count, facts.annotated.total_s) == (2, 12.0)
    assert (facts.calls.count, facts.calls.shortest_s) == (3, 0.5)
    assert facts.segments == DurationStats(2, 4.0, 2.0, 1.0, 3.0, 1.0)


def test_facts_come_back_from_the_files_of_a_run(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    out = tmp_path_factory.mktemp("out")
    found = segment_files(corpus, out)
    facts, notes = read_stats(out / "segments.json")
    assert facts == measure_corpus(found, SegmentationOptions())
    assert notes == list(found.notes)


def test_nothing_has_no_length() -> None:
    assert measure_durations([]) == DurationStats(0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("text", ["", "{}", '{"facts": {}, "notes": []}', '{"facts": 3}'])
def test_a_file_that_tells_no_facts_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "segments.json").write_text(text)
    with pytest.raises(InputError, match=r"expected the segments.json of callshot segment"):
        read_stats(tmp_path / "segments.json")
