"""Which recording a name means; no name leads outside the folder."""

import os
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.corpus.recordings import Library, find_recordings, window_spans
from callshot.detection.index.windows import WindowGrid
from callshot.errors import InputError, OptionError
from sounds import record

NAMES = ("a/x.wav", "b/x.wav", "b/y.flac", "Top.WAV", "x.1.mp3", "deep/er/z.wav")
SITES = Library(Path("audio"), (*NAMES, "cafe\u0301.wav"))


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a/x.wav", "a/x.wav"),
        ("A/X.wav", "a/x.wav"),
        ("a\\x.wav", "a/x.wav"),
        ("./b//x", "b/x.wav"),
        ("y", "b/y.flac"),
        ("y.wav", "b/y.flac"),
        ("top.wav", "Top.WAV"),
        ("C:\\Users\\me\\field\\b\\x.wav", "b/x.wav"),
        ("/home/me/elsewhere/Top.wav", "Top.WAV"),
        ("/home/me/elsewhere/b/y.flac", "b/y.flac"),
        ("caf\u00e9.wav", "cafe\u0301.wav"),
        ("../../b/x.wav", "b/x.wav"),
        ("er/z.wav", "deep/er/z.wav"),
        (" x.1.mp3 ", "x.1.mp3"),
    ],
)
def test_a_name_means_the_recording_whose_path_ends_in_it_or_the_other_way_round(
    name, path
):
    assert SITES.find(name) == path


@pytest.mark.parametrize("name", ["x.wav", "x"])
def test_a_name_of_two_recordings_is_an_error(name):
    with pytest.raises(InputError, match=r"may mean a/x\.wav or b/x\.wav"):
        SITES.find(name)


ABSENT = [
    "c/x.wav",
    "c/y.flac",
    "/me/y.flac",
    "/me/x.wav",
    "nothing.wav",
    "",
    "/",
    "..",
]


@pytest.mark.parametrize("name", [*ABSENT, "../../etc/passwd", "a", "wav", "y.2"])
def test_a_name_of_no_recording_is_an_error(name):
    with pytest.raises(InputError, match="no recording"):
        SITES.find(name)


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("a/x.Table.1.selections.txt", "a/x.wav"),
        ("b/x.txt", "b/x.wav"),
        ("b/X.WAV.TextGrid", "b/x.wav"),
        ("top_labels.txt", "Top.WAV"),
        ("raven/er/z.txt", "deep/er/z.wav"),
        ("x.1.Table.2.selections.txt", "x.1.mp3"),
        ("y_labels.csv", "b/y.flac"),
        ("y-final.TextGrid", "b/y.flac"),
    ],
)
def test_an_annotation_file_belongs_to_the_recording_of_its_name(file, path):
    assert SITES.pair(PurePosixPath(file)) == path


@pytest.mark.parametrize(
    "file", ["top_2.txt", "top-2019.txt", "top2.txt", "top_labelsx.txt"]
)
def test_a_name_with_any_other_ending_belongs_to_another_recording(file):
    with pytest.raises(InputError, match="matches the name"):
        SITES.pair(PurePosixPath(file))


def test_an_annotation_file_of_two_recordings_or_none_is_an_error():
    with pytest.raises(InputError, match="may mean"):
        SITES.pair(PurePosixPath("x.txt"))
    message = r"b/y\.flac has the same name but is in another"
    with pytest.raises(InputError, match=message):
        SITES.pair(PurePosixPath("siteC/y.txt"))
    assert (
        Library(Path(), ("audio/y.wav",)).pair(PurePosixPath("labels/y.txt"))
        == "audio/y.wav"
    )
    with pytest.raises(InputError, match=r"matches the name xy\.txt"):
        SITES.pair(PurePosixPath("xy.txt"))


@given(st.text(max_size=40))
def test_any_text_means_a_listed_path_or_is_an_error(name):
    for look_up in (SITES.find, lambda text: SITES.pair(PurePosixPath(text or "-"))):
        try:
            assert look_up(name) in SITES.paths
        except InputError:
            continue


def test_audio_is_found_in_all_folders_with_relative_paths(tmp_path):
    for name in ("b/x.WAV", "a.flac", "notes.txt", ".git/y.wav", "b/._x.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    library = find_recordings(tmp_path)
    assert library.paths == ("a.flac", "b/x.WAV")
    assert [(Path(r.file).name, r.row) for r in library.rejects] == [("._x.wav", None)]
    assert "hidden" in library.rejects[0].reason


def test_unsupported_and_unreadable_audio_is_a_reject_with_a_reason(tmp_path):
    (tmp_path / "phone.m4a").write_bytes(b"")
    (tmp_path / "locked").mkdir(mode=0)
    (tmp_path / os.fsdecode(b"b\xff.wav")).write_bytes(b"")
    reasons = {Path(r.file).name: r.reason for r in find_recordings(tmp_path).rejects}
    assert "convert it to FLAC" in reasons["phone.m4a"]
    assert "not UTF-8" in reasons[os.fsdecode(b"b\xff.wav")]
    if os.geteuid():
        assert "cannot be read" in reasons["locked"]


def test_a_folder_that_cannot_be_entered_is_a_reject(tmp_path, monkeypatch):
    def walk(folder, onerror, followlinks):
        onerror(PermissionError(13, "Permission denied", str(folder / "locked")))
        yield str(folder), [], []

    (tmp_path / "locked").mkdir()
    monkeypatch.setattr(os, "walk", walk)
    assert "cannot be read" in find_recordings(tmp_path).rejects[0].reason


def test_links_that_lead_outside_are_not_followed(tmp_path):
    outside = tmp_path / "outside"
    inside = tmp_path / "audio"
    record(outside / "secret.wav")
    record(inside / "real.wav")
    (inside / "out.wav").symlink_to(outside / "secret.wav")
    (inside / "in.wav").symlink_to(inside / "real.wav")
    (inside / "folder").symlink_to(outside)
    (inside / "broken.wav").symlink_to(inside / "nothing.wav")
    (inside / "loop.wav").symlink_to(inside / "loop.wav")
    library = find_recordings(inside)
    assert library.paths == ("in.wav", "real.wav")
    reasons = {Path(r.file).name: r.reason for r in library.rejects}
    assert set(reasons) == {"out.wav", "folder", "broken.wav", "loop.wav"}
    assert "leads outside" in reasons["out.wav"]
    assert "leads outside" in reasons["folder"]


def test_links_that_lead_outside_are_followed_if_asked(tmp_path):
    outside = tmp_path / "annex"
    inside = tmp_path / "audio"
    record(outside / "a" / "x.wav")
    record(outside / "b" / "y.wav")
    record(inside / "real" / "z.wav")
    (inside / "x.wav").symlink_to(outside / "a" / "x.wav")
    (inside / "folder").symlink_to(outside / "b")
    (inside / "again").symlink_to(outside / "b")
    (inside / "itself").symlink_to(inside)
    (inside / "around").symlink_to(tmp_path)
    (inside / "same").symlink_to(inside / "real")
    (inside / "gone.wav").symlink_to(outside / "gone.wav")
    library = find_recordings(inside, follow_links=True)
    assert set(library.paths) == {"x.wav", "again/y.wav", "real/z.wav"}
    reasons = {Path(r.file).name: r.reason for r in library.rejects}
    assert set(reasons) == {"folder", "itself", "around", "same", "gone.wav"}
    assert "git annex get" in reasons["gone.wav"]
    without = {Path(r.file).name: r.reason for r in find_recordings(inside).rejects}
    assert without["x.wav"].endswith("--follow-links reads it")


def test_one_file_is_a_library_of_one_and_a_missing_folder_an_error(tmp_path):
    assert find_recordings(record(tmp_path / "x.wav")).paths == ("x.wav",)
    for name, reason in (
        ("nothing", "No such file"),
        ("x" * 300, "File name too long"),
    ):
        with pytest.raises(InputError, match=f"{reason}.*; expected a folder"):
            find_recordings(tmp_path / name)


@settings(max_examples=30)
@given(frames=st.integers(1, 400), window=st.integers(1, 90), hop=st.integers(1, 90))
def test_windows_are_those_of_an_index(tmp_path_factory, frames, window, hop):
    hop = min(hop, window)
    folder = tmp_path_factory.mktemp("windows")
    soundfile.write(folder / "a.wav", np.zeros(frames), 100)
    windows = window_spans(folder, window / 100, hop_s=hop / 100)
    starts = WindowGrid(100, window, hop).find_starts(frames)
    assert windows["start_s"] == (starts / 100).tolist()
    ends = np.minimum(starts + window, frames)
    assert windows["end_s"] == (ends / 100).tolist()
    assert windows.root == folder


def test_recordings_without_windows_are_counted_in_a_warning(tmp_path):
    record(tmp_path / "a.wav")
    (tmp_path / "b.wav").write_text("no audio")
    with pytest.warns(UserWarning, match=r"1 recording left out, the first: b\.wav: "):
        windows = window_spans(tmp_path, 1.0)
    assert set(windows["recording"]) == {"a.wav"}
    with pytest.raises(OptionError, match="hop_s"):
        window_spans(tmp_path, 1.0, hop_s=2.0)
