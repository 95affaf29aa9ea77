"""A review in the browser: the folder, the port, the server and its end.

Port and token are kept in `address.json`, which only its owner may read.
"""

import getpass
import logging
import socket
import sys
import uuid
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

from callshot.errors import InputError, OptionError, OutputError
from callshot.files import (
    LockBusy,
    check_own_folder,
    hold_lock,
    make_folder,
)
from callshot.review.journal import open_journal
from callshot.review.session import Review
from callshot.review.sources import SourceOptions, find_checksum, open_source
from callshot.review.web_safety import read_address, write_address

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
    """Open the review of a scan, segments or study at `path`, with its journal in `out`.

    By default the journal is in the folder `review` beside the source. Only one process at a time
    can open a review. A journal about other items is an error.
    """
    beside = path.parent if path.is_file() else path
    folder = out or beside / REVIEW_FOLDER
    check_own_folder(folder, is_review=True)
    source = open_source(path, sources)
    make_folder(folder)
    checksum = find_checksum(source.items)
    facts = {
        **source.facts,
        "kind": source.kind,
        "items": len(source.items),
        "checksum": checksum,
        "id": str(uuid.uuid4()),  # of a new journal
    }
    reviewer = options.reviewer or "reviewer"
    if options.reviewer is None:
        with suppress(OSError, KeyError):
            reviewer = getpass.getuser() or reviewer
    try:
        with (
            hold_lock(folder / LOCK, timeout_s=0),
            closing(open_journal(folder, facts)) as journal,
        ):
            if journal.facts.get("checksum") != checksum:
                raise InputError(
                    f"{journal.path}: a review of other detections, of "
                    f"{journal.facts.get('source')}; choose another folder (--out); callshot "
                    "convert and learn --add still take this one"
                )
            review = Review(source, journal, reviewer=reviewer, blind=options.blind)
            with closing(review):
                yield review
    except LockBusy:
        raise OutputError(
            f"{folder}: another callshot review has it open; use its page, or stop it first"
        ) from None


def serve_review(
    path: Path,
    sources: SourceOptions,
    options: ServerOptions,
    out: Path | None = None,
    print_line: Callable[[str], None] = print,
) -> None:
    """Serve the page of a review until Ctrl-C; the arguments are those of `open_review`."""
    try:
        import uvicorn

        from callshot.review.web_safety import Access, check_reviewer
    except ImportError:
        raise OptionError(EXTRA) from None
    if options.reviewer is not None:
        check_reviewer(options.reviewer)
    with open_review(path, sources, options, out) as review:
        folder = review.journal.path.parent
        earlier_port, token = read_address(folder)
        with listen(options, earlier_port) as listener:
            port = listener.getsockname()[1]
            write_address(folder, port, token)
            access = Access(token, options.host or LOOPBACK, port, review.reviewer)
            _announce(access, options, print_line)
            for note in review.journal.notes:
                print_line(f"note: {note}")
            sys.stdout.flush()
            from callshot.review.web import make_app  # which takes a while

            app = make_app(review, access)
            config = uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
                ws="none",
                lifespan="off",
            )
            server = uvicorn.Server(config)
            app.state.is_stopping = lambda: server.should_exit  # open pages do not wait
            # Requests that Ctrl-C cancels are no errors.
            for name in ("uvicorn.error", "asyncio"):
                logging.getLogger(name).addFilter(lambda record: not server.should_exit)
            try:
                server.run(sockets=[listener])
            finally:  # after Ctrl-C too
                print_line(f"stopped; all decisions are in {folder}")
                print_line(f"next: {review.describe_learning()}")


def _announce(
    access: "Access", options: ServerOptions, print_line: Callable[[str], None]
) -> None:
    """Print the address of the page with its token, and open it in the browser.

    The browser gets a code that works once instead of the token: other users see its arguments.
    """
    host = access.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{access.port}/"
    print_line(f"review at {address}?token={access.token}")
    if options.host is not None:
        print_line(
            "whoever has this address can listen and decide; add &reviewer=NAME for each person; "
            "the connection is not encrypted"
        )
    print_line("stop with Ctrl-C")
    if options.browser:
        page = f"{address}?code={access.make_code()}"
        Timer(0.3, webbrowser.open, [page]).start()


def listen(options: ServerOptions, earlier_port: int | None = None) -> socket.socket:
    """Return a socket that listens: at the wanted port, or else the last used one or a free one.

    Raise OutputError if there is none.
    """
    host = options.host or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = [earlier_port, *range(FIRST_PORT, FIRST_PORT + PORTS), 0]
    if options.port is not None:
        ports = [options.port]
    reason = None
    for port in ports:
        if port is None:
            continue
        # By its protocol asyncio knows that answers must not wait for more to send (40 ms each).
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            if sys.platform != "win32":  # where it would share the port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(100)
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            reason = error
    raise OutputError(
        f"port {ports[-1]} of {host} cannot be used ({reason}); choose another --port, "
        "or remove --port for a free one"
    )
