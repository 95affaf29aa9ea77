"""Results, summaries, tables and pictures → one HTML file that needs no network.

The first screen answers; everything else is in collapsible sections, in the order in which people
ask. Scripts and styles are part of the file, and its content security policy names them by their
hashes: nothing else runs, and nothing is fetched.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from callshot.files import write_atomic
from callshot.report.page.call_data import clip_data
from callshot.report.page.data import chart_data, to_json
from callshot.report.page.first_screen import show_first_screen
from callshot.report.page.html import Markup, element
from callshot.report.page.question_sections import PageContent, Section, make_sections
from callshot.results import explain_errors

STYLES = ("uPlot.min.css", "page.css", "first_screen.css", "panels.css")
SCRIPTS = (
    "uPlot.iife.min.js",
    "dom.js",
    "sections.js",
    "chart.js",
    "panels.js",
    "sounds.js",
    "confusion.js",
    "map.js",
    "tables.js",
)
LICENCE = "uPlot.LICENSE.txt"
NO_SCRIPTS = (
    "Scripts are off: nothing can be drawn here, but the answer and the tables below are readable "
    "without scripts."
)


def write_page(
    path: Path,
    title: str,
    content: PageContent,
) -> None:
    """Write the report of a study; equal inputs give equal bytes."""
    first_shown = {
        corpus: (summary.best, summary.headline.k)
        for corpus, summary in content.summaries.items()
    }
    numbers = chart_data(
        content.all_results, content.confusion_shots, first_shown, content.calls
    )
    clips = [
        clip_data(results, content.calls.get(results.corpus))
        for results in content.all_results
    ]
    data = {"data": to_json(numbers), "clips": to_json(clips)}
    first = show_first_screen(content.all_results, content.summaries)
    text = _format_document(title, first, make_sections(content), data)
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)


def _format_document(
    title: str, first: Markup, sections: Sequence[Section], data: Mapping[str, str]
) -> str:
    styles = [_read_asset(name) for name in STYLES]
    scripts = [_read_asset(name) for name in SCRIPTS]
    head = _format_head(title, styles, _security_policy(styles, scripts))
    body = _format_body(title, first, sections, data, scripts)
    page = element(
        "html",
        element("head", *_on_lines(head)),
        element("body", *_on_lines(body)),
        lang="en",
    )
    return f"<!doctype html>\n{page}\n"


def _format_head(title: str, styles: Sequence[str], policy: str) -> Iterator[Markup]:
    yield element("meta", charset="utf-8")
    yield element("meta", http_equiv="Content-Security-Policy", content=policy)
    yield element(
        "meta", name="viewport", content="width=device-width, initial-scale=1"
    )
    yield element("meta", name="color-scheme", content="light dark")
    yield element("link", rel="icon", href="data:,")
    yield element("title", title)
    for style in styles:
        yield element("style", Markup(style))


def _format_body(
    title: str,
    first: Markup,
    sections: Sequence[Section],
    data: Mapping[str, str],
    scripts: Sequence[str],
) -> Iterator[Markup]:
    note = element("noscript", element("p", NO_SCRIPTS, class_="quiet"))
    answer = element("section", first, id="answer", aria_label="The answer")
    contents = [_format_section(section) for section in sections]
    licence = _read_asset(LICENCE)
    yield element("a", "Skip to the answer", href="#answer", class_="skip")
    yield element("header", element("h1", title))
    yield element("main", note, answer, *contents)
    yield Markup(f"<!-- The charts are drawn by uPlot.\n{licence}\n-->")
    for name, text in data.items():
        yield element("script", Markup(text), type="application/json", id=name)
    for script in scripts:
        yield element("script", Markup(script))


def _on_lines(elements: Iterable[Markup]) -> Iterator[Markup]:
    for part in elements:
        yield Markup("\n")
        yield part


def _format_section(section: Section) -> Markup:
    gist = element("span", section.gist, class_="gist") if section.gist else ""
    summary = element("summary", element("h2", section.heading), gist)
    return element(
        "details",
        summary,
        element("div", section.content, class_="inside"),
        id=section.name,
        class_="section",
    )


def _read_asset(name: str) -> str:
    path = files("callshot.report.page") / "assets" / name
    return path.read_text(encoding="utf-8")


def _security_policy(styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a policy by which only these styles and scripts count, and nothing is fetched."""
    rules = (
        "default-src 'none'",
        f"script-src {_hashes(scripts)}",
        f"style-src {_hashes(styles)}",
        "img-src data:",
        "media-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hashes(texts: Sequence[str]) -> str:
    hashes = []
    for text in texts:
        digest = hashlib.sha256(text.encode()).digest()
        encoded = base64.b64encode(digest).decode()
        hashes.append(f"'sha256-{encoded}'")
    return " ".join(hashes)
