"""Files in buckets and on servers: URLs that fsspec opens, used as plain paths are.

remote_path   which texts are URLs; names, listings and small files; copies on the disk, uploads
requests      one call to a store, with retries and errors in one line; ranges of bytes

Credentials come from where the tools of each store look for them: environment and configuration
files. A signature in a URL stays in memory; paths, results and messages are without it.
"""

from callshot.storage.remote_path import (
    RemotePath,
    check_no_url,
    home,
    is_remote,
    know_files,
    local_copy,
    staging_folder,
    to_path,
    upload_file,
    why_not_writable_remote,
)
from callshot.storage.requests import RangeReader, hide_secrets, map_requests

__all__ = [
    "RangeReader",
    "RemotePath",
    "check_no_url",
    "hide_secrets",
    "home",
    "is_remote",
    "know_files",
    "local_copy",
    "map_requests",
    "staging_folder",
    "to_path",
    "upload_file",
    "why_not_writable_remote",
]
