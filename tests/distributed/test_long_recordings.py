"""A long recording in spans, on several workers: the index of one that is read in one go."""

import numpy as np
import pytest
import soundfile

import callshot
from callshot.detection.index import index_recordings as indexing
from callshot.detection.index.index_files import LOCK, recording_folder
from callshot.files import hold_lock
from callshot.jobs import TryLater
from cluster_jobs import ClusterHere, list_files
from sounds import record

pytest.importorskip("distributed")
WINDOWS = {"window_s": 0.5, "hop_s": 0.2}
FILE_WINDOWS = 8


@pytest.fixture(autouse=True)
def short_spans(monkeypatch):
    """Make recordings of some seconds long ones."""
    monkeypatch.setattr(indexing, "SPAN_WINDOWS", FILE_WINDOWS)
    monkeypatch.setattr(indexing, "PIECE_BYTES", 40e3)


def index(audio, out, cluster=None, **options):
    return callshot.index_recordings(
        audio, out, "mfcc", **WINDOWS | options, cluster=cluster
    )


SPEED = {"encoder_options": {"speed": "0.7"}}


@pytest.mark.parametrize(
    ("name", "rate_hz", "channels", "subtype", "options"),
    [
        ("a.wav", 44100, 2, "FLOAT", {"channel": "mean"}),
        ("a.wav", 44101, 1, "PCM_U8", SPEED),
        ("a.flac", 16000, 2, "PCM_24", {"channel": "2"}),
        ("a.aiff", 22050, 1, "ULAW", {"dtype": "float32"}),
    ],
)
def test_spans_have_the_bytes_of_a_recording_that_is_read_in_one_go(
    tmp_path, name, rate_hz, channels, subtype, options
):
    audio = tmp_path / "audio"
    record(audio / name, 9.37, rate_hz, channels, subtype=subtype)
    record(audio / "b.wav", 1.0, 16000, channels)
    cluster = ClusterHere()
    plain = index(audio, tmp_path / "plain", **options)
    result = index(audio, tmp_path / "spans", cluster, **options)
    assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")
    assert len(cluster.spans) > 2
    assert {span.path for span in cluster.spans} == {name}
    assert result.added == plain.added == [name, "b.wav"]
    assert result.notes == plain.notes
    assert cluster.audio_s == pytest.approx(10.37, abs=1e-3)


@pytest.mark.parametrize("kind", ["mp3", "GSM610", "no length"])
def test_a_recording_that_cannot_be_sought_gives_the_same_index(tmp_path, kind):
    names = {"mp3": "a.mp3", "GSM610": "a.wav", "no length": "a.flac"}
    options = {"subtype": kind} if kind == "GSM610" else {}
    path = record(tmp_path / "audio" / names[kind], 20.0, 16000, **options)
    if kind == "no length":
        content = bytearray(path.read_bytes())
        content[21] &= 0xF0  # the number of samples: 36 bits
        content[22:26] = bytes(4)
        path.write_bytes(content)
    index(tmp_path / "audio", tmp_path / "plain", hop_s=0.5)
    cluster = ClusterHere()
    result = index(tmp_path / "audio", tmp_path / "spans", cluster, hop_s=0.5)
    assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")
    assert result.index.recordings[0].duration_s == pytest.approx(20.0, abs=0.1)


def test_pieces_are_large_enough_and_cover_all_files_once(monkeypatch, tmp_path):
    record(tmp_path / "audio/a.wav", 20.0, 8000)  # 99 windows in 13 files, 320 kB
    written = count_written(monkeypatch)
    for piece_bytes, count in [(20e3, 16), (100e3, 3), (170e3, 0)]:
        monkeypatch.setattr(indexing, "PIECE_BYTES", piece_bytes)
        cluster = ClusterHere()
        index(tmp_path / "audio", tmp_path / f"{piece_bytes}", cluster)
        assert len(cluster.spans) == count
        assert sorted(written) == list(range(13))
        written.clear()


def damage(path, kind):
    if kind == "not finite":
        signal, rate_hz = soundfile.read(path, dtype="float32")
        signal[[75000, 150000]] = np.nan
        soundfile.write(path, signal, rate_hz, subtype="FLOAT")
        return
    content = bytearray(path.read_bytes())
    if kind == "cut short":
        del content[len(content) * 6 // 10 :]
    elif kind == "damaged":
        content[len(content) // 2 : len(content) // 2 + 3000] = b"\xa5" * 3000
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "kind", "reasons"),
    [
        ("a.wav", "cut short", []),
        ("a.wav", "damaged", []),
        ("a.flac", "damaged", []),
        ("a.wav", "not finite", ["at 9.375 s"]),
    ],
)
def test_a_bad_recording_has_the_outcome_of_one_that_is_read_in_one_go(
    tmp_path, name, kind, reasons
):
    damage(record(tmp_path / "audio" / name, 20.0, 8000), kind)
    record(tmp_path / "audio/b.wav", 1.0, 16000)
    cluster = ClusterHere()
    plain = index(tmp_path / "audio", tmp_path / "plain")
    result = index(tmp_path / "audio", tmp_path / "spans", cluster)
    assert len(cluster.spans) > 2
    assert result.rejects == plain.rejects
    assert result.added == plain.added
    assert result.notes == plain.notes
    assert result.index.recordings == plain.index.recordings
    hours = sum(one.duration_s for one in result.index.recordings)
    assert cluster.audio_s == pytest.approx(hours)
    if not reasons:
        assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")
    for reject, reason in zip(result.rejects, reasons, strict=True):
        assert reason in reject.reason
    ends_early = kind == "cut short" or name == "a.flac"
    assert any("of 20.0 s" in note for note in result.notes) == ends_early


def count_written(monkeypatch):
    written = []
    write_span = indexing.write_span

    def write(folder, stamp, number, rows):
        written.append(number)
        return write_span(folder, stamp, number, rows)

    monkeypatch.setattr(indexing, "write_span", write)
    return written


@pytest.mark.parametrize("again_on_cluster", [True, False])
def test_an_interrupted_run_goes_on_with_what_it_wrote(
    tmp_path, monkeypatch, again_on_cluster
):
    record(tmp_path / "audio/a.flac", 20.0, 8000)
    index(tmp_path / "audio", tmp_path / "plain")
    written = count_written(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        index(tmp_path / "audio", tmp_path / "spans", ClusterHere(most=3))
    assert written == [12, 9, 10, 11]
    whole = list_files(tmp_path / "spans")
    name = next(name for name in whole if "-000009-" in name)
    (tmp_path / "spans" / name).write_bytes(whole[name][:-1])
    written.clear()
    cluster = ClusterHere() if again_on_cluster else None
    result = index(tmp_path / "audio", tmp_path / "spans", cluster)
    assert sorted(written) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert result.added == ["a.flac"]
    assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")


def test_windows_of_an_earlier_state_are_replaced_and_other_files_stay(tmp_path):
    path = record(tmp_path / "audio/a.wav", 20.0, 8000)
    out = tmp_path / "spans"
    with pytest.raises(KeyboardInterrupt):
        index(tmp_path / "audio", out, ClusterHere(most=4))
    folder = recording_folder(out, "a.wav")
    (folder / "notes.npy").write_bytes(b"of somebody else")
    left = f".x.{2**22 + 1}-{'0' * 8}.part.npy"
    (folder / left).write_bytes(b"of a killed process")
    record(path, 21.0, 8000, seed=5)
    index(tmp_path / "audio", out, ClusterHere())
    index(tmp_path / "audio", tmp_path / "plain")
    files = list_files(out)
    assert files.pop(str((folder / "notes.npy").relative_to(out)))
    assert files == list_files(tmp_path / "plain")


def test_a_recording_that_changes_between_two_spans_is_rejected(tmp_path, monkeypatch):
    path = record(tmp_path / "audio/a.wav", 20.0, 8000)
    record(tmp_path / "audio/b.wav", 1.0, 8000)
    write_span = indexing.write_span

    def grow_and_write(folder, stamp, number, rows):
        if number == 4:
            record(path, 21.0, 8000)
        return write_span(folder, stamp, number, rows)

    monkeypatch.setattr(indexing, "write_span", grow_and_write)
    result = index(tmp_path / "audio", tmp_path / "spans", ClusterHere())
    assert result.added == ["b.wav"]
    assert [reject.reason for reject in result.rejects] == [
        "a.wav: changed while it was read; index again when it is complete"
    ]
    monkeypatch.setattr(indexing, "write_span", write_span)
    index(tmp_path / "audio", tmp_path / "spans", ClusterHere())
    index(tmp_path / "audio", tmp_path / "plain")
    assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")


def test_a_span_waits_while_another_process_adds_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "LOCK_S", 0.05)
    record(tmp_path / "audio/a.wav", 20.0, 8000)
    tried = []

    class ClusterThatWaits(ClusterHere):
        def run(self, job):
            for item in job.items:
                if item.count > 1 and not tried:
                    self.try_with_lock(job, item)
            yield from super().run(job)

        def try_with_lock(self, job, item):
            folder = recording_folder(tmp_path / "spans", item.path)
            folder.mkdir(exist_ok=True)
            with hold_lock(folder / LOCK), pytest.raises(TryLater):
                job.function(job.prepare(job.common, 1), item)
            tried.append(item)

    index(tmp_path / "audio", tmp_path / "spans", ClusterThatWaits())
    index(tmp_path / "audio", tmp_path / "plain")
    assert tried
    assert list_files(tmp_path / "spans") == list_files(tmp_path / "plain")
