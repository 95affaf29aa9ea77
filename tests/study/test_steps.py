"""Steps: done when their outcome belongs to the inputs as they are now."""

import json
import os
import time
from pathlib import Path

import pytest

from callshot.errors import OutputError
from callshot.study.steps import NOTE, Step, look


def copying(folder: Path, source: Path, counter: list[str], **options: object) -> Step:
    def make(progress: object) -> list[str]:
        counter.append("ran")
        (folder / "copy.txt").write_bytes(source.read_bytes())
        return ["copy.txt"]

    return Step("copy", "corpus", "", folder, folder, options, [source], make)  # type: ignore[arg-type]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.txt"
    path.write_text("one")
    return path


def quiet(share: float, what: str) -> None:
    pass


def test_a_step_is_done_once_it_ran_and_until_something_changes(
    tmp_path: Path, source: Path
) -> None:
    step = copying(tmp_path / "out", source, [])
    assert not step.done()
    step.run(quiet)
    assert step.done()
    source.write_text("two")
    assert not step.done()
    source.write_text("one")
    assert step.done()  # by content, not by time
    assert not copying(tmp_path / "out", source, [], seed=1).done()


def test_an_outcome_that_was_changed_or_removed_is_made_anew(tmp_path: Path, source: Path) -> None:
    step = copying(tmp_path / "out", source, [])
    step.run(quiet)
    (tmp_path / "out" / "copy.txt").write_text("other")
    assert not step.done()
    step.run(quiet)
    (tmp_path / "out" / "copy.txt").unlink()
    assert not step.done()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"files": 3}',
        '{"files": {}}',
        "null",
        '{"key": "x", "seconds": "y", "files": {}}',
        "[" * 100000,
    ],
)
def test_a_damaged_note_is_none(tmp_path: Path, source: Path, text: str) -> None:
    step = copying(tmp_path / "out", source, [])
    step.run(quiet)
    (tmp_path / "out" / NOTE).write_text(text)
    assert not step.done()


def test_a_step_that_fails_leaves_no_note_behind(tmp_path: Path, source: Path) -> None:
    step = copying(tmp_path / "out", source, [])
    step.run(quiet)
    source.unlink()
    with pytest.raises(OutputError, match=r"copy corpus: .*source.txt: No such file"):
        step.run(quiet)
    assert not (tmp_path / "out" / NOTE).exists()


def test_the_note_tells_files_and_seconds(tmp_path: Path, source: Path) -> None:
    step = copying(tmp_path / "out", source, [])
    step.run(quiet)
    told = json.loads((tmp_path / "out" / NOTE).read_text())
    assert set(told) == {"key", "seconds", "files"}
    assert told["files"] == {"copy.txt": look(source)}


def test_a_folder_is_its_files_by_content_and_its_recordings_by_size_and_time(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.wav").write_bytes(b"sound")
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    before = look(tmp_path)
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    assert look(tmp_path) == before
    (tmp_path / "a.txt").write_text("0\t1\troar\n")
    assert look(tmp_path) != before
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    os.utime(tmp_path / "a.wav", ns=(0, 0))
    assert look(tmp_path) != before


def test_hidden_folders_and_the_study_itself_are_no_part_of_a_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"sound")
    before = look(tmp_path)
    (tmp_path / ".callshot").mkdir()
    (tmp_path / ".callshot" / "x.csv").write_text("x")
    (tmp_path / "study.toml").write_text("x")
    assert look(tmp_path, but=[tmp_path / "study.toml"]) == before
    assert look(tmp_path) != before


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes in folders there")
def test_a_pipe_and_a_device_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "notes.txt")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    assert look(tmp_path / "notes.txt") == look(tmp_path / "zero.csv") == "no file"
    look(tmp_path)


def test_a_recording_that_is_replaced_with_one_as_long_and_as_old_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"sound")
    before, status = look(path), path.stat()
    time.sleep(0.02)
    path.write_bytes(b"noise")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert look(path) != before


def test_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert look(tmp_path / "gone") == look(Path("a\0b")) == "nothing"
