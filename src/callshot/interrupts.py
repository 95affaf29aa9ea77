"""Stop the program when it is asked to: Ctrl-C, SIGTERM and SIGHUP all end it in the same way.

The main thread gets an Interrupt, so that every open block cleans up; threads that still compute
write no files. Where a library does not return to Python in time, the process ends without cleanup,
as if it were killed, and the next run of the command removes what is left.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

DEADLINE_S = 1.0  # after the signal; the cleanup takes a fraction of it
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
MESSAGE = "callshot: interrupted; finished work is kept, earlier results are unchanged"
IMPORTLIB = "<frozen importlib._bootstrap>"  # the file of functions that import modules
SHOW_CURSOR = "\r\x1b[?25h"  # which a progress bar hides


class Interrupt(BaseException):
    """The program was asked to stop; no command and no library catches this."""


@contextmanager
def stop_on_signals() -> Iterator[None]:
    """End the process soon after a signal that arrives in the block, with one line."""
    stopper = _Stopper()
    stopper.install()
    try:
        yield
    finally:
        stopper.uninstall()
        if stopper.number:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
            stopper.end_process()


class _Stopper:
    """Turns the first signal into an Interrupt, and enforces the deadline."""

    def __init__(self) -> None:
        self.number = 0  # the signal; 0 before it arrives
        self.is_raised = False
        self.is_lost = False  # raised where Python ignores exceptions, as in __del__
        self.is_ending = threading.Lock()

    def install(self) -> None:
        """Handle the signals, except those that the parent process has us ignore."""
        self.receiver, self.sender = socket.socketpair()
        self.sender.setblocking(False)
        self.numbers = []
        for name in SIGNALS:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.raise_interrupt)
                self.numbers.append(number)
        # Python writes to the socket even while the main thread is inside a library.
        signal.set_wakeup_fd(self.sender.fileno(), warn_on_full_buffer=False)
        sys.unraisablehook = self.notice_lost
        threading.Thread(target=self.enforce_deadline, daemon=True).start()

    def uninstall(self) -> None:
        """Let further signals end the process at once."""
        for number in self.numbers:
            signal.signal(number, signal.SIG_DFL)
        sys.unraisablehook = sys.__unraisablehook__

    def raise_interrupt(self, number: int, frame: FrameType | None) -> None:
        """Raise Interrupt in the main thread, once: the cleanup is not interrupted again.

        Not during an import: in the C++ that torch runs then, it would abort the process.
        `enforce_deadline` sends the signal again until it is raised.
        """
        self.number = self.number or number
        while frame is not None:
            if frame.f_code.co_filename == IMPORTLIB:
                return
            frame = frame.f_back
        if not self.is_raised:
            self.is_raised = True
            raise Interrupt

    def notice_lost(self, unraisable: Any) -> None:
        """Note that Python ignored an Interrupt, so that it is raised again."""
        if isinstance(unraisable.exc_value, Interrupt):
            self.is_lost = True
        else:
            sys.__unraisablehook__(unraisable)

    def enforce_deadline(self) -> None:
        """Wait for a signal; end the process if the main thread has not done so in time."""
        received = self.receiver.recv(1)  # the number of the signal, as a byte
        number = received[0]
        end_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < end_s:
            time.sleep(0.05)
            if self.is_lost:
                self.is_lost = False
                self.is_raised = False
            if not self.is_raised:
                let_signals_end_waits()
                if hasattr(signal, "pthread_kill"):  # wakes the main thread
                    main = threading.main_thread()
                    signal.pthread_kill(main.ident or 0, self.number or number)
                else:
                    signal.raise_signal(self.number or number)
        self.end_process()

    def end_process(self) -> NoReturn:
        """Print the message and end by the signal, so that a loop in a shell ends too."""
        if not self.is_ending.acquire(blocking=False):
            threading.Event().wait()  # another thread is ending the process
        text = f"{MESSAGE}\n"
        with suppress(OSError, ValueError, AttributeError):  # closed, or no real file
            descriptor = sys.stderr.fileno()
            if os.isatty(descriptor):
                text = SHOW_CURSOR + text
            os.write(descriptor, text.encode())
        number = self.number or signal.SIGINT
        with suppress(ValueError):  # only the main thread may change this
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        os._exit(128 + number)


def let_signals_end_waits() -> None:
    """Let Ctrl-C reach a thread that waits for a lock: polars, once imported, prevents that."""
    if hasattr(signal, "siginterrupt"):  # not on Windows
        signal.siginterrupt(signal.SIGINT, True)
