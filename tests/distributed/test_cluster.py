"""The same jobs on a Dask cluster: the same bytes, and nothing lost where workers die."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

import callshot
from callshot.cli import app
from callshot.distributed import connect, worker
from callshot.distributed import run_job as run_job_module
from callshot.distributed.connect import find_scheduler
from callshot.distributed.run_job import JobRun, Usage, _Task
from callshot.errors import ClusterError, OptionError, OutputError
from cluster_jobs import (
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


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audio")
    for number in range(6):
        record(folder / f"r{number}.wav", 2.0 + number, RATE_HZ, seed=number)
    (folder / "r3b.wav").write_bytes(b"RIFF nothing")
    record(folder / "älg & [1] 'x'.wav", 2.0, RATE_HZ, seed=9)
    return folder


# The same bytes


def test_an_index_has_the_same_bytes_with_and_without_a_cluster(
    tmp_path, audio, cluster, monkeypatch
):
    plain = callshot.index_recordings(audio, tmp_path / "plain", "mfcc", window_s=1)
    monkeypatch.chdir(audio.parent)  # a relative path, which no worker could find
    shares = []
    result = callshot.index_recordings(
        audio.name,
        os.path.relpath(tmp_path / "cluster"),
        "mfcc",
        window_s=1,
        cluster=cluster,
        progress=lambda share, text: shares.append(share),
    )
    assert list_files(tmp_path / "cluster") == list_files(tmp_path / "plain")
    assert result.added == plain.added
    assert len(result.added) == 7
    assert result.rejects == plain.rejects
    assert result.notes == plain.notes
    assert sum(shares) == pytest.approx(1)
    again = callshot.index_recordings(
        audio, tmp_path / "cluster", "mfcc", window_s=1, cluster=cluster
    )
    assert again.added == []
    assert again.rejects == plain.rejects


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


def test_an_evaluation_has_the_same_numbers_with_and_without_a_cluster(cluster):
    rng = np.random.default_rng(0)
    y = ["rumble", "roar", "trumpet"] * 20
    X = rng.normal(size=(60, 4)) + [[1.5 * (one == "roar")] * 4 for one in y]
    recordings = [f"r{number // 3}" for number in range(60)]
    options = {
        "groups": recordings,
        "shots": "1-5,all",
        "classifiers": ("centroid", "cosine"),
        "categories": {"rumble": "low", "roar": "low", "trumpet": "high"},
        "draws": 5,
        "bootstraps": 50,
        "shared_draws": 110,
        "total_samples": 110,
        "permutations": 19,
        "device": "cpu",
    }
    shares = []
    plain = callshot.evaluate(X, y, **options)
    result = callshot.evaluate(
        X, y, cluster=cluster, progress=lambda share, _: shares.append(share), **options
    )
    for name in ("curve", "values", "per_class", "confusion", "ties", "chance_test"):
        assert getattr(result, name).equals(getattr(plain, name)), name
    assert result.budget.equals(plain.budget)
    assert result.notes == plain.notes
    assert sum(shares) == pytest.approx(1, abs=0.01)


# Failures


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


def test_a_task_does_not_wait_for_workers_that_are_gone(tmp_path, monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(run_job_module, "COUNT_S", 0.2)
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, **options) as workers,
        Client(workers, set_as_default=False) as client,
    ):
        run = JobRun(client, make_job(tmp_path, ["good"]), Usage())
        monkeypatch.setattr(
            run, "_first_tasks", lambda: [_Task([0], ["inproc://gone"])]
        )
        threading.Timer(1.0, workers.scale, [1]).start()
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


def test_a_worker_without_callshot_is_named_though_another_does_not_answer(
    tmp_path, cluster, monkeypatch
):
    monkeypatch.setattr(connect, "CONNECT_S", 5.0)
    stopped = next(iter(cluster.client.run(os.getpid).values()))
    (tmp_path / "callshot").mkdir()
    (tmp_path / "callshot/__init__.py").write_text("raise ImportError")
    address = cluster.client.scheduler.address
    words = ["worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    certificates = name_variables(list_certificates(cluster.client.security))
    message = r"worker tls://\S+ has no callshot, but the client has callshot \d"
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *words],
        env={**os.environ, **certificates, "PYTHONPATH": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
    ) as process:
        try:
            cluster.client.wait_for_workers(3, timeout=60)
            os.kill(stopped, signal.SIGSTOP)
            with (
                pytest.raises(ClusterError, match=message),
                use_certificate(cluster.client.security),
                callshot.open_cluster(address),
            ):
                pass
        finally:
            os.kill(stopped, signal.SIGCONT)
            process.terminate()


def test_a_worker_with_other_weights_ends_the_job(
    tmp_path, audio, cluster, monkeypatch
):
    from callshot.detection.index import index_recordings as indexing

    other = {"encoder": "mfcc", "weights": {"model": "0" * 64}}
    monkeypatch.setattr(indexing, "encoder_fingerprint", lambda *_: other)
    with pytest.raises(ClusterError, match=r"client differ in mfcc \(.*weights"):
        callshot.index_recordings(
            audio, tmp_path / "i", "mfcc", window_s=1, cluster=cluster
        )


def test_a_stopped_worker_keeps_no_other_from_working(tmp_path, cluster):
    items = [f"process {number}" for number in range(60)]
    run = cluster.run(make_job(tmp_path, items))
    outcomes = [next(run) for _ in range(6)]
    time.sleep(1)  # tasks of both workers end
    stopped = int(outcomes[-1].value)
    os.kill(stopped, signal.SIGSTOP)
    try:
        while sum(outcome.value != str(stopped) for outcome in outcomes) < 30:
            outcomes.append(next(run))
    finally:
        os.kill(stopped, signal.SIGCONT)
    outcomes += run
    assert sorted(outcome.number for outcome in outcomes) == list(range(60))


def test_a_job_that_ends_early_does_not_cost_the_next_one_its_reports(
    tmp_path, cluster, monkeypatch
):
    client = cluster.client
    gather = client._gather_remote

    async def gather_slowly(*arguments):
        await asyncio.sleep(0.5)
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
    paths = os.pathsep.join(path for path in sys.path if path)
    options = {"env": {**os.environ, "PYTHONPATH": paths}, "stderr": subprocess.DEVNULL}
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


def test_a_gpu_is_wanted_of_workers_that_have_none(tmp_path, cluster):
    with pytest.raises(ClusterError, match="no worker announces the resource GPU"):
        run_job(cluster, tmp_path, ["good"], needs_gpu=True)


def test_only_workers_that_announce_a_gpu_get_its_tasks(tmp_path, cluster):
    address = cluster.client.scheduler.address
    words = ["worker", address, "--resources", "GPU=1", "--nthreads", "1"]
    command = [sys.executable, "-m", "dask", *words, "--no-nanny", "--no-dashboard"]
    paths = os.pathsep.join(path for path in sys.path if path)
    certificates = name_variables(list_certificates(cluster.client.security))
    with subprocess.Popen(
        command,
        env={**os.environ, **certificates, "PYTHONPATH": paths},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            cluster.client.wait_for_workers(3, timeout=60)
            items = [f"process {number}" for number in range(12)]
            outcomes = run_job(cluster, tmp_path, items, needs_gpu=True)
        finally:
            process.terminate()
    assert set(outcomes.values()) == {str(process.pid)}
    assert len(outcomes) == len(items)


# Names of clusters


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "expected local:N"),
        ("local:0", "expected local:1 to local:1024, got 0"),
        ("nowhere", "expected local:N, the address of a scheduler or its file, got"),
        ("gone.json", "gone.json: there is no such file; start a scheduler"),
        ("x" * 300 + ".json", "x.json: there is no such file"),
        ("127.0.0.1:1", "127.0.0.1:1: no scheduler answers"),
        ("tls://127.0.0.1:1", "no scheduler answers .*TLS"),
        ("foo://127.0.0.1:1", "no scheduler answers .*unknown address scheme 'foo'"),
    ],
)
def test_a_cluster_that_is_none_is_one_line(tmp_path, name, message, monkeypatch):
    monkeypatch.setattr(connect, "CONNECT_S", 0.2)
    words = ["index", str(tmp_path), "-e", "mfcc", "-o", str(tmp_path / "i")]
    with pytest.raises((OptionError, ClusterError), match=message) as raised:
        CliRunner().invoke(app, [*words, "--cluster", name], catch_exceptions=False)
    assert "\n" not in str(raised.value)


def test_another_program_behind_the_address_is_one_line(monkeypatch):
    monkeypatch.setattr(connect, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never says anything
        port = server.getsockname()[1]
        with (
            pytest.raises(ClusterError, match=f"127.0.0.1:{port}: no scheduler answ"),
            callshot.open_cluster(f"127.0.0.1:{port}"),
        ):
            pass


def test_the_address_of_a_worker_is_one_line(cluster):
    address = next(iter(cluster.client.nthreads()))
    message = r"no scheduler answers \(it is a Worker of Dask\); start one, or give"
    with (
        pytest.raises(ClusterError, match=message),
        use_certificate(cluster.client.security),
        callshot.open_cluster(address),
    ):
        pass


def test_a_scheduler_that_runs_is_found_by_its_address(tmp_path, cluster):
    with (
        use_certificate(cluster.client.security),
        callshot.open_cluster(cluster.client.scheduler.address) as opened,
    ):
        assert run_job(opened, tmp_path, ["good"]) == {"good": "GOOD"}


def test_a_file_that_no_scheduler_wrote_is_one_line(tmp_path):
    (tmp_path / "s.json").write_text("{")
    with (
        pytest.raises(ClusterError, match=r"s\.json: expected the file that a sched"),
        callshot.open_cluster(str(tmp_path / "s.json")),
    ):
        pass


def test_an_address_may_come_without_a_protocol():
    assert find_scheduler("node1:8786") == "tcp://node1:8786"
    assert find_scheduler("tls://node1:8786") == "tls://node1:8786"


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(OptionError, match=r"pip install 'callshot\[cluster\]'"),
        callshot.open_cluster("local:2"),
    ):
        pass


# Ctrl-C


def test_ctrl_c_leaves_no_process_behind(tmp_path):
    import psutil

    folder = tmp_path / "audio"
    folder.mkdir()
    record(folder / "a.wav", 600.0, RATE_HZ)
    words = ["index", folder, "-e", "mfcc", "--window", "1", "--hop", "0.02"]
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
    lines = process.communicate(timeout=20)[1].splitlines()
    assert process.returncode == -signal.SIGINT
    assert lines[-1].startswith("callshot: interrupted;")
    assert len(lines) == 2  # the first has the number of workers
    psutil.wait_procs(children, timeout=10)
    assert not [child for child in children if child.is_running()]
