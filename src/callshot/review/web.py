"""The routes of the page, as a Starlette application."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
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
    OutputError,
    RequestError,
)
from callshot.review.decisions import REDO, UNDO
from callshot.review.examples import list_examples
from callshot.review.orders import QueueFilter
from callshot.review.requests import Query, read_integer
from callshot.review.results import pack_calls, read_review
from callshot.review.session import MAX_ITEMS, Review
from callshot.review.session_facts import (
    describe_progress,
    describe_session,
    list_labels,
)
from callshot.review.web_safety import (
    Access,
    Guard,
    check_reviewer,
    find_reviewer,
    refuse,
    set_cookie,
)
from callshot.review.web_sound import SoundRoutes

ASSETS = Path(__file__).with_name("assets")
PAGE = "index.html"
DOWNLOAD_TYPE = "application/octet-stream"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css"}
LONGEST_POLL_S = 25.0
POLL_STEP_S = 0.1
STATUS = {InputError: 404, OptionError: 400, OutputError: 500}


def make_app(review: Review, access: Access) -> Starlette:
    """Return the application of a review."""
    routes = Routes(review, access)
    sounds = SoundRoutes(review, access)
    get_routes: dict[str, Any] = {
        "/": routes.page,
        "/assets/{name:path}": routes.asset,
        "/api/session": routes.session,
        "/api/queue": routes.queue,
        "/api/items": routes.items,
        "/api/items/{item}/examples": routes.examples,
        "/api/progress": routes.progress,
        "/api/export/{format}": routes.export,
        "/api/sound": sounds.sound,
        "/api/spectrogram": sounds.spectrogram,
        "/api/waveform": sounds.waveform,
        "/api/changes": routes.changes,
    }
    post_names = (
        "decisions",
        "undo",
        "redo",
        "labels",
        "refresh",
        "settle",
        "reviewer",
    )
    table = [Route(path, answer) for path, answer in get_routes.items()]
    table += [_post(f"/api/{name}", getattr(routes, name)) for name in post_names]
    guard = Middleware(Guard, access=access)
    return Starlette(routes=table, middleware=[guard], exception_handlers=HANDLERS)


def _post(path: str, answer: Any) -> Route:
    return Route(path, answer, methods=["POST"])


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestError):
        return refuse(error.status, str(error))
    codes = (code for kind, code in STATUS.items() if isinstance(error, kind))
    status = next(codes, 500)
    return refuse(status, str(error))


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


class Routes:
    """One method for each route; slow ones run in threads."""

    def __init__(self, review: Review, access: Access) -> None:
        self.review = review
        self.access = access
        self.assets = {path.name: path.read_bytes() for path in _list_assets()}

    def _reviewer(self, request: Request) -> str:
        return find_reviewer(request.headers, self.access)

    # The page

    async def page(self, request: Request) -> Response:
        """Answer with the page."""
        if PAGE not in self.assets:
            return refuse(
                404, "the files of the page are missing; install callshot again"
            )
        return Response(self.assets[PAGE], media_type="text/html; charset=utf-8")

    async def asset(self, request: Request) -> Response:
        """Answer with a file of the page; there are no others, whatever the path."""
        name = request.path_params["name"]
        if name not in self.assets:
            return refuse(404, "no such file")
        suffix = Path(name).suffix
        kind = TYPES.get(suffix) or guess_type(name)[0] or "application/octet-stream"
        return Response(self.assets[name], media_type=kind)

    # What it shows

    def session(self, request: Request) -> Response:
        """Answer with everything that the page needs once."""
        return JSONResponse(describe_session(self.review, self._reviewer(request)))

    def queue(self, request: Request) -> Response:
        """Answer with the numbers of items in an order."""
        query = Query(request)
        filters = QueueFilter(
            state=query.text("state") or "undecided",
            label=query.text("label"),
            min_score=query.number("min_score"),
            max_score=query.number("max_score"),
            recording=query.text("recording"),
            from_hour=query.number("from_hour"),
            to_hour=query.number("to_hour"),
            reviewer=query.text("reviewer"),
        )
        order = query.text("order") or "time"
        offset = query.integer("offset", 0, 10**9, 0)
        limit = query.integer("limit", 1, 10_000, MAX_ITEMS)
        reviewer = self._reviewer(request)
        return JSONResponse(
            self.review.list_queue(reviewer, order, filters, offset, limit)
        )

    def items(self, request: Request) -> Response:
        """Answer with what is known of some items."""
        text = Query(request).text("ids") or ""
        numbers = [read_integer(part) for part in text.split(",")] if text else []
        ids = [number for number in numbers if number is not None]
        if len(numbers) > MAX_ITEMS or len(ids) < len(numbers):
            raise RequestError(f"ids: expected up to {MAX_ITEMS} numbers with commas")
        items = self.review.describe_items(ids, self._reviewer(request))
        return JSONResponse(
            {"items": items, "score_version": self.review.score_version}
        )

    def examples(self, request: Request) -> Response:
        """Answer with labelled calls to compare an item with."""
        number = read_integer(request.path_params["item"])
        item = self.review.check_item(-1 if number is None else number)
        return JSONResponse(
            {"classes": list_examples(self.review, item, self._reviewer(request))}
        )

    def progress(self, request: Request) -> Response:
        """Answer with what the decisions amount to."""
        return JSONResponse(describe_progress(self.review, self._reviewer(request)))

    def export(self, request: Request) -> Response:
        """Answer with the calls that stand, as a file."""
        query = Query(request)
        whose = query.text("reviewer")
        if self.review.blind:
            whose = whose or self._reviewer(request)
            self.review.check_visible(self._reviewer(request), whose)
        results = read_review(
            self.review.journal.path.parent,
            reviewer=whose,
            rejected=query.text("rejected") == "1",
        )
        results = replace(results, roots=self.review.source.files.roots)
        name, content = pack_calls(results, request.path_params["format"])
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, headers=headers, media_type=DOWNLOAD_TYPE)

    # What it does

    async def decisions(self, request: Request) -> Response:
        """Save decisions."""
        body = await _read_body(request)
        requests = body.get("decisions")
        if not isinstance(requests, list) or len(requests) > MAX_ITEMS:
            raise RequestError(f"decisions: expected a list of 1 to {MAX_ITEMS}")
        return await self._run(request, self.review.decide, requests)

    async def undo(self, request: Request) -> Response:
        """Take back the latest batch of the reviewer."""
        return await self._run(
            request, self.review.undo, await _read_body(request), UNDO
        )

    async def redo(self, request: Request) -> Response:
        """Bring back what the latest undo took."""
        return await self._run(
            request, self.review.undo, await _read_body(request), REDO
        )

    async def labels(self, request: Request) -> Response:
        """Add a label."""
        body = await _read_body(request)
        reviewer = self._reviewer(request)
        await run_in_threadpool(self.review.add_label, reviewer, body.get("name"))
        return JSONResponse(
            {"labels": list_labels(self.review), "seq": self.review.seq}
        )

    async def settle(self, request: Request) -> Response:
        """Settle a conflict."""
        return await self._run(request, self.review.settle, await _read_body(request))

    async def refresh(self, request: Request) -> Response:
        """Wait for scores by the decisions as they are now."""
        return JSONResponse(await run_in_threadpool(self.review.refresh))

    async def reviewer(self, request: Request) -> Response:
        """Set the name of who asks, for this browser."""
        name = (await _read_body(request)).get("name")
        if not isinstance(name, str):
            raise RequestError("name: expected a text")
        name = check_reviewer(name)
        answer = JSONResponse({"reviewer": name})
        set_cookie(answer, self.access.reviewer_cookie, name.encode().hex())
        return answer

    async def _run(
        self, request: Request, method: Callable[..., dict[str, Any]], *arguments: Any
    ) -> Response:
        reviewer = self._reviewer(request)
        return JSONResponse(await run_in_threadpool(method, reviewer, *arguments))

    async def changes(self, request: Request) -> Response:
        """Wait until something changes, up to 25 s."""
        after = Query(request).integer("after", 0, 10**12, 0)
        version = Query(request).integer("score_version", 0, 10**12, None)
        review = self.review
        is_stopping = getattr(request.app.state, "is_stopping", lambda: False)
        steps = round(LONGEST_POLL_S / POLL_STEP_S)
        for _ in range(steps):
            is_new = review.seq > after or version not in (None, review.score_version)
            if is_new or is_stopping() or await request.is_disconnected():
                break
            await asyncio.sleep(POLL_STEP_S)
        return JSONResponse(review.list_changes(after))


def _list_assets() -> list[Path]:
    if not ASSETS.is_dir():
        return []
    return sorted(path for path in ASSETS.iterdir() if path.is_file())


async def _read_body(request: Request) -> dict[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError):
        raise RequestError("expected JSON") from None
    if not isinstance(body, dict):
        raise RequestError("expected a JSON object")
    return body
