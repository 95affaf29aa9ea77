"""A review in the browser: the folder, the port, the server and its end."""

import getpass
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from callshot.errors import InputError, OptionError, OutputError
from callshot.files import error_reason, hold_lock, make_folder
from callshot.review.journal import JOURNAL, open_journal
from callshot.review.session import Review
from callshot.review.sources import SourceOptions, open_source

if TYPE_CHECKING:
    from callshot.review.web_safety import Access

REVIEW_FOLDER = "review"
LOCK = ".lock"
LOOPBACK = "127.0.0.1"
FIRST_PORT = 8420
PORTS = 20  # that are tried before any free one
EXTRA = "callshot review needs starlette and uvicorn: pip install 'callshot[review]'"


@dataclass(frozen=True)
class ServerOptions:
    """Where the server listens, and who reviews.

    port      None: the first free one from 8420
    host      another address than loopback; whoever knows the token may then review
    reviewer  None: the name of the user
    """

    host: str | None = None
    port: int | None = None
    reviewer: str | None = None
    blind: bool = False
    browser: bool = True


@contextmanager
def open_review(
    path: Path, sources: SourceOptions, options: ServerOptions, out: Path | None = None
) -> Iterator[Review]:
    """Open what is to be reviewed and its journal; one process at a time has it."""
    source = open_source(path, sources)
    folder = out or default_folder(path)
    make_folder(folder)
    facts = {**source.facts, "kind": source.kind, "checksum": source.items.checksum()}
    try:
        with hold_lock(folder / LOCK, timeout_s=0):
            journal = open_journal(folder, facts)
            try:
                _check_facts(folder, journal.facts(), facts)
                reviewer = options.reviewer or _user_name()
                yield Review(source, journal, reviewer=reviewer, blind=options.blind)
            finally:
                journal.close()
    except TimeoutError:
        raise OutputError(
            f"{folder}: another callshot review has it open; use its page, or stop it first"
        ) from None


def default_folder(path: Path) -> Path:
    """Return where a review goes by default: beside the table, or in the folder."""
    return (path.parent if path.is_file() else path) / REVIEW_FOLDER


def _user_name() -> str:
    try:
        return getpass.getuser() or "reviewer"
    except (OSError, KeyError):
        return "reviewer"


def _check_facts(
    folder: Path, saved: dict[str, object], facts: dict[str, object]
) -> None:
    """Raise InputError if a journal is about other items."""
    if saved.get("checksum") == facts["checksum"]:
        return
    raise InputError(
        f"{folder / JOURNAL}: a review of other detections, of {saved.get('source')}; choose "
        "another folder (--out); callshot convert and learn --add still take this one"
    )


def serve_review(
    path: Path,
    sources: SourceOptions,
    options: ServerOptions,
    out: Path | None = None,
    print_line: Callable[[str], None] = print,
) -> None:
    """Serve the page of a review until Ctrl-C."""
    try:
        import uvicorn

        from callshot.review.web import make_app
        from callshot.review.web_safety import Access, check_reviewer
    except ImportError:
        raise OptionError(EXTRA) from None
    if options.reviewer is not None:
        check_reviewer(options.reviewer)
    with open_review(path, sources, options, out) as review:
        listener = listen(options)
        with listener:
            host = options.host or LOOPBACK
            port = listener.getsockname()[1]
            token = secrets.token_urlsafe(32)
            access = Access(token, host, port, review.reviewer)
            config = uvicorn.Config(
                make_app(review, access),
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
                ws="none",
                lifespan="off",
            )
            _announce(access, options, print_line)
            uvicorn.Server(config).run(sockets=[listener])
    print_line(f"stopped; all decisions are in {out or default_folder(path)}")


def _announce(
    access: "Access", options: ServerOptions, print_line: Callable[[str], None]
) -> None:
    """Print the address, and open the browser."""
    shown = access.host
    if shown in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    if ":" in shown:
        shown = f"[{shown}]"
    address = f"http://{shown}:{access.port}/?token={access.token}"
    print_line(f"review at {address}")
    if options.host is not None:
        print_line(
            "whoever has this address can listen and decide; add &reviewer=NAME for each person; "
            "the connection is not encrypted"
        )
    print_line("stop with Ctrl-C")
    sys.stdout.flush()
    if options.browser:
        Timer(0.3, webbrowser.open, [address]).start()


def listen(options: ServerOptions) -> socket.socket:
    """Return a socket at the wanted port, or at the first free one."""
    host = options.host or LOOPBACK
    if options.port is not None:
        return _bind(host, options.port)
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return _bind(host, port)
        except OutputError:
            continue
    return _bind(host, 0)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # where it would share the port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(100)
    except (OSError, OverflowError) as error:
        listener.close()
        raise OutputError(
            f"port {port} of {host} cannot be used ({error_reason(error)}); choose another --port, "
            "or leave the option out"
        ) from error
    return listener
