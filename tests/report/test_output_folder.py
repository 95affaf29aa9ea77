"""A set of files whose names are not known before, in a directory where others may have theirs."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from callshot.errors import OutputError
from callshot.report import commit, output_folder
from callshot.report.output_folder import open_output_folder

TOLD = "provenance.json"
MARK = "a.toml"
ONE = {"report.html": "page", "tables/t.csv": "1", "here/figures/f.png": "f"}
TWO = {"report.html": "page 2", "tables/t.csv": "2", "tables/u.csv": "3"}
fcntl = pytest.importorskip("fcntl", reason="locks and kills are tried where the system has them")


def write(directory: Path, files: Mapping[str, str], mark: str = MARK) -> list[Path]:
    def make(folder: Path) -> list[str]:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return list(files)

    with open_output_folder(directory, None, TOLD, mark=mark) as opened:
        return opened.write(make, {"title": "x"})


def contents(directory: Path) -> dict[str, str]:
    """Return all files but the provenance, and folders with nothing in them."""
    found = {
        path.relative_to(directory).as_posix(): path
        for path in directory.rglob("*")
        if path.name != TOLD
    }
    return {
        n: p.read_text() if p.is_file() else ""
        for n, p in found.items()
        if p.is_file() or not any(p.iterdir())
    }


def tell(directory: Path, files: Mapping[str, Any], **more: Any) -> None:
    """Add files to what a directory tells."""
    told = json.loads((directory / TOLD).read_text())
    (directory / TOLD).write_text(
        json.dumps({**told, **more, "files": told["files"] | dict(files)})
    )


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def die(directory: Path, files: Mapping[str, str], how: str) -> Path:
    """Write in another process that is killed on the way; return the staging folder it leaves."""
    code = f"""
import json, os, shutil, sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from report.test_staging import write
calls = iter(range(100))
{how}
write(Path({str(directory)!r}), json.loads({json.dumps(dict(files))!r}))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 9, ended.stderr
    (left,) = directory.glob(".callshot-*")
    return left


def at_replace(call: int) -> str:
    return f"""
real = os.replace
os.replace = lambda *paths: os._exit(9) if next(calls) == {call} else real(*paths)
"""


def test_a_set_is_replaced_and_what_is_stale_goes_with_its_empty_folders(tmp_path):
    (tmp_path / "mine").mkdir(parents=True)
    write(tmp_path, ONE)
    write(tmp_path, TWO)
    assert contents(tmp_path) == {**TWO, "mine": ""}
    assert not (tmp_path / "here").exists()


def test_a_folder_in_which_others_have_files_stays(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "here" / "note.txt").write_text("mine")
    write(tmp_path, TWO)
    assert contents(tmp_path) == {**TWO, "here/note.txt": "mine"}


def test_a_file_that_is_told_of_and_not_as_told_is_left(tmp_path):
    write(tmp_path, ONE)
    tell(tmp_path, {"thesis.tex": "0", "notes.md": None, "deep": json.loads("[" * 500 + "]" * 500)})
    for name in ("thesis.tex", "notes.md", "deep"):
        (tmp_path / name).write_text("years of work")
    (tmp_path / "here/figures/f.png").write_text("drawn over by hand")
    write(tmp_path, TWO)
    others = dict.fromkeys(("thesis.tex", "notes.md", "deep"), "years of work")
    assert contents(tmp_path) == {**TWO, **others, "here/figures/f.png": "drawn over by hand"}


def test_what_was_edited_by_hand_is_kept_beside_what_replaces_it(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "tables/t.csv").write_text("edited")
    paths = write(tmp_path, ONE)
    assert contents(tmp_path) == {**ONE, "tables/t.csv.before": "edited"}
    assert {path.relative_to(tmp_path).as_posix() for path in paths} == {*ONE, TOLD}
    for text in ("edited", "edited again", "edited"):
        (tmp_path / "tables/t.csv").write_text(text)
        write(tmp_path, ONE)
    assert contents(tmp_path) == {
        **ONE,
        "tables/t.csv.before": "edited",
        "tables/t.csv.before-2": "edited again",
    }
    write(tmp_path, TWO)
    assert contents(tmp_path) == {
        **TWO,
        "tables/t.csv.before": "edited",
        "tables/t.csv.before-2": "edited again",
    }


def test_what_was_deleted_by_hand_is_made_again(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "report.html").unlink()
    write(tmp_path, ONE)
    assert contents(tmp_path) == ONE


def test_a_file_that_is_not_told_of_is_refused(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "tables/u.csv").write_text("mine")
    with pytest.raises(
        OutputError,
        match=r"tables/u\.csv is there and not from callshot; move it, or choose another",
    ):
        write(tmp_path, TWO)
    assert contents(tmp_path) == {**ONE, "tables/u.csv": "mine"}


@pytest.mark.parametrize(
    "name", ["link/a.txt", "../precious/a.txt", "tables/../../precious/a.txt", "{precious}/a.txt"]
)
def test_a_name_that_leads_out_of_the_directory_is_nobodys(tmp_path, name):
    precious, out = tmp_path / "precious", tmp_path / "results"
    write(out, ONE)
    precious.mkdir()
    (precious / "a.txt").write_text("x")
    (out / "link").symlink_to(precious)
    tell(out, {name.format(precious=precious): digest("x")})
    write(out, TWO)
    assert (precious / "a.txt").read_text() == "x"
    (out / "link").unlink()
    assert contents(out) == TWO


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "tables",
        "tables/",
        "./report.html",
        "tables/../report.html",
        "tables//t.csv",
        "a\0b",
        "\ud800",
        "n" * 5000,
        "{out}/report.html",
        "here/figures/f.png/x",
        "\0/x",
        "pipe",
    ],
)
def test_a_name_that_is_no_file_of_the_set_is_passed_over(tmp_path, name):
    write(tmp_path, ONE)
    os.mkfifo(tmp_path / "pipe")
    tell(tmp_path, {name.format(out=tmp_path): digest("page")})
    write(tmp_path, ONE)
    (tmp_path / "pipe").unlink()
    assert contents(tmp_path) == ONE
    assert set(json.loads((tmp_path / TOLD).read_text())["files"]) == set(ONE)


def test_a_name_without_a_sum_is_nobodys(tmp_path):
    write(tmp_path, ONE)
    tell(tmp_path, {"a\0b": None, "\ud800": "", "gone.csv": None, "mine.csv": ""})
    (tmp_path / "mine.csv").write_text("")
    write(tmp_path, TWO)
    assert contents(tmp_path) == {**TWO, "mine.csv": ""}


def test_what_cannot_be_read_is_kept_too(tmp_path, monkeypatch):
    write(tmp_path, ONE)
    (tmp_path / "report.html").write_text("edited")
    (tmp_path / "report.html.before").write_text("mine")
    tell(tmp_path, {"locked.csv": ""})
    (tmp_path / "locked.csv").write_text("mine")

    def locked(path: Path) -> bool:
        if path.name in ("locked.csv", "report.html", "report.html.before"):
            raise PermissionError(errno.EACCES, "no")
        return real(path)

    real = Path.is_file
    monkeypatch.setattr(commit, "_within", lambda *_: True)
    monkeypatch.setattr(Path, "is_file", locked)
    write(tmp_path, {"report.html": "page"})
    monkeypatch.undo()
    found = contents(tmp_path)
    assert found["report.html.before"] == found["locked.csv"] == "mine"
    assert found["report.html.before-2"] == "edited"


@pytest.mark.parametrize(
    "name", ["../a", "/a", "", ".", "a/..", "b//c", "./b", "folder", "link/a", "a\0/b", "n" * 999]
)
def test_what_can_be_a_file_of_a_set_lies_within(tmp_path, name):
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    (out / "link").symlink_to(tmp_path)
    assert not commit._within(out, name)
    for fine in ("b", "folder/b", "new/deep/b", "b c", "..b"):
        assert commit._within(out, fine)


def test_a_link_by_which_results_would_go_elsewhere_is_refused(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path / "thesis")
    with pytest.raises(
        OutputError, match=r"tables/t\.csv would go elsewhere, by a link; move the link"
    ):
        write(tmp_path / "out", ONE)
    assert contents(tmp_path / "thesis") == {}


def test_a_directory_that_is_itself_behind_a_link_is_as_any_other(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "real")
    (tmp_path / "real").mkdir()
    write(tmp_path / "out", ONE)
    write(tmp_path / "out", TWO)
    assert contents(tmp_path / "real") == TWO


def test_a_file_where_a_folder_goes_is_named(tmp_path):
    (tmp_path / "tables").write_text("mine")
    with pytest.raises(
        OutputError, match="tables is a file there, and a folder goes by that name; move it"
    ):
        write(tmp_path, ONE)
    assert contents(tmp_path) == {"tables": "mine"}


@pytest.mark.parametrize("mark", ["b.toml", ""])
def test_results_of_another_set_are_refused_before_any_work(tmp_path, mark):
    write(tmp_path, ONE)
    with pytest.raises(
        OutputError, match=r"results of a\.toml are there; choose another directory"
    ):
        open_output_folder(tmp_path, None, TOLD, mark=mark)
    with pytest.raises(
        OutputError, match=r"results of a\.toml are there; choose another directory"
    ):
        open_output_folder(tmp_path, ["report.html"], TOLD)
    assert contents(tmp_path) == ONE


def test_results_of_a_command_that_gives_no_mark_are_refused_and_its_own_are_not(tmp_path):
    write(tmp_path, ONE, mark="")
    assert "set" not in json.loads((tmp_path / TOLD).read_text())
    with pytest.raises(
        OutputError, match="results of another command are there; choose another directory"
    ):
        write(tmp_path, TWO)
    assert contents(tmp_path) == ONE
    write(tmp_path, TWO, mark="")
    assert contents(tmp_path) == TWO


def test_a_set_that_came_while_another_was_made_is_not_replaced(tmp_path):
    with open_output_folder(tmp_path, None, TOLD, mark="b.toml") as opened:
        write(tmp_path, ONE)
        with pytest.raises(OutputError, match=r"results of a\.toml are there"):
            opened.write(lambda folder: [], {})
    assert contents(tmp_path) == ONE


@pytest.mark.parametrize("mark", [3, ["a"], {"a": 1}, "two\nlines\x1b[2J", "x" * 10_000])
def test_a_strange_mark_is_told_in_one_line(tmp_path, mark):
    write(tmp_path, ONE)
    tell(tmp_path, {}, set=mark)
    with pytest.raises(OutputError, match=r"results of .* are there") as caught:
        write(tmp_path, TWO)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    assert isinstance(mark, str) or "results of another command are there" in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{", "[]", '{"files": ["report.html"]}', "\xff", "{}"]
)
def test_a_provenance_that_is_none_makes_nothing_ours(tmp_path, text):
    (tmp_path / TOLD).write_text(text, encoding="latin-1")
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(OutputError, match=r"provenance\.json is there and not from callshot"):
        write(tmp_path, ONE)
    assert contents(tmp_path) == {"report.html": "mine"}


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_directory_with_an_impossible_name_is_refused(tmp_path, name):
    with pytest.raises(OutputError, match="no directory can have that name; choose another"):
        open_output_folder(tmp_path / name, None, TOLD)


def test_half_a_surrogate_in_what_is_told_reads_back(tmp_path):
    with open_output_folder(tmp_path, None, TOLD) as opened:
        opened.write(lambda folder: [], {"file": "r\udcff.wav"})
    assert json.loads((tmp_path / TOLD).read_text(encoding="utf-8"))["file"] == "r\udcff.wav"


@pytest.mark.parametrize("call", range(4))
def test_a_failure_half_way_brings_everything_back(tmp_path, monkeypatch, call):
    write(tmp_path, ONE)
    (tmp_path / "tables/t.csv").write_text("edited")
    before, calls, real = contents(tmp_path), iter(range(100)), os.replace

    def broken(*paths: Path) -> None:
        real(*paths)
        if next(calls) == call:
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, TWO)
    assert contents(tmp_path) == before


def test_a_first_run_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    def broken(*paths: Path) -> None:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OutputError):
        write(tmp_path / "out", ONE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("named", ["{name}", ".callshot-1-{host}-x", ".callshot-{pid}-other-x"])
@pytest.mark.parametrize("first", [True, False])
def test_what_a_killed_run_left_is_undone_whoever_has_its_number_now(tmp_path, named, first):
    before = {} if first else ONE
    if not first:
        write(tmp_path, ONE)
    left = die(tmp_path, TWO, at_replace(2))
    left.rename(tmp_path / named.format(name=left.name, host=output_folder.HOST, pid=os.getpid()))
    assert contents(tmp_path) != before
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == before
    write(tmp_path, TWO)
    assert contents(tmp_path) == TWO


def test_what_a_study_left_is_undone_by_another_command_too(tmp_path):
    write(tmp_path, ONE)
    die(tmp_path, TWO, at_replace(3))
    assert "tables/u.csv" in contents(tmp_path)
    with pytest.raises(OutputError, match=r"results of a\.toml are there"):
        open_output_folder(tmp_path, ["curve.csv"], TOLD)
    assert contents(tmp_path) == ONE


def test_a_kill_after_the_last_file_undoes_nothing(tmp_path):
    write(tmp_path, ONE)
    die(tmp_path, TWO, "shutil.rmtree = lambda *_, **__: os._exit(9)")
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == TWO


def test_a_kill_while_the_staging_folder_goes_undoes_nothing(tmp_path):
    write(tmp_path, {"a": "1", "b": "2"})
    die(
        tmp_path,
        {"a": "1", "b": "5"},
        """
real = os.replace
def broken(*paths):
    if next(calls) == 2:
        raise OSError(5, "no")
    real(*paths)
def half(folder, **_):
    for copy in Path(folder).glob(".before*/*"):
        copy.unlink()
    os._exit(9)
os.replace, shutil.rmtree = broken, half
""",
    )
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == {"a": "1", "b": "2"}


def test_what_is_kept_is_not_put_back_through_a_link(tmp_path):
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.mkdir()
    (precious / "t.csv").write_text("x")
    write(out, ONE)
    die(out, TWO, at_replace(2))
    (out / "tables/t.csv").unlink()
    (out / "tables").rmdir()
    (out / "tables").symlink_to(precious)
    open_output_folder(out, None, TOLD, mark=MARK).close()
    assert contents(precious) == {"t.csv": "x"}


def test_a_file_that_came_while_others_were_put_in_place_stays_when_they_go(tmp_path, monkeypatch):
    def broken(*paths: Path) -> None:
        (tmp_path / "report.html").write_text("mine")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, ONE)
    assert contents(tmp_path) == {"report.html": "mine"}


def test_a_kill_while_files_are_brought_back_can_be_mended_too(tmp_path):
    write(tmp_path, {"a": "1", "b": "2", "c": "3"})
    die(
        tmp_path,
        {"a": "1", "b": "5", "c": "6"},
        """
real = os.replace
def broken(*paths):
    call = next(calls)
    if call == 2:
        raise OSError(5, "no")
    if call == 4:
        os._exit(9)
    real(*paths)
os.replace = broken
""",
    )
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == {"a": "1", "b": "2", "c": "3"}


def test_a_copy_that_was_torn_by_a_kill_is_never_put_back(tmp_path):
    write(tmp_path, ONE)
    die(
        tmp_path,
        TWO,
        """
def torn(source, copy):
    Path(copy).write_bytes(b"half")
    os._exit(9)
def refuse(*_):
    raise OSError(95, "no links here")
Path.hardlink_to, shutil.copyfile = refuse, torn
""",
    )
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == ONE


def test_without_links_what_a_killed_run_replaced_comes_back(tmp_path, monkeypatch):
    write(tmp_path, ONE)
    refuse = "def refuse(*_):\n    raise OSError(95, 'no links here')\nPath.hardlink_to = refuse\n"
    die(tmp_path, TWO, refuse + at_replace(3))
    (tmp_path / "tables/u.csv").write_text("changed since the kill")
    open_output_folder(tmp_path, None, TOLD, mark=MARK).close()
    assert contents(tmp_path) == {**ONE, "tables/u.csv": "changed since the kill"}


@pytest.mark.parametrize("host", ["other", output_folder.HOST])
def test_a_run_of_any_name_that_holds_its_lock_is_alive(tmp_path, host):
    with open_output_folder(tmp_path, None, TOLD) as living:
        named = tmp_path / f".callshot-999999999-{host}-x"
        living.path.rename(named)
        open_output_folder(tmp_path, None, TOLD).close()
        assert (named / output_folder.LOCK).exists()
    open_output_folder(tmp_path, None, TOLD).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mine", "host", "stays"), [(True, "", True), (False, "", False), (False, "other", True)]
)
def test_where_there_are_no_locks_the_process_decides(tmp_path, monkeypatch, mine, host, stays):
    def unlocked(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    with open_output_folder(tmp_path, None, TOLD) as opened:
        monkeypatch.setattr(
            output_folder, "_alone_in", output_folder.explained
        )  # does nothing here
        monkeypatch.setattr(fcntl, "flock", unlocked)
        left = (
            tmp_path
            / f".callshot-{os.getpid() if mine else 999999999}-{host or output_folder.HOST}-x"
        )
        left.mkdir()
        (left / output_folder.LOCK).touch()
        with open_output_folder(tmp_path, None, TOLD) as another:
            assert not (another.path / output_folder.LOCK).exists()
            assert left.exists() == stays
            assert opened.path.exists()


def test_a_run_that_was_killed_while_another_was_made_is_undone_first(tmp_path):
    write(tmp_path, ONE)

    def make(folder: Path) -> list[str]:
        for left in tmp_path.glob(".callshot-*"):
            left.rename(tmp_path / "living")  # the one that `die` finds is its own
        die(tmp_path, TWO, at_replace(2))
        (tmp_path / "living").rename(folder)
        (folder / "report.html").write_text("third")
        return ["report.html"]

    with open_output_folder(tmp_path, None, TOLD, mark=MARK) as opened:
        opened.write(make, {})
    assert contents(tmp_path) == {"report.html": "third"}
