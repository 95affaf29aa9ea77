"""A page in the browser, of a review or to label: the folder, the port, the server and its end.

Port and token are kept in `address.json`, which only its owner may read.
"""

import getpass
import logging
import socket
import sys
import uuid
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any

from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import SEGMENTS
from callshot.errors import InputError, OptionError, OutputError
from callshot.files import LockBusy, check_own_folder, hold_lock, make_folder
from callshot.review.finding import Finding
from callshot.review.items import find_checksum
from callshot.review.journal import Journal, is_review, open_journal, read_journal
from callshot.review.labelling import Labelling
from callshot.review.labels import LABELS
from callshot.review.session import Review
from callshot.review.similar import Search, SearchOptions
from callshot.review.sources import (
    STUDY_FILE,
    SourceOptions,
    has_annotations,
    open_source,
)
from callshot.review.tiles import TiledFiles
from callshot.review.web_safety import read_address, write_address
from callshot.storage import check_no_url

if TYPE_CHECKING:
    from callshot.review.web_safety import Access

REVIEW_FOLDER = "review"
LOCK = ".lock"
LOOPBACK = "127.0.0.1"
FIRST_PORT = 8420
PORTS = 20  # that are tried before any free one
EXTRA = "the page needs starlette and uvicorn: pip install 'callshot[review]'"


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
    """Open the review of a source, with its journal in `out`, by default `review` beside it.

    Only one process at a time can open a review. A journal about other items is an error.
    """
    beside = path.parent if path.is_file() else path
    folder = out or beside / REVIEW_FOLDER
    check_own_folder(folder, is_review=True)
    source = open_source(path, sources)
    checksum = find_checksum(source.items)
    facts = {
        **source.facts,
        "kind": source.kind,
        "items": len(source.items),
        "checksum": checksum,
        "id": str(uuid.uuid4()),  # of a new journal
    }
    with open_folder(folder, facts) as journal:
        if journal.facts.get("checksum") != checksum:
            raise InputError(
                f"{journal.path}: a review of other detections, of "
                f"{journal.facts.get('source')}; choose another folder (--out); callshot "
                "convert and learn --add still take this one"
            )
        reviewer = find_user(options)
        review = Review(source, journal, reviewer=reviewer, blind=options.blind)
        with closing(review):
            yield review


@contextmanager
def open_labelling(
    path: Path,
    options: ServerOptions,
    out: Path | None = None,
    searching: SearchOptions | None = None,
) -> Iterator[Labelling]:
    """Open recordings to be labelled, with what is saved in `out`, by default `labels` beside them.

    Without `searching`, similar sounds are not searched.
    """
    check_no_url(path)
    beside = path.parent if path.is_file() else path
    folder = out or beside / LABELS
    check_own_folder(folder, is_review=True)
    library = find_recordings(path)
    if not library.paths:
        reason = "no recordings found"
        if library.rejects:
            first = library.rejects[0]
            reason = f"no recordings that can be read ({first.file}: {first.reason})"
        raise InputError(f"{path}: {reason}; give the folder they are in")
    root = library.root.absolute()
    facts = {"kind": LABELS, "source": str(root), "id": str(uuid.uuid4())}
    with open_folder(folder, facts) as journal:
        if journal.facts.get("kind") != LABELS:
            raise InputError(
                f"{journal.path}: has the decisions of a review; choose another folder (--out)"
            )
        files = TiledFiles(dict.fromkeys(library.paths, library.root))
        user = find_user(options)
        sources = SourceOptions()
        finding = Finding(folder, lambda scan: open_review(scan, sources, options))
        with (
            closing(Search(library, folder, searching or SearchOptions())) as search,
            closing(finding),
            closing(
                Labelling(library, files, journal, user, search, finding)
            ) as session,
        ):
            session.note_folder(root)
            yield session


@contextmanager
def open_folder(folder: Path, facts: Mapping[str, Any]) -> Iterator[Journal]:
    """Open the journal in a folder, or make one about `facts`; no other process can meanwhile."""
    make_folder(folder)
    try:
        with (
            hold_lock(folder / LOCK, timeout_s=0),
            closing(open_journal(folder, facts)) as journal,
        ):
            yield journal
    except LockBusy:
        raise OutputError(
            f"{folder}: another callshot has it open; use its page, or stop it first"
        ) from None


def find_user(options: ServerOptions) -> str:
    """Return the name under which changes are saved: of the options, or of the user."""
    reviewer = options.reviewer or "reviewer"
    if options.reviewer is None:
        with suppress(OSError, KeyError):
            reviewer = getpass.getuser() or reviewer
    return reviewer


def serve_review(
    path: Path, sources: SourceOptions, options: ServerOptions, out: Path | None = None
) -> None:
    """Serve the page of a review until Ctrl-C; the arguments are those of `open_review`."""
    check_server(options)
    with open_review(path, sources, options, out) as review:
        serve(review, options)


def serve_labelling(
    path: Path,
    options: ServerOptions,
    searching: SearchOptions,
    out: Path | None = None,
) -> None:
    """Serve the page to label recordings until Ctrl-C; see `open_labelling`.

    A study, a table of segments, or annotated recordings without labels are opened as a review
    instead, in which their annotations are corrected.
    """
    check_server(options)
    check_no_url(path)
    folder = out or path / LABELS
    has_labels = is_review(folder) and read_journal(folder).facts["kind"] == LABELS
    files = [path / name for name in (STUDY_FILE, SEGMENTS)]
    has_table = any(file.is_file() for file in files)
    is_table = path.suffix in (".toml", ".parquet") or has_table
    if not has_labels and (is_table or (path.is_dir() and has_annotations(path))):
        serve_review(path, SourceOptions(), options, out)
        return
    with open_labelling(path, options, out, searching) as session:
        serve(session, options)


def check_server(options: ServerOptions) -> None:
    """Raise OptionError if packages are missing, or the reviewer has no proper name."""
    try:
        import uvicorn  # noqa: F401

        from callshot.review.web_safety import check_reviewer
    except ImportError:
        raise OptionError(EXTRA) from None
    if options.reviewer is not None:
        check_reviewer(options.reviewer)


def serve(session: Review | Labelling, options: ServerOptions) -> None:
    """Serve the page of an open review or labelling until Ctrl-C."""
    import uvicorn

    from callshot.review.web_safety import Access

    earlier_port, token = read_address(session.folder)
    with listen(options, earlier_port) as listener:
        port = listener.getsockname()[1]
        write_address(session.folder, port, token)
        access = Access(token, options.host or LOOPBACK, port, session.reviewer)
        _announce(access, options)
        for note in session.journal.notes:
            print(f"note: {note}")
        sys.stdout.flush()
        from callshot.review.web import make_app  # which takes a while

        app = make_app(session, access)
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
            print(f"stopped; everything is saved in {session.folder}")
            print(f"next: {session.describe_learning()}")


def _announce(access: "Access", options: ServerOptions) -> None:
    """Print the address of the page with its token, and open it in the browser.

    The browser gets a code that works once instead of the token: other users see its arguments.
    """
    host = access.host
    if host in ("0.0.0.0", "::"):
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{access.port}/"
    print(f"page at {address}?token={access.token}")
    if options.host is not None:
        print(
            "whoever has this address can listen and change things; add &reviewer=NAME for each "
            "person; the connection is not encrypted"
        )
    print("stop with Ctrl-C")
    if options.browser:
        page = f"{address}?code={access.make_code()}"
        Timer(0.3, webbrowser.open, [page]).start()  # when the server runs


def listen(options: ServerOptions, earlier_port: int | None = None) -> socket.socket:
    """Return a socket that listens: at the wanted port, or else the last used one or a free one."""
    host = options.host or LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # At last 0, for which the system chooses a free one.
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
        except (OSError, OverflowError) as error:  # in use, forbidden; above 65535
            listener.close()
            reason = error
    raise OutputError(
        f"port {ports[-1]} of {host} cannot be used ({reason}); choose another --port, "
        "or remove --port for a free one"
    )
