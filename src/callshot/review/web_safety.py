"""Who may ask: the token, Host and Origin of every request; and what every answer says.

A page of somebody else, open in the same browser, must neither read nor change anything: it has no
cookie of ours (SameSite=Strict), its Origin differs, and a name that it lets point to this machine
(DNS rebinding) is in the Host. Other users of this machine do not have the token.
"""

import hmac
import ipaddress
import re
import secrets
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callshot.errors import OptionError

COOKIE = "callshot_review"
REVIEWER_COOKIE = "callshot_reviewer"
JSON_TYPE = "application/json"
MAX_BODY_BYTES = 2**20
MAX_NAME_LENGTH = 80
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")
# Of the only style element: wavesurfer puts it around the waveform.
WAVEFORM_STYLE = "'sha256-fF0LBso7Nz75zaFRDBUefBDvPe19hjaiDnnc8lt+2Js='"
CONTENT_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {WAVEFORM_STYLE}; "
    "img-src 'self' blob:; media-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True)
class Access:
    """Who may ask: the token, and the address at which the server listens."""

    token: str
    host: str
    port: int
    reviewer: str
    codes: set[str] = field(default_factory=set)  # that count once instead of the token

    @property
    def cookie(self) -> str:
        """The name of the cookie; browsers send the same cookies to every port."""
        return f"{COOKIE}_{self.port}"

    @property
    def reviewer_cookie(self) -> str:
        """The name of the cookie with the name of the reviewer."""
        return f"{REVIEWER_COOKIE}_{self.port}"

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header means this server: its address, never a foreign name."""
        try:
            parts = urlsplit(f"//{host}")
            name = parts.hostname or ""
            port = parts.port
        except ValueError:
            return False
        if "@" in host or port != self.port:
            return False
        if name in LOOPBACK:
            return True
        if self.host in LOOPBACK:
            return False
        if name in (self.host, socket.gethostname().lower()):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def knows(self, token: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def make_code(self) -> str:
        """Return what opens the page once; all users can read the arguments of a browser."""
        code = secrets.token_urlsafe(32)
        self.codes.add(code)
        return code

    def use_code(self, code: str) -> bool:
        """Return whether a code opens the page, which it then does not any more."""
        matches = {
            own_code
            for own_code in self.codes
            if hmac.compare_digest(own_code.encode(), code.encode())
        }
        self.codes.difference_update(matches)
        return bool(matches)


class Guard:
    """Refuses requests that may not come, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = self._find_refusal(Request(scope))
        answer = self.app if refusal is None else refusal
        await answer(scope, receive, send_with_headers)

    def _find_refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that goes no further, None if it may."""
        headers = request.headers
        access = self.access
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not access.is_own_host(host):
            return refuse(403, "another Host: open the address that callshot printed")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return refuse(403, "another Origin: only the page of this server may ask")
        if request.method == "GET" and request.url.path == "/":
            token = request.query_params.get("token")
            code = request.query_params.get("code")
            if token is not None:
                return self._sign_in(request, access.knows(token))
            if code is not None:
                return self._sign_in(request, access.use_code(code))
        if not access.knows(read_cookie(headers, access.cookie)):
            return refuse(403, "no token: open the address that callshot printed")
        if request.method in ("GET", "HEAD"):
            return None
        if request.method != "POST":
            return refuse(405, "expected GET or POST")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != JSON_TYPE:
            return refuse(400, f"Content-Type: expected {JSON_TYPE}")
        if origin is None:
            return refuse(403, "no Origin: only the page of this server may ask")
        length = headers.get("content-length", "")
        if not length.isdigit() or int(length) > MAX_BODY_BYTES:
            return refuse(
                400, f"Content-Length: expected at most {MAX_BODY_BYTES} bytes"
            )
        return None

    def _sign_in(self, request: Request, is_known: bool) -> Response:
        """Turn the token of the printed address, or a code, into a cookie."""
        if not is_known:
            return refuse(403, "another token: open the address that callshot printed")
        answer = RedirectResponse("/", 303)
        set_cookie(answer, self.access.cookie, self.access.token)
        reviewer = request.query_params.get("reviewer")
        if reviewer is None:
            return answer
        try:
            name = check_reviewer(reviewer)
        except OptionError as error:
            return refuse(400, str(error))
        set_cookie(answer, self.access.reviewer_cookie, name.encode().hex())
        return answer


def refuse(status: int, reason: str) -> Response:
    """Return an error as JSON."""
    return JSONResponse({"error": reason}, status)


def set_cookie(answer: Response, name: str, value: str) -> None:
    """Set a cookie that scripts cannot read and other sites cannot send."""
    answer.set_cookie(name, value, path="/", httponly=True, samesite="strict")


def read_cookie(headers: Headers, name: str) -> str:
    """Return a cookie, empty if there is none."""
    # As browsers write them: what another server of this machine set may be odd.
    return cookie_parser(headers.get("cookie", "")).get(name, "")


def find_reviewer(headers: Headers, access: Access) -> str:
    """Return who asks: the name in the cookie, or that of the command."""
    text = read_cookie(headers, access.reviewer_cookie)
    try:
        return check_reviewer(bytes.fromhex(text).decode()) if text else access.reviewer
    except ValueError:
        return access.reviewer


def check_reviewer(name: str) -> str:
    """Return the name of a reviewer; raise OptionError if it is none."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise OptionError(
            f"reviewer: expected a name of 1 to {MAX_NAME_LENGTH} letters, got {name!r}"
        )
    return name


def answer_range(content: bytes, headers: Headers, kind: str) -> Response:
    """Return bytes, or the part that a Range header asks for; an odd one is ignored."""
    total = len(content)
    accepts = {"Accept-Ranges": "bytes"}
    span = find_range(headers.get("range", ""), total)
    if span is None:
        return Response(content, media_type=kind, headers=accepts)
    start, end = span
    if start >= end:
        return Response(status_code=416, headers={"Content-Range": f"bytes */{total}"})
    part = {**accepts, "Content-Range": f"bytes {start}-{end - 1}/{total}"}
    return Response(content[start:end], 206, headers=part, media_type=kind)


def find_range(text: str, total: int) -> tuple[int, int] | None:
    """Return the first byte of a range and the one after its last; None for the whole.

    >>> find_range("bytes=2-5", 100), find_range("bytes=-5", 100), find_range("bytes=1-0", 100)
    ((2, 6), (95, 100), None)
    """
    match = RANGE.fullmatch(text.strip())
    first, last = ("", "") if match is None else match.groups()
    if first == last == "":
        return None
    if first == "":
        return max(0, total - int(last)), total
    end = total if last == "" else min(int(last) + 1, total)
    is_range = last == "" or int(last) >= int(first)
    return (int(first), end) if is_range else None
