"""A set of result files → a folder, on a disk or in a store."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from callshot.report.local_folder import OutputFolder, open_local_folder
from callshot.report.remote_folder import open_remote_folder
from callshot.storage import is_remote, to_path


@contextmanager
def open_output_folder(
    folder: Path,
    names: Sequence[str],
    provenance_name: str,
    *,
    owner: str = "",
) -> Iterator[OutputFolder]:
    """Open a folder for one set of results; nothing in it is lost.

    `names` are the files that are known before the work begins; others may follow. `owner` names
    the command or the study file that writes the set: sets with another owner are not replaced.

    Raises
    ------
    OutputError
        If another run is writing to the folder, a file or folder is in the way, the set has another
        owner, or the disk or the store does not accept files.
    """
    place = to_path(folder)
    opening: AbstractContextManager[OutputFolder]
    if is_remote(place):
        opening = open_remote_folder(place, names, provenance_name, owner)
    else:
        opening = open_local_folder(place, names, provenance_name, owner)
    with opening as output:
        yield output
