"""Steps: one is done when its result belongs to its inputs as they are now."""

import os
import time
from pathlib import Path

import pytest

from callshot.errors import OutputError
from callshot.records import no_progress
from callshot.study.steps import RECORD_FILE, Step, fingerprint, folder_name


def copy_step(folder, source, **options):
    """Return a step that copies a file."""

    def copy(progress):
        (folder / "copy.txt").write_bytes(source.read_bytes())

    return Step("copy", "corpus", "", folder, options, [source], copy)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.txt"
    path.write_text("one")
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_a_step_is_done_after_it_ran_until_an_input_or_option_changes(source, out):
    step = copy_step(out, source)
    assert not step.is_done()
    step.run(no_progress)
    assert step.is_done()
    source.write_text("two")
    assert not step.is_done()
    source.write_text("one")
    assert step.is_done()  # content counts, not time
    assert not copy_step(out, source, seed=1).is_done()


def test_a_step_is_not_done_when_its_result_was_changed_or_removed(source, out):
    step = copy_step(out, source)
    step.run(no_progress)
    (out / "copy.txt").write_text("other")
    assert not step.is_done()
    step.run(no_progress)
    (out / "copy.txt").unlink()
    assert not step.is_done()


def test_a_step_with_a_damaged_record_is_not_done(source, out):
    step = copy_step(out, source)
    texts = ["", "{", "[]", "null", '{"files": 3}', '{"files": {}}', "[" * 100000]
    for text in (*texts, '{"key": "x", "seconds": "y", "files": {}}'):
        step.run(no_progress)
        (out / RECORD_FILE).write_text(text)
        assert not step.is_done()


def test_a_step_that_fails_leaves_no_record(source, out):
    step = copy_step(out, source)
    step.run(no_progress)
    source.unlink()
    with pytest.raises(OutputError, match=r"copy corpus: .*source.txt: No such file"):
        step.run(no_progress)
    assert not (out / RECORD_FILE).exists()


def test_a_folder_changes_with_the_content_of_its_files_and_the_time_of_its_recordings(
    tmp_path,
):
    (tmp_path / "a.wav").write_bytes(b"sound")
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    before = fingerprint(tmp_path)
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    assert fingerprint(tmp_path) == before
    (tmp_path / "a.txt").write_text("0\t1\troar\n")
    assert fingerprint(tmp_path) != before
    (tmp_path / "a.txt").write_text("0\t1\tcall\n")
    os.utime(tmp_path / "a.wav", ns=(0, 0))
    assert fingerprint(tmp_path) != before


def test_hidden_folders_and_excluded_files_do_not_change_a_folder(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"sound")
    before = fingerprint(tmp_path)
    (tmp_path / ".callshot").mkdir()
    (tmp_path / ".callshot" / "x.csv").write_text("x")
    (tmp_path / "study.toml").write_text("x")
    assert fingerprint(tmp_path, excluded=[tmp_path / "study.toml"]) == before
    assert fingerprint(tmp_path) != before


@pytest.mark.skipif(os.name == "nt", reason="Windows has no pipes in folders")
def test_pipes_and_devices_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "notes.txt")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    assert fingerprint(tmp_path / "notes.txt") == "no file"
    assert fingerprint(tmp_path / "zero.csv") == "no file"
    fingerprint(tmp_path)


def test_a_recording_that_is_replaced_by_one_of_the_same_size_and_time_changes(
    tmp_path,
):
    path = tmp_path / "a.wav"
    path.write_bytes(b"sound")
    before = fingerprint(path)
    status = path.stat()
    time.sleep(0.02)
    path.write_bytes(b"noise")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint(path) != before


def test_a_missing_file_has_the_fingerprint_nothing(tmp_path):
    assert fingerprint(tmp_path / "gone") == "nothing"
    assert fingerprint(Path("a\0b")) == "nothing"


@pytest.mark.parametrize("name", ["..", ".", ".hidden", "a/../b", "x" * 300])
def test_a_name_becomes_one_folder_inside(tmp_path, name):
    path = tmp_path / folder_name(name)
    path.mkdir()
    assert path.resolve().parent == tmp_path.resolve()
    assert not path.name.startswith(".")
