import shutil
from collections import Counter

from callshot.review.journal import JOURNAL, read_journal
from killed_review import KillableServer, decide_through_kills


def test_a_copy_of_the_file_after_a_kill_has_all_that_was_answered(scan, tmp_path):
    server = KillableServer(scan, tmp_path / "review")
    copies = []

    def check(answered):
        folder = tmp_path / f"copy-{len(copies)}"
        folder.mkdir()
        shutil.copy(tmp_path / "review" / JOURNAL, folder / JOURNAL)
        entries = read_journal(folder).entries
        assert set(answered) <= {entry.uuid for entry in entries}
        copies.append(folder)

    decide_through_kills(server, ("ada", "bob"), 20, 40, 2, check)
    assert len(copies) == 3
    assert len(read_journal(copies[-1]).entries) == 40


def test_decisions_that_were_answered_as_saved_are_there_once(scan, tmp_path):
    server = KillableServer(scan, tmp_path / "review")

    def check(answered):
        entries = read_journal(tmp_path / "review").entries
        counts = Counter(entry.uuid for entry in entries)
        assert not set(answered) - counts.keys()
        assert set(counts.values()) <= {1}

    clickers = decide_through_kills(server, ("ada", "bob"), 20, 60, 2, check)
    entries = read_journal(tmp_path / "review").entries
    assert len(entries) == 60
    assert {entry.reviewer for entry in entries} == {"ada", "bob"}
    assert sum(one.repeated for one in clickers) > 0
