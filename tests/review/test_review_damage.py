import errno
import os
import shutil
import sys
import uuid
from pathlib import Path

import pytest

import served_review
from callshot.review import server
from callshot.review.journal import JOURNAL
from callshot.review.server import ServerOptions
from callshot.review.web_safety import Access
from served_review import TOKEN, serve


def remove(folder):
    (folder / JOURNAL).unlink()


def add_line(folder):
    with (folder / JOURNAL).open("ab") as stream:
        stream.write(b"{}\n")


def cut(folder):
    os.truncate(folder / JOURNAL, 0)


def put_copy(folder):
    shutil.copy(folder / JOURNAL, folder / "copy")
    (folder / "copy").replace(folder / JOURNAL)


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be removed")
@pytest.mark.parametrize("harm", [remove, add_line, cut, put_copy])
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


class Now:
    """A timer that does not wait."""

    def __init__(self, delay_s, function, arguments):
        self.start = lambda: function(*arguments)


def test_the_browser_is_not_given_the_token_on_its_command_line(monkeypatch):
    opened = []
    monkeypatch.setattr(server, "Timer", Now)
    monkeypatch.setattr(server.webbrowser, "open", opened.append)
    access = Access("a-token", "127.0.0.1", 8420, "ada")
    server._announce(access, ServerOptions())
    assert "a-token" not in opened[0]


def test_the_code_of_the_browser_counts_once(scan, tmp_path, monkeypatch):
    made = []

    def keep(*arguments):
        made.append(Access(*arguments))
        return made[0]

    monkeypatch.setattr(served_review, "Access", keep)
    with serve(scan, tmp_path / "review") as (client, _):
        path = f"/?code={made[0].make_code()}"
        nobody = {"Cookie": None}
        assert client.ask("GET", "/?code=x", headers=nobody)[0] == 403
        status, headers, _ = client.ask("GET", path, headers=nobody)
        assert status == 303
        assert TOKEN in headers["set-cookie"]
        status, headers, _ = client.ask("GET", path, headers=nobody)
        assert status == 403
        assert "set-cookie" not in headers


def test_a_disk_that_fails_is_explained(scan, tmp_path, monkeypatch):
    def fail(path):
        raise OSError(errno.EIO, "Input/output error")

    with serve(scan, tmp_path / "review") as (client, _):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "is_file", fail)
            client.get("/api/session")
            answer = client.get("/api/waveform?item=0", 404)
        assert "cannot be read (Input/output error)" in answer["error"]
