"""Workers that are killed during an index: nothing is lost, and nothing is there twice."""

import random

import psutil
import pytest

import callshot
from cluster_jobs import list_files
from sounds import record

pytest.importorskip("distributed")
RECORDINGS = 24
KILLS = 3


def list_workers() -> list[psutil.Process]:
    """Return the processes of local workers."""
    children = psutil.Process().children(recursive=True)
    return [one for one in children if "spawn_main" in " ".join(one.cmdline())]


def test_an_index_is_whole_though_workers_are_killed(tmp_path, cluster):
    audio = tmp_path / "audio"
    for number in range(RECORDINGS):
        record(audio / f"r{number:02}.wav", 2.0, 16000, seed=number)
    options = {"window_s": 1.0, "hop_s": 0.02}
    plain = callshot.index_recordings(audio, tmp_path / "plain", "mfcc", **options)
    rng = random.Random(0)
    killed = []
    ended = []

    def kill(share: float, text: str) -> None:
        ended.append(share)
        if len(ended) % 8 == 4 and len(killed) < KILLS:
            worker = rng.choice(list_workers())
            worker.kill()
            killed.append(worker.pid)

    result = callshot.index_recordings(
        audio, tmp_path / "killed", "mfcc", cluster=cluster, progress=kill, **options
    )
    assert len(killed) == KILLS
    assert result.rejects == []
    assert len(result.index.recordings) == RECORDINGS
    # Of a recording whose worker died after it was written, nobody knows who added it.
    assert set(result.added) <= set(plain.added)
    assert list_files(tmp_path / "killed") == list_files(tmp_path / "plain")
