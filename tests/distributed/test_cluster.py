"""The same jobs on a Dask cluster: the same bytes, and nothing lost where workers die."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
import soundfile
from typer.testing import CliRunner

import callshot
from callshot.cli import app
from callshot.detection.index import index_recordings as indexing
from callshot.distributed import connect, worker
from callshot.distributed import run_job as run_job_module
from callshot.distributed.run_job import JobRun, Usage, _Task
from callshot.errors import ClusterError, OptionError, OutputError
from cluster_jobs import (
    ClusterHere,
    fail_on_first_worker,
    fail_to_open,
    fail_to_open_once,
    fail_to_read,
    list_certificates,
    list_files,
    make_job,
    name_variables,
    use_certificate,
)
from sounds import record

pytest.importorskip("distributed")
RATE_HZ = 16000
RECORDINGS = 12
KILLS = 2
PATH = os.pathsep.join(path for path in sys.path if path)


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audio")
    for number in range(6):
        record(folder / f"r{number}.wav", 2.0 + number, RATE_HZ, seed=number)
    (folder / "r3b.wav").write_bytes(b"RIFF nothing")
    record(folder / "älg & [1] 'x'.wav", 2.0, RATE_HZ, seed=9)
    return folder


def test_an_index_has_the_same_bytes_with_and_without_a_cluster(
    tmp_path, audio, cluster, monkeypatch
):
    plain = callshot.index_recordings(audio, tmp_path / "plain", "mfcc", window_s=1)
    monkeypatch.chdir(audio.parent)  # a relative path, which no worker could find
    shares = []
    out = os.path.relpath(tmp_path / "cluster")
    options = {"window_s": 1, "cluster": cluster}
    options["progress"] = lambda share, text: shares.append(share)
    result = callshot.index_recordings(audio.name, out, "mfcc", **options)
    assert list_files(tmp_path / "cluster") == list_files(tmp_path / "plain")
    assert result.added == plain.added
    assert len(result.added) == 7
    assert result.rejects == plain.rejects
    assert result.notes == plain.notes
    assert sum(shares) == pytest.approx(1)
    again = callshot.index_recordings(audio, out, "mfcc", **options)
    assert again.added == []
    assert again.rejects == plain.rejects
    other = {"encoder": "mfcc", "weights": {"model": "0" * 64}}
    monkeypatch.setattr(indexing, "encoder_fingerprint", lambda *_: other)
    with pytest.raises(ClusterError, match=r"client differ in mfcc \(.*weights"):
        callshot.index_recordings(audio, tmp_path / "i", "mfcc", **options)


def test_embeddings_and_events_are_the_same_with_and_without_a_cluster(
    tmp_path, cluster, monkeypatch
):
    site = tmp_path / "site"
    site.mkdir()
    for number in range(3):
        noise = np.random.default_rng(number).normal(0, 0.01, 10 * RATE_HZ)
        for start_s in (2, 6):
            at = slice(start_s * RATE_HZ, start_s * RATE_HZ + 8000)
            noise[at] += np.sin(np.arange(8000) / (5 + 4 * (start_s == 6)))
        soundfile.write(site / f"s{number}.wav", noise, RATE_HZ)
        text = '2.0\t2.5\trumble\n6.0\t6.5\tčalling "x"\n'
        (site / f"s{number}.txt").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    segments = callshot.segment("site", min_length_s=0.1)
    tables = []
    for store, workers in (("a", None), ("b", cluster)):
        options = {"store": tmp_path / store, "cluster": workers}
        tables.append(callshot.embed(segments, "mfcc", **options))
    assert tables[0].segment == tables[1].segment
    assert np.array_equal(tables[0].matrix, tables[1].matrix)
    again = callshot.embed(segments, "mfcc", store=tmp_path / "b")  # from the store
    assert np.array_equal(again.matrix, tables[0].matrix)
    model = callshot.learn("site", "mfcc", store=tmp_path / "a").model
    plain = callshot.scan(model, "site", "plain", hop_s=0.25)
    result = callshot.scan(model, "site", "workers", hop_s=0.25, cluster=cluster)
    assert len(plain.events) > 3
    assert result.events.equals(plain.events)
    assert (result.windows, result.active) == (plain.windows, plain.active)
    assert list_files(Path("workers")) == list_files(Path("plain"))
    span = next(Path("plain").rglob("*.npy"))
    span.write_bytes(b"damaged")
    reasons = [
        [one.reason for one in callshot.scan(model, "plain", cluster=one).rejects]
        for one in (None, cluster)
    ]
    assert len(reasons[0]) == 1
    assert reasons[0] == reasons[1]


def run_job(cluster, folder, items, **changes):
    job = make_job(folder, items, **changes)
    outcomes = {}
    for outcome in cluster.run(job):
        assert outcome.number not in outcomes
        outcomes[outcome.number] = outcome.value or f"left out: {outcome.reason}"
    return {items[number]: text for number, text in sorted(outcomes.items())}


def count_tries(folder, item):
    return len((folder / item).read_text())


def test_only_the_item_that_ends_its_process_is_left_out(tmp_path, cluster):
    good = [f"good {number}" for number in range(12)]
    items = [*good[:6], "dies", "dies-once", *good[6:]]
    failures = cluster.usage.failures
    outcomes = run_job(cluster, tmp_path, items)
    assert list(outcomes) == items
    assert outcomes.pop("dies") == (
        "left out: dies: ended every process that worked on it alone (a crash, or too "
        "little memory)"
    )
    assert outcomes == {item: item.upper() for item in outcomes}
    assert cluster.usage.failures == failures + 1
    assert 3 <= count_tries(tmp_path, "dies") <= 4


def test_an_item_that_fails_is_tried_twice(tmp_path, cluster):
    items = ["good", "fails", "fails-once", "breaks", "busy"]
    failures = cluster.usage.failures
    outcomes = run_job(cluster, tmp_path, items)
    assert list(outcomes) == items
    assert outcomes.pop("fails") == "left out: fails: cannot be read"
    assert outcomes.pop("breaks") == (
        "left out: ZeroDivisionError: a fault in the program"
    )
    assert outcomes == {item: item.upper() for item in outcomes}
    assert cluster.usage.failures == failures + 2
    assert [count_tries(tmp_path, item) for item in items] == [1, 2, 2, 2, 2]


def test_a_result_that_no_worker_can_write_ends_the_job(tmp_path, cluster):
    with pytest.raises(OutputError, match="No space left on device"):
        run_job(cluster, tmp_path, ["good", "unwritten"])
    assert count_tries(tmp_path, "unwritten") == 3


@contextmanager
def run_in_threads(folder, count):
    """Yield a run of a job with one item, and the cluster of threads that it is for."""
    from distributed import Client, LocalCluster

    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=count, threads_per_worker=1, **options) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        yield JobRun(client, make_job(folder, ["good"]), Usage()), workers


def test_a_task_does_not_wait_for_workers_that_are_gone(tmp_path, monkeypatch):
    monkeypatch.setattr(run_job_module, "COUNT_S", 0.2)
    with run_in_threads(tmp_path, 0) as (run, workers):
        monkeypatch.setattr(
            run, "_first_tasks", lambda: [_Task([0], ["inproc://gone"])]
        )
        threading.Timer(0.5, workers.scale, [1]).start()
        assert next(run.outcomes()).value == "GOOD"


def test_a_result_counts_although_its_worker_died_meanwhile(tmp_path, monkeypatch):
    with run_in_threads(tmp_path, 1) as (run, _):
        receive = run._receive

        def lose_first(future, result):
            future._state.lose()
            return receive(future, result)

        monkeypatch.setattr(run, "_receive", lose_first)
        assert next(run.outcomes()).value == "GOOD"


def test_a_worker_without_weights_ends_the_job_with_its_address(tmp_path, cluster):
    message = r"test: worker tls://127.0.0.1:\d+: no weights for birdnet; run callshot"
    with pytest.raises(ClusterError, match=message):
        run_job(cluster, tmp_path, ["good"], prepare=fail_to_open)


def test_storage_that_fails_once_while_a_model_is_opened_costs_no_item(
    tmp_path, cluster
):
    items = [f"good {number}" for number in range(8)]
    outcomes = run_job(cluster, tmp_path, items, prepare=fail_to_open_once)
    assert outcomes == {item: item.upper() for item in items}
    assert list(tmp_path.glob("opened-*"))


def test_the_items_of_a_worker_whose_disk_fails_go_to_others(tmp_path, cluster):
    items = [f"process {number}" for number in range(8)]
    outcomes = run_job(cluster, tmp_path, items, prepare=fail_on_first_worker)
    assert list(outcomes) == items
    assert set(outcomes.values()).isdisjoint({(tmp_path / "first").read_text()})
    assert [count_tries(tmp_path, item) for item in items] == [1] * 8


def test_storage_that_fails_on_all_workers_ends_the_job(tmp_path, cluster):
    message = (
        r"test: worker tls://127.0.0.1:\d+: s3://b/index.json: cannot be read \(the storage "
        r"failed: 503\); every worker failed like this, 3 times$"
    )
    with pytest.raises(ClusterError, match=message):
        run_job(cluster, tmp_path, ["good"] * 8, prepare=fail_to_read)
    assert count_tries(tmp_path, "opened") == 6  # 3 on each worker


def test_a_worker_with_another_version_ends_the_job(tmp_path, cluster, monkeypatch):
    versions = worker.find_versions() | {"callshot": "0.0.1"}
    monkeypatch.setattr(run_job_module, "find_versions", lambda: versions)
    message = r"worker tls.*: has callshot .*, but the client has 0.0.1; install the"
    with pytest.raises(ClusterError, match=message):
        run_job(cluster, tmp_path, ["good"])


@contextmanager
def add_worker(cluster, folder, *words, path=PATH):
    """Yield the process of a third worker of the cluster, started by a command in a folder."""
    address = cluster.client.scheduler.address
    command = ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    certificates = name_variables(list_certificates(cluster.client.security))
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *command, *words],
        env={**os.environ, **certificates, "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
        cwd=folder,
    ) as process:
        try:
            cluster.client.wait_for_workers(3, timeout=60)
            yield process
        finally:
            process.terminate()


def test_a_worker_without_callshot_is_named_though_another_does_not_answer(
    tmp_path, cluster, monkeypatch
):
    monkeypatch.setattr(connect, "CONNECT_S", 2.0)
    stopped = next(iter(cluster.client.run(os.getpid).values()))
    (tmp_path / "callshot").mkdir()
    (tmp_path / "callshot/__init__.py").write_text("raise ImportError")
    message = r"worker tls://\S+ has no callshot, but the client has callshot \d"
    with add_worker(cluster, tmp_path, path=str(tmp_path)):
        os.kill(stopped, signal.SIGSTOP)
        try:
            with (
                pytest.raises(ClusterError, match=message),
                use_certificate(cluster.client.security),
                callshot.open_cluster(cluster.client.scheduler.address),
            ):
                pass
        finally:
            os.kill(stopped, signal.SIGCONT)


def test_a_stopped_worker_keeps_no_other_from_working(tmp_path, cluster):
    items = [f"process {number}" for number in range(30)]
    run = cluster.run(make_job(tmp_path, items))
    outcomes = [next(run) for _ in range(6)]
    time.sleep(0.5)  # tasks of both workers end
    stopped = int(outcomes[-1].value)
    os.kill(stopped, signal.SIGSTOP)
    try:
        while sum(outcome.value != str(stopped) for outcome in outcomes) < 15:
            outcomes.append(next(run))
    finally:
        os.kill(stopped, signal.SIGCONT)
    outcomes += run
    assert sorted(outcome.number for outcome in outcomes) == list(range(30))


def test_a_job_that_ends_early_does_not_cost_the_next_one_its_reports(
    tmp_path, cluster, monkeypatch
):
    client = cluster.client
    gather = client._gather_remote

    async def gather_slowly(*arguments):
        await asyncio.sleep(0.2)
        return await gather(*arguments)

    monkeypatch.setattr(client, "_gather_remote", gather_slowly)
    items = [f"process {number}" for number in range(20)]
    run = cluster.run(make_job(tmp_path, items))
    next(run)
    run.close()
    assert run_job(cluster, tmp_path, ["good"]) == {"good": "GOOD"}


def test_a_job_ends_when_the_last_worker_dies_with_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(run_job_module, "NO_WORKERS_S", 1.0)
    file = tmp_path / "scheduler.json"
    options = {"env": {**os.environ, "PYTHONPATH": PATH}, "stderr": subprocess.DEVNULL}
    words = ["--scheduler-file", str(file), "--no-dashboard"]
    dask = [sys.executable, "-m", "dask"]
    scheduler = [*dask, "scheduler", *words, "--host", "127.0.0.1", "--port", "0"]
    workers = [*dask, "worker", *words, "--nthreads", "1", "--no-nanny"]
    with subprocess.Popen(scheduler, **options) as started:
        try:
            while not file.exists():
                time.sleep(0.05)
            with (
                subprocess.Popen(workers, **options) as worker,
                callshot.open_cluster(str(file)) as opened,
            ):
                items = [f"process {number}" for number in range(20)]
                run = opened.run(make_job(tmp_path, items))
                next(run)
                time.sleep(1)  # more tasks end, and nobody asks for their reports
                worker.kill()
                with pytest.raises(ClusterError, match="has had no workers for"):
                    list(run)
        finally:
            started.kill()


def test_only_workers_that_announce_a_gpu_get_its_tasks(tmp_path, cluster):
    with pytest.raises(ClusterError, match="no worker announces the resource GPU"):
        run_job(cluster, tmp_path, ["good"], needs_gpu=True)
    with add_worker(cluster, tmp_path, "--resources", "GPU=1") as process:
        items = [f"process {number}" for number in range(12)]
        outcomes = run_job(cluster, tmp_path, items, needs_gpu=True)
    assert set(outcomes.values()) == {str(process.pid)}
    assert len(outcomes) == len(items)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "expected local:N"),
        ("local:0", "expected local:1 to local:1024, got 0"),
        ("nowhere", "expected local:N, the address of a scheduler or its file, got"),
        ("gone.json", "gone.json: there is no such file; start a scheduler"),
        ("{}/s.json", "s.json: expected the file that a scheduler"),
        ("127.0.0.1:1", "127.0.0.1:1: no scheduler answers"),
        ("tls://127.0.0.1:1", "no scheduler answers .*TLS"),
    ],
)
def test_a_cluster_that_is_none_is_one_line(tmp_path, name, message, monkeypatch):
    monkeypatch.setattr(connect, "CONNECT_S", 0.2)
    (tmp_path / "s.json").write_text("{")
    words = ["index", str(tmp_path), "-e", "mfcc", "-o", str(tmp_path / "i")]
    words += ["--cluster", name.format(tmp_path)]
    with pytest.raises((OptionError, ClusterError), match=message) as raised:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert "\n" not in str(raised.value)


def test_a_scheduler_that_runs_is_found_by_its_address(tmp_path, cluster, monkeypatch):
    address = cluster.client.scheduler.address
    worker_address = next(iter(cluster.client.nthreads()))
    message = r"no scheduler answers \(it is a Worker of Dask\); start one, or give"
    with use_certificate(cluster.client.security):
        with callshot.open_cluster(address) as opened:
            assert run_job(opened, tmp_path, ["good"]) == {"good": "GOOD"}
        with (
            pytest.raises(ClusterError, match=message),
            callshot.open_cluster(worker_address),
        ):
            pass
    monkeypatch.setattr(connect, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never says anything
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(ClusterError, match=f"{place}: no scheduler answers"),
            callshot.open_cluster(place),
        ):
            pass


def test_ctrl_c_leaves_no_process_behind(tmp_path):
    folder = tmp_path / "audio"
    folder.mkdir()
    record(folder / "a.wav", 120.0, RATE_HZ)
    words = ["index", folder, "-e", "mfcc", "--window", "1", "--hop", "0.01"]
    out = tmp_path / "i"
    command = [sys.executable, "-m", "callshot", *map(str, words), "-o", str(out)]
    process = subprocess.Popen(
        [*command, "--cluster", "local:1"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not list(out.glob("recordings/*/.lock")):
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    os.killpg(process.pid, signal.SIGINT)
    lines = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == -signal.SIGINT
    assert lines[-1].startswith("callshot: interrupted;")
    assert len(lines) == 2  # the first has the number of workers
    psutil.wait_procs(children, timeout=60)
    assert not [child for child in children if child.is_running()]


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
    options = {"window_s": 1.0, "hop_s": 0.05}
    plain = callshot.index_recordings(audio, tmp_path / "plain", "mfcc", **options)
    rng = random.Random(0)
    killed = []
    ended = []

    def kill(share, text):
        ended.append(share)
        workers = list_workers()
        if len(ended) >= 3 + 4 * len(killed) and len(killed) < KILLS and workers:
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
    tmp_path, audio
):
    """Each item is run twice, as if its worker died between its work and its report."""
    result = callshot.index_recordings(
        audio, tmp_path / "i", "mfcc", window_s=1.0, cluster=ClusterHere()
    )
    assert len(result.added) == 7
