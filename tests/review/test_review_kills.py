import shutil
from collections import Counter

from callshot.review.journal import JOURNAL, read_journal
from killed_review import decide_through_kills
from review_pages import ReviewServer


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
