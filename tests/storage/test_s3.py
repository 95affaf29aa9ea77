"""Recordings, index and results in a bucket: the same as on a disk, whatever the network does."""

import re
from collections import Counter
from pathlib import Path

import pytest
import s3fs
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from callshot import index_recordings, open_index, scan
from callshot.corpus.recordings import find_recordings
from callshot.detection.index import index_files
from callshot.detection.index import index_recordings as indexing
from callshot.errors import InputError, OutputError
from callshot.storage import requests, to_path
from callshot.study.file_steps import segment_files
from cluster_jobs import ClusterHere
from sounds import record
from stores import BUCKET, SECRET, serve_files, upload

URL = f"s3://{BUCKET}"
INDEX = "memory://index"  # a store that is used as a bucket is


def read_rows(index):
    blocks = index.read_blocks()
    return [(one.spans.frame.rows(), one.matrix.tobytes()) for one in blocks]


def make_index(recordings, out, **options):
    return index_recordings(recordings, out, "mfcc", window_s=1, **options)


def test_spans_of_a_long_recording_read_its_bytes_about_once(
    bucket, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 2)
    monkeypatch.setattr(indexing, "PIECE_BYTES", 11 * 2**13)
    monkeypatch.setattr(requests, "FIRST_BYTES", 2**9)
    monkeypatch.setattr(requests, "MAX_BYTES", 2**13)  # 48 MB are 11 times 4 MiB
    path = record(tmp_path / "recordings/a.wav", 12, 16000)
    upload(bucket, path.parent, f"{BUCKET}/in")
    cluster = ClusterHere()
    result = make_index(f"{URL}/in", f"{URL}/index", cluster=cluster)
    size = path.stat().st_size
    assert len(cluster.spans) > 2
    assert size <= bucket.proxy.sent <= size * 1.05
    expected = make_index(path.parent, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)


def test_a_second_run_adds_what_is_new_or_changed_and_damage_is_an_error(
    bucket, local, tmp_path
):
    upload(bucket, local, f"{BUCKET}/in")
    result = make_index(f"{URL}/in", f"{URL}/index")
    size = sum(path.stat().st_size for path in local.rglob("*.*"))
    assert size <= bucket.proxy.sent <= size * 1.05  # audio is read once
    assert result.added == ["a.wav", "site/b.flac", "site/c.ogg"]
    expected = make_index(local, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)
    assert make_index(f"{URL}/in", f"{URL}/index").added == []
    record(local / "a.wav", 6, 16000, seed=9)  # of the same size
    record(local / "z.wav", 3, 16000, seed=10)
    upload(bucket, local, f"{BUCKET}/in")
    assert make_index(f"{URL}/in", f"{URL}/index").added == ["a.wav", "z.wav"]
    spans = [name for name in bucket.find(f"{BUCKET}/index") if name.endswith(".npy")]
    assert len(spans) == 4  # the windows of the earlier a.wav are gone
    content = bytearray(bucket.cat_file(spans[0]))
    content[-1] ^= 1
    bucket.pipe_file(spans[0], bytes(content))
    with pytest.raises(InputError, match="differs from the checksum in its name"):
        read_rows(open_index(f"{URL}/index"))


def test_a_run_goes_on_with_the_files_of_one_that_ended_early(
    memory, local, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 2)
    write_indexed = indexing.write_indexed
    monkeypatch.setattr(indexing, "write_indexed", None)
    with pytest.raises(TypeError):
        make_index(local, INDEX)
    monkeypatch.setattr(indexing, "write_indexed", write_indexed)
    first = set(memory.find("/index"))
    assert len([name for name in first if name.endswith(".npy")]) == 3
    written = []
    write = index_files.write_span
    write_noted = lambda *parts: written.append(parts) or write(*parts)  # noqa: E731
    monkeypatch.setattr(indexing, "write_span", write_noted)
    result = make_index(local, INDEX)
    assert len(written) == 5  # three of b.flac, two of c.ogg
    expected = make_index(local, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)


def test_errors_that_pass_change_nothing(bucket, local, tmp_path):
    upload(bucket, local, f"{BUCKET}/in")
    faults = {0: "503", 4: "cut"}
    bucket.proxy.fault = lambda method, path, number: faults.get(number % 8, "")
    result = make_index(f"{URL}/in", f"{URL}/index")
    rows = read_rows(open_index(f"{URL}/index"))
    assert bucket.proxy.failed > 5
    bucket.proxy.reset()
    assert result.rejects == []
    assert rows == read_rows(make_index(local, tmp_path / "index").index)


REASONS = {
    "changes": r".*changed while it was read",
    "fails": r"cannot be read \(the storage failed: .*",
    "gone": r"cannot be read \(no such file, folder or bucket\)$",
}


def test_recordings_that_go_or_change_are_rejects_and_the_rest_goes_on(
    bucket, tmp_path, monkeypatch
):
    monkeypatch.setattr(requests, "MAX_BYTES", 2**16)
    for seed, name in enumerate(("good", *REASONS)):
        record(tmp_path / f"in/{name}.wav", 6, 16000, seed=seed)
    upload(bucket, tmp_path / "in", f"{BUCKET}/in")
    other = record(tmp_path / "other.wav", 6, 16000, seed=5).read_bytes()
    reads: Counter[str] = Counter()

    def change(method, path, number):
        name = Path(path).stem
        if method != "GET" or name not in REASONS:
            return ""
        reads[name] += 1
        if name == "gone" and reads[name] == 1:
            bucket.rm_file(f"{BUCKET}/in/gone.wav")
        if name == "changes" and reads[name] == 3:
            bucket.pipe_file(f"{BUCKET}/in/changes.wav", other)
        return "503" if name == "fails" and reads[name] > 2 else ""

    bucket.proxy.fault = change
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert result.added == ["good.wav"]
    for reject, name in zip(result.rejects, REASONS, strict=True):
        assert reject.file == f"{name}.wav"
        assert re.match(f"{name}.wav: {REASONS[name]}", reject.reason)
    bucket.proxy.reset()
    later = make_index(f"{URL}/in", f"{URL}/index")
    assert later.added == ["changes.wav", "fails.wav"]


def test_two_writers_at_once_leave_an_index_that_can_be_read(
    memory, local, monkeypatch
):
    real = indexing.write_span
    seconds = []

    def write_with_rival(folder, stamp, number, rows):
        """Another process finishes the recording first, with other last digits."""
        if not seconds:
            seconds.append(True)
            monkeypatch.setattr(indexing, "write_span", write_other)
            make_index(local, INDEX)
            monkeypatch.setattr(indexing, "write_span", real)
        return real(folder, stamp, number, rows)

    def write_other(folder, stamp, number, rows):
        rows["vector"] += 1
        return real(folder, stamp, number, rows)

    monkeypatch.setattr(indexing, "write_span", write_with_rival)
    make_index(local, INDEX)
    index = open_index(INDEX)
    assert len(index.recordings) == 3
    assert len(read_rows(index)) == 3


@pytest.mark.parametrize("reason", ["no permission", r"127\.0\.0\.1:1"])
def test_a_bucket_that_refuses_or_does_not_answer_is_one_line(
    bucket, local, monkeypatch, reason
):
    upload(bucket, local, f"{BUCKET}/in")
    if reason == "no permission":
        bucket.proxy.fault = lambda method, path, number: "403"
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    s3fs.S3FileSystem.clear_instance_cache()
    for act, kind in (
        (lambda: make_index(f"{URL}/in", local / "index"), InputError),
        (lambda: make_index(local, f"{URL}/index"), OutputError),
        (lambda: open_index(f"{URL}/index"), InputError),
        (lambda: scan(f"{URL}/m.npz", f"{URL}/in", local / "index"), InputError),
    ):
        with pytest.raises(kind, match=rf"^s3://recorders/.*{reason}") as caught:
            act()
        assert "\n" not in str(caught.value)
        assert SECRET not in str(caught.value)
    s3fs.S3FileSystem.clear_instance_cache()


def test_empty_and_missing_buckets_and_folders_are_one_line_each(
    bucket, local, tmp_path
):
    out = tmp_path / "index"
    with pytest.raises(InputError, match="s3://recorders: no recordings in this fold"):
        make_index(URL, out)
    for place in ("s3://absent", "s3://absent/in", f"{URL}/absent"):
        with pytest.raises(
            InputError, match=f"{place}: no such file, folder or bucket"
        ):
            make_index(place, out)
    with pytest.raises(OutputError, match=r"s3://absent/index: cannot be written to"):
        make_index(local, "s3://absent/index")
    with pytest.raises(InputError, match="s3://recorders/in: expected an index"):
        open_index(f"{URL}/in")


def test_empty_objects_marks_of_folders_and_odd_names_do_not_stop_the_rest(
    bucket, local
):
    upload(bucket, local, f"{BUCKET}/in")
    bucket.pipe_file(f"{BUCKET}/in/empty.wav", b"")
    bucket.call_s3("put_object", Bucket=BUCKET, Key="in/site/", Body=b"")
    names = ["in/a b#1?.wav", "in/x::file:.wav", "in/ü+100%.wav", "in/[a]*.wav"]
    for name in names:
        bucket.pipe_file(f"{BUCKET}/{name}", (local / "a.wav").read_bytes())
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert len(result.added) == 3 + len(names)
    assert [one.reason for one in result.rejects] == [
        "empty.wav: the file is empty (0 bytes)"
    ]


def test_names_that_lead_elsewhere_are_rejects_and_never_opened(bucket):
    for key in ("in/../out.wav", "in//double.wav", "in/a\x1b[31m.wav", "in/./b.wav"):
        bucket.call_s3("put_object", Bucket=BUCKET, Key=key, Body=b"RIFF")
    bucket.call_s3("put_object", Bucket=BUCKET, Key="in/good.wav", Body=b"RIFF")
    library = find_recordings(to_path(f"{URL}/in"))
    assert library.paths == ("good.wav",)
    assert len(library.rejects) == 4
    for reject in library.rejects:
        assert reject.file.startswith(f"{URL}/in/")
        assert reject.file.isprintable()
        assert "rename it" in reject.reason


def test_an_index_whose_files_are_refused_half_way_is_completed_later(
    memory, refuse, local
):
    folder = index_files.recording_folder(Path("index"), "site/b.flac")
    with (
        refuse("put_file", f"{folder}/recording.json"),
        pytest.raises(OutputError, match=r"recording.json: .*no permission") as caught,
    ):
        make_index(local, INDEX)
    assert "\n" not in str(caught.value)
    result = make_index(local, INDEX)
    assert result.added == ["site/b.flac", "site/c.ogg"]
    assert len(result.index.recordings) == 3


def test_a_listing_of_many_files_takes_a_request_for_each_thousand(bucket):
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for number in range(1001):
        backend.put_object(BUCKET, f"in/{number % 7}/{number:05d}.wav", b"RIFF")
    bucket.proxy.reset()
    library = find_recordings(to_path(f"{URL}/in"))
    assert len(library.paths) == 1001
    assert bucket.proxy.requests < 10


def test_signatures_are_not_written_to_files_of_results(memory, local):
    (local / "a.csv").write_text("recording,start_s,end_s,label\na.wav,1,3,call\n")
    with serve_files(local) as url:
        signed = Path(f"{url}/a.csv?X-Amz-Signature=SIGNED")  # as the command line does
        segment_files(local, to_path("memory://segments"), signed)
    facts = memory.cat_file("/segments/segments.json").decode()
    assert f"{url}/a.csv" in facts
    names = memory.find("/segments")
    assert len(names) > 2
    for name in names:
        assert b"SIGNED" not in memory.cat_file(name)
