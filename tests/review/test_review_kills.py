from collections import Counter

from callshot.review.journal import read_journal
from killed_review import KillableServer, decide_through_kills


def test_decisions_that_were_answered_as_saved_are_there_once(scan, tmp_path):
    server = KillableServer(scan, tmp_path / "review")

    def check(answered):
        _, entries = read_journal(tmp_path / "review")
        counts = Counter(entry.uuid for entry in entries)
        assert not set(answered) - counts.keys()
        assert set(counts.values()) <= {1}

    clickers = decide_through_kills(server, ("ada", "bob"), 20, 60, 2, check)
    _, entries = read_journal(tmp_path / "review")
    assert len(entries) == 60
    assert {entry.reviewer for entry in entries} == {"ada", "bob"}
    assert sum(one.repeated for one in clickers) > 0
