"""Workers read and write a bucket themselves: the same bytes, and no secret anywhere."""

import logging
import pickle

import numpy as np
import pytest

import callshot
from callshot.errors import InputError
from callshot.storage import remote_path, to_path
from stores import BUCKET, SECRET, serve_files, upload

pytest.importorskip("distributed")
URL = f"s3://{BUCKET}"
TOKEN = "X-Amz-Signature=SIGNED"


@pytest.fixture
def cluster(bucket):
    """Yield a worker, which finds the bucket by the environment."""
    with callshot.open_cluster("local:1", threads=1) as workers:
        yield workers


def read_bucket(bucket, folder):
    names = bucket.find(f"{BUCKET}/{folder}")
    return {
        name.removeprefix(f"{BUCKET}/{folder}/"): bucket.cat_file(name)
        for name in names
    }


def test_workers_read_and_write_a_bucket_and_signed_urls(
    bucket, cluster, local, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG)
    sent = []
    real = cluster.client.map

    def note(*args, **options):
        sent.append((args, options))
        return real(*args, **options)

    monkeypatch.setattr(cluster.client, "map", note)
    (local / "a.txt").write_text("1.0\t2.0\tcall\n4.0\t5.0\tcall\n")
    upload(bucket, local, f"{BUCKET}/in")
    for out, workers in (("plain", None), ("cluster", cluster)):
        result = callshot.index_recordings(
            f"{URL}/in", f"{URL}/{out}", "mfcc", window_s=1, cluster=workers
        )
        assert result.added == ["a.wav", "site/b.flac", "site/c.ogg"]
    assert read_bucket(bucket, "cluster") == read_bucket(bucket, "plain")
    segments = callshot.segment(f"{URL}/in")
    remote = callshot.embed(segments, "mfcc", store=tmp_path / "a", cluster=cluster)
    disk = callshot.embed(callshot.segment(local), "mfcc", store=tmp_path / "b")
    assert np.array_equal(remote.matrix, disk.matrix)
    # a signed URL of one recording
    with serve_files(local) as url:
        signed = f"{url}/a.wav?{TOKEN}"
        result = callshot.index_recordings(
            signed, f"{URL}/signed", "mfcc", window_s=1, cluster=cluster
        )
        assert result.added == ["a.wav"]
        logged = caplog.text
        wrong = f"{url}/a.wav?sig=wrong&x=SIGNED"
        with pytest.raises(InputError, match="no permission") as caught:
            callshot.index_recordings(
                wrong, f"{URL}/i", "mfcc", window_s=1, cluster=cluster
            )
        assert "SIGNED" not in str(caught.value)
    for name in bucket.find(BUCKET):
        content = bucket.cat_file(name)
        assert SECRET.encode() not in content
        assert b"SIGNED" not in content
    assert len(sent) >= 3
    assert SECRET.encode() not in pickle.dumps([args[1:] for args, _ in sent])
    for text in (repr(sent), logged):
        assert SECRET not in text
        assert "SIGNED" not in text


def test_a_path_takes_the_signatures_below_it_along_and_no_others(monkeypatch):
    monkeypatch.setattr(remote_path, "_signatures", {})
    signed = to_path("https://host/in/a.wav?sig=ONE")
    to_path("https://host/index/b.wav?sig=TWO")
    sent = pickle.dumps(signed.parent)
    assert b"ONE" in sent
    assert b"TWO" not in sent
    remote_path._signatures.clear()
    folder = pickle.loads(sent)  # noqa: S301
    assert (folder / "a.wav").find_store()[1] == "https://host/in/a.wav?sig=ONE"
    assert "ONE" not in f"{folder!r} {folder / 'a.wav'!r} {folder / 'a.wav'}"
