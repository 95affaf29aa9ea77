"""Stores that refuse, hang, or change under the reader, and names that nobody expects."""

import time
from contextlib import suppress

import pytest
import s3fs
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from callshot import index_recordings, open_index
from callshot.corpus.recordings import find_recordings
from callshot.errors import InputError, OutputError
from callshot.storage import local_copy, remote_path, to_path
from sounds import record
from stores import BUCKET, SECRET, serve_files, upload

URL = f"s3://{BUCKET}"


def make_index(recordings, out):
    return index_recordings(recordings, out, "mfcc", window_s=1)


def on_first_read(bucket, name, act):
    """Let something happen to the bucket before the first byte of a file is sent."""
    done = []

    def fault(method, path, number):
        if method == "GET" and path.endswith(name) and not done:
            done.append(number)
            act()
        return ""

    bucket.proxy.fault = fault


def test_a_wrong_address_is_one_line(bucket, local, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    s3fs.S3FileSystem.clear_instance_cache()
    for act, kind in (
        (lambda: make_index(f"{URL}/in", tmp_path / "index"), InputError),
        (lambda: make_index(local, f"{URL}/index"), OutputError),
        (lambda: open_index(f"{URL}/index"), InputError),
    ):
        with pytest.raises(kind, match=r"^s3://recorders/in.*127\.0\.0\.1:1") as caught:
            act()
        assert "\n" not in str(caught.value)
        assert SECRET not in str(caught.value)
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_recording_that_is_gone_after_the_listing_is_a_reject(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    on_first_read(bucket, "in/a.wav", lambda: bucket.rm_file(f"{BUCKET}/in/a.wav"))
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert result.added == ["site/b.flac", "site/c.ogg"]
    (reject,) = result.rejects
    assert reject.reason == "a.wav: cannot be read (no such file, folder or bucket)"


def test_a_recording_whose_bytes_do_not_come_is_a_reject(bucket, local, monkeypatch):
    upload(bucket, local, f"{BUCKET}/in")
    monkeypatch.setattr(s3fs.S3FileSystem, "read_timeout", 0.5)
    s3fs.S3FileSystem.clear_instance_cache()

    def hang(method, path, number):
        if path.endswith("in/a.wav"):
            time.sleep(1.5)
        return ""

    bucket.proxy.fault = hang
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert len(result.added) == 2
    assert "a.wav: cannot be read (the storage failed: " in result.rejects[0].reason
    s3fs.S3FileSystem.clear_instance_cache()


def test_an_index_whose_files_are_refused_half_way_is_completed_later(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    writes = []

    def refuse(method, path, number):
        is_entry = method == "PUT" and path.endswith("recording.json")
        writes.extend([number] if is_entry else [])
        return "403" if is_entry and len(writes) > 1 else ""

    bucket.proxy.fault = refuse
    with pytest.raises(OutputError, match=r"recording.json: .*no permission") as caught:
        make_index(f"{URL}/in", f"{URL}/index")
    assert "\n" not in str(caught.value)
    bucket.proxy.reset()
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert result.added == ["site/b.flac", "site/c.ogg"]
    assert len(result.index.recordings) == 3


# Names


def test_odd_names_on_a_web_server_are_read(tmp_path):
    names = ["a b.wav", "c#1.wav", "d?x.wav", "e%2Ff.wav", "ü.wav", "g&h;i.wav"]
    for seed, name in enumerate(names):
        record(tmp_path / "in" / name, 2, 16000, seed=seed)
    with serve_files(tmp_path) as url:
        result = make_index(f"{url}/in", tmp_path / "index")
    assert result.rejects == []
    assert len(result.added) == len(names)


@pytest.mark.parametrize("name", ["../../x", "%2e%2e%2fx"])
def test_a_copy_never_leaves_its_folder(bucket, tmp_path, name):
    bucket.call_s3("put_object", Bucket=BUCKET, Key=f"in/{name}", Body=b"content")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with suppress(OSError):
        local_copy(to_path(f"{URL}/in") / name)
    copies = remote_path.home() / "remote"
    for path in {path for path in tmp_path.rglob("*") if path.is_file()} - before:
        assert path.parent.parent == copies


def test_a_listing_of_many_files_takes_a_request_for_each_thousand(bucket):
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in range(1200):
        backend.put_object(BUCKET, f"in/{number % 7}/{number:05d}.wav", b"RIFF")
    bucket.proxy.reset()
    library = find_recordings(to_path(f"{URL}/in"))
    assert len(library.paths) == 1200
    assert bucket.proxy.requests < 10
