"""The routes of sounds and pictures, which are computed once and kept for a while."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from callshot.errors import RequestError
from callshot.review.examples import ExampleClip, find_example
from callshot.review.requests import Query
from callshot.review.session import MAX_CONTEXT_S, Review
from callshot.review.sound import (
    AnswerCache,
    Clip,
    SoundOptions,
    filter_band,
    limit_played,
    make_wav,
    make_waveform,
)
from callshot.review.spectrogram import Picture, draw
from callshot.review.web_safety import Access, answer_range, find_reviewer

CACHE_BYTES = 64 * 2**20


class SoundRoutes:
    """One method for each route."""

    def __init__(self, review: Review, access: Access) -> None:
        self.review = review
        self.access = access
        self.cache = AnswerCache(CACHE_BYTES)

    def sound(self, request: Request) -> Response:
        """Answer with a WAV file."""
        query = Query(request)
        options = SoundOptions(
            query.number("speed", 1.0),
            query.number("gain_db", 0.0),
            query.number("low_hz"),
            query.number("high_hz"),
        )
        span = self._find_span(query, request)
        make = partial(_make_sound, span, options)
        return self._answer_cached(request, span, options, make, "audio/wav")

    def spectrogram(self, request: Request) -> Response:
        """Answer with a PNG file."""
        query = Query(request)
        picture = _read_picture(query)
        span = self._find_span(query, request)

        def make() -> tuple[bytes, dict[str, str]]:
            clip = span.read()
            low_hz, high_hz = picture.band_hz(clip.rate_hz)
            band = {"X-Min-Hz": f"{low_hz:g}", "X-Max-Hz": f"{high_hz:g}"}
            return draw(clip, picture), _describe_clip(clip) | band

        return self._answer_cached(request, span, picture, make, "image/png")

    def waveform(self, request: Request) -> Response:
        """Answer with the lowest and highest sample of each column."""
        query = Query(request)
        width = query.integer("width", 1, 4096, 600)
        clip = self._find_span(query, request).read()
        return JSONResponse(make_waveform(clip, width))

    def _find_span(self, query: Query, request: Request) -> "_Span | ExampleClip":
        """Return what a request wants to play or see: an item, or an example."""
        before_s = _read_context(query, "before")
        after_s = _read_context(query, "after")
        item = self._find_item(query)
        if isinstance(item, ExampleClip):
            return item
        review = self.review
        reviewer = find_reviewer(request.headers, self.access)
        start_s, end_s = review.find_span(item, reviewer)
        start_s = query.number("start_s", start_s)
        end_s = query.number("end_s", end_s)
        if not 0 <= start_s < end_s:
            raise RequestError("start_s, end_s: expected a span")
        name = review.items.recordings[review.items.recording[item]]
        return _Span(review, name, max(0.0, start_s - before_s), end_s + after_s)

    def _find_item(self, query: Query) -> int | ExampleClip:
        item = query.integer("item", 0, 10**9, None)
        example = query.integer("example", 0, 10**9, None)
        if (item is None) == (example is None):
            raise RequestError("item: name one, or an example")
        if item is None:
            return find_example(self.review, example)
        return self.review.check_item(item)

    def _answer_cached(
        self,
        request: Request,
        span: "_Span | ExampleClip",
        options: Any,
        make: Callable[[], tuple[bytes, dict[str, str]]],
        kind: str,
    ) -> Response:
        key = repr((span.key(), options))
        tag = f'"{sha256(key.encode()).hexdigest()[:32]}"'
        headers = {"ETag": tag, "Cache-Control": "private, max-age=0, must-revalidate"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        content, facts = self.cache.get(key, make)
        answer = answer_range(content, request.headers, kind)
        answer.headers.update(headers | facts)
        return answer


def _make_sound(
    span: "_Span | ExampleClip", options: SoundOptions
) -> tuple[bytes, dict[str, str]]:
    clip = span.read(options.margin_s)
    if options.margin_s:
        whole = filter_band(clip, options.low_hz, options.high_hz)
        clip = whole.cut(span.start_s, span.end_s)
    clip = limit_played(clip, options.speed)
    facts = {**_describe_clip(clip), "X-Speed": f"{options.speed:g}"}
    return make_wav(clip, options), facts


def _read_context(query: Query, name: str) -> float:
    """Return how many seconds are wanted around a span."""
    value = float(query.number(name, 0.0))
    if not 0 <= value <= MAX_CONTEXT_S:
        raise RequestError(f"{name}: expected 0 to {MAX_CONTEXT_S:g} s")
    return value


def _read_picture(query: Query) -> Picture:
    """Return what a spectrogram shows."""
    options: dict[str, Any] = {}
    for name in ("width", "height"):
        options[name] = query.integer(name, 1, 10**6, None)
    for name in ("window_s", "min_hz", "max_hz", "floor_db", "range_db"):
        options[name] = query.number(name)
    for name in ("scale", "colours"):
        options[name] = query.text(name)
    return Picture(
        **{name: value for name, value in options.items() if value is not None}
    )


def _describe_clip(clip: Clip) -> dict[str, str]:
    return {
        "X-Start-Seconds": f"{clip.start_s:.6f}",
        "X-End-Seconds": f"{clip.end_s:.6f}",
    }


class _Span:
    """A span of a recording of the review."""

    def __init__(
        self, review: Review, recording: str, start_s: float, end_s: float
    ) -> None:
        self.files = review.source.files
        self.recording = recording
        self.start_s = start_s
        self.end_s = end_s

    def key(self) -> tuple[Any, ...]:
        """Return what changes when the sound does."""
        return self.files.stamp(self.recording), self.start_s, self.end_s

    def read(self, margin_s: float = 0.0) -> Clip:
        """Return the samples, with some more on both sides."""
        start_s = self.start_s - margin_s
        return self.files.read(self.recording, start_s, self.end_s + margin_s)
