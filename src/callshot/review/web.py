"""The routes of the page, as a Starlette application.

What the page asks for is checked here and in `callshot.review.decisions`; `Review` has the answers.
Sounds and pictures are computed once and kept for a while.
"""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from callshot.errors import (
    CallshotError,
    InputError,
    OptionError,
    RequestError,
)
from callshot.review.decisions import REDO, UNDO
from callshot.review.results import pack_calls, read_review
from callshot.review.session import MAX_CONTEXT_S, MAX_ITEMS, Answer, Review, Sound
from callshot.review.sound import (
    AnswerCache,
    Clip,
    Picture,
    SoundOptions,
    draw,
    filter_band,
    limit_played,
    make_wav,
    make_waveform,
)
from callshot.review.web_safety import (
    Access,
    Guard,
    answer_range,
    check_reviewer,
    find_reviewer,
    refuse,
    set_cookie,
)

ASSETS = Path(__file__).with_name("assets")
PAGE = "index.html"
BINARY_TYPE = "application/octet-stream"
TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
MAX_POLL_S = 25.0
POLL_STEP_S = 0.1
MAX_DIGITS = 15
CACHE_BYTES = 64 * 2**20
FILTERS = {
    "label": "text",
    "recording": "text",
    "min_score": "number",
    "max_score": "number",
    "from_hour": "number",
    "to_hour": "number",
}


def make_app(review: Review, access: Access) -> Starlette:
    """Return the application of a review."""
    routes = Routes(review, access)
    gets: dict[str, Callable[[Query], Answer | Response]] = {
        "/": routes.asset,
        "/assets/{name:path}": routes.asset,
        "/api/session": routes.session,
        "/api/queue": routes.queue,
        "/api/items": routes.items,
        "/api/items/{item}/examples": routes.examples,
        "/api/progress": routes.progress,
        "/api/export/{format}": routes.export,
        "/api/sound": routes.sound,
        "/api/spectrogram": routes.spectrogram,
        "/api/waveform": routes.waveform,
    }
    posts: dict[str, Callable[[str, dict[str, Any]], Answer]] = {
        "/api/decisions": review.decide,
        "/api/undo": partial(review.undo, UNDO),
        "/api/redo": partial(review.undo, REDO),
        "/api/labels": review.add_label,
        "/api/settle": review.settle,
        "/api/refresh": lambda reviewer, body: review.refresh(),
    }
    table = [Route(path, routes.get(answer)) for path, answer in gets.items()]
    for path, save in posts.items():
        table.append(Route(path, routes.post(save), methods=["POST"]))
    table.append(Route("/api/reviewer", routes.reviewer, methods=["POST"]))
    table.append(Route("/api/changes", routes.changes))
    guard = Middleware(Guard, access=access)
    return Starlette(routes=table, middleware=[guard], exception_handlers=HANDLERS)


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return refuse(error.status, str(error))
    if isinstance(error, InputError):
        return refuse(404, str(error))
    return refuse(400 if isinstance(error, OptionError) else 500, str(error))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # as registered
    return refuse(error.status_code, error.detail)


async def _answer_failure(request: Request, error: Exception) -> Response:
    return refuse(500, f"the server failed ({type(error).__name__})")


HANDLERS: dict[Any, Any] = {
    CallshotError: _answer_error,
    HTTPException: _answer_http_error,
    Exception: _answer_failure,
}


class Query:
    """A request of the page: who asks, and the values in its address, each checked."""

    def __init__(self, request: Request, access: Access) -> None:
        self.headers = request.headers
        self.path_params = request.path_params
        self.reviewer = find_reviewer(request.headers, access)
        self._values = request.query_params

    def text(self, name: str) -> str | None:
        """Return a text, None if it is missing or empty."""
        return self._values.get(name) or None

    def number(self, name: str) -> float | None:
        """Return a finite number, None if it is missing or empty."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise RequestError(f"{name}: expected a number")
        return value

    def integer(self, name: str, low: int, high: int) -> int | None:
        """Return a whole number within limits, None if it is missing or empty."""
        text = self.text(name)
        if text is None:
            return None
        value = read_integer(text)
        if value is None or not low <= value <= high:
            raise RequestError(f"{name}: expected a whole number from {low} to {high}")
        return value

    def read_all(self, kinds: dict[str, str]) -> dict[str, Any]:
        """Return the values that are there, by name and kind."""
        values = {name: getattr(self, kind)(name) for name, kind in kinds.items()}
        return {name: value for name, value in values.items() if value is not None}


def read_integer(text: str) -> int | None:
    """Return a whole number of up to 15 digits, None if a text is none.

    >>> read_integer("12"), read_integer("-1"), read_integer("9" * 5000)
    (12, None, None)
    """
    is_number = text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


class Routes:
    """One method for each route that answers with more than `Review` does."""

    def __init__(self, review: Review, access: Access) -> None:
        self.review = review
        self.access = access
        self.assets = {path.name: path.read_bytes() for path in ASSETS.glob("*.*")}
        self.cache = AnswerCache(CACHE_BYTES)

    def get(self, answer: Callable[[Query], Answer | Response]) -> Any:
        """Return what answers a GET request, in a thread."""

        def route(request: Request) -> Response:
            content = answer(Query(request, self.access))
            return content if isinstance(content, Response) else JSONResponse(content)

        return route

    def post(self, save: Callable[[str, dict[str, Any]], Answer]) -> Any:
        """Return what answers a POST request, in a thread."""

        async def route(request: Request) -> Response:
            body = await _read_body(request)
            reviewer = find_reviewer(request.headers, self.access)
            return JSONResponse(await run_in_threadpool(save, reviewer, body))

        return route

    def asset(self, query: Query) -> Response:
        """Answer with a file of the page; there are no others, whatever the path."""
        name = query.path_params.get("name", PAGE)
        if name not in self.assets:
            return refuse(404, "no such file")
        kind = TYPES.get(Path(name).suffix) or guess_type(name)[0] or BINARY_TYPE
        return Response(self.assets[name], media_type=kind)

    def session(self, query: Query) -> Answer:
        """Answer with everything that the page needs once."""
        return self.review.describe_session(query.reviewer)

    def queue(self, query: Query) -> Answer:
        """Answer with the numbers of items in an order."""
        return self.review.list_queue(
            query.reviewer,
            query.text("order") or "time",
            query.integer("offset", 0, 10**9) or 0,
            query.integer("limit", 1, 10_000) or MAX_ITEMS,
            state=query.text("state") or "undecided",
            whose=query.text("reviewer"),
            **query.read_all(FILTERS),
        )

    def items(self, query: Query) -> Answer:
        """Answer with what is known of some items."""
        text = query.text("ids")
        numbers = [read_integer(part) for part in text.split(",")] if text else []
        ids = [number for number in numbers if number is not None]
        if len(numbers) > MAX_ITEMS or len(ids) < len(numbers):
            raise RequestError(f"ids: expected up to {MAX_ITEMS} numbers with commas")
        items = self.review.describe_items(ids, query.reviewer)
        return {"items": items, "score_version": self.review.score_version}

    def examples(self, query: Query) -> Answer:
        """Answer with labelled calls to compare an item with."""
        number = read_integer(query.path_params["item"])
        item = self.review.check_item(-1 if number is None else number)
        return {"classes": self.review.list_examples(item, query.reviewer)}

    def progress(self, query: Query) -> Answer:
        """Answer with what the decisions amount to."""
        return self.review.describe_progress(query.reviewer)

    def export(self, query: Query) -> Response:
        """Answer with the calls that stand, as a file."""
        whose = query.text("reviewer")
        if self.review.blind:
            whose = whose or query.reviewer
            self.review.check_visible(query.reviewer, whose)
        folder = self.review.journal.path.parent
        rejected = query.text("rejected") == "1"
        results = read_review(folder, reviewer=whose, rejected=rejected)
        results = replace(results, roots=self.review.source.files.roots)
        name, content = pack_calls(results, query.path_params["format"])
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers, media_type=BINARY_TYPE)

    def sound(self, query: Query) -> Response:
        """Answer with a WAV file."""
        names = ("speed", "gain_db", "low_hz", "high_hz")
        options = SoundOptions(**query.read_all(dict.fromkeys(names, "number")))
        sound = self._find_sound(query)

        def make() -> tuple[bytes, dict[str, str]]:
            clip = sound.read(options.margin_s)
            if options.margin_s:
                whole = filter_band(clip, options.low_hz, options.high_hz)
                clip = whole.cut(sound.start_s, sound.end_s)
            clip = limit_played(clip, options.speed)
            facts = {**_describe_clip(clip), "X-Speed": f"{options.speed:g}"}
            return make_wav(clip, options), facts

        return self._answer_cached(query, sound, options, make, "audio/wav")

    def spectrogram(self, query: Query) -> Response:
        """Answer with a PNG file."""
        numbers = ("window_s", "min_hz", "max_hz", "floor_db", "range_db")
        kinds = dict.fromkeys(numbers, "number")
        kinds |= dict.fromkeys(("scale", "colours"), "text")
        options = query.read_all(kinds)
        for name in ("width", "height"):
            pixels = query.integer(name, 1, 10**6)
            if pixels is not None:
                options[name] = pixels
        picture = Picture(**options)
        sound = self._find_sound(query)

        def make() -> tuple[bytes, dict[str, str]]:
            clip = sound.read(0.0)
            low_hz, high_hz = picture.band_hz(clip.rate_hz)
            band = {"X-Min-Hz": f"{low_hz:g}", "X-Max-Hz": f"{high_hz:g}"}
            return draw(clip, picture), _describe_clip(clip) | band

        return self._answer_cached(query, sound, picture, make, "image/png")

    def waveform(self, query: Query) -> Answer:
        """Answer with the lowest and highest sample of each column."""
        width = query.integer("width", 1, 4096) or 600
        return make_waveform(self._find_sound(query).read(0.0), width)

    def _find_sound(self, query: Query) -> Sound:
        """Return what a request wants to play or see: an item, or an example."""
        around_s = []
        for name in ("before", "after"):
            seconds = query.number(name) or 0.0
            if not 0 <= seconds <= MAX_CONTEXT_S:
                raise RequestError(f"{name}: expected 0 to {MAX_CONTEXT_S:g} s")
            around_s.append(seconds)
        item = query.integer("item", 0, 10**9)
        example = query.integer("example", 0, 10**9)
        if (item is None) == (example is None):
            raise RequestError("item: name one, or an example")
        if example is not None:
            found = self.review.find_example(example)
            if isinstance(found, Sound):
                return found
            item = found
        assert item is not None  # as there is no example
        times_s = query.read_all({"start_s": "number", "end_s": "number"})
        return self.review.find_sound(item, query.reviewer, *around_s, **times_s)

    def _answer_cached(
        self,
        query: Query,
        sound: Sound,
        options: Any,
        make: Callable[[], tuple[bytes, dict[str, str]]],
        kind: str,
    ) -> Response:
        key = repr((sound.key, options))
        tag = f'"{sha256(key.encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "private, max-age=0, must-revalidate"}
        if query.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        content, facts = self.cache.get(key, make)
        answer = answer_range(content, query.headers, kind)
        answer.headers.update(headers | facts)
        return answer

    async def reviewer(self, request: Request) -> Response:
        """Set the name of who asks, for this browser."""
        name = (await _read_body(request)).get("name")
        if not isinstance(name, str):
            raise RequestError("name: expected a text")
        name = check_reviewer(name)
        answer = JSONResponse({"reviewer": name})
        set_cookie(answer, self.access.reviewer_cookie, name.encode().hex())
        return answer

    async def changes(self, request: Request) -> Response:
        """Wait until something changes, up to 25 s."""
        query = Query(request, self.access)
        after = query.integer("after", 0, 10**12) or 0
        version = query.integer("score_version", 0, 10**12)
        review = self.review
        is_stopping = getattr(request.app.state, "is_stopping", lambda: False)
        for _ in range(round(MAX_POLL_S / POLL_STEP_S)):
            is_new = review.seq > after or version not in (None, review.score_version)
            if is_new or is_stopping() or await request.is_disconnected():
                break
            await asyncio.sleep(POLL_STEP_S)
        return JSONResponse(review.list_changes(after))


def _describe_clip(clip: Clip) -> dict[str, str]:
    return {
        "X-Start-Seconds": f"{clip.start_s:.6f}",
        "X-End-Seconds": f"{clip.end_s:.6f}",
    }


async def _read_body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise RequestError("expected JSON") from None
    if not isinstance(body, dict):
        raise RequestError("expected a JSON object")
    return body
