import os
import shutil
import sys
import uuid

import pytest

from served_review import serve


def remove(folder):
    for path in folder.glob("review.sqlite*"):
        path.unlink()


def remove_latest(folder):
    (folder / "review.sqlite-wal").unlink()


def cut(folder):
    os.truncate(folder / "review.sqlite", 0)


def put_copy(folder):
    shutil.copy(folder / "review.sqlite", folder / "copy")
    (folder / "copy").replace(folder / "review.sqlite")


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed")
@pytest.mark.parametrize("harm", [remove, remove_latest, cut, put_copy])
def test_nothing_is_called_saved_after_the_journal_was_removed(scan, tmp_path, harm):
    folder = tmp_path / "review"
    with serve(scan, folder) as (client, review):
        saved = str(uuid.uuid4())
        decision = {"uuid": saved, "item": 0, "action": "confirm"}
        client.post("/api/decisions", {"decisions": [decision]})
        harm(folder)
        seq = review.seq
        answer = client.decide(1, "confirm", status=500)
        assert "removed, replaced or cut" in answer["error"]
        client.post("/api/decisions", {"decisions": [decision]}, status=500)
        client.post("/api/undo", {"uuid": str(uuid.uuid4())}, status=500)
        assert review.seq == seq
