"""Settings of all tests: no deadlines (kernels compile on first use), a fresh kernel cache.

Signals have their usual effect, however the tests were started.
"""

import hashlib
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Every process that a test starts would compile callshot again, which takes a second or more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Before NumPy is imported: threads of BLAS of two test processes wait for each other.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Without a GPU, Triton's kernels are interpreted. It is read when a kernel is defined.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile(
    "callshot",
    deadline=None,
    max_examples=40,
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile("full", deadline=None, max_examples=500)
settings.load_profile("callshot")


def _heed_signals() -> None:
    """Undo what `nohup` and shells do to programs in the background: signals are ignored there."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_IGN:
            is_ctrl_c = name == "SIGINT"
            signal.signal(
                number, signal.default_int_handler if is_ctrl_c else signal.SIG_DFL
            )


_heed_signals()


def _kernel_cache() -> Path:
    """Name a cache after the text of the kernels: numba checks one file, not those it calls."""
    root = Path(__file__).parents[1]
    folders = (
        root / "src/callshot" / name for name in ("fewshot/kernels", "baselines")
    )
    text = b"".join(
        p.read_bytes() for folder in folders for p in sorted(folder.glob("*.py"))
    )
    return root / ".numba" / hashlib.sha256(text).hexdigest()[:12]


# Before anything imports ONNX Runtime: it would write to the home folder.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = str(_kernel_cache())

# Three processes start at the beginning, after one third and after two thirds of this order: the
# first compiles the kernels, the others do not need them before they are in the cache. Jobs of a
# cluster come before pages: a browser leaves an event loop running.
TESTS = Path(__file__).parent
ORDER = ("fewshot", "baselines", "distributed", "study", "report", "corpus", "tables")
ORDER += (".", "review/page", "encoders", "detection", "review", "storage")


def pytest_collection_modifyitems(items):
    """Order tests by their folders."""
    items.sort(key=_find_place)


def _find_place(item) -> int:
    if item.path.is_relative_to(TESTS):
        folder = item.path.parent.relative_to(TESTS).as_posix()
        for name in (folder, folder.partition("/")[0]):
            if name in ORDER:
                return ORDER.index(name)
    return ORDER.index(".")  # also examples in the code and the documentation


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def browser():
    """Start one Chromium for all tests of pages: Playwright can be started only once."""
    if CHROMIUM is None:
        pytest.skip(
            "no Chromium on this machine, the page was not tested (apt-get install chromium)"
        )
    api = pytest.importorskip(
        "playwright.sync_api",
        reason="playwright is not installed, the page was not tested",
    )
    from review_pages import PATIENCE_MS

    api.expect.set_options(timeout=PATIENCE_MS)
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Fail where a test file cannot be imported: doctest would leave it out in silence."""
    report = yield
    if report.skipped and "unable to import module" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"{collector.path}: cannot be imported"
    return report
