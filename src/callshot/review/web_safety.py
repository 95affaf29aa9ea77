"""Who may ask: the token, Host and Origin of every request; and what every answer says.

Another page, open in the same browser, must neither read nor change anything: it has no
cookie of ours (SameSite=Strict), its Origin differs, and a name that it lets point to this machine
(DNS rebinding) is in the Host. Other users of this machine do not have the token. The
port and the token are kept, so that open pages go on after a restart.
"""

import hmac
import ipaddress
import json
import os
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callshot.errors import OptionError
from callshot.files import atomic_path, sha256_text

JSON_TYPE = "application/json"
MAX_BODY_BYTES = 2**20
MAX_NAME_LENGTH = 80
LOOPBACK = ("127.0.0.1", "localhost", "::1")
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
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """Who may ask: the token, and the address at which the server listens.

    codes  each opens the page once: all users of a machine can read the arguments of a browser
    """

    token: str
    host: str
    port: int
    reviewer: str
    codes: set[str] = field(default_factory=set)

    @property
    def cookie(self) -> str:
        """The name of the cookie; browsers send the same cookies to every port."""
        return f"callshot_review_{self.port}"

    @property
    def reviewer_cookie(self) -> str:
        """The name of the cookie with the name of the reviewer."""
        return f"callshot_reviewer_{self.port}"

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header means this server, by its port and its name or address.

        A server for this machine only has the names of LOOPBACK. Other servers also have any IP
        address: DNS rebinding needs a name.
        """
        with suppress(ValueError):  # neither a name and a port nor an IP address
            parts = urlsplit(f"//{host}")
            name = parts.hostname or ""
            if "@" in host or parts.port != self.port:
                return False
            if name in LOOPBACK or self.host in LOOPBACK:
                return name in LOOPBACK
            if name in (self.host, socket.gethostname().lower()):
                return True
            ipaddress.ip_address(name)
            return True
        return False

    def knows(self, token: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def make_code(self) -> str:
        """Return what opens the page once."""
        code = secrets.token_urlsafe(32)
        self.codes.add(code)
        return code


class Guard:
    """Refuses requests that may not come, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app = app
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._answer_early(Request(scope))
        answer = self.app if refusal is None else refusal
        await answer(scope, receive, send_with_headers)

    def _answer_early(self, request: Request) -> Response | None:
        """Refuse a request, or sign its reviewer in; None if the application is to answer it."""
        headers = request.headers
        access = self.access
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not access.is_own_host(host):
            return refuse(403, "another Host: open the address that callshot printed")
        origin = headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            return refuse(403, "another Origin: only the page of this server may ask")

        values = request.query_params
        is_start = request.method == "GET" and request.url.path == "/"
        if is_start and ("token" in values or "code" in values):
            return self._sign_in(
                values.get("token", ""), values.get("code", ""), values.get("reviewer")
            )

        if not access.knows(read_cookie(headers, access.cookie)):
            return refuse(403, "no token: open the address that callshot printed")
        if request.method in ("GET", "HEAD"):
            return None
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

    def _sign_in(self, token: str, code: str, reviewer: str | None) -> Response:
        """Turn the token of the printed address, or a code, which works once, into a cookie."""
        if not self.access.knows(token) and code not in self.access.codes:
            return refuse(403, "wrong token: open the address that callshot printed")
        answer = RedirectResponse("/", 303)
        set_cookie(answer, self.access.cookie, self.access.token)
        try:
            if reviewer is not None:
                name = check_reviewer(reviewer).encode().hex()
                set_cookie(answer, self.access.reviewer_cookie, name)
        except OptionError as error:
            return refuse(400, str(error))
        self.access.codes.discard(code)
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
    """Return the reviewer named in the cookie, else the one of the command."""
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


ADDRESS = "address.json"


def read_address(folder: Path) -> tuple[int | None, str]:
    """Return the port and the token of the last time, so that open pages go on.

    Return None and a new token if the file is damaged, or other users may know its content.
    """
    try:
        with (folder / ADDRESS).open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = json.load(stream)
        port = content["port"]
        token = content["token"]
        checksum = sha256_text(f"{port} {token}")
        is_same = content["sha256"] == checksum
        others_may = 0o077  # bits of the mode: what group and others may do
        is_private = sys.platform == "win32" or (  # which has no such modes
            status.st_uid == os.geteuid() and status.st_mode & others_may == 0
        )
        if is_private and is_same and type(port) is int:
            return port, str(token)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return None, secrets.token_urlsafe(32)


def write_address(folder: Path, port: int, token: str) -> None:
    """Keep the port and the token in a file that only its owner may read."""
    checksum = sha256_text(f"{port} {token}")
    with atomic_path(folder / ADDRESS) as temporary:
        temporary.touch(0o600, exist_ok=False)
        with temporary.open("w") as stream:
            json.dump({"port": port, "token": token, "sha256": checksum}, stream)
