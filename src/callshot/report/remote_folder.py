"""A set of result files → a folder in a store, which has neither locks nor renames.

Files are made on this machine and uploaded when all of them are there, the provenance last. A run
that is killed while it uploads leaves new files beside the earlier provenance; the next run takes
them for edited ones, and keeps copies of them.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from callshot.errors import OutputError
from callshot.files import sha256_file
from callshot.report.local_folder import (
    Checksums,
    OutputFolder,
    copy_names,
    explain_errors,
)
from callshot.storage import (
    RemotePath,
    staging_folder,
    upload_file,
    why_not_writable_remote,
)


@contextmanager
def open_remote_folder(
    folder: RemotePath, names: Sequence[str], provenance_name: str, mark: str
) -> Iterator["RemoteOutputFolder"]:
    """Check that a folder takes files and that the names are free; see `open_local_folder`."""
    reason = why_not_writable_remote(folder)
    if reason:
        raise OutputError(f"{folder}: cannot be written to ({reason})")
    staging = Path(tempfile.mkdtemp(dir=staging_folder()))
    try:
        output = RemoteOutputFolder(
            cast(Path, folder), provenance_name, mark, folder, staging
        )
        with explain_errors(output.folder):
            output.check_mark()
            written = output.read_checksums(output.folder)
            output.check_names([*names, provenance_name], written)
        yield output
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@dataclass(frozen=True)
class RemoteOutputFolder(OutputFolder):
    """A folder in a store that accepts one set of results. Files are made in `staging`."""

    remote: RemotePath
    staging: Path

    @property
    def path(self) -> Path:
        """The staging folder, on this machine."""
        return self.staging

    def check_names(self, names: Iterable[str], written: Checksums) -> None:
        """Raise OSError if a name is taken by a folder or by a file that callshot did not write."""
        taken = self._list_names()
        for name in names:
            if name in taken and name not in written:
                raise OSError(
                    f"{name} exists and was not written by callshot; "
                    "move it or choose another folder"
                )

    def _list_names(self) -> set[str]:
        with suppress(FileNotFoundError):
            files = self.remote.list_files()
            return {path.relative_to(self.remote).as_posix() for path in files}
        return set()

    def _is_result(self, name: str) -> bool:
        return name in self._list_names()

    def _replace(self, new: Checksums, written: Checksums) -> None:
        """Upload the new files, then remove the earlier ones that were not made again."""
        taken = self._list_names()
        for name, checksum in written.items():
            path = self.folder / name
            is_edited = sha256_file(path) != checksum
            if is_edited and name in new:
                self._keep_copy(name, taken)
            elif name not in new and not is_edited:
                path.unlink(missing_ok=True)
        for name in new:  # the provenance is the last one
            upload_file(self.staging / name, self.remote / name)

    def _keep_copy(self, name: str, taken: set[str]) -> None:
        """Copy an edited file to NAME.before, NAME.before-2, …"""
        free = next(one for one in copy_names(name) if one not in taken)
        copy = self.staging / ".earlier"
        copy.write_bytes((self.folder / name).read_bytes())
        upload_file(copy, self.remote / free)
