"""Programs that are stopped by a signal, in processes of their own."""

import os
import signal
import subprocess
import sys

import pytest

from callshot.interrupts import MESSAGE

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals differ on Windows")
START = """
import os, signal, sys, time
from callshot.interrupts import stop_on_signals

def send():
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


def run_program(body, number=signal.SIGINT, **options):
    return subprocess.run(
        [sys.executable, "-c", START + body, signal.Signals(number).name],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


IN_CLEANUP = """
with stop_on_signals():
    try:
        send()
        time.sleep(60)
    finally:
        send()  # a second one does not disturb the cleanup
        time.sleep(0.1)
        print("clean")
        raise OSError("the terminal is gone")
"""
WHERE_PYTHON_IGNORES_EXCEPTIONS = """
class Closed:
    def __del__(self):
        send()
        time.sleep(0.1)

with stop_on_signals():
    try:
        Closed()
        time.sleep(60)
    finally:
        print("clean")
"""


@pytest.mark.parametrize(
    ("body", "number"),
    [
        (IN_CLEANUP, signal.SIGTERM),
        (IN_CLEANUP, signal.SIGHUP),
        (WHERE_PYTHON_IGNORES_EXCEPTIONS, signal.SIGINT),
    ],
)
def test_a_signal_ends_the_program_with_one_line_after_its_cleanup(body, number):
    done = run_program(body, number)
    assert done.returncode == -number
    assert done.stdout == "clean\n"
    assert done.stderr == f"{MESSAGE}\n"


def test_a_call_that_does_not_return_is_left_behind():
    done = run_program(
        """
import hashlib, threading
with stop_on_signals():
    threading.Timer(0.2, send).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # many minutes
"""
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == f"{MESSAGE}\n"


def test_ctrl_c_reaches_a_program_that_waits_after_polars_was_imported():
    done = run_program(
        """
import threading
with stop_on_signals():
    import polars
    threading.Timer(0.2, send).start()
    try:
        threading.Event().wait()
    finally:
        print("clean")
"""
    )
    assert done.returncode == -signal.SIGINT
    assert done.stdout == "clean\n"
    assert done.stderr == f"{MESSAGE}\n"


def test_an_import_ends_before_a_signal_is_obeyed(tmp_path):
    lines = "import __main__, time; __main__.send(); time.sleep(0.2); print('imported')"
    (tmp_path / "slow_module.py").write_text(lines)
    done = run_program(
        """
with stop_on_signals():
    import slow_module
    try:
        time.sleep(60)
    finally:
        print("clean")
""",
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert done.returncode == -signal.SIGINT
    assert done.stdout == "imported\nclean\n"
    assert done.stderr == f"{MESSAGE}\n"


def test_a_signal_that_the_parent_ignores_stays_ignored():
    done = run_program(
        """
with stop_on_signals():
    send()
    time.sleep(0.1)
    print("done")
""",
        signal.SIGHUP,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_ctrl_c_while_the_program_imports_prints_no_traceback(tmp_path):
    slow = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    (tmp_path / "typer.py").write_text(slow)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "callshot", "--version"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 128 + signal.SIGINT
    assert done.stderr == f"{MESSAGE}\n"
