"""Files in buckets and on servers: URLs that fsspec opens, used as plain paths are.

    to_path("recordings")            a Path, as before; fsspec is not imported
    to_path("s3://bucket/2026")      a RemotePath, with the methods of Path that callshot uses

addresses       which texts are URLs
remote_path     names, listings and small files
range_reader    recordings: ranges of bytes, not whole files
local_copies    files that must be on the disk: copies, checked, with a limit; and uploads
requests        one call to a store: retries, and errors in one line

Credentials come from where the tools of each store look for them: environment and configuration
files. A signature in a URL stays in memory; paths, results and messages are without it.
"""

from callshot.storage.addresses import check_no_url, to_path
from callshot.storage.local_copies import (
    home,
    local_copy,
    staging_folder,
    upload_file,
)
from callshot.storage.range_reader import RangeReader
from callshot.storage.remote_path import (
    RemotePath,
    is_remote,
    know_files,
    why_not_writable_remote,
)
from callshot.storage.requests import hide_secrets, map_requests

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
