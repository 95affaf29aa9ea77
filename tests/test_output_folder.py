"""A set of result files in a folder where other people have files of their own."""

import errno
import hashlib
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import polars as pl
import pytest

from callshot import results
from callshot.errors import OutputError
from callshot.results import LOCK, STAGING, open_output_folder

PROVENANCE = "provenance.json"
OWNER = "a.toml"
ONE = {"report.html": "page", "tables/t.csv": "1", "here/figures/f.png": "f"}
TWO = {"report.html": "page 2", "tables/t.csv": "2", "tables/u.csv": "3"}
fcntl = pytest.importorskip("fcntl", reason="needs links, pipes, fork and flock")
# The provenance is complete in the staging folder, then TWO and its provenance move.
MOVES = len(TWO) + 2


def write(folder, files, owner=OWNER):
    def make_files(staging):
        for name, text in files.items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_text(text)
        return list(files)

    with open_output_folder(folder, (), PROVENANCE, owner=owner) as output:
        return output.write(make_files, {"title": "x"})


def recover(folder):
    """Open and close a folder, as the next run does."""
    with open_output_folder(folder, (), PROVENANCE, owner=OWNER):
        pass


def make_no_files(staging):
    return []


def contents(folder):
    """Return the text of all files except the provenance, and "" for empty folders."""
    texts = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and path.name != PROVENANCE:
            texts[name] = path.read_text()
        if path.is_dir() and not any(path.iterdir()):
            texts[name] = ""
    return texts


def edit_provenance(folder, files, **entries):
    """Add files and other entries to a provenance."""
    provenance = json.loads((folder / PROVENANCE).read_text())
    provenance |= {**entries, "files": {**provenance["files"], **files}}
    (folder / PROVENANCE).write_text(json.dumps(provenance))


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def die(*_, **__):
    """End the process at once, as `kill -9` does."""
    os._exit(9)


def die_while_writing(folder, files, **patches):
    """Write in another process in which functions of the system are replaced, until it dies."""

    def run():
        os.replace = patches.get("replace", os.replace)
        shutil.rmtree = patches.get("rmtree", shutil.rmtree)
        json.dumps = patches.get("dumps", json.dumps)
        write(folder, files)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 9


def at_call(number, action, function):
    """Return a function that does something else at one of its calls, the first being 0."""
    numbers = itertools.count()

    def call(*arguments, **options):
        if next(numbers) == number:
            return action(*arguments, **options)
        return function(*arguments, **options)

    return call


def die_at_move(number):
    return at_call(number, die, os.replace)


def fail(*_, **__):
    raise OSError(errno.EIO, "no")


def test_a_new_set_replaces_the_earlier_one_and_removes_what_is_stale(tmp_path):
    (tmp_path / "mine").mkdir()
    write(tmp_path, ONE)
    paths = write(tmp_path, TWO)
    assert contents(tmp_path) == {**TWO, "mine": ""}
    assert not (tmp_path / "here").exists()
    assert paths == [tmp_path / name for name in (*TWO, PROVENANCE)]


def test_a_listed_file_with_another_checksum_stays(tmp_path):
    write(tmp_path, ONE)
    nested = json.loads("[" * 500 + "]" * 500)
    edit_provenance(tmp_path, {"thesis.tex": "0", "notes.md": None, "deep": nested})
    others = dict.fromkeys(("thesis.tex", "notes.md", "deep"), "years of work")
    for name, text in others.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "here/figures/f.png").write_text("drawn over by hand")
    write(tmp_path, TWO)
    assert contents(tmp_path) == {
        **TWO,
        **others,
        "here/figures/f.png": "drawn over by hand",
    }


def test_an_edited_file_is_kept_beside_the_one_that_replaces_it(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "tables/t.csv").write_text("edited")
    paths = write(tmp_path, ONE)
    assert contents(tmp_path) == {**ONE, "tables/t.csv.before": "edited"}
    assert {path.relative_to(tmp_path).as_posix() for path in paths} == {
        *ONE,
        PROVENANCE,
    }
    for text in ("edited", "edited again", "edited"):
        (tmp_path / "tables/t.csv").write_text(text)
        write(tmp_path, ONE)
    copies = {
        "tables/t.csv.before": "edited",
        "tables/t.csv.before-2": "edited",
        "tables/t.csv.before-3": "edited again",
        "tables/t.csv.before-4": "edited",
    }
    assert contents(tmp_path) == {**ONE, **copies}
    write(tmp_path, TWO)
    assert contents(tmp_path) == {**TWO, **copies}


def test_a_file_that_is_not_listed_is_not_replaced(tmp_path):
    write(tmp_path, ONE)
    (tmp_path / "tables/u.csv").write_text("mine")
    message = r"tables/u\.csv exists and was not written by callshot; move it or choose another"
    with pytest.raises(OutputError, match=message):
        write(tmp_path, TWO)
    assert contents(tmp_path) == {**ONE, "tables/u.csv": "mine"}


def open_in_vain(folder, names, message, owner=""):
    """Check that a folder is refused before any work."""
    with (
        pytest.raises(OutputError, match=message),
        open_output_folder(folder, names, PROVENANCE, owner=owner),
    ):
        raise AssertionError


def test_names_that_are_known_before_are_checked_before_any_work(tmp_path):
    (tmp_path / "curve.csv").write_text("mine")
    message = r"curve\.csv exists and was not written by callshot"
    open_in_vain(tmp_path, ["curve.csv"], message)
    assert contents(tmp_path) == {"curve.csv": "mine"}


def test_a_listed_name_that_leads_out_of_the_folder_is_ignored(tmp_path):
    precious = tmp_path / "precious"
    out = tmp_path / "results"
    write(out, ONE)
    precious.mkdir()
    (precious / "a.txt").write_text("x")
    (out / "link").symlink_to(precious)
    names = ["link/a.txt", "../precious/a.txt", "tables/../../precious/a.txt"]
    listed = dict.fromkeys([*names, f"{precious}/a.txt"], sha256("x"))
    edit_provenance(out, listed)
    write(out, TWO)
    assert (precious / "a.txt").read_text() == "x"
    (out / "link").unlink()
    assert contents(out) == TWO


ODD_NAMES = ["", ".", "..", "tables", "tables/", "./report.html", "a\0b", "\ud800"]
ODD_NAMES += ["tables/../report.html", "tables//t.csv", "{out}/report.html", "n" * 5000]
ODD_NAMES += ["here/figures/f.png/x", "\0/x", "pipe"]


def test_a_listed_name_that_cannot_be_a_result_is_ignored(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    write(tmp_path, ONE)
    names = {name.format(out=tmp_path): sha256("page") for name in ODD_NAMES}
    edit_provenance(tmp_path, names)
    write(tmp_path, ONE)
    assert set(json.loads((tmp_path / PROVENANCE).read_text())["files"]) == set(ONE)
    unchecked = {"a\0b": None, "\ud800": "", "gone.csv": None, "mine.csv": ""}
    edit_provenance(tmp_path, unchecked)
    (tmp_path / "mine.csv").write_text("")
    write(tmp_path, TWO)
    (tmp_path / "pipe").unlink()
    assert contents(tmp_path) == {**TWO, "mine.csv": ""}


def test_files_that_cannot_be_read_are_kept(tmp_path, monkeypatch):
    write(tmp_path, ONE)
    (tmp_path / "report.html").write_text("edited")
    (tmp_path / "report.html.before").write_text("mine")
    edit_provenance(tmp_path, {"locked.csv": ""})
    (tmp_path / "locked.csv").write_text("mine")
    real = results.sha256_file

    def fail(path):
        locked = ("locked.csv", "report.html", "report.html.before")
        if path.parent == tmp_path and path.name in locked:
            raise PermissionError(errno.EACCES, "no")
        return real(path)

    monkeypatch.setattr(results, "sha256_file", fail)
    write(tmp_path, {"report.html": "page"})
    texts = contents(tmp_path)
    assert texts["report.html.before"] == texts["locked.csv"] == "mine"
    assert texts["report.html.before-2"] == "edited"


def test_a_link_that_leads_results_to_another_folder_is_an_error(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "tables").symlink_to(tmp_path / "thesis")
    with pytest.raises(
        OutputError, match=r"a link leads tables/t\.csv to another folder; remove"
    ):
        write(tmp_path / "out", ONE)
    assert contents(tmp_path / "thesis") == {}


def test_files_and_folders_in_the_place_of_the_other_are_named(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "tables").write_text("mine")
    message = "tables is a file, expected a folder; move it"
    with pytest.raises(OutputError, match=message):
        write(tmp_path / "one", ONE)
    assert contents(tmp_path / "one") == {"tables": "mine"}
    (tmp_path / "two" / "curve.csv").mkdir(parents=True)
    message = r"curve\.csv is a folder, expected a file; move it"
    open_in_vain(tmp_path / "two", ["curve.csv"], message)
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below" / "it"):
        with pytest.raises(
            OutputError, match="file is not a folder; move it or choose another"
        ):
            write(folder, ONE)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("owner", ["b.toml", ""])
def test_the_results_of_another_study_are_an_error_before_any_work(tmp_path, owner):
    write(tmp_path, ONE)
    message = r"it has the results of a\.toml; choose another folder"
    open_in_vain(tmp_path, ["report.html"], message, owner)
    assert contents(tmp_path) == ONE


def test_results_without_a_mark_are_replaced_only_by_results_without_one(tmp_path):
    write(tmp_path, ONE, owner="")
    assert "set" not in json.loads((tmp_path / PROVENANCE).read_text())
    with pytest.raises(
        OutputError, match="it has the results of another command; choose another"
    ):
        write(tmp_path, TWO)
    assert contents(tmp_path) == ONE
    write(tmp_path, TWO, owner="")
    assert contents(tmp_path) == TWO


def test_a_broken_provenance_makes_no_file_ours(tmp_path):
    texts = ["[" * 100_000, "{", "[]", '{"files": ["report.html"]}', '{"files": 3}']
    for text in (*texts, "\xff", "{}"):
        (tmp_path / PROVENANCE).write_text(text, encoding="latin-1")
        (tmp_path / "report.html").write_text("mine")
        message = r"provenance\.json exists and was not written by callshot"
        with pytest.raises(OutputError, match=message):
            write(tmp_path, ONE)
        assert contents(tmp_path) == {"report.html": "mine"}


@pytest.mark.parametrize(
    "move", range(MOVES + 1)
)  # one more for the copy of an edited file
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "no")])
@pytest.mark.parametrize("moved", [False, True])
def test_after_an_error_at_any_move_the_set_is_the_earlier_or_the_new_one(
    tmp_path, monkeypatch, move, error, moved
):
    real = os.replace

    def fail_late(*paths):
        if moved:
            real(*paths)
        raise error

    write(tmp_path, ONE)
    (tmp_path / "tables/t.csv").write_text("edited")
    before = contents(tmp_path)
    after = {**TWO, "tables/t.csv.before": "edited"}
    monkeypatch.setattr(os, "replace", at_call(move, fail_late, real))
    with pytest.raises((KeyboardInterrupt, OutputError)):
        write(tmp_path, TWO)
    if isinstance(error, OSError) or move == 0:
        recover(tmp_path)
    assert contents(tmp_path) == (after if move or moved else before)


def test_an_error_in_the_first_run_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OutputError, match="Input/output error; choose another folder"):
        write(tmp_path / "out", ONE)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_were_made_for_nothing_are_removed(tmp_path):
    with open_output_folder(tmp_path / "a" / "b", (), PROVENANCE):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_disk_is_explained_before_any_work(tmp_path, monkeypatch):
    for code, message in (
        (errno.EACCES, "no permission to write; choose another folder"),
        (errno.EROFS, "the file system is read-only; choose another folder"),
        (errno.ENOSPC, "the disk is full; free some space"),
        (errno.EIO, "Input/output error; choose another folder"),
    ):
        error = OSError(code, os.strerror(code))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "mkdir", Mock(side_effect=error))
            with pytest.raises(OutputError, match=message) as caught:
                recover(tmp_path)
        start = f"{tmp_path}: cannot write results, nothing was changed"
        assert str(caught.value).startswith(start)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        pl.exceptions.ComputeError(
            "parquet: underlying IO error: No space left on device (os error 28)"
        ),
    ],
)
def test_a_full_disk_is_explained_in_one_line_and_the_earlier_set_stays(
    tmp_path, error
):
    def fail(staging):
        (staging / "half.csv").write_text("half")
        raise error

    write(tmp_path, ONE)
    message = "nothing was changed: the disk is full; free some space"
    with (
        pytest.raises(OutputError, match=message) as caught,
        open_output_folder(tmp_path, (), PROVENANCE, owner=OWNER) as output,
    ):
        output.write(fail, {})
    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == ONE


def test_other_errors_are_not_changed(tmp_path):
    def fail(staging):
        raise pl.exceptions.ComputeError("a bug")

    with (
        pytest.raises(pl.exceptions.ComputeError, match="a bug"),
        open_output_folder(tmp_path, (), PROVENANCE) as output,
    ):
        output.write(fail, {})
    with (
        pytest.raises(FileNotFoundError),
        open_output_folder(tmp_path, (), PROVENANCE),
    ):
        (tmp_path / "no such recording").read_bytes()


@pytest.mark.parametrize("earlier", [{}, ONE])
@pytest.mark.parametrize("move", range(MOVES))
def test_the_next_run_finishes_what_a_kill_at_any_move_stopped(tmp_path, move, earlier):
    if earlier:
        write(tmp_path, earlier)
    die_while_writing(tmp_path, TWO, replace=die_at_move(move))
    assert (tmp_path / STAGING).is_dir()
    recover(tmp_path)
    assert contents(tmp_path) == (TWO if move else earlier)
    write(tmp_path, TWO)
    assert contents(tmp_path) == TWO


def test_a_killed_study_is_finished_by_another_command(tmp_path):
    write(tmp_path, ONE)
    die_while_writing(tmp_path, TWO, replace=die_at_move(MOVES - 1))
    assert "tables/u.csv" in contents(tmp_path)
    open_in_vain(tmp_path, ["curve.csv"], r"it has the results of a\.toml")
    assert contents(tmp_path) == TWO


def test_a_kill_after_the_last_move_leaves_the_new_set(tmp_path):
    write(tmp_path, ONE)
    die_while_writing(tmp_path, TWO, rmtree=at_call(1, die, shutil.rmtree))
    assert (tmp_path / STAGING).is_dir()
    recover(tmp_path)
    assert contents(tmp_path) == TWO


def test_a_staged_file_does_not_move_through_a_link(tmp_path):
    precious = tmp_path / "precious"
    out = tmp_path / "out"
    precious.mkdir()
    (precious / "t.csv").write_text("x")
    write(out, ONE)
    die_while_writing(out, TWO, replace=die_at_move(2))
    shutil.rmtree(out / "tables")
    (out / "tables").symlink_to(precious)
    with pytest.raises(OutputError, match="a link leads tables"):
        recover(out)
    assert contents(precious) == {"t.csv": "x"}


def test_a_file_that_appears_while_others_move_stays_after_an_error(
    tmp_path, monkeypatch
):
    def fail(*paths):
        (tmp_path / "report.html").write_text("mine")
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, ONE)
    assert contents(tmp_path) == {"report.html": "mine"}


def test_files_that_changed_since_a_kill_stay(tmp_path):
    write(tmp_path, ONE)
    die_while_writing(tmp_path, TWO, replace=die_at_move(MOVES - 1))
    (tmp_path / "tables/u.csv").write_text("new since the kill")
    (tmp_path / "tables/t.csv").write_text("changed since the kill")
    recover(tmp_path)
    assert contents(tmp_path) == {
        **TWO,
        "tables/u.csv": "new since the kill",
        "tables/t.csv": "changed since the kill",
    }


def test_a_second_run_in_the_same_folder_is_an_error_until_the_first_ends(tmp_path):
    message = "another run is writing to it; wait for that run or choose another folder"
    with open_output_folder(tmp_path, (), PROVENANCE, owner=OWNER) as output:
        with pytest.raises(OutputError, match=message):
            write(tmp_path, ONE)
        assert output.path.is_dir()
        output.write(make_no_files, {})
    assert [path.name for path in tmp_path.iterdir()] == [PROVENANCE]
    write(tmp_path, ONE)
    assert contents(tmp_path) == ONE


def test_where_the_file_system_has_no_locks_the_process_decides(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", fail)
    with open_output_folder(tmp_path, (), PROVENANCE, owner=OWNER):
        with pytest.raises(OutputError, match="another run is writing to it"):
            write(tmp_path, ONE)
        owner = next(tmp_path.glob(f"{LOCK}.*")).read_text()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f"{LOCK}.owner").write_text(
        owner.replace(str(os.getpid()), str(dead.pid))
    )
    write(tmp_path, TWO)
    assert contents(tmp_path) == TWO
