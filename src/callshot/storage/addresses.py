"""A text or a path comes in; a path of this machine goes out, or a RemotePath for a URL."""

import re
from pathlib import Path, PurePath
from typing import cast

from callshot.errors import OptionError
from callshot.storage.remote_path import NO_URL, WEB, RemotePath, add_signatures
from callshot.storage.requests import hide_secrets

PROTOCOL = re.compile(r"([a-z][a-z0-9+.-]+):")  # two letters or more: C: is a disk
SIGNATURE = re.compile(
    r"[?&]([\w-]*[_-])?(sig|signature|token|credential|secret|password)=", re.IGNORECASE
)
LOCAL = ("file", "local")
INSTALL = "pip install 'callshot[storage]'"


def check_no_url(path: Path) -> None:
    """Raise OptionError if a path is a URL, or has a part such as `s3:` of one nobody read."""
    for number, part in enumerate(path.parts):
        if PROTOCOL.fullmatch(part):
            url = f"{part}//{'/'.join(path.parts[number + 1 :])}"
            raise OptionError(f"{hide_secrets(url)}: {NO_URL}")


def to_path(place: PurePath | str) -> Path:
    """Return a path of this machine, or a RemotePath for a URL, which has the same methods.

    A Path made of a URL, such as `s3:/bucket/x`, is taken for the URL.

    Raises
    ------
    OptionError
        If fsspec or a package for the protocol is not installed, the protocol is unknown, or
        there is a password in the URL, or a signature in one that is not of the web.

    >>> to_path("recordings/a.wav").name
    'a.wav'
    """
    if isinstance(place, RemotePath):
        return cast(Path, place)
    path = Path(place)
    first, *parts = path.parts or ("",)
    match = PROTOCOL.fullmatch(first.lower())
    if match is None or not parts:
        return path
    if match[1] in LOCAL:
        return Path("/", *parts)
    return cast(Path, _make_remote(match[1], "/".join(parts)))


def _make_remote(protocol: str, name: str) -> RemotePath:
    query = ""
    if protocol in WEB:
        name, mark, rest = name.partition("?")
        query = mark + rest
    elif SIGNATURE.search(name):
        url = f"{protocol}://{name.partition('?')[0]}"
        raise OptionError(
            f"{hide_secrets(url)}: only https:// URLs may have a signature; set credentials in "
            "the environment or a configuration file"
        )
    path = RemotePath(f"{protocol}:", name)
    server = path.parts[1]
    user, _, _ = server.rpartition("@")
    if ":" in user or (user and protocol in WEB):
        raise OptionError(
            f"{hide_secrets(str(path))}: a password in a URL ends up in logs; set it in the "
            "environment or a configuration file"
        )
    _check_protocol(protocol, path)
    if query:
        add_signatures({str(path): query})
    return path


def _check_protocol(protocol: str, path: RemotePath) -> None:
    """Raise OptionError unless fsspec can open URLs of a protocol here."""
    url = hide_secrets(str(path))
    try:
        import fsspec
    except ImportError:
        raise OptionError(f"{url}: URLs need fsspec; {INSTALL}") from None
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        reason = str(error).partition("\n")[0]
        raise OptionError(f"{url}: a package is missing ({reason})") from None
    except ValueError:
        raise OptionError(
            f"{url}: unknown protocol {protocol}; expected s3, gs, az, https, sftp or "
            "another one of fsspec"
        ) from None
