"""Recordings, index and results in a bucket: the same as on a disk, whatever the network does."""

from pathlib import Path

import pytest

from callshot import index_recordings, open_index, scan
from callshot.corpus.recordings import find_recordings
from callshot.detection.index import index_files
from callshot.detection.index import index_recordings as indexing
from callshot.errors import InputError, OutputError
from callshot.storage import requests, to_path
from cluster_jobs import ClusterHere
from sounds import record
from stores import BUCKET, SECRET, serve_files, upload

URL = f"s3://{BUCKET}"


def read_rows(index):
    blocks = index.read_blocks()
    return [(one.spans.frame.rows(), one.matrix.tobytes()) for one in blocks]


def make_index(recordings, out, **options):
    return index_recordings(recordings, out, "mfcc", window_s=1, **options)


# The same as on a disk


def test_an_index_in_a_bucket_has_the_rows_of_one_on_a_disk_and_reads_audio_once(
    bucket, local, tmp_path
):
    record(local / "a.wav", 40, 16000, seed=1)
    upload(bucket, local, f"{BUCKET}/in")
    result = make_index(f"{URL}/in", f"{URL}/index")
    sent = bucket.proxy.sent
    size = sum(path.stat().st_size for path in local.rglob("*.*"))
    assert result.added == ["a.wav", "site/b.flac", "site/c.ogg"]
    assert result.rejects == []
    expected = make_index(local, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)
    assert size <= sent <= size * 1.05


def test_spans_of_a_long_recording_read_its_bytes_about_once(
    bucket, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 8)
    monkeypatch.setattr(indexing, "PIECE_BYTES", 11 * 2**14)
    monkeypatch.setattr(requests, "FIRST_BYTES", 2**10)
    monkeypatch.setattr(requests, "MAX_BYTES", 2**14)  # 48 MB are 11 times 4 MiB
    path = record(tmp_path / "recordings/a.wav", 30, 16000)
    upload(bucket, path.parent, f"{BUCKET}/in")
    cluster = ClusterHere()
    result = make_index(f"{URL}/in", f"{URL}/index", cluster=cluster)
    size = path.stat().st_size
    assert len(cluster.spans) > 3
    assert size <= bucket.proxy.sent <= size * 1.05
    expected = make_index(path.parent, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)


def test_a_second_run_adds_only_what_is_new_or_changed(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    make_index(f"{URL}/in", f"{URL}/index")
    assert make_index(f"{URL}/in", f"{URL}/index").added == []
    record(local / "a.wav", 6, 16000, seed=9)  # of the same size
    record(local / "z.wav", 3, 16000, seed=10)
    upload(bucket, local, f"{BUCKET}/in")
    assert make_index(f"{URL}/in", f"{URL}/index").added == ["a.wav", "z.wav"]
    spans = [name for name in bucket.find(f"{BUCKET}/index") if name.endswith(".npy")]
    assert len(spans) == 4  # the windows of the earlier a.wav are gone


def test_a_run_goes_on_with_the_files_of_one_that_ended_early(
    bucket, local, tmp_path, monkeypatch
):
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", 2)
    upload(bucket, local, f"{BUCKET}/in")

    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("callshot.detection.index.index_recordings.write_indexed", fail)
        with pytest.raises(KeyboardInterrupt):
            make_index(f"{URL}/in", f"{URL}/index")
    first = set(bucket.find(f"{BUCKET}/index"))
    assert len([name for name in first if name.endswith(".npy")]) == 3
    written = []
    monkeypatch.setattr(
        indexing,
        "write_span",
        lambda *parts: written.append(parts) or index_files.write_span(*parts),
    )
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert len(written) == 5  # three of b.flac, two of c.ogg
    expected = make_index(local, tmp_path / "index")
    assert read_rows(result.index) == read_rows(expected.index)


# Failures


@pytest.mark.parametrize("kind", ["503", "cut"])
def test_errors_that_pass_change_nothing(bucket, local, tmp_path, kind):
    upload(bucket, local, f"{BUCKET}/in")
    bucket.proxy.fault = lambda method, path, number: kind if number % 4 == 0 else ""
    result = make_index(f"{URL}/in", f"{URL}/index")
    rows = read_rows(open_index(f"{URL}/index"))
    assert bucket.proxy.failed > 5
    bucket.proxy.reset()
    assert result.rejects == []
    assert rows == read_rows(make_index(local, tmp_path / "index").index)


def test_a_recording_that_vanishes_half_way_is_a_reject_and_the_rest_goes_on(
    bucket, local, monkeypatch
):
    monkeypatch.setattr(requests, "MAX_BYTES", 2**16)
    upload(bucket, local, f"{BUCKET}/in")
    reads = []

    def vanish(method, path, number):
        if method == "GET" and path.endswith("in/a.wav"):
            reads.append(number)
        return "503" if len(reads) > 2 and path.endswith("in/a.wav") else ""

    bucket.proxy.fault = vanish
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert result.added == ["site/b.flac", "site/c.ogg"]
    (reject,) = result.rejects
    assert reject.file == "a.wav"
    assert reject.reason.startswith("a.wav: cannot be read (the storage failed: ")
    assert "\n" not in reject.reason


def test_an_object_that_changes_between_two_ranges_is_a_reject(
    bucket, local, monkeypatch
):
    monkeypatch.setattr(requests, "MAX_BYTES", 2**16)
    upload(bucket, local, f"{BUCKET}/in")
    other = record(local / "other.wav", 6, 16000, seed=5).read_bytes()
    reads = []

    def change(method, path, number):
        if method == "GET" and path.endswith("in/a.wav"):
            reads.append(number)
            if len(reads) == 3:
                bucket.pipe_file(f"{BUCKET}/in/a.wav", other)
        return ""

    bucket.proxy.fault = change
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert [reject.file for reject in result.rejects] == ["a.wav"]
    assert "changed while it was read" in result.rejects[0].reason
    assert "a.wav" in make_index(f"{URL}/in", f"{URL}/index").added


def test_two_writers_at_once_leave_an_index_that_can_be_read(
    bucket, local, monkeypatch
):
    upload(bucket, local, f"{BUCKET}/in")
    real = indexing.write_span
    seconds = []

    def write_with_rival(folder, stamp, number, rows):
        """Another process finishes the recording first, with other last digits."""
        if not seconds:
            seconds.append(True)
            monkeypatch.setattr(indexing, "write_span", write_other)
            make_index(f"{URL}/in", f"{URL}/index")
            monkeypatch.setattr(indexing, "write_span", real)
        return real(folder, stamp, number, rows)

    def write_other(folder, stamp, number, rows):
        rows["vector"] += 1
        return real(folder, stamp, number, rows)

    monkeypatch.setattr(indexing, "write_span", write_with_rival)
    make_index(f"{URL}/in", f"{URL}/index")
    index = open_index(f"{URL}/index")
    assert len(index.recordings) == 3
    assert len(read_rows(index)) == 3


def test_signatures_are_not_written_to_files_of_results(bucket, local, tmp_path):
    from callshot.study.file_steps import segment_files

    (local / "a.csv").write_text("recording,start_s,end_s,label\na.wav,1,3,call\n")
    with serve_files(local) as url:
        signed = Path(
            f"{url}/a.csv?X-Amz-Signature=SIGNED"
        )  # as the command line has it
        segment_files(local, to_path(f"{URL}/segments"), signed)
    facts = bucket.cat_file(f"{BUCKET}/segments/segments.json").decode()
    assert f"{url}/a.csv" in facts
    names = bucket.find(f"{BUCKET}/segments")
    assert len(names) > 2
    for name in names:
        assert b"SIGNED" not in bucket.cat_file(name)


def test_a_damaged_file_of_an_index_in_a_bucket_is_a_reject(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    make_index(f"{URL}/in", f"{URL}/index")
    names = [name for name in bucket.find(f"{BUCKET}/index") if name.endswith(".npy")]
    content = bytearray(bucket.cat_file(names[0]))
    content[-1] ^= 1
    bucket.pipe_file(names[0], bytes(content))
    with pytest.raises(InputError, match="differs from the checksum in its name"):
        read_rows(open_index(f"{URL}/index"))


# Bad input


def test_a_bucket_without_permission_is_one_line(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    bucket.proxy.fault = lambda method, path, number: "403"
    for act, kind in (
        (lambda: make_index(f"{URL}/in", local / "index"), InputError),
        (lambda: make_index(local, f"{URL}/index"), OutputError),
        (lambda: open_index(f"{URL}/index"), InputError),
        (lambda: scan(f"{URL}/m.npz", f"{URL}/in", local / "index"), InputError),
    ):
        with pytest.raises(kind, match=r"s3://recorders/.*no permission") as caught:
            act()
        assert "\n" not in str(caught.value)
        assert SECRET not in str(caught.value)


def test_one_recording_without_permission_is_a_reject(bucket, local):
    upload(bucket, local, f"{BUCKET}/in")
    bucket.proxy.fault = lambda method, path, number: (
        "403" if path.endswith("a.wav") else ""
    )
    result = make_index(f"{URL}/in", f"{URL}/index")
    assert len(result.added) == 2
    assert "no permission" in result.rejects[0].reason


def test_empty_and_missing_buckets_and_folders_are_one_line_each(
    bucket, local, tmp_path
):
    with pytest.raises(
        InputError, match="s3://recorders: no recordings in this folder"
    ):
        make_index(URL, tmp_path / "index")
    missing = "no such file, folder or bucket; expected a folder of recordings"
    for place in ("s3://absent", "s3://absent/in", f"{URL}/absent"):
        with pytest.raises(InputError, match=f"{place}: {missing}"):
            make_index(place, tmp_path / "index")
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
