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


def test_a_client_without_the_certificate_cannot_run_code(cluster, monkeypatch):
    from distributed.security import Security

    strangers = {"tcp": Security(), "tls": Security.temporary()}
    worker = next(iter(cluster.client.nthreads()))
    for address in (worker, cluster.client.scheduler.address):
        for protocol, security in strangers.items():
            with pytest.raises(OSError):
                asyncio.run(run_code(address.replace("tls", protocol), security))
    result = asyncio.run(run_code(worker, cluster.client.security))
    assert result["status"] == "OK"
    monkeypatch.setattr("callshot.distributed.connect.CONNECT_S", 1.0)
    with (
        pytest.raises(ClusterError, match="no scheduler answers"),
        callshot.open_cluster(cluster.client.scheduler.address),
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
    """Return the living processes of a group, as a terminal knows them."""
    group = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            is_over = process.status() == psutil.STATUS_ZOMBIE
            if os.getpgid(pid) == leader and not is_over:
                group.append(process)
    return group


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
def test_ctrl_c_while_workers_start_is_one_line(tmp_path):
    audio = tmp_path / "audio"
    audio.mkdir()
    record(audio / "a.wav", 10.0, 16000)
    words = ["index", str(audio), "-e", "mfcc", "--window", "1"]
    out = ["-o", str(tmp_path / "i"), "--cluster", "local:2"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOWLY, *words, *out],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started = psutil.Process(process.pid)
    while not any(
        "spawn_main" in " ".join(one.cmdline()) for one in started.children()
    ):
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    lines = process.communicate(timeout=LATEST_S)[1].splitlines()
    assert process.returncode == -signal.SIGINT
    assert lines == [MESSAGE]
    end_s = time.monotonic() + LATEST_S
    while list_group(process.pid) and time.monotonic() < end_s:
        time.sleep(0.1)
    assert list_group(process.pid) == []
