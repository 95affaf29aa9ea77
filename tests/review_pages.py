"""A small scan to review, and a server of it in a process of its own."""

import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin

import numpy as np
import soundfile

from callshot.detection.events import events_frame
from callshot.files import sha256_file
from callshot.results import format_provenance

RATE_HZ = 4000
DURATION_S = 60.0
HOSTILE = "<script>alert(1)</script>"
HOSTILE_FILE = "rec <img src=x onerror=alert(1)>_20260301_050000.wav"
FILES = (HOSTILE_FILE, "second_20260301_170000.wav")
LABELS = ("rumble", "trumpet", HOSTILE)
TONES_HZ = {"rumble": 30, "trumpet": 400, HOSTILE: 120}
BANDS_HZ = {"rumble": (20.0, 100.0), "trumpet": (350.0, 1300.0), HOSTILE: (None, None)}
CALLS_PER_FILE = 12
UNEVEN_S = 4.0  # length of a recording
UNEVEN = {"at_start.wav": 0.0, "at_end.wav": 3.0}  # where the sound is
START_LIMIT_S = 60
LAPTOP = {"width": 1280, "height": 800}
PATIENCE_MS = 60_000  # of a browser on a busy machine
REDRAW_MS = 100  # the longest wait after which a page draws what has changed
PANEL_MS = 400  # the wait after which the panel of a review asks for new figures
# Runs before the scripts of each page, and notes what the page still waits for.
WATCH = r"""(() => {
    const { fetch, setTimeout, clearTimeout } = window;
    const FRAMES = 3;
    const tasks = new Map(); // request or timer → {name, ms}
    let known = 0; // number of the latest change that an answer named
    let quiet = 0; // frames without anything to wait for
    let followed = -1; // number after which the page asks for changes
    // What follows from an answer starts in the same turn of the event loop.
    const end = (task) => setTimeout(() => tasks.delete(task));

    window.fetch = async (address, options) => {
        const task = {};
        const changes = String(address).match(/\/api\/changes\?after=(\d+)/);
        if (changes) followed = Number(changes[1]);
        else tasks.set(task, { name: address, ms: 0 });
        try {
            const response = await fetch(address, options);
            for (const name of ["arrayBuffer", "blob", "json", "text"]) {
                const read = response[name].bind(response);
                response[name] = async () => {
                    try {
                        const body = await read();
                        known = Math.max(known, body.seq ?? 0);
                        return body;
                    } finally {
                        end(task);
                    }
                };
            }
            return response;
        } catch (error) {
            end(task);
            throw error;
        }
    };
    window.setTimeout = (action, ms = 0) => {
        const timer = setTimeout(() => {
            end(timer);
            action();
        }, ms);
        tasks.set(timer, { name: `timer of ${ms} ms`, ms });
        return timer;
    };
    window.clearTimeout = (timer) => {
        tasks.delete(timer);
        clearTimeout(timer);
    };
    /** Return what the page waits for; longer timers do not count. */
    window.listUnfinished = (longest_ms) => {
        const waiting = [...tasks.values()].filter((one) => one.ms <= longest_ms);
        const names = waiting.map((one) => one.name);
        const sections = [...document.querySelectorAll("main > section")];
        const pane = document.querySelector("#pane");
        if (document.querySelector("#saved")?.textContent !== "All saved") names.push("saving");
        if (sections.filter((one) => one.checkVisibility()).length !== 1) names.push("start");
        if (pane?.checkVisibility() && pane.dataset.drawn !== "true") names.push("drawing");
        if (followed < known) names.push("changes");
        return names;
    };
    /** Return whether nothing was left in the last frames: dialogs tell late that they closed. */
    window.isFinished = (longest_ms) => {
        quiet = window.listUnfinished(longest_ms).length ? 0 : quiet + 1;
        if (quiet < FRAMES) return false;
        quiet = 0;
        return true;
    };
})()"""


# The texts whose contrast with their background is too low, and that contrast.
LOW_CONTRASTS = """() => {
    const parse = (text) => text.match(/[0-9.]+/g).map(Number);
    const blend = (top, under) => under.map((one, n) => one + (top[n] - one) * (top[3] ?? 1));
    const background = (one) => {
        if (one === null || one.id === "marks") return [255, 255, 255];
        const own = parse(getComputedStyle(one).backgroundColor);
        return (own[3] ?? 1) === 1 ? own.slice(0, 3) : blend(own, background(one.parentElement));
    };
    const light = (colour) => {
        const linear = (one) => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
        const parts = colour.map((one) => linear(one / 255));
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
    };
    const measure = (one) => {
        const under = background(one);
        const text = blend(parse(getComputedStyle(one).color), under);
        const lights = [light(text), light(under)].sort((a, b) => b - a);
        return [(lights[0] + 0.05) / (lights[1] + 0.05), one.textContent];
    };
    const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
        && !one.closest("option, svg, .outside, [disabled]")
        && [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    return texts.map(measure).filter(([ratio]) => ratio < 4.5);
}"""


EMPTY_PAGE = {"body": '<link rel="icon" href="data:,">', "content_type": "text/html"}


def open_window(browser, **options):
    """Open a window whose pages note what they wait for."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(WATCH)
    return context


@contextmanager
def use_page(context):
    """Yield the page of a window that tests share, as new: a new one takes seconds to open."""
    page = context.pages[0] if context.pages else context.new_page()
    try:
        yield page
        page, *others = context.pages
        for other in others:
            other.close()
        page.unroute_all()
        if page.url.startswith("http"):
            # Where no script runs, which could save something again, and no icon is asked for.
            empty = urljoin(page.url, "/empty")
            page.route(empty, lambda route: route.fulfill(**EMPTY_PAGE))
            page.goto(empty)
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
            page.unroute_all()
        page.set_viewport_size(LAPTOP)
        page.emulate_media(color_scheme="light", reduced_motion="no-preference")
        page.mouse.move(0, 0)
    except BaseException:
        for page in context.pages:
            page.close()
        raise
    context.clear_cookies()


@contextmanager
def use_own_page(context):
    """Yield a page of a window that is closed after it."""
    try:
        yield context.new_page()
    finally:
        context.close()


def expect(where, selector=None):
    """Return what can be expected of an element, or of a selector on a page."""
    from playwright.sync_api import expect

    return expect(where if selector is None else where.locator(selector))


def settle(page, longest_ms=REDRAW_MS):
    """Wait until a page has saved, drawn and loaded everything, and no short timer runs."""
    from playwright.sync_api import TimeoutError

    try:
        page.wait_for_function("ms => window.isFinished(ms)", arg=longest_ms)
    except TimeoutError as error:
        left = page.evaluate("ms => window.listUnfinished(ms)", longest_ms)
        raise AssertionError(f"the page still waits for {left}") from error


def find_low_contrasts(page):
    """Return the texts that are hard to read on a dark or a light page."""
    found = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += page.evaluate(LOW_CONTRASTS)
    return found


def wait_until(page, condition):
    """Wait until a condition holds that a page does not know."""
    end_s = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < end_s
        page.wait_for_timeout(20)


def make_scan(folder: Path) -> Path:
    """Write two recordings with calls, and the folder of a scan that found them."""
    audio = folder / "audio"
    audio.mkdir(parents=True)
    rows = [row for name in FILES for row in _write_recording(audio, name)]
    return _write_scan(folder / "scan", audio, rows)


def make_uneven_scan(folder: Path) -> Path:
    """Write a scan of two calls: the first is loud at its start, the second at its end."""
    audio = folder / "audio"
    audio.mkdir(parents=True)
    rows = []
    for score, (name, start_s) in zip((0.9, 0.8), UNEVEN.items(), strict=True):
        signal_ = np.zeros(round(UNEVEN_S * RATE_HZ))
        _add_call(signal_, 400, start_s, UNEVEN_S / 4)
        soundfile.write(audio / name, signal_, RATE_HZ)
        place = {"recording": name, "start_s": 0.0, "end_s": UNEVEN_S}
        rows.append({**place, "label": LABELS[0], "score": score})
    return _write_scan(folder / "scan", audio, rows)


def _write_scan(scan: Path, audio: Path, rows: list[dict[str, object]]) -> Path:
    scan.mkdir()
    events_frame(rows).write_parquet(scan / "events.parquet")
    facts = {
        "files": {"events.parquet": sha256_file(scan / "events.parquet")},
        "classes": [{"label": label, "threshold": 0.3} for label in LABELS],
        "folders": [str(audio)],
        "aim_per_hour": 1.0,
        "index": {"channel": "first"},
    }
    (scan / "scan.json").write_bytes(format_provenance(facts))
    return scan


def _write_recording(audio: Path, name: str) -> list[dict[str, object]]:
    rng = np.random.default_rng(len(name))
    signal_ = 0.002 * rng.standard_normal(round(DURATION_S * RATE_HZ))
    hour = "05" if name == HOSTILE_FILE else "17"
    rows = []
    for number in range(CALLS_PER_FILE):
        label = LABELS[number % len(LABELS)]
        start_s = 2.0 + 4.5 * number
        _add_call(signal_, TONES_HZ[label], start_s, 1.5)
        low_hz, high_hz = BANDS_HZ[label]
        rows.append(
            {
                "recording": name,
                "start_s": start_s,
                "end_s": start_s + 1.5,
                "label": label,
                "score": round(0.95 - 0.05 * number - (hour == "17") * 0.02, 4),
                "distance": 0.1 + 0.1 * number,
                "runner_up": LABELS[(number + 1) % len(LABELS)],
                "runner_up_score": 0.2,
                "low_freq_hz": low_hz,
                "high_freq_hz": high_hz,
                "clock": f"2026-03-01T{hour}:00:{round(start_s):02d}",
            }
        )
    soundfile.write(audio / name, signal_, RATE_HZ)
    return rows


def _add_call(signal_, hertz, start_s, length_s):
    first = round(start_s * RATE_HZ)
    times = np.arange(round(length_s * RATE_HZ)) / RATE_HZ
    shape = np.sin(np.pi * times / length_s)
    tone = sum(np.sin(2 * np.pi * hertz * n * times) / n for n in (1, 2, 3))
    signal_[first : first + len(times)] += 0.1 * shape * tone


class ReviewServer:
    """`callshot review`, or label, in a process of its own: it can be killed and started again."""

    def __init__(self, scan: Path, *options: str, command: str = "review") -> None:
        self.scan = scan
        self.command = command
        self.options = options
        # Below those that systems give out, so that it stays free while the server is down.
        self.port = random.randrange(20_000, 32_000)
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.token = ""

    def start(self) -> str:
        """Start it and return the address that it prints."""
        command = [sys.executable, "-m", "callshot", self.command, str(self.scan)]
        command += ["--no-browser", "--port", str(self.port), *self.options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        lines = []
        for line in self.process.stdout:
            lines.append(line)
            match = re.search(r"http://\S+token=\S+", line)
            if match:
                self.address = match.group()
                token = self.address.partition("token=")[2]
                assert self.token in ("", token)
                self.token = token
                self._wait()
                return self.address
        raise AssertionError("".join(lines))

    def _wait(self) -> None:
        """Wait until it answers."""
        for _ in range(START_LIMIT_S * 20):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/nothing")
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def interrupt(self) -> str:
        """Stop it as Ctrl-C does; return what it still prints."""
        self.process.send_signal(signal.SIGINT)
        text, _ = self.process.communicate()
        self.process = None
        return text

    def kill(self) -> None:
        """Kill it without a warning, as a power cut would."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.process = None
