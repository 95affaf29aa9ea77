"""Measure the page of a report: its size, and when a browser first paints it.

Usage: python bench/report.py REPORT.html … [--json FILE]
"""

import shutil
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from table import parser, show

RUNS = 5
VIEWPORT = {"width": 1280, "height": 800}
FIRST_PAINT = (
    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
)


def measure_paint_ms(browser: Browser, path: Path) -> float:
    """Return when a page is first painted, in a new context without a network."""
    context = browser.new_context(offline=True, viewport=VIEWPORT)
    page = context.new_page()
    page.goto(path.absolute().as_uri())
    paint_ms = None
    while paint_ms is None:
        page.wait_for_timeout(10)
        paint_ms = page.evaluate(FIRST_PAINT)
    context.close()
    return float(paint_ms)


def main() -> None:
    """Print one row per report."""
    arguments = parser(__doc__)
    arguments.add_argument("reports", type=Path, nargs="+", metavar="REPORT.html")
    options = arguments.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    rows: list[dict[str, object]] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"]
        )
        for path in options.reports:
            paints_ms = [measure_paint_ms(browser, path) for _ in range(RUNS)]
            row = {
                "report": str(path),
                "MB": path.stat().st_size / 1e6,
                "first paint, ms (best)": min(paints_ms),
                f"median of {RUNS}": median(paints_ms),
            }
            rows.append(row)
        browser.close()
    show("Pages of reports", rows, options.json)


if __name__ == "__main__":
    main()
