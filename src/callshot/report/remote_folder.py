"""A set of result files → a folder in a store, which has neither locks nor renames.

Files are made on this machine and uploaded when all of them are there, the provenance last. Before
the first one, `.callshot-unfinished.json` with the checksums of all of them is uploaded; it is
removed after the last one. So the next run knows the files of a run that ended early.
"""

import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from callshot.errors import OutputError
from callshot.files import error_reason, sha256_file, write_atomic
from callshot.report.local_folder import (
    Checksums,
    OutputFolder,
    copy_names,
    explain_errors,
    read_provenance,
)
from callshot.storage import (
    RemotePath,
    map_requests,
    staging_folder,
    upload_file,
    why_not_writable_remote,
)

UNFINISHED = ".callshot-unfinished.json"


@contextmanager
def open_remote_folder(
    folder: RemotePath, names: Sequence[str], provenance_name: str, owner: str
) -> Iterator["RemoteOutputFolder"]:
    """Check that a folder takes files and that the names are free; see `open_local_folder`."""
    reason = why_not_writable_remote(folder)
    if reason:
        raise OutputError(f"{folder}: cannot be written to ({reason})")
    staging = Path(tempfile.mkdtemp(dir=staging_folder()))
    try:
        output = RemoteOutputFolder(
            cast(Path, folder), provenance_name, owner, folder, staging
        )
        with explain_errors(output.folder):
            output.check_owner()
            written = output.read_checksums(output.folder)
            output.check_names([*names, provenance_name], written)
        yield output
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@dataclass(frozen=True)
class RemoteOutputFolder(OutputFolder):
    """A folder in a store that accepts one set of results. Files are made in `staging`.

    files       what is in the folder, by name
    unfinished  the checksums of files that a run may have uploaded before it ended early
    """

    remote: RemotePath
    staging: Path
    files: dict[str, RemotePath] = field(default_factory=dict)
    unfinished: Checksums = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The staging folder, on this machine."""
        return self.staging

    def read_checksums(self, folder: Path) -> Checksums:
        """Return the checksums of files that this run may replace, after a look at the folder."""
        self._list_files()
        self._read_unfinished()
        return self.unfinished | super().read_checksums(folder)

    def _list_files(self) -> None:
        self.files.clear()
        with suppress(FileNotFoundError):
            for path in self.remote.list_files():
                self.files[path.relative_to(self.remote).as_posix()] = path

    def _read_unfinished(self) -> None:
        self.unfinished.clear()
        if UNFINISHED not in self.files:
            return
        record = read_provenance(self.folder / UNFINISHED)
        if record is not None and record.get("set", "") == self.owner:
            for name, checksum in record["files"].items():
                if name in self.files:
                    self.unfinished[name] = str(checksum)

    def check_names(self, names: Iterable[str], written: Checksums) -> None:
        """Raise OSError if a name is taken by a file that callshot did not write."""
        for name in names:
            if name in self.files and name not in written:
                raise OSError(
                    f"{name} exists and was not written by callshot; "
                    "move it or choose another folder"
                )

    def _is_result(self, name: str) -> bool:
        return name in self.files

    def _replace(self, new: Checksums, written: Checksums) -> None:
        """Upload the new files, then remove the earlier ones that were not made again."""
        marker = self.remote / UNFINISHED
        record = {"files": new, "set": self.owner}
        try:
            write_atomic(cast(Path, marker), json.dumps(record, indent=2))
            self._clear(new, written)
            *others, last = new  # the provenance is the last one
            for _ in map_requests(self._upload, others, together=True):
                pass
            self._upload(last)
            marker.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.folder}: not all results are written ({error_reason(error)}); "
                "run the command again"
            ) from None

    def _upload(self, name: str) -> None:
        upload_file(self.staging / name, self.remote / name)

    def _clear(self, new: Checksums, written: Checksums) -> None:
        """Keep copies of edited files, and remove those that were not made again."""
        checksums = map_requests(self._hash, written, together=True)
        for name, checksum in zip(written, checksums, strict=True):
            is_edited = checksum not in (written[name], self.unfinished.get(name))
            if is_edited and name in new:
                self._keep_copy(name)
            elif name not in new and not is_edited:
                (self.remote / name).unlink(missing_ok=True)

    def _hash(self, name: str) -> str:
        return sha256_file(cast(Path, self.files.get(name, self.remote / name)))

    def _keep_copy(self, name: str) -> None:
        """Copy an edited file to NAME.before, NAME.before-2, …"""
        free = next(path for path in copy_names(name) if path not in self.files)
        copy = self.staging / ".earlier"
        copy.write_bytes((self.folder / name).read_bytes())
        upload_file(copy, self.remote / free)
