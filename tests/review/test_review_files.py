"""Files of a review at rest: every damage is noticed, and what was saved is read anywhere."""

import errno
import os
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import served_review
from byte_damage import damage_bytes
from callshot.cli import app
from callshot.errors import InputError
from callshot.review import server
from callshot.review.journal import JOURNAL, TORN, open_journal, read_journal
from callshot.review.results import read_review
from callshot.review.server import ServerOptions
from callshot.review.web_safety import Access, write_address
from callshot.study.verify import verify_path
from served_review import TOKEN, serve

DAMAGES = 40
NAMES = (JOURNAL, "vectors.npy", "vectors.json", "address.json")


@pytest.fixture(scope="module")
def review(scan, tmp_path_factory):
    """Make a review with all kinds of decisions, by two people, and with vectors."""
    folder = tmp_path_factory.mktemp("at-rest") / "review"
    with serve(scan, folder) as (client, opened):
        bob = client.as_person("bob")
        client.post("/api/labels", {"name": "growl"})
        for item in range(8):
            client.decide(item, "confirm")
            bob.decide(item, "reject" if item == 3 else "confirm")
        client.decide(8, "relabel", label="growl")
        client.decide(9, "skip")
        start_s, end_s = opened.decisions.find_span(10, "ada")
        client.decide(10, "split", at_s=(start_s + end_s) / 2)
        client.decide(11, "confirm", start_s=start_s, end_s=end_s)
        client.undo()
        opened.ask_scores().result()
    (folder / "address.json").unlink(missing_ok=True)
    write_address(folder, 8420, "x" * 43)
    return folder


def find_states(folder):
    return {finding.path.name: finding.state for finding in verify_path(folder)}


def test_the_files_of_a_review_are_verified(review):
    assert find_states(review) == dict.fromkeys(NAMES, "ok")


@pytest.mark.parametrize("name", NAMES)
def test_no_damage_of_a_byte_is_silent(review, tmp_path, name):
    folder = tmp_path / "review"
    shutil.copytree(review, folder)
    path = folder / name
    for place, content in damage_bytes(path.read_bytes(), DAMAGES):
        path.write_bytes(content)
        assert find_states(folder)[name] == "damaged", place
        if name == JOURNAL:
            with pytest.raises(InputError, match=r"decisions\.jsonl: line \d+: "):
                read_review(folder)


def test_lines_that_are_lost_or_moved_are_noticed(review, tmp_path):
    lines = (review / JOURNAL).read_bytes().splitlines(keepends=True)
    for changed in (
        lines[:4] + lines[5:],  # lost
        [*lines[:4], lines[5], lines[4], *lines[6:]],  # moved
        [*lines[:5], lines[4], *lines[5:]],  # twice
        lines[1:],
    ):
        (tmp_path / JOURNAL).write_bytes(b"".join(changed))
        with pytest.raises(InputError, match="line"):
            read_review(tmp_path)


def test_a_line_that_was_not_finished_is_left_out_and_set_aside(review, tmp_path):
    content = (review / JOURNAL).read_bytes()
    entries = read_journal(review).entries
    start = content.rstrip(b"\n").rindex(b"\n") + 1
    path = tmp_path / JOURNAL
    for end in (start + 1, start + 40, len(content) - 2):
        path.write_bytes(content[:end])
        assert read_journal(tmp_path).entries == entries[:-1]
        (note,) = read_review(tmp_path).notes
        assert "not complete" in note
        assert find_states(tmp_path)[JOURNAL] == "unverified"
        journal = open_journal(tmp_path, {})
        assert journal.entries == entries[:-1]
        assert len(journal.notes) == 1
        journal.close()
        assert path.read_bytes() == content[:start]
        assert (tmp_path / TORN).read_bytes() == content[start:end]
        (tmp_path / TORN).unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="folders have no such modes")
def test_a_review_that_cannot_be_written_is_read_and_nothing_is_made(
    review, scan, tmp_path, monkeypatch
):
    folder = tmp_path / "review"
    shutil.copytree(review, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    folder.chmod(0o555)
    make = os.open

    def open_elsewhere(path, flags, *more, **keywords):
        is_inside = str(path).startswith(str(folder))
        assert not (is_inside and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        return make(path, flags, *more, **keywords)

    monkeypatch.setattr(os, "open", open_elsewhere)
    commands = (
        ("convert", folder, "--to", "csv", "--out", tmp_path / "csv"),
        ("learn", "--add", folder, "--out", tmp_path / "m.npz"),
    )
    try:
        for command in commands:
            store = ("--store", tmp_path / "store") if command[0] == "learn" else ()
            words = [str(word) for word in (*command, *store)]
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, result.exception
        assert set(find_states(folder).values()) == {"ok"}
        after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
        assert after == before
    finally:
        folder.chmod(0o755)


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
        client.decide(0, "confirm", uuid=f"{1:032x}")
        harm(folder)
        seq = review.seq
        answer = client.decide(1, "confirm", 500)
        assert "removed, replaced or cut" in answer["error"]
        client.decide(0, "confirm", 500, uuid=f"{1:032x}")
        client.post("/api/undo", {}, 500)
        assert review.seq == seq


@pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be moved")
def test_a_row_whose_file_was_away_just_after_it_was_written_counts_when_it_is_back(
    scan, tmp_path, monkeypatch
):
    folder = tmp_path / "review"
    away = tmp_path / "away"
    sync = os.fsync

    def sync_and_move(descriptor):
        sync(descriptor)
        if descriptor == review.journal.descriptor:  # vectors are written in a thread
            (folder / JOURNAL).rename(away)

    with serve(scan, folder) as (client, review):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", sync_and_move)
            client.decide(0, "confirm", 500, uuid=f"{1:032x}")
        away.rename(folder / JOURNAL)
        answer = client.decide(0, "confirm", uuid=f"{1:032x}")
        assert [item["id"] for item in answer["items"]] == [0]
        assert answer["items"][0]["decision"]["action"] == "confirm"
        client.decide(1, "reject")
        assert review.seq == len(read_journal(folder).entries) == 2
        assert review.changes == [{0}, {1}]


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
