"""A set of result files → a folder in a store, which has neither locks nor renames.

Files are made on this machine and uploaded when all of them are there, the provenance last. Before
the first one, a marker `.callshot-unfinished-….json` with the checksums of all of them is uploaded;
it is removed after the last one. So the next run knows the files of a run that ended early. Each
set of results has a marker of its own, for several sets may share a folder.
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
from callshot.files import error_reason, sha256_file, sha256_text, write_atomic
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

UNFINISHED = ".callshot-unfinished"


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
    unfinished  the checksums that files may have which runs of this set uploaded or were about to
                remove before they ended early
    """

    remote: RemotePath
    staging: Path
    files: dict[str, RemotePath] = field(default_factory=dict)
    unfinished: dict[str, list[str]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The staging folder, on this machine."""
        return self.staging

    @property
    def unfinished_name(self) -> str:
        """The name of the file about unfinished uploads of this set, and of no other one."""
        digest = sha256_text(f"{self.provenance_name}\n{self.owner}")
        return f"{UNFINISHED}-{digest[:16]}.json"

    def read_checksums(self, folder: Path) -> Checksums:
        """Return the checksums of files that this run may replace, after a look at the folder."""
        self._list_files()
        self._read_unfinished()
        unfinished = {name: known[-1] for name, known in self.unfinished.items()}
        return unfinished | super().read_checksums(folder)

    def _list_files(self) -> None:
        self.files.clear()
        with suppress(FileNotFoundError):
            for path in self.remote.list_files():
                self.files[path.relative_to(self.remote).as_posix()] = path

    def _read_unfinished(self) -> None:
        self.unfinished.clear()
        if self.unfinished_name not in self.files:
            return
        record = read_provenance(self.folder / self.unfinished_name)
        if record is None:
            return
        for name, known in record["files"].items():
            if name in self.files and isinstance(known, list) and known:
                self.unfinished[name] = [str(checksum) for checksum in known]

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
        """Upload the new files; the earlier ones that were not made again go before the last."""
        marker = self.remote / self.unfinished_name
        try:
            write_atomic(cast(Path, marker), self._describe_unfinished(new, written))
            outdated = self._keep_edited(new, written)
            *others, last = new  # the provenance is the last one
            for _ in map_requests(self._upload, others, together=True):
                pass
            for name in outdated:
                (self.remote / name).unlink(missing_ok=True)
            self._upload(last)
            with suppress(PermissionError):  # a marker that stays does no harm
                marker.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.folder}: not all results are written ({error_reason(error)}); "
                "run the command again"
            ) from None

    def _describe_unfinished(self, new: Checksums, written: Checksums) -> str:
        """Return the checksums of the new files, and those that the earlier ones may have."""
        files = {name: list(known) for name, known in self.unfinished.items()}
        for checksums in (written, new):
            for name, checksum in checksums.items():
                known = files.setdefault(name, [])
                if checksum not in known:
                    known.append(checksum)
        record = {
            "files": files,
            "provenance": self.provenance_name,
            "set": self.owner,
        }
        return json.dumps(record, indent=2)

    def _upload(self, name: str) -> None:
        upload_file(self.staging / name, self.remote / name)

    def _keep_edited(self, new: Checksums, written: Checksums) -> list[str]:
        """Copy edited files that are replaced; return unedited ones that were not made again."""
        outdated = []
        checksums = map_requests(self._hash, written, together=True)
        for name, checksum in zip(written, checksums, strict=True):
            known = (written[name], *self.unfinished.get(name, ()))
            is_edited = checksum not in known
            if is_edited and name in new:
                self._keep_copy(name)
            elif name not in new and not is_edited:
                outdated.append(name)
        return outdated

    def _hash(self, name: str) -> str:
        return sha256_file(cast(Path, self.files.get(name, self.remote / name)))

    def _keep_copy(self, name: str) -> None:
        """Copy an edited file to NAME.before, NAME.before-2, …"""
        free = next(path for path in copy_names(name) if path not in self.files)
        copy = self.staging / ".earlier"
        copy.write_bytes((self.folder / name).read_bytes())
        upload_file(copy, self.remote / free)
