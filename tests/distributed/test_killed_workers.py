"""Workers that are killed during an index: nothing is lost, and nothing is there twice."""

import random
from contextlib import suppress

import psutil
import pytest

import callshot
from cluster_jobs import list_files
from sounds import record

pytest.importorskip("distributed")
RECORDINGS = 24
KILLS = 3


def list_workers():
    """Return the processes of local workers that are alive."""
    workers = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it ended in the meantime
            if "spawn_main" in " ".join(process.cmdline()):
                workers.append(process)
    return workers


def test_an_index_is_whole_though_workers_are_killed(tmp_path, cluster):
    audio = tmp_path / "audio"
    for number in range(RECORDINGS):
        record(audio / f"r{number:02}.wav", 2.0, 16000, seed=number)
    options = {"window_s": 1.0, "hop_s": 0.02}
    plain = callshot.index_recordings(audio, tmp_path / "plain", "mfcc", **options)
    rng = random.Random(0)
    killed = []
    ended = []

    def kill(share, text):
        ended.append(share)
        workers = list_workers()
        if len(ended) >= 4 + 6 * len(killed) and len(killed) < KILLS and workers:
            worker = rng.choice(workers)
            worker.kill()
            killed.append(worker.pid)

    result = callshot.index_recordings(
        audio, tmp_path / "killed", "mfcc", cluster=cluster, progress=kill, **options
    )
    assert len(killed) == KILLS
    assert result.rejects == []
    assert len(result.index.recordings) == RECORDINGS
    assert result.added == plain.added
    assert list_files(tmp_path / "killed") == list_files(tmp_path / "plain")


def test_a_recording_whose_worker_died_after_writing_it_counts_as_added(
    tmp_path, cluster
):
    audio = tmp_path / "audio"
    for number in range(3):
        record(audio / f"r{number}.wav", 2.0, 16000, seed=number)
    out = tmp_path / "i"
    callshot.index_recordings(audio / "r0.wav", out, "mfcc", window_s=1.0)
    written = []

    class DiedAfterWriting:
        """Runs everything twice, as if all workers died between their work and their reports."""

        def run(self, job):
            written.extend(outcome.value[-1][2][1] for outcome in cluster.run(job))
            yield from cluster.run(job)

        def add_audio(self, seconds):
            cluster.add_audio(seconds)

    result = callshot.index_recordings(
        audio, out, "mfcc", window_s=1.0, cluster=DiedAfterWriting()
    )
    assert written == [True, True]
    assert result.added == ["r1.wav", "r2.wav"]
