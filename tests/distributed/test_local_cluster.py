"""Clusters on this machine: closed to its other users, and stopped without a word."""

import asyncio
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress

import psutil
import pytest

import callshot
from callshot.errors import ClusterError, OptionError
from callshot.interrupts import MESSAGE
from sounds import record

pytest.importorskip("distributed")
LATEST_S = 60.0
WORKER = "spawn_main"  # in the command line of a worker
PAGES = ("/", "/status", "/health", "/info/main/workers.html", "/metrics", "/json")


def find_ports():
    """Return the ports at which this process and its children listen."""
    own = psutil.Process()
    ports = set()
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            for connection in process.net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    assert connection.laddr.ip == "127.0.0.1"
                    ports.add(connection.laddr.port)
    return ports


async def run_code(address, security):
    """Run code on what listens at an address, as a client of Dask does."""
    from distributed.comm import connect
    from distributed.core import send_recv
    from distributed.protocol.pickle import dumps

    options = security.get_connection_args("client")
    comm = await connect(address, timeout=2, **options)
    try:
        return await send_recv(comm, op="run", function=dumps(os.getpid), reply=True)
    finally:
        await comm.close()


def test_a_client_without_the_certificate_cannot_run_code(cluster):
    from distributed.security import Security

    strangers = {"tcp": Security(), "tls": Security.temporary()}
    worker = next(iter(cluster.client.nthreads()))
    for address in (worker, cluster.client.scheduler.address):
        for protocol, security in strangers.items():
            with pytest.raises(OSError):
                asyncio.run(run_code(address.replace("tls", protocol), security))
    result = asyncio.run(run_code(worker, cluster.client.security))
    assert result["status"] == "OK"


def test_a_command_without_the_certificate_does_not_connect(cluster, monkeypatch):
    monkeypatch.setattr("callshot.distributed.connect.CONNECT_S", 1.0)
    address = cluster.client.scheduler.address
    for name in (address, address.replace("tls", "tcp")):
        with (
            pytest.raises(ClusterError, match="no scheduler answers"),
            callshot.open_cluster(name),
        ):
            pass


def test_no_port_of_a_local_cluster_shows_anything_to_others():
    others = find_ports()  # servers of other tests
    with callshot.open_cluster("local:1") as cluster:
        ports = find_ports() - others
        assert ports
        for port in ports:
            for page in PAGES:
                with pytest.raises((urllib.error.URLError, OSError)):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}{page}", timeout=5)
        assert cluster.dashboard == ""


def test_the_extra_is_named_where_cryptography_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with (
        pytest.raises(OptionError, match=r"pip install 'callshot\[cluster\]'"),
        callshot.open_cluster("local:1"),
    ):
        pass


# Signals


def list_group(leader):
    """Return the processes of a group, as a terminal knows them."""
    group = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            is_over = process.status() == psutil.STATUS_ZOMBIE
            if os.getpgid(process.pid) == leader and not is_over:
                group.append(process)
    return group


def has_worker(leader, *, listening=False):
    """Return whether a worker has started, or listens already."""
    for process in list_group(leader):
        with suppress(psutil.Error):
            is_worker = WORKER in " ".join(process.cmdline())
            is_ready = not listening or bool(process.net_connections("tcp"))
            if is_worker and is_ready:
                return True
    return False


MOMENTS = {
    "first worker": has_worker,
    "first listens": lambda pid: has_worker(pid, listening=True),
}
# Between the start of a process and the task that it is sent, others may run for a while.
SLOWLY = """
import time
from multiprocessing import util
from callshot.__main__ import main

start = util.spawnv_passfds

def start_slowly(*arguments):
    pid = start(*arguments)
    time.sleep(0.4)
    return pid

util.spawnv_passfds = start_slowly
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals differ on Windows")
@pytest.mark.parametrize(
    ("program", "moment", "number"),
    [
        (["-c", SLOWLY], "first worker", signal.SIGINT),
        (["-m", "callshot"], "first listens", signal.SIGTERM),
    ],
    ids=["SIGINT, no task", "SIGTERM, listens"],
)
def test_a_signal_while_workers_start_is_one_line(tmp_path, program, moment, number):
    audio = tmp_path / "audio"
    audio.mkdir()
    record(audio / "a.wav", 60.0, 16000)
    words = ["index", str(audio), "-e", "mfcc", "--window", "1", "--hop", "0.02"]
    out = ["-o", str(tmp_path / "i"), "--cluster", "local:2"]
    process = subprocess.Popen(
        [sys.executable, *program, *words, *out],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not MOMENTS[moment](process.pid):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, number)
    lines = process.communicate(timeout=LATEST_S)[1].splitlines()
    assert process.returncode in (-number, 128 + number)
    assert lines[-1] == MESSAGE
    assert lines[:-1] in ([], ["cluster: 2 workers"])
    end_s = time.monotonic() + LATEST_S
    while list_group(process.pid) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert list_group(process.pid) == []
