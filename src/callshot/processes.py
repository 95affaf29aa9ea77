"""Whether a process runs on this machine."""

import os
import sys


def is_process_alive(pid: int) -> bool:
    """Return whether a process with this number runs on this machine."""
    if pid <= 0:
        return False
    if sys.platform == "win32":
        return _is_alive_on_windows(pid)
    try:
        os.kill(pid, 0)
    except PermissionError:  # it belongs to another user
        return True
    except (OSError, OverflowError):
        return False
    return True


def _is_alive_on_windows(pid: int) -> bool:
    """Ask Windows for the process: `os.kill(pid, 0)` would send it CTRL_C there."""
    import ctypes

    query_limited_information = 0x1000
    still_active = 259
    kernel32 = getattr(ctypes, "windll").kernel32  # noqa: B009, absent on other systems
    handle = kernel32.OpenProcess(query_limited_information, False, pid)
    if not handle:
        return False
    try:
        code = ctypes.c_ulong()
        answered = kernel32.GetExitCodeProcess(handle, ctypes.byref(code))
        return bool(answered) and code.value == still_active
    finally:
        kernel32.CloseHandle(handle)
