"""The routes of both pages, of a review and to label recordings, as a Starlette application.

What a page asks for is checked here, in `callshot.review.decisions` and in
`callshot.review.labelling`; `Review` and `Labelling` have the answers.
"""

import asyncio
import json
import math
import mimetypes
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from callshot import report
from callshot.errors import CallshotError, InputError, OptionError, RequestError
from callshot.review.decisions import REDO, UNDO
from callshot.review.estimates import Answer
from callshot.review.finding import STUDIES, pack_study
from callshot.review.labelling import Labelling
from callshot.review.results import (
    ReviewResults,
    add_undecided,
    pack_calls,
    read_review,
)
from callshot.review.session import MAX_CONTEXT_S, MAX_ITEMS, Review
from callshot.review.sound import (
    FILTER_MARGIN_S,
    MAPS,
    SCALES,
    Clip,
    Picture,
    draw,
    filter_band,
    fit_contrast,
    limit_played,
    make_example_clip,
    make_wav,
    make_waveform,
)
from callshot.review.tiles import LEVELS, MAX_HEIGHT, TileKey
from callshot.review.web_safety import (
    Access,
    Guard,
    check_reviewer,
    find_reviewer,
    refuse,
    set_cookie,
)

ASSETS = Path(__file__).with_name("assets")
REPORT_ASSETS = Path(report.__file__).parent / "page" / "assets"
mimetypes.add_type("text/javascript", ".js")  # Windows may know another one
Limits = Mapping[str, tuple[float, float]]
BINARY_TYPE = "application/octet-stream"
MAX_POLL_S = 25.0
POLL_STEP_S = 0.1
MAX_COUNT = 1e12
MAX_HZ = 1e9
TIMES = {
    "start_s": (0.0, MAX_HZ),
    "end_s": (0.0, MAX_HZ),
    "before": (0.0, MAX_CONTEXT_S),
    "after": (0.0, MAX_CONTEXT_S),
}
SOUND_LIMITS = {"speed": (0.0625, 16.0), "gain_db": (-60.0, 60.0)}
BAND_LIMITS = {"low_hz": (0.0, MAX_HZ), "high_hz": (0.0, MAX_HZ)}
PICTURE_LIMITS = {
    "width": (1, 4096),
    "height": (1, 4096),
    "window_s": (1e-6, 60.0),
    "min_hz": (0.0, MAX_HZ),
    "max_hz": (0.01, MAX_HZ),
    "floor_db": (-300.0, 100.0),
    "range_db": (0.01, 300.0),
}
TILE_LIMITS = {
    "level": LEVELS,
    "number": (0, 2**40),
    "height": (16, MAX_HEIGHT),
    "window_s": (1e-4, 1.0),
    "max_hz": (1.0, MAX_HZ),
}
FILTER_LIMITS = dict.fromkeys(
    ("min_score", "max_score", "from_hour", "to_hour"), (-math.inf, math.inf)
)


async def _answer_error(request: Request, error: Exception) -> Response:
    """Answer with an error in JSON; its status depends on whose fault it is."""
    if isinstance(error, HTTPException):
        return refuse(error.status_code, error.detail)
    if not isinstance(error, CallshotError):
        return refuse(500, f"the server failed ({type(error).__name__})")
    if isinstance(error, RequestError):
        return refuse(error.status, str(error))
    status = 500
    if isinstance(error, InputError):
        status = 404
    elif isinstance(error, OptionError):
        status = 400
    return refuse(status, str(error))


class Query:
    """A request of the page: who asks, and the values in its address, each checked."""

    def __init__(self, request: Request, access: Access) -> None:
        self.reviewer = find_reviewer(request.headers, access)
        self._values = {**request.query_params, **request.path_params}

    def text(self, name: str) -> str | None:
        """Return a text, None if it is missing or empty."""
        return self._values.get(name) or None

    def count(self, name: str, default: int, high: float = MAX_COUNT) -> int:
        """Return a whole number from 0 to `high`; `default` if it is missing or empty."""
        return int(self.numbers({name: (0, high)}).get(name, default))

    def numbers(self, limits: Limits) -> dict[str, float]:
        """Return the numbers that the request has, by name; `limits` are low and high of each."""
        return {
            name: read_number(name, text, *ends)
            for name, ends in limits.items()
            if (text := self.text(name)) is not None
        }


def read_number(name: str, text: str, low: float, high: float) -> float:
    """Return a finite number within limits; raise RequestError if a text is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not low <= value <= high:
        raise RequestError(f"{name}: expected a number from {low:g} to {high:g}")
    return value


Get = Callable[[Any, Query], Answer | Response]


def answer_queue(review: Review, query: Query) -> Answer:
    """Answer with the numbers of items in the order, and by the filters, of a request."""
    filters: dict[str, Any] = query.numbers(FILTER_LIMITS)
    for name in ("label", "recording", "doubt"):
        if query.text(name) is not None:
            filters[name] = query.text(name)
    return review.list_queue(
        query.reviewer,
        query.text("order") or "time",
        query.count("offset", default=0),
        query.count("limit", default=MAX_ITEMS, high=10_000),
        state=query.text("state") or "undecided",
        whose=query.text("reviewer"),
        **filters,
    )


def answer_items(review: Review, query: Query) -> Answer:
    """Answer with what is known of the items whose numbers the request lists in `ids`."""
    text = query.text("ids")
    parts = [] if text is None else text.split(",")
    if len(parts) > MAX_ITEMS:
        raise RequestError(f"ids: expected up to {MAX_ITEMS} numbers with commas")
    ids = [int(read_number("ids", part, 0, MAX_COUNT)) for part in parts]
    items = review.describe_items(ids, query.reviewer)
    return {"items": items, "score_version": review.score_version}


def answer_examples(review: Review, query: Query) -> Answer:
    """Answer with labelled calls of the likely classes of an item, to compare it with."""
    item = query.count("item", default=-1)
    review.check_item(item)
    return {"classes": review.list_examples(item, query.reviewer)}


def answer_nearby(review: Review, query: Query) -> Answer:
    """Answer with the items around an item, which its picture may show."""
    item = query.count("item", default=-1)
    if item in review.decisions.gone:  # it was taken back meanwhile
        return {"items": []}
    review.check_item(item)
    return {"items": review.list_nearby(item, query.reviewer)}


def answer_export(review: Review, query: Query) -> Response:
    """Answer with calls as a file: those on which all agree, or, in a blind review, one's own.

    The request may ask for `rejected` calls too, and for `all` items that are not decided.
    """
    whose = query.reviewer if review.blind else None
    rejected = query.text("rejected") == "1"
    results = read_review(review.folder, reviewer=whose, rejected=rejected)
    if query.text("all") == "1":
        with review.lock:
            results = add_undecided(results, review.decisions, query.reviewer, whose)
    return _send_calls(replace(results, roots=review.source.files.roots), query)


def answer_sound(session: Review | Labelling, query: Query) -> Response:
    """Answer with a sound as a WAV file, in a band of frequencies."""
    band = query.numbers(BAND_LIMITS)
    margin_s = FILTER_MARGIN_S if band else 0.0
    if isinstance(session, Review):
        clip, start_s, end_s = _read_sound(session, query, margin_s)
    else:
        clip, start_s, end_s = _read_span(session, query, margin_s)
    if band:
        clip = filter_band(clip, **band).cut(start_s, end_s)
    options = {"speed": 1.0, **query.numbers(SOUND_LIMITS)}
    clip = limit_played(clip, options["speed"])
    headers = _describe_clip(clip) | {"X-Speed": f"{options['speed']:g}"}
    return Response(make_wav(clip, **options), 200, headers, "audio/wav")


def answer_spectrogram(session: Any, query: Query) -> Response:
    """Answer with the spectrogram of an item, an example or a span as a PNG file."""
    options: dict[str, Any] = query.numbers(PICTURE_LIMITS)
    for name in ("width", "height"):
        if name in options:
            options[name] = int(options[name])
    for name, known in {"scale": SCALES, "colours": MAPS}.items():
        value = query.text(name) or known[0]
        if value not in known:
            raise RequestError(f"{name}: expected one of {', '.join(known)}")
        options[name] = value
    picture = Picture(**options)
    is_review = isinstance(session, Review)
    read = _read_sound if is_review else _read_span
    clip, _, _ = read(session, query)
    if query.text("fit") == "1":
        item = query.count("item", default=-1)
        example = query.count("example", default=-1)
        if is_review:
            picture = session.fit_picture(picture, item, example)
        # Items have the contrast of their label. A span has no label, and an example may come from
        # other recordings, so it may be louder or quieter.
        if not is_review or example >= 0:
            picture = fit_contrast(picture, [clip])
    low_hz, high_hz = picture.band_hz(clip.rate_hz)
    band = {"X-Min-Hz": f"{low_hz:g}", "X-Max-Hz": f"{high_hz:g}"}
    headers = _describe_clip(clip) | band
    return Response(draw(clip, picture), 200, headers, "image/png")


def answer_waveform(review: Review, query: Query) -> Answer:
    """Answer with the lowest and highest sample of each column of a waveform."""
    width = query.count("width", default=600, high=4096) or 1
    clip, _, _ = _read_sound(review, query)
    return make_waveform(clip, width)


def _read_sound(
    review: Review, query: Query, margin_s: float = 0.0
) -> tuple[Clip, float, float]:
    """Return the clip that a request wants, and start and end of the span that it wants.

    It wants an item, another span of its recording, or an example. The clip has a margin of
    `margin_s` on both sides, for filters; an example in the model has none.
    """
    item = query.count("item", default=-1)
    example = query.count("example", default=-1)
    if example >= 0:
        if review.model is not None and example < review.first_call:
            clip = make_example_clip(review.model, example)
            return clip, clip.start_s, clip.end_s
        item = example - review.first_call
    review.check_item(item)
    start_s, end_s = review.decisions.find_span(item, query.reviewer)
    times_s = query.numbers(TIMES)
    start_s = times_s.get("start_s", start_s)
    end_s = times_s.get("end_s", end_s)
    if not start_s < end_s:
        raise RequestError("start_s, end_s: expected a span")
    start_s = max(0.0, start_s - times_s.get("before", 0.0))
    end_s += times_s.get("after", 0.0)
    name = review.items.frame["recording"][item]
    clip = review.source.files.read(name, start_s - margin_s, end_s + margin_s)
    return clip, start_s, end_s


def _read_span(
    session: Labelling, query: Query, margin_s: float = 0.0
) -> tuple[Clip, float, float]:
    """Return the clip of a span with a margin on both sides, and start and end of the span."""
    recording = session.find_recording(query.text("recording"))
    times_s = query.numbers(TIMES)
    start_s = times_s.get("start_s", 0.0)
    end_s = min(times_s.get("end_s", math.inf), recording.duration_s)
    if not start_s < end_s:
        raise RequestError("start_s, end_s: expected a span inside the recording")
    clip = session.files.read(recording.path, start_s - margin_s, end_s + margin_s)
    return clip, start_s, end_s


def answer_tile(session: Labelling, query: Query) -> Response:
    """Answer with the pixels of a tile: a byte each, by rows, high frequencies first."""
    recording = session.find_recording(query.text("recording"))
    options: dict[str, Any] = query.numbers(TILE_LIMITS)
    missing = TILE_LIMITS.keys() - options.keys()
    if missing:
        raise RequestError(f"{min(missing)}: expected a number")
    for name in ("level", "number", "height"):
        options[name] = int(options[name])
    pixels = session.files.draw_tile(recording.path, TileKey(**options))
    return Response(pixels, media_type=BINARY_TYPE)


def answer_labels(session: Labelling, query: Query) -> Response:
    """Answer with all calls as a file."""
    session.take_reviews()
    results = read_review(session.folder)
    format = query.text("format") or ""
    if format not in STUDIES:
        return _send_calls(results, query)
    _, calls = pack_calls(results, "csv")
    return _send_file(*pack_study(calls, session.search.path, format))


def _send_calls(results: ReviewResults, query: Query) -> Response:
    """Answer with calls in the format of a request, as a file to download."""
    return _send_file(*pack_calls(results, query.text("format") or ""))


def _send_file(name: str, content: bytes) -> Response:
    """Answer with a file to download."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type=BINARY_TYPE)


def _describe_clip(clip: Clip) -> dict[str, str]:
    """Return headers that say which part of the recording a clip is."""
    return {
        "X-Start-Seconds": f"{clip.start_s:.6f}",
        "X-End-Seconds": f"{clip.end_s:.6f}",
    }


async def _read_body(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request; raise RequestError if it is anything else."""
    try:
        body = json.loads(await request.body())
    except (ClientDisconnect, RecursionError, ValueError):
        raise RequestError("expected JSON") from None
    if not isinstance(body, dict):
        raise RequestError("expected a JSON object")
    return body


GETS: dict[str, Get] = {
    "/": lambda review, query: FileResponse(ASSETS / "index.html"),
    "/api/session": lambda review, query: review.describe_session(query.reviewer),
    "/api/queue": answer_queue,
    "/api/items": answer_items,
    "/api/items/{item}/examples": answer_examples,
    "/api/items/{item}/nearby": answer_nearby,
    "/api/progress": lambda review, query: review.describe_progress(query.reviewer),
    "/api/export/{format}": answer_export,
    "/api/sound": answer_sound,
    "/api/spectrogram": answer_spectrogram,
    "/api/waveform": answer_waveform,
}

LABEL_GETS: dict[str, Get] = {
    "/": lambda session, query: FileResponse(ASSETS / "label.html"),
    "/api/session": lambda session, query: session.describe_session(query.reviewer),
    "/api/recordings": lambda session, query: session.list_recordings(),
    "/api/recording": lambda session, query: session.open_recording(
        query.text("recording")
    ),
    "/api/tile": answer_tile,
    "/api/sound": answer_sound,
    "/api/spectrogram": answer_spectrogram,
    "/api/similar": lambda session, query: session.list_similar(query.text("box")),
    "/api/kinds": lambda session, query: session.list_kinds(),
    "/api/order": lambda session, query: {
        "recordings": [*session.kinds.order_recordings().items()]
    },
    "/pointmap.js": lambda session, query: FileResponse(REPORT_ASSETS / "pointmap.js"),
    "/api/tasks": lambda session, query: session.describe_tasks(),
    "/api/export/{format}": answer_labels,
}


class FoundReviews:
    """The pages to review what was found by labels, each under the number of its round.

    apps  the applications of the pages that were opened, by number
    """

    def __init__(self, session: Labelling, access: Access) -> None:
        self.session = session
        self.access = access
        self.apps: dict[int, Starlette] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with the page of its round."""
        number = scope["path_params"]["number"]
        if number not in self.apps:
            review = await run_in_threadpool(self.session.open_review, number)
            app = make_app(review, self.access)
            # `serve` told only the application of the label page when the server stops.
            parent = scope["app"]
            app.state.is_stopping = getattr(parent.state, "is_stopping", lambda: False)
            # Meanwhile another request may have made one.
            self.apps.setdefault(number, app)
        await self.apps[number](scope, receive, send)


def make_app(session: Review | Labelling, access: Access) -> Starlette:
    """Return the application of a page; its routes answer in threads."""

    def get(answer: Get) -> Any:
        """Return the route of a request that only reads; Starlette runs it in a thread."""

        def route(request: Request) -> Response:
            content = answer(session, Query(request, access))
            return content if isinstance(content, Response) else JSONResponse(content)

        return route

    def post(save: Callable[[str, dict[str, Any]], Answer]) -> Any:
        """Return the route of a request that changes something, by `save(reviewer, body)`."""

        async def route(request: Request) -> Response:
            body = await _read_body(request)
            reviewer = find_reviewer(request.headers, access)
            return JSONResponse(await run_in_threadpool(save, reviewer, body))

        return route

    async def set_reviewer(request: Request) -> Response:
        """Keep the name of a reviewer in a cookie."""
        body = await _read_body(request)
        name = check_reviewer(str(body.get("name", "")))
        answer = JSONResponse({"reviewer": name})
        set_cookie(answer, access.reviewer_cookie, name.encode().hex())
        return answer

    async def wait_for_changes(request: Request) -> Response:
        """Answer when decisions or scores are newer than those of the page, or after a while."""
        query = Query(request, access)
        after = query.count("after", default=0)
        version = query.numbers({"score_version": (0, MAX_COUNT)}).get("score_version")
        is_stopping = getattr(request.app.state, "is_stopping", lambda: False)
        for _ in range(round(MAX_POLL_S / POLL_STEP_S)):
            is_new = session.seq > after
            is_new |= version not in (None, session.score_version)
            if is_new or is_stopping() or await request.is_disconnected():
                break
            await asyncio.sleep(POLL_STEP_S)
        return JSONResponse(session.list_changes(after))

    table: list[BaseRoute] = [Mount("/assets", StaticFiles(directory=ASSETS))]
    posts = {
        "/api/undo": post(partial(session.undo, UNDO)),
        "/api/redo": post(partial(session.undo, REDO)),
        "/api/reviewer": set_reviewer,
    }
    gets = GETS
    if isinstance(session, Review):
        posts["/api/decisions"] = post(session.decide)
        posts["/api/labels"] = post(session.add_label)
        posts["/api/settle"] = post(session.settle)
    else:
        gets = LABEL_GETS
        table.append(Mount("/review/{number:int}", FoundReviews(session, access)))
        posts["/api/boxes"] = post(session.change)
        posts["/api/listened"] = post(session.listen)
        posts["/api/find"] = post(session.find_all)
        posts["/api/find/stop"] = post(session.stop_finding)
    table += [Route(path, get(answer)) for path, answer in gets.items()]
    table += [Route(path, save, methods=["POST"]) for path, save in posts.items()]
    table.append(Route("/api/changes", wait_for_changes))
    handled = (CallshotError, HTTPException, Exception)
    return Starlette(
        routes=table,
        middleware=[Middleware(Guard, access=access)],
        exception_handlers=dict.fromkeys(handled, _answer_error),
    )
