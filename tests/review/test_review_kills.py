import shutil
from collections import Counter

import numpy as np
import soundfile

from callshot.review.journal import JOURNAL, read_journal
from callshot.review.results import read_review
from killed_review import Labeller, decide_through_kills
from review_pages import ReviewServer


def test_boxes_that_were_answered_as_saved_are_there_once(tmp_path):
    recordings = tmp_path / "recordings"
    recordings.mkdir()
    soundfile.write(recordings / "a.wav", np.zeros(80_000), 8000)
    server = ReviewServer(recordings, command="label")
    folder = recordings / "labels"

    def check(answered):
        counts = Counter(entry.uuid for entry in read_journal(folder).entries)
        assert not set(answered) - counts.keys()
        assert set(counts.values()) <= {1}

    decide_through_kills(server, ("ada", "bob"), 0, 60, 2, check, Labeller)
    # Of five changes, one box is left.
    assert read_review(folder).events["reviewer"].to_list().count("ada") == 6


def test_decisions_that_were_answered_as_saved_are_there_once(scan, tmp_path):
    server = ReviewServer(scan, "--out", str(tmp_path / "review"))
    copies = []

    def check(answered):
        folder = tmp_path / f"copy-{len(copies)}"
        folder.mkdir()
        shutil.copy(tmp_path / "review" / JOURNAL, folder / JOURNAL)
        counts = Counter(entry.uuid for entry in read_journal(folder).entries)
        assert not set(answered) - counts.keys()
        assert set(counts.values()) <= {1}
        copies.append(folder)

    clickers = decide_through_kills(server, ("ada", "bob"), 20, 60, 2, check)
    entries = read_journal(copies[-1]).entries
    assert len(entries) == 60
    assert {entry.reviewer for entry in entries} == {"ada", "bob"}
    assert sum(one.repeated for one in clickers) > 0
